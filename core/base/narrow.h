/* narrow.h - Conversions of rows of narrow floats, and rows of random words, per instruction set.
 *
 * Every element has the bits that the functions of fp8.h, half.h and philox.h give. */
#ifndef QM_BASE_NARROW_H
#define QM_BASE_NARROW_H

#include "core/base/philox.h"

struct qm_narrow {
    void (*bf16_to_float)(const uint16_t *h, int64_t n, float *x);
    void (*float_to_bf16)(const float *x, int64_t n, uint16_t *h); /* nearest, ties to even */

    /* Stochastic rounding: the magnitude goes up iff the upper 16 bits of draw[i] are below the
     * 16 bits of x[i] that are dropped.  NaN becomes 0x7fff. */
    void (*stochastic_bf16)(const float *x, const uint32_t *draw, int64_t n, uint16_t *h);

    void (*e4m3_to_float)(const uint8_t *h, int64_t n, float *x);
    void (*float_to_e4m3)(const float *x, int64_t n, uint8_t *h); /* nearest even, saturating */

    /* out[i] = qm_draw(d, from + i) */
    void (*draws)(const struct qm_draws *d, int64_t from, int64_t n, uint32_t *out);
};

/* The table of the instruction set that qm_isa() chose. */
const struct qm_narrow *qm_narrow(void);

#endif
