/* slot_adaptive_log.c - Judges a slot of curve allog, and decides its OFF_BY_ONE.
 *
 * A block keeps two numbers, its span and its least logarithm `low`.  core/quant/adaptive_log.h
 * defines the format; no code of it takes part here.  There are four decisions.  Each starts from
 * the numbers that are stored before it, so that none carries the slack of another.  With x the
 * fresh state, n the number of codes and high = log2(max x):
 *
 *   low    max(log2(min of x > 0), least), or high - 1 where this is not below high: an interval,
 *          from the intervals of the fresh state; least is -126, or log2 of the word floor:V
 *   span   max(high - low, 1e-12) from the stored low: an interval, from the interval of high and
 *          one rounding
 *   code   0 for x = 0, else 1 + even((log2 x - low) / span (n - 2)) within 1 .. n - 1, from the
 *          stored pair: an interval of at most a few u of 254 steps, so almost every element has
 *          one code
 *   value  2^((code - 1) span / (n - 2) + low) from the stored code and pair
 *
 * Each operation rounds once.  A logarithm has an error of two ulp at most, 4 u relative.  2^y has
 * the relative error ln 2 times the error of y, and one ulp. */
#include "experiments/check/slot_parts.h"

#include <math.h>
#include <string.h>

#include "oracle/bound/bound.h"

enum { NUMBERS = 2 }; /* stored per block: span, low */

/* A block's fresh state: intervals of its largest and of its least positive element, and the number
 * of elements that may be positive. */
struct block {
    struct qm_interval most, least;
    int64_t positive;
    int has_nan, is_unknown, is_one; /* is_one: all positive elements are equal */
};

/* x + by * 4 u |x|. */
static double widened(double x, double by) { return x + by * 4.0 * QM_U * fabs(x); }

/* The interval of float32's log2 over x; below 1e-38 the format takes the logarithm of 1e-38. */
static struct qm_interval logs(struct qm_interval x)
{
    double least = (double)1e-38f;
    return (struct qm_interval){widened(log2(fmax(x.low, least)), -1.0),
                                widened(log2(fmax(x.high, least)), 1.0)};
}

static struct block block_of(const struct qm_slot_view *v, int64_t from, int64_t n)
{
    struct block b = {.least = {HUGE_VAL, HUGE_VAL}, .is_one = 1};
    double first = 0.0;
    for (int64_t i = from; i < from + n; i++) {
        double x = v->want[i], e = v->error[i];
        b.has_nan |= isnan(x);
        b.is_unknown |= isinf(x) || !(e < HUGE_VAL);
        if (isnan(x) || isinf(x) || !(e < HUGE_VAL))
            continue;
        b.most.low = fmax(b.most.low, x - e);
        b.most.high = fmax(b.most.high, x + e);
        if (!(x + e > 0.0))
            continue;
        first = b.positive++ ? first : x;
        b.is_one &= b.positive == 1 || (e == 0.0 && x == first);
        b.least.low = fmin(b.least.low, fmax(x - e, 0.0));
        if (x - e > 0.0)
            b.least.high = fmin(b.least.high, x + e);
    }
    if (b.positive == 0)
        b.least = b.most;
    if (isinf(b.least.high)) /* no element is certain to be positive */
        b.least.high = b.most.high;
    return b;
}

static struct qm_interval low_of(const struct block *b, double floor)
{
    struct qm_interval high = logs(b->most), low = logs(b->least), less, end = {-126.0, -126.0};
    if (floor > 0.0)
        end = logs((struct qm_interval){floor, floor});
    low.low = fmax(low.low, fmax(end.low, -126.0));
    low.high = fmax(low.high, fmax(end.high, -126.0));
    less.low = high.low - 1.0 - QM_U * (fabs(high.low) + 1.0);
    less.high = high.high - 1.0 + QM_U * (fabs(high.high) + 1.0);
    if (b->is_one || low.low >= high.high)
        return less;
    if (low.high >= high.low) /* low may be no less than high */
        low.low = fmin(low.low, less.low);
    return low;
}

static struct qm_interval span_of(const struct block *b, double low)
{
    struct qm_interval high = logs(b->most), span = {high.low - low, high.high - low};
    span.low -= QM_U * fabs(span.low);
    span.high += QM_U * fabs(span.high);
    return (struct qm_interval){fmax(span.low, (double)1e-12f), fmax(span.high, (double)1e-12f)};
}

int qm_slot_judge_number(double got, struct qm_interval want, const char *what, int64_t at,
                         struct qm_tally *t, struct qm_finding *f)
{
    double middle = 0.5 * (want.low + want.high), half = 0.5 * (want.high - want.low);
    t->judged++;
    if (half > 0.0 && half < HUGE_VAL)
        t->worst_ratio = fmax(t->worst_ratio, fmin(fabs(got - middle) / half, 1.0));
    if (got >= want.low && got <= want.high)
        return 0;
    if (!qm_finding_set(f, QM_BAD_SCALE, "scale %lld, a block's %s, is %a, want %a to %a",
                        (long long)at, what, got, want.low, want.high))
        return 0;
    qm_finding_place(f, QM_PLACE_SCALE, 0, at, want.low, want.high);
    return 1;
}

static void judge_numbers(const struct qm_slot_view *v, const struct block *b, int64_t at,
                          struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    double span = (double)v->scales[at], low = (double)v->scales[at + 1];
    int found = 0;
    if (b->has_nan) {
        t->judged += NUMBERS;
        if (!(isnan(span) && isnan(low)) &&
            qm_finding_set(f, QM_BAD_SPECIAL, "scales %lld and the next are %a and %a, want NaN",
                           (long long)at, span, low)) {
            qm_finding_place(f, QM_PLACE_SCALE, 0, isnan(span) ? at + 1 : at, (double)NAN,
                             (double)NAN);
            *where = -1;
        }
        return;
    }
    if (b->is_unknown) {
        t->unbounded += NUMBERS;
        return;
    }
    found = qm_slot_judge_number(low, low_of(b, (double)v->d->q.scale.floor), "least logarithm",
                                 at + 1, t, f);
    found |= qm_slot_judge_number(span, span_of(b, low), "span", at, t, f);
    *where = found ? -1 : *where;
}

/* The codes that a number in [want - error, want + error] may get: from .. to where it is positive
 * (to 0: it is not), and code 0 where it may be 0 (zero is 1); at: the code of want.  Positive
 * numbers below 1e-38 count as 1e-38. */
struct codes {
    int from, to, at, zero;
};

static struct codes codes_of(const struct qm_slot_view *v, int64_t i, double span, double low)
{
    double x = v->want[i], e = v->error[i], steps = v->d->n - 2, y[3];
    /* Roundings of the difference, of the product and of the quotient or 1 / span. */
    double by = 4.0 * QM_U + qm_slot_quotient_error(v);
    struct qm_interval l = logs((struct qm_interval){x - e, x + e});
    const double of[3] = {l.low, log2(fmax(x, (double)1e-38f)), l.high};
    for (int k = 0; k < 3; k++) {
        y[k] = (of[k] - low) / span * steps;
        y[k] += (double)(k - 1) * by * fabs(y[k]);
        y[k] = 1.0 + rint(fmin(fmax(y[k], 0.0), steps));
    }
    int is_some = x + e > 0.0;
    return (struct codes){is_some ? (int)y[0] : 0, is_some ? (int)y[2] : 0, x > 0.0 ? (int)y[1] : 0,
                          !(x - e > 0.0)};
}

static int takes(const struct codes *c, int code)
{
    return (code == 0 && c->zero) || (code >= c->from && code <= c->to);
}

static enum qm_verdict verdict(const struct codes *c, int code)
{
    if (takes(c, code))
        return code == c->at ? QM_VERDICT_EQUAL : QM_VERDICT_BOUNDARY;
    return takes(c, code - 1) || takes(c, code + 1) ? QM_VERDICT_OFF_BY_ONE : QM_VERDICT_WRONG;
}

static void judge_value(const struct qm_slot_view *v, int64_t i, double span, double low,
                        struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    int code = v->codes[i];
    double got = (double)v->decoded[i], y = (code - 1) * span / (double)(v->d->n - 2);
    double off = (2.0 * QM_U + qm_slot_quotient_error(v)) * fabs(y) + QM_U * fabs(y + low),
           want = exp2(y + low), error;
    error = want * (0.6931471805599454 * off * (1.0 + 0x1p-10) + 4.0 * QM_U) + 2.0 * QM_ETA;
    if (code == 0)
        want = error = 0.0;
    if (want + error > (double)FLT_MAX) {
        t->unbounded++;
        return;
    }
    char wanted[QM_WANT_TEXT];
    t->judged++;
    if (!(fabs(got - want) <= error) &&
        qm_finding_set(f, QM_BAD_WRONG,
                       "element %lld decodes to %a, want %s (code %d, span %a, low %a)",
                       (long long)i, got, qm_want_text(want, error, wanted), code, span, low))
        *where = i;
}

static void judge_element(const struct qm_slot_view *v, int64_t i, int64_t at, int has_nan,
                          struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    double span = (double)v->scales[at], low = (double)v->scales[at + 1];
    int code = v->codes[i];
    struct codes c = {.zero = 1}; /* the only code of a block with NaN */
    int known = has_nan || (isfinite(v->want[i]) && v->error[i] < HUGE_VAL);
    if (!has_nan && !(known && isfinite(span) && isfinite(low) && span > 0.0)) {
        t->unbounded += 2;
        return;
    }
    if (!has_nan)
        c = codes_of(v, i, span, low);
    enum qm_verdict is = code < v->d->n ? verdict(&c, code) : QM_VERDICT_WRONG;
    t->judged++;
    t->verdict[is]++;
    if (is >= QM_VERDICT_OFF_BY_ONE &&
        qm_finding_set(
            f, is == QM_VERDICT_WRONG ? QM_BAD_WRONG : QM_BAD_OFF_BY_ONE,
            "element %lld has code %d, want code %d to %d%s: %a within %.3g, span %a, low %a",
            (long long)i, code, c.from, c.to, c.zero && c.from ? " or 0" : "", v->want[i],
            v->error[i], span, low)) {
        qm_finding_place(f, QM_PLACE_CODE, 0, i, 0.0, 0.0);
        for (int k = 0; k < 256; k++)
            f->takes[k] = (uint8_t)takes(&c, k);
        *where = i;
    }
    judge_value(v, i, has_nan ? 0.0 : span, has_nan ? 0.0 : low, t, f, where);
}

void qm_slot_judge_adaptive_log(const struct qm_slot_view *v, struct qm_tally *t,
                                struct qm_finding *f, int64_t *at)
{
    int64_t size = v->d->q.block;
    for (int64_t from = 0, k = 0; from < v->n; from += size, k += NUMBERS) {
        int64_t n = v->n - from < size ? v->n - from : size;
        struct block b = block_of(v, from, n);
        judge_numbers(v, &b, k, t, f, at);
        for (int64_t i = from; i < from + n; i++)
            judge_element(v, i, k, b.has_nan, t, f, at);
    }
}
