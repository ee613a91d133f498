/* bound_search.c - The hill climb of error over bound: starts, changes, acceptance. */
#include "experiments/check/bound_search.h"
#include "core/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "core/base/philox.h"
#include "experiments/check/trial.h"

const char *const qm_bound_states_names[QM_BOUND_STATES_COUNT] = {
#define X(name) #name,
    QM_BOUND_STATES_LIST(X)
#undef X
};

/* A climb starts again after this many steps without a larger ratio. */
enum { PATIENCE = 150 };

struct climb {
    const struct qm_subject *s;
    enum qm_bound_states states;
    uint64_t seed, draws;
    struct qm_tally *t;
    struct qm_bound_search_found *out;
    double best; /* of this climb */
    char start[QM_CASE_TEXT];
};

static uint32_t draw(struct climb *c) { return qm_philox_stream(c->seed, 9, c->draws++); }

static int64_t below(struct climb *c, int64_t n) { return n > 0 ? (int64_t)draw(c) % n : 0; }

/* ---- starts ---------------------------------------------------------------------------------- */

static struct qm_case start_of(struct climb *c)
{
    static const struct qm_shape shapes[] = {
        {1, {1}}, {1, {7}}, {1, {64}}, {2, {8, 16}}, {2, {13, 5}}, {2, {1, 40}}, {3, {2, 5, 9}}};
    static const enum qm_class kinds[] = {QM_CLASS_normal, QM_CLASS_loguniform, QM_CLASS_denormal,
                                          QM_CLASS_huge,   QM_CLASS_outlier,    QM_CLASS_planted,
                                          QM_CLASS_exact,  QM_CLASS_unit,       QM_CLASS_small};
    static const int64_t steps[] = {1, 2, 12, 1000, 1000000};
    struct qm_case start = {.shape = shapes[below(c, sizeof shapes / sizeof *shapes)],
                            .kind = kinds[below(c, sizeof kinds / sizeof *kinds)],
                            .setting = (enum qm_setting)below(c, QM_SETTING_exact),
                            .t = steps[below(c, sizeof steps / sizeof *steps)],
                            .forced = c->states != QM_BOUND_STATES_own};
    if (start.kind == QM_CLASS_exact)
        start.setting = QM_SETTING_exact;
    return start;
}

/* A trial of one step with the inputs of a case's last step.  QM_SKIPPED: the quantizers do not
 * take the shape. */
static qm_status open_start(struct climb *c, struct qm_trial *out)
{
    struct qm_case start = start_of(c);
    struct qm_finding f;
    volatile int begun;
    qm_case_print(&start, c->start);
    QM_TRY(qm_trial_of_case(&c->s->recipe, &start, c->seed + c->draws, 1, out));
    out->n_plans = 1;
    qm_status st =
        qm_recipe_applicable(&out->recipe) == QM_OK
            ? qm_judge_record(c->s, &start, 1 + (int)below(c, QM_CHECK_STEPS), out, &begun, &f)
            : QM_SKIPPED;
    if (st != QM_OK)
        qm_trial_close(out);
    return st;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Changes one number of `size` bytes: a bit, the neighbourhood, the fraction, or its sign. */
static void change_number(struct climb *c, unsigned char *x, size_t size)
{
    uint32_t bits = 0, fraction = size == 4 ? 0x7fffffu : size == 2 ? 0x7fu : 0x7u;
    memcpy(&bits, x, size);
    switch (below(c, 5)) {
    case 0: bits ^= 1u << below(c, (int64_t)(8 * size)); break;
    case 1: bits += (uint32_t)below(c, 9) - 4u; break;
    case 2: bits = (bits & ~fraction) | (draw(c) & fraction); break;
    case 3: bits += ((uint32_t)below(c, 7) - 3u) * (fraction + 1u); break;
    default: bits = (bits & ~fraction) | (draw(c) & draw(c) & draw(c) & fraction); break;
    }
    memcpy(x, &bits, size);
}

/* One array of a call: n numbers of `size` bytes. */
struct array {
    unsigned char *x;
    int64_t n;
    size_t size;
};

static int arrays_of(const struct qm_trial *t, struct array *out)
{
    struct qm_call call = qm_trial_call(t, 0);
    int n = 0;
    out[n++] = (struct array){call.p, t->n, (size_t)qm_param_bytes(&t->recipe.param)};
    out[n++] = (struct array){call.g, t->n, qm_dtype_size(t->recipe.grad)};
    for (int i = 0; i < t->recipe.rule->n_slots; i++) {
        if (strcmp(t->recipe.rule->slot[i], "proj") == 0) /* the step makes it */
            continue;
        if (t->slot[i].bits)
            out[n++] = (struct array){call.codes[i], t->slot_n[i], 1};
        if (t->slot[i].bits && t->slot[i].scale.nest) /* has a format of its own */
            continue;
        out[n++] = (struct array){(unsigned char *)call.scales[i], t->n_scales[i], sizeof(float)};
    }
    return n;
}

static void keep_finite(float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        x[k] = isfinite(x[k]) ? x[k] : 1.0f;
}

/* Numbers must be finite, as only such have a ratio; codes must be codes; scales, and states that
 * take no sign, not negative; a scale that is stored as float16 one of those. */
static void repair(const struct qm_subject *s, struct qm_trial *t)
{
    struct qm_call call = qm_trial_call(t, 0);
    if (qm_param_dtype(&t->recipe.param) == QM_DTYPE_f32)
        keep_finite(call.p, t->n);
    if (t->recipe.grad == QM_DTYPE_f32)
        keep_finite(call.g, t->n);
    for (int i = 0; i < t->recipe.rule->n_slots; i++) {
        const struct qm_quantizer *q = &t->slot[i];
        float *scale = call.scales[i];
        int is_signed = !q->bits && t->recipe.rule->slot_sign[i];
        for (int64_t k = 0; k < t->slot_n[i] && q->bits; k++) {
            uint8_t *code = &call.codes[i][k];
            *code &= (uint8_t)((1u << q->bits) - 1u);
            if (s->decider[i].position_of[*code] < 0)
                *code = s->decider[i].code_of[0];
        }
        for (int64_t k = 0; k < t->n_scales[i]; k++) {
            scale[k] = is_signed ? scale[k] : fabsf(scale[k]);
            if (q->bits && q->scale.f16 != QM_F16_none)
                scale[k] = qm_round_f16(scale[k]);
        }
        keep_finite(scale, t->n_scales[i]);
    }
}

/* Copies element `from` of every array of a number per element over element `to`. */
static void copy_element(const struct qm_trial *t, const struct array *a, int n, int64_t from,
                         int64_t to)
{
    for (int k = 0; k < n; k++)
        if (a[k].n == t->n)
            memcpy(a[k].x + (size_t)to * a[k].size, a[k].x + (size_t)from * a[k].size, a[k].size);
}

static void change_hyper(struct climb *c, struct qm_trial *t)
{
    struct qm_recipe r = t->recipe;
    struct qm_hyper *h = &r.hyper;
    double by = 1.0 + 0.5 * ((double)draw(c) * 0x1p-31 - 1.0);
    struct {
        const char *name;
        double *value;
        int is_share;
    } all[] = {{"lr", &h->lr, 0},
               {"eps", &h->eps, 0},
               {"weight_decay", &h->weight_decay, 0},
               {"beta1", &h->beta1, 1},
               {"beta2", &h->beta2, 1},
               {"beta3", &h->beta3, 1},
               {"momentum", &h->momentum, 1},
               {"clip", &h->clip, 0},
               {"gnorm_scale", &h->gnorm_scale, 0},
               {"max_unorm", &h->max_unorm, 0}};
    size_t k = (size_t)below(c, sizeof all / sizeof *all);
    double was = *all[k].value;
    if (!qm_rule_reads(r.rule, all[k].name) || was < 0.0)
        return;
    *all[k].value = all[k].is_share ? 1.0 - (1.0 - was) * by : was * by;
    if (was > 0.0 && *all[k].value >= 0.0 && qm_recipe_applicable(&r) == QM_OK)
        t->recipe = r;
}

static void change(struct climb *c, struct qm_trial *t, int64_t worst)
{
    struct array a[3 + 2 * QM_MAX_SLOTS];
    struct qm_call call = qm_trial_call(t, 0);
    int n = arrays_of(t, a);
    if (below(c, 8) == 0)
        change_hyper(c, t);
    if (below(c, 32) == 0)
        *call.t = (int64_t)1 << below(c, 20);
    if (worst >= 0 && worst < t->n && below(c, 3) == 0)
        for (int64_t i = 0; i < t->n; i++)
            if (i != worst && below(c, 2))
                copy_element(t, a, n, worst, i);
    int64_t changes = 1 + (below(c, 2) ? below(c, t->n) : below(c, 3));
    for (int64_t k = 0; k < changes; k++) {
        const struct array *to = &a[below(c, n)];
        if (to->n == 0)
            continue;
        int64_t at = below(c, to->n);
        if (worst >= 0 && at == worst && to->n == t->n && below(c, 2))
            continue;
        change_number(c, to->x + (size_t)at * to->size, to->size);
    }
    repair(c->s, t);
}

/* ---- the climb ------------------------------------------------------------------------------- */

/* Judges the trial; *ratio: its largest error / bound, *at: of which element. */
static qm_status judge(struct climb *c, const struct qm_trial *t, double *ratio, int64_t *at)
{
    struct qm_tally *y = c->t;
    memset(y, 0, sizeof *y);
    qm_status st = qm_judge_given(c->s, t, "search", y);
    if (st == QM_SKIPPED || st == QM_BAD_ARG) { /* a rule, or a kernel, refuses the input */
        *ratio = -1.0;
        return QM_OK;
    }
    QM_TRY(st);
    c->out->steps++;
    *ratio = y->number_ratio;
    *at = y->number_at;
    if (*ratio > c->out->ratio) {
        c->out->ratio = *ratio;
        snprintf(c->out->start, sizeof c->out->start, "%s", c->start);
        snprintf(c->out->what, sizeof c->out->what, "%s", y->number_what);
    }
    if (y->failed_cases && !*c->out->failure)
        snprintf(c->out->failure, sizeof c->out->failure, "%s", y->finding[0].text);
    return QM_OK;
}

static qm_status climb_once(struct climb *c, struct qm_trial *t, double until)
{
    struct qm_trial next;
    int64_t worst = -1, at = -1;
    double ratio;
    QM_TRY(judge(c, t, &c->best, &worst));
    for (int idle = 0; idle < PATIENCE && qm_seconds() < until; idle++) {
        QM_TRY(qm_trial_copy(t, NULL, 0, &next));
        change(c, &next, worst);
        qm_status st = judge(c, &next, &ratio, &at);
        int is_better = st == QM_OK && ratio >= c->best;
        if (is_better) {
            struct qm_trial old = *t;
            idle = ratio > c->best ? 0 : idle;
            *t = next;
            next = old;
            c->best = ratio;
            worst = at;
        }
        qm_trial_close(&next);
        QM_TRY(st);
    }
    return QM_OK;
}

/* The subject with its states in these formats: all float32, or as they are. */
static qm_status subject_of(const struct qm_subject *s, enum qm_bound_states states,
                            struct qm_subject *out)
{
    int changes = 0;
    *out = *s;
    for (int i = 0; i < s->recipe.rule->n_slots; i++)
        changes |= s->recipe.slot[i].bits != 0;
    if (!changes && states != QM_BOUND_STATES_own)
        return qm_fail(QM_SKIPPED, "every state is float32 as it is");
    for (int i = 0; i < s->recipe.rule->n_slots && states == QM_BOUND_STATES_f32; i++)
        QM_TRY(qm_recipe_set(&out->recipe, s->recipe.rule->slot[i], "f32"));
    return qm_recipe_applicable(&out->recipe) == QM_OK ? QM_OK
                                                       : qm_fail(QM_SKIPPED, "%s", qm_message());
}

qm_status qm_bound_search(const struct qm_subject *s, enum qm_bound_states states, double seconds,
                          uint64_t seed, struct qm_bound_search_found *out)
{
    struct qm_subject *own = malloc(sizeof *own);
    struct climb c = {.s = own, .states = states, .seed = seed, .out = out};
    double until = qm_seconds() + seconds;
    *out = (struct qm_bound_search_found){0};
    c.t = malloc(sizeof *c.t);
    qm_status st = own && c.t ? subject_of(s, states, own) : qm_fail(QM_NO_MEMORY, "a search");
    if (st == QM_OK)
        st = qm_judge_begin(own, c.t);
    while (st == QM_OK && qm_seconds() < until) {
        struct qm_trial t;
        st = open_start(&c, &t);
        if (st != QM_OK) {
            st = st == QM_SKIPPED || st == QM_BAD_ARG ? QM_OK : st;
            continue;
        }
        st = climb_once(&c, &t, until);
        qm_trial_close(&t);
    }
    free(c.t);
    free(own);
    return st;
}
