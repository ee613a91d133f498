/* test_floats.c - Tests log2, exp2, 16-bit floats, roundings to float and Philox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/half.h"
#include "core/base/logexp.h"
#include "tests/support/random_floats.h"

/* The error of `got` in ULP of `want`. */
static double ulps(float got, double want)
{
    int e;
    frexp(want, &e);
    double ulp = ldexp(1.0, (e - 1 < -126 ? -126 : e - 1) - 23);
    return fabs((double)got - want) / ulp;
}

static void test_log_exp(void **state)
{
    (void)state;
    double worst_log = 0.0, worst_exp = 0.0;
    for (int i = 0; i < 2000000; i++) {
        float x = qm_float(random_word() & 0x7fffffffu);
        if (i % 4 == 0)
            x = 1.0f + (float)(int32_t)random_word() * 1e-11f;
        if (isfinite(x) && x > 0.0f) {
            double e = ulps(qm_log2(x), log2((double)x));
            worst_log = e > worst_log && x != 1.0f ? e : worst_log;
        }
        float y = (float)(int32_t)random_word() * (125.9f / 2147483648.0f);
        double e = ulps(qm_exp2(y), exp2((double)y));
        worst_exp = e > worst_exp ? e : worst_exp;
    }
    print_message("log2 within %.3f ULP, exp2 within %.3f ULP\n", worst_log, worst_exp);
    assert_true(worst_log <= 1.0);
    assert_true(worst_exp <= 1.0);
    for (int k = -126; k < 128; k++) {
        assert_true(qm_log2(ldexpf(1.0f, k)) == (float)k);
        assert_true(qm_exp2((float)k) == ldexpf(1.0f, k));
    }
    assert_true(qm_log2(ldexpf(1.0f, -149)) == -149.0f);
    assert_true(isinf(qm_log2(0.0f)) && isnan(qm_log2(-1.0f)) && isnan(qm_log2(NAN)));
    assert_true(qm_exp2(128.0f) == INFINITY && qm_exp2(-151.0f) == 0.0f && isnan(qm_exp2(NAN)));
    assert_true(ulps(qm_exp2(127.99999f), exp2((double)127.99999f)) <= 1.0);
}

static void check_round_f16(float x)
{
    uint32_t want = qm_bits(qm_f16_to_float(qm_float_to_f16(x)));
    if (qm_bits(qm_round_f16(x)) != want)
        fail_msg("%a is rounded to %a", (double)x, (double)qm_round_f16(x));
}

static void test_halves(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) /* around every value and every mid-point */
        for (uint32_t half = 0; half < 0x2000; half += 0x1000)
            for (uint32_t d = 0; d < 5; d++)
                check_round_f16(qm_float(qm_bits(qm_f16_to_float((uint16_t)h)) + half + d - 2));
    for (int i = 0; i < 1000000; i++)
        check_round_f16(qm_float(random_word()));
    for (uint32_t h = 0; h < 65536; h++) {
        float b = qm_bf16_to_float((uint16_t)h), f = qm_f16_to_float((uint16_t)h);
        if (!isnan(b))
            assert_int_equal(qm_float_to_bf16(b), h);
        if (!isnan(f))
            assert_int_equal(qm_float_to_f16(f), h);
    }
    for (int i = 0; i < 300000; i++) { /* nearest, ties to even, by exact doubles */
        float x = qm_float(random_word());
        if (i % 2)
            x = qm_f16_to_float((uint16_t)(random_word() % 0x7bff)) *
                (1.0f + (float)(i % 3) * 0.00048828125f);
        if (!isfinite(x) || fabsf(x) > 65000.0f)
            continue;
        uint16_t h = qm_float_to_f16(x);
        double at = (double)qm_f16_to_float(h), d = fabs((double)x - at);
        double up = (double)qm_f16_to_float((uint16_t)(h + 1)),
               down = h & 0x7fff ? (double)qm_f16_to_float((uint16_t)(h - 1)) : at;
        assert_true(d <= fabs((double)x - up) && d <= fabs((double)x - down));
        if ((d == fabs((double)x - up) || (down != at && d == fabs((double)x - down))) && d > 0)
            assert_int_equal(h & 1, 0);
    }
}

/* Two neighbouring roundings of doubles to float and back must both happen.  GCC 12 drops them when
 * it vectorizes straight-line code, which the Makefile therefore forbids. */
static __attribute__((noinline)) void round_two(const double *in, double *out)
{
    float a = (float)in[0], b = (float)in[1];
    out[0] = (double)a;
    out[1] = (double)b;
}

static void test_roundings_happen(void **state)
{
    (void)state;
    const double in[2] = {0.1, 0.3};
    double out[2];
    round_two(in, out);
    assert_true(out[0] == 0.100000001490116119384765625 && out[1] == 0.300000011920928955078125);
}

/* The known answers that Random123 publishes. */
static void test_philox(void **state)
{
    (void)state;
    static const uint32_t known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const uint32_t *k = known[i];
        struct qm_philox_block b = qm_philox(k[0], k[1], k[2], k[3], k[4], k[5]);
        assert_memory_equal(b.word, k + 6, sizeof b.word);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_exp),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_roundings_happen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
