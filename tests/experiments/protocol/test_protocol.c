/* test_protocol.c - paired suites: what is added, tables by hand, twins that are kept, nulls.
 *
 * `test_protocol all` makes 200 null comparisons of 16 seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/lockstep/hitting_times.h"
#include "experiments/protocol/protocol.h"
#include "experiments/protocol/tables.h"

static char path[] = "/tmp/qm_protocol_XXXXXX";
static int everything;

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int drop_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void near_to(double x, double want, double within)
{
    if (!(fabs(x - want) <= within))
        fail_msg("%.10g, want %.10g within %g", x, want, within);
}

/* By the definition: the first look from which `persistence` looks are at most the level's gap. */
static int64_t brute(const double *gap, const int64_t *step, int64_t n, int persistence,
                     int64_t level)
{
    for (int64_t k = 0; k + persistence <= n; k++) {
        int held = 1;
        for (int i = 0; i < persistence; i++)
            held &= gap[k + i] <= qm_level_gap(level);
        if (held)
            return step[k];
    }
    return -1;
}

/* ---- suites ---------------------------------------------------------------------------------- */

struct ran {
    struct qm_suite *s;
    struct qm_results r;
};

static void cells_of(const char *text, struct ran *a)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    memset(a, 0, sizeof *a);
    if (qm_suite_read(path, &a->s) != QM_OK ||
        qm_suite_cells(a->s, NULL, &a->r.cell, &a->r.n_cells) != QM_OK)
        fail_msg("%s", qm_message());
    a->r.suite = a->s;
}

static void release(struct ran *a)
{
    struct qm_cell *cells = a->r.cell;
    int64_t n = a->r.n_cells;
    qm_results_free(&a->r);
    qm_cells_free(cells, n);
    qm_suite_free(a->s);
}

#define PAIRED "coupling: closed\nprotocol: paired\nweight_decay: 0\n"

static int count_role(const struct ran *a, enum qm_cell_role role)
{
    int n = 0;
    for (int64_t i = 0; i < a->r.n_cells; i++)
        n += a->r.cell[i].role == role;
    return n;
}

/* Nulls once for every source, seed, rate and hyper-parameter; parts once for what has them. */
static void test_added_cells(void **state)
{
    struct ran a;
    char label[QM_LABEL_TEXT];
    (void)state;
    cells_of("variant: [adamw4_ao, adamw8_bnb, lion8_ecc8]\n"
             "source: [\"problem:nqm:n=64\", \"problem:quad:n=64\"]\nseed: 1..3\n"
             "lr_scale: [0.5, 1]\nbeta1: [0.9, 0.8]\nrounding_seed: [7, 8]\nbudget: 1\n" PAIRED,
             &a);
    int own = 3 * 2 * 3 * 2 * 2 * 2;
    assert_int_equal(qm_protocol_own(a.r.cell, a.r.n_cells), own);
    /* rules adamw and lion8, two sources, three seeds, two rates, two beta1; one rounding seed */
    assert_int_equal(count_role(&a, QM_CELL_float32), 2 * 2 * 3 * 2 * 2);
    assert_int_equal(count_role(&a, QM_CELL_ulp), 2 * 2 * 3 * 2 * 2);
    /* two slots, two slots, float16 scales and parameter (this rule keeps no residual beside float32
     * states); at lr_scale 1 */
    assert_int_equal(count_role(&a, QM_CELL_without), (2 + 2 + 2) * 2 * 3 * 2 * 2);
    for (int64_t i = 0; i < own; i++) {
        const struct qm_cell *c = &a.r.cell[i], *full = &a.r.cell[c->float32];
        assert_int_equal(c->index, i);
        assert_true(full->seed == c->seed && full->lr_scale == c->lr_scale && !full->start_ulp);
        assert_true(a.r.cell[c->ulp].start_ulp && qm_recipe_is_full(&full->recipe));
        assert_true(full->recipe.hyper.beta1 == c->recipe.hyper.beta1);
        assert_string_equal(full->recipe.rule->family, c->recipe.rule->family);
        assert_string_equal(full->source_text, c->source_text);
        assert_true((c->without[c->choice[0] == 2 ? QM_BUDGET_scales : QM_BUDGET_first] >= 0) ==
                    (c->lr_scale == 1.0));
    }
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[0], label), "adamw4_ao; 0.9; 7");
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[a.r.cell[0].float32], label),
                        "adamw_f32; 0.9; float32");
    release(&a);

    /* what the suite has itself is not added */
    cells_of("variant: adamw_f32\nexp_avg: [f32, nf4: \"nf4:4s/block:64/bisect/mid/hi\"]\n"
             "source: \"problem:nqm:n=64\"\n" PAIRED,
             &a);
    assert_int_equal(a.r.n_cells, 3);
    assert_int_equal(a.r.cell[1].float32, 0);
    assert_int_equal(a.r.cell[2].role, QM_CELL_ulp);
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[1], label), "nf4");
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[2], label), "adamw_f32; start ulp");
    release(&a);
}

/* A null pair never stands among the runs of a variant, nor among those with other constants: rules
 * without a float32 variant of their own, two sets of constants, a variant called like the null. */
static void test_labels_apart(void **state)
{
    static const char *const suites[] = {
        "variant: [adafactor8_022, adam4_ao, lion8_ecc8, adam8_ao]\n",
        "variant: [adamw_f32, adamw4_ao, slow: \"adamw8_bnb,eps=1e-4\", \"adamw_f32,beta1=0.5\"]\n",
        "variant: [adamw_f32: adamw4_ao, adamw8_bnb]\n"};
    char first[QM_LABEL_TEXT], second[QM_LABEL_TEXT], texts[2][QM_RECIPE_TEXT];
    (void)state;
    for (size_t k = 0; k < sizeof suites / sizeof *suites; k++) {
        struct ran a;
        char text[512];
        snprintf(text, sizeof text, "%ssource: \"problem:nqm:n=64\"\n" PAIRED, suites[k]);
        cells_of(text, &a);
        for (int64_t i = 0; i < a.r.n_cells; i++)
            for (int64_t j = 0; j < i; j++) {
                const struct qm_cell *x = &a.r.cell[i], *y = &a.r.cell[j];
                int same = strcmp(qm_cell_label(a.s, x, first), qm_cell_label(a.s, y, second)) == 0;
                if (same && (x->role != y->role || strcmp(qm_recipe_print(&x->recipe, texts[0]),
                                                          qm_recipe_print(&y->recipe, texts[1]))))
                    fail_msg("%s and %s are both '%s'", texts[0], texts[1], first);
            }
        release(&a);
    }
    struct ran a;
    cells_of("variant: [slow: \"adamw8_bnb,eps=1e-4\", lion8_ecc8]\nsource: "
             "\"problem:nqm:n=64\"\n" PAIRED,
             &a);
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[a.r.cell[0].float32], first),
                        "adamw_f32,eps=0.0001; float32");
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[a.r.cell[1].float32], first),
                        "lion8_ecc8; float32");
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[a.r.cell[1].ulp], first),
                        "lion8_ecc8; start ulp");
    release(&a);
}

/* No two runs of one problem, seed and rate share a label, unless they are the same run. */
static void labels_apart(const struct ran *a)
{
    for (int64_t i = 0; i < a->r.n_cells; i++)
        for (int64_t k = 0; k < i; k++) {
            const struct qm_cell *x = &a->r.cell[i], *y = &a->r.cell[k];
            char of_x[QM_LABEL_TEXT], of_y[QM_LABEL_TEXT];
            if (x->reason || y->reason || x->seed != y->seed || x->lr_scale != y->lr_scale ||
                x->warmup != y->warmup || x->decay_rank != y->decay_rank || x->steps != y->steps ||
                strcmp(x->source_text, y->source_text) != 0)
                continue;
            if (strcmp(qm_cell_label(a->s, x, of_x), qm_cell_label(a->s, y, of_y)) == 0)
                fail_msg("cells %d and %d are both '%s'", (int)i, (int)k, of_x);
        }
}

/* The null of a rule without a float32 variant, of other hyper-parameters, and of a variant that an
 * axis of one value changes: none is averaged with what it is the null of. */
static void test_labels(void **state)
{
    struct ran a;
    char label[QM_LABEL_TEXT];
    (void)state;
    cells_of("variant: adamw_f32\nexp_avg: \"nf4:4s/block:64/bisect/mid/hi\"\n"
             "source: \"problem:nqm:n=64\"\nseed: 1..2\n" PAIRED,
             &a);
    labels_apart(&a);
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[0], label), "adamw_f32");
    assert_string_equal(qm_cell_label(a.s, &a.r.cell[a.r.cell[0].float32], label),
                        "adamw_f32; float32");
    release(&a);

    cells_of("variant: [rmsprop8_bnb, adamw_f32, adamw8_bnb_2048, \"adamw8_bnb,eps=1e-6\",\n"
             "  \"adamw4_ao,lr=0.5\", flash_sgd, lion8_bnb]\n"
             "source: [\"problem:nqm:n=64\", \"problem:quad:n=64\"]\nbudget: 1\n" PAIRED,
             &a);
    labels_apart(&a);
    const char *want[][2] = {{"rmsprop8_bnb", "rmsprop8_bnb; float32"},
                             {"adamw_f32", "adamw_f32"},
                             {"adamw8_bnb_2048", "adamw8_bnb_2048; float32"},
                             {"adamw8_bnb,eps=1e-6", "adamw_f32,eps=1e-06; float32"},
                             {"adamw4_ao,lr=0.5", "adamw_f32,lr=0.5; float32"},
                             {"flash_sgd", "flash_sgd; float32"},
                             {"lion8_bnb", "lion_f32; float32"}};
    for (int i = 0; i < 7; i++) {
        const struct qm_cell *c = &a.r.cell[2 * i];
        assert_string_equal(qm_cell_label(a.s, c, label), want[i][0]);
        assert_string_equal(qm_cell_label(a.s, &a.r.cell[c->float32], label), want[i][1]);
    }
    release(&a);
}

/* Whether some state of a tensor of this problem gets the format that the recipe asks for. */
static int has_format(const struct qm_cell *c)
{
    struct qm_shape shape[QM_PROBLEM_TENSORS];
    void *self;
    int n, found = c->recipe.param.format != QM_PARAM_f32, asks = found;
    for (int i = 0; i < c->recipe.rule->n_slots; i++)
        asks |= c->recipe.slot[i].bits > 0;
    if (!asks)
        return 1;
    assert_int_equal(c->problem->open(c->problem_args, 1, &self, &n, shape), QM_OK);
    for (int t = 0; t < n; t++)
        for (int i = 0; i < c->recipe.rule->n_slots; i++)
            found |= qm_recipe_slot(&c->recipe, i, &shape[t]).bits > 0;
    c->problem->close(self);
    return found;
}

/* In no cell of a comparison do all tensors fall back to float32: it would say nothing. */
static void formats_used(const struct ran *a)
{
    for (int64_t i = 0; i < qm_protocol_own(a->r.cell, a->r.n_cells); i++)
        if (!a->r.cell[i].reason && a->r.cell[i].lr_scale == 1.0 && !has_format(&a->r.cell[i]))
            fail_msg("%s: cell %d, %s: float32 on %s", a->s->stem, (int)i,
                     a->r.cell[i].recipe.base->name, a->r.cell[i].source_text);
}

/* The shipped paired suites, one seed of each. */
static void test_labels_shipped(void **state)
{
    glob_t found;
    (void)state;
    assert_int_equal(glob("experiments/suites/*.yaml", 0, NULL, &found), 0);
    int paired = 0;
    for (size_t i = 0; i < 2 * found.gl_pathc; i++) {
        struct ran a = {0};
        if (qm_suite_read_size(found.gl_pathv[i / 2], i % 2 ? "normal" : "small", &a.s) != QM_OK)
            fail_msg("%s", qm_message());
        if (a.s->paired) {
            paired++;
            struct qm_axis *seed = &a.s->axis[qm_suite_axis(a.s, "seed")];
            int seeds = seed->n;
            seed->n = 1;
            assert_int_equal(qm_suite_cells(a.s, NULL, &a.r.cell, &a.r.n_cells), QM_OK);
            labels_apart(&a);
            formats_used(&a);
            qm_cells_free(a.r.cell, a.r.n_cells);
            seed->n = seeds; /* as it is freed */
        }
        qm_suite_free(a.s);
    }
    globfree(&found);
    assert_true(paired >= 20);
}

static void test_suite_words(void **state)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"protocol: single\n", ":3: protocol 'single'; there is paired"},
        {"delta: -1\n", ":3: 'delta' is '-1'"},
        {"budget: x\n", ":3: 'budget' is 'x'"},
        {"sizes: {tiny: {seed: 1}}\n", ":3:"},
        {"sizes: {small: [1]}\n", ":3: size 'small'"},
        {"lr_scale: 0\n", ":3: 'lr_scale' is '0'"},
        {"start: up\n", ":3:"},
        {"rounding_seed: -1\n", ":3: 'rounding_seed' is '-1'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qm_suite *s = NULL;
        struct qm_cell *c = NULL;
        int64_t n;
        FILE *f = fopen(path, "w");
        fprintf(f, "variant: adamw_f32\nsource: \"problem:nqm\"\n%s", cases[i].text);
        fclose(f);
        qm_status st = qm_suite_read(path, &s);
        if (st == QM_OK)
            st = qm_suite_cells(s, NULL, &c, &n);
        if (st == QM_OK || !strstr(qm_message(), cases[i].word))
            fail_msg("case %zu: '%s'", i, qm_message());
        qm_suite_free(s);
    }
    struct qm_suite *s, *again;
    FILE *f = fopen(path, "w");
    fputs("variant: [adamw_f32, adamw4_ao]\nsource: \"problem:nqm\"\nseed: 3..5\nsteps: 100\n"
          "protocol: paired\ndelta: 0.125\nbudget: 1\nlr_scale: [0.5, 1]\n"
          "sizes: {small: {seed: 9, steps: [1, 2], n: 3}, large: {seed: 1..64}}\n",
          f);
    fclose(f);
    assert_int_equal(qm_suite_read_size(path, "huge", &s), QM_NO_MATCH);
    assert_int_equal(qm_suite_read_size(path, "small", &s), QM_OK);
    int seed = qm_suite_axis(s, "seed"), steps = qm_suite_axis(s, "steps");
    assert_int_equal(seed, 2); /* the axis keeps its place, so cells keep their order */
    assert_int_equal(s->axis[seed].n, 1);
    assert_string_equal(s->axis[seed].value[0].text, "9");
    assert_int_equal(s->axis[steps].n, 2);
    assert_true(qm_suite_axis(s, "n") >= 0);
    char *plan = strdup(s->plan);
    qm_suite_free(s);
    f = fopen(path, "w");
    fputs(plan, f);
    fclose(f);
    assert_int_equal(qm_suite_read(path, &again), QM_OK);
    assert_string_equal(again->plan, plan);
    assert_true(again->paired && again->budget == 1 && again->delta == 0.125);
    free(plan);
    qm_suite_free(again);
}

/* ---- tables by hand -------------------------------------------------------------------------- */

/* One outcome: gaps, and stairs of runtimes for targets 0, 25 and 50 of a problem with 50 levels. */
static void outcome(struct qm_outcome *o, double gap, double twin, double t25, double t50,
                    double twin25, double twin50)
{
    const double stair[2][3] = {{0, t25, t50}, {0, twin25, twin50}};
    o->value = calloc((size_t)qm_value_count(), sizeof *o->value);
    double *extra = o->value + qm_metric_count();
    o->done = 1;
    o->steps = 100;
    extra[QM_EXTRA_start_gap] = 1;
    extra[QM_EXTRA_gap] = gap;
    extra[QM_EXTRA_twin_gap] = twin;
    extra[QM_EXTRA_log_gap] = log10(gap / twin);
    for (int k = 0; k < QM_HITS_COUNT; k++) {
        int is_twin = k == QM_HITS_twin_hits || k == QM_HITS_twin_hits10;
        o->hits[k] = calloc(6, sizeof(double));
        for (int i = 0; i < 3; i++)
            if (stair[is_twin][i] >= 0) {
                o->hits[k][o->n_hits[k]++] = 25 * i;
                o->hits[k][o->n_hits[k]++] = stair[is_twin][i];
            }
    }
}

/* Two variants, six seeds; runtimes: the twin needs 10 and 20 steps; `fast` 5 and 40; `slow` 20 and
 * never.  Targets are levels 0 ... 50: 0 at step 0, 1 to 25 at the first, 26 to 50 at the second. */
static void make_table(struct ran *a, struct qm_protocol **p)
{
    cells_of("variant: [fast: adamw4_ao, slow: adamw8_ao]\nsource: [easy: \"problem:nqm:n=64\"]\n"
             "seed: 1..6\n" PAIRED,
             a);
    assert_int_equal(a->r.n_cells, 12 + 12);
    a->r.outcome = calloc((size_t)a->r.n_cells, sizeof *a->r.outcome);
    for (int64_t i = 0; i < a->r.n_cells; i++) {
        const struct qm_cell *c = &a->r.cell[i];
        double s = (double)c->seed, twin = 0.1 + 0.01 * s;
        if (c->role != QM_CELL_plain)
            outcome(&a->r.outcome[i], twin, twin, 10, 20, 10, 20);
        else if (c->choice[0] == 0)
            outcome(&a->r.outcome[i], twin * (1 + 1e-4 * s), twin, 5, 40, 10, 20);
        else
            outcome(&a->r.outcome[i], 2 * twin * (1 + 1e-3 * s), twin, 20, -1, 10, 20);
    }
    assert_int_equal(qm_protocol_make(&a->r, p), QM_OK);
    assert_non_null(*p);
}

static int find_word(const struct qm_words *w, const char *word)
{
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->word[i], word) == 0)
            return i;
    fail_msg("no '%s'", word);
    return -1;
}

static double share(const struct qm_curve_row *row, int64_t n, int label, int is_twin, double tau)
{
    double found = nan("");
    for (int64_t i = 0; i < n; i++)
        if (row[i].label == label && row[i].is_twin_kind == is_twin &&
            fabs(row[i].tau - tau) < 1e-9 * tau)
            found = row[i].share;
    return found;
}

static void test_tables(void **state)
{
    struct ran a;
    struct qm_protocol *p;
    (void)state;
    make_table(&a, &p);
    int fast = find_word(&p->label, "fast"), slow = find_word(&p->label, "slow");
    assert_string_equal(p->problem.word[0], "easy");
    for (int j = 0; j < QM_TARGETS; j++)
        assert_int_equal(p->target[0][j], j);
    for (int64_t i = 0; i < p->n_runs; i++)
        for (int j = 0; j < QM_TARGETS; j++) {
            int label = p->run[i].label, part = j == 0 ? 0 : j <= 25 ? 1 : 2;
            static const int want[3][3] = {{0, 5, 40}, {0, 20, -1}, {0, 10, 20}};
            int row = label == fast ? 0 : label == slow ? 1 : 2;
            assert_int_equal(p->hits[QM_HITS_hits][i * QM_TARGETS + j], want[row][part]);
            assert_int_equal(p->hits[QM_HITS_twin_hits][i * QM_TARGETS + j], want[2][part]);
        }

    /* ECDF: 1 target at once, 25 more at the first runtime, the rest at the second */
    near_to(share(p->ecdf, p->n_ecdf, fast, 0, 4), 1 / 51.0, 1e-15);
    near_to(share(p->ecdf, p->n_ecdf, fast, 0, 5), 26 / 51.0, 1e-15);
    near_to(share(p->ecdf, p->n_ecdf, fast, 0, 100), 1, 0);
    near_to(share(p->ecdf, p->n_ecdf, slow, 0, 100), 26 / 51.0, 1e-15);
    near_to(share(p->ecdf, p->n_ecdf, -2, 0, 10), 26 / 51.0, 1e-15); /* the twin */

    /* ratios to the twin: fast 1, 1/2 (25 times), 2 (25); slow 1, 2 (25), infinite (25) */
    near_to(share(p->profile, p->n_profiles, fast, 1, 0.25), 0, 0);
    near_to(share(p->profile, p->n_profiles, fast, 1, 0.5), 25 / 51.0, 1e-15);
    near_to(share(p->profile, p->n_profiles, fast, 1, 1), 26 / 51.0, 1e-15);
    near_to(share(p->profile, p->n_profiles, fast, 1, 2), 1, 0);
    near_to(share(p->profile, p->n_profiles, slow, 1, 16), 26 / 51.0, 1e-15);
    /* to the best of all labels, float32 among them: fast 1, 1 (25), 2 (25); slow 1, 4 (25) */
    near_to(share(p->profile, p->n_profiles, fast, 0, 1), 26 / 51.0, 1e-15);
    near_to(share(p->profile, p->n_profiles, fast, 0, 2), 1, 0);
    near_to(share(p->profile, p->n_profiles, slow, 0, 4), 26 / 51.0, 1e-15);
    near_to(share(p->profile, p->n_profiles, slow, 0, 2), 1 / 51.0, 1e-15);
    for (int64_t i = 0; i < p->n_scores; i++) {
        const struct qm_score_row *s = &p->score[i];
        if (s->label == fast) { /* 26 count on all of [1, 4], 25 on two thirds */
            near_to(s->score[1], (26 + 25 * 2 / 3.0) / 51, 1e-14);
            near_to(s->score[0], (26 + 25 * 2 / 3.0) / 51, 1e-14);
        } else if (s->label == slow) { /* ratios 2 and 4 */
            near_to(s->score[1], (1 + 25 * 2 / 3.0) / 51, 1e-14);
            near_to(s->score[0], 1 / 51.0, 1e-14);
        }
        assert_int_equal(s->n[1], 6 * 51);
    }

    /* d of fast is log10(1 + 1e-4 s), of slow log10 2 (1 + 1e-3 s) */
    for (int64_t i = 0; i < p->n_verdicts; i++) {
        const struct qm_verdict_row *v = &p->verdict[i];
        assert_int_equal(v->d.n, 6);
        near_to(v->delta, log10(1.05), 1e-16);
        if (v->of.label == fast) {
            near_to(v->d.median, 0.5 * (log10(1.0003) + log10(1.0004)), 1e-12);
            near_to(v->d.median_lo, log10(1.0001), 1e-12);
            near_to(v->d.median_hi, log10(1.0006), 1e-12);
            assert_int_equal(v->verdict, QM_DECISION_equivalent);
            assert_true(v->q <= 0.05); /* other than 0, and yet equivalent */
        } else if (v->of.label == slow) {
            assert_int_equal(v->verdict, QM_DECISION_worse);
            near_to(v->null.mean, 0, 0);
        } else {
            assert_true(isnan(v->q)); /* nulls are no part of the family */
            assert_int_equal(v->verdict, QM_DECISION_equivalent);
        }
    }
    qm_protocol_free(p);
    release(&a);
}

/* Seeds that change nothing are one observation; a diverged run counts as it stands; what a failed
 * run would have shown is not guessed. */
static void test_few(void **state)
{
    struct ran a;
    struct qm_protocol *p;
    (void)state;
    make_table(&a, &p);
    qm_protocol_free(p);
    double *first = a.r.outcome[0].value + qm_metric_count();
    for (int64_t i = 0; i < 6; i++) { /* all seeds of `fast` alike */
        double *extra = a.r.outcome[i].value + qm_metric_count();
        memcpy(extra, first, QM_EXTRA_COUNT * sizeof *extra);
    }
    double *lost = a.r.outcome[6].value + qm_metric_count();
    lost[QM_EXTRA_log_gap] = nan("");
    a.r.outcome[7].diverged = 1;
    assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
    for (int64_t i = 0; i < p->n_verdicts; i++) {
        const struct qm_verdict_row *v = &p->verdict[i];
        if (strcmp(p->label.word[v->of.label], "fast") == 0)
            assert_true(v->d.n == 1 && v->verdict == QM_DECISION_few);
        if (strcmp(p->label.word[v->of.label], "slow") == 0)
            assert_true(v->d.n == 5 && v->failed == 1 && v->diverged == 1 &&
                        v->verdict == QM_DECISION_few);
    }
    assert_int_equal(p->hits[QM_HITS_hits][6 * QM_TARGETS], -1);
    /* the failed one of six is infinitely late in every curve */
    int slow = find_word(&p->label, "slow");
    near_to(share(p->ecdf, p->n_ecdf, slow, 0, 100), 5 * 26 / (6 * 51.0), 1e-15);
    near_to(share(p->profile, p->n_profiles, slow, 1, 16), 5 * 26 / (6 * 51.0), 1e-15);
    near_to(share(p->profile, p->n_profiles, slow, 0, 16), 5 * 26 / (6 * 51.0), 1e-15);
    near_to(share(p->ecdf, p->n_ecdf, -2, 0, 10), 26 / 51.0, 1e-15); /* its twin did not fail */
    qm_protocol_free(p);
    release(&a);
}

/* Seeds that all reach the floor are as many observations: equivalent.  Where both sides diverged
 * nothing is seen of the variant; where it alone did, it is worse, though the twin is at the floor. */
static void test_limits(void **state)
{
    struct ran a;
    struct qm_protocol *p;
    const double floor = 0x1p-52;
    (void)state;
    make_table(&a, &p);
    qm_protocol_free(p);
    for (int round = 0; round < 3; round++) {
        for (int64_t i = 0; i < 6; i++) {
            double *extra = a.r.outcome[i].value + qm_metric_count();
            extra[QM_EXTRA_start_gap] = 1 + (double)i;
            extra[QM_EXTRA_gap] = round ? 1000 : floor;
            extra[QM_EXTRA_twin_gap] = round < 2 ? floor : 1000;
            extra[QM_EXTRA_log_gap] = round == 1 ? log10(1000 / floor) : 0;
            a.r.outcome[i].diverged = round > 0;
        }
        assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
        const struct qm_verdict_row *v = &p->verdict[0];
        assert_string_equal(p->label.word[v->of.label], "fast");
        assert_int_equal(v->d.n, round < 2 ? 6 : 0);
        assert_int_equal(v->diverged, round ? 6 : 0);
        assert_int_equal(v->twin_diverged, round < 2 ? 0 : 6);
        assert_int_equal(v->verdict, round == 0   ? QM_DECISION_equivalent
                                     : round == 1 ? QM_DECISION_worse
                                                  : QM_DECISION_few);
        qm_protocol_free(p);
    }
    /* one far pair among equal ones: the resamples' interval goes on for hundreds of decades */
    double d[6] = {-15, 1e-9, 2e-9, -1e-9, 3e-9, -2e-9};
    struct qm_bootstrap *b;
    struct qm_paired bare;
    for (int64_t i = 0; i < 6; i++) {
        double *extra = a.r.outcome[i].value + qm_metric_count();
        extra[QM_EXTRA_twin_gap] = 0.5;
        extra[QM_EXTRA_gap] = 0.5 * pow(10, d[i]);
        extra[QM_EXTRA_log_gap] = d[i];
        a.r.outcome[i].diverged = 0;
    }
    assert_int_equal(qm_bootstrap_open(&b), QM_OK);
    assert_int_equal(qm_paired_make(b, d, 6, &bare), QM_OK);
    qm_bootstrap_close(b);
    assert_true(bare.lo95 < -100);
    assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
    near_to(p->verdict[0].d.lo95, -log10(1000 / floor), 1e-12);
    qm_protocol_free(p);
    release(&a);
}

/* Where no twin comes below its start there is nothing to reach: no score, rather than a full one. */
static void test_no_targets(void **state)
{
    struct ran a;
    struct qm_protocol *p;
    (void)state;
    make_table(&a, &p);
    qm_protocol_free(p);
    for (int64_t i = 0; i < a.r.n_cells; i++)
        for (int k = 0; k < QM_HITS_COUNT; k++)
            a.r.outcome[i].n_hits[k] = 2; /* level 0 at step 0 */
    assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
    assert_int_equal(p->n_scores, 4);
    for (int64_t i = 0; i < p->n_scores; i++)
        assert_true(isnan(p->score[i].score[0]) && isnan(p->score[i].score[1]) &&
                    p->score[i].n[0] == 0);
    assert_true(p->n_ecdf == 0 && p->n_profiles == 0);
    qm_protocol_free(p);
    release(&a);
}

/* The twin's best rate is one at which something ran. */
static void test_best_rate(void **state)
{
    struct ran a;
    struct qm_protocol *p;
    (void)state;
    cells_of("variant: adamw4_ao\nsource: \"problem:nqm:n=64\"\nseed: 1..6\nlr_scale: [0.5, 1, "
             "2]\n" PAIRED,
             &a);
    a.r.outcome = calloc((size_t)a.r.n_cells, sizeof *a.r.outcome);
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        const struct qm_cell *c = &a.r.cell[i];
        double twin = 0.01 * (double)c->seed * c->lr_scale;
        outcome(&a.r.outcome[i], twin, twin, 1, 2, 1, 2);
        if (c->lr_scale == 0.5)
            a.r.outcome[i].value[qm_metric_count() + QM_EXTRA_log_gap] = nan("");
    }
    assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
    assert_int_equal(p->n_sensitivity, 9);
    for (int64_t i = 0; i < p->n_sensitivity; i++)
        assert_int_equal(p->sensitivity[i].twin_best, p->scale[p->sensitivity[i].of.scale] == 1.0);
    qm_protocol_free(p);
    release(&a);
}

/* d = 1 of all, 0.4 without the first state's codes, 0.75 without the second's. */
static void test_budget(void **state)
{
    struct ran a;
    struct qm_protocol *p;
    static const double d[] = {1, 0.4, 0.75};
    static const struct {
        const char *part;
        double share;
    } want[] = {
        {"first-moment codes", 0.6}, {"second-moment codes", 0.25}, {"rest", 0.15}, {"all", 1}};
    (void)state;
    cells_of("variant: adamw4_ao\nsource: \"problem:nqm:n=64\"\nseed: 1..6\nbudget: 1\n" PAIRED,
             &a);
    a.r.outcome = calloc((size_t)a.r.n_cells, sizeof *a.r.outcome);
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        const struct qm_cell *c = &a.r.cell[i];
        double twin = 1e-3 * (double)c->seed;
        int k = c->role == QM_CELL_without ? 1 + (int)c->part : 0;
        outcome(&a.r.outcome[i], c->role == QM_CELL_plain || k ? twin * pow(10, d[k]) : twin, twin,
                1, 2, 1, 2);
    }
    assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
    assert_int_equal(p->n_budget, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(p->budget[i].part, want[i].part);
        near_to(p->budget[i].share.mean, want[i].share, 1e-12);
        assert_true(p->budget[i].share.lo95 <= want[i].share + 1e-12 &&
                    p->budget[i].share.hi95 >= want[i].share - 1e-12);
    }
    qm_protocol_free(p);

    /* seed 3 fails without the one part, seed 5 ends elsewhere without the other; d depends on the
     * seed: the rows are of the other four */
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        const struct qm_cell *c = &a.r.cell[i];
        double *extra = a.r.outcome[i].value + qm_metric_count();
        if (c->role == QM_CELL_plain) {
            extra[QM_EXTRA_log_gap] = (double)c->seed;
            extra[QM_EXTRA_gap] = extra[QM_EXTRA_twin_gap] * pow(10, (double)c->seed);
        } else if (c->role == QM_CELL_without && c->seed == 3 && c->part == QM_BUDGET_first) {
            extra[QM_EXTRA_log_gap] = nan("");
        } else if (c->role == QM_CELL_without && c->seed == 5 && c->part == QM_BUDGET_second) {
            extra[QM_EXTRA_basin] = 1;
        }
    }
    assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
    assert_int_equal(p->n_budget, 4);
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(p->budget[i].share.n, 4);
        sum += i < 3 ? p->budget[i].share.mean : 0;
    }
    near_to(p->budget[3].share.mean, (1 + 2 + 4 + 6) / 4.0, 1e-12);
    near_to(sum, p->budget[3].share.mean, 1e-12);
    qm_protocol_free(p);
    release(&a);
}

/* ---- twins ----------------------------------------------------------------------------------- */

static void same_numbers(const char *what, const double *x, const double *y, int64_t n)
{
    if (memcmp(x, y, (size_t)n * sizeof *x) != 0)
        fail_msg("%s differ", what);
}

static void same_outcome(const struct qm_outcome *x, const struct qm_outcome *y)
{
    assert_int_equal(x->diverged, y->diverged);
    assert_int_equal(x->steps, y->steps);
    assert_int_equal(x->n_points, y->n_points);
    same_numbers("values", x->value, y->value, qm_value_count());
    for (int k = 0; k < QM_TRACK_COUNT; k++)
        same_numbers("curves", x->track[k], y->track[k], x->n_points);
    for (int k = 0; k < QM_HITS_COUNT; k++) {
        assert_int_equal(x->n_hits[k], y->n_hits[k]);
        same_numbers("stairs", x->hits[k], y->hits[k], x->n_hits[k]);
    }
}

static void run_all(const struct ran *a, struct qm_twin_cache *twins, int backwards,
                    struct qm_outcome *out)
{
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    int64_t *order;
    assert_int_equal(qm_twin_order(a->r.cell, a->r.n_cells, &order), QM_OK);
    for (int64_t i = 0; i < a->r.n_cells; i++) {
        int64_t at = backwards ? a->r.n_cells - 1 - i : order[i];
        if (qm_lockstep_run(&a->r.cell[at], m, twins, NULL, &out[at]) != QM_OK)
            fail_msg("%s", qm_message());
        if (out[at].reason)
            fail_msg("%s", out[at].reason);
    }
    free(order);
    qm_metrics_close(m);
}

/* With none, a large one, one that holds a single twin, another order: the same bits.  Among the
 * cells: rules whose updates are seen in the parameter, bfloat16 parameters (another start),
 * minibatches (other looks), runs that diverge, points by step and by its logarithm. */
static void test_twins_kept(void **state)
{
    static const char *const suites[] = {
        "variant: [adamw4_ao, adamw8_ao_bf16sr, lion8_bnb, sgdm4_lpmm]\nseed: [1, 2]\nsteps: 60\n"
        "source: [\"problem:nqm:n=256\", \"problem:logreg:n=64,d=8,batch=8\"]\n"
        "lr_scale: [1, 2000]\n" PAIRED,
        "variant: [adamw4_lpmm, adamw_f32]\nsteps: 33\nevery: 7\n"
        "source: [\"problem:embed:rows=64,d=4,batch=4\", \"problem:rosen:n=8\"]\n" PAIRED};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct ran a;
        struct qm_twin_cache *large, *small;
        struct qm_outcome *out[4];
        cells_of(suites[k], &a);
        for (int i = 0; i < 4; i++)
            out[i] = calloc((size_t)a.r.n_cells, sizeof **out);
        assert_int_equal(qm_twin_cache_open(0, &large), QM_OK);
        assert_int_equal(qm_twin_cache_open(600000, &small), QM_OK);
        run_all(&a, NULL, 0, out[0]);
        run_all(&a, large, 0, out[1]);
        assert_true(qm_twin_hits(large) > a.r.n_cells / 3);
        run_all(&a, small, 1, out[2]);
        run_all(&a, large, 1, out[3]); /* all twins are there now */
        int diverged = 0;
        for (int64_t i = 0; i < a.r.n_cells; i++) {
            for (int j = 1; j < 4; j++)
                same_outcome(&out[0][i], &out[j][i]);
            diverged += out[0][i].diverged;
        }
        assert_true(k == 1 || diverged > 0);
        for (int j = 0; j < 4; j++) {
            for (int64_t i = 0; i < a.r.n_cells; i++)
                qm_outcome_free(&out[j][i]);
            free(out[j]);
        }
        qm_twin_cache_close(large);
        qm_twin_cache_close(small);
        release(&a);
    }
}

/* What a closed cell says of gaps and hits, from its curve with a point at every step. */
static void test_gaps(void **state)
{
    struct ran a;
    (void)state;
    cells_of("variant: [adamw4_ao]\nsource: \"problem:nqm:n=256\"\nsteps: 50\nevery: 1\n"
             "coupling: closed\nexp_avg.min_numel: 0\nlr_scale: [1, 1e5]\n",
             &a);
    struct qm_outcome *o = calloc(2, sizeof *o);
    run_all(&a, NULL, 0, o);
    for (int i = 0; i < 2; i++) {
        const double *x = o[i].value + qm_metric_count();
        int64_t last = o[i].n_points - 1;
        double start = x[QM_EXTRA_start_gap], gap[51];
        int64_t step[51];
        assert_int_equal(o[i].diverged, i);
        assert_true(isfinite(x[QM_EXTRA_moved]) && isfinite(x[QM_EXTRA_twin_moved]));
        if (i) { /* lost: as bad as 1000 times the start, whatever came */
            assert_true(x[QM_EXTRA_gap] == 1e3 && o[i].steps < 50);
            assert_true(isinf(x[QM_EXTRA_recovery]));
            continue;
        }
        assert_int_equal(last, 50);
        assert_true(x[QM_EXTRA_gap] == o[i].track[QM_TRACK_loss][last] / start);
        assert_true(x[QM_EXTRA_twin_gap] == o[i].track[QM_TRACK_twin_loss][last] / start);
        near_to(x[QM_EXTRA_log_gap], x[QM_EXTRA_loss_ratio], 1e-14);
        for (int k = 0; k <= 50; k++) {
            step[k] = k;
            gap[k] = k ? o[i].track[QM_TRACK_loss][k] / start : 1;
        }
        for (int64_t level = 0; level < 200; level++) {
            assert_int_equal(
                qm_hitting_times_step(o[i].hits[QM_HITS_hits], o[i].n_hits[QM_HITS_hits], level),
                brute(gap, step, 51, 1, level));
            assert_int_equal(
                qm_hitting_times_step(o[i].hits[QM_HITS_hits10], o[i].n_hits[QM_HITS_hits10], level),
                brute(gap, step, 51, 10, level));
        }
    }
    for (int i = 0; i < 2; i++)
        qm_outcome_free(&o[i]);
    free(o);
    release(&a);
}

/* A peak of 4 at step 2, back at step 8; the first of two peaks; never back; never off. */
static void test_peak(void **state)
{
    const double gap[] = {1, 0.8, 2, 1.04, 0.4, 1.2}, twin[] = {1, 0.8, 0.5, 0.5, 0.39, 0.3};
    const int64_t step[] = {0, 1, 2, 4, 8, 16};
    double recovery;
    (void)state;
    for (int64_t n = 5; n <= 6; n++) {
        assert_true(qm_gap_peak(gap, twin, step, n, &recovery) == log10(4));
        assert_true(recovery == 6);
    }
    assert_true(qm_gap_peak(gap, twin, step, 4, &recovery) == log10(4) && isinf(recovery));
    assert_true(qm_gap_peak(gap, gap, step, 6, &recovery) == 0 && recovery == 0);
    assert_true(qm_gap_peak(twin, gap, step, 6, &recovery) == 0 && recovery == 0);
}

/* By the curve of every step: an 8-bit variant that a spike throws off, and that comes back. */
static void test_spiked(void **state)
{
    struct ran a;
    struct qm_outcome o;
    int64_t at = 0, back;
    (void)state;
    cells_of("variant: adamw8_bnb\nexp_avg.min_numel: 0\nexp_avg_sq.min_numel: 0\nsource: "
             "\"problem:spike:at=50,times=1e4,base=quad:n=256,layout=dct,start=normal\"\n"
             "seed: 5\nsteps: 200\nevery: 1\ncoupling: closed\nweight_decay: 0\n",
             &a);
    run_all(&a, NULL, 0, &o);
    const double *x = o.value + qm_metric_count(), *loss = o.track[QM_TRACK_loss],
                 *twin = o.track[QM_TRACK_twin_loss];
    for (int64_t k = 1; k <= 200; k++)
        at = loss[k] / twin[k] > loss[at] / twin[at] ? k : at;
    for (back = at; back <= 200 && loss[back] > 1.05 * twin[back];)
        back++;
    assert_true(at >= 50 && back > at && back <= 200);
    near_to(x[QM_EXTRA_peak], log10(loss[at] / twin[at]), 1e-12);
    assert_true(x[QM_EXTRA_recovery] == (double)(back - at));
    qm_outcome_free(&o);
    release(&a);
}

/* Sums of few powers of two, exact on both sides: the variant is its twin to the bit.  All elements
 * do the same, beyond the minimum and back, so the farthest is not the last. */
static void test_equal_sides(void **state)
{
    struct ran a;
    struct qm_outcome o;
    double p = 1, v = 0, moved = 0;
    (void)state;
    cells_of("variant: sgdm_f32\nsource: \"problem:quad:n=11,cond=1\"\nsteps: 8\nlr: 0.5\n"
             "momentum: 0.5\ncoupling: closed\nweight_decay: 0\n",
             &a);
    run_all(&a, NULL, 0, &o);
    for (int k = 0; k < 8; k++) {
        v = 0.5 * v + p;
        p -= 0.5 * v;
        moved = fmax(moved, fabs(p - 1));
    }
    const double *x = o.value + qm_metric_count();
    assert_true(x[QM_EXTRA_peak] == 0 && x[QM_EXTRA_recovery] == 0);
    assert_true(x[QM_EXTRA_moved] == moved && x[QM_EXTRA_twin_moved] == moved);
    assert_true(moved > fabs(p - 1));
    qm_outcome_free(&o);
    release(&a);
}

/* Exact Adam: the first step, spike or not, moves by lr; a spike at step t by at most
 * (1 - beta1) / sqrt(1 - beta2) lr, corrected for the bias of t steps, and by nearly as much. */
static void test_moved(void **state)
{
    struct ran a;
    struct qm_outcome o[3];
    double moved[3];
    (void)state;
    cells_of(
        "variant: adamw_f32\nsource: \"problem:spike:at=300,times=1e4,base=quad:n=61,cond=10\"\n"
        "coupling: closed\nlr: 1e-3\nweight_decay: 0\nsteps: [1, 299, 300]\n",
        &a);
    run_all(&a, NULL, 0, o);
    for (int i = 0; i < 3; i++) {
        const double *x = o[i].value + qm_metric_count();
        moved[i] = x[QM_EXTRA_twin_moved];
        near_to(x[QM_EXTRA_moved], moved[i], 6e-8 * o[i].steps); /* roundings near 1 */
        qm_outcome_free(&o[i]);
    }
    double bc = sqrt(1 - pow(0.999, 300)) / (1 - pow(0.9, 300));
    double bound = 1e-3 * 0.1 / sqrt(0.001) * bc, spike = moved[2] - moved[1];
    near_to(moved[0], 1e-3, 1e-9);
    assert_true(spike <= 1.01 * bound && spike > 0.9 * bound);
    release(&a);
}

/* The twin beside itself from a start one ulp off: near, not equal, and no codes anywhere. */
static void test_ulp(void **state)
{
    struct ran a;
    (void)state;
    cells_of("variant: [adamw_f32, lion_f32, sgdm_f32]\nstart: [problem, ulp]\nsteps: 20\n"
             "source: [\"problem:nqm:n=64\", \"problem:lowrank:n=16,p=8,q=8,init=0\"]\n"
             "coupling: closed\n",
             &a);
    struct qm_outcome *o = calloc((size_t)a.r.n_cells, sizeof *o);
    run_all(&a, NULL, 0, o);
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        double d = o[i].value[qm_metric_count() + QM_EXTRA_log_gap];
        if (a.r.cell[i].start_ulp)
            assert_true(d != 0 && fabs(d) < 1e-3);
        qm_outcome_free(&o[i]);
    }
    free(o);
    release(&a);
    cells_of("variant: adamw4_ao\nstart: ulp\nsource: \"problem:nqm:n=64\"\ncoupling: closed\n",
             &a);
    assert_non_null(strstr(a.r.cell[0].reason, "float32"));
    release(&a);
}

/* Problems whose gradients bring the plotted loss along bring that very number. */
static void test_losses_given(void **state)
{
    static const char *const args[][2] = {{"heavy", "base=nqm:n=64"},
                                          {"spike", "base=quad:n=64"},
                                          {"lowrank", "batch=0"},
                                          {"logreg", "batch=0"}};
    int given = 0;
    (void)state;
    for (int i = 0; i < qm_problem_count(); i++) {
        const struct qm_problem *p = qm_problem_at(i);
        struct qm_shape shape[QM_PROBLEM_TENSORS];
        const char *with = "";
        void *self;
        int n;
        int64_t total = 0;
        for (size_t k = 0; k < sizeof args / sizeof *args; k++)
            with = strcmp(args[k][0], p->name) == 0 ? args[k][1] : with;
        if (!p->gives_loss)
            continue;
        if (p->open(with, 3, &self, &n, shape) != QM_OK)
            fail_msg("%s", qm_message());
        assert_true(p->gives_loss(self));
        for (int k = 0; k < n; k++)
            total += qm_shape_numel(&shape[k]);
        double *x = calloc(2 * (size_t)total, sizeof *x), *g = x + total;
        p->start(self, x);
        for (int64_t t = 1; t <= 5; t++) {
            double alone = p->eval(self, x, t, NULL), with_gradient = p->eval(self, x, t, g);
            if (memcmp(&alone, &with_gradient, sizeof alone) != 0)
                fail_msg("%s: %a and %a", p->name, alone, with_gradient);
            for (int64_t k = 0; k < total; k++)
                x[k] -= 1e-3 * g[k];
        }
        given++;
        free(x);
        p->close(self);
    }
    assert_true(given >= 5);
}

/* ---- nothing is found where nothing is ------------------------------------------------------- */

/* A stochastic variant against itself with other draws of rounding, paired by data seed: alone, one
 * in twenty may differ; as one family hardly any.  The bound is four standard errors above. */
static void test_null(void **state)
{
    int comparisons = everything ? 200 : 40, seeds = everything ? 16 : 8, alone = 0, family = 0;
    char text[1024];
    struct ran a;
    struct qm_bootstrap *b;
    (void)state;
    snprintf(text, sizeof text,
             "variant: adamw4_ao\nexp_avg: \"nf4:4s/block:64/bisect/stoch/hi\"\n"
             "exp_avg_sq: \"lin:4u/block:64/bisect/stoch/hi\"\n"
             "exp_avg.min_numel: 0\nexp_avg_sq.min_numel: 0\n"
             "source: \"problem:nqm:n=256\"\nseed: 1..%d\nrounding_seed: 1..%d\nsteps: 100\n"
             "every: 100\ncoupling: closed\n",
             seeds, 2 * comparisons);
    cells_of(text, &a);
    struct qm_outcome *o = calloc((size_t)a.r.n_cells, sizeof *o);
    double *p = calloc(2 * (size_t)comparisons, sizeof *p), *q = p + comparisons, spread = 0;
    struct qm_twin_cache *twins;
    assert_int_equal(qm_twin_cache_open(0, &twins), QM_OK);
    run_all(&a, twins, 0, o);
    assert_int_equal(qm_bootstrap_open(&b), QM_OK);
    struct qm_paired *x = calloc((size_t)comparisons, sizeof *x);
    for (int k = 0; k < comparisons; k++) {
        double d[16];
        for (int s = 0; s < seeds; s++) { /* the rounding seed is the last axis */
            const struct qm_outcome *one = &o[s * 2 * comparisons + 2 * k], *two = one + 1;
            d[s] = one->value[qm_metric_count() + QM_EXTRA_log_gap] -
                   two->value[qm_metric_count() + QM_EXTRA_log_gap];
            spread += d[s] * d[s];
        }
        assert_int_equal(qm_paired_make(b, d, seeds, &x[k]), QM_OK);
        p[k] = x[k].p;
    }
    assert_true(spread > 0); /* the draws do differ */
    assert_int_equal(qm_false_discovery(p, comparisons, q), QM_OK);
    for (int k = 0; k < comparisons; k++) {
        enum qm_decision one = qm_decide(&x[k], 1e-9, nan("")), all = qm_decide(&x[k], 1e-9, q[k]);
        alone += one == QM_DECISION_better || one == QM_DECISION_worse;
        family += all == QM_DECISION_better || all == QM_DECISION_worse;
    }
    if (everything)
        printf("%d null comparisons of %d seeds: %d differ alone (%.1f %%, nominal 5), %d as one "
               "family\n",
               comparisons, seeds, alone, 100.0 * alone / comparisons, family);
    assert_true(alone <= 0.05 * comparisons + 4 * sqrt(0.05 * 0.95 * comparisons));
    assert_true(family <= 0.05 * comparisons);
    for (int64_t i = 0; i < a.r.n_cells; i++)
        qm_outcome_free(&o[i]);
    free(x);
    free(p);
    free(o);
    qm_bootstrap_close(b);
    qm_twin_cache_close(twins);
    release(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added_cells),  cmocka_unit_test(test_labels_apart),
        cmocka_unit_test(test_labels),       cmocka_unit_test(test_labels_shipped),
        cmocka_unit_test(test_suite_words),  cmocka_unit_test(test_tables),
        cmocka_unit_test(test_few),          cmocka_unit_test(test_limits),
        cmocka_unit_test(test_best_rate),    cmocka_unit_test(test_no_targets),
        cmocka_unit_test(test_budget),       cmocka_unit_test(test_twins_kept),
        cmocka_unit_test(test_gaps),         cmocka_unit_test(test_ulp),
        cmocka_unit_test(test_peak),         cmocka_unit_test(test_spiked),
        cmocka_unit_test(test_equal_sides),  cmocka_unit_test(test_moved),
        cmocka_unit_test(test_losses_given), cmocka_unit_test(test_null),
    };
    everything = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
