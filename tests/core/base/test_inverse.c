/* test_inverse.c - Tests that inverse.h gives the quotient's bits wherever it claims to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <float.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/base/inverse.h"

static uint32_t word(void)
{
    static uint64_t s = 88172645463325252u;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return (uint32_t)(s >> 16);
}

/* The number of significands for which the formula is wrong, at exponent 0. */
static int wrong_significands(const struct qm_inverse *i)
{
    int wrong = 0;
    for (uint32_t k = 0; k < 1u << 23; k++) {
        float x = qm_float(0x3f800000u | k);
        wrong += fmaf(x, i->high, x * i->low) != x / i->c;
    }
    return wrong;
}

/* Divisors are bias corrections, small integers, powers of two and random numbers; the dividends
 * are all 2^23 significands. */
static void test_every_significand(void **state)
{
    (void)state;
    int held = 0, tried = 0;
    for (int k = 0; k < 60; k++) {
        float c = k < 20   ? 1.0f - powf(k % 2 ? 0.9f : 0.999f, (float)(1 + k * k))
                  : k < 24 ? (float)(k - 19)
                  : k < 28 ? ldexpf(1.0f, k - 40)
                           : qm_float(0x3f000000u + word() % 0x1000000u);
        struct qm_inverse i = qm_inverse_of(c);
        int wrong = wrong_significands(&i);
        if ((wrong == 0) != (i.holds != 0))
            fail_msg("c = %a: %d significands are wrong, holds is %d", (double)c, wrong, i.holds);
        held += i.holds;
        tried++;
    }
    printf("%d of %d divisors hold\n", held, tried);
    assert_true(held > tried / 2);
}

/* A divisor for which the formula fails somewhere must be refused.  Each refused one of many random
 * divisors must have a wrong quotient. */
static void test_refused(void **state)
{
    (void)state;
    int refused = 0;
    for (int k = 0; k < 200000 && refused < 8; k++) {
        struct qm_inverse i = qm_inverse_of(qm_float(0x3f800000u + word() % 0x800000u));
        if (i.holds)
            continue;
        refused++;
        assert_true(wrong_significands(&i) > 0);
    }
    printf("%d divisors refused, each with a wrong quotient\n", refused);
    static const float bad[] = {0.0f, -1.0f, NAN, INFINITY, 0x1p-140f, 0x1p100f};
    for (int k = 0; k < 6; k++)
        assert_false(qm_inverse_of(bad[k]).holds);
}

static void test_every_exponent(void **state)
{
    (void)state;
    for (int k = 0; k < 2000; k++) {
        struct qm_inverse i = qm_inverse_of(qm_float(0x3a000000u + word() % 0x6000000u));
        for (int j = 0; i.holds && j < 2000; j++) {
            float x = qm_float(word() ^ word() << 16), q = x / i.c;
            if (q != 0.0f && fabsf(q) < QM_INVERSE_LEAST)
                continue;
            float got = qm_inverse_times(&i, x);
            if (qm_bits(got) != qm_bits(q) && !(qm_isnan(got) && qm_isnan(q)))
                fail_msg("%a / %a = %a, got %a", (double)x, (double)i.c, (double)q, (double)got);
        }
        static const float special[] = {0.0f,      -0.0f,    INFINITY,         -INFINITY,
                                        FLT_MAX,   -FLT_MAX, QM_INVERSE_LEAST, 0x1p-99f,
                                        -0x1p-99f, 0x1p-75f};
        for (int j = 0; i.holds && j < 10; j++)
            if (special[j] == 0.0f || fabsf(special[j] / i.c) >= QM_INVERSE_LEAST)
                assert_int_equal(qm_bits(qm_inverse_times(&i, special[j])),
                                 qm_bits(special[j] / i.c));
        assert_true(!i.holds || qm_isnan(qm_inverse_times(&i, NAN)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_significand),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_every_exponent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
