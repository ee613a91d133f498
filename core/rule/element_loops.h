/* element_loops.h - loops over elements, generated from the list of element.h for each instruction set.
 *
 * A rule names its element by QM_ELEMENTWISE(name), or QM_ELEMENTWISE_ADAM(name) of the second list. */
#ifndef QM_RULE_ELEMENT_LOOPS_H
#define QM_RULE_ELEMENT_LOOPS_H

#include "core/rule/element.h"
#include "core/rule/rule.h"

typedef void qm_element_loop(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                             float *const *slot);
typedef void qm_second_loop(const struct qm_rule_step *s, int64_t n, const float *p, const float *g,
                            float *slot1);

/* One table per instruction set. */
struct qm_element_loops {
#define X(name, ...) qm_element_loop *name;
    QM_ELEMENT_LIST(X)
#undef X
#define X(name, ...) qm_second_loop *second_##name;
    QM_ELEMENT_ADAM_LIST(X)
#undef X
};

/* By the instruction set that qm_isa() chose: qm_block_lion and so on, qm_second_adamw and so on. */
#define X(name, ...) qm_element_loop qm_block_##name;
QM_ELEMENT_LIST(X)
#undef X
#define X(name, ...) qm_second_loop qm_second_##name;
QM_ELEMENT_ADAM_LIST(X)
#undef X

/* `elementwise` of a rule; PACKED: with qm_packed_NAME and, or NULL, a function for packed_second (packed.h). */
#define QM_ELEMENTWISE(name) \
    .elementwise = &(const struct qm_elementwise_ops) { .element = #name, .block = qm_block_##name }
#define QM_ELEMENTWISE_ADAM(name)                                              \
    .elementwise = &(const struct qm_elementwise_ops)                          \
    {                                                                          \
        .element = #name, .block = qm_block_##name, .second = qm_second_##name \
    }
#define QM_ELEMENTWISE_PACKED(name, of_second)                                  \
    .elementwise = &(const struct qm_elementwise_ops)                           \
    {                                                                           \
        .element = #name, .block = qm_block_##name, .second = qm_second_##name, \
        .packed = qm_packed_##name, .packed_second = of_second                  \
    }

#endif
