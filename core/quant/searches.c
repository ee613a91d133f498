/* searches.c - compiled once per instruction set (QM_ISA).
 *
 * Every loop runs over a chunk of elements inside and over table entries or levels outside, so
 * that compilers vectorize it; lookups become gathers or permutes where there are any. */
#include "core/quant/searches.h"

#include "core/quant/lanes.h"

enum { CHUNK = 256 };

static void store(const int32_t *k, int64_t n, uint8_t *position)
{
    for (int64_t j = 0; j < n; j++)
        position[j] = (uint8_t)k[j];
}

/* From the cell's lower end to the code: the round axis on a chunk. */
static void choose(const struct qm_codec *c, const float *y, int32_t *k, int64_t n)
{
    const float *value = c->cb.value, low = value[0];
    int32_t top = c->cb.n - 1;
#define ROUND(up)                                                                 \
    for (int64_t j = 0; j < n; j++) {                                             \
        int32_t at = k[j], next = at < top ? at + 1 : at;                         \
        float x = y[j], lo = value[at], hi = value[next], mid = (lo + hi) * 0.5f; \
        (void)mid;                                                                \
        int32_t r = (up);                                                         \
        k[j] = at + (r & (x > low) & (at < top));                                 \
    }                                                                             \
    break
    switch (c->q.round) {
    case QM_ROUND_near: ROUND(x - lo >= (hi - lo) * 0.5f);
    case QM_ROUND_mid: ROUND(x > mid);
    case QM_ROUND_even: ROUND((x > mid) | ((x == mid) & at));
    case QM_ROUND_away: ROUND((x > mid) | ((x == mid) & (x >= 0.0f)));
    case QM_ROUND_ceil: ROUND(x > lo);
    default: break;
    }
#undef ROUND
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

static void bisect(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                   const uint8_t *grid)
{
    (void)grid;
    float value[256], low = c->cb.value[0]; /* padded, so that no step asks for the end */
    int half = 1;
    while (2 * half < c->cb.n)
        half *= 2;
    for (int e = 0; e < 256; e++)
        value[e] = e < c->cb.n ? c->cb.value[e] : INFINITY;
    for (int64_t i = 0; i < n; i += CHUNK) {
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

static void count_above(const float *cut, int cuts, const float *y, int64_t n, uint8_t *position)
{
    for (int64_t i = 0; i < n; i += CHUNK) {
        int32_t k[CHUNK];
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        memset(k, 0, sizeof k);
        for (int e = 0; e < cuts; e++) {
            float t = cut[e];
            for (int64_t j = 0; j < m; j++)
                k[j] += y[i + j] > t;
        }
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
    (void)grid;
    for (int64_t i = 0; i < n; i++)
        position[i] = (uint8_t)qm_search_lower(y[i], &c->cb);
}

static void arith(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                  const uint8_t *grid)
{
    (void)grid;
    if (c->q.round == QM_ROUND_even)
        QM_ISA_NAME(qm_lanes).arith(c, y, c->cb.steps, n, position);
    else if (c->q.round == QM_ROUND_near)
        for (int64_t i = 0; i < n; i++)
            position[i] = (uint8_t)qm_search_arith(QM_ROUND_near, 0, y[i], c->cb.steps, &c->cb, 0);
    else
        for (int64_t i = 0; i < n; i++)
            position[i] = (uint8_t)qm_search_arith(c->q.round, 0, y[i], c->cb.steps, &c->cb, 0);
}

static void edges(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                  const uint8_t *grid)
{
    (void)grid;
    QM_ISA_NAME(qm_lanes).positions(c, y, n, position);
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
