/* against_pairs.c - Reads runs, and finds their partners in an archive. */
#include "experiments/report/against_pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/recipe/recipe.h"

#define RUNS "/protocol/runs"

/* Two runs of one twin are equal to the bit on any machine of the same C library; the bounds leave
 * room for the logarithms and powers of another one, and for nothing else. */
static const double start_bound = 1e-9, twin_bound = 1e-10;

/* ---- reading ------------------------------------------------------------------------------- */

void qm_runs_free(struct qm_run_rows *s)
{
    void *all[] = {s->problem, s->label, s->status, s->recipe, s->role, s->cell, s->instance,
                   s->seed,    s->steps, s->scale,  s->start,  s->twin, s->d};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

qm_status qm_runs_read(struct qm_result *r, struct qm_run_rows *s)
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
int qm_run_is_plain(const struct qm_run_rows *s, int64_t i)
{
    return !s->role || strcmp(s->role[s->cell[i]], "plain") == 0;
}

/* ---- pairing ------------------------------------------------------------------------------- */

const char *const qm_stage_text[] = {
#define X(name, text) text,
    QM_STAGE_LIST(X)
#undef X
};

int64_t qm_run_instance(const struct qm_run_rows *s, int64_t i)
{
    return s->instance ? s->instance[i] : 1;
}

static const char *family(const struct qm_run_rows *s, int64_t i)
{
    struct qm_recipe recipe;
    return qm_recipe_parse(s->recipe[s->cell[i]], &recipe) == QM_OK ? recipe.rule->family : "";
}

/* The condition that run k of b fails as a partner of run i of a, or QM_STAGE_paired. */
static enum qm_stage stage_of(const struct qm_run_rows *a, int64_t i, const char *family_a,
                              const struct qm_run_rows *b, int64_t k, const char *family_b)
{
    if (strcmp(a->problem[i], b->problem[k]) != 0)
        return QM_STAGE_problem;
    if (a->scale[i] != b->scale[k])
        return QM_STAGE_scale;
    if (a->seed[i] != b->seed[k] || qm_run_instance(a, i) != qm_run_instance(b, k))
        return QM_STAGE_seed;
    int is_start = fabs(a->start[i] - b->start[k]) <= start_bound * fabs(b->start[k]);
    int is_twin =
        a->twin[i] == b->twin[k] || fabs(log10(a->twin[i]) - log10(b->twin[k])) <= twin_bound;
    int is_failed = strcmp(a->status[i], "failed") == 0 || strcmp(b->status[k], "failed") == 0;
    if (!is_start || !is_twin)
        return strcmp(family_a, family_b) != 0                ? QM_STAGE_family
               : is_failed                                    ? QM_STAGE_result
               : !is_start                                    ? QM_STAGE_start
               : a->steps[a->cell[i]] != b->steps[b->cell[k]] ? QM_STAGE_steps
                                                              : QM_STAGE_twin;
    if (!isfinite(a->d[i]) || !isfinite(b->d[k]))
        return QM_STAGE_result;
    if (strcmp(a->status[i], "diverged") == 0 && strcmp(b->status[k], "diverged") == 0)
        return QM_STAGE_lost; /* both gaps are the constant of diverged runs */
    int is_apart = strcmp(a->status[i], "elsewhere") == 0 || strcmp(b->status[k], "elsewhere") == 0;
    return is_apart ? QM_STAGE_basin : QM_STAGE_paired;
}

int qm_run_twins_told(const struct qm_run_rows *a, int64_t i, const struct qm_run_rows *b,
                      int64_t k, char *text, size_t size)
{
    struct qm_recipe here, there;
    int n = 0;
    size_t used = 0;
    text[0] = 0;
    if (qm_recipe_parse(a->recipe[a->cell[i]], &here) == QM_OK &&
        qm_recipe_parse(b->recipe[b->cell[k]], &there) == QM_OK) {
#define X(name, initial, what)                                                                  \
    if ((double)here.hyper.name != (double)there.hyper.name &&                                  \
        (qm_rule_reads(here.rule, #name) || qm_rule_reads(there.rule, #name)) && used < size) { \
        used += (size_t)snprintf(text + used, size - used, "%s" #name " %.9g, here %.9g",       \
                                 n++ ? "; " : ": ", (double)there.hyper.name,                   \
                                 (double)here.hyper.name);                                      \
    }
        QM_HYPER_LIST(X)
        QM_HYPER_FLAG_LIST(X)
#undef X
    }
    if (n == 0)
        snprintf(text, size,
                 ": other rates (suite key rates: baseline takes that archive's), data "
                 "or a changed problem");
    return n;
}

static int add_pair(struct qm_pairs *p, int64_t i, int64_t k)
{
    if (qm_grow((void **)&p->pair, &p->room, p->n + 1, sizeof *p->pair) != QM_OK)
        return 0;
    p->pair[p->n++] = (struct qm_pair){i, k, p->a->d[i] - p->b->d[k]};
    return 1;
}

/* Whether the stage says that the twins are not those of one computation. */
static int is_other_twin(int stage)
{
    return stage == QM_STAGE_family || stage == QM_STAGE_start || stage == QM_STAGE_twin;
}

/* The first run with the problem, label and scale of run i of a. */
static int64_t first_of_group(const struct qm_pairs *p, int64_t i)
{
    int64_t k = 0;
    while (p->mine.of[k] != p->mine.of[i] || p->problem.of[k] != p->problem.of[i] ||
           p->a->scale[k] != p->a->scale[i])
        k++;
    return k;
}

/* Two twins are one computation in all runs or in none: where they differ in one run of a label and
 * an archived variant on a problem, that the others are equal to ten digits is chance. */
static qm_status drop_chance_pairs(struct qm_pairs *p)
{
    int64_t variants = p->theirs.n, kept = 0;
    int64_t *first = calloc((size_t)p->a->rows + 1, sizeof *first);
    unsigned char *other = calloc((size_t)p->a->rows + 1, (size_t)variants + 1);
    if (!first || !other) {
        free(first);
        free(other);
        return qm_fail(QM_NO_MEMORY, "pairs");
    }
    for (int64_t i = 0; i < p->a->rows; i++) {
        first[i] = first_of_group(p, i);
        for (int64_t v = 0; v < variants && p->stage[i] != QM_STAGE_COUNT; v++)
            if (is_other_twin(p->of[i * variants + v]))
                other[first[i] * variants + v] = p->of[i * variants + v];
    }
    for (int64_t k = 0; k < p->n; k++) {
        int64_t i = p->pair[k].mine, v = p->theirs.of[p->pair[k].theirs];
        if (other[first[i] * variants + v])
            p->of[i * variants + v] = other[first[i] * variants + v];
        else
            p->pair[kept++] = p->pair[k];
    }
    p->n = kept;
    for (int64_t i = 0; i < p->a->rows; i++)
        if (p->stage[i] == QM_STAGE_paired) {
            p->stage[i] = QM_STAGE_problem;
            for (int64_t v = 0; v < variants; v++)
                if (p->of[i * variants + v] > (unsigned char)p->stage[i])
                    p->stage[i] = (enum qm_stage)p->of[i * variants + v];
        }
    free(first);
    free(other);
    return QM_OK;
}

qm_status qm_pairs_find(struct qm_pairs *p)
{
    const struct qm_run_rows *a = p->a, *b = p->b;
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
        p->is_plain[p->theirs.of[k]] |= (char)qm_run_is_plain(b, k);
    }
    for (int64_t i = 0; ok && i < a->rows; i++) {
        const char *mine = family(a, i);
        p->stage[i] = qm_run_is_plain(a, i) ? QM_STAGE_problem : QM_STAGE_COUNT;
        for (int64_t k = 0; ok && p->stage[i] != QM_STAGE_COUNT && k < b->rows; k++) {
            if (!qm_run_is_plain(b, k))
                continue;
            enum qm_stage s = stage_of(a, i, mine, b, k, theirs[k]);
            unsigned char *one = &p->of[i * p->theirs.n + p->theirs.of[k]];
            p->stage[i] = s > p->stage[i] ? s : p->stage[i];
            *one = s > *one ? (unsigned char)s : *one;
            ok = s != QM_STAGE_paired || add_pair(p, i, k);
        }
    }
    free(theirs);
    return ok ? drop_chance_pairs(p) : qm_fail(QM_NO_MEMORY, "pairs");
}

void qm_pairs_free(struct qm_pairs *p)
{
    free(p->pair);
    free(p->stage);
    free(p->of);
    free(p->is_plain);
    qm_distinct_texts_free(&p->mine);
    qm_distinct_texts_free(&p->theirs);
    qm_distinct_texts_free(&p->problem);
}
