/* adafactor8bit_edges.c - Which codes of adafactor8bit the error of a number allows.
 *
 * A code may be the next one only where the number that was coded, which a rule's step shows before
 * its slots are encoded, lies within its error of the edge between the two.  How many are off says
 * nothing more: where gradients are sparse many numbers are the same one. */
#include "experiments/conform/adafactor8bit_edges.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/quant/adaptive_log.h"
#include "experiments/conform/adafactor8bit_tolerance.h"

/* ---- the numbers before they are coded ------------------------------------------------------ */

/* A static is the only way to hand them to the operations of a rule. */
static struct {
    const struct qm_tensor_ops *ops;
    const struct qm_rule *rule;
    float *const *x;
    float *step; /* what is taken off the parameters of a projected step, or NULL */
} seen;

static void keep(const struct qm_tensor_rule_args *w, int i)
{
    if (seen.x[i])
        memcpy(seen.x[i], w->slot[i],
               sizeof *w->slot[i] * (size_t)qm_shape_numel(&w->slot_shape[i]));
}

static qm_status states_seen(const struct qm_tensor_rule_args *w)
{
    QM_TRY(seen.ops->states(w));
    for (int i = 0; i < seen.rule->n_slots; i++)
        if (qm_rule_update_round(seen.rule, w, i) == w->round)
            keep(w, i);
    return QM_OK;
}

static qm_status apply_seen(const struct qm_tensor_rule_args *w)
{
    QM_TRY(seen.ops->apply(w));
    if (seen.step)
        memcpy(seen.step, w->room, sizeof *w->room * (size_t)qm_shape_numel(w->shape));
    for (int i = 0; i < seen.rule->n_slots; i++)
        if (qm_rule_encodes_again(seen.rule, w, i))
            keep(w, i);
    return QM_OK;
}

void qm_adafactor8_see(const struct qm_rule *rule, float *const *x, float *step,
                       struct qm_rule *out, struct qm_tensor_ops *ops)
{
    seen.step = step;
    seen.rule = rule;
    seen.ops = rule->tensor;
    seen.x = x;
    *ops = *rule->tensor;
    ops->states = states_seen;
    ops->apply = apply_seen;
    *out = *rule;
    out->tensor = ops;
}

/* ---- codes ---------------------------------------------------------------------------------- */

/* The least and the largest value of number k of slot i: a sum of projections is off by E, and its
 * square by 2 |x| E + E^2; a confidence by its counts; more: relative, of log2. */
static void ends_of(const struct qm_adafactor8_replay *r, int i, int64_t k, double x, double more,
                    double *low, double *high)
{
    double off = i == QM_ADAFACTOR8_V ? qm_adafactor8_projected_off(r, i, k) : 0.0;
    double of_square = off * (2.0 * sqrt(fabs(x)) + off), counts[2];
    qm_adafactor8_counts_of(r, i, k, counts);
    *low = fmax(x - of_square - counts[0], 0.0) * exp2(-more);
    *high = (x + of_square + counts[1]) * exp2(more);
    if (x > 0.0 && x < 0x1p-100) { /* counts of 2^-149 */
        *low = fmax(*low - 0x1p-149, 0.0);
        *high += 0x1p-149;
    }
}

/* The error of log2 of number k of a confidence besides that of its libraries. */
static double conf_off(const struct qm_adafactor8_replay *r, int i, int64_t k)
{
    int is_conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
    const double *of = is_conf ? r->off[i == QM_ADAFACTOR8_CONF_COL].of : NULL;
    double more = is_conf ? qm_adafactor8_end_error(r, i, NULL, k, 1, 0) : 0.0;
    if (!of)
        return more;
    return of[k] < 1.0 ? fmax(more, -log2(1.0 - of[k])) : HUGE_VAL;
}

/* The code of log2 x from -126 to -126 + span, in 255 parts, before it is rounded, `off` further
 * on; what is not above 2^-126 counts as that on both sides. */
static double log_position(double x, double span, double off)
{
    return x > 0x1p-126 ? fmin(fmax((log2(x) + 126.0) / span * 255.0 + off, 0.0), 255.0) : 0.0;
}

int qm_adafactor8_log_explains(const struct qm_adafactor8_replay *r, int i, int64_t k, float x,
                               float span, int64_t want)
{
    double more = conf_off(r, i, k), low, high;
    double error = qm_adafactor8_fixed_code_error(span, 0.0);
    if (!isfinite(x) || !(span > 0.0f) || !isfinite(span) || more == HUGE_VAL)
        return more == HUGE_VAL;
    ends_of(r, i, k, (double)x, more, &low, &high);
    return log_position(low, (double)span, -error) <= (double)want + 0.5 &&
           log_position(high, (double)span, error) >= (double)want - 0.5;
}

int qm_adafactor8_adaptive_explains(const struct qm_adafactor8_replay *r, int i, int64_t k, float x,
                                    const float *numbers, int levels, int64_t want)
{
    double more = conf_off(r, i, k), low, high;
    double error =
        qm_adafactor8_code_error(numbers, 0.0, levels) * (double)numbers[0] / (double)(levels - 2);
    if (!isfinite(x) || !isfinite(numbers[0]) || !isfinite(numbers[1]) || more == HUGE_VAL)
        return more == HUGE_VAL;
    ends_of(r, i, k, (double)x, more + error, &low, &high);
    return qm_adaptive_log_code((float)low, numbers[0], numbers[1], levels) <= want &&
           qm_adaptive_log_code((float)high, numbers[0], numbers[1], levels) >= want;
}

int qm_adafactor8_moment_is_zero(const struct qm_adafactor8_replay *r, int64_t t, int64_t k,
                                 float old)
{
    return (old == 0.0f || qm_adafactor8_keeps(r) == 0.0) &&
           (r->channels.of ? qm_adafactor8_projected_off(r, QM_ADAFACTOR8_M, k) == 0.0
                           : r->grads[(t - 1) * r->n + k] == 0.0f);
}

/* The error of number k of a momentum that has codes: 0 of one that is certainly 0, VALUE of its
 * two terms, E of a projection, and counts of 2^-149. */
static double moment_off(const struct qm_adafactor8_replay *r, int64_t t, int64_t k, float x,
                         float old)
{
    double now = fabs((double)x), before = fabs((double)old), b = fabs(qm_adafactor8_keeps(r)),
           taken = fmin(1.0 - r->recipe.hyper.beta1, 1.0);
    double share = fmax(qm_adafactor8_share_of(r), r->is_exp2 ? QM_STEP_EXP2_RELATIVE : 0.0);
    if (qm_adafactor8_moment_is_zero(r, t, k, old))
        return 0.0;
    return share * (fmax(now, (double)FLT_MIN) + 2.0 * b * before) + r->update_counts +
           taken * (qm_adafactor8_projected_off(r, QM_ADAFACTOR8_M, k) +
                    (r->direction ? r->direction[k] : 0.0));
}

int qm_adafactor8_moment_explains(const struct qm_adafactor8_replay *r,
                                  const struct qm_codec *codec, int64_t t, int64_t k, float x,
                                  float old, int64_t block, int64_t want)
{
    const struct qm_adafactor8_recorded *s = &r->slot[QM_ADAFACTOR8_M];
    double scale = fabs((double)s->scales[(t - 1) * s->n_scales + block]),
           off = moment_off(r, t, k, x, old);
    int at = want >= 0 && want < 256 ? codec->cb.position_of[want] : -1;
    if (!isfinite(x) || !isfinite(off) || !(scale > 0.0) || !isfinite(scale))
        return 0;
    return qm_code_of(codec, (float)(((double)x - off) / scale), 0) <= at &&
           qm_code_of(codec, (float)(((double)x + off) / scale), 0) >= at;
}

double qm_adafactor8_most_apart(const struct qm_adafactor8_replay *r, const struct qm_codec *codec,
                                int i, float span, int64_t k, const int64_t pair[2])
{
    int is_conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL, at[2];
    const double *of = is_conf ? r->off[i == QM_ADAFACTOR8_CONF_COL].of : NULL;
    if (qm_adafactor8_projected_off(r, i, k) > 0.0)
        return HUGE_VAL;
    if (of)
        return of[k] < 1.0 ? 1.0 + (qm_adafactor8_counts_log(r, i, k, 1) - log2(1.0 - of[k])) *
                                       255.0 / (double)span
                           : HUGE_VAL;
    for (int j = 0; j < 2; j++)
        at[j] = pair[j] >= 0 && pair[j] < 256 ? codec->cb.position_of[pair[j]] : -1;
    int is_across = codec->q.search == QM_SEARCH_lower && abs(at[0] - at[1]) == 2 &&
                    at[0] + at[1] == 2 * codec->cb.zero;
    return is_across ? 2.0 : 1.0;
}

void qm_adafactor8_judge_explained(struct qm_conform *c, const char *what, int is_explained,
                                   int64_t k, int64_t got, int64_t want)
{
    if (!is_explained)
        qm_golden_case_differs(c,
                               "%s[%lld]: got 0x%02llx, want 0x%02llx, whose edge is further "
                               "away than its error",
                               what, (long long)k, (unsigned long long)got,
                               (unsigned long long)want);
}
