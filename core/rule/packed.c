/* packed.c - chooses the instruction set. */
#include "core/rule/packed.h"

#include "core/base/isa.h"

#define X(name) extern const struct qm_blocks_packed qm_blocks_packed_##name;
QM_ISA_LIST(X)
#undef X

static const struct qm_blocks_packed *blocks(void)
{
    static const struct qm_blocks_packed *const table[] = {
#define X(name) &qm_blocks_packed_##name,
        QM_ISA_LIST(X)
#undef X
    };
    return table[qm_isa()];
}

#define X(name)                                                                             \
    int qm_packed_##name(const struct qm_rule_step *s, int64_t n, float *p, const float *g, \
                         const struct qm_packed_slot *slot)                                 \
    {                                                                                       \
        return blocks()->name(s, n, p, g, slot);                                            \
    }
QM_PACKED_LIST(X)
#undef X
