/* param16_run.h - Replays runs with 16-bit parameters: Lion 8-bit and FlashOptim.
 *
 * Parameters may have residuals (error correction); codes are recorded as numbers. */
#ifndef QM_CONFORM_PARAM16_RUN_H
#define QM_CONFORM_PARAM16_RUN_H

#include "core/recipe/backend.h"
#include "experiments/conform/conform.h"

/* One state tensor: either codes and scales, or values in their stored format. */
struct qm_param16_slot {
    const int64_t *codes; /* [steps][numel] as recorded; the lowest code is `base` */
    int base;
    const float *scales; /* [steps][n_scales] */
    int64_t n_scales;
    const float *decoded; /* [steps][numel], or NULL */
    const float *values;  /* [steps][numel] */
    enum qm_param_format kept_as;
};

/* All 16-bit numbers are widened to float32. */
struct qm_param16_run {
    struct qm_recipe recipe;
    struct qm_shape shape;
    int64_t steps;
    const float *p0, *params; /* [numel], [steps][numel] */
    const float *grads;       /* [steps][numel] */
    const double *lr;         /* [steps], or NULL */
    const int64_t *residual;  /* [steps][numel], or NULL */
    struct qm_param16_slot slot[2];
};

/* "f32", "bf16", "f16" of an attribute; 0, and the case skipped, for anything else. */
int qm_golden_case_format(struct qm_conform *c, const char *attribute, enum qm_param_format *out);

/* A recipe of the rule with float32 slots, its parameter as format/write and gradients in grad; 0,
 * and the case skipped, when the rule is not built. */
int qm_param16_recipe(struct qm_conform *c, const char *rule, struct qm_param param,
                      enum qm_param_format grad, struct qm_recipe *out);

/* Judges all steps twice, every bit: each from the recorded state, then free from the start. */
void qm_param16_replay(struct qm_conform *c, const struct qm_param16_run *run);

/* A quantizer case: attributes dtype, group_size, signed, softsign, sqrt; datasets x, codes,
 * scales_f16, dequant. */
void qm_conform_q8(struct qm_conform *c);

/* An error-correction case: datasets x, narrow_bits, ecc, reconstructed. */
void qm_conform_ecc(struct qm_conform *c);

#endif
