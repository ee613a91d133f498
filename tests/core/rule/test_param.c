/* test_param.c - Tests every format and way of writing of low-bit parameters on its definition.
 *
 * The definition is a grid of doubles: all finite values of a format in order, decoded here by the
 * format's formula.  All expected results follow from an element's two neighbours on the grid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/isa.h"
#include "core/base/narrow.h"
#include "core/recipe/recipe.h"

/* clang-format off */
static const struct format {
    const char *name;
    enum qm_param_format format;
    int bits, mantissa, bias;
    int codes;    /* finite, not negative: patterns 0 .. codes - 1 */
    uint32_t nan; /* what a NaN becomes */
    int saturates;
} formats[] = {
    {"bf16", QM_PARAM_bf16, 16,  7, 127, 0x7f80, 0x7fff, 0},
    {"f16",  QM_PARAM_f16,  16, 10,  15, 0x7c00, 0x7fff, 0},
    {"e4m3", QM_PARAM_e4m3,  8,  3,   7, 0x007f, 0x007f, 1},
};
/* clang-format on */
enum { FORMATS = 3 };

static uint32_t word(uint64_t i) { return qm_philox_stream(20240117, 3, i); }

/* (1 + m / 2^mantissa) 2^(e - bias); for e = 0, (m / 2^mantissa) 2^(1 - bias). */
static double value_of(const struct format *f, int code)
{
    int e = code >> f->mantissa, m = code & ((1 << f->mantissa) - 1);
    double significand = m + (e > 0 ? 1 << f->mantissa : 0);
    return ldexp(significand, (e > 0 ? e : 1) - f->bias - f->mantissa);
}

/* The largest code of a value <= x; 0 <= x < value_of(f, f->codes). */
static int floor_code(const struct format *f, double x)
{
    int from = 0, to = f->codes; /* value_of(codes) would follow the largest value */
    while (to - from > 1) {
        int mid = (from + to) / 2;
        if (value_of(f, mid) <= x)
            from = mid;
        else
            to = mid;
    }
    return from;
}

/* The bits of a code, which may lie one beyond the largest, with x's sign. */
static uint32_t coded(const struct format *f, int code, float x)
{
    int beyond = f->saturates ? f->codes - 1 : f->codes; /* codes: Inf */
    return (uint32_t)(code < beyond ? code : beyond) | (signbit(x) ? 1u << (f->bits - 1) : 0u);
}

static uint32_t nearest_by_grid(const struct format *f, float x)
{
    double a = fabs((double)x);
    if (isnan(x))
        return f->nan;
    if (a >= value_of(f, f->codes))
        return coded(f, f->codes, x);
    int k = floor_code(f, a);
    double mid = 0.5 * (value_of(f, k) + value_of(f, k + 1)); /* exact in double */
    return coded(f, a > mid || (a == mid && (k & 1)) ? k + 1 : k, x);
}

/* Floats of all exponents, and every mid-point, value and limit with its neighbours. */
static int64_t inputs(const struct format *f, int64_t i, float *x)
{
    int64_t edges = (int64_t)(f->codes + 1) * 6;
    if (i >= edges + 300000)
        return 0;
    if (i < edges) {
        int code = (int)(i / 6), d = (int)(i % 3) - 1;
        double v = value_of(f, code), next = value_of(f, code + 1);
        double at = i / 3 % 2 ? 0.5 * (v + next) : v;
        *x = at > 3.4028234663852886e38 ? INFINITY : (float)at;
        *x = *x == 0.0f && d < 0 ? -0.0f : qm_float(qm_bits(*x) + (uint32_t)d);
        if (word((uint64_t)i) & 1)
            *x = -*x;
        return 1;
    }
    uint32_t w = word((uint64_t)i);
    if (i % 4 == 0) /* exponents around the format's range */
        w = (w & 0x807fffffu) |
            ((uint32_t)(127 - f->bias - f->mantissa - 3 +
                        (int)(word((uint64_t)i + 7000000) % (unsigned)(2 * f->bias + 12))) &
             0xffu)
                << 23;
    *x = qm_float(w);
    return 1;
}

static void test_widen(void **state)
{
    (void)state;
    for (int k = 0; k < FORMATS; k++) {
        const struct format *f = &formats[k];
        for (int code = 0; code < f->codes; code++) {
            uint32_t minus = (uint32_t)code | 1u << (f->bits - 1);
            double v = value_of(f, code);
            assert_true((double)qm_param_widen(f->format, (uint32_t)code) == v);
            assert_true((double)qm_param_widen(f->format, minus) == -v);
            assert_true(signbit(qm_param_widen(f->format, minus)));
            assert_int_equal(qm_param_nearest(f->format, (float)v), code);
            assert_int_equal(qm_param_nearest(f->format, (float)-v), minus);
        }
        assert_true(qm_isnan(qm_param_widen(f->format, f->nan)));
    }
}

static void test_nearest(void **state)
{
    float x;
    (void)state;
    for (int k = 0; k < FORMATS; k++)
        for (int64_t i = 0; inputs(&formats[k], i, &x); i++) {
            uint32_t got = qm_param_nearest(formats[k].format, x);
            uint32_t want = nearest_by_grid(&formats[k], x);
            if (got != want)
                fail_msg("%s: %a gives %x, want %x", formats[k].name, (double)x, got, want);
        }
}

/* Values of the grid stay for every draw; otherwise the magnitude goes up iff r / 2^32 is below the
 * exact position in the cell, cut to 32 bits: checked at both sides of that draw. */
static void test_stochastic(void **state)
{
    float x;
    (void)state;
    for (int k = 0; k < FORMATS; k++) {
        const struct format *f = &formats[k];
        for (int64_t i = 0; inputs(f, i, &x); i++) {
            double a = fabs((double)x);
            uint32_t draws[4] = {0, 0xffffffffu, word((uint64_t)i + 5000000)}, n = 3;
            int low = 0;
            double share = 0.0;
            if (isnan(x) || isinf(x) || a >= value_of(f, f->codes)) {
                for (uint32_t d = 0; d < n; d++)
                    assert_int_equal(qm_param_stochastic(f->format, x, draws[d]),
                                     nearest_by_grid(f, x));
                continue;
            }
            low = floor_code(f, a);
            share = (a - value_of(f, low)) / (value_of(f, low + 1) - value_of(f, low));
            /* share is exact, because its divisor is a power of two. */
            double threshold = floor(ldexp(share, 32));
            if (threshold > 0.0) {
                draws[n++] = (uint32_t)threshold - 1;
                draws[1] = (uint32_t)threshold;
            }
            for (uint32_t d = 0; d < n; d++) {
                uint32_t got = qm_param_stochastic(f->format, x, draws[d]);
                uint32_t want = coded(f, low + ((double)draws[d] < threshold), x);
                if (got != want)
                    fail_msg("%s: %a by %x gives %x, want %x", f->name, (double)x, draws[d], got,
                             want);
            }
            /* P(up) = threshold / 2^32 is below the share by less than 2^-32 of an ulp */
            assert_true(share - ldexp(threshold, -32) < 0x1p-32);
        }
    }
}

/* bf16: the mean over the 2^16 thresholds is x itself, exactly; 16 more bits change nothing. */
static void test_stochastic_mean(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        uint32_t w = word((uint64_t)i + 900);
        float x = i == 0   ? 0x1.fffffep-1f
                  : i == 1 ? -0x1.000002p0f
                  : i == 2 ? 0x1p-149f
                  : i == 3 ? 0x1.8p-134f
                           : qm_float((w & 0x807fffffu) | (100u + w % 50u) << 23);
        double sum = 0.0; /* exact: 2^16 numbers of 8 bits on one or two binades */
        for (uint32_t r = 0; r < 65536; r++) {
            uint32_t h = qm_param_stochastic(QM_PARAM_bf16, x, r << 16);
            assert_int_equal(h, qm_param_stochastic(QM_PARAM_bf16, x, r << 16 | 0xffffu));
            sum += (double)qm_param_widen(QM_PARAM_bf16, h);
        }
        assert_true(sum == 65536.0 * (double)x);
    }
}

/* Philox draws: the mean of 2^16 roundings is within five standard deviations of x. */
static void test_stochastic_bias(void **state)
{
    enum { N = 65536 };
    (void)state;
    for (int k = 0; k < FORMATS; k++)
        for (int i = 0; i < 12; i++) {
            const struct format *f = &formats[k];
            float x = 0.01f + (float)(word((uint64_t)i + 77) >> 8) * 0x1p-22f;
            int low = floor_code(f, (double)x), ups = 0;
            double a = value_of(f, low), share = ((double)x - a) / (value_of(f, low + 1) - a);
            struct qm_draws d = qm_draws_for(5, i, 1, QM_ROLE_param);
            for (int64_t j = 0; j < N; j++)
                ups += (int)qm_param_stochastic(f->format, x, qm_draw(&d, j)) != low;
            assert_true(fabs(ups - N * share) <= 5.0 * sqrt(N * share * (1.0 - share)) + 1e-9);
        }
}

/* An error-corrected parameter differs from the float32 value by at most half a step of
 * its residual. */
static void test_error_correction(void **state)
{
    float x;
    (void)state;
    for (int k = 0; k < 2; k++) { /* e4m3 composes with near and stoch only */
        const struct format *f = &formats[k];
        for (int64_t i = 0; inputs(f, i, &x); i++) {
            uint32_t h = qm_param_nearest(f->format, x), code = h & 0x7fffu;
            double stored = (double)qm_param_widen(f->format, h);
            double off[2];
            if ((int)code >= f->codes) { /* Inf and NaN are not corrected */
                assert_int_equal(qm_ecc_encode(f->format, x, h, 127), 0);
                assert_int_equal(qm_ecc_encode(f->format, x, h, 32767), 0);
                continue;
            }
            double half = ldexp(1.0, (code >> f->mantissa ? (int)(code >> f->mantissa) : 1) -
                                         f->bias - f->mantissa - 1);
            for (int wide = 0; wide < 2; wide++) {
                int most = wide ? 32767 : 127, e = qm_ecc_encode(f->format, x, h, most);
                double back = (double)qm_ecc_decode(f->format, h, e, most), rounding;
                off[wide] = fabs(back - (double)x);
                rounding = 0x1p-23 * (half + fabs((double)x)) + 0x1p-149;
                assert_true(abs(e) <= most && (stored != (double)x || e == 0));
                if (off[wide] > half * 0.5 / most + rounding)
                    fail_msg("%s/ecc%d: %a comes back as %a", f->name, wide ? 16 : 8, (double)x,
                             back);
                assert_true((double)qm_ecc_decode(f->format, h, 0, most) == stored);
            }
        }
    }
}

static void test_kahan_residual(void **state)
{
    float x;
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; inputs(&formats[k], i, &x); i++) {
            const struct format *f = &formats[k];
            uint32_t h = qm_param_nearest(f->format, x), c = qm_kahan_residual(f->format, x, h);
            double left = (double)x - (double)qm_param_widen(f->format, h);
            if (!isfinite(left)) {
                assert_int_equal(c, 0);
                continue;
            }
            assert_int_equal(c, nearest_by_grid(f, (float)left)); /* the difference is exact */
            assert_true((double)(float)left == left);
        }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The loops give the bits of the element functions, at every instruction set, from any offset. */
static void test_rows(void **state)
{
    enum { N = 1021 };
    static float x[N], out[N];
    static uint32_t draw[N];
    static uint16_t h[N];
    static uint8_t b[N];
    (void)state;
    for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
        if (!qm_isa_force((enum qm_isa)isa))
            continue;
        const struct qm_narrow *rows = qm_narrow();
        for (int64_t round = 0; round < 200; round++) {
            int64_t from = round * 1237 + (round > 100 ? (int64_t)1 << 36 : 0), n = N - round;
            struct qm_draws d = qm_draws_for(0x123456789abcdefu, round, 7, QM_ROLE_param);
            const struct format *f = &formats[round % FORMATS];
            rows->draws(&d, from, n, draw);
            for (int64_t i = 0; i < n; i++) {
                assert_int_equal(draw[i], qm_draw(&d, from + i));
                assert_true(inputs(f, (round * 7919 + i * 31) % (6 * f->codes + 300000), &x[i]));
            }
            rows->float_to_bf16(x, n, h);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(h[i], qm_float_to_bf16(x[i]));
            rows->stochastic_bf16(x, draw, n, h);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(h[i], qm_param_stochastic(QM_PARAM_bf16, x[i], draw[i]));
            rows->bf16_to_float(h, n, out);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(qm_bits(out[i]), qm_bits(qm_bf16_to_float(h[i])));
            rows->float_to_e4m3(x, n, b);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(b[i], qm_float_to_e4m3(x[i], 1));
            for (int64_t i = 0; i < n; i++)
                b[i] = (uint8_t)(i + round);
            rows->e4m3_to_float(b, n, out);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(qm_bits(out[i]), qm_bits(qm_e4m3_to_float(b[i])));
        }
    }
}

/* ---- small steps ----------------------------------------------------------------------------- */

struct kept {
    uint32_t h, residual;
};

static float restored(const struct qm_param *q, struct kept k)
{
    switch (q->write) {
    case QM_WRITE_kahan:
        return qm_param_widen(q->format, k.h) + qm_param_widen(q->format, k.residual);
    case QM_WRITE_ecc8: return qm_ecc_decode(q->format, k.h, (int8_t)k.residual, 127);
    case QM_WRITE_ecc16: return qm_ecc_decode(q->format, k.h, (int16_t)k.residual, 32767);
    default: return qm_param_widen(q->format, k.h);
    }
}

static struct kept written(const struct qm_param *q, float x, uint32_t draw)
{
    struct kept k = {q->write == QM_WRITE_stoch ? qm_param_stochastic(q->format, x, draw)
                                                : qm_param_nearest(q->format, x),
                     0};
    if (q->write == QM_WRITE_kahan)
        k.residual = qm_kahan_residual(q->format, x, k.h);
    if (q->write == QM_WRITE_ecc8)
        k.residual = (uint8_t)qm_ecc_encode(q->format, x, k.h, 127);
    if (q->write == QM_WRITE_ecc16)
        k.residual = (uint16_t)qm_ecc_encode(q->format, x, k.h, 32767);
    return k;
}

/* mean |x - master| / mean |change of master| after 1000 steps of +-lr with a drift, from values
 * about N(0, 1) on the grid.  x is restored from the stored parameter and its residual; master
 * is a float32 number that takes the same steps. */
static double off_course(const char *text, double lr)
{
    enum { N = 1000, STEPS = 1000 };
    struct qm_param q;
    double error = 0.0, change = 0.0;
    assert_int_equal(qm_param_parse(text, &q), QM_OK);
    for (int64_t i = 0; i < N; i++) {
        struct qm_draws draws = qm_draws_for(1, 0, (uint32_t)i, QM_ROLE_param);
        float z = -6.0f;
        for (uint64_t j = 0; j < 12; j++)
            z += qm_uniform(qm_philox_stream(9, j, (uint64_t)i));
        struct kept k = written(&q, z, 0xffffffffu);
        k.residual = 0;
        float master = restored(&q, k), start = master;
        for (int64_t t = 0; t < STEPS; t++) {
            int forward = qm_philox_stream(10, (uint64_t)t, (uint64_t)i) % 10 < 7;
            float step = (float)(forward == (i & 1) ? lr : -lr);
            master += step;
            k = written(&q, restored(&q, k) + step, qm_draw(&draws, t));
        }
        error += fabs((double)restored(&q, k) - (double)master);
        change += fabs((double)master - (double)start);
    }
    return error / change;
}

/* The relative error of each way of writing at three step lengths.  A bound is twice the error
 * in a simulation of 20,000 bfloat16 weights (nearest 0.72, 0.985, 0.998; stoch 0.11, 0.40,
 * 1.26; ...); it is `finer` times smaller for f16, which has three bits more. */
static void test_small_steps(void **state)
{
    static const struct {
        const char *write;
        double bound[3], finer;
    } ways[] = {{"stoch", {0.22, 0.8, 2.5}, 2.8}, /* a random walk of steps sqrt(ulp lr) */
                {"ecc8", {0.01, 0.11, 1.1}, 8.0},
                {"kahan", {0.0028, 0.024, 0.18}, 8.0},
                {"ecc16", {4e-5, 3.4e-4, 2.2e-3}, 8.0}};
    static const double lr[3] = {1e-3, 1e-4, 1e-5};
    char text[32];
    (void)state;
    for (int j = 0; j < 3; j++) {
        double last = off_course("bf16/near", lr[j]);
        print_message("lr %g: bf16/near %.3g", lr[j], last);
        assert_true(last > 0.5); /* steps below half an ulp are lost */
        for (int w = 0; w < 4; w++) {
            snprintf(text, sizeof text, "bf16/%s", ways[w].write);
            double off = off_course(text, lr[j]);
            print_message(", %s %.3g", text, off);
            assert_true(off <= ways[w].bound[j]);
            snprintf(text, sizeof text, "f16/%s", ways[w].write);
            double fine = off_course(text, lr[j]);
            print_message(", %s %.3g", text, fine);
            assert_true(fine <= ways[w].bound[j] / ways[w].finer);
        }
        print_message("\n");
    }
}

static void test_words(void **state)
{
    static const char *const good[] = {"f32",      "bf16/near", "bf16/stoch", "bf16/kahan",
                                       "f16/ecc8", "f16/ecc16", "e4m3/near",  "e4m3/stoch"};
    static const int bytes[][2] = {{4, 0}, {2, 0}, {2, 0}, {2, 2}, {2, 1}, {2, 2}, {1, 0}, {1, 0}};
    static const char *const bad[] = {"f32/stoch", "e4m3/kahan", "e4m3/ecc8", "e4m3/ecc16",
                                      "bf17",      "bf16/up",    "",          "bf16/"};
    struct qm_param q = {QM_PARAM_f32, QM_WRITE_near};
    char text[24];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(qm_param_parse(good[i], &q), QM_OK);
        assert_string_equal(qm_param_text(&q, text), good[i]);
        assert_int_equal(qm_param_bytes(&q), bytes[i][0]);
        assert_int_equal(qm_param_residual(&q), bytes[i][1]);
        assert_int_equal(qm_dtype_size(qm_param_dtype(&q)), bytes[i][0]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(qm_param_parse(bad[i], &q), QM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widen),           cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_stochastic),      cmocka_unit_test(test_stochastic_mean),
        cmocka_unit_test(test_stochastic_bias), cmocka_unit_test(test_error_correction),
        cmocka_unit_test(test_kahan_residual),  cmocka_unit_test(test_small_steps),
        cmocka_unit_test(test_words),           cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
