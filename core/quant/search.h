/* search.h - AXIS search: finds the code of a unit value x (dual).
 *
 * A search finds the cell: the largest k with value[k] <= x, 0 where x <= value[0] (also the last
 * of several equal entries otherwise), n - 1 where x >= value[n - 1]; NaN as the scale's nan word
 * says.  Axis "round" then picks k or k + 1.  ladder, mids, argmin, grid and lower decide by
 * themselves and compose with round = mid only. */
#ifndef QM_QUANT_SEARCH_H
#define QM_QUANT_SEARCH_H

#include "core/quant/map.h"
#include "core/quant/round.h"

/* clang-format off */
#define QM_SEARCH_LIST(X)                                                                              \
    X(scan,   "n compares; defines the answer")                                                        \
    X(bisect, "log2(n) branchless compares (torchao, lpmm)")                                           \
    X(arith,  "no table: x times the number of steps, rounded; evenly spaced maps only")               \
    X(ladder, "compares with the source's published thresholds (adafactor8bit 0.2.4, bitsandbytes)")   \
    X(mids,   "compares with the float32 mid-points, ties down (bitsandbytes backends/default)")       \
    X(argmin, "smallest float32 distance, first of equals (adafactor8bit PyTorch path, lpmm nearest)") \
    X(grid,   "65,536-entry table over [-1, 1] (bitsandbytes csrc/cpu_ops.cpp)")                       \
    X(lower,  "smaller float32 distance to the two neighbours, ties up; never 0 or the other sign "    \
              "(adafactor8bit 0.4.3)")
/* clang-format on */

enum qm_search {
#define X(name, text) QM_SEARCH_##name,
    QM_SEARCH_LIST(X)
#undef X
        QM_SEARCH_COUNT
};

QM_FN int qm_search_scan(float x, const struct qm_codebook *cb)
{
    int k = 0;
    for (int i = 1; i < cb->n; i++)
        k = x > cb->value[0] && x >= cb->value[i] ? i : k;
    return k;
}

QM_FN int qm_search_bisect(float x, const struct qm_codebook *cb)
{
    int k = 0;
    for (int half = 128; half > 0; half /= 2)
        if (k + half < cb->n)
            k += x > cb->value[0] && x >= cb->value[k + half] ? half : 0;
    return k;
}

/* Number of thresholds below x; cut[] is ascending. */
QM_FN int qm_search_cuts(float x, const float *cut, int n_cuts)
{
    int k = 0;
    for (int i = 0; i < n_cuts; i++)
        k += x > cut[i];
    return k;
}

QM_FN int qm_search_argmin(float x, const struct qm_codebook *cb)
{
    int k = 0;
    float best = fabsf(x - cb->value[0]);
    for (int i = 1; i < cb->n; i++) {
        float d = fabsf(x - cb->value[i]);
        if (d < best) {
            best = d;
            k = i;
        }
    }
    return k;
}

/* The table is never stored here: entry j holds the number of mid-points below -1 + 2j/65535. */
QM_FN int qm_search_grid(float x, const struct qm_codebook *cb)
{
    float c = x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
    int j = (int)((c + 1.0f) * 0.5f * 65535.0f + 0.5f);
    float at = -1.0f + 2.0f * (float)j / 65535.0f;
    int k = 0;
    for (int i = 0; i + 1 < cb->n; i++)
        k += 0.5f * (cb->value[i] + cb->value[i + 1]) < at;
    return k;
}

/* The first entry not below x, or the one before where that is strictly nearer; then a step away
 * from zero where that changed the sign.  Maps with both signs and a zero. */
QM_FN int qm_search_lower(float x, const struct qm_codebook *cb)
{
    int k = 0;
    for (int i = 0; i + 1 < cb->n; i++)
        k += cb->value[i] < x;
    if (k > 0 && fabsf(x - cb->value[k - 1]) < fabsf(cb->value[k] - x))
        k--;
    if (x > 0.0f && cb->value[k] <= 0.0f)
        k++;
    if (x < 0.0f && cb->value[k] >= 0.0f)
        k--;
    return k;
}

/* Evenly spaced maps: position + base = y * factor, rounded (qm_round_step), clamped; NaN
 * gives 0. */
QM_FN int qm_search_arith(enum qm_round round, int fused, float y, float factor,
                          const struct qm_codebook *cb, uint32_t draw)
{
    float r = qm_round_step(round, fused, y, factor, draw);
    float low = (float)cb->base, high = (float)(cb->base + cb->n - 1);
    r = r > low ? r : low; /* also NaN */
    r = r < high ? r : high;
    return (int)r - cb->base;
}

/* Any search and round: the sorted position of unit value x (NaN is the caller's business). */
QM_FN int qm_search_code(enum qm_search search, enum qm_round round, float x,
                         const struct qm_codebook *cb, uint32_t draw)
{
    int k = 0;
    switch (search) {
    case QM_SEARCH_arith: return qm_search_arith(round, 0, x, cb->steps, cb, draw);
    case QM_SEARCH_ladder: return qm_search_cuts(x, cb->cut, cb->n - 1);
    case QM_SEARCH_argmin: return qm_search_argmin(x, cb);
    case QM_SEARCH_grid: return qm_search_grid(x, cb);
    case QM_SEARCH_lower: return qm_search_lower(x, cb);
    case QM_SEARCH_mids:
        for (int i = 0; i + 1 < cb->n; i++)
            k += x > (cb->value[i] + cb->value[i + 1]) * 0.5f;
        return k;
    case QM_SEARCH_scan: k = qm_search_scan(x, cb); break;
    case QM_SEARCH_bisect: k = qm_search_bisect(x, cb); break;
    case QM_SEARCH_COUNT: break;
    }
    if (k + 1 < cb->n && x > cb->value[0])
        k += qm_round_up(round, x, cb->value[k], cb->value[k + 1], k, draw);
    return k;
}

#endif
