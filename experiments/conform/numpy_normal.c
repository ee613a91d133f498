/* numpy_normal.c - SeedSequence, PCG64 and the 256-step ziggurat of numpy 1.17 and later.
 *
 * Sources: M. O'Neill, "PCG" (HMC-CS-2014-0905) and her seed_seq; G. Marsaglia and W. W.
 * Tsang, "The ziggurat method" (J. Stat. Soft. 5, 2000); numpy/random/bit_generator.pyx,
 * pcg64.h, distributions.c. */
#include "experiments/conform/numpy_normal.h"

#include <math.h>

__extension__ typedef unsigned __int128 wide_t;

static uint32_t hashed(uint32_t x, uint32_t *by, uint32_t multiplier)
{
    x ^= *by;
    *by *= multiplier;
    x *= *by;
    return x ^ (x >> 16);
}

/* Mixes four words of entropy into each other, then draws eight words from them. */
static void seed_words(uint32_t seed, uint32_t out[8])
{
    uint32_t pool[4], by = 0x43b0d7e5u;
    for (int i = 0; i < 4; i++)
        pool[i] = hashed(i == 0 ? seed : 0, &by, 0x931e8875u);
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            if (from != to) {
                uint32_t h = hashed(pool[from], &by, 0x931e8875u);
                uint32_t x = 0xca01f9ddu * pool[to] - 0x4973f715u * h;
                pool[to] = x ^ (x >> 16);
            }
    by = 0x8b51f9ddu;
    for (int i = 0; i < 8; i++)
        out[i] = hashed(pool[i % 4], &by, 0x58f38dedu);
}

static wide_t wide_of(const uint64_t w[2]) { return (wide_t)w[0] << 64 | w[1]; }

static void advance(struct qm_numpy *r)
{
    static const uint64_t multiplier[2] = {0x2360ED051FC65DA4u, 0x4385DF649FCCF645u};
    wide_t s = wide_of(r->state) * wide_of(multiplier) + wide_of(r->inc);
    r->state[0] = (uint64_t)(s >> 64);
    r->state[1] = (uint64_t)s;
}

static uint64_t next_word(struct qm_numpy *r)
{
    advance(r);
    uint64_t x = r->state[0] ^ r->state[1];
    int by = (int)(r->state[0] >> 58);
    return by ? x >> by | x << (64 - by) : x;
}

static double next_unit(struct qm_numpy *r) { return (double)(next_word(r) >> 11) * 0x1p-53; }

static const double tail = 3.6541528853610087963519472518; /* where the ziggurat's base ends */

static void build_tables(struct qm_numpy *r)
{
    const double m = 0x1p52; /* every step has the area of the base and its tail */
    const double area = tail * exp(-0.5 * tail * tail) + sqrt(acos(0.0)) * erfc(tail / sqrt(2.0));
    double x = tail, last = tail, q = area / exp(-0.5 * tail * tail);
    r->limit[0] = (uint64_t)(tail / q * m);
    r->limit[1] = 0;
    r->wide[0] = q / m;
    r->wide[255] = tail / m;
    r->height[0] = 1.0;
    r->height[255] = exp(-0.5 * tail * tail);
    for (int i = 254; i >= 1; i--) {
        x = sqrt(-2.0 * log(area / x + exp(-0.5 * x * x)));
        r->limit[i + 1] = (uint64_t)(x / last * m);
        last = x;
        r->height[i] = exp(-0.5 * x * x);
        r->wide[i] = x / m;
    }
}

void qm_numpy_seed(struct qm_numpy *r, uint32_t seed)
{
    uint32_t w[8];
    uint64_t v[4];
    seed_words(seed, w);
    for (int i = 0; i < 4; i++)
        v[i] = w[2 * i] | (uint64_t)w[2 * i + 1] << 32;
    r->inc[0] = v[2] << 1 | v[3] >> 63;
    r->inc[1] = v[3] << 1 | 1;
    r->state[0] = r->state[1] = 0;
    advance(r);
    wide_t s = wide_of(r->state) + wide_of(v);
    r->state[0] = (uint64_t)(s >> 64);
    r->state[1] = (uint64_t)s;
    advance(r);
    build_tables(r);
}

double qm_numpy_normal(struct qm_numpy *r)
{
    for (;;) {
        uint64_t word = next_word(r), bits = word >> 9 & 0x000fffffffffffffu;
        int step = (int)(word & 255);
        double x = (double)bits * r->wide[step];
        x = word >> 8 & 1 ? -x : x;
        if (bits < r->limit[step])
            return x;
        if (step > 0) {
            double low = r->height[step], high = r->height[step - 1];
            if ((high - low) * next_unit(r) + low < exp(-0.5 * x * x))
                return x;
            continue;
        }
        for (;;) {
            double a = -log1p(-next_unit(r)) / tail, b = -log1p(-next_unit(r));
            if (b + b > a * a)
                return bits >> 8 & 1 ? -(tail + a) : tail + a;
        }
    }
}
