/* packed.c - chooses the instruction set. */
#include "core/rule/packed.h"

#include "core/base/isa.h"

QM_ISA_TABLE(const struct qm_blocks_packed, qm_blocks_packed)

static const struct qm_blocks_packed *blocks(void) { return qm_blocks_packed_by_isa(); }

#define X(name)                                                                             \
    int qm_packed_##name(const struct qm_rule_step *s, int64_t n, float *p, const float *g, \
                         const struct qm_packed_slot *slot)                                 \
    {                                                                                       \
        return blocks()->name(s, n, p, g, slot);                                            \
    }
QM_PACKED_LIST(X)
#undef X

int qm_packed_second_adamw_lpmm(const struct qm_rule_step *s, int64_t n, const float *g,
                                const struct qm_packed_slot *slot)
{
    return blocks()->second_adamw_lpmm(s, n, g, slot);
}
