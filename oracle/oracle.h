/* oracle.h - the double-precision references.
 *
 * Written from the papers with the papers' symbols, a loop per line of the formula, nothing
 * folded.  No oracle includes anything of core/ but core/base: it shares no code with what it
 * judges.  Tested on closed forms, on trajectories published elsewhere and against 200-bit
 * arithmetic, never on our variants. */
#ifndef QM_ORACLE_ORACLE_H
#define QM_ORACLE_ORACLE_H

#include <stdint.h>

/* The oracle's own hyper-parameters: the same names as the rules', not the same type. */
struct qm_oracle_hyper {
    double lr, beta1, beta2, beta3, eps, eps1, eps2, weight_decay, momentum, dampening, alpha,
        t_alpha, t_beta3, clip, beta2_decay, rank, gap, scale, margin, max_unorm, gnorm_scale,
        initial_lr;
    int nesterov, maximize, amsgrad, relative_step, scale_parameter, scale_weight_decay, factored,
        limiter, tensor_scale, scale_front;
    /* The parameter's own shape, for families that treat dimensions apart (factored moments);
     * n_dims 0: a matrix of the rows and cols that step is given. */
    int n_dims;
    int64_t dim[8];
};

struct qm_oracle {
    const char *family; /* the rules it is the reference for: "adamw" */
    const char *source; /* paper and equation numbers */
    int n_slots;        /* slots every step needs */
    /* Their names.  Where slot[n_slots] is named too, steps with hyper.amsgrad need that one
     * besides ("max_exp_avg_sq"); others never touch it. */
    const char *slot[8];
    /* One step.  p, g and every slot[i] hold n = rows * cols elements, row-major (factored moments
     * use the first ones only, as their file says); p and slots are updated in place and start at
     * 0; t >= 1 counts from 1.  Elementwise families ignore the shape.  NaN and Inf go through the formula as IEEE arithmetic takes them. */
    void (*step)(double *p, double *const *slot, const double *g, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t);
};

const struct qm_oracle *qm_oracle_find(const char *family); /* NULL when there is none */
int qm_oracle_count(void);
const struct qm_oracle *qm_oracle_at(int i);

#endif
