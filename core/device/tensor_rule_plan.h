/* tensor_rule_plan.h - A tensor rule on a device: a plan of any number of tensors.
 *
 * A tensor rule has sums over whole tensors.  Its functions `states` and `apply` run on the host
 * and hand their operations to the device (launch_queue.h); a new projection is sent as data when
 * it is due.  Each slot, and the parameter with the gradient, is part of a batch (batch.h) whose
 * rule only stores: one batch for all tensors whose slots have the same form.  So a step of
 * hundreds of tensors takes as many launches as one of the tensor that needs most, times the number
 * of different forms. */
#ifndef QM_DEVICE_TENSOR_RULE_PLAN_H
#define QM_DEVICE_TENSOR_RULE_PLAN_H

#include "core/device/batch.h"

struct qm_tensor_rule_plan; /* opaque */

/* As qm_batch_open, but for tensors of any forms.  QM_SKIPPED also for rules that have no
 * operations on a device (qm_rule.sweeps). */
qm_status qm_tensor_rule_open(const struct qm_device *d, enum qm_mode mode,
                              const struct qm_recipe *r, int n, const struct qm_shape *shapes,
                              const uint32_t *ids, struct qm_tensor_rule_plan **out);
void qm_tensor_rule_close(struct qm_tensor_rule_plan *p); /* accepts NULL */

/* Step t >= 1 in three calls: copies parameter and gradient (of one type for all tensors) of tensor
 * k to the device; runs the step, waiting where the rule needs a number on the host; copies the
 * parameter of tensor k back (_part: n elements of it, from number `first` on). */
qm_status qm_tensor_rule_give(struct qm_tensor_rule_plan *p, int k, const void *param,
                              const void *g, enum qm_dtype g_type);
qm_status qm_tensor_rule_run(struct qm_tensor_rule_plan *p, int64_t t, uint64_t seed);
qm_status qm_tensor_rule_take(struct qm_tensor_rule_plan *p, int k, void *param);
qm_status qm_tensor_rule_take_part(struct qm_tensor_rule_plan *p, int k, int64_t first, int64_t n,
                                   void *param);

/* Member `hyper` of struct qm_backend, for all tensors. */
qm_status qm_tensor_rule_hyper(struct qm_tensor_rule_plan *p, const struct qm_hyper *h);

/* As the members of struct qm_backend, for tensor k. */
qm_status qm_tensor_rule_decode(struct qm_tensor_rule_plan *p, int k, int slot, float *out);
qm_status qm_tensor_rule_save(struct qm_tensor_rule_plan *p, int k, int slot, uint8_t *codes,
                              float *scales);
qm_status qm_tensor_rule_load(struct qm_tensor_rule_plan *p, int k, int slot, const uint8_t *codes,
                              const float *scales);
int64_t qm_tensor_rule_bytes(const struct qm_tensor_rule_plan *p);
void *qm_tensor_rule_module(const struct qm_tensor_rule_plan *p); /* of the rule's operations */

#endif
