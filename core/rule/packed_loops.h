/* packed_loops.h - The rules that update packed blocks in one loop, one table per instruction set.
 *
 * See `packed` of struct qm_elementwise_ops. */
#ifndef QM_RULE_PACKED_LOOPS_H
#define QM_RULE_PACKED_LOOPS_H

#include "core/rule/rule.h"

#define QM_PACKED_LIST(X) X(adamw_ao) X(adamw_bnb) X(adamw_lpmm) X(adamw_lpmm_fused)

typedef int qm_packed_fn(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                         const struct qm_packed_slot *slot);

typedef int qm_packed_second_fn(const struct qm_rule_step *s, int64_t n, const float *g,
                                const struct qm_packed_slot *slot);

/* One table per instruction set. */
struct qm_packed_loops {
#define X(name) qm_packed_fn *name;
    QM_PACKED_LIST(X)
#undef X
    qm_packed_second_fn *second_adamw_lpmm;
};

/* The loops of the instruction set that qm_isa() chose (elementwise.c). */
#define X(name) qm_packed_fn qm_packed_##name;
QM_PACKED_LIST(X)
#undef X
qm_packed_second_fn qm_packed_second_adamw_lpmm;

#endif
