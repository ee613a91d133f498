/* case_input.c - Provides the inputs of a step, from the case's generators or from a trial. */
#include "experiments/check/case_run.h"

#include <math.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/check/slot.h"
#include "experiments/check/trial.h"

/* The oracle's slot i of a tensor of one element after a step from `state` with gradient g; NaN
 * where a slot of such a tensor has more than one number. */
static double next_state(const struct qm_case_run *r, int i, int64_t t, double state, double g)
{
    const struct qm_shape one = {r->c->shape.rank < 2 ? 1 : 2, {1, 1}};
    double p = 0.0, room[QM_MAX_SLOTS] = {0.0}, *slot[QM_MAX_SLOTS];
    for (int k = 0; k < r->n_slots; k++) {
        struct qm_shape own = one;
        qm_rule_slot_shape(r->judged.rule, &r->judged.hyper, k, &one, &own);
        if (qm_shape_numel(&own) > 1)
            return (double)NAN;
        slot[k] = &room[k];
    }
    room[i] = state;
    if (qm_oracle_step(r->oracle, &p, slot, &g, &one, r->tensor, &r->hyper, t) != QM_OK)
        return (double)NAN;
    return room[i];
}

/* The weights of slot i as an average of its state and of g (or g^2), asked of the oracle.  Both
 * are 0 where the slot is no such average (a clipped update, a projection). */
static struct qm_aim_weight weight_of(const struct qm_case_run *r, int i, int64_t t)
{
    double give = next_state(r, i, t, 0.0, 1.0), half = next_state(r, i, t, 0.0, 0.5);
    double share = r->judged.rule->slot_sign[i] ? 0.5 : 0.25;
    if (!(fabs(half - share * give) <= 1e-6 * fabs(give)))
        return (struct qm_aim_weight){0.0, 0.0};
    return (struct qm_aim_weight){next_state(r, i, t, 1.0, 0.0), give};
}

int qm_case_is_sum(const struct qm_case_run *r, int i, int64_t t)
{
    struct qm_aim_weight w = weight_of(r, i, t);
    return r->judged.rule->elementwise && w.keep > 0.0 && w.give > 0.0 &&
           fabs(w.keep + w.give - 1.0) > 1e-3;
}

static int same_shape(const struct qm_shape *a, const struct qm_shape *b)
{
    int same = a->rank == b->rank;
    for (int i = 0; i < a->rank && same; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

static struct qm_aim aim_of(const struct qm_case_run *r, int64_t t)
{
    struct qm_aim aim = {.recipe = &r->judged,
                         .shape = &r->c->shape,
                         .n = r->n,
                         .seed = r->seed,
                         .power = qm_case_power(r->c, QM_POWER_g)};
    for (int i = 0; i < r->n_slots; i++) {
        const struct qm_decider *d = r->decider[i];
        if (d && !qm_slot_has_numbers(&d->q) && same_shape(&r->shape[i], &r->c->shape)) {
            aim.slot[i] = d;
            aim.weight[i] = weight_of(r, i, t);
        }
    }
    return aim;
}

void qm_case_make_gradient(struct qm_case_run *r, int64_t t, int k, struct qm_tensor *out)
{
    if (r->trial) {
        void *g = r->judged.grad == QM_DTYPE_f32 ? (void *)r->g : (void *)r->h;
        memcpy(g, qm_trial_call(r->trial, k).g, (size_t)r->n * qm_dtype_size(r->judged.grad));
        *out = (struct qm_tensor){g, r->judged.grad, r->c->shape};
        qm_to_double(out->data, out->dtype, 0, r->n, r->wide_g);
        return;
    }
    struct qm_aim aim = aim_of(r, t);
    for (int i = 0; i < r->n_slots; i++)
        aim.state[i] = r->before[i];
    qm_case_gradient(r->c, &aim, t, k, r->g);
    *out = (struct qm_tensor){r->g, QM_DTYPE_f32, r->c->shape};
    if (r->judged.grad != QM_DTYPE_f32) {
        for (int64_t i = 0; i < r->n; i++)
            r->h[i] = r->judged.grad == QM_DTYPE_bf16 ? qm_float_to_bf16(r->g[i])
                                                      : qm_float_to_f16(r->g[i]);
        *out = (struct qm_tensor){r->h, r->judged.grad, r->c->shape};
    }
    qm_to_double(out->data, out->dtype, 0, r->n, r->wide_g);
}

/* A projection is no state that can be anything: it is left as it starts. */
static int is_loaded(const struct qm_case_run *r, int i)
{
    return qm_case_loads(r->c) && strcmp(r->judged.rule->slot[i], "proj") != 0;
}

/* Row j of x[n][n] less its parts along the rows before it, of length 1; 0 where nothing that is
 * finite remains. */
static int orthogonalize_row(int64_t n, int64_t j, float *x)
{
    double size = 0.0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t k = 0; k < j; k++) {
            double dot = 0.0;
            for (int64_t i = 0; i < n; i++)
                dot += (double)x[j * n + i] * (double)x[k * n + i];
            for (int64_t i = 0; i < n; i++)
                x[j * n + i] = (float)((double)x[j * n + i] - dot * (double)x[k * n + i]);
        }
    for (int64_t i = 0; i < n; i++)
        size += (double)x[j * n + i] * (double)x[j * n + i];
    for (int64_t i = 0; i < n; i++)
        x[j * n + i] = (float)((double)x[j * n + i] / sqrt(size));
    return size > 0.0 && isfinite(size);
}

/* Eigenvectors are orthogonal: each square of rows of a slot of that name becomes so, in three of
 * four cases, unless it cannot. */
static void make_orthogonal(const struct qm_case_run *r, int i, float *x)
{
    int64_t n = r->shape[i].rank == 2 ? r->shape[i].dim[1] : 0;
    if (!strstr(r->judged.rule->slot[i], "_vectors") || r->seed % 4 == 0)
        return;
    for (int64_t from = 0; n > 0 && from + n * n <= r->slot_n[i]; from += n * n)
        for (int64_t j = 0; j < n; j++)
            if (!orthogonalize_row(n, j, x + from))
                return;
}

/* Draws slot i, in its own format, into the plan's buffers. */
static qm_status draw_state(struct qm_case_run *r, const struct qm_aim *aim, int i,
                            struct qm_case_plan *plan)
{
    const struct qm_decider *d = r->decider[i];
    struct qm_draws draws = qm_draws_for(r->seed, 0, r->tensor, QM_ROLE_spare);
    struct qm_codec codec;
    qm_case_state(r->c, aim, i, r->slot_n[i], d ? plan->state[i] : plan->scales[i]);
    make_orthogonal(r, i, d ? plan->state[i] : plan->scales[i]);
    if (!d)
        return QM_OK;
    QM_TRY(qm_codec_init(&codec, &d->q));
    return qm_encode(&codec, &r->shape[i], plan->state[i], &draws, plan->codes[i], plan->scales[i]);
}

/* Fills the plan's buffers with the state that every plan of this recipe starts from. */
static qm_status take_start(const struct qm_case_run *r, struct qm_case_plan *plan)
{
    const struct qm_backend *b = &qm_backend_cpu;
    void *own = NULL;
    QM_TRY(b->open(&r->run, &r->c->shape, r->tensor, &own));
    qm_status st = b->save(own, QM_RESIDUAL, plan->residual, NULL);
    for (int i = 0; i < r->n_slots && st == QM_OK; i++)
        st = b->save(own, i, r->decider[i] ? plan->codes[i] : NULL, plan->scales[i]);
    b->close(own);
    return st;
}

qm_status qm_case_run_start(struct qm_case_run *r)
{
    struct qm_aim aim = aim_of(r, r->c->t);
    QM_TRY(take_start(r, &r->plan[1])); /* what qm_case_judge_start expects */
    for (int s = 0; s < 2; s++) {
        struct qm_case_plan *plan = &r->plan[s];
        qm_case_start(r->c, &aim, plan->p);
        for (int64_t i = 0; i < r->n; i++)
            qm_stored_put(&r->format, plan->stored, i, (double)plan->p[i]);
        for (int i = 0; i < r->n_slots; i++) {
            int is_aimed =
                qm_case_load(r->c, &aim, i, r->n_scales[i], plan->codes[i], plan->scales[i]);
            if (!is_aimed && is_loaded(r, i))
                QM_TRY(draw_state(r, &aim, i, plan));
            if (is_aimed || is_loaded(r, i))
                QM_TRY(r->s->backend->load(plan->handle, i, r->decider[i] ? plan->codes[i] : NULL,
                                           plan->scales[i]));
        }
    }
    return QM_OK;
}

qm_status qm_case_take_call(struct qm_case_run *r, int k)
{
    struct qm_call from = qm_trial_call(r->trial, k);
    const struct qm_backend *b = r->s->backend;
    for (int s = 0; s < r->n_plans; s++) {
        memcpy(r->plan[s].stored, from.p, (size_t)r->format.bytes * (size_t)r->n);
        if (r->format.residual_bytes)
            QM_TRY(b->load(r->plan[s].handle, QM_RESIDUAL, from.residual, NULL));
        for (int i = 0; i < r->n_slots; i++)
            QM_TRY(b->load(r->plan[s].handle, i, r->decider[i] ? from.codes[i] : NULL,
                           from.scales[i]));
    }
    return QM_OK;
}

static int is_other(const void *got, const void *given, size_t bytes)
{
    return bytes > 0 && memcmp(got, given, bytes) != 0;
}

/* 1: these values of a slot without codes are not the given ones, nor those in bfloat16, as which
 * some recipes store what they do not quantize; any two NaNs are equal. */
static int are_other_values(const float *got, const float *given, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        float narrow = qm_bf16_to_float(qm_float_to_bf16(given[k]));
        if (memcmp(&got[k], &given[k], sizeof *got) != 0 &&
            memcmp(&got[k], &narrow, sizeof *got) != 0 && !(isnan(got[k]) && isnan(given[k])))
            return 1;
    }
    return 0;
}

/* 1: slot i, which has codes, as the backend decodes it, has other bits than these codes and scales
 * decode to; any two NaNs are equal.  With freedoms of order it may be off by 2^-16, more than the
 * roundings of a decoding are: whether the state arrived is asked here, not how it is rounded. */
static int decodes_otherwise(struct qm_case_run *r, int i, const uint8_t *codes,
                             const float *scales)
{
    const double part = r->s->reorder.recip || r->s->reorder.fma ? 0x1p-16 : 0.0;
    const float *got = r->plan[0].state[i];
    float *want = (float *)(void *)r->want[i]; /* room: the oracle's results come later */
    struct qm_codec c;
    if (r->slot_n[i] == 0 || qm_codec_init(&c, &r->decider[i]->q) != QM_OK)
        return 0;
    qm_decode(&c, &r->shape[i], codes, scales, want);
    for (int64_t k = 0; k < r->slot_n[i]; k++) {
        double off = fabs((double)got[k] - (double)want[k]);
        if (memcmp(&got[k], &want[k], sizeof *got) != 0 && !(isnan(got[k]) && isnan(want[k])) &&
            !(part > 0.0 && off <= part * fabs((double)want[k]) + 0x1p-140))
            return 1;
    }
    return 0;
}

static void tell_start(struct qm_case_run *r, const char *name, const char *what)
{
    qm_finding_set(&r->finding, QM_BAD_MACHINERY,
                   "before the step, the %s of %s that the backend gives back are not those that "
                   "it was given",
                   what, name);
}

void qm_case_judge_start(struct qm_case_run *r, int k)
{
    const struct qm_case_plan *got = &r->plan[0], *start = &r->plan[1];
    struct qm_call from = {0};
    if (r->trial)
        from = qm_trial_call(r->trial, k);
    if (is_other(got->residual, r->trial ? from.residual : start->residual,
                 (size_t)r->format.residual_bytes * (size_t)r->n))
        tell_start(r, "the parameter", "residuals");
    for (int i = 0; i < r->n_slots; i++) {
        const uint8_t *codes = r->trial ? from.codes[i] : start->codes[i];
        const float *scales = r->trial ? from.scales[i] : start->scales[i];
        if (r->decider[i] && is_other(got->codes[i], codes, (size_t)r->slot_n[i]))
            tell_start(r, qm_case_slot_name(r, i), "codes");
        if (!r->decider[i] && are_other_values(got->scales[i], scales, r->n_scales[i]))
            tell_start(r, qm_case_slot_name(r, i), "values");
        if (!r->decider[i])
            continue;
        if (is_other(got->scales[i], scales, sizeof(float) * (size_t)r->n_scales[i]))
            tell_start(r, qm_case_slot_name(r, i), "scales");
        else if (decodes_otherwise(r, i, codes, scales))
            tell_start(r, qm_case_slot_name(r, i), "decoded values");
    }
}

void qm_case_keep_call(struct qm_case_run *r, int k, int64_t t, const struct qm_tensor *g)
{
    int at = k < r->record->n_calls ? k : r->record->n_calls - 1;
    struct qm_call to = qm_trial_call(r->record, at);
    const struct qm_case_plan *s = &r->plan[0];
    *to.t = t;
    *to.hyper = r->judged.hyper;
    memcpy(to.p, s->stored, (size_t)r->format.bytes * (size_t)r->n);
    memcpy(to.residual, s->residual, (size_t)r->format.residual_bytes * (size_t)r->n);
    memcpy(to.g, g->data, (size_t)r->n * qm_dtype_size(g->dtype));
    for (int i = 0; i < r->n_slots; i++) {
        if (r->decider[i])
            memcpy(to.codes[i], s->codes[i], (size_t)r->slot_n[i]);
        memcpy(to.scales[i], s->scales[i], sizeof(float) * (size_t)r->n_scales[i]);
    }
    *r->begun = k + 1;
}
