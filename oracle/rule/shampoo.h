/* shampoo.h - What the oracle of Shampoo and its error bound share: tiles, eigenvectors, roots. */
#ifndef QM_ORACLE_SHAMPOO_H
#define QM_ORACLE_SHAMPOO_H

#include "oracle/bound/bound_tensor.h"

/* The Kronecker factors of a tensor: without its dims of size 1 it is the matrix [d0, rest], whose
 * sides are cut into pieces of m rows and n columns, which are max_order or the whole side; the
 * last piece of a side has what remains.  Each tile has one factor of the order of its rows on the
 * left and one of the order of its columns on the right. */
struct qm_kronecker {
    int64_t rows, cols, m, n, down, across;
};

/* 0: the tensor is empty, or fewer than two of its dims are larger than 1. */
int qm_kronecker_has(const struct qm_shape *shape);
struct qm_kronecker qm_kronecker_of(const struct qm_oracle_hyper *h, const struct qm_shape *shape);

/* Eigenvectors as the rows of vt[n][n], eigenvalues ev[n], and how far they may be off: e_vt[j] the
 * numbers of row j, e_ev[j]; HUGE_VAL where that is not small, or the sign of a row is open.
 *
 * judged: rows that take the place of open signs, which are then theirs; NULL: none.  encloses 1:
 * where a turn is not small, vt and ev are no longer the formula's, but the middle of what they may
 * be: rows of length 1, eigenvalues not below 0 whose sum is known. */
struct qm_eigenbasis {
    double *vt, *ev, *e_vt, *e_ev;
    const double *judged;
    int encloses;
};

/* One update by the term g[n][inner] of the covariance, g g^T.  unit: the unit roundoff of the
 * judged arithmetic; where it is that of float32, in which squares of g may overflow, nothing is
 * known.  A vt of zeros stands for the identity, and ev for matrix_eps.
 *
 * First order: with B = A X^T = Q R and a change dB of B, column j of Q turns by at most
 * sqrt(2) |dB| |R_j^-1|, norms of Frobenius, R_j the leading j x j block; an eigenvalue changes by
 * |dA| + 2 |A q - ev q| |dq| + |A| |dq|^2.  A reflection's sign is that of the diagonal element it
 * meets: open where this or the rest of its column is as small as its error and not 0, and so are
 * then those of all columns behind it, but no eigenvalue. */
qm_status qm_kronecker_statistic(const struct qm_oracle_hyper *h, int64_t n, int64_t inner,
                                 const double *g, double unit, const struct qm_eigenbasis *to);

/* root[n][n] = V diag((ev + matrix_eps max ev)^(-1/4)) V^T, V^T rectified rect_root times; e: how
 * far each number of it may be off. */
qm_status qm_kronecker_root(const struct qm_oracle_hyper *h, int64_t n, const double *vt,
                            const double *ev, double unit, double *root, double *e);

#endif
