/* store.c - Stores the tables of the protocol under /protocol. */
#include "experiments/lockstep/hitting_times.h"
#include "experiments/protocol/tables.h"
#include "experiments/store/columns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The columns that name a comparison: problem, label, lr_scale. */
struct names {
    const char **problem, **label;
    double *scale;
};

static struct names name_columns(struct qm_columns *t)
{
    struct names n;
    n.problem = qm_columns_text(t, "problem", "the problem, as the suite names it");
    n.label = qm_columns_text(t, "label", "the variant, or the labels of the axes that change it");
    n.scale = qm_columns_number(t, "lr_scale", "1", "times the problem's learning rate");
    return n;
}

static void set_names(const struct qm_protocol *p, struct names n, int64_t i, int problem,
                      int label, int scale)
{
    n.problem[i] = p->problem.word[problem];
    n.label[i] = p->label.word[label];
    n.scale[i] = p->scale[scale];
}

static qm_status store_runs(const struct qm_protocol *p, struct qm_store *store)
{
    struct qm_columns t = {.rows = p->n_runs};
    int64_t *cell = qm_columns_whole(&t, "cell", "row of /cells");
    struct names names = name_columns(&t);
    const char **variant = qm_columns_text(&t, "variant", "the named variant it starts from");
    double *rate = qm_columns_number(&t, "rate", "1", "tuned factor of the learning rate; 1: none");
    int64_t *seed = qm_columns_whole(&t, "seed", "seed of start, data and noise");
    int64_t *instance = qm_columns_whole(&t, "instance", "instance of the problem's data");
    double *start = qm_columns_number(&t, "start_gap", "1", "loss of the start above the floor");
    double *gap = qm_columns_number(&t, "gap", "1", "loss after the last step over start_gap");
    double *twin =
        qm_columns_number(&t, "twin_gap", "1",
                          "gap of the float64 twin: its loss after the last step over start_gap");
    double *d = qm_columns_number(&t, "d", "log10", "log10 gap - log10 twin_gap");
    double *area = qm_columns_number(
        &t, "area", "log10", "mean of log10 gap - log10 twin_gap over the logarithm of the step");
    double *late = qm_columns_number(
        &t, "late", "log10",
        "log10 of the late gap (mean of the last eighth of steps) over the twin's");
    double *basin = qm_columns_number(&t, "basin", "1", "basin in which it ended, 0: the floor's");
    double *twin_basin = qm_columns_number(&t, "twin_basin", "1",
                                           "basin in which the float64 twin ended, 0: the floor's");
    const char **status =
        qm_columns_text(&t, "status", "ok, diverged, failed or elsewhere (another basin)");
    for (int64_t i = 0; !t.failed && i < p->n_runs; i++) {
        const struct qm_run_row *r = &p->run[i];
        const struct qm_cell *c = qm_run_cell(p, r);
        cell[i] = r->cell;
        set_names(p, names, i, r->problem, r->label, r->scale);
        variant[i] = c->recipe->base ? c->recipe->base->name : "";
        seed[i] = (int64_t)c->seed, instance[i] = c->instance, rate[i] = c->rate;
        start[i] = r->start_gap, gap[i] = r->gap, twin[i] = r->twin_gap;
        d[i] = r->d, area[i] = r->d_of[QM_OUTCOME_area], late[i] = r->d_of[QM_OUTCOME_late];
        basin[i] = r->basin, twin_basin[i] = r->twin_basin;
        status[i] = !r->ok                            ? "failed"
                    : p->r->outcome[r->cell].diverged ? "diverged"
                    : r->elsewhere                    ? "elsewhere"
                                                      : "ok";
    }
    return qm_columns_store(&t, store, "/protocol/runs", "one row per closed cell that was run");
}

static qm_status store_targets(const struct qm_protocol *p, struct qm_store *store)
{
    struct qm_columns t = {.rows = (int64_t)p->problem.n * QM_TARGETS};
    const char **problem = qm_columns_text(&t, "problem", "the problem, as the suite names it");
    int64_t *index = qm_columns_whole(&t, "index", "0 to 50: column of hits");
    double *target = qm_columns_number(&t, "target", "1", "normalised gap to be reached");
    for (int64_t i = 0; !t.failed && i < t.rows; i++) {
        problem[i] = p->problem.word[i / QM_TARGETS];
        index[i] = i % QM_TARGETS;
        target[i] = qm_level_gap(p->target[i / QM_TARGETS][i % QM_TARGETS]);
    }
    QM_TRY(qm_columns_store(&t, store, "/protocol/targets", "51 targets per problem"));
    static const struct {
        const char *path, *text;
    } arrays[] = {
#define X(name, twin, persistence, text) {"/protocol/" #name, "first step at each target " text},
        QM_HITS_LIST(X)
#undef X
    };
    struct qm_shape shape = {2, {p->n_runs, QM_TARGETS}};
    for (int k = 0; k < QM_HITS_COUNT; k++)
        QM_TRY(qm_store_array(store, arrays[k].path, QM_DTYPE_i64, &shape, p->hits[k], "1",
                              arrays[k].text, NULL));
    return QM_OK;
}

/* clang-format off */
/* The numbers of a judgement: column, unit, text, value for x = by->d of the first outcome. */
#define JUDGED_LIST(X)                                                                             \
    X(mean, "log10", "mean of d without the fifth of pairs at either end", x->mean)                \
    X(lo95, "log10", "lower end of the 95 % interval of mean, over seeds and instances", x->lo95)                       \
    X(hi95, "log10", "upper end of the 95 % interval of mean", x->hi95)                                                         \
    X(lo90, "log10", "lower end of the 90 % interval of mean", x->lo90)                                                 \
    X(hi90, "log10", "upper end of the 90 % interval of mean", x->hi90)                                                         \
    X(plain_mean, "log10", "mean of d of all pairs", x->plain_mean)                                \
    X(sd, "log10", "standard deviation of d", x->sd)                                               \
    X(median, "log10", "median of d", x->median)                                                   \
    X(median_lo, "log10", "lower order statistic of two that enclose the median with at least 95 %", x->median_lo)        \
    X(median_hi, "log10", "upper order statistic of the two", x->median_hi)                                               \
    X(far, "1", "pairs more than 8 robust standard deviations off", (double)x->far)                \
    X(p, "1", "two-sided p value of the hypothesis that the location of d is 0", x->p)                                                    \
    X(q, "1", "p after Benjamini-Hochberg over the suite; NaN: not in the family", by->q)          \
    X(beyond_lo95, "log10", "lower end of the 95 % interval of d minus the d of float32 states", by->beyond.lo95)    \
    X(beyond_hi95, "log10", "upper end of the 95 % interval of d minus the d of float32 states", by->beyond.hi95)                                          \
    X(late_mean, "log10", "trimmed mean of late", by[QM_OUTCOME_late].d.mean)   \
    X(late_lo95, "log10", "lower end of the 95 % interval of late_mean", by[QM_OUTCOME_late].d.lo95)                         \
    X(late_hi95, "log10", "upper end of the 95 % interval of late_mean", by[QM_OUTCOME_late].d.hi95)                                 \
    X(area_mean, "log10", "trimmed mean of area", by[QM_OUTCOME_area].d.mean)                 \
    X(area_lo95, "log10", "lower end of the 95 % interval of area_mean", by[QM_OUTCOME_area].d.lo95)                         \
    X(area_hi95, "log10", "upper end of the 95 % interval of area_mean", by[QM_OUTCOME_area].d.hi95)                                 \
    X(delta, "log10", "margin of equivalence", delta)                                              \
    X(detectable, "log10", "mean of d that a test would find with 80 % power at this spread", detectable)
/* clang-format on */

/* The columns of judgements. */
struct judged_columns {
#define X(name, unit, text, value) double *name;
    JUDGED_LIST(X)
#undef X
    int64_t *n, *instances;
    double *same_mean, *same_lo95, *same_hi95;
    const char **verdict, **late, **area, **rates, **same;
};

static struct judged_columns judged_columns(struct qm_columns *t)
{
    struct judged_columns c;
    c.n = qm_columns_whole(t, "n", "pairs of runs that differ and count");
    c.instances = qm_columns_whole(
        t, "instances", "instances over whose locations the interval is taken; 1: over pairs");
#define X(name, unit, text, value) c.name = qm_columns_number(t, #name, unit, text);
    JUDGED_LIST(X)
#undef X
    c.verdict =
        qm_columns_text(t, "verdict",
                        "equivalent, better, worse, undecided, too few, not quantized or, of a "
                        "contrast, same results (to the bit) or uneven rates");
    c.late = qm_columns_text(
        t, "verdict_late",
        "verdict by late instead of d; where it is another word, the verdict hangs on the outcome");
    c.area = qm_columns_text(t, "verdict_area", "verdict by area instead of d");
    c.rates = qm_columns_text(
        t, "rates",
        "best against best, same rate (the twin's best), not tuned or, of a contrast, one "
        "side tuned");
    c.same = qm_columns_text(t, "same_verdict", "verdict of the runs at the same rate as the twin");
    c.same_mean = qm_columns_number(t, "same_mean", "log10",
                                    "trimmed mean of d at the same rate as the twin");
    c.same_lo95 =
        qm_columns_number(t, "same_lo95", "log10", "lower end of the 95 % interval of same_mean");
    c.same_hi95 =
        qm_columns_number(t, "same_hi95", "log10", "upper end of the 95 % interval of same_mean");
    return c;
}

static void set_judged(struct judged_columns *c, int64_t i, const struct qm_judged *by,
                       const struct qm_judged *same, double delta, double detectable)
{
    const struct qm_paired *x = &by->d;
#define X(name, unit, text, value) c->name[i] = value;
    JUDGED_LIST(X)
#undef X
    c->n[i] = x->n;
    c->instances[i] = x->instances;
    c->verdict[i] = qm_decision_text(by->verdict);
    c->late[i] = qm_decision_text(by[QM_OUTCOME_late].verdict);
    c->area[i] = qm_decision_text(by[QM_OUTCOME_area].verdict);
    c->same[i] = qm_decision_text(same->verdict);
    c->same_mean[i] = same->d.mean;
    c->same_lo95[i] = same->d.lo95, c->same_hi95[i] = same->d.hi95;
}

static qm_status store_verdicts(const struct qm_protocol *p, struct qm_store *store)
{
    struct qm_columns t = {.rows = p->n_verdicts};
    struct names names = name_columns(&t);
    struct judged_columns judged = judged_columns(&t);
    int64_t *diverged =
        qm_columns_whole(&t, "diverged", "runs that diverged; they count with gap 1000");
    int64_t *twin =
        qm_columns_whole(&t, "twin_diverged", "runs whose twin diverged; both: do not count");
    int64_t *failed = qm_columns_whole(&t, "failed", "runs without a result; they do not count");
    int64_t *elsewhere =
        qm_columns_whole(&t, "elsewhere", "pairs in another basin; they do not count");
    int64_t *basin = qm_columns_whole(&t, "basin", "basin of the pairs that count");
    double *null =
        qm_columns_number(&t, "null_mean", "log10", "mean of d of the rule with float32 states");
    double *null_lo =
        qm_columns_number(&t, "null_lo", "log10", "lower end of the 95 % interval of null_mean");
    double *null_hi =
        qm_columns_number(&t, "null_hi", "log10", "upper end of the 95 % interval of null_mean");
    int64_t *apart = qm_columns_whole(&t, "null_apart",
                                      "1: float32 states are not equivalent to the twin either");
    double *bits = qm_columns_number(&t, "bits", "bit", "bits of state per element, as used");
    double *coded = qm_columns_number(
        &t, "coded", "1", "share of elements with codes, of those to which the recipe gives codes");
    for (int64_t i = 0; !t.failed && i < p->n_verdicts; i++) {
        const struct qm_verdict_row *v = &p->verdict[i];
        set_names(p, names, i, v->of.problem, v->of.label, v->of.scale);
        set_judged(&judged, i, v->by, v->same, v->delta, v->detectable);
        judged.rates[i] = qm_rates_text(v->rates);
        diverged[i] = v->diverged, failed[i] = v->failed;
        twin[i] = v->twin_diverged;
        elsewhere[i] = v->elsewhere, basin[i] = v->of.basin;
        null[i] = v->null.mean, null_lo[i] = v->null.lo95, null_hi[i] = v->null.hi95;
        apart[i] = qm_is_apart(&v->null, v->delta);
        bits[i] = v->bits, coded[i] = v->coded;
    }
    return qm_columns_store(&t, store, "/protocol/verdicts",
                            "one row per problem, label and lr_scale");
}

static qm_status store_contrasts(const struct qm_protocol *p, struct qm_store *store)
{
    struct qm_columns t = {.rows = p->n_contrasts};
    if (p->n_contrasts == 0)
        return QM_OK;
    struct names names = name_columns(&t);
    const char **against = qm_columns_text(&t, "against", "the label it is tested against");
    const char **axis = qm_columns_text(&t, "axis", "the axis on which the two differ");
    struct judged_columns judged = judged_columns(&t);
    for (int64_t i = 0; !t.failed && i < p->n_contrasts; i++) {
        const struct qm_contrast_row *c = &p->contrast[i];
        set_names(p, names, i, c->a->problem, c->a->label, c->a->scale);
        against[i] = p->label.word[c->b->label];
        axis[i] = c->axis;
        set_judged(&judged, i, c->by, c->same, c->delta, c->detectable);
        judged.rates[i] = qm_rates_text(c->rates);
    }
    return qm_columns_store(
        &t, store, "/protocol/contrasts",
        "value against value on one axis: d is log10 of the gap over that of `against`");
}

/* Labels, then the twins of each family as "float64 twin (adamw)". */
static qm_status store_ecdf(const struct qm_protocol *p, struct qm_store *store)
{
    struct qm_columns t = {.rows = p->n_ecdf};
    char(*twin)[96] = calloc((size_t)p->family.n + 1, sizeof *twin);
    const char **label = qm_columns_text(&t, "label", "the label, or the float64 twin of a rule");
    double *tau = qm_columns_number(&t, "tau", "1", "steps");
    double *share = qm_columns_number(&t, "share", "1",
                                      "share of triples (problem, seed, target) reached by then");
    t.failed |= !twin;
    for (int f = 0; twin && f < p->family.n; f++)
        snprintf(twin[f], sizeof twin[f], "float64 twin (%s)", p->family.word[f]);
    for (int64_t i = 0; !t.failed && i < p->n_ecdf; i++) {
        const struct qm_curve_row *row = &p->ecdf[i];
        label[i] = row->label >= 0 ? p->label.word[row->label] : twin[-2 - row->label];
        tau[i] = row->tau;
        share[i] = row->share;
    }
    qm_status st = qm_columns_store(
        &t, store, "/protocol/ecdf",
        "share of targets against steps, variant and twin both at the twin's rate");
    free(twin);
    return st;
}

static qm_status store_profiles(const struct qm_protocol *p, struct qm_store *store)
{
    static const char *const kinds[] = {"classical", "twin"};
    struct qm_columns t = {.rows = p->n_profiles}, s = {.rows = 2 * p->n_scores};
    const char **label = qm_columns_text(&t, "label", "the label");
    const char **kind =
        qm_columns_text(&t, "kind", "classical: ratio to the best label; twin: to the twin");
    double *tau = qm_columns_number(&t, "tau", "1", "ratio of runtimes");
    double *share =
        qm_columns_number(&t, "share", "1", "share of triples (problem, seed, target) within tau");
    for (int64_t i = 0; !t.failed && i < p->n_profiles; i++) {
        label[i] = p->label.word[p->profile[i].label];
        kind[i] = kinds[p->profile[i].is_twin_kind];
        tau[i] = p->profile[i].tau;
        share[i] = p->profile[i].share;
    }
    QM_TRY(qm_columns_store(
        &t, store, "/protocol/profiles",
        "performance profiles at lr_scale 1, variant and twin both at the twin's rate"));
    label = qm_columns_text(&s, "label", "the label");
    kind = qm_columns_text(&s, "kind", "kind of profile: classical or twin");
    int64_t *n = qm_columns_whole(&s, "n", "triples (problem, seed, target) that count");
    double *score =
        qm_columns_number(&s, "score", "1", "integral of the share over tau from 1 to 4, by 3");
    for (int64_t i = 0; !s.failed && i < s.rows; i++) {
        label[i] = p->label.word[p->score[i / 2].label];
        kind[i] = kinds[i % 2];
        n[i] = p->score[i / 2].n[i % 2];
        score[i] = p->score[i / 2].score[i % 2];
    }
    return qm_columns_store(
        &s, store, "/protocol/scores",
        "one row per label and kind of profile; variant and twin both at the twin's rate");
}

static qm_status store_sensitivity(const struct qm_protocol *p, struct qm_store *store)
{
    static const char *const words[2][3] = {{"gap_q25", "gap_median", "gap_q75"},
                                            {"twin_q25", "twin_median", "twin_q75"}};
    static const char *const texts[] = {"first quartile", "median", "third quartile"};
    struct qm_columns t = {.rows = p->n_sensitivity};
    struct names names = name_columns(&t);
    int64_t *n = qm_columns_whole(&t, "n", "runs"),
            *best = qm_columns_whole(&t, "twin_best", "1 where the twin's median is smallest");
    double *x[2][3];
    for (int k = 0; k < 6; k++)
        x[k / 3][k % 3] = qm_columns_number(&t, words[k / 3][k % 3], "1", texts[k % 3]);
    for (int64_t i = 0; !t.failed && i < p->n_sensitivity; i++) {
        const struct qm_sensitivity_row *s = &p->sensitivity[i];
        set_names(p, names, i, s->of.problem, s->of.label, s->of.scale);
        n[i] = s->of.n;
        best[i] = s->twin_best;
        for (int k = 0; k < 3; k++) {
            x[0][k][i] = s->gap[k];
            x[1][k][i] = s->twin[k];
        }
    }
    return qm_columns_store(
        &t, store, "/protocol/sensitivity",
        "gaps against the learning rate: variant and twin both at lr_scale times the twin's rate");
}

static qm_status store_budget(const struct qm_protocol *p, struct qm_store *store)
{
    struct qm_columns t = {.rows = p->n_budget};
    struct names names = name_columns(&t);
    const char **part = qm_columns_text(&t, "part", "what was set to full precision; rest; all");
    int64_t *n = qm_columns_whole(&t, "n", "different pairs");
    double *mean = qm_columns_number(&t, "mean", "log10",
                                     "trimmed mean of d with the part minus d without it");
    double *lo = qm_columns_number(&t, "lo95", "log10", "its 95 % interval");
    double *hi = qm_columns_number(&t, "hi95", "log10", "upper end");
    for (int64_t i = 0; !t.failed && i < p->n_budget; i++) {
        const struct qm_budget_row *b = &p->budget[i];
        set_names(p, names, i, b->problem, b->label, p->one);
        part[i] = b->part;
        n[i] = b->share.n, mean[i] = b->share.mean, lo[i] = b->share.lo95, hi[i] = b->share.hi95;
    }
    return qm_columns_store(
        &t, store, "/protocol/budget",
        "error budget, variant and twin both at the twin's rate: parts, rest and all of "
        "a problem and label, each a trimmed mean of its own");
}

qm_status qm_protocol_store(const struct qm_protocol *p, struct qm_store *store)
{
    if (!p)
        return QM_OK;
    QM_TRY(store_runs(p, store));
    QM_TRY(store_targets(p, store));
    QM_TRY(store_verdicts(p, store));
    QM_TRY(store_contrasts(p, store));
    QM_TRY(store_ecdf(p, store));
    QM_TRY(store_profiles(p, store));
    QM_TRY(store_sensitivity(p, store));
    return store_budget(p, store);
}
