/* case_numbers.c - Gives every number of a step its verdict. */
#include "experiments/check/case_run.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/check/slot.h"

/* Counts the verdict on a float32 number; returns 1 when the number is out of bounds. */
static int judge_number(struct qm_case_run *r, double got, double want, double error,
                        const char *case_name)
{
    double off = fabs(got - want);
    if (isfinite(want) && !(error < HUGE_VAL)) {
        r->t->unbounded++;
        return 0;
    }
    if (isinf(want) && !(error < HUGE_VAL) && r->judged.rule->tensor)
        want = (double)NAN; /* sums that overflow in one order alone leave the sign open */
    enum qm_verdict is = qm_verdict_number(got, want, error);
    r->t->judged++;
    r->t->verdict[is]++;
    if (isfinite(want) && error > 0.0 && off / error > r->t->number_ratio)
        r->t->number_ratio = off / error;
    if (isfinite(want) && error > 0.0 && off / error > r->t->worst_ratio) {
        r->t->worst_ratio = off / error;
        snprintf(r->t->worst_case, sizeof r->t->worst_case, "%s", case_name);
    }
    return is == QM_VERDICT_WRONG;
}

/* Appends the inputs of element i to the text, so that the element can be recomputed by hand. */
static void put_inputs(const struct qm_case_run *r, int64_t i, int64_t t, char *text, size_t size)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "; step %lld", (long long)t);
    if (i < 0)
        return;
    used = strlen(text);
    if (i < r->n)
        snprintf(text + used, size - used, ", p %a, g %a", (double)r->before_p[i], r->wide_g[i]);
    for (int k = 0; k < r->n_slots; k++) {
        used = strlen(text);
        if (i < r->slot_n[k])
            snprintf(text + used, size - used, ", %s %a", qm_case_slot_name(r, k),
                     (double)r->before[k][i]);
    }
    qm_finding_tidy(text);
}

static void add_inputs(struct qm_case_run *r, int64_t i, int64_t t)
{
    put_inputs(r, i, t, r->finding.text, sizeof r->finding.text);
}

static void judge_floats(struct qm_case_run *r, int slot, int64_t t, const char *case_name)
{
    const float *got = slot < 0 ? r->plan[0].p : r->plan[0].state[slot];
    const double *want = slot < 0 ? r->want_p : r->want[slot];
    const double *error = slot < 0 ? r->error_p : r->error[slot];
    const char *name = slot < 0 ? "parameter" : qm_case_slot_name(r, slot);
    char wanted[QM_WANT_TEXT];
    for (int64_t i = 0; i < (slot < 0 ? r->n : r->slot_n[slot]); i++) {
        double before = r->t->worst_ratio, number_before = r->t->number_ratio;
        int bad = judge_number(r, (double)got[i], want[i], error[i], case_name);
        if (r->t->number_ratio > number_before) {
            r->t->number_at = i;
            snprintf(r->t->number_what, sizeof r->t->number_what, "%s %lld is %a, want %s", name,
                     (long long)i, (double)got[i], qm_want_text(want[i], error[i], wanted));
            put_inputs(r, i, t, r->t->number_what, sizeof r->t->number_what);
        }
        if (r->t->worst_ratio > before)
            memcpy(r->t->worst_what, r->t->number_what, sizeof r->t->worst_what);
        if (bad && qm_finding_set(&r->finding, isfinite(want[i]) ? QM_BAD_BOUND : QM_BAD_SPECIAL,
                                  "%s %lld is %a, want %s", name, (long long)i, (double)got[i],
                                  qm_want_text(want[i], error[i], wanted))) {
            double slack = isfinite(want[i]) ? error[i] : (double)NAN;
            add_inputs(r, i, t);
            qm_finding_place(&r->finding, QM_PLACE_NUMBER, slot, i, want[i] - slack,
                             want[i] + slack);
        }
    }
}

static void judge_stored(struct qm_case_run *r, int64_t t)
{
    const struct qm_stored_array a = {&r->format, r->plan[0].stored, r->plan[0].residual};
    for (int64_t i = 0; i < r->n; i++) {
        char text[QM_STORED_TEXT] = "";
        int unbounded;
        r->t->draw_error = 0.0f;
        enum qm_verdict is =
            qm_stored_judge(&a, i, r->want_p[i], r->error_p[i], r->t, &unbounded, text);
        r->t->unbounded += unbounded;
        r->draw_error[0][QM_MAX_SLOTS][i] = r->t->draw_error;
        if (unbounded)
            continue;
        r->t->judged++;
        r->t->verdict[is]++;
        if (is >= QM_VERDICT_OFF_BY_ONE &&
            qm_finding_set(&r->finding, isfinite(r->want_p[i]) ? QM_BAD_BOUND : QM_BAD_SPECIAL,
                           "parameter %lld %s", (long long)i, text)) {
            add_inputs(r, i, t);
            double slack = isfinite(r->want_p[i]) ? r->error_p[i] : (double)NAN;
            qm_finding_place(&r->finding, QM_PLACE_NUMBER, QM_SLOT_PARAM, i, r->want_p[i] - slack,
                             r->want_p[i] + slack);
        }
    }
}

static void judge_slot(struct qm_case_run *r, int i, int64_t t, const char *case_name)
{
    struct qm_slot_view v = {.d = r->decider[i],
                             .shape = &r->shape[i],
                             .n = r->slot_n[i],
                             .want = r->want[i],
                             .error = r->error[i],
                             .before = qm_case_is_sum(r, i, t) ? r->before[i] : NULL,
                             .codes = r->plan[0].codes[i],
                             .scales = r->plan[0].scales[i],
                             .decoded = r->plan[0].state[i],
                             .draw_error = r->draw_error[0][i],
                             .reorder = r->s->reorder};
    struct qm_finding f = {.severity = r->finding.severity};
    int64_t at = -1;
    double before = r->t->worst_ratio;
    qm_slot_judge(&v, i, r->lo, r->hi, r->flag, r->t, &f, &at);
    if (r->t->worst_ratio > before) {
        snprintf(r->t->worst_case, sizeof r->t->worst_case, "%s", case_name);
        snprintf(r->t->worst_what, sizeof r->t->worst_what, "a scale of %s, step %lld",
                 qm_case_slot_name(r, i), (long long)t);
    }
    if (qm_finding_set(&r->finding, f.severity, "%s: %s", qm_case_slot_name(r, i), f.text)) {
        qm_finding_place(&r->finding, f.place, i, f.at, f.low, f.high);
        memcpy(r->finding.takes, f.takes, sizeof f.takes);
        add_inputs(r, at, t);
    }
}

qm_status qm_case_judge_numbers(struct qm_case_run *r, int64_t t, const struct qm_tensor *g,
                                const char *case_name)
{
    if (r->only == QM_SLOT_NONE)
        return QM_OK;
    QM_TRY(qm_case_oracle(r, t, g));
    if (qm_case_is_wanted(r, QM_SLOT_PARAM) && r->judged.param.format == QM_PARAM_f32)
        judge_floats(r, -1, t, case_name);
    else if (qm_case_is_wanted(r, QM_SLOT_PARAM))
        judge_stored(r, t);
    for (int i = 0; i < r->n_slots; i++) {
        if (qm_case_is_wanted(r, i) && r->decider[i])
            judge_slot(r, i, t, case_name);
        else if (qm_case_is_wanted(r, i))
            judge_floats(r, i, t, case_name);
    }
    return QM_OK;
}
