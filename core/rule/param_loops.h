/* blocks_param.h - the parameter axis as loops over elements, one table per instruction set. */
#ifndef QM_RULE_BLOCKS_PARAM_H
#define QM_RULE_BLOCKS_PARAM_H

#include "core/base/isa.h"
#include "core/base/philox.h"
#include "core/rule/param.h"

struct qm_param_loops {
    /* out[i] = parameter i as float32, its residual added.  how: not f32. */
    void (*load)(struct qm_param how, const void *p, const void *residual, int64_t n, float *out);

    /* Rounds x[n] to p, and what is lost to residual (kahan: 16 bits, ecc8: int8, ecc16: int16).
     * Write stoch: element i draws qm_draw(draws, from + i). */
    void (*store)(struct qm_param how, const float *x, int64_t n, const struct qm_draws *draws,
                  int64_t from, void *p, void *residual);
};

/* The table of the level that qm_isa() chose. */
const struct qm_param_loops *qm_param_loops(void);

#endif
