/* halving.c - The rounds of a search: what each one takes, and what it keeps. */
#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/search/halving.h"

enum { KEEP_ONE_IN = 4, BINS_PER_BIT = 2 };

/* ---- entries --------------------------------------------------------------------------------- */

void qm_halving_free(struct qm_halving *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->entry[i].label);
        free(s->entry[i].recipe);
        free(s->entry[i].sqnr);
    }
    free(s->entry);
    qm_results_free(&s->report);
    qm_loaded_suite_close(&s->job);
    qm_recipes_free(&s->reference);
    qm_halving_space_free(&s->space);
    qm_halves_free(&s->halves);
}

/* Adds a copy of e with texts and room of its own. */
static qm_status add(struct qm_halving *s, const struct qm_halving_entry *e, const char *label,
                     const char *recipe)
{
    QM_TRY(qm_grow((void **)&s->entry, &s->room, s->n + 1, sizeof *s->entry));
    struct qm_halving_entry *to = &s->entry[s->n];
    *to = *e;
    to->label = strdup(label);
    to->recipe = strdup(recipe);
    to->measured = nan("");
    to->sqnr = malloc((size_t)s->halves.n * sizeof *to->sqnr);
    s->n++;
    for (int t = 0; to->sqnr && t < s->halves.n; t++)
        to->sqnr[t] = nan("");
    return to->label && to->recipe && to->sqnr ? QM_OK : qm_fail(QM_NO_MEMORY, "compositions");
}

static qm_status add_composition(struct qm_halving *s, int64_t first, int64_t second,
                                 double predicted)
{
    char recipe[QM_RECIPE_TEXT], label[QM_RECIPE_TEXT];
    const int64_t format[] = {first, second};
    struct qm_halving_entry e = {.format = {first, second}, .predicted = predicted};
    const char *text[QM_HALVING_SLOTS];
    for (int i = 0; i < QM_HALVING_SLOTS; i++) {
        text[i] = format[i] < 0 ? "f32" : s->space.format[i][format[i]].text;
        e.bits += format[i] < 0 ? 32.0 : s->space.format[i][format[i]].bits;
    }
    qm_halving_recipe(&s->space, format, recipe);
    snprintf(label, sizeof label, "%s + %s", text[0], text[1]);
    return add(s, &e, label, recipe);
}

static qm_status add_reference(struct qm_halving *s, const struct qm_recipe *r)
{
    char recipe[QM_RECIPE_TEXT], label[QM_RECIPE_TEXT];
    struct qm_halving_entry e = {.format = {-1, -1}, .is_reference = 1, .predicted = nan("")};
    struct qm_recipe all = *r;
    QM_TRY(qm_halving_bits(r, &e.bits));
    qm_recipe_print(r, label);
    QM_TRY(qm_recipe_set(&all, "min_numel", "0"));
    QM_TRY(qm_recipe_set(&all, "whole_blocks", "0"));
    return add(s, &e, label, qm_recipe_print(&all, recipe));
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* The location over models of x[n], of the first n tensors of the search half. */
static qm_status locate(const struct qm_halving *s, const double *x, int n, double *out)
{
    struct qm_paired p;
    int *model = malloc((size_t)n * sizeof *model);
    if (!model)
        return qm_fail(QM_NO_MEMORY, "scores");
    for (int t = 0; t < n; t++)
        model[t] = s->halves.tensor[t].model;
    qm_status st = qm_paired_levels(x, model, n, &p);
    *out = p.mean;
    free(model);
    return st;
}

/* A candidate: a pair of formats that is not an entry yet, or an entry. */
struct candidate {
    int64_t first, second;
    int entry, bin; /* bin: of half a bit of state */
    double score;
};

static int bin_of(double bits) { return (int)ceil(bits * BINS_PER_BIT - 1e-9); }

static int64_t sign(int64_t x) { return (x > 0) - (x < 0); }

/* By bins, the best first, equal ones in the order of the space. */
static int by_score(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->bin != y->bin)
        return x->bin - y->bin;
    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    if (x->first != y->first)
        return (int)sign(x->first - y->first);
    return x->second != y->second ? (int)sign(x->second - y->second) : x->entry - y->entry;
}

/* Sorts the candidates and moves the best of each bin to the front: `quota` of each, or with quota
 * 0 one in KEEP_ONE_IN, rounded up.  Returns their number. */
static int64_t best_of_bins(struct candidate *c, int64_t n, int64_t quota)
{
    int64_t kept = 0;
    if (n > 0)
        qsort(c, (size_t)n, sizeof *c, by_score);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && c[end].bin == c[i].bin; end++)
            ;
        int64_t most = quota ? quota : (end - i + KEEP_ONE_IN - 1) / KEEP_ONE_IN;
        for (int64_t k = i; k < end && k - i < most; k++)
            c[kept++] = c[k];
    }
    return kept;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Tensors of the search half that a round reaches. */
static int reach(const struct qm_halving *s, int round)
{
    static const int part[] = {1, 8, 4, 2, 1, 1};
    int n = s->halves.count[QM_HALF_search], to = (n + part[round] - 1) / part[round];
    int least = s->least > 2 * s->halves.models[QM_HALF_search]
                    ? s->least
                    : 2 * s->halves.models[QM_HALF_search];
    to = to < least ? least : to;
    return to < n ? to : n;
}

static qm_status run_range(struct qm_halving *s, int round, int first, int n)
{
    int *entry = malloc((size_t)(n + 1) * sizeof *entry);
    if (!entry)
        return qm_fail(QM_NO_MEMORY, "a round");
    for (int i = 0; i < n; i++)
        entry[i] = first + i;
    const struct qm_halving_part part = {round, n, 0, reach(s, round), entry};
    qm_status st = qm_halving_round(s, &part);
    for (int i = 0; st == QM_OK && i < n; i++)
        if (!s->entry[first + i].is_undefined)
            st = locate(s, s->entry[first + i].sqnr, part.to, &s->entry[first + i].measured);
    free(entry);
    return st;
}

/* Sets *out to the predicted score of a pair from its singles. */
static qm_status predict(const struct qm_halving *s, const struct qm_halving_entry *a,
                         const struct qm_halving_entry *b, double *room, double *out)
{
    int n = reach(s, QM_HALVING_ROUND_singles);
    for (int t = 0; t < n; t++)
        room[t] = -10.0 * log10(pow(10.0, a->sqnr[t] / -10.0) + pow(10.0, b->sqnr[t] / -10.0));
    return locate(s, room, n, out);
}

/* Lists the pairs of defined singles within the budget, with their predictions; single: the entry
 * of the first format of exp_avg. */
static qm_status list_pairs(struct qm_halving *s, int single, struct candidate **list, int64_t *n)
{
    const struct qm_halving_space *sp = &s->space;
    double *room = malloc((size_t)s->halves.n * sizeof *room);
    int64_t have = 0;
    qm_status st = room ? QM_OK : qm_fail(QM_NO_MEMORY, "pairs");
    for (int64_t i = 0; st == QM_OK && i < sp->n[0]; i++)
        for (int64_t k = 0; st == QM_OK && k < sp->n[1]; k++) {
            const struct qm_halving_entry *a = &s->entry[single + i],
                                          *b = &s->entry[single + sp->n[0] + k];
            double bits = sp->format[0][i].bits + sp->format[1][k].bits;
            s->legal += bits <= s->most_bits;
            if (bits > s->most_bits || a->is_undefined || b->is_undefined)
                continue;
            st = qm_grow((void **)list, &have, *n + 1, sizeof **list);
            if (st != QM_OK)
                break;
            struct candidate *c = &(*list)[(*n)++];
            *c = (struct candidate){.first = i, .second = k, .entry = -1, .bin = bin_of(bits)};
            st = predict(s, a, b, room, &c->score);
        }
    free(room);
    return st;
}

qm_status qm_halving_check(const struct qm_halving *s)
{
    double least[2] = {HUGE_VAL, HUGE_VAL};
    for (int slot = 0; slot < 2; slot++)
        for (int64_t i = 0; i < s->space.n[slot]; i++)
            least[slot] = fmin(least[slot], s->space.format[slot][i].bits);
    return least[0] + least[1] <= s->most_bits
               ? QM_OK
               : qm_fail(QM_NO_MATCH,
                         "no composition has at most %g bits: the smallest that makes sense has "
                         "%g",
                         s->most_bits, least[0] + least[1]);
}

/* Makes entries of the best pairs by prediction. */
static qm_status add_pairs(struct qm_halving *s, int single)
{
    struct candidate *c = NULL;
    int64_t n = 0, bins = 1;
    qm_status st = list_pairs(s, single, &c, &n);
    if (st == QM_OK && n == 0)
        st = qm_fail(QM_NO_MATCH,
                     "none of the %lld compositions of at most %g bits is defined on every tensor",
                     (long long)s->legal, s->most_bits);
    if (st == QM_OK) {
        qsort(c, (size_t)n, sizeof *c, by_score);
        for (int64_t i = 1; i < n; i++)
            bins += c[i].bin != c[i - 1].bin;
        n = best_of_bins(c, n, (s->first + bins - 1) / bins);
    }
    for (int64_t i = 0; st == QM_OK && i < n; i++)
        st = add_composition(s, c[i].first, c[i].second, c[i].score);
    free(c);
    return st;
}

/* The median of |predicted - measured| on the tensors of the predictions. */
static qm_status judge_predictions(struct qm_halving *s, int first)
{
    double *miss = malloc((size_t)(s->n - first + 1) * sizeof *miss);
    int n = 0;
    qm_status st = miss ? QM_OK : qm_fail(QM_NO_MEMORY, "predictions");
    for (int i = first; st == QM_OK && i < s->n; i++) {
        double got = 0.0;
        if (s->entry[i].is_undefined)
            continue;
        st = locate(s, s->entry[i].sqnr, reach(s, QM_HALVING_ROUND_singles), &got);
        miss[n++] = fabs(s->entry[i].predicted - got);
    }
    if (st == QM_OK) {
        gsl_sort(miss, 1, (size_t)n);
        s->prediction_error = qm_quantile(miss, n, 0.5);
    }
    free(miss);
    return st;
}

/* Keeps the best entries of those of the round before, and measures these on more tensors. */
static qm_status halve(struct qm_halving *s, int round)
{
    struct candidate *c = calloc((size_t)s->n + 1, sizeof *c);
    int *entry = calloc((size_t)s->n + 1, sizeof *entry);
    int64_t n = 0;
    qm_status st = c && entry ? QM_OK : qm_fail(QM_NO_MEMORY, "a round");
    for (int i = 0; st == QM_OK && i < s->n; i++)
        if (s->entry[i].round == round - 1 && !s->entry[i].is_undefined)
            c[n++] = (struct candidate){
                .entry = i, .bin = bin_of(s->entry[i].bits), .score = s->entry[i].measured};
    n = st == QM_OK ? best_of_bins(c, n, 0) : 0;
    for (int64_t i = 0; i < n; i++) {
        entry[i] = c[i].entry;
        s->entry[entry[i]].round = round; /* also where no tensor is new */
    }
    const struct qm_halving_part part = {round, (int)n, reach(s, round - 1), reach(s, round),
                                         entry};
    if (st == QM_OK)
        st = qm_halving_round(s, &part);
    for (int64_t i = 0; st == QM_OK && i < n; i++)
        if (!s->entry[entry[i]].is_undefined)
            st = locate(s, s->entry[entry[i]].sqnr, part.to, &s->entry[entry[i]].measured);
    free(c);
    free(entry);
    return st;
}

/* ---- the end --------------------------------------------------------------------------------- */

static int is_final(const struct qm_halving_entry *e)
{
    return e->is_reference || (e->round >= QM_HALVING_ROUND_pairs3 && !e->is_undefined);
}

qm_status qm_halving_final(const struct qm_halving *s, int **entry, int *n)
{
    int *list = malloc((size_t)(s->n + 1) * sizeof *list), count = 0, best = -1;
    if (!list)
        return qm_fail(QM_NO_MEMORY, "results");
    for (int i = 0; i < s->n; i++)
        if (s->entry[i].is_reference && isfinite(s->entry[i].measured) &&
            (best < 0 || s->entry[i].measured > s->entry[best].measured))
            best = i;
    for (int i = 0; i < s->n; i++) {
        if (!is_final(&s->entry[i]) || i == best)
            continue;
        int at = count++;
        for (; at > 0 && s->entry[list[at - 1]].bits > s->entry[i].bits; at--)
            list[at] = list[at - 1];
        list[at] = i;
    }
    if (best >= 0) {
        memmove(list + 1, list, (size_t)count * sizeof *list);
        list[0] = best;
        count++;
    }
    *entry = list;
    *n = count;
    return QM_OK;
}

/* Marks the compositions that none with as few bits exceeds on the search half. */
static void mark_frontier(struct qm_halving *s)
{
    for (int i = 0; i < s->n; i++) {
        struct qm_halving_entry *e = &s->entry[i];
        e->is_frontier = is_final(e) && !e->is_reference;
        for (int k = 0; k < s->n && e->is_frontier; k++) {
            const struct qm_halving_entry *o = &s->entry[k];
            if (k == i || !is_final(o) || o->is_reference || o->bits > e->bits)
                continue;
            e->is_frontier = o->measured < e->measured ||
                             (o->measured <= e->measured && o->bits >= e->bits && k > i);
        }
    }
}

/* Runs the rounds on the search half. */
static qm_status run_search(struct qm_halving *s)
{
    QM_TRY(qm_halving_check(s));
    for (int i = 0; i < s->reference.n; i++)
        QM_TRY(add_reference(s, &s->reference.recipe[i]));
    QM_TRY(run_range(s, QM_HALVING_ROUND_references, 0, s->n));
    int single = s->n;
    s->composed = s->space.combined[0] * s->space.combined[1];
    for (int64_t i = 0; i < s->space.n[0]; i++)
        QM_TRY(add_composition(s, i, -1, nan("")));
    for (int64_t i = 0; i < s->space.n[1]; i++)
        QM_TRY(add_composition(s, -1, i, nan("")));
    QM_TRY(run_range(s, QM_HALVING_ROUND_singles, single, s->n - single));
    int pair = s->n;
    QM_TRY(add_pairs(s, single));
    QM_TRY(run_range(s, QM_HALVING_ROUND_pairs1, pair, s->n - pair));
    QM_TRY(judge_predictions(s, pair));
    QM_TRY(halve(s, QM_HALVING_ROUND_pairs2));
    return halve(s, QM_HALVING_ROUND_pairs3);
}

qm_status qm_halving_run(struct qm_halving *s)
{
    int *entry, n;
    QM_TRY(run_search(s));
    mark_frontier(s);
    QM_TRY(qm_halving_final(s, &entry, &n));
    const struct qm_halving_part part = {QM_HALVING_ROUND_report, n,
                                         s->halves.count[QM_HALF_search], s->halves.n, entry};
    qm_status st = qm_halving_round(s, &part);
    free(entry);
    return st;
}
