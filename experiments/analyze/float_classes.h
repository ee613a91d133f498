/* float_classes.h - Counts of NaNs, infinities, negative numbers and zeros among floats. */
#ifndef QM_ANALYZE_FLOAT_CLASSES_H
#define QM_ANALYZE_FLOAT_CLASSES_H

#include <stdint.h>

#include "core/base/isa.h"

struct qm_float_classes {
    int64_t n, nan, inf, negative, zero; /* negative: below 0, with -Inf, without -0 and NaN */
    double max_abs;                      /* of the finite elements */
};

/* Counts n < 2^31 elements, and widens them to want[n]. */
typedef void qm_float_classes_fn(const float *x, int64_t n, double *want,
                                 struct qm_float_classes *out);

#endif
