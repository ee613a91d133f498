/* explicit.c - judges a step from its buffers. */
#include "experiments/check/explicit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/bound.h"
#include "experiments/check/slot.h"
#include "oracle/oracle.h"

/* The oracle's results and their bounds. */
struct reference {
    int64_t n;
    int n_slots;
    double *p, *e_p, *slot[QM_MAX_SLOTS], *e[QM_MAX_SLOTS];
    double *lo, *hi; /* scratch per scale */
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
    r->p = malloc(sizeof(double) * (n * (size_t)(2 + 2 * r->n_slots) + 2 * scales));
    r->flag = malloc(sizeof(int) * scales);
    if (!r->p || !r->flag)
        return qm_fail(QM_NO_MEMORY, "%s: %lld elements", e->name, (long long)r->n);
    r->e_p = r->p + n;
    for (int i = 0; i < r->n_slots; i++) {
        r->slot[i] = r->e_p + (size_t)(1 + 2 * i) * n;
        r->e[i] = r->slot[i] + n;
    }
    r->lo = r->p + n * (size_t)(2 + 2 * r->n_slots);
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
    const struct qm_rule *rule = e->recipe->rule;
    struct qm_oracle_hyper h = oracle_hyper(&e->recipe->hyper);
    struct qm_bound bound;
    QM_TRY(qm_bound_init(&bound, rule->family, rule->name, &h, e->t));
    for (int64_t i = 0; i < r->n; i++) {
        r->p[i] = (double)e->p[i];
        for (int k = 0; k < r->n_slots; k++)
            r->slot[k][i] = (double)e->slot[k][i];
    }
    qm_oracle_find(rule->family)->step(r->p, r->slot, e->g, 1, r->n, &h, e->t);
    for (int64_t i = 0; i < r->n; i++) {
        double before[QM_MAX_SLOTS], fresh[QM_MAX_SLOTS], error[QM_MAX_SLOTS];
        for (int k = 0; k < r->n_slots; k++) {
            before[k] = (double)e->slot[k][i];
            fresh[k] = r->slot[k][i];
        }
        qm_bound_element(&bound, (double)e->p[i], e->g[i], before, fresh, &r->e_p[i], error);
        for (int k = 0; k < r->n_slots; k++)
            r->e[k][i] = error[k] + plain_error(e, k, fabs(fresh[k]) + error[k]);
    }
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
        int severity = 0;
        if (isfinite(want[i]) && !(error[i] < HUGE_VAL)) {
            t->unbounded++;
            continue;
        }
        t->judged++;
        if (!isfinite(want[i]))
            severity = isfinite(got[i]) ? QM_BAD_SPECIAL : 0;
        else if (!(off <= error[i]))
            severity = QM_BAD_BOUND;
        if (isfinite(want[i]) && error[i] > 0.0 && off / error[i] > t->worst_ratio) {
            t->worst_ratio = off / error[i];
            snprintf(t->worst_case, sizeof t->worst_case, "%s", e->name);
        }
        if (severity && qm_finding_set(f, severity, "%s %lld is %a, want %a within %.3g", what,
                                       (long long)i, (double)got[i], want[i], error[i]))
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
