/* oracle.h - The double-precision references of the optimizers, and their list.
 *
 * Each is written from the paper with the paper's symbols, one loop per line of the formula,
 * nothing folded.  An oracle includes nothing of core/ but core/base: it shares no code with what
 * it judges. The oracles are tested on closed forms, on trajectories published elsewhere and
 * against 200-bit arithmetic, never on variants of this tree. */
#ifndef QM_ORACLE_ORACLE_H
#define QM_ORACLE_ORACLE_H

#include "core/base/tensor.h"

/* The oracle's own hyper-parameters, under the names that the rules use (core/rule/rule.h) but in a
 * type of their own.  Each file in rule/ states the formula that a name stands in; a family ignores
 * the names that its formula does not contain. */
/* clang-format off */
#define QM_ORACLE_HYPER_LIST(X)                                                          \
    X(lr) X(beta1) X(beta2) X(beta3) X(eps) X(eps1) X(eps2) X(weight_decay) X(momentum)  \
    X(dampening) X(alpha) X(t_alpha) X(t_beta3) X(clip) X(beta2_decay) X(rank) X(side)   \
    X(gap) X(scale) X(margin) X(max_unorm) X(gnorm_scale) X(initial_lr) X(momentum_decay) \
    X(adjust) X(window) X(k_init) X(d_block) X(stat_decay) X(matrix_eps)         \
    X(stat_gap) X(root_gap) X(start) X(rect_stat) X(rect_root) X(max_order) X(min_lowbit)
#define QM_ORACLE_HYPER_FLAG_LIST(X)                                                     \
    X(nesterov) X(maximize) X(amsgrad) X(relative_step) X(scale_parameter)               \
    X(scale_weight_decay) X(factored) X(limiter) X(tensor_scale) X(scale_front)          \
    X(correct_bias) X(svd) X(centered) X(warmup) X(clip_twice) X(decouple_lr)       \
    X(flatten)
/* clang-format on */

struct qm_oracle_hyper {
#define X(name) double name;
    QM_ORACLE_HYPER_LIST(X)
#undef X
#define X(name) int name;
    QM_ORACLE_HYPER_FLAG_LIST(X)
#undef X
};

enum { QM_ORACLE_SLOTS = 12 };

struct qm_bound_step; /* bound.h */

struct qm_oracle {
    const char *family;  /* the rules that it is the reference for: "adamw" */
    const char *source;  /* paper and equation numbers */
    int n_slots;         /* slots that every step needs */
    int has_adam_states; /* the slots are Adam's m and v: averages whose weights sum to 1, of which
                          * the step takes m / (1 - beta1^t) and v / (1 - beta2^t) */
    /* Names of the slots.  Where slot[n_slots] is named too, steps with hyper.amsgrad need that
     * slot as well ("max_exp_avg_sq"); steps without amsgrad never touch it. */
    const char *slot[QM_ORACLE_SLOTS];
    /* One step of a family that needs no shape; NULL for families over whole tensors.  p, g and
     * every slot[i] hold n = rows * cols elements, row-major; p and the slots are updated in place;
     * slots start at 0; t = 1, 2, ... counts the steps.  The shape (rows, cols) is ignored.  NaN
     * and Inf go through the formula by the rules of IEEE arithmetic. */
    void (*step)(double *p, double *const *slot, const double *g, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t);

    /* One step of a family that needs the tensor's shape; NULL for the others.  p and g
     * have that shape; the slots, which start at 0, have the shapes that the oracle's file states
     * (none is larger than p unless the rank of a projection exceeds the smaller side); a slot that
     * this tensor does not have may be NULL.  tensor: the tensor's number in the problem, from 0.
     * QM_BAD_ARG: the family takes no such shape. */
    qm_status (*whole)(double *p, double *const *slot, const double *g,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t);

    /* Bounds the distance of float32 arithmetic from one such step (bound.h).  NULL:
     * not derived. */
    qm_status (*bound)(const struct qm_bound_step *b);
};

/* Whether there is an oracle of that family and it has Adam's states. */
int qm_oracle_has_adam_states(const char *family);

/* One step of either kind: `whole` where the family has it, else `step`. */
qm_status qm_oracle_step(const struct qm_oracle *o, double *p, double *const *slot, const double *g,
                         const struct qm_shape *shape, uint32_t tensor,
                         const struct qm_oracle_hyper *h, int64_t t);

const struct qm_oracle *qm_oracle_find(const char *family); /* NULL when there is none */
int qm_oracle_count(void);
const struct qm_oracle *qm_oracle_at(int i);

#endif
