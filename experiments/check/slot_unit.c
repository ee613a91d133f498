/* slot_unit.c - what an element is divided by, and the interval of its unit value. */
#include "experiments/check/slot_parts.h"

#include <float.h>
#include <math.h>

static double least(double a, double b) { return isnan(a) || isnan(b) ? (double)NAN : fmin(a, b); }

/* The stored scales of an element that has two; their product has 48 bits. */
static struct qm_element_scale two_scales(const struct qm_slot_view *v, const int64_t *group)
{
    double a = (double)v->scales[group[qm_slot_first(&v->d->q)]];
    double b = (double)v->scales[group[!qm_slot_first(&v->d->q)]];
    return (struct qm_element_scale){a * b, a * b, a * b, 1.0, 1.0, a, b, 0};
}

/* is_wide: whatever scale is stored, from the fresh state alone. */
struct qm_element_scale qm_element_scale_of(const struct qm_slot_view *v, int64_t i,
                                            const double *lo, const double *hi, const int *flag,
                                            int is_wide)
{
    const struct qm_scale_rule *r = &v->d->q.scale;
    struct qm_element_scale s = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL, 0.0, 0.0, 0};
    int64_t group[QM_MAX_RANK];
    int count = qm_groups_of(&v->d->q, v->shape, i, group);
    if (qm_slot_is_twice(&v->d->q))
        return two_scales(v, group);
    for (int k = 0; k < count; k++) {
        int64_t b = group[k];
        double stored = (double)v->scales[b], low = stored, high = stored;
        if (is_wide || r->f16 == QM_F16_stored || r->nest) { /* divided by the unrounded one */
            low = qm_slot_divisor(v->d, lo[b], -qm_slot_quotient_error(v));
            high = qm_slot_divisor(v->d, hi[b], qm_slot_quotient_error(v));
            if (flag[b] & QM_HAS_NAN && !r->max_skips_nan)
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
        s.is_short = qm_slot_is_short(v, b);
    }
    if (count == 0)
        s = (struct qm_element_scale){1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0};
    return s;
}

/* The interval of the float32 unit value.  A division rounds once, a reciprocal and its product
 * twice; a reciprocal below the normal range errs by eta, times |x|. */
static void unit_interval(const struct qm_slot_view *v, double x_low, double x_high,
                          const struct qm_element_scale *s, int divides, double *low, double *high)
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
        if (!(qm_is_float(z) && fma(z, s->first, -x_low) == 0.0))
            y = (double)NAN;
    }
    int exact = !(v->reorder.div_ulp > 0.0) && x_low == x_high && s->by_low == s->by_high &&
                qm_is_float(y) && fma(y, s->by_low, -x_low) == 0.0 &&
                (divides || (qm_is_float(r) && fma(r, s->by_low, -1.0) == 0.0));
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

enum qm_unit_known qm_slot_unit_of(const struct qm_slot_view *v, int64_t i,
                                   const struct qm_element_scale *s, double *low, double *high)
{
    const struct qm_quantizer *q = &v->d->q;
    double x = v->want[i], e = v->error[i];
    int divides = q->unit == QM_UNIT_div || (q->unit == QM_UNIT_recip_tail && s->is_short);
    divides &= !v->reorder.recip; /* two roundings cover the one */
    if (q->scale.zero >= 0 && s->max_low == 0.0)
        return s->max_high == 0.0 && isfinite(x) ? QM_KNOWN_ZERO_CODE : QM_KNOWN_NOTHING;
    if (isnan(x) || isnan(s->first) || isnan(s->second))
        return QM_KNOWN_NAN;
    if (isnan(s->by_low))
        return qm_slot_is_twice(q) ? QM_KNOWN_NOTHING : QM_KNOWN_NAN; /* 0 times Inf */
    if (qm_slot_is_twice(q) && !(s->by_low > 0.0 && s->first < HUGE_VAL && s->second < HUGE_VAL))
        return QM_KNOWN_NOTHING;
    if (isinf(x)) /* Inf / Inf; a cap or no scale at all leaves Inf */
        return q->scale.cap != 0.0f || q->norm == QM_NORM_id ? QM_KNOWN_NOTHING : QM_KNOWN_NAN;
    if (!(e < HUGE_VAL))
        return QM_KNOWN_NOTHING;
    if (isinf(s->by_low)) {
        *low = *high = 0.0;
        return QM_KNOWN_INTERVAL;
    }
    qm_slot_fresh(v, i, low, high);
    if (s->by_low == 0.0)
        return s->by_high == 0.0 && *low == 0.0 && *high == 0.0 ? QM_KNOWN_NAN : QM_KNOWN_NOTHING;
    double steps = q->search == QM_SEARCH_arith ? 256.0 : 1.0;
    if (!divides && !(steps / s->by_low <= (double)FLT_MAX)) /* the reciprocal may be Inf */
        return QM_KNOWN_NOTHING;
    unit_interval(v, *low, *high, s, divides, low, high);
    return QM_KNOWN_INTERVAL;
}
