/* test_affine.c - Tests the affine code between the ends of a block (core/quant/affine.h). */
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

enum { N = 333, TRIES = 600 };
static const uint64_t seed = 20261124;

static uint32_t word(int i)
{
    struct qm_draws d = qm_draws_for(seed, 1, 0, QM_ROLE_spare);
    return qm_draw(&d, i);
}

static float bf16_of(float x) { return qm_bf16_to_float(qm_float_to_bf16(x)); }

/* N numbers: of all exponents, ordinary, of few values, or subnormal bfloat16. */
static void fill(int try, float *x)
{
    for (int i = 0; i < N; i++) {
        uint32_t u = word(N * try + i);
        x[i] = try % 4 == 0   ? qm_float((u & 0x80000000u) | u % 0x7e000000u)
               : try % 4 == 1 ? (qm_uniform(u) - 0.3f) * 4.0f
               : try % 4 == 2 ? (float)(u % 7) - 3.0f
                              : qm_float((u & 0x80000000u) | (u % 9) << 16);
    }
}

/* The definition: halves up by counting thresholds, in double where that is exact enough. */
static void slow(const float *x, int64_t n, int top, int is_bf16, uint8_t *codes, float *ends,
                 float *values)
{
    float lo = x[0], hi = x[0], unit;
    for (int64_t i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    lo = is_bf16 ? bf16_of(lo) : lo;
    hi = is_bf16 ? bf16_of(hi) : hi;
    unit = (hi - lo) / (float)top;
    for (int64_t i = 0; i < n; i++) {
        int code = 0;
        float q = hi == lo ? 0.0f : (x[i] - lo) / unit;
        for (int k = 1; k <= top; k++)
            code += q + 0.5f >= (float)k;
        codes[i] = (uint8_t)code;
        float product = (float)code * unit;
        values[i] = product + lo;
    }
    ends[0] = lo;
    ends[1] = hi;
}

static void test_definition(void **state)
{
    static const int blocks[] = {1, 5, 64, 100, N, 4096}, bits[] = {2, 4, 8};
    float x[N], ends[2 * N], want_ends[2], values[N], want_values[N];
    uint8_t codes[N], want[N];
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int try = 0; try < TRIES; try++) {
        int block = blocks[try % 6], b = bits[try / 6 % 3], is_bf16 = try / 18 % 2;
        struct qm_codec c;
        char text[QM_QUANTIZER_TEXT];
        struct qm_shape shape = {1, {N}};
        snprintf(text, sizeof text, "affine:%ds/block:%d/arith/near/hi/affine%s", b, block,
                 is_bf16 ? "/bf16" : "");
        assert_int_equal(qm_codec_parse(&c, text), QM_OK);
        fill(try, x);
        assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, ends), QM_OK);
        qm_decode(&c, &shape, codes, ends, values);
        assert_int_equal(qm_scale_count(&c, &shape), 2 * ((N + block - 1) / block));
        for (int64_t from = 0, k = 0; from < N; from += block, k += 2) {
            int64_t n = N - from < block ? N - from : block;
            slow(x + from, n, (1 << b) - 1, is_bf16, want, want_ends, want_values);
            assert_true(ends[k] == want_ends[0] && ends[k + 1] == want_ends[1]);
            for (int64_t i = 0; i < n; i++)
                if (codes[from + i] != want[i] || values[from + i] != want_values[i])
                    fail_msg("%s: %a between %a and %a has code %d, value %a, want %d, %a", text,
                             (double)x[from + i], (double)ends[k], (double)ends[k + 1],
                             codes[from + i], (double)values[from + i], want[i],
                             (double)want_values[i]);
        }
    }
}

/* A statistic folded over any ranges is that of the whole block. */
static void test_ranges(void **state)
{
    struct qm_codec c;
    struct qm_shape shape = {1, {N}};
    float x[N], whole[2] = {0}, parts[2], other[2];
    (void)state;
    assert_int_equal(qm_codec_parse(&c, "affine:4s/block:1000/arith/near/hi/affine"), QM_OK);
    for (int try = 0; try < 40; try++) {
        int64_t cut = (int64_t)(word(try) % N);
        fill(try, x);
        memset(whole, 0, sizeof whole);
        memset(parts, 0, sizeof parts);
        memset(other, 0, sizeof other);
        qm_fold(&c, &shape, 0, N, x, whole);
        qm_fold(&c, &shape, 0, cut, x, parts);
        qm_fold(&c, &shape, cut, N - cut, x + cut, other);
        qm_fold_merge(parts, other, 2);
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

/* One value decodes to itself; zero between two ends has no code; NaN and Inf poison a block. */
static void test_traps(void **state)
{
    struct qm_codec c;
    struct qm_shape shape = {1, {4}};
    float x[4] = {0.7f, 0.7f, 0.7f, 0.7f}, ends[2], out[4];
    uint8_t codes[4];
    (void)state;
    assert_int_equal(qm_codec_parse(&c, "affine:4s/block:64/arith/near/hi/affine"), QM_OK);
    assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, ends), QM_OK);
    qm_decode(&c, &shape, codes, ends, out);
    for (int i = 0; i < 4; i++)
        assert_true(codes[i] == 0 && out[i] == x[i]);
    x[0] = -0.4f, x[1] = 0.0f;
    assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, ends), QM_OK);
    qm_decode(&c, &shape, codes, ends, out);
    assert_true(out[1] != 0.0f && fabsf(out[1]) <= 1.1f / 30.0f + 1e-6f);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        x[2] = bad[k];
        assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, ends), QM_OK);
        qm_decode(&c, &shape, codes, ends, out);
        for (int i = 0; i < 4; i++)
            assert_true(codes[i] == 0 && isnan(out[i]));
        assert_true(k || (isnan(ends[0]) && isnan(ends[1])));
    }
}

/* Bytes: two codes in one, the first in the high half; two bytes for an end in bfloat16. */
static void test_bytes(void **state)
{
    struct qm_codec c;
    struct qm_shape shape = {1, {5}};
    const uint8_t codes[5] = {1, 2, 3, 4, 5};
    uint8_t bytes[3];
    (void)state;
    assert_int_equal(qm_codec_parse(&c, "affine:4s/block:4/arith/near/hi/affine/bf16"), QM_OK);
    qm_pack_range(&c, codes, 5, bytes);
    assert_true(bytes[0] == 0x12 && bytes[1] == 0x34 && bytes[2] == 0x50);
    assert_int_equal(qm_state_bytes(&c, &shape), 3 + 4 * 2);
    assert_int_equal(qm_codec_parse(&c, "affine:4s/block:4/arith/near/hi/affine"), QM_OK);
    assert_int_equal(qm_state_bytes(&c, &shape), 3 + 4 * 4);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "affine:4s/block:64/arith/near/hi",
        "lint:4s/block:64/arith/near/hi/affine",
        "affine:4s/row/arith/near/hi/affine",
        "affine:4s/block:64/bisect/near/hi/affine",
        "affine:4s/block:64/arith/stoch/hi/affine",
        "affine:4s/block:64/arith/near/hi/affine/recip",
        "affine:4s/block:64/arith/near/hi/affine/f16",
        "affine:4s/block:64/arith/near/hi/affine/floor:1",
        "affine:4u/block:64/arith/near/hi/affine",
        "dyn:4s/block:64/bisect/near/hi/bf16",
    };
    struct qm_quantizer q;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (qm_quantizer_parse(bad[i], &q) != QM_BAD_ARG)
            fail_msg("%s is not refused", bad[i]);
}

/* Format i16: whole numbers, the ends, ties to even, NaN. */
static void test_whole(void **state)
{
    static const float from[] = {0.4f, 2.5f, 3.5f, -1e9f, 1e9f, NAN, 20863.0f},
                       to[] = {0.0f, 2.0f, 4.0f, -32768.0f, 32767.0f, 0.0f, 20863.0f};
    (void)state;
    for (int i = 0; i < 7; i++)
        assert_true(qm_plain_of(QM_PLAIN_i16, from[i]) == to[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_traps),      cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
