/* judge.c - Runs a case step by step against the oracle and collects the verdicts. */
#include "experiments/check/judge.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/fnv1a.h"
#include "experiments/check/case_run.h"
#include "experiments/check/trial.h"

/* 1: the rule takes slot i, where it is a single element, for a state that does not exist yet and
 * counts as 0. */
static int is_absent(const struct qm_rule *rule, int i)
{
    struct qm_rule_step s = {0};
    int marks = 0;
    if (rule->mark_absent)
        rule->mark_absent(&s, i);
    for (size_t k = 0; k < sizeof s.flag / sizeof *s.flag; k++)
        marks |= s.flag[k];
    return marks;
}

static qm_status one_step(struct qm_case_run *r, int k, const char *case_name)
{
    int64_t t = r->trial ? *qm_trial_call(r->trial, k).t : r->c->t + k;
    size_t bytes = sizeof(float) * (size_t)r->n;
    struct qm_tensor g;
    /* Codes and scales of the second plan are read in every step.  Its decoded values are read in
     * the last step only, because decoding costs as much as the step. */
    int is_last = r->trial || r->record || k == r->steps - 1;
    if (qm_case_takes(r->c, QM_PART_fresh) && k > 0)
        QM_TRY(qm_case_run_renew(r));
    if (k > 0 || r->trial)
        QM_TRY(qm_case_run_hyper(r, k));
    if (r->trial)
        QM_TRY(qm_case_take_call(r, k));
    if (r->trial || k == 0) /* else the plan was read after the step before */
        QM_TRY(qm_case_run_read(r, &r->plan[0], 1));
    if ((r->trial || k == 0) && qm_case_is_wanted(r, QM_SLOT_NONE)) {
        qm_case_judge_memory(r, &r->plan[0], 1); /* what was not written is no other state */
        qm_case_judge_start(r, k);
    }
    memcpy(r->before_p, r->plan[0].p, bytes);
    for (int i = 0; i < r->n_slots; i++)
        memcpy(r->before[i], r->plan[0].state[i], sizeof(float) * (size_t)r->slot_n[i]);
    for (int i = 0; i < r->n_slots; i++)
        if (r->slot_n[i] == 1 && r->n == 1 && !r->decider[i] && is_absent(r->judged.rule, i))
            r->before[i][0] = 0.0f;
    qm_case_fused_errors(r, &r->plan[0], r->fused_before);
    qm_case_make_gradient(r, t, k, &g);
    if (r->record)
        qm_case_keep_call(r, k, t, &g);
    for (int i = 0; i < r->n_plans; i++) {
        struct qm_tensor p = {r->plan[i].stored, qm_param_dtype(&r->run.param), r->c->shape};
        QM_TRY(qm_company_step(r));
        QM_TRY(r->s->backend->step(r->plan[i].handle, &p, &g, t, r->seed));
        QM_TRY(qm_case_run_read(r, &r->plan[i], i == 0 || is_last));
        if (qm_case_is_wanted(r, QM_SLOT_NONE))
            qm_case_judge_memory(r, &r->plan[i], i == 0 || is_last);
    }
    if (qm_case_is_wanted(r, QM_SLOT_NONE)) {
        qm_case_judge_gradient(r, &g);
        qm_case_judge_repetition(r, is_last);
    }
    QM_TRY(qm_case_judge_numbers(r, t, &g, case_name));
    if (r->only == QM_SLOT_ANY) /* draw errors are collected while all slots are judged */
        qm_case_judge_draws(r, k);
    return QM_OK;
}

/* Errors are compared with float32 only in cases without drawn parts and of more than one element,
 * which some rules treat apart. */
static int is_measured(const struct qm_case_run *r)
{
    const struct qm_case *c = r->c;
    return c->kind == QM_CLASS_normal && r->n > 1 && !c->given && !c->part && !c->powered &&
           !c->tensor_after_one;
}

/* Makes the steps of a case.  Where inputs are recorded or replayed, the first failing step is the
 * last. */
static qm_status run_case(struct qm_case_run *r, int steps, const char *name)
{
    int is_short = r->trial || r->record;
    r->steps = steps;
    QM_TRY(qm_company_open(r, QM_COMPANION_busy));
    QM_TRY(qm_company_open(r, QM_COMPANION_warm));
    QM_TRY(qm_case_run_memory(r));
    QM_TRY(qm_company_open(r, QM_COMPANION_second));
    QM_TRY(qm_company_open(r, QM_COMPANION_group));
    if (!is_short && is_measured(r))
        QM_TRY(qm_baseline_open(&r->float32, &r->judged, &r->c->shape, r->tensor, r->n, r->slot_n));
    if (!r->trial)
        QM_TRY(qm_case_run_start(r));
    for (int k = 0; k < steps && !(is_short && r->finding.severity); k++)
        QM_TRY(one_step(r, k, name));
    return QM_OK;
}

/* Closes the run, counts its case and keeps its finding. */
static qm_status end_case(struct qm_case_run *r, qm_status st, const char *name)
{
    struct qm_tally *t = r->t;
    qm_case_run_close(r);
    if (st != QM_OK)
        return qm_fail_in(st, name);
    t->cases++;
    if (r->finding.severity) {
        t->failed_cases++;
        snprintf(r->finding.name, sizeof r->finding.name, "%s", name);
        if (t->n_findings < QM_FINDINGS)
            t->finding[t->n_findings++] = r->finding;
    }
    return QM_OK;
}

qm_status qm_judge_case(const struct qm_subject *s, const struct qm_case *c, uint64_t seed,
                        struct qm_tally *t)
{
    char name[QM_CASE_TEXT];
    struct qm_case_run r = {.s = s, .c = c, .t = t, .judged = s->recipe, .only = QM_SLOT_ANY};
    qm_case_print(c, name);
    qm_case_apply(c, &r.judged);
    r.seed = qm_fnv1a(seed ^ QM_FNV1A, name, strlen(name));
    if (qm_case_run_open(&r) != QM_OK) {
        t->skipped++;
        return QM_OK;
    }
    t->is_planted = qm_draws_are_planted(r.tensor);
    return end_case(&r, run_case(&r, qm_case_steps(c), name), name);
}

uint64_t qm_case_seed(const struct qm_case *c, uint64_t seed)
{
    char name[QM_CASE_TEXT];
    qm_case_print(c, name);
    return qm_fnv1a(seed ^ QM_FNV1A, name, strlen(name));
}

/* Judges into a tally that is thrown away; *f: the finding. */
static qm_status judge_once(struct qm_case_run *r, int steps, struct qm_finding *f)
{
    struct qm_tally *t = calloc(1, sizeof *t);
    if (!t)
        return qm_fail(QM_NO_MEMORY, "a tally");
    r->t = t;
    qm_status st = qm_case_run_open(r);
    if (st == QM_OK) {
        st = run_case(r, steps, "");
        qm_case_run_close(r);
    }
    free(t);
    if (st == QM_OK)
        *f = r->finding;
    return st;
}

qm_status qm_judge_record(const struct qm_subject *s, const struct qm_case *c, int steps,
                          struct qm_trial *trial, volatile int *begun, struct qm_finding *f)
{
    struct qm_case_run r = {.s = s,
                            .c = c,
                            .judged = trial->recipe,
                            .seed = trial->seed,
                            .record = trial,
                            .begun = begun,
                            .only = QM_SLOT_ANY};
    return judge_once(&r, steps, f);
}

qm_status qm_judge_given(const struct qm_subject *s, const struct qm_trial *trial, const char *name,
                         struct qm_tally *t)
{
    struct qm_case c = qm_trial_case(trial);
    struct qm_case_run r = {.s = s,
                            .c = &c,
                            .t = t,
                            .judged = trial->recipe,
                            .seed = trial->seed,
                            .trial = trial,
                            .only = QM_SLOT_ANY};
    QM_TRY(qm_case_run_open(&r));
    return end_case(&r, run_case(&r, trial->n_calls, name), name);
}

qm_status qm_judge_trial(const struct qm_subject *s, const struct qm_trial *trial, int slot,
                         struct qm_finding *f)
{
    struct qm_case c = qm_trial_case(trial);
    struct qm_case_run r = {.s = s,
                            .c = &c,
                            .judged = trial->recipe,
                            .seed = trial->seed,
                            .trial = trial,
                            .only = slot};
    return judge_once(&r, trial->n_calls, f);
}
