/* muon.h - The parts of a step of Muon that a replay of recorded steps takes one by one. */
#ifndef QM_RULE_MUON_H
#define QM_RULE_MUON_H

#include "core/rule/tensor_rule.h"

/* The matrices of a tensor: muon_lin (is_lin) takes the last two dims, or with flatten [d0, rest];
 * muon_bnb the last two of up to three dims, else [d0, rest]. */
void qm_muon_matrices(const struct qm_hyper *h, int is_lin, const struct qm_shape *shape,
                      struct qm_matrices *out);

/* x[batch][rows][cols], numbers of bfloat16, <- the orthogonal factor of each matrix: the matrix
 * over its Frobenius norm (muon_lin: plus eps; muon_bnb: at least eps), and five Newton-Schulz
 * iterations. A matrix with a NaN becomes NaN. */
qm_status qm_muon_orthogonalize(const struct qm_matrices *m, int is_lin, double eps, float *x);

/* The step of the parameter p[n] by the factors o[n], to be run as QM_SWEEP_muon_step. */
struct qm_sweep qm_muon_step(const struct qm_hyper *h, int is_lin, const struct qm_shape *shape,
                             float *p, const float *o);

#endif
