/* against.c - Compares the variants of a result file with those of an archive, pair by pair. */
#include "experiments/report/against.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/recipe/recipe.h"
#include "experiments/cli/cli.h"
#include "experiments/protocol/stats.h"
#include "experiments/report/distinct_texts.h"
#include "experiments/report/value_range.h"

#define RUNS     "/protocol/runs"
#define VERDICTS "/protocol/verdicts"

static const double start_bound = 1e-9, twin_bound = 1e-6;
enum { REASON = 300 };                       /* bytes of the reason why a run has no partner */
static const char not_tuned[] = "not tuned"; /* of the column rates */

/* ---- reading ------------------------------------------------------------------------------- */

/* The runs of one file. */
struct runs {
    int64_t rows, cells;
    char **problem, **label, **status;
    int64_t *cell, *seed, *instance; /* instance NULL: 1 of all, in older files */
    double *scale, *start, *twin, *d;
    char **recipe, **role; /* [cells]; role may be NULL */
    int64_t *steps;        /* [cells] */
};

static void runs_free(struct runs *s)
{
    void *all[] = {s->problem, s->label, s->status, s->recipe, s->role, s->cell, s->instance,
                   s->seed,    s->steps, s->scale,  s->start,  s->twin, s->d};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static qm_status runs_read(struct qm_result *r, struct runs *s)
{
    QM_TRY(qm_result_texts(r, RUNS, "problem", &s->rows, &s->problem));
    QM_TRY(qm_result_texts(r, RUNS, "label", &s->rows, &s->label));
    QM_TRY(qm_result_texts(r, RUNS, "status", &s->rows, &s->status));
    QM_TRY(qm_result_i64(r, RUNS, "cell", &s->rows, &s->cell));
    QM_TRY(qm_result_i64(r, RUNS, "seed", &s->rows, &s->seed));
    if (qm_result_i64(r, RUNS, "instance", &s->rows, &s->instance) != QM_OK)
        s->instance = NULL;
    QM_TRY(qm_result_f64(r, RUNS, "lr_scale", &s->rows, &s->scale));
    QM_TRY(qm_result_f64(r, RUNS, "start_gap", &s->rows, &s->start));
    QM_TRY(qm_result_f64(r, RUNS, "twin_gap", &s->rows, &s->twin));
    QM_TRY(qm_result_f64(r, RUNS, "d", &s->rows, &s->d));
    QM_TRY(qm_result_texts(r, "/cells", "recipe", &s->cells, &s->recipe));
    QM_TRY(qm_result_i64(r, "/cells", "steps", &s->cells, &s->steps));
    if (qm_result_texts(r, "/cells", "role", &s->cells, &s->role) != QM_OK)
        s->role = NULL;
    for (int64_t i = 0; i < s->rows; i++)
        if (s->cell[i] < 0 || s->cell[i] >= s->cells)
            return qm_fail(QM_BAD_FILE, RUNS ": row %lld has no cell", (long long)i);
    return QM_OK;
}

/* Whether the suite names run i: not a null pair or a part of an error budget. */
static int is_plain(const struct runs *s, int64_t i)
{
    return !s->role || strcmp(s->role[s->cell[i]], "plain") == 0;
}

/* ---- pairing ------------------------------------------------------------------------------- */

/* The conditions that a partner must meet; the furthest one that any run of an archived variant
 * reaches is the reason why a run has no partner in it. */
/* clang-format off */
#define STAGE_LIST(X)                                                                     \
    X(problem, "no runs on this problem there")                                                   \
    X(scale,   "no such multiple of the learning rate there")                             \
    X(seed,    "no such seed of this instance there")                                     \
    X(family,  "the rules differ, and so do the twins")                                   \
    X(start,   "the starts differ: parameters of another precision, or other data")       \
    X(steps,   "another number of steps there")                                           \
    X(twin,    "the twins differ: other rates (suite key rates: baseline takes that archive's), " \
               "hyper-parameters, data or a changed problem")                             \
    X(result,  "failed, here or there")                                                   \
    X(lost,    "diverged, here and there")                                                \
    X(basin,   "ended in another basin than most twins did, here or there")               \
    X(paired,  "paired")
/* clang-format on */

enum stage {
#define X(name, text) STAGE_##name,
    STAGE_LIST(X)
#undef X
        STAGE_COUNT
};

static const char *const stage_text[] = {
#define X(name, text) text,
    STAGE_LIST(X)
#undef X
};

static const char *family(const struct runs *s, int64_t i)
{
    struct qm_recipe recipe;
    return qm_recipe_parse(s->recipe[s->cell[i]], &recipe) == QM_OK ? recipe.rule->family : "";
}

/* The condition that run k of b fails as a partner of run i of a, or STAGE_paired. */
static enum stage stage_of(const struct runs *a, int64_t i, const char *family_a,
                           const struct runs *b, int64_t k, const char *family_b)
{
    if (strcmp(a->problem[i], b->problem[k]) != 0)
        return STAGE_problem;
    if (a->scale[i] != b->scale[k])
        return STAGE_scale;
    if (a->seed[i] != b->seed[k] ||
        (a->instance ? a->instance[i] : 1) != (b->instance ? b->instance[k] : 1))
        return STAGE_seed;
    int is_start = fabs(a->start[i] - b->start[k]) <= start_bound * fabs(b->start[k]);
    int is_twin =
        a->twin[i] == b->twin[k] || fabs(log10(a->twin[i]) - log10(b->twin[k])) <= twin_bound;
    int is_failed = strcmp(a->status[i], "failed") == 0 || strcmp(b->status[k], "failed") == 0;
    if (!is_start || !is_twin)
        return strcmp(family_a, family_b) != 0                ? STAGE_family
               : is_failed                                    ? STAGE_result
               : !is_start                                    ? STAGE_start
               : a->steps[a->cell[i]] != b->steps[b->cell[k]] ? STAGE_steps
                                                              : STAGE_twin;
    if (!isfinite(a->d[i]) || !isfinite(b->d[k]))
        return STAGE_result;
    if (strcmp(a->status[i], "diverged") == 0 && strcmp(b->status[k], "diverged") == 0)
        return STAGE_lost; /* both gaps are the constant of diverged runs */
    int is_apart = strcmp(a->status[i], "elsewhere") == 0 || strcmp(b->status[k], "elsewhere") == 0;
    return is_apart ? STAGE_basin : STAGE_paired;
}

struct pair {
    int64_t mine, theirs; /* rows */
    double d;             /* mine minus theirs */
};

struct pairs {
    const struct runs *a, *b;
    struct pair *pair;
    int64_t n, room;
    enum stage *stage; /* [a->rows], of any archived variant; STAGE_COUNT: not compared */
    struct qm_distinct_texts mine, theirs, problem; /* labels of a, of b; problems of a */
    char *is_plain;    /* [theirs.n]: the archive's suite names the variant */
    unsigned char *of; /* [a->rows][theirs.n]: the stage of each archived variant */
};

static int add_pair(struct pairs *p, int64_t i, int64_t k)
{
    if (qm_grow((void **)&p->pair, &p->room, p->n + 1, sizeof *p->pair) != QM_OK)
        return 0;
    p->pair[p->n++] = (struct pair){i, k, p->a->d[i] - p->b->d[k]};
    return 1;
}

static qm_status find_pairs(struct pairs *p)
{
    const struct runs *a = p->a, *b = p->b;
    const char **theirs = calloc((size_t)b->rows + 1, sizeof *theirs);
    QM_TRY(qm_distinct_texts_make(a->label, a->rows, &p->mine));
    QM_TRY(qm_distinct_texts_make(a->problem, a->rows, &p->problem));
    QM_TRY(qm_distinct_texts_make(b->label, b->rows, &p->theirs));
    p->stage = calloc((size_t)a->rows + 1, sizeof *p->stage);
    p->of = calloc((size_t)a->rows + 1, (size_t)p->theirs.n + 1);
    p->is_plain = calloc((size_t)p->theirs.n + 1, 1);
    int ok = theirs && p->stage && p->of && p->is_plain;
    for (int64_t k = 0; ok && k < b->rows; k++) {
        theirs[k] = family(b, k);
        p->is_plain[p->theirs.of[k]] |= (char)is_plain(b, k);
    }
    for (int64_t i = 0; ok && i < a->rows; i++) {
        const char *mine = family(a, i);
        p->stage[i] = is_plain(a, i) ? STAGE_problem : STAGE_COUNT;
        for (int64_t k = 0; ok && p->stage[i] != STAGE_COUNT && k < b->rows; k++) {
            if (!is_plain(b, k))
                continue;
            enum stage s = stage_of(a, i, mine, b, k, theirs[k]);
            unsigned char *one = &p->of[i * p->theirs.n + p->theirs.of[k]];
            p->stage[i] = s > p->stage[i] ? s : p->stage[i];
            *one = s > *one ? (unsigned char)s : *one;
            ok = s != STAGE_paired || add_pair(p, i, k);
        }
    }
    free(theirs);
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "pairs");
}

/* Orders pairs by problem, labels and scale; by_value by their values, so that equal observations
 * become neighbours. */
static int by_group(const void *x, const void *y, void *context)
{
    const struct pairs *p = context;
    const struct pair *s = x, *t = y;
    int c = strcmp(p->a->problem[s->mine], p->a->problem[t->mine]);
    c = c ? c : strcmp(p->a->label[s->mine], p->a->label[t->mine]);
    c = c ? c : strcmp(p->b->label[s->theirs], p->b->label[t->theirs]);
    double u = p->a->scale[s->mine], v = p->a->scale[t->mine];
    return c ? c : (u > v) - (u < v);
}

static int by_value(const void *x, const void *y, void *context)
{
    const struct pairs *p = context;
    const struct pair *s = x, *t = y;
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

/* Sets is_tuned of every group by the archive's verdict of its variant; archives that do not tell
 * rates are older than their tuning. */
static qm_status set_rates(const struct pairs *p, struct qm_result *archive, struct judged *j)
{
    int64_t rows, n;
    char **problem = NULL, **label = NULL, **rates = NULL;
    if (qm_result_texts(archive, VERDICTS, "rates", &rows, &rates) != QM_OK)
        return QM_OK;
    qm_status st = qm_result_texts(archive, VERDICTS, "problem", &n, &problem);
    if (st == QM_OK)
        st = qm_result_texts(archive, VERDICTS, "label", &n, &label);
    for (int64_t g = 0; st == QM_OK && g < j->n; g++) {
        int64_t k = p->pair[j->group[g].first].theirs, i = 0;
        while (i < rows &&
               (strcmp(problem[i], p->b->problem[k]) != 0 || strcmp(label[i], p->b->label[k]) != 0))
            i++;
        j->group[g].is_tuned = i < rows && strcmp(rates[i], not_tuned) != 0;
    }
    free(problem);
    free(label);
    free(rates);
    return st;
}

/* Judges every group.  Seeds that change nothing are one observation, as in the protocol. */
static qm_status judge_groups(struct pairs *p, struct qm_result *r, double *x, double *p_value,
                              struct judged *out)
{
    if (p->n > 0)
        qsort_r(p->pair, (size_t)p->n, sizeof *p->pair, by_both, p);
    for (int64_t i = 0, end; i < p->n; i = end) {
        struct group *g = &out->group[out->n];
        const char *problem = p->a->problem[p->pair[i].mine];
        int64_t n = 0;
        for (end = i; end < p->n && by_group(&p->pair[i], &p->pair[end], p) == 0; end++)
            if (end == i || by_value(&p->pair[end - 1], &p->pair[end], p) != 0)
                x[n++] = p->pair[end].d;
        int is_same = out->n && strcmp(p->a->problem[p->pair[g[-1].first].mine], problem) == 0;
        g->first = i;
        g->delta = is_same ? g[-1].delta : delta_of(r, problem);
        QM_TRY(qm_paired_make(x, n, &g->x));
        p_value[out->n++] = n >= QM_LEAST_PAIRS ? g->x.p : nan("");
    }
    QM_TRY(qm_false_discovery(p_value, out->n, x));
    for (int64_t i = 0; i < out->n; i++)
        out->group[i].q = x[i];
    return QM_OK;
}

/* ---- storing ------------------------------------------------------------------------------- */

static qm_status store_pairs(const struct pairs *p, const struct judged *j, struct qm_store *store)
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
    int64_t *count = calloc(room, sizeof *count);
    struct qm_column column[7 + NUMBERS] = {
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
    for (int64_t i = 0; ok && i < n; i++) {
        const struct group *g = &j->group[i];
        const struct pair *pair = &p->pair[g->first];
        const double value[NUMBERS] = {g->x.mean, g->x.lo95, g->x.hi95,
                                       g->x.lo90, g->x.hi90, g->x.p,
                                       g->q,      g->delta,  p->a->scale[pair->mine]};
        text[i] = p->a->problem[pair->mine];
        text[room + (size_t)i] = p->a->label[pair->mine];
        text[2 * room + (size_t)i] = p->b->label[pair->theirs];
        text[3 * room + (size_t)i] = qm_decision_text(qm_decide(&g->x, g->delta, g->q));
        text[4 * room + (size_t)i] = g->is_tuned ? "same rate" : not_tuned;
        text[5 * room + (size_t)i] = p->b->recipe[p->b->cell[pair->theirs]];
        count[i] = g->x.n;
        for (int k = 0; k < NUMBERS; k++)
            number[(size_t)k * room + (size_t)i] = value[k];
    }
    qm_status st =
        ok ? qm_store_table(store, "/against/pairs",
                            "Each variant here against each archived one, where problem, "
                            "seed, learning rate, steps and twin agree; positive is worse.",
                            n, 7 + NUMBERS, column)
           : qm_fail(QM_NO_MEMORY, "pairs");
    free(text);
    free(number);
    free(count);
    return st;
}

/* The entry of a run for an archived variant and the reason; theirs.n stands for every variant. */
static int64_t apart_at(const struct pairs *p, int64_t run, int64_t theirs)
{
    int stage = theirs < p->theirs.n ? p->of[run * p->theirs.n + theirs] : (int)p->stage[run];
    return (p->mine.of[run] * (p->theirs.n + 1) + theirs) * STAGE_COUNT + stage;
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
static double apart_value(const struct runs *s, int64_t i, enum stage stage, int is_instance)
{
    return stage == STAGE_steps   ? (double)s->steps[s->cell[i]]
           : stage == STAGE_scale ? s->scale[i]
           : stage != STAGE_seed  ? (double)NAN
           : !is_instance         ? (double)s->seed[i]
           : s->instance          ? (double)s->instance[i]
                                  : 1.0;
}

/* The reason of a stage with the values of run i and those of an archived variant (theirs.n: of
 * all) on the problem of the run: "another number of steps there: 40, here 20". */
static void stage_told(const struct pairs *p, int64_t i, int64_t theirs, enum stage s,
                       char out[REASON])
{
    struct qm_value_range there[2] = {{.n = 0}, {.n = 0}};
    char text[2][100];
    for (int64_t k = 0; k < p->b->rows; k++)
        if (is_plain(p->b, k) && (theirs == p->theirs.n || p->theirs.of[k] == theirs) &&
            strcmp(p->b->problem[k], p->a->problem[i]) == 0)
            for (int j = 0; j < 2; j++)
                qm_value_range_add(&there[j], apart_value(p->b, k, s, j));
    for (int j = 0; j < 2; j++)
        qm_value_range_text(&there[j], text[j], sizeof text[j]);
    int n = snprintf(out, REASON, "%s", stage_text[s]);
    if (s == STAGE_seed)
        snprintf(out + n, REASON - (size_t)n, ": seeds %s of instances %s, here seed %.9g of %.9g",
                 text[0], text[1], apart_value(p->a, i, s, 0), apart_value(p->a, i, s, 1));
    else if (there[0].n)
        snprintf(out + n, REASON - (size_t)n, ": %s, here %.9g", text[0],
                 apart_value(p->a, i, s, 0));
}

/* Counts the runs of every entry, keeps the first, and sets the flags of its problems. */
static void count_apart(const struct pairs *p, int64_t *runs, int64_t *first, char *seen)
{
    for (int64_t i = 0; i < p->a->rows; i++) {
        int none = p->stage[i] <= STAGE_seed; /* the reason holds for the archive as a whole */
        for (int64_t k = none ? p->theirs.n : 0; k < p->theirs.n + none; k++) {
            int is_named = none || (p->is_plain[k] && p->of[i * p->theirs.n + k] != STAGE_paired);
            if (p->stage[i] == STAGE_COUNT || !is_named)
                continue;
            int64_t at = apart_at(p, i, k);
            first[at] = runs[at] ? first[at] : i;
            runs[at]++;
            seen[at * p->problem.n + p->problem.of[i]] = 1;
        }
    }
}

/* Stores a row per label here, archived variant and reason. */
static qm_status store_apart(const struct pairs *p, struct qm_store *store)
{
    int64_t variants = p->theirs.n + 1, n = 0;
    size_t room = (size_t)(p->mine.n * variants * STAGE_COUNT) + 1;
    int64_t *runs = calloc(3 * room, sizeof *runs), *count = runs ? runs + room : NULL;
    char *seen = calloc(room, (size_t)p->problem.n + 1), **names = calloc(room, sizeof *names);
    const char **text = calloc(3 * room, sizeof *text);
    char(*why)[REASON] = calloc(room, sizeof *why);
    int ok = runs && seen && names && text && why;
    if (ok)
        count_apart(p, runs, count + room, seen);
    for (size_t e = 0; ok && e < room; e++) {
        size_t rest = e / STAGE_COUNT, theirs = rest % (size_t)variants;
        if (!runs[e])
            continue;
        text[n] = p->mine.text[rest / (size_t)variants];
        text[room + (size_t)n] =
            (int64_t)theirs < p->theirs.n ? p->theirs.text[theirs] : "every one";
        stage_told(p, count[room + e], (int64_t)theirs, (enum stage)(e % STAGE_COUNT), why[n]);
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
static void note_apart(const struct pairs *p)
{
    int64_t apart[STAGE_COUNT] = {0}, all = 0, without = 0;
    char names[600] = "";
    char reason[REASON];
    int most = STAGE_problem;
    int64_t first = 0;
    for (int64_t i = 0; i < p->a->rows; i++)
        if (p->stage[i] != STAGE_COUNT) {
            all++;
            without += p->stage[i] != STAGE_paired;
            apart[p->stage[i]] += p->stage[i] != STAGE_paired;
        }
    for (int s = 0; s < STAGE_COUNT; s++)
        most = apart[s] > apart[most] ? s : most;
    for (int64_t k = 0; most == STAGE_problem && k < p->b->rows; k++) {
        int64_t same = 0;
        while (strcmp(p->b->problem[same], p->b->problem[k]) != 0)
            same++;
        if (same == k && strlen(names) + strlen(p->b->problem[k]) + 10 < sizeof names)
            strcat(strcat(names, *names ? ", " : ": it has "), p->b->problem[k]);
    }
    if (!without)
        return;
    while (p->stage[first] != (enum stage)most)
        first++;
    stage_told(p, first, p->theirs.n, (enum stage)most, reason);
    qm_note("against: %lld of %lld runs have no partner; of %lld: %s%s", (long long)without,
            (long long)all, (long long)apart[most], reason, names);
}

/* Stores what every reader of the comparison has to be told. */
static qm_status store_rates(const struct pairs *p, const struct judged *j, struct qm_store *store)
{
    int64_t tuned = 0, archived = 0;
    for (int64_t i = 0; i < j->n; i++)
        tuned += j->group[i].is_tuned;
    for (int64_t k = 0; k < p->theirs.n; k++)
        archived += p->is_plain[k];
    QM_TRY(qm_store_text(store, "/against", "rates",
                         tuned == 0      ? "the archive's rates, which are not tuned"
                         : tuned == j->n ? "the archive's rates, each tuned for the float64 twin"
                                         : "the archive's rates, some of them not tuned"));
    QM_TRY(qm_store_text(store, "/against", "advice",
                         "A variant may owe its verdict to the rate: to be sure of a pair, put "
                         "the two into a suite, `qualm tune SUITE --variants`, and run it."));
    return qm_store_number(store, "/against", "archived", (double)archived);
}

static qm_status write_file(const struct pairs *p, const struct judged *j, const char *out)
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
    struct runs a = {0}, b = {0};
    struct pairs p = {.a = &a, .b = &b};
    struct judged j = {0};
    double *x = NULL;
    if (!qm_result_has(mine, RUNS) || !qm_result_has(archive, RUNS))
        return qm_fail(QM_NO_MATCH, "no %s in the %s: run a suite with protocol: paired", RUNS,
                       qm_result_has(mine, RUNS) ? "archive" : "result file");
    qm_status st = runs_read(mine, &a);
    if (st == QM_OK)
        st = runs_read(archive, &b);
    if (st == QM_OK)
        st = find_pairs(&p);
    if (st == QM_OK) {
        note_apart(&p);
        j.group = calloc((size_t)p.n + 1, sizeof *j.group);
        x = calloc(2 * ((size_t)p.n + 1), sizeof *x);
        st = j.group && x ? QM_OK : qm_fail(QM_NO_MEMORY, "pairs");
    }
    if (st == QM_OK)
        st = judge_groups(&p, mine, x, x + p.n + 1, &j);
    if (st == QM_OK)
        st = set_rates(&p, archive, &j);
    if (st == QM_OK)
        st = write_file(&p, &j, out);
    free(x);
    free(j.group);
    free(p.pair);
    free(p.stage);
    free(p.of);
    free(p.is_plain);
    qm_distinct_texts_free(&p.mine);
    qm_distinct_texts_free(&p.theirs);
    qm_distinct_texts_free(&p.problem);
    runs_free(&a);
    runs_free(&b);
    return st;
}
