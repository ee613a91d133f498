/* test_code_edges.c - Tests which codes the error of a number allows: of drawn numbers the code of
 * float32 is within the range, and no range holds one whose edge is further away. */
#include <math.h>

#include "core/quant/adaptive_log.h"
#include "core/quant/quantile_log.h"
#include "experiments/conform/code_edges.h"
#include "tests/support/one_tensor.h"

enum { DRAWS = 20000 };

static int holds(struct qm_code_range r, int64_t code) { return r.low <= code && code <= r.high; }

/* The code as the package forms it, by the C library's float32 logarithms and powers. */
static int64_t quantile_code(const struct qm_quantile_number *a)
{
    float top = (float)a->top, y = (float)a->x / (float)a->scale, alpha = (float)a->alpha;
    float k = log2f(y) / log2f(alpha), u = (float)a->u;
    if (!a->is_unbiased)
        return (int64_t)fminf(fmaxf(rintf(k + (u - 0.5f)), 0.0f), top);
    float d = fminf(fmaxf(floorf(k), 0.0f), top), e = fminf(d + 1.0f, top);
    float big = powf(alpha, d), small = powf(alpha, e);
    return (int64_t)(y - small >= (big - small) * u ? d : e);
}

/* How far, in codes, the number is from the edge of the range's nearer neighbour; of round
 * bernoulli, in shares of the cell. */
static double to_edge(const struct qm_quantile_number *a)
{
    double k = log2(a->x / a->scale) / log2(a->alpha), d = floor(k);
    if (!a->is_unbiased)
        return fabs(k + a->u - 0.5 - floor(k + a->u - 0.5) - 0.5);
    double b = pow(a->alpha, d), s = pow(a->alpha, d + 1.0);
    return fmin(fabs((a->x / a->scale - s) / (b - s) - a->u), fmin(k - d, d + 1.0 - k));
}

static void test_quantile(void **state)
{
    (void)state;
    int64_t ranges = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        static const int tops[] = {3, 7, 15, 255};
        struct qm_quantile_number a = {.top = tops[i % 4], .is_unbiased = i / 4 % 2};
        a.scale = (double)(1e-6f + uniform(1, i));
        a.alpha = (double)exp2f(-(0.2f + 40.0f * uniform(2, i)) / (float)a.top);
        a.x = (double)(float)(a.scale * pow(a.alpha, (double)uniform(3, i) * a.top));
        a.u = floor((double)uniform(4, i) * 0x1p24) * 0x1p-24;
        int64_t code = quantile_code(&a);
        struct qm_code_range r = qm_code_range_quantile(&a, code);
        assert_true(holds(r, code));
        ranges += r.low < r.high;
        if (to_edge(&a) > 1e-2)
            assert_true(r.low == code && r.high == code);
    }
    assert_in_range(ranges, 0, DRAWS / 100);
}

/* On an edge, or at an ulp from it, both codes are within the range; and a number that is off has
 * the codes of all that it may be. */
static void test_quantile_edge(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 200; i++) {
        struct qm_quantile_number a = {
            .top = 15, .scale = 1.0, .alpha = (double)(0.3f + 0.6f * uniform(5, i)), .u = 0.5};
        int64_t d = 1 + i % 12;
        a.x = (double)(float)pow(a.alpha, (double)d + 0.5);
        struct qm_code_range r = qm_code_range_quantile(&a, d);
        assert_true(r.low == d && r.high == d + 1);
        a.x = pow(a.alpha, (double)d + 0.25);
        a.off = a.x * (1.0 - pow(a.alpha, 0.5));
        r = qm_code_range_quantile(&a, d);
        assert_true(holds(r, d) && holds(r, d + 1) && r.high - r.low <= 2);
    }
}

/* Blocks of one value, of a quantile of 0, and of NaN, and zeros, have the one code that the
 * package gives them. */
static void test_quantile_special(void **state)
{
    (void)state;
    static const float alphas[] = {1.0f, 0.0f, NAN, 0.5f};
    static const float xs[] = {1.0f, 0.25f, 1.0f, 0.0f};
    for (int i = 0; i < 4; i++)
        for (int code = 1; code < 16; code++) {
            struct qm_quantile_number a = {
                .x = (double)xs[i], .scale = 1.0, .alpha = (double)alphas[i], .u = 0.3, .top = 15};
            assert_false(holds(qm_code_range_quantile(&a, code), code));
        }
}

/* A block of one number has alpha 1; a number that is an ulp off has the code of one that is the
 * scale, or of one beside it, and no other. */
static void test_quantile_ones(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 3 * DRAWS / 100; i++) {
        struct qm_quantile_number a = {
            .top = 15, .alpha = 1.0, .u = (double)uniform(8, i), .is_unbiased = i % 2};
        float at = 1e-12f + uniform(9, i);
        a.scale = (double)at;
        unsigned is = 0;
        for (int k = -1; k <= 1; k++) {
            a.x = (double)(k < 0 ? nextafterf(at, 0.0f) : k ? nextafterf(at, 2.0f) : at);
            is |= 1u << quantile_code(&a);
        }
        a.x = (double)(i % 3 == 0 ? at : i % 3 == 1 ? nextafterf(at, 0.0f) : nextafterf(at, 2.0f));
        a.off = 2.0 * fabs((double)nextafterf(at, 2.0f) - (double)at);
        for (int code = 0; code < 16; code++)
            assert_int_equal(holds(qm_code_range_quantile(&a, code), code), is >> code & 1);
    }
}

static void test_logs(void **state)
{
    (void)state;
    for (int64_t i = 0; i < DRAWS; i++) {
        float x = exp2f(60.0f * uniform(6, i) - 40.0f), span = 100.0f + 50.0f * uniform(7, i);
        double at = (log2((double)x) + 126.0) / (double)span * 255.0;
        int64_t code = (int64_t)fminf(rintf((log2f(x) + 126.0f) / span * 255.0f), 255.0f);
        struct qm_code_range r = qm_code_range_log(NULL, (double)x, 0.0, (double)span);
        assert_true(holds(r, code));
        if (fabs(at - floor(at) - 0.5) > 1e-3)
            assert_true(r.low == code && r.high == code);
        float low = -40.0f + 10.0f * uniform(8, i);
        at = (log2((double)x) - (double)low) / (double)span * 254.0;
        code = (int64_t)qm_adaptive_log_code(x, span, low, 256);
        r = qm_code_range_adaptive((double)x, (double)span, (double)low, 256);
        assert_true(holds(r, code));
        if (fabs(at - floor(at) - 0.5) > 1e-3)
            assert_true(r.low == code && r.high == code);
    }
}

/* Codes of a table: an error that does not reach the mid-point allows no other code. */
static void test_table(void **state)
{
    (void)state;
    struct qm_codec codec;
    assert_int_equal(qm_codec_parse(&codec, "dyn:8s/block:256/argmin/mid"), QM_OK);
    for (int64_t i = 0; i < DRAWS; i++) {
        int k = 1 + (int)(i % 253);
        double a = (double)codec.cb.value[k], b = (double)codec.cb.value[k + 1];
        double off = 1e-6 * (b - a), edge = 0.5 * (a + b),
               at = (double)uniform(9, i) * 0.4 * (b - a);
        struct qm_code_range r = qm_code_range_table(&codec, a + at, off, 1.0);
        assert_true(r.low == k && r.high == k);
        r = qm_code_range_table(&codec, edge, off + 1e-7 * fabs(edge), 1.0);
        assert_true(r.low == k && r.high == k + 1);
    }
    assert_true(qm_code_range_table(&codec, nan(""), 0.0, 1.0).low >
                qm_code_range_table(&codec, nan(""), 0.0, 1.0).high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantile),
        cmocka_unit_test(test_quantile_edge),
        cmocka_unit_test(test_quantile_special),
        cmocka_unit_test(test_quantile_ones),
        cmocka_unit_test(test_quantile_ones),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
