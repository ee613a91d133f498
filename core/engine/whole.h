/* whole.h - rules over whole tensors on a device: a plan of one tensor, whose step is a row of launches.
 *
 * The rule's own `states` and `apply` run on the host and hand their operations to the device one by one
 * (core/rule/whole.h), a new projection as data when it is due; each slot, and the parameter with the
 * gradient, is a batch of its own (batch.h), under a rule that does nothing but store. */
#ifndef QM_ENGINE_WHOLE_H
#define QM_ENGINE_WHOLE_H

#include "core/engine/batch.h"

struct qm_whole_plan; /* opaque */

/* As of qm_batch_open and the members of struct qm_backend.  QM_SKIPPED too: a rule that does more on
 * the host than that. */
qm_status qm_whole_open(const struct qm_device *d, enum qm_mode mode, const struct qm_recipe *r,
                        const struct qm_shape *shape, uint32_t tensor, struct qm_whole_plan **out);
void qm_whole_close(struct qm_whole_plan *p); /* accepts NULL */

/* A step t >= 1 in three: parameter and gradient go there, the row of launches (which waits where the rule
 * wants a number here), the parameter comes back. */
qm_status qm_whole_give(struct qm_whole_plan *p, const void *param, const void *g,
                        enum qm_dtype g_type);
qm_status qm_whole_run(struct qm_whole_plan *p, int64_t t, uint64_t seed);
qm_status qm_whole_take(struct qm_whole_plan *p, void *param);

qm_status qm_whole_decode(struct qm_whole_plan *p, int slot, float *out);
qm_status qm_whole_save(struct qm_whole_plan *p, int slot, uint8_t *codes, float *scales);
qm_status qm_whole_load(struct qm_whole_plan *p, int slot, const uint8_t *codes,
                        const float *scales);
int64_t qm_whole_bytes(const struct qm_whole_plan *p);
void *qm_whole_module(const struct qm_whole_plan *p); /* that of the operations */

#endif
