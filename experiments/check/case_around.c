/* case_around.c - Judges the surroundings of a step's numbers: memory, repetition, random draws. */
#include "experiments/check/case_run.h"

#include <string.h>

#include "core/base/half.h"
#include "experiments/check/draws.h"
#include "experiments/check/slot.h"

/* An 8-bit code may equal the poison byte, so poison is looked for in scales and decoded values.
 * Codes are compared with those of the second plan instead (qm_case_judge_repetition). */
void qm_case_judge_memory(struct qm_case_run *r, const struct qm_case_plan *s, int decoded)
{
    uint32_t poison = QM_POISON_FLOAT;
    int intact = qm_poisoned_is_intact(&s->stored_memory) &&
                 qm_poisoned_is_intact(&s->residual_memory) &&
                 qm_poisoned_is_intact(&r->g_memory) && qm_poisoned_is_intact(&r->h_memory);
    for (int i = 0; i < r->n_slots; i++) {
        intact &= qm_poisoned_is_intact(&s->state_memory[i]) &&
                  qm_poisoned_is_intact(&s->codes_memory[i]) &&
                  qm_poisoned_is_intact(&s->scales_memory[i]);
        for (int64_t k = 0; k < r->slot_n[i] && decoded; k++)
            if (qm_bits(s->state[i][k]) == poison)
                qm_finding_set(&r->finding, QM_BAD_MACHINERY, "%s: element %lld was not written",
                               qm_case_slot_name(r, i), (long long)k);
        for (int64_t k = 0; k < r->n_scales[i]; k++)
            if (qm_bits(s->scales[i][k]) == poison)
                qm_finding_set(&r->finding, QM_BAD_MACHINERY, "%s: scale %lld was not written",
                               qm_case_slot_name(r, i), (long long)k);
    }
    if (!intact)
        qm_finding_set(&r->finding, QM_BAD_MACHINERY, "something was written outside a buffer");
}

static int64_t first_difference(const void *a, const void *b, size_t n, size_t size)
{
    if (n * size == 0 || memcmp(a, b, n * size) == 0)
        return -1;
    size_t i = 0;
    while (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0)
        i++;
    return (int64_t)i;
}

/* What makes the same step differ when it is made again: the one call that came between (the judged
 * tensor's own, or another's), the second thread, or chance. */
__attribute__((format(printf, 2, 3))) static void tell_difference(struct qm_case_run *r,
                                                                  const char *format, ...)
{
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    qm_finding_set(&r->finding, QM_BAD_MACHINERY,
                   "made again, with two threads, the step differs (something kept from %s call, "
                   "as in a static variable, memory nobody wrote, or a race): %s",
                   qm_case_has_company(r->c) ? "another tensor's" : "an earlier", what);
}

void qm_case_judge_repetition(struct qm_case_run *r, int decoded)
{
    const struct qm_case_plan *a = &r->plan[0], *b = &r->plan[1];
    int before = r->finding.severity;
    if (r->n_plans < 2)
        return;
    int64_t at = first_difference(a->stored, b->stored, (size_t)r->n, (size_t)r->format.bytes);
    if (at < 0)
        at = first_difference(a->residual, b->residual, (size_t)r->n,
                              (size_t)r->format.residual_bytes);
    if (at >= 0)
        tell_difference(r, "parameter %lld is %a, then %a", (long long)at, (double)a->p[at],
                        (double)b->p[at]);
    for (int i = 0; i < r->n_slots; i++) {
        at = decoded
                 ? first_difference(a->state[i], b->state[i], (size_t)r->slot_n[i], sizeof(float))
                 : -1;
        if (at < 0 && r->decider[i])
            at = first_difference(a->codes[i], b->codes[i], (size_t)r->slot_n[i], 1);
        if (at >= 0)
            tell_difference(r, "%s element %lld is %a, then %a", qm_case_slot_name(r, i),
                            (long long)at, (double)a->state[i][at], (double)b->state[i][at]);
        if (first_difference(a->scales[i], b->scales[i], (size_t)r->n_scales[i], sizeof(float)) >=
            0)
            tell_difference(r, "scales of %s", qm_case_slot_name(r, i));
    }
    if (r->finding.severity > before)
        qm_finding_place(&r->finding, QM_PLACE_REPEAT, QM_SLOT_NONE, 0, 0.0, 0.0);
}

void qm_case_judge_gradient(struct qm_case_run *r, const struct qm_tensor *g)
{
    for (int64_t i = 0; i < r->n; i++) {
        double now;
        qm_to_double(g->data, g->dtype, i, 1, &now);
        if (memcmp(&now, &r->wide_g[i], sizeof now) != 0)
            qm_finding_set(&r->finding, QM_BAD_MACHINERY, "gradient %lld was changed",
                           (long long)i);
    }
}

static const char *drawn_name(const struct qm_case_run *r, int which)
{
    return which == QM_MAX_SLOTS ? "the parameter" : qm_case_slot_name(r, which);
}

/* 1: the rounding of slot `which` draws random numbers; QM_MAX_SLOTS stands for the parameter. */
static int draws(const struct qm_case_run *r, int which)
{
    if (which == QM_MAX_SLOTS)
        return r->judged.param.write == QM_WRITE_stoch && r->judged.param.format != QM_PARAM_f32;
    return which < r->n_slots && r->decider[which] && qm_round_draws(r->decider[which]->q.round);
}

static int64_t drawn_n(const struct qm_case_run *r, int which)
{
    return which == QM_MAX_SLOTS ? r->n : r->slot_n[which];
}

/* Slots from the third on share one role of the random counter, and so their draws are equal. */
static int share_a_role(int a, int b) { return a >= 2 && b >= 2 && b < QM_MAX_SLOTS; }

void qm_case_judge_draws(struct qm_case_run *r, int k)
{
    for (int i = 0; i <= QM_MAX_SLOTS; i++) {
        float *now = r->draw_error[0][i], *old = r->draw_error[1][i];
        int64_t n = draws(r, i) ? drawn_n(r, i) : 0, apart = n ? qm_draws_repeat(now, n) : 0;
        const char *name = n ? drawn_name(r, i) : "";
        if (n && qm_draws_biased(now, n))
            qm_finding_set(&r->finding, QM_BAD_WRONG, "%s: stochastic rounding is biased", name);
        if (apart)
            qm_finding_set(&r->finding, QM_BAD_WRONG,
                           "%s: stochastic rounding of elements %lld apart is related", name,
                           (long long)apart);
        if (n && k > 0 && qm_draws_related(now, old, n))
            qm_finding_set(&r->finding, QM_BAD_WRONG,
                           "%s: stochastic rounding of two steps is related", name);
        for (int j = i + 1; n && j <= QM_MAX_SLOTS; j++)
            if (draws(r, j) && drawn_n(r, j) == n && !share_a_role(i, j) &&
                qm_draws_related(now, r->draw_error[0][j], n))
                qm_finding_set(&r->finding, QM_BAD_WRONG,
                               "stochastic rounding of %s and of %s is related", name,
                               drawn_name(r, j));
    }
    for (int i = 0; i <= QM_MAX_SLOTS; i++)
        if (draws(r, i))
            memcpy(r->draw_error[1][i], r->draw_error[0][i], sizeof(float) * (size_t)drawn_n(r, i));
}
