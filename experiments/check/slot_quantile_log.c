/* slot_quantile_log.c - Judges a slot of curve qlog, and decides its OFF_BY_ONE.
 *
 * A block keeps its scale and the base alpha of its powers.  core/quant/quantile_log.h defines the
 * format; no code of it takes part here.  There are four decisions.  Each starts from the numbers
 * that are stored before it, so that none carries the slack of another.  With x the fresh state, B
 * the size of a block, top the last code and e the float32 nearest to 1 / top:
 *
 *   scale  max(max x, floor): an interval, from the intervals of the fresh state
 *   alpha  (x_q / scale)^e from the stored scale: an interval.  Order statistics are monotone in
 *          every element, so those of the lower and of the upper ends of x enclose them; the
 *          interpolation rounds twice, the quotient once, and x^e has an error of two ulp at most,
 *          4 u relative; a kernel may take 1 / top itself for e
 *   code   by k = log2(x / scale) / log2(alpha) from the stored pair: an interval of k, from
 *          logarithms within 4 u relative and one quotient each.  even: rint(k); dither: whatever
 *          lies less than one code from k; bernoulli: either end of the cell of k
 *   value  alpha^code scale from the stored code and pair: 4 u and, of a power below the normal
 *          range, 2 eta, then one product; code 0 is the scale
 *
 * How often a draw takes the upper end is judged with the draws of all slots: the share of the cell
 * is the fraction of k under dither, that of the value between the two powers under bernoulli. */
#include "experiments/check/slot_parts.h"
#include "oracle/bound/verdict.h"

#include <float.h>
#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>

enum { NUMBERS = 2 }; /* stored per block: scale, alpha */

static const double POW = 4.0 * QM_U, TIGHT = 0x1p-10, STILL = 0x1p-18;

/* A block's fresh state. */
struct block {
    struct qm_interval most, quantile;
    int has_nan, is_unknown, is_infinite; /* is_infinite: the maximum is, and the quantile is not */
};

/* The quantile of sorted x[n], with the error of its interpolation towards `sign`. */
static double quantile_of(const double *x, int64_t n, double q, double sign)
{
    double rank = qm_round_float32(q * (double)(n - 1)), w = rank - floor(rank);
    double a = x[(int64_t)floor(rank)], c = x[(int64_t)ceil(rank)];
    double error = w == 0.0 ? 0.0 : 3.0 * QM_U * (fabs(c) + fabs(a)) + QM_ETA;
    return fmax(a + w * (c - a) + sign * error, 0.0);
}

static struct block block_of(const struct qm_slot_view *v, int64_t from, int64_t n, double *room)
{
    struct block b = {.is_unknown = room == NULL};
    int64_t infinite = 0;
    for (int64_t i = from; i < from + n; i++) {
        double x = v->want[i], e = v->error[i];
        b.has_nan |= isnan(x);
        b.is_unknown |= isfinite(x) && !(x + e <= (double)FLT_MAX);
        infinite += isinf(x) != 0;
    }
    b.is_infinite = infinite > 0 && !b.is_unknown && !b.has_nan &&
                    ceil((double)v->d->q.scale.quantile * (double)(n - 1)) < (double)(n - infinite);
    b.is_unknown |= infinite > 0 && !b.is_infinite;
    if (b.has_nan || b.is_unknown)
        return b;
    for (int end = 0; end < 2; end++) {
        double *to = end ? &b.most.high : &b.most.low, q = (double)v->d->q.scale.quantile;
        for (int64_t i = 0; i < n; i++)
            room[i] = isinf(v->want[from + i])
                          ? HUGE_VAL
                          : fmax(v->want[from + i] + (end ? 1.0 : -1.0) * v->error[from + i], 0.0);
        gsl_sort(room, 1, (size_t)n);
        *to = room[n - 1];
        *(end ? &b.quantile.high : &b.quantile.low) = quantile_of(room, n, q, end ? 1.0 : -1.0);
    }
    return b;
}

/* The exponent 1 / top: rounded, and as it is. */
static struct qm_interval exponent_of(const struct qm_slot_view *v)
{
    double exact = 1.0 / (double)(v->d->n - 1), rounded = qm_round_float32(exact);
    return (struct qm_interval){fmin(exact, rounded), fmax(exact, rounded)};
}

/* The interval of alpha from the stored scale. */
static struct qm_interval alpha_of(const struct qm_slot_view *v, const struct block *b,
                                   double scale)
{
    struct qm_interval e = exponent_of(v);
    double by = qm_slot_quotient_error(v);
    double low = b->quantile.low / scale * (1.0 - by) - by / QM_U * QM_ETA;
    double high = b->quantile.high / scale * (1.0 + by) + by / QM_U * QM_ETA;
    if (b->quantile.high == 0.0 || b->is_infinite)
        return (struct qm_interval){0.0, 0.0};
    if (b->quantile.low == scale && b->quantile.high == scale)
        return (struct qm_interval){1.0, 1.0};
    double least = fmin(pow(low, e.low), pow(low, e.high)),
           most = fmax(pow(high, e.low), pow(high, e.high));
    return (struct qm_interval){low > 0.0 ? least * (1.0 - POW) : 0.0,
                                fmin(most * (1.0 + POW), 1.0 + POW)};
}

static void judge_numbers(const struct qm_slot_view *v, const struct block *b, int64_t at,
                          struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    double scale = (double)v->scales[at], alpha = (double)v->scales[at + 1];
    double floor = (double)v->d->q.scale.floor;
    if (b->has_nan) {
        t->judged += NUMBERS;
        if (!(isnan(scale) && isnan(alpha)) &&
            qm_finding_set(f, QM_BAD_SPECIAL, "scales %lld and the next are %a and %a, want NaN",
                           (long long)at, scale, alpha)) {
            qm_finding_place(f, QM_PLACE_SCALE, 0, isnan(scale) ? at + 1 : at, (double)NAN,
                             (double)NAN);
            *where = -1;
        }
        return;
    }
    if (b->is_unknown || (b->most.high > (double)FLT_MAX && !b->is_infinite)) {
        t->unbounded += NUMBERS;
        return;
    }
    struct qm_interval s = {fmax(b->most.low, floor), fmax(b->most.high, floor)};
    int found = qm_slot_judge_number(scale, s, "scale", at, t, f);
    if (scale > 0.0)
        found |= qm_slot_judge_number(alpha, alpha_of(v, b, scale), "alpha", at + 1, t, f);
    else
        t->unbounded++;
    *where = found ? -1 : *where;
}

/* The interval of k of element i, from the stored pair.  is_zero: every code of the block is 0,
 * because k is NaN or not above 0, or under bernoulli either 0 or 1, by the value alone. */
struct place {
    double low, high; /* k; high is infinite where x may be 0 */
    struct qm_interval y;
    int is_zero, is_one; /* is_one: alpha is 1, and so is every power */
};

static double widened(double x, double by) { return x + by * fabs(x); }

static struct place place_of(const struct qm_slot_view *v, int64_t i, double scale, double alpha)
{
    double by = qm_slot_quotient_error(v), x = v->want[i], e = v->error[i];
    struct place p = {.y = {fmax(x - e, 0.0) / scale, fmax(x + e, 0.0) / scale}};
    if (!(e == 0.0 && x == scale)) {
        p.y.low = fmax(widened(p.y.low, -by) - by / QM_U * QM_ETA, 0.0);
        p.y.high = fmin(widened(p.y.high, by) + by / QM_U * QM_ETA, 1.0);
    }
    if (x + e == 0.0)
        p.y.high = 0.0;
    p.is_one = alpha == 1.0;
    p.is_zero = alpha == 0.0 || p.is_one;
    if (p.is_zero)
        return p;
    double l = log2(alpha), least = widened(l, -4.0 * QM_U), most = widened(l, 4.0 * QM_U);
    /* k falls as y rises; l < 0 */
    p.low = widened(widened(log2(p.y.high), 4.0 * QM_U) / least, -by);
    p.high = p.y.low > 0.0 ? widened(widened(log2(p.y.low), -4.0 * QM_U) / most, by) : HUGE_VAL;
    return p;
}

/* The codes from .. to that element i may get; at: where nothing is drawn, that of the middle. */
struct codes {
    int from, to, at;
};

static int clipped(double k, int top) { return !(k > 0.0) ? 0 : k > top ? top : (int)k; }

static struct codes codes_of(const struct qm_slot_view *v, const struct place *p)
{
    int top = v->d->n - 1;
    struct codes c = {0, 0, 0};
    double slack = 4.0 * QM_U * (fmin(fabs(p->high), top + 1.0) + 1.0), middle;
    if (p->is_zero) { /* bernoulli between 1 and alpha = 0, or of two powers of 1 */
        c.to = v->d->q.round == QM_ROUND_bernoulli ? 1 : 0;
        if (p->is_one && p->y.high >= 1.0 && qm_slot_quotient_is_near(v))
            c.to = top; /* x times 1 / scale may be above 1 */
        return c;
    }
    switch (v->d->q.round) {
    case QM_ROUND_dither:
        c.from = clipped(ceil(p->low - 1.0 - slack), top);
        c.to = clipped(floor(fmin(p->high, top) + 1.0 + slack), top);
        break;
    case QM_ROUND_bernoulli:
        c.from = clipped(floor(p->low), top);
        c.to = clipped(floor(fmin(p->high, top)) + 1.0, top);
        break;
    case QM_ROUND_even:
        c.from = clipped(rint(p->low), top);
        c.to = clipped(rint(p->high), top);
        break;
    case QM_ROUND_near: /* curve qlog takes none of these */
    case QM_ROUND_mid:
    case QM_ROUND_away:
    case QM_ROUND_stoch:
    case QM_ROUND_floor:
    case QM_ROUND_ceil:
    case QM_ROUND_COUNT: break;
    }
    middle = p->high < HUGE_VAL ? 0.5 * (p->low + p->high) : top;
    c.at = clipped(rint(middle), top);
    return c;
}

/* Counts the draw where the place within the cell is known well enough. */
static void count_draw(const struct qm_slot_view *v, int slot, const struct place *p, double alpha,
                       int code, struct qm_tally *t)
{
    double d = floor(p->low), width = p->high - p->low, near = rint(p->low), share;
    if (p->is_zero || !(p->low >= 0.0 && p->high <= v->d->n - 1))
        return;
    if (p->low <= near && near <= p->high) {
        if (width <= STILL)
            qm_tally_still(t, slot, width, code != (int)near);
        return;
    }
    if (p->high > d + 1.0 || width > TIGHT)
        return;
    share = 0.5 * (p->low + p->high) - d;
    if (v->d->q.round == QM_ROUND_bernoulli) { /* the chance of the lower power, of code d + 1 */
        double big = pow(alpha, d), small = pow(alpha, d + 1.0), gap = big - small;
        double off = 0.5 * (p->y.high - p->y.low) / gap + 8.0 * QM_U * big / gap;
        share = (big - 0.5 * (p->y.low + p->y.high)) / gap;
        if (off <= TIGHT && share >= 0.0 && share <= 1.0)
            qm_tally_draw(t, slot, share, off, code > d, 0);
        return;
    }
    qm_tally_draw(t, slot, share, 0.5 * width, code > d, 0);
}

static void judge_value(const struct qm_slot_view *v, int64_t i, double scale, double alpha,
                        struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    int code = v->codes[i];
    double got = (double)v->decoded[i], want = scale * (code ? pow(alpha, code) : 1.0);
    double error = code == 0 || want == 0.0 || alpha == 1.0
                       ? 0.0
                       : (POW + QM_U) * want + 2.0 * QM_ETA * scale + QM_ETA;
    char wanted[QM_WANT_TEXT];
    t->judged++;
    int is = isnan(want) ? isnan(got) : got == want || fabs(got - want) <= error;
    if (!is &&
        qm_finding_set(f, QM_BAD_WRONG,
                       "element %lld decodes to %a, want %s (code %d, scale %a, alpha %a)",
                       (long long)i, got, qm_want_text(want, error, wanted), code, scale, alpha))
        *where = i;
}

static void judge_element(const struct qm_slot_view *v, int slot, int64_t i, int64_t at,
                          const struct block *b, struct qm_tally *t, struct qm_finding *f,
                          int64_t *where)
{
    double scale = (double)v->scales[at], alpha = (double)v->scales[at + 1];
    int code = v->codes[i];
    struct codes c = {0, 0, 0};
    struct place p = {.is_zero = 1};
    if (!b->has_nan && (b->is_unknown || isfinite(scale) == b->is_infinite || !(scale > 0.0) ||
                        !(alpha >= 0.0 && alpha <= 1.0))) {
        t->unbounded += 2;
        return;
    }
    if (!b->has_nan) {
        p = place_of(v, i, scale, alpha);
        c = codes_of(v, &p);
        if (p.is_zero && p.y.low == 1.0 && !(p.is_one && qm_slot_quotient_is_near(v)))
            c.to = 0; /* the maximum itself */
    }
    enum qm_verdict is =
        code < v->d->n ? qm_verdict_code(code, c.at, c.from, c.to) : QM_VERDICT_WRONG;
    if (is == QM_VERDICT_BOUNDARY && qm_round_draws(v->d->q.round)) /* either end is right */
        is = QM_VERDICT_EQUAL;
    t->judged++;
    t->verdict[is]++;
    if (is >= QM_VERDICT_OFF_BY_ONE &&
        qm_finding_set(f, is == QM_VERDICT_WRONG ? QM_BAD_WRONG : QM_BAD_OFF_BY_ONE,
                       "element %lld has code %d, want code %d to %d: %a within %.3g, scale %a, "
                       "alpha %a, k %.9g to %.9g",
                       (long long)i, code, c.from, c.to, v->want[i], v->error[i], scale, alpha,
                       p.low, p.high)) {
        qm_finding_place(f, QM_PLACE_CODE, 0, i, 0.0, 0.0);
        for (int k = 0; k < 256; k++)
            f->takes[k] = k >= c.from && k <= c.to;
        *where = i;
    }
    if (b->has_nan) {
        t->judged++;
        if (!isnan(v->decoded[i]) &&
            qm_finding_set(f, QM_BAD_SPECIAL, "element %lld decodes to %a, want NaN", (long long)i,
                           (double)v->decoded[i]))
            *where = i;
        return;
    }
    if (is < QM_VERDICT_OFF_BY_ONE && qm_round_draws(v->d->q.round))
        count_draw(v, slot, &p, alpha, code, t);
    judge_value(v, i, scale, alpha, t, f, where);
}

void qm_slot_judge_quantile_log(const struct qm_slot_view *v, int slot, struct qm_tally *t,
                                struct qm_finding *f, int64_t *at)
{
    int64_t size = qm_slot_run(&v->d->q, v->shape);
    double *room = malloc(sizeof *room * (size_t)(size > 0 ? size : 1));
    for (int64_t from = 0, k = 0; from < v->n; from += size, k += NUMBERS) {
        int64_t n = v->n - from < size ? v->n - from : size;
        struct block b = block_of(v, from, n, room);
        if (b.is_infinite && isnan(v->scales[k])) { /* Inf - Inf in another form of the average */
            b.is_infinite = 0;
            b.has_nan = 1;
        }
        judge_numbers(v, &b, k, t, f, at);
        for (int64_t i = from; i < from + n; i++) {
            t->draw_error = 0.0f;
            judge_element(v, slot, i, k, &b, t, f, at);
            if (v->draw_error)
                v->draw_error[i] = t->draw_error;
        }
    }
    free(room);
}
