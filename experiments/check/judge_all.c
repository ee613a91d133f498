/* judge_all.c - Judges the list of cases on all threads, codebooks before it, rates after it. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/slot.h"
#include "oracle/oracle.h"

enum { TENSOR = 1 };

/* ---- many cases ------------------------------------------------------------------------------ */

#define EDGE 0x1p-12 /* of a cell: values that hardly ever leave its end */

void qm_tally_draw(struct qm_tally *t, int slot, double share, double off, int up, int negative)
{
    int is_upper = share >= 0.5, i = 2 * slot + is_upper;
    double from_end = is_upper ? 1.0 - share : share;
    if (t->is_planted || isnan(share) || isnan(off)) /* a NaN is judged as a number */
        return;
    t->draw_error = (float)((double)up - share);
    t->stoch_n[i] += 1.0;
    if (from_end + off <= EDGE) {
        t->edge_n[i] += 1.0;
        t->edge_left[i] += up != is_upper;
        t->edge_expected[i] += from_end + off;
    }
    int band = from_end > 0.0 ? ilogb(from_end) + 14 : -1;
    if (band >= 0 && band < QM_RARE_BANDS && off <= 0.125 * from_end) {
        struct qm_rare_rounding *few = &t->rare[i][negative][band];
        few->n += 1.0;
        few->left += up != is_upper;
        few->expected += from_end;
        few->variance += off * off;
    }
    t->stoch_up[i] += up;
    t->stoch_expected[i] += share;
    t->stoch_variance[i] += share * (1.0 - share);
}

void qm_tally_still(struct qm_tally *t, int slot, double off, int left)
{
    if (t->is_planted || isnan(off))
        return;
    t->still_n[slot] += 1.0;
    t->still_left[slot] += left;
    t->still_expected[slot] += off;
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
        into->stoch_n[i] += from->stoch_n[i];
        into->edge_n[i] += from->edge_n[i];
        into->edge_left[i] += from->edge_left[i];
        into->edge_expected[i] += from->edge_expected[i];
        for (int b = 0; b < 2 * QM_RARE_BANDS; b++) {
            struct qm_rare_rounding *few = &into->rare[i][b % 2][b / 2];
            const struct qm_rare_rounding *more = &from->rare[i][b % 2][b / 2];
            few->n += more->n;
            few->left += more->left;
            few->expected += more->expected;
            few->variance += more->variance;
        }
    }
    for (int i = 0; i <= QM_MAX_SLOTS; i++) {
        into->still_n[i] += from->still_n[i];
        into->still_left[i] += from->still_left[i];
        into->still_expected[i] += from->still_expected[i];
    }
    for (int i = 0; i <= QM_MAX_SLOTS; i++)
        qm_rmse_merge(&into->rmse[i], &from->rmse[i]);
    for (int i = 0; i < from->n_findings && into->n_findings < QM_FINDINGS; i++)
        into->finding[into->n_findings++] = from->finding[i];
}

struct turn {
    int64_t size;
    int at;
};

static int by_size(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1) : x->at - y->at;
}

/* The order in which cases are begun: the largest first, so that no thread begins a long one when
 * the others are done.  The caller frees it.  NULL: no memory. */
static struct turn *turns_of(const struct qm_case *cases, int n)
{
    struct turn *t = malloc(sizeof *t * (size_t)(n > 0 ? n : 1));
    for (int i = 0; t && i < n; i++)
        t[i] = (struct turn){qm_shape_numel(&cases[i].shape) * qm_case_steps(&cases[i]), i};
    if (t)
        qsort(t, (size_t)n, sizeof *t, by_size);
    return t;
}

/* Runs n cases on all threads; the result equals a run in order: every case has its own tally, and
 * the tallies are merged in order.  The second plan of a case uses two threads of its own: two
 * levels. */
static qm_status judge_cases(const struct qm_subject *s, const struct qm_case *cases, int n,
                             uint64_t seed, struct qm_tally *t, struct qm_judge_watch watch)
{
    struct qm_tally *part = calloc((size_t)(n > 0 ? n : 1), sizeof *part);
    struct turn *turn = turns_of(cases, n);
    int levels = omp_get_max_active_levels(), failed = n;
    qm_status st = QM_OK;
    char why[256] = "";
    if (!part || !turn) {
        free(part);
        free(turn);
        return qm_fail(QM_NO_MEMORY, "the tallies of %d cases", n);
    }
    omp_set_max_active_levels(2);
#pragma omp parallel for schedule(dynamic)
    for (int k = 0; k < n; k++) {
        int i = turn[k].at;
        qm_status mine = qm_judge_case(s, &cases[i], seed, &part[i]);
        if (mine == QM_BAD_ARG && cases[i].given) { /* the rule refuses these settings here */
            part[i] = (struct qm_tally){.skipped = 1};
            mine = QM_OK;
        }
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
        else if (watch.coverage)
            watch.coverage->refused += part[i].skipped;
        qm_tally_merge(t, &part[i]);
    }
    free(part);
    free(turn);
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
    qm_status st = judge_cases(s, cases, n, seed, t, watch);
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
    qm_status st = judge_cases(s, cases, n, seed, t, watch);
    free(cases);
    return st;
}

/* ---- before and after ------------------------------------------------------------------------ */

static void add_finding(struct qm_tally *t, const char *name, const char *text)
{
    t->failed_cases++;
    if (t->n_findings == QM_FINDINGS + QM_GENERAL)
        return;
    struct qm_finding *f = &t->finding[t->n_findings++];
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    qm_finding_set(f, QM_BAD_WRONG, "%s", text);
}

/* Finds a case whose slot holds at least n elements, at most 256; *slot_n: how many.  The last one
 * has sides that are cut into unequal pieces.  0: there is none. */
static int case_for(const struct qm_recipe *r, int slot, int64_t n, struct qm_case *out,
                    int64_t *slot_n)
{
    enum { CUT = 3, ORDER = 17, SIDE = 2 * ORDER - 1 };
    const struct qm_shape shapes[] = {
        {2, {1, n}}, {1, {n}}, {2, {n, n}}, [CUT] = {2, {SIDE, SIDE}}};
    for (int i = 0; i <= CUT; i++) {
        struct qm_hyper h = r->hyper;
        struct qm_shape of;
        *out = (struct qm_case){.forced = 1, .shape = shapes[i]};
        if (i == CUT) {
            out->given = (uint64_t)1 << QM_HYPER_max_order;
            h.max_order = out->hyper[QM_HYPER_max_order] = ORDER;
        }
        qm_rule_slot_shape(r->rule, &h, slot, &shapes[i], &of);
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
    struct qm_case all;
    struct qm_recipe r = s->recipe;
    int64_t n;
    void *plan;
    *found = case_for(&r, slot, d->n, &all, &n);
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
        if (qm_slot_has_numbers(&r->slot[i])) { /* a code has no value without its block */
            *d = (struct qm_decider){.q = r->slot[i], .n = 1 << r->slot[i].bits};
            if (r->slot[i].curve == QM_CURVE_expand)
                QM_TRY(qm_decider_init(d, &r->slot[i], NULL, &wrong));
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

/* More than this many leave an end of their cell by chance less often than once in 10^9 checks: the
 * tail of the Poisson distribution. */
static double edge_limit(double expected) { return expected + 6.0 * sqrt(expected) + 9.0; }

/* The bands of half i up to band b together, of one sign. */
static struct qm_rare_rounding rare_to(const struct qm_tally *t, int i, int negative, int b)
{
    const struct qm_rare_rounding *band = t->rare[i][negative];
    struct qm_rare_rounding sum = band[0];
    for (int k = 1; k <= b; k++) {
        sum.n += band[k].n;
        sum.left += band[k].left;
        sum.expected += band[k].expected;
        sum.variance += band[k].variance;
    }
    return sum;
}

/* Fewer than expected - this leave by chance less often than once in 10^9 checks: 6.5 standard
 * deviations, which bound the lower tail of the Poisson distribution. */
static double rare_limit(const struct qm_rare_rounding *s)
{
    return 6.5 * sqrt(s->expected + s->variance);
}

/* In the draws of one half of the cells: of a bias that makes more leave an end of their cell, and
 * of one that makes fewer leave it, the larger. */
static double detectable_in(const struct qm_tally *t, int i)
{
    double central = 1.0, more, fewer;
    if (t->stoch_variance[i] >= 25.0)
        central = 5.0 * sqrt(t->stoch_variance[i]) / t->stoch_n[i];
    more = fewer = central;
    if (t->edge_n[i] > 0.0)
        more = fmin(more, edge_limit(t->edge_expected[i]) / t->edge_n[i]);
    for (int b = 0; b < 2 * QM_RARE_BANDS; b++) {
        struct qm_rare_rounding s = rare_to(t, i, b % 2, b / 2);
        if (s.expected > rare_limit(&s))
            fewer = fmin(fewer, rare_limit(&s) / s.n);
    }
    return fmax(more, fewer);
}

double qm_tally_detectable(const struct qm_tally *t, int slot)
{
    double halves = fmax(detectable_in(t, 2 * slot), detectable_in(t, 2 * slot + 1));
    return halves < 1.0 ? halves : (double)NAN;
}

/* Judges the values that leave an end of their cell seldom, by the narrowest band that is off. */
static void judge_rare(const char *what, int i, struct qm_tally *t)
{
    char text[200];
    for (int b = 0; b < 2 * QM_RARE_BANDS; b++) {
        struct qm_rare_rounding s = rare_to(t, i, b % 2, b / 2);
        double off = s.left - s.expected;
        if (off >= -rare_limit(&s) && off <= rare_limit(&s) + 9.0)
            continue;
        snprintf(text, sizeof text,
                 "%s: of %.0f %s values from 2^-14 to 2^%d of a cell from its %s end %.0f were "
                 "rounded to the other end, want %.1f within %.1f",
                 what, s.n, b % 2 ? "negative" : "positive", b / 2 - 13, i % 2 ? "upper" : "lower",
                 s.left, s.expected, rare_limit(&s));
        add_finding(t, QM_RATES_NAME, text);
        return;
    }
}

/* Judges the draws of values at an end of their cell. */
static void judge_edge(const char *what, int i, struct qm_tally *t)
{
    char text[200];
    if (t->edge_left[i] <= edge_limit(t->edge_expected[i]))
        return;
    snprintf(text, sizeof text,
             "%s: of %.0f values within 2^-12 of the %s end of their cell %.0f were rounded to the "
             "other end, want at most %.1f",
             what, t->edge_n[i], i % 2 ? "upper" : "lower", t->edge_left[i],
             edge_limit(t->edge_expected[i]));
    add_finding(t, QM_RATES_NAME, text);
}

/* Judges the values that should have stayed. */
static void judge_still(const char *what, int slot, struct qm_tally *t)
{
    char text[200];
    if (t->still_left[slot] <= edge_limit(t->still_expected[slot]))
        return;
    snprintf(text, sizeof text,
             "%s: of %.0f values that are numbers of the format %.0f were rounded to another, want "
             "at most %.1f",
             what, t->still_n[slot], t->still_left[slot], edge_limit(t->still_expected[slot]));
    add_finding(t, QM_RATES_NAME, text);
}

void qm_judge_end(const struct qm_subject *s, struct qm_tally *t)
{
    const struct qm_rule *rule = s->recipe.rule;
    for (int i = 0; i <= QM_MAX_SLOTS; i++)
        judge_still(i < rule->n_slots ? rule->slot[i] : "parameter", i, t);
    for (int i = 0; i < QM_RATES; i++) {
        double off = fabs(t->stoch_up[i] - t->stoch_expected[i]), variance = t->stoch_variance[i];
        const char *what = i / 2 < rule->n_slots ? rule->slot[i / 2] : "parameter";
        char text[200];
        judge_edge(what, i, t);
        judge_rare(what, i, t);
        if (variance < 25.0 || off <= 5.0 * sqrt(variance))
            continue;
        snprintf(text, sizeof text,
                 "%s: stochastic rounding went up %.0f times in the %s halves of cells, want %.1f "
                 "within %.1f",
                 what, t->stoch_up[i], i % 2 ? "upper" : "lower", t->stoch_expected[i],
                 5.0 * sqrt(variance));
        add_finding(t, QM_RATES_NAME, text);
    }
}

int qm_tally_passed(const struct qm_tally *t) { return t->failed_cases == 0 && t->judged > 0; }
