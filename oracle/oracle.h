/* oracle.h - the double-precision references.
 *
 * Written from the papers with the papers' symbols, a loop per line of the formula, nothing
 * folded.  No oracle includes anything of core/ but core/base: it shares no code with what it
 * judges.  Tested on closed forms, on trajectories published elsewhere and against 200-bit
 * arithmetic, never on our variants. */
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
    X(gap) X(scale) X(margin) X(max_unorm) X(gnorm_scale) X(initial_lr)
#define QM_ORACLE_HYPER_FLAG_LIST(X)                                                     \
    X(nesterov) X(maximize) X(amsgrad) X(relative_step) X(scale_parameter)               \
    X(scale_weight_decay) X(factored) X(limiter) X(tensor_scale) X(scale_front)          \
    X(correct_bias) X(svd) X(centered) X(warmup) X(clip_twice) X(decouple_lr)
/* clang-format on */

struct qm_oracle_hyper {
#define X(name) double name;
    QM_ORACLE_HYPER_LIST(X)
#undef X
#define X(name) int name;
    QM_ORACLE_HYPER_FLAG_LIST(X)
#undef X
};

enum { QM_ORACLE_SLOTS = 8 };

struct qm_bound_step; /* bound.h */

struct qm_oracle {
    const char *family; /* the rules it is the reference for: "adamw" */
    const char *source; /* paper and equation numbers */
    int n_slots;        /* slots every step needs */
    /* Their names.  Where slot[n_slots] is named too, steps with hyper.amsgrad need that one
     * besides ("max_exp_avg_sq"); others never touch it. */
    const char *slot[QM_ORACLE_SLOTS];
    /* One step.  p, g and every slot[i] hold n = rows * cols elements, row-major; p and slots are
     * updated in place and start at 0; t >= 1 counts from 1.  Elementwise families ignore the
     * shape.  NaN and Inf go through the formula as IEEE arithmetic takes them.  NULL for families
     * over whole tensors. */
    void (*step)(double *p, double *const *slot, const double *g, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t);

    /* One step of a family that needs the tensor's shape: p and g have it; the slots, which start
     * at 0, have those that the oracle's file states (none is larger than p but where the rank of a
     * projection is beyond the smaller side); a slot that this tensor does not have may be NULL.
     * tensor: its number in the problem, from 0.  QM_BAD_ARG: the family takes no such shape. */
    qm_status (*whole)(double *p, double *const *slot, const double *g,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t);

    /* How far float32 arithmetic may be from one such step (bound.h).  NULL: not derived. */
    qm_status (*bound)(const struct qm_bound_step *b);
};

/* One step of either kind. */
qm_status qm_oracle_step(const struct qm_oracle *o, double *p, double *const *slot, const double *g,
                         const struct qm_shape *shape, uint32_t tensor,
                         const struct qm_oracle_hyper *h, int64_t t);

const struct qm_oracle *qm_oracle_find(const char *family); /* NULL when there is none */
int qm_oracle_count(void);
const struct qm_oracle *qm_oracle_at(int i);

#endif
