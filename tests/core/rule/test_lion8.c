/* test_lion8.c - 8-bit Lion: what it refuses, its traps, its checkpoints, and the properties that
 * its published tests ask for (llm-foundry tests/optim/test_lion8b.py; FlashOptim's tests). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/recipe/backend.h"
#include "experiments/conform/lion8_state.h"
#include "oracle/oracle.h"

enum { MOST = 4096 };

/* One tensor under one recipe, with the parameter as it is stored. */
struct opt {
    struct qm_recipe r;
    void *plan;
    struct qm_shape shape;
    int64_t n, t;
    uint32_t room[MOST], g_room[MOST];
};

static void put(enum qm_param_format f, const float *x, int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++)
        if (f == QM_PARAM_f32)
            ((float *)out)[i] = x[i];
        else
            ((uint16_t *)out)[i] = (uint16_t)qm_param_nearest(f, x[i]);
}

static void opt_open(struct opt *o, const char *recipe, struct qm_shape shape, const float *p)
{
    o->shape = shape;
    o->n = qm_shape_numel(&shape);
    o->t = 0;
    assert_true(o->n <= MOST);
    if (qm_recipe_parse(recipe, &o->r) != QM_OK ||
        qm_backend_cpu.open(&o->r, &shape, 0, &o->plan) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    put(o->r.param.format, p, o->n, o->room);
}

static void opt_close(struct opt *o) { qm_backend_cpu.close(o->plan); }

/* Gradients in the parameter's format; NULL: none. */
static void opt_step(struct opt *o, const float *g)
{
    struct qm_tensor p = {o->room, qm_param_type(o->r.param.format), o->shape};
    struct qm_tensor gt = {g ? o->g_room : NULL, p.dtype, o->shape};
    if (g)
        put(o->r.param.format, g, o->n, o->g_room);
    if (qm_backend_cpu.step(o->plan, &p, &gt, ++o->t, 0) != QM_OK)
        fail_msg("%s", qm_message());
}

static float opt_at(const struct opt *o, int64_t i)
{
    enum qm_param_format f = o->r.param.format;
    return f == QM_PARAM_f32 ? ((const float *)(const void *)o->room)[i]
                             : qm_param_widen(f, ((const uint16_t *)(const void *)o->room)[i]);
}

static void opt_momentum(const struct opt *o, float *m)
{
    assert_int_equal(qm_backend_cpu.decode(o->plan, 0, m), QM_OK);
}

static float uniform(uint64_t stream, int64_t i)
{
    return qm_uniform(qm_philox_stream(5, stream, (uint64_t)i));
}

static float gauss(uint64_t stream, int64_t i)
{
    float sum = -6.0f;
    for (uint64_t k = 0; k < 12; k++)
        sum += uniform(16 * stream + k, i);
    return sum;
}

static struct qm_shape flat(int64_t n) { return (struct qm_shape){1, {n}}; }

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"lion8_fused,lr=-1e-3", "lr: expected a finite number of at least 0, got -0.001"},
        {"lion8_fused,beta1=-0.5", "beta1: expected a number in [0, 1], got -0.5"},
        {"lion8_unfused,beta2=1.5", "beta2: expected a number in [0, 1], got 1.5"},
        {"lion8_fused,weight_decay=-1", "weight_decay"},
        {"lion8_fused,lr=0", "lr is 0 from the start"},
        {"lion8_fused,initial_lr=-1", "initial_lr: expected at least 0, got -1"},
        {"lion8_fused,param=e4m3", "not e4m3"},
        {"lion8_fused,param=bf16,grad=f16", "gradients in f16 go with parameters in f16 or f32"},
        {"flash_adamw,param=f16,grad=bf16", "gradients in bf16 go with"},
        {"lion8_unfused,param=bf16/ecc8", "the unfused step has no errors"},
        {"lion8_unfused,param=f16/kahan", "the unfused step has no errors"},
        {"lion8_ecc8,exp_avg=f32", "quantized exp_avg"},
        {"lion8_fused,param=f32/ecc8", "f32 has nothing to round"},
        {"flash_adamw,beta1=1", "[0, 1)"},
        {"flash_adamw,eps=-1", "must not be negative"},
        {"lion8_fused,exp_avg.map=lint:8u", "both signs"},
        {"flash_adamw,decouple_lr=1,lr=0", "decouple_lr wants an initial_lr above 0, got 0"},
        {"flash_sgdw,decouple_lr=1,initial_lr=-1", "above 0, got -1"},
        {"flash_adam,decouple_lr=1", "rule flash_adam decays in no such way"},
        {"flash_sgd,decouple_lr=1", "rule flash_sgd decays in no such way"},
        {"flash_lion,decouple_lr=1", "rule flash_lion decays in no such way"},
        {"adamw_f32,decouple_lr=1", "rule adamw decays in no such way"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qm_recipe r;
        if (qm_recipe_parse(bad[i][0], &r) == QM_OK)
            fail_msg("'%s' should be refused", bad[i][0]);
        if (!strstr(qm_message(), bad[i][1]))
            fail_msg("'%s': '%s' does not say '%s'", bad[i][0], qm_message(), bad[i][1]);
    }
    static const char *const good[] = {
        "lion8_fused,beta1=1,beta2=1",   "lion8_fused,beta1=0,beta2=0",
        "lion8_fused,lr=0,initial_lr=1", "lion8_fused,param=bf16,grad=bf16",
        "lion8_fused,grad=f16",          "lion8_fused,param=f16,grad=f32",
        "flash_lion,exp_avg=f32",        "lion8_fused,exp_avg=f32",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct qm_recipe r;
        if (qm_recipe_parse(good[i], &r) != QM_OK)
            fail_msg("'%s': %s", good[i], qm_message());
    }
}

/* ---- one step ---------------------------------------------------------------------------------- */

/* The decay is by lr / initial_lr, the lr that the plan was opened with. */
static void test_schedule(void **state)
{
    (void)state;
    static const char *const recipes[] = {"lion8_fused,lr=0.5,weight_decay=0.25",
                                          "lion8_unfused,lr=0.5,weight_decay=0.25"};
    for (int k = 0; k < 2; k++) {
        struct opt o;
        float p[2] = {8.0f, -8.0f}, g[2] = {0.0f, 0.0f};
        opt_open(&o, recipes[k], flat(2), p);
        opt_step(&o, g); /* d = 1/4 */
        assert_true(opt_at(&o, 0) == 6.0f && opt_at(&o, 1) == -6.0f);
        struct qm_hyper h = o.r.hyper;
        h.lr = 0.25; /* d = 1/8 */
        qm_plan_cpu_hyper(o.plan, &h);
        g[0] = 1.0f;
        opt_step(&o, g);
        assert_true(opt_at(&o, 0) == 5.25f - 0.25f && opt_at(&o, 1) == -5.25f);
        h.lr = 0.0; /* neither decay nor step */
        qm_plan_cpu_hyper(o.plan, &h);
        opt_step(&o, g);
        assert_true(opt_at(&o, 0) == 5.0f && opt_at(&o, 1) == -5.25f);
        opt_close(&o);
    }
}

/* FlashOptim's default decays by lr weight_decay, its decouple_lr by weight_decay lr / initial_lr:
 * a zero gradient leaves nothing but the decay. */
static void test_decouple_lr(void **state)
{
    (void)state;
    static const char *const rules[] = {"flash_adamw", "flash_sgdw"};
    for (int k = 0; k < 4; k++) {
        struct opt o;
        char recipe[96];
        float p[2] = {8.0f, -8.0f}, g[2] = {0.0f, 0.0f}, want = k % 2 ? 6.0f : 7.0f;
        snprintf(recipe, sizeof recipe, "%s,param=f32,lr=0.5,weight_decay=0.25,decouple_lr=%d",
                 rules[k / 2], k % 2);
        opt_open(&o, recipe, flat(2), p);
        opt_step(&o, g);
        assert_true(opt_at(&o, 0) == want && opt_at(&o, 1) == -want);
        struct qm_hyper h = o.r.hyper;
        h.lr = 0.25; /* d = 1/16; of half the initial rate 1/8 */
        want = k % 2 ? 5.25f : 6.5625f;
        qm_plan_cpu_hyper(o.plan, &h);
        opt_step(&o, g);
        assert_true(opt_at(&o, 0) == want && opt_at(&o, 1) == -want);
        opt_close(&o);
    }
}

/* sign(0) = sign(-0) = sign(NaN) = 0. */
static void test_signs(void **state)
{
    (void)state;
    static const char *const rules[] = {"lion8_fused,lr=1,exp_avg=f32",
                                        "lion8_unfused,lr=1,exp_avg=f32",
                                        "flash_lion,lr=1,param=f32,exp_avg=f32"};
    const float g[6] = {0.0f, -0.0f, NAN, 1e-30f, -1e-30f, INFINITY};
    const float want[6] = {2.0f, 2.0f, 2.0f, 1.0f, 3.0f, 1.0f};
    for (int k = 0; k < 3; k++) {
        struct opt o;
        float p[6] = {2.0f, 2.0f, 2.0f, 2.0f, 2.0f, 2.0f};
        opt_open(&o, rules[k], flat(6), p);
        opt_step(&o, g);
        for (int i = 0; i < 6; i++)
            assert_true(opt_at(&o, i) == want[i]);
        opt_close(&o);
    }
}

/* Without a gradient nothing happens, not even decay. */
static void test_no_gradient(void **state)
{
    (void)state;
    struct opt o;
    float p[40], g[40], m[40], after[40];
    for (int i = 0; i < 40; i++) {
        p[i] = gauss(1, i);
        g[i] = gauss(2, i);
    }
    opt_open(&o, "lion8_ecc8,weight_decay=0.5", flat(40), p);
    opt_step(&o, g);
    uint32_t before[MOST];
    int8_t errors[40];
    memcpy(before, o.room, sizeof before);
    memcpy(errors, qm_plan_cpu_residual(o.plan), sizeof errors);
    opt_momentum(&o, m);
    opt_step(&o, NULL);
    opt_momentum(&o, after);
    assert_memory_equal(before, o.room, sizeof before);
    assert_memory_equal(errors, qm_plan_cpu_residual(o.plan), sizeof errors);
    assert_memory_equal(m, after, sizeof m);
    opt_close(&o);
    opt_open(&o, "lion8_fused", flat(40), p);
    assert_null(qm_plan_cpu_residual(o.plan));
    opt_close(&o);
}

/* 1 + 2^-7 decays by 2^-8 to 1.00388, in bf16 1; minus 0.0024 that is 0.9976, in bf16 1 - 2^-8.  In
 * one go it is 1.00148, in bf16 1. */
static void test_two_roundings(void **state)
{
    (void)state;
    const float p = 1.0f + 0x1p-7f, g = 1.0f;
    struct opt o;
    opt_open(&o, "lion8_fused,param=bf16,lr=0.0024,weight_decay=0.00390625", flat(1), &p);
    opt_step(&o, &g);
    assert_true(opt_at(&o, 0) == 1.0f);
    opt_close(&o);
    opt_open(&o, "lion8_unfused,param=bf16,lr=0.0024,weight_decay=0.00390625", flat(1), &p);
    opt_step(&o, &g);
    assert_true(opt_at(&o, 0) == 1.0f - 0x1p-8f);
    opt_close(&o);
}

/* torch 1.13 on CPU: a decay of 2^-9 is lost, since 1 - 2^-9 is 1 in bf16. */
static void test_lost_decay(void **state)
{
    (void)state;
    static const char *const names[2] = {"lion8_unfused", "lion8_cpu"};
    for (int k = 0; k < 2; k++) {
        struct qm_hyper h = qm_hyper_default();
        const struct qm_rule *rule = qm_rule_find(names[k]);
        struct qm_rule_step s;
        float p = 1.25f, g = 0.0f, m = 0.0f, *slot[1] = {&m};
        assert_non_null(rule);
        h.weight_decay = 0x1p-9;
        rule->prepare(&h, 1, &s);
        s.param = QM_PARAM_bf16;
        for (int t = 0; t < 2; t++) /* 1.25 (1 - 2^-9) is nearer to 1.25, but twice is not */
            rule->elementwise->block(&s, 1, &p, &g, slot);
        assert_true(p == 1.25f);
        h.weight_decay = 0x1p-8 + 0x1p-9;
        rule->prepare(&h, 1, &s);
        s.param = QM_PARAM_bf16;
        p = 1.0f;
        rule->elementwise->block(&s, 1, &p, &g, slot); /* 1 - 3/512: a tie, to even */
        assert_true(p == 1.0f - 0x1p-7f);
        s.param = QM_PARAM_f32;
        p = 1.0f;
        rule->elementwise->block(&s, 1, &p, &g, slot);
        assert_true(p == 1.0f - 3.0f / 512.0f);
    }
}

/* beta 1: the momentum never changes; beta 0: sign descent. */
static void test_end_betas(void **state)
{
    (void)state;
    struct opt o;
    float p[2] = {0.0f, 0.0f}, g[2] = {3.0f, -5.0f}, m[2];
    opt_open(&o, "lion8_fused,lr=1,beta1=1,beta2=1", flat(2), p);
    for (int t = 0; t < 3; t++)
        opt_step(&o, g);
    opt_momentum(&o, m);
    assert_true(m[0] == 0.0f && m[1] == 0.0f && opt_at(&o, 0) == 0.0f);
    opt_close(&o);
    opt_open(&o, "lion8_unfused,lr=1,beta1=0,beta2=0", flat(2), p);
    opt_step(&o, g);
    g[0] = -g[0];
    opt_step(&o, g);
    assert_true(opt_at(&o, 0) == 0.0f && opt_at(&o, 1) == 2.0f);
    opt_momentum(&o, m);
    assert_true(m[1] == -5.0f && fabsf(m[0] + 3.0f) <= 5.0f / 254.0f);
    opt_close(&o);
}

/* ---- the quantizer ----------------------------------------------------------------------------- */

static void test_quantizer(void **state)
{
    (void)state;
    struct qm_codec c, both;
    struct qm_shape shape = flat(64);
    float x[64], y[64], scales[2];
    uint8_t codes[64];
    assert_int_equal(qm_codec_parse(&c, "lint:8s/block:32/arith/near/floor:1e-12/f16"), QM_OK);
    assert_int_equal(qm_codec_parse(&both, "lint:8s/block:32/arith/near/floor:6e-8/f16both"),
                     QM_OK);
    assert_int_equal(c.cb.n, 255); /* -128 is no code */
    /* halves go up on both sides: multiples of 1/2 under a largest value of 127 */
    for (int i = 0; i < 32; i++)
        x[i] = i == 31 ? 127.0f : (float)(i - 16) * 0.5f;
    memset(x + 32, 0, 32 * sizeof *x);
    assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
    for (int i = 0; i < 31; i++)
        assert_int_equal(codes[i] - 127, (int)floorf(x[i] + 0.5f));
    assert_int_equal(codes[31], 254);
    assert_true(scales[0] == 127.0f && scales[1] == 0.0f); /* f16(1e-12) */
    for (int i = 32; i < 64; i++)
        assert_int_equal(codes[i], 127);
    qm_decode(&c, &shape, codes, scales, y);
    assert_true(y[40] == 0.0f);
    /* |x^ - x| <= A/254 (1 + 2^-11) + |x| 2^-11; with one scale A'/254 alone, beyond the end less */
    for (int k = 0; k < 200; k++) {
        float largest[2] = {0.0f, 0.0f};
        for (int i = 0; i < 64; i++) {
            x[i] = gauss(3, 64 * k + i) * ldexpf(1.0f, k % 20 - 10);
            largest[i / 32] = fabsf(x[i]) > largest[i / 32] ? fabsf(x[i]) : largest[i / 32];
        }
        assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
        qm_decode(&c, &shape, codes, scales, y);
        for (int i = 0; i < 64; i++)
            assert_true(fabsf(y[i] - x[i]) <= largest[i / 32] / 254.0f * (1.0f + 0x1p-11f) +
                                                  fabsf(x[i]) * 0x1p-11f + 1e-6f * fabsf(x[i]));
        assert_int_equal(qm_encode(&both, &shape, x, NULL, codes, scales), QM_OK);
        qm_decode(&both, &shape, codes, scales, y);
        for (int i = 0; i < 64; i++) {
            assert_true(scales[i / 32] == qm_f16_to_float(qm_float_to_f16(largest[i / 32])));
            float room = scales[i / 32] / 254.0f * 1.0001f;
            float over = fabsf(x[i]) - scales[i / 32]; /* clamped to the end */
            assert_true(fabsf(y[i] - x[i]) <= (over > room ? over * 1.0001f : room));
        }
    }
    /* float16's underflow: a group of at most 2^-25 decodes to 0, whatever its codes */
    for (int i = 0; i < 64; i++)
        x[i] = i < 32 ? 0x1p-25f : 0x1p-24f;
    assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
    qm_decode(&c, &shape, codes, scales, y);
    assert_true(codes[0] == 254 && y[0] == 0.0f && y[32] == 0x1p-24f);
}

/* FlashOptim's round trip: zeros stay, cosine > .9999, mean error <= absmax / 255 * 1.6. */
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

/* Four bits: seven levels a side; which nibble comes first is not published. */
static void test_four_bits(void **state)
{
    (void)state;
    struct opt o;
    float p[33] = {0}, g[33], m[33];
    for (int i = 0; i < 33; i++)
        g[i] = (float)(i - 16) / 16.0f;
    opt_open(&o, "lion8_fused,exp_avg=lint:4s/block:32/arith/near/lo/floor:1e-12/f16,beta2=0",
             flat(33), p);
    assert_int_equal(qm_backend_cpu.bytes(o.plan), 17 + 2 * 2);
    opt_step(&o, g);
    opt_momentum(&o, m);
    for (int i = 0; i < 33; i++)
        assert_true(fabsf(m[i] - g[i]) <= 1.0f / 14.0f + 1e-6f);
    opt_close(&o);
}

/* ---- the published tests ----------------------------------------------------------------------- */

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

/* T4: true float32, unquantized, unfused, fused and fused with errors go the same way. */
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

/* Many small steps: what is lost is less with 8 bits of error than without, and less with 16. */
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

/* ---- the oracles ------------------------------------------------------------------------------- */

/* beta1 = 1/2, beta2 = 3/4, eta = 1/2 of eta_0 = 1, lambda = 1/4: by hand. */
static void test_oracle_lion(void **state)
{
    (void)state;
    const struct qm_oracle *o = qm_oracle_find("lion8");
    double p[3] = {8.0, 8.0, 8.0}, m[3] = {1.0, 0.0, -2.0}, *slot[1] = {m};
    const double g[3] = {-3.0, 0.0, 2.0};
    struct qm_oracle_hyper h = {
        .lr = 0.5, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.25, .initial_lr = 1.0};
    assert_non_null(o);
    o->step(p, slot, g, 1, 3, &h, 1);
    assert_true(p[0] == 7.5 && m[0] == 0.0);  /* c = -1: 8 (7/8) + 1/2 */
    assert_true(p[1] == 7.0 && m[1] == 0.0);  /* c = 0 */
    assert_true(p[2] == 7.0 && m[2] == -1.0); /* c = 0 of both signs */
    h.initial_lr = 0.0;                       /* decay by lambda itself */
    h.maximize = 1;
    o->step(p, slot, g, 1, 3, &h, 2);
    assert_true(p[0] == 7.5 * 0.75 - 0.5 && m[0] == 0.75);
}

/* A constant gradient: m = g (1 - tau) (1 - mu^t) / (1 - mu). */
static void test_oracle_sgd(void **state)
{
    (void)state;
    static const char *const families[2] = {"sgdw", "sgd_zero"};
    for (int f = 0; f < 2; f++) {
        const struct qm_oracle *o = qm_oracle_find(families[f]);
        double p = 0.0, m = 0.0, *slot[1] = {&m}, want = 0.0;
        const double g = 2.0;
        struct qm_oracle_hyper h = {.lr = 0.125, .momentum = 0.5, .dampening = 0.25};
        assert_non_null(o);
        for (int t = 1; t <= 8; t++) {
            o->step(&p, slot, &g, 1, 1, &h, t);
            assert_true(m == 2.0 * 0.75 * (1.0 - ldexp(1.0, -t)) / 0.5);
            want -= 0.125 * m;
            assert_true(p == want);
        }
        h = (struct qm_oracle_hyper){
            .lr = 0.25, .momentum = 0.0, .dampening = 0.5, .weight_decay = 0.5};
        p = 4.0;
        o->step(&p, slot, &g, 1, 1, &h, 1); /* no buffer: 4 (7/8) - 1/2, or 4 - (2 + 2) / 4 */
        assert_true(p == 3.0);
        h.momentum = 0.5;
        h.dampening = 0.0;
        h.nesterov = 1;
        h.weight_decay = 0.0;
        m = 2.0;
        o->step(&p, slot, &g, 1, 1, &h, 1); /* m = 3, 2 + 3/2 */
        assert_true(m == 3.0 && p == 3.0 - 0.25 * 3.5);
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------- */

static void test_keys(void **state)
{
    (void)state;
    int is_compressed = -1;
    const char *plain[] = {"errors", "exp_avg"};
    const char *both[] = {"exp_avg::scales", "exp_avg::quantized"};
    const char *mixed[] = {"exp_avg", "exp_avg::scales"}, *half[] = {"exp_avg::quantized"};
    assert_int_equal(qm_lion8_keys(plain, 2, &is_compressed), QM_OK);
    assert_int_equal(is_compressed, 0);
    assert_int_equal(qm_lion8_keys(both, 2, &is_compressed), QM_OK);
    assert_int_equal(is_compressed, 1);
    assert_int_equal(qm_lion8_keys(mixed, 2, &is_compressed), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "exp_avg, exp_avg::scales"));
    assert_int_equal(qm_lion8_keys(half, 1, &is_compressed), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "wants the key exp_avg::scales"));
    assert_int_equal(qm_lion8_keys(plain, 1, &is_compressed), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "exp_avg::quantized"));
}

/* T5: compressed and plain, with errors, loaded into a fresh optimizer. */
static void test_save_load(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 391, 2048};
    static float p[MOST], g[MOST], m[MOST], back[MOST], scales[MOST / 32], again[MOST / 32];
    static uint8_t codes[MOST], codes_back[MOST];
    static int8_t q[MOST];
    static uint16_t s16[MOST / 32], bf16[MOST + 1];
    for (int s = 0; s < 4; s++) {
        struct opt o, fresh;
        struct qm_codec c;
        struct qm_shape shape = flat(sizes[s]);
        int64_t n = sizes[s], count = (n + 31) / 32;
        for (int64_t i = 0; i < n; i++) {
            p[i] = gauss(30, i);
            g[i] = 2.0f * uniform(31, i) - 1.0f;
        }
        opt_open(&o, "lion8_ecc8", shape, p);
        opt_open(&fresh, "lion8_ecc8", shape, p);
        opt_step(&o, g);
        opt_momentum(&o, m);
        assert_int_equal(qm_codec_init(&c, &o.r.slot[0]), QM_OK);
        assert_int_equal(qm_backend_cpu.save(o.plan, 0, codes, scales), QM_OK);
        /* compressed: every bit */
        assert_int_equal(qm_lion8_compress(&c, &shape, codes, scales, q, s16), QM_OK);
        assert_int_equal(qm_lion8_expand(&c, &shape, q, s16, count, codes_back, again), QM_OK);
        assert_memory_equal(codes, codes_back, (size_t)n);
        assert_memory_equal(scales, again, sizeof *scales * (size_t)count);
        assert_int_equal(qm_backend_cpu.load(fresh.plan, 0, codes_back, again), QM_OK);
        opt_momentum(&fresh, back);
        assert_memory_equal(m, back, sizeof *m * (size_t)n);
        /* plain: bf16 first, then quantized again */
        qm_lion8_plain(m, n, bf16);
        assert_int_equal(qm_lion8_requantize(&c, &shape, bf16, codes_back, again), QM_OK);
        qm_decode(&c, &shape, codes_back, again, back);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabsf(back[i] - m[i]) <= 1.0f / 254.0f);
        /* errors: every byte */
        uint8_t *errors = qm_plan_cpu_residual(o.plan);
        qm_lion8_errors_save(errors, n, bf16);
        assert_int_equal(qm_lion8_errors_load(bf16, n + n % 2, n, qm_plan_cpu_residual(fresh.plan)),
                         QM_OK);
        assert_memory_equal(errors, qm_plan_cpu_residual(fresh.plan), (size_t)n);
        /* what does not fit */
        assert_int_equal(qm_lion8_expand(&c, &shape, q, s16, count + 1, codes_back, again),
                         QM_BAD_ARG);
        assert_non_null(strstr(qm_message(), "got "));
        q[0] = -128;
        assert_int_equal(qm_lion8_expand(&c, &shape, q, s16, count, codes_back, again), QM_BAD_ARG);
        assert_int_equal(qm_lion8_errors_load(bf16, n + 2, n, codes_back), QM_BAD_ARG);
        bf16[0] = qm_float_to_bf16(256.0f);
        assert_int_equal(qm_lion8_errors_load(bf16, n, n, codes_back), QM_BAD_ARG);
        opt_close(&o);
        opt_close(&fresh);
    }
    struct qm_codec other;
    assert_int_equal(qm_codec_parse(&other, "dyn:8s/block:32/bisect/near/f16"), QM_OK);
    struct qm_shape one = flat(1);
    assert_int_equal(qm_lion8_compress(&other, &one, codes, scales, q, s16), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "dyn:8s"));
}

/* Least rate for bf16 of largest 3: 2^1 2^-7 / .49; a byte of residual makes it 2^-8 times that. */
static void test_least_rate(void **state)
{
    (void)state;
    struct qm_param plain = {QM_PARAM_bf16, QM_WRITE_near}, ecc = {QM_PARAM_bf16, QM_WRITE_ecc8};
    double least = 2.0 * 0x1p-7 / 0.49;
    assert_int_equal(qm_param_lr_check(&plain, 3.0, least * 1.001, 1.0), QM_OK);
    assert_int_equal(qm_param_lr_check(&plain, 3.0, least * 0.999, 1.0), QM_BAD_ARG);
    assert_int_equal(qm_param_lr_check(&plain, 3.0, least * 1.001, 0.1), QM_BAD_ARG);
    assert_int_equal(qm_param_lr_check(&ecc, 3.0, least * 0x1p-8 * 1.001, 1.0), QM_OK);
    assert_int_equal(qm_param_lr_check(&ecc, 3.0, least * 0x1p-8 * 0.999, 1.0), QM_BAD_ARG);
    assert_int_equal(qm_param_lr_check(&plain, 3.0, 0.0, 1.0), QM_OK);
    assert_int_equal(qm_param_lr_check(&plain, 0.0, 1e-30, 1.0), QM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_decouple_lr), cmocka_unit_test(test_signs),
        cmocka_unit_test(test_no_gradient), cmocka_unit_test(test_two_roundings),
        cmocka_unit_test(test_lost_decay),  cmocka_unit_test(test_end_betas),
        cmocka_unit_test(test_quantizer),   cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_four_bits),   cmocka_unit_test(test_zero_and_first),
        cmocka_unit_test(test_descends),    cmocka_unit_test(test_same_way),
        cmocka_unit_test(test_widths),      cmocka_unit_test(test_oracle_lion),
        cmocka_unit_test(test_oracle_sgd),  cmocka_unit_test(test_keys),
        cmocka_unit_test(test_save_load),   cmocka_unit_test(test_least_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
