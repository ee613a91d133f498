/* slot_codes.c - Judges codes (decides OFF_BY_ONE, by oracle/bound/verdict.c) and their values. */
#include "experiments/check/slot_parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Counts a draw of stochastic rounding where the place within the cell is known to 2^-10 of the
 * cell. */
static void count_up(const struct qm_decider *d, int slot, double low, double high, int position,
                     struct qm_tally *t)
{
    double y = 0.5 * (low + high), share;
    int k = 0, end = d->n > 2 ? d->n - 2 : 0; /* values ascend; NaN, if there is one, is last */
    while (k < end) {
        int middle = (k + end) / 2;
        if (y >= d->value[middle + 1])
            k = middle + 1;
        else
            end = middle;
    }
    double gap = d->value[k + 1] - d->value[k];
    int is_low = low <= d->value[k] && d->value[k] <= high;
    if (is_low || (low <= d->value[k + 1] && d->value[k + 1] <= high)) {
        if (high - low <= 0x1p-18 * gap)
            qm_tally_still(t, slot, (high - low) / gap, position != (is_low ? k : k + 1));
        return;
    }
    if (!(low >= d->value[k] && high <= d->value[k + 1] && high - low <= 0x1p-10 * gap))
        return;
    share = (y - d->value[k]) / gap;
    qm_tally_draw(t, slot, share, 0.5 * (high - low) / gap, position > k, low < 0.0);
}

/* The change of a decided position: none, or the change that keepsign makes where x > 0 (POSITIVE),
 * where x has its sign bit set (NEGATIVE), and where x is 0 or NaN without one (ZERO). */
enum sign_change { AS_IT_IS, POSITIVE, NEGATIVE, ZERO };

static int moved(const struct qm_decider *d, int k, enum sign_change what)
{
    int sign = k < d->n_negative;
    if (what == AS_IT_IS || sign == (what == NEGATIVE))
        return k;
    return what == POSITIVE ? k + 1 : k > 0 ? k - 1 : d->n - 1;
}

/* Distance of position k from the nearest position that a unit value in [low, high] may get; 0:
 * allowed. */
static int distance(const struct qm_decider *d, double low, double high, enum sign_change what,
                    int k)
{
    int from, to, best = d->n;
    qm_decider_range(d, low, high, &from, &to);
    for (int i = from; i <= to; i++) {
        int off = abs(k - moved(d, i, what));
        best = off < best ? off : best;
    }
    return best;
}

/* The changes that a value in [low, high] may meet, by its signs; returns how many.  For zero and
 * for NaN either sign is allowed, because the sign depends on the order of operations.  Whether an
 * infinity became a NaN depends on it, too; a NaN counts as positive. */
static int signs(const struct qm_decider *d, double low, double high, enum sign_change what[3])
{
    int n = 0;
    what[0] = AS_IT_IS;
    if (!d->q.scale.keep_sign)
        return 1;
    if (high > 0.0)
        what[n++] = POSITIVE;
    if (!(low > 0.0))
        what[n++] = NEGATIVE;
    if ((!(low > 0.0) && !(high < 0.0)) || isinf(low) || isinf(high))
        what[n++] = ZERO;
    return n;
}

enum qm_verdict qm_slot_verdict(const struct qm_decider *d, int slot, double low, double high,
                                int position, struct qm_tally *t)
{
    enum sign_change what[3];
    int best = d->n, from, to, at;
    if (!d->q.scale.keep_sign && !qm_round_draws(d->q.round)) {
        qm_decider_range(d, low, high, &from, &to);
        at = from < to ? qm_decider_at(d, 0.5 * (low + high)) : from;
        return qm_verdict_code(position, at, from, to);
    }
    at = qm_decider_at(d, 0.5 * (low + high));
    if (t && t->is_planted && qm_round_draws(d->q.round)) {
        /* The float32 sum of a place in the cell and of a draw is rounded by 2^-24 of a sum up to
         * 2: by 2^-23 of the cell, which is at most 2 |y| wide at its outer end. */
        low -= 0x1p-22 * fabs(low);
        high += 0x1p-22 * fabs(high);
    }
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
    if (best == 0 && low == 0.0 && high == 0.0) /* +0 and -0 are both EQUAL */
        at = position;
    return qm_verdict_code(position, at, position - best, position - best);
}

/* Decoding rounds once per operation; an error of 2^y follows from the derivative of exp2.  The
 * slack of a table value enters softsign with the derivative 2 / (2 - |y|)^2 <= 2, and sqrt with
 * 2 x. */
double qm_slot_value(const struct qm_slot_view *v, int position, const struct qm_element_scale *s,
                     double *error)
{
    const struct qm_decider *d = v->d;
    double scale = s->stored, first = s->first;
    double value = d->value[position], slack = d->slack[position] * scale;
    double y = d->q.curve == QM_CURVE_softsign ? value / (2.0 - fabs(value)) : value, x = y * scale;
    *error = QM_U * fabs(x) + QM_ETA;
    if (first != 0.0) /* multiplied by one scale, then by the other */
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
    double scale = s->stored, error, want = qm_slot_value(v, position, s, &error);
    double got = (double)v->decoded[i];
    if (isnan(v->d->value[position])) { /* the code means NaN under every scale */
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
    char wanted[QM_WANT_TEXT];
    if (isfinite(scale) ? !(fabs(got - want) <= error) : isfinite(got))
        if (qm_finding_set(f, isfinite(scale) ? QM_BAD_WRONG : QM_BAD_SPECIAL,
                           "element %lld decodes to %a, want %s (code value %a, scale %a)",
                           (long long)i, got, qm_want_text(want, error, wanted),
                           v->d->value[position], scale))
            *at = i;
}

/* 1: element i may have the code of this position. */
static int is_allowed(const struct qm_slot_view *v, int64_t i, const struct qm_element_scale *s,
                      int position)
{
    const struct qm_decider *d = v->d;
    double low = (double)NAN, high = low;
    enum qm_unit_known known = qm_slot_unit_of(v, i, s, &low, &high);
    struct qm_tally *none = NULL;
    enum sign_change what[3];
    if (known == QM_KNOWN_NOTHING)
        return 1;
    if (known == QM_KNOWN_INTERVAL)
        return qm_slot_verdict(d, 0, low, high, position, none) <= QM_VERDICT_BOUNDARY;
    int want = known == QM_KNOWN_ZERO_CODE ? d->position_of[d->q.scale.zero] : d->nan_position;
    int n = signs(d, v->want[i], v->want[i], what), is = 0;
    for (int k = 0; k < n; k++)
        is |= position == moved(d, want, what[k]);
    return is;
}

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
        is = qm_slot_verdict(d, slot, low, high, position, t);
        if (severity[is])
            want = qm_decider_at(d, 0.5 * (low + high));
    } else {
        enum sign_change what[3];
        int n = signs(d, v->want[i], v->want[i], what);
        for (int k = 0; k < n; k++)
            is = position == moved(d, want, what[k]) ? QM_VERDICT_EQUAL : is;
        want = n > 0 ? moved(d, want, what[0]) : want;
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
