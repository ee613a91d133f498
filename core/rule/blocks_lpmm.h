/* blocks_lpmm.h - the elementwise rules of family_lpmm.c as loops, one table per instruction set. */
#ifndef QM_RULE_BLOCKS_LPMM_H
#define QM_RULE_BLOCKS_LPMM_H

#include "core/base/isa.h"
#include "core/rule/rule.h"

/* clang-format off */
#define QM_LPMM_BLOCK_LIST(X) \
    X(adamw_lpmm) X(adamw_lpmm_fused) X(adamw_lpmm_fused_strict) X(sgdm_lpmm)
#define QM_LPMM_SECOND_LIST(X) \
    X(second_lpmm) X(second_lpmm_fused) X(second_lpmm_fused_strict)
/* clang-format on */

struct qm_blocks_lpmm {
#define X(name)                                                              \
    void (*name)(const struct qm_rule_step *s, int64_t n, float *restrict p, \
                 const float *restrict g, float *const *slot);
    QM_LPMM_BLOCK_LIST(X)
#undef X
#define X(name)                                                                    \
    void (*name)(const struct qm_rule_step *s, int64_t n, const float *restrict p, \
                 const float *restrict g, float *restrict slot1);
    QM_LPMM_SECOND_LIST(X)
#undef X
};

#endif
