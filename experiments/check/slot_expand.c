/* slot_expand.c - Judges a slot of curve expand, and decides its OFF_BY_ONE.
 *
 * A block keeps its scale, the exponent k and the centre c of its powers.  core/quant/expand.h
 * defines the format; no code of it takes part here.  There are five decisions.  Each starts from
 * the numbers that are stored before it, so that none carries the slack of another.  With x the
 * fresh state, M and L the block's statistics raised by plus:V, s the steps of expand:s:
 *
 *   k      floor(log2(100352) / log2(M / L) s) / s: an interval of whole multiples, from the
 *          intervals of M and L; infinite where M / L may be 1
 *   c      sqrt(M) sqrt(L): an interval
 *   scale  (M / c)^k / 448 from the stored k and c: an interval; 0, 1/448 or infinite where
 *          k is
 *   code   of (|x| / c)^k / scale from the stored numbers, with the sign of x: an interval of unit
 *          values, which check/decide.h decides; NaN for Inf / Inf and 0 / 0
 *   value  |v scale|^(1 / k) c from the stored code, whose value is v, and numbers
 *
 * Quotients, products and roots round once.  A logarithm or power has an error of two ulp, 4 u
 * relative, and of a power below the normal range 2 eta more.  L is the result of a reduction that
 * a zero may change, so each of its numbers is an interval with a note whether it may be zero.
 * So a tie of codes is not told from its neighbours, unless the power is exact (of 1, or k = 0), as
 * that of the centre is, which class exact plants on ties (gradient.c): what a kernel makes of a
 * tie after any other power is not judged.
 * A block that has an infinity for certain has k = 0, so that every power is 1, and decodes to
 * infinities.  One with a fresh state that may overflow is not judged. */
#include "experiments/check/slot_parts.h"

#include <float.h>
#include <math.h>

enum { NUMBERS = 3, LANES = 32 }; /* stored per block: scale, k, c; lanes of a warp */

static const double LIBRARY = 4.0 * QM_U, TOP = 448.0, RANGE = 100352.0;

/* ---- statistics ------------------------------------------------------------------------------ */

/* What a lane of the reduction may hold: NaN, zero, a positive number of an interval. */
struct lane {
    struct qm_interval of;
    int is_nan, zero, positive;
};

/* A block's fresh state: the intervals of its statistics, raised by plus:V. */
struct block {
    struct qm_interval most, least;
    int is_unknown, is_nan; /* is_nan: every element */
    int is_infinite;        /* the maximum is, and the minimum is not */
    int nan_for_inf;        /* the infinities of its elements have become NaN */
};

/* The fresh state of element i.  Inf - Inf in another form of an average makes NaN of an Inf. */
static double fresh(const struct qm_slot_view *v, int64_t i, int nan_for_inf)
{
    return nan_for_inf && isinf(v->want[i]) ? (double)NAN : v->want[i];
}

/* Lane `own` takes the minimum with an incoming number that is not zero; 0: what it holds then is
 * not known. */
static int take(struct lane *own, const struct lane *in)
{
    if (in->is_nan || !in->positive)
        return 1;
    if (own->is_nan) {
        *own = *in;
        return !in->zero;
    }
    own->of.low = fmin(own->of.low, in->of.low);
    own->of.high = in->zero ? own->of.high : fmin(own->of.high, in->of.high);
    return 1;
}

static int reduce(struct lane *lane)
{
    int known = 1;
    for (int d = LANES / 2; d > 0; d /= 2)
        for (int l = 0; l + d < LANES; l++)
            known &= take(&lane[l], &lane[l + d]);
    return known;
}

static struct lane constant(double x) { return (struct lane){{x, x}, 0, 0, 1}; }

static struct lane lane_of(double x, double e)
{
    e = isinf(x) ? 0.0 : e;
    double low = fabs(x) - e, high = fabs(x) + e;
    return (struct lane){{fmax(low, QM_ETA), high}, isnan(x), !(low > 0.0), high > 0.0};
}

/* The reduction of n elements from `from` on; 0: unknown. */
static int least_of(const struct qm_slot_view *v, int64_t from, int64_t n, int nan_for_inf,
                    struct lane *out)
{
    struct lane warp[LANES];
    int known = 1;
    for (int64_t w = 0; w < LANES; w++) {
        struct lane lane[LANES];
        for (int64_t l = 0; l < LANES; l++) {
            int64_t i = w * LANES + l;
            lane[l] = i < n ? lane_of(fresh(v, from + i, nan_for_inf), v->error[from + i])
                            : constant((double)FLT_MAX);
        }
        if (w * LANES < n)
            known &= reduce(lane);
        warp[w] = w * LANES < n ? lane[0] : constant(1e9);
    }
    known &= reduce(warp);
    *out = warp[0];
    return known && !out->is_nan;
}

/* The float32 number nearest to x + plus. */
static struct qm_interval raised(struct qm_interval x, double plus)
{
    if (x.low == x.high) {
        double sum = qm_round_float32(x.low + plus);
        return (struct qm_interval){sum, sum};
    }
    return (struct qm_interval){fmax((x.low + plus) * (1.0 - QM_U) - QM_ETA, 0.0),
                                (x.high + plus) * (1.0 + QM_U) + QM_ETA};
}

static struct block block_of(const struct qm_slot_view *v, int64_t from, int64_t n, int nan_for_inf)
{
    struct block b = {.is_nan = 1, .nan_for_inf = nan_for_inf};
    struct lane least = {{0.0, 0.0}, 0, 0, 0};
    double plus = v->d->q.scale.plus;
    for (int64_t i = from; i < from + n; i++) {
        double x = fabs(fresh(v, i, nan_for_inf)), e = isinf(x) ? 0.0 : v->error[i];
        b.is_infinite |= isinf(x) != 0;
        b.is_unknown |= isfinite(x) && !(x + e <= (double)FLT_MAX);
        if (isnan(x))
            continue;
        b.is_nan = 0;
        b.most.low = fmax(b.most.low, x - e);
        b.most.high = fmax(b.most.high, x + e);
    }
    if (b.is_unknown)
        return b;
    b.is_unknown = !least_of(v, from, n, nan_for_inf, &least);
    b.least.low = least.zero ? 0.0 : least.of.low;
    b.least.high = least.positive ? least.of.high : 0.0;
    b.most = raised(b.most, plus);
    b.least = raised(b.least, plus);
    b.is_unknown |= !(b.least.low > 0.0) || !(b.most.low > 0.0);
    b.is_unknown |= b.is_infinite && !(b.least.high <= (double)FLT_MAX);
    return b;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* a / b: one float32, or an interval. */
static struct qm_interval quotient(const struct qm_slot_view *v, struct qm_interval a, double low,
                                   double high)
{
    double by = qm_slot_quotient_error(v), off = by / QM_U * QM_ETA;
    if (isinf(a.low)) /* over a finite number */
        return a;
    if (v->reorder.recip) /* a rounded reciprocal, and the product */
        by += QM_U, off += QM_ETA * a.high;
    double q = a.low / low;
    int is_power = !(v->reorder.div_ulp > 0.0) && qm_has_exact_reciprocal(low);
    if (a.low == a.high && low == high && (is_power || !qm_slot_quotient_is_near(v)))
        return (struct qm_interval){qm_round_float32(q), qm_round_float32(q)};
    return (struct qm_interval){fmax(a.low / high * (1.0 - by) - off, 0.0),
                                a.high / low * (1.0 + by) + off};
}

/* log2(RANGE) / log2(ratio) s, with its error towards `sign`. */
static double multiples(const struct qm_slot_view *v, double ratio, double sign)
{
    double by = 2.0 * LIBRARY + 2.0 * QM_U + qm_slot_quotient_error(v), q;
    if (ratio > (double)FLT_MAX)
        return 0.0;
    q = ratio == 1.0 ? HUGE_VAL : log2(RANGE) / log2(ratio) * (double)v->d->q.expand;
    return isinf(q) ? q : q + sign * by * fabs(q);
}

static struct qm_interval exponent_of(const struct qm_slot_view *v, const struct block *b)
{
    struct qm_interval r = quotient(v, b->most, b->least.low, b->least.high), k;
    int is_element = b->least.high <= b->most.high; /* the minimum; else it may be 1e9 */
    if ((v->reorder.div_ulp > 0.0 || !is_element) && r.low < 1.0 && r.high > 1.0)
        return (struct qm_interval){-HUGE_VAL, HUGE_VAL}; /* either sign of the logarithm */
    if (!b->is_nan && is_element)                         /* at most the maximum */
        r.low = fmax(r.low, 1.0), r.high = fmax(r.high, 1.0);
    k.low = floor(multiples(v, r.high, -1.0)) / (double)v->d->q.expand;
    k.high = floor(multiples(v, r.low, 1.0)) / (double)v->d->q.expand;
    if (qm_slot_quotient_is_near(v) && r.high > (double)FLT_MAX && r.low > 1.0) {
        double s = (double)v->d->q.expand; /* a ratio in double does not overflow */
        k.high = fmax(k.high, floor(log2(RANGE) / log2(r.low) * s) / s);
    }
    return (struct qm_interval){fmin(k.low, k.high), fmax(k.low, k.high)};
}

/* t^k of an end of an interval, t >= 0, with the error of a library towards `sign`. */
static double power(double t, double k, double sign)
{
    double p = pow(t, k);
    if (t == 1.0 || k == 0.0 || isinf(k) || p == 0.0 || isinf(p))
        return p;
    p += sign * (LIBRARY * p + 2.0 * QM_ETA);
    return p > (double)FLT_MAX ? HUGE_VAL : fmax(p, 0.0);
}

static struct qm_interval powers(struct qm_interval t, double k)
{
    double low = k < 0.0 ? t.high : t.low, high = k < 0.0 ? t.low : t.high;
    return (struct qm_interval){power(low, k, -1.0), power(high, k, 1.0)};
}

/* Judges a number that may be infinite; 1: it became the finding. */
static int judge_number(double got, struct qm_interval want, const char *what, int64_t at,
                        struct qm_tally *t, struct qm_finding *f)
{
    if (isfinite(want.high))
        return qm_slot_judge_number(got, want, what, at, t, f);
    t->judged++;
    if (got >= want.low ||
        !qm_finding_set(f, QM_BAD_SCALE, "scale %lld, a block's %s, is %a, want %a to %a",
                        (long long)at, what, got, want.low, want.high))
        return 0;
    qm_finding_place(f, QM_PLACE_SCALE, 0, at, want.low, want.high);
    return 1;
}

static struct qm_interval widened(struct qm_interval x, double by)
{
    double low = isinf(x.low) ? 0.0 : by * fabs(x.low),
           high = isinf(x.high) ? 0.0 : by * fabs(x.high);
    return (struct qm_interval){x.low - low, x.high + high};
}

/* Whether k is a multiple of 1 / s, rounded or by an inexact division. */
static int is_multiple(const struct qm_slot_view *v, double k, double s)
{
    double off = v->reorder.div_ulp > 0.0 ? qm_slot_quotient_error(v) * fabs(k) : 0.0;
    return !isfinite(k) || fabs(k - qm_round_float32(rint(k * s) / s)) <= off;
}

static void judge_numbers(const struct qm_slot_view *v, const struct block *b, int64_t at,
                          struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    double scale = (double)v->scales[at], k = (double)v->scales[at + 1], s = v->d->q.expand;
    double c = (double)v->scales[at + 2], by = qm_slot_quotient_error(v);
    double root = v->reorder.rsqrt_ulp > 0.0 ? (2.0 * v->reorder.rsqrt_ulp + 1.0) * QM_U : QM_U;
    int found = 0;
    if (b->is_unknown) {
        t->unbounded += NUMBERS;
        return;
    }
    found |= judge_number(k, widened(exponent_of(v, b), by), "exponent", at + 1, t, f);
    if (!found && !is_multiple(v, k, s) &&
        qm_finding_set(f, QM_BAD_SCALE,
                       "scale %lld, a block's exponent, is %a: no multiple of 1/%g",
                       (long long)(at + 1), k, s)) {
        qm_finding_place(f, QM_PLACE_SCALE, 0, at + 1, (double)NAN, (double)NAN);
        found = 1;
    }
    struct qm_interval centre = {sqrt(b->most.low) * sqrt(b->least.low),
                                 sqrt(b->most.high) * sqrt(b->least.high)};
    centre = widened(centre, 2.0 * root + QM_U);
    centre.low -= QM_ETA, centre.high += QM_ETA;
    found |= judge_number(c, centre, "centre", at + 2, t, f);
    if (isinf(k) && qm_slot_quotient_is_near(v)) { /* a ratio beside 1 has any power; see is_free */
        t->unbounded++;
    } else if (b->is_infinite && k == 0.0) { /* (Inf / Inf)^0 is 1, too */
        struct qm_interval one = {1.0 / TOP, 1.0 / TOP};
        found |= judge_number(scale, widened(one, by), "scale", at, t, f);
    } else if (!isnan(k) && c > 0.0 && isfinite(c)) {
        struct qm_interval p = powers(quotient(v, b->most, c, c), k);
        p.low /= TOP, p.high /= TOP;
        found |= judge_number(scale, widened(p, by), "scale", at, t, f);
    } else {
        t->unbounded++;
    }
    *where = found ? -1 : *where;
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* The magnitude of an element's unit value; the signs that it may have. */
struct unit {
    struct qm_interval of;
    int may_be_nan, is_nan, plus, minus;
};

static struct unit unit_of(const struct qm_slot_view *v, int64_t i, int nan_for_inf,
                           const float *number)
{
    double x = fresh(v, i, nan_for_inf), e = v->error[i], scale = (double)number[0],
           k = (double)number[1];
    double c = (double)number[2], by = qm_slot_quotient_error(v), off = by / QM_U * QM_ETA;
    e = isinf(x) ? 0.0 : e;
    struct unit u = {.plus = x + e > 0.0 || x == 0.0, .minus = x - e < 0.0 || x == 0.0};
    struct qm_interval size = {fmax(fabs(x) - e, 0.0), fabs(x) + e}, y;
    if (isinf(x)) /* or NaN, without a sign */
        u.plus = u.minus = 1;
    if (isnan(x)) {
        u.is_nan = u.may_be_nan = k != 0.0;
        u.plus = u.minus = 1;
        size.low = size.high = 1.0; /* NaN^0 = 1 */
    }
    y = powers(u.is_nan ? size : quotient(v, size, c, c), k);
    if (isinf(scale) || scale == 0.0) { /* finite / Inf = 0, x / 0 = Inf; else NaN */
        int is_inf = isinf(scale);
        u.may_be_nan |= is_inf ? isinf(y.high) : y.low == 0.0;
        u.is_nan |= is_inf ? isinf(y.low) : y.high == 0.0;
        u.of.low = u.of.high = is_inf ? 0.0 : HUGE_VAL;
        return u;
    }
    if (y.low == 1.0 && y.high == 1.0 &&
        !(v->reorder.div_ulp > 0.0)) { /* a reciprocal either way */
        u.of.low = u.of.high = qm_round_float32(1.0 / scale);
        return u;
    }
    u.of.low = fmax(y.low / scale * (1.0 - by) - (y.low > 0.0 ? off : 0.0), 0.0);
    u.of.high = y.high / scale * (1.0 + by) + (y.high > 0.0 ? off : 0.0);
    return u;
}

static enum qm_verdict verdict(const struct qm_slot_view *v, int slot, const struct unit *u,
                               int position, struct qm_tally *t)
{
    const struct qm_decider *d = v->d;
    enum qm_verdict best = QM_VERDICT_WRONG;
    if (position == d->nan_position)
        return u->may_be_nan ? QM_VERDICT_EQUAL : QM_VERDICT_WRONG;
    if (position < 0 || u->is_nan)
        return QM_VERDICT_WRONG;
    if (u->plus != u->minus) {
        double low = u->plus ? u->of.low : -u->of.high, high = u->plus ? u->of.high : -u->of.low;
        return qm_slot_verdict(d, slot, low, high, position, t);
    }
    for (int sign = -1; sign <= 1; sign += 2) {
        enum qm_verdict is = qm_slot_verdict(d, slot, sign > 0 ? u->of.low : -u->of.high,
                                             sign > 0 ? u->of.high : -u->of.low, position, NULL);
        best = is < best ? is : best;
    }
    return best;
}

/* ---- decoded values -------------------------------------------------------------------------- */

static void judge_value(const struct qm_slot_view *v, int64_t i, const float *number,
                        struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    const struct qm_decider *d = v->d;
    double scale = (double)number[0], k = (double)number[1], c = (double)number[2];
    double value = fabs(d->value[d->position_of[v->codes[i]]]), got = (double)v->decoded[i];
    double y = qm_round_float32(copysign(value, v->codes[i] & 0x80 ? -1.0 : 1.0) * scale),
           a = qm_round_float32(1.0 / k);
    double p = pow(fabs(y), a), want = p * c, error; /* NaN^0 = 1 */
    int is_exact = a == 0.0 || fabs(y) == 1.0 || isinf(a) || p == 0.0;
    error = is_exact ? 0.0 : (LIBRARY + QM_U) * want + 2.0 * QM_ETA * c + QM_ETA;
    if (!is_exact && v->reorder.div_ulp > 0.0)
        error += want * fabs(a * log(fabs(y))) * qm_slot_quotient_error(v);
    int is_infinite = error == 0.0 && isinf(c) && isinf(want);
    if (want + error > (double)FLT_MAX && !is_infinite) {
        t->unbounded++;
        return;
    }
    t->judged++;
    if (!isnan(y) && (signbit(y) != 0) != (signbit(got) != 0))
        got = want != 0.0 ? -HUGE_VAL : fabs(got); /* a wrong sign */
    char wanted[QM_WANT_TEXT];
    int is = isnan(want)   ? isnan(got)
             : is_infinite ? fabs(got) == want
                           : fabs(fabs(got) - want) <= error;
    if (!is &&
        qm_finding_set(f, isnan(want) ? QM_BAD_SPECIAL : QM_BAD_WRONG,
                       "element %lld decodes to %a, want %s%s (code %d, scale %a, exponent %a, "
                       "centre %a)",
                       (long long)i, (double)v->decoded[i],
                       isnan(y)     ? "+-"
                       : signbit(y) ? "-"
                                    : "",
                       qm_want_text(want, error, wanted), v->codes[i], scale, k, c))
        *where = i;
}

/* ---- elements -------------------------------------------------------------------------------- */

/* Whether any code of the right sign and any scale will do: by an infinite exponent k all decode to
 * c or -c, as y^0 is 1, and a judged side whose quotient is not exact may find 0, 1 or Inf for a
 * ratio beside 1. */
static int is_free(const struct qm_slot_view *v, const float *number)
{
    return isinf(number[1]) && qm_slot_quotient_is_near(v);
}

/* Whether a code, of an element with the signs of u, has another sign; NaN has none. */
static int has_other_sign(const struct qm_decider *d, const struct unit *u, int code)
{
    return !isnan(d->value[d->position_of[code]]) && u->plus != u->minus &&
           (code & 0x80 ? u->plus : u->minus);
}

/* Judges the sign of a code that is free otherwise. */
static void judge_sign(const struct qm_slot_view *v, const struct unit *u, int64_t i, double k,
                       struct qm_tally *t, struct qm_finding *f, int64_t *where)
{
    const struct qm_decider *d = v->d;
    if (u->is_nan || !has_other_sign(d, u, v->codes[i])) {
        t->unbounded++;
        return;
    }
    t->judged++;
    t->verdict[QM_VERDICT_WRONG]++;
    if (qm_finding_set(f, QM_BAD_WRONG,
                       "element %lld has code %d, whose sign is not that of %a: by the exponent %a "
                       "every code decodes to the centre with its own sign",
                       (long long)i, v->codes[i], v->want[i], k)) {
        qm_finding_place(f, QM_PLACE_CODE, 0, i, 0.0, 0.0);
        for (int c = 0; c < 256; c++)
            f->takes[c] = d->position_of[c] >= 0 && !has_other_sign(d, u, c);
        *where = i;
    }
}

static void judge_element(const struct qm_slot_view *v, int slot, int64_t i, int64_t at,
                          const struct block *b, struct qm_tally *t, struct qm_finding *f,
                          int64_t *where)
{
    const float *number = v->scales + at;
    const struct qm_decider *d = v->d;
    int code = v->codes[i], position = d->position_of[code];
    int is_infinite = b->is_infinite && !b->is_unknown && number[1] == 0.0f;
    if (isnan(number[0]) || isnan(number[1]) || !(number[2] > 0.0f) ||
        (isinf(number[2]) && !is_infinite)) {
        t->unbounded += 2;
        return;
    }
    struct unit u = unit_of(v, i, b->nan_for_inf, number);
    if (b->is_unknown || is_free(v, number)) {
        if (b->is_unknown)
            t->unbounded++;
        else
            judge_sign(v, &u, i, (double)number[1], t, f, where);
        judge_value(v, i, number, t, f, where);
        return;
    }
    enum qm_verdict is = verdict(v, slot, &u, position, t);
    t->judged++;
    t->verdict[is]++;
    if (is >= QM_VERDICT_OFF_BY_ONE &&
        qm_finding_set(f, is == QM_VERDICT_WRONG ? QM_BAD_WRONG : QM_BAD_OFF_BY_ONE,
                       "element %lld has code %d (%a), want the code of %s%a to %a%s: %a within "
                       "%.3g, scale %a, exponent %a, centre %a",
                       (long long)i, code, d->value[position], u.plus ? u.minus ? "+-" : "" : "-",
                       u.of.low, u.of.high,
                       u.is_nan       ? ", NaN"
                       : u.may_be_nan ? " or NaN"
                                      : "",
                       v->want[i], v->error[i], (double)number[0], (double)number[1],
                       (double)number[2])) {
        qm_finding_place(f, QM_PLACE_CODE, 0, i, 0.0, 0.0);
        for (int k = 0; k < 256; k++)
            f->takes[k] = verdict(v, slot, &u, d->position_of[k], NULL) <= QM_VERDICT_BOUNDARY;
        *where = i;
    }
    judge_value(v, i, number, t, f, where);
}

void qm_slot_judge_expand(const struct qm_slot_view *v, int slot, struct qm_tally *t,
                          struct qm_finding *f, int64_t *at)
{
    int64_t size = v->d->q.block;
    for (int64_t from = 0, k = 0; from < v->n; from += size, k += NUMBERS) {
        int64_t n = v->n - from < size ? v->n - from : size;
        struct block b = block_of(v, from, n, 0);
        if (b.is_infinite && !isinf(v->scales[k + 2]))
            b = block_of(v, from, n, 1);
        judge_numbers(v, &b, k, t, f, at);
        for (int64_t i = from; i < from + n; i++) {
            t->draw_error = 0.0f;
            judge_element(v, slot, i, k, &b, t, f, at);
            if (v->draw_error)
                v->draw_error[i] = t->draw_error;
        }
    }
}
