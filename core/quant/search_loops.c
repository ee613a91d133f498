/* search_loops.c - Implements each search as a loop over elements; compiled per instruction set.
 *
 * The inner loop of a search runs over a chunk of elements, the outer one over table entries or
 * levels, so that compilers vectorize the inner one.  Lookups become gathers or permutes where the
 * instruction set has them. */
#include "core/quant/search_loops.h"

#include "core/quant/simd.h"

enum { CHUNK = 256 };

static void store(const int32_t *k, int64_t n, uint8_t *position)
{
    for (int64_t j = 0; j < n; j++)
        position[j] = (uint8_t)k[j];
}

/* Axis round on n elements: replaces the position k of a cell's lower end by the position taken.
 * lo, hi: the cell's ends, both at the last entry.  Rounds that draw read draw 0. */
#define ROUND(word, text, kind)                                                 \
    case QM_ROUND_##word:                                                       \
        for (int64_t j = 0; j < n; j++) {                                       \
            int up = qm_round_up(QM_ROUND_##word, x[j], lo[j], hi[j], k[j], 0); \
            k[j] += up & (x[j] > low) & (k[j] < top);                           \
        }                                                                       \
        break;
static void take_ends(const struct qm_codec *c, const float *x, const float *lo, const float *hi,
                      int32_t *k, int64_t n)
{
    float low = c->cb.value[0];
    int32_t top = c->cb.n - 1;
    switch (c->q.round) {
        QM_ROUND_LIST(ROUND)
    case QM_ROUND_COUNT: break;
    }
}
#undef ROUND

/* Axis round on a chunk of at most CHUNK elements. */
static void choose(const struct qm_codec *c, const float *x, int32_t *k, int64_t n)
{
    const float *value = c->cb.value;
    int32_t top = c->cb.n - 1;
    float lo[CHUNK], hi[CHUNK];
    for (int64_t j = 0; j < n; j++) {
        lo[j] = value[k[j]];
        hi[j] = value[k[j] < top ? k[j] + 1 : top];
    }
    take_ends(c, x, lo, hi, k, n);
}

static void scan(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                 const uint8_t *grid)
{
    (void)grid;
    for (int64_t i = 0; i < n; i += CHUNK) {
        int32_t k[CHUNK];
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        memset(k, 0, sizeof k);
        for (int e = 1; e < c->cb.n; e++) {
            float v = c->cb.value[e], low = c->cb.value[0];
            for (int64_t j = 0; j < m; j++)
                k[j] = ((y[i + j] >= v) & (y[i + j] > low)) ? e : k[j];
        }
        choose(c, y + i, k, m);
        store(k, m, position + i);
    }
}

#if defined(__AVX512F__)
#include <immintrin.h>

/* Bisects in a table of at most 16 entries, which one register holds, so that lookups are permutes:
 * the positions, and the ends of their cells. */
static __m512i bisect16(__m512 x, __m512 table, __m512 low, __m512i top, float *lo, float *hi)
{
    __m512i k = _mm512_setzero_si512();
    __mmask16 above = _mm512_cmp_ps_mask(x, low, _CMP_GT_OQ);
    for (int h = 8; h > 0; h /= 2) {
        __m512i next = _mm512_add_epi32(k, _mm512_set1_epi32(h));
        __m512 v = _mm512_permutexvar_ps(next, table);
        k = _mm512_mask_mov_epi32(k, _mm512_mask_cmp_ps_mask(above, x, v, _CMP_GE_OQ), next);
    }
    __m512i next = _mm512_min_epi32(_mm512_add_epi32(k, _mm512_set1_epi32(1)), top);
    _mm512_storeu_ps(lo, _mm512_permutexvar_ps(k, table));
    _mm512_storeu_ps(hi, _mm512_permutexvar_ps(next, table));
    return k;
}

/* Bisects for at most 16 entries and a multiple of 16 elements; returns the number of
 * elements done. */
static int64_t bisect_small(const struct qm_codec *c, const float *value, const float *y, int64_t n,
                            uint8_t *position)
{
    __m512 table = _mm512_loadu_ps(value), low = _mm512_set1_ps(value[0]);
    __m512i top = _mm512_set1_epi32(c->cb.n - 1);
    int64_t whole = c->cb.n <= 16 ? n / 16 * 16 : 0;
    for (int64_t i = 0; i < whole; i += CHUNK) {
        int32_t k[CHUNK];
        float lo[CHUNK], hi[CHUNK];
        int64_t m = whole - i < CHUNK ? whole - i : CHUNK;
        for (int64_t j = 0; j < m; j += 16)
            _mm512_storeu_si512(
                k + j, bisect16(_mm512_loadu_ps(y + i + j), table, low, top, lo + j, hi + j));
        take_ends(c, y + i, lo, hi, k, m);
        store(k, m, position + i);
    }
    return whole;
}
#else
static int64_t bisect_small(const struct qm_codec *c, const float *value, const float *y, int64_t n,
                            uint8_t *position)
{
    (void)c, (void)value, (void)y, (void)n, (void)position;
    return 0;
}
#endif

static void bisect(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                   const uint8_t *grid)
{
    (void)grid;
    float value[256], low = c->cb.value[0]; /* padded, so that no step tests for the end */
    int half = 1;
    while (2 * half < c->cb.n)
        half *= 2;
    for (int e = 0; e < 256; e++)
        value[e] = e < c->cb.n ? c->cb.value[e] : NAN; /* y >= NAN is false even for +Inf */
    for (int64_t i = bisect_small(c, value, y, n, position); i < n; i += CHUNK) {
        int32_t k[CHUNK];
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        memset(k, 0, sizeof k);
        for (int h = half; h > 0; h /= 2)
            for (int64_t j = 0; j < m; j++)
                k[j] += h & -((y[i + j] >= value[k[j] + h]) & (y[i + j] > low));
        choose(c, y + i, k, m);
        store(k, m, position + i);
    }
}

/* k[j] = number of thresholds below y[j]; n <= CHUNK. */
static void count(const float *cut, int cuts, const float *y, int64_t n, int32_t *k)
{
    memset(k, 0, sizeof *k * CHUNK);
    for (int e = 0; e < cuts; e++) {
        float t = cut[e];
        for (int64_t j = 0; j < n; j++)
            k[j] += y[j] > t;
    }
}

static void count_above(const float *cut, int cuts, const float *y, int64_t n, uint8_t *position)
{
    for (int64_t i = 0; i < n; i += CHUNK) {
        int32_t k[CHUNK];
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        count(cut, cuts, y + i, m, k);
        store(k, m, position + i);
    }
}

static void ladder(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                   const uint8_t *grid)
{
    (void)grid;
    count_above(c->cb.cut, c->cb.n - 1, y, n, position);
}

static void mids(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                 const uint8_t *grid)
{
    float cut[255];
    (void)grid;
    for (int e = 0; e + 1 < c->cb.n; e++)
        cut[e] = (c->cb.value[e] + c->cb.value[e + 1]) * 0.5f;
    count_above(cut, c->cb.n - 1, y, n, position);
}

static void argmin(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                   const uint8_t *grid)
{
    (void)grid;
    for (int64_t i = 0; i < n; i += CHUNK) {
        int32_t k[CHUNK];
        float best[CHUNK];
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        for (int64_t j = 0; j < m; j++) {
            best[j] = fabsf(y[i + j] - c->cb.value[0]);
            k[j] = 0;
        }
        for (int e = 1; e < c->cb.n; e++) {
            float v = c->cb.value[e];
            for (int64_t j = 0; j < m; j++) {
                float d = fabsf(y[i + j] - v);
                k[j] = d < best[j] ? e : k[j];
                best[j] = d < best[j] ? d : best[j];
            }
        }
        store(k, m, position + i);
    }
}

static void grid_lookup(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                        const uint8_t *grid)
{
    (void)c;
    for (int64_t i = 0; i < n; i++) {
        float x = y[i] < -1.0f ? -1.0f : y[i] > 1.0f ? 1.0f : y[i];
        position[i] = grid[(int)((x + 1.0f) * 0.5f * 65535.0f + 0.5f)];
    }
}

static void lower(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                  const uint8_t *grid)
{
    const float *value = c->cb.value;
    (void)grid;
    for (int64_t i = 0; i < n; i += CHUNK) {
        int32_t k[CHUNK];
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        count(value, c->cb.n - 1, y + i, m, k);
        for (int64_t j = 0; j < m; j++) {
            float x = y[i + j];
            int32_t at = k[j], before = at > 0 ? at - 1 : 0;
            at -= (at > 0) & (fabsf(x - value[before]) < fabsf(value[at] - x));
            at += (x > 0.0f) & (value[at] <= 0.0f);
            at -= (x < 0.0f) & (value[at] >= 0.0f);
            k[j] = at;
        }
        store(k, m, position + i);
    }
}

static void arith(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                  const uint8_t *grid)
{
    (void)grid;
    if (c->q.round == QM_ROUND_even) {
        QM_ISA_NAME(qm_simd).arith(c, y, c->cb.steps, n, position);
        return;
    }
#define ROUND(word, text, kind)                                                             \
    case QM_ROUND_##word:                                                                   \
        for (int64_t i = 0; i < n; i++)                                                     \
            position[i] =                                                                   \
                (uint8_t)qm_search_arith(QM_ROUND_##word, 0, y[i], c->cb.steps, &c->cb, 0); \
        break;
    switch (c->q.round) {
        QM_ROUND_LIST(ROUND)
    case QM_ROUND_COUNT: break;
    }
#undef ROUND
}

static void edges(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                  const uint8_t *grid)
{
    (void)grid;
    QM_ISA_NAME(qm_simd).positions(c, y, n, position);
}

const struct qm_searches QM_ISA_NAME(qm_searches) = {
    .by = {[QM_SEARCH_scan] = scan,
           [QM_SEARCH_bisect] = bisect,
           [QM_SEARCH_arith] = arith,
           [QM_SEARCH_ladder] = ladder,
           [QM_SEARCH_mids] = mids,
           [QM_SEARCH_argmin] = argmin,
           [QM_SEARCH_grid] = grid_lookup,
           [QM_SEARCH_lower] = lower},
    .edges = edges,
};
