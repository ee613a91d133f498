/* test_quantile_log.c - Tests the logarithmic code of quantile_log.h, its powers, and divblock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/quant/block_numbers.h"
#include "core/quant/quantizer.h"
#include "tests/support/random_floats.h"

enum { N = 200, TRIES = 4000 };
static const uint64_t seed = 20261123;

static uint32_t word(int i)
{
    struct qm_draws d = qm_draws_for(seed, 1, 0, QM_ROLE_spare);
    return qm_draw(&d, i);
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* A block of n magnitudes: over all exponents, of few values, or half zeros. */
static void fill(int try, int n, float *x)
{
    for (int i = 0; i < n; i++) {
        uint32_t u = word(N * try + i);
        x[i] = try % 3 == 0   ? qm_float(u % 0x7f800000u)
               : try % 3 == 1 ? (float)(u % 5)
                              : (u & 1 ? 0.0f : qm_uniform(u));
    }
}

static void test_select(void **state)
{
    float x[N], sorted[N];
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int try = 0; try < TRIES / 10; try++) {
        int n = 1 + (int)(word(try) % N);
        fill(try, n, x);
        memcpy(sorted, x, sizeof x);
        qsort(sorted, (size_t)n, sizeof *x, ascending);
        for (int k = 0; k < n; k += 1 + n / 7) {
            uint32_t next, a = qm_quantile_select(x, n, k, &next);
            assert_int_equal(a, qm_bits(sorted[k]));
            if (k + 1 < n)
                assert_int_equal(next, qm_bits(sorted[k + 1]));
        }
    }
}

/* Within 0.501 ulp of the exact value; edges are C's. */
static void test_power(void **state)
{
    static const float edge[] = {0.0f, 1.0f, 0.5f, 2.0f, INFINITY, NAN, 1e-45f, 3e38f};
    enum { EDGES = sizeof edge / sizeof *edge };
    (void)state;
    for (int i = 0; i < EDGES; i++)
        for (int k = 0; k < EDGES; k++) {
            float got = qm_power(edge[i], edge[k]), want = powf(edge[i], edge[k]);
            if (!(got == want) && !(isnan(got) && isnan(want)))
                fail_msg("%a ^ %a: %a, want %a", (double)edge[i], (double)edge[k], (double)got,
                         (double)want);
        }
    for (int i = 0; i < 50 * TRIES; i++) {
        float x = qm_float(word(2 * i) % 0x7f800000u),
              y = (float)(word(2 * i + 1) % 2000u) / 256.0f;
        y = i % 2 ? -y : y;
        double want = pow((double)x, (double)y), log = log2((double)x);
        float got = qm_power(x, y), l = qm_log2_rounded(x);
        double ulp = (double)(nextafterf((float)want, INFINITY) - (float)want);
        if (isfinite((float)want) && !(fabs((double)got - want) <= 0.501 * ulp))
            fail_msg("%a ^ %a: %a, want %a", (double)x, (double)y, (double)got, want);
        if (x > 0.0f && fabs((double)l - log) > 0.501 * fabs((double)l) * 0x1p-23)
            fail_msg("log2 %a: %a, want %a", (double)x, (double)l, log);
    }
}

static void check(const char *what, const float *x, int n, float q, uint32_t want_code,
                  float want_value)
{
    float number[2];
    qm_quantile_log_fold(q, x, n, number);
    qm_quantile_log_numbers(number, 1e-12f, 4, &number[0], &number[1]);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 64; k++) {
            uint32_t code = qm_quantile_log_code(QM_ROUND_dither, x[i], number[0], number[1], 4,
                                                 qm_uniform(word(64 * i + k)));
            float value = qm_quantile_log_value(code, number[0], number[1]);
            if (code != want_code || (value != want_value && !isnan(want_value)) ||
                isnan(value) != isnan(want_value))
                fail_msg("%s: element %d has code %u, value %a", what, i, code, (double)value);
        }
}

/* The traps of the source: a tenth of zeros, a constant block, zeros alone, NaN. */
static void test_traps(void **state)
{
    float x[128];
    (void)state;
    for (int i = 0; i < 128; i++)
        x[i] = i < 14 ? 0.0f : 1.0f + (float)i;
    check("zeros in a tenth", x, 128, 0.1f, 0, 128.0f);
    for (int i = 0; i < 128; i++)
        x[i] = 0.25f;
    check("constant", x, 128, 0.1f, 0, 0.25f);
    for (int i = 0; i < 128; i++)
        x[i] = 0.0f;
    check("zero", x, 128, 0.1f, 0, 1e-12f);
    x[77] = NAN;
    check("NaN", x, 128, 0.1f, 0, NAN);
    /* fewer zeros than the quantile: each becomes the quantile, the last code */
    float number[2];
    for (int i = 0; i < 128; i++)
        x[i] = i < 5 ? 0.0f : 1.0f + (float)i;
    qm_quantile_log_fold(0.1f, x, 128, number);
    qm_quantile_log_numbers(number, 1e-12f, 4, &number[0], &number[1]);
    assert_int_equal(qm_quantile_log_code(QM_ROUND_dither, 0.0f, number[0], number[1], 4, 0.5f), 3);
}

static void test_divblock(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 700; n++)
        for (int64_t asked = 0; asked < 140; asked += 7) {
            int64_t want = asked == 0 || asked >= n ? n : asked;
            while (n % want)
                want--;
            assert_int_equal(qm_divisor_block(asked, n), want);
        }
    assert_int_equal(qm_divisor_block(1 << 20, (int64_t)3 << 30), 1 << 20);
    assert_int_equal(qm_divisor_block(1 << 20, 2147483647), 1);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "qlog:2u/block:64/arith/dither/hi/quantile:0.1",
        "qlog:2u/block:64/arith/dither/hi/qlog",
        "qlog:2u/block:64/arith/near/hi/qlog/quantile:0.1",
        "qlog:2u/row/arith/dither/hi/qlog/quantile:0.1",
        "qlog:2u/block:64/arith/dither/hi/qlog/quantile:1.5",
        "qlog:2s/block:64/arith/dither/hi/qlog/quantile:0.1",
        "dyn:4s/block:64/bisect/near/hi/quantile:0.1",
        "dyn:4s/block:64/bisect/near/nibbles",
    };
    struct qm_quantizer q;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (qm_quantizer_parse(bad[i], &q) != QM_BAD_ARG)
            fail_msg("%s is not refused", bad[i]);
    assert_int_equal(qm_quantizer_parse("dyn:4s/divblock:0/bisect/near/hi", &q), QM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select),  cmocka_unit_test(test_power),
        cmocka_unit_test(test_traps),   cmocka_unit_test(test_divblock),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
