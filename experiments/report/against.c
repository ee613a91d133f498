/* against.c - Compares the variants of a result file with those of an archive, pair by pair. */
#include "experiments/report/against.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/protocol/stats.h"
#include "experiments/report/against_pairs.h"
#include "experiments/report/value_range.h"

#define RUNS     "/protocol/runs"
#define VERDICTS "/protocol/verdicts"

enum { REASON = 300 };                       /* bytes of the reason why a run has no partner */
static const char not_tuned[] = "not tuned"; /* of the column rates */

/* Orders pairs by problem, labels and scale; by_value by their values, so that equal observations
 * become neighbours. */
static int by_group(const void *x, const void *y, void *context)
{
    const struct qm_pairs *p = context;
    const struct qm_pair *s = x, *t = y;
    int c = strcmp(p->a->problem[s->mine], p->a->problem[t->mine]);
    c = c ? c : strcmp(p->a->label[s->mine], p->a->label[t->mine]);
    c = c ? c : strcmp(p->b->label[s->theirs], p->b->label[t->theirs]);
    double u = p->a->scale[s->mine], v = p->a->scale[t->mine];
    return c ? c : (u > v) - (u < v);
}

static int by_value(const void *x, const void *y, void *context)
{
    const struct qm_pairs *p = context;
    const struct qm_pair *s = x, *t = y;
    double u = p->a->d[s->mine], v = p->a->d[t->mine];
    int c = (u > v) - (u < v);
    c = c ? c : (s->d > t->d) - (s->d < t->d);
    u = p->a->start[s->mine], v = p->a->start[t->mine];
    return c ? c : (u > v) - (u < v);
}

static int by_both(const void *x, const void *y, void *context)
{
    int c = by_group(x, y, context);
    return c ? c : by_value(x, y, context);
}

/* ---- judging ------------------------------------------------------------------------------- */

struct group {
    int64_t first; /* its first pair */
    struct qm_paired x;
    double q, delta;
    int is_tuned; /* the pairs ran at a rate that was tuned for the twin */
    int is_plain; /* one of the two gave no codes: there is nothing to compare */
    int is_apart; /* float32 states are not equivalent to the twin either, here */
};

struct judged {
    struct group *group;
    int64_t n;
};

/* The margin of equivalence that the file states for a problem. */
static double delta_of(struct qm_result *r, const char *problem)
{
    int64_t rows;
    char **name = NULL;
    double *delta = NULL, found = QM_USUAL_DELTA;
    if (qm_result_texts(r, VERDICTS, "problem", &rows, &name) == QM_OK &&
        qm_result_f64(r, VERDICTS, "delta", &rows, &delta) == QM_OK)
        for (int64_t i = 0; i < rows; i++)
            if (strcmp(name[i], problem) == 0)
                found = delta[i];
    free(name);
    free(delta);
    return found;
}

/* Whether the file's verdicts on a problem are over instances: a problem without a data seed has
 * more seeds instead. */
static int has_instances(struct qm_result *r, const char *problem)
{
    int64_t rows, *instances = NULL;
    char **name = NULL;
    int has = 0;
    if (qm_result_texts(r, VERDICTS, "problem", &rows, &name) == QM_OK &&
        qm_result_i64(r, VERDICTS, "instances", &rows, &instances) == QM_OK)
        for (int64_t i = 0; i < rows; i++)
            has |= strcmp(name[i], problem) == 0 && instances[i] > 1;
    free(name);
    free(instances);
    return has;
}

/* Sets is_tuned or is_plain of every group by the verdicts of the archived variant, or is_plain by
 * those of the one here.  Archives that do not tell rates are older than their tuning. */
static qm_status set_by_verdicts(const struct qm_pairs *p, struct qm_result *of, int is_archive,
                                 struct judged *j)
{
    const struct qm_run_rows *s = is_archive ? p->b : p->a;
    int64_t rows = 0, n;
    char **problem = NULL, **label = NULL, **rates = NULL, **verdict = NULL;
    int64_t *apart = NULL;
    if (qm_result_texts(of, VERDICTS, "rates", &n, &rates) != QM_OK)
        rates = NULL;
    if (qm_result_i64(of, VERDICTS, "null_apart", &n, &apart) != QM_OK)
        apart = NULL;
    qm_status st = qm_result_texts(of, VERDICTS, "problem", &rows, &problem);
    if (st == QM_OK)
        st = qm_result_texts(of, VERDICTS, "label", &n, &label);
    if (st == QM_OK)
        st = qm_result_texts(of, VERDICTS, "verdict", &n, &verdict);
    for (int64_t g = 0; st == QM_OK && g < j->n; g++) {
        const struct qm_pair *first = &p->pair[j->group[g].first];
        int64_t k = is_archive ? first->theirs : first->mine, i = 0;
        while (i < rows &&
               (strcmp(problem[i], s->problem[k]) != 0 || strcmp(label[i], s->label[k]) != 0))
            i++;
        if (i == rows)
            continue;
        if (is_archive && rates)
            j->group[g].is_tuned = strcmp(rates[i], not_tuned) != 0;
        j->group[g].is_apart |= apart && apart[i];
        j->group[g].is_plain |= strcmp(verdict[i], qm_decision_text(QM_DECISION_plain)) == 0;
    }
    free(problem);
    free(label);
    free(rates);
    free(verdict);
    free(apart);
    return st == QM_NO_MATCH ? QM_OK : st; /* an archive without verdicts */
}

/* Judges every group as the protocol does: seeds that change nothing are one observation. */
static qm_status judge_groups(struct qm_pairs *p, struct qm_result *r, double *x, int *instance,
                              double *p_value, struct judged *out)
{
    if (p->n > 0)
        qsort_r(p->pair, (size_t)p->n, sizeof *p->pair, by_both, p);
    for (int64_t i = 0, end; i < p->n; i = end) {
        struct group *g = &out->group[out->n];
        const char *problem = p->a->problem[p->pair[i].mine];
        int64_t n = 0;
        int has = has_instances(r, problem);
        for (end = i; end < p->n && by_group(&p->pair[i], &p->pair[end], p) == 0; end++)
            if (end == i || by_value(&p->pair[end - 1], &p->pair[end], p) != 0) {
                instance[n] = has ? (int)qm_run_instance(p->a, p->pair[end].mine) : 1;
                x[n++] = p->pair[end].d;
            }
        int is_same = out->n && strcmp(p->a->problem[p->pair[g[-1].first].mine], problem) == 0;
        g->first = i;
        g->delta = is_same ? g[-1].delta : delta_of(r, problem);
        QM_TRY(qm_paired_levels(x, instance, n, &g->x));
        p_value[out->n++] = n >= QM_LEAST_PAIRS ? g->x.p : nan("");
    }
    QM_TRY(qm_false_discovery(p_value, out->n, x));
    for (int64_t i = 0; i < out->n; i++)
        out->group[i].q = x[i];
    return QM_OK;
}

/* ---- storing ------------------------------------------------------------------------------- */

/* As of a contrast: runs far off leave nothing equivalent. */
static enum qm_decision verdict_of(const struct group *g)
{
    enum qm_decision v = qm_decide(&g->x, g->delta, g->q);
    if (g->is_plain)
        return QM_DECISION_plain;
    return v == QM_DECISION_equivalent && g->x.far > 0 ? QM_DECISION_undecided : v;
}

static qm_status store_pairs(const struct qm_pairs *p, const struct judged *j,
                             struct qm_store *store)
{
    enum { NUMBERS = 9 };
    static const char *const words[NUMBERS][2] = {
        {"mean", "trimmed mean over seeds of log10 of the gap over the archived variant's"},
        {"lo95", "95 % interval of the mean"},
        {"hi95", "upper end"},
        {"lo90", "90 % interval"},
        {"hi90", "upper end"},
        {"p", "of mean 0, two-sided"},
        {"q", "p after Benjamini-Hochberg over these rows"},
        {"delta", "margin of equivalence"},
        {"lr_scale", "times the problem's learning rate"}};
    int64_t n = j->n;
    size_t room = (size_t)n + 1;
    const char **text = calloc(6 * room, sizeof *text);
    double *number = calloc(NUMBERS * room, sizeof *number);
    int64_t *count = calloc(2 * room, sizeof *count);
    struct qm_column column[8 + NUMBERS] = {
        {"problem", QM_COLUMN_text, "", "the problem", text},
        {"label", QM_COLUMN_text, "", "the variant here", text + room},
        {"archive", QM_COLUMN_text, "", "the archived variant", text + 2 * room},
        {"n", QM_COLUMN_i64, "1", "different pairs", count}};
    for (int k = 0; number && k < NUMBERS; k++)
        column[4 + k] =
            (struct qm_column){words[k][0], QM_COLUMN_f64, k < 5 || k == 7 ? "log10" : "1",
                               words[k][1], number + (size_t)k * room};
    column[4 + NUMBERS] =
        (struct qm_column){"verdict", QM_COLUMN_text, "",
                           "of the variant here against the archived one", text + 3 * room};
    column[5 + NUMBERS] = (struct qm_column){
        "rates", QM_COLUMN_text, "", "same rate (the twin's best) or not tuned", text + 4 * room};
    column[6 + NUMBERS] = (struct qm_column){"archive_recipe", QM_COLUMN_text, "",
                                             "the recipe of the archived variant", text + 5 * room};
    int ok = text && number && count;
    column[7 + NUMBERS] = (struct qm_column){
        "float32_apart", QM_COLUMN_i64, "1",
        "1: float32 states are not equivalent to the twin either, and no title counts the verdict",
        count ? count + room : NULL};
    for (int64_t i = 0; ok && i < n; i++) {
        const struct group *g = &j->group[i];
        const struct qm_pair *pair = &p->pair[g->first];
        const double value[NUMBERS] = {g->x.mean, g->x.lo95, g->x.hi95,
                                       g->x.lo90, g->x.hi90, g->x.p,
                                       g->q,      g->delta,  p->a->scale[pair->mine]};
        text[i] = p->a->problem[pair->mine];
        text[room + (size_t)i] = p->a->label[pair->mine];
        text[2 * room + (size_t)i] = p->b->label[pair->theirs];
        text[3 * room + (size_t)i] = qm_decision_text(verdict_of(g));
        text[4 * room + (size_t)i] = g->is_tuned ? "same rate" : not_tuned;
        text[5 * room + (size_t)i] = p->b->recipe[p->b->cell[pair->theirs]];
        count[i] = g->x.n;
        count[room + (size_t)i] = g->is_apart;
        for (int k = 0; k < NUMBERS; k++)
            number[(size_t)k * room + (size_t)i] = value[k];
    }
    qm_status st =
        ok ? qm_store_table(store, "/against/pairs",
                            "Each variant here against each archived one, where problem, "
                            "seed, learning rate, steps and twin agree; positive is worse; over "
                            "instances' locations where there are several.",
                            n, 8 + NUMBERS, column)
           : qm_fail(QM_NO_MEMORY, "pairs");
    free(text);
    free(number);
    free(count);
    return st;
}

/* The entry of a run for an archived variant and the reason; theirs.n stands for every variant. */
static int64_t apart_at(const struct qm_pairs *p, int64_t run, int64_t theirs)
{
    int stage = theirs < p->theirs.n ? p->of[run * p->theirs.n + theirs] : (int)p->stage[run];
    return (p->mine.of[run] * (p->theirs.n + 1) + theirs) * QM_STAGE_COUNT + stage;
}

/* The problems of seen[problem.n] in words, owned: all, all but the few others, or these. */
static char *problem_names(const struct qm_distinct_texts *problem, const char *seen)
{
    int64_t n = 0, told = 0;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    for (int64_t i = 0; i < problem->n; i++)
        n += seen[i];
    int rest = 2 * n > problem->n;
    if (to && rest)
        fputs(n < problem->n ? "all but " : "all", to);
    for (int64_t i = 0; to && i < problem->n; i++)
        if (seen[i] == !rest)
            fprintf(to, "%s%s", told++ ? "; " : "", problem->text[i]);
    if (to)
        fclose(to);
    return text;
}

/* What of run i keeps it from its partners at a stage; NaN where that is no number. */
static double apart_value(const struct qm_run_rows *s, int64_t i, enum qm_stage stage,
                          int is_instance)
{
    return stage == QM_STAGE_steps   ? (double)s->steps[s->cell[i]]
           : stage == QM_STAGE_scale ? s->scale[i]
           : stage != QM_STAGE_seed  ? (double)NAN
           : !is_instance            ? (double)s->seed[i]
                                     : (double)qm_run_instance(s, i);
}

/* In out[REASON], of the archived runs that fail with run i at its twin, of an archived variant
 * (theirs.n: of all), what keeps the one apart from which least does. */
static void twins_told(const struct qm_pairs *p, int64_t i, int64_t theirs, char *out)
{
    int least = INT_MAX;
    for (int64_t k = 0; k < p->b->rows; k++) {
        char text[REASON];
        if (!qm_run_is_plain(p->b, k) || (theirs != p->theirs.n && p->theirs.of[k] != theirs) ||
            strcmp(p->b->problem[k], p->a->problem[i]) != 0 || p->b->scale[k] != p->a->scale[i] ||
            p->b->seed[k] != p->a->seed[i] ||
            qm_run_instance(p->b, k) != qm_run_instance(p->a, i) ||
            p->of[i * p->theirs.n + p->theirs.of[k]] != QM_STAGE_twin)
            continue;
        int n = qm_run_twins_told(p->a, i, p->b, k, text, sizeof text);
        if (n < least)
            snprintf(out, REASON, "%s%s", qm_stage_text[QM_STAGE_twin], text);
        least = n < least ? n : least;
    }
}

/* The reason of a stage with the values of run i and those of an archived variant (theirs.n: of
 * all) on the problem of the run: "another number of steps there: 40, here 20". */
static void stage_told(const struct qm_pairs *p, int64_t i, int64_t theirs, enum qm_stage s,
                       char out[REASON])
{
    struct qm_value_range there[2] = {{.n = 0}, {.n = 0}};
    char text[2][100];
    if (s == QM_STAGE_twin) {
        twins_told(p, i, theirs, out);
        return;
    }
    for (int64_t k = 0; k < p->b->rows; k++)
        if (qm_run_is_plain(p->b, k) && (theirs == p->theirs.n || p->theirs.of[k] == theirs) &&
            strcmp(p->b->problem[k], p->a->problem[i]) == 0)
            for (int j = 0; j < 2; j++)
                qm_value_range_add(&there[j], apart_value(p->b, k, s, j));
    for (int j = 0; j < 2; j++)
        qm_value_range_text(&there[j], text[j], sizeof text[j]);
    int n = snprintf(out, REASON, "%s", qm_stage_text[s]);
    if (s == QM_STAGE_seed)
        snprintf(out + n, REASON - (size_t)n, ": seeds %s of instances %s, here seed %.9g of %.9g",
                 text[0], text[1], apart_value(p->a, i, s, 0), apart_value(p->a, i, s, 1));
    else if (there[0].n)
        snprintf(out + n, REASON - (size_t)n, ": %s, here %.9g", text[0],
                 apart_value(p->a, i, s, 0));
}

/* Counts the runs of every entry, keeps the first, and sets the flags of its problems. */
static void count_apart(const struct qm_pairs *p, int64_t *runs, int64_t *first, char *seen)
{
    for (int64_t i = 0; i < p->a->rows; i++) {
        int none = p->stage[i] <= QM_STAGE_seed; /* the reason holds for the archive as a whole */
        for (int64_t k = none ? p->theirs.n : 0; k < p->theirs.n + none; k++) {
            int is_named =
                none || (p->is_plain[k] && p->of[i * p->theirs.n + k] != QM_STAGE_paired);
            if (p->stage[i] == QM_STAGE_COUNT || !is_named)
                continue;
            int64_t at = apart_at(p, i, k);
            first[at] = runs[at] ? first[at] : i;
            runs[at]++;
            seen[at * p->problem.n + p->problem.of[i]] = 1;
        }
    }
}

/* Stores a row per label here, archived variant and reason. */
static qm_status store_apart(const struct qm_pairs *p, struct qm_store *store)
{
    int64_t variants = p->theirs.n + 1, n = 0;
    size_t room = (size_t)(p->mine.n * variants * QM_STAGE_COUNT) + 1;
    int64_t *runs = calloc(3 * room, sizeof *runs), *count = runs ? runs + room : NULL;
    char *seen = calloc(room, (size_t)p->problem.n + 1), **names = calloc(room, sizeof *names);
    const char **text = calloc(3 * room, sizeof *text);
    char(*why)[REASON] = calloc(room, sizeof *why);
    int ok = runs && seen && names && text && why;
    if (ok)
        count_apart(p, runs, count + room, seen);
    for (size_t e = 0; ok && e < room; e++) {
        size_t rest = e / QM_STAGE_COUNT, theirs = rest % (size_t)variants;
        if (!runs[e])
            continue;
        text[n] = p->mine.text[rest / (size_t)variants];
        text[room + (size_t)n] =
            (int64_t)theirs < p->theirs.n ? p->theirs.text[theirs] : "every one";
        stage_told(p, count[room + e], (int64_t)theirs, (enum qm_stage)(e % QM_STAGE_COUNT),
                   why[n]);
        text[2 * room + (size_t)n] = why[n];
        names[n] = problem_names(&p->problem, seen + e * (size_t)p->problem.n);
        ok = names[n] != NULL;
        count[n++] = runs[e];
    }
    const struct qm_column column[] = {
        {"label", QM_COLUMN_text, "", "the variant here", text},
        {"archive", QM_COLUMN_text, "", "the archived variant", text ? text + room : NULL},
        {"runs", QM_COLUMN_i64, "1", "how many", count},
        {"reason", QM_COLUMN_text, "", "what did not agree", text ? text + 2 * room : NULL},
        {"problems", QM_COLUMN_text, "", "of these, on which", names}};
    qm_status st = ok ? qm_store_table(store, "/against/apart",
                                       "Runs without a partner in an archived variant, and what "
                                       "did not agree.",
                                       n, 5, column)
                      : qm_fail(QM_NO_MEMORY, "runs apart");
    for (int64_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
    free(why);
    free(runs);
    free(seen);
    free(text);
    return st;
}

/* Says how many runs have no partner, what most of them lack, and, where that is the problem, which
 * ones the archive has. */
static void note_apart(const struct qm_pairs *p)
{
    int64_t apart[QM_STAGE_COUNT] = {0}, all = 0, without = 0;
    char names[600] = "";
    char reason[REASON];
    int most = QM_STAGE_problem;
    int64_t first = 0;
    for (int64_t i = 0; i < p->a->rows; i++)
        if (p->stage[i] != QM_STAGE_COUNT) {
            all++;
            without += p->stage[i] != QM_STAGE_paired;
            apart[p->stage[i]] += p->stage[i] != QM_STAGE_paired;
        }
    for (int s = 0; s < QM_STAGE_COUNT; s++)
        most = apart[s] > apart[most] ? s : most;
    for (int64_t k = 0; most == QM_STAGE_problem && k < p->b->rows; k++) {
        int64_t same = 0;
        while (strcmp(p->b->problem[same], p->b->problem[k]) != 0)
            same++;
        if (same == k && strlen(names) + strlen(p->b->problem[k]) + 10 < sizeof names)
            strcat(strcat(names, *names ? ", " : ": it has "), p->b->problem[k]);
    }
    if (!without)
        return;
    while (p->stage[first] != (enum qm_stage)most)
        first++;
    stage_told(p, first, p->theirs.n, (enum qm_stage)most, reason);
    qm_note("against: %lld of %lld runs have no partner; of %lld: %s%s", (long long)without,
            (long long)all, (long long)apart[most], reason, names);
}

/* Stores what every reader of the comparison has to be told. */
static qm_status store_rates(const struct qm_pairs *p, const struct judged *j,
                             struct qm_store *store)
{
    int64_t tuned = 0, archived = 0;
    for (int64_t i = 0; i < j->n; i++)
        tuned += j->group[i].is_tuned;
    for (int64_t k = 0; k < p->theirs.n; k++)
        archived += p->is_plain[k];
    QM_TRY(qm_store_text(store, "/against", "rates",
                         j->n == 0       ? "no rate, for no run has a partner"
                         : tuned == 0    ? "the archive's rates, which are not tuned"
                         : tuned == j->n ? "the archive's rates, each tuned for the float64 twin"
                                         : "the archive's rates, some of them not tuned"));
    QM_TRY(qm_store_text(store, "/against", "advice",
                         "A variant may owe its verdict to the rate: to be sure of a pair, put "
                         "the two into a suite, `qualm tune SUITE --variants`, and run it."));
    return qm_store_number(store, "/against", "archived", (double)archived);
}

static qm_status write_file(const struct qm_pairs *p, const struct judged *j, const char *out)
{
    static char word[] = "report";
    char *argv[] = {word, NULL};
    struct qm_store *store = NULL;
    QM_TRY(qm_store_open(out, "against", 1, argv, &store));
    qm_status st = store_pairs(p, j, store);
    if (st == QM_OK)
        st = store_apart(p, store);
    if (st == QM_OK)
        st = store_rates(p, j, store);
    if (st == QM_OK)
        return qm_store_commit(store);
    qm_store_abort(store);
    return st;
}

qm_status qm_against_write(struct qm_result *mine, struct qm_result *archive, const char *out)
{
    struct qm_run_rows a = {0}, b = {0};
    struct qm_pairs p = {.a = &a, .b = &b};
    struct judged j = {0};
    double *x = NULL;
    if (!qm_result_has(mine, RUNS) || !qm_result_has(archive, RUNS))
        return qm_fail(QM_NO_MATCH, "no %s in the %s: run a suite with protocol: paired", RUNS,
                       qm_result_has(mine, RUNS) ? "archive" : "result file");
    qm_status st = qm_runs_read(mine, &a);
    if (st == QM_OK)
        st = qm_runs_read(archive, &b);
    if (st == QM_OK)
        st = qm_pairs_find(&p);
    if (st == QM_OK) {
        note_apart(&p);
        j.group = calloc((size_t)p.n + 1, sizeof *j.group);
        x = calloc(3 * ((size_t)p.n + 1), sizeof *x); /* values, p and instances */
        st = j.group && x ? QM_OK : qm_fail(QM_NO_MEMORY, "pairs");
    }
    if (st == QM_OK)
        st = judge_groups(&p, mine, x, (int *)(x + 2 * (p.n + 1)), x + p.n + 1, &j);
    if (st == QM_OK)
        st = set_by_verdicts(&p, archive, 1, &j);
    if (st == QM_OK)
        st = set_by_verdicts(&p, mine, 0, &j);
    if (st == QM_OK)
        st = write_file(&p, &j, out);
    free(x);
    free(j.group);
    qm_pairs_free(&p);
    qm_runs_free(&a);
    qm_runs_free(&b);
    return st;
}
