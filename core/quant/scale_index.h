/* scale_index.h - The indices of an element's scales, by its position in the tensor (dual).
 *
 * `norm` is the norm that is used for the shape: rank1 of one dimension is block:128, rank1block of
 * more than two is rank1.  Scales lie in the order of kernel_abi.h and norm_two_scales.h. */
#ifndef QM_QUANT_SCALE_INDEX_H
#define QM_QUANT_SCALE_INDEX_H

#include "core/quant/norm.h"

/* The number of groups that an element belongs to, each with its own maximum. */
QM_FN int qm_scale_index_groups(enum qm_norm norm, int rank)
{
    switch (norm) {
    case QM_NORM_id: return 0;
    case QM_NORM_rank1: return rank;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: return 2;
    default: return 1;
    }
}

/* rowcol and colrow: the group whose scale divides first, before the maximum of the other group is
 * taken of the quotients; for all other norms -1. */
QM_FN int qm_scale_index_first(enum qm_norm norm)
{
    return norm == QM_NORM_rowcol ? 0 : norm == QM_NORM_colrow ? 1 : -1;
}

/* The index of the scale of group k, for the element with indices `at` and flat index `flat`. */
QM_FN int64_t qm_scale_index_of(enum qm_norm norm, int64_t block, const int64_t *dim,
                                const int64_t *at, int64_t flat, int k)
{
    int64_t before = 0;
    switch (norm) {
    case QM_NORM_block: return flat / block;
    case QM_NORM_row: return at[0];
    case QM_NORM_rowblock: return at[0] * ((dim[1] + block - 1) / block) + at[1] / block;
    case QM_NORM_col: return at[1];
    case QM_NORM_rank1:
        for (int i = 0; i < k; i++)
            before += dim[i];
        return before + at[k];
    case QM_NORM_rowcol:
    case QM_NORM_colrow: return k ? dim[0] + at[1] : at[0];
    case QM_NORM_rank1block: {
        int64_t per_row = (dim[1] + block - 1) / block, per_col = (dim[0] + block - 1) / block;
        return k ? dim[0] * per_row + at[1] * per_col + at[0] / block
                 : at[0] * per_row + at[1] / block;
    }
    default: return 0;
    }
}

/* The smaller of two scales; NaN if either is NaN. */
QM_FN float qm_smaller_scale(float a, float b)
{
    return qm_isnan(a) ? a : qm_isnan(b) ? b : a < b ? a : b;
}

#endif
