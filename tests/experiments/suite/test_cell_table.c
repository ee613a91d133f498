/* test_cell_table.c - The table of cells against a comparison of every pair, on drawn cells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/philox.h"
#include "experiments/suite/cell_table.h"
#include "experiments/suite/shared.h"

static uint32_t draw(uint32_t seed, uint32_t i, uint32_t what, uint32_t n)
{
    return qm_philox(i, what, 0, 0, seed, 77).word[0] % n;
}

/* A cell whose members have two values each, so that equal ones are frequent; index and n, which
 * do not determine a run, differ. */
static struct qm_cell cell_of(uint32_t seed, uint32_t i, const struct qm_recipe *const recipe[2])
{
    static const char *const sources[] = {"problem:quad", "problem:rosen"};
#define PICK(k, a, b) (draw(seed, i, k, 4) ? (a) : (b))
    return (struct qm_cell){.index = i,
                            .n = i,
                            .recipe = recipe[draw(seed, i, 0, 2)],
                            .source_text = qm_shared_text(PICK(1, sources[0], sources[1])),
                            .instance = PICK(2, 1, 2),
                            .seed = PICK(3, 1, UINT64_MAX),
                            .rounding_seed = PICK(4, 0, 1),
                            .lr_scale = PICK(5, 1.0, 0.5),
                            .rate = PICK(6, 1.0, 2.0),
                            .clip = PICK(7, 0.0, 1.0),
                            .warmup = PICK(8, 0, 100),
                            .steps = PICK(9, 0, 100),
                            .schedule = PICK(10, 0, 1),
                            .decay_rank = PICK(11, 0, 2),
                            .coupling = PICK(12, QM_COUPLING_closed, QM_COUPLING_local),
                            .start_ulp = PICK(13, 0, 1),
                            .slot = PICK(14, 0, 1)};
#undef PICK
}

static int is_same(const struct qm_cell *a, const struct qm_cell *b)
{
    char x[QM_RECIPE_TEXT], y[QM_RECIPE_TEXT];
    return a->instance == b->instance && a->seed == b->seed &&
           a->rounding_seed == b->rounding_seed && a->lr_scale == b->lr_scale &&
           a->rate == b->rate && a->clip == b->clip && a->warmup == b->warmup &&
           a->steps == b->steps && a->schedule == b->schedule && a->decay_rank == b->decay_rank &&
           a->coupling == b->coupling && a->start_ulp == b->start_ulp && a->slot == b->slot &&
           strcmp(a->source_text, b->source_text) == 0 &&
           strcmp(qm_recipe_print(a->recipe, x), qm_recipe_print(b->recipe, y)) == 0;
}

static void test_cell_table(void **state)
{
    enum { CELLS = 6000 };
    static struct qm_cell cell[CELLS];
    struct qm_recipe made;
    const struct qm_recipe *recipe[2];
    struct qm_cell_table t = {0};
    uint32_t seed = (uint32_t)time(NULL);
    int64_t repeated = 0;
    (void)state;
    print_message("seed %u\n", seed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(qm_recipe_parse(i ? "adamw8_bnb" : "adamw4_ao", &made), QM_OK);
        recipe[i] = qm_shared_recipe(&made);
    }
    for (int64_t i = 0; i < CELLS; i++) {
        int64_t same, first = 0;
        cell[i] = cell_of(seed, (uint32_t)i, recipe);
        while (!is_same(&cell[first], &cell[i]))
            first++;
        assert_int_equal(qm_cell_table_add(&t, cell, i, &same), QM_OK);
        assert_int_equal(same, first);
        repeated += first < i;
    }
    assert_int_equal(t.n, CELLS - repeated);
    assert_true(repeated > 100 && t.n > 1500); /* both happen, and the table has grown */
    free(t.at);
}

/* Values of axes as one number: each axis keeps its own, whatever the others are given. */
static void test_values(void **state)
{
    struct qm_suite s = {.n_axes = QM_SUITE_AXES};
    struct qm_cell c = {0};
    int value[QM_SUITE_AXES];
    uint32_t seed = (uint32_t)time(NULL);
    (void)state;
    print_message("seed %u\n", seed);
    for (int a = 0; a < QM_SUITE_AXES; a++) { /* 1 or 2, and two long ones: 5 million in all */
        s.axis[a].n = a == 3 ? 100000 : a == 20 ? 50 : 1;
        value[a] = -1;
        assert_int_equal(qm_cell_value(&s, &c, a), -1);
    }
    for (uint32_t k = 0; k < 3000; k++) {
        int a = (int)draw(seed, k, 0, QM_SUITE_AXES);
        uint32_t n = (uint32_t)s.axis[a].n;
        int last = draw(seed, k, 1, 4) == 0;
        value[a] = last ? (int)n - 1 : (int)draw(seed, k, 2, n + 1) - 1;
        qm_cell_take(&s, &c, a, value[a]);
        for (int b = 0; b < QM_SUITE_AXES; b++)
            assert_int_equal(qm_cell_value(&s, &c, b), value[b]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cell_table),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
