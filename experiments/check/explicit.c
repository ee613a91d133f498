/* explicit.c - judges a step from its buffers. */
#include "experiments/check/explicit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/slot.h"
#include "oracle/bound.h"

/* The oracle's results and their bounds. */
struct reference {
    int64_t n;
    int n_slots;
    double *p, *e_p, *slot[QM_MAX_SLOTS], *e[QM_MAX_SLOTS];
    double *old_p, *old[QM_MAX_SLOTS]; /* the inputs, widened */
    double *lo, *hi;                   /* scratch per scale */
    int *flag;
};

static qm_status reference_open(const struct qm_explicit *e, struct reference *r)
{
    size_t scales = 1, n;
    r->n = qm_shape_numel(e->shape);
    r->n_slots = e->recipe->rule->n_slots;
    n = (size_t)r->n;
    for (int i = 0; i < r->n_slots; i++)
        if (e->codes[i]) {
            size_t here = (size_t)qm_groups_count(&e->subject->decider[i].q, e->shape, r->n);
            scales = here > scales ? here : scales;
        }
    r->p = malloc(sizeof(double) * (n * (size_t)(3 + 3 * r->n_slots) + 2 * scales));
    r->flag = malloc(sizeof(int) * scales);
    if (!r->p || !r->flag)
        return qm_fail(QM_NO_MEMORY, "%s: %lld elements", e->name, (long long)r->n);
    r->e_p = r->p + n;
    r->old_p = r->e_p + n;
    for (int i = 0; i < r->n_slots; i++) {
        r->slot[i] = r->p + (size_t)(3 + 3 * i) * n;
        r->e[i] = r->slot[i] + n;
        r->old[i] = r->e[i] + n;
    }
    r->lo = r->p + n * (size_t)(3 + 3 * r->n_slots);
    r->hi = r->lo + scales;
    return QM_OK;
}

static struct qm_oracle_hyper oracle_hyper(const struct qm_hyper *h)
{
    return (struct qm_oracle_hyper){
#define X(name, value, text) .name = h->name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
}

/* What rounding a plain slot to 16 bits may change: half an ulp. */
static double plain_error(const struct qm_explicit *e, int slot, double x)
{
    struct qm_quantizer q = qm_recipe_slot(e->recipe, slot, e->shape);
    if (q.bits != 0 || q.plain == QM_PLAIN_f32)
        return 0.0;
    if (q.plain == QM_PLAIN_f16)
        return x >= 65504.0 ? (double)INFINITY : 0x1p-11 * x + 0x1p-25;
    return x >= 0x1.fep127 ? (double)INFINITY : 0x1p-8 * x + 0x1p-134;
}

/* One step of the oracle from the buffers before, and the bound of every result. */
static qm_status reference_step(const struct qm_explicit *e, struct reference *r)
{
    const struct qm_oracle *oracle = qm_oracle_find(e->recipe->rule->family);
    struct qm_oracle_hyper h = oracle_hyper(&e->recipe->hyper);
    const double *old[QM_MAX_SLOTS], *stored[QM_MAX_SLOTS] = {NULL};
    struct qm_bound_step b = {.h = &h,
                              .t = e->t,
                              .n = r->n,
                              .order = e->recipe->rule->order,
                              .reorder = e->subject->reorder,
                              .shape = e->shape,
                              .p = r->old_p,
                              .g = e->g,
                              .slot = old,
                              .p_want = r->p,
                              .want = r->slot,
                              .stored = stored,
                              .e_p = r->e_p,
                              .e_slot = r->e};
    for (int64_t i = 0; i < r->n; i++)
        r->p[i] = r->old_p[i] = (double)e->p[i];
    for (int k = 0; k < r->n_slots; k++) {
        int is_read = !(r->n == 1 && e->recipe->rule->single && !e->codes[k]);
        old[k] = r->old[k];
        b.slot_n[k] = r->n;
        b.plain |= e->codes[k] ? 0u : 1u << k;
        for (int64_t i = 0; i < r->n; i++)
            r->slot[k][i] = r->old[k][i] = is_read ? (double)e->slot[k][i] : 0.0;
    }
    QM_TRY(qm_oracle_step(oracle, r->p, r->slot, e->g, e->shape, 0, &h, e->t));
    QM_TRY(oracle->bound(&b));
    for (int k = 0; k < r->n_slots; k++)
        for (int64_t i = 0; i < r->n; i++)
            r->e[k][i] += plain_error(e, k, fabs(r->slot[k][i]) + r->e[k][i]);
    return QM_OK;
}

/* The inputs of element i, for reproducing it by hand. */
static void add_inputs(const struct qm_explicit *e, int64_t i, struct qm_finding *f)
{
    size_t size = sizeof f->text, used = strlen(f->text);
    if (i < 0)
        return;
    snprintf(f->text + used, size - used, "; p %a, g %a", (double)e->p[i], e->g[i]);
    for (int k = 0; k < e->recipe->rule->n_slots; k++) {
        used = strlen(f->text);
        snprintf(f->text + used, size - used, ", %s %a", e->recipe->rule->slot[k],
                 (double)e->slot[k][i]);
    }
}

/* Numbers against the oracle: within the bound; NaN and Inf where it has them. */
static void judge_numbers(const struct qm_explicit *e, const char *what, const float *got,
                          const double *want, const double *error, struct qm_tally *t,
                          struct qm_finding *f)
{
    int64_t n = qm_shape_numel(e->shape);
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);
        if (isfinite(want[i]) && !(error[i] < HUGE_VAL)) {
            t->unbounded++;
            continue;
        }
        enum qm_verdict is = qm_verdict_number((double)got[i], want[i], error[i]);
        t->judged++;
        t->verdict[is]++;
        if (isfinite(want[i]) && error[i] > 0.0 && off / error[i] > t->worst_ratio) {
            t->worst_ratio = off / error[i];
            snprintf(t->worst_case, sizeof t->worst_case, "%s", e->name);
        }
        if (is == QM_VERDICT_WRONG &&
            qm_finding_set(f, isfinite(want[i]) ? QM_BAD_BOUND : QM_BAD_SPECIAL,
                           "%s %lld is %a, want %a within %.3g", what, (long long)i, (double)got[i],
                           want[i], error[i]))
            add_inputs(e, i, f);
    }
}

static void judge_all(const struct qm_explicit *e, struct reference *r, struct qm_tally *t,
                      struct qm_finding *f)
{
    judge_numbers(e, "parameter", e->new_p, r->p, r->e_p, t, f);
    for (int k = 0; k < r->n_slots; k++) {
        const char *name = e->recipe->rule->slot[k];
        if (!e->codes[k]) {
            judge_numbers(e, name, e->new_slot[k], r->slot[k], r->e[k], t, f);
            continue;
        }
        struct qm_slot_view v = {.d = &e->subject->decider[k],
                                 .shape = e->shape,
                                 .n = r->n,
                                 .want = r->slot[k],
                                 .error = r->e[k],
                                 .codes = e->codes[k],
                                 .scales = e->scales[k],
                                 .decoded = e->new_slot[k]};
        struct qm_finding own = {.severity = f->severity};
        int64_t at = -1;
        qm_slot_judge(&v, k, r->lo, r->hi, r->flag, t, &own, &at);
        if (qm_finding_set(f, own.severity, "%s: %s", name, own.text))
            add_inputs(e, at, f);
    }
}

qm_status qm_explicit_begin(struct qm_subject *s, struct qm_tally *t)
{
    const struct qm_recipe *r = &s->recipe;
    if (!r->rule->block || r->rule->slot_shape)
        return qm_fail(QM_SKIPPED, "rule %s has sums over a tensor: not judged from buffers yet",
                       r->rule->name);
    if (r->param.format != QM_PARAM_f32)
        return qm_fail(QM_SKIPPED, "parameters other than float32: not judged from buffers yet");
    return qm_judge_begin(s, t);
}

qm_status qm_explicit_judge(const struct qm_explicit *e, struct qm_tally *t)
{
    struct reference r = {0};
    struct qm_finding f = {.severity = 0};
    qm_status st = reference_open(e, &r);
    if (st == QM_OK)
        st = reference_step(e, &r);
    if (st == QM_OK) {
        judge_all(e, &r, t, &f);
        t->cases++;
        snprintf(f.name, sizeof f.name, "%s", e->name);
        if (f.severity && t->n_findings < QM_FINDINGS)
            t->finding[t->n_findings++] = f;
        t->failed_cases += f.severity != 0;
    }
    free(r.flag);
    free(r.p);
    return st;
}
