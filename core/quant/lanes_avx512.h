/* lanes_avx512.h - searching, packing and tables with AVX-512; part of lanes.c.
 *
 * Codes are found in groups of 64, four vectors of 16 floats to one vector of bytes, by one of
 * three finders: a bisection of at most 16 entries in registers, one of 256, or the straight lines
 * of core/quant/segments.h with the bisection behind them. */
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum finder { BY_TREE16, BY_TREE256, BY_LINES };

struct group {
    __m512 y[4];
};

/* The lowest `left` of `lanes` bits. */
INLINE uint64_t low_bits(int64_t left)
{
    return left >= 64 ? ~UINT64_C(0) : left <= 0 ? 0 : (UINT64_C(1) << left) - 1;
}

/* ---- finders -------------------------------------------------------------------------------- */

/* The edges of a table of at most 16 entries as the levels of a bisection tree in registers.  The
 * sign of y - edge is exact, so each step shifts one bit, 1 for "below", into the index. */
struct tree16 {
    __m512 level[4]; /* level l holds its 2^l edges, highest first */
};

INLINE void tree16_load(struct tree16 *t, const struct qm_codec *c)
{
    for (int l = 0; l < 4; l++)
        t->level[l] = _mm512_loadu_ps(c->level[l]);
}

INLINE __m512i tree16_find(const struct tree16 *t, __m512 y)
{
    __m512i k = _mm512_srli_epi32(_mm512_castps_si512(_mm512_sub_ps(y, t->level[0])), 31);
    for (int l = 1; l < 4; l++) {
        __m512 e = _mm512_permutexvar_ps(k, t->level[l]);
        k = _mm512_shldi_epi32(k, _mm512_castps_si512(_mm512_sub_ps(y, e)), 1);
    }
    return k; /* 15 less the code */
}

/* 256 entries: five steps over every eighth edge, then the seven edges of the group at once. */
struct tree256 {
    __m512 fan[8][2]; /* fan[j] = edge[8k + j], k < 32; the last of all is +Inf */
};

INLINE void tree256_load(struct tree256 *t, const struct qm_codec *c)
{
    for (int j = 0; j < 8; j++)
        for (int h = 0; h < 2; h++)
            t->fan[j][h] = _mm512_loadu_ps(c->fan[j] + 16 * h);
}

INLINE __m512i tree256_find(const struct tree256 *t, __m512 y)
{
    __m512i k = _mm512_setzero_si512();
    for (int half = 16; half >= 1; half /= 2) {
        __m512i at = _mm512_add_epi32(k, _mm512_set1_epi32(half - 1));
        __m512 e = _mm512_permutex2var_ps(t->fan[7][0], at, t->fan[7][1]);
        k = _mm512_mask_add_epi32(k, _mm512_cmp_ps_mask(y, e, _CMP_GE_OQ), k,
                                  _mm512_set1_epi32(half));
    }
    __m512i code = _mm512_slli_epi32(k, 3);
    for (int j = 0; j < 7; j++) {
        __m512 e = _mm512_permutex2var_ps(t->fan[j][0], k, t->fan[j][1]);
        code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(y, e, _CMP_GE_OQ), code,
                                     _mm512_set1_epi32(1));
    }
    return code;
}

/* core/quant/segments.h */
struct lines {
    __m512 end[2], slope, offset, bend;
    __m512i zero;
};

INLINE void lines_load(struct lines *t, const struct qm_codec *c)
{
    const struct qm_segments *s = &c->segments;
    t->end[0] = _mm512_loadu_ps(s->end_by_binade);
    t->end[1] = _mm512_loadu_ps(s->end_by_binade + 16);
    t->slope = _mm512_loadu_ps(s->slope);
    t->offset = _mm512_loadu_ps(s->offset);
    t->bend = _mm512_loadu_ps(s->bend);
    t->zero = _mm512_set1_epi8((char)s->zero);
}

INLINE __m512i lines_find(const struct lines *t, __m512 y)
{
    /* the smaller magnitude of y and 1, as a magnitude */
    __m512 m = _mm512_range_ps(y, _mm512_set1_ps(1.0f), 0x0a);
    m = _mm512_max_ps(m, _mm512_set1_ps(QM_SEGMENT_TINY));
    __m512i binade = _mm512_srli_epi32(_mm512_castps_si512(m), 23);
    __m512 end = _mm512_permutex2var_ps(t->end[0], binade, t->end[1]);
    __m512i s = _mm512_castps_si512(end);
    s = _mm512_mask_add_epi32(s, _mm512_cmp_ps_mask(m, end, _CMP_GT_OQ), s, _mm512_set1_epi32(1));
    __m512 line =
        _mm512_fmadd_ps(m, _mm512_permutexvar_ps(s, t->slope), _mm512_permutexvar_ps(s, t->offset));
    __m512 bent =
        _mm512_fmadd_ps(line, _mm512_set1_ps(QM_SEGMENT_BEND), _mm512_permutexvar_ps(s, t->bend));
    return _mm512_castps_si512(_mm512_min_ps(line, bent));
}

/* ---- 64 at a time --------------------------------------------------------------------------- */

/* Four times 16 codes as 64 bytes in element order: byte j of dword i is code 16 j + i, so a
 * transposition within and one across the 128-bit lanes. */
INLINE __m512i bytes64(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_or_si512(a, _mm512_slli_epi32(b, 8));
    __m512i cd = _mm512_or_si512(_mm512_slli_epi32(c, 16), _mm512_slli_epi32(d, 24));
    const __m512i within =
        _mm512_broadcast_i32x4(_mm_set_epi8(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0));
    const __m512i across = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_epi32(across, _mm512_shuffle_epi8(_mm512_or_si512(ab, cd), within));
}

/* Byte `at` of every dword of a, b, c, d. */
INLINE __m512i pick64(__m512i a, __m512i b, __m512i c, __m512i d, int at)
{
    const __m512i quads =
        _mm512_set_epi32(0x7c787470, 0x6c686460, 0x5c585450, 0x4c484440, 0x3c383430, 0x2c282420,
                         0x1c181410, 0x0c080400, 0x7c787470, 0x6c686460, 0x5c585450, 0x4c484440,
                         0x3c383430, 0x2c282420, 0x1c181410, 0x0c080400);
    __m512i from = _mm512_add_epi8(quads, _mm512_set1_epi8((char)at));
    return _mm512_inserti64x4(_mm512_permutex2var_epi8(a, from, b),
                              _mm512_castsi512_si256(_mm512_permutex2var_epi8(c, from, d)), 1);
}

static __m512i __attribute__((noinline)) tree256_codes(const struct qm_codec *c, struct group *g)
{
    struct tree256 t;
    tree256_load(&t, c);
    return bytes64(tree256_find(&t, g->y[0]), tree256_find(&t, g->y[1]), tree256_find(&t, g->y[2]),
                   tree256_find(&t, g->y[3]));
}

INLINE __m512i lines_codes(const struct lines *t, const struct qm_codec *c, struct group g)
{
    const __m512i sure = _mm512_set1_epi32(QM_SEGMENT_SURE);
    __m512i u[4];
    __mmask16 doubt = 0;
    for (int v = 0; v < 4; v++) {
        u[v] = lines_find(t, g.y[v]);
        doubt |= _mm512_testn_epi32_mask(u[v], sure);
    }
    if (__builtin_expect(doubt, 0))
        return tree256_codes(c, &g);
    __m512i k = pick64(u[0], u[1], u[2], u[3], 2);
    __m512i top = pick64(_mm512_castps_si512(g.y[0]), _mm512_castps_si512(g.y[1]),
                         _mm512_castps_si512(g.y[2]), _mm512_castps_si512(g.y[3]), 3);
    return _mm512_mask_subs_epu8(_mm512_add_epi8(t->zero, k), _mm512_movepi8_mask(top), t->zero, k);
}

struct finders {
    struct tree16 tree16;
    struct tree256 tree256;
    struct lines lines;
};

INLINE void load_finder(enum finder how, struct finders *f, const struct qm_codec *c)
{
    if (how == BY_TREE16)
        tree16_load(&f->tree16, c);
    else if (how == BY_TREE256)
        tree256_load(&f->tree256, c);
    else
        lines_load(&f->lines, c);
}

INLINE __m512i find64(enum finder how, const struct finders *f, const struct qm_codec *c,
                      struct group g)
{
    if (how == BY_LINES)
        return lines_codes(&f->lines, c, g);
    if (how == BY_TREE256)
        return bytes64(tree256_find(&f->tree256, g.y[0]), tree256_find(&f->tree256, g.y[1]),
                       tree256_find(&f->tree256, g.y[2]), tree256_find(&f->tree256, g.y[3]));
    __m512i k = bytes64(tree16_find(&f->tree16, g.y[0]), tree16_find(&f->tree16, g.y[1]),
                        tree16_find(&f->tree16, g.y[2]), tree16_find(&f->tree16, g.y[3]));
    return _mm512_xor_si512(k, _mm512_set1_epi8(15));
}

INLINE enum finder finder_of(const struct qm_codec *c)
{
    return c->cb.n <= 16 ? BY_TREE16 : c->cb.n == 256 && c->segments.usable ? BY_LINES : BY_TREE256;
}

/* Reads up to 64 floats, 0 beyond them. */
INLINE struct group load64(const float *x, int64_t left)
{
    struct group g;
    for (int v = 0; v < 4; v++)
        g.y[v] = left >= 64 ? _mm512_loadu_ps(x + 16 * v)
                            : _mm512_maskz_loadu_ps((__mmask16)low_bits(left - 16 * v), x + 16 * v);
    return g;
}

/* ---- positions ------------------------------------------------------------------------------ */

INLINE void positions_by(enum finder how, const struct qm_codec *c, const float *y, int64_t n,
                         uint8_t *position)
{
    struct finders f;
    load_finder(how, &f, c);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        _mm512_storeu_si512(position + i, find64(how, &f, c, load64(y + i, 64)));
    if (i < n)
        _mm512_mask_storeu_epi8(position + i, low_bits(n - i),
                                find64(how, &f, c, load64(y + i, n - i)));
}

static void positions(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position)
{
    switch (finder_of(c)) {
    case BY_TREE16: positions_by(BY_TREE16, c, y, n, position); break;
    case BY_TREE256: positions_by(BY_TREE256, c, y, n, position); break;
    case BY_LINES: positions_by(BY_LINES, c, y, n, position); break;
    }
}

/* ---- values --------------------------------------------------------------------------------- */

/* 256 floats as four tables of bytes, each in four vectors. */
struct planes {
    __m512i byte[4][4];
};

INLINE void planes_load(struct planes *t, const struct qm_codec *c)
{
    for (int q = 0; q < 4; q++) {
        const float *v = c->cb.value + 64 * q;
        __m512i a = _mm512_loadu_si512(v), b = _mm512_loadu_si512(v + 16);
        __m512i d = _mm512_loadu_si512(v + 32), e = _mm512_loadu_si512(v + 48);
        for (int p = 0; p < 4; p++)
            t->byte[p][q] = pick64(a, b, d, e, p);
    }
}

/* The values of 64 codes: looked up byte by byte, then put together again. */
INLINE struct group planes_get(const struct planes *t, __m512i codes)
{
    const __m512i across = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i k = _mm512_permutexvar_epi32(across, codes), b[4];
    __mmask64 upper = _mm512_movepi8_mask(k);
    for (int p = 0; p < 4; p++)
        b[p] =
            _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(t->byte[p][0], k, t->byte[p][1]),
                                   _mm512_permutex2var_epi8(t->byte[p][2], k, t->byte[p][3]));
    __m512i low01 = _mm512_unpacklo_epi8(b[0], b[1]), high01 = _mm512_unpackhi_epi8(b[0], b[1]);
    __m512i low23 = _mm512_unpacklo_epi8(b[2], b[3]), high23 = _mm512_unpackhi_epi8(b[2], b[3]);
    struct group g = {{_mm512_castsi512_ps(_mm512_unpacklo_epi16(low01, low23)),
                       _mm512_castsi512_ps(_mm512_unpackhi_epi16(low01, low23)),
                       _mm512_castsi512_ps(_mm512_unpacklo_epi16(high01, high23)),
                       _mm512_castsi512_ps(_mm512_unpackhi_epi16(high01, high23))}};
    return g;
}

INLINE __m512i load_codes(const uint8_t *codes, int64_t left)
{
    return left >= 64 ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8(low_bits(left), codes);
}

/* out[i] = value[codes[i]], times `by` if scaled. */
INLINE void values_by(const struct planes *t, const uint8_t *codes, int64_t n, int scaled, float by,
                      float *out)
{
    __m512 s = _mm512_set1_ps(by);
    for (int64_t i = 0; i < n; i += 64) {
        struct group g = planes_get(t, load_codes(codes + i, n - i));
        for (int v = 0; v < 4; v++) {
            __m512 x = scaled ? _mm512_mul_ps(g.y[v], s) : g.y[v];
            if (n - i >= 64)
                _mm512_storeu_ps(out + i + 16 * v, x);
            else
                _mm512_mask_storeu_ps(out + i + 16 * v, (__mmask16)low_bits(n - i - 16 * v), x);
        }
    }
}

static void values(const struct qm_codec *c, const uint8_t *position, int64_t n, float *out)
{
    if (c->cb.n > 16) {
        struct planes t;
        planes_load(&t, c);
        values_by(&t, position, n, 0, 1.0f, out);
        return;
    }
    __m512 table = _mm512_loadu_ps(c->cb.value);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = (__mmask16)low_bits(n - i);
        __m512i k = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, position + i));
        _mm512_mask_storeu_ps(out + i, m, _mm512_permutexvar_ps(k, table));
    }
}

/* ---- whole blocks --------------------------------------------------------------------------- */

static void decode_blocks4(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                           int64_t n, float *out)
{
    /* one permute serves both nibbles: 8 bytes become 16 codes in element order */
    const __m512i shift = c->q.pack == QM_PACK_hi ? _mm512_set1_epi64(0x0000000000000004)
                                                  : _mm512_set1_epi64(0x0000000400000000);
    const __m512i spread = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512 table = _mm512_loadu_ps(c->cb.value);
    int64_t block = c->q.block;
    for (int64_t b = 0; b * block < n; b++) {
        int64_t end = (b + 1) * block < n ? (b + 1) * block : n;
        __m512 s = _mm512_set1_ps(scales[b]);
        for (int64_t i = b * block; i < end; i += 16) {
            int64_t left = end - i;
            __m128i bytes = left >= 16 ? _mm_loadl_epi64((const __m128i *)(packed + i / 2))
                                       : _mm_maskz_loadu_epi8((__mmask16)low_bits((left + 1) / 2),
                                                              packed + i / 2);
            __m512i k = _mm512_permutexvar_epi32(spread, _mm512_cvtepu8_epi32(bytes));
            k = _mm512_srlv_epi32(k, shift); /* the upper nibble does not choose */
            _mm512_mask_storeu_ps(out + i, (__mmask16)low_bits(left),
                                  _mm512_mul_ps(_mm512_permutexvar_ps(k, table), s));
        }
    }
}

static void decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                          int64_t n, float *out)
{
    int64_t block = c->q.block;
    struct planes t;
    if (c->q.bits == 4) {
        decode_blocks4(c, packed, scales, n, out);
        return;
    }
    planes_load(&t, c);
    for (int64_t b = 0; b * block < n; b++) {
        int64_t from = b * block, m = n - from < block ? n - from : block;
        values_by(&t, packed + from, m, 1, scales[b], out + from);
    }
}

/* Up to 64 codes, as bytes or as nibbles. */
INLINE void put64(uint8_t *packed, int64_t i, int64_t left, int four, int high_first, __m512i codes)
{
    if (!four) {
        if (left >= 64)
            _mm512_storeu_si512(packed + i, codes);
        else
            _mm512_mask_storeu_epi8(packed + i, low_bits(left), codes);
        return;
    }
    if (left < 64)
        codes = _mm512_maskz_mov_epi8(low_bits(left), codes);
    __m512i pair = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(high_first ? 0x0110 : 0x1001));
    __m256i bytes = _mm512_cvtepi16_epi8(pair);
    if (left >= 64)
        _mm256_storeu_si256((__m256i *)(packed + i / 2), bytes);
    else
        _mm256_mask_storeu_epi8(packed + i / 2, (__mmask32)low_bits((left + 1) / 2), bytes);
}

INLINE void encode_run(enum finder how, const struct finders *f, const struct qm_codec *c,
                       const float *x, int64_t from, int64_t end, float by, int divides,
                       uint8_t *packed)
{
    int four = how == BY_TREE16, high_first = c->q.pack == QM_PACK_hi;
    __m512 s = _mm512_set1_ps(by);
    for (int64_t i = from; i < end; i += 64) {
        struct group g = load64(x + i, end - i);
        for (int v = 0; v < 4; v++)
            g.y[v] = divides ? _mm512_div_ps(g.y[v], s) : _mm512_mul_ps(g.y[v], s);
        put64(packed, i, end - i, four, high_first, find64(how, f, c, g));
    }
}

enum { BATCH = 16 };

typedef void other_fn(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                      float *scale);

/* The maxima of a batch of blocks come first: their reductions and the searches of another block
 * then overlap in the processor. */
INLINE void encode_blocks_by(enum finder how, const struct qm_codec *c, const float *x, int64_t n,
                             uint8_t *packed, float *scales, other_fn *other)
{
    int64_t block = c->q.block, blocks = (n + block - 1) / block;
    int divides = c->q.unit == QM_UNIT_div;
    float by[BATCH];
    struct finders f;
    load_finder(how, &f, c);
    for (int64_t first = 0; first < blocks; first += BATCH) {
        int64_t last = first + BATCH < blocks ? first + BATCH : blocks;
        for (int64_t b = first; b < last; b++) {
            int64_t from = b * block, m = n - from < block ? n - from : block;
            by[b - first] = unit_of(c, max_bits(x + from, m), m < block, scales + b);
        }
        for (int64_t b = first; b < last; b++) {
            int64_t from = b * block, end = n - from < block ? n : from + block;
            float u = by[b - first];
            if (u == 0.0f)
                other(c, x + from, end - from, packed + (how == BY_TREE16 ? from / 2 : from),
                      scales + b);
            else if (divides)
                encode_run(how, &f, c, x, from, end, u, 1, packed);
            else
                encode_run(how, &f, c, x, from, end, u, 0, packed);
        }
    }
}

static void encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                          float *scales, other_fn *other)
{
    switch (finder_of(c)) {
    case BY_TREE16: encode_blocks_by(BY_TREE16, c, x, n, packed, scales, other); break;
    case BY_TREE256: encode_blocks_by(BY_TREE256, c, x, n, packed, scales, other); break;
    case BY_LINES: encode_blocks_by(BY_LINES, c, x, n, packed, scales, other); break;
    }
}
