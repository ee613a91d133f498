/* slot_codes.c - a verdict on every code, and on what it decodes to. */
#include "experiments/check/slot_parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

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
    else if (fma(y, scale, -x) == 0.0 && qm_is_float(x))
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
                          const struct qm_element_scale *s, struct qm_tally *t,
                          struct qm_finding *f, int64_t *at)
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
static int is_allowed(const struct qm_slot_view *v, int64_t i, const struct qm_element_scale *s,
                      int position)
{
    const struct qm_decider *d = v->d;
    double low = (double)NAN, high = low;
    enum qm_unit_known known = qm_slot_unit_of(v, i, s, &low, &high);
    struct qm_tally *none = NULL;
    enum after what[3];
    if (known == QM_KNOWN_NOTHING)
        return 1;
    if (known == QM_KNOWN_INTERVAL)
        return verdict(d, 0, low, high, position, none) <= QM_VERDICT_BOUNDARY;
    int want = known == QM_KNOWN_ZERO_CODE ? d->position_of[d->q.scale.zero] : d->nan_position;
    int n = signs(d, v->want[i], v->want[i], what), is = 0;
    for (int k = 0; k < n; k++)
        is |= position == moved(d, want, what[k]);
    return is;
}

/* Where a wrong code is, and which ones a step may leave there: beside the stored scale, and beside
 * any that the fresh state allows unless that would take the wrong one too. */
void qm_slot_place_code(const struct qm_slot_view *v, int64_t i, const struct qm_element_scale *s,
                        const struct qm_element_scale *wide, struct qm_finding *f)
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
int qm_slot_judge_code(const struct qm_slot_view *v, int slot, int64_t i,
                       const struct qm_element_scale *s, struct qm_tally *t, struct qm_finding *f,
                       int64_t *at)
{
    static const int severity[] = {
        [QM_VERDICT_OFF_BY_ONE] = QM_BAD_OFF_BY_ONE, [QM_VERDICT_WRONG] = QM_BAD_WRONG};
    const struct qm_decider *d = v->d;
    int position = d->position_of[v->codes[i]], want;
    double low = (double)NAN, high = low;
    enum qm_unit_known known = qm_slot_unit_of(v, i, s, &low, &high);
    enum qm_verdict is = QM_VERDICT_WRONG;
    t->judged++;
    want = known == QM_KNOWN_ZERO_CODE ? d->position_of[d->q.scale.zero] : d->nan_position;
    if (position < 0) {
        t->verdict[QM_VERDICT_WRONG]++;
        if (qm_finding_set(f, QM_BAD_WRONG, "element %lld has code %d, which does not exist",
                           (long long)i, v->codes[i])) {
            *at = i;
            return 1;
        }
        return 0;
    }
    if (known == QM_KNOWN_NOTHING) {
        t->judged--;
        t->unbounded++;
        judge_decoded(v, i, position, s, t, f, at);
        return 0;
    }
    if (known == QM_KNOWN_INTERVAL) {
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
    if (d->q.search == QM_SEARCH_ladder && known == QM_KNOWN_INTERVAL && is == QM_VERDICT_EQUAL)
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
