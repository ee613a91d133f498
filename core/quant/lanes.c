/* lanes.c - compiled once per instruction set (QM_ISA). */
#include "core/quant/lanes.h"

#if defined(__AVX512VBMI2__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define WIDE 1
#else
#define WIDE 0
#endif

static uint32_t max_bits(const float *x, int64_t n)
{
    int32_t m = 0; /* bits of |x| are below 2^31: signed compares, which every level vectorizes */
    for (int64_t i = 0; i < n; i++) {
        int32_t b = (int32_t)(qm_bits(x[i]) & 0x7fffffffu);
        m = b > m ? b : m;
    }
    return (uint32_t)m;
}

static void divide(const float *x, float d, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / d;
}

static void multiply(const float *x, float r, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * r;
}

static void divide_each(const float *x, const float *d, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / d[i];
}

static void multiply_each(const float *x, const float *r, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * r[i];
}

static void fold_each(const float *restrict x, int64_t n, float *restrict stat)
{
    int32_t *restrict s = (int32_t *)stat; /* bits of non-negative floats order as integers */
    for (int64_t i = 0; i < n; i++) {
        int32_t b = (int32_t)(qm_bits(x[i]) & 0x7fffffffu);
        s[i] = b > s[i] ? b : s[i];
    }
}

static void smaller(const float *restrict s, float m, int64_t n, float *restrict out)
{
    if (qm_isnan(m)) {
        for (int64_t i = 0; i < n; i++)
            out[i] = m;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = s[i] >= m ? m : s[i];
}

static int divisors(const struct qm_codec *c, const float *max, int64_t n, float *d)
{
    float floor = c->q.scale.floor, guard = c->q.scale.guard, gain = c->cb.gain;
    float cap = c->q.scale.cap != 0.0f ? c->q.scale.cap : INFINITY;
    int32_t odd = 0;
    for (int64_t i = 0; i < n; i++) {
        float m = max[i];
        m = m < floor ? floor : m;
        m = m > cap ? cap : m;
        m *= gain;
        m = m < guard ? guard : m;
        d[i] = m;
        int32_t b = (int32_t)qm_bits(m);
        odd |= (b - 1) | (0x7f7fffff - b); /* a sign bit for 0, Inf and NaN */
    }
    return odd >= 0;
}

static void pack4(const uint8_t *restrict codes, int64_t n, int high_first, uint8_t *restrict bytes)
{
    int first = high_first ? 4 : 0, second = 4 - first;
    for (int64_t i = 0; i < n / 2; i++)
        bytes[i] = (uint8_t)((codes[2 * i] << first) | (codes[2 * i + 1] << second));
    if (n % 2)
        bytes[n / 2] = (uint8_t)(codes[n - 1] << first);
}

static void unpack4(const uint8_t *restrict bytes, int64_t n, int high_first,
                    uint8_t *restrict codes)
{
    int first = high_first ? 4 : 0, second = 4 - first;
    for (int64_t i = 0; i < n / 2; i++) {
        codes[2 * i] = (uint8_t)((bytes[i] >> first) & 15);
        codes[2 * i + 1] = (uint8_t)((bytes[i] >> second) & 15);
    }
    if (n % 2)
        codes[n - 1] = (uint8_t)((bytes[n / 2] >> first) & 15);
}

#if WIDE
/* The edges of a table of at most 16 entries as the levels of a bisection tree in registers.  The
 * sign of y - edge is exact, so each step shifts one bit, 1 for "below", into the index. */
struct tree16 {
    __m512 level[4]; /* level l holds its 2^l edges, highest first */
};

static inline void tree16_load(struct tree16 *t, const struct qm_codec *c)
{
    for (int l = 0; l < 4; l++) {
        float e[16];
        for (int k = 0; k < 16; k++) {
            int at = 15 - ((k & ((1 << l) - 1)) * 2 + 1) * (8 >> l);
            e[k] = at + 1 < c->cb.n ? c->edge[at] : INFINITY;
        }
        t->level[l] = _mm512_loadu_ps(e);
    }
}

static inline __m512i tree16_find(const struct tree16 *t, __m512 y)
{
    __m512i k = _mm512_srli_epi32(_mm512_castps_si512(_mm512_sub_ps(y, t->level[0])), 31);
    for (int l = 1; l < 4; l++) {
        __m512 e = _mm512_permutexvar_ps(k, t->level[l]);
        k = _mm512_shldi_epi32(k, _mm512_castps_si512(_mm512_sub_ps(y, e)), 1);
    }
    return _mm512_xor_si512(k, _mm512_set1_epi32(15));
}

/* 256 entries: five steps over every eighth edge, then the seven edges of the group at once. */
struct tree256 {
    __m512 high[2];   /* edge[8k + 7], k < 32; the last is +Inf */
    __m512 low[7][2]; /* low[j] = edge[8k + j] */
};

static inline void tree256_load(struct tree256 *t, const struct qm_codec *c)
{
    float e[8][32];
    for (int k = 0; k < 32; k++)
        for (int j = 0; j < 8; j++)
            e[j][k] = 8 * k + j + 1 < c->cb.n ? c->edge[8 * k + j] : INFINITY;
    for (int j = 0; j < 7; j++)
        for (int h = 0; h < 2; h++)
            t->low[j][h] = _mm512_loadu_ps(e[j] + 16 * h);
    for (int h = 0; h < 2; h++)
        t->high[h] = _mm512_loadu_ps(e[7] + 16 * h);
}

static inline __m512i tree256_find(const struct tree256 *t, __m512 y)
{
    __m512i k = _mm512_setzero_si512();
    for (int half = 16; half >= 1; half /= 2) {
        __m512i at = _mm512_add_epi32(k, _mm512_set1_epi32(half - 1));
        __m512 e = _mm512_permutex2var_ps(t->high[0], at, t->high[1]);
        k = _mm512_mask_add_epi32(k, _mm512_cmp_ps_mask(y, e, _CMP_GE_OQ), k,
                                  _mm512_set1_epi32(half));
    }
    __m512i code = _mm512_slli_epi32(k, 3);
    for (int j = 0; j < 7; j++) {
        __m512 e = _mm512_permutex2var_ps(t->low[j][0], k, t->low[j][1]);
        code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(y, e, _CMP_GE_OQ), code,
                                     _mm512_set1_epi32(1));
    }
    return code;
}

struct table256 {
    __m512 value[16];
};

static inline void table256_load(struct table256 *t, const struct qm_codec *c)
{
    for (int k = 0; k < 16; k++)
        t->value[k] = _mm512_loadu_ps(c->cb.value + 16 * k);
}

static inline __m512 table256_get(const struct table256 *t, __m512i code)
{
    __m512 v[8];
    for (int k = 0; k < 8; k++)
        v[k] = _mm512_permutex2var_ps(t->value[2 * k], code, t->value[2 * k + 1]);
    __mmask16 b5 = _mm512_test_epi32_mask(code, _mm512_set1_epi32(32));
    __mmask16 b6 = _mm512_test_epi32_mask(code, _mm512_set1_epi32(64));
    __mmask16 b7 = _mm512_test_epi32_mask(code, _mm512_set1_epi32(128));
    for (int k = 0; k < 4; k++)
        v[k] = _mm512_mask_blend_ps(b5, v[2 * k], v[2 * k + 1]);
    for (int k = 0; k < 2; k++)
        v[k] = _mm512_mask_blend_ps(b6, v[2 * k], v[2 * k + 1]);
    return _mm512_mask_blend_ps(b7, v[0], v[1]);
}

static inline __mmask16 tail16(int64_t left)
{
    return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1u);
}

static void positions(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position)
{
    if (c->cb.n <= 16) {
        struct tree16 t;
        tree16_load(&t, c);
        for (int64_t i = 0; i < n; i += 16) {
            __mmask16 m = tail16(n - i);
            __m512i k = tree16_find(&t, _mm512_maskz_loadu_ps(m, y + i));
            _mm_mask_storeu_epi8(position + i, m, _mm512_cvtepi32_epi8(k));
        }
        return;
    }
    struct tree256 t;
    tree256_load(&t, c);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = tail16(n - i);
        __m512i k = tree256_find(&t, _mm512_maskz_loadu_ps(m, y + i));
        _mm_mask_storeu_epi8(position + i, m, _mm512_cvtepi32_epi8(k));
    }
}

static void values(const struct qm_codec *c, const uint8_t *position, int64_t n, float *out)
{
    struct table256 t;
    table256_load(&t, c);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = tail16(n - i);
        __m512i k = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, position + i));
        __m512 v = c->cb.n <= 16 ? _mm512_permutexvar_ps(k, t.value[0]) : table256_get(&t, k);
        _mm512_mask_storeu_ps(out + i, m, v);
    }
}
#else
static void positions(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position)
{
    if (c->cb.n <= 16) {
        float e[15];
        for (int k = 0; k < 15; k++)
            e[k] = k + 1 < c->cb.n ? c->edge[k] : INFINITY;
        for (int64_t i = 0; i < n; i++) {
            int p = 0;
            for (int k = 0; k < 15; k++)
                p += y[i] >= e[k];
            position[i] = (uint8_t)p;
        }
        return;
    }
    float e[256];
    for (int k = 0; k < 256; k++)
        e[k] = k + 1 < c->cb.n ? c->edge[k] : INFINITY;
    for (int64_t i = 0; i < n; i++) {
        int p = 0;
        for (int half = 128; half > 0; half /= 2)
            p += y[i] >= e[p + half - 1] ? half : 0;
        position[i] = (uint8_t)p;
    }
}

static void values(const struct qm_codec *c, const uint8_t *position, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = c->cb.value[position[i]];
}
#endif

static void arith(const struct qm_codec *c, const float *y, float factor, int64_t n,
                  uint8_t *position)
{
    float low = (float)c->cb.base, high = (float)(c->cb.base + c->cb.n - 1);
    int32_t base = c->cb.base;
    if (c->q.round == QM_ROUND_near) {
        for (int64_t i = 0; i < n; i++) {
            float r = fmaf(y[i], factor, 0.5f);
            r = r > low ? r : low; /* low is an integer: floor and clamp commute */
            r = r < high ? r : high;
            int32_t k = (int32_t)r;
            k -= (float)k > r;
            position[i] = (uint8_t)(k - base);
        }
        return;
    }
    /* |z| < 2^22 after the clamp: adding and taking away 1.5 * 2^23 rounds to even */
    for (int64_t i = 0; i < n; i++) {
        float z = y[i] * factor;
        z = z > low ? z : low;
        z = z < high ? z : high;
        float r = (z + 12582912.0f) - 12582912.0f;
        position[i] = (uint8_t)((int32_t)r - base);
    }
}

/* ---- whole blocks ------------------------------------------------------------------------- */

enum { BATCH = 16 };

/* What an ordinary block is divided or multiplied by, and its stored scale; 0 when the block is
 * not for the lanes (stored is then undefined). */
static inline float unit_of(const struct qm_codec *c, uint32_t bits, int is_short, float *stored)
{
    const struct qm_scale_rule *r = &c->q.scale;
    float s = qm_float(bits);
    s = s < r->floor ? r->floor : s;
    s = r->cap != 0.0f && s > r->cap ? r->cap : s;
    s *= c->cb.gain;
    float by = c->q.unit == QM_UNIT_div ? s : 1.0f / s;
    *stored = s;
    int ordinary = bits < 0x7f800000u && s > 0.0f && s >= r->guard && by < INFINITY &&
                   !(is_short && c->q.unit == QM_UNIT_recip_tail);
    return ordinary ? by : 0.0f;
}

#if WIDE
static void decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                          int64_t n, float *out)
{
    int64_t block = c->q.block;
    struct table256 t;
    table256_load(&t, c);
    if (c->q.bits == 4) {
        /* one permute serves both nibbles: 8 bytes become 16 codes in element order */
        const __m512i shift = c->q.pack == QM_PACK_hi ? _mm512_set1_epi64(0x0000000000000004)
                                                      : _mm512_set1_epi64(0x0000000400000000);
        const __m512i spread = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
        const __m512i low4 = _mm512_set1_epi32(15);
        for (int64_t b = 0; b * block < n; b++) {
            int64_t end = (b + 1) * block < n ? (b + 1) * block : n;
            __m512 s = _mm512_set1_ps(scales[b]);
            for (int64_t i = b * block; i < end; i += 16) {
                __mmask16 m = tail16(end - i);
                __m128i bytes =
                    end - i >= 16
                        ? _mm_loadl_epi64((const __m128i *)(packed + i / 2))
                        : _mm_maskz_loadu_epi8((__mmask16)((1u << ((end - i + 1) / 2)) - 1u),
                                               packed + i / 2);
                __m512i k = _mm512_permutexvar_epi32(spread, _mm512_cvtepu8_epi32(bytes));
                k = _mm512_and_si512(_mm512_srlv_epi32(k, shift), low4);
                __m512 v = _mm512_mul_ps(_mm512_permutexvar_ps(k, t.value[0]), s);
                _mm512_mask_storeu_ps(out + i, m, v);
            }
        }
        return;
    }
    for (int64_t b = 0; b * block < n; b++) {
        int64_t end = (b + 1) * block < n ? (b + 1) * block : n;
        __m512 s = _mm512_set1_ps(scales[b]);
        for (int64_t i = b * block; i < end; i += 16) {
            __mmask16 m = tail16(end - i);
            __m512i k = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, packed + i));
            __m512 v = c->cb.n <= 16 ? _mm512_permutexvar_ps(k, t.value[0]) : table256_get(&t, k);
            _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(v, s));
        }
    }
}

/* 16 codes, one per lane, as 8 bytes of two nibbles in the low half. */
static inline __m128i nibbles(__m512i k, int high_first)
{
    __m128i pair =
        _mm_maddubs_epi16(_mm512_cvtepi32_epi8(k), _mm_set1_epi16(high_first ? 0x0110 : 0x1001));
    return _mm_cvtepi16_epi8(pair);
}

/* Four times 16 codes as 64 bytes in element order: byte j of dword i is code 16 j + i, so a
 * transposition within and one across the 128-bit lanes. */
static inline __m512i bytes64(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_or_si512(a, _mm512_slli_epi32(b, 8));
    __m512i cd = _mm512_or_si512(_mm512_slli_epi32(c, 16), _mm512_slli_epi32(d, 24));
    const __m512i within =
        _mm512_broadcast_i32x4(_mm_set_epi8(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0));
    const __m512i across = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_epi32(across, _mm512_shuffle_epi8(_mm512_or_si512(ab, cd), within));
}

static inline void put64(uint8_t *packed, int64_t i, int four, int high_first, __m512i codes)
{
    if (!four) {
        _mm512_storeu_si512(packed + i, codes);
        return;
    }
    __m512i pair = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(high_first ? 0x0110 : 0x1001));
    _mm256_storeu_si256((__m256i *)(packed + i / 2), _mm512_cvtepi16_epi8(pair));
}

static inline __m512 unit16(__m512 x, __m512 by, int divides)
{
    return divides ? _mm512_div_ps(x, by) : _mm512_mul_ps(x, by);
}

/* tree16 and tree256 share this body; `four` is a constant in each.  Sixty-four elements at a time
 * keep four independent searches in flight. */
#define ENCODE_RUN(name, four, tree, tree_find)                                                 \
    static inline __attribute__((always_inline)) void name(                                     \
        const struct tree *t, const float *x, int64_t from, int64_t end, float by, int divides, \
        int high_first, uint8_t *packed)                                                        \
    {                                                                                           \
        __m512 s = _mm512_set1_ps(by);                                                          \
        int64_t i = from;                                                                       \
        for (; i + 64 <= end; i += 64) {                                                        \
            __m512i a = tree_find(t, unit16(_mm512_loadu_ps(x + i), s, divides));               \
            __m512i b = tree_find(t, unit16(_mm512_loadu_ps(x + i + 16), s, divides));          \
            __m512i c = tree_find(t, unit16(_mm512_loadu_ps(x + i + 32), s, divides));          \
            __m512i d = tree_find(t, unit16(_mm512_loadu_ps(x + i + 48), s, divides));          \
            put64(packed, i, four, high_first, bytes64(a, b, c, d));                            \
        }                                                                                       \
        for (; i < end; i += 16) {                                                              \
            __mmask16 m = tail16(end - i);                                                      \
            __m512 y = unit16(_mm512_maskz_loadu_ps(m, x + i), s, divides);                     \
            __m512i k = _mm512_maskz_mov_epi32(m, tree_find(t, y));                             \
            if (four)                                                                           \
                _mm_mask_storeu_epi8(packed + i / 2,                                            \
                                     end - i >= 16                                              \
                                         ? (__mmask16)0xff                                      \
                                         : (__mmask16)((1u << ((end - i + 1) / 2)) - 1u),       \
                                     nibbles(k, high_first));                                   \
            else                                                                                \
                _mm_mask_storeu_epi8(packed + i, m, _mm512_cvtepi32_epi8(k));                   \
        }                                                                                       \
    }

ENCODE_RUN(encode_run4, 1, tree16, tree16_find)
ENCODE_RUN(encode_run8, 0, tree256, tree256_find)

/* The maxima of a batch of blocks come first: their reductions and the searches of another block
 * then overlap in the processor. */
#define ENCODE_BLOCKS(name, four, tree, tree_load, encode_run)                               \
    static void name(                                                                        \
        const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed, float *scales, \
        void (*other)(const struct qm_codec *, const float *, int64_t, uint8_t *, float *))  \
    {                                                                                        \
        int64_t block = c->q.block, blocks = (n + block - 1) / block;                        \
        int high_first = c->q.pack == QM_PACK_hi, divides = c->q.unit == QM_UNIT_div;        \
        float by[BATCH];                                                                     \
        struct tree t;                                                                       \
        tree_load(&t, c);                                                                    \
        for (int64_t first = 0; first < blocks; first += BATCH) {                            \
            int64_t last = first + BATCH < blocks ? first + BATCH : blocks;                  \
            for (int64_t b = first; b < last; b++) {                                         \
                int64_t from = b * block, m = n - from < block ? n - from : block;           \
                by[b - first] = unit_of(c, max_bits(x + from, m), m < block, scales + b);    \
            }                                                                                \
            for (int64_t b = first; b < last; b++) {                                         \
                int64_t from = b * block, end = n - from < block ? n : from + block;         \
                float u = by[b - first];                                                     \
                if (u == 0.0f)                                                               \
                    other(c, x + from, end - from, packed + ((four) ? from / 2 : from),      \
                          scales + b);                                                       \
                else if (divides)                                                            \
                    encode_run(&t, x, from, end, u, 1, high_first, packed);                  \
                else                                                                         \
                    encode_run(&t, x, from, end, u, 0, high_first, packed);                  \
            }                                                                                \
        }                                                                                    \
    }

ENCODE_BLOCKS(encode_blocks4, 1, tree16, tree16_load, encode_run4)
ENCODE_BLOCKS(encode_blocks8, 0, tree256, tree256_load, encode_run8)

static void
encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed, float *scales,
              void (*other)(const struct qm_codec *, const float *, int64_t, uint8_t *, float *))
{
    (c->q.bits == 4 ? encode_blocks4 : encode_blocks8)(c, x, n, packed, scales, other);
}
#else
enum { PIECE = 512 };

static void decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                          int64_t n, float *out)
{
    uint8_t codes[PIECE];
    int64_t block = c->q.block;
    for (int64_t b = 0; b * block < n; b++) {
        int64_t end = (b + 1) * block < n ? (b + 1) * block : n;
        for (int64_t i = b * block; i < end; i += PIECE) {
            int64_t m = end - i < PIECE ? end - i : PIECE;
            const uint8_t *from = codes;
            if (c->q.bits == 4)
                qm_unpack_codes(c->q.pack, 4, packed + i / 2, m, codes);
            else
                from = packed + i;
            values(c, from, m, out + i);
            multiply(out + i, scales[b], m, out + i);
        }
    }
}

static void
encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed, float *scales,
              void (*other)(const struct qm_codec *, const float *, int64_t, uint8_t *, float *))
{
    float y[PIECE];
    uint8_t codes[PIECE];
    int64_t block = c->q.block;
    int four = c->q.bits == 4;
    for (int64_t b = 0; b * block < n; b++) {
        int64_t from = b * block, end = from + block < n ? from + block : n;
        float by = unit_of(c, max_bits(x + from, end - from), end - from < block, scales + b);
        if (by == 0.0f) {
            other(c, x + from, end - from, packed + (four ? from / 2 : from), scales + b);
            continue;
        }
        for (int64_t i = from; i < end; i += PIECE) {
            int64_t m = end - i < PIECE ? end - i : PIECE;
            if (c->q.unit == QM_UNIT_div)
                divide(x + i, by, m, y);
            else
                multiply(x + i, by, m, y);
            positions(c, y, m, four ? codes : packed + i);
            if (four)
                qm_pack_codes(c->q.pack, 4, codes, m, packed + i / 2);
        }
    }
}
#endif

const struct qm_lanes QM_ISA_NAME(qm_lanes) = {
    .max_bits = max_bits,
    .divide = divide,
    .multiply = multiply,
    .divide_each = divide_each,
    .multiply_each = multiply_each,
    .fold_each = fold_each,
    .smaller = smaller,
    .divisors = divisors,
    .pack4 = pack4,
    .unpack4 = unpack4,
    .positions = positions,
    .arith = arith,
    .values = values,
    .decode_blocks = decode_blocks,
    .encode_blocks = encode_blocks,
};
