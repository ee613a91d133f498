/* test_error_compensation.c - Tests the error correction of 16-bit parameters: the invariants
 * that FlashOptim publishes with it (test/test_ecc_invariants.py), over all 2^23 mantissas of an
 * exponent.
 *
 * `test_error_compensation all` covers every sign and exponent; without `all` the
 * program covers the exponents where the counts change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "core/rule/param.h"

static int everything;

/* e: the error without correction; e8, e16: the error with 8 or 16 bits of correction; r, r8,
 * r16: these errors relative to |x|. */
enum {
    EXACT_8,   /* e = 0 gives e8 = 0 */
    EXACT_16,  /* and e16 = 0 */
    ZERO_16,   /* e8 = 0 gives e16 = 0 */
    NO_WORSE,  /* e16 <= e8 */
    LARGE_8,   /* r >= 1/127 gives r8 < 1/127 */
    LARGE_16,  /* r >= 1/32767 gives r16 < 1/32767 */
    BETTER_16, /* 1/32767 <= r < 1/127 gives e16 < e8 */
    INVARIANTS
};

static const char *const invariants[INVARIANTS] = {
    "exact stays exact (8)",  "exact stays exact (16)",  "16 exact where 8 is",
    "16 no worse than 8",     "large errors shrink (8)", "large errors shrink (16)",
    "16 better in the middle"};

/* Counts the exceptions among the finite values of one sign and exponent; exponent -127:
 * float32 subnormals. */
static void count(enum qm_param_format format, int negative, int exponent, int64_t out[INVARIANTS])
{
    uint32_t base = ((uint32_t)negative << 31) | ((uint32_t)(exponent + 127) << 23);
    uint32_t infinity = format == QM_PARAM_bf16 ? 0x7f80 : 0x7c00;
    int64_t n[INVARIANTS] = {0};
#pragma omp parallel for reduction(+ : n[:INVARIANTS])
    for (int32_t mantissa = 0; mantissa < 1 << 23; mantissa++) {
        float x = qm_float(base | (uint32_t)mantissa);
        uint32_t h = qm_param_nearest(format, x);
        if ((h & 0x7fff) == infinity)
            continue;
        float w8 = qm_ecc_decode(format, h, qm_ecc_encode(format, x, h, 127), 127);
        float w16 = qm_ecc_decode(format, h, qm_ecc_encode(format, x, h, 32767), 32767);
        double e = fabs((double)qm_param_widen(format, h) - (double)x);
        double e8 = fabs((double)w8 - (double)x), e16 = fabs((double)w16 - (double)x);
        double by = x != 0.0f ? fabs((double)x) : 1.0;
        int large_8 = e / by >= 1.0 / 127.0, large_16 = e / by >= 1.0 / 32767.0;
        n[EXACT_8] += e == 0.0 && e8 > 0.0;
        n[EXACT_16] += e == 0.0 && e16 > 0.0;
        n[ZERO_16] += e8 == 0.0 && e16 > 0.0;
        n[NO_WORSE] += e16 > e8;
        n[LARGE_8] += large_8 && e8 / by >= 1.0 / 127.0;
        n[LARGE_16] += large_16 && e16 / by >= 1.0 / 32767.0;
        n[BETTER_16] += large_16 && !large_8 && e16 >= e8;
    }
    memcpy(out, n, sizeof n);
}

/* The number of exceptions that the source tolerates for each sign and exponent.  The source
 * counted on a GPU, where the decoder's last product and sum are one fma; with that fma, every
 * count here is at most the source's.  In separate operations the product is subnormal for bf16
 * exponents -125 to -119 and rounds once more: for these exponents the table holds the counts of
 * separate operations. */
static const struct {
    const char *name;
    enum qm_param_format format;
    int from, to;
    int some[4]; /* exponents tested without `all`; 99 ends the list */
    int64_t tolerated[INVARIANTS];
} ranges[] = {
    {"bf16 least normal", QM_PARAM_bf16, -126, -126, {-126, 99}, {0, 0, 32, 32, 0, 0, 32129}},
    {"bf16 small normal", QM_PARAM_bf16, -125, -119, {-125, 99}, {0, 0, 8200, 8200, 0, 0, 48449}},
    {"bf16 normal", QM_PARAM_bf16, -118, 127, {0, 99}, {0, 0, 32, 32, 0, 0, 32129}},
    {"bf16 subnormal", QM_PARAM_bf16, -127, -127, {-127, 99}, {0, 0, 0, 0, 8192, 25, 24319}},
    {"f16 normal", QM_PARAM_f16, -14, 15, {-14, 99}, {0, 0, 0, 0, 0, 0, 235656}},
    {"f16 subnormal",
     QM_PARAM_f16,
     -30,
     -15,
     {-24, 99},
     {0, 0, 8192, 16383, 7656268, 7602176, 123952}},
};

static void test_invariants(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        int64_t most[INVARIANTS] = {0};
        for (int exponent = ranges[r].from; exponent <= ranges[r].to; exponent++) {
            int k = 0;
            while (ranges[r].some[k] != exponent && ranges[r].some[k] != 99)
                k++;
            for (int negative = 0; negative < 2; negative++) {
                int64_t n[INVARIANTS];
                if (!everything && (ranges[r].some[k] == 99 || negative != (k & 1)))
                    continue;
                count(ranges[r].format, negative, exponent, n);
                for (int i = 0; i < INVARIANTS; i++) {
                    most[i] = n[i] > most[i] ? n[i] : most[i];
                    if (n[i] > ranges[r].tolerated[i])
                        fail_msg("%s, exponent %d: %s: %lld exceptions, tolerated %lld",
                                 ranges[r].name, exponent, invariants[i], (long long)n[i],
                                 (long long)ranges[r].tolerated[i]);
                }
            }
        }
        for (int i = 0; i < INVARIANTS; i++)
            if (ranges[r].tolerated[i])
                print_message("%s: %s: at most %lld exceptions, tolerated %lld\n", ranges[r].name,
                              invariants[i], (long long)most[i], (long long)ranges[r].tolerated[i]);
    }
}

static float anything(uint64_t i) { return qm_float(qm_philox_stream(11, 3, i)); }

/* Codes are symmetric and in range, 0 without an error, and 0 where there is no finite residual. */
static void test_codes(void **state)
{
    (void)state;
    static const enum qm_param_format formats[] = {QM_PARAM_bf16, QM_PARAM_f16};
    for (int f = 0; f < 2; f++)
        for (int most = 127; most <= 32767; most += 32640)
            for (uint64_t i = 0; i < 200000; i++) {
                float x = anything(i);
                uint32_t h = qm_param_nearest(formats[f], x);
                int e = qm_ecc_encode(formats[f], x, h, most);
                float w = qm_param_widen(formats[f], h);
                assert_in_range(e + most, 0, 2 * most);
                if (x == w || qm_isnan(x) || !(fabsf(w) < INFINITY)) {
                    assert_int_equal(e, 0);
                    continue;
                }
                assert_int_equal(qm_ecc_encode(formats[f], -x, h ^ 0x8000u, most), -e);
                /* The error is at most half a step of the residual, but for float32 rounding.  A
                 * step is half an ulp divided by most. */
                float half = qm_ecc_scale(1.0f, qm_ecc_ulp(formats[f], h) - 1);
                double error = fabs((double)qm_ecc_decode(formats[f], h, e, most) - (double)x);
                assert_true(error <= (double)half * (0.5 / most) * 1.001 +
                                         fabs((double)x) * 0x1p-23 + 0x1p-149);
            }
    assert_int_equal(qm_ecc_encode(QM_PARAM_f16, 1e30f, 0x7c00, 127), 0);
    assert_int_equal(qm_ecc_encode(QM_PARAM_bf16, NAN, 0x7fff, 127), 0);
}

/* By hand: bf16 1.0 has an ulp of 2^-7, so half of one is 2^-8; halves go away from zero. */
static void test_by_hand(void **state)
{
    (void)state;
    assert_int_equal(qm_ecc_ulp(QM_PARAM_bf16, 0x3f80), -7);
    assert_int_equal(qm_ecc_ulp(QM_PARAM_f16, 0x3c00), -10);
    assert_int_equal(qm_ecc_ulp(QM_PARAM_bf16, 0x0001), -133);
    assert_int_equal(qm_ecc_ulp(QM_PARAM_f16, 0x8000), -24);
    assert_int_equal(qm_ecc_encode(QM_PARAM_bf16, 1.0f + 0x1p-8f, 0x3f80, 127), 127);
    assert_int_equal(qm_ecc_encode(QM_PARAM_bf16, 1.0f - 0x1p-9f, 0x3f80, 127), -64); /* -63.5 */
    assert_int_equal(qm_ecc_encode(QM_PARAM_bf16, 1.0f + 0x1p-9f, 0x3f80, 127), 64);
    assert_int_equal(qm_ecc_encode(QM_PARAM_f16, 1.0f + 0x1p-12f, 0x3c00, 32767), 16384);
    assert_true(qm_ecc_decode(QM_PARAM_bf16, 0x3f80, 127, 127) == 1.0f + 0x1p-8f);
    assert_true(qm_ecc_decode(QM_PARAM_bf16, 0xbf80, -127, 127) == -1.0f - 0x1p-8f);
    assert_true(qm_ecc_decode(QM_PARAM_bf16, 0x0001, 127, 127) == 0x1p-133f + 0x1p-134f);
    /* An error beyond half an ulp (the parameter was changed, its residual was not) gets the
     * last code. */
    assert_int_equal(qm_ecc_encode(QM_PARAM_bf16, 2.0f, 0x3f80, 127), 127);
    assert_int_equal(qm_ecc_encode(QM_PARAM_bf16, -2.0f, 0x3f80, 127), -127);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_invariants),
    };
    everything = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
