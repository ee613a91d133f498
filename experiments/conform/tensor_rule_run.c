/* tensor_rule_run.c - Compares oracle and rule with recorded runs over whole tensors. */
#include "experiments/conform/tensor_rule_run.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/recipe/backend.h"
#include "experiments/recipes/oracle_hyper.h"
#include "oracle/oracle.h"

/* The data of one case; arrays are [step][...] and NULL where nothing was recorded. */
struct record {
    const struct qm_tensor_run_case *w;
    struct qm_shape shape, slot_shape[QM_MAX_SLOTS];
    int64_t steps, n, slot_n[QM_MAX_SLOTS];
    const double *p0, *grads, *params, *state[QM_MAX_SLOTS];
    const double *proj; /* [matrix][...] */
    const int64_t *proj_step;
    int64_t n_proj;
    double so_far[QM_MAX_SLOTS]; /* of a free run: what `more` came to for each state */
};

/* What a run must have. */
static const struct qm_golden_need run_needs[] = {
    {"steps", QM_NEED_number, 1, 1e6, 0}, {"dtype", QM_NEED_text, 0, 0, 0},
    {"lr", QM_NEED_number, 0, 1e30, 1},   {"weight_decay", QM_NEED_number, 0, 1e30, 1},
    {"param0", QM_NEED_data, 0, 0, 0},    {"grads", QM_NEED_data, 0, 0, 0},
    {"params", QM_NEED_data, 0, 0, 0},
};

/* The format of parameters and gradients that attribute dtype names; f64 is none: -1. */
static int format_of(struct qm_conform *c)
{
    char dtype[16] = "";
    qm_golden_case_text(c, "dtype", dtype, sizeof dtype);
    return strcmp(dtype, "bf16") == 0  ? QM_PARAM_bf16
           : strcmp(dtype, "f32") == 0 ? QM_PARAM_f32
                                       : -1;
}

/* A dataset whose numbers the format has; any of them where it is -1. */
static const double *doubles_of(struct qm_conform *c, const char *name, int64_t n, int format)
{
    const double *x = qm_golden_case_doubles(c, name, n);
    int fits = format < 0 ||
               qm_golden_case_fits_double(c, name, (enum qm_param_format)format, x, x ? n : 0);
    return fits ? x : NULL;
}

static int read_record(struct qm_conform *c, const struct qm_tensor_run_case *w, struct record *r)
{
    int format = format_of(c),
        of_states = w->has_narrow_states || format < 0 ? format : QM_PARAM_f32;
    *r = (struct record){.w = w, .steps = qm_golden_case_whole(c, "steps", 0)};
    if (!qm_tensor_run_shape(c, &r->shape))
        return 0;
    r->n = qm_shape_numel(&r->shape);
    for (int i = 0; i < w->rule->n_slots; i++) {
        r->slot_shape[i] = r->shape;
        qm_rule_slot_shape(w->rule, &w->hyper, i, &r->shape, &r->slot_shape[i]);
        r->slot_n[i] = qm_shape_numel(&r->slot_shape[i]);
        if (w->state[i] && r->slot_n[i] > 0)
            r->state[i] = doubles_of(c, w->state[i], r->steps * r->slot_n[i], of_states);
    }
    if (w->proj >= 0 && r->slot_n[w->proj] > 0) {
        r->n_proj = qm_golden_case_numel(c, "proj_step");
        r->proj_step = qm_golden_case_ints(c, "proj_step", r->n_proj);
        r->proj = doubles_of(c, "proj", r->n_proj * r->slot_n[w->proj],
                             format < 0 ? format : QM_PARAM_f32);
    }
    r->p0 = doubles_of(c, "param0", r->n, format);
    r->grads = doubles_of(c, "grads", r->steps * r->n, format);
    r->params = doubles_of(c, "params", r->steps * r->n, format);
    return qm_golden_case_open(c);
}

/* The projection matrix that step t uses; NULL: none. */
static const double *proj_at(const struct record *r, int64_t t)
{
    int64_t k = -1;
    for (int64_t i = 0; i < r->n_proj; i++)
        k = r->proj_step[i] < t ? i : k;
    return k >= 0 ? r->proj + k * r->slot_n[r->w->proj] : NULL;
}

/* The rate that the decay of step t is multiplied by: lr, but that of transformers' Adafactor is
 * the rate of the step itself. */
static double decay_rate(const struct record *r, int64_t t, const double *before)
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
static double largest_step(const struct record *r, int64_t t, const double *x, const double *before)
{
    double m = 0.0, decay = decay_rate(r, t, before) * r->w->hyper.weight_decay;
    for (int64_t i = 0; i < r->n; i++)
        if (isfinite(x[i] - before[i]))
            m = fmax(m, qm_match_step(x[i] - before[i], decay, before[i]));
    return m;
}

/* ---- a side: the oracle, or the rule on the CPU backend ---- */

struct side {
    struct record *r;
    const struct qm_oracle *oracle; /* NULL: the plan */
    struct qm_oracle_hyper h;
    const struct qm_recipe *recipe;
    void *plan; /* of the recipe */
    enum qm_param_format format;
    double *p, *g, *slot[QM_MAX_SLOTS], *room;
    float *single;               /* room to convert the plan's tensors */
    struct qm_narrow_span *span; /* [n], where the rule has `narrow` */
    double *start, *low, *high;  /* [n], of bfloat16 parameters; else NULL */
    double *kept[QM_MAX_SLOTS];
    double *of_average;      /* what each number of the average may be off by */
    double *allowed, *error; /* of each number of a state; of the average, in a free run */
    double average_off;      /* of one step: the error that cancelling adds to the average, of its
                              * largest number */
};

static int side_memory(struct qm_conform *c, struct side *s)
{
    int64_t most = s->r->n;
    s->p = qm_golden_case_memory(c, s->r->n, sizeof *s->p);
    s->g = qm_golden_case_memory(c, s->r->n, sizeof *s->g);
    for (int i = 0; i < s->r->w->rule->n_slots; i++) {
        most = s->r->slot_n[i] > most ? s->r->slot_n[i] : most;
        s->slot[i] = qm_golden_case_memory(c, s->r->slot_n[i], sizeof **s->slot);
    }
    s->single = qm_golden_case_memory(c, most, sizeof *s->single);
    s->allowed = qm_golden_case_memory(c, most, sizeof *s->allowed);
    s->error = qm_golden_case_memory(c, most, sizeof *s->error);
    s->of_average = qm_golden_case_memory(c, most, sizeof *s->of_average);
    if (s->oracle || s->format == QM_PARAM_f32)
        return qm_golden_case_open(c);
    s->span = qm_golden_case_memory(c, s->r->n, sizeof *s->span);
    s->start = qm_golden_case_memory(c, s->r->n, sizeof *s->start);
    s->low = qm_golden_case_memory(c, s->r->n, sizeof *s->low);
    s->high = qm_golden_case_memory(c, s->r->n, sizeof *s->high);
    for (int i = 0; i < s->r->w->rule->n_slots; i++)
        s->kept[i] = qm_golden_case_memory(c, s->r->slot_n[i], sizeof **s->kept);
    return qm_golden_case_open(c);
}

/* Converts doubles to the plan's type, exactly: every recorded value is representable in it. */
static void narrow(enum qm_param_format f, const double *x, int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++)
        if (f == QM_PARAM_f32)
            ((float *)out)[i] = (float)x[i];
        else
            ((uint16_t *)out)[i] = (uint16_t)qm_param_nearest(f, (float)x[i]);
}

static qm_status plan_step(struct side *s, int64_t t)
{
    const struct record *r = s->r;
    enum qm_dtype dtype = s->format == QM_PARAM_f32 ? QM_DTYPE_f32 : QM_DTYPE_bf16;
    for (int i = 0; i < r->w->rule->n_slots; i++) {
        narrow(QM_PARAM_f32, s->slot[i], r->slot_n[i], s->single);
        QM_TRY(qm_backend_cpu.load(s->plan, i, NULL, s->single));
    }
    struct qm_tensor p = {s->room, dtype, r->shape}, g = {s->room + r->n, dtype, r->shape};
    narrow(s->format, s->p, r->n, p.data);
    narrow(s->format, r->grads + (t - 1) * r->n, r->n, g.data);
    QM_TRY(qm_backend_cpu.step(s->plan, &p, &g, t, 0));
    qm_to_double(p.data, dtype, 0, r->n, s->p);
    for (int i = 0; i < r->w->rule->n_slots; i++) {
        QM_TRY(qm_backend_cpu.save(s->plan, i, NULL, s->single));
        qm_to_double(s->single, QM_DTYPE_f32, 0, r->slot_n[i], s->slot[i]);
    }
    return QM_OK;
}

/* ---- a run ---- */

static struct qm_tensor_run_at step_at(const struct record *r, int64_t t)
{
    return (struct qm_tensor_run_at){.shape = &r->shape,
                                     .t = t,
                                     .state = r->state,
                                     .grad = r->grads + (t - 1) * r->n,
                                     .proj = proj_at(r, t)};
}

/* What the rule itself adds to the tolerance of a slot, or of the parameters (slot -1), of which
 * the largest step made here is `change`; 0: not known. */
static double more_of(const struct record *r, int slot, int64_t t, int is_free, double change,
                      const struct qm_tensor_run_tolerance *tol)
{
    int is_double = tol == &r->w->f64;
    struct qm_tensor_run_at at = step_at(r, t);
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

/* Adds up what the rule adds to the tolerances of states, after step t of a free run. */
static void add_up(struct record *r, int64_t t, const struct qm_tensor_run_tolerance *tol)
{
    double now[QM_MAX_SLOTS];
    for (int i = 0; i < r->w->rule->n_slots; i++)
        now[i] = r->state[i] ? more_of(r, i, t, 1, 0.0, tol) : 0.0;
    memcpy(r->so_far, now, sizeof *now * (size_t)r->w->rule->n_slots);
}

/* The error of a parameter after step t, by the step that is made here: a recorded one might be as
 * wrong as it is large. *error: after the steps before, of a free run. */
static double param_error(const struct side *s, int64_t t, int is_free,
                          const struct qm_tensor_run_tolerance *tol, double *error)
{
    const struct record *r = s->r;
    const double *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
    const struct qm_hyper *h = &r->w->hyper;
    double least = tol == &r->w->f64 ? 0.0 : (double)FLT_MIN; /* below it as if it were that */
    double change = fmax(largest_step(r, t, s->p, before), tol->param > 0.0 ? least : 0.0),
           most = fmax(
               fmax(qm_match_largest_double(s->p, r->n), qm_match_largest_double(before, r->n)),
               least),
           size = qm_tensor_run_rms(before, r->n);
    double of_step =
        more_of(r, -1, t, is_free, change, tol) + (tol->param > 0.0 ? s->average_off : 0.0);
    if (!is_free)
        return tol->param * most + (tol->step + of_step) * change;
    *error =
        *error * fabs(1.0 - h->lr * h->weight_decay) + tol->free_param * most +
        change * (tol->free_step + of_step + (r->w->scales && size > 0.0 ? *error / size : 0.0));
    return *error;
}

/* What float32 parameters may be off by after step t, each by its own step: the errors of sums and
 * of norms scale the step, and those of the average are shares of the number that the step goes
 * along; where that is 0 here, of the largest step.  The decay and the sum each round the parameter
 * here and in the source, by 2^-24 of it. */
static void param_errors(struct side *s, int64_t t)
{
    const struct record *r = s->r;
    const struct qm_tensor_run_case *w = r->w;
    const double *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
    double decay = decay_rate(r, t, before) * w->hyper.weight_decay,
           change = fmax(largest_step(r, t, s->p, before), (double)FLT_MIN),
           share = w->f32.param + more_of(r, -1, t, 0, change, &w->f32);
    int has_average = w->average >= 0 && r->state[w->average] && r->slot_n[w->average] == r->n;
    double largest = qm_match_largest_double(r->grads + (t - 1) * r->n, r->n),
           least = qm_match_subnormal(largest, r->n) * change + 0x1p-147;
    for (int64_t k = 0; k < r->n; k++) {
        double step = qm_match_step(s->p[k] - before[k], decay, before[k]),
               m = has_average ? fabs(s->slot[w->average][k]) : 0.0, of_m = 0.0,
               size = isfinite(s->p[k]) ? fmax(fabs(s->p[k]), fabs(before[k])) : 0.0;
        if (has_average)
            of_m = m > 0.0 && isfinite(m) ? s->of_average[k] / m * step : s->average_off * change;
        s->allowed[k] = share * step + of_m + least + (decay != 0.0 ? 0x1p-22 : 0x1p-23) * size;
    }
}

/* Whether a state recorded after step t has a number that is not finite. */
static int has_special(const struct record *r, int64_t t)
{
    for (int i = 0; i < r->w->rule->n_slots; i++)
        for (int64_t k = 0; r->state[i] && k < r->slot_n[i]; k++)
            if (!isfinite(r->state[i][(t - 1) * r->slot_n[i] + k]))
                return 1;
    return 0;
}

/* What the numbers of slot i may be off by after step t.  In a free run the average keeps its share
 * of the error before, and takes in that of what it averages, which grows with the states. */
static void state_allowed(struct side *s, int i, int64_t t, int is_free,
                          const struct qm_tensor_run_tolerance *tol)
{
    const struct record *r = s->r;
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
           added = more_of(r, i, t, is_free, 0.0, tol),
           largest_of = qm_match_largest_double(want, n),
           largest_old = old ? qm_match_largest_double(old, n) : 0.0;
    double small =
        is_average && tol != &r->w->f64
            ? qm_match_subnormal(qm_match_largest_double(r->grads + (t - 1) * r->n, r->n), r->n) *
                  largest_of
            : 0.0;
    for (int64_t k = 0; k < n; k++) {
        double now = r->w->has_sums ? largest_of : fabs(want[k]), before = r->w->has_sums
                                                                               ? largest_old
                                                                           : old ? fabs(old[k])
                                                                                 : 0.0;
        double own = relative * fmax((isfinite(now) ? now : 0.0), least) + small,
               kept = 2.0 * relative * keep * (isfinite(before) ? before : 0.0);
        if (is_average && is_free)
            s->error[k] = own = keep * s->error[k] + own + kept;
        else
            own += kept;
        (is_average ? s->of_average : s->allowed)[k] = s->allowed[k] = own + added;
        most = fmax(most, isfinite(want[k]) ? fabs(want[k]) : 0.0);
        off = fmax(off, is_average ? s->allowed[k] : 0.0);
    }
    if (is_average)
        s->average_off = off <= 0.0 ? 0.0 : most > 0.0 ? fmin(off / most, 2.0) : 2.0;
}

/* A step at (1 + off) times the learning rate, from an average that is what it is and `shift` times
 * the tolerance of the new one; its lowest and highest parameters into low and high; p and states
 * stay.  The decay is that of the step.  It has a plan of its own: hyper-parameters of a plan
 * change only to such as all rules have, and a recording may have a beta of 1. */
static qm_status step_beside(struct side *s, int64_t t, double off, double shift)
{
    const struct record *r = s->r;
    struct qm_recipe beside = *s->recipe;
    int average = r->w->average;
    void *plan = s->plan;
    beside.hyper.lr *= 1.0 + off;
    beside.hyper.weight_decay /= beside.hyper.relative_step ? 1.0 : 1.0 + off;
    for (int i = 0; i < r->w->rule->n_slots; i++)
        memcpy(s->kept[i], s->slot[i], sizeof **s->kept * (size_t)r->slot_n[i]);
    memcpy(s->start, s->p, sizeof *s->p * (size_t)r->n);
    for (int64_t k = 0; shift != 0.0 && k < r->slot_n[average]; k++)
        s->slot[average][k] += shift * s->allowed[k] / r->w->keep;
    QM_TRY(qm_backend_cpu.open(&beside, &r->shape, r->w->tensor, &s->plan));
    qm_status st = plan_step(s, t);
    qm_backend_cpu.close(s->plan);
    s->plan = plan;
    for (int64_t k = 0; k < r->n; k++) {
        s->low[k] = fmin(s->low[k], s->p[k]);
        s->high[k] = fmax(s->high[k], s->p[k]);
    }
    memcpy(s->p, s->start, sizeof *s->p * (size_t)r->n);
    for (int i = 0; i < r->w->rule->n_slots; i++)
        memcpy(s->slot[i], s->kept[i], sizeof **s->kept * (size_t)r->slot_n[i]);
    return st;
}

/* The bfloat16 parameters of the steps that the float32 tolerances allow: an error of the step is
 * one of its rate, that of a sum which cancels one of the average that it goes along. */
static qm_status steps_beside(struct side *s, int64_t t)
{
    const struct record *r = s->r;
    int average = r->w->average;
    double off = r->w->f32.param + more_of(r, -1, t, 0, 0.0, &r->w->f32);
    double down = -fmin(off, 1.0 - 0x1p-20), up = fmin(off, 2.0); /* the rate stays above 0 */
    double shift =
        average >= 0 && r->state[average] && r->slot_n[average] > 0 && r->w->keep > 0.0 ? 1.0 : 0.0;
    for (int64_t k = 0; k < r->n; k++) {
        s->low[k] = HUGE_VAL;
        s->high[k] = -HUGE_VAL;
    }
    if (shift > 0.0)
        state_allowed(s, average, t, 0, &r->w->bf16);
    for (int i = 0; i < (shift > 0.0 ? 4 : 2); i++)
        QM_TRY(step_beside(s, t, i % 2 ? up : down, i < 2 ? shift : -shift));
    return QM_OK;
}

static qm_status side_step(struct side *s, int64_t t)
{
    const struct record *r = s->r;
    const double *proj = proj_at(r, t);
    if (proj)
        memcpy(s->slot[r->w->proj], proj, sizeof *proj * (size_t)r->slot_n[r->w->proj]);
    if (s->start)
        QM_TRY(steps_beside(s, t));
    if (!s->oracle)
        return plan_step(s, t);
    memcpy(s->g, r->grads + (t - 1) * r->n, sizeof *s->g * (size_t)r->n);
    return qm_oracle_step(s->oracle, s->p, s->slot, s->g, &r->shape, r->w->tensor, &s->h, t);
}

/* torch's lerp of an infinite number from its other end is NaN. */
static void take_nan(double *got, const double *want, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (isnan(want[k]) && isinf(got[k]))
            got[k] = want[k];
}

static void judge_step(struct qm_conform *c, struct side *s, int64_t t, int is_free,
                       const struct qm_tensor_run_tolerance *tol, double *error)
{
    const struct record *r = s->r;
    const char *free_or_not = is_free ? "free-running " : "";
    char what[96];
    if (more_of(r, -1, t, 1, 0.0, tol) == HUGE_VAL)
        qm_golden_case_skip(c,
                            "step %lld: it is up to the package's roundings: the squares of a norm "
                            "overflow in it, or may, or a variance may have either sign",
                            (long long)t);
    for (int i = 0; i < r->w->rule->n_slots; i++) {
        if (!r->state[i])
            continue;
        snprintf(what, sizeof what, "%sstep %lld %s", free_or_not, (long long)t,
                 r->w->rule->slot[i]);
        state_allowed(s, i, t, is_free, tol);
        const double *want = r->state[i] + (t - 1) * r->slot_n[i];
        if (s->oracle)
            take_nan(s->slot[i], want, r->slot_n[i]);
        qm_match_close_double_each(c, what, s->slot[i], want, s->allowed, r->slot_n[i]);
    }
    const double *want = r->params + (t - 1) * r->n, *before = t > 1 ? want - r->n : r->p0;
    snprintf(what, sizeof what, "%sstep %lld parameter", free_or_not, (long long)t);
    struct qm_match_seen seen = {0, 0, 0};
    for (int64_t k = 0; k < r->n && s->start && !is_free; k++) {
        int is_hidden = s->low[k] <= before[k] && before[k] <= s->high[k];
        qm_match_add_step(&seen, s->p[k], want[k], before[k], is_hidden ? HUGE_VAL : 0.0);
        if (s->low[k] <= want[k] && want[k] <= s->high[k])
            s->p[k] = want[k];
    }
    const struct qm_tensor_run_at at = step_at(r, t);
    int has_spans = r->w->narrow && !s->oracle,
        is_special = has_spans ? r->w->narrow(r->w, &at, before, s->span) : -1;
    for (int64_t k = 0; k < r->n && is_special >= 0 && !is_free && qm_golden_case_open(c); k++)
        qm_narrow_span_judge(c, what, k, s->span[k], want[k]);
    for (int64_t k = 0; k < r->n && is_special >= 0; k++)
        if (!is_free || (is_special && qm_narrow_span_has(s->span[k], want[k])))
            s->p[k] = want[k];
    /* A NaN of the package's states is in its sums over the tensor, and so in every parameter. */
    int is_any = s->oracle && has_special(r, t);
    for (int64_t k = 0; k < r->n && is_any; k++)
        s->p[k] = isnan(want[k]) ? want[k] : s->p[k];
    s->allowed[0] = param_error(s, t, is_free, tol, error);
    for (int64_t k = 1; k < r->n; k++)
        s->allowed[k] = s->allowed[0];
    if (r->w->has_own_steps && !is_free && tol == &r->w->f32)
        param_errors(s, t);
    qm_match_close_double_each(c, what, s->p, want, s->allowed, r->n);
    for (int64_t k = 0; k < r->n && !s->start && !is_free; k++)
        qm_match_add_step(&seen, s->p[k], want[k], before[k], s->allowed[k]);
    if (!is_free)
        qm_match_note_step(c, t, &seen);
}

/* Steps 1..steps from the recorded start; not free: each from the recorded state before it. */
static void run(struct qm_conform *c, struct side *s, int is_free,
                const struct qm_tensor_run_tolerance *tol)
{
    const struct record *r = s->r;
    double error = 0.0;
    memset(s->r->so_far, 0, sizeof s->r->so_far);
    for (int64_t k = 0; r->w->average >= 0 && k < r->slot_n[r->w->average]; k++)
        s->error[k] = 0.0;
    memcpy(s->p, r->p0, sizeof *s->p * (size_t)r->n);
    for (int i = 0; i < r->w->rule->n_slots; i++)
        memset(s->slot[i], 0, sizeof **s->slot * (size_t)r->slot_n[i]);
    for (int64_t t = 1; t <= r->steps && qm_golden_case_open(c); t++) {
        if (t > 1 && !is_free) {
            memcpy(s->p, r->params + (t - 2) * r->n, sizeof *s->p * (size_t)r->n);
            for (int i = 0; i < r->w->rule->n_slots; i++)
                if (r->state[i])
                    memcpy(s->slot[i], r->state[i] + (t - 2) * r->slot_n[i],
                           sizeof **s->slot * (size_t)r->slot_n[i]);
        }
        qm_golden_case_stopped(c, side_step(s, t));
        if (qm_golden_case_open(c))
            judge_step(c, s, t, is_free, tol, &error);
        if (is_free && r->w->more)
            add_up(s->r, t, tol);
    }
}

static void run_both(struct qm_conform *c, struct side *s,
                     const struct qm_tensor_run_tolerance *tol)
{
    run(c, s, 0, tol);
    run(c, s, 1, tol);
}

static void run_oracle(struct qm_conform *c, struct record *r)
{
    struct side s = {.r = r, .oracle = qm_oracle_find(r->w->rule->family)};
    s.h = qm_oracle_hyper_of(&r->w->hyper);
    snprintf(c->now.how, sizeof c->now.how, "oracle %s", r->w->rule->family);
    if (!s.oracle) {
        qm_golden_case_skip(c, "there is no oracle %s", r->w->rule->family);
        return;
    }
    if (side_memory(c, &s))
        run_both(c, &s, &r->w->f64);
}

static void run_rule(struct qm_conform *c, struct record *r, enum qm_param_format format)
{
    struct qm_recipe recipe = {.base = qm_variant_at(0),
                               .rule = r->w->rule,
                               .grad = format == QM_PARAM_f32 ? QM_DTYPE_f32 : QM_DTYPE_bf16,
                               .param = {format, QM_WRITE_near},
                               .hyper = r->w->hyper};
    struct side s = {.r = r, .recipe = &recipe, .format = format};
    snprintf(c->now.how, sizeof c->now.how, "%s%s", r->w->rule->name,
             format == QM_PARAM_f32 ? "" : ", param=bf16/near");
    for (int i = 0; i < r->w->rule->n_slots; i++)
        if (qm_recipe_set(&recipe, r->w->rule->slot[i], "f32") != QM_OK)
            qm_golden_case_skip(c, "%.250s", qm_message());
    s.room = qm_golden_case_memory(c, 2 * r->n, sizeof *s.room);
    if (!side_memory(c, &s))
        return;
    if (qm_backend_cpu.open(&recipe, &r->shape, r->w->tensor, &s.plan) != QM_OK) {
        qm_golden_case_skip(c, "%.250s", qm_message());
        return;
    }
    run_both(c, &s, format == QM_PARAM_f32 ? &r->w->f32 : &r->w->bf16);
    qm_backend_cpu.close(s.plan);
}

static void one_case(struct qm_conform *c,
                     void (*setup)(struct qm_conform *c, struct qm_tensor_run_case *w))
{
    struct qm_tensor_run_case w = {
        .hyper = qm_hyper_default(), .proj = -1, .average = -1, .squares = -1};
    struct record r;
    char dtype[16] = "";
    if (!qm_golden_case_needs(c, run_needs, sizeof run_needs / sizeof *run_needs) ||
        !qm_golden_case_one_rate(c) || !qm_tensor_run_texts_known(c))
        return;
    setup(c, &w);
    if (!qm_golden_case_open(c) || !read_record(c, &w, &r))
        return;
    qm_golden_case_step_count(c, r.steps);
    qm_tensor_run_judge_rms(c, &w, r.p0, r.params, r.steps, r.n);
    qm_golden_case_text(c, "dtype", dtype, sizeof dtype);
    if (strcmp(dtype, "f64") == 0)
        run_oracle(c, &r);
    else if (strcmp(dtype, "f32") == 0 || strcmp(dtype, "bf16") == 0)
        run_rule(c, &r, *dtype == 'f' ? QM_PARAM_f32 : QM_PARAM_bf16);
    else
        qm_golden_case_skip(c, "attribute dtype is '%s', expected f64, f32 or bf16", dtype);
}

void qm_tensor_run_group(struct qm_conform *c, const char *group,
                         void (*setup)(struct qm_conform *c, struct qm_tensor_run_case *w),
                         void (*extra)(struct qm_conform *c, const char *group))
{
    if (qm_golden_case_begin(c, group, NULL)) {
        one_case(c, setup);
        qm_golden_case_end(c);
    }
    if (extra)
        extra(c, group);
}

void qm_tensor_run_replay(struct qm_conform *c,
                          void (*setup)(struct qm_conform *c, struct qm_tensor_run_case *w),
                          void (*extra)(struct qm_conform *c, const char *group))
{
    char group[QM_GOLDEN_PATH];
    int n = qm_golden_members(c->file, "");
    for (int i = 0; i < n; i++)
        if (qm_golden_member(c->file, "", i, group, sizeof group))
            qm_tensor_run_group(c, group, setup, extra);
}
