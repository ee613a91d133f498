/* inverse.h - dividing by one number many times, by two multiplications, to the same bits (dual).
 *
 * With high = a float32 just below 1/c and low = the rest of 1/c, rounded,
 *
 *     x / c = fmaf(x, high, x * low)
 *
 * but where x / c lies within 2^-45 of itself next to a mid-point of two floats.  Those x are the
 * solutions of a few congruences; qm_inverse_of tries them all and says whether the formula holds.
 * (N. Brisebarre, J.-M. Muller, S. K. Raina, IEEE Trans. Computers 53(8), 2004: the same two
 * operations, with 1/c rounded to nearest; rounded down, low is positive, so that zeros keep their
 * sign and infinities stay what they are.) */
#ifndef QM_BASE_INVERSE_H
#define QM_BASE_INVERSE_H

#include "core/base/dual.h"

struct qm_inverse {
    float c, high, low;
    int holds; /* 1: qm_over may multiply */
};

/* Quotients of a magnitude below this, other than 0, are not covered: there x * low loses bits. */
#define QM_INVERSE_LEAST 0x1p-100f

/* c from 2^-60 to 2^20; holds = 0 where it is not, or where the formula fails. */
struct qm_inverse qm_inverse_of(float c);

/* Sources whose dividend is a square root need not ask: that of the smallest float is 2^-75.
 *
 * x / c, if i->holds and |x / c| is 0 or at least QM_INVERSE_LEAST (or NaN or Inf). */
QM_FN float qm_over(const struct qm_inverse *i, float x) { return fmaf(x, i->high, x * i->low); }

/* x / c, by i unless it is null. */
QM_FN float qm_divided(float x, float c, const struct qm_inverse *i)
{
    return i ? qm_over(i, x) : x / c;
}

/* 1: x is neither 0 nor as large as QM_INVERSE_LEAST. */
QM_FN uint32_t qm_is_tiny(float x) { return (qm_bits(x) & 0x7fffffffu) - 1u < 0x0d7fffffu; }

#endif
