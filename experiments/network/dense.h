/* dense.h - The matrix product and the vector exponential that dominate the time of networks.
 *
 * Matrices are doubles, row-major, with leading dimensions (elements from one row to the
 * next). Each element of c is one sum in the order k = 0, 1, ...; the product and the addition
 * of each term are rounded separately.  The bits are therefore the same for every instruction
 * set and shape. */
#ifndef QM_NETWORK_DENSE_H
#define QM_NETWORK_DENSE_H

#include "core/base/isa.h"

#include <stdint.h>

/* Shapes of c[m x n] += a b, b[depth x n].  Element (i, k) of a is a[i * row + k * col]: row = lda
 * and col = 1 for a[m x depth], row = 1 and col = lda for the transpose of a[depth x m]. */
struct qm_dense_product {
    int64_t m, depth, n;
    int64_t row, col; /* strides of a */
    int64_t ldb, ldc; /* leading dimensions of b and c */
};

/* c += a b as p says.  c overlaps neither a nor b. */
typedef void qm_dense_fn(const struct qm_dense_product *p, const double *a, const double *b,
                         double *c);

qm_dense_fn *qm_dense_of(void); /* for the instruction set in use */

/* c[m x n] += a[m x depth] b[depth x n], all without gaps. */
void qm_dense_add(const double *a, const double *b, double *c, int64_t m, int64_t depth, int64_t n);

/* c[m x n] += a' b with a[depth x m] and b[depth x n], all without gaps. */
void qm_dense_add_left(const double *a, const double *b, double *c, int64_t m, int64_t depth,
                       int64_t n);

/* out[cols x rows] = in', in[rows x cols] with leading dimension ld. */
void qm_dense_transpose(const double *in, int64_t ld, int64_t rows, int64_t cols, double *out);

/* y[i] = exp(x[i]) within 2 ULP, the same bits with every instruction set and libm.  x is clamped
 * to [-708, 709]; NaN stays NaN.  y may be x. */
typedef void qm_vector_exp_fn(const double *x, int64_t n, double *y);

qm_vector_exp_fn *qm_vector_exp_of(void);

#endif
