/* tensor_rule_allowed.c - How far states and parameters of a run over a tensor may be off. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "experiments/conform/tensor_rule_side.h"

/* The projection matrix that step t uses; NULL: none. */
static const double *proj_at(const struct qm_tensor_record *r, int64_t t)
{
    int64_t k = -1;
    for (int64_t i = 0; i < r->n_proj; i++)
        k = r->proj_step[i] < t ? i : k;
    return k >= 0 ? r->proj + k * r->slot_n[r->w->proj] : NULL;
}

struct qm_tensor_run_at qm_tensor_record_at(const struct qm_tensor_record *r, int64_t t)
{
    return (struct qm_tensor_run_at){.shape = &r->shape,
                                     .t = t,
                                     .state = r->state,
                                     .grad = r->grads + (t - 1) * r->n,
                                     .proj = proj_at(r, t)};
}

double qm_tensor_record_more(const struct qm_tensor_record *r, int slot, int64_t t, int is_free,
                             double change, const struct qm_tensor_run_tolerance *tol)
{
    int is_double = tol == &r->w->f64;
    struct qm_tensor_run_at at = qm_tensor_record_at(r, t);
    at.relative = is_free ? tol->free_state * (double)t : tol->state;
    at.change = change;
    at.unit = is_double ? 0x1p-53 : 0x1p-24;
    if (!r->w->more || (is_double && !r->w->has_more_doubles) ||
        (slot < 0 && !is_free && tol->param == 0.0))
        return 0.0;
    if (is_free)
        memcpy(at.before, r->so_far, sizeof at.before);
    return r->w->more(r->w, &at, slot) + (is_free && slot >= 0 ? r->so_far[slot] : 0.0);
}

/* What `more_each` makes of the numbers of slot i in step t, into lines; 0: the rule has none. */
static int find_lines(struct qm_tensor_side *s, int i, int64_t t, int is_free,
                      const struct qm_tensor_run_tolerance *tol)
{
    const struct qm_tensor_record *r = s->r;
    int is_double = tol == &r->w->f64;
    struct qm_tensor_run_at at = qm_tensor_record_at(r, t);
    at.relative = is_free ? tol->free_state * (double)t : tol->state;
    at.unit = is_double ? 0x1p-53 : 0x1p-24;
    return r->w->more_each && (!is_double || r->w->has_more_doubles) &&
           r->w->more_each(r->w, &at, i, s->lines);
}

void qm_tensor_side_start(struct qm_tensor_side *s)
{
    struct qm_tensor_record *r = s->r;
    memset(r->so_far, 0, sizeof r->so_far);
    for (int64_t k = 0; k < r->n; k++)
        s->still_error[k] = 0.0;
    for (int64_t k = 0; r->w->average >= 0 && k < r->slot_n[r->w->average]; k++)
        s->error[k] = 0.0;
    for (int i = 0; i < r->w->rule->n_slots; i++)
        for (int64_t k = 0; k < r->slot_n[i]; k++)
            s->lines_so_far[i][k] = 0.0;
}

void qm_tensor_side_add_up(struct qm_tensor_side *s, int64_t t,
                           const struct qm_tensor_run_tolerance *tol)
{
    struct qm_tensor_record *r = s->r;
    double now[QM_MAX_SLOTS];
    for (int i = 0; i < r->w->rule->n_slots; i++) {
        now[i] = r->state[i] ? qm_tensor_record_more(r, i, t, 1, 0.0, tol) : 0.0;
        int has_lines = r->state[i] && find_lines(s, i, t, 1, tol);
        for (int64_t k = 0; has_lines && k < r->slot_n[i]; k++)
            s->lines_so_far[i][k] += s->lines[k];
    }
    memcpy(r->so_far, now, sizeof *now * (size_t)r->w->rule->n_slots);
}

int qm_tensor_run_is_new(double b, double old, double now, double unit)
{
    int is_one = unit < 0x1p-24 ? 1.0 - b == 1.0 : (float)(1.0 - b) == 1.0f;
    return b == 0.0 || (is_one && b * fabs(old) < 0.25 * unit * fabs(now));
}

void qm_tensor_side_find_still(struct qm_tensor_side *s, int64_t t, int is_free)
{
    const struct qm_tensor_record *r = s->r;
    int i = r->w->average;
    int64_t count = i >= 0 ? r->slot_n[i] : 0;
    const double *grad = r->grads + (t - 1) * r->n,
                 *old = count > 0 && r->state[i] && t > 1 && r->w->keep != 0.0
                            ? r->state[i] + (t - 2) * count
                            : NULL;
    int is_known = count == 0 || r->state[i],
        is_each = r->w->has_own_steps && (count == 0 || count == r->n);
    if (!is_each) {
        for (int64_t k = 0; k < r->n; k++)
            is_known &= grad[k] == 0.0;
        for (int64_t k = 0; old && k < count; k++)
            is_known &= old[k] == 0.0;
    }
    for (int64_t k = 0; k < r->n; k++) {
        int was_still = !is_free || t == 1 || s->is_still[k];
        s->is_still[k] = (unsigned char)(was_still && is_known && grad[k] == 0.0 &&
                                         !(is_each && old && old[k] != 0.0));
    }
}

/* The rate that the decay of step t is multiplied by: lr, but that of transformers' Adafactor is
 * the rate of the step itself. */
static double decay_rate(const struct qm_tensor_record *r, int64_t t, const double *before)
{
    const struct qm_hyper *h = &r->w->hyper;
    double rate = h->lr;
    if (strcmp(r->w->rule->name, "adafactor") != 0)
        return rate;
    if (h->relative_step)
        rate = fmin(h->warmup ? 1e-6 * (double)t : h->lr, 1.0 / sqrt((double)t));
    return h->scale_parameter ? rate * fmax(h->eps2, qm_tensor_run_rms(before, r->n)) : rate;
}

/* The largest step of a parameter, whatever the decay took off it. */
static double largest_step(const struct qm_tensor_record *r, int64_t t, const double *x,
                           const double *before)
{
    double m = 0.0, decay = decay_rate(r, t, before) * r->w->hyper.weight_decay;
    for (int64_t i = 0; i < r->n; i++)
        if (isfinite(x[i] - before[i]))
            m = fmax(m, qm_match_step(x[i] - before[i], decay, before[i]));
    return m;
}

/* The error of a parameter after step t, by the step that is made here: a recorded one might be as
 * wrong as it is large. */
static double param_error(const struct qm_tensor_side *s, int64_t t, int is_free,
                          const struct qm_tensor_run_tolerance *tol, double *error)
{
    const struct qm_tensor_record *r = s->r;
    const double *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
    const struct qm_hyper *h = &r->w->hyper;
    double least = tol == &r->w->f64 ? 0.0 : (double)FLT_MIN; /* below it as if it were that */
    double change = fmax(largest_step(r, t, s->p, before), tol->param > 0.0 ? least : 0.0),
           most = fmax(
               fmax(qm_match_largest_double(s->p, r->n), qm_match_largest_double(before, r->n)),
               least),
           size = qm_tensor_run_rms(before, r->n);
    double of_step = qm_tensor_record_more(r, -1, t, is_free, change, tol) +
                     (tol->param > 0.0 ? s->average_off : 0.0);
    if (!is_free)
        return tol->param * most + (tol->step + of_step) * change;
    *error =
        *error * fabs(1.0 - h->lr * h->weight_decay) + tol->free_param * most +
        change * (tol->free_step + of_step + (r->w->scales && size > 0.0 ? *error / size : 0.0));
    return *error;
}

/* The size of a step without its decay; 0 where it is not finite. */
static double own_step(double p, double before, double decay)
{
    double own = fabs(p - before + decay * before);
    return isfinite(own) ? own : 0.0;
}

/* The share of the largest update of step t that counts of 2^-149 make: qm_match_subnormal, of one
 * number where nothing is factored. */
static double small_share(const struct qm_tensor_record *r, int64_t t)
{
    return qm_match_subnormal(qm_match_largest_double(r->grads + (t - 1) * r->n, r->n),
                              r->shape.rank >= 2 ? r->n : 1);
}

/* What those counts make of a step: that share of the largest one, `own`, or where steps go along
 * an average, what they make of that times the largest ratio of step and average.  The ratio is
 * that of the numbers that are not small beside the largest, which the rounding of a parameter does
 * not hide.  Steps are those without their decay. */
static double steps_small(const struct qm_tensor_side *s, int64_t t, double own,
                          const double *average, const double *before, double decay)
{
    double most = average ? qm_match_largest_double(average, s->r->n) : 0.0, ratio = 0.0;
    if (!average)
        return fmin(small_share(s->r, t), 2.0) * own;
    for (int64_t k = 0; s->average_small > 0.0 && k < s->r->n; k++)
        if (fabs(average[k]) >= 0x1p-10 * most && isfinite(average[k]) && average[k] != 0.0)
            ratio = fmax(ratio, own_step(s->p[k], before[k], decay) / fabs(average[k]));
    return s->average_small * ratio;
}

/* What float32 parameters may be off by after step t, each by its own step: the errors of sums and
 * of norms scale the step, and those of the average are shares of the number that the step goes
 * along; where that is 0 here, but not certainly, of the largest step.  The decay and the sum each
 * round the parameter here and in the source, by 2^-24 of it. */
static void param_errors(struct qm_tensor_side *s, int64_t t)
{
    const struct qm_tensor_record *r = s->r;
    const struct qm_tensor_run_case *w = r->w;
    const double *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
    double decay = decay_rate(r, t, before) * w->hyper.weight_decay,
           change = fmax(largest_step(r, t, s->p, before), (double)FLT_MIN),
           share = w->f32.param + qm_tensor_record_more(r, -1, t, 0, change, &w->f32);
    int has_average = w->average >= 0 && r->state[w->average] && r->slot_n[w->average] == r->n;
    double own = 0.0;
    for (int64_t k = 0; k < r->n; k++)
        own = fmax(own, own_step(s->p[k], before[k], decay));
    double least =
        steps_small(s, t, own, has_average ? s->slot[w->average] : NULL, before, decay) + 0x1p-147;
    for (int64_t k = 0; k < r->n; k++) {
        double step = qm_match_step(s->p[k] - before[k], decay, before[k]),
               m = has_average ? fabs(s->slot[w->average][k]) : 0.0, of_m = 0.0,
               size = isfinite(s->p[k]) ? fmax(fabs(s->p[k]), fabs(before[k])) : 0.0;
        if (has_average)
            of_m = m > 0.0 && isfinite(m) ? s->of_average[k] / m * step : s->average_off * own;
        s->allowed[k] = share * step + of_m + least + (decay != 0.0 ? 0x1p-22 : 0x1p-23) * size;
    }
}

/* What elements that are still may be off by after step t, into allowed: their decay alone, each by
 * its own, and nothing where that is 0, or none.  u is 2^-24 or 2^-53.  Rate times weight_decay is
 * formed of both factors rounded and is rounded, on either side, which with the rounding of the
 * rate itself makes 8 u of the decay, and where the rate has a norm in it, the error of that.  The
 * decay and the sum round the parameter on either side: 4 u of it, and a count of the least number,
 * half of one each.  A free run keeps |1 - decay| of the error before.  Parameters of bfloat16 that
 * do decay are judged by their range (steps_beside). */
static void still_errors(struct qm_tensor_side *s, int64_t t, int is_free,
                         const struct qm_tensor_run_tolerance *tol, double error)
{
    const struct qm_tensor_record *r = s->r;
    const struct qm_tensor_run_case *w = r->w;
    const double *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
    int is_double = tol == &w->f64,
        has_norm = strcmp(w->rule->name, "adafactor") == 0 && w->hyper.scale_parameter;
    double decay = decay_rate(r, t, before) * w->hyper.weight_decay,
           u = is_double ? 0x1p-53 : 0x1p-24,
           rms = has_norm ? qm_tensor_run_rms(before, r->n) : 0.0,
           of_norm = !has_norm  ? 0.0
                     : !is_free ? tol->param
                                : tol->free_param + (rms > 0.0 ? error / rms : 0.0);
    for (int64_t k = 0; k < r->n; k++) {
        double old = s->is_still[k] && isfinite(before[k]) ? fabs(before[k]) : 0.0,
               size = isfinite(s->p[k]) ? fmax(fabs(s->p[k]), old) : old;
        int is_same = s->p[k] == before[k] && (decay == 0.0 || before[k] == 0.0);
        if (!s->is_still[k] || (tol == &w->bf16 && !is_same))
            continue;
        double own = decay == 0.0 || size == 0.0
                         ? 0.0
                         : (8.0 * u + of_norm) * fabs(decay) * old + 4.0 * u * size +
                               (is_double ? 0x1p-1074 : 0x1p-149);
        if (is_free)
            own = s->still_error[k] = fabs(1.0 - decay) * s->still_error[k] + own;
        s->allowed[k] = own;
    }
}

void qm_tensor_side_params_allowed(struct qm_tensor_side *s, int64_t t, int is_free,
                                   const struct qm_tensor_run_tolerance *tol, double *error)
{
    const struct qm_tensor_record *r = s->r;
    double all = param_error(s, t, is_free, tol, error);
    for (int64_t k = 0; k < r->n; k++)
        s->allowed[k] = all;
    if (r->w->has_own_steps && !is_free && tol == &r->w->f32)
        param_errors(s, t);
    still_errors(s, t, is_free, tol, *error);
}

/* Whether number k of slot i, an average of squares, is 0 to the bit after step t: nothing is added
 * to the squares, the old number is 0, and so are all gradients of its line and, where the squares
 * are those of the residual, their averages.  It is 0 here, too, unless an infinite factor makes
 * the residual NaN. */
static int is_sum_of_zeros(const struct qm_tensor_side *s, int i, int64_t t, int64_t k)
{
    const struct qm_tensor_record *r = s->r;
    const struct qm_shape *shape = &r->shape;
    char of = r->w->squares_of[i];
    int is_matrix = of && of != 'e' && shape->rank >= 2, is_residual = of == 'R' || of == 'C',
        is_col = of == 'c' || of == 'C';
    double old = t > 1 ? r->state[i][(t - 2) * r->slot_n[i] + k] : 0.0;
    if (!of || r->w->added[i] != 0.0 || s->slot[i][k] != 0.0 || old != 0.0)
        return 0;
    int64_t cols = is_matrix ? shape->dim[shape->rank - 1] : 1,
            rows = is_matrix ? shape->dim[shape->rank - 2] : 1, len = is_col ? rows : cols,
            from = is_col ? k / cols * rows * cols + k % cols : k * cols;
    for (int64_t j = 0; j < len; j++) {
        int64_t at = from + j * (is_col ? cols : 1);
        if (r->grads[(t - 1) * r->n + at] != 0.0 || (is_residual && !s->is_still[at]))
            return 0;
    }
    return 1;
}

void qm_tensor_side_state_allowed(struct qm_tensor_side *s, int i, int64_t t, int is_free,
                                  const struct qm_tensor_run_tolerance *tol)
{
    const struct qm_tensor_record *r = s->r;
    int64_t n = r->slot_n[i];
    const double *want = r->state[i] + (t - 1) * n, *old = t > 1 ? want - n : NULL;
    int is_average = i == r->w->average;
    double one = i != r->w->squares || r->w->has_narrow_states ? 0.0
                 : tol == &r->w->f64                           ? 10.0 * 0x1p-53
                                                               : 10.0 * 0x1p-24,
           relative = one > 0.0 ? one * (is_free ? (double)t : 1.0)
                      : is_free ? tol->free_state * (double)t
                                : tol->state,
           keep = is_average ? r->w->keep : 0.0, most = 0.0, off = 0.0,
           least = tol == &r->w->f64 ? DBL_MIN : (double)FLT_MIN,
           added = qm_tensor_record_more(r, i, t, is_free, 0.0, tol),
           largest_of = qm_match_largest_double(want, n),
           largest_old = old ? qm_match_largest_double(old, n) : 0.0;
    double added_most = is_free ? largest_of : 0.0;
    for (int64_t k = 0; is_average && !is_free && k < n; k++) {
        double taken_in = fabs(s->slot[i][k] - (old ? keep * old[k] : 0.0));
        added_most = isfinite(taken_in) ? fmax(added_most, taken_in) : added_most;
    }
    double small = is_average && tol != &r->w->f64 ? small_share(r, t) * added_most : 0.0;
    int has_lines = find_lines(s, i, t, is_free, tol);
    for (int64_t k = 0; k < n; k++) {
        int is_still = is_average && s->is_still[n == r->n ? k : 0];
        double now = r->w->has_sums ? largest_of : fabs(want[k]), before = r->w->has_sums
                                                                               ? largest_old
                                                                           : old ? fabs(old[k])
                                                                                 : 0.0;
        double own = relative * fmax((isfinite(now) ? now : 0.0), least) + small,
               kept = 2.0 * relative * keep * (isfinite(before) ? before : 0.0);
        if (is_still)
            own = kept = 0.0;
        if (has_lines)
            own += s->lines[k] + (is_free ? s->lines_so_far[i][k] : 0.0);
        if (is_average && is_free)
            s->error[k] = own = keep * s->error[k] + own + kept;
        else
            own += kept;
        (is_average ? s->of_average : s->allowed)[k] = s->allowed[k] =
            own + (is_still ? 0.0 : added);
        if (!is_average && is_sum_of_zeros(s, i, t, k))
            s->allowed[k] = 0.0;
        most = fmax(most, isfinite(want[k]) ? fabs(want[k]) : 0.0);
        off = fmax(off, is_average ? s->allowed[k] : 0.0);
    }
    if (is_average)
        s->average_small = small;
    if (is_average)
        s->average_off = off <= 0.0 ? 0.0 : most > 0.0 ? fmin(off / most, 2.0) : 2.0;
}
