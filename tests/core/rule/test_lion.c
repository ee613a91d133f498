/* test_lion.c - Tests Lion in float32: its signs at 0 and NaN, and the rule against the oracle. */
#include "tests/support/expect_near.h"
#include "tests/support/rule_pair.h"

static void lion(void **state)
{
    (void)state;
    struct qm_hyper h = plain(1e-2);
    h.beta2 = 0.99;
    h.weight_decay = 0.1;
    struct pair *q = pair_open("lion", &h, 1, 5, 0, 0);
    const float g[5] = {3.0f, -1e-30f, 0.0f, -0.0f, NAN};
    for (int i = 0; i < 5; i++) {
        q->g[i] = g[i];
        q->p[i] = 1.0f;
    }
    take_over(q);
    assert_int_equal(step_float(q, 1), QM_OK);
    assert_int_equal(step_double(q, 1), QM_OK);
    static const double step[5] = {1e-2, -1e-2, 0.0, 0.0, 0.0}; /* sign(0) = sign(NaN) = 0 */
    for (int i = 0; i < 5; i++) {
        expect_near(q->p64[i], 0.999 - step[i], 1e-15);
        expect_near((double)q->p[i], 0.999 - step[i], 2e-7);
        if (i < 4)
            expect_near((double)q->slot[0][i], 0.01 * (double)g[i], 2e-7);
    }
    assert_true(isnan((double)q->slot[0][4]) && isnan(q->slot64[0][4]));
    free(q);
}

/* The signs of rule and oracle differ only where the interpolation is within its rounding error
 * of 0; elsewhere the steps are equal. */
static void lion_signs(void **state)
{
    (void)state;
    struct qm_hyper h = plain(1e-2);
    h.beta2 = 0.99;
    struct pair *q = pair_open("lion", &h, 1, ROOM, 0, 0);
    for (int64_t t = 1; t <= 50; t++) {
        draw(q->g, q->n, 300 + (uint64_t)t, 1.0);
        take_over(q);
        assert_int_equal(step_float(q, t), QM_OK);
        assert_int_equal(step_double(q, t), QM_OK);
        for (int i = 0; i < ROOM; i++) {
            double m = (q->slot64[0][i] - (1.0 - 0.99) * (double)q->g[i]) / 0.99;
            double u = 0.9 * m + (1.0 - 0.9) * (double)q->g[i];
            double bound = 4.0 * 0x1p-24 * (fabs(0.9 * m) + fabs(0.1 * (double)q->g[i]));
            if (fabs(u) > bound)
                assert_true(fabs((double)q->p[i] - q->p64[i]) <= 1e-6);
        }
    }
    free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lion),
        cmocka_unit_test(lion_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
