/* element_loops.h - Loops over elements, one table per instruction set.
 *
 * They are generated from the lists of element.h.  A rule names its element by QM_ELEMENTWISE(name)
 * or, for the second list, by QM_ELEMENTWISE_ADAM(name). */
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

/* The loops of the instruction set that qm_isa() chose (elementwise.c). */
#define X(name, ...) qm_element_loop qm_block_##name;
QM_ELEMENT_LIST(X)
#undef X
#define X(name, ...) qm_second_loop qm_second_##name;
QM_ELEMENT_ADAM_LIST(X)
#undef X

/* The member `elementwise` of a rule.  PACKED: with qm_packed_NAME as `packed`, and with
 * `packed_second`, which may be NULL (packed_loops.h). */
#define QM_ELEMENTWISE(name) \
    .elementwise = &(const struct qm_elementwise_ops) { .element = #name, .block = qm_block_##name }
#define QM_ELEMENTWISE_ADAM(name)                                              \
    .elementwise = &(const struct qm_elementwise_ops)                          \
    {                                                                          \
        .element = #name, .block = qm_block_##name, .second = qm_second_##name \
    }
#define QM_ELEMENTWISE_PACKED(name, second_of_packed)                           \
    .elementwise = &(const struct qm_elementwise_ops)                           \
    {                                                                           \
        .element = #name, .block = qm_block_##name, .second = qm_second_##name, \
        .packed = qm_packed_##name, .packed_second = second_of_packed           \
    }

#endif
