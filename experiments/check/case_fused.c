/* case_fused.c - Errors of decoded states whose last product is fused into the step.
 *
 * A judged side that may fuse (struct qm_reorder, fma) need not round the product of a code's value
 * and its scale before it enters the step's first sum.  The oracle starts from the rounded product,
 * so the bound starts with the distance between the two; the same for a reciprocal in the place of
 * a quotient that decodes. */
#include "experiments/check/case_run.h"

#include <math.h>
#include <string.h>

#include "experiments/check/slot_parts.h"

/* Curves qlog and expand: a power, here within an ulp and a product, in a judged side within two
 * ulp and a product (slot_quantile_log.c, slot_expand.c): 6 u in all.  Code 0 of qlog is the scale,
 * that of expand decodes to 0 or, by the exponent 0, to the centre.  The exponent 1 / k of expand
 * is rounded here, and may be a double there: u of it, times the logarithm of the power.  A power
 * of qlog below the normal range is a count of 2 eta, or none. */
static double power_error(const struct qm_slot_view *v, int64_t i)
{
    enum { NUMBERS = 3, CENTRE = 2, PAIR = 2 }; /* scale, k, c of a block of expand */
    double x = fabs((double)v->decoded[i]), by = 6.0 * QM_U, counts = 0.0;
    if (v->d->q.curve == QM_CURVE_qlog) {
        double scale = (double)v->scales[i / qm_slot_run(&v->d->q, v->shape) * PAIR];
        counts = x < 0x1p-126 * scale ? 2.0 * QM_ETA * scale : 0.0;
    }
    if (v->d->q.curve == QM_CURVE_expand && x > 0.0) {
        double c = (double)v->scales[i / v->d->q.block * NUMBERS + CENTRE];
        by += c > 0.0 ? QM_U * fabs(log(x / c)) : 0.0;
    }
    return v->codes[i] == 0 ? 0.0 : by * x + QM_ETA + counts;
}

/* Curve affine, code (hi - lo) / top + lo: here the span, its quotient and the product are rounded,
 * and the sum; a judged side may round none of them but the sum, or the reciprocal of top and one
 * product more. */
static double affine_error(const struct qm_slot_view *v, int64_t i)
{
    double x = (double)v->decoded[i], by = v->reorder.recip ? 5.0 : 3.0;
    double lo = (double)v->scales[2 * (i / qm_slot_run(&v->d->q, v->shape))];
    by += 2.0 * v->reorder.div_ulp;
    return QM_U * (by * fabs(x - lo) + 2.0 * fabs(x)) + QM_ETA;
}

/* The distance of element i's rounded value from the product that was rounded.  Curves end in a
 * product, too, of which only the size is used; log2 and allog end in an exponential. */
static double fused_error(const struct qm_slot_view *v, int64_t i, const struct qm_element_scale *s)
{
    const struct qm_decider *d = v->d;
    double x = (double)v->decoded[i], product;
    int position = d->position_of[v->codes[i]];
    if (isfinite(x) && (d->q.curve == QM_CURVE_qlog || d->q.curve == QM_CURVE_expand))
        return power_error(v, i);
    if (isfinite(x) && d->q.curve == QM_CURVE_affine)
        return affine_error(v, i);
    if (!isfinite(x) || d->q.curve == QM_CURVE_log2 || qm_slot_has_numbers(&d->q))
        return 0.0;
    if (x == 0.0 && position >= 0 && d->value[position] == 0.0 && d->slack[position] == 0.0)
        return 0.0; /* every product of a zero is one */
    if (position < 0 || !qm_decider_is_plain(&d->q) || s->first != 0.0 || d->slack[position] != 0.0)
        return QM_U * fabs(x) + QM_ETA;
    product = d->value[position] * s->stored;
    return fabs(product - x);
}

void qm_case_fused_errors(struct qm_case_run *r, const struct qm_case_plan *s, double *const *out)
{
    for (int k = 0; k < r->n_slots; k++) {
        struct qm_slot_view v = {.d = r->decider[k],
                                 .shape = &r->shape[k],
                                 .n = r->slot_n[k],
                                 .codes = s->codes[k],
                                 .scales = s->scales[k],
                                 .decoded = s->state[k],
                                 .reorder = r->s->reorder};
        memset(out[k], 0, sizeof *out[k] * (size_t)v.n);
        int is_unlike =
            v.reorder.fma || (v.d && v.d->q.curve == QM_CURVE_affine && v.reorder.recip);
        if (!v.d || !is_unlike || v.n == 0)
            continue;
        int64_t count = qm_groups_count(&v.d->q, v.shape, v.n);
        struct qm_element_scale scale = {0};
        memset(r->lo, 0, sizeof *r->lo * (size_t)count);
        memset(r->hi, 0, sizeof *r->hi * (size_t)count);
        memset(r->flag, 0, sizeof *r->flag * (size_t)count);
        for (int64_t i = 0, left = 0; i < v.n; i++, left--) {
            if (left <= 0 && !qm_slot_has_numbers(&v.d->q)) {
                scale = qm_element_scale_of(&v, i, r->lo, r->hi, r->flag, 0);
                left = qm_groups_stay(&v.d->q, v.shape, i);
            }
            out[k][i] = fused_error(&v, i, &scale);
        }
    }
}
