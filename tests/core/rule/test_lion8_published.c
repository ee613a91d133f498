/* test_lion8_published.c - Tests the properties that the published tests of 8-bit Lion ask for:
 * llm-foundry tests/optim/test_lion8b.py (T1 to T4) and FlashOptim's tests. */
#include "tests/support/one_tensor.h"

/* FlashOptim's round trip: zeros stay zero, the cosine is above 0.9999, and the mean error is at
 * most 1.6 absmax / 255. */
static void test_round_trip(void **state)
{
    (void)state;
    static const char *const shapes[] = {"", "/softsign"};
    static const int64_t sizes[] = {5,   12,  16,  17,   32,   33,   65,
                                    100, 544, 999, 1000, 1025, 2000, 4095};
    for (int s = 0; s < 2; s++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct qm_codec c;
            char text[96];
            static float x[MOST], y[MOST], scales[MOST / 32];
            static uint8_t codes[MOST];
            int64_t n = sizes[k];
            struct qm_shape shape = flat(n);
            snprintf(text, sizeof text, "lint:8s/block:32/arith/near%s/floor:1e-12/f16", shapes[s]);
            assert_int_equal(qm_codec_parse(&c, text), QM_OK);
            assert_int_equal(qm_scale_count(&c, &shape), (n + 31) / 32);
            for (int64_t i = 0; i < n; i++)
                x[i] = i % 7 == 3 ? 0.0f : gauss(4, i);
            assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
            qm_decode(&c, &shape, codes, scales, y);
            double xy = 0, xx = 0, yy = 0, error = 0, largest = 0, tail = 0;
            for (int64_t i = 0; i < n; i++) {
                xy += (double)x[i] * (double)y[i];
                xx += (double)x[i] * (double)x[i];
                yy += (double)y[i] * (double)y[i];
                error += fabs((double)y[i] - (double)x[i]) / (double)n;
                largest = fmax(largest, fabs((double)x[i]));
                if (i >= (n - 1) / 32 * 32)
                    tail = fmax(tail, fabs((double)x[i]));
                assert_true(x[i] != 0.0f || y[i] == 0.0f);
            }
            assert_true(xy / sqrt(xx * yy) > 0.9999);
            assert_true(error <= largest / 255.0 * 1.6);
            assert_true(fabs((double)scales[(n - 1) / 32] - tail) <= 0.003 * tail);
        }
}

/* T1: one step changes weights and momentum.  T2: zero gradients leave the momentum at 0, and only
 * decay moves the weights. */
static void test_zero_and_first(void **state)
{
    (void)state;
    static const char *const decays[] = {"0", "0.1"};
    static const struct qm_shape shapes[] = {
        {2, {1, 1}}, {2, {2, 2}}, {2, {17, 17}}, {2, {64, 64}}};
    static float p[MOST], g[MOST], m[MOST];
    for (int s = 0; s < 4; s++)
        for (int d = 0; d < 2; d++) {
            struct opt o;
            char recipe[128];
            int64_t n = qm_shape_numel(&shapes[s]);
            for (int64_t i = 0; i < n; i++) {
                p[i] = 0.01f + 0.99f * uniform(1, i);
                g[i] = 0.0f;
            }
            snprintf(recipe, sizeof recipe, "lion8_fused,beta1=0.5,beta2=0.5,weight_decay=%s",
                     decays[d]);
            opt_open(&o, recipe, shapes[s], p);
            for (int t = 0; t < 5; t++)
                opt_step(&o, g);
            opt_momentum(&o, m);
            for (int64_t i = 0; i < n; i++) {
                assert_true(m[i] == 0.0f);
                assert_true(d ? fabsf(opt_at(&o, i)) < p[i] : opt_at(&o, i) == p[i]);
            }
            for (int64_t i = 0; i < n; i++)
                g[i] = gauss(2, i);
            opt_step(&o, g);
            opt_momentum(&o, m);
            int moved = 0;
            for (int64_t i = 0; i < n; i++)
                moved += m[i] != 0.0f && fabsf(opt_at(&o, i) - p[i]) > 5e-4f;
            assert_true(moved > n / 2 || n == 1);
            opt_close(&o);
        }
}

/* T3: mean((X W)^2) falls at every step. */
static void test_descends(void **state)
{
    (void)state;
    enum { N = 17, D = 23 };
    static float w[D * D], x[N * D], g[D * D];
    struct opt o;
    double before = HUGE_VAL;
    for (int i = 0; i < D * D; i++)
        w[i] = gauss(6, i);
    for (int i = 0; i < N * D; i++)
        x[i] = gauss(7, i);
    opt_open(&o, "lion8_ecc8,lr=1e-2,beta1=0.5,beta2=0.5", (struct qm_shape){2, {D, D}}, w);
    for (int t = 0; t < 11; t++) {
        double loss = 0;
        memset(g, 0, sizeof g);
        for (int r = 0; r < N; r++)
            for (int k = 0; k < D; k++) {
                double y = 0;
                for (int j = 0; j < D; j++)
                    y += (double)x[r * D + j] * (double)opt_at(&o, j * D + k);
                loss += y * y / (N * D);
                for (int j = 0; j < D; j++)
                    g[j * D + k] += (float)(2.0 * y * (double)x[r * D + j] / (N * D));
            }
        assert_true(loss < before);
        before = loss;
        opt_step(&o, g);
    }
    opt_close(&o);
}

enum { TRUE_F32, UNQUANTIZED, UNFUSED, FUSED, FUSED_ECC, STYLES };

struct change {
    double cosine, nmse;
};

static struct change compare(const double *want, const double *got, int64_t n)
{
    double ab = 0, aa = 0, bb = 0, ee = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += want[i] * got[i];
        aa += want[i] * want[i];
        bb += got[i] * got[i];
        ee += (got[i] - want[i]) * (got[i] - want[i]);
    }
    return (struct change){ab / sqrt(aa * bb), ee / aa};
}

/* T4: weights of true float32, unquantized, unfused, fused, and fused with error correction
 * change by nearly the same vector. */
static void same_way(enum qm_param_format format, int side, int init, int kind, const char *curve)
{
    static const char *const formats[] = {"f32", "bf16", "f16"};
    static float w[144], g[144];
    static double change[STYLES][144], sgd[144];
    static struct opt o[STYLES];
    int64_t n = side * side;
    char recipe[STYLES][192], q[96];
    snprintf(q, sizeof q, "lint:8s/block:32/arith/near%s/floor:1e-12/f16", curve);
#define HYPER "lr=0.1,weight_decay=0.01,beta1=0.5,beta2=0.75"
    snprintf(recipe[0], 192, "lion8_unfused,exp_avg=f32," HYPER);
    snprintf(recipe[1], 192, "lion8_unfused,exp_avg=f32," HYPER ",param=%s", formats[format]);
    snprintf(recipe[2], 192, "lion8_unfused,exp_avg=%s," HYPER ",param=%s", q, formats[format]);
    snprintf(recipe[3], 192, "lion8_fused,exp_avg=%s," HYPER ",param=%s", q, formats[format]);
    snprintf(recipe[4], 192, "lion8_fused,exp_avg=%s," HYPER ",param=%s%s", q, formats[format],
             format == QM_PARAM_f32 ? "" : "/ecc8");
    for (int64_t i = 0; i < n; i++) {
        float x = init ? 2.0f * uniform(8, i) - 1.0f : (float)(i / 2 % 3 - 1);
        if (init)
            x += x < 0.0f ? -0.01f : 0.01f;
        w[i] = qm_param_widen(format, qm_param_nearest(format, x + (float)((x > 0) - (x < 0))));
        sgd[i] = 0.0;
    }
    for (int k = 0; k < STYLES; k++)
        opt_open(&o[k], recipe[k], (struct qm_shape){2, {side, side}}, w);
    for (int t = 0; t < 4; t++) {
        for (int64_t i = 0; i < n; i++) {
            float x = kind == 0   ? 0.0f
                      : kind == 1 ? (i % 2 ? -1.0f : 1.0f)
                      : kind == 2 ? (float)i
                                  : uniform(9 + (uint64_t)t, i);
            g[i] = qm_param_widen(format, qm_param_nearest(format, x));
            sgd[i] -= 0.1 * (double)g[i];
        }
        for (int k = 0; k < STYLES; k++) {
            opt_step(&o[k], g);
            for (int64_t i = 0; i < n; i++)
                change[k][i] = (double)opt_at(&o[k], i) - (double)w[i];
        }
        static const int pairs[][2] = {{TRUE_F32, UNQUANTIZED},
                                       {TRUE_F32, UNFUSED},
                                       {UNFUSED, FUSED},
                                       {TRUE_F32, FUSED},
                                       {TRUE_F32, FUSED_ECC}};
        for (int k = 0; k < 5; k++) {
            struct change c = compare(change[pairs[k][0]], change[pairs[k][1]], n);
            double cosine = format == QM_PARAM_bf16 ? 0.98 : 0.99;
            double nmse = format == QM_PARAM_bf16 ? 0.04 : 0.01;
            if (!(c.cosine > cosine && c.nmse < nmse))
                fail_msg("%s against %s, %s, side %d, init %d, gradient %d, step %d: cosine %.4f, "
                         "NMSE %.4f",
                         recipe[pairs[k][0]], recipe[pairs[k][1]], formats[format], side, init,
                         kind, t + 1, c.cosine, c.nmse);
        }
        assert_true(compare(change[TRUE_F32], change[FUSED_ECC], n).nmse <=
                    compare(change[TRUE_F32], change[FUSED], n).nmse);
    }
    if (kind >= 2) {
        struct change c = compare(change[TRUE_F32], sgd, n);
        assert_true(c.cosine < 0.99 && c.nmse > 0.01);
    }
    for (int k = 0; k < STYLES; k++)
        opt_close(&o[k]);
}

static void test_same_way(void **state)
{
    (void)state;
    for (int format = QM_PARAM_f32; format <= QM_PARAM_f16; format++)
        for (int side = 4; side <= 12; side += 8)
            for (int init = 0; init < 2; init++)
                for (int kind = 0; kind < 4; kind++) {
                    same_way((enum qm_param_format)format, side, init, kind, "");
                    same_way((enum qm_param_format)format, side, init, kind, "/softsign");
                }
}

/* Over 100 small steps, 8 bits of error correction lose less than none, and 16 bits lose less
 * than 8. */
static void test_widths(void **state)
{
    (void)state;
    static const char *const recipes[] = {"lion8_fused,param=bf16,lr=1e-4", "lion8_ecc8,lr=1e-4",
                                          "lion8_ecc16,lr=1e-4"};
    static float w[1024], g[1024];
    static struct opt exact, o;
    double error[3] = {0};
    for (int i = 0; i < 1024; i++)
        w[i] = qm_bf16_to_float(qm_float_to_bf16(gauss(20, i)));
    for (int k = 0; k < 3; k++) {
        opt_open(&exact, "lion8_fused,lr=1e-4", flat(1024), w);
        opt_open(&o, recipes[k], flat(1024), w);
        for (int t = 0; t < 100; t++) {
            for (int i = 0; i < 1024; i++)
                g[i] = qm_bf16_to_float(qm_float_to_bf16(gauss(21 + (uint64_t)t, i) + 0.3f));
            opt_step(&exact, g);
            opt_step(&o, g);
        }
        const void *residual = qm_plan_cpu_residual(o.plan);
        for (int i = 0; i < 1024; i++) {
            uint32_t h = ((const uint16_t *)(const void *)o.room)[i];
            float x = k == 0 ? opt_at(&o, i)
                      : k == 1
                          ? qm_ecc_decode(QM_PARAM_bf16, h, ((const int8_t *)residual)[i], 127)
                          : qm_ecc_decode(QM_PARAM_bf16, h, ((const int16_t *)residual)[i], 32767);
            error[k] += fabs((double)x - (double)opt_at(&exact, i));
        }
        opt_close(&o);
        opt_close(&exact);
    }
    assert_true(error[1] < 0.2 * error[0] && error[2] < 0.1 * error[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_zero_and_first),
        cmocka_unit_test(test_descends),   cmocka_unit_test(test_same_way),
        cmocka_unit_test(test_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
