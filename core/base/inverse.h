/* inverse.h - Correctly rounded division by a constant, by two multiplications (dual).
 *
 * With high = a float32 just below 1/c and low = 1/c - high, rounded,
 *
 *     x / c = fmaf(x, high, x * low)
 *
 * unless x / c lies within a relative distance of 2^-45 of a mid-point between two floats.  Such x
 * solve one of a few congruences; qm_inverse_of tries all solutions and reports whether the formula
 * holds for every x.
 *
 * Source: N. Brisebarre, J.-M. Muller, S. K. Raina, IEEE Trans. Computers 53(8), 2004, with the
 * same two operations but 1/c rounded to nearest.  Rounded down, `low` is positive, so that zeros
 * keep their sign and infinities stay infinite. */
#ifndef QM_BASE_INVERSE_H
#define QM_BASE_INVERSE_H

#include "core/base/dual.h"

struct qm_inverse {
    float c, high, low;
    int holds; /* 1: the formula is proved for c, and qm_inverse_times may be used */
};

/* The formula does not cover nonzero quotients of a magnitude below this: x * low loses bits. */
#define QM_INVERSE_LEAST 0x1p-100f

/* Sets holds = 0 if c is not within [2^-60, 2^20], or if the formula fails for some x. */
struct qm_inverse qm_inverse_of(float c);

/* x / c, provided that i->holds and that x / c is 0, NaN, Inf or of a magnitude of at least
 * QM_INVERSE_LEAST.  Callers whose x is a square root need not check the magnitude: the square root
 * of the smallest float is about 2^-75. */
QM_FN float qm_inverse_times(const struct qm_inverse *i, float x)
{
    return fmaf(x, i->high, x * i->low);
}

/* x / c: by qm_inverse_times if i is not null, else by a division. */
QM_FN float qm_divided(float x, float c, const struct qm_inverse *i)
{
    return i ? qm_inverse_times(i, x) : x / c;
}

/* 1 if 0 < |x| < QM_INVERSE_LEAST. */
QM_FN uint32_t qm_is_tiny(float x) { return (qm_bits(x) & 0x7fffffffu) - 1u < 0x0d7fffffu; }

#endif
