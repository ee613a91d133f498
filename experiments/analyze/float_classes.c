/* float_classes.c - Counts classes of floats; compiled once per instruction set (QM_ISA). */
#include "experiments/analyze/float_classes.h"

#include <math.h>
#include <string.h>

enum { SLICE = 1024, INF = 0x7f800000 }; /* SLICE: elements that stay in the cache between loops */

/* Adds counts of n elements to out; returns the bits of the largest magnitude, NaN and
 * Inf included. */
static int32_t count(const float *restrict x, int64_t n, struct qm_float_classes *out)
{
    int32_t negative = 0, zero = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t b, size;
        memcpy(&b, x + i, sizeof b);
        size = b & INT32_MAX;
        zero += size == 0;
        negative += (b < 0) & (size != 0);
        largest = size > largest ? size : largest;
    }
    out->zero += zero;
    out->negative += negative;
    return largest;
}

/* Corrects the counts of count() for NaN and Inf; returns the bits of the largest
 * finite magnitude. */
static int32_t correct(const float *restrict x, int64_t n, struct qm_float_classes *out)
{
    int32_t nan = 0, inf = 0, negative = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t b, size;
        memcpy(&b, x + i, sizeof b);
        size = b & INT32_MAX;
        nan += size > INF;
        inf += size == INF;
        negative += (b < 0) & (size > INF);
        int32_t finite = size < INF ? size : 0;
        largest = finite > largest ? finite : largest;
    }
    out->nan += nan;
    out->inf += inf;
    out->negative -= negative;
    return largest;
}

void QM_ISA_NAME(qm_float_classes)(const float *restrict x, int64_t n, double *restrict want,
                                   struct qm_float_classes *out)
{
    struct qm_float_classes c = {.n = n};
    int32_t largest = 0;
    for (int64_t at = 0; at < n; at += SLICE) {
        int64_t some = n - at < SLICE ? n - at : SLICE;
        int32_t most = count(x + at, some, &c);
        if (most >= INF)
            most = correct(x + at, some, &c);
        largest = most > largest ? most : largest;
        for (int64_t i = at; i < at + some; i++)
            want[i] = (double)x[i];
    }
    float max;
    memcpy(&max, &largest, sizeof max);
    c.max_abs = (double)max;
    *out = c;
}
