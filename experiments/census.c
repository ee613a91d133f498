/* census.c - compiled once per instruction set (QM_ISA). */
#include "experiments/census.h"

#include <math.h>
#include <string.h>

static void census(const float *x, int64_t n, double *want, struct qm_census *out)
{
    int32_t nan = 0, inf = 0, negative = 0, zero = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t b, size;
        memcpy(&b, x + i, sizeof b);
        size = b & 0x7fffffff;
        nan += size > 0x7f800000;
        inf += size == 0x7f800000;
        zero += size == 0;
        negative += (b < 0) & (size != 0) & (size <= 0x7f800000);
        int32_t finite = size < 0x7f800000 ? size : 0;
        largest = finite > largest ? finite : largest;
    }
    for (int64_t i = 0; i < n; i++)
        want[i] = (double)x[i];
    float max;
    memcpy(&max, &largest, sizeof max);
    struct qm_census c = {n, nan, inf, negative, zero, (double)max};
    *out = c;
}

qm_census_fn *const QM_ISA_NAME(qm_census) = census;
