/* adafactor8bit_tolerance.c - Computes the tolerances of adafactor8bit's steps. */
#include "experiments/conform/adafactor8bit_tolerance.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The distance between the two sides' unrounded adaptive log codes, of a block with these two
 * numbers: the two libraries' logarithms differ by 2 ulp of the largest each, the averages by VALUE
 * and by `more` (of log2). */
double qm_adafactor8_code_error(const float *numbers, double more, int levels)
{
    double span = (double)numbers[0], low = (double)numbers[1];
    double off = 4.0 * 2.0 * QM_STEP_U * fmax(fabs(low), fabs(low + span)) +
                 1.45 * QM_STEP_VALUE_LARGEST + more;
    double error = (off / span + 3.0 * QM_STEP_U) * (double)(levels - 2);
    return isfinite(error) ? error : 0.0;
}

/* The same of codes that divide [-126, -126 + span] by 255. */
double qm_adafactor8_fixed_code_error(float span, double more)
{
    double off = 4.0 * 2.0 * QM_STEP_U * 126.0 + 1.45 * QM_STEP_VALUE_LARGEST + more;
    double error = (off / fmax((double)span, 1e-3) + 3.0 * QM_STEP_U) * 255.0;
    return isfinite(error) ? error : 0.0;
}

double qm_adafactor8_conf_error(const struct qm_adafactor8_replay *r)
{
    double norm = r->products > 0 ? 0.0 : QM_STEP_NORM(r->n) + r->mean_counts;
    return r->cancels * (QM_STEP_CONF_LARGEST + 4.5 * QM_STEP_U * (double)r->products + norm);
}

double qm_adafactor8_end_error(const struct qm_adafactor8_replay *r, int i, const float *x,
                               int64_t from, int64_t n, int is_least)
{
    if (i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL) {
        double off = fmax(qm_adafactor8_conf_error(r), r->off[i == QM_ADAFACTOR8_CONF_COL].most);
        return -log2(1.0 - fmin(off, 0.5));
    }
    return i == QM_ADAFACTOR8_V ? qm_adafactor8_squares_end_off(r, x, from, n, is_least) : 0.0;
}

/* The relative error of an update, and of a momentum of updates or projections. */
double qm_adafactor8_share_of(const struct qm_adafactor8_replay *r)
{
    double rank = r->terms > 0 ? r->recipe.hyper.rank : 0.0;
    double low = rank > 0.0 ? rank * (double)(r->n / r->terms) : 0.0;
    int has_conf = r->slot[QM_ADAFACTOR8_CONF_ROW].n > 0;
    double conf = has_conf ? 0.5 * (qm_adafactor8_conf_error(r) - QM_STEP_CONF_LARGEST) : 0.0;
    return conf + r->norm_off + r->mean_counts + QM_STEP_PARAM_SHARE +
           4.0 * QM_STEP_U * (double)r->terms + 3.0 * QM_STEP_NORM(r->n) + 2.0 * QM_STEP_NORM(low);
}

/* SMALL, relative to the largest update: of gradients or, where the step goes along an average of
 * gradients, of its numbers, of which `most` is the largest. */
static double small_of(const struct qm_adafactor8_replay *r, double most)
{
    return qm_match_subnormal(most, r->slot[QM_ADAFACTOR8_ROW].n > 0 ? r->n : 1);
}

static double small_gradients(const struct qm_adafactor8_replay *r, int64_t t)
{
    return small_of(r, qm_match_largest(r->grads + (t - 1) * r->n, r->n));
}

double qm_adafactor8_keeps(const struct qm_adafactor8_replay *r)
{
    int is_reset = r->terms > 0 && !r->is_026;
    return is_reset ? 0.0 : r->recipe.hyper.beta1;
}

void qm_adafactor8_find_small(struct qm_adafactor8_replay *r, int64_t t, const float *before,
                              const float *after)
{
    double small = small_gradients(r, t), most = 0.0, keeps = qm_adafactor8_keeps(r);
    int64_t n = r->slot[QM_ADAFACTOR8_M].n;
    for (int64_t k = 0; r->is_update && small > 0.0 && k < n; k++) {
        double added = fabs((double)after[k] - keeps * (double)before[k]);
        most = isfinite(added) ? fmax(most, added) : most;
    }
    double largest = n == r->n ? qm_match_largest(after, n) : 0.0;
    r->update_counts = small * most;
    r->small = n != r->n       ? small
               : !r->is_update ? small_of(r, largest)
               : largest > 0.0 ? fmin(r->update_counts / largest, small)
                               : small;
}

/* Of APOLLO to 0.2.6, whose step reads the second moment as it is stored: what codes that are off
 * by one make of a channel. */
static double channel_off(const struct qm_adafactor8_replay *r, int64_t k)
{
    return r->channel_off[r->recipe.hyper.tensor_scale ? 0 : qm_adafactor8_channel_of(r, k)];
}

double qm_adafactor8_element_off(const struct qm_adafactor8_replay *r, int64_t k)
{
    if (r->channel_off)
        return channel_off(r, k);
    if (!r->off[0].step || !r->off[1].step)
        return 0.0;
    int64_t rows = r->shape.dim[r->shape.rank - 2], cols = r->shape.dim[r->shape.rank - 1];
    double row = r->off[0].step[k / cols], col = r->off[1].step[k / cols / rows * cols + k % cols];
    double mean = r->mean_off[k / cols / rows];
    if (!(row < 0.5) || !(col < 0.5) || !(mean < 0.5))
        return HUGE_VAL;
    return 1.0 / sqrt((1.0 - row) * (1.0 - col) * (1.0 - mean)) - 1.0;
}

/* Shares of the squares of step t from before to p, without its decay: of elements that may be
 * anything, and of others each as far as it is uncertain. */
static void uncertain_shares(const struct qm_adafactor8_replay *r, const float *p,
                             const float *before, int64_t t, double share[2])
{
    const struct qm_hyper *h = &r->recipe.hyper;
    double sum = 0.0, off[2] = {0.0, 0.0}, decay = qm_adafactor8_decay_of(r, before);
    if (h->relative_step && fabs(h->lr) * sqrt((double)t) > 1.0)
        decay /= fabs(h->lr) * sqrt((double)t);
    for (int64_t k = 0; k < r->n; k++) {
        double d = (double)p[k] - (double)before[k] + decay * (double)before[k];
        double one = qm_adafactor8_element_off(r, k);
        if (!isfinite(d))
            continue;
        sum += d * d;
        off[one < HUGE_VAL] += fmin(one, 1.0) * d * d;
    }
    for (int i = 0; i < 2 && sum > 0.0; i++)
        share[i] = fmax(share[i], off[i] / sum);
}

/* Steps of clipped updates have one norm on both sides.  Where elements that may be anything make
 * the share a of its square here and b there, the ratio of all others is
 * sqrt((1 - b) / (1 - a)). */
void qm_adafactor8_norm_off(struct qm_adafactor8_replay *r, const float *p, const float *want,
                            const float *before, int64_t t)
{
    double share[2] = {0.0, 0.0};
    if (r->channel_off || (r->off[0].step && r->off[1].step)) {
        uncertain_shares(r, p, before, t, share);
        uncertain_shares(r, want, before, t, share);
    }
    r->norm_off = 1.0 / sqrt(1.0 - fmin(share[0], 1.0 - 0x1p-20)) - 1.0 + share[1];
}

/* A code of second moments apart is `scale / 255` of log2(v), half of it of a number of the adapted
 * gradient; the norm of the rank numbers of a channel is off by no more than the worst of them. */
int qm_adafactor8_channels_off(struct qm_conform *c, struct qm_adafactor8_replay *r,
                               const uint8_t *codes, int64_t t)
{
    const struct qm_adafactor8_recorded *s = &r->slot[QM_ADAFACTOR8_V];
    int64_t rows = r->shape.dim[0], cols = r->n / rows;
    int64_t channels = rows >= cols ? rows : cols;
    int64_t block = qm_recipe_slot(&r->recipe, QM_ADAFACTOR8_V, &r->shape).block;
    double *off = qm_golden_case_memory(c, channels, sizeof *off);
    if (!off)
        return 0;
    r->channel_off = NULL;
    for (int64_t k = 0; k < channels; k++)
        off[k] = 0.0;
    for (int64_t k = 0; k < s->n; k++) {
        int64_t apart = (int64_t)codes[k] - s->codes[(t - 1) * s->n + k];
        double scale = (double)s->scales[(t - 1) * s->n_scales + k / block];
        int64_t channel = qm_adafactor8_projected_channel(r, k);
        double one = exp2(fabs((double)apart) * scale / 510.0) - 1.0;
        if (apart == 0 || !(one > 0.0))
            continue;
        channel = r->recipe.hyper.tensor_scale ? 0 : channel;
        off[channel] = fmax(off[channel], one);
        r->channel_off = off;
    }
    return 1;
}

/* Row of the values after step t (from 1), or -1. */
int64_t qm_adafactor8_row_of(const struct qm_adafactor8_recorded *s, int64_t t)
{
    for (int64_t k = 0; s->kept && k < s->n_kept; k++)
        if ((int64_t)s->kept[k] == t - 1)
            return k;
    return s->kept ? -1 : t - 1;
}

/* The size of what step t keeps of the largest float32 momentum before it, which the update may
 * cancel, so that the momentum is off by its share, too; 0 of codes. */
static double adafactor8_kept_of(const struct qm_adafactor8_replay *r, int64_t t)
{
    const struct qm_adafactor8_recorded *s = &r->slot[QM_ADAFACTOR8_M];
    if (s->codes || !s->values || t < 2 || qm_adafactor8_row_of(s, t - 1) < 0)
        return 0.0;
    return fabs(qm_adafactor8_keeps(r)) *
           qm_match_largest(s->values + qm_adafactor8_row_of(s, t - 1) * s->n, s->n);
}

double qm_adafactor8_average_off(const struct qm_adafactor8_replay *r, int64_t t)
{
    const struct qm_adafactor8_recorded *s = &r->slot[QM_ADAFACTOR8_M];
    double kept = adafactor8_kept_of(r, t);
    if (kept == 0.0 || qm_adafactor8_row_of(s, t) < 0)
        return 0.0;
    double now = qm_match_largest(s->values + qm_adafactor8_row_of(s, t) * s->n, s->n);
    double share = r->is_update ? qm_adafactor8_share_of(r) : QM_STEP_VALUE_LARGEST;
    return now > 0.0 ? fmin(share * kept / now, 2.0) : 2.0;
}

double qm_adafactor8_decay_of(const struct qm_adafactor8_replay *r, const float *before)
{
    const struct qm_hyper *h = &r->recipe.hyper;
    return fabs(h->weight_decay) *
           qm_adafactor8_rate_of(r, before, h->scale_parameter && h->scale_weight_decay);
}

static double size_of(float x) { return isfinite(x) ? fabs((double)x) : 0.0; }

/* Number k of a confidence: by its own terms, where they are known, but at most of the largest, and
 * by its counts of 2^-149; a number that is `shift` off may be no further from there. */
static double conf_allowed(const struct qm_adafactor8_replay *r, int i, int64_t k, double own,
                           double most, float want)
{
    const struct qm_adafactor8_off *o = &r->off[i == QM_ADAFACTOR8_CONF_COL];
    double norm = r->products > 0 ? 4.5 * QM_STEP_U * (double)r->products
                                  : QM_STEP_NORM(r->n) + r->mean_counts,
           all = qm_adafactor8_conf_error(r) * fmax(most, (double)FLT_MIN);
    if (!o->of)
        return all;
    double here = o->shift[k] != 0.0 ? (double)o->x[k] : 0.0;
    all = qm_adafactor8_conf_error(r) * fmax(fmax(most, here), (double)FLT_MIN);
    own = fmax(own, here); /* the package's may be 0 where all counts are here and not there */
    double near = fmin(all, (QM_STEP_CONF_LARGEST + norm + o->of[k]) * fmax(own, (double)FLT_MIN)) +
                  o->counts[k],
           away = (double)want - (double)o->x[k];
    return fabs(away - o->shift[k]) <= near ? fmax(near, fabs(away)) : near;
}

void qm_adafactor8_values_allowed(const struct qm_adafactor8_replay *r, int i, int64_t t,
                                  const float *got, double *allowed)
{
    const struct qm_adafactor8_recorded *s = &r->slot[i];
    int64_t row = qm_adafactor8_row_of(s, t), last = t > 1 ? qm_adafactor8_row_of(s, t - 1) : -1;
    const float *want = s->values + row * s->n, *old = last >= 0 ? s->values + last * s->n : NULL;
    int is_moment = i == QM_ADAFACTOR8_M, is_norm = i >= QM_ADAFACTOR8_NORM,
        is_conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
    double most = qm_match_largest(want, s->n), tiny = (double)FLT_MIN,
           most_old = old ? qm_match_largest(old, s->n) : 0.0,
           share = is_norm || (is_moment && r->is_update) ? qm_adafactor8_share_of(r)
                                                          : QM_STEP_VALUE_LARGEST,
           counts = QM_STEP_NORM_ABSOLUTE(r->n);
    int is_whole = t > 1 && !old; /* of the largest number */
    for (int64_t k = 0; k < s->n; k++) {
        double norm = size_of(got[k]), now = is_whole ? most : size_of(want[k]),
               before = is_whole ? most_old
                        : old    ? size_of(old[k])
                                 : 0.0;
        double own = fmax(now, before), off = qm_adafactor8_projected_off(r, i, k);
        if (is_conf)
            allowed[k] = conf_allowed(r, i, k, own, most, want[k]);
        else if (is_moment) /* its two terms, of which one may cancel the other */
            allowed[k] = share * (fmax(now, tiny) + 2.0 * fabs(qm_adafactor8_keeps(r)) * before) +
                         r->update_counts + fmin(1.0 - r->recipe.hyper.beta1, 1.0) * off +
                         (r->direction ? (1.0 - r->recipe.hyper.beta1) * r->direction[k] : 0.0);
        else if (is_norm)
            allowed[k] = (share + r->small + r->channels.norm_share + r->channels.norm_counts) *
                             fmax(norm, tiny) +
                         qm_adafactor8_average_off(r, t) * norm +
                         fmin(counts / norm, sqrt(counts)) + r->channels.norm_absolute;
        else /* what is kept of the old number is no more than the new one; a square: of x +- E,
              * 2 |x| E + E^2 */
            allowed[k] = share * fmax(now, tiny) + off * (2.0 * sqrt(now) + off);
    }
}

/* Of APOLLO: what steps may be off by, each by the error of its channel's factor, and all by what
 * those make of the norm of the update, by what the momentum cancels, and by what rounding the
 * product of rate and gradient to counts of 2^-149 leaves out, times a factor of at most 2^50;
 * steps: their sizes. */
static void apollo_steps_allowed(const struct qm_adafactor8_replay *r, int64_t t,
                                 const float *before, const double *steps, double *near)
{
    double rate = qm_adafactor8_rate_of(r, before, r->recipe.hyper.scale_parameter),
           all =
               qm_adafactor8_share_of(r) + r->channels.norm_share + qm_adafactor8_average_off(r, t);
    for (int64_t k = 0; k < r->n; k++) {
        const struct qm_adafactor8_channel *of = &r->channels.of[qm_adafactor8_channel_of(r, k)];
        double one = of->share < 0.25 ? 2.0 * of->share / (1.0 - 2.0 * of->share) : HUGE_VAL;
        double g = size_of(r->grads[(t - 1) * r->n + k]),
               count = g > 0.0 && rate > 0.0
                           ? fmin(fmin(0x1p-150 / (rate * g), 1.0) * steps[k], 0x1p-100)
                           : 0.0;
        near[k] = (all + one) * fmax(steps[k], (double)FLT_MIN) + rate * of->factor * g + count;
    }
}

/* SMALL, of the steps from before[] to p[] without their decay.  The ratio of step and momentum is
 * that of the numbers that are not small beside the largest, which the rounding of a parameter does
 * not hide. */
static double steps_small(const struct qm_adafactor8_replay *r, const float *p, const float *before,
                          double decay, const float *m_new)
{
    double most = m_new ? qm_match_largest(m_new, r->n) : 0.0, ratio = 0.0, change = 0.0;
    for (int64_t k = 0; r->small > 0.0 && k < r->n; k++) {
        double old = (double)before[k], own = fabs((double)p[k] - old + decay * old);
        if (!isfinite(own))
            continue;
        change = fmax(change, own);
        if (m_new && size_of(m_new[k]) >= 0x1p-10 * most && m_new[k] != 0.0f)
            ratio = fmax(ratio, own / size_of(m_new[k]));
    }
    return m_new && r->is_update ? r->update_counts * ratio : fmin(r->small, 2.0) * change;
}

void qm_adafactor8_steps_allowed(const struct qm_adafactor8_replay *r, int64_t t, const float *p,
                                 const float *before, const float *m_old, const float *m_new,
                                 double *near)
{
    double share = qm_adafactor8_share_of(r), tiny = (double)FLT_MIN, change = 0.0,
           decay = qm_adafactor8_decay_of(r, before), beta1 = fabs(qm_adafactor8_keeps(r)),
           of_m = 2.0 * (r->is_update ? share : QM_STEP_VALUE_LARGEST);
    for (int64_t k = 0; k < r->n; k++) {
        near[k] = qm_match_step((double)(p[k] - before[k]), decay, (double)before[k]);
        change = fmax(change, near[k]);
    }
    double all = (share + r->channels.norm_share + 2.0 * r->channels.most_share +
                  qm_adafactor8_average_off(r, t)) *
                 fmax(change, tiny),
           small = steps_small(r, p, before, decay, m_new);
    if (r->channels.of)
        apollo_steps_allowed(r, t, before, near, near);
    for (int64_t k = 0; k < r->n; k++) {
        double kept = m_new ? beta1 * size_of(m_old[k]) : 0.0,
               now = m_new ? size_of(m_new[k]) : 0.0,
               off = kept <= 0.0 ? 0.0
                     : now > 0.0 ? of_m * kept / now
                                 : HUGE_VAL;
        if (!r->channels.of)
            near[k] = fmin(all, (share + off) * fmax(near[k], tiny));
        near[k] += small;
    }
}
