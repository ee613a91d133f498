/* slot_scales.c - Folds the groups' maxima into intervals, and judges every stored scale. */
#include "experiments/check/slot_parts.h"

#include <float.h>
#include <math.h>

#include "core/base/half.h"
#include "oracle/codebook/codebook.h"

/* The curve that is applied before the scale is taken; *error: its bound.  Curves are monotone.
 * log2 x + 126 has an error of 4 u (|log2 x| + 126) at most.  A root is rounded correctly, so that
 * of the square of a float32 is exact, unless roots are approximate. */
static double curved(const struct qm_slot_view *v, double x, double *error)
{
    double log_x, root;
    switch (v->d->q.curve) {
    case QM_CURVE_log2:
        log_x = log2(fmax(x, 0x1p-126));
        *error = 4.0 * QM_U * (fabs(log_x) + 126.0);
        return log_x + 126.0;
    case QM_CURVE_sqrt:
        root = sqrt(fmax(x, 0.0));
        *error = fma(root, root, -x) == 0.0 && qm_is_float(root) && !(v->reorder.rsqrt_ulp > 0.0)
                     ? 0.0
                     : QM_U * root;
        return root;
    default: *error = 0.0; return x;
    }
}

void qm_slot_fresh(const struct qm_slot_view *v, int64_t i, double *low, double *high)
{
    double error;
    *low = curved(v, v->want[i] - v->error[i], &error);
    *low -= error;
    *high = curved(v, v->want[i] + v->error[i], &error);
    *high += error;
}

void qm_slot_fold_quotients(const struct qm_slot_view *v, double *lo, double *hi, int *flag)
{
    int64_t group[2];
    for (int64_t i = 0; i < v->n; i++) {
        qm_groups_of(&v->d->q, v->shape, i, group);
        int64_t b = group[!qm_slot_first_scale(&v->d->q)];
        double by = (double)v->scales[group[qm_slot_first_scale(&v->d->q)]];
        double x = fabs(v->want[i]), e = v->error[i];
        if (isnan(by) || isnan(x) || (by == 0.0 && x == 0.0)) { /* 0 / 0 is NaN too */
            flag[b] |= QM_HAS_NAN;
        } else if (!isfinite(by) || by == 0.0 || !isfinite(x) || !(e < HUGE_VAL)) {
            flag[b] |= QM_HAS_UNBOUNDED;
        } else {
            lo[b] = fmax(lo[b], (x - e) / by * (1.0 - 2.0 * QM_U) - QM_ETA);
            hi[b] = fmax(hi[b], (x + e) / by * (1.0 + 2.0 * QM_U) + QM_ETA);
        }
    }
}

void qm_slot_fold(const struct qm_slot_view *v, double *lo, double *hi, int *flag)
{
    int64_t group[QM_MAX_RANK], remaining = 0; /* elements that share group */
    int count = 0;
    for (int64_t i = 0; i < v->n; i++, remaining--) {
        int what = 0;
        if (remaining <= 0) {
            count = qm_groups_of(&v->d->q, v->shape, i, group);
            remaining = qm_groups_stay(&v->d->q, v->shape, i);
            if (qm_slot_has_two_scales(&v->d->q)) {
                group[0] = group[qm_slot_first_scale(&v->d->q)];
                count = 1;
            }
        }
        double low = 0.0, high = 0.0, least = 0.0, most = 0.0;
        if (isnan(v->want[i]))
            what = QM_HAS_NAN;
        else if (isinf(v->want[i]))
            what = QM_HAS_INF | (v->before && isfinite(v->before[i]) ? QM_HAS_SURE_INF : 0);
        else if (!(v->error[i] < HUGE_VAL))
            what = QM_HAS_UNBOUNDED;
        else
            qm_slot_fresh(v, i, &low, &high);
        most = fmax(fabs(low), fabs(high));
        least = low > 0.0 || high < 0.0 ? fmin(fabs(low), fabs(high)) : 0.0;
        for (int k = 0; k < count; k++) {
            lo[group[k]] = fmax(lo[group[k]], least);
            hi[group[k]] = fmax(hi[group[k]], what == QM_HAS_UNBOUNDED ? HUGE_VAL : most);
            flag[group[k]] |= what;
        }
    }
}

double qm_slot_divisor(const struct qm_decider *d, double m, double rounding)
{
    const struct qm_scale_rule *r = &d->q.scale;
    if (r->plus != 0.0 && qm_is_float(m))
        m = qm_round_float32(m + r->plus);
    else if (r->plus != 0.0) /* an end of an interval */
        m += r->plus + (rounding < 0.0 ? -1.0 : 1.0) * (QM_U * (m + r->plus) + QM_ETA);
    m = fmax(m, (double)r->floor);
    if (r->cap != 0.0f)
        m = fmin(m, (double)r->cap);
    return d->gain == 1.0 ? m : m * d->gain * (1.0 + rounding) + rounding / QM_U * QM_ETA;
}

/* The nearest float16, and whether x is one. */
static double to_half(double x) { return (double)qm_round_f16((float)x); }
static int is_half(double x) { return to_half(x) == x; }

/* Largest distance of a point of [-1, 1] from its value of the nested map, with the error of the
 * table search. */
static double nested_error(void)
{
    double value[256], widest = 0.0;
    int n = qm_oracle_codebook("dyn", 8, 1, value);
    for (int k = 0; k + 1 < n; k++)
        widest = fmax(widest, 0.5 * (value[k + 1] - value[k]));
    return fmax(widest, 1.0 + value[0]) + 2.0 / 65535.0;
}

int qm_slot_is_short(const struct qm_slot_view *v, int64_t group)
{
    int64_t run = qm_slot_run(&v->d->q, v->shape);
    return run > 0 && (group + 1) * run > v->n;
}

static int must_be_nonfinite(const struct qm_quantizer *q, int flag)
{
    if (q->scale.cap != 0.0f && flag & QM_HAS_INF)
        return 0;
    return (flag & (QM_HAS_NAN | QM_HAS_INF) && !q->scale.max_skips_nan) || flag & QM_HAS_SURE_INF;
}

/* 1: every scale is allowed, because an element may have overflowed, or Inf may have become NaN. */
static int may_be_anything(const struct qm_quantizer *q, int flag)
{
    return flag & QM_HAS_UNBOUNDED ||
           (flag & QM_HAS_INF &&
            ((q->scale.max_skips_nan && !(flag & QM_HAS_SURE_INF)) || q->scale.cap != 0.0f));
}

/* The interval of stored scale b from the interval [*low, *high] of its group's maximum. */
static void stored_interval(const struct qm_slot_view *v, int64_t b, double *low, double *high)
{
    const struct qm_quantizer *q = &v->d->q;
    double by = qm_slot_quotient_error(v);
    if (v->reorder.recip) /* a rounded reciprocal, and the product */
        by = (by + QM_U) * (1.0 + QM_U);
    *low = qm_slot_divisor(v->d, *low, -by);
    *high = qm_slot_divisor(v->d, *high, by);
    if (q->unit == QM_UNIT_recip_tail && qm_slot_is_short(v, b)) {
        *low = fmax(*low, (double)q->scale.guard);
        *high = fmax(*high, (double)q->scale.guard);
    }
    if (q->scale.f16) {
        *low = to_half(*low);
        *high = to_half(*high);
    }
}

/* Judges the scale of a group with NaN or Inf; 1: it became the finding. */
static int judge_nonfinite(const struct qm_slot_view *v, int64_t b, struct qm_finding *f)
{
    double got = (double)v->scales[b];
    if (!isfinite(got) ||
        !qm_finding_set(f, QM_BAD_SPECIAL, "scale %lld is %a, want NaN or Inf: the group has one",
                        (long long)b, got))
        return 0;
    qm_finding_place(f, QM_PLACE_SCALE, 0, b, (double)NAN, (double)NAN);
    return 1;
}

/* Judges a scale against [low - slack, high + slack]; 1: it became the finding. */
static int judge_finite(const struct qm_slot_view *v, int64_t b, double low, double high,
                        double slack, struct qm_tally *t, struct qm_finding *f)
{
    int is_f16 = v->d->q.scale.f16 != 0;
    double got = (double)v->scales[b];
    double middle = 0.5 * (low + high), half = 0.5 * (high - low) + slack;
    if (half > 0.0)
        t->worst_ratio = fmax(t->worst_ratio, fmin(fabs(got - middle) / half, 1.0));
    if (got >= low - slack && got <= high + slack && !(is_f16 && !is_half(got)))
        return 0;
    if (!qm_finding_set(f, QM_BAD_SCALE, "scale %lld is %a, want %s%a to %a", (long long)b, got,
                        is_f16 ? "a float16 from " : "", low - slack, high + slack))
        return 0;
    qm_finding_place(f, QM_PLACE_SCALE, 0, b, low - slack, high + slack);
    return 1;
}

/* Judges a float16 scale that may overflow, so that it is from `low` to Inf; 1: it became the
 * finding. */
static int judge_half_overflow(const struct qm_slot_view *v, int64_t b, double low,
                               struct qm_finding *f)
{
    double got = (double)v->scales[b];
    if ((got >= low && is_half(got)) ||
        !qm_finding_set(f, QM_BAD_SCALE, "scale %lld is %a, want a float16 from %a to inf",
                        (long long)b, got, low))
        return 0;
    qm_finding_place(f, QM_PLACE_SCALE, 0, b, low, HUGE_VAL);
    return 1;
}

/* Nested scales are stored minus their mean, in 8 bits of the largest distance from it; the
 * reciprocal of this distance is Inf below 2^-128.  Each may be off by `slack`. */
void qm_slot_judge_scales(const struct qm_slot_view *v, const double *lo, const double *hi,
                          const int *flag, int64_t count, struct qm_tally *t, struct qm_finding *f,
                          int64_t *at)
{
    const struct qm_quantizer *q = &v->d->q;
    double top = 0.0, slack = 0.0;
    int any = 0;
    for (int64_t b = 0; b < count; b++) {
        top = fmax(top, 2.0 * hi[b]);
        any |= flag[b];
    }
    if (q->scale.nest)
        slack = (nested_error() + 4.0 * QM_U) * top + 0x1p-126;
    for (int64_t b = 0; b < count; b++) {
        double low = lo[b], high = hi[b];
        stored_interval(v, b, &low, &high);
        int overflows = q->scale.f16 && isinf(high) && hi[b] < HUGE_VAL && !flag[b];
        if (may_be_anything(q, flag[b]) || (q->scale.nest && any) ||
            (high > (double)FLT_MAX && !overflows)) {
            t->unbounded++;
            continue;
        }
        t->judged++;
        if (overflows)
            *at = judge_half_overflow(v, b, low, f) ? -1 : *at;
        else if (must_be_nonfinite(q, flag[b]) ? judge_nonfinite(v, b, f)
                                               : judge_finite(v, b, low, high, slack, t, f))
            *at = -1;
    }
}
