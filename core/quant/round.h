/* round.h - AXIS round: which end of the cell [lo, hi] found by the search is taken (dual).
 *
 * All rounds work on float32 unit values.  To add a word, write its line in QM_ROUND_LIST, its
 * cases in qm_round_up (cells of any map) and qm_round_step (evenly spaced maps, search arith), and
 * the judge's definitions in experiments/check/decide.c and, of the curves affine and qlog, in
 * slot_affine.c and slot_quantile_log.c beside it.  No switch over the words has a default, so the
 * compiler names a place that lacks the word; all else follows from the list, unless ties go in a
 * new direction: then experiments/prove/routine.c has a case of it, too. */
#ifndef QM_QUANT_ROUND_H
#define QM_QUANT_ROUND_H

#include "core/base/philox.h"

/* clang-format off */
#define QM_ROUND_LIST(X) /* name, what, kind (enum qm_round_kind) */                                     \
    X(near,   "nearest, ties up: x - lo >= (hi - lo) * 0.5 (torchao quantize_4bit_with_qmap)", TIES_UP)  \
    X(mid,    "nearest, ties down: x > (lo + hi) * 0.5 (lpmm quantize_bsearch)", TIES_DOWN)              \
    X(even,   "nearest, ties to the even code (bitsandbytes dQuantize; rint for arith)", TIES_EVEN)      \
    X(away,   "nearest, ties away from zero (adafactor8bit 0.2.4 thresholds)", TIES_AWAY)                \
    X(stoch,  "up with probability (x - lo) / (hi - lo), by Philox (lpmm real-sr)", DRAWN)               \
    X(bernoulli, "up if x - lo >= (hi - lo) u: as stoch, by a comparison; the lower end itself stays " \
                 "(SOLO de-sr, linear-sr; curve qlog: qema-unbiased)", DRAWN)                          \
    X(dither, "arith only: steps plus uniform noise of one step, to nearest even (lpmm linear sr, SOLO qema)", DRAWN) \
    X(floor,  "always lo (lpmm down)", DIRECTED)                                                         \
    X(ceil,   "hi unless x == lo (lpmm up)", DIRECTED)
/* clang-format on */

enum qm_round {
#define X(name, text, kind) QM_ROUND_##name,
    QM_ROUND_LIST(X)
#undef X
        QM_ROUND_COUNT
};

/* What a round does: takes the nearest end, and a tie up, down, to the even position or away from
 * zero; takes one end whatever is nearer; or decides by a random draw. */
enum qm_round_kind {
    QM_ROUND_TIES_UP,
    QM_ROUND_TIES_DOWN,
    QM_ROUND_TIES_EVEN,
    QM_ROUND_TIES_AWAY,
    QM_ROUND_DIRECTED,
    QM_ROUND_DRAWN
};

QM_FN enum qm_round_kind qm_round_kind(enum qm_round which)
{
    switch (which) {
#define X(name, text, kind) \
    case QM_ROUND_##name: return QM_ROUND_##kind;
        QM_ROUND_LIST(X)
#undef X
    case QM_ROUND_COUNT: break;
    }
    return QM_ROUND_DIRECTED;
}

/* Whether the round depends on a random draw. */
QM_FN int qm_round_draws(enum qm_round which) { return qm_round_kind(which) == QM_ROUND_DRAWN; }

/* Whether the round takes one end of a cell, whichever is nearer. */
QM_FN int qm_round_is_directed(enum qm_round which)
{
    return qm_round_kind(which) == QM_ROUND_DIRECTED;
}

/* 1 if the upper end hi is taken.  k: sorted position of lo; draw: 32 random bits, which rounds
 * that draw read.  NaN never goes up.  dither is for search arith alone and takes lo here. */
QM_FN int qm_round_up(enum qm_round which, float x, float lo, float hi, int k, uint32_t draw)
{
    float mid = (lo + hi) * 0.5f;
    switch (which) {
    case QM_ROUND_near: return x - lo >= (hi - lo) * 0.5f;
    case QM_ROUND_mid: return x > mid;
    case QM_ROUND_even: return x > mid || (x == mid && (k & 1));
    case QM_ROUND_away: return x > mid || (x == mid && x >= 0.0f);
    case QM_ROUND_stoch: return rintf((x - lo) / (hi - lo) + qm_uniform(draw) - 0.5f) != 0.0f;
    case QM_ROUND_bernoulli: return x - lo >= (hi - lo) * qm_uniform(draw);
    case QM_ROUND_dither:
    case QM_ROUND_floor: return 0;
    case QM_ROUND_ceil: return x > lo;
    case QM_ROUND_COUNT: break;
    }
    return 0;
}

/* z = y * factor rounded to a whole number; NaN where z is.  draw: 32 random bits, for rounds that
 * draw.  Ties up are floor(z + 1/2): fused where x is multiplied by steps / scale (unit recip;
 * adafactor8bit CUDA log2 code), in two roundings where y is a quotient already (FlashOptim,
 * Lion 8-bit). */
QM_FN float qm_round_step(enum qm_round which, int fused, float y, float factor, uint32_t draw)
{
    float z = y * factor, k = floorf(z), f = z - k;
    switch (which) {
    case QM_ROUND_near: return floorf(fused ? fmaf(y, factor, 0.5f) : z + 0.5f);
    case QM_ROUND_mid: return f > 0.5f ? k + 1.0f : k;
    case QM_ROUND_even: return rintf(z);
    case QM_ROUND_away: return roundf(z);
    case QM_ROUND_stoch: return rintf(f + qm_uniform(draw) - 0.5f) != 0.0f ? k + 1.0f : k;
    case QM_ROUND_bernoulli: return f >= qm_uniform(draw) ? k + 1.0f : k;
    case QM_ROUND_dither: return rintf(z + (qm_uniform(draw) - 0.5f));
    case QM_ROUND_floor: return k;
    case QM_ROUND_ceil: return ceilf(z);
    case QM_ROUND_COUNT: break;
    }
    return k;
}

#endif
