/* coverage.c - Counts pairs of bins, and says what was never exercised. */
#include "experiments/check/coverage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/withheld.h"
#include "experiments/cli/cli.h"

enum { SEED = 1 };

static int number_of(int coordinate, int bin)
{
    return coordinate < QM_COORDINATE_hyper
               ? coordinate * QM_BINS_MOST + bin
               : QM_COORDINATE_hyper * QM_BINS_MOST +
                     (coordinate - QM_COORDINATE_hyper) * QM_HYPER_BINS + bin;
}

static void set(struct qm_coverage *c, int a, int b)
{
    c->pair[a][b / 64] |= (uint64_t)1 << (b % 64);
}

static int is_set(const struct qm_coverage *c, int a, int b)
{
    return c->pair[a][b / 64] >> (b % 64) & 1;
}

void qm_coverage_add(struct qm_coverage *to, const struct qm_domain *d, const struct qm_case *c)
{
    int bin[QM_COORDINATES], at[QM_COORDINATES], n = 0;
    qm_domain_bins(d, c, bin);
    for (int k = 0; k < QM_COORDINATES; k++)
        if (bin[k] >= 0)
            at[n++] = number_of(k, bin[k]);
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) /* i == j: the bin itself */
            set(to, at[i], at[j]);
    int64_t numel = qm_shape_numel(&c->shape);
    to->largest = numel > to->largest ? numel : to->largest;
    to->cases++;
    int is_large = numel > QM_LARGE && c->effects != 0;
    to->plain += c->effects != 0;
    to->large += is_large;
    for (int k = 0; k < QM_HYPERS; k++) {
        to->effective[k] += c->effects >> k & 1;
        to->effective_large[k] += is_large && c->effects >> k & 1;
    }
}

void qm_coverage_refuse(struct qm_coverage *to, const struct qm_domain *d, const struct qm_case *c)
{
    int bin[QM_COORDINATES];
    qm_domain_bins(d, c, bin);
    for (int k = 0; k < QM_HYPERS && c->effects; k++)
        if (c->given >> k & 1 && bin[QM_COORDINATE_hyper + k] > 0)
            to->refusals[k][bin[QM_COORDINATE_hyper + k]]++;
}

int qm_coverage_lacks(const struct qm_coverage *c, struct qm_domain *d)
{
    d->subjects = 0;
    for (int k = 0; k < QM_HYPERS; k++) {
        int is_rare = d->reads >> k & 1 && c->effective[k] < QM_EFFECTS;
        d->subjects |= (uint64_t)is_rare << k;
        d->refused[k] = 0;
        for (int bin = 1; bin < QM_HYPER_BINS; bin++) {
            int at = number_of(QM_COORDINATE_hyper + k, bin);
            if (c->refusals[k][bin] > 1 && !is_set(c, at, at))
                d->refused[k] |= (uint8_t)(1u << bin);
        }
    }
    return d->subjects != 0;
}

struct count {
    int64_t pairs, reachable;
};

/* Pairs of coordinates a and b; a == b: bins. */
static struct count count(const struct qm_coverage *c, const struct qm_coverage *reach, int a,
                          int b)
{
    struct count n = {0, 0};
    char text[24];
    for (int i = 0; qm_coordinate_bin(a, i, text); i++)
        for (int j = 0; qm_coordinate_bin(b, j, text); j++) {
            if (a == b && i != j)
                continue;
            int done = is_set(c, number_of(a, i), number_of(b, j));
            n.pairs += done;
            n.reachable += done || is_set(reach, number_of(a, i), number_of(b, j));
        }
    return n;
}

static json_t *bins_of(const struct qm_coverage *c, const struct qm_coverage *reach, int k)
{
    json_t *exercised = json_array(), *never = json_array();
    const char *name;
    char text[24];
    for (int i = 0; (name = qm_coordinate_bin(k, i, text)); i++) {
        int at = number_of(k, i);
        if (is_set(c, at, at))
            json_array_append_new(exercised, json_string(name));
        else if (is_set(reach, at, at))
            json_array_append_new(never, json_string(name));
    }
    return json_pack("{s:o, s:o}", "exercised", exercised, "never", never);
}

/* Coordinates that the backend or the recipe cannot meet, with the reason. */
static json_t *left_out(const struct qm_domain *d)
{
    json_t *out = json_array();
    const char *what, *reason;
    for (int k = 0; (what = qm_withheld_at(&d->recipe, k, &reason)); k++)
        json_array_append_new(out, json_pack("{s:s, s:s}", "coordinate", what, "reason", reason));
    if (!d->can_schedule)
        json_array_append_new(out,
                              json_pack("{s:s, s:s}", "coordinate", "schedule", "reason",
                                        "the backend cannot change hyper-parameters of a plan"));
    if (!d->can_restart)
        json_array_append_new(out, json_pack("{s:s, s:s}", "coordinate", "fresh process", "reason",
                                             "the backend lives in this process"));
    if (d->last_step < 1 << 20)
        json_array_append_new(
            out, json_pack("{s:s, s:s}", "coordinate", "step above 2^18", "reason",
                           "the seeds of all projections before it would have to be drawn"));
    _Static_assert(QM_ORDER_MOST == 160 && QM_ORDER_LONG == 320, "the text has the numbers");
    if (d->reads >> QM_HYPER_max_order & 1)
        json_array_append_new(out, json_pack("{s:s, s:s}", "coordinate",
                                             "order above 160, and 320 beside a short side",
                                             "reason", "longer sides are cut into tiles"));
    if (d->reads >> QM_HYPER_window & 1)
        json_array_append_new(out,
                              json_pack("{s:s, s:s}", "coordinate", "size above 8192", "reason",
                                        "a window has up to 60 rows of all elements; larger "
                                        "tensors have one to four rows of few"));
    else if (d->largest < 1 << 15)
        json_array_append_new(out,
                              json_pack("{s:s, s:s}", "coordinate", "size above 4096", "reason",
                                        "the reference works in quadratic time; larger "
                                        "tensors are long and thin, vectors, or a few matrices "
                                        "of some hundred rows and columns"));
    return out;
}

static void merge(struct qm_coverage *into, const struct qm_coverage *from)
{
    for (int i = 0; i < QM_COVERAGE_BINS; i++)
        for (int k = 0; k < QM_COVERAGE_WORDS; k++)
            into->pair[i][k] |= from->pair[i][k];
    into->cases += from->cases;
    into->refused += from->refused;
}

/* What the domain's distribution meets; each thread adds up its share of the draws.  NULL: no
 * memory.  The caller frees it. */
static struct qm_coverage *reachable(const struct qm_domain *d)
{
    struct qm_coverage *all = calloc(1, sizeof *all);
    struct qm_domain any = *d;
    any.candidates = 0;
    int complete = all != NULL;
#pragma omp parallel reduction(& : complete)
    {
        struct qm_coverage *own = calloc(1, sizeof *own);
        complete = own != NULL;
#pragma omp for schedule(dynamic, 256)
        for (int i = 0; i < QM_COVERAGE_DRAWS; i++)
            if (own) {
                struct qm_case drawn = qm_domain_draw(&any, SEED, i);
                qm_coverage_add(own, d, &drawn);
            }
#pragma omp critical(qm_coverage_merge)
        if (all && own)
            merge(all, own);
        free(own);
    }
    if (complete && all)
        return all;
    free(all);
    return NULL;
}

/* {NAME: times[k]}, of what the rule reads. */
static json_t *effective(const int64_t times[QM_HYPERS], const struct qm_domain *d)
{
    json_t *out = json_object();
    for (int k = 0; k < QM_HYPERS; k++)
        if (d->reads >> k & 1)
            json_object_set_new(out, qm_hyper_names[k], json_integer(times[k]));
    return out;
}

json_t *qm_coverage_json(const struct qm_coverage *c, const struct qm_domain *d)
{
    struct qm_coverage *reach = reachable(d);
    json_t *coordinates = json_object(), *pairs = json_array();
    struct count all = {0, 0}, bins = {0, 0};
    if (!reach)
        return NULL;
    for (int a = 0; a < QM_COORDINATES; a++) {
        if (!qm_domain_has(d, a))
            continue;
        struct count own = count(c, reach, a, a);
        bins.pairs += own.pairs;
        bins.reachable += own.reachable;
        json_object_set_new(coordinates, qm_coordinate_name(a), bins_of(c, reach, a));
        for (int b = a + 1; b < QM_COORDINATES; b++) {
            if (!qm_domain_has(d, b))
                continue;
            struct count n = count(c, reach, a, b);
            all.pairs += n.pairs;
            all.reachable += n.reachable;
            json_array_append_new(pairs, json_pack("{s:[s, s], s:I, s:I}", "coordinates",
                                                   qm_coordinate_name(a), qm_coordinate_name(b),
                                                   "pairs", (json_int_t)n.pairs, "reachable",
                                                   (json_int_t)n.reachable));
        }
    }
    free(reach);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:o, s:I, s:o}",
                     "cases", (json_int_t)c->cases, "refused", (json_int_t)c->refused, "pairs",
                     (json_int_t)all.pairs, "reachable", (json_int_t)all.reachable, "bins",
                     (json_int_t)bins.pairs, "bins_reachable", (json_int_t)bins.reachable,
                     "coordinates", coordinates, "pairs_of", pairs, "not_exercised", left_out(d),
                     "largest", (json_int_t)c->largest, "plain", (json_int_t)c->plain, "effective",
                     effective(c->effective, d), "large", (json_int_t)c->large, "effective_large",
                     effective(c->effective_large, d));
}

static long long whole(const json_t *from, const char *key)
{
    return (long long)json_integer_value(json_object_get(from, key));
}

/* Prints the names that no case of `cases` depended on, where there were such cases. */
static void print_idle(const json_t *coverage, const char *cases, const char *effects,
                       const char *join)
{
    const char *name;
    json_t *one;
    json_object_foreach (json_object_get(coverage, effects), name, one) {
        if (json_integer_value(one) > 0 || whole(coverage, cases) == 0)
            continue;
        qm_print("%s%s", join, name);
        join = ", ";
    }
}

void qm_coverage_print(const json_t *coverage, const char *of)
{
    const char *name, *join = "; never: ";
    json_t *one, *bin;
    size_t i;
    long long pairs = whole(coverage, "pairs"), reachable = whole(coverage, "reachable");
    qm_print("coverage of %s: %lld of %lld pairs of bins (%lld %%), %lld of %lld bins", of, pairs,
             reachable, reachable ? 100 * pairs / reachable : 100, whole(coverage, "bins"),
             whole(coverage, "bins_reachable"));
    if (whole(coverage, "refused") > 0)
        qm_print("; %lld cases refused at their shape", whole(coverage, "refused"));
    json_object_foreach (json_object_get(coverage, "coordinates"), name, one)
        json_array_foreach (json_object_get(one, "never"), i, bin) {
            qm_print("%s%s %s", join, name, json_string_value(bin));
            join = ", ";
        }
    json_array_foreach (json_object_get(coverage, "not_exercised"), i, one) {
        qm_print("%s%s (%s)", i ? ", " : "; not exercised: ",
                 json_string_value(json_object_get(one, "coordinate")),
                 json_string_value(json_object_get(one, "reason")));
    }
    qm_print("; sizes above %lld not exercised", whole(coverage, "largest"));
    print_idle(coverage, "plain", "effective", "; without effect in the plain cases: ");
    print_idle(coverage, "large", "effective_large", "; without effect in large tensors: ");
    qm_print("\n");
}
