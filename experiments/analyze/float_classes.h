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

/* The function for the instruction set in use; the counts are equal on all sets. */
qm_float_classes_fn *qm_float_classes_of(void);

void qm_float_classes_add(struct qm_float_classes *into, const struct qm_float_classes *c);

#endif
