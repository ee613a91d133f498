/* judge_all.c - Judges the list of cases on all threads, codebooks before it, rates after it. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/slot.h"
#include "oracle/oracle.h"

enum { TENSOR = 1 };

/* ---- many cases ------------------------------------------------------------------------------ */

void qm_tally_draw(struct qm_tally *t, int slot, double share, int up)
{
    int i = 2 * slot + (share >= 0.5);
    t->stoch_up[i] += up;
    t->stoch_expected[i] += share;
    t->stoch_variance[i] += share * (1.0 - share);
    t->draw_error = (float)((double)up - share);
}

void qm_tally_merge(struct qm_tally *into, const struct qm_tally *from)
{
    into->cases += from->cases;
    into->skipped += from->skipped;
    into->judged += from->judged;
    into->deviations += from->deviations;
    into->unbounded += from->unbounded;
    into->failed_cases += from->failed_cases;
    for (int i = 0; i < QM_VERDICT_COUNT; i++)
        into->verdict[i] += from->verdict[i];
    if (from->worst_ratio > into->worst_ratio) {
        into->worst_ratio = from->worst_ratio;
        memcpy(into->worst_case, from->worst_case, sizeof into->worst_case);
        memcpy(into->worst_what, from->worst_what, sizeof into->worst_what);
    }
    for (int i = 0; i < QM_RATES; i++) {
        into->stoch_up[i] += from->stoch_up[i];
        into->stoch_expected[i] += from->stoch_expected[i];
        into->stoch_variance[i] += from->stoch_variance[i];
    }
    for (int i = 0; i <= QM_MAX_SLOTS; i++)
        qm_rmse_merge(&into->rmse[i], &from->rmse[i]);
    for (int i = 0; i < from->n_findings && into->n_findings < QM_FINDINGS; i++)
        into->finding[into->n_findings++] = from->finding[i];
}

/* Every case has its own tally, and the tallies are merged in order, so the number of threads does
 * not change the result.  The second plan of a case uses two threads of its own: two levels. */
qm_status qm_judge_cases(const struct qm_subject *s, const struct qm_case *cases, int n,
                         uint64_t seed, struct qm_tally *t, struct qm_judge_watch watch)
{
    struct qm_tally *part = calloc((size_t)(n > 0 ? n : 1), sizeof *part);
    int levels = omp_get_max_active_levels(), failed = n;
    qm_status st = QM_OK;
    char why[256] = "";
    if (!part)
        return qm_fail(QM_NO_MEMORY, "the tallies of %d cases", n);
    omp_set_max_active_levels(2);
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++) {
        qm_status mine = qm_judge_case(s, &cases[i], seed, &part[i]);
#pragma omp critical(qm_judge_list)
        {
            if (mine != QM_OK && i < failed) {
                failed = i;
                st = mine;
                snprintf(why, sizeof why, "%s", qm_message());
            }
            if (watch.done)
                watch.done(watch.user);
        }
    }
    omp_set_max_active_levels(levels);
    for (int i = 0; i < n; i++) {
        if (watch.coverage && part[i].cases > 0)
            qm_coverage_add(watch.coverage, watch.domain, &cases[i]);
        qm_tally_merge(t, &part[i]);
    }
    free(part);
    return st == QM_OK ? QM_OK : qm_fail(st, "%s", why);
}

qm_status qm_judge_list(const struct qm_subject *s, int first, int stride, uint64_t seed,
                        struct qm_tally *t, struct qm_judge_watch watch)
{
    int n = 0;
    struct qm_case *cases = malloc(sizeof *cases * (size_t)qm_case_count());
    if (!cases)
        return qm_fail(QM_NO_MEMORY, "the list of cases");
    for (int i = first; i < qm_case_count(); i += stride)
        cases[n++] = qm_case_at(i);
    qm_status st = qm_judge_cases(s, cases, n, seed, t, watch);
    free(cases);
    return st;
}

qm_status qm_judge_drawn(const struct qm_subject *s, const struct qm_domain *d, int64_t first,
                         int n, uint64_t seed, struct qm_tally *t, struct qm_judge_watch watch)
{
    struct qm_case *cases = malloc(sizeof *cases * (size_t)(n + 1));
    if (!cases)
        return qm_fail(QM_NO_MEMORY, "%d drawn cases", n);
    for (int i = 0; i < n; i++)
        cases[i] = qm_domain_draw(d, seed, first + i);
    watch.domain = d;
    qm_status st = qm_judge_cases(s, cases, n, seed, t, watch);
    free(cases);
    return st;
}

/* ---- before and after ------------------------------------------------------------------------ */

static void add_finding(struct qm_tally *t, const char *name, const char *text)
{
    t->failed_cases++;
    if (t->n_findings == QM_FINDINGS)
        return;
    struct qm_finding *f = &t->finding[t->n_findings++];
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    qm_finding_set(f, QM_BAD_WRONG, "%s", text);
}

/* Finds a shape whose slot holds at least n elements; *slot_n: how many.  0: no such shape. */
static int shape_for(const struct qm_recipe *r, int slot, int64_t n, struct qm_shape *out,
                     int64_t *slot_n)
{
    const struct qm_shape shapes[] = {{2, {1, n}}, {1, {n}}, {2, {n, n}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct qm_shape of;
        qm_rule_slot_shape(r->rule, &r->hyper, slot, &shapes[i], &of);
        *out = shapes[i];
        *slot_n = qm_shape_numel(&of);
        if (*slot_n >= n)
            return 1;
    }
    return 0;
}

/* The value that each stored code decodes to where every scale is 1; *found 0: no tensor has the
 * slot.  Decoding is judged too, and a backend decodes only the slots of an open plan; so a plan is
 * opened for the table. */
static qm_status decode_table(const struct qm_subject *s, int slot, const struct qm_decider *d,
                              float *decoded, int *found)
{
    struct qm_case all = {.forced = 1};
    struct qm_recipe r = s->recipe;
    int64_t n;
    void *plan;
    *found = shape_for(&r, slot, d->n, &all.shape, &n);
    if (!*found)
        return QM_OK;
    qm_case_apply(&all, &r);
    if (s->alter)
        s->alter(&r);
    uint8_t *codes = calloc((size_t)n, 1);
    float *scales = malloc(sizeof *scales * (size_t)(2 * n + 512)), *value = scales + n + 512;
    qm_status st = codes && scales ? QM_OK : qm_fail(QM_NO_MEMORY, "a table of codes");
    if (st == QM_OK)
        st = s->backend->open(&r, &all.shape, TENSOR, &plan);
    if (st == QM_OK) {
        for (int k = 0; k < d->n; k++)
            codes[k] = d->code_of[k];
        for (int64_t k = 0; k < n + 512; k++)
            scales[k] = 1.0f;
        st = s->backend->load(plan, slot, codes, scales);
        if (st == QM_OK)
            st = s->backend->decode(plan, slot, value);
        s->backend->close(plan);
    }
    for (int k = 0; st == QM_OK && k < d->n; k++)
        decoded[codes[k]] = value[k];
    free(codes);
    free(scales);
    return st;
}

/* QM_OK, or QM_SKIPPED with the reason why this recipe cannot be judged. */
static qm_status judgeable(const struct qm_recipe *r)
{
    const struct qm_oracle *oracle = qm_oracle_find(r->rule->family);
    if (!oracle || oracle->n_slots + (r->hyper.amsgrad != 0) != r->rule->n_slots)
        return qm_fail(QM_SKIPPED, "no oracle judges rule %s of family %s", r->rule->name,
                       r->rule->family);
    if (!oracle->bound)
        return qm_fail(QM_SKIPPED, "no error bound is derived for rules of family %s",
                       r->rule->family);
    return QM_OK;
}

qm_status qm_judge_begin(struct qm_subject *s, struct qm_tally *t)
{
    const struct qm_recipe *r = &s->recipe;
    memset(t, 0, sizeof *t);
    QM_TRY(judgeable(r));
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_decider *d = &s->decider[i];
        float decoded[256] = {0};
        char text[160];
        int wrong, found;
        if (r->slot[i].bits == 0)
            continue;
        if (r->slot[i].curve == QM_CURVE_allog) { /* a code has no value without its block */
            *d = (struct qm_decider){.q = r->slot[i], .n = 1 << r->slot[i].bits};
            continue;
        }
        QM_TRY(qm_decider_init(d, &r->slot[i], NULL, &wrong));
        QM_TRY(decode_table(s, i, d, decoded, &found));
        if (!found)
            continue;
        QM_TRY(qm_decider_init(d, &r->slot[i], decoded, &wrong));
        t->judged += d->n;
        if (wrong < 0)
            continue;
        snprintf(text, sizeof text, "%s: code %d decodes to %a at scale 1, its definition is %a",
                 r->rule->slot[i], wrong, (double)decoded[wrong], d->value[d->position_of[wrong]]);
        add_finding(t, "codebook", text);
    }
    return QM_OK;
}

void qm_judge_end(const struct qm_subject *s, struct qm_tally *t)
{
    const struct qm_rule *rule = s->recipe.rule;
    for (int i = 0; i < QM_RATES; i++) {
        double off = fabs(t->stoch_up[i] - t->stoch_expected[i]), variance = t->stoch_variance[i];
        const char *what = i / 2 < rule->n_slots ? rule->slot[i / 2] : "parameter";
        char text[200];
        if (variance < 25.0 || off <= 5.0 * sqrt(variance))
            continue;
        snprintf(text, sizeof text,
                 "%s: stochastic rounding went up %.0f times in the %s halves of cells, want %.1f "
                 "within %.1f",
                 what, t->stoch_up[i], i % 2 ? "upper" : "lower", t->stoch_expected[i],
                 5.0 * sqrt(variance));
        add_finding(t, "stochastic", text);
    }
}

int qm_tally_passed(const struct qm_tally *t) { return t->failed_cases == 0 && t->judged > 0; }
