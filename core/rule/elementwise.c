/* elementwise.c - Calls the loops over elements of the instruction set that qm_isa() chose. */
#include "core/base/isa.h"
#include "core/rule/element_loops.h"

#define X(name) extern const struct qm_element_loops qm_element_loops_##name;
QM_ISA_LIST(X)
#undef X

static const struct qm_element_loops *loops(void)
{
    static const struct qm_element_loops *const table[] = {
#define X(name) &qm_element_loops_##name,
        QM_ISA_LIST(X)
#undef X
    };
    return table[qm_isa()];
}

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
