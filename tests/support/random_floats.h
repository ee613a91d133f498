/* random_floats.h - Deterministic random words and floats for tests. */
#ifndef QM_TESTS_RANDOM_FLOATS_H
#define QM_TESTS_RANDOM_FLOATS_H

#include "core/base/philox.h"

static inline uint32_t random_word(void)
{
    static uint64_t i;
    return qm_philox_stream(0x5eed, 7, i++);
}

/* A float in [-1, 1], some scaled by a power of two down to 2^-39; one in 16 is a zero, one in 16 a
 * subnormal number.  With `special` one in 16 is an infinity and one in 16 a quiet NaN of either
 * sign and any payload. */
static inline float random_float(int special)
{
    uint32_t w = random_word(), kind = w % 16;
    if (special && kind == 0)
        return qm_float((w & 0x80000000u) | 0x7f800000u);
    if (special && kind == 1)
        return qm_float(0x7fc00000u | (w & 0x80000000u) | (random_word() & 0x3fffffu));
    if (kind == 2)
        return qm_float(w & 0x80000000u);
    if (kind == 3)
        return qm_float(w & 0x807fffffu); /* subnormal */
    return ((float)(int32_t)random_word() / 2147483648.0f) *
           ldexpf(1.0f, kind < 10 ? 0 : -(int)(w >> 8) % 40);
}

#endif
