/* slot.c - scales, codes and decoded values of one slot against the oracle's fresh state. */
#include "experiments/check/slot.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "oracle/bound.h"
#include "oracle/codebook.h"

enum { HAS_NAN = 1, HAS_INF = 2, HAS_UNBOUNDED = 4 };

void qm_finding_place(struct qm_finding *f, enum qm_place place, int slot, int64_t at, double low,
                      double high)
{
    f->place = place;
    f->slot = slot;
    f->at = at;
    f->low = low;
    f->high = high;
}

int qm_finding_set(struct qm_finding *f, int severity, const char *format, ...)
{
    va_list args;
    if (severity <= f->severity)
        return 0;
    f->severity = severity;
    qm_finding_place(f, QM_PLACE_NONE, QM_SLOT_NONE, -1, 0.0, 0.0);
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return 1;
}

double qm_slot_quotient_error(const struct qm_slot_view *v)
{
    return v->reorder.div_ulp > 0.0 ? 2.0 * v->reorder.div_ulp * QM_U : QM_U;
}

/* ---- groups -------------------------------------------------------------------------------- */

/* Numbers that each group keeps: span and low, or the one scale. */
static int numbers(const struct qm_quantizer *q) { return q->curve == QM_CURVE_allog ? 2 : 1; }

/* Elements per scale where they are consecutive, or 0. */
static int64_t run_length(const struct qm_quantizer *q, const struct qm_shape *shape)
{
    if (q->norm == QM_NORM_block)
        return q->block;
    int is_rank1 = q->norm == QM_NORM_rank1 || q->norm == QM_NORM_rank1block;
    return is_rank1 && shape->rank < 2 ? 128 : 0;
}

/* rank1block of a matrix: pieces of rows, then pieces of columns. */
static int is_pieces(const struct qm_quantizer *q, const struct qm_shape *shape)
{
    return q->norm == QM_NORM_rank1block && shape->rank == 2;
}

/* Divided by one scale and then by another, which is the largest of what that leaves. */
static int is_twice(const struct qm_quantizer *q)
{
    return q->norm == QM_NORM_rowcol || q->norm == QM_NORM_colrow;
}

static int64_t pieces(int64_t n, int64_t block) { return (n + block - 1) / block; }

int64_t qm_groups_count(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t n)
{
    int64_t run = run_length(q, shape), sum = 0;
    if (n == 0 || q->norm == QM_NORM_id)
        return 0;
    if (run > 0)
        return (n + run - 1) / run * numbers(q);
    if (q->norm == QM_NORM_tensor)
        return 1;
    if (is_twice(q))
        return shape->dim[0] + shape->dim[1];
    if (is_pieces(q, shape))
        return shape->dim[0] * pieces(shape->dim[1], q->block) +
               shape->dim[1] * pieces(shape->dim[0], q->block);
    if (q->norm != QM_NORM_rank1 && q->norm != QM_NORM_rank1block)
        return shape->dim[q->norm == QM_NORM_row ? 0 : 1];
    for (int i = 0; i < shape->rank; i++)
        sum += shape->dim[i];
    return sum;
}

int qm_groups_of(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t i,
                 int64_t *group)
{
    int64_t run = run_length(q, shape), at[QM_MAX_RANK], base = 0;
    if (q->norm == QM_NORM_id)
        return 0;
    group[0] = run > 0 ? i / run * numbers(q) : 0;
    group[1] = group[0] + 1;
    if (numbers(q) == 2)
        return 2;
    if (run > 0 || q->norm == QM_NORM_tensor)
        return 1;
    for (int a = shape->rank - 1; a >= 0; a--) {
        at[a] = i % shape->dim[a];
        i /= shape->dim[a];
    }
    if (is_pieces(q, shape)) {
        int64_t per_row = pieces(shape->dim[1], q->block),
                per_col = pieces(shape->dim[0], q->block);
        group[0] = at[0] * per_row + at[1] / q->block;
        group[1] = shape->dim[0] * per_row + at[1] * per_col + at[0] / q->block;
        return 2;
    }
    if (is_twice(q)) {
        group[0] = at[0];
        group[1] = shape->dim[0] + at[1];
        return 2;
    }
    if (q->norm != QM_NORM_rank1 && q->norm != QM_NORM_rank1block) {
        group[0] = at[q->norm == QM_NORM_row ? 0 : 1];
        return 1;
    }
    for (int a = 0; a < shape->rank; a++) {
        group[a] = base + at[a];
        base += shape->dim[a];
    }
    return shape->rank;
}

/* ---- scales -------------------------------------------------------------------------------- */

/* Before the scale is taken.  Curves are monotone; theirs is within 4 u of the sum's parts. */
static double curved(enum qm_curve curve, double x, double *error)
{
    double log_x;
    switch (curve) {
    case QM_CURVE_log2:
        log_x = log2(fmax(x, 0x1p-126));
        *error = 4.0 * QM_U * (fabs(log_x) + 126.0);
        return log_x + 126.0;
    case QM_CURVE_sqrt:
        x = sqrt(fmax(x, 0.0));
        *error = QM_U * x;
        return x;
    default: *error = 0.0; return x;
    }
}

/* The interval of the curved fresh state. */
static void fresh_interval(const struct qm_slot_view *v, int64_t i, double *low, double *high)
{
    double error;
    *low = curved(v->d->q.curve, v->want[i] - v->error[i], &error);
    *low -= error;
    *high = curved(v->d->q.curve, v->want[i] + v->error[i], &error);
    *high += error;
}

/* Which of an element's two groups has the scale that it is divided by first. */
static int first_of(const struct qm_quantizer *q) { return q->norm == QM_NORM_colrow; }

/* The intervals of what the stored first scales leave, where each is a number. */
static void fold_quotients(const struct qm_slot_view *v, double *lo, double *hi, int *flag)
{
    int64_t group[2];
    for (int64_t i = 0; i < v->n; i++) {
        qm_groups_of(&v->d->q, v->shape, i, group);
        int64_t b = group[!first_of(&v->d->q)];
        double by = (double)v->scales[group[first_of(&v->d->q)]];
        double x = fabs(v->want[i]), e = v->error[i];
        if (isnan(by) || isnan(x) || (by == 0.0 && x == 0.0)) { /* 0 / 0 among them */
            flag[b] |= HAS_NAN;
        } else if (!isfinite(by) || by == 0.0 || !isfinite(x) || !(e < HUGE_VAL)) {
            flag[b] |= HAS_UNBOUNDED;
        } else {
            lo[b] = fmax(lo[b], (x - e) / by * (1.0 - 2.0 * QM_U) - QM_ETA);
            hi[b] = fmax(hi[b], (x + e) / by * (1.0 + 2.0 * QM_U) + QM_ETA);
        }
    }
}

/* Largest |x| - e and |x| + e of every group. */
static void fold(const struct qm_slot_view *v, double *lo, double *hi, int *flag)
{
    int64_t group[QM_MAX_RANK];
    for (int64_t i = 0; i < v->n; i++) {
        int count = qm_groups_of(&v->d->q, v->shape, i, group), what = 0;
        if (is_twice(&v->d->q)) {
            group[0] = group[first_of(&v->d->q)];
            count = 1;
        }
        double low = 0.0, high = 0.0, least = 0.0, most = 0.0;
        if (isnan(v->want[i]))
            what = HAS_NAN;
        else if (isinf(v->want[i]))
            what = HAS_INF;
        else if (!(v->error[i] < HUGE_VAL))
            what = HAS_UNBOUNDED;
        else
            fresh_interval(v, i, &low, &high);
        most = fmax(fabs(low), fabs(high));
        least = low > 0.0 || high < 0.0 ? fmin(fabs(low), fabs(high)) : 0.0;
        for (int k = 0; k < count; k++) {
            lo[group[k]] = fmax(lo[group[k]], least);
            hi[group[k]] = fmax(hi[group[k]], what == HAS_UNBOUNDED ? HUGE_VAL : most);
            flag[group[k]] |= what;
        }
    }
}

/* From a maximum to what is divided by, before the guard; its gain may be a quotient. */
static double divisor(const struct qm_decider *d, double m, double rounding)
{
    const struct qm_scale_rule *r = &d->q.scale;
    m = fmax(m, (double)r->floor);
    if (r->cap != 0.0f)
        m = fmin(m, (double)r->cap);
    return d->gain == 1.0 ? m : m * d->gain * (1.0 + rounding) + rounding / QM_U * QM_ETA;
}

/* The nearest float16, and whether x is one. */
static double to_half(double x) { return (double)qm_round_f16((float)x); }
static int is_half(double x) { return to_half(x) == x; }

/* Widest distance of a point of [-1, 1] to a value of the nested map, and of its table search. */
static double nested_error(void)
{
    double value[256], widest = 0.0;
    int n = qm_oracle_codebook("dyn", 8, 1, value);
    for (int k = 0; k + 1 < n; k++)
        widest = fmax(widest, 0.5 * (value[k + 1] - value[k]));
    return fmax(widest, 1.0 + value[0]) + 2.0 / 65535.0;
}

static int is_short(const struct qm_slot_view *v, int64_t group)
{
    int64_t run = run_length(&v->d->q, v->shape);
    return run > 0 && (group + 1) * run > v->n;
}

static int must_be_nonfinite(const struct qm_quantizer *q, int flag)
{
    if (q->scale.cap != 0.0f && flag & HAS_INF)
        return 0;
    return (flag & HAS_NAN && !q->scale.max_skips_nan) ||
           (flag & HAS_INF && !q->scale.max_skips_nan);
}

/* Whether a scale may be anything: some element may have overflowed, or Inf may have become NaN. */
static int may_be_anything(const struct qm_quantizer *q, int flag)
{
    return flag & HAS_UNBOUNDED ||
           (flag & HAS_INF && (q->scale.max_skips_nan || q->scale.cap != 0.0f));
}

static void judge_scales(const struct qm_slot_view *v, const double *lo, const double *hi,
                         const int *flag, int64_t count, struct qm_tally *t, struct qm_finding *f,
                         int64_t *at)
{
    const struct qm_quantizer *q = &v->d->q;
    double top = 0.0, room = 0.0;
    int any = 0;
    for (int64_t b = 0; b < count; b++) {
        top = fmax(top, 2.0 * hi[b]);
        any |= flag[b];
    }
    if (q->scale
            .nest) /* minus the mean, in 8 bits of the largest distance from it, whose reciprocal
                          is Inf below 2^-128 */
        room = (nested_error() + 4.0 * QM_U) * top + 0x1p-126;
    for (int64_t b = 0; b < count; b++) {
        double got = (double)v->scales[b], low = divisor(v->d, lo[b], -qm_slot_quotient_error(v));
        double high = divisor(v->d, hi[b], qm_slot_quotient_error(v));
        if (q->unit == QM_UNIT_recip_tail && is_short(v, b)) {
            low = fmax(low, (double)q->scale.guard);
            high = fmax(high, (double)q->scale.guard);
        }
        if (q->scale.f16) {
            low = to_half(low);
            high = to_half(high);
        }
        if (may_be_anything(q, flag[b]) || (q->scale.nest && any) || high > (double)FLT_MAX ||
            (q->scale.f16 && high >= 65504.0)) {
            t->unbounded++;
            continue;
        }
        t->judged++;
        double middle = 0.5 * (low + high), half = 0.5 * (high - low) + room;
        if (!must_be_nonfinite(q, flag[b]) && half > 0.0)
            t->worst_ratio = fmax(t->worst_ratio, fmin(fabs(got - middle) / half, 1.0));
        if (must_be_nonfinite(q, flag[b])) {
            if (isfinite(got) &&
                qm_finding_set(f, QM_BAD_SPECIAL,
                               "scale %lld is %a, want NaN or Inf: the group has one", (long long)b,
                               got)) {
                qm_finding_place(f, QM_PLACE_SCALE, 0, b, (double)NAN, (double)NAN);
                *at = -1;
            }
        } else if ((!(got >= low - room && got <= high + room) ||
                    (q->scale.f16 && !is_half(got))) &&
                   qm_finding_set(f, QM_BAD_SCALE, "scale %lld is %a, want %s%a to %a",
                                  (long long)b, got, q->scale.f16 ? "a float16 from " : "",
                                  low - room, high + room)) {
            qm_finding_place(f, QM_PLACE_SCALE, 0, b, low - room, high + room);
            *at = -1;
        }
    }
}

/* ---- codes --------------------------------------------------------------------------------- */

/* What an element is divided by and multiplied by. */
struct element_scale {
    double by_low, by_high; /* NaN where any is */
    double stored;
    double max_low, max_high; /* of the raw maximum */
    double first, second;     /* of two scales; 0: there is one */
    int is_short;
};

static double least(double a, double b) { return isnan(a) || isnan(b) ? (double)NAN : fmin(a, b); }

/* The stored scales of an element that has two; their product has 48 bits. */
static struct element_scale two_scales(const struct qm_slot_view *v, const int64_t *group)
{
    double a = (double)v->scales[group[first_of(&v->d->q)]];
    double b = (double)v->scales[group[!first_of(&v->d->q)]];
    return (struct element_scale){a * b, a * b, a * b, 1.0, 1.0, a, b, 0};
}

/* is_wide: whatever scale is stored, from the fresh state alone. */
static struct element_scale scale_of(const struct qm_slot_view *v, int64_t i, const double *lo,
                                     const double *hi, const int *flag, int is_wide)
{
    const struct qm_scale_rule *r = &v->d->q.scale;
    struct element_scale s = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL, 0.0, 0.0, 0};
    int64_t group[QM_MAX_RANK];
    int count = qm_groups_of(&v->d->q, v->shape, i, group);
    if (is_twice(&v->d->q))
        return two_scales(v, group);
    for (int k = 0; k < count; k++) {
        int64_t b = group[k];
        double stored = (double)v->scales[b], low = stored, high = stored;
        if (is_wide || r->f16 == QM_F16_stored || r->nest) { /* divided by the unrounded one */
            low = divisor(v->d, lo[b], -qm_slot_quotient_error(v));
            high = divisor(v->d, hi[b], qm_slot_quotient_error(v));
            if (flag[b] & HAS_NAN && !r->max_skips_nan)
                low = high = (double)NAN;
            else if (flag[b])
                high = HUGE_VAL;
        }
        if (!isnan(low)) {
            low = fmax(low, (double)r->guard);
            high = fmax(high, (double)r->guard);
        }
        s.by_low = least(s.by_low, low);
        s.by_high = least(s.by_high, high);
        s.stored = least(s.stored, stored);
        s.max_low = fmin(s.max_low, lo[b]);
        s.max_high = fmin(s.max_high, hi[b]);
        s.is_short = is_short(v, b);
    }
    if (count == 0)
        s = (struct element_scale){1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0};
    return s;
}

static int is_exact(double x) { return qm_narrow(x) == x; }

/* The interval of the float32 unit value.  A division rounds once, a reciprocal and its product
 * twice; a reciprocal below the normal range errs by eta, times |x|. */
static void unit_interval(const struct qm_slot_view *v, double x_low, double x_high,
                          const struct element_scale *s, int divides, double *low, double *high)
{
    double one = qm_slot_quotient_error(v), below = one / QM_U * QM_ETA;
    double y, r, eta = divides ? below : QM_ETA + below * fmax(fabs(x_low), fabs(x_high));
    double relative = (one + (divides ? 0.0 : QM_U)) * (1.0 + 0x1p-20);
    *low = x_low / (x_low < 0.0 ? s->by_low : s->by_high);
    *high = x_high / (x_high < 0.0 ? s->by_high : s->by_low);
    y = *low;
    r = divides ? 1.0 : 1.0 / s->by_low;
    if (s->second != 0.0) { /* two divisions */
        double z = x_low / s->first;
        relative = 2.0 * one * (1.0 + 0x1p-20);
        eta += below / s->second;
        if (!(is_exact(z) && fma(z, s->first, -x_low) == 0.0))
            y = (double)NAN;
    }
    int exact = !(v->reorder.div_ulp > 0.0) && x_low == x_high && s->by_low == s->by_high &&
                is_exact(y) && fma(y, s->by_low, -x_low) == 0.0 &&
                (divides || (is_exact(r) && fma(r, s->by_low, -1.0) == 0.0));
    if (!exact && v->d->q.norm != QM_NORM_id) {
        *low -= relative * fabs(*low) + eta;
        *high += relative * fabs(*high) + eta;
    }
    if (v->d->q.curve == QM_CURVE_softsign) {
        *low = 2.0 * *low / (1.0 + fabs(*low));
        *high = 2.0 * *high / (1.0 + fabs(*high));
        *low -= (3.0 * QM_U + one) * fabs(*low);
        *high += (3.0 * QM_U + one) * fabs(*high);
    }
}

/* What is known about the unit value of element i: an interval, certainly NaN, or nothing. */
enum unit { UNIT_INTERVAL, UNIT_NAN, UNIT_ZERO_CODE, UNIT_UNKNOWN };

static enum unit unit_of(const struct qm_slot_view *v, int64_t i, const struct element_scale *s,
                         double *low, double *high)
{
    const struct qm_quantizer *q = &v->d->q;
    double x = v->want[i], e = v->error[i];
    int divides = q->unit == QM_UNIT_div || (q->unit == QM_UNIT_recip_tail && s->is_short);
    divides &= !v->reorder.recip; /* two roundings cover the one */
    if (q->scale.zero >= 0 && s->max_low == 0.0)
        return s->max_high == 0.0 && isfinite(x) ? UNIT_ZERO_CODE : UNIT_UNKNOWN;
    if (isnan(x) || isnan(s->first) || isnan(s->second))
        return UNIT_NAN;
    if (isnan(s->by_low))
        return is_twice(q) ? UNIT_UNKNOWN : UNIT_NAN; /* 0 times Inf */
    if (is_twice(q) && !(s->by_low > 0.0 && s->first < HUGE_VAL && s->second < HUGE_VAL))
        return UNIT_UNKNOWN;
    if (isinf(x)) /* Inf / Inf; a cap or no scale at all leaves Inf */
        return q->scale.cap != 0.0f || q->norm == QM_NORM_id ? UNIT_UNKNOWN : UNIT_NAN;
    if (!(e < HUGE_VAL))
        return UNIT_UNKNOWN;
    if (isinf(s->by_low)) {
        *low = *high = 0.0;
        return UNIT_INTERVAL;
    }
    fresh_interval(v, i, low, high);
    if (s->by_low == 0.0)
        return s->by_high == 0.0 && *low == 0.0 && *high == 0.0 ? UNIT_NAN : UNIT_UNKNOWN;
    double steps = q->search == QM_SEARCH_arith ? 256.0 : 1.0;
    if (!divides && !(steps / s->by_low <= (double)FLT_MAX)) /* the reciprocal may be Inf */
        return UNIT_UNKNOWN;
    unit_interval(v, *low, *high, s, divides, low, high);
    return UNIT_INTERVAL;
}

/* Steps up of stochastic rounding, where the position within the cell is known well. */
static void count_up(const struct qm_decider *d, int slot, double low, double high, int position,
                     struct qm_tally *t)
{
    double y = 0.5 * (low + high), share;
    int k = 0;
    while (k + 2 < d->n && y >= d->value[k + 1])
        k++;
    double gap = d->value[k + 1] - d->value[k];
    if (!(low >= d->value[k] && high <= d->value[k + 1] && high - low <= 0x1p-10 * gap))
        return;
    share = (y - d->value[k]) / gap;
    qm_tally_draw(t, slot, share, position > k);
}

/* What may happen to a position after it was decided: nothing, or what keepsign does to it where x > 0,
 * where x has a sign bit, and where it has none but is 0 or NaN. */
enum after { AS_IT_IS, POSITIVE, NEGATIVE, ZERO };

static int moved(const struct qm_decider *d, int k, enum after what)
{
    int sign = k < d->n_negative;
    if (what == AS_IT_IS || sign == (what == NEGATIVE))
        return k;
    return what == POSITIVE ? k + 1 : k > 0 ? k - 1 : d->n - 1;
}

/* Distance of position k to the nearest that a unit value in [low, high] may get; 0: allowed. */
static int distance(const struct qm_decider *d, double low, double high, enum after what, int k)
{
    int from, to, best = d->n;
    qm_decider_range(d, low, high, &from, &to);
    for (int i = from; i <= to; i++) {
        int off = abs(k - moved(d, i, what));
        best = off < best ? off : best;
    }
    return best;
}

/* Which signs a value in [low, high] may have.  Of a zero and of NaN either sign is allowed: it depends
 * on the order of operations. */
static int signs(const struct qm_decider *d, double low, double high, enum after what[3])
{
    int n = 0;
    what[0] = AS_IT_IS;
    if (!d->q.scale.keep_sign)
        return 1;
    if (high > 0.0)
        what[n++] = POSITIVE;
    if (!(low > 0.0))
        what[n++] = NEGATIVE;
    if (!(low > 0.0) && !(high < 0.0))
        what[n++] = ZERO;
    return n;
}

/* t: counts steps up of stochastic rounding; or NULL. */
static enum qm_verdict verdict(const struct qm_decider *d, int slot, double low, double high,
                               int position, struct qm_tally *t)
{
    enum after what[3];
    int best = d->n, from, to, at;
    if (!d->q.scale.keep_sign && !qm_round_draws(d->q.round)) {
        qm_decider_range(d, low, high, &from, &to);
        at = from < to ? qm_decider_at(d, 0.5 * (low + high)) : from;
        return qm_verdict_code(position, at, from, to);
    }
    at = qm_decider_at(d, 0.5 * (low + high));
    int n = signs(d, low, high, what);
    for (int i = 0; i < n; i++) {
        double least = what[i] == POSITIVE || what[i] == ZERO ? fmax(low, 0.0) : low;
        double most = what[i] == NEGATIVE || what[i] == ZERO ? fmin(high, 0.0) : high;
        int off = distance(d, least, most, what[i], position);
        best = off < best ? off : best;
    }
    if (qm_round_draws(d->q.round)) {
        if (best == 0 && t)
            count_up(d, slot, low, high, position, t);
        at = position;
    } else {
        at = moved(d, at, what[0]);
    }
    if (best == 0 && low == 0.0 && high == 0.0) /* of either zero */
        at = position;
    return qm_verdict_code(position, at, position - best, position - best);
}

/* Decoding rounds once per operation; curves as above, with exp2's derivative; the slack of a value
 * by the derivatives 2 / (2 - |y|)^2 <= 2 and 2 x. */
static double decode_of(const struct qm_slot_view *v, int position, double scale, double first,
                        double *error)
{
    const struct qm_decider *d = v->d;
    double value = d->value[position], slack = d->slack[position] * scale;
    double y = d->q.curve == QM_CURVE_softsign ? value / (2.0 - fabs(value)) : value, x = y * scale;
    *error = QM_U * fabs(x) + QM_ETA;
    if (first != 0.0) /* the other scale first, and then this one */
        *error = 2.0 * QM_U * fabs(x) * (1.0 + 0x1p-20) + QM_ETA * (1.0 + first);
    else if (fma(y, scale, -x) == 0.0 && is_exact(x))
        *error = 0.0;
    switch (d->q.curve) {
    case QM_CURVE_softsign:
        *error = (3.0 * QM_U + qm_slot_quotient_error(v)) * fabs(x) + QM_ETA + 2.0 * slack;
        return x;
    case QM_CURVE_sqrt:
        *error = 4.0 * QM_U * x * x + 2.0 * QM_ETA * (1.0 + fabs(x)) + (2.0 * x + slack) * slack;
        return x * x;
    case QM_CURVE_log2:
        *error = (4.0 * QM_U * (fabs(x) + 127.0) + 4.0 * QM_U) * exp2(x - 126.0) + 2.0 * QM_ETA;
        return exp2(x - 126.0);
    default: return x;
    }
}

static void judge_decoded(const struct qm_slot_view *v, int64_t i, int position,
                          const struct element_scale *s, struct qm_tally *t, struct qm_finding *f,
                          int64_t *at)
{
    double scale = s->stored, error, want = decode_of(v, position, scale, s->first, &error);
    double got = (double)v->decoded[i];
    if (isnan(v->d->value[position])) { /* a code that means NaN whatever the scale */
        t->judged++;
        if (!isnan(got) && qm_finding_set(f, QM_BAD_SPECIAL, "element %lld decodes to %a, want NaN",
                                          (long long)i, got))
            *at = i;
        return;
    }
    if (isfinite(scale) && fabs(want) + error > (double)FLT_MAX) {
        t->unbounded++;
        return;
    }
    t->judged++;
    if (isfinite(scale) ? !(fabs(got - want) <= error) : isfinite(got))
        if (qm_finding_set(
                f, isfinite(scale) ? QM_BAD_WRONG : QM_BAD_SPECIAL,
                "element %lld decodes to %a, want %a within %.3g (code value %a, scale %a)",
                (long long)i, got, want, error, v->d->value[position], scale))
            *at = i;
}

/* Whether element i may have a code of this position. */
static int is_allowed(const struct qm_slot_view *v, int64_t i, const struct element_scale *s,
                      int position)
{
    const struct qm_decider *d = v->d;
    double low = (double)NAN, high = low;
    enum unit known = unit_of(v, i, s, &low, &high);
    struct qm_tally *none = NULL;
    enum after what[3];
    if (known == UNIT_UNKNOWN)
        return 1;
    if (known == UNIT_INTERVAL)
        return verdict(d, 0, low, high, position, none) <= QM_VERDICT_BOUNDARY;
    int want = known == UNIT_ZERO_CODE ? d->position_of[d->q.scale.zero] : d->nan_position;
    int n = signs(d, v->want[i], v->want[i], what), is = 0;
    for (int k = 0; k < n; k++)
        is |= position == moved(d, want, what[k]);
    return is;
}

/* Where a wrong code is, and which ones a step may leave there: beside the stored scale, and beside
 * any that the fresh state allows unless that would take the wrong one too. */
static void place_code(const struct qm_slot_view *v, int64_t i, const struct element_scale *s,
                       const struct element_scale *wide, struct qm_finding *f)
{
    int got = v->d->position_of[v->codes[i]];
    int is_wide = got < 0 || !is_allowed(v, i, wide, got);
    qm_finding_place(f, QM_PLACE_CODE, 0, i, 0.0, 0.0);
    for (int c = 0; c < 256; c++) {
        int k = v->d->position_of[c];
        f->takes[c] = k >= 0 && (is_allowed(v, i, s, k) || (is_wide && is_allowed(v, i, wide, k)));
    }
}

/* 1: f and *at are of this code now. */
static int judge_code(const struct qm_slot_view *v, int slot, int64_t i,
                      const struct element_scale *s, struct qm_tally *t, struct qm_finding *f,
                      int64_t *at)
{
    static const int severity[] = {
        [QM_VERDICT_OFF_BY_ONE] = QM_BAD_OFF_BY_ONE, [QM_VERDICT_WRONG] = QM_BAD_WRONG};
    const struct qm_decider *d = v->d;
    int position = d->position_of[v->codes[i]], want;
    double low = (double)NAN, high = low;
    enum unit known = unit_of(v, i, s, &low, &high);
    enum qm_verdict is = QM_VERDICT_WRONG;
    t->judged++;
    want = known == UNIT_ZERO_CODE ? d->position_of[d->q.scale.zero] : d->nan_position;
    if (position < 0) {
        t->verdict[QM_VERDICT_WRONG]++;
        if (qm_finding_set(f, QM_BAD_WRONG, "element %lld has code %d, which does not exist",
                           (long long)i, v->codes[i])) {
            *at = i;
            return 1;
        }
        return 0;
    }
    if (known == UNIT_UNKNOWN) {
        t->judged--;
        t->unbounded++;
        judge_decoded(v, i, position, s, t, f, at);
        return 0;
    }
    if (known == UNIT_INTERVAL) {
        is = verdict(d, slot, low, high, position, t);
        if (severity[is])
            want = qm_decider_at(d, 0.5 * (low + high));
    } else {
        enum after what[3];
        int n = signs(d, v->want[i], v->want[i], what);
        for (int k = 0; k < n; k++)
            is = position == moved(d, want, what[k]) ? QM_VERDICT_EQUAL : is;
    }
    int found = 0, before;
    t->verdict[is]++;
    if (d->q.search == QM_SEARCH_ladder && known == UNIT_INTERVAL && is == QM_VERDICT_EQUAL)
        t->deviations += qm_decider_nearest(d, 0.5 * (low + high)) != position;
    if (severity[is] &&
        qm_finding_set(
            f, severity[is],
            "element %lld has code %d (%a), want code %d (%a): unit value %a to %a, scale %a",
            (long long)i, v->codes[i], d->value[position], d->code_of[want], d->value[want], low,
            high, s->stored)) {
        *at = i;
        found = 1;
    }
    before = f->severity;
    judge_decoded(v, i, position, s, t, f, at);
    return found && f->severity == before;
}

void qm_slot_judge(const struct qm_slot_view *v, int slot, double *lo, double *hi, int *flag,
                   struct qm_tally *t, struct qm_finding *f, int64_t *at)
{
    int64_t count = qm_groups_count(&v->d->q, v->shape, v->n);
    if (v->d->q.curve == QM_CURVE_allog) {
        qm_slot_judge_al(v, t, f, at);
        return;
    }
    memset(lo, 0, sizeof *lo * (size_t)count);
    memset(hi, 0, sizeof *hi * (size_t)count);
    memset(flag, 0, sizeof *flag * (size_t)count);
    fold(v, lo, hi, flag);
    if (is_twice(&v->d->q))
        fold_quotients(v, lo, hi, flag);
    judge_scales(v, lo, hi, flag, count, t, f, at);
    int64_t run = run_length(&v->d->q, v->shape), left = 0; /* elements that share s */
    struct element_scale s = {0};
    for (int64_t i = 0; i < v->n; i++, left--) {
        if (left <= 0) {
            s = scale_of(v, i, lo, hi, flag, 0);
            left = run;
        }
        t->left = 0.0f;
        if (judge_code(v, slot, i, &s, t, f, at)) {
            struct element_scale wide = scale_of(v, i, lo, hi, flag, 1);
            place_code(v, i, &s, &wide, f);
        }
        if (v->left)
            v->left[i] = t->left;
    }
}
