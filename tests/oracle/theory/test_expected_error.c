/* test_expected_error.c - Tests expected errors on exact cases, closed forms and simulation. */
#include <gsl/gsl_cdf.h>

#include "core/base/philox.h"
#include "tests/support/expected_error_cases.h"

static const struct qm_law every_law[] = {
    {QM_LAW_normal, 0.0},    {QM_LAW_laplace, 0.0},  {QM_LAW_uniform, 0.0}, {QM_LAW_student, 3.0},
    {QM_LAW_student, 8.0},   {QM_LAW_student, 40.0}, {QM_LAW_chisq, 1.0},   {QM_LAW_lognormal, 1.0},
    {QM_LAW_lognormal, 2.0}, {QM_LAW_lognormal, 4.0}};
enum { LAWS = sizeof every_law / sizeof *every_law };

/* A codebook of the single value 0 has e = -x for every block size. */
static void nothing_kept(void **state)
{
    (void)state;
    static const double zero[1] = {0.0};
    static const int64_t block[] = {0, 1, 2, 7, 64, 1000, 100000};
    for (int i = 0; i < LAWS; i++)
        for (size_t j = 0; j < sizeof block / sizeof *block; j++) {
            struct qm_theory t;
            assert_int_equal(qm_theory_block(&every_law[i], zero, NULL, 1, block[j], &t), QM_OK);
            near_to("nmse of 0", t.nmse, 1.0, 1e-9, 0.0);
            near_to("P(0) of 0", t.zero, 1.0, 1e-10, 0.0);
            near_to("entropy of 0", t.entropy, 0.0, 0.0, 1e-9);
            if (qm_law_sign(&every_law[i]))
                near_to("bias of 0", t.bias, 0.0, 0.0, 1e-12);
        }
}

/* Maxima with a closed form: B / (B + 1) and B / (B + 2) for uniform, the harmonic number for
 * Laplace; E M of chi-squared with 1 degree of freedom is E M^2 of the normal law. */
static void maxima(void **state)
{
    (void)state;
    struct codebook b = codebook_of("lin", 4, 1);
    double harmonic = 0.0;
    for (int64_t n = 1; n <= 64; n++) {
        harmonic += 1.0 / (double)n;
        if (n != 1 && n != 3 && n != 64)
            continue;
        struct qm_theory u = theory(&every_law[2], &b, n), l = theory(&every_law[1], &b, n);
        near_to("uniform E M", u.max1, (double)n / ((double)n + 1.0), 1e-11, 0.0);
        near_to("uniform E M^2", u.max2, (double)n / ((double)n + 2.0), 1e-11, 0.0);
        near_to("laplace E M", l.max1, harmonic, 1e-11, 0.0);
        near_to("chisq1 E M", theory(&every_law[6], &b, n).max1, theory(&every_law[0], &b, n).max2,
                1e-11, 0.0);
    }
}

/* Mass, second moment and entropy of every law against sums over its variable z; chi-squared with
 * two degrees of freedom is 2 |Laplace|. */
static void laws(void **state)
{
    (void)state;
    static const struct qm_law more[] = {
        {QM_LAW_chisq, 2.0}, {QM_LAW_chisq, 39.0}, {QM_LAW_chisq, 1999.0}};
    for (int i = 0; i < LAWS + 3; i++) {
        const struct qm_law *law = i < LAWS ? &every_law[i] : &more[i - LAWS];
        enum { STEPS = 200000 };
        double low, high, step, one = 0.0, square = 0.0, entropy = 0.0;
        qm_law_range(law, &low, &high, &step);
        for (int k = 0; k < STEPS; k++) {
            double z = low + (high - low) * (k + 0.5) / STEPS, x = qm_law_at(law, z);
            double mass = qm_law_density(law, z) * (high - low) / STEPS, pdf = qm_law_pdf(law, x);
            one += mass;
            square += mass * x * x;
            if (pdf > 0.0)
                entropy -= mass * log(qm_law_sign(law) ? 0.5 * pdf : pdf);
        }
        near_to("mass", one, 1.0, 0.0, 1e-6);
        if (qm_law_square(law) > 0.0 && (law->kind != QM_LAW_student || law->shape > 4.0))
            near_to("square", square, qm_law_square(law), 1e-6, 0.0);
        near_to("entropy", entropy, qm_law_entropy(law), 0.0, 1e-4);
    }
    struct codebook b = codebook_of("dyn", 4, 0);
    struct qm_theory two = theory(&more[0], &b, 64);
    near_to("chisq 2 E M", two.max1, 2.0 * theory(&every_law[1], &b, 64).max1, 1e-11, 0.0);
    struct qm_law bad = {QM_LAW_chisq, 0.5};
    assert_int_equal(qm_law_check(&bad), QM_BAD_ARG);
}

/* Without blocks and with at most three levels the expectations are elementary. */
static void by_hand(void **state)
{
    (void)state;
    struct codebook sign = {2, {-1.0, 1.0}, {0.0}}, three = {3, {-1.0, 0.0, 1.0}, {-0.5, 0.5}};
    struct qm_theory t = theory(&normal, &sign, 0);
    near_to("sign mse", t.mse, 2.0 - 2.0 * sqrt(M_2_PI), 1e-12, 0.0);
    near_to("sign entropy", t.entropy, 1.0, 1e-12, 0.0);
    near_to("sign unit", t.unit_mse, t.mse, 1e-15, 0.0);
    t = theory(&every_law[2], &three, 0); /* uniform: every |x - level| is uniform on (0, 1/2) */
    near_to("three mse", t.mse, 1.0 / 12.0, 1e-12, 0.0);
    near_to("three |e|", t.mean_abs, 0.25, 1e-12, 0.0);
    near_to("three P(0)", t.zero, 0.5, 1e-12, 0.0);
    near_to("three entropy", t.entropy, 1.5, 1e-12, 0.0);
    /* in blocks of uniform data the others are uniform below the maximum, which has no error */
    t = theory(&every_law[2], &three, 9);
    near_to("three, blocks, mse", t.mse, 8.0 / 9.0 * (9.0 / 11.0) / 12.0, 1e-11, 0.0);
    near_to("three, blocks, |e|", t.mean_abs, 8.0 / 9.0 * (9.0 / 10.0) / 4.0, 1e-11, 0.0);
    near_to("three, blocks, P(0)", t.zero, 4.0 / 9.0, 1e-11, 0.0);
    /* laplace without blocks: P(|x| < 1/2) */
    t = theory(&every_law[1], &three, 0);
    near_to("laplace P(0)", t.zero, -expm1(-0.5), 1e-12, 0.0);
    struct codebook half = {
        1, {0.25}, {0.0}};               /* rho of x uniform below its maximum cannot be had: */
    t = theory(&every_law[6], &half, 0); /* chisq1: sqrt(x / c) - 1 = 2 |z| - 1 */
    near_to("rho", t.rho, sqrt(5.0 - 4.0 * sqrt(M_2_PI)), 1e-12, 0.0);
    assert_true(isnan(theory(&normal, &half, 0).rho));
    near_to("lognormal rho", theory(&every_law[8], &half, 0).rho,
            sqrt(4.0 * exp(2.0) - 4.0 * exp(0.5) + 1.0), 1e-11, 0.0);
}

static double draw(uint64_t stream, int64_t i)
{
    return ((double)qm_philox_stream(20240229u, stream, (uint64_t)i) + 0.5) / 4294967296.0;
}

static double sample(const struct qm_law *law, int64_t i)
{
    double z = gsl_cdf_ugaussian_Pinv(draw(0, i));
    switch (law->kind) {
    case QM_LAW_laplace: return (draw(1, i) < 0.5 ? 1.0 : -1.0) * log(draw(0, i));
    case QM_LAW_uniform: return 2.0 * draw(0, i) - 1.0;
    case QM_LAW_student: return gsl_cdf_tdist_Pinv(draw(0, i), law->shape);
    case QM_LAW_chisq: return z * z;
    case QM_LAW_lognormal: return exp(law->shape * z);
    default: return z;
    }
}

/* Means over simulated blocks are within 4.5 standard errors (of block means) of
 * the expectations. */
static void simulation(void **state)
{
    (void)state;
    static const struct qm_law laws[] = {{QM_LAW_laplace, 0.0},
                                         {QM_LAW_uniform, 0.0},
                                         {QM_LAW_student, 3.0},
                                         {QM_LAW_lognormal, 1.0}};
    enum { BLOCK = 48, BLOCKS = 3000, FIGURES = 5 };
    for (int l = 0; l < 4; l++) {
        struct codebook b = codebook_of("dyn", 4, qm_law_sign(&laws[l]));
        struct qm_theory t = theory(&laws[l], &b, BLOCK);
        const double want[FIGURES] = {t.unit_mse, t.unit_bias, t.mean_abs, t.zero, t.max1};
        double sum[FIGURES] = {0}, square[FIGURES] = {0};
        for (int64_t j = 0; j < BLOCKS; j++) {
            double x[BLOCK], m = 0.0, got[FIGURES] = {0};
            for (int i = 0; i < BLOCK; i++)
                m = fmax(m, fabs(x[i] = sample(&laws[l], j * BLOCK + i)));
            for (int i = 0; i < BLOCK; i++) {
                double u = x[i] / m, q = b.value[qm_oracle_nearest(b.value, b.n, u, -1)];
                got[0] += (q - u) * (q - u) / BLOCK;
                got[1] += (q - u) / BLOCK;
                got[2] += m * fabs(q - u) / BLOCK;
                got[3] += (q == 0.0) / (double)BLOCK;
            }
            got[4] = m;
            for (int f = 0; f < FIGURES; f++) {
                sum[f] += got[f];
                square[f] += got[f] * got[f];
            }
        }
        for (int f = 0; f < FIGURES; f++) {
            double mean = sum[f] / BLOCKS;
            double se = sqrt((square[f] / BLOCKS - mean * mean) / (BLOCKS - 1));
            near_to("simulated", mean, want[f], 0.0, 4.5 * se);
        }
    }
}

/* Stochastic rounding of uniform data has E e^2 = gap^2 / 6, E e = 0 and E |e| = gap / 3 in
 * every cell. */
static void stochastic_rounding(void **state)
{
    (void)state;
    struct codebook b = codebook_of("lin", 4, 1), three = {3, {-1.0, 0.0, 1.0}, {-0.5, 0.5}};
    struct qm_theory t;
    double gap = 2.0 / 15.0;
    assert_int_equal(qm_theory_block(&every_law[2], b.value, NULL, b.n, 0, &t), QM_OK);
    near_to("uniform mse", t.mse, gap * gap / 6.0, 1e-11, 0.0);
    near_to("uniform |e|", t.mean_abs, gap / 3.0, 1e-11, 0.0);
    near_to("uniform bias", t.bias, 0.0, 0.0, 1e-13);
    for (int i = 0; i < 6; i++) { /* ends at -1 and 1: unbiased for every law */
        assert_int_equal(qm_theory_block(&every_law[i], b.value, NULL, b.n, 64, &t), QM_OK);
        near_to("bias", t.bias, 0.0, 0.0, 1e-12);
    }
    /* three levels: P(0) = 1 - E |u|, and E |x| given max 1 of two is 1/2, with the maximum 3/4 */
    assert_int_equal(qm_theory_block(&every_law[2], three.value, NULL, 3, 2, &t), QM_OK);
    near_to("P(0)", t.zero, 0.25, 1e-11, 0.0);
    /* beyond the ends: the end values */
    struct codebook half = {2, {-0.5, 0.5}, {0.0}};
    assert_int_equal(qm_theory_block(&every_law[2], half.value, NULL, 2, 0, &t), QM_OK);
    near_to("clamped", t.mse, 0.5 / 12.0 + 0.5 * (1.0 / 6.0), 1e-11, 0.0);
}

/* A simulated moving average of normal inputs in blocks of 64, requantized with stochastic rounding
 * at every step, reaches the NMSE qm_ema_steady of the codebook's NMSE by quadrature. */
static void steady_state(void **state)
{
    (void)state;
    enum { BLOCK = 64, BLOCKS = 400, STEPS = 120 };
    const double beta = 0.9;
    static const struct {
        const char *map;
        int bits;
    } maps[] = {{"nf4", 4}, {"int", 8}};
    for (size_t f = 0; f < sizeof maps / sizeof *maps; f++) {
        struct codebook b = codebook_of(maps[f].map, maps[f].bits, 1);
        struct qm_theory t;
        assert_int_equal(qm_theory_block(&normal, b.value, NULL, b.n, BLOCK, &t), QM_OK);
        double want = qm_ema_steady(beta, t.nmse), sum = 0.0, squares = 0.0;
        for (int64_t j = 0; j < BLOCKS; j++) {
            double s[BLOCK] = {0}, q[BLOCK] = {0}, r = 0.0;
            for (int64_t step = 0; step < STEPS; step++) {
                double m = 0.0;
                for (int64_t i = 0; i < BLOCK; i++) {
                    int64_t at = (j * STEPS + step) * BLOCK + i;
                    double x = gsl_cdf_ugaussian_Pinv(draw(2, at));
                    s[i] = beta * s[i] + (1.0 - beta) * x;
                    m = fmax(m, fabs(q[i] = beta * q[i] + (1.0 - beta) * x));
                }
                for (int64_t i = 0; i < BLOCK; i++) {
                    int k = 0;
                    while (k + 2 < b.n && q[i] / m >= b.value[k + 1])
                        k++;
                    double up = (q[i] / m - b.value[k]) / (b.value[k + 1] - b.value[k]);
                    k += draw(3, (j * STEPS + step) * BLOCK + i) < up;
                    q[i] = m * b.value[k];
                    if (step == STEPS - 1) /* its mean is 0 if the formula holds */
                        r += (q[i] - s[i]) * (q[i] - s[i]) - want * s[i] * s[i];
                }
            }
            sum += r;
            squares += r * r;
        }
        double mean = sum / BLOCKS, se = sqrt((squares / BLOCKS - mean * mean) / (BLOCKS - 1));
        near_to(maps[f].map, mean, 0.0, 0.0, 4.0 * se);
        assert_true(se < 0.03 * want * BLOCK * (1.0 - beta) /
                             (1.0 + beta)); /* detects a deviation of 12 per cent */
    }
    assert_true(qm_ema_steady(0.99, 0.05) == HUGE_VAL);
    /* small errors are white: variance 1 / (1 - beta^2) */
    near_to("small errors", qm_ema_steady(0.9, 1e-9), 1e-9 / (1.0 - 0.9 * 0.9), 1e-7, 0.0);
}

static void infinite_moments(void **state)
{
    (void)state;
    struct qm_law cauchy = {QM_LAW_student, 1.0}, two = {QM_LAW_student, 1.5};
    struct codebook b = codebook_of("nf4", 4, 1);
    struct qm_theory t = theory(&two, &b, 64);
    assert_true(isnan(t.mse) && isnan(t.nmse) && isnan(t.sqnr_db) && isnan(t.max2));
    assert_true(isfinite(t.mean_abs) && isfinite(t.max1) && t.unit_mse > 0.0 && t.entropy > 0.0);
    t = theory(&cauchy, &b, 64);
    assert_true(isnan(t.mean_abs) && isnan(t.bias) && isnan(t.max1));
    assert_true(t.zero > 0.0 && t.zero < 1.0);
    /* Cauchy, one other element: |y| <= |x| with density ratio known; P(u in zero cell) by hand */
    struct codebook three = {3, {-1.0, 0.0, 1.0}, {-0.5, 0.5}};
    t = theory(&cauchy, &three, 2); /* half of P(min / max < 1/2) */
    double sum = 0.0; /* E over M of atan(M/2)/atan(M), density 2 (2/pi) G / (1 + m^2), m = tan a */
    enum { STEPS = 20000 };
    for (int i = 0; i < STEPS; i++) {
        double a = (i + 0.5) * M_PI_2 / STEPS;
        sum += 2.0 * M_2_PI * M_2_PI * atan(0.5 * tan(a)) * M_PI_2 / STEPS;
    }
    near_to("Cauchy P(0)", t.zero, 0.5 * sum, 1e-8, 0.0);
}

static void bad_arguments(void **state)
{
    (void)state;
    struct codebook b = codebook_of("nf4", 4, 1);
    struct qm_theory t = {.mse = 7.0};
    struct qm_law law = {QM_LAW_student, -1.0};
    assert_int_equal(qm_theory_block(&law, b.value, b.cut, b.n, 64, &t), QM_BAD_ARG);
    law.shape = (double)NAN;
    assert_int_equal(qm_theory_block(&law, b.value, b.cut, b.n, 64, &t), QM_BAD_ARG);
    law.kind = QM_LAW_lognormal;
    law.shape = 0.0;
    assert_int_equal(qm_theory_block(&law, b.value, b.cut, b.n, 64, &t), QM_BAD_ARG);
    assert_int_equal(qm_theory_block(&normal, b.value, b.cut, 0, 64, &t), QM_BAD_ARG);
    assert_int_equal(qm_theory_block(&normal, b.value, b.cut, b.n, -1, &t), QM_BAD_ARG);
    b.cut[3] = (double)NAN;
    assert_int_equal(qm_theory_block(&normal, b.value, b.cut, b.n, 64, &t), QM_BAD_ARG);
    b = codebook_of("nf4", 4, 1);
    b.value[3] = b.value[5];
    assert_int_equal(qm_theory_block(&normal, b.value, b.cut, b.n, 64, &t), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "entry 4"));
    assert_true(t.mse == 7.0); /* untouched on failure */
}

/* Half of the gap between the code nearest to u and the next one. */
static double half_gap(const char *map, int bits, int sign, double u)
{
    struct codebook b = codebook_of(map, bits, sign);
    int k = qm_oracle_nearest(b.value, b.n, u, -1);
    return 0.5 * (b.value[k + 1] - b.value[k]);
}

static void dead_zones(void **state)
{
    (void)state;
    static const struct {
        const char *map;
        int bits, sign;
        double u, gap, need[4], digit; /* digit: of need[0], tenfold for need[2] on */
    } want[] = {
        {"nf4", 4, 1, 0.0, 0.0398, {0.40, 0.80, 3.98, 39.8}, 0.005},
        {"nf4", 4, 1, 0.72, 0.139, {1.39, 2.77, 13.9, 139}, 0.005},
        {"nf4", 4, 1, -1.0, 0.152, {1.52, 3.04, 15.2, 152}, 0.005},
        {"int", 4, 1, 0.3, 0.0714, {0.71, 1.43, 7.1, 71}, 0.005},
        {"lin", 4, 0, 0.3, 0.03125, {0.31, 0.63, 3.1, 31}, 0.005},
        {"dyn", 8, 1, 0.5, 0.00703, {0.070, 0.14, 0.70, 7.0}, 0.005},
        {"dyn", 8, 0, 0.5, 0.00352, {0.035, 0.070, 0.35, 3.5}, 0.0005},
        {"lin0", 8, 0, 0.3, 0.00196, {0.020, 0.039, 0.20, 1.96}, 0.0005},
        {"int", 8, 1, 0.3, 0.00394, {0.039, 0.079, 0.39, 3.9}, 0.0005},
    };
    static const double beta[4] = {0.9, 0.95, 0.99, 0.999};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double gap = half_gap(want[i].map, want[i].bits, want[i].sign, want[i].u);
        near_to(want[i].map, gap, want[i].gap, 4e-3, 0.0);
        for (int j = 0; j < 4; j++)
            near_to(want[i].map, qm_ema_dead_zone(beta[j], gap), want[i].need[j], 0.0,
                    want[i].digit * (j < 2    ? 1.01
                                     : j == 2 ? 10.1
                                              : 101.0));
    }
    near_to("U8 decay stops", qm_ema_dead_zone(0.95, half_gap("lin0", 8, 0, 0.03)), 0.0392, 0.0,
            5.1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_kept),  cmocka_unit_test(maxima),
        cmocka_unit_test(laws),          cmocka_unit_test(by_hand),
        cmocka_unit_test(simulation),    cmocka_unit_test(stochastic_rounding),
        cmocka_unit_test(steady_state),  cmocka_unit_test(infinite_moments),
        cmocka_unit_test(bad_arguments), cmocka_unit_test(dead_zones),
    };
    return cmocka_run_group_tests_name("theory", tests, NULL, NULL);
}
