/* projection.h - Projections, channel norms and the limiter, for the references of APOLLO and Fira.
 *
 * G is m x n.  A right projection P is r x n and gives R = G P^T (m x r); a left one is m x r and
 * gives R = P^T G (r x n).  The matrices P come from GSL's generator and eigenvalue solver and are
 * rounded to float32, as the sources' are. */
#ifndef QM_RULE_PROJECTION_H
#define QM_RULE_PROJECTION_H

#include "oracle/bound/bound_tensor.h"

struct qm_projection {
    int right;
    int64_t m, n, r, rows, cols; /* R is rows x cols */
};

/* Fills *out and returns 1; 0: the tensor is not projected (rank 0, not two dimensions, or empty).
 * cut: a rank above the smaller side is reduced to it. */
int qm_projection_of(const struct qm_oracle_hyper *h, int cut, const struct qm_shape *shape,
                     struct qm_projection *out);

/* What the step of projected moments is multiplied by: sqrt(1 - beta2^t) / (1 - beta1^t), or 1
 * where there is no correction. */
static inline double qm_project_correction(const struct qm_oracle_hyper *h, int64_t t)
{
    if (!h->correct_bias)
        return 1.0;
    return sqrt(qm_oracle_correction(h->beta2, t)) / qm_oracle_correction(h->beta1, t);
}

/* R from G. */
void qm_project(const struct qm_projection *q, const double *g, const double *p, double *r);

/* out = alpha X P (right) or alpha P X (left), m x n. */
void qm_project_back(const struct qm_projection *q, const double *x, const double *p, double alpha,
                     double *out);

/* x <- x |a| / (|b| + 1e-8) with the norms of the rows (axis 1) or columns (axis 0) of a and b,
 * which are rows x cols: one factor per row or column of x (m x n), or one factor for all.
 * QM_BAD_ARG: a has neither one row (column) nor as many as x. */
qm_status qm_project_scale(const struct qm_projection *q, int axis, const double *a,
                           const double *b, double *x);

/* arXiv:2410.01623: x <- x min(1, (1 + margin) (prev + 1e-8) / |x|), except at t = 1; then
 * prev <- |x|. */
void qm_project_limit(double *x, int64_t n, double margin, int64_t t, double *prev);

/* Whether step t makes a new P: at steps 1, 1 + gap, ..., and while P is zero; gap 0: never. */
int qm_project_is_due(const struct qm_oracle_hyper *h, const struct qm_projection *q, int64_t t,
                      const double *p);

/* Replaces P where step t makes a new one: by singular vectors of G (svd), else at random. */
qm_status qm_project_renew(const struct qm_oracle_hyper *h, int svd, const struct qm_projection *q,
                           const double *g, uint32_t tensor, int64_t t, double *p);

/* ---- error bounds (bound_projection.c): float32 in the order of the sources ------------------ */

/* r, out, x: the balls of R, of alpha X P and of the scaled x.  p: the P that the judged side
 * used, exact. */
void qm_ball_project(const struct qm_bound_step *b, const struct qm_projection *q, const double *p,
                     struct qm_ball *r);
void qm_ball_project_back(const struct qm_bound_step *b, const struct qm_projection *q,
                          const struct qm_ball *x, const double *p, double alpha,
                          struct qm_ball *out);
void qm_ball_project_scale(const struct qm_bound_step *b, const struct qm_projection *q, int axis,
                           const struct qm_ball *top, const struct qm_ball *low, struct qm_ball *x);

/* Limits x; slot `slot` keeps the norm. */
void qm_ball_project_limit(const struct qm_bound_step *b, int slot, struct qm_ball *x);

/* The wanted value and the error of P in slot `slot`; the error is 0 where the old P is kept. */
qm_status qm_ball_project_matrix(const struct qm_bound_step *b, const struct qm_projection *q,
                                 int svd, int slot);

/* The wanted value and the error of new singular vectors in slot `slot`: the stored vectors are
 * within the bounds if and only if they are orthonormal and are, in order, leading singular
 * vectors of a matrix that differs from G by no more than rounding allows (bound_singular.c).  G
 * must be finite. */
qm_status qm_ball_project_singular(const struct qm_bound_step *b, const struct qm_projection *q,
                                   int slot);

/* Adam's moments of r[k] in slots 0 and 1, and r_tilde = m / (sqrt(v) + eps).  own: R comes from a
 * P that the judged side chose, so the wanted states are the midpoints of the balls. */
void qm_ball_adam_states(const struct qm_bound_step *b, int own, const struct qm_ball *r, int64_t k,
                         struct qm_ball *r_tilde);

/* theta <- theta - step u; if `decays` and lambda > 0, then theta <- theta - lr lambda theta. */
void qm_ball_update_param(const struct qm_bound_step *b, int own, double step,
                          const struct qm_ball *u, int decays);

#endif
