/* slots.h - The preconditioners of Shampoo's variants, and the defaults that they share. */
#ifndef QM_SHAMPOO_SLOTS_H
#define QM_SHAMPOO_SLOTS_H

#include "core/recipe/variant.h"

/* "linear-2", absmax of 64 within a row, reciprocal, ties to the even code; 7 is the code of 0. */
#define QM_SHAMPOO_4 "lin2:4s/rowblock:64/bisect/even/lo/recip/nanzero"

/* The slots behind the moments; `words`: the quantizer of eigenvectors and roots. */
#define QM_SHAMPOO_SLOTS(words)                                        \
    {.name = "left_vectors", .quantizer = words, .init_code = 7},      \
        {.name = "right_vectors", .quantizer = words, .init_code = 7}, \
        {.name = "eigenvalues", .quantizer = "f32"},                   \
        {.name = "left_root", .quantizer = words, .init_code = 7},     \
        {.name = "right_root", .quantizer = words, .init_code = 7},    \
    {                                                                  \
        .name = "diagonals", .quantizer = "f32"                        \
    }

/* optimizers/shampoo2.py; main_demo.py uses them too. */
#define QM_SHAMPOO_HYPER                                                                  \
    .stat_decay = 0.95, .matrix_eps = 1e-6, .stat_gap = 100, .root_gap = 500, .start = 1, \
    .rect_stat = 1, .rect_root = 4, .max_order = 1200

#endif
