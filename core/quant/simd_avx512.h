/* simd_avx512.h - Finds codes and looks values up with AVX-512; included by simd_group.h.
 *
 * A group is 64 elements: four vectors of 16 floats, one vector of bytes. */
enum { GROUP = 64 };

struct group {
    __m512 y[4];
};

typedef __m512i group_codes;

/* A mask of the lowest `left` of 64 bits. */
INLINE uint64_t low_bits(int64_t left)
{
    return left >= 64 ? ~UINT64_C(0) : left <= 0 ? 0 : (UINT64_C(1) << left) - 1;
}

/* ---- finders -------------------------------------------------------------------------------- */

/* The edges of at most 16 entries, as the levels of a bisection tree in registers.  The sign of
 * y - edge is exact; each step shifts it, 1 for "below", into the index. */
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
    return k; /* 15 - code */
}

/* Up to 256 entries: five bisections of every eighth edge, then compares with the seven edges
 * between two of these. */
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

/* The lines of core/quant/edge_lines.h in registers. */
struct lines {
    __m512 end[2], slope, offset, bend;
    __m512i zero;
};

INLINE void lines_load(struct lines *t, const struct qm_codec *c)
{
    const struct qm_edge_lines *s = &c->edge_lines;
    t->end[0] = _mm512_loadu_ps(s->end_by_binade);
    t->end[1] = _mm512_loadu_ps(s->end_by_binade + 16);
    t->slope = _mm512_loadu_ps(s->slope);
    t->offset = _mm512_loadu_ps(s->offset);
    t->bend = _mm512_loadu_ps(s->bend);
    t->zero = _mm512_set1_epi8((char)s->zero);
}

/* The bits of u of edge_lines.h. */
INLINE __m512i lines_find(const struct lines *t, __m512 y)
{
    /* min(|y|, 1) */
    __m512 m = _mm512_range_ps(y, _mm512_set1_ps(1.0f), 0x0a);
    m = _mm512_max_ps(m, _mm512_set1_ps(QM_EDGE_LINES_TINY));
    __m512i binade = _mm512_srli_epi32(_mm512_castps_si512(m), 23);
    __m512 end = _mm512_permutex2var_ps(t->end[0], binade, t->end[1]);
    __m512i s = _mm512_castps_si512(end);
    s = _mm512_mask_add_epi32(s, _mm512_cmp_ps_mask(m, end, _CMP_GT_OQ), s, _mm512_set1_epi32(1));
    __m512 line =
        _mm512_fmadd_ps(m, _mm512_permutexvar_ps(s, t->slope), _mm512_permutexvar_ps(s, t->offset));
    __m512 bent = _mm512_fmadd_ps(line, _mm512_set1_ps(QM_EDGE_LINES_BEND),
                                  _mm512_permutexvar_ps(s, t->bend));
    return _mm512_castps_si512(_mm512_min_ps(line, bent));
}

/* ---- 64 at a time --------------------------------------------------------------------------- */

/* Byte `at` of every 32-bit element of a, b, c, d. */
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

/* The tables of core/quant/edge_lut.h in registers. */
#define HAS_CELLS 1
struct cells {
    __m512i base[2], high[2], low[2];
};

INLINE void cells_load(struct cells *t, const struct qm_codec *c)
{
    for (int h = 0; h < 2; h++) {
        t->base[h] = _mm512_loadu_si512(c->edge_lut.base + 64 * h);
        t->high[h] = _mm512_loadu_si512(c->edge_lut.edge_high + 64 * h);
        t->low[h] = _mm512_loadu_si512(c->edge_lut.edge_low + 64 * h);
    }
}

/* Reads min(left, 64) floats; the others become 0. */
INLINE struct group load_group(const float *x, int64_t left)
{
    struct group g;
    for (int v = 0; v < 4; v++)
        g.y[v] = left >= 64 ? _mm512_loadu_ps(x + 16 * v)
                            : _mm512_maskz_loadu_ps((__mmask16)low_bits(left - 16 * v), x + 16 * v);
    return g;
}

/* A group of 64 times x. */
INLINE struct group same_group(float x)
{
    __m512 y = _mm512_set1_ps(x);
    return (struct group){{y, y, y, y}};
}

/* The group divided by `by`, or multiplied by it. */
INLINE struct group unit_group(struct group g, float by, int divides)
{
    __m512 s = _mm512_set1_ps(by);
    for (int v = 0; v < 4; v++)
        g.y[v] = divides ? _mm512_div_ps(g.y[v], s) : _mm512_mul_ps(g.y[v], s);
    return g;
}

/* Byte `at` of every 16-bit element of a and b. */
INLINE __m512i bytes64(__m512i a, __m512i b, int at)
{
    const __m512i even =
        _mm512_set_epi32(0x7e7c7a78, 0x76747270, 0x6e6c6a68, 0x66646260, 0x5e5c5a58, 0x56545250,
                         0x4e4c4a48, 0x46444240, 0x3e3c3a38, 0x36343230, 0x2e2c2a28, 0x26242220,
                         0x1e1c1a18, 0x16141210, 0x0e0c0a08, 0x06040200);
    return _mm512_permutex2var_epi8(a, _mm512_add_epi8(even, _mm512_set1_epi8((char)at)), b);
}

/* The codes of min(left, 64) elements in doubt, by division and search. */
static __m512i __attribute__((noinline))
tree16_codes(const struct qm_codec *c, const float *x, int64_t left, float by)
{
    struct tree16 t;
    struct group g = unit_group(load_group(x, left), by, c->q.unit == QM_UNIT_div);
    tree16_load(&t, c);
    __m512i k = pick64(tree16_find(&t, g.y[0]), tree16_find(&t, g.y[1]), tree16_find(&t, g.y[2]),
                       tree16_find(&t, g.y[3]), 0);
    return _mm512_xor_si512(k, _mm512_set1_epi8(15));
}

/* The codes of 64 elements by edge_lut.h.  slope: QM_EDGE_LUT_SLOPE times the units, per element.
 * *doubt = 1 if an element is in doubt, so that the group must be searched. */
INLINE __m512i cells_look(const struct cells *t, struct group g, struct group slope, int *doubt)
{
    const __m512i lower = /* bytes 0 and 1 of each 32-bit element of two vectors */
        _mm512_set_epi32(0x7d7c7978, 0x75747170, 0x6d6c6968, 0x65646160, 0x5d5c5958, 0x55545150,
                         0x4d4c4948, 0x45444140, 0x3d3c3938, 0x35343130, 0x2d2c2928, 0x25242120,
                         0x1d1c1918, 0x15141110, 0x0d0c0908, 0x05040100);
    const __m512 offset = _mm512_set1_ps(65536.0f + QM_EDGE_LUT_OFFSET);
    const __m512i one = _mm512_set1_epi8(1);
    __m512i z[4]; /* z of edge_lut.h in the lower 23 bits */
    for (int v = 0; v < 4; v++)
        z[v] = _mm512_castps_si512(_mm512_fmadd_round_ps(
            g.y[v], slope.y[v], offset, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
    __m512i a = _mm512_permutex2var_epi8(z[0], lower, z[1]);
    __m512i b = _mm512_permutex2var_epi8(z[2], lower, z[3]);
    __m512i low = bytes64(a, b, 0), high = bytes64(a, b, 1);
    __m512i cell = pick64(z[0], z[1], z[2], z[3], 2); /* permutes read the lower seven bits */
    __m512i base = _mm512_permutex2var_epi8(t->base[0], cell, t->base[1]);
    __m512i edge_high = _mm512_permutex2var_epi8(t->high[0], cell, t->high[1]);
    __m512i edge_low = _mm512_permutex2var_epi8(t->low[0], cell, t->low[1]);
    __mmask64 same = _mm512_cmpeq_epi8_mask(high, edge_high);
    __m512i past = _mm512_add_epi8(_mm512_sub_epi8(low, edge_low), one);
    *doubt = _mm512_mask_cmple_epu8_mask(same, past, _mm512_set1_epi8(2)) != 0;
    __mmask64 up =
        _mm512_cmpgt_epu8_mask(high, edge_high) | _mm512_mask_cmpge_epu8_mask(same, low, edge_low);
    return _mm512_mask_add_epi8(base, up, base, one);
}

/* The codes of min(left, 64) elements by edge_lut.h, searched if in doubt. */
INLINE __m512i cells_codes(const struct cells *t, const struct qm_codec *c, const float *x,
                           int64_t left, float by, float slope)
{
    int doubt;
    __m512i codes = cells_look(t, load_group(x, left), same_group(slope), &doubt);
    return __builtin_expect(doubt, 0) ? tree16_codes(c, x, left, by) : codes;
}

/* The codes of 64 unit values by bisection, out of line. */
static __m512i __attribute__((noinline))
tree256_codes(const struct qm_codec *c, const struct group *g)
{
    struct tree256 t;
    tree256_load(&t, c);
    return pick64(tree256_find(&t, g->y[0]), tree256_find(&t, g->y[1]), tree256_find(&t, g->y[2]),
                  tree256_find(&t, g->y[3]), 0);
}

/* The codes of 64 unit values by edge_lines.h; *doubt as in cells_look. */
INLINE __m512i lines_look(const struct lines *t, struct group g, int *doubt)
{
    const __m512i sure = _mm512_set1_epi32(QM_EDGE_LINES_SURE);
    __m512i u[4];
    __mmask16 any = 0;
    for (int v = 0; v < 4; v++) {
        u[v] = lines_find(t, g.y[v]);
        any |= _mm512_testn_epi32_mask(u[v], sure);
    }
    *doubt = any != 0;
    __m512i k = pick64(u[0], u[1], u[2], u[3], 2);
    __m512i top = pick64(_mm512_castps_si512(g.y[0]), _mm512_castps_si512(g.y[1]),
                         _mm512_castps_si512(g.y[2]), _mm512_castps_si512(g.y[3]), 3);
    return _mm512_mask_subs_epu8(_mm512_add_epi8(t->zero, k), _mm512_movepi8_mask(top), t->zero, k);
}

/* The codes of 64 unit values by edge_lines.h, searched if in doubt. */
INLINE __m512i lines_codes(const struct lines *t, const struct qm_codec *c, struct group g)
{
    int doubt;
    __m512i codes = lines_look(t, g, &doubt);
    if (__builtin_expect(doubt, 0)) {
        struct group kept = g;
        return tree256_codes(c, &kept);
    }
    return codes;
}

struct finders {
    struct tree16 tree16;
    struct cells cells;
    struct tree256 tree256;
    struct lines lines;
};

INLINE void load_finder(enum finder how, struct finders *f, const struct qm_codec *c)
{
    if (how == BY_TREE16)
        tree16_load(&f->tree16, c);
    else if (how == BY_CELLS)
        cells_load(&f->cells, c);
    else if (how == BY_TREE256)
        tree256_load(&f->tree256, c);
    else
        lines_load(&f->lines, c);
}

/* The codes of a group of unit values. */
INLINE __m512i find_group(enum finder how, const struct finders *f, const struct qm_codec *c,
                          struct group g)
{
    if (how == BY_LINES)
        return lines_codes(&f->lines, c, g);
    if (how == BY_TREE256)
        return pick64(tree256_find(&f->tree256, g.y[0]), tree256_find(&f->tree256, g.y[1]),
                      tree256_find(&f->tree256, g.y[2]), tree256_find(&f->tree256, g.y[3]), 0);
    __m512i k = pick64(tree16_find(&f->tree16, g.y[0]), tree16_find(&f->tree16, g.y[1]),
                       tree16_find(&f->tree16, g.y[2]), tree16_find(&f->tree16, g.y[3]), 0);
    return _mm512_xor_si512(k, _mm512_set1_epi8(15));
}

/* The running maximum of a block, one per lane, as bits. */
typedef __m512i group_max;

INLINE group_max max_none(void) { return _mm512_setzero_si512(); }

INLINE group_max max_vector(int with_sign, group_max m, __m512 x)
{
    const __m512i magnitude = _mm512_set1_epi32(with_sign ? -1 : 0x7fffffff);
    return _mm512_max_epu32(m, _mm512_and_si512(_mm512_castps_si512(x), magnitude));
}

INLINE group_max max_group(group_max m, struct group g)
{
    group_max a = max_vector(0, m, g.y[0]), b = max_vector(0, max_none(), g.y[1]);
    return _mm512_max_epu32(max_vector(0, a, g.y[2]), max_vector(0, b, g.y[3]));
}

INLINE uint32_t max_all(group_max m) { return _mm512_reduce_max_epu32(m); }

/* As max_group, and also folds each |y| into its own element of stat. */
INLINE group_max max_each_too(group_max m, struct group g, float *stat)
{
    for (int v = 0; v < 4; v++) {
        group_max old = _mm512_loadu_si512(stat + 16 * v);
        _mm512_storeu_si512(stat + 16 * v, max_vector(0, old, g.y[v]));
    }
    return max_group(m, g);
}

/* Each element times the smaller of s[i] and m, or NaN if either is NaN, as scale_each
 * of simd.h. */
INLINE struct group scale_group(struct group g, float m, const float *s)
{
    __m512 all = _mm512_set1_ps(m);
    __mmask16 is_number = _mm512_cmp_ps_mask(all, all, _CMP_ORD_Q);
    for (int v = 0; v < 4; v++)
        g.y[v] = _mm512_mul_ps(
            g.y[v], _mm512_mask_min_ps(all, is_number, all, _mm512_loadu_ps(s + 16 * v)));
    return g;
}

/* The larger of s[i] and m; neither is NaN. */
INLINE struct group larger_group(float m, const float *s)
{
    struct group g;
    for (int v = 0; v < 4; v++)
        g.y[v] = _mm512_max_ps(_mm512_set1_ps(m), _mm512_loadu_ps(s + 16 * v));
    return g;
}

/* Whether an element is 0, Inf or NaN; none is negative. */
INLINE int any_odd(struct group g)
{
    __mmask16 any = 0;
    for (int v = 0; v < 4; v++)
        any |= _mm512_cmpge_epu32_mask(
            _mm512_sub_epi32(_mm512_castps_si512(g.y[v]), _mm512_set1_epi32(1)),
            _mm512_set1_epi32(0x7f7fffff));
    return any != 0;
}

/* Whether qm_is_tiny (core/base/inverse.h) holds for an element. */
INLINE int any_tiny(struct group g)
{
    __mmask16 any = 0;
    for (int v = 0; v < 4; v++) {
        __m512i u = _mm512_and_si512(_mm512_castps_si512(g.y[v]), _mm512_set1_epi32(0x7fffffff));
        any |= _mm512_cmplt_epu32_mask(_mm512_sub_epi32(u, _mm512_set1_epi32(1)),
                                       _mm512_set1_epi32(0x0d7fffff));
    }
    return any != 0;
}

/* bits[b] = the largest lane of m[b].  Transposes and folds at once: each of four passes makes one
 * vector of two.  Overwrites m. */
INLINE void max_each(group_max m[BATCH], uint32_t *bits)
{
    for (int b = 0; b < 8; b++)
        m[b] = _mm512_max_epu32(_mm512_unpacklo_epi32(m[2 * b], m[2 * b + 1]),
                                _mm512_unpackhi_epi32(m[2 * b], m[2 * b + 1]));
    for (int b = 0; b < 4; b++)
        m[b] = _mm512_max_epu32(_mm512_unpacklo_epi64(m[2 * b], m[2 * b + 1]),
                                _mm512_unpackhi_epi64(m[2 * b], m[2 * b + 1]));
    for (int left = 2; left > 0; left--)
        for (int b = 0; b < left; b++)
            m[b] = _mm512_max_epu32(_mm512_shuffle_i32x4(m[2 * b], m[2 * b + 1], 0x88),
                                    _mm512_shuffle_i32x4(m[2 * b], m[2 * b + 1], 0xdd));
    _mm512_storeu_si512(bits, m[0]);
}

/* maxima_each of up to BATCH whole blocks. */
INLINE void maxima(int with_sign, const float *x, int64_t block, int64_t count, uint32_t *bits)
{
    group_max m[BATCH];
    if (block % 16) {
        maxima_each(with_sign, x, block, count, bits);
        return;
    }
    for (int64_t b = count; b < BATCH; b++)
        m[b] = max_none();
    for (int64_t b = 0; b < count; b++, x += block) {
        m[b] = max_none();
        for (int64_t i = 0; i < block; i += 16)
            m[b] = max_vector(with_sign, m[b], _mm512_loadu_ps(x + i));
    }
    max_each(m, bits);
}

/* Writes min(left, 64) codes from element i on, as bytes or, if `four`, as nibbles. */
INLINE void put_group(uint8_t *packed, int64_t i, int64_t left, int four, int high_first,
                      __m512i codes)
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

/* ---- values --------------------------------------------------------------------------------- */

/* The values of a map as four tables, each with one byte of every value.  A table takes four
 * vectors; for at most 16 entries (small) it is repeated within one vector. */
struct planes {
    __m512i byte[4][4];
};

INLINE void planes_load(struct planes *t, int small, const struct qm_codec *c)
{
    if (small) {
        __m512i v = _mm512_loadu_si512(c->cb.value);
        for (int p = 0; p < 4; p++)
            t->byte[p][0] = _mm512_broadcast_i32x4(_mm512_castsi512_si128(pick64(v, v, v, v, p)));
        return;
    }
    for (int q = 0; q < 4; q++) {
        const float *v = c->cb.value + 64 * q;
        __m512i a = _mm512_loadu_si512(v), b = _mm512_loadu_si512(v + 16);
        __m512i d = _mm512_loadu_si512(v + 32), e = _mm512_loadu_si512(v + 48);
        for (int p = 0; p < 4; p++)
            t->byte[p][q] = pick64(a, b, d, e, p);
    }
}

/* The values of 64 codes: their four bytes are looked up apart and then interleaved. */
INLINE struct group planes_get(const struct planes *t, int small, __m512i codes)
{
    const __m512i across = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i k = _mm512_permutexvar_epi32(across, codes), b[4];
    __mmask64 upper = small ? 0 : _mm512_movepi8_mask(k);
    for (int p = 0; p < 4; p++)
        b[p] = small ? _mm512_shuffle_epi8(t->byte[p][0], k)
                     : _mm512_mask_blend_epi8(
                           upper, _mm512_permutex2var_epi8(t->byte[p][0], k, t->byte[p][1]),
                           _mm512_permutex2var_epi8(t->byte[p][2], k, t->byte[p][3]));
    __m512i low01 = _mm512_unpacklo_epi8(b[0], b[1]), high01 = _mm512_unpackhi_epi8(b[0], b[1]);
    __m512i low23 = _mm512_unpacklo_epi8(b[2], b[3]), high23 = _mm512_unpackhi_epi8(b[2], b[3]);
    struct group g = {{_mm512_castsi512_ps(_mm512_unpacklo_epi16(low01, low23)),
                       _mm512_castsi512_ps(_mm512_unpackhi_epi16(low01, low23)),
                       _mm512_castsi512_ps(_mm512_unpacklo_epi16(high01, high23)),
                       _mm512_castsi512_ps(_mm512_unpackhi_epi16(high01, high23))}};
    return g;
}

/* Reads min(left, 64) codes; the others become 0. */
INLINE group_codes load_codes(const uint8_t *codes, int64_t left)
{
    return left >= 64 ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8(low_bits(left), codes);
}

/* s times the values of min(left, 64) four-bit codes: each pair of lanes gets eight bytes, each
 * lane shifts its own code down and looks it up among the sixteen products s * value. */
INLINE struct group nibbles_times(const struct planes *t, const float *value, int high_first,
                                  const uint8_t *bytes, int64_t left, float s)
{
    const __m512i by =
        high_first ? _mm512_set_epi32(56, 60, 48, 52, 40, 44, 32, 36, 24, 28, 16, 20, 8, 12, 0, 4)
                   : _mm512_set_epi32(60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    __m512 product = _mm512_mul_ps(_mm512_loadu_ps(value), _mm512_set1_ps(s));
    uint64_t part[4] = {0};
    struct group g;
    (void)t;
    if (left < 64) {
        memcpy(part, bytes, (size_t)(left + 1) / 2);
        bytes = (const uint8_t *)part;
    }
    for (int v = 0; v < 4; v++) {
        int64_t eight;
        memcpy(&eight, bytes + 8 * v, sizeof eight);
        __m512i codes = _mm512_multishift_epi64_epi8(by, _mm512_set1_epi64(eight));
        g.y[v] = _mm512_permutexvar_ps(codes, product);
    }
    return g;
}

/* Writes min(left, 64) floats. */
INLINE void store_group(float *out, int64_t left, struct group g)
{
    for (int v = 0; v < 4; v++)
        if (left >= 64)
            _mm512_storeu_ps(out + 16 * v, g.y[v]);
        else
            _mm512_mask_storeu_ps(out + 16 * v, (__mmask16)low_bits(left - 16 * v), g.y[v]);
}
