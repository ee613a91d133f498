/* norm_two_scales.h - norms that give every element two scales: rowcol, colrow, rank1block.
 *
 * Scales lie in one array, those of the first axis before those of the second:
 *
 *     rowcol, colrow  dim[0] of rows, dim[1] of columns (index of the second axis)
 *     rank1block      dim[0] ceil(dim[1] / N) of pieces of rows, row by row, then
 *                     dim[1] ceil(dim[0] / N) of pieces of columns, column by column
 *
 * Source: low-bit-optimizers, lpmm/functional.py quant_scaling (dim01, dim10, rank1-group). */
#ifndef QM_QUANT_NORM_TWO_SCALES_H
#define QM_QUANT_NORM_TWO_SCALES_H

#include "core/quant/quantizer.h"

/* Whether norm is one of these; rank1block of a matrix only (qm_norm_for in quantizer_internal.h). */
int qm_norm_has_two_scales(enum qm_norm norm);

int64_t qm_two_scales_count(const struct qm_codec *c, const struct qm_shape *shape);

/* Folds [from, from + n) into stat: again = 0 what needs nothing else, again = 1 what is taken of x
 * already divided by the complete first fold. */
void qm_two_scales_fold(const struct qm_codec *c, const struct qm_shape *shape, int again,
                        int64_t from, int64_t n, const float *x, float *stat);

/* The scales of n elements of one row of the last axis, from index `at` on (shape->rank entries).
 * Returns 1 where x is divided by first[] and then by second[] (and decoding multiplies in the
 * opposite order), 0 where by second[] alone, the smaller of the two; NaN where either is. */
int qm_two_scales_get(const struct qm_codec *c, const struct qm_shape *shape, const int64_t *at,
                      int64_t n, const float *scales, float *first, float *second);

#endif
