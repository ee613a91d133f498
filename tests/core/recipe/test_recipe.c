/* test_recipe.c - The overrides that switch off fallbacks to plain floats, for every variant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <gsl/gsl_rng.h>
#include <stdio.h>
#include <string.h>

#include "core/recipe/recipe.h"

enum { SEED = 20261122, SHAPES = 40 };

/* A vector or matrix of 1 to some 10,000 elements; small dims are as likely as large ones. */
static struct qm_shape drawn(gsl_rng *rng)
{
    struct qm_shape s = {.rank = 1 + (int)gsl_rng_uniform_int(rng, 2)};
    for (int i = 0; i < s.rank; i++)
        s.dim[i] = 1 + (int64_t)gsl_rng_uniform_int(rng, 1UL << gsl_rng_uniform_int(rng, 14));
    return s;
}

/* With min_numel=0,whole_blocks=0 (and Shampoo's own min_lowbit=1) every slot has the quantizer
 * that the recipe names, whatever the shape (of norm divblock, with the shape's blocks); the text
 * says so and parses back.  Without them some shape of some variant does not. */
static void test_no_fallback(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    int fell_back = 0;
    char text[QM_RECIPE_TEXT], again[QM_RECIPE_TEXT];
    (void)state;
    gsl_rng_set(rng, SEED);
    printf("shapes drawn with seed %d\n", SEED);
    for (int v = 0; v < qm_variant_count(); v++) {
        struct qm_recipe own, forced, read;
        const char *name = qm_variant_at(v)->name;
        assert_int_equal(qm_recipe_parse(name, &own), QM_OK);
        snprintf(text, sizeof text, "%s,min_numel=0,whole_blocks=0%s", name,
                 qm_rule_reads(own.rule, "min_lowbit") ? ",min_lowbit=1" : "");
        assert_int_equal(qm_recipe_parse(text, &forced), QM_OK);
        if (qm_recipe_parse(qm_recipe_print(&forced, text), &read) != QM_OK)
            fail_msg("%s: %s", text, qm_message());
        assert_string_equal(text, qm_recipe_print(&read, again));
        for (int k = 0; k < SHAPES; k++) {
            struct qm_shape shape = drawn(rng);
            for (int i = 0; i < own.rule->n_slots; i++) {
                struct qm_quantizer q = qm_recipe_slot(&read, i, &shape),
                                    p = qm_recipe_slot(&own, i, &shape),
                                    want = qm_quantizer_at(&own.slot[i], &shape);
                if (!qm_quantizer_equal(&q, &want))
                    fail_msg("%s: slot %d falls back", text, i);
                fell_back += !qm_quantizer_equal(&p, &want);
            }
        }
    }
    assert_true(fell_back > 100);
    gsl_rng_free(rng);
}

/* One slot alone, the value 1, and values that are refused. */
static void test_words(void **state)
{
    struct qm_recipe r;
    const struct qm_shape odd = {1, {4097}};
    char text[QM_RECIPE_TEXT];
    (void)state;
    assert_int_equal(qm_recipe_parse("adamw4_ao,exp_avg.whole_blocks=0", &r), QM_OK);
    assert_int_equal(qm_recipe_slot(&r, 0, &odd).bits, 4);
    assert_int_equal(qm_recipe_slot(&r, 1, &odd).bits, 0);
    assert_string_equal(qm_recipe_print(&r, text), "adamw4_ao,exp_avg.whole_blocks=0");
    assert_int_equal(qm_recipe_set(&r, "whole_blocks", "1"), QM_OK);
    assert_int_equal(qm_recipe_slot(&r, 0, &odd).bits, 0);
    assert_string_equal(qm_recipe_print(&r, text), "adamw4_ao");
    assert_int_equal(qm_recipe_set(&r, "whole_blocks", "2"), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "expected 0 or 1"));
    assert_int_equal(qm_recipe_set(&r, "exp_avg.whole_blocks", "no"), QM_BAD_ARG);
    assert_int_equal(qm_recipe_set(&r, "min_numel", "-1"), QM_BAD_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_fallback),
                                       cmocka_unit_test(test_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
