/* case_run.c - Opens, reads and closes the two plans of a case and their poisoned buffers. */
#include "experiments/check/case_run.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/slot.h"
#include "experiments/recipes/oracle_hyper.h"

/* Poison of elements of `size` bytes. */
static uint32_t poison(int size)
{
    return size >= 4   ? QM_POISON_FLOAT
           : size == 2 ? 0x10001u * QM_POISON_HALF
                       : 0x1010101u * QM_POISON_BYTE;
}

static void fill(void *at, size_t bytes, uint32_t word)
{
    unsigned char *to = at;
    for (size_t i = 0; i < bytes; i += sizeof word)
        memcpy(to + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
}

static void *poisoned_open(struct qm_poisoned *r, size_t bytes, uint32_t word)
{
    r->bytes = bytes;
    r->word = word;
    r->base = malloc(bytes + 2 * QM_GUARD);
    if (!r->base)
        return NULL;
    fill(r->base, QM_GUARD, word);
    fill(r->base + QM_GUARD, bytes, word);
    fill(r->base + QM_GUARD + bytes, QM_GUARD, word);
    return r->base + QM_GUARD;
}

int qm_poisoned_is_intact(const struct qm_poisoned *r)
{
    unsigned char guard[QM_GUARD];
    fill(guard, QM_GUARD, r->word);
    return memcmp(r->base, guard, QM_GUARD) == 0 &&
           memcmp(r->base + QM_GUARD + r->bytes, guard, QM_GUARD) == 0;
}

/* Opens the plan alone, with this number of threads. */
static qm_status handle_open(struct qm_case_run *r, struct qm_case_plan *s, int threads)
{
    int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    qm_status st = r->s->backend->open(&r->run, &r->c->shape, r->tensor, &s->handle);
    omp_set_num_threads(before);
    return st;
}

static qm_status plan_open(struct qm_case_run *r, struct qm_case_plan *s, int threads)
{
    size_t n = (size_t)r->n;
    const struct qm_stored *f = &r->format;
    uint32_t f32 = poison(4), code = poison(1);
    uint32_t rest = f->residual_bytes == 1 ? 0x1010101u * QM_POISON_RESIDUAL : poison(2);
    QM_TRY(handle_open(r, s, threads));
    int ok = (s->p = poisoned_open(&s->p_memory, sizeof(float) * n, f32)) != NULL;
    s->stored = poisoned_open(&s->stored_memory, (size_t)f->bytes * n, poison(f->bytes));
    s->residual = poisoned_open(&s->residual_memory, (size_t)f->residual_bytes * n, rest);
    ok &= s->stored && s->residual;
    for (int i = 0; i < r->n_slots; i++) {
        size_t scales = sizeof(float) * (size_t)r->n_scales[i], m = (size_t)r->slot_n[i];
        ok &= (s->state[i] = poisoned_open(&s->state_memory[i], sizeof(float) * m, f32)) != NULL;
        ok &= (s->codes[i] = poisoned_open(&s->codes_memory[i], m, code)) != NULL;
        ok &= (s->scales[i] = poisoned_open(&s->scales_memory[i], scales, f32)) != NULL;
    }
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "buffers of %lld elements", (long long)r->n);
}

static void plan_close(const struct qm_case_run *r, struct qm_case_plan *s)
{
    if (s->handle)
        r->s->backend->close(s->handle);
    free(s->p_memory.base);
    free(s->stored_memory.base);
    free(s->residual_memory.base);
    for (int i = 0; i < QM_MAX_SLOTS; i++) {
        free(s->state_memory[i].base);
        free(s->codes_memory[i].base);
        free(s->scales_memory[i].base);
    }
}

void qm_case_run_close(struct qm_case_run *r)
{
    plan_close(r, &r->plan[0]);
    plan_close(r, &r->plan[1]);
    qm_company_close(r);
    qm_baseline_close(&r->float32);
    free(r->g_memory.base);
    free(r->h_memory.base);
    free(r->want_p);
    free(r->before_p);
    free(r->flag);
}

qm_status qm_case_run_memory(struct qm_case_run *r)
{
    size_t n = (size_t)r->n, scales = 1, sum = 0;
    for (int i = 0; i < r->n_slots; i++) {
        scales = (size_t)r->n_scales[i] > scales ? (size_t)r->n_scales[i] : scales;
        sum += (size_t)r->slot_n[i];
    }
    r->g = poisoned_open(&r->g_memory, sizeof *r->g * n, poison(4));
    r->h = poisoned_open(&r->h_memory, sizeof *r->h * n, poison(2));
    r->want_p = malloc(sizeof(double) * (4 * n + 6 * sum + 2 * scales));
    r->before_p = malloc(sizeof(float) * (3 * (n + sum) + 1));
    r->flag = malloc(sizeof(int) * scales);
    if (!r->g || !r->h || !r->want_p || !r->before_p || !r->flag)
        return qm_fail(QM_NO_MEMORY, "buffers of %lld elements", (long long)r->n);
    r->error_p = r->want_p + n;
    r->wide_g = r->error_p + n;
    r->wide_p = r->wide_g + n;
    r->lo = r->wide_p + n;
    r->hi = r->lo + scales;
    double *at = r->hi + scales;
    float *before = r->before_p + n, *draw_error = before + sum;
    for (int i = 0; i < r->n_slots; i++) {
        r->want[i] = at;
        r->error[i] = r->want[i] + r->slot_n[i];
        r->wide[i] = r->error[i] + r->slot_n[i];
        r->stored[i] = r->wide[i] + r->slot_n[i];
        r->before[i] = before;
        r->fused_before[i] = r->stored[i] + r->slot_n[i];
        r->fused_after[i] = r->fused_before[i] + r->slot_n[i];
        at = r->fused_after[i] + r->slot_n[i];
        before += r->slot_n[i];
        r->draw_error[0][i] = draw_error;
        r->draw_error[1][i] = draw_error + r->slot_n[i];
        draw_error += 2 * r->slot_n[i];
    }
    r->draw_error[0][QM_MAX_SLOTS] = draw_error;
    r->draw_error[1][QM_MAX_SLOTS] = draw_error + n;
    for (int i = 0; i < r->n_plans; i++)
        QM_TRY(plan_open(r, &r->plan[i], i + 1));
    return QM_OK;
}

/* 1: a quantizer does not take the shape (norm col of a 1-D tensor). */
static int does_not_fit(const struct qm_case_run *r)
{
    for (int i = 0; i < r->n_slots; i++) {
        struct qm_codec c = {.q = r->decider[i] ? r->decider[i]->q : (struct qm_quantizer){0}};
        if (qm_codec_fits(&c, &r->shape[i]) != QM_OK)
            return 1;
    }
    return 0;
}

/* QM_SKIPPED: the rule or the backend does not take what the case asks for. */
static qm_status can_run(const struct qm_case_run *r)
{
    if (qm_recipe_applicable(&r->judged) != QM_OK)
        return qm_fail(QM_SKIPPED, "%s", qm_message());
    if (qm_case_takes(r->c, QM_PART_schedule) && !r->s->backend->hyper)
        return qm_fail(QM_SKIPPED, "backend %s cannot change hyper-parameters between steps",
                       r->s->backend->name);
    return QM_OK;
}

qm_status qm_case_run_open(struct qm_case_run *r)
{
    QM_TRY(can_run(r));
    r->judged = qm_recipe_at(&r->judged, &r->c->shape);
    if (qm_case_takes(r->c, QM_PART_schedule) && !r->trial)
        r->judged.hyper = qm_hyper_schedule(&r->judged, r->seed, 0); /* initial_lr is now known */
    r->first = r->run = r->judged;
    if (r->s->alter)
        r->s->alter(&r->run);
    r->tensor = r->c->tensor_after_one + 1u;
    r->n_plans = r->trial ? r->trial->n_plans : 2;
    r->n = qm_shape_numel(&r->c->shape);
    r->n_slots = r->judged.rule->n_slots;
    r->hyper = qm_oracle_hyper_of(&r->judged.hyper);
    r->format = qm_stored_of(&r->judged.param);
    r->oracle = qm_oracle_find(r->judged.rule->family);
    for (int i = 0; i < r->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(&r->judged, i, &r->c->shape);
        r->shape[i] = r->c->shape;
        qm_rule_slot_shape(r->judged.rule, &r->judged.hyper, i, &r->c->shape, &r->shape[i]);
        r->slot_n[i] = qm_shape_numel(&r->shape[i]);
        r->decider[i] = q.bits ? &r->s->decider[i] : NULL;
        r->n_scales[i] = q.bits ? qm_groups_count(&q, &r->shape[i], r->slot_n[i]) : r->slot_n[i];
    }
    if (qm_rule_takes(r->judged.rule, &r->judged.hyper, &r->c->shape) != QM_OK)
        return qm_fail(QM_SKIPPED, "the rule does not take this shape");
    return does_not_fit(r) ? qm_fail(QM_SKIPPED, "the quantizers do not take this shape") : QM_OK;
}

qm_status qm_case_run_read(struct qm_case_run *r, struct qm_case_plan *s, int decodes)
{
    const struct qm_backend *b = r->s->backend;
    if (r->format.residual_bytes)
        QM_TRY(b->save(s->handle, QM_RESIDUAL, s->residual, NULL));
    for (int64_t i = 0; i < r->n; i++)
        s->p[i] = (float)qm_stored_seen(&r->format, s->stored, s->residual, i);
    for (int i = 0; i < r->n_slots; i++) {
        size_t n = (size_t)r->slot_n[i], bytes = sizeof(float) * (size_t)r->n_scales[i];
        uint8_t *codes = r->decider[i] ? s->codes[i] : NULL;
        fill(s->codes[i], n, poison(1));
        fill(s->scales[i], bytes, poison(4));
        if (decodes) {
            fill(s->state[i], sizeof(float) * n, poison(4));
            QM_TRY(b->decode(s->handle, i, s->state[i]));
        }
        QM_TRY(b->save(s->handle, i, codes, s->scales[i]));
    }
    return QM_OK;
}

qm_status qm_case_run_hyper(struct qm_case_run *r, int k)
{
    if (!qm_case_takes(r->c, QM_PART_schedule))
        return QM_OK;
    r->judged.hyper =
        r->trial ? *qm_trial_call(r->trial, k).hyper : qm_hyper_schedule(&r->first, r->seed, k);
    r->hyper = qm_oracle_hyper_of(&r->judged.hyper);
    r->run = r->judged;
    if (r->s->alter)
        r->s->alter(&r->run);
    for (int i = 0; i < r->n_plans; i++)
        QM_TRY(r->s->backend->hyper(r->plan[i].handle, &r->run.hyper));
    return QM_OK;
}

qm_status qm_case_run_renew(struct qm_case_run *r)
{
    const struct qm_backend *b = r->s->backend;
    struct qm_company_states *states = NULL;
    QM_TRY(qm_company_save(r, &states));
    for (int i = 0; i < r->n_plans; i++) {
        b->close(r->plan[i].handle);
        r->plan[i].handle = NULL;
    }
    qm_status st = b->restart ? b->restart() : QM_OK;
    if (st == QM_OK)
        st = qm_company_load(r, states);
    qm_company_forget(states);
    for (int i = 0; i < r->n_plans && st == QM_OK; i++) {
        struct qm_case_plan *s = &r->plan[i];
        st = handle_open(r, s, i + 1);
        if (st == QM_OK && r->format.residual_bytes)
            st = b->load(s->handle, QM_RESIDUAL, s->residual, NULL);
        for (int k = 0; k < r->n_slots && st == QM_OK; k++)
            st = b->load(s->handle, k, r->decider[k] ? s->codes[k] : NULL, s->scales[k]);
    }
    return st;
}
