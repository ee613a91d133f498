/* test_expand.c - Tests dynamic range expansion (expand.h): reduction, numbers, traps, words. */
#include <math.h>
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

enum { N = 128, LANES = 32, TRIES = 3000 };

static struct qm_codec codec_of(const char *text)
{
    struct qm_codec c;
    if (qm_codec_parse(&c, text) != QM_OK)
        fail_msg("%s: %s", text, qm_message());
    return c;
}

static struct qm_codec expanding(int steps)
{
    char text[80];
    snprintf(text, sizeof text, "e4m3:8s/block:128/bisect/even/expand:%d/plus:1e-30", steps);
    return codec_of(text);
}

/* One block: its numbers, codes, and decoded values. */
struct encoded {
    float number[QM_EXPAND_NUMBERS], out[N];
    uint8_t code[N];
};

static struct encoded encode(const struct qm_codec *c, const float *x, int n)
{
    struct encoded e;
    struct qm_shape shape = {1, {n}};
    assert_int_equal(qm_scale_count(c, &shape), QM_EXPAND_NUMBERS);
    assert_int_equal(qm_encode(c, &shape, x, NULL, e.code, e.number), QM_OK);
    qm_decode(c, &shape, e.code, e.number, e.out);
    return e;
}

/* ---- the reduction --------------------------------------------------------------------------- */

/* A warp as its lanes see it: each offset reads the numbers from before it. */
static void slow_warp(float most[LANES], float least[LANES])
{
    for (int d = LANES / 2; d > 0; d /= 2) {
        float was_most[LANES], was_least[LANES];
        memcpy(was_most, most, sizeof was_most);
        memcpy(was_least, least, sizeof was_least);
        for (int l = 0; l < LANES - d; l++) {
            most[l] = fmaxf(was_most[l], was_most[l + d]);
            if (was_least[l + d] > 0.0f)
                least[l] = fminf(was_least[l], was_least[l + d]);
        }
    }
}

static void slow_fold(const float *x, int n, int warps, float stat[2])
{
    float most[LANES] = {0.0f}, least[LANES];
    for (int w = 0; w < LANES; w++)
        least[w] = 1e9f;
    for (int w = 0; w < warps; w++) {
        float a[LANES], b[LANES];
        for (int l = 0; l < LANES; l++) {
            int i = w * LANES + l;
            a[l] = i < n ? fabsf(x[i]) : 0.0f;
            b[l] = i < n ? fabsf(x[i]) : 3.4028234664e38f;
        }
        slow_warp(a, b);
        most[w] = a[0];
        least[w] = b[0];
    }
    slow_warp(most, least);
    stat[0] = most[0];
    stat[1] = least[0];
}

/* Blocks of up to 1024 with many zeros, some with NaN and Inf, against the slow definition. */
static void test_reduction(void **state)
{
    static float x[QM_EXPAND_BLOCK];
    (void)state;
    for (int try = 0; try < TRIES; try++) {
        int n = 1 + (int)(random_word() % (try % 2 ? N : QM_EXPAND_BLOCK));
        float got[QM_EXPAND_NUMBERS], want[2];
        for (int i = 0; i < n; i++)
            x[i] = random_word() % 5u < (uint32_t)try % 5u ? 0.0f : random_float(try % 3 == 0);
        qm_expand_fold(x, n, got);
        slow_fold(x, n, n <= N ? 4 : (n + LANES - 1) / LANES, want);
        if (qm_bits(got[0]) != qm_bits(want[0]) || qm_bits(got[1]) != qm_bits(want[1]))
            fail_msg("block %d of %d: %a and %a, want %a and %a", try, n, (double)got[0],
                     (double)got[1], (double)want[0], (double)want[1]);
    }
}

static float least_with(int zero, int small)
{
    float x[N], stat[QM_EXPAND_NUMBERS];
    for (int i = 0; i < N; i++)
        x[i] = i == zero ? 0.0f : i == small ? 1e-3f : -1.0f;
    qm_expand_fold(x, N, stat);
    assert_true(stat[0] == 1.0f);
    return stat[1];
}

/* A zero counts as element 0 alone; in a lane that had gathered the minimum it hides that. */
static void test_lost_minimum(void **state)
{
    (void)state;
    assert_true(least_with(0, 77) == 0.0f);
    assert_true(least_with(5, 77) == 1e-3f);  /* another warp */
    assert_true(least_with(5, 21) == 1.0f);   /* lane 5 gathers lane 21, holds 0, and is skipped */
    assert_true(least_with(21, 5) == 1e-3f);  /* lane 21 gives nothing, and lane 5 is its own */
    assert_true(least_with(1, 31) == 1.0f);   /* 31 goes over 15, 7 and 3 to lane 1 */
    assert_true(least_with(2, 31) == 1e-3f);  /* and not over lane 2 */
    assert_true(least_with(64, 70) == 1.0f);  /* a warp whose first element is 0 */
    assert_true(least_with(32, 100) == 1.0f); /* its zero hides the minimum of the fourth warp */
    assert_true(least_with(96, 40) == 1e-3f);
    float x[2] = {4e9f, -3e9f}, stat[QM_EXPAND_NUMBERS];
    qm_expand_fold(x, 2, stat);
    assert_true(stat[0] == 4e9f && stat[1] == 1e9f);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Two magnitudes of the ratio 2^e: the exponent by integers, for any number of steps. */
static void test_exponent(void **state)
{
    static const int steps[] = {1, 3, 8, 16, 64, 65536};
    (void)state;
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        struct qm_codec c = expanding(steps[s]);
        for (int e = 1; e < 30; e++) {
            float x[2] = {ldexpf(1.0f, e), 1.0f};
            struct encoded got = encode(&c, x, 2);
            double want = floor(log2(100352.0) / e * steps[s]) / steps[s];
            assert_true(got.number[1] == (float)want);
            assert_true(
                fabs((double)got.number[2] - ldexp(1.0, e / 2) * (e % 2 ? sqrt(2.0) : 1.0)) <
                1e-6 * (double)got.number[2]);
        }
    }
}

/* Codes of magnitudes over `decades` decades: no element is off by more than the root of half a
 * step of the format, and the largest decodes to itself but for roundings. */
static void test_error(void **state)
{
    struct qm_codec c = expanding(16);
    (void)state;
    for (int try = 0; try < TRIES / 10; try++) {
        float x[N], top = 0.0f;
        double decades = 0.1 + 5.0 * (double)random_word() * 0x1p-32;
        int n = 2 + (int)(random_word() % (N - 1));
        for (int i = 0; i < n; i++) {
            x[i] = (float)pow(10.0, -decades * (double)random_word() * 0x1p-32);
            x[i] = random_word() & 1 ? -x[i] : x[i];
            top = fmaxf(top, fabsf(x[i]));
        }
        struct encoded e = encode(&c, x, n);
        double k = (double)e.number[1];
        for (int i = 0; i < n; i++) {
            double unit = fabs((double)qm_e4m3_to_float(e.code[i]));
            double step = unit < 0x1p-6 ? 0x1p-10 / unit : 0.0625; /* half a step, relative */
            double most = pow(1.0 - step, -1.0 / k) - 1.0 + 1e-6;
            if (!(fabs((double)(e.out[i] / x[i]) - 1.0) <= most))
                fail_msg("%a became %a: k %g, unit %g", (double)x[i], (double)e.out[i], k, unit);
            if (fabsf(x[i]) == top)
                assert_true(unit == 448.0 && fabs((double)(e.out[i] / x[i]) - 1.0) < 1e-5);
        }
    }
}

/* ---- one magnitude --------------------------------------------------------------------------- */

/* All elements are +-a: the three outcomes of M / c by its last bit; how many of 200 have each. */
static void test_one_magnitude(void **state)
{
    struct qm_codec c = expanding(16);
    int count[3] = {0};
    (void)state;
    for (int try = 0; try < 200; try++) {
        float x[N], a = 1.0f + (float)(random_word() >> 9) * 0x1p-23f;
        int n = try % 4 ? N : 1 + try % N;
        for (int i = 0; i < n; i++)
            x[i] = (i + try) % 2 ? -a : a;
        struct encoded e = encode(&c, x, n);
        float root = sqrtf(a), centre = root * root;
        int which = a / centre == 1.0f ? 0 : a / centre > 1.0f ? 1 : 2;
        const float scale[3] = {1.0f / 448.0f, INFINITY, 0.0f};
        assert_true(isinf(e.number[1]) && e.number[2] == centre && e.number[0] == scale[which]);
        for (int i = 0; i < n; i++) {
            int sign = x[i] < 0.0f ? 0x80 : 0;
            assert_int_equal(e.code[i], which ? 0x7f : sign | 0x7e);
            assert_true(e.out[i] == (which == 0 && sign ? -centre : centre)); /* the sign is lost */
        }
        count[which]++;
    }
    assert_true(count[0] > 0 && count[1] > 0 && count[2] > 0);
}

/* Zeros: +-1e-30 and not 0.  Under an infinite scale a smaller element becomes +c. */
static void test_zeros(void **state)
{
    struct qm_codec c = expanding(16);
    float x[N], unit[] = {0.0f, -0.0f}, number[] = {INFINITY, INFINITY, 3.0f};
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = i % 3 ? 0.0f : -0.0f;
    struct encoded e = encode(&c, x, N);
    assert_true(isinf(e.number[1]) && e.number[0] == 1.0f / 448.0f && e.number[2] == 1e-30f);
    for (int i = 0; i < N; i++) {
        assert_int_equal(e.code[i], i % 3 ? 0 : 0x80);
        assert_true(e.out[i] == (i % 3 ? 1e-30f : -1e-30f));
    }
    for (int i = 0; i < 2; i++)
        assert_true(qm_expand_value(unit[i], number) == 3.0f);
    assert_int_equal(qm_float_to_e4m3(qm_expand_unit(2.0f, number), 1), 0);
    /* a plan's state before its first step: codes, scales, exponents and centres all 0 */
    memset(number, 0, sizeof number);
    assert_int_equal(qm_bits(qm_expand_value(0.0f, number)), 0);
}

/* ---- no numbers ------------------------------------------------------------------------------ */

static void test_not_finite(void **state)
{
    struct qm_codec c = expanding(16);
    float x[N];
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = (i % 2 ? -1.0f : 1.0f) * (1.0f + (float)i);
    struct encoded without = encode(&c, x, N);
    x[50] = NAN;
    struct encoded e = encode(&c, x, N);
    assert_memory_equal(e.number, without.number, sizeof e.number);
    for (int i = 0; i < N; i++) {
        assert_int_equal(e.code[i], i == 50 ? 0x7f : without.code[i]);
        assert_true(i == 50 ? isnan(e.out[i]) : e.out[i] == without.out[i]);
    }
    x[9] = -INFINITY; /* beside the NaN: all codes are the largest, and all decode to Inf */
    e = encode(&c, x, N);
    assert_true(e.number[0] == 1.0f / 448.0f && e.number[1] == 0.0f && isinf(e.number[2]));
    for (int i = 0; i < N; i++) {
        assert_int_equal(e.code[i] & 0x7f, 0x7e);
        assert_true(isinf(e.out[i]) && (i == 50 || (e.out[i] < 0.0f) == (x[i] < 0.0f)));
    }
    for (int i = 0; i < N; i++)
        x[i] = NAN; /* M = 0, L = 1e9 */
    e = encode(&c, x, N);
    assert_true(e.number[1] == -0.1875f);
    for (int i = 0; i < N; i++)
        assert_true(e.code[i] == 0x7f && isnan(e.out[i]));
}

/* k = 0: a ratio above 100352 in whole steps.  Zeros become +-c, too. */
static void test_no_exponent(void **state)
{
    struct qm_codec c = expanding(1);
    float x[4] = {1.0f, -1e-6f, 0.5f, 0.0f};
    (void)state;
    struct encoded e = encode(&c, x, 4);
    assert_true(e.number[0] == 1.0f / 448.0f && e.number[1] == 0.0f);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(e.code[i], i == 1 ? 0xfe : 0x7e);
        assert_true(e.out[i] == (i == 1 ? -e.number[2] : e.number[2]));
    }
}

/* ---- words ----------------------------------------------------------------------------------- */

static void test_words(void **state)
{
    static const char *const bad[] = {
        "e4m3:8s/block:128/bisect/even/expand:0",
        "e4m3:8s/block:128/bisect/even/expand:65537",
        "e4m3:8s/block:128/bisect/even/expand:x",
        "e4m3:8s/block:128/bisect/even/expand/expand:8",
        "e4m3:8s/block:1025/bisect/even/expand",
        "e4m3:8s/row/bisect/even/expand",
        "e4m3:8s/block:128/bisect/even/expand/floor:1e-12",
        "e4m3:8s/block:128/bisect/even/expand/recip",
        "e4m3:8s/block:128/bisect/even/expand/maxskip",
        "e4m3:8s/block:128/bisect/even/expand/nantop",
        "dyn:8s/block:128/bisect/even/expand",
        "e4m3:8s/block:128/bisect/even/sqrt:2",
        "e4m3:8s/block:128/bisect/even/plus:-1",
        "al:8u/block:64/arith/even/allog/plus:1e-12",
    };
    struct qm_quantizer q;
    char text[QM_QUANTIZER_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (qm_quantizer_parse(bad[i], &q) != QM_BAD_ARG)
            fail_msg("%s is not refused", bad[i]);
    assert_int_equal(qm_quantizer_parse("e4m3:8s/block:128/bisect/even/expand/plus:1e-30", &q),
                     QM_OK);
    assert_string_equal(qm_quantizer_print(&q, text),
                        "e4m3:8s/block:128/bisect/even/expand:16/plus:1e-30");
    assert_true(q.scale.plus == 1e-30);
    assert_int_equal(qm_quantizer_set(&q, "curve", "expand:8"), QM_OK);
    assert_int_equal(q.expand, 8);
    assert_int_equal(qm_quantizer_set(&q, "curve", "none"), QM_OK);
    assert_string_equal(qm_quantizer_print(&q, text), "e4m3:8s/block:128/bisect/even/plus:1e-30");
}

/* plus:V without a curve: the sum in double, rounded, then divided by 448. */
static void test_plus(void **state)
{
    struct qm_codec c = codec_of("e4m3:8s/block:4/bisect/even/plus:1e-20");
    float x[12] = {0.0f, 1e-20f, -3e-20f, 0.0f, 7.0f, -0.25f, 0.0f, 3.0f}, scale[3];
    struct qm_shape shape = {1, {12}};
    uint8_t code[12];
    (void)state;
    assert_int_equal(qm_encode(&c, &shape, x, NULL, code, scale), QM_OK);
    const float want[3] = {(float)((double)3e-20f + 1e-20) / 448.0f, 7.0f / 448.0f,
                           (float)1e-20 / 448.0f};
    assert_memory_equal(scale, want, sizeof want);
    for (int i = 0; i < 12; i++)
        assert_int_equal(code[i], qm_float_to_e4m3(x[i] / want[i / 4], 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduction),     cmocka_unit_test(test_lost_minimum),
        cmocka_unit_test(test_exponent),      cmocka_unit_test(test_error),
        cmocka_unit_test(test_one_magnitude), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_not_finite),    cmocka_unit_test(test_no_exponent),
        cmocka_unit_test(test_words),         cmocka_unit_test(test_plus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
