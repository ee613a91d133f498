/* factor_lpmm.h - The AdamW of lpmm with a factored second moment, a tensor rule. */
#ifndef QM_RULE_FACTOR_LPMM_H
#define QM_RULE_FACTOR_LPMM_H

#include "core/rule/rule.h"

/* Slots: exp_avg; exp_avg_sq, for tensors of fewer than two dims (or with factored = 0); for all
 * others exp_avg_sq_row of shape dim[0 .. rank-2] and exp_avg_sq_col, which lacks the dim before
 * the last.  A tensor without elements has all four, in its own shape. */
enum { QM_FACTOR_M, QM_FACTOR_V, QM_FACTOR_ROW, QM_FACTOR_COL, QM_FACTOR_SLOTS };

void qm_factor_lpmm_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                          struct qm_shape *out);

/* `states` and `apply` of struct qm_tensor_ops.  Means over rows and columns are sums in double in
 * the order of the elements.  If all gradients so far are zero, 0 / 0 makes the parameters NaN, as
 * in the source. */
qm_status qm_factor_lpmm_states(const struct qm_tensor_rule_args *w);
qm_status qm_factor_lpmm_apply(const struct qm_tensor_rule_args *w);

#endif
