/* float_classes.h - what kinds of numbers a run of floats holds. */
#ifndef QM_ANALYZE_FLOAT_CLASSES_H
#define QM_ANALYZE_FLOAT_CLASSES_H

#include <stdint.h>

#include "core/base/isa.h"

struct qm_float_classes {
    int64_t n, nan, inf, negative, zero; /* negative: below 0, -Inf included, -0 not */
    double max_abs;                      /* of the finite ones */
};

/* One run of fewer than 2^31 elements, by their bits; also widens them to want[n]. */
typedef void qm_float_classes_fn(const float *x, int64_t n, double *want,
                                 struct qm_float_classes *out);

qm_float_classes_fn *
qm_float_classes_of(void); /* for the instruction set in use; the same counts on all */

void qm_float_classes_add(struct qm_float_classes *into, const struct qm_float_classes *c);

#endif
