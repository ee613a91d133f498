/* norm.h - AXIS norm: which elements share a scale (dual).
 *
 * The scale of a group is the maximum of |curve(x)| over it.  Words: tensor, row, col, block:N,
 * rank1, id; "logblock:N" is read as block:N/log2. */
#ifndef QM_QUANT_NORM_H
#define QM_QUANT_NORM_H

#include "core/base/dual.h"

/* clang-format off */
#define QM_NORM_LIST(X)                                                                          \
    X(tensor, "one scale for the whole tensor")                                                  \
    X(row,    "one scale per index of the first axis (lpmm dim0)")                               \
    X(col,    "one scale per index of the second axis (lpmm dim1)")                              \
    X(block,  "one scale per N consecutive elements of the flattened tensor; last one short")    \
    X(rank1,  "one scale per index of every axis; an element uses the smallest of its own "      \
              "(arXiv:2309.01507, section 4.2); 1-D tensors: block:128")                         \
    X(id,     "no scale: values are used as they are (lpmm id)")
/* clang-format on */

enum qm_norm {
#define X(name, text) QM_NORM_##name,
    QM_NORM_LIST(X)
#undef X
        QM_NORM_COUNT
};

#define QM_RANK1_BLOCK 128 /* of a 1-D tensor: lpmm/functional.py, whatever GROUP_SIZE says */

#endif
