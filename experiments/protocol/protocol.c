/* protocol.c - Computes the tables of the protocol, prints them and turns them into JSON. */
#include "experiments/protocol/protocol.h"

#include "experiments/cli/cli.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/protocol/tables.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void words_free(struct qm_words *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->word[i]);
    free(w->word);
}

void qm_protocol_free(struct qm_protocol *p)
{
    if (!p)
        return;
    words_free(&p->problem);
    words_free(&p->label);
    words_free(&p->family);
    for (int k = 0; k < QM_HITS_COUNT; k++)
        free(p->hits[k]);
    free(p->scale);
    free(p->run);
    free(p->order);
    free(p->row_of);
    free(p->group);
    free(p->target);
    free(p->verdict);
    free(p->ecdf);
    free(p->profile);
    free(p->score);
    free(p->sensitivity);
    free(p->budget);
    free(p->contrast);
    free(p);
}

qm_status qm_protocol_make(const struct qm_results *r, struct qm_protocol **out)
{
    *out = NULL;
    if (!r->suite->paired)
        return QM_OK;
    struct qm_protocol *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "protocol");
    p->r = r;
    qm_status st = qm_protocol_runs(p);
    if (st == QM_OK && p->n_runs == 0) {
        qm_protocol_free(p);
        return QM_OK;
    }
    if (st == QM_OK)
        st = qm_protocol_targets(p);
    if (st == QM_OK)
        st = qm_protocol_verdicts(p);
    if (st == QM_OK)
        st = qm_protocol_contrasts(p);
    if (st == QM_OK)
        st = qm_protocol_profiles(p);
    if (st == QM_OK)
        *out = p;
    else
        qm_protocol_free(p);
    return st;
}

/* ---- printing -------------------------------------------------------------------------------- */

static int is_own(const struct qm_protocol *p, const struct qm_comparison_group *g)
{
    return qm_run_cell(p, qm_group_run(p, g, 0))->role == QM_CELL_plain;
}

/* Writes the verdict with its remarks: "undecided (finds 0.02), 1 far off, late: equivalent". */
static void verdict_text(const struct qm_judged *by, const struct qm_judged *same,
                         double detectable, char *text, size_t size)
{
    size_t n = 0;
#define ADD(...) n += n < size ? (size_t)snprintf(text + n, size - n, __VA_ARGS__) : 0
    ADD("%s", qm_decision_text(by->verdict));
    if (by->verdict == QM_DECISION_undecided)
        ADD(" (finds %.2g)", detectable);
    if (qm_is_as_null(by))
        ADD(", as float32");
    if (by->d.far)
        ADD(", %lld far off", (long long)by->d.far);
    for (int k = 1; k < QM_OUTCOME_COUNT && qm_hangs_on_outcome(by); k++)
        if (by[k].verdict != by->verdict)
            ADD(", %s: %s", qm_outcome_name(k), qm_decision_text(by[k].verdict));
    if (same->verdict != by->verdict)
        ADD(", same rate: %s", qm_decision_text(same->verdict));
#undef ADD
}

/* Writes the location of d; in brackets that at the same rate, where it is another one. */
static void location_text(const struct qm_judged *by, const struct qm_judged *same,
                          enum qm_rates rates, char *text, size_t size)
{
    int n = snprintf(text, size, "%.3g", by->d.mean);
    if (rates == QM_RATES_best && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " (same rate %.3g)", same->d.mean);
}

/* What `qualm tune` takes for the suite: the name of one that ships, else its file, which a merge
 * knows without the folder. */
static const char *words_for(const struct qm_suite *s, char out[300])
{
    char path[400], found[PATH_MAX];
    snprintf(path, sizeof path, "experiments/suites/%.200s.yaml", s->stem);
    int is_shipped = access(qm_shipped(path, found, sizeof found), R_OK) == 0;
    snprintf(out, 300, "%.200s%s", s->stem, is_shipped ? "" : ".yaml");
    return out;
}

/* By what a table's rows are counted for print_rates: their rates, or, after those, that nothing
 * was tuned for them and the suite sets lr. */
enum { RATES_GIVEN = QM_RATES_best + 1, RATES_COUNT };

static int rates_kind(const struct qm_protocol *p, enum qm_rates rates,
                      const struct qm_comparison_group *g)
{
    return rates == QM_RATES_untuned && qm_run_cell(p, qm_group_run(p, g, 0))->lr_given
               ? RATES_GIVEN
               : (int)rates;
}

/* Says at which learning rates the rows of a table were compared. */
static void print_rates(const char *what, const int64_t count[RATES_COUNT], const char *suite)
{
    int64_t all = 0;
    for (int k = 0; k < RATES_COUNT; k++)
        all += count[k];
    if (count[QM_RATES_best])
        printf("%lld of %lld %s: best against best, each at the learning rate that was tuned for "
               "it, the nearest to the twin's of those that tuning could not tell from the "
               "lowest; in brackets both at the twin's (no interval covers which rate was "
               "chosen, by the few seeds of qualm tune)\n",
               (long long)count[QM_RATES_best], (long long)all, what);
    if (count[QM_RATES_same])
        printf("%lld of %lld %s: both at the rate that was tuned for the twin (qualm tune "
               "--variants %s tunes each variant's)\n",
               (long long)count[QM_RATES_same], (long long)all, what, suite);
    if (count[QM_RATES_uneven])
        printf("%lld of %lld %s: one side is at a rate that was tuned for it or its twin and the "
               "other is not, what differs may be the rate, and nothing is decided: qualm tune "
               "--variants %s, or rates: none\n",
               (long long)count[QM_RATES_uneven], (long long)all, what, suite);
    if (count[QM_RATES_untuned])
        printf("%lld of %lld %s: at the problem's own rate; nothing was tuned for these steps and "
               "this schedule (qualm tune %s)\n",
               (long long)count[QM_RATES_untuned], (long long)all, what, suite);
    if (count[RATES_GIVEN])
        printf("%lld of %lld %s: at the rate that the suite sets (lr); nothing was tuned\n",
               (long long)count[RATES_GIVEN], (long long)all, what);
}

/* ", 2 of 6 diverged, 1 of 6 twins diverged", as far as runs did. */
static void diverged_text(const struct qm_verdict_row *v, char *text, size_t size)
{
    long long n = (long long)v->of.n;
    size_t used = 0;
    text[0] = 0;
    if (v->diverged)
        used = (size_t)snprintf(text, size, ", %lld of %lld diverged", (long long)v->diverged, n);
    if (v->twin_diverged && used < size)
        snprintf(text + used, size - used, ", %lld of %lld twins diverged",
                 (long long)v->twin_diverged, n);
}

static void print_verdicts(const struct qm_protocol *p)
{
    const char *heads[] = {"problem", "label",  "n",      "log10 of gap / twin's",
                           "95 %",    "median", "q",      "float32",
                           "bits",    "coded",  "verdict"};
    for (int64_t i = 0; i < p->n_verdicts; i++)
        if (p->verdict[i].by[0].d.instances > 1)
            heads[2] = "n (instances)";
    struct qm_table *t = qm_table_open(11, heads);
    int64_t count[RATES_COUNT] = {0}, plain = 0, alike = 0;
    char suite[300];
    for (int64_t i = 0; i < p->n_verdicts; i++) {
        const struct qm_verdict_row *v = &p->verdict[i];
        const struct qm_paired *d = &v->by[0].d;
        char text[256], lost[96], basin[64] = "", where[64];
        if (v->of.scale != p->one || !is_own(p, &v->of))
            continue;
        qm_table_cell(t, "%s", p->problem.word[v->of.problem]);
        qm_table_cell(t, "%s", p->label.word[v->of.label]);
        count[rates_kind(p, v->rates, &v->of)]++;
        plain += v->by[0].verdict == QM_DECISION_plain;
        alike += d->n < QM_LEAST_PAIRS && v->of.n - v->diverged - v->elsewhere >= QM_LEAST_PAIRS;
        if (d->instances > 1)
            qm_table_cell(t, "%lld (%lld)", (long long)d->n, (long long)d->instances);
        else
            qm_table_cell(t, "%lld", (long long)d->n);
        location_text(v->by, v->same, v->rates, where, sizeof where);
        qm_table_cell(t, "%s", where);
        qm_table_cell(t, "%.3g to %.3g", d->lo95, d->hi95);
        qm_table_cell(t, "%.3g", d->median);
        qm_table_cell(t, "%.2g", v->by[0].q);
        qm_table_cell(t, "%.3g", v->null.mean);
        qm_table_cell(t, "%.4g", v->bits);
        if (isnan(v->coded))
            qm_table_cell(t, "-");
        else
            qm_table_cell(t, "%.3g %%", 100.0 * v->coded);
        if (v->elsewhere || v->of.basin)
            snprintf(basin, sizeof basin, ", basin %d (%lld elsewhere)", v->of.basin,
                     (long long)v->elsewhere);
        verdict_text(v->by, v->same, v->detectable, text, sizeof text);
        diverged_text(v, lost, sizeof lost);
        qm_table_cell(t, "%s%s%s%s", text, lost,
                      qm_is_apart(&v->null, v->delta) ? ", float32 apart too" : "", basin);
    }
    int axis = qm_suite_axis(p->r->suite, "instance");
    printf("\nverdicts: against the float64 twin, over seeds%s, lr_scale %g\n",
           axis >= 0 && p->r->suite->axis[axis].n > 1 ? " and instances" : "", p->scale[p->one]);
    qm_table_close(t);
    print_rates("verdicts", count, words_for(p->r->suite, suite));
    if (plain)
        printf(
            "not quantized: the tensors of these problems are smaller than, or no multiple of, "
            "what the variant gives codes to, all of them, or more than half of the elements in a "
            "row that would be equivalent; \"NAME,min_numel=0,whole_blocks=0\" gives codes to "
            "all\n");
    if (alike)
        printf("too few: runs whose seeds change nothing are one pair, and a verdict needs six; a "
               "problem without noise draws its start where it may (quad: start=normal)\n");
    if (p->n_scales > 1)
        printf("verdicts at the other values of lr_scale (%d) are in /protocol/verdicts\n",
               p->n_scales - 1);
}

/* The verdict on a problem, label and scale, or NULL. */
static const struct qm_verdict_row *verdict_of(const struct qm_protocol *p, int problem, int label,
                                               int scale)
{
    for (int64_t i = 0; i < p->n_verdicts; i++) {
        const struct qm_comparison_group *g = &p->verdict[i].of;
        if (g->problem == problem && g->label == label && g->scale == scale)
            return &p->verdict[i];
    }
    return NULL;
}

/* ", 2 of 6 and 0 of 6 diverged" of the two sides of a contrast, if a run did. */
static void sides_text(const struct qm_protocol *p, const struct qm_contrast_row *c, char *text,
                       size_t size)
{
    const struct qm_verdict_row *a = verdict_of(p, c->a->problem, c->a->label, c->a->scale);
    const struct qm_verdict_row *b = verdict_of(p, c->b->problem, c->b->label, c->b->scale);
    text[0] = 0;
    if (a && b && a->diverged + b->diverged > 0)
        snprintf(text, size, ", %lld of %lld and %lld of %lld diverged", (long long)a->diverged,
                 (long long)a->of.n, (long long)b->diverged, (long long)b->of.n);
}

static void print_contrasts(const struct qm_protocol *p)
{
    static const char *const heads[] = {
        "problem", "label", "against", "n",       "log10 of gap / gap",
        "95 %",    "q",     "verdict", "lr_scale"};
    int is_swept = p->n_scales > 1;
    if (p->n_contrasts + p->n_apart == 0)
        return;
    struct qm_table *t = qm_table_open(8 + is_swept, heads);
    int64_t count[RATES_COUNT] = {0}, two_twins = 0;
    char suite[300];
    for (int64_t i = 0; i < p->n_contrasts; i++) {
        const struct qm_contrast_row *c = &p->contrast[i];
        two_twins += c->two_twins;
        const struct qm_paired *d = &c->by[0].d;
        char text[256], where[64], lost[96];
        count[rates_kind(p, c->rates, c->a) == RATES_GIVEN ? RATES_GIVEN
                                                           : rates_kind(p, c->rates, c->b)]++;
        qm_table_cell(t, "%s", p->problem.word[c->a->problem]);
        qm_table_cell(t, "%s", p->label.word[c->a->label]);
        qm_table_cell(t, "%s", p->label.word[c->b->label]);
        qm_table_cell(t, "%lld", (long long)d->n);
        location_text(c->by, c->same, c->rates, where, sizeof where);
        qm_table_cell(t, "%s", where);
        qm_table_cell(t, "%.3g to %.3g", d->lo95, d->hi95);
        qm_table_cell(t, "%.2g", c->by[0].q);
        verdict_text(c->by, c->same, c->detectable, text, sizeof text);
        sides_text(p, c, lost, sizeof lost);
        qm_table_cell(t, "%s%s", text, lost);
        if (is_swept)
            qm_table_cell(t, "%g", p->scale[c->a->scale]);
    }
    printf("\ncontrasts: value against value on one axis, pair by pair\n");
    qm_table_close(t);
    print_rates("contrasts", count, words_for(p->r->suite, suite));
    if (two_twins)
        printf("%lld of %lld contrasts: each side has a float64 twin of its own (another rule or "
               "rate); shown are the gaps themselves, not the difference of two verdicts\n",
               (long long)two_twins, (long long)p->n_contrasts);
    if (p->n_apart)
        printf("%lld contrasts are not there: a value was skipped\n", (long long)p->n_apart);
}

/* The rate of scores and of the error budget, whatever that of the verdicts. */
static const char same_rate[] = "variant and twin both at the twin's rate";

/* How many runs of a label on a problem (-1: on all) at the scale and rate of scores diverged, of
 * how many. */
static int64_t diverged_of(const struct qm_protocol *p, int problem, int label, int64_t *of)
{
    int64_t n = 0;
    *of = 0;
    for (int64_t i = 0; i < p->n_runs; i++) {
        enum qm_cell_role role = qm_run_cell(p, &p->run[i])->role;
        if (p->run[i].label != label || p->run[i].scale != p->one || role == QM_CELL_own ||
            (problem >= 0 && p->run[i].problem != problem))
            continue;
        n += p->r->outcome[p->run[i].cell].diverged;
        ++*of;
    }
    return n;
}

/* On how many problems the rates of some labels were tuned and those of others were not. */
static int uneven_problems(const struct qm_protocol *p)
{
    int found = 0;
    for (int k = 0; k < p->problem.n; k++) {
        int has[2] = {0, 0};
        for (int64_t i = 0; i < p->n_verdicts; i++) {
            const struct qm_verdict_row *v = &p->verdict[i];
            if (v->of.problem == k && v->of.scale == p->one && is_own(p, &v->of))
                has[v->rates != QM_RATES_untuned] = 1;
        }
        found += has[0] && has[1];
    }
    return found;
}

static void print_scores(const struct qm_protocol *p)
{
    enum { SHOWN = QM_DECISION_same }; /* which is of contrasts alone */
    int64_t count[QM_DECISION_COUNT], of;
    const char *heads[SHOWN + 4] = {"label", "score by twin", "score by best"};
    int is_any = 0;
    for (int k = 0; k < SHOWN; k++)
        heads[3 + k] = qm_decision_text((enum qm_decision)k);
    heads[SHOWN + 3] = "diverged";
    for (int64_t i = 0; i < p->n_scores; i++)
        is_any |= diverged_of(p, -1, p->score[i].label, &of) > 0;
    struct qm_table *t = qm_table_open(SHOWN + 3 + is_any, heads);
    for (int64_t i = 0; i < p->n_scores; i++) {
        memset(count, 0, sizeof count);
        for (int64_t k = 0; k < p->n_verdicts; k++)
            if (p->verdict[k].of.label == p->score[i].label && p->verdict[k].of.scale == p->one)
                count[p->verdict[k].by[0].verdict]++;
        qm_table_cell(t, "%s", p->label.word[p->score[i].label]);
        for (int k = 1; k >= 0; k--)
            if (isnan(p->score[i].score[k]))
                qm_table_cell(t, "-");
            else
                qm_table_cell(t, "%.4f", p->score[i].score[k]);
        for (int k = 0; k < SHOWN; k++)
            qm_table_cell(t, "%lld", (long long)count[k]);
        int64_t diverged = is_any ? diverged_of(p, -1, p->score[i].label, &of) : 0;
        if (is_any)
            qm_table_cell(t, "%lld of %lld", (long long)diverged, (long long)of);
    }
    printf("\nscores: share of targets within tau times the runtime, tau from 1 to 4, %s; problems "
           "by verdict\n",
           same_rate);
    qm_table_close(t);
    int uneven = uneven_problems(p);
    if (uneven)
        printf("on %d of %d problems the rates of some labels were tuned and those of others were "
               "not; \"score by best\" is over all of them\n",
               uneven, p->problem.n);
}

static void print_budget(const struct qm_protocol *p)
{
    static const char *const heads[] = {"problem", "label", "part", "log10 of the gap", "95 %"};
    if (p->n_budget == 0)
        return;
    struct qm_table *t = qm_table_open(5, heads);
    for (int64_t i = 0; i < p->n_budget; i++) {
        const struct qm_budget_row *b = &p->budget[i];
        qm_table_cell(t, "%s", p->problem.word[b->problem]);
        qm_table_cell(t, "%s", p->label.word[b->label]);
        int64_t of, diverged = diverged_of(p, b->problem, b->label, &of);
        if (diverged)
            qm_table_cell(t, "%s, %lld of %lld diverged", b->part, (long long)diverged,
                          (long long)of);
        else
            qm_table_cell(t, "%s", b->part);
        qm_table_cell(t, "%.3g", b->share.mean);
        qm_table_cell(t, "%.3g to %.3g", b->share.lo95, b->share.hi95);
    }
    printf("\nerror budget: what each part adds, %s; each row is a trimmed mean of its own, so "
           "that parts and rest need not sum to all\n",
           same_rate);
    qm_table_close(t);
}

void qm_protocol_print(const struct qm_protocol *p)
{
    if (!p)
        return;
    print_verdicts(p);
    print_contrasts(p);
    print_scores(p);
    print_budget(p);
    fflush(stdout);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The numbers of a judgement, of the first outcome; then every outcome with its verdict. */
static json_t *judged_json(const struct qm_judged *by, const struct qm_judged *same,
                           enum qm_rates rates, double delta, double detectable)
{
    const struct qm_paired *d = &by->d;
    json_t *outcomes = json_object();
    for (int k = 0; k < QM_OUTCOME_COUNT; k++)
        json_object_set_new(outcomes, qm_outcome_name(k),
                            json_pack("{s:o, s:o, s:o, s:s}", "mean", qm_json_number(by[k].d.mean),
                                      "lo95", qm_json_number(by[k].d.lo95), "hi95",
                                      qm_json_number(by[k].d.hi95), "verdict",
                                      qm_decision_text(by[k].verdict)));
    return json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:b, "
        "s:b, s:o, s:s, s:s, s:o, s:s}",
        "n", (json_int_t)d->n, "instances", (json_int_t)d->instances, "mean",
        qm_json_number(d->mean), "plain_mean", qm_json_number(d->plain_mean), "lo95",
        qm_json_number(d->lo95), "hi95", qm_json_number(d->hi95), "lo90", qm_json_number(d->lo90),
        "hi90", qm_json_number(d->hi90), "median", qm_json_number(d->median), "far",
        (json_int_t)d->far, "p", qm_json_number(d->p), "q", qm_json_number(by->q), "delta",
        qm_json_number(delta), "detectable", qm_json_number(detectable), "as_float32",
        qm_is_as_null(by), "hangs_on_outcome", qm_hangs_on_outcome(by), "outcomes", outcomes,
        "verdict", qm_decision_text(by->verdict), "rates", qm_rates_text(rates), "same_mean",
        qm_json_number(same->d.mean), "same_verdict", qm_decision_text(same->verdict));
}

static json_t *verdict_json(const struct qm_protocol *p, const struct qm_verdict_row *v)
{
    json_t *o = judged_json(v->by, v->same, v->rates, v->delta, v->detectable);
    json_t *more = json_pack(
        "{s:s, s:s, s:o, s:b, s:I, s:I, s:I, s:i, s:o, s:o, s:o, s:I, s:b}", "problem",
        p->problem.word[v->of.problem], "label", p->label.word[v->of.label], "lr_scale",
        qm_json_number(p->scale[v->of.scale]), "own", is_own(p, &v->of), "diverged",
        (json_int_t)v->diverged, "failed", (json_int_t)v->failed, "elsewhere",
        (json_int_t)v->elsewhere, "basin", v->of.basin, "null_mean", qm_json_number(v->null.mean),
        "bits", qm_json_number(v->bits), "coded", qm_json_number(v->coded), "twin_diverged",
        (json_int_t)v->twin_diverged, "null_apart", qm_is_apart(&v->null, v->delta));
    json_object_update(o, more);
    json_decref(more);
    return o;
}

static json_t *contrast_json(const struct qm_protocol *p, const struct qm_contrast_row *c)
{
    json_t *o = judged_json(c->by, c->same, c->rates, c->delta, c->detectable);
    json_t *more = json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:o}", "problem", p->problem.word[c->a->problem], "axis",
        c->axis, "label", p->label.word[c->a->label], "against", p->label.word[c->b->label],
        "two_twins", c->two_twins, "lr_scale", qm_json_number(p->scale[c->a->scale]));
    json_object_update(o, more);
    json_decref(more);
    return o;
}

json_t *qm_protocol_json(const struct qm_protocol *p)
{
    if (!p)
        return json_null();
    json_t *verdicts = json_array(), *scores = json_array(), *budget = json_array();
    json_t *contrasts = json_array();
    for (int64_t i = 0; i < p->n_contrasts; i++)
        json_array_append_new(contrasts, contrast_json(p, &p->contrast[i]));
    for (int64_t i = 0; i < p->n_verdicts; i++)
        json_array_append_new(verdicts, verdict_json(p, &p->verdict[i]));
    for (int64_t i = 0; i < p->n_scores; i++)
        json_array_append_new(scores, json_pack("{s:s, s:o, s:o}", "label",
                                                p->label.word[p->score[i].label], "classical",
                                                qm_json_number(p->score[i].score[0]), "twin",
                                                qm_json_number(p->score[i].score[1])));
    for (int64_t i = 0; i < p->n_budget; i++) {
        const struct qm_budget_row *b = &p->budget[i];
        json_array_append_new(budget, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "problem",
                                                p->problem.word[b->problem], "label",
                                                p->label.word[b->label], "part", b->part, "mean",
                                                qm_json_number(b->share.mean), "lo95",
                                                qm_json_number(b->share.lo95), "hi95",
                                                qm_json_number(b->share.hi95)));
    }
    return json_pack("{s:o, s:o, s:I, s:o, s:o}", "verdicts", verdicts, "contrasts", contrasts,
                     "contrasts_left_out", (json_int_t)p->n_apart, "scores", scores, "budget",
                     budget);
}
