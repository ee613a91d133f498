/* test_check_mutants.c - The judge finds every planted bug. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/judge_cases.h"
#include "tests/support/plain_backend.h"

/* Number of planted bugs that no case showed. */
static int escaped;

/* Counts a bug that the whole list of cases does not show with the default seed. */
static void assert_caught(const struct qm_backend *backend, const char *recipe,
                          void (*alter)(struct qm_recipe *), const char *what, const char *text)
{
    struct qm_tally t;
    if (!judge_cases(backend, recipe, alter, 20240501, 0, 1, 1, &t))
        fail_msg("%s: %s", recipe, qm_message());
    if (t.failed_cases == 0) {
        print_message("%s: not caught: %s\n", recipe, what);
        escaped++;
        return;
    }
    if (text && !strstr(t.finding[0].text, text))
        fail_msg("%s: %s: expected '%s' in: %s", recipe, what, text, t.finding[0].text);
}

/* ---- mutants: a backend with a bug ----------------------------------------------------------- */

#define AL "adamw8_ao,exp_avg=f32,exp_avg_sq=al:8u/block:256/arith/even/allog"

static void test_backend_mutants(void **state)
{
    static const struct {
        enum bug bug;
        const char *recipe, *text;
    } mutants[] = {
        {NIBBLES_SWAPPED, "adamw4_ao", "has code"},
        {NIBBLES_SWAPPED, "ema4_uniform", "has code"},
        {EARLIER_STEP, "adamw4_ao", "parameter"},
        {EARLIER_STEP, "adamw_f32", "parameter"},
        {STALE_SCALE, "adamw8_bnb", "scale 1"},
        {STALE_SCALE, "adamw4_lpmm", "scale 1"},
        {PREVIOUS_SCALE, "ema4_nf4", "scale"},
        {PREVIOUS_SCALE, "adamw4_lpmm", "scale"},
        {LAST_CODE_MISSING, "adamw4_ao", "has code"},
        {LAST_CODE_MISSING, "adamw8_ao", "has code"},
        {LAST_NOT_IN_MAXIMUM, "adamw4_ao", "scale"},
        {LAST_NOT_IN_MAXIMUM, "ema4_nf4a8", "scale"},
        {LAST_NOT_IN_MAXIMUM, "adamw4_lpmm", "scale"},
        {WRONG_VALUE, "adamw8_ao", "code 5 decodes"},
        {WRONG_VALUE, "ema4_nf4", "code 5 decodes"},
        {VALUE_OFF_BY_ULPS, "adamw4_lpmm", "code 5 decodes"},
        {VALUE_OFF_BY_ULPS, "ema4_nf4a8", "code 5 decodes"},
        {DECODE_PAST_END, "adamw4_ao", "outside a buffer"},
        {LAST_NOT_WRITTEN, "adamw8_bnb", "not written"},
        {GRADIENT_CHANGED, "adamw4_ao", "gradient"},
        {NOT_REPEATABLE, "adamw4_ao", "two threads"},
        {BIASED_DRAWS, "adamw4_lpmm_group,exp_avg.round=stoch", "stochastic rounding"},
        {DENORMALS_FLUSHED, "adamw_f32", NULL},
        {DENORMALS_FLUSHED, "adamw4_lpmm_group", NULL},
        {NAN_SPREADS, "adamw4_ao", "scale"},
        {INF_IGNORED, "adamw8_bnb_default", "want NaN or Inf"},
        {ZERO_BLOCK_KEPT, "adamw4_lpmm_group", "scale"},
        {STALE_SCALE, AL, "least logarithm"},
        {PREVIOUS_SCALE, AL, "scale"},
        {LAST_NOT_IN_MAXIMUM, AL, "scale"},
        {LAST_CODE_MISSING, AL, "has code"},
        {NIBBLES_SWAPPED, AL, "has code"},
        {NAN_SPREADS, AL, "scale"},
        {AL_SPAN_OFF, AL, "span"},
        {AL_LOW_OFF, AL, "least logarithm"},
        {AL_ONE_VALUE, AL, "least logarithm"},
        {AL_TRUNCATED, AL, "has code"},
        {AL_STEPS, AL, "has code"},
        {AL_ZERO, AL, "has code 0"},
        {AL_VALUE, AL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        char what[64];
        snprintf(what, sizeof what, "backend mutant %zu", i);
        bug = mutants[i].bug;
        assert_caught(&plain, mutants[i].recipe, NULL, what, mutants[i].text);
    }
    bug = NONE;
    assert_int_equal(escaped, 0);
}

/* ---- mutants: run as another recipe than judged ---------------------------------------------- */

static void clip_off(struct qm_recipe *r) { r->hyper.clip *= 1.0001; }
static void norm_off(struct qm_recipe *r) { r->hyper.max_unorm *= 1.00001; }
static void margin_off(struct qm_recipe *r) { r->hyper.margin += 1e-5; }
static void scale_off(struct qm_recipe *r) { r->hyper.scale *= 1.00001; }
static void limit_off(struct qm_recipe *r) { r->hyper.limiter = 0; }
static void regularizer_off(struct qm_recipe *r) { r->hyper.eps1 *= 4.0; }
static void least_scale_off(struct qm_recipe *r) { r->hyper.eps2 *= 1.001; }
static void beta3_off(struct qm_recipe *r) { r->hyper.beta3 *= 0.9999; }
static void alpha_off(struct qm_recipe *r) { r->hyper.alpha *= 1.00001; }
static void eps_off(struct qm_recipe *r) { r->hyper.eps *= 1.5; }
static void beta1_off(struct qm_recipe *r) { r->hyper.beta1 *= 0.99999; }
static void beta2_off(struct qm_recipe *r) { r->hyper.beta2 *= 0.99999; }
static void momentum_off(struct qm_recipe *r) { r->hyper.momentum *= 0.99999; }
static void decay_exponent_off(struct qm_recipe *r) { r->hyper.beta2_decay = -0.79; }
static void write_near(struct qm_recipe *r) { r->param.write = QM_WRITE_near; }
static void write_stoch(struct qm_recipe *r) { r->param.write = QM_WRITE_stoch; }
static void sign_lost(struct qm_recipe *r) { r->slot[0].scale.keep_sign = 0; }
static void least_lost(struct qm_recipe *r) { r->slot[0].scale.least = 0; }
static void no_decay(struct qm_recipe *r) { r->hyper.weight_decay = 0.0; }
static void beta2_for_m(struct qm_recipe *r) { r->hyper.beta1 = r->hyper.beta2; }
static void beta1_for_v(struct qm_recipe *r) { r->hyper.beta2 = r->hyper.beta1; }
static void eps_larger(struct qm_recipe *r) { r->hyper.eps *= 2.0; }
static void other_lr(struct qm_recipe *r) { r->hyper.lr *= 1.000001; }
static void coupled(struct qm_recipe *r) { r->rule = qm_rule_find("adam_ao"); }
static void round_floor0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_floor; }
static void round_floor1(struct qm_recipe *r) { r->slot[1].round = QM_ROUND_floor; }
static void round_ceil0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_ceil; }
static void round_mid0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_mid; }
static void round_mid1(struct qm_recipe *r) { r->slot[1].round = QM_ROUND_mid; }
static void round_near0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_near; }
static void round_near1(struct qm_recipe *r) { r->slot[1].round = QM_ROUND_near; }
static void round_even0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_even; }
static void round_away0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_away; }
static void search_ladder(struct qm_recipe *r) { r->slot[0].search = QM_SEARCH_ladder; }
static void search_bisect(struct qm_recipe *r) { r->slot[0].search = QM_SEARCH_bisect; }
static void search_grid(struct qm_recipe *r) { r->slot[0].search = QM_SEARCH_grid; }
static void scale_f16(struct qm_recipe *r) { r->slot[0].scale.f16 = 1; }
static void no_floor(struct qm_recipe *r) { r->slot[0].scale.floor = 0.0f; }
static void nan_top(struct qm_recipe *r) { r->slot[0].scale.nan = QM_NAN_top; }
static void max_skips(struct qm_recipe *r) { r->slot[0].scale.max_skips_nan = 1; }
static void reciprocal(struct qm_recipe *r) { r->slot[0].unit = QM_UNIT_recip; }
static void other_order(struct qm_recipe *r) { r->slot[0].norm = QM_NORM_colrow; }
static void one_scale(struct qm_recipe *r) { r->slot[0].norm = QM_NORM_rank1; }
static void canonical_nf4(struct qm_recipe *r) { r->slot[0].map = QM_MAP_nf4; }
static void lin_zero(struct qm_recipe *r) { r->slot[1].map = QM_MAP_lin0; }

/* AdamW in lpmm's order with sqrt(vhat + eps). */
static void eps_inside_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                             float *const *slot)
{
    const float *c = s->c;
    float *m = slot[0], *v = slot[1];
    for (int64_t i = 0; i < n; i++) {
        float old = p[i];
        float *at[2] = {m + i, v + i};
        qm_rule_find("adamw_lpmm")->elementwise->block(s, 1, p + i, g + i, at);
        p[i] = old * c[0] + (c[7] * m[i]) / sqrtf(v[i] / (c[5] * c[5]) + c[6]);
    }
}

static void eps_inside(struct qm_recipe *r)
{
    static struct qm_rule rule;
    static struct qm_elementwise_ops ops;
    rule = *r->rule;
    ops = *rule.elementwise;
    ops.block = eps_inside_block;
    rule.elementwise = &ops;
    r->rule = &rule;
}

/* AdamW in lpmm's order whose update takes the first moment before the step. */
static void stale_moment_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                               float *const *slot)
{
    const float *c = s->c;
    float *m = slot[0], *v = slot[1];
    for (int64_t i = 0; i < n; i++) {
        float old_p = p[i], old_m = m[i];
        float *at[2] = {m + i, v + i};
        qm_rule_find("adamw_lpmm")->elementwise->block(s, 1, p + i, g + i, at);
        p[i] = old_p * c[0] + (c[7] * old_m) / (sqrtf(v[i]) / c[5] + c[6]);
    }
}

static void stale_moment(struct qm_recipe *r)
{
    static struct qm_rule rule;
    static struct qm_elementwise_ops ops;
    rule = *r->rule;
    ops = *rule.elementwise;
    ops.block = stale_moment_block;
    rule.elementwise = &ops;
    r->rule = &rule;
}

static const struct {
    const char *what, *recipe;
    void (*alter)(struct qm_recipe *r);
    const char *text;
} recipe_mutants[] = {
    {"truncates", "adamw4_ao", round_floor0, "has code"},
    {"truncates", "adamw4_lpmm", round_floor1, "has code"},
    {"truncates", "ema4_uniform", round_floor0, "has code"},
    {"rounds up", "ema4_nf4", round_ceil0, "has code"},
    {"rows and columns in the other order", "adamw4_lpmm,exp_avg.norm=rowcol", other_order, NULL},
    {"the smaller scale for two", "adamw4_lpmm,exp_avg.norm=rowcol", one_scale, NULL},
    {"truncates", "adamw4_lpmm,exp_avg.norm=rowcol", round_floor0, "has code"},
    {"eps inside the root", "adamw4_lpmm_group", eps_inside, "parameter"},
    {"eps twice as large", "adamw_f32", eps_larger, "parameter"},
    {"update from the old moment", "adamw4_lpmm", stale_moment, "parameter"},
    {"coupled decay", "adamw4_ao", coupled, NULL},
    {"decay missing", "adamw4_lpmm", no_decay, "parameter"},
    {"decay missing", "adamw_f32", no_decay, "parameter"},
    {"learning rate 1e-6 larger", "adamw8_bnb", other_lr, "parameter"},
    {"beta2 for the first moment", "adamw8_ao", beta2_for_m, "exp_avg: "},
    {"beta1 for the second moment", "adamw4_ao", beta1_for_v, "exp_avg_sq: "},
    {"f16 scale", "adamw4_ao", scale_f16, "scale"},
    {"f16 scale", "ema4_nf4", scale_f16, "scale"},
    {"ladder for nearest", "ema4_nf4,exp_avg.map=nf4a8", search_ladder, "has code"},
    {"nearest for ladder", "ema4_nf4a8", search_bisect, "has code"},
    {"table of 65,536 for nearest", "adamw8_ao,exp_avg.round=mid", search_grid, "has code"},
    {"ties down for up, dyn", "adamw4_ao", round_mid0, "exp_avg: "},
    {"ties down for up, lin", "adamw4_ao", round_mid1, "exp_avg_sq: "},
    {"ties up for down, de", "adamw4_lpmm_group", round_near0, "exp_avg: "},
    {"ties up for down, lin", "adamw4_lpmm_group", round_near1, "exp_avg_sq: "},
    {"ties up for down, lin by rank 1", "adamw4_lpmm", round_near1, "exp_avg_sq: "},
    {"ties up for down, nf4", "ema4_nf4", round_near0, "has code"},
    {"ties down for up, 8 bits", "adamw8_ao", round_mid0, "has code"},
    {"ties to even for up", "adamw4_ao", round_even0, "has code"},
    {"ties away for up", "adamw4_ao", round_away0, "has code"},
    {"ties up for even", "ema4_uniform", round_near0, "has code"},
    {"ties away for even", "ema4_uniform", round_away0, "has code"},
    {"reciprocal for division", "ema4_nf4", reciprocal, "has code"},
    {"no floor under the scale", "adamw4_ao", no_floor, "scale"},
    {"NaN to the top code", "adamw4_ao", nan_top, "has code"},
    {"NaN left out of the maximum", "ema4_nf4", max_skips, "want NaN or Inf"},
    {"another table", "ema4_nf4a8,exp_avg.search=bisect", canonical_nf4, "decodes to"},
    {"a zero code", "adamw4_lpmm", lin_zero, "decodes to"},
    {"the sign not kept", "adamw8_bnb_cuda", sign_lost, "has code"},
    {"codes below the least", "adamw4_lpmm,exp_avg.scale=least:2", least_lost, "has code"},
    {"bf16 to nearest for stochastic", "adamw4_ao_bf16sr", write_near, "stochastic"},
    {"bf16 stochastic for nearest", "adamw8_ao_bf16", write_stoch, "is stored as"},
    {"16 bits stochastic for nearest", "adamw_f32,param=f16/near", write_stoch, "is stored as"},
    {"learning rate 1e-6 larger beside a residual", "flash_adamw", other_lr, "residual"},
    {"learning rate 1e-6 larger beside a residual", "lion8_ecc16", other_lr, "residual"},
    {"no decay beside a residual", "flash_sgdw,weight_decay=0.1", no_decay, NULL},
    {"a smaller clip", "adafactor_hf", clip_off, "parameter"},
    {"a smaller clip", "adafactor_torch", clip_off, "parameter"},
    {"a smaller clip", "adafactor8_026", clip_off, "parameter"},
    {"a smaller clip", "came_f32", clip_off, NULL},
    {"a smaller clip", "came8_026,clip=0.5", clip_off, NULL},
    {"another regularizer", "adafactor8_026_torch,eps1=1e-6", regularizer_off, NULL},
    {"another least scale", "adafactor_hf,scale_parameter=1,eps2=2", least_scale_off, NULL},
    {"another schedule", "adafactor_hf", decay_exponent_off, NULL},
    {"another schedule", "adafactor8_022", decay_exponent_off, NULL},
    {"beta3", "came_f32", beta3_off, "res_"},
    {"beta3", "came8_024", beta3_off, "conf_"},
    {"beta3", "ademamix8_bnb", beta3_off, "exp_avg_slow"},
    {"alpha", "ademamix8_bnb", alpha_off, "parameter"},
    {"eps", "apollo_f32", eps_off, NULL},
    {"scale", "apollo_mini_f32", scale_off, "parameter"},
    {"the limiter's margin", "apollo_f32", margin_off, NULL},
    {"the limiter's margin", "fira_f32", margin_off, NULL},
    {"scale", "fira_f32", scale_off, "parameter"},
    {"the limiter's margin", "apollo8_026", margin_off, NULL},
    {"a limiter", "adafactor8_026_torch,limiter=1", limit_off, NULL},
    {"beta1", "apollo8_026", beta1_off, "exp_avg"},
    {"a longer step", "lamb_bnb,max_unorm=0.01", norm_off, "parameter"},
    {"a longer step", "lamb_bnb_cpu,max_unorm=0.01", norm_off, "parameter"},
    {"a longer step", "lars_bnb", norm_off, "parameter"},
    {"a longer step", "lars_bnb_cpu", norm_off, "parameter"},
    {"beta2", "rmsprop8_bnb", beta2_off, "square_avg"},
    {"beta2", "lion8_bnb", beta2_off, "exp_avg"},
    {"eps", "adagrad8_bnb", eps_off, "parameter"},
    {"beta2", "adamw8_bnb_cuda", beta2_off, "exp_avg_sq"},
    {"momentum", "sgdm8_bnb", momentum_off, "momentum_buffer"},
    {"beta2", "adamw4_lpmm_factor", beta2_off, "exp_avg_sq"},
};

static void test_recipe_mutants(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recipe_mutants / sizeof *recipe_mutants; i++)
        assert_caught(&qm_backend_cpu, recipe_mutants[i].recipe, recipe_mutants[i].alter,
                      recipe_mutants[i].what, recipe_mutants[i].text);
    assert_int_equal(escaped, 0);
}

static void minimizes(struct qm_recipe *r) { r->hyper.maximize = 0; }

/* The regular list catches a step that ignores maximize. */
static void test_maximize(void **state)
{
    static const char *const recipes[] = {"adamw4_ao",       "adamw8_lpmm", "adamw8_bnb",
                                          "lion8_fused",     "sgdm_f32",    "flash_adamw",
                                          "adafactor_torch", "came8_026",   "ema4_nf4"};
    (void)state;
    escaped = 0;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        assert_caught(&qm_backend_cpu, recipes[i], minimizes, "maximize is ignored", NULL);
    assert_int_equal(escaped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maximize),
        cmocka_unit_test(test_backend_mutants),
        cmocka_unit_test(test_recipe_mutants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
