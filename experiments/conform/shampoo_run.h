/* shampoo_run.h - A recorded run of 4-bit Shampoo, as its two replays share it. */
#ifndef QM_CONFORM_SHAMPOO_RUN_H
#define QM_CONFORM_SHAMPOO_RUN_H

#include "core/rule/shampoo.h"
#include "experiments/conform/run.h"
#include "oracle/rule/shampoo.h"

struct qm_shampoo_record {
    struct qm_hyper h;
    struct qm_recipe recipe;
    struct qm_oracle_hyper wide;
    struct qm_shape shape;
    struct qm_shampoo_tiles tiles; /* down 0: no preconditioner */
    struct qm_codec codec;
    int is_adam, open_codes; /* open_codes: codes near a mid-point that fell the other way */
    int64_t n, steps;
    const double *rates; /* of each step, or NULL: the recipe's */
    const float *p0, *grads, *params, *preconditioned;
};

/* A factor: the recorded state of one side of one tile, or of its root, after every step. */
struct qm_shampoo_matrix {
    int64_t n, n_scales;
    const int64_t *codes;                 /* NULL: values */
    const float *scales, *values, *apart; /* apart: eigenvalues, or the diagonal of a coded root */
};

/* x[n][n] <- the matrix after step t: the identity before the first one. */
void qm_shampoo_matrix_at(struct qm_conform *c, const struct qm_shampoo_record *r,
                          const struct qm_shampoo_matrix *m, int is_root, int64_t t, float *x);

/* Judges the preconditioned gradient of step t, from the recorded roots. */
void qm_shampoo_judge_preconditioned(struct qm_conform *c, const struct qm_shampoo_record *r,
                                     const struct qm_shampoo_matrix *root, int64_t t);

/* The steps of the registered rule, each from the recorded state before it, where the order of a
 * factor says whether it has codes, no code was open, and the step forms the recorded codes of
 * every root. */
void qm_shampoo_judge_steps(struct qm_conform *c, struct qm_shampoo_record *r,
                            const struct qm_shampoo_matrix *stat,
                            const struct qm_shampoo_matrix *root);

#endif
