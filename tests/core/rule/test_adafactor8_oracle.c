/* test_adafactor8_oracle.c - Tests the oracles of the family of adafactor8bit on closed forms. */
#include "oracle/oracle.h"
#include "tests/support/adafactor8_slots.h"
#include "tests/support/expect_near.h"

static void step(const char *family, double *p, const double *g, int rank, int64_t a, int64_t b,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_shape shape = {rank, {a, b}};
    const struct qm_oracle *o = qm_oracle_find(family);
    assert_non_null(o);
    assert_int_equal(qm_oracle_step(o, p, slots, g, &shape, 0, h, t), QM_OK);
}

static const char *const families[2] = {"adafactor8", "adafactor8_021"};

/* Adafactor without first moment, weight decay, relative step and parameter scaling. */
static struct qm_oracle_hyper plain(void)
{
    return (struct qm_oracle_hyper){.lr = 0.25,
                                    .beta1 = -1.0,
                                    .beta2 = -1.0,
                                    .beta2_decay = -0.8,
                                    .eps = 1e-8,
                                    .eps1 = 1e-18,
                                    .eps2 = 1e-3,
                                    .clip = 1.0,
                                    .gap = -1.0,
                                    .scale = 1.0,
                                    .margin = 0.01,
                                    .factored = 1};
}

/* For |g| = u v^T the factored second moment is g^2, and the first step is -lr sign(g). */
static void step_of_signs(void **state)
{
    (void)state;
    const double u[3] = {1.0, 8.0, 0.5}, v[4] = {2.0, -3.0, 0.25, 7.0};
    for (int f = 0; f < 2; f++)
        for (int factored = 0; factored < 2; factored++) {
            struct qm_oracle_hyper h = plain();
            double p[12] = {0.0}, g[12];
            h.factored = factored;
            for (int i = 0; i < 12; i++)
                g[i] = u[i / 4] * v[i % 4];
            slots_reset();
            step(families[f], p, g, 2, 3, 4, &h, 1);
            for (int i = 0; i < 12; i++)
                expect_near(p[i], copysign(0.25, -g[i]), 1e-9);
            assert_true((slots[V][0] != 0.0) == !factored && (slots[ROW][0] != 0.0) == factored);
        }
}

/* With beta2 = 3/4 the first V is g^2 / 4 and |U| = 2, which d = 1 clips and d = 4 does not. */
static void clipping(void **state)
{
    (void)state;
    const double g[4] = {3.0, -5.0, 1e-3, -7e4};
    for (int f = 0; f < 2; f++)
        for (int k = 0; k < 2; k++) {
            struct qm_oracle_hyper h = plain();
            double p[4] = {0.0};
            h.beta2 = 0.75;
            h.clip = k ? 4.0 : 1.0;
            slots_reset();
            step(families[f], p, g, 1, 4, 0, &h, 1);
            for (int i = 0; i < 4; i++)
                expect_near(p[i], copysign(k ? 0.5 : 0.25, -g[i]), 1e-9);
        }
}

/* rho = min(lr, 1 / sqrt(t)) with relative_step, else lr; alpha = rho RMS(p) with
 * scale_parameter, else rho.  The decay uses alpha with scale_weight_decay, else rho. */
static void rates(void **state)
{
    (void)state;
    const double g[2] = {0.0, 0.0};
    for (int f = 0; f < 2; f++)
        for (int bits = 0; bits < 8; bits++) {
            struct qm_oracle_hyper h = plain();
            double p[2] = {3.0, -4.0}, r = sqrt(12.5);
            h.lr = 0.5;
            h.weight_decay = 0.125;
            h.relative_step = bits & 1;
            h.scale_parameter = bits >> 1 & 1;
            h.scale_weight_decay = bits >> 2 & 1;
            double rho = h.relative_step ? 0.25 : 0.5, alpha = h.scale_parameter ? r * rho : rho;
            slots_reset();
            step(families[f], p, g, 1, 2, 0, &h, 16);
            expect_near(p[0], 3.0 * (1.0 - 0.125 * (h.scale_weight_decay ? alpha : rho)), 1e-14);
            expect_near(p[1], p[0] * -4.0 / 3.0, 1e-14);
        }
}

/* With both betas fixed, Adam's bias corrections make the first step -lr sign(g). */
static void bias_correction(void **state)
{
    (void)state;
    const double g[3] = {2.0, -1e-2, 30.0};
    for (int f = 0; f < 2; f++) {
        struct qm_oracle_hyper h = plain();
        double p[3] = {0.0};
        h.beta1 = 0.9;
        h.beta2 = 0.999;
        h.clip = 1e9;
        slots_reset();
        step(families[f], p, g, 1, 3, 0, &h, 1);
        for (int i = 0; i < 3; i++)
            expect_near(p[i], copysign(0.25, -g[i]), 1e-9);
        expect_near(slots[M][2], 3.0, 1e-14);
        h.relative_step = 1; /* no corrections: U = 0.1 / sqrt(0.001), rho = min(0.25, 1) */
        double q[3] = {0.0};
        slots_reset();
        step(families[f], q, g, 1, 3, 0, &h, 1);
        expect_near(q[0], -0.25 * 0.1 / sqrt(0.001), 1e-9);
    }
}

/* With beta1 = 0, M = U = sign(g), the squared residual is eps alone, and its factors are
 * (1 - beta3) eps. */
static void confidence(void **state)
{
    (void)state;
    const double g[4] = {2.0, -4.0, 1.0, -2.0};
    for (int twice = 0; twice < 2; twice++) {
        struct qm_oracle_hyper h = plain();
        double p[4] = {0.0};
        h.beta1 = 0.0;
        h.beta3 = 0.99;
        h.eps = 1e-4;
        h.clip_twice = twice;
        slots_reset();
        step("adafactor8", p, g, 2, 2, 2, &h, 1);
        expect_near(slots[CONF_ROW][1], 1e-6, 1e-6);
        expect_near(slots[M][1], -1.0, 1e-9);
        for (int i = 0; i < 4; i++)
            expect_near(p[i], copysign(twice ? 0.25 : 250.0, -g[i]), 1e-6);
    }
}

/* CAME before 0.2.6: with beta1 = 0, M = g and nothing is missed, so that the confidence decays
 * from where it began; the step is clipped to RMS 1 whatever it is. */
static void old_confidence(void **state)
{
    (void)state;
    static const char *const releases[2] = {"adafactor8_024", "adafactor8_025"};
    const double g[4] = {2.0, -4.0, 1.0, -2.0};
    for (int f = 0; f < 2; f++) {
        struct qm_oracle_hyper h = plain();
        double p[4] = {0.0};
        h.beta1 = 0.0;
        h.beta3 = 0.99;
        slots_reset();
        for (int i = 0; i < 2; i++)
            slots[CONF_ROW][i] = slots[CONF_COL][i] = 1.0;
        step(releases[f], p, g, 2, 2, 2, &h, 1);
        expect_near(slots[CONF_ROW][1], 0.99, 1e-12);
        expect_near(slots[M][1], -4.0, 1e-12);
        for (int i = 0; i < 4; i++)
            expect_near(p[i], copysign(0.25, -g[i]), 1e-6);
    }
}

/* With P = I and no first moment, row i is scaled by sqrt(c) / |row i|, where c is the number of
 * its nonzero elements. */
static void projected(void **state)
{
    (void)state;
    const double g[6] = {3.0, 4.0, -1.0, 0.0, 5.0, 12.0}, sign[6] = {1, 1, -1, 0, 1, 1};
    for (int f = 0; f < 2; f++)
        for (int tall = 0; tall < 2; tall++) {
            struct qm_oracle_hyper h = plain();
            double p[6] = {0.0}, x[6];
            h.rank = 2.0;
            h.factored = 0;
            h.eps = 1e-300;
            slots_reset();
            slots[PROJ][0] = slots[PROJ][3] = 1.0;
            for (int i = 0; i < 6; i++)
                x[tall ? i : i % 2 * 3 + i / 2] = g[i];
            h.clip = 1e9;
            step(families[f], p, x, 2, tall ? 3 : 2, tall ? 2 : 3, &h, 1);
            for (int i = 0; i < 6; i++) {
                int row = i / 2;
                double length = hypot(g[2 * row], g[2 * row + 1]);
                double count = fabs(sign[2 * row]) + fabs(sign[2 * row + 1]);
                expect_near(p[tall ? i : i % 2 * 3 + i / 2], -0.25 * g[i] * sqrt(count) / length,
                            1e-7);
            }
            expect_near(slots[NORM][0], sqrt(5.0), 1e-7);
        }
}

/* The norm of the update grows by at most the factor 1 + margin per step, whatever the
 * gradient does. */
static void limited(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct qm_oracle_hyper h = plain();
        double p[2] = {0.0}, g[2] = {1.0, -1.0}, before = 0.0;
        h.limiter = 1;
        h.beta2 = 0.99;
        h.eps1 = 1.0; /* V is 1 while the gradient is small, so U is g and grows with it */
        h.clip = 1e9;
        slots_reset();
        for (int64_t t = 1; t <= 3; t++) {
            double old = p[0];
            g[0] = -(g[1] = -1e-4 * pow(30.0, (double)t));
            step(families[f], p, g, 1, 2, 0, &h, t);
            if (t > 1)
                expect_near(slots[NORM][0], 1.01 * (before + 1e-8), 1e-7);
            expect_near(old - p[0], 0.25 * slots[NORM][0] / sqrt(2.0), 1e-9);
            before = slots[NORM][0];
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_of_signs), cmocka_unit_test(clipping),
        cmocka_unit_test(rates),         cmocka_unit_test(bias_correction),
        cmocka_unit_test(confidence),    cmocka_unit_test(old_confidence),
        cmocka_unit_test(projected),     cmocka_unit_test(limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
