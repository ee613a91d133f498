/* test_prove_step.c - Proofs of whole steps and of stochastic rounding hold, and find
 * planted bugs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <omp.h>

#include "experiments/prove/stoch.h"
#include "experiments/prove/triples.h"
#include "oracle/codebook/unbiased_test.h"

/* ---- whole steps ----------------------------------------------------------------------------- */

static struct qm_recipe recipe(const char *text)
{
    struct qm_recipe r;
    if (qm_recipe_parse(text, &r) != QM_OK)
        fail_msg("%s", qm_message());
    return r;
}

static const float one[2] = {1.0f, 1.0f};

static struct qm_triples_tally run(const char *text, const struct qm_recipe *runs,
                                   const float *maxima)
{
    struct qm_recipe r = recipe(text);
    struct qm_triples_tally t;
    if (qm_triples_run(&r, runs, maxima, 10, 0.5f, NULL, NULL, &t) != QM_OK)
        fail_msg("%s: %s", text, qm_message());
    return t;
}

/* Recipes with one slot of 4 bits have 16 x 65,536 triples. */
static void one_slot_steps_are_proved(void **state)
{
    static const char *const texts[] = {"ema4_nf4", "ema4_nf4a8", "ema4_uniform", "sgdm4_lpmm",
                                        "ema4_nf4,exp_avg.search=argmin"};
    static const float maxima[][2] = {
        {1.0f, 1.0f}, {1.7e-3f, 1.0f}, {0x1p-130f, 1.0f}, {3e38f, 1.0f}};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (size_t k = 0; k < sizeof maxima / sizeof *maxima; k++) {
            struct qm_triples_tally t = run(texts[i], NULL, maxima[k]);
            if (!qm_triples_hold(&t))
                fail_msg("%s: %s", texts[i], t.finding);
            assert_int_equal(t.triples, 1 << 20);
            /* All but two infinite gradients are judged, NaN included (i 0, k 0: 16 codes). */
            assert_true(i + k > 0 || t.unbounded == 2 * 16);
            assert_true(t.verdict[QM_VERDICT_EQUAL] > 900000 && t.judged > 3000000);
        }
}

static void threads_do_not_matter(void **state)
{
    int threads = omp_get_max_threads();
    struct qm_recipe wrong = recipe("ema4_nf4,exp_avg.round=floor");
    (void)state;
    omp_set_num_threads(1);
    struct qm_triples_tally a = run("ema4_nf4", &wrong, one);
    omp_set_num_threads(2);
    struct qm_triples_tally b = run("ema4_nf4", &wrong, one);
    omp_set_num_threads(threads);
    assert_int_equal(a.worst_at, b.worst_at);
    assert_string_equal(a.finding, b.finding);
    assert_memory_equal(a.verdict, b.verdict, sizeof a.verdict);
    assert_true(a.worst_ratio == b.worst_ratio && a.judged == b.judged);
}

/* Bugs of codes: another round, another search, another table, another code of NaN. */
static void wrong_encoders_are_seen(void **state)
{
    static const char *const runs[] = {"ema4_nf4,exp_avg.round=floor",
                                       "ema4_nf4,exp_avg.round=ceil", "ema4_nf4,exp_avg.map=nf4a8",
                                       "ema4_nf4,exp_avg.scale=nantop"};
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct qm_recipe wrong = recipe(runs[i]), r = recipe("ema4_nf4");
        struct qm_triples_tally t;
        qm_status st = qm_triples_run(&r, &wrong, one, 10, 0.5f, NULL, NULL, &t);
        if (i == 2) { /* the table differs from the definition */
            assert_int_equal(st, QM_CHECK_FAILED);
            continue;
        }
        assert_int_equal(st, QM_OK);
        assert_false(qm_triples_hold(&t));
        assert_int_equal(t.out_of_bound, 0);
        assert_true(t.verdict[QM_VERDICT_OFF_BY_ONE] + t.verdict[QM_VERDICT_WRONG] >= 254);
    }
}

/* Curves that act before and after the scale, and scales of 16 bits. */
static void curves_are_proved_and_others_seen(void **state)
{
    static const char *const texts[][2] = {
        {"rmsprop8_bnb,square_avg=lin:4u/block:256/bisect/mid/sqrt",
         "rmsprop8_bnb,square_avg=lin:4u/block:256/bisect/mid"},
        {"ema4_nf4,exp_avg.curve=softsign", "ema4_nf4"},
        {"ema4_nf4,exp_avg=lint:5s/block:128/bisect/mid/softsign/f16",
         "ema4_nf4,exp_avg=lint:5s/block:128/bisect/floor/softsign/f16"}};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct qm_triples_tally t = run(texts[i][0], NULL, (float[]){1.7e-3f, 1.0f});
        if (!qm_triples_hold(&t))
            fail_msg("%s: %s", texts[i][0], t.finding);
        assert_true(t.verdict[QM_VERDICT_EQUAL] > 700000);
        struct qm_recipe wrong = recipe(texts[i][1]);
        t = run(texts[i][0], &wrong, one);
        assert_false(qm_triples_hold(&t));
    }
}

/* The thresholds of adafactor8bit 0.2.4 where the nearest code is claimed. */
static void a_ladder_in_place_of_the_nearest_is_seen(void **state)
{
    struct qm_recipe ladder = recipe("ema4_nf4a8");
    struct qm_triples_tally t = run("ema4_nf4a8,exp_avg.search=scan", &ladder, one);
    (void)state;
    assert_false(qm_triples_hold(&t));
    assert_true(t.verdict[QM_VERDICT_OFF_BY_ONE] > 100);
}

static void (*right_block)(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                           float *const *slot);
static int bug;

/* Runs the rule, then plants one bug. */
static void wrong_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                        float *const *slot)
{
    right_block(s, n, p, g, slot);
    for (int64_t i = 0; i < n; i++) {
        float *m = &slot[0][i];
        if (bug == 1) /* the state is truncated to bfloat16 */
            *m = qm_float(qm_bits(*m) & 0xffff0000u);
        if (bug == 2 && g[i] == 0.375f) /* four ulp for one gradient of 65,536 */
            *m = qm_float(qm_bits(*m) + 4);
        if (bug == 3 && g[i] == 0.0f) /* the average does not decay where the gradient is 0 */
            *m = slot[0][i] / 0.9f;
        if (bug == 4) /* the parameter moves */
            p[i] += 0x1p-20f;
    }
}

static void wrong_updates_are_seen(void **state)
{
    struct qm_recipe wrong = recipe("ema4_nf4");
    struct qm_rule rule = *wrong.rule;
    (void)state;
    struct qm_elementwise_ops ops = *rule.elementwise;
    right_block = ops.block;
    ops.block = wrong_block;
    rule.elementwise = &ops;
    wrong.rule = &rule;
    for (bug = 0; bug <= 4; bug++) {
        struct qm_triples_tally t = run("ema4_nf4", &wrong, one);
        assert_int_equal(qm_triples_hold(&t), bug == 0);
        assert_int_equal(t.out_of_bound > 0, bug > 0);
        if (bug == 2) /* except at m = 0, where four ulp have no effect */
            assert_true(t.out_of_bound >= 14 && t.out_of_bound <= 16);
    }
}

static void what_has_no_such_domain_says_why(void **state)
{
    static const char *const texts[] = {"adamw_f32", "adamw4_lpmm_factor", "flash_adamw",
                                        "adamw8_bnb_cuda", "adamw4_ao,param=bf16/stoch"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct qm_recipe r = recipe(texts[i]);
        int64_t n;
        assert_int_equal(qm_triples_count(&r, &n), QM_SKIPPED);
        assert_true(strlen(qm_message()) > 20);
    }
    struct qm_recipe r = recipe("adamw8_ao");
    int64_t n;
    assert_int_equal(qm_triples_count(&r, &n), QM_OK);
    assert_int_equal(n, (int64_t)1 << 32);
}

/* ---- 16 random bits -------------------------------------------------------------------------- */

static int64_t ups_exact(const void *of, uint32_t base, uint32_t f)
{
    int64_t sum = 0;
    (void)of, (void)base;
    for (uint32_t draw = 0; draw < 65536; draw++)
        sum += draw < f;
    return sum;
}

/* Counts with eight random bits in the upper half of sixteen. */
static int64_t ups_short(const void *of, uint32_t base, uint32_t f)
{
    int64_t sum = 0;
    (void)of, (void)base;
    for (uint32_t draw = 0; draw < 65536; draw++)
        sum += (f + ((draw & 0xffu) << 8)) >> 16;
    return sum;
}

static int64_t ups_no_less(const void *of, uint32_t base, uint32_t f) /* <= instead of < */
{
    return ups_exact(of, base, f) + 1;
}

static void draws_of_16_bits_are_counted(void **state)
{
    struct qm_bf16_deviations e;
    (void)state;
    qm_bf16_deviations_count(ups_exact, NULL, 0, &e);
    assert_true(e.worst == 0 && e.sum == 0 && e.evaluations == (int64_t)1 << 32);
    qm_bf16_deviations_count(ups_short, NULL, 0, &e);
    assert_int_equal(e.worst, -255); /* of 65,536 */
    assert_int_equal(e.at, 255);
    assert_int_equal(e.sum, -(int64_t)65536 * 255 / 2);
    assert_true((double)e.sum / 0x1p32 == -127.5 / 65536.0); /* ulp: -0.00195 */
    qm_bf16_deviations_count(ups_no_less, NULL, 0, &e);
    assert_true(e.worst == 1 && e.at == 0 && e.sum == 65536);
}

/* ---- 32 bits --------------------------------------------------------------------------------- */

static double up_below_share(const void *of, float x, uint32_t draw)
{
    (void)of;
    return (double)draw < (double)x * 4294967296.0 ? 1.0 : 0.0;
}

static double three_values(const void *of, float x, uint32_t draw)
{
    (void)of;
    return draw < 100 ? 0.0 : draw < 0x80000000u ? (double)x : 1.0;
}

static double not_monotone(const void *of, float x, uint32_t draw)
{
    (void)of;
    (void)x;
    return draw >> 30 == 1 ? 1.0 : 0.0;
}

static void expectations_are_exact(void **state)
{
    struct qm_rounder r = {up_below_share, NULL};
    struct qm_expectation e;
    (void)state;
    for (int k = 1; k < 32; k++) {
        qm_expect(&r, ldexpf(1.0f, -k), &e);
        assert_true(e.ups == (uint64_t)1 << (32 - k));
        assert_true(e.mean == ldexp(1.0, -k) && e.is_monotone);
    }
    r.value = three_values;
    qm_expect(&r, 0.5f, &e);
    assert_true(e.ups == 0x80000000u && e.low == 0.0 && e.high == 1.0);
    assert_true(e.mean == 0.5 + 0.5 * (0x80000000u - 100) * 0x1p-32);
    r.value = not_monotone;
    qm_expect(&r, 0.5f, &e);
    assert_false(e.is_monotone);
}

/* ---- the sequential test --------------------------------------------------------------------- */

/* Adds trials of probability p + bias until there is a verdict. */
static struct qm_unbiased trial(double bias, uint64_t stream, double alpha, double beta)
{
    struct qm_unbiased u;
    qm_unbiased_start(&u, 0.02, alpha, beta);
    for (uint64_t i = 0; u.verdict == QM_UNBIASED_OPEN && i < 10000000; i++) {
        double p = 0.1 + 0.8 * (double)qm_philox_stream(1, stream, 2 * i) * 0x1p-32;
        double draw = (double)qm_philox_stream(1, stream, 2 * i + 1) * 0x1p-32;
        qm_unbiased_add(&u, p, draw < p + bias);
    }
    return u;
}

/* The test promises at most alpha false alarms and at most beta misses.  With both at 0.05 and 400
 * repetitions, more than 37 of either have a probability below 2e-4. */
static void the_stated_errors_are_kept(void **state)
{
    int alarms = 0, misses = 0, open = 0;
    double mean = 0.0;
    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        struct qm_unbiased right = trial(0.0, i, 0.05, 0.05);
        struct qm_unbiased low = trial(-0.02, 1000 + i, 0.05, 0.05);
        alarms += right.verdict == QM_UNBIASED_REJECTED;
        misses += low.verdict == QM_UNBIASED_ACCEPTED;
        open += right.verdict == QM_UNBIASED_OPEN || low.verdict == QM_UNBIASED_OPEN;
        mean += (double)right.trials / 400.0;
    }
    assert_int_equal(open, 0);
    assert_true(alarms <= 37);
    assert_true(misses <= 37);
    assert_true(mean > 1000.0 && mean < 10000.0); /* about ln(1/beta) p (1 - p) 2 / d^2 */
}

static void a_declared_bias_is_found(void **state)
{
    (void)state;
    assert_int_equal(trial(0.0, 5, 1e-6, 1e-6).verdict, QM_UNBIASED_ACCEPTED);
    assert_int_equal(trial(0.02, 6, 1e-6, 1e-6).verdict, QM_UNBIASED_REJECTED);
    assert_int_equal(trial(-0.02, 7, 1e-6, 1e-6).verdict, QM_UNBIASED_REJECTED);
    assert_int_equal(trial(-0.09, 8, 1e-6, 1e-6).verdict, QM_UNBIASED_REJECTED);
    struct qm_unbiased u;
    qm_unbiased_start(&u, 0.02, 1e-6, 1e-6);
    for (int i = 0; i < 1000; i++)
        qm_unbiased_add(&u, i % 2 ? 0.0 : 1.0, 1); /* certain outcomes carry no information */
    assert_int_equal(u.trials, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_slot_steps_are_proved),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(wrong_encoders_are_seen),
        cmocka_unit_test(curves_are_proved_and_others_seen),
        cmocka_unit_test(a_ladder_in_place_of_the_nearest_is_seen),
        cmocka_unit_test(wrong_updates_are_seen),
        cmocka_unit_test(what_has_no_such_domain_says_why),
        cmocka_unit_test(draws_of_16_bits_are_counted),
        cmocka_unit_test(expectations_are_exact),
        cmocka_unit_test(the_stated_errors_are_kept),
        cmocka_unit_test(a_declared_bias_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
