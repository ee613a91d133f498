/* float8.c - The values of the codes of 8-bit floats. */
#include "experiments/readers/float8.h"

#include <math.h>

#include "core/base/fp8.h"

static float e4m3fn(uint8_t h) { return qm_e4m3_to_float(h); }
static float e5m2(uint8_t h) { return qm_e5m2_to_float(h); }

/* The fnuz formats of 8 bits have a bias of one more, no infinity, and NaN in place of -0. */
static float fnuz(uint8_t h, int mantissa, int bias)
{
    int e = (h & 0x7f) >> mantissa, m = h & ((1 << mantissa) - 1);
    if (h == 0x80)
        return nanf("");
    float x = ldexpf((float)(e ? m + (1 << mantissa) : m), (e ? e : 1) - bias - mantissa);
    return h & 0x80 ? -x : x;
}
static float e4m3fnuz(uint8_t h) { return fnuz(h, 3, 8); }
static float e5m2fnuz(uint8_t h) { return fnuz(h, 2, 16); }
static float e8m0fnu(uint8_t h) { return h == 255 ? nanf("") : ldexpf(1.0f, (int)h - 127); }

float (*const qm_float8_value[QM_FLOAT8_COUNT])(uint8_t code) = {NULL,
#define X(name, dtype) name,
                                                                 QM_FLOAT8_LIST(X)
#undef X
};
