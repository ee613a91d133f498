/* predict.c - Joins errors without training to outcomes of training, and correlates their ranks. */
#include "experiments/report/predict.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/recipe/recipe.h"
#include "experiments/report/compare.h"

#define VERDICTS "/protocol/verdicts"
#define RUNS     "/protocol/runs"
#define ALL      "all"

enum { NAME = 128 };

static const char *const names[] = {
#define X(name, text) text,
    QM_PREDICTED_LIST(X)
#undef X
};
const char *qm_predicted_name(enum qm_predicted p) { return names[p]; }

/* ---- formats --------------------------------------------------------------------------------- */

enum { FORMAT = QM_MAX_SLOTS * (QM_QUANTIZER_TEXT + 1) + 96 };

/* What a recipe does to states and parameter, without hyper-parameters and sizes: the text by which
 * recipes are joined. */
static char *format_of(const char *recipe)
{
    struct qm_recipe r;
    char text[FORMAT] = "", slot[QM_QUANTIZER_TEXT], param[24];
    if (qm_recipe_parse(recipe, &r) != QM_OK)
        return strdup(recipe); /* of a variant that this program does not have */
    size_t n = (size_t)snprintf(text, sizeof text, "%s %s%s", r.rule->name,
                                qm_param_text(&r.param, param), r.state_stored ? " stored" : "");
    for (int i = 0; i < r.rule->n_slots && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, " %s",
                              qm_quantizer_print(&r.slot[i], slot));
    return strdup(text);
}

/* The formats of n recipes, which the caller frees with formats_free; NULL: no memory. */
static char **formats_of(char *const *recipe, int64_t n)
{
    char **out = calloc((size_t)n + 1, sizeof *out);
    int is_whole = out != NULL;
    for (int64_t i = 0; is_whole && i < n; i++) {
        int same = i > 0 && strcmp(recipe[i], recipe[i - 1]) == 0;
        out[i] = same ? strdup(out[i - 1]) : format_of(recipe[i]);
        is_whole = out[i] != NULL;
    }
    return out;
}

static void formats_free(char **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++)
        free(list[i]);
    free(list);
}

/* ---- the errors ------------------------------------------------------------------------------ */

/* The cells of ERRORS. */
struct cells {
    int64_t n;
    char **recipe, **coupling, **slot, **status;
    char **format; /* [n], of the recipes */
    double *coded; /* NULL: 1 of all */
};

/* One error: the cells of a coupling and slot, by a metric. */
struct error {
    char name[NAME];
    const char *coupling, *slot;
    int sign;      /* of the metric in the error: -1 where higher is better */
    double *value; /* [cells], larger is worse; NaN: none.  NULL: bits */
};

static void cells_free(struct cells *c)
{
    formats_free(c->format, c->n);
    free(c->recipe);
    free(c->coupling);
    free(c->slot);
    free(c->status);
    free(c->coded);
}

static qm_status cells_read(struct qm_result *r, const char *path, struct cells *c)
{
    if (!qm_result_has(r, "/cells") || !qm_result_has(r, "/metrics"))
        return qm_fail(QM_NO_MATCH, "%s: no cells: expected a result of qualm run", path);
    QM_TRY(qm_result_texts(r, "/cells", "recipe", &c->n, &c->recipe));
    QM_TRY(qm_result_texts(r, "/cells", "coupling", &c->n, &c->coupling));
    QM_TRY(qm_result_texts(r, "/cells", "slot", &c->n, &c->slot));
    QM_TRY(qm_result_texts(r, "/cells", "status", &c->n, &c->status));
    c->format = formats_of(c->recipe, c->n);
    if (!c->format || (c->n && !c->format[c->n - 1]))
        return qm_fail(QM_NO_MEMORY, "%lld recipes", (long long)c->n);
    qm_status st = qm_result_f64(r, "/cells", "coded", &c->n, &c->coded);
    return st == QM_NO_MATCH ? QM_OK : st; /* every cell has codes */
}

/* Whether cell i has an error of quantization: it ran, and all of an update, or some of a state,
 * had codes. */
static int counts(const struct cells *c, int64_t i)
{
    double coded = c->coded ? c->coded[i] : 1.0;
    int is_update = strcmp(c->coupling[i], "update") == 0;
    return strcmp(c->status[i], "ok") == 0 && strcmp(c->coupling[i], "closed") != 0 &&
           (is_update ? coded >= 1.0 : coded > 0.0);
}

/* Adds an error for each coupling and slot of which some cell has the metric. */
static qm_status add_errors(struct qm_result *r, const struct cells *c, const char *word,
                            int is_usual, struct error **list, int64_t *n, int64_t *room)
{
    int64_t rows, first = *n;
    double *value = NULL;
    char metric[NAME / 2];
    size_t length = strlen(word);
    char last = length ? word[length - 1] : '\0';
    snprintf(metric, sizeof metric, "%.*s", (int)length - (last == '+' || last == '-'), word);
    int direction = last == '+' ? 1 : last == '-' ? -1 : qm_compare_direction(metric);
    if (direction == 0)
        return qm_fail(QM_BAD_ARG,
                       "metric '%s': expected one that is better when higher or lower (qualm list "
                       "metrics), or with '+' (larger is better) or '-' after it",
                       word);
    qm_status st = qm_result_f64(r, "/metrics", metric, &rows, &value);
    for (int64_t i = 0; st == QM_OK && i < c->n; i++) {
        /* an update has one SQNR, which stands in both columns */
        int is_twice = is_usual && strcmp(c->coupling[i], "update") == 0 && strcmp(metric, "sqnr");
        value[i] = counts(c, i) && !is_twice ? -direction * value[i] : (double)NAN;
        int64_t k = first;
        while (k < *n && (strcmp((*list)[k].coupling, c->coupling[i]) != 0 ||
                          strcmp((*list)[k].slot, c->slot[i]) != 0))
            k++;
        if (isnan(value[i]) || k < *n)
            continue;
        st = qm_grow((void **)list, room, *n + 1, sizeof **list);
        if (st != QM_OK)
            break;
        struct error *e = &(*list)[(*n)++];
        *e = (struct error){
            .coupling = c->coupling[i], .slot = c->slot[i], .sign = -direction, .value = value};
        int has_slot = *e->slot && strcmp(e->slot, e->coupling) != 0;
        snprintf(e->name, sizeof e->name, "%s%s%s %s", e->coupling, has_slot ? " " : "",
                 has_slot ? e->slot : "", metric);
    }
    if (*n == first) /* nobody refers to it */
        free(value);
    return st;
}

/* The median of an error over the cells of a format; NaN: there are none. */
static double median_of(const struct cells *c, const struct error *e, const char *format, double *x)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++)
        if (!isnan(e->value[i]) && strcmp(c->format[i], format) == 0 &&
            strcmp(c->coupling[i], e->coupling) == 0 && strcmp(c->slot[i], e->slot) == 0)
            x[n++] = e->value[i];
    gsl_sort(x, 1, (size_t)n);
    return n == 0 ? (double)NAN : 0.5 * (x[(n - 1) / 2] + x[n / 2]);
}

/* ---- the outcomes of training ---------------------------------------------------------------- */

struct training {
    int64_t n, runs, cells;
    char **problem, **label, **verdict, **run_label, **recipe, **role;
    double *scale, *d, *lo, *hi, *bits, *coded, *diverged;
    int64_t *cell;
};

static void training_free(struct training *t)
{
    void *all[] = {t->problem, t->label, t->verdict, t->run_label, t->recipe, t->role, t->scale,
                   t->d,       t->lo,    t->hi,      t->bits,      t->coded,  t->cell, t->diverged};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static qm_status training_read(struct qm_result *r, const char *path, struct training *t)
{
    if (!qm_result_has(r, VERDICTS) || !qm_result_has(r, RUNS))
        return qm_fail(QM_NO_MATCH, "%s: no " VERDICTS ": expected a suite with protocol: paired",
                       path);
    QM_TRY(qm_result_texts(r, VERDICTS, "problem", &t->n, &t->problem));
    QM_TRY(qm_result_texts(r, VERDICTS, "label", &t->n, &t->label));
    QM_TRY(qm_result_texts(r, VERDICTS, "verdict", &t->n, &t->verdict));
    QM_TRY(qm_result_f64(r, VERDICTS, "lr_scale", &t->n, &t->scale));
    QM_TRY(qm_result_f64(r, VERDICTS, "mean", &t->n, &t->d));
    QM_TRY(qm_result_f64(r, VERDICTS, "lo95", &t->n, &t->lo));
    QM_TRY(qm_result_f64(r, VERDICTS, "hi95", &t->n, &t->hi));
    QM_TRY(qm_result_f64(r, VERDICTS, "bits", &t->n, &t->bits));
    QM_TRY(qm_result_f64(r, VERDICTS, "coded", &t->n, &t->coded));
    QM_TRY(qm_result_f64(r, VERDICTS, "diverged", &t->n, &t->diverged));
    QM_TRY(qm_result_texts(r, RUNS, "label", &t->runs, &t->run_label));
    QM_TRY(qm_result_i64(r, RUNS, "cell", &t->runs, &t->cell));
    QM_TRY(qm_result_texts(r, "/cells", "recipe", &t->cells, &t->recipe));
    QM_TRY(qm_result_texts(r, "/cells", "role", &t->cells, &t->role));
    for (int64_t i = 0; i < t->runs; i++)
        if (t->cell[i] < 0 || t->cell[i] >= t->cells)
            return qm_fail(QM_BAD_FILE, "%s: " RUNS ": row %lld has no cell", path, (long long)i);
    return QM_OK;
}

/* The recipe that a label stands for in the suite, without controls. */
static const char *recipe_of(const struct training *t, const char *label)
{
    for (int64_t i = 0; i < t->runs; i++)
        if (strcmp(t->run_label[i], label) == 0 && strcmp(t->role[t->cell[i]], "plain") == 0)
            return t->recipe[t->cell[i]];
    return NULL;
}

static int is_judged(const struct training *t, int64_t i)
{
    return t->scale[i] == 1.0 && isfinite(t->d[i]) && t->coded[i] > 0.0 &&
           strcmp(t->verdict[i], "not quantized") != 0;
}

/* ---- the join -------------------------------------------------------------------------------- */

struct join {
    struct cells cells;
    struct training training;
    struct error *error;
    int64_t n_errors, errors_room, rows_room, points_room;
    double *x; /* [cells] */
    struct qm_prediction *out;
};

static qm_status add_point(struct join *j, const struct error *e, int64_t i, double value)
{
    const struct training *t = &j->training;
    struct qm_prediction *p = j->out;
    QM_TRY(qm_grow((void **)&p->point, &j->points_room, p->n_points + 1, sizeof *p->point));
    struct qm_predict_point *at = &p->point[p->n_points++];
    *at = (struct qm_predict_point){.error = strdup(e->name),
                                    .problem = strdup(t->problem[i]),
                                    .label = strdup(t->label[i]),
                                    .recipe = strdup(recipe_of(t, t->label[i])),
                                    .value = value,
                                    .measured = e->sign * value,
                                    .d = t->d[i],
                                    .diverged = (int64_t)t->diverged[i],
                                    .lo95 = t->lo[i],
                                    .hi95 = t->hi[i]};
    return at->error && at->problem && at->label && at->recipe ? QM_OK
                                                               : qm_fail(QM_NO_MEMORY, "points");
}

/* Adds the points of an error on every problem; counts the labels that have one where e is the
 * first error. */
static qm_status add_points(struct join *j, const struct error *e)
{
    const struct training *t = &j->training;
    for (int64_t i = 0; i < t->n; i++) {
        const char *recipe = is_judged(t, i) ? recipe_of(t, t->label[i]) : NULL;
        char *format = recipe && e->value ? format_of(recipe) : NULL;
        double value = !recipe || (e->value && !format) ? (double)NAN
                       : !e->value                      ? -t->bits[i]
                                                        : median_of(&j->cells, e, format, j->x);
        free(format);
        if (!isnan(value))
            QM_TRY(add_point(j, e, i, value));
    }
    return QM_OK;
}

/* ---- correlation ----------------------------------------------------------------------------- */

/* n errors x, outcomes y and half widths w: the points of one error on one problem. */
struct sample {
    int64_t n, room;
    double *x, *y, *w;
};

static void correlate(const struct sample *s, double *work, struct qm_predict_row *r)
{
    double n = (double)s->n, low, high;
    r->n = s->n;
    r->rho = r->lo95 = r->hi95 = (double)NAN;
    r->verdict = s->n < QM_PREDICT_LEAST ? QM_PREDICTED_few : QM_PREDICTED_undecided;
    gsl_stats_minmax(&low, &high, s->x, 1, (size_t)s->n);
    int is_flat = !(low < high);
    gsl_stats_minmax(&low, &high, s->y, 1, (size_t)s->n);
    if (r->verdict == QM_PREDICTED_few || is_flat || !(low < high))
        return;
    r->rho = gsl_stats_spearman(s->x, 1, s->y, 1, (size_t)s->n, work);
    double next = 1.0 - 12.0 / (n * (n * n - 1.0)); /* one swap of neighbours away from 1 */
    double at = fmin(fmax(r->rho, -next), next);
    double half = 1.96 * sqrt((1.0 + at * at / 2.0) / (n - 3.0));
    r->lo95 = fmin(tanh(atanh(at) - half), r->rho);
    r->hi95 = fmax(tanh(atanh(at) + half), r->rho);
    r->verdict = r->lo95 > 0.0   ? QM_PREDICTED_predicts
                 : r->hi95 < 0.0 ? QM_PREDICTED_reversed
                                 : QM_PREDICTED_undecided;
}

/* Counts the pairs that training tells apart, and those that the error orders likewise. */
static void count_pairs(const struct sample *s, struct qm_predict_row *r)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t k = 0; k < i; k++) {
            double apart = s->y[i] - s->y[k], error = s->x[i] - s->x[k];
            if (!(fabs(apart) > hypot(s->w[i], s->w[k])))
                continue;
            r->pairs += 1.0;
            r->right += error == 0.0 || isnan(error) ? 0.5 : (error > 0.0) == (apart > 0.0);
        }
}

static qm_status add_to(struct sample *s, double x, double y, double w)
{
    if (s->n == s->room) {
        int64_t room[3] = {s->room, s->room, s->room};
        QM_TRY(qm_grow((void **)&s->x, &room[0], s->n + 1, sizeof *s->x));
        QM_TRY(qm_grow((void **)&s->y, &room[1], s->n + 1, sizeof *s->y));
        QM_TRY(qm_grow((void **)&s->w, &room[2], s->n + 1, sizeof *s->w));
        s->room = room[0];
    }
    s->x[s->n] = x;
    s->y[s->n] = y;
    s->w[s->n++] = w;
    return QM_OK;
}

static qm_status add_row(struct join *j, const struct error *e, const char *problem,
                         struct qm_predict_row **out)
{
    struct qm_prediction *p = j->out;
    QM_TRY(qm_grow((void **)&p->row, &j->rows_room, p->n_rows + 1, sizeof *p->row));
    struct qm_predict_row *r = &p->row[p->n_rows++];
    *r = (struct qm_predict_row){.error = strdup(e->name), .problem = strdup(problem)};
    *out = r;
    return r->error && r->problem ? QM_OK : qm_fail(QM_NO_MEMORY, "correlations");
}

/* The rank of y[i] among n numbers, ties sharing the mean of theirs. */
static double rank_of(const double *y, int64_t n, int64_t i)
{
    double below = 0.0, equal = 0.0;
    for (int64_t k = 0; k < n; k++) {
        below += y[k] < y[i];
        equal += y[k] == y[i];
    }
    return below + 0.5 * (equal + 1.0);
}

/* A recipe of an error's points: its error, on how many problems it ran, its ranks' sum there. */
struct ranks {
    const char *label;
    double value, sum;
    int64_t n;
};

struct rank_list {
    struct ranks *of;
    int64_t n, room, problems;
};

static struct ranks *ranks_of(const struct rank_list *list, const char *label)
{
    for (int64_t k = 0; k < list->n; k++)
        if (strcmp(list->of[k].label, label) == 0)
            return &list->of[k];
    return NULL;
}

/* Counts the n points of one problem. */
static qm_status count_ranks(struct rank_list *list, const struct qm_predict_point *point,
                             int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        struct ranks *to = ranks_of(list, point[i].label);
        if (!to) {
            QM_TRY(qm_grow((void **)&list->of, &list->room, list->n + 1, sizeof *list->of));
            to = &list->of[list->n++];
            *to = (struct ranks){.label = point[i].label, .value = point[i].value};
        }
        to->n++;
    }
    list->problems++;
    return QM_OK;
}

/* Adds, for each recipe that ran on every problem, its rank among these on the one of n points. */
static qm_status add_ranks(struct rank_list *list, const struct qm_predict_point *point, int64_t n,
                           struct sample *s)
{
    s->n = 0;
    for (int64_t i = 0; i < n; i++)
        if (ranks_of(list, point[i].label)->n == list->problems)
            QM_TRY(add_to(s, point[i].value, point[i].d, 0.0));
    for (int64_t i = 0, k = 0; i < n; i++)
        if (ranks_of(list, point[i].label)->n == list->problems)
            ranks_of(list, point[i].label)->sum += rank_of(s->y, s->n, k++);
    return QM_OK;
}

/* The first point behind i that is of another problem. */
static int64_t end_of_problem(const struct qm_prediction *p, int64_t i)
{
    int64_t end = i;
    while (end < p->n_points && strcmp(p->point[end].problem, p->point[i].problem) == 0)
        end++;
    return end;
}

/* The row `all` of an error, whose points begin at first: recipes that ran on every problem, by the
 * mean of their ranks among each other. */
static qm_status add_all(struct join *j, const struct error *e, int64_t first,
                         struct rank_list *list, struct sample *s, double *work)
{
    const struct qm_prediction *p = j->out;
    struct qm_predict_row *r, sum = {0};
    for (int64_t i = p->n_rows - list->problems; i < p->n_rows; i++) {
        sum.pairs += p->row[i].pairs;
        sum.right += p->row[i].right;
    }
    for (int64_t i = first, end; i < p->n_points; i = end) {
        end = end_of_problem(p, i);
        QM_TRY(add_ranks(list, &p->point[i], end - i, s));
    }
    s->n = 0;
    for (int64_t k = 0; k < list->n; k++)
        if (list->of[k].n == list->problems)
            QM_TRY(add_to(s, list->of[k].value, list->of[k].sum / (double)list->problems, 0.0));
    QM_TRY(add_row(j, e, ALL, &r));
    correlate(s, work, r);
    r->pairs = sum.pairs;
    r->right = sum.right;
    return QM_OK;
}

/* The rows of the points [first, end), which are those of one error, problem by problem. */
static qm_status add_rows(struct join *j, const struct error *e, int64_t first, struct sample *s,
                          double *work)
{
    struct rank_list list = {.of = NULL};
    qm_status st = QM_OK;
    for (int64_t i = first, end; st == QM_OK && i < j->out->n_points; i = end) {
        const struct qm_predict_point *point = j->out->point;
        struct qm_predict_row *r;
        end = end_of_problem(j->out, i);
        s->n = 0;
        for (int64_t k = i; st == QM_OK && k < end; k++)
            st = add_to(s, point[k].value, point[k].d, 0.5 * (point[k].hi95 - point[k].lo95));
        if (st == QM_OK)
            st = add_row(j, e, point[i].problem, &r);
        if (st == QM_OK) {
            correlate(s, work, r);
            count_pairs(s, r);
            st = count_ranks(&list, &point[i], end - i);
        }
    }
    if (st == QM_OK && list.problems > 1)
        st = add_all(j, e, first, &list, s, work);
    free(list.of);
    return st;
}

/* The labels of TRAINING that have a point, and those that were judged and have none. */
static void count_labels(struct join *j)
{
    const struct training *t = &j->training;
    struct qm_prediction *p = j->out;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t first = 0, k = 0;
        if (!recipe_of(t, t->label[i])) /* a control */
            continue;
        while (strcmp(t->label[first], t->label[i]) != 0)
            first++;
        while (k < p->n_points && (strcmp(p->point[k].label, t->label[i]) != 0 ||
                                   strcmp(p->point[k].error, "bits") == 0))
            k++;
        p->recipes += first == i && k < p->n_points;
        p->left_out += first == i && k == p->n_points;
    }
}

static int by_problem(const void *x, const void *y)
{
    const struct qm_predict_point *a = x, *b = y;
    int order = strcmp(a->problem, b->problem);
    return order ? order : strcmp(a->label, b->label);
}

static qm_status find_all(struct join *j)
{
    static const struct error bits = {.name = "bits", .sign = -1};
    struct sample s = {0};
    double *work = calloc(2 * (size_t)j->training.n + 2, sizeof *work);
    qm_status st = work ? QM_OK : qm_fail(QM_NO_MEMORY, "ranks");
    for (int64_t k = 0; st == QM_OK && k <= j->n_errors; k++) {
        const struct error *e = k < j->n_errors ? &j->error[k] : &bits;
        int64_t first = j->out->n_points;
        st = add_points(j, e);
        if (st == QM_OK && j->out->n_points > first) {
            qsort(j->out->point + first, (size_t)(j->out->n_points - first), sizeof *j->out->point,
                  by_problem);
            st = add_rows(j, e, first, &s, work);
        }
    }
    free(work);
    free(s.x);
    free(s.y);
    free(s.w);
    return st;
}

/* Reads both files; the metrics are the given ones, which the file must have, or the usual ones. */
static qm_status read_both(struct join *j, struct qm_result *errors, const char *errors_path,
                           struct qm_result *training, const char *training_path,
                           char *const *metric, int n_metrics)
{
    static char usual[3][16] = {"sqnr", "step_sqnr", "param_sqnr"};
    QM_TRY(cells_read(errors, errors_path, &j->cells));
    QM_TRY(training_read(training, training_path, &j->training));
    for (int i = 0; i < (n_metrics ? n_metrics : 3); i++) {
        qm_status st = add_errors(errors, &j->cells, n_metrics ? metric[i] : usual[i],
                                  n_metrics == 0, &j->error, &j->n_errors, &j->errors_room);
        if (st != QM_OK && (n_metrics || st != QM_NO_MATCH))
            return st;
    }
    j->x = calloc((size_t)j->cells.n + 1, sizeof *j->x);
    if (!j->x)
        return qm_fail(QM_NO_MEMORY, "errors");
    return j->n_errors > 0
               ? QM_OK
               : qm_fail(QM_NO_MATCH,
                         "%s: no cell with codes has such a metric: expected cells of coupling "
                         "oneshot, local, global or update",
                         errors_path);
}

static void join_free(struct join *j)
{
    for (int64_t k = 0; k < j->n_errors; k++) /* errors of one metric share its column */
        if (k == 0 || j->error[k].value != j->error[k - 1].value)
            free(j->error[k].value);
    free(j->error);
    free(j->x);
    cells_free(&j->cells);
    training_free(&j->training);
}

qm_status qm_predict(const char *errors, const char *training, char *const *metric, int n_metrics,
                     struct qm_prediction *out)
{
    struct qm_result *a = NULL, *b = NULL;
    struct join j = {.out = out};
    memset(out, 0, sizeof *out);
    qm_status st = qm_result_open(errors, &a);
    if (st == QM_OK)
        st = qm_result_open(training, &b);
    if (st == QM_OK)
        st = read_both(&j, a, errors, b, training, metric, n_metrics);
    if (st == QM_OK)
        st = find_all(&j);
    if (st == QM_OK) {
        count_labels(&j);
        if (out->recipes == 0)
            st = qm_fail(QM_NO_MATCH, "%s has an error of none of the %lld recipes of %s", errors,
                         (long long)out->left_out, training);
    }
    join_free(&j);
    qm_result_close(a);
    qm_result_close(b);
    if (st != QM_OK)
        qm_prediction_free(out);
    return st;
}

void qm_prediction_free(struct qm_prediction *p)
{
    for (int64_t i = 0; i < p->n_rows; i++) {
        free(p->row[i].error);
        free(p->row[i].problem);
    }
    for (int64_t i = 0; i < p->n_points; i++) {
        free(p->point[i].error);
        free(p->point[i].problem);
        free(p->point[i].label);
        free(p->point[i].recipe);
    }
    free(p->row);
    free(p->point);
    memset(p, 0, sizeof *p);
}
