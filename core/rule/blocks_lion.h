/* blocks_lion.h - the rule of family_lion.c as a loop, one table per instruction set. */
#ifndef QM_RULE_BLOCKS_LION_H
#define QM_RULE_BLOCKS_LION_H

#include "core/base/isa.h"
#include "core/rule/rule.h"

struct qm_blocks_lion {
    void (*lion)(const struct qm_rule_step *s, int64_t n, float *restrict p,
                 const float *restrict g, float *const *slot);
};

#endif
