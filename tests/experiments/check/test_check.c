/* test_check.c - The judge has no false alarm, judges everything, and sees other orders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "experiments/check/judge.h"
#include "oracle/oracle.h"
#include "tests/support/drawn.h"
#include "tests/support/judge_cases.h"
#include "tests/support/plain_backend.h"

/* ---- no false alarm -------------------------------------------------------------------------- */

static void assert_passes(const struct qm_backend *backend, const char *recipe,
                          void (*alter)(struct qm_recipe *), uint64_t seed, int first, int stride)
{
    struct qm_tally t;
    if (!judge_cases(backend, recipe, alter, seed, first, stride, 0, &t))
        return;
    if (!qm_tally_passed(&t))
        fail_msg("%s, seed %llu: false alarm: %s: %s", recipe, (unsigned long long)seed,
                 t.n_findings ? t.finding[0].name : "nothing judged",
                 t.n_findings ? t.finding[0].text : "");
    assert_true(t.verdict[QM_VERDICT_OFF_BY_ONE] == 0 && t.verdict[QM_VERDICT_WRONG] == 0);
    assert_true(t.worst_ratio <= 1.0);
}

static const char *const more_recipes[] = {
    "adamw4_lpmm,exp_avg.round=stoch,exp_avg_sq.round=stoch",
    "adamw4_lpmm,exp_avg=nf4:4s/rank1/bisect/mid/hi",
    "adamw4_lpmm_fused,exp_avg=de:4s/rank1block:24/bisect/mid/lo",
    "adamw8_lpmm,exp_avg=lint:6s/block:64/arith/dither/byte",
    "adamw4_ao,grad=bf16,exp_avg_sq=lin:4u/tensor/scan/near/lo",
    "adamw8_ao,grad=f16,exp_avg_sq=log:8u/logblock:256/arith/even/floor:1e-12",
    "adamw8_bnb,exp_avg=dyn:8s/block:2048/grid/mid/recip/maxskip/zero:0",
    "ema4_nf4,exp_avg=fp4:4s/block:64/ladder/mid/hi",
    "ema4_nf4,exp_avg=fp4s:4s/block:64/argmin/mid/hi",
    "ema4_nf4,exp_avg=nf4:4s/row/ladder/mid/hi",
    "ema4_nf4,exp_avg=dyn:4s/col/mids/mid/hi",
    "ema4_nf4,exp_avg=lint:3s/block:32/arith/near/hi/f16",
    "ema4_nf4,exp_avg=dyn:8s/block:64/bisect/even/softsign",
    "adamw4_ao,exp_avg_sq=lin0:4u/block:128/bisect/near/hi/sqrt",
    "ema4_nf4,exp_avg=dyn:8s/block:64/mids/mid/nest:256/maxskip",
    "ema4_nf4,exp_avg=lin0:4s/block:64/bisect/away/lo",
    "adamw4_ao,exp_avg_sq=de0:4u/rank1/argmin/mid/hi",
    "ema4_nf4,exp_avg=int:4s/block:64/arith/even/recip/cap:0.5",
    "ema4_nf4,exp_avg=nf4:4s/id/bisect/mid/hi",
    "ema4_nf4,exp_avg=nf4:4s/block:7/bisect/mid/hi/zero:7/nanzero",
    "adamw4_ao,lr=0.1,beta1=0.5,eps=0.01,maximize=1",
    "adamw4_lpmm,exp_avg.scale=least:2",
    "adamw4_lpmm,param=bf16/near",
    "adamw4_ao,param=e4m3/stoch",
    "adamw8_ao,param=f16/stoch",
    "adamw_f32,param=bf16/kahan",
    "adamw_f32,param=f16/kahan",
    "adamw_f32,param=f16/ecc8",
    "lion8_fused,param=f16/ecc16",
    "adafactor_hf,beta1=0.9,relative_step=1,scale_parameter=1",
    "adafactor_hf,param=e4m3/near",
    "adafactor_torch,factored=0,maximize=1",
    "apollo_f32,svd=1,rank=3",
    "apollo_f32,scale_front=1,scale=4",
    "fira_f32,correct_bias=0,rank=2",
    "muon8_lin,nesterov=1,adjust=2,flatten=1",
    "muon8_bnb_triton,nesterov=0,adjust=1,state_used=stored",
    "muon_f32,param=bf16,adjust=0",
    "microadam4,alpha=-2,window=3,d_block=50",
    "microadam4,alpha=0.3,error=affine:8s/block:60/arith/near/affine,grad=bf16",
    "microadam4,param=f32,error=dyn:8s/block:64/bisect/near,k_init=0.3",
    "adamw_f32,exp_avg=affine:4s/block:5/arith/even/hi/affine/bf16",
    "adamw_f32,exp_avg_sq=affine:8s/divblock:64/arith/floor/affine",
    "lamb_bnb,weight_decay=0.1,max_unorm=0.01",
    "lars_bnb,eps=0.1,weight_decay=0.01",
    "lars_bnb_cpu,max_unorm=0",
    "adamw4_lpmm,exp_avg.norm=rowcol",
    "adamw4_lpmm,exp_avg.norm=colrow,exp_avg_sq=lin:4u/rowcol/bisect/mid/lo",
    "ema4_nf4,exp_avg=nf4:4s/rowcol/argmin/mid/hi",
    "ema4_nf4,exp_avg=dyn:8s/colrow/bisect/stoch",
    "adamw8_ao,exp_avg_sq=al:8u/block:256/arith/even/allog",
    "adamw8_ao,exp_avg_sq=al:8u/block:1/arith/even/allog",
    "adamw4_2_solo,exp_avg_sq.round=bernoulli",
    "adam4_2_solo,exp_avg=linb:4s/divblock:0/bisect/bernoulli/hi/floor:1e-12,beta1=0.4",
    "adabelief4_2_solo,exp_avg_sq=qlog:8u/divblock:100/arith/even/qlog/quantile:0.5",
    "adamw2_2_solo,param=bf16,exp_avg_sq=qlog:4u/block:96/arith/bernoulli/lo/qlog/quantile:1",
    "adamw8_coat,exp_avg=e4m3:8s/block:1000/bisect/stoch/expand:7/plus:1e-30,beta1=0.5",
    "adamw8_coat,exp_avg.scale=none,exp_avg_sq=e4m3:8s/block:5/bisect/even/expand:1/plus:1e-20",
    "adamw8_coat_plain,exp_avg.norm=row,exp_avg_sq.norm=rank1",
    "adafactor8_024_torch,row_var=al:8u/block:128/arith/even/allog",
};

static void test_no_false_alarm(void **state)
{
    (void)state;
    bug = NONE;
    for (int v = 0; v < qm_variant_count(); v++)
        for (int seed = 1; seed <= 3; seed++)
            if (is_drawn(3 * v + seed))
                assert_passes(&qm_backend_cpu, qm_variant_at(v)->name, NULL, (uint64_t)seed,
                              (v + 4 * seed) % 11, 11);
    for (size_t i = 0; i < sizeof more_recipes / sizeof *more_recipes; i++)
        if (is_drawn((int)i))
            assert_passes(&qm_backend_cpu, more_recipes[i], NULL, 5 + i, (int)i % 17, 17);
    for (int v = 0; v < qm_variant_count(); v++) {
        if (!is_drawn(v))
            continue;
        struct qm_recipe r;
        assert_int_equal(qm_recipe_from(qm_variant_at(v), &r), QM_OK);
        if (r.rule->elementwise && r.param.format == QM_PARAM_f32)
            assert_passes(&plain, qm_variant_at(v)->name, NULL, 11, v % 29, 29);
    }
}

/* Every verdict that may occur does occur, many codes are judged, and ties are met. */
static void test_not_vacuous(void **state)
{
    int judged = 0, drawn = 0;
    (void)state;
    for (int v = 0; v < qm_variant_count(); v++) {
        struct qm_tally t;
        struct qm_recipe r;
        if (!is_drawn(v))
            continue;
        drawn++;
        if (!judge_cases(&qm_backend_cpu, qm_variant_at(v)->name, NULL, 3, 4, 11, 0, &t))
            continue;
        judged++;
        assert_int_equal(qm_recipe_parse(qm_variant_at(v)->name, &r), QM_OK);
        /* The bounds are tight within a factor of 4; numbers of 16 bits alone are known exactly. */
        assert_true(t.worst_ratio > 0.25 || strcmp(r.rule->family, "microadam") == 0);
        /* float16 overflows early; in rules with products of means one unbounded element makes the
         * others unbounded */
        assert_true(t.unbounded < t.judged / (!r.rule->elementwise  ? 5
                                              : r.slot[0].scale.f16 ? 10
                                                                    : 20));
        if (r.slot[0].bits == 0)
            continue;
        assert_true(t.verdict[QM_VERDICT_EQUAL] > 50000);
        /* Ties are planted between the values of a map without a curve, and in slots that are
         * averages of the gradient. */
        if (r.rule->elementwise && r.slot[0].curve == QM_CURVE_none &&
            !qm_round_draws(r.slot[0].round) && t.verdict[QM_VERDICT_BOUNDARY] < 20)
            fail_msg("%s: %lld BOUNDARY", qm_variant_at(v)->name,
                     (long long)t.verdict[QM_VERDICT_BOUNDARY]);
        if (r.slot[0].search == QM_SEARCH_grid || r.param.write >= QM_WRITE_kahan)
            /* entries of the grid are 3e-5 wide; steps of residuals are as fine as the
             * rule's error */
            continue;
        /* keepsign leaves the code open where either sign is possible, f16 leaves the divisor
         * open, and the averages of adafactor8bit 0.4.6 have a wider bound */
        int is_wide = strcmp(r.rule->name, "adafactor8_046") == 0;
        if (t.verdict[QM_VERDICT_BOUNDARY] >=
            t.verdict[QM_VERDICT_EQUAL] /
                (r.slot[0].scale.keep_sign || r.slot[0].scale.f16 || is_wide ? 20 : 40))
            fail_msg("%s: %lld BOUNDARY beside %lld EQUAL", qm_variant_at(v)->name,
                     (long long)t.verdict[QM_VERDICT_BOUNDARY],
                     (long long)t.verdict[QM_VERDICT_EQUAL]);
        assert_int_equal(t.deviations > 0, r.slot[0].search == QM_SEARCH_ladder);
    }
    assert_int_equal(judged, drawn);
    assert_true(drawn > 0);
}

/* Every rule passes with 4-bit states, also those that no variant uses. */
static void test_every_rule_passes(void **state)
{
    int judged = 0;
    (void)state;
    for (int k = 0; k < qm_rule_count(); k++) {
        const struct qm_rule *rule = qm_rule_at(k);
        if (rule->n_slots > 2 || !rule->elementwise)
            continue;
        struct qm_variant v = {.name = rule->name,
                               .rule = rule->name,
                               .hyper = qm_hyper_default(),
                               .slot = {{.quantizer = "dyn:4s/block:128/bisect/near/hi"},
                                        {.quantizer = "lin:4u/block:64/bisect/mid/lo"}}};
        for (int i = 0; i < rule->n_slots; i++)
            v.slot[i].name = rule->slot[i];
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            struct qm_subject s = {.backend = &qm_backend_cpu};
            struct qm_tally t;
            v.hyper.nesterov = nesterov;
            v.hyper.maximize = nesterov;
            assert_int_equal(qm_recipe_from(&v, &s.recipe), QM_OK);
            if (qm_judge_begin(&s, &t) == QM_SKIPPED)
                continue;
            judged++;
            for (int i = 7; i < qm_case_count(); i += 17) {
                struct qm_case c = qm_case_at(i);
                assert_int_equal(qm_judge_case(&s, &c, 9, &t), QM_OK);
            }
            if (!qm_tally_passed(&t))
                fail_msg("%s: %s: %s", rule->name, t.finding[0].name, t.finding[0].text);
        }
    }
    assert_true(judged >= 16);
}

static void test_what_is_skipped(void **state)
{
    struct qm_subject s = {.backend = &qm_backend_cpu};
    struct qm_tally t;
    (void)state;
    assert_int_equal(qm_recipe_parse("adamw_f32", &s.recipe), QM_OK);
    struct qm_rule own = *s.recipe.rule; /* of a family without an oracle */
    own.family = "homemade";
    s.recipe.rule = &own;
    assert_int_equal(qm_judge_begin(&s, &t), QM_SKIPPED);
    assert_non_null(strstr(qm_message(), "homemade"));
}

/* ---- other orders of operations: found unless declared --------------------------------------- */

static void unfused(struct qm_recipe *r) { r->rule = qm_rule_find("adamw_bnb"); }
static void reciprocal(struct qm_recipe *r) { r->slot[0].unit = QM_UNIT_recip; }

typedef void block_function(const struct qm_rule_step *, int64_t, float *, const float *,
                            float *const *);

/* Gives the recipe its rule with another function for blocks.  The judge calls this in several
 * threads at once; each rule is made once, by the call in failures(), and only read later. */
static void with_block(struct qm_recipe *r, block_function *block)
{
    static struct {
        struct qm_rule rule;
        struct qm_elementwise_ops ops;
    } made[4];
    int i = 0;
    while (made[i].ops.block && made[i].ops.block != block)
        assert_true(++i < 4);
    if (!made[i].ops.block) {
        made[i].rule = *r->rule;
        made[i].ops = *r->rule->elementwise;
        made[i].ops.block = block;
        made[i].rule.elementwise = &made[i].ops;
    }
    r->rule = &made[i].rule;
}

/* AdamW with reciprocals instead of divisions, as a kernel may compute it. */
static void recip_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                        float *const *slot)
{
    const float *c = s->c;
    for (int64_t i = 0; i < n; i++) {
        float old = p[i], *at[2] = {slot[0] + i, slot[1] + i};
        qm_rule_find("adamw")->elementwise->block(s, 1, p + i, g + i, at);
        float den = sqrtf(at[1][0]) * (1.0f / c[5]) + c[6];
        p[i] = old * c[0] + (c[7] * at[0][0]) * (1.0f / den);
    }
}

static void by_reciprocals(struct qm_recipe *r) { with_block(r, recip_block); }

/* AdamW with a root that is off by up to 7 ulp. */
static void rough_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                        float *const *slot)
{
    const float *c = s->c;
    for (int64_t i = 0; i < n; i++) {
        float old = p[i], *at[2] = {slot[0] + i, slot[1] + i};
        qm_rule_find("adamw")->elementwise->block(s, 1, p + i, g + i, at);
        float root = sqrtf(at[1][0]);
        root = root >= 1.17549435e-38f ? qm_float(qm_bits(root) & ~7u) : root;
        p[i] = old * c[0] + (c[7] * at[0][0]) / (root / c[5] + c[6]);
    }
}

static void by_rough_roots(struct qm_recipe *r) { with_block(r, rough_block); }

/* sum (x - y by)^2 in float32: by halves, a tree that is allowed; or one after the other, which is
 * a tree of depth n. */
static float by_halves(const float *x, const float *y, float by, int64_t n)
{
    if (n == 1)
        return (*x - *y * by) * (*x - *y * by);
    return n < 1 ? 0.0f
                 : by_halves(x, y, by, n / 2) + by_halves(x + n / 2, y + n / 2, by, n - n / 2);
}

static float one_by_one(const float *x, const float *y, float by, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - y[i] * by) * (x[i] - y[i] * by);
    return sum;
}

/* LARS of bitsandbytes with norms from such sums. */
static qm_status lars(const struct qm_tensor_rule_args *w,
                      float (*squares)(const float *, const float *, float, int64_t))
{
    const float *c = w->s->c, *b = w->slot[0];
    int64_t n = qm_shape_numel(w->shape);
    float most = (float)w->s->hyper->max_unorm * sqrtf(squares(w->p, w->p, 0.0f, n)) + c[6];
    float norm = sqrtf(squares(b, w->p, c[1], n)), scale = norm > most ? most / norm : 1.0f;
    for (int64_t i = 0; i < n; i++)
        w->p[i] = w->p[i] + scale * (c[7] * b[i]);
    return QM_OK;
}

static qm_status lars_halves(const struct qm_tensor_rule_args *w) { return lars(w, by_halves); }
static qm_status lars_in_turn(const struct qm_tensor_rule_args *w) { return lars(w, one_by_one); }

static void with_apply(struct qm_recipe *r, qm_status (*apply)(const struct qm_tensor_rule_args *))
{
    static struct qm_rule rule;
    static struct qm_tensor_ops ops;
    if (r->rule != &rule) { // the judge alters a recipe of its own after the one of failures()
        rule = *r->rule;
        ops = *rule.tensor;
        rule.tensor = &ops;
    }
    ops.apply = apply;
    r->rule = &rule;
}

static void by_tree(struct qm_recipe *r) { with_apply(r, lars_halves); }
static void by_running_sums(struct qm_recipe *r) { with_apply(r, lars_in_turn); }

static int64_t failures(const char *recipe, void (*alter)(struct qm_recipe *), struct qm_reorder o)
{
    struct qm_subject s = {.backend = &qm_backend_cpu, .alter = alter, .reorder = o};
    struct qm_tally t;
    struct qm_recipe first;
    assert_int_equal(qm_recipe_parse(recipe, &s.recipe), QM_OK);
    first = s.recipe;
    alter(&first);
    assert_int_equal(qm_judge_begin(&s, &t), QM_OK);
    assert_int_equal(qm_judge_list(&s, 0, 1, 20240501, &t, (struct qm_judge_watch){.done = NULL}),
                     QM_OK);
    qm_judge_end(&s, &t);
    if (t.n_findings)
        print_message("    %s: %.100s\n", recipe, t.finding[0].text);
    return t.failed_cases;
}

/* A fused operation is mathematically equal to two, so it raises no alarm; other orders must
 * be declared. */
static void test_benign_orders_pass(void **state)
{
    const struct qm_reorder none = {0}, recip = {.recip = 1}, rough = {.rsqrt_ulp = 8.0},
                            sums = {.tree = 1};
    (void)state;
    for (int seed = 1; seed <= 3; seed++)
        assert_passes(&qm_backend_cpu, "adamw_f32_t113", unfused, (uint64_t)seed, seed, 5);
    assert_true(failures("adamw_f32", by_rough_roots, none) > 0);
    assert_int_equal(failures("adamw_f32", by_rough_roots, rough), 0);
    assert_int_equal(failures("adamw_f32", by_reciprocals, recip), 0);
    assert_true(failures("ema4_nf4", reciprocal, none) > 0);
    assert_int_equal(failures("ema4_nf4", reciprocal, recip), 0);
    assert_true(failures("lars_bnb", by_running_sums, sums) > 0);
    assert_int_equal(failures("lars_bnb", by_tree, sums), 0);
}

/* A finding of no case has its place also where failing cases have taken theirs. */
static void test_rates_beside_many_cases(void **state)
{
    (void)state;
    struct qm_subject s = {.backend = &qm_backend_cpu};
    struct qm_tally *t = calloc(1, sizeof *t);
    assert_non_null(t);
    assert_int_equal(qm_recipe_parse("adamw4_2_solo", &s.recipe), QM_OK);
    t->n_findings = QM_FINDINGS;
    for (int i = 0; i < QM_RATES; i++) {
        t->stoch_expected[i] = 1000.0;
        t->stoch_variance[i] = 100.0;
    }
    qm_judge_end(&s, t);
    assert_int_equal(t->n_findings, QM_FINDINGS + QM_RATES);
    for (int i = QM_FINDINGS; i < t->n_findings; i++)
        assert_string_equal(t->finding[i].name, QM_RATES_NAME);
    free(t);
}

/* ---- parameters of 16 bits that are also rounded within a step ------------------------------- */

/* Judges the recipe as another rule, or as another order of its own rule; returns the
 * failed cases. */
static int64_t rounded(const char *recipe, const char *rule, unsigned order_off, unsigned order_on,
                       void (*alter)(struct qm_recipe *))
{
    struct qm_subject s = {.backend = &qm_backend_cpu, .alter = alter};
    struct qm_tally *t = malloc(sizeof *t);
    struct qm_rule own;
    assert_int_equal(qm_recipe_parse(recipe, &s.recipe), QM_OK);
    own = rule ? *qm_rule_find(rule) : *s.recipe.rule;
    own.order = (own.order & ~order_off) | order_on;
    s.recipe.rule = &own;
    assert_int_equal(qm_judge_begin(&s, t), QM_OK);
    assert_int_equal(qm_judge_list(&s, 0, 5, 20240501, t, (struct qm_judge_watch){.done = NULL}),
                     QM_OK);
    qm_judge_end(&s, t);
    int64_t failed = t->failed_cases;
    assert_true(t->judged > 500000);
    free(t);
    return failed;
}

static void as_fused(struct qm_recipe *r) { r->rule = qm_rule_find("lion8_fused"); }
static void as_unfused(struct qm_recipe *r) { r->rule = qm_rule_find("lion8_unfused"); }

/* The documented roundings pass.  Rounding once instead of twice, twice instead of once, and a
 * factor that is not rounded are each seen. */
static void test_rounded_between(void **state)
{
    (void)state;
    static const char *const lion[] = {"lion8_unfused,param=bf16/near",
                                       "lion8_unfused,param=f16/stoch"};
    static const char *const came[] = {"came_f32,param=bf16/near", "came_f32,param=f16/near"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rounded(lion[i], NULL, 0, 0, NULL), 0);
        assert_int_equal(rounded(lion[i], "lion8_cpu", 0, 0, NULL), 0);
        assert_true(rounded(lion[i], NULL, 0, 0, as_fused) > 0);
        assert_true(rounded(lion[i], "lion8_cpu", 0, 0, as_unfused) > 0);
        assert_true(rounded(lion[i], NULL, QM_ORDER_rounds, 0, NULL) > 0);
        assert_int_equal(rounded(came[i], NULL, 0, 0, NULL), 0);
        assert_true(rounded(came[i], NULL, QM_ORDER_rounds, 0, NULL) > 0);
        assert_true(rounded("lion8_fused,param=bf16/near", NULL, 0, QM_ORDER_rounds, NULL) > 0);
    }
    assert_int_equal(rounded("came_f32,param=bf16/kahan", NULL, 0, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_false_alarm),          cmocka_unit_test(test_not_vacuous),
        cmocka_unit_test(test_benign_orders_pass),      cmocka_unit_test(test_every_rule_passes),
        cmocka_unit_test(test_what_is_skipped),         cmocka_unit_test(test_rounded_between),
        cmocka_unit_test(test_rates_beside_many_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
