/* test_protocol_cells.c - Paired suites: controls, labels, and words that are refused. */
#include "tests/support/paired_cells.h"

#include <glob.h>

static int count_role(const struct paired_cells *a, enum qm_cell_role role)
{
    int n = 0;
    for (int64_t i = 0; i < a->r.n_cells; i++)
        n += a->r.cell[i].role == role;
    return n;
}

/* Null cells exist once for every source, seed, rate and hyper-parameter; cells of the error budget
 * once for every recipe that has the part. */
static void test_control_cells(void **state)
{
    struct paired_cells a;
    char label[QM_LABEL_TEXT];
    (void)state;
    cells_of("variant: [adamw4_ao, adamw8_bnb, lion8_ecc8]\n"
             "source: [\"problem:nqm:n=64\", \"problem:quad:n=64\"]\nseed: 1..3\n"
             "lr_scale: [0.5, 1]\nbeta1: [0.9, 0.8]\nrounding_seed: [7, 8]\nbudget: 1\n" PAIRED,
             &a);
    int own = 3 * 2 * 3 * 2 * 2 * 2;
    assert_int_equal(qm_plain_cell_count(a.r.cell, a.r.n_cells), own);
    /* rules adamw and lion8, two sources, three seeds, two rates, two beta1; one rounding seed */
    assert_int_equal(count_role(&a, QM_CELL_float32), 2 * 2 * 3 * 2 * 2);
    assert_int_equal(count_role(&a, QM_CELL_ulp), 2 * 2 * 3 * 2 * 2);
    /* two slots; two slots; float16 scales and the parameter (this rule has no residual when its
     * states are float32); at lr_scale 1 */
    assert_int_equal(count_role(&a, QM_CELL_without), (2 + 2 + 2) * 2 * 3 * 2 * 2);
    for (int64_t i = 0; i < own; i++) {
        const struct qm_cell *c = &a.r.cell[i], *full = &a.r.cell[c->float32];
        assert_int_equal(c->index, i);
        assert_true(full->seed == c->seed && full->lr_scale == c->lr_scale && !full->start_ulp);
        assert_true(a.r.cell[c->ulp].start_ulp && qm_recipe_is_full(full->recipe));
        assert_true(full->recipe->hyper.beta1 == c->recipe->hyper.beta1);
        assert_string_equal(full->recipe->rule->family, c->recipe->rule->family);
        assert_string_equal(full->source_text, c->source_text);
        enum qm_budget part = qm_cell_value(a.s, c, 0) == 2 ? QM_BUDGET_scales : QM_BUDGET_first;
        assert_true((c->without[part] >= 0) == (c->lr_scale == 1.0));
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

/* The label of a null pair differs from that of every variant and of null pairs with other
 * hyper-parameters: for rules without a float32 variant of their own, two sets of hyper-parameters,
 * and a variant whose label is that of the null. */
static void test_labels_apart(void **state)
{
    static const char *const suites[] = {
        "variant: [adafactor8_022, adam4_ao, lion8_ecc8, adam8_ao]\n",
        "variant: [adamw_f32, adamw4_ao, slow: \"adamw8_bnb,eps=1e-4\", \"adamw_f32,beta1=0.5\"]\n",
        "variant: [adamw_f32: adamw4_ao, adamw8_bnb]\n"};
    char first[QM_LABEL_TEXT], second[QM_LABEL_TEXT], texts[2][QM_RECIPE_TEXT];
    (void)state;
    for (size_t k = 0; k < sizeof suites / sizeof *suites; k++) {
        struct paired_cells a;
        char text[512];
        snprintf(text, sizeof text, "%ssource: \"problem:nqm:n=64\"\n" PAIRED, suites[k]);
        cells_of(text, &a);
        for (int64_t i = 0; i < a.r.n_cells; i++)
            for (int64_t j = 0; j < i; j++) {
                const struct qm_cell *x = &a.r.cell[i], *y = &a.r.cell[j];
                int same = strcmp(qm_cell_label(a.s, x, first), qm_cell_label(a.s, y, second)) == 0;
                if (same && (x->role != y->role || strcmp(qm_recipe_print(x->recipe, texts[0]),
                                                          qm_recipe_print(y->recipe, texts[1]))))
                    fail_msg("%s and %s are both '%s'", texts[0], texts[1], first);
            }
        release(&a);
    }
    struct paired_cells a;
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

/* Checks that no two runs of one problem, seed and rate share a label. */
static void labels_apart(const struct paired_cells *a)
{
    for (int64_t i = 0; i < a->r.n_cells; i++)
        for (int64_t k = 0; k < i; k++) {
            const struct qm_cell *x = &a->r.cell[i], *y = &a->r.cell[k];
            char of_x[QM_LABEL_TEXT], of_y[QM_LABEL_TEXT];
            if (x->reason || y->reason || x->seed != y->seed || x->lr_scale != y->lr_scale ||
                x->warmup != y->warmup || x->decay_rank != y->decay_rank || x->steps != y->steps ||
                x->schedule != y->schedule || x->clip != y->clip || x->instance != y->instance ||
                strcmp(x->source_text, y->source_text) != 0)
                continue;
            if (strcmp(qm_cell_label(a->s, x, of_x), qm_cell_label(a->s, y, of_y)) == 0)
                fail_msg("cells %d and %d are both '%s'", (int)i, (int)k, of_x);
        }
}

/* Labels of the nulls of a rule without a float32 variant, of other hyper-parameters, and of a
 * variant that an axis of one value changes; none is averaged with the variant itself. */
static void test_labels(void **state)
{
    struct paired_cells a;
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

/* Whether some state of a tensor of this problem has the format that the recipe asks for. */
static int has_format(const struct qm_cell *c)
{
    struct qm_shape shape[QM_PROBLEM_TENSORS];
    void *self;
    int n, found = c->recipe->param.format != QM_PARAM_f32, asks = found;
    for (int i = 0; i < c->recipe->rule->n_slots; i++)
        asks |= c->recipe->slot[i].bits > 0;
    if (!asks)
        return 1;
    assert_int_equal(c->problem->open(c->problem_args, 1, &self, &n, shape), QM_OK);
    for (int t = 0; t < n; t++)
        for (int i = 0; i < c->recipe->rule->n_slots; i++)
            found |= qm_recipe_slot(c->recipe, i, &shape[t]).bits > 0;
    c->problem->close(self);
    return found;
}

/* Checks that in no cell all tensors fall back to float32, because its verdict would
 * mean nothing. */
static void formats_used(const struct paired_cells *a)
{
    for (int64_t i = 0; i < qm_plain_cell_count(a->r.cell, a->r.n_cells); i++)
        if (!a->r.cell[i].reason && a->r.cell[i].lr_scale == 1.0 && !has_format(&a->r.cell[i]))
            fail_msg("%s: cell %d, %s: float32 on %s", a->s->stem, (int)i,
                     a->r.cell[i].recipe->base->name, a->r.cell[i].source_text);
}

/* Labels and formats of the shipped paired suites, with one seed each. */
static void test_labels_shipped(void **state)
{
    glob_t found;
    (void)state;
    assert_int_equal(glob("experiments/suites/*.yaml", 0, NULL, &found), 0);
    int paired = 0;
    for (size_t i = 0; i < 2 * found.gl_pathc; i++) {
        struct paired_cells a = {0};
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
            free(a.r.cell);
            seed->n = seeds; /* freeing the suite needs the old number */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_cells), cmocka_unit_test(test_labels_apart),
        cmocka_unit_test(test_labels),        cmocka_unit_test(test_labels_shipped),
        cmocka_unit_test(test_suite_words),
    };
    return cmocka_run_group_tests(tests, make_suite_file, remove_suite_file);
}
