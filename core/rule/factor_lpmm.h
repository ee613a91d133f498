/* factor_lpmm.h - lpmm's AdamW with a factored second moment, over whole tensors. */
#ifndef QM_RULE_FACTOR_LPMM_H
#define QM_RULE_FACTOR_LPMM_H

#include "core/rule/rule.h"

/* Slots: exp_avg; exp_avg_sq, of tensors with fewer than two dimensions (or factored = 0);
 * exp_avg_sq_row, of shape dim[0 .. rank-2], and exp_avg_sq_col, without the dimension before the
 * last, of all others.  Without elements a tensor has the four of its own shape. */
enum { QM_FACTOR_M, QM_FACTOR_V, QM_FACTOR_ROW, QM_FACTOR_COL, QM_FACTOR_SLOTS };

void qm_factor_lpmm_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                          struct qm_shape *out);

/* See rule.h; means over rows and columns are sums in double in the order of the elements.  All
 * gradients zero so far: 0 / 0 makes the parameters NaN, as in the source. */
qm_status qm_factor_lpmm_states(const struct qm_tensor_rule_args *w);
qm_status qm_factor_lpmm_apply(const struct qm_tensor_rule_args *w);

#endif
