/* tensor_rule_run.c - Compares oracle and rule with recorded runs over whole tensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/tensor_rule_side.h"

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

static int read_record(struct qm_conform *c, const struct qm_tensor_run_case *w,
                       struct qm_tensor_record *r)
{
    int format = format_of(c),
        of_states = w->has_narrow_states || format < 0 ? format : QM_PARAM_f32;
    *r = (struct qm_tensor_record){.w = w, .steps = qm_golden_case_whole(c, "steps", 0)};
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

/* ---- a side: the oracle, or the rule on the CPU backend ---- */

static int side_memory(struct qm_conform *c, struct qm_tensor_side *s)
{
    int64_t most = s->r->n;
    s->p = qm_golden_case_memory(c, s->r->n, sizeof *s->p);
    s->g = qm_golden_case_memory(c, s->r->n, sizeof *s->g);
    for (int i = 0; i < s->r->w->rule->n_slots; i++) {
        most = s->r->slot_n[i] > most ? s->r->slot_n[i] : most;
        s->slot[i] = qm_golden_case_memory(c, s->r->slot_n[i], sizeof **s->slot);
        s->lines_so_far[i] = qm_golden_case_memory(c, s->r->slot_n[i], sizeof **s->slot);
    }
    s->single = qm_golden_case_memory(c, most, sizeof *s->single);
    s->allowed = qm_golden_case_memory(c, most, sizeof *s->allowed);
    s->error = qm_golden_case_memory(c, most, sizeof *s->error);
    s->lines = qm_golden_case_memory(c, most, sizeof *s->lines);
    s->is_still = qm_golden_case_memory(c, s->r->n, sizeof *s->is_still);
    s->still_error = qm_golden_case_memory(c, s->r->n, sizeof *s->still_error);
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

static qm_status plan_step(struct qm_tensor_side *s, int64_t t)
{
    const struct qm_tensor_record *r = s->r;
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

/* Whether a state recorded after step t has a number that is not finite. */
static int has_special(const struct qm_tensor_record *r, int64_t t)
{
    for (int i = 0; i < r->w->rule->n_slots; i++)
        for (int64_t k = 0; r->state[i] && k < r->slot_n[i]; k++)
            if (!isfinite(r->state[i][(t - 1) * r->slot_n[i] + k]))
                return 1;
    return 0;
}

/* A step at (1 + off) times the learning rate, from an average that is what it is and `shift` times
 * the tolerance of the new one, but where that is the update itself, whose error is one of the
 * rate; its lowest and highest parameters into low and high; p and states stay.  The decay is that
 * of the step.  It has a plan of its own: hyper-parameters of a plan change only to such as all
 * rules have, and a recording may have a beta of 1. */
static qm_status step_beside(struct qm_tensor_side *s, int64_t t, double off, double shift)
{
    const struct qm_tensor_record *r = s->r;
    struct qm_recipe beside = *s->recipe;
    int average = r->w->average;
    void *plan = s->plan;
    beside.hyper.lr *= 1.0 + off;
    beside.hyper.weight_decay /= beside.hyper.relative_step ? 1.0 : 1.0 + off;
    for (int i = 0; i < r->w->rule->n_slots; i++)
        memcpy(s->kept[i], s->slot[i], sizeof **s->kept * (size_t)r->slot_n[i]);
    memcpy(s->start, s->p, sizeof *s->p * (size_t)r->n);
    for (int64_t k = 0; shift != 0.0 && k < r->slot_n[average]; k++) {
        double now = r->state[average][(t - 1) * r->slot_n[average] + k], old = s->slot[average][k];
        if (!qm_tensor_run_is_new(r->w->keep, old, now, 0x1p-24))
            s->slot[average][k] += shift * s->allowed[k] / r->w->keep;
    }
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
 * one of its rate, that of a sum which cancels one of the average that it goes along, up, down or
 * none: CAME's confidence has both of the first off on the same side. */
static qm_status steps_beside(struct qm_tensor_side *s, int64_t t)
{
    const struct qm_tensor_record *r = s->r;
    int average = r->w->average;
    double off = r->w->f32.param + qm_tensor_record_more(r, -1, t, 0, 0.0, &r->w->f32);
    double down = -fmin(off, 1.0 - 0x1p-20), up = fmin(off, 2.0); /* the rate stays above 0 */
    double shift =
        average >= 0 && r->state[average] && r->slot_n[average] > 0 && r->w->keep > 0.0 ? 1.0 : 0.0;
    for (int64_t k = 0; k < r->n; k++) {
        s->low[k] = HUGE_VAL;
        s->high[k] = -HUGE_VAL;
    }
    if (shift > 0.0)
        qm_tensor_side_state_allowed(s, average, t, 0, &r->w->bf16);
    for (int i = 0; i < (shift > 0.0 ? 6 : 2); i++)
        QM_TRY(step_beside(s, t, i % 2 ? up : down, i < 2 ? 0.0 : i < 4 ? shift : -shift));
    return QM_OK;
}

static qm_status side_step(struct qm_tensor_side *s, int64_t t)
{
    const struct qm_tensor_record *r = s->r;
    const double *proj = qm_tensor_record_at(r, t).proj;
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

static void judge_step(struct qm_conform *c, struct qm_tensor_side *s, int64_t t, int is_free,
                       const struct qm_tensor_run_tolerance *tol, double *error)
{
    const struct qm_tensor_record *r = s->r;
    const char *free_or_not = is_free ? "free-running " : "";
    char what[96];
    if (qm_tensor_record_more(r, -1, t, 1, 0.0, tol) == HUGE_VAL)
        qm_golden_case_skip(c,
                            "step %lld: it is up to the package's roundings: the squares of a norm "
                            "overflow in it, or may, or a variance may have either sign",
                            (long long)t);
    for (int i = 0; i < r->w->rule->n_slots; i++) {
        if (!r->state[i])
            continue;
        snprintf(what, sizeof what, "%sstep %lld %s", free_or_not, (long long)t,
                 r->w->rule->slot[i]);
        qm_tensor_side_state_allowed(s, i, t, is_free, tol);
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
            s->p[k] = qm_match_take(c, what, k, s->p[k], want[k]);
    }
    const struct qm_tensor_run_at at = qm_tensor_record_at(r, t);
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
    qm_tensor_side_params_allowed(s, t, is_free, tol, error);
    qm_match_close_double_each(c, what, s->p, want, s->allowed, r->n);
    for (int64_t k = 0; k < r->n && !s->start && !is_free; k++)
        qm_match_add_step(&seen, s->p[k], want[k], before[k], s->allowed[k]);
    if (!is_free)
        qm_match_note_step(c, t, &seen);
}

/* Steps 1..steps from the recorded start; not free: each from the recorded state before it. */
static void run(struct qm_conform *c, struct qm_tensor_side *s, int is_free,
                const struct qm_tensor_run_tolerance *tol)
{
    const struct qm_tensor_record *r = s->r;
    double error = 0.0;
    qm_tensor_side_start(s);
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
        qm_tensor_side_find_still(s, t, is_free);
        qm_golden_case_stopped(c, side_step(s, t));
        if (qm_golden_case_open(c))
            judge_step(c, s, t, is_free, tol, &error);
        if (is_free && r->w->more)
            qm_tensor_side_add_up(s, t, tol);
    }
}

static void run_both(struct qm_conform *c, struct qm_tensor_side *s,
                     const struct qm_tensor_run_tolerance *tol)
{
    run(c, s, 0, tol);
    run(c, s, 1, tol);
}

static void run_oracle(struct qm_conform *c, struct qm_tensor_record *r)
{
    struct qm_tensor_side s = {.r = r, .oracle = qm_oracle_find(r->w->rule->family)};
    s.h = qm_oracle_hyper_of(&r->w->hyper);
    snprintf(c->now.how, sizeof c->now.how, "oracle %s", r->w->rule->family);
    if (!s.oracle) {
        qm_golden_case_skip(c, "there is no oracle %s", r->w->rule->family);
        return;
    }
    if (side_memory(c, &s))
        run_both(c, &s, &r->w->f64);
}

static void run_rule(struct qm_conform *c, struct qm_tensor_record *r, enum qm_param_format format)
{
    struct qm_recipe recipe = {.base = qm_variant_at(0),
                               .rule = r->w->rule,
                               .grad = format == QM_PARAM_f32 ? QM_DTYPE_f32 : QM_DTYPE_bf16,
                               .param = {format, QM_WRITE_near},
                               .hyper = r->w->hyper};
    struct qm_tensor_side s = {.r = r, .recipe = &recipe, .format = format};
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
    struct qm_tensor_record r;
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

void qm_tensor_run_replay(struct qm_conform *c, const char *group,
                          void (*setup)(struct qm_conform *c, struct qm_tensor_run_case *w))
{
    if (!qm_golden_case_begin(c, group, NULL))
        return;
    one_case(c, setup);
    qm_golden_case_end(c);
}
