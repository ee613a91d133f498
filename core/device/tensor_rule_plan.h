/* tensor_rule_plan.h - rules over whole tensors on a device: a plan of any number of tensors, whose step is a row of
 * launches.
 *
 * The rule's own `states` and `apply` run on the host and hand their operations to the device (launch_queue.h), a new
 * projection as data when it is due;
 * each slot, and the parameter with the gradient, is a batch of its own (batch.h) under a rule that does nothing
 * but store: one batch for all tensors whose slots have the same form.  So a step takes as many launches for
 * hundreds of tensors as for the one that takes most, times the forms among them. */
#ifndef QM_DEVICE_TENSOR_RULE_PLAN_H
#define QM_DEVICE_TENSOR_RULE_PLAN_H

#include "core/device/batch.h"

struct qm_whole_plan; /* opaque */

/* As of qm_batch_open, but for tensors of any forms, and the members of struct qm_backend; k: which
 * tensor.  QM_SKIPPED too: a rule that does more on the host than that. */
qm_status qm_whole_open(const struct qm_device *d, enum qm_mode mode, const struct qm_recipe *r,
                        int n, const struct qm_shape *shapes, const uint32_t *ids,
                        struct qm_whole_plan **out);
void qm_whole_close(struct qm_whole_plan *p); /* accepts NULL */

/* A step t >= 1 in three: parameters and gradients (of one type) go there, the row of launches (which waits
 * where the rule wants a number here), the parameters come back. */
qm_status qm_whole_give(struct qm_whole_plan *p, int k, const void *param, const void *g,
                        enum qm_dtype g_type);
qm_status qm_whole_run(struct qm_whole_plan *p, int64_t t, uint64_t seed);
qm_status qm_whole_take(struct qm_whole_plan *p, int k, void *param);

qm_status qm_whole_decode(struct qm_whole_plan *p, int k, int slot, float *out);
qm_status qm_whole_save(struct qm_whole_plan *p, int k, int slot, uint8_t *codes, float *scales);
qm_status qm_whole_load(struct qm_whole_plan *p, int k, int slot, const uint8_t *codes,
                        const float *scales);
int64_t qm_whole_bytes(const struct qm_whole_plan *p);
void *qm_whole_module(const struct qm_whole_plan *p); /* that of the operations */

#endif
