/* step.c - Proves whole element updates for pairs of scales, from the command line. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "experiments/cli/cli.h"
#include "experiments/prove/prove.h"
#include "experiments/prove/triples.h"

enum { MOST_PAIRS = 64 };

#define LONG ((int64_t)1 << 28)

/* Maxima of the groups of slot 0 and slot 1: ones, a pair that are no powers of two, subnormal
 * ones, and two pairs at the ends of the range. */
static const float edges[][2] = {{1.0f, 1.0f},
                                 {1.7e-3f, 3.1e-7f},
                                 {0x1p-130f, 0x1p-140f},
                                 {1e-30f, 0x1p-126f},
                                 {0x1.fffffep100f, 3e38f}};

static qm_status read_pairs(const char *text, float pair[][2], int *n)
{
    char *end;
    for (*n = 0; *n < MOST_PAIRS; ++*n) {
        float *at = pair[*n];
        at[0] = at[1] = strtof(text, &end);
        if (end != text && *end == ',')
            at[1] = strtof(text = end + 1, &end);
        if (end == text || (*end && *end != ';') || !(at[0] > 0.0f && at[0] <= 3.4e38f) ||
            !(at[1] > 0.0f && at[1] <= 3.4e38f))
            return qm_fail(QM_BAD_ARG,
                           "--scales: expected M,V or M,V;M,V of numbers above 0, at '%s'", text);
        if (!*end) {
            ++*n;
            return QM_OK;
        }
        text = end + 1;
    }
    return qm_fail(QM_BAD_ARG, "--scales: more than %d pairs", MOST_PAIRS);
}

static void advance(void *of, int64_t triples) { qm_progress_add(of, triples, 0); }

static json_t *row(const char *name, int slots, const float *pair, const struct qm_triples_tally *t,
                   double seconds)
{
    char scales[64];
    snprintf(scales, sizeof scales, slots > 1 ? "%.6g, %.6g" : "%.6g", (double)pair[0],
             (double)pair[1]);
    return json_pack(
        "{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:o}", "step", name,
        "maxima", scales, "verdict", qm_triples_hold(t) ? "proved" : "WRONG", "holds",
        qm_triples_hold(t), "triples", (json_int_t)t->triples, "judged", (json_int_t)t->judged,
        "equal", (json_int_t)t->verdict[QM_VERDICT_EQUAL], "boundary",
        (json_int_t)t->verdict[QM_VERDICT_BOUNDARY], "off_by_one",
        (json_int_t)t->verdict[QM_VERDICT_OFF_BY_ONE], "wrong",
        (json_int_t)t->verdict[QM_VERDICT_WRONG], "out_of_bound", (json_int_t)t->out_of_bound,
        "may_overflow", (json_int_t)t->unbounded, "worst_of_bound", qm_json_number(t->worst_ratio),
        "finding", t->finding, "seconds", json_real(seconds));
}

qm_status qm_prove_step(const char *recipe, const struct qm_prove_options *o, json_t *all,
                        int *failed)
{
    struct qm_recipe r;
    struct qm_progress progress;
    float pair[MOST_PAIRS][2];
    int n = sizeof edges / sizeof *edges;
    int64_t triples;
    memcpy(pair, edges, sizeof edges);
    QM_TRY(qm_recipe_parse(recipe, &r));
    QM_TRY(qm_recipe_applicable(&r));
    QM_TRY(qm_triples_count(&r, &triples));
    if (o->scales)
        QM_TRY(read_pairs(o->scales, pair, &n));
    if (triples > LONG && !o->is_long)
        return qm_fail(QM_BAD_ARG, "%s has %lld triples for each pair of scales: say --long",
                       recipe, (long long)triples);
    qm_progress_start(&progress, recipe, triples * n);
    for (int i = 0; i < n; i++) {
        struct qm_triples_tally t;
        double started = qm_seconds();
        QM_TRY(qm_triples_run(&r, NULL, pair[i], o->t, (float)o->param, advance, &progress, &t));
        *failed |= !qm_triples_hold(&t);
        json_array_append_new(all,
                              row(recipe, r.rule->n_slots, pair[i], &t, qm_seconds() - started));
    }
    qm_progress_end(&progress);
    return QM_OK;
}
