/* test_baseline.c - The errors of a step against those of the float32 step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "experiments/check/judge.h"
#include "experiments/check/slot.h"

/* Errors of known size, 2^-10 and 2^-20 of every number; steps where an error is 0 are left out. */
static void test_rmse(void **state)
{
    struct qm_rmse r = {0};
    const double want[4] = {1.0, -2.0, 4.0, 0.0}, none[4] = {0.0};
    float near[4], far[4], exact[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        exact[i] = (float)want[i];
        near[i] = (float)(want[i] * (1.0 + 0x1p-20));
        far[i] = (float)(want[i] * (1.0 + 0x1p-10));
    }
    assert_true(isnan(qm_rmse_ratio(&r)));
    qm_rmse_add(&r, far, near, want, 4);
    qm_rmse_add(&r, exact, near, want, 4);
    qm_rmse_add(&r, far, exact, want, 4);
    qm_rmse_add(&r, far, near, none, 4);
    assert_int_equal(r.steps, 1);
    assert_float_equal(qm_rmse_ratio(&r), 1024.0, 1e-9);
    assert_float_equal(qm_rmse_judged(&r), 0x1p-10, 1e-15);
    qm_rmse_add(&r, near, near, want, 4); /* geometric mean of 1024 and 1 */
    assert_float_equal(qm_rmse_ratio(&r), 32.0, 1e-9);
    assert_float_equal(r.worst, 1024.0, 1e-9);
}

static void no_decay(struct qm_recipe *r) { r->hyper.weight_decay = 0.0; }

/* A float32 variant has the ratio 1.  4-bit states do not change the parameter's ratio, and their
 * own is above 1e5.  A missing decay, a parameter of 16 bits and codes that are read back raise
 * the parameter's. */
static void test_rmse_of_variants(void **state)
{
    static const struct {
        const char *recipe;
        void (*alter)(struct qm_recipe *r);
        double least, most; /* range of the parameter's ratio */
        double state;       /* least ratio of the first slot; 1: exactly 1 */
    } rows[] = {
        {"adamw_f32", NULL, 1.0, 1.0, 1.0},   {"came_f32", NULL, 1.0, 1.0, 1.0},
        {"adamw4_ao", NULL, 1.0, 1.0, 1e5},   {"adamw_f32", no_decay, 100.0, 1e6, 1.0},
        {"lion8_ecc8", NULL, 10.0, 1e3, 1e3}, {"adafactor8_024", NULL, 100.0, 1e6, 0.0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const char *const cases[] = {"61x67/normal/default/t1/forced",
                                            "53x47/normal/wd/t1000000/forced"};
        struct qm_subject s = {.backend = &qm_backend_cpu, .alter = rows[i].alter};
        struct qm_tally t;
        assert_int_equal(qm_recipe_parse(rows[i].recipe, &s.recipe), QM_OK);
        assert_int_equal(qm_judge_begin(&s, &t), QM_OK);
        for (int k = 0; k < 2; k++) {
            struct qm_case c;
            assert_int_equal(qm_case_parse(cases[k], &c), QM_OK);
            assert_int_equal(qm_judge_case(&s, &c, 3, &t), QM_OK);
        }
        const struct qm_rmse *p = &t.rmse[QM_MAX_SLOTS];
        double ratio = qm_rmse_ratio(p), first = qm_rmse_ratio(&t.rmse[0]);
        assert_int_equal(p->steps, 2 * QM_CHECK_STEPS);
        if (!(ratio >= rows[i].least && ratio <= rows[i].most))
            fail_msg("%s: ratio of the parameter %g", rows[i].recipe, ratio);
        if (rows[i].state == 1.0 ? first != 1.0 : first < rows[i].state)
            fail_msg("%s: ratio of the first state %g", rows[i].recipe, first);
    }
}

/* Texts of findings have no sign of a NaN and no range of equal ends. */
static void test_finding_text(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"scale 3 is 0x1p+0, want 0x1.2p-40 to 0x1.2p-40", "scale 3 is 0x1p+0, want 0x1.2p-40"},
        {"want 1e-12 to 1e-12; p -nan, g nan, q -nan", "want 1e-12; p nan, g nan, q nan"},
        {"want -0x1p-3 to 0x1p-3, k 1 to 11", "want -0x1p-3 to 0x1p-3, k 1 to 11"},
        {"unit value 1 to 1, scale 2 to 3", "unit value 1, scale 2 to 3"},
        {"code 3 to ", "code 3 to "}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct qm_finding f = {.severity = 0};
        assert_int_equal(qm_finding_set(&f, QM_BAD_BOUND, "%s", texts[i][0]), 1);
        assert_string_equal(f.text, texts[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmse),
        cmocka_unit_test(test_finding_text),
        cmocka_unit_test(test_rmse_of_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
