/* norm.h - AXIS norm: which elements share a scale (dual).
 *
 * The scale of a group is made from the maximum of |curve(x)| over it.  Words: tensor, row, col,
 * block:N, divblock:N, rowblock:N, rank1, rank1block:N, rowcol, colrow, id; "logblock:N" is read as
 * block:N/log2. */
#ifndef QM_QUANT_NORM_H
#define QM_QUANT_NORM_H

#include "core/base/dual.h"

/* clang-format off */
#define QM_NORM_LIST(X)                                                                          \
    X(tensor, "one scale for the whole tensor")                                                  \
    X(row,    "one scale per index of the first axis (lpmm dim0)")                               \
    X(col,    "one scale per index of the second axis (lpmm dim1)")                              \
    X(block,  "one scale per N consecutive elements of the flattened tensor; last one short")    \
    X(divblock, "blocks of the largest divisor of the number of elements that is at most N, so that " \
                "none is short; N = 0: one block (SOLO)")                                        \
    X(rowblock, "one scale per N consecutive elements of a row; blocks begin anew at each row, the " \
              "last of a row is short; matrices only (8-bit Muon of axolotl)")                   \
    X(rank1,  "one scale per index of every axis; an element uses the smallest of its own "      \
              "(arXiv:2309.01507, section 4.2); 1-D tensors: block:128")                         \
    X(rank1block, "one scale per N elements of each row and one per N of each column, the smaller "  \
              "is used; not a matrix: as rank1 (lpmm rank1-group)")                              \
    X(rowcol, "divided by its row's scale, then by its column's of what that leaves (lpmm dim01)") \
    X(colrow, "divided by its column's scale, then by its row's of what that leaves (lpmm dim10)") \
    X(id,     "no scale: values are used as they are (lpmm id)")
/* clang-format on */

enum qm_norm {
#define X(name, text) QM_NORM_##name,
    QM_NORM_LIST(X)
#undef X
        QM_NORM_COUNT
};

/* Whether the norm takes a block size N. */
QM_FN int qm_norm_has_block(enum qm_norm norm)
{
    return norm == QM_NORM_block || norm == QM_NORM_divblock || norm == QM_NORM_rowblock ||
           norm == QM_NORM_rank1block;
}

/* What rank1 and rank1block are for a tensor of `rank` dimensions: blocks of 128 up to one
 * dimension (lpmm/functional.py, whatever GROUP_SIZE says), rank1 from three dimensions on.  Any
 * other norm stays, and *block with it. */
QM_FN enum qm_norm qm_norm_of_rank(enum qm_norm norm, int rank, int64_t *block)
{
    if (norm != QM_NORM_rank1 && norm != QM_NORM_rank1block)
        return norm;
    if (rank <= 1) {
        *block = 128;
        return QM_NORM_block;
    }
    return rank > 2 ? QM_NORM_rank1 : norm;
}

#endif
