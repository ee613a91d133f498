/* param_loops.h - Parameters of every format as loops, one table per instruction set. */
#ifndef QM_RULE_PARAM_LOOPS_H
#define QM_RULE_PARAM_LOOPS_H

#include "core/base/isa.h"
#include "core/base/philox.h"
#include "core/rule/param.h"

struct qm_param_loops {
    /* out[i] = parameter i as float32, with its residual added.  how.format is not f32. */
    void (*load)(struct qm_param how, const void *p, const void *residual, int64_t n, float *out);

    /* Rounds x[n] to p, and stores what rounding loses in residual (kahan: 16 bits, ecc8: int8,
     * ecc16: int16).  For write stoch, element i draws qm_draw(draws, from + i). */
    void (*store)(struct qm_param how, const float *x, int64_t n, const struct qm_draws *draws,
                  int64_t from, void *p, void *residual);
};

/* The table of the level that qm_isa() chose. */
const struct qm_param_loops *qm_param_loops(void);

#endif
