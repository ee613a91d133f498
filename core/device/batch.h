/* batch.h - tensors whose steps are one launch: state, parameters and gradients on a device.
 *
 * All of a batch have the same form (step_form.h).  A backend's plan is a batch of one. */
#ifndef QM_DEVICE_BATCH_H
#define QM_DEVICE_BATCH_H

#include "core/device/device.h"

struct qm_batch; /* opaque */

/* States start as the recipe says, parameters and gradients at 0.  ids: the tensors' numbers in the
 * problem, for the random counter.  QM_SKIPPED: the device is not there, or has no kernel for this;
 * QM_BAD_ARG: the shapes want different kernels (which one says the message). */
qm_status qm_batch_open(const struct qm_device *d, enum qm_mode mode, const struct qm_recipe *r,
                        int n, const struct qm_shape *shapes, const uint32_t *ids,
                        struct qm_batch **out);
void qm_batch_close(struct qm_batch *b); /* accepts NULL */

/* Elements of a chunk, rounded to whole tiles, and blocks of a launch; 0: as the device likes it.  No
 * choice changes a bit. */
qm_status qm_batch_cut(struct qm_batch *b, int64_t chunk, int blocks);

/* Tables in the kernel's parameters instead of memory, as many launches as that takes. */
qm_status qm_batch_by_value(struct qm_batch *b, int is_by_value);

/* Parameters as the recipe stores them, gradients of any of f32, bf16 and f16 (one type in a batch, that
 * of the last call); host memory. */
qm_status qm_batch_give(struct qm_batch *b, int k, const void *param, const void *g,
                        enum qm_dtype g_type);
qm_status qm_batch_take(struct qm_batch *b, int k, void *param);

/* Step t >= 1 of all.  Queued; qm_batch_take waits. */
qm_status qm_batch_run(struct qm_batch *b, int64_t t, uint64_t seed);

/* Where the things of tensor k lie: its parameter and gradient (one array, of a slot taken by itself:
 * tensor_rule_form.h); where slot 0 has no codes its values, and the gradient as qm_batch_load_wide left it. */
struct qm_batch_place {
    qm_address p, g, values, wide_g;
};
struct qm_batch_place qm_batch_place(const struct qm_batch *b, int k);

/* Slot i of all tensors as it decodes, to where their gradients lie: one launch, as are the next two. */
qm_status qm_batch_unpack(struct qm_batch *b, int slot);

/* Of a form with kernels of rules over whole tensors (step_form.h): parameters to the values of slot 0 and
 * gradients to places of their own, as float32; and parameters from there, as they are stored in step t. */
qm_status qm_batch_load_wide(struct qm_batch *b, int param, int gradient);
qm_status qm_batch_store_wide(struct qm_batch *b, int64_t t, uint64_t seed);

/* As the members of struct qm_backend. */
qm_status qm_batch_decode(struct qm_batch *b, int k, int slot, float *out);
qm_status qm_batch_save(struct qm_batch *b, int k, int slot, uint8_t *codes, float *scales);
qm_status qm_batch_load(struct qm_batch *b, int k, int slot, const uint8_t *codes,
                        const float *scales);
int64_t qm_batch_bytes(const struct qm_batch *b);

const struct qm_step_form *qm_batch_form(const struct qm_batch *b);
void *qm_batch_module(const struct qm_batch *b); /* of the last gradient type */

#endif
