/* project.h - what the references of APOLLO and Fira share: projections, norms, the limiter.
 *
 * G is m x n.  A right projection P is r x n and gives R = G P^T (m x r); a left one is m x r and
 * gives R = P^T G (r x n).  Matrices are made by GSL's generator and eigenvalue solver, and
 * rounded to float32 as the sources make them. */
#ifndef QM_ORACLE_PROJECT_H
#define QM_ORACLE_PROJECT_H

#include "oracle/oracle.h"

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

/* P of step t where a new one is due: steps 1, 1 + gap, ..., or while it is zero; gap 0: never. */
qm_status qm_project_renew(const struct qm_oracle_hyper *h, int svd, const struct qm_projection *q,
                           const double *g, uint32_t tensor, int64_t t, double *p);

#endif
