/* launch_queue.h - Runs a tensor rule on a device for many tensors at once, with few launches.
 *
 * The rule's own code runs on the host, as one coroutine (a task) for each tensor, and its
 * operations on the tensor (core/rule/tensor_rule.h) are recorded.  A task waits where it needs a
 * number from the device.  When every task waits or has ended, the operations are launched, the
 * first operation of every task in one launch, then the second, and so on, and the numbers come
 * back in one transfer.  The operations of a tensor keep their order and tensors share no data, so
 * bits do not depend on the other tensors.  A single tensor needs no recording: each operation is
 * launched at once. */
#ifndef QM_DEVICE_LAUNCH_QUEUE_H
#define QM_DEVICE_LAUNCH_QUEUE_H

#include "core/device/device.h"
#include "core/rule/tensor_rule.h"

struct qm_launch_queue; /* opaque */

/* A queue for n tensors on a device. */
qm_status qm_launch_queue_open(const struct qm_device *d, int n, struct qm_launch_queue **out);
void qm_launch_queue_close(struct qm_launch_queue *queue); /* accepts NULL */

/* Begins a step: arrays that the rule asked for in the last one can be used again. */
void qm_launch_queue_begin(struct qm_launch_queue *queue);

/* Calls work(&w[k]) for each tensor k with takes_part[k] (NULL: all), with the kernels of `module`.
 * Returns the first failure; the other tensors are then in an undefined state. */
qm_status qm_launch_queue_run(struct qm_launch_queue *queue, void *module,
                              qm_status (*work)(const struct qm_tensor_rule_args *),
                              const struct qm_tensor_rule_args *w, const uint8_t *takes_part);

#endif
