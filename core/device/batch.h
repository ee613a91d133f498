/* batch.h - A batch: tensors on a device whose steps are done together, in one launch of each
 * kernel.
 *
 * It holds their states, parameters and gradients.  All tensors of a batch have the same form
 * (step_form.h).  The plan of an elementwise rule is a batch of one tensor. */
#ifndef QM_DEVICE_BATCH_H
#define QM_DEVICE_BATCH_H

#include "core/device/device.h"

struct qm_batch; /* opaque */

/* Opens a batch of n tensors.  States start as the recipe says, parameters and gradients at 0.
 * ids: the tensors' numbers in the problem, for the random counter.  QM_SKIPPED: there is no such
 * device, or no kernel for the recipe; QM_BAD_ARG: the shapes need different kernels (the message
 * says which). */
qm_status qm_batch_open(const struct qm_device *d, enum qm_mode mode, const struct qm_recipe *r,
                        int n, const struct qm_shape *shapes, const uint32_t *ids,
                        struct qm_batch **out);
void qm_batch_close(struct qm_batch *b); /* accepts NULL */

/* Sets the elements of a chunk, which are rounded to whole tiles, and the most blocks of a launch;
 * 0: the default for the device.  The result does not depend on them. */
qm_status qm_batch_cut(struct qm_batch *b, int64_t chunk, int blocks);

/* Hands descriptors and chunks over in the kernel's parameters instead of in memory (is_by_value),
 * in as many launches as that takes. */
qm_status qm_batch_by_value(struct qm_batch *b, int is_by_value);

/* Copies parameter and gradient of tensor k to the device; and the parameter back, when all work is
 * done (_part: n elements of it, from number `first` on).  param: as the recipe stores it; g: f32,
 * bf16 or f16, one type for the whole batch (the last call's).  Both are host memory. */
qm_status qm_batch_give(struct qm_batch *b, int k, const void *param, const void *g,
                        enum qm_dtype g_type);
qm_status qm_batch_take(struct qm_batch *b, int k, void *param);
qm_status qm_batch_take_part(struct qm_batch *b, int k, int64_t first, int64_t n, void *param);

/* Queues step t >= 1 of all tensors; qm_batch_take waits for it. */
qm_status qm_batch_run(struct qm_batch *b, int64_t t, uint64_t seed);

/* Device addresses of tensor k.  p and g are one array for a slot of a tensor rule
 * (tensor_rule_form.h).  Where slot 0 has no codes: values, and wide_g, the gradient that
 * qm_batch_load_wide converts. */
struct qm_batch_place {
    qm_address p, g, values, wide_g;
};
struct qm_batch_place qm_batch_place(const struct qm_batch *b, int k);

/* Decodes slot i of all tensors to the addresses of their gradients, in one launch. */
qm_status qm_batch_unpack(struct qm_batch *b, int slot);

/* For forms with the kernels of tensor rules (step_form.h), each in one launch: converts parameters
 * (param != 0) to float32 in the values of slot 0 and gradients (gradient != 0) to float32 at
 * wide_g; and stores the parameters from the values of slot 0, rounded as in step t. */
qm_status qm_batch_load_wide(struct qm_batch *b, int param, int gradient);
qm_status qm_batch_store_wide(struct qm_batch *b, int64_t t, uint64_t seed);

/* Member `hyper` of struct qm_backend, for all tensors. */
qm_status qm_batch_hyper(struct qm_batch *b, const struct qm_hyper *h);

/* As the members of struct qm_backend, for tensor k. */
qm_status qm_batch_decode(struct qm_batch *b, int k, int slot, float *out);
qm_status qm_batch_save(struct qm_batch *b, int k, int slot, uint8_t *codes, float *scales);
qm_status qm_batch_load(struct qm_batch *b, int k, int slot, const uint8_t *codes,
                        const float *scales);
int64_t qm_batch_bytes(const struct qm_batch *b);

/* As qm_batch_save, of a part of tensor k: the codes, residuals, or values of a slot without codes,
 * of elements [first, first + n), where first is a multiple of 8; and n_scales stored scales from
 * number first_scale on. */
struct qm_batch_range {
    int64_t first, n, first_scale, n_scales;
};
qm_status qm_batch_save_part(struct qm_batch *b, int k, int slot, const struct qm_batch_range *at,
                             uint8_t *codes, float *scales);

const struct qm_step_form *qm_batch_form(const struct qm_batch *b);
void *qm_batch_module(const struct qm_batch *b); /* its kernels, for the last type of gradients */

#endif
