/* test_stats.c - Hitting times, intervals and decisions against brute force, closed forms, tables.
 *
 * `test_stats all` takes 200,000 samples per coverage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/lockstep/hitting_times.h"
#include "experiments/protocol/stats.h"

static int everything;

static void near_to(double x, double want, double within)
{
    if (!(fabs(x - want) <= within))
        fail_msg("%.10g, want %.10g within %g", x, want, within);
}

/* ---- first hits ------------------------------------------------------------------------------ */

/* The hitting time of a level by its definition: the first step from which on `persistence` gaps
 * are at most the level's. */
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

static void test_hits(void **state)
{
    enum { N = 300 };
    static const int persistence[] = {1, 2, 10};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    double gap[N];
    int64_t step[N];
    (void)state;
    for (int trial = 0; trial < 60; trial++) {
        double log_gap = 0;
        for (int k = 0; k < N; k++) { /* a walk down that turns back, with holes */
            gap[k] = pow(10, log_gap);
            log_gap += gsl_ran_gaussian(rng, 0.03) - 0.01 * (trial % 4);
            step[k] = k * (1 + trial % 3);
            if (trial % 5 == 4 && k % 37 == 36)
                gap[k] = k % 2 ? nan("") : HUGE_VAL;
        }
        if (trial % 7 == 0)
            for (int k = 1; k < N; k += 3) /* exactly on levels */
                gap[k] = qm_level_gap(k / 2);
        for (int p = 0; p < 3; p++) {
            double *stair;
            int64_t n, deepest = -1;
            assert_int_equal(qm_hitting_times_make(gap, step, N, persistence[p], &n, &stair),
                             QM_OK);
            for (int64_t level = 0; level < 700; level++) {
                int64_t want = brute(gap, step, N, persistence[p], level);
                assert_int_equal(qm_hitting_times_step(stair, n, level), want);
                deepest = want >= 0 ? level : deepest;
            }
            assert_int_equal(qm_hitting_times_level(stair, n), deepest);
            for (int64_t i = 2; i < n; i += 2)
                assert_true(stair[i] > stair[i - 2] && stair[i + 1] > stair[i - 1]);
            free(stair);
        }
    }
    gsl_rng_free(rng);
}

/* The mean of a constant ratio is its log10; a ratio that grows like t^a has the mean
 * (a / 2) log10 T. */
static void test_area(void **state)
{
    enum { N = 1001 };
    double gap[N], twin[N];
    int64_t step[N];
    (void)state;
    for (int k = 0; k < N; k++) {
        step[k] = k;
        twin[k] = 1.0 / (1 + k);
        gap[k] = 2 * twin[k];
    }
    near_to(qm_gap_area(gap, twin, step, N), log10(2), 1e-14);
    for (int k = 0; k < N; k++)
        gap[k] = twin[k] * pow(k, 0.3);
    near_to(qm_gap_area(gap, twin, step, N), 0.15 * 3, 1e-13);
    near_to(qm_gap_area(gap, twin, step, 2), 0, 1e-15);
    double mean = qm_gap_area(gap, twin, step, N);
    int64_t n = 1;
    for (int k = 1; k < N; k *= 10, n++) { /* few looks, far apart: trapezoids of a straight line */
        step[n] = k;
        gap[n] = pow(k, 0.3);
        twin[n] = 1;
    }
    near_to(qm_gap_area(gap, twin, step, n), mean, 1e-13);
}

/* The late gap by its definition, for drawn steps. */
static void test_late(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        double gap[64], sum = 0;
        int64_t step[64], n = 1 + (int64_t)gsl_rng_uniform_int(rng, 63), count = 0;
        for (int64_t i = 0; i < n; i++) {
            gap[i] = gsl_rng_uniform(rng);
            step[i] = i ? step[i - 1] + 1 + (int64_t)gsl_rng_uniform_int(rng, 9) : 0;
        }
        for (int64_t i = n - 1; i >= 0; i--)
            if (i == n - 1 || (double)step[i] > 0.875 * (double)step[n - 1]) {
                sum += gap[i];
                count++;
            }
        near_to(qm_late_gap(gap, step, n), sum / (double)count, 1e-14);
    }
    gsl_rng_free(rng);
}

/* ---- intervals ------------------------------------------------------------------------------- */

/* Laws of d: normal, log-normal, and normal with one number in ten 20 standard deviations off. */
enum { LAW_normal, LAW_lognormal, LAW_outliers, LAWS };

static double drawn(gsl_rng *rng, int law)
{
    double z = gsl_ran_ugaussian(rng);
    return law == LAW_lognormal  ? exp(z)
           : law == LAW_outliers ? z + (gsl_rng_uniform(rng) < 0.1 ? 20 : 0)
                                 : z;
}

/* P(d <= x), and E(d; d <= x), of the laws. */
static double below(int law, double x)
{
    return law == LAW_lognormal ? x <= 0 ? 0 : gsl_cdf_ugaussian_P(log(x))
           : law == LAW_normal ? gsl_cdf_ugaussian_P(x)
                                : 0.9 * gsl_cdf_ugaussian_P(x) + 0.1 * gsl_cdf_ugaussian_P(x - 20);
}

static double part(int law, double x)
{
    return law == LAW_lognormal ? x <= 0 ? 0 : exp(0.5) * gsl_cdf_ugaussian_P(log(x) - 1)
           : law == LAW_normal
               ? -gsl_ran_ugaussian_pdf(x)
               : -0.9 * gsl_ran_ugaussian_pdf(x) +
                     0.1 * (20 * gsl_cdf_ugaussian_P(x - 20) - gsl_ran_ugaussian_pdf(x - 20));
}

/* The mean of d between its quantiles 0.2 and 0.8: what the intervals are to cover. */
static double trimmed_mean(int law)
{
    double end[2];
    for (int i = 0; i < 2; i++) {
        double lo = -50, hi = 50;
        for (int k = 0; k < 100; k++) {
            double mid = 0.5 * (lo + hi);
            *(below(law, mid) < (i ? 0.8 : 0.2) ? &lo : &hi) = mid;
        }
        end[i] = lo;
    }
    return (part(law, end[1]) - part(law, end[0])) / 0.6;
}

static double coverage(gsl_rng *rng, int law, int64_t n, int samples)
{
    double d[64], want = trimmed_mean(law);
    int held = 0;
    for (int s = 0; s < samples; s++) {
        struct qm_paired x;
        for (int64_t i = 0; i < n; i++)
            d[i] = drawn(rng, law);
        assert_int_equal(qm_paired_make(d, n, &x), QM_OK);
        assert_true(x.lo95 <= x.lo90 && x.lo90 <= x.hi90 && x.hi90 <= x.hi95);
        assert_true((x.p < 0.05) == (x.lo95 > 0 || x.hi95 < 0));
        held += x.lo95 <= want && want <= x.hi95;
    }
    return (double)held / samples;
}

/* Nominal 95 % intervals hold at least 93 % of normal, of log-normal d and of d with one outlier in
 * ten, at 8 and at 16 pairs.  The allowance is three standard errors of the measured share. */
static void test_coverage(void **state)
{
    static const char *const names[] = {"normal", "log-normal", "10 % outliers"};
    int samples = everything ? 200000 : 4000;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    (void)state;
    gsl_rng_set(rng, 20261122);
    for (int law = 0; law < LAWS; law++)
        for (int n = 8; n <= 16; n += 8) {
            double c = coverage(rng, law, n, samples);
            printf("%s, n = %d: %.4f of 0.95\n", names[law], n, c);
            assert_true(c >= 0.93 - 3 * sqrt(0.93 * 0.07 / samples));
            assert_true(c <= 0.985);
        }
    gsl_rng_free(rng);
}

/* Two levels: I instances of n seeds, d = instance's part + seed's part.  The interval holds 95 %
 * whatever share of the spread is the instances'; one level does not.  Laws of both parts are
 * normal, for which the t interval of the instances' means is exact but for the trimming. */
static void test_levels(void **state)
{
    int samples = everything ? 100000 : 3000;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    double d[64];
    int at[64];
    (void)state;
    gsl_rng_set(rng, 4);
    for (int part_of = 0; part_of < 3; part_of++) {
        double own = part_of * 0.5;
        int held = 0, held_alone = 0;
        for (int s = 0; s < samples; s++) {
            struct qm_paired two, one;
            for (int i = 0; i < 4; i++) {
                double shift = own * gsl_ran_ugaussian(rng);
                for (int k = 0; k < 16; k++) {
                    d[16 * i + k] = shift + gsl_ran_ugaussian(rng);
                    at[16 * i + k] = 7 - i;
                }
            }
            assert_int_equal(qm_paired_levels(d, at, 64, &two), QM_OK);
            assert_int_equal(qm_paired_make(d, 64, &one), QM_OK);
            assert_true(two.n == 64 && two.df == 3 && two.far == one.far && two.sd == one.sd);
            held += two.lo95 <= 0 && two.hi95 >= 0;
            held_alone += one.lo95 <= 0 && one.hi95 >= 0;
        }
        double c = (double)held / samples, alone = (double)held_alone / samples;
        printf("instances' share %.1f: %.3f of 0.95, in one level %.3f\n", own, c, alone);
        near_to(c, 0.95, 4 * sqrt(0.95 * 0.05 / samples) + 0.003);
        assert_true(part_of == 0 ? alone > 0.93 : alone < 0.75);
    }
    gsl_rng_free(rng);
}

/* p has no floor: a lone effect passes a family of any size, with 8 pairs. */
static void test_lone_effect(void **state)
{
    enum { FAMILY = 5000 };
    const double d[] = {1, 1.01, .99, 1.02, .98, 1.005, .995, 1.015};
    double *p = calloc(2 * FAMILY, sizeof *p), *q = p + FAMILY;
    struct qm_paired x;
    (void)state;
    assert_int_equal(qm_paired_make(d, 8, &x), QM_OK);
    p[0] = x.p;
    for (int i = 1; i < FAMILY; i++)
        p[i] = (double)i / FAMILY;
    assert_int_equal(qm_false_discovery(p, FAMILY, q), QM_OK);
    assert_true(x.p > 0 && x.p < 1e-7 && q[0] < 0.001 && q[1] > 0.4);
    free(p);
}

/* By hand: of 1, ..., 9, 100 the middle six are 3 to 8; Winsorized they are 3 3 3 4 5 6 7 8 8 8,
 * whose sum of squares about 5.5 is 42.5; h (h - 1) is 30, and 0.6^2 n (n - 1) is 32.4.  Student's
 * t at 97.5 % with 5 degrees of freedom is 2.5706. */
static void test_by_hand(void **state)
{
    const double d[] = {100, 2, 3, 4, 5, 6, 7, 8, 9, 1};
    struct qm_paired x;
    (void)state;
    assert_int_equal(qm_paired_make(d, 10, &x), QM_OK);
    near_to(x.mean, 5.5, 1e-15);
    near_to(x.plain_mean, 14.5, 1e-14);
    near_to(x.error, sqrt(42.5 / 30), 1e-14);
    near_to(x.df, 5, 0);
    near_to(x.hi95, 5.5 + 2.570581836 * sqrt(42.5 / 30), 1e-8);
    assert_int_equal(x.far, 1); /* the median is 5.5, the median distance 2.5 */
}

static void test_paired_edges(void **state)
{
    struct qm_paired x, y;
    const double one[] = {0.5}, same[] = {0.25, 0.25, 0.25, 0.25, 0.25, 0.25};
    double d[16];
    (void)state;
    assert_int_equal(qm_paired_make(NULL, 0, &x), QM_OK);
    assert_true(x.n == 0 && isnan(x.mean) && isnan(x.lo95) && isnan(x.p));
    assert_int_equal(qm_paired_make(one, 1, &x), QM_OK);
    assert_true(x.mean == 0.5 && isinf(x.lo95) && isinf(x.hi90) && isinf(x.median_lo));
    assert_int_equal(qm_paired_make(same, 6, &x), QM_OK);
    assert_true(x.mean == 0.25 && x.lo95 == 0.25 && x.hi90 == 0.25 && x.p < 1e-3);
    for (int i = 0; i < 16; i++)
        d[i] = sin(1 + 3 * i) + 0.4;
    assert_int_equal(qm_paired_make(d, 16, &x), QM_OK);
    for (int i = 0; i < 16; i++) /* what scales d scales all but p; the other sign mirrors all */
        d[i] *= -4;
    assert_int_equal(qm_paired_make(d, 16, &y), QM_OK);
    near_to(y.lo95, -4 * x.hi95, 1e-12);
    near_to(y.hi90, -4 * x.lo90, 1e-12);
    near_to(y.p, x.p, 1e-12);
    assert_true(y.median_lo == -4 * x.median_hi);
}

/* Quantiles between order statistics, of which the outer ones may be infinite. */
static void test_quantiles(void **state)
{
    const double x[] = {-HUGE_VAL, 1, 3, HUGE_VAL}, y[] = {2};
    (void)state;
    near_to(qm_quantile(x, 4, 0.5), 2, 1e-15);
    near_to(qm_quantile(x, 4, 1 / 3.0), 1, 1e-15);
    assert_true(qm_quantile(x, 4, 0.1) == -HUGE_VAL && qm_quantile(x, 4, 0.9) == HUGE_VAL);
    assert_true(qm_quantile(x, 4, 0) == -HUGE_VAL && qm_quantile(x, 4, 1) == HUGE_VAL);
    assert_true(qm_quantile(y, 1, 0.7) == 2 && isnan(qm_quantile(y, 0, 0.7)));
}

/* All patterns of n signs about the median are equally likely; counts those that the
 * ranks enclose. */
static void test_median_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= 14; n++)
        for (int rank = 0; 2 * rank <= n; rank++) {
            int64_t held = 0;
            for (int pattern = 0; pattern < 1 << n; pattern++) {
                int below = __builtin_popcount((unsigned)pattern);
                held += below >= rank && n - below >= rank;
            }
            near_to(qm_median_coverage(n, rank), ldexp((double)held, -n), 1e-12);
        }
    /* tables of the sign test: 5 is too few for 95 %, 6 is not */
    assert_int_equal(qm_median_rank(5, 0.95), 0);
    assert_int_equal(qm_median_rank(6, 0.95), 1);
    assert_int_equal(qm_median_rank(8, 0.95), 1);
    assert_int_equal(qm_median_rank(9, 0.95), 2);
    assert_int_equal(qm_median_rank(16, 0.95), 4);
    assert_int_equal(qm_median_rank(32, 0.95), 10);
    near_to(qm_median_coverage(16, 4), 1 - 2 * (1 + 16 + 120 + 560) / 65536.0, 1e-15);
}

/* The published table: 80 % power, two-sided 5 %, in standard deviations of d. */
static void test_detectable(void **state)
{
    static const struct {
        int n;
        double effect;
    } want[] = {{5, 1.68}, {8, 1.16}, {10, 1.00}, {16, 0.75}, {20, 0.66}, {32, 0.51}, {64, 0.36}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        near_to(qm_detectable(want[i].n - 1, 0.05, 0.8) / sqrt(want[i].n), want[i].effect, 0.006);
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* The example of Benjamini and Hochberg (1995), table 1: the first four of fifteen at 5 %. */
static void test_false_discovery(void **state)
{
    static const double p[] = {.0344, .0001, .0095, .0019, .0004, .0201, .0278, .0298,
                               .0459, .3240, .4262, .5719, .6528, .7590, 1.0};
    double q[17], with_none[17];
    int found = 0;
    (void)state;
    assert_int_equal(qm_false_discovery(p, 15, q), QM_OK);
    for (int i = 0; i < 15; i++)
        found += q[i] <= 0.05;
    assert_int_equal(found, 4);
    near_to(q[1], .0001 * 15, 1e-15);
    near_to(q[4], .0004 * 15 / 2, 1e-15);
    near_to(q[3], .0019 * 15 / 3, 1e-15);
    near_to(q[2], .0095 * 15 / 4, 1e-15);
    near_to(q[5], .0201 * 15 / 5, 1e-15);
    near_to(q[6], .0298 * 15 / 7, 1e-15); /* not .0278 * 15 / 6: the next is smaller */
    near_to(q[14], 1, 0);
    memcpy(with_none, p, sizeof p);
    with_none[15] = with_none[16] = nan("");
    double q2[17];
    assert_int_equal(qm_false_discovery(with_none, 17, q2), QM_OK);
    assert_memory_equal(q, q2, 15 * sizeof *q);
    assert_true(isnan(q2[15]) && isnan(q2[16]));
    assert_int_equal(qm_false_discovery(p, 0, q), QM_OK);
}

static void test_decide(void **state)
{
    static const struct {
        int n;
        double lo95, lo90, hi90, hi95, q;
        enum qm_decision want;
    } cases[] = {
        {16, -.03, -.02, .02, .03, .5, QM_DECISION_equivalent}, /* the 90 % interval counts */
        {16, -.03, -.021, .0, .01, .5, QM_DECISION_equivalent},
        {16, .001, .002, .01, .02, .001, QM_DECISION_equivalent}, /* other than 0, yet within */
        {16, -.03, -.0212, .02, .03, .5, QM_DECISION_undecided},
        {16, .001, .002, .0213, .03, .05, QM_DECISION_worse},
        {16, .001, .002, .0213, .03, .051, QM_DECISION_undecided}, /* lost to the family */
        {16, .001, .002, .0213, .03, (double)NAN, QM_DECISION_worse},
        {16, 0, .002, .0213, .03, .01, QM_DECISION_undecided},
        {16, -1, -.9, -.2, -.1, .01, QM_DECISION_better},
        {16, -1, -.9, .2, .1, .01, QM_DECISION_undecided},
        {6, 1, 1, 1, 1, .01, QM_DECISION_worse},
        {5, 1, 1, 1, 1, .01, QM_DECISION_few},
        {5, 0, 0, 0, 0, .01, QM_DECISION_few},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qm_paired x = {.n = cases[i].n,
                              .lo95 = cases[i].lo95,
                              .lo90 = cases[i].lo90,
                              .hi90 = cases[i].hi90,
                              .hi95 = cases[i].hi95};
        if (qm_decide(&x, 0.0211, cases[i].q) != cases[i].want)
            fail_msg("case %zu: %s", i, qm_decision_text(qm_decide(&x, 0.0211, cases[i].q)));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits),       cmocka_unit_test(test_area),
        cmocka_unit_test(test_coverage),   cmocka_unit_test(test_paired_edges),
        cmocka_unit_test(test_levels),     cmocka_unit_test(test_lone_effect),
        cmocka_unit_test(test_by_hand),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_quantiles),  cmocka_unit_test(test_median_ranks),
        cmocka_unit_test(test_detectable), cmocka_unit_test(test_false_discovery),
        cmocka_unit_test(test_decide),
    };
    everything = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
