/* slot_unit.c - Computes an element's divisor and the interval of its unit value. */
#include "experiments/check/slot_parts.h"

#include <float.h>
#include <math.h>

/* The smaller one, or NaN where either is NaN. */
static double least(double a, double b) { return isnan(a) || isnan(b) ? (double)NAN : fmin(a, b); }

/* The two stored scales of an element; their product has 48 bits and is exact. */
static struct qm_element_scale two_scales(const struct qm_slot_view *v, const int64_t *group)
{
    double a = (double)v->scales[group[qm_slot_first_scale(&v->d->q)]];
    double b = (double)v->scales[group[!qm_slot_first_scale(&v->d->q)]];
    return (struct qm_element_scale){a * b, a * b, a * b, 1.0, 1.0, a, b, 0};
}

struct qm_element_scale qm_element_scale_of(const struct qm_slot_view *v, int64_t i,
                                            const double *lo, const double *hi, const int *flag,
                                            int is_wide)
{
    const struct qm_scale_rule *r = &v->d->q.scale;
    struct qm_element_scale s = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL, 0.0, 0.0, 0};
    int64_t group[QM_MAX_RANK];
    int count = qm_groups_of(&v->d->q, v->shape, i, group);
    if (qm_slot_has_two_scales(&v->d->q))
        return two_scales(v, group);
    for (int k = 0; k < count; k++) {
        int64_t b = group[k];
        double stored = (double)v->scales[b], low = stored, high = stored;
        if (is_wide || r->f16 == QM_F16_stored ||
            r->nest) { /* the divisor is the unrounded scale */
            low = qm_slot_divisor(v->d, lo[b], -qm_slot_quotient_error(v));
            high = qm_slot_divisor(v->d, hi[b], qm_slot_quotient_error(v));
            if ((flag[b] & QM_HAS_NAN && !r->max_skips_nan) || (flag[b] && isnan(stored)))
                low = high = (double)NAN; /* Inf - Inf or 0 Inf in the group is NaN, or it is Inf */
            else if (flag[b])
                high = HUGE_VAL;
        }
        if (!isnan(low)) {
            low = fmax(low, (double)r->guard);
            high = fmax(high, (double)r->guard);
        }
        s.divisor_low = least(s.divisor_low, low);
        s.divisor_high = least(s.divisor_high, high);
        s.stored = least(s.stored, stored);
        s.max_low = fmin(s.max_low, lo[b]);
        s.max_high = fmin(s.max_high, hi[b]);
        s.is_short = qm_slot_is_short(v, b);
    }
    if (count == 0)
        s = (struct qm_element_scale){1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0};
    return s;
}

/* The interval of the float32 unit value.  A division rounds once; a reciprocal and its product
 * round twice.  A reciprocal below the normal range has an absolute error of eta, which |x|
 * multiplies. */
static void unit_interval(const struct qm_slot_view *v, double x_low, double x_high,
                          const struct qm_element_scale *s, int divides, double *low, double *high)
{
    double one = qm_slot_quotient_error(v), below = one / QM_U * QM_ETA;
    double y, r, eta = divides ? below : QM_ETA + below * fmax(fabs(x_low), fabs(x_high));
    double relative = (one + (divides ? 0.0 : QM_U)) * (1.0 + 0x1p-20);
    *low = x_low / (x_low < 0.0 ? s->divisor_low : s->divisor_high);
    *high = x_high / (x_high < 0.0 ? s->divisor_high : s->divisor_low);
    y = *low;
    r = divides ? 1.0 : 1.0 / s->divisor_low;
    if (s->second != 0.0) { /* two divisions */
        double z = x_low / s->first;
        relative = 2.0 * one * (1.0 + 0x1p-20);
        eta += below / s->second;
        if (!(qm_is_float(z) && fma(z, s->first, -x_low) == 0.0))
            y = (double)NAN;
    }
    int exact = !(v->reorder.div_ulp > 0.0) && x_low == x_high &&
                s->divisor_low == s->divisor_high && qm_is_float(y) &&
                fma(y, s->divisor_low, -x_low) == 0.0 &&
                (divides || (qm_is_float(r) && fma(r, s->divisor_low, -1.0) == 0.0));
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
    divides &= !v->reorder.recip;        /* the bound of two roundings covers one */
    int has_inf = isinf(s->divisor_low); /* an Inf beside zeros makes the scale Inf, not 0 */
    if (q->scale.zero >= 0 && s->max_low == 0.0 && !has_inf)
        return s->max_high == 0.0 && isfinite(x) ? QM_KNOWN_ZERO_CODE : QM_KNOWN_NOTHING;
    if (isnan(x) || isnan(s->first) || isnan(s->second))
        return QM_KNOWN_NAN;
    if (isnan(s->divisor_low))
        return qm_slot_has_two_scales(q) ? QM_KNOWN_NOTHING
                                         : QM_KNOWN_NAN; /* the product 0 * Inf */
    if (qm_slot_has_two_scales(q) &&
        !(s->divisor_low > 0.0 && s->first < HUGE_VAL && s->second < HUGE_VAL))
        return QM_KNOWN_NOTHING;
    if (isinf(x)) /* Inf / Inf is NaN; a cap or no scale at all leaves Inf */
        return q->scale.cap != 0.0f || q->norm == QM_NORM_id ? QM_KNOWN_NOTHING : QM_KNOWN_NAN;
    if (!(e < HUGE_VAL))
        return QM_KNOWN_NOTHING;
    if (isinf(s->divisor_low)) {
        *low = *high = 0.0;
        return QM_KNOWN_INTERVAL;
    }
    qm_slot_fresh(v, i, low, high);
    if (s->divisor_low == 0.0)
        return s->divisor_high == 0.0 && *low == 0.0 && *high == 0.0 ? QM_KNOWN_NAN
                                                                     : QM_KNOWN_NOTHING;
    double steps = q->search == QM_SEARCH_arith ? 256.0 : 1.0;
    if (!divides && !(steps / s->divisor_low <= (double)FLT_MAX)) /* the reciprocal may be Inf */
        return QM_KNOWN_NOTHING;
    unit_interval(v, *low, *high, s, divides, low, high);
    return QM_KNOWN_INTERVAL;
}
