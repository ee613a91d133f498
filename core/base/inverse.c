/* inverse.c - Proves or refutes the formula of inverse.h for one divisor. */
#include "core/base/inverse.h"

/* `high` is 1/c rounded down, or the float below that.  `low` is at most two units in the last
 * place of `high`, so rounding it errs by at most 2^-46 of 1/c; rounding x * low errs as little.
 *
 * Let C and X be the significands of c and x as integers of 24 bits, and M an odd integer of 25
 * bits, which stands for a mid-point between two floats.  With s = 24 if X >= C and s = 25
 * otherwise, x / c is near this mid-point where |X 2^s - M C| <= REACH.  The formula's error is
 * below 2^-45 of the quotient, and X 2^s is below 2^49. */
enum { REACH = 17 };

/* The inverse of odd a modulo 2^64 by Newton's iteration: each step doubles the correct bits. */
static uint64_t inverse_mod(uint64_t a)
{
    uint64_t x = a;
    for (int i = 0; i < 6; i++)
        x *= 2 - a * x;
    return x;
}

static int is_right(const struct qm_inverse *i, int64_t significand)
{
    float x = ldexpf((float)significand, -24);
    return qm_bits(qm_inverse_times(i, x)) == qm_bits(x / i->c);
}

/* Checks every X with X 2^s - M C = r for an odd M: these M solve M C = -r modulo 2^s. */
static int holds_at(const struct qm_inverse *i, int64_t c, int64_t r, int s)
{
    int twos = __builtin_ctzll((uint64_t)c);
    if (r % ((int64_t)1 << twos) != 0)
        return 1; /* no solution */
    int bits = s - twos;
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t first = (uint64_t)(-(r >> twos)) * inverse_mod((uint64_t)c >> twos) & mask;
    for (uint64_t m = first; m < (uint64_t)1 << 25; m += mask + 1) {
        int64_t x = ((int64_t)m * c + r) >> s;
        int is_case = m % 2 == 1 && m > (uint64_t)1 << 24 && x >= 1 << 23 && x < 1 << 24 &&
                      (x >= c) == (s == 24);
        if (is_case && !is_right(i, x))
            return 0;
    }
    return 1;
}

static int holds(const struct qm_inverse *i)
{
    int exponent;
    int64_t c = (int64_t)ldexpf(frexpf(i->c, &exponent), 24);
    for (int64_t r = 1; r <= REACH; r++)
        if (!holds_at(i, c, r, 24) || !holds_at(i, c, r, 25) || !holds_at(i, c, -r, 24) ||
            !holds_at(i, c, -r, 25))
            return 0;
    return 1;
}

struct qm_inverse qm_inverse_of(float c)
{
    struct qm_inverse i = {.c = c};
    if (!(c >= 0x1p-60f && c <= 0x1p20f))
        return i;
    double exact = 1.0 / (double)c;
    i.high = (float)exact;
    if ((double)i.high < exact)
        i.high = nextafterf(i.high, INFINITY);
    for (int try = 0; try < 2 && !i.holds; try++) {
        i.high = nextafterf(i.high, 0.0f);
        i.low = (float)(exact - (double)i.high);
        i.holds = holds(&i);
    }
    return i;
}
