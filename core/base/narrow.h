/* narrow.h - rows of narrow floats and of random words, one table per instruction set.
 *
 * Element for element the same bits as fp8.h, half.h and philox.h give. */
#ifndef QM_BASE_NARROW_H
#define QM_BASE_NARROW_H

#include "core/base/philox.h"

struct qm_narrow {
    void (*bf16_to_float)(const uint16_t *h, int64_t n, float *x);
    void (*float_to_bf16)(const float *x, int64_t n, uint16_t *h); /* nearest, ties to even */

    /* The magnitude goes up where draw < the dropped 16 bits as a fraction of 2^32; NaN to nearest. */
    void (*stochastic_bf16)(const float *x, const uint32_t *draw, int64_t n, uint16_t *h);

    void (*e4m3_to_float)(const uint8_t *h, int64_t n, float *x);
    void (*float_to_e4m3)(const float *x, int64_t n, uint8_t *h); /* nearest even, saturating */

    /* out[i] = qm_draw(d, from + i) */
    void (*draws)(const struct qm_draws *d, int64_t from, int64_t n, uint32_t *out);
};

const struct qm_narrow *qm_narrow(void); /* of the instruction set in use */

#endif
