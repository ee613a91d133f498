/* projection.h - what the references of APOLLO and Fira share: projections, norms, the limiter.
 *
 * G is m x n.  A right projection P is r x n and gives R = G P^T (m x r); a left one is m x r and
 * gives R = P^T G (r x n).  Matrices are made by GSL's generator and eigenvalue solver, and
 * rounded to float32 as the sources make them. */
#ifndef QM_RULE_PROJECTION_H
#define QM_RULE_PROJECTION_H

#include "oracle/bound/bound_tensor.h"

struct qm_projection {
    int right;
    int64_t m, n, r, rows, cols; /* rows x cols: R */
};

/* 0: this tensor is not projected (no rank, not two dims, or empty). */
int qm_projection_of(const struct qm_oracle_hyper *h, int cut, const struct qm_shape *shape,
                     struct qm_projection *out);

void qm_project(const struct qm_projection *q, const double *g, const double *p, double *r);

/* alpha (X P) or alpha (P X), m x n. */
void qm_project_back(const struct qm_projection *q, const double *x, const double *p, double alpha,
                     double *out);

/* x times |a| / (|b| + 1e-8), the norms over the rows (axis 1) or columns (axis 0) of a and b
 * (rows x cols): one factor a row or column of x, or one for all.  QM_BAD_ARG: their number fits
 * neither. */
qm_status qm_project_scale(const struct qm_projection *q, int axis, const double *a,
                           const double *b, double *x);

/* arXiv:2410.01623: x <- x min(1, (1 + margin) (prev + 1e-8) / |x|) but at t = 1; prev <- |x|. */
void qm_project_limit(double *x, int64_t n, double margin, int64_t t, double *prev);

/* Whether step t makes a new P: steps 1, 1 + gap, ..., or while it is zero; gap 0: never. */
int qm_project_is_due(const struct qm_oracle_hyper *h, const struct qm_projection *q, int64_t t,
                      const double *p);

/* P of step t where a new one is due. */
qm_status qm_project_renew(const struct qm_oracle_hyper *h, int svd, const struct qm_projection *q,
                           const double *g, uint32_t tensor, int64_t t, double *p);

/* ---- the same in pairs (bound_projection.c), float32 in the order of the sources ------------------- */

/* P is what the judged side used, exact. */
void qm_ball_project(const struct qm_bound_step *b, const struct qm_projection *q, const double *p,
                     struct qm_ball *r);
void qm_ball_project_back(const struct qm_bound_step *b, const struct qm_projection *q,
                          const struct qm_ball *x, const double *p, double alpha,
                          struct qm_ball *out);
void qm_ball_project_scale(const struct qm_bound_step *b, const struct qm_projection *q, int axis,
                           const struct qm_ball *top, const struct qm_ball *low, struct qm_ball *x);

/* Slot `slot` keeps the norm. */
void qm_ball_project_limit(const struct qm_bound_step *b, int slot, struct qm_ball *x);

/* What is wanted of slot `slot`, P, and its error: none where the old one is kept. */
qm_status qm_ball_project_matrix(const struct qm_bound_step *b, const struct qm_projection *q,
                                 int svd, int slot);

/* Of new singular vectors: the stored ones are within the bounds if and only if they are orthonormal
 * and leading singular vectors, in order, of a matrix as near to G as rounding leaves it
 * (bound_singular.c).  G finite. */
qm_status qm_ball_project_singular(const struct qm_bound_step *b, const struct qm_projection *q,
                                   int slot);

/* Adam's moments of r[k], slots 0 and 1, and m / (sqrt(v) + eps).  With a P of the judged side's own
 * the wanted values are those of the pairs. */
void qm_ball_adam_states(const struct qm_bound_step *b, int own, const struct qm_ball *r, int64_t k,
                         struct qm_ball *r_tilde);

/* theta <- theta - step u, then decayed by lr lambda where lambda > 0. */
void qm_ball_update_param(const struct qm_bound_step *b, int own, double step,
                          const struct qm_ball *u, int decays);

#endif
