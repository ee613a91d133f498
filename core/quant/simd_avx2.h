/* simd_avx2.h - Finds codes and looks values up with AVX2; included by simd_group.h.
 *
 * A group is 32 elements: four vectors of 8 floats, one vector of bytes. */
enum { GROUP = 32 };

struct group {
    __m256 y[4];
};

typedef __m256i group_codes;

/* ---- finders -------------------------------------------------------------------------------- */

/* Bisection of at most 16 entries: the last level has 8 edges, as many as one permute
 * chooses from. */
struct tree16 {
    __m256 level[4];
};

INLINE __m256i tree16_find(const struct tree16 *t, __m256 y)
{
    __m256i k = _mm256_castps_si256(_mm256_cmp_ps(y, t->level[0], _CMP_LT_OQ));
    k = _mm256_srli_epi32(k, 31);
    for (int l = 1; l < 4; l++) {
        __m256 below = _mm256_cmp_ps(y, _mm256_permutevar8x32_ps(t->level[l], k), _CMP_LT_OQ);
        k = _mm256_sub_epi32(_mm256_add_epi32(k, k), _mm256_castps_si256(below));
    }
    return k; /* 15 - code */
}

/* The lines of core/quant/edge_lines.h in registers. */
struct lines {
    __m256 end, slope, offset, bend, guess_slope, guess_offset;
    __m256i zero;
};

/* The bits of u of edge_lines.h. */
INLINE __m256i lines_find(const struct lines *t, __m256 y)
{
    __m256 m = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), y);
    m = _mm256_min_ps(m, _mm256_set1_ps(1.0f));
    m = _mm256_max_ps(m, _mm256_set1_ps(QM_EDGE_LINES_TINY));
    __m256 guess = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_castps_si256(m)), t->guess_slope,
                                   t->guess_offset);
    __m256i s = _mm256_cvttps_epi32(guess);
    __m256 above = _mm256_cmp_ps(m, _mm256_permutevar8x32_ps(t->end, s), _CMP_GT_OQ);
    s = _mm256_sub_epi32(s, _mm256_castps_si256(above));
    __m256 line = _mm256_fmadd_ps(m, _mm256_permutevar8x32_ps(t->slope, s),
                                  _mm256_permutevar8x32_ps(t->offset, s));
    __m256 bent = _mm256_fmadd_ps(line, _mm256_set1_ps(QM_EDGE_LINES_BEND),
                                  _mm256_permutevar8x32_ps(t->bend, s));
    return _mm256_castps_si256(_mm256_min_ps(line, bent));
}

/* AVX2 has no look-up in 128 bytes of registers, so BY_CELLS is never chosen. */
#define HAS_CELLS 0
struct cells {
    int none;
};

INLINE __m256i cells_codes(const struct cells *t, const struct qm_codec *c, const float *x,
                           int64_t left, float by, float slope)
{
    (void)t, (void)c, (void)x, (void)left, (void)by, (void)slope;
    return _mm256_setzero_si256();
}

struct finders {
    struct tree16 tree16;
    struct cells cells;
    struct lines lines;
};

INLINE void load_finder(enum finder how, struct finders *f, const struct qm_codec *c)
{
    const struct qm_edge_lines *s = &c->edge_lines;
    if (how == BY_TREE16) {
        for (int l = 0; l < 4; l++)
            f->tree16.level[l] = _mm256_loadu_ps(c->level[l]);
    } else if (how == BY_LINES) {
        f->lines.end = _mm256_loadu_ps(s->end);
        f->lines.slope = _mm256_loadu_ps(s->slope);
        f->lines.offset = _mm256_loadu_ps(s->offset);
        f->lines.bend = _mm256_loadu_ps(s->bend);
        f->lines.guess_slope = _mm256_set1_ps(s->guess_slope);
        f->lines.guess_offset = _mm256_set1_ps(s->guess_offset);
        f->lines.zero = _mm256_set1_epi8((char)s->zero);
    }
}

/* ---- 32 at a time --------------------------------------------------------------------------- */

/* Undoes the order in which pack_bytes interleaves its operands. */
INLINE __m256i unscramble(__m256i bytes)
{
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Packs four vectors of 8 numbers below 256 into bytes; unscramble puts them in element order. */
INLINE __m256i pack_bytes(__m256i a, __m256i b, __m256i c, __m256i d)
{
    return _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
}

/* Bytes whose top bits are the sign bits of the group, in element order once unscrambled. */
INLINE __m256i pack_signs(struct group g)
{
    return _mm256_packs_epi16(
        _mm256_packs_epi32(_mm256_castps_si256(g.y[0]), _mm256_castps_si256(g.y[1])),
        _mm256_packs_epi32(_mm256_castps_si256(g.y[2]), _mm256_castps_si256(g.y[3])));
}

/* Searches the codes of the elements i with bit i of `which` set, one by one. */
static __attribute__((noinline)) void search_each(const struct qm_codec *c, const float *y,
                                                  uint32_t which, uint8_t *codes)
{
    for (; which; which &= which - 1) {
        int i = __builtin_ctz(which), k = 0;
        for (int half = 128; half > 0; half /= 2) {
            int at = k + half - 1; /* edge[at], +Inf beyond the last */
            k += y[i] >= c->fan[at % 8][at / 8] ? half : 0;
        }
        codes[i] = (uint8_t)k;
    }
}

/* search_each on a group in registers. */
static __attribute__((noinline)) __m256i
search_group(const struct qm_codec *c, const struct group *g, uint32_t which, __m256i codes)
{
    float y[GROUP];
    uint8_t k[GROUP];
    for (int v = 0; v < 4; v++)
        _mm256_storeu_ps(y + 8 * v, g->y[v]);
    _mm256_storeu_si256((__m256i *)k, codes);
    search_each(c, y, which, k);
    return _mm256_loadu_si256((const __m256i *)k);
}

/* The codes of a group by edge_lines.h; doubtful elements are searched. */
INLINE __m256i lines_codes(const struct lines *t, const struct qm_codec *c, struct group g)
{
    const __m256i sure = _mm256_set1_epi32(QM_EDGE_LINES_SURE), byte = _mm256_set1_epi32(255);
    __m256i k[4], doubt[4];
    for (int v = 0; v < 4; v++) {
        __m256i u = lines_find(t, g.y[v]);
        doubt[v] = _mm256_cmpeq_epi32(_mm256_and_si256(u, sure), _mm256_setzero_si256());
        k[v] = _mm256_and_si256(_mm256_srli_epi32(u, 16), byte);
    }
    __m256i magnitude = pack_bytes(k[0], k[1], k[2], k[3]);
    __m256i codes = unscramble(_mm256_blendv_epi8(
        _mm256_add_epi8(t->zero, magnitude), _mm256_subs_epu8(t->zero, magnitude), pack_signs(g)));
    __m256i any =
        _mm256_or_si256(_mm256_or_si256(doubt[0], doubt[1]), _mm256_or_si256(doubt[2], doubt[3]));
    if (__builtin_expect(!_mm256_testz_si256(any, any), 0)) {
        struct group kept = g;
        uint32_t which = 0;
        for (int v = 0; v < 4; v++)
            which |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(doubt[v])) << 8 * v;
        return search_group(c, &kept, which, codes);
    }
    return codes;
}

/* The codes of a group of unit values. */
INLINE __m256i find_group(enum finder how, const struct finders *f, const struct qm_codec *c,
                          struct group g)
{
    if (how == BY_LINES)
        return lines_codes(&f->lines, c, g);
    if (how == BY_TREE256)
        return search_group(c, &g, 0xffffffffu, _mm256_setzero_si256());
    __m256i k = pack_bytes(tree16_find(&f->tree16, g.y[0]), tree16_find(&f->tree16, g.y[1]),
                           tree16_find(&f->tree16, g.y[2]), tree16_find(&f->tree16, g.y[3]));
    return _mm256_xor_si256(unscramble(k), _mm256_set1_epi8(15));
}

INLINE struct group load_whole(const float *x)
{
    struct group g;
    for (int v = 0; v < 4; v++)
        g.y[v] = _mm256_loadu_ps(x + 8 * v);
    return g;
}

/* Reads min(left, 32) floats; the others become 0. */
INLINE struct group load_group(const float *x, int64_t left)
{
    if (__builtin_expect(left >= GROUP, 1))
        return load_whole(x);
    float part[GROUP] = {0};
    memcpy(part, x, sizeof *x * (size_t)left);
    return load_whole(part);
}

INLINE void store_whole(float *out, struct group g)
{
    for (int v = 0; v < 4; v++)
        _mm256_storeu_ps(out + 8 * v, g.y[v]);
}

/* Writes min(left, 32) floats. */
INLINE void store_group(float *out, int64_t left, struct group g)
{
    if (__builtin_expect(left >= GROUP, 1)) {
        store_whole(out, g);
        return;
    }
    float part[GROUP];
    store_whole(part, g);
    memcpy(out, part, sizeof *out * (size_t)left);
}

/* The group divided by `by`, or multiplied by it. */
INLINE struct group unit_group(struct group g, float by, int divides)
{
    __m256 s = _mm256_set1_ps(by);
    for (int v = 0; v < 4; v++)
        g.y[v] = divides ? _mm256_div_ps(g.y[v], s) : _mm256_mul_ps(g.y[v], s);
    return g;
}

INLINE void put_whole(uint8_t *to, int four, int high_first, __m256i codes)
{
    if (!four) {
        _mm256_storeu_si256((__m256i *)to, codes);
        return;
    }
    __m256i pair = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(high_first ? 0x0110 : 0x1001));
    _mm_storeu_si128((__m128i *)to, _mm_packus_epi16(_mm256_castsi256_si128(pair),
                                                     _mm256_extracti128_si256(pair, 1)));
}

/* Writes min(left, 32) codes from element i on, as bytes or, if `four`, as nibbles. */
INLINE void put_group(uint8_t *packed, int64_t i, int64_t left, int four, int high_first,
                      __m256i codes)
{
    uint8_t *to = packed + (four ? i / 2 : i);
    if (__builtin_expect(left >= GROUP, 1)) {
        put_whole(to, four, high_first, codes);
        return;
    }
    uint8_t part[GROUP] = {0}; /* the nibble after an odd number of codes is 0 */
    memset(part, 255, (size_t)left);
    codes = _mm256_and_si256(codes, _mm256_loadu_si256((const __m256i *)part));
    put_whole(part, four, high_first, codes);
    memcpy(to, part, (size_t)(four ? (left + 1) / 2 : left));
}

/* ---- values --------------------------------------------------------------------------------- */

/* The values of a map: for at most 16 entries (small) four tables with one byte of each value, else
 * the map's table. */
struct planes {
    __m256i byte[4];
    const float *value;
};

INLINE void planes_load(struct planes *t, int small, const struct qm_codec *c)
{
    t->value = c->cb.value;
    for (int p = 0; p < 4 && small; p++) {
        uint8_t b[16];
        for (int k = 0; k < 16; k++)
            b[k] = (uint8_t)(qm_bits(c->cb.value[k]) >> 8 * p);
        t->byte[p] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)b));
    }
}

/* The values of 32 codes. */
INLINE struct group planes_get(const struct planes *t, int small, __m256i codes)
{
    if (!small) {
        uint64_t word[4];
        struct group g;
        _mm256_storeu_si256((__m256i *)word, codes);
        for (int v = 0; v < 4; v++) {
            uint64_t k = word[v]; /* eight codes */
            const float *x = t->value;
            g.y[v] =
                _mm256_setr_ps(x[k & 255], x[k >> 8 & 255], x[k >> 16 & 255], x[k >> 24 & 255],
                               x[k >> 32 & 255], x[k >> 40 & 255], x[k >> 48 & 255], x[k >> 56]);
        }
        return g;
    }
    __m256i k = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)), b[4];
    for (int p = 0; p < 4; p++)
        b[p] = _mm256_shuffle_epi8(t->byte[p], k);
    __m256i low01 = _mm256_unpacklo_epi8(b[0], b[1]), high01 = _mm256_unpackhi_epi8(b[0], b[1]);
    __m256i low23 = _mm256_unpacklo_epi8(b[2], b[3]), high23 = _mm256_unpackhi_epi8(b[2], b[3]);
    struct group g = {{_mm256_castsi256_ps(_mm256_unpacklo_epi16(low01, low23)),
                       _mm256_castsi256_ps(_mm256_unpackhi_epi16(low01, low23)),
                       _mm256_castsi256_ps(_mm256_unpacklo_epi16(high01, high23)),
                       _mm256_castsi256_ps(_mm256_unpackhi_epi16(high01, high23))}};
    return g;
}

/* Reads min(left, 32) codes; the others become 0. */
INLINE group_codes load_codes(const uint8_t *codes, int64_t left)
{
    if (__builtin_expect(left >= GROUP, 1))
        return _mm256_loadu_si256((const __m256i *)codes);
    uint8_t part[GROUP] = {0};
    memcpy(part, codes, (size_t)left);
    return _mm256_loadu_si256((const __m256i *)part);
}

/* As load_codes, of two codes per byte. */
INLINE group_codes load_nibbles(const uint8_t *bytes, int64_t left, int high_first)
{
    uint8_t part[GROUP / 2] = {0};
    if (__builtin_expect(left < GROUP, 0)) {
        memcpy(part, bytes, (size_t)((left + 1) / 2));
        bytes = part;
    }
    __m256i w = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)bytes));
    w = high_first ? _mm256_or_si256(_mm256_srli_epi16(w, 4), _mm256_slli_epi16(w, 8))
                   : _mm256_or_si256(w, _mm256_slli_epi16(w, 4));
    return _mm256_and_si256(w, _mm256_set1_epi8(15));
}

/* s times the values of min(left, 32) four-bit codes. */
INLINE struct group nibbles_times(const struct planes *t, const float *value, int high_first,
                                  const uint8_t *bytes, int64_t left, float s)
{
    (void)value;
    return unit_group(planes_get(t, 1, load_nibbles(bytes, left, high_first)), s, 0);
}

/* maxima_each of up to BATCH blocks. */
INLINE void maxima(int with_sign, const float *x, int64_t block, int64_t count, uint32_t *bits)
{
    maxima_each(with_sign, x, block, count, bits);
}
