/* launch_queue.h - rules over whole tensors on a device, many tensors beside each other.
 *
 * The rule's own code runs on the host, for each tensor in a lane: what it would do to the tensor
 * (core/rule/tensor_rule.h) is noted.  Where it wants a number here it waits; when every lane waits or is done,
 * the notes become launches - the first of every lane one launch, then the second - and the numbers come
 * in one transfer.  The operations of a tensor stay in their order and tensors have nothing in common, so
 * bits do not depend on who runs beside it.  A single tensor needs no notes: each operation is a launch
 * at once. */
#ifndef QM_DEVICE_LAUNCH_QUEUE_H
#define QM_DEVICE_LAUNCH_QUEUE_H

#include "core/device/device.h"
#include "core/rule/tensor_rule.h"

struct qm_launch_queue; /* opaque */

qm_status qm_lanes_open(const struct qm_device *d, int n, struct qm_launch_queue **out);
void qm_lanes_close(struct qm_launch_queue *all); /* accepts NULL */

/* A step begins: the rule has no arrays of its own yet. */
void qm_lanes_begin(struct qm_launch_queue *all);

/* work(&w[k]) for each tensor k that takes part (NULL: all), with the kernels of that module.  The first
 * failure of any; what then is done to the others is not defined. */
qm_status qm_lanes_run(struct qm_launch_queue *all, void *module,
                       qm_status (*work)(const struct qm_tensor_rule_args *),
                       const struct qm_tensor_rule_args *w, const uint8_t *takes_part);

/* Blocks for n indices, `each` of them a block's; at most what a launch takes. */
unsigned qm_lanes_blocks(int64_t n, int64_t each);

#endif
