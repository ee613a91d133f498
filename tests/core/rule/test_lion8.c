/* test_lion8.c - Tests 8-bit Lion and its family: refused recipes, single steps, the quantizer, and
 * the oracles on closed forms. */
#include "oracle/oracle.h"
#include "tests/support/one_tensor.h"

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
        {"flash_adam,decouple_lr=1", "decouple_lr: rule flash_adam does not read it; it reads lr"},
        {"flash_sgd,decouple_lr=1", "decouple_lr: rule flash_sgd does not read it; it reads lr"},
        {"flash_lion,decouple_lr=1", "decouple_lr: rule flash_lion does not read it; it reads lr"},
        {"adamw_f32,decouple_lr=1", "decouple_lr: rule adamw does not read it; it reads lr"},
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

/* ---- one step -------------------------------------------------------------------------------- */

/* A step decays by d = weight_decay (lr / initial_lr); initial_lr is the lr of the opened plan. */
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
        assert_int_equal(qm_backend_cpu.hyper(o.plan, &h), QM_OK);
        g[0] = 1.0f;
        opt_step(&o, g);
        assert_true(opt_at(&o, 0) == 5.25f - 0.25f && opt_at(&o, 1) == -5.25f);
        h.lr = 0.0; /* neither decay nor step */
        assert_int_equal(qm_backend_cpu.hyper(o.plan, &h), QM_OK);
        opt_step(&o, g);
        assert_true(opt_at(&o, 0) == 5.0f && opt_at(&o, 1) == -5.25f);
        opt_close(&o);
    }
}

/* The source forms lr / initial_lr first: 0.75 (0.404 / 0.303) is 1, and (0.75 * 0.404) / 0.303 is
 * 1 + 2^-52, which would leave -2^-52 of the parameter. */
static void test_decay_order(void **state)
{
    (void)state;
    static const char *const names[2] = {"lion8_unfused", "lion8_cpu"};
    struct qm_hyper h = qm_hyper_default();
    h.weight_decay = 0.75;
    h.lr = 0.404;
    h.initial_lr = 0.303;
    for (int k = 0; k < 2; k++) {
        struct qm_rule_step s;
        float p = 0x1p60f, g = 0.0f, m = 0.0f, *slot[1] = {&m};
        qm_rule_find(names[k])->prepare(&h, 1, &s);
        s.param = QM_PARAM_f32;
        qm_rule_find(names[k])->elementwise->block(&s, 1, &p, &g, slot);
        assert_true(p == 0.0f);
    }
}

/* FlashOptim decays by d = lr weight_decay, and with decouple_lr by
 * d = weight_decay (lr / initial_lr).  With a zero gradient the decay is the whole step. */
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
        h.lr = 0.25; /* d = 1/16; with decouple_lr 1/8 */
        want = k % 2 ? 5.25f : 6.5625f;
        assert_int_equal(qm_backend_cpu.hyper(o.plan, &h), QM_OK);
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

/* A step without a gradient changes nothing: it does not even decay the parameter. */
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

/* The unfused step rounds twice: 1 + 2^-7 decays by 2^-8 to 1.00388, which is 1 in bf16, and
 * 1 - 0.0024 = 0.9976 is 1 - 2^-8 in bf16.  The fused step rounds once: 1.00148 is 1 in bf16. */
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

/* torch 1.13 loses a decay of 2^-9 on the CPU, because 1 - 2^-9 is 1 in bf16. */
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
        /* 1.25 (1 - 2^-9) would round to 1.25, but 1.25 (1 - 2^-9)^2 would not. */
        for (int t = 0; t < 2; t++)
            rule->elementwise->block(&s, 1, &p, &g, slot);
        assert_true(p == 1.25f);
        h.weight_decay = 0x1p-8 + 0x1p-9;
        rule->prepare(&h, 1, &s);
        s.param = QM_PARAM_bf16;
        p = 1.0f;
        rule->elementwise->block(&s, 1, &p, &g, slot); /* 1 - 3/512 is a tie, which goes to even */
        assert_true(p == 1.0f - 0x1p-7f);
        s.param = QM_PARAM_f32;
        p = 1.0f;
        rule->elementwise->block(&s, 1, &p, &g, slot);
        assert_true(p == 1.0f - 3.0f / 512.0f);
    }
}

/* With betas of 1 the momentum never changes; with betas of 0 the rule is sign descent. */
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

/* ---- the quantizer --------------------------------------------------------------------------- */

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
    /* Halves round up for both signs; the inputs are multiples of 1/2 below a largest value
     * of 127. */
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
    /* A: the block's absmax.  |x^ - x| <= A/254 (1 + 2^-11) + |x| 2^-11.  If both passes use the
     * rounded absmax A', the bound is A'/254, and a value beyond A' is clamped to A'. */
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
    /* An absmax of at most 2^-25 underflows in float16: the group decodes to 0, whatever
     * its codes. */
    for (int i = 0; i < 64; i++)
        x[i] = i < 32 ? 0x1p-25f : 0x1p-24f;
    assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
    qm_decode(&c, &shape, codes, scales, y);
    assert_true(codes[0] == 254 && y[0] == 0.0f && y[32] == 0x1p-24f);
}

/* Four bits give seven levels per sign.  The order of the two nibbles in a byte is
 * not published. */
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

/* ---- the oracles ----------------------------------------------------------------------------- */

/* Steps computed by hand with beta1 = 1/2, beta2 = 3/4, eta = 1/2, eta_0 = 1, lambda = 1/4. */
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
    assert_true(p[2] == 7.0 && m[2] == -1.0); /* c = 0, the terms cancel */
    h.initial_lr = 0.0;                       /* decay by lambda itself */
    h.maximize = 1;
    o->step(p, slot, g, 1, 3, &h, 2);
    assert_true(p[0] == 7.5 * 0.75 - 0.5 && m[0] == 0.75);
}

/* A constant gradient g gives m = g (1 - tau) (1 - mu^t) / (1 - mu). */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_decay_order),   cmocka_unit_test(test_decouple_lr),
        cmocka_unit_test(test_signs),         cmocka_unit_test(test_no_gradient),
        cmocka_unit_test(test_two_roundings), cmocka_unit_test(test_lost_decay),
        cmocka_unit_test(test_end_betas),     cmocka_unit_test(test_quantizer),
        cmocka_unit_test(test_four_bits),     cmocka_unit_test(test_oracle_lion),
        cmocka_unit_test(test_oracle_sgd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
