/* test_microadam.c - Tests the oracle of MicroAdam on closed forms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oracle/oracle.h"
#include "oracle/rule/microadam.h"

static struct qm_oracle_hyper hyper(void)
{
    return (struct qm_oracle_hyper){
        .lr = 0.5, .beta1 = 0.5, .beta2 = 0.75, .window = 3, .k_init = 0.25, .d_block = 4};
}

static void step(const struct qm_oracle_hyper *h, int64_t n, int64_t t, double *p,
                 double *const *slot, const double *g)
{
    const struct qm_shape shape = {1, {n}};
    assert_int_equal(qm_oracle_step(qm_oracle_find("microadam"), p, slot, g, &shape, 0, h, t),
                     QM_OK);
}

/* Two blocks of 4 and one of 2: one element of each, the lower index of a tie. */
static void test_choice(void **state)
{
    struct qm_oracle_hyper h = hyper();
    double g[10] = {1, -3, 3, 0, 5, 5, -5, 4, 0, -1}, p[10] = {0}, e[10] = {0}, index[9], value[9];
    double *slot[] = {e, index, value};
    const double left[10] = {1, 0, 3, 0, 0, 5, -5, 4, 0, 0};
    (void)state;
    memset(index, 0, sizeof index);
    memset(value, 0, sizeof value);
    step(&h, 10, 1, p, slot, g);
    assert_memory_equal(e, left, sizeof e);
    assert_true(index[0] == 1 && index[1] == 0 && index[2] == 1);
    assert_true(value[0] == -3 && value[1] == 5 && value[2] == -1);
    for (int i = 0; i < 10; i++) /* c1 g / sqrt(c2 g^2), c1 = c2 = 1 */
        assert_true(p[i] == (i == 1 || i == 9 ? 0.5 : i == 4 ? -0.5 : 0.0));
    assert_int_equal(qm_microadam_row(&h, 10), 3);
    h.d_block = 100;
    assert_int_equal(qm_microadam_row(&h, 10), 3);
    assert_int_equal(qm_microadam_row(&h, 0), 0);
}

/* One element that every step takes: m and s are the geometric sums of the window. */
static void test_window(void **state)
{
    struct qm_oracle_hyper h = hyper();
    double p = 0.0, e = 0.0, index[3] = {0}, value[3] = {0}, *slot[] = {&e, index, value};
    const double g[5] = {1, 2, -4, 8, 0.5};
    (void)state;
    for (int t = 1; t <= 5; t++) {
        double m = 0.0, s = 0.0, u;
        for (int j = t > 3 ? t - 2 : 1; j <= t; j++) {
            m += pow(0.5, t - j) * g[j - 1];
            s += pow(0.75, t - j) * g[j - 1] * g[j - 1];
        }
        u = 0.5 / (1.0 - pow(0.5, t)) * m / sqrt(0.25 / (1.0 - pow(0.75, t)) * s);
        p = 0.0;
        step(&h, 1, t, &p, slot, &g[t - 1]);
        assert_true(fabs(p + 0.5 * u) <= 0x1p-9 * fabs(u) && e == 0.0);
        assert_true(value[(t - 1) % 3] == g[t - 1]);
    }
}

/* Decay, and alpha: a share of what is left enters the step and leaves the error. */
static void test_alpha(void **state)
{
    struct qm_oracle_hyper h = hyper();
    double g[4] = {8, 1, 2, -4}, p[4] = {4, 4, 4, 4}, e[4] = {0}, index[3] = {0}, value[3] = {0};
    double *slot[] = {e, index, value};
    (void)state;
    h.alpha = 0.25;
    h.weight_decay = 0.5;
    step(&h, 4, 1, p, slot, g);
    assert_true(p[0] == 3 - 0.5 && p[1] == 3 - 0.125 && p[2] == 3 - 0.25 && p[3] == 3 + 0.5);
    assert_true(e[0] == 0 && e[1] == 0.75 && e[2] == 1.5 && e[3] == -3);
}

/* NaN is the largest, then Inf. */
static void test_largest(void **state)
{
    const double x[5] = {1.0, -HUGE_VAL, (double)NAN, 2.0, -1e300};
    int64_t pick[3];
    (void)state;
    assert_int_equal(qm_microadam_largest(x, 5, 1, pick), QM_OK);
    assert_int_equal(pick[0], 2);
    assert_int_equal(qm_microadam_largest(x, 5, 3, pick), QM_OK);
    assert_true(pick[0] == 1 && pick[1] == 2 && pick[2] == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_alpha),
        cmocka_unit_test(test_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
