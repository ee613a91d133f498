/* slot_affine.c - Judges a slot of curve affine, and decides its OFF_BY_ONE.
 *
 * A block keeps its ends lo and hi.  core/quant/affine.h defines the format; no code of it takes
 * part here.  There are four decisions.  Each starts from the numbers that are stored before it, so
 * that none carries the slack of another.  With x the fresh state and top the largest code:
 *
 *   lo, hi  the least and the largest x, rounded to bfloat16 where the format says so: intervals,
 *           from the intervals of the fresh state
 *   code    round((x - lo) / u) within 0 .. top, u = (hi - lo) / top, in balls from the stored ends
 *   value   code u + lo in balls, from the stored code and ends
 *
 * Equal ends have code 0 alone, and so has a block with an infinite end, all of whose values are
 * NaN. */
#include "experiments/check/slot_parts.h"

#include <math.h>

#include "oracle/bound/bound.h"
#include "oracle/bound/verdict.h"

enum { NUMBERS = 2 }; /* stored per block: lo, hi */

static const struct qm_float_format bf16 = QM_FORMAT_bf16;

struct block {
    struct qm_interval least, most;
    int has_nan, is_unknown, is_infinite; /* is_infinite: an end is, for certain */
};

static double end_of(const struct qm_slot_view *v, double x)
{
    return v->d->q.scale.f16 == QM_F16_bf16 ? qm_float_format_round(&bf16, x) : x;
}

static struct block block_of(const struct qm_slot_view *v, int64_t from, int64_t n)
{
    struct block b = {{HUGE_VAL, HUGE_VAL}, {-HUGE_VAL, -HUGE_VAL}, 0, 0, 0};
    for (int64_t i = from; i < from + n; i++) {
        double x = v->want[i], e = v->error[i];
        b.has_nan |= isnan(x);
        b.is_infinite |= isinf(x) != 0;
        b.is_unknown |= isfinite(x) && !(e < HUGE_VAL);
        e = isinf(x) ? 0.0 : e;
        if (isnan(x) || !(e < HUGE_VAL))
            continue;
        b.least.low = fmin(b.least.low, x - e);
        b.least.high = fmin(b.least.high, x + e);
        b.most.low = fmax(b.most.low, x - e);
        b.most.high = fmax(b.most.high, x + e);
    }
    double *const end[] = {&b.least.low, &b.least.high, &b.most.low, &b.most.high};
    for (int k = 0; k < 4; k++)
        *end[k] = end_of(v, *end[k]);
    b.is_unknown |= b.least.low != b.least.high && isinf(b.least.low);
    b.is_unknown |= b.most.low != b.most.high && isinf(b.most.high);
    return b;
}

static void judge_ends(const struct qm_slot_view *v, const struct block *b, int64_t at,
                       struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    double lo = (double)v->scales[at], hi = (double)v->scales[at + 1];
    if (b->has_nan) {
        t->judged += NUMBERS;
        if (!(isnan(lo) && isnan(hi)) &&
            qm_finding_set(f, QM_BAD_SPECIAL, "scales %lld and the next are %a and %a, want NaN",
                           (long long)at, lo, hi)) {
            qm_finding_place(f, QM_PLACE_SCALE, 0, isnan(lo) ? at + 1 : at, (double)NAN,
                             (double)NAN);
            *where = -1;
        }
        return;
    }
    if (b->is_unknown) {
        t->unbounded += NUMBERS;
        return;
    }
    int found = qm_slot_judge_number(lo, b->least, "least element", at, t, f);
    found |= qm_slot_judge_number(hi, b->most, "largest element", at + 1, t, f);
    for (int k = 0; k < NUMBERS; k++) {
        double got = k ? hi : lo;
        if (got != end_of(v, got) &&
            qm_finding_set(f, QM_BAD_SCALE, "scale %lld is %a, which is no bfloat16",
                           (long long)(at + k), got)) {
            qm_finding_place(f, QM_PLACE_SCALE, 0, at + k, end_of(v, got), end_of(v, got));
            found = 1;
        }
    }
    *where = found ? -1 : *where;
}

/* The codes from .. to that element i may get, and that of the middle. */
struct codes {
    int from, to, at;
};

/* The whole number that q is rounded to, of the rounds that do not draw. */
static double whole(enum qm_round round, double q)
{
    double k = floor(q), part = q - k;
    switch (round) {
    case QM_ROUND_near: return floor(q + 0.5);
    case QM_ROUND_mid: return part > 0.5 ? k + 1.0 : k;
    case QM_ROUND_even: return rint(q);
    case QM_ROUND_away: return copysign(floor(fabs(q) + 0.5), q);
    case QM_ROUND_floor: return k;
    case QM_ROUND_ceil: return ceil(q);
    case QM_ROUND_stoch:
    case QM_ROUND_bernoulli:
    case QM_ROUND_dither:
    case QM_ROUND_COUNT: break;
    }
    return (double)NAN;
}

static int clipped(double k, int top) { return !(k > 0.0) ? 0 : k > top ? top : (int)k; }

/* u; exact where it is a float32 and span times the rounded reciprocal of top gives it, too: then
 * ties of codes are exact under every order that is allowed. */
static struct qm_ball unit_of(const struct qm_slot_view *v, double lo, double hi)
{
    struct qm_ball span = qm_ball_add(qm_ball_exact(hi), qm_ball_exact(-lo));
    double top = (double)(v->d->n - 1), u = span.x / top;
    int is_exact = span.e == 0.0 && u * top == span.x && qm_is_float(u) &&
                   qm_round_float32(span.x * qm_round_float32(1.0 / top)) == u;
    if (is_exact && !(v->reorder.div_ulp > 0.0))
        return qm_ball_exact(u);
    return qm_ball_div(&v->reorder, span, qm_ball_exact((double)(v->d->n - 1)));
}

/* 0: nothing is known. */
static int codes_of(const struct qm_slot_view *v, int64_t i, double lo, double hi, struct codes *c)
{
    const struct qm_ball x = {v->want[i], v->error[i]};
    int top = v->d->n - 1;
    *c = (struct codes){0, 0, 0};
    if (lo == hi)
        return 1;
    struct qm_ball q =
        qm_ball_div(&v->reorder, qm_ball_add(x, qm_ball_exact(-lo)), unit_of(v, lo, hi));
    if (v->d->q.round == QM_ROUND_near) /* the sum with 1/2 is rounded, too */
        q = qm_ball_add(q, qm_ball_exact(0.5));
    enum qm_round round = v->d->q.round == QM_ROUND_near ? QM_ROUND_floor : v->d->q.round;
    if (!isfinite(q.x) || !(q.e < HUGE_VAL))
        return 0;
    c->from = clipped(whole(round, q.x - q.e), top);
    c->to = clipped(whole(round, q.x + q.e), top);
    c->at = clipped(whole(round, q.x), top);
    return 1;
}

static void judge_value(const struct qm_slot_view *v, int64_t i, double lo, double hi, int has_nan,
                        struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    int code = v->codes[i];
    double got = (double)v->decoded[i];
    struct qm_ball want = qm_ball_add(qm_ball_mul(qm_ball_exact((double)code), unit_of(v, lo, hi)),
                                      qm_ball_exact(lo));
    if (!has_nan && !(want.e < HUGE_VAL)) {
        t->unbounded++;
        return;
    }
    t->judged++;
    int is = has_nan ? isnan(got) : fabs(got - want.x) <= want.e;
    char wanted[QM_WANT_TEXT];
    if (!is && qm_finding_set(
                   f, has_nan ? QM_BAD_SPECIAL : QM_BAD_WRONG,
                   "element %lld decodes to %a, want %s (code %d, between %a and %a)", (long long)i,
                   got, qm_want_text(has_nan ? (double)NAN : want.x, want.e, wanted), code, lo, hi))
        *where = i;
}

static void judge_element(const struct qm_slot_view *v, int64_t i, int64_t at, int has_nan,
                          struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    double lo = (double)v->scales[at], hi = (double)v->scales[at + 1];
    int code = v->codes[i], known = isfinite(v->want[i]) && isfinite(lo) && isfinite(hi);
    struct codes c = {0, 0, 0}; /* the only code of a block with NaN or Inf */
    if (!has_nan && !(known && codes_of(v, i, lo, hi, &c))) {
        t->unbounded += 2;
        return;
    }
    enum qm_verdict is =
        code < v->d->n ? qm_verdict_code(code, c.at, c.from, c.to) : QM_VERDICT_WRONG;
    t->judged++;
    t->verdict[is]++;
    if (is >= QM_VERDICT_OFF_BY_ONE &&
        qm_finding_set(f, is == QM_VERDICT_WRONG ? QM_BAD_WRONG : QM_BAD_OFF_BY_ONE,
                       "element %lld has code %d, want code %d to %d: %a within %.3g, between %a "
                       "and %a",
                       (long long)i, code, c.from, c.to, v->want[i], v->error[i], lo, hi)) {
        qm_finding_place(f, QM_PLACE_CODE, 0, i, 0.0, 0.0);
        for (int k = 0; k < 256; k++)
            f->takes[k] = k >= c.from && k <= c.to;
        *where = i;
    }
    judge_value(v, i, lo, hi, has_nan, t, f, where);
}

void qm_slot_judge_affine(const struct qm_slot_view *v, struct qm_tally *t, struct qm_finding *f,
                          int64_t *at)
{
    int64_t size = qm_slot_run(&v->d->q, v->shape);
    for (int64_t from = 0, k = 0; from < v->n; from += size, k += NUMBERS) {
        int64_t n = v->n - from < size ? v->n - from : size;
        struct block b = block_of(v, from, n);
        judge_ends(v, &b, k, t, f, at);
        for (int64_t i = from; i < from + n; i++)
            judge_element(v, i, k, b.has_nan || (b.is_infinite && !b.is_unknown), t, f, at);
    }
}
