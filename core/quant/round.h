/* round.h - AXIS round: which end of the cell [lo, hi] found by the search is taken (dual).
 *
 * All rounds work on float32 unit values.  Words: near, mid, even, away, stoch, dither, floor,
 * ceil. */
#ifndef QM_QUANT_ROUND_H
#define QM_QUANT_ROUND_H

#include "core/base/philox.h"

/* clang-format off */
#define QM_ROUND_LIST(X)                                                                            \
    X(near,  "nearest, ties up: x - lo >= (hi - lo) * 0.5 (torchao quantize_4bit_with_qmap)")       \
    X(mid,   "nearest, ties down: x > (lo + hi) * 0.5 (lpmm quantize_bsearch)")                     \
    X(even,  "nearest, ties to the even code (bitsandbytes dQuantize; rint for arith)")             \
    X(away,  "nearest, ties away from zero (adafactor8bit 0.2.4 thresholds)")                       \
    X(stoch, "up with probability (x - lo) / (hi - lo), by Philox (lpmm real-sr)")                  \
    X(dither, "arith only: steps plus uniform noise of one step, to nearest even (lpmm linear sr)")    \
    X(floor, "always lo (lpmm down)")                                                               \
    X(ceil,  "hi unless x == lo (lpmm up)")
/* clang-format on */

enum qm_round {
#define X(name, text) QM_ROUND_##name,
    QM_ROUND_LIST(X)
#undef X
        QM_ROUND_COUNT
};

/* Whether the round depends on a random draw. */
QM_FN int qm_round_draws(enum qm_round which)
{
    return which == QM_ROUND_stoch || which == QM_ROUND_dither;
}

/* 1 if the upper end hi is taken.  k: sorted position of lo; draw: 32 random bits, for stoch.  NaN
 * never goes up.  dither is not covered: qm_search_arith adds its noise. */
QM_FN int qm_round_up(enum qm_round which, float x, float lo, float hi, int k, uint32_t draw)
{
    float mid = (lo + hi) * 0.5f;
    switch (which) {
    case QM_ROUND_near: return x - lo >= (hi - lo) * 0.5f;
    case QM_ROUND_mid: return x > mid;
    case QM_ROUND_even: return x > mid || (x == mid && (k & 1));
    case QM_ROUND_away: return x > mid || (x == mid && x >= 0.0f);
    case QM_ROUND_stoch: return rintf((x - lo) / (hi - lo) + qm_uniform(draw) - 0.5f) != 0.0f;
    case QM_ROUND_ceil: return x > lo;
    default: return 0;
    }
}

#endif
