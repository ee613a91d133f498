/* elementwise.c - Calls the loops of elementwise rules for the chosen instruction set. */
#include "core/base/isa.h"
#include "core/rule/element_loops.h"
#include "core/rule/packed_loops.h"

QM_ISA_TABLE(const struct qm_element_loops, qm_element_loops)

static const struct qm_element_loops *loops(void) { return qm_element_loops_by_isa(); }

#define X(name, ...)                                                                        \
    void qm_block_##name(const struct qm_rule_step *s, int64_t n, float *p, const float *g, \
                         float *const *slot)                                                \
    {                                                                                       \
        loops()->name(s, n, p, g, slot);                                                    \
    }
QM_ELEMENT_LIST(X)
#undef X

#define X(name, ...)                                                                               \
    void qm_second_##name(const struct qm_rule_step *s, int64_t n, const float *p, const float *g, \
                          float *slot1)                                                            \
    {                                                                                              \
        loops()->second_##name(s, n, p, g, slot1);                                                 \
    }
QM_ELEMENT_ADAM_LIST(X)
#undef X

QM_ISA_TABLE(const struct qm_packed_loops, qm_packed_loops)

#define X(name)                                                                             \
    int qm_packed_##name(const struct qm_rule_step *s, int64_t n, float *p, const float *g, \
                         const struct qm_packed_slot *slot)                                 \
    {                                                                                       \
        return qm_packed_loops_by_isa()->name(s, n, p, g, slot);                            \
    }
QM_PACKED_LIST(X)
#undef X

int qm_packed_second_adamw_lpmm(const struct qm_rule_step *s, int64_t n, const float *g,
                                const struct qm_packed_slot *slot)
{
    return qm_packed_loops_by_isa()->second_adamw_lpmm(s, n, g, slot);
}
