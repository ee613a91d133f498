/* blocks_bnb.h - the rules of family_bnb.c as loops, one table per instruction set. */
#ifndef QM_RULE_BLOCKS_BNB_H
#define QM_RULE_BLOCKS_BNB_H

#include "core/base/isa.h"
#include "core/rule/bnb.h"
#include "core/rule/rule.h"

/* clang-format off */
#define QM_BNB_BLOCK_LIST(X) /* name, form */                                             \
    X(adamw, 32) X(adamw, plain) X(adamw, cuda)                                           \
    X(ademamix, 32) X(ademamix, plain) X(ademamix, cuda)                                  \
    X(momentum, 8) X(momentum, 32) X(momentum, plain)                                     \
    X(rmsprop, 8) X(rmsprop, 32) X(rmsprop, plain) X(rmsprop, cuda)                       \
    X(lion, 8) X(lion, 32) X(lion, plain)
/* clang-format on */

typedef void qm_bnb_block_fn(const struct qm_rule_step *s, int64_t n, float *restrict p,
                             const float *restrict g, float *const *slot);

struct qm_bnb_blocks {
#define X(name, form) qm_bnb_block_fn *name##_##form;
    QM_BNB_BLOCK_LIST(X)
#undef X
};

#endif
