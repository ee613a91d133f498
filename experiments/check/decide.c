/* decide.c - Builds the values and thresholds of every map, search and round, and decides codes. */
#include "experiments/check/decide.h"

#include <math.h>
#include <string.h>

#include "oracle/bound/bound.h"
#include "oracle/codebook/codebook.h"

/* bitsandbytes dQuantizeNF4: y > t goes up.  The literals are float32, as in bitsandbytes: double
 * literals would round some of these digits, which are mid-points themselves, twice. */
static const float nf4_cut[15] = {
    -0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
    -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
    0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
    0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f,
};

/* adafactor8bit 0.2.4 find_nearest_nf4: |y| < t stays; the negative side uses the first seven. */
static const float nf4a8_cut[8] = {0.0397901f, 0.1262246f, 0.2234769f, 0.3317961f,
                                   0.4572902f, 0.6106329f, 0.7801653f, 0.9320689f};

/* bitsandbytes dQuantizeFP4: |y| > t goes outward. */
static const float fp4_cut[7] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f,
                                 0.4166667f,  0.583333f,  0.8333333f};

/* bitsandbytes FP4: magnitude of each code in twelfths, below the sign bit. */
static const double fp4_twelfths[8] = {0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0};

/* The Muon fork of bitsandbytes, NVFP4, in sixths: |y| >= t goes outward. */
static const float nvfp4_cut[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

#define LIN0_SLACK 1.2e-7  /* of a float32 linspace: oracle/codebook/codebook.h */
#define GRID_ERROR 0x1p-22 /* rounding of the table and of the place in it */
#define GRID_STEP  (1.0 / 65535.0 + GRID_ERROR) /* half a step of the table, and its rounding */

/* Bound on the distance of a source's float32 table from the definition. */
static double slack(const struct qm_quantizer *q, double value)
{
    switch (q->map) {
    case QM_MAP_dyn:
    case QM_MAP_de:
    case QM_MAP_de0:
    case QM_MAP_dyndef: return 4.0 * QM_U * fabs(value); /* 2 ulp */
    case QM_MAP_lin0:
    case QM_MAP_lin2:
    case QM_MAP_linb: return LIN0_SLACK;
    case QM_MAP_lin:
    case QM_MAP_pow2:
    case QM_MAP_pow3: return q->sign ? LIN0_SLACK : 0.0;
    case QM_MAP_int:
    case QM_MAP_intm:
    case QM_MAP_intd:
    case QM_MAP_lint:
    case QM_MAP_nf4:
    case QM_MAP_nf4a8:
    case QM_MAP_nf4s:
    case QM_MAP_af4:
    case QM_MAP_fp4:
    case QM_MAP_fp4s:
    case QM_MAP_nvfp4:
    case QM_MAP_fpx:
    case QM_MAP_e4m3:
    case QM_MAP_fp52:
    case QM_MAP_log:
    case QM_MAP_logf:
    case QM_MAP_al:
    case QM_MAP_qlog:
    case QM_MAP_affine:
    case QM_MAP_COUNT: break;
    }
    return 0.0;
}

int qm_decider_is_plain(const struct qm_quantizer *q)
{
    return q->curve == QM_CURVE_none || q->curve == QM_CURVE_expand;
}

/* A code is its position, except in the float formats, whose codes are sign and magnitude, and in
 * AF4, whose codes descend.  E4M3 has NaN at an additional last position. */
static void number_codes(struct qm_decider *d)
{
    for (int c = 0; c < 256; c++)
        d->position_of[c] = c < d->n ? c : -1;
    if (d->q.map == QM_MAP_af4)
        for (int c = 0; c < 16; c++)
            d->position_of[c] = 15 - c;
    if (d->q.map == QM_MAP_fp4 || d->q.map == QM_MAP_fp4s)
        for (int c = 0; c < 16; c++) {
            int below = 0;
            for (int i = 0; i < 8; i++)
                below += fp4_twelfths[i] < fp4_twelfths[c & 7];
            d->position_of[c] = c < 8 ? 8 + below : 7 - below;
            if (below == 0 && d->q.map == QM_MAP_fp4s)
                d->position_of[c] = c < 8 ? 7 : 8;
        }
    for (int c = 0; c < 16 && d->q.map == QM_MAP_nvfp4; c++)
        d->position_of[c] = c < 8 ? 8 + c : 15 - c;
    for (int c = 0; c < 256 && d->q.map == QM_MAP_e4m3; c++)
        d->position_of[c] = (c & 127) == 127 ? d->n : c < 128 ? 126 + c : 126 - (c & 127);
    for (int c = 255; c >= 0; c--)
        if (d->position_of[c] >= 0)
            d->code_of[d->position_of[c]] = (uint8_t)c;
}

/* The position that a unit value of NaN gets. */
static int nan_position(const struct qm_decider *d)
{
    if (d->q.scale.nan == QM_NAN_top)
        return d->n - 1;
    if (d->q.map == QM_MAP_e4m3 && d->q.scale.nan == QM_NAN_low)
        return d->n;
    for (int k = 0; k < d->n && d->q.scale.nan == QM_NAN_zero; k++)
        if (d->value[k] == 0.0 && !signbit(d->value[k]))
            return k;
    return 0;
}

/* A threshold at `at` with the undecided zone [at - below, at + above]; up: at itself goes up. */
static void set(struct qm_threshold *t, double at, int up, double below, double above)
{
    *t = (struct qm_threshold){at, at - below, at + above, up, up, up, 0};
    if (below > 0.0)
        t->low_up = 1;
    if (above > 0.0)
        t->high_up = 0;
}

/* 1: the differences of a mid-point with a and b are exact in float32 (Sterbenz's lemma). */
static int is_close(double a, double b)
{
    double x = fabs(a), y = fabs(b);
    return a * b > 0.0 && fmax(x, y) <= 2.0 * fmin(x, y);
}

/* Steps per unit of an evenly spaced map; *base: the integer of its first position. */
static double even_steps(const struct qm_decider *d, int *base)
{
    int half = 1 << (d->q.bits - 1);
    *base = 0;
    switch (d->q.map) {
    case QM_MAP_int: *base = -half; return 1.0;
    case QM_MAP_intm: *base = -half; return half;
    case QM_MAP_intd: *base = 1 - half; return 1.0;
    case QM_MAP_lin: *base = 1; return 2.0 * half;
    case QM_MAP_lint:
        *base = d->q.sign ? 1 - half : 0;
        return d->q.sign ? half - 1 : 2.0 * half - 1;
    case QM_MAP_log:
    case QM_MAP_logf: return 255.0;
    case QM_MAP_nf4:
    case QM_MAP_nf4a8:
    case QM_MAP_nf4s:
    case QM_MAP_af4:
    case QM_MAP_fp4:
    case QM_MAP_fp4s:
    case QM_MAP_nvfp4:
    case QM_MAP_dyn:
    case QM_MAP_dyndef:
    case QM_MAP_de:
    case QM_MAP_de0:
    case QM_MAP_lin0:
    case QM_MAP_linb:
    case QM_MAP_lin2:
    case QM_MAP_pow2:
    case QM_MAP_pow3:
    case QM_MAP_fpx:
    case QM_MAP_e4m3:
    case QM_MAP_fp52:
    case QM_MAP_al:
    case QM_MAP_qlog:
    case QM_MAP_affine:
    case QM_MAP_COUNT: break; /* not evenly spaced, and refused with search arith */
    }
    return (double)NAN;
}

/* The product z = y * steps has an error of u |z| at most, or none where steps is a power of two.
 * The fraction of z (mid) or z + 1/2 (near) is rounded again, by at most u of one step; even and
 * away use z alone.  Where the threshold is a float32 (y = 1/2 of 127 steps), both are exact. */
static void arith_threshold(struct qm_decider *d, int k)
{
    int base, exponent, odd;
    double steps = even_steps(d, &base), at = (base + k + 0.5) / steps;
    double product = frexp(steps, &exponent) == 0.5 ? 0.0 : 2.0 * QM_U * fabs(at) + QM_U / steps;
    odd = (base + k) & 1;
    switch (d->q.round) {
    case QM_ROUND_near:
        set(&d->cut[k], at, 1, product + QM_U * (fabs(at) + 1.0 / steps), product);
        break;
    case QM_ROUND_mid: set(&d->cut[k], at, 0, product, product + QM_U / steps); break;
    case QM_ROUND_even: set(&d->cut[k], at, odd, product, product); break;
    case QM_ROUND_away: set(&d->cut[k], at, at > 0.0, product, product); break;
    case QM_ROUND_ceil: set(&d->cut[k], (base + k) / steps, 0, product, product); break;
    case QM_ROUND_floor:
    case QM_ROUND_bernoulli:
    case QM_ROUND_stoch: /* the lower end of those that draw */
    case QM_ROUND_dither: set(&d->cut[k], (base + k + 1) / steps, 1, product, product); break;
    case QM_ROUND_COUNT: break;
    }
    d->cut[k].is_decided = qm_is_float(d->cut[k].at);
}

/* The published thresholds; they are compared as float32 numbers, so the zone is empty. */
static void ladder_threshold(struct qm_decider *d, int k)
{
    double at;
    switch (d->q.map) {
    case QM_MAP_nf4: set(&d->cut[k], (double)nf4_cut[k], 0, 0.0, 0.0); break;
    case QM_MAP_nf4a8:
        at = (double)(k < 7 ? -nf4a8_cut[6 - k] : nf4a8_cut[k - 7]);
        set(&d->cut[k], at, k >= 7, 0.0, 0.0);
        break;
    case QM_MAP_fp4:
    case QM_MAP_fp4s:
        at = k == 7 ? 0.0 : (double)(k < 7 ? -fp4_cut[6 - k] : fp4_cut[k - 8]);
        set(&d->cut[k], at, k <= 7, 0.0, 0.0);
        break;
    case QM_MAP_nvfp4:
        at = k == 7  ? 0.0
             : k < 7 ? -qm_round_float32((double)nvfp4_cut[6 - k] / 6.0)
                     : qm_round_float32((double)nvfp4_cut[k - 8] / 6.0);
        set(&d->cut[k], at, k >= 7, 0.0, 0.0);
        break;
    case QM_MAP_int:
    case QM_MAP_intm:
    case QM_MAP_intd:
    case QM_MAP_lint:
    case QM_MAP_nf4s:
    case QM_MAP_af4:
    case QM_MAP_dyn:
    case QM_MAP_dyndef:
    case QM_MAP_de:
    case QM_MAP_de0:
    case QM_MAP_lin:
    case QM_MAP_lin0:
    case QM_MAP_linb:
    case QM_MAP_lin2:
    case QM_MAP_pow2:
    case QM_MAP_pow3:
    case QM_MAP_fpx:
    case QM_MAP_e4m3:
    case QM_MAP_fp52:
    case QM_MAP_log:
    case QM_MAP_logf:
    case QM_MAP_al:
    case QM_MAP_qlog:
    case QM_MAP_affine:
    case QM_MAP_COUNT: /* no thresholds are published: refused with search ladder */
        set(&d->cut[k], (double)NAN, 0, 0.0, 0.0);
        break;
    }
}

/* For scan and bisection, which find the cell; the round chooses its end. */
static void round_threshold(struct qm_decider *d, int k, double below, double above, double error)
{
    double lo = d->value[k], hi = d->value[k + 1], gap = hi - lo, mid = 0.5 * (lo + hi);
    struct qm_threshold *t = &d->cut[k];
    switch (d->q.round) {
    case QM_ROUND_near: /* y - lo >= (hi - lo) / 2: the tie is exact where the gap is a float32 */
        above = qm_round_float32(gap) == gap ? 0.0 : QM_U * gap;
        set(t, mid, 1, above > 0.0 ? above : error, above);
        break;
    case QM_ROUND_mid:
        set(t, mid, 0, below, above);
        t->low_up = 0; /* the rounded mid-point itself stays */
        break;
    case QM_ROUND_even: set(t, mid, k & 1, below, above); break;
    case QM_ROUND_away: set(t, mid, mid >= 0.0, below, above); break;
    case QM_ROUND_ceil: set(t, lo, 0, 0.0, 0.0); break;
    case QM_ROUND_floor:
    case QM_ROUND_bernoulli:
    case QM_ROUND_stoch: /* the lower end of those that draw */
    case QM_ROUND_dither: set(t, hi, 1, 0.0, 0.0); break;
    case QM_ROUND_COUNT: break;
    }
}

/* bitsandbytes: entry j of the table stands for -1 + 2 j / 65535, and has the upper code where that
 * is above the mid-point; y takes the entry nearest to it.  The table and the entry are found in
 * float32: where a mid-point is an entry to within GRID_ERROR either side may have it. */
static void grid_threshold(struct qm_threshold *t, double mid)
{
    double first = floor((mid + 1.0) * 32767.5) + 1.0; /* the first entry above the mid-point */
    double before = mid - ((first - 1.0) / 32767.5 - 1.0), after = first / 32767.5 - 1.0 - mid;
    double edge = (first - 0.5) / 32767.5 - 1.0, step = 1.0 / 32767.5;
    set(t, edge, 1, GRID_ERROR + (before <= GRID_ERROR ? step : 0.0),
        GRID_ERROR + (after <= GRID_ERROR ? step : 0.0));
}

/* For neighbours that are equal, or, in the float32 table of signed lin0, two zeros that
 * descend. */
static void merged_threshold(struct qm_decider *d, int k)
{
    double lo = d->value[k], hi = d->value[k + 1], mid = 0.5 * (lo + hi);
    struct qm_threshold *t = &d->cut[k];
    if (d->q.search == QM_SEARCH_argmin && lo > hi && k > 0) {
        t->low = 0.5 * (d->value[k - 1] + hi) - LIN0_SLACK;
        t->high = d->cut[k + 1].high;
    } else if (d->q.search == QM_SEARCH_argmin && k + 2 < d->n) {
        *t = d->cut[k + 1]; /* the first of two equals is always the nearer one */
    } else if (d->q.search !=
               QM_SEARCH_ladder) { /* at the common value either position is allowed */
        double zone = d->q.search == QM_SEARCH_grid ? GRID_STEP : 0.0;
        *t = (struct qm_threshold){mid, hi - zone, lo + zone, 0, 1, 0, 0};
    }
}

static void threshold(struct qm_decider *d, int k)
{
    double lo = d->value[k], hi = d->value[k + 1], gap = hi - lo, mid = 0.5 * (lo + hi);
    double rounded = 0.5 * qm_round_float32(lo + hi), below = fmax(mid - rounded, 0.0);
    double above = fmax(rounded - mid, 0.0), error = is_close(lo, hi) ? 0.0 : QM_U * gap;
    struct qm_threshold *t = &d->cut[k];
    switch (d->q.search) {
    case QM_SEARCH_arith: arith_threshold(d, k); break;
    case QM_SEARCH_ladder: ladder_threshold(d, k); break;
    case QM_SEARCH_argmin: /* first of equal distances; of two zeros either may be the nearer */
        error += d->q.map == QM_MAP_lin0 && d->q.sign ? LIN0_SLACK : 0.0;
        set(t, mid, 0, error, error);
        break;
    case QM_SEARCH_grid: grid_threshold(t, mid); break;
    case QM_SEARCH_lower: /* equal distances go up; only 0 itself is 0 */
        if (lo == 0.0 || hi == 0.0)
            set(t, 0.0, hi == 0.0, 0.0, 0.0);
        else
            set(t, mid, 1, error, error);
        break;
    case QM_SEARCH_mids:
        set(t, mid, 0, below, above);
        t->low_up = 0;
        break;
    case QM_SEARCH_scan:
    case QM_SEARCH_bisect:
    case QM_SEARCH_COUNT: round_threshold(d, k, below, above, error); break;
    }
    if (gap <= 0.0)
        merged_threshold(d, k);
    if (!qm_decider_is_plain(&d->q)) { /* the values of the table are known up to their last bits */
        t->low -= 2.0 * QM_U * fabs(t->low) + d->slack[k + 1];
        t->high += 2.0 * QM_U * fabs(t->high) + d->slack[k + 1];
    }
}

qm_status qm_decider_init(struct qm_decider *d, const struct qm_quantizer *q, const float *decoded,
                          int *wrong)
{
    memset(d, 0, sizeof *d);
    d->q = *q;
    d->n = qm_oracle_codebook(qm_map_names[q->map], q->bits, q->sign, d->value);
    *wrong = -1;
    if (d->n == 0)
        return qm_fail(QM_BAD_ARG, "no definition of map %s at %d bits %s is known here",
                       qm_map_names[q->map], q->bits, q->sign ? "signed" : "unsigned");
    number_codes(d);
    for (int k = 0; k < d->n; k++) {
        double exact = d->value[k];
        d->value[k] = qm_round_float32(exact);
        if (!qm_decider_is_plain(q))
            d->slack[k] = slack(q, exact);
        if (!decoded || !qm_decider_is_plain(q))
            continue;
        double got = (double)decoded[d->code_of[k]], room = slack(q, exact);
        if (room > 0.0 && fabs(got - exact) <= room)
            d->value[k] = got;
        else if (got != d->value[k] && *wrong < 0)
            *wrong = d->code_of[k];
    }
    d->gain = q->map == QM_MAP_int    ? qm_round_float32(1.0 / ((1 << (q->bits - 1)) - 1))
              : q->map == QM_MAP_e4m3 ? 1.0 / 448.0 /* divided, in one rounding */
              : q->map == QM_MAP_intd ? 1.0 / ((1 << (q->bits - 1)) - 1)
                                      : 1.0;
    if (q->map == QM_MAP_e4m3)
        d->value[d->n] = (double)NAN;
    d->nan_position = nan_position(d);
    for (int k = 0; k < d->n; k++)
        d->n_negative += signbit(d->value[k]) != 0;
    for (int k = d->n - 2; k >= 0; k--)
        threshold(d, k);
    return QM_OK;
}

/* Three readings of the thresholds, each ascending: the decision, and the two ends of the zones. */
enum reading { AT, LOW, HIGH };

static int passes(const struct qm_threshold *t, double y, enum reading which)
{
    double at = which == AT ? t->at : which == LOW ? t->low : t->high;
    int up = which == AT ? t->up : which == LOW ? t->low_up : t->high_up;
    if (t->is_decided && y == t->at)
        return t->up;
    return y > at || (y == at && up);
}

/* Number of thresholds that y passes. */
static int passed(const struct qm_decider *d, double y, enum reading which)
{
    int from = 0, to = d->n - 1;
    while (from < to) {
        int k = (from + to) / 2;
        if (passes(&d->cut[k], y, which))
            from = k + 1;
        else
            to = k;
    }
    return from;
}

/* Number of thresholds that y passes, where at least `from` are known to be passed; often that is
 * all. */
static int passed_from(const struct qm_decider *d, double y, enum reading which, int from)
{
    for (int tries = 0; tries < 3; tries++, from++)
        if (from == d->n - 1 || !passes(&d->cut[from], y, which))
            return from;
    return passed(d, y, which);
}

/* Applies the scale word `least`, the smallest position in use. */
static int at_least(const struct qm_decider *d, int k)
{
    return k > d->q.scale.least ? k : d->q.scale.least;
}

int qm_decider_at(const struct qm_decider *d, double y) { return at_least(d, passed(d, y, AT)); }

void qm_decider_range(const struct qm_decider *d, double low, double high, int *from, int *to)
{
    if (d->q.round == QM_ROUND_dither) { /* the float32 sum of y and noise is rounded */
        low -= 4.0 * QM_U;
        high += 4.0 * QM_U;
    }
    int first = passed(d, low, HIGH);
    *from = at_least(d, first);
    *to = at_least(d, high >= low ? passed_from(d, high, LOW, first) : passed(d, high, LOW));
    if (qm_round_draws(d->q.round) && *to + 1 < d->n && high > d->value[*to])
        ++*to;
}

int qm_decider_nearest(const struct qm_decider *d, double y)
{
    return qm_oracle_nearest(d->value, d->n, y, -1);
}
