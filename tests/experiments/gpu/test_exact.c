/* test_exact.c - The comparison of gpu-check's part exact: what its gradients hold, and which
 * differences between two backends it sees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/gpu/gpu.h"

enum { N = 1 << 16 };

/* Every class has what its name says, of both signs, in step 2; most numbers stay ordinary. */
static void test_gradients(void **state)
{
    static float g[N], plain[N];
    (void)state;
    for (int kind = 0; kind < QM_GRADIENTS_COUNT; kind++)
        for (int64_t t = 1; t <= 3; t++) {
            int nan[2] = {0}, inf[2] = {0}, tiny[2] = {0}, zero[2] = {0}, huge[2] = {0}, same = 0;
            int signalling = 0, quiet = 0;
            qm_exact_gradient(5, t, N, plain);
            qm_exact_gradient_of((enum qm_gradients)kind, 5, t, N, g);
            for (int i = 0; i < N; i++) {
                int sign = signbit(g[i]) != 0;
                nan[sign] += isnan(g[i]);
                inf[sign] += isinf(g[i]) != 0;
                tiny[sign] += fpclassify(g[i]) == FP_SUBNORMAL;
                zero[sign] += g[i] == 0.0f;
                huge[sign] += isfinite(g[i]) && fabsf(g[i]) > 1e19f;
                signalling += isnan(g[i]) && !(qm_bits(g[i]) & 0x400000u);
                quiet += isnan(g[i]) && (qm_bits(g[i]) & 0x400000u);
                same += qm_bits(g[i]) == qm_bits(plain[i]);
            }
            int is_nan = kind == QM_GRADIENTS_nan && t == 2,
                is_inf = kind == QM_GRADIENTS_inf && t == 2, is_tiny = kind == QM_GRADIENTS_tiny;
            for (int sign = 0; sign < 2; sign++) {
                assert_int_equal(nan[sign] > 100, is_nan);
                assert_int_equal(inf[sign] > 100, is_inf);
                assert_int_equal(huge[sign] > 100, is_inf);
                assert_int_equal(tiny[sign] > 100, is_tiny);
                assert_true(zero[sign] > 100);
            }
            assert_int_equal(signalling > 50 && quiet > 50, is_nan);
            assert_true(same > N * 9 / 10);
            assert_int_equal(same == N, !is_nan && !is_inf && !is_tiny);
        }
}

/* ---- a backend that differs from the CPU's in one bit ---------------------------------------- */

static enum { NOTHING, PARAM, PARAM_NAN, CODE, SCALE, SCALE_NAN, DECODED_NAN } spoils;
static int64_t at; /* the element */

static uint32_t nan_of(uint32_t was) { return isnan(qm_float(was)) ? was ^ 0x80000001u : was; }

static qm_status spoiled_step(void *plan, struct qm_tensor *p, const struct qm_tensor *g, int64_t t,
                              uint64_t seed)
{
    qm_status st = qm_backend_cpu.step(plan, p, g, t, seed);
    uint32_t *bits = p->data;
    if (spoils == PARAM)
        bits[at] ^= 1;
    for (int64_t i = 0; spoils == PARAM_NAN && i < qm_shape_numel(&p->shape); i++)
        bits[i] = nan_of(bits[i]);
    return st;
}

static qm_status spoiled_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    qm_status st = qm_backend_cpu.save(plan, slot, codes, scales);
    if (slot == 0 && spoils == CODE)
        codes[at] ^= 1;
    for (int64_t i = 0; slot == 0 && (spoils == SCALE || spoils == SCALE_NAN) && i <= at; i++) {
        uint32_t bits =
            spoils == SCALE ? qm_bits(scales[i]) ^ (i == at) : nan_of(qm_bits(scales[i]));
        memcpy(&scales[i], &bits, sizeof bits);
    }
    return st;
}

static qm_status spoiled_decode(void *plan, int slot, float *out)
{
    qm_status st = qm_backend_cpu.decode(plan, slot, out);
    for (int64_t i = 0; spoils == DECODED_NAN && i < 4096; i++) {
        uint32_t bits = nan_of(qm_bits(out[i]));
        memcpy(&out[i], &bits, sizeof bits);
    }
    return st;
}

/* One bit of a number, a scale or a code is seen and named; another NaN is none. */
static void test_differences(void **state)
{
    static const struct {
        int spoils, is_seen;
        int64_t at;
        const char *says;
    } cases[] = {
        {NOTHING, 0, 0, ""},         {PARAM, 1, 4095, "parameter 4095"},
        {PARAM_NAN, 0, 0, ""},       {CODE, 1, 2000, "exp_avg: code 2000 is "},
        {SCALE, 1, 3, "scale 3 is"}, {SCALE_NAN, 0, 3, ""},
        {DECODED_NAN, 0, 0, ""},
    };
    struct qm_backend other = qm_backend_cpu;
    const struct qm_shape shape = {1, {4096}};
    struct qm_recipe r;
    char what[256];
    (void)state;
    other.step = spoiled_step;
    other.save = spoiled_save;
    other.decode = spoiled_decode;
    assert_int_equal(qm_recipe_parse("adamw8_bnb", &r), QM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int kind = 0; kind < QM_GRADIENTS_COUNT; kind++) {
            spoils = cases[i].spoils;
            at = cases[i].at;
            if (qm_exact_compare_of((enum qm_gradients)kind, &other, &r, &shape, 3, 77, what,
                                    sizeof what) != QM_OK)
                fail_msg("%s", qm_message());
            if ((*what != '\0') != cases[i].is_seen || !strstr(what, cases[i].says))
                fail_msg("case %zu, %s: '%s' (want '%s')", i,
                         qm_gradients_name((enum qm_gradients)kind), what, cases[i].says);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
