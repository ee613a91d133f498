/* stored.c - Judges stored parameters and residuals (their OFF_BY_ONE: oracle/bound/verdict.c). */
#include "experiments/check/stored.h"

#include <math.h>
#include <string.h>

#include "experiments/check/slot.h"
#include "oracle/bound/bound.h"

struct qm_stored qm_stored_of(const struct qm_param *p)
{
    static const struct qm_stored formats[] = {
        [QM_PARAM_f32] =
            {.bytes = 4, .mantissa = 23, .least = -126, .top = 0x7f7fffff, .has_inf = 1},
        [QM_PARAM_bf16] = {.bytes = 2, .mantissa = 7, .least = -126, .top = 0x7f7f, .has_inf = 1},
        [QM_PARAM_f16] = {.bytes = 2, .mantissa = 10, .least = -14, .top = 0x7bff, .has_inf = 1},
        [QM_PARAM_e4m3] = {.bytes = 1, .mantissa = 3, .least = -6, .top = 0x7e, .has_inf = 0},
    };
    struct qm_stored f = formats[p->format];
    f.write = p->write;
    f.residual_bytes = p->write == QM_WRITE_ecc8                                  ? 1
                       : p->write == QM_WRITE_kahan || p->write == QM_WRITE_ecc16 ? 2
                                                                                  : 0;
    return f;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* 2^k, k from -1022 to 1023. */
static double two_to(int k)
{
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* log2 of the spacing of the format's numbers at |x|. */
static int spacing(const struct qm_stored *f, double x)
{
    int e = ilogb(x); /* for 0 far below f->least */
    return (e < f->least ? f->least : e) - f->mantissa;
}

static double value_of(const struct qm_stored *f, int rank)
{
    int size = rank < 0 ? -rank : rank, half = 1 << f->mantissa, e = size >> f->mantissa;
    if (size > f->top)
        return f->has_inf && size == f->top + 1 ? copysign((double)INFINITY, rank) : (double)NAN;
    double m = e ? half + (size & (half - 1)) : size;
    return copysign(m * two_to((e ? e - 1 : 0) + f->least - f->mantissa), rank);
}

struct qm_float_format qm_stored_grid(const struct qm_stored *f)
{
    return (struct qm_float_format){f->mantissa, f->least, value_of(f, f->top)};
}

/* Rank of x, a multiple of the spacing at |x|; beyond the largest number, the rank of Inf or of the
 * largest. */
static int rank_of(const struct qm_stored *f, double x)
{
    double size = fabs(x);
    int k = spacing(f, size), most = f->has_inf ? f->top + 1 : f->top, rank;
    if (!(size < 0x1p200))
        rank = most;
    else
        rank = (int)((int64_t)(size * two_to(-k))) + ((k + f->mantissa - f->least) << f->mantissa);
    rank = rank > most ? most : rank;
    return x < 0.0 ? -rank : rank;
}

static int rounded(const struct qm_stored *f, double x, double (*how)(double))
{
    if (isnan(x))
        return 0;
    if (isinf(x))
        return rank_of(f, x);
    int k = spacing(f, x);
    return rank_of(f, how(x * two_to(-k)) * two_to(k));
}

/* Rank of the number nearest to x (ties to even), of the largest not above x, and of the least not
 * below x; 0 for NaN. */
static int stored_near(const struct qm_stored *f, double x) { return rounded(f, x, rint); }
static int stored_floor(const struct qm_stored *f, double x) { return rounded(f, x, floor); }
static int stored_ceil(const struct qm_stored *f, double x) { return rounded(f, x, ceil); }

/* ---- memory ---------------------------------------------------------------------------------- */

static uint32_t bits_at(const void *p, int bytes, int64_t i)
{
    const unsigned char *at = (const unsigned char *)p + i * bytes;
    uint32_t bits = 0;
    for (int k = 0; k < bytes; k++) /* little-endian */
        bits |= (uint32_t)at[k] << 8 * k;
    return bits;
}

static int rank_at(const struct qm_stored *f, const void *p, int64_t i)
{
    uint32_t bits = bits_at(p, f->bytes, i), sign = 1u << (8 * f->bytes - 1);
    return bits & sign ? -(int)(bits & (sign - 1)) : (int)(bits & (sign - 1));
}

void qm_stored_put(const struct qm_stored *f, void *p, int64_t i, double x)
{
    if (f->bytes == 4) {
        ((float *)p)[i] = (float)x;
        return;
    }
    int rank = stored_near(f, x);
    uint32_t bits = (uint32_t)(rank < 0 ? -rank : rank) | (uint32_t)(rank < 0)
                                                              << (8 * f->bytes - 1);
    for (int k = 0; k < f->bytes; k++)
        ((unsigned char *)p)[i * f->bytes + k] = (unsigned char)(bits >> 8 * k);
}

/* The integer of the residual under ecc8 and ecc16. */
static int steps_at(const struct qm_stored *f, const void *residual, int64_t i)
{
    uint32_t bits = bits_at(residual, f->residual_bytes, i);
    return f->residual_bytes == 1 ? (int8_t)bits : (int16_t)bits;
}

static int most_steps(const struct qm_stored *f) { return f->residual_bytes == 1 ? 127 : 32767; }

double qm_stored_seen(const struct qm_stored *f, const void *p, const void *residual, int64_t i)
{
    if (f->bytes == 4) /* a stored float32 is the value itself */
        return (double)((const float *)p)[i];
    double w = value_of(f, rank_at(f, p, i)), step;
    if (!f->residual_bytes)
        return w;
    if (f->write == QM_WRITE_kahan)
        return qm_round_float32(w + value_of(f, rank_at(f, residual, i)));
    step = qm_round_float32((double)steps_at(f, residual, i) / most_steps(f));
    return isfinite(w) ? qm_round_float32(w + qm_round_float32(step * two_to(spacing(f, w) - 1)))
                       : w;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Counts a draw of stochastic rounding where the place between two numbers is known to 2^-10 of
 * their distance. */
static void count_up(const struct qm_stored *f, int rank, double low, double high,
                     struct qm_tally *t)
{
    int below = stored_floor(f, low), above = stored_ceil(f, high);
    double gap = value_of(f, above) - value_of(f, below), share;
    int near = stored_near(f, 0.5 * (low + high));
    double at = value_of(f, near), step = value_of(f, above) - at;
    if (low <= at && at <= high && isfinite(step) && above <= near + 1) {
        step = above > near ? step : value_of(f, near + 1) - at;
        if (high - low <= 0x1p-12 * step)
            qm_tally_still(t, QM_MAX_SLOTS, (high - low) / step, rank != near);
        return;
    }
    if (above != below + 1 || !isfinite(gap) || !(high - low <= 0x1p-10 * gap))
        return;
    share = (0.5 * (low + high) - value_of(f, below)) / gap;
    qm_tally_draw(t, QM_MAX_SLOTS, share, 0.5 * (high - low) / gap, rank == above, low < 0.0);
    if (low < 0.0) /* the rounding draws in magnitude */
        t->draw_error = -t->draw_error;
}

static enum qm_verdict judge_rank(const struct qm_stored *f, int rank, double want, double low,
                                  double high, struct qm_tally *t)
{
    if (f->write != QM_WRITE_stoch)
        return qm_verdict_code(rank, stored_near(f, want), stored_near(f, low),
                               stored_near(f, high));
    count_up(f, rank, low, high, t);
    return qm_verdict_code(rank, rank, stored_floor(f, low), stored_ceil(f, high));
}

/* The residual's integer for r, in units of half the spacing: r * most, rounded half away from
 * zero. slack: relative error of the float32 operations. */
static double steps_of(double r, int most, double slack)
{
    double e = fmin(fmax(r, -1.0), 1.0) * most;
    e = fmin(fmax(e + slack * (fabs(e) + 1.0), -most), most);
    return round(e);
}

/* The verdict on the residual of stored number w.  float32's x - w rounds once. */
static enum qm_verdict judge_residual(const struct qm_stored *f, const void *residual, int64_t i,
                                      double w, double want, double low, double high)
{
    double slack = 2.0 * QM_U;
    if (f->write == QM_WRITE_kahan) {
        low -= QM_U * fabs(low - w) + w;
        high += QM_U * fabs(high - w) - w;
        if (!isfinite(w) || !isfinite(low) || !isfinite(high))
            low = high = want = w = 0.0;
        return qm_verdict_code(rank_at(f, residual, i), stored_near(f, want - w),
                               stored_near(f, low), stored_near(f, high));
    }
    int most = most_steps(f), at = steps_at(f, residual, i);
    if (!isfinite(w))
        return at == 0 ? QM_VERDICT_EQUAL : QM_VERDICT_WRONG;
    int k = 1 - spacing(f, w);
    double r = (want - w) * two_to(k);
    if (low == high && qm_is_float(want - w) && qm_is_float(r) && qm_is_float(r * most))
        slack = 0.0; /* x - w, its scaling and the product are exact */
    return qm_verdict_code(at, (int)steps_of((want - w) * two_to(k), most, 0.0),
                           (int)steps_of((low - w) * two_to(k), most, -slack),
                           (int)steps_of((high - w) * two_to(k), most, slack));
}

enum qm_verdict qm_stored_judge(const struct qm_stored_array *a, int64_t i, double want,
                                double error, struct qm_tally *t, int *unbounded,
                                char text[QM_STORED_TEXT])
{
    const struct qm_stored *f = a->format;
    const void *p = a->p, *residual = a->residual;
    char wanted[QM_WANT_TEXT];
    int rank = rank_at(f, p, i);
    double got = value_of(f, rank), low = want - error, high = want + error;
    *unbounded = isfinite(want) && !(error < HUGE_VAL);
    if (*unbounded)
        return QM_VERDICT_WRONG;
    if (!isfinite(want)) { /* a format without infinities saturates */
        enum qm_verdict is = qm_verdict_number(got, want, 0.0);
        if (isinf(want) && !f->has_inf && fabs(got) == value_of(f, f->top))
            is = QM_VERDICT_EQUAL;
        if (is == QM_VERDICT_WRONG)
            snprintf(text, QM_STORED_TEXT, "is stored as %a, want %s", got,
                     qm_want_text(want, 0.0, wanted));
        return is;
    }
    enum qm_verdict is = isnan(got) ? QM_VERDICT_WRONG : judge_rank(f, rank, want, low, high, t);
    if (is >= QM_VERDICT_OFF_BY_ONE)
        snprintf(text, QM_STORED_TEXT, "is stored as %a, want %a of %a within %.3g", got,
                 value_of(f, stored_near(f, want)), want, error);
    if (is >= QM_VERDICT_OFF_BY_ONE || !f->residual_bytes)
        return is;
    enum qm_verdict rest = judge_residual(f, residual, i, got, want, low, high);
    if (rest < is)
        return is;
    if (rest >= QM_VERDICT_OFF_BY_ONE)
        snprintf(text, QM_STORED_TEXT, "with its residual is %a, want %a within %.3g",
                 qm_stored_seen(f, p, residual, i), want, error);
    return rest;
}
