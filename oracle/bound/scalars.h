/* scalars.h - Scalars of a step that several rules share. */
#ifndef QM_ORACLE_BOUND_SCALARS_H
#define QM_ORACLE_BOUND_SCALARS_H

#include <math.h>

#include "oracle/oracle.h"

/* 1 - beta^t without the cancellation of the difference; beta - 1 is exact for beta >= 1/2. */
static inline double qm_oracle_correction(double beta, int64_t t)
{
    return -expm1((double)t * log1p(beta - 1.0));
}

/* What a gradient is multiplied by in bitsandbytes; 0 in the hyper-parameters is 1. */
static inline double qm_oracle_gnorm_scale(const struct qm_oracle_hyper *h)
{
    return h->gnorm_scale != 0.0 ? h->gnorm_scale : 1.0;
}

#endif
