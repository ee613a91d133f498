/* blocks_lion8.h - the rules of family_lion8.c as loops, one table per instruction set. */
#ifndef QM_RULE_BLOCKS_LION8_H
#define QM_RULE_BLOCKS_LION8_H

#include "core/rule/blocks.h"

/* clang-format off */
#define QM_LION8_BLOCK_LIST(X) X(lion8_unfused) X(lion8_fused) X(flash_adam) X(flash_sgd)
/* clang-format on */

struct qm_lion8_blocks {
#define X(name) qm_block_fn *name;
    QM_LION8_BLOCK_LIST(X)
#undef X
    qm_second_fn *second_flash_adam;
};

#endif
