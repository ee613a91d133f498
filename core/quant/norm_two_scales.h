/* norm_two_scales.h - Norms that give every element two scales: rowcol, colrow, rank1block.
 *
 * The scales of the first axis precede those of the second in one array:
 *
 *     rowcol, colrow  dim[0] scales of rows, then dim[1] of columns (index of the second axis)
 *     rank1block      dim[0] ceil(dim[1] / N) scales of blocks within rows, row by row, then
 *                     dim[1] ceil(dim[0] / N) of blocks within columns, column by column
 *
 * Source: low-bit-optimizers, lpmm/functional.py quant_scaling (dim01, dim10, rank1-group). */
#ifndef QM_QUANT_NORM_TWO_SCALES_H
#define QM_QUANT_NORM_TWO_SCALES_H

#include "core/quant/quantizer.h"

/* The number of scales of a tensor of this shape; rank1block: of a matrix. */
int64_t qm_two_scales_count(const struct qm_codec *c, const struct qm_shape *shape);

/* Folds the elements [from, from + n) into stat.  again = 0: the first axis to divide by
 * (rank1block: both axes); again = 1 (rowcol, colrow): the other axis, of x divided by the first
 * one's complete statistic. */
void qm_two_scales_fold(const struct qm_codec *c, const struct qm_shape *shape, int again,
                        int64_t from, int64_t n, const float *x, float *stat);

/* The scales of n elements of one row of the last axis, from index `at` on (shape->rank entries).
 * Returns 1 if x is divided by first[] and then by second[], and decoding multiplies in the
 * opposite order.  Returns 0 if x is divided by second[] alone, the smaller of the two scales, or
 * NaN if either is NaN. */
int qm_two_scales_get(const struct qm_codec *c, const struct qm_shape *shape, const int64_t *at,
                      int64_t n, const float *scales, float *first, float *second);

#endif
