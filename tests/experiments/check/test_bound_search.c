/* test_bound_search.c - Tests that the search for the inputs nearest a bound finds wrong steps, and
 * calls no right one wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "experiments/check/bound_search.h"

static struct qm_subject subject_of(const char *recipe, void (*alter)(struct qm_recipe *))
{
    struct qm_subject s = {.backend = &qm_backend_cpu, .alter = alter};
    assert_int_equal(qm_recipe_parse(recipe, &s.recipe), QM_OK);
    return s;
}

static void slightly_larger_rate(struct qm_recipe *r) { r->hyper.lr *= 1.0 + 0x1p-18; }

/* The error for a rule whose bound is wider, because it sums over the tensor. */
static void larger_rate(struct qm_recipe *r) { r->hyper.lr *= 1.0 + 0x1p-17; }

static void slightly_larger_beta(struct qm_recipe *r) { r->hyper.beta2 += 0x1p-21; }

/* The changes are of the size of a few roundings: ordinary inputs hide them. */
static void test_small_errors_are_found(void **state)
{
    static const struct {
        const char *recipe;
        void (*alter)(struct qm_recipe *);
        enum qm_bound_states states;
    } bad[] = {{"adamw_f32", slightly_larger_rate, QM_BOUND_STATES_own},
               {"adamw4_ao", slightly_larger_rate, QM_BOUND_STATES_forced},
               {"lion8_bnb", slightly_larger_beta, QM_BOUND_STATES_f32},
               {"adafactor_hf", larger_rate, QM_BOUND_STATES_own}};
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct qm_subject s = subject_of(bad[k].recipe, bad[k].alter);
        struct qm_bound_search_found f;
        assert_int_equal(qm_bound_search(&s, bad[k].states, 1.0, 3, &f), QM_OK);
        if (!(f.ratio > 1.0))
            fail_msg("%s: %g of the bound after %lld steps", bad[k].recipe, f.ratio,
                     (long long)f.steps);
        assert_true(*f.what && *f.start);
    }
}

static void test_right_steps_stay_within(void **state)
{
    static const char *const good[] = {"adamw4_ao", "lion8_bnb", "adafactor_torch", "came_f32"};
    (void)state;
    for (size_t k = 0; k < sizeof good / sizeof *good; k++)
        for (int states = 0; states < QM_BOUND_STATES_COUNT; states++) {
            struct qm_subject s = subject_of(good[k], NULL);
            struct qm_bound_search_found f;
            qm_status st = qm_bound_search(&s, (enum qm_bound_states)states, 0.4, 3, &f);
            if (st == QM_SKIPPED)
                continue;
            assert_int_equal(st, QM_OK);
            if (!(f.ratio > 0.25 && f.ratio <= 1.0) || *f.failure)
                fail_msg("%s, %s: %g of the bound; %s %s", good[k], qm_bound_states_names[states],
                         f.ratio, f.what, f.failure);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_errors_are_found),
                                       cmocka_unit_test(test_right_steps_stay_within)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
