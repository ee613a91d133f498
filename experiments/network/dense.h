/* dense.h - the matrix product and the exponential that problems with layers spend their time in.
 *
 * Doubles, row-major, with leading dimensions (elements from one row to the next).  Each element
 * of c is one sum from k = 0 on, a product and an addition rounded separately, whatever the
 * instruction set and the shape: the same bits everywhere. */
#ifndef QM_NETWORK_DENSE_H
#define QM_NETWORK_DENSE_H

#include "core/base/isa.h"

#include <stdint.h>

/* c[m x n] += a b with element (i, k) of a at a[i * row + k * col] and b[depth x n]: row = lda and
 * col = 1 for a as it stands, row = 1 and col = lda for its transpose.  c overlaps neither. */
typedef void qm_dense_fn(int64_t m, int64_t depth, int64_t n, const double *a, int64_t row,
                         int64_t col, const double *b, int64_t ldb, double *c, int64_t ldc);

qm_dense_fn *qm_dense_of(void); /* for the instruction set in use */

/* c[m x n] += a[m x depth] b[depth x n], all without gaps. */
void qm_dense_add(const double *a, const double *b, double *c, int64_t m, int64_t depth, int64_t n);

/* c[m x n] += a' b, a[depth x m]. */
void qm_dense_add_left(const double *a, const double *b, double *c, int64_t m, int64_t depth,
                       int64_t n);

/* out[cols x rows] = in' , in[rows x cols] with rows `ld` apart. */
void qm_dense_transpose(const double *in, int64_t ld, int64_t rows, int64_t cols, double *out);

/* y[i] = exp(x[i]) within 2 ULP, the same bits at every instruction set and on every libm; x is
 * taken into [-708, 709], NaN stays.  y may be x. */
typedef void qm_vector_exp_fn(const double *x, int64_t n, double *y);

qm_vector_exp_fn *qm_vector_exp_of(void);

#endif
