/* shrink.c - Records a failing step's inputs and tries the reductions on them in order. */
#include "experiments/kernel/shrink.h"
#include "core/base/clock.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/check/slot.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/shrink_parts.h"

enum { KEPT_MOST = 1 << 22 }; /* most elements of all steps that are recorded together */

/* ---- equal failures -------------------------------------------------------------------------- */

/* Failures of one kind: a number out of bounds, a number that must not be finite, a place of
 * damage. */
static int kind_of(const struct qm_finding *f)
{
    return f->severity == QM_BAD_MACHINERY ? 2 + (int)f->place : f->severity == QM_BAD_SPECIAL;
}

/* The kind of the emulator's finding, by its text. */
static int emulator_kind(const char *text)
{
    static const char *const words[] = {"data race",      "out of bounds", "has written",
                                        "another stream", "misaligned",    "overflow",
                                        "divergent",      "take part",     "mask"};
    int k = 0;
    while (k < (int)(sizeof words / sizeof *words) && !strstr(text, words[k]))
        k++;
    return k;
}

static int is_equal_failure(const struct qm_kernel_verdict *a, const struct qm_kernel_verdict *b)
{
    if (a->how == QM_CASE_failed && a->finding.place == QM_PLACE_LAYER &&
        emulator_kind(a->text) != emulator_kind(b->text))
        return 0;
    return a->how == b->how && a->signal == b->signal &&
           (a->how != QM_CASE_failed ||
            (a->finding.slot == b->finding.slot && kind_of(&a->finding) == kind_of(&b->finding)));
}

int qm_shrink_is_over(struct qm_shrink *s)
{
    int over = qm_seconds() >= s->until || (s->attempts->stop && *s->attempts->stop);
    s->out->is_cut |= over;
    return over;
}

/* Seconds of one attempt: a share per element, and little where the first failure is a hang. */
static double limit(const struct qm_shrink *s, const struct qm_trial *t)
{
    double most = (s->first.how == QM_CASE_hung ? 0.2 : 2.0) + 2e-5 * (double)t->n * t->n_calls;
    double left = s->until - qm_seconds();
    return most < left ? most : left;
}

int qm_shrink_fails(struct qm_shrink *s, const struct qm_trial *t)
{
    int slot = s->first.how == QM_CASE_failed ? s->first.finding.slot : QM_SLOT_NONE;
    if (qm_shrink_is_over(s))
        return 0;
    const struct qm_kernel_verdict *o = qm_attempt_judge(s->attempts, t, slot, limit(s, t));
    if (!is_equal_failure(o, &s->first))
        return 0;
    s->out->attempt = *o;
    return 1;
}

int qm_shrink_take(struct qm_shrink *s, struct qm_trial *candidate)
{
    int is_smaller = qm_shrink_fails(s, candidate);
    if (is_smaller) {
        qm_trial_close(&s->out->trial);
        s->out->trial = *candidate;
    } else {
        qm_trial_close(candidate);
    }
    return is_smaller;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int without_calls(struct qm_shrink *s, int start, int count)
{
    const struct qm_trial *t = &s->out->trial;
    struct qm_trial candidate;
    int *from = malloc(sizeof *from * (size_t)t->n_calls), n = 0;
    for (int k = 0; k < t->n_calls && from; k++)
        if (k < start || k >= start + count)
            from[n++] = k;
    int done =
        from && qm_trial_copy(t, from, n, &candidate) == QM_OK && qm_shrink_take(s, &candidate);
    free(from);
    return done;
}

static void fewer_calls(struct qm_shrink *s)
{
    struct qm_trial *t = &s->out->trial;
    if (t->n_calls > 1)
        without_calls(s, 0, t->n_calls - 1);
    for (int count = t->n_calls / 2; count >= 1; count /= 2)
        for (int start = 0; start < t->n_calls && t->n_calls > 1;)
            if (count >= t->n_calls || !without_calls(s, start, count))
                start += count;
}

static void one_plan(struct qm_shrink *s)
{
    struct qm_trial *t = &s->out->trial;
    t->n_plans = 1;
    if (s->first.finding.place == QM_PLACE_REPEAT || !qm_shrink_fails(s, t))
        t->n_plans = 2;
}

/* ---- hyper-parameters ------------------------------------------------------------------------ */

/* 1: the trial's memory still fits its recipe. */
static int has_equal_layout(const struct qm_trial *t)
{
    struct qm_trial again = *t;
    if (qm_recipe_applicable(&t->recipe) != QM_OK || qm_trial_open(&again) != QM_OK)
        return 0;
    qm_trial_close(&again);
    return again.call_bytes == t->call_bytes &&
           memcmp(again.slot_n, t->slot_n, sizeof t->slot_n) == 0;
}

static void simpler_hyper(struct qm_shrink *s, double *h, const double *to, int n)
{
    double was = *h;
    for (int i = 0; i < n && *to != was; i++) {
        if (to[i] == was)
            return;
        *h = to[i];
        if (has_equal_layout(&s->out->trial) && qm_shrink_fails(s, &s->out->trial))
            return;
        *h = was;
    }
}

static void simpler_settings(struct qm_shrink *s)
{
    static const double small[] = {0.0, 0.5, 1.0, 2.0}, rate[] = {1.0, 0.5, 0.0};
    static const int64_t step[] = {1, 2, 3, 10, 100};
    struct qm_trial *t = &s->out->trial;
    struct qm_hyper *h = &t->recipe.hyper;
#define X(name, value, text)                                            \
    simpler_hyper(s, &h->name, strcmp(#name, "lr") == 0 ? rate : small, \
                  strcmp(#name, "lr") == 0 ? 3 : 4);
    QM_HYPER_LIST(X)
#undef X
#define X(name, value, text)                                                                 \
    if (h->name) {                                                                           \
        int was = h->name;                                                                   \
        h->name = 0;                                                                         \
        if (strcmp(#name, "amsgrad") == 0 || !has_equal_layout(t) || !qm_shrink_fails(s, t)) \
            h->name = was;                                                                   \
    }
    QM_HYPER_FLAG_LIST(X)
#undef X
    for (int k = 0; k < t->n_calls; k++) {
        int64_t *at = qm_trial_call(t, k).t, was = *at;
        for (size_t i = 0; i < sizeof step / sizeof *step && step[i] < was; i++) {
            *at = step[i];
            if (qm_shrink_fails(s, t))
                break;
            *at = was;
        }
    }
    uint64_t seed = t->seed;
    t->seed = 0;
    if (!qm_shrink_fails(s, t))
        t->seed = seed;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Records the inputs of all steps where there is room for them.  Otherwise it records the failing
 * step's, or those of all steps where this step alone does not fail. */
static qm_status begin(struct qm_shrink *s, const struct qm_case *c, uint64_t seed, int steps)
{
    struct qm_trial *t = &s->out->trial;
    int64_t n = qm_shape_numel(&c->shape);
    int room = n * steps <= KEPT_MOST ? steps : 1;
    double long_enough = 5.0 + 2e-5 * (double)n * steps, left = s->until - qm_seconds();
    long_enough = long_enough < left ? long_enough : left;
    for (;;) {
        QM_TRY(qm_trial_of_case(&s->attempts->subject->recipe, c, seed, room, t));
        s->first = *qm_attempt_record(s->attempts, c, steps, t, long_enough);
        int begun = s->attempts->begun;
        s->found = qm_seconds();
        if (s->first.how == QM_CASE_refused)
            return qm_fail(QM_SKIPPED, "%s", s->first.text);
        if (s->first.how == QM_CASE_hung && qm_seconds() >= s->until)
            return qm_fail(QM_NO_MATCH, "time ran out before the case had failed");
        if (!qm_case_result_is_bad(s->first.how) || begun < 1)
            return qm_fail(QM_NO_MATCH, "nothing to shrink: no step of this case fails");
        s->out->attempt = s->first;
        s->out->steps_before = begun;
        if (room >= begun) {
            t->n_calls = begun;
            return QM_OK;
        }
        if (qm_shrink_guess(s) || qm_shrink_fails(s, t))
            return QM_OK;
        qm_trial_close(t);
        room = steps;
    }
}

qm_status qm_shrink(struct qm_attempts *attempts, const struct qm_case *c, uint64_t seed, int steps,
                    double until, struct qm_shrunk *out)
{
    struct qm_shrink s = {.attempts = attempts, .out = out, .until = until};
    double from = qm_seconds();
    memset(out, 0, sizeof *out);
    qm_status st = begin(&s, c, seed, steps);
    if (st != QM_OK) {
        qm_trial_close(&out->trial);
        return st;
    }
    out->elements_before = qm_shape_numel(&c->shape);
    fewer_calls(&s);
    qm_shrink_guess(&s);
    one_plan(&s);
    qm_shrink_flatten(&s);
    qm_shrink_guess(&s);
    qm_shrink_zero_all(&s);
    qm_shrink_elements(&s);
    qm_shrink_flatten(&s);
    qm_shrink_axes(&s);
    simpler_settings(&s);
    if (qm_shrink_zeroes(&s))
        qm_shrink_elements(&s);
    qm_shrink_floats(&s);
    simpler_settings(&s);
    out->attempts = attempts->n;
    out->seconds = qm_seconds() - from;
    out->case_seconds = s.found - from;
    return QM_OK;
}

int64_t qm_shrunk_blocks(const struct qm_shrunk *s)
{
    int64_t block = qm_trial_block(&s->trial);
    return block > 0 ? (s->trial.n + block - 1) / block : 1;
}
