/* muon.h - What the oracle of Muon and its error bound share: kinds, matrices, Newton-Schulz. */
#ifndef QM_ORACLE_MUON_H
#define QM_ORACLE_MUON_H

#include "oracle/bound/bound_tensor.h"

enum { QM_MUON_ITERATIONS = 5 };

/* A published form of Muon. */
struct qm_muon_kind {
    int rounds_all; /* 1: every product and sum of an iteration is rounded to bfloat16, and so is
                     * the scaled update; 0: one rounding per line of the iteration */
    double (*triple)[3]; /* a, b, c of each iteration */
};
extern const struct qm_muon_kind qm_muon_lin, qm_muon_bnb;

/* The batch of matrices of a tensor, and the factor sqrt(rows / cols) or 0.2 sqrt(the larger) of
 * the learning rate.  QM_BAD_ARG: the tensor has fewer than two dimensions. */
struct qm_muon_shape {
    int64_t batch, rows, cols;
    double ratio;
};
qm_status qm_muon_shape_of(const struct qm_muon_kind *kind, const struct qm_oracle_hyper *h,
                           const struct qm_shape *shape, struct qm_muon_shape *out);

extern const struct qm_float_format qm_muon_bf16;
static inline double qm_muon_round(double x) { return qm_float_format_round(&qm_muon_bf16, x); }

/* X <- the first so many iterations of X[k][n]; rounded: with the roundings to bfloat16.
 * room: 2 k k + k n. */
void qm_muon_iterate(const struct qm_muon_kind *kind, int iterations, int rounded, int64_t k,
                     int64_t n, double *x, double *room);

/* d of bound_muon.c: what the roundings of five iterations from X[k][n], k <= n, whose norm is
 * known, move the factor by, as a norm of Frobenius.  QM_NO_MEMORY, QM_INTERNAL: no eigenvalues. */
qm_status qm_muon_spread(const struct qm_muon_kind *kind, int64_t k, int64_t n, const double *x,
                         double *d);

/* The bound of a step (bound_muon.c). */
qm_status qm_muon_bound(const struct qm_bound_step *b, const struct qm_muon_kind *kind);

#endif
