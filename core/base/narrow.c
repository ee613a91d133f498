/* narrow.c - Converts rows of narrow floats and draws rows of random words.
 *
 * It is compiled once per instruction set.  The loops have no branches, so that compilers
 * vectorize them. */
#include "core/base/narrow.h"

#include "core/base/isa.h"

/* `wide` is a vector of 64-bit lanes; PRODUCT multiplies the lower 32 bits of each lane by m. */
#if defined(__AVX512F__)
#include <immintrin.h>
typedef uint64_t wide __attribute__((vector_size(64)));
#define PRODUCT(a, m) ((wide)_mm512_mul_epu32((__m512i)(a), _mm512_set1_epi64(m)))
#elif defined(__AVX2__)
#include <immintrin.h>
typedef uint64_t wide __attribute__((vector_size(32)));
#define PRODUCT(a, m) ((wide)_mm256_mul_epu32((__m256i)(a), _mm256_set1_epi64x(m)))
#else
typedef uint64_t wide __attribute__((vector_size(16)));
#define PRODUCT(a, m) (((a)&0xffffffffu) * (uint64_t)(m))
#endif

static void bf16_to_float(const uint16_t *restrict h, int64_t n, float *restrict x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = qm_float((uint32_t)h[i] << 16);
}

static void float_to_bf16(const float *restrict x, int64_t n, uint16_t *restrict h)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = qm_bits(x[i]), up = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        h[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : up);
    }
}

static void stochastic_bf16(const float *restrict x, const uint32_t *restrict draw, int64_t n,
                            uint16_t *restrict h)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = qm_bits(x[i]), up = (u >> 16) + ((draw[i] >> 16) < (u & 0xffffu));
        h[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : up);
    }
}

static void e4m3_to_float(const uint8_t *restrict h, int64_t n, float *restrict x)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t a = h[i] & 0x7fu, sign = (uint32_t)(h[i] & 0x80u) << 24;
        uint32_t small = qm_bits((float)(int32_t)a * 0.001953125f); /* 2^-9 */
        uint32_t u = a < 8u ? small : (a << 20) + 0x3c000000u;
        x[i] = qm_float((a == 0x7fu ? 0x7fc00000u : u) | sign);
    }
}

static void float_to_e4m3(const float *restrict x, int64_t n, uint8_t *restrict h)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = qm_bits(x[i]), a = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
        uint32_t small = qm_bits(qm_float(a) + 16384.0f) - 0x46800000u;
        uint32_t large = (a + 0x7ffffu + ((a >> 20) & 1u) - 0x3c000000u) >> 20;
        large = a > 0x43e00000u ? 0x7eu : large; /* 448 */
        uint32_t code = (a < 0x3c800000u ? small : large) | sign;
        h[i] = (uint8_t)(a > 0x7f800000u ? 0x7fu : code);
    }
}

enum { WIDE = sizeof(wide) / sizeof(uint64_t) };

/* qm_philox of the WIDE blocks first, first + 1, ...: the lower half of lane l of c[k] is word k of
 * block first + l. */
static inline void philox_wide(const struct qm_draws *d, uint64_t first, wide c[4])
{
    uint32_t k0 = (uint32_t)d->seed, k1 = (uint32_t)(d->seed >> 32);
    wide at = {0};
    for (int i = 0; i < WIDE; i++)
        at[i] = first + (uint64_t)i;
    c[0] = at;
    c[1] = at >> 32;
    c[2] = at * 0 + d->step;
    c[3] = at * 0 + d->stream;
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        wide a = PRODUCT(c[0], 0xD2511F53u), b = PRODUCT(c[2], 0xCD9E8D57u);
        c[0] = (b >> 32) ^ c[1] ^ k0;
        c[1] = b;
        c[2] = (a >> 32) ^ c[3] ^ k1;
        c[3] = a;
    }
}

/* A block has four words.  Whole blocks are computed in chunks, word by word, and then put in
 * order; the elements before the first and after the last whole block are drawn one by one. */
static void draws(const struct qm_draws *d, int64_t from, int64_t n, uint32_t *restrict out)
{
    enum { CHUNK = 64 };
    uint64_t w[4][CHUNK]; /* w[k][b]: word k of block b in the lower half */
    int64_t i = 0;
    for (; i < n && ((from + i) & 3); i++)
        out[i] = qm_draw(d, from + i);
    for (; i + 4 <= n;) {
        int64_t first = (from + i) >> 2, left = (n - i) / 4, count = left < CHUNK ? left : CHUNK;
        for (int64_t b = 0; b < count; b += WIDE) {
            wide c[4];
            philox_wide(d, (uint64_t)(first + b), c);
            for (int k = 0; k < 4; k++)
                memcpy(&w[k][b], &c[k], sizeof c[k]);
        }
        for (int64_t b = 0; b < count; b++)
            for (int k = 0; k < 4; k++)
                out[i + 4 * b + k] = (uint32_t)w[k][b];
        i += 4 * count;
    }
    for (; i < n; i++)
        out[i] = qm_draw(d, from + i);
}

const struct qm_narrow QM_ISA_NAME(qm_narrow) = {
    .bf16_to_float = bf16_to_float,
    .float_to_bf16 = float_to_bf16,
    .stochastic_bf16 = stochastic_bf16,
    .e4m3_to_float = e4m3_to_float,
    .float_to_e4m3 = float_to_e4m3,
    .draws = draws,
};
