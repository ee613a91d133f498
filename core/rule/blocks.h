/* blocks.h - the rules of family_adamw.c as loops over elements, one table per instruction set. */
#ifndef QM_RULE_BLOCKS_H
#define QM_RULE_BLOCKS_H

#include "core/base/isa.h"
#include "core/rule/rule.h"

/* clang-format off */
#define QM_BLOCK_LIST(X) X(adamw) X(adamw_ao) X(adamw_bnb) X(sgdm) X(ema) \
    X(adamw_amsgrad) X(adamw_ao_amsgrad)
/* clang-format on */

typedef void qm_block_fn(const struct qm_rule_step *s, int64_t n, float *restrict p,
                         const float *restrict g, float *const *slot);

/* The second moment alone. */
typedef void qm_second_fn(const struct qm_rule_step *s, int64_t n, const float *restrict p,
                          const float *restrict g, float *restrict slot1);

struct qm_blocks {
    qm_second_fn *second_adamw, *second_ao, *second_bnb;
#define X(name) qm_block_fn *name;
    QM_BLOCK_LIST(X)
#undef X
};

#endif
