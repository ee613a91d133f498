/* test_tensor_rule_kernels.c - Compares tensor rules on the emulator with the CPU backend, bit for
 * bit.
 *
 * Codes, scales and parameters over several steps; tensors of one to four dims; projections that
 * are drawn, factorized, given and renewed. */
#include "tests/support/device_compare.h"

#include <math.h>

#include "core/base/philox.h"
#include "core/rule/tensor_rule.h"

static const struct qm_shape ragged[] = {
    {1, {0}},     {1, {1}},       {1, {37}},        {1, {4100}},    {2, {67, 71}},
    {2, {1, 45}}, {2, {4099, 1}}, {3, {5, 31, 37}}, {3, {2, 0, 3}}, {4, {2, 3, 4, 9}},
};

/* How many of the shapes have kernels. */
static int compare_shapes(const char *recipe)
{
    int done = 0;
    for (size_t i = 0; i < sizeof ragged / sizeof *ragged; i++)
        if (compare(recipe, &ragged[i]) == QM_SKIPPED)
            print_message("skipped: %s\n", qm_message());
        else
            done++;
    return done;
}

static void test_variants(void **state)
{
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    const char *only = getenv("QM_TEST_ONLY");
    int done = 0, rules = 0, hosts = 0; /* hosts: rules that no device runs */
    for (int i = 0; i < qm_variant_count(); i++) {
        const struct qm_variant *v = qm_variant_at(i);
        const struct qm_tensor_ops *ops = qm_rule_find(v->rule)->tensor;
        if (!ops || (only && strcmp(only, v->name) != 0))
            continue;
        hosts += !ops->on_device;
        if (!ops->on_device)
            continue;
        if (!is_drawn(rules++))
            continue;
        int shapes = compare_shapes(v->name);
        print_message("%s: %d shapes\n", v->name, shapes);
        done += shapes > 0;
    }
    if (done == 0 && hosts > 0)
        skip_because("%s: its rule runs on the host only", only ? only : "all");
    assert_true(done > 0);
}

/* Every branch of the rules; 16-bit parameters and gradients; states of few elements, quantized. */
static const char *const recipes[] = {
    "lamb_bnb,max_unorm=1,param=bf16/kahan,grad=bf16",
    "lamb_bnb_cpu,max_unorm=0.5,gnorm_scale=0.5",
    "lamb_bnb,exp_avg=int:8s/block:128/arith/stoch,exp_avg_sq=dyn:8u/block:256/bisect/stoch",
    "lars_bnb,max_unorm=0.01,weight_decay=0",
    "lars_bnb_cpu,max_unorm=0.01,param=e4m3",
    "adamw4_lpmm_factor,maximize=1,grad=f16",
    "adamw4_lpmm_factor,factored=0,exp_avg_sq.min_numel=0,exp_avg.min_numel=0,state_used=stored",
    "adafactor_hf,param=bf16/stoch,grad=f16,beta1=0.9,scale_parameter=1,relative_step=1,warmup=1",
    "adafactor_hf,factored=0,weight_decay=0.1",
    "adafactor_hf,exp_avg_sq_row=bf16,exp_avg_sq_col=f16,state_used=stored",
    "adafactor_torch,maximize=1,weight_decay=0",
    "adafactor_torch,factored=0,param=bf16",
    "came_f32,param=bf16,grad=bf16,weight_decay=0.1",
    "came_f32,param=f16,weight_decay=0.1",
    "adafactor8_026,beta1=-1,limiter=0,maximize=1",
    "adafactor8_026,exp_avg.min_numel=0,row_var.min_numel=0,col_var.min_numel=0,scale_parameter=1",
    "adafactor8_026,factored=0,relative_step=1",
    "adafactor8_026_torch,scale_weight_decay=1,scale_parameter=1,weight_decay=0.1,param=bf16/ecc8",
    "adafactor8_024_torch,factored=0,maximize=1,beta2=0.99",
    "came8_026_cuda,clip_twice=1,maximize=1,row_var.min_numel=0,conf_row.min_numel=0",
    "came8_026,conf_row.min_numel=0,conf_col.min_numel=0,exp_avg.min_numel=0,clip_twice=1",
};

static void test_recipes(void **state)
{
    static const int few[] = {1, 3, 4, 7};
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (size_t k = 0; is_drawn((int)i) && k < sizeof few / sizeof *few; k++)
            assert_int_equal(compare(recipes[i], &ragged[few[k]]), QM_OK);
}

/* Projections on either side, renewed at step 3. */
static const char *const projecting[] = {
    "apollo_f32,gap=2",
    "apollo_f32,gap=2,svd=1,rank=3,weight_decay=0.1",
    "apollo_f32,gap=2,side=1,rank=3,tensor_scale=1,scale_front=1,scale=4",
    "apollo_f32,gap=2,side=2,rank=1,correct_bias=0",
    "apollo_f32,gap=2,side=3,rank=1,limiter=0",
    "apollo_mini_f32,gap=2,param=bf16/kahan,grad=bf16",
    "apollo_f32,gap=2,exp_avg=bf16,exp_avg_sq=f16,proj=bf16,state_used=stored",
    "fira_f32,gap=2,param=bf16/stoch,grad=f16",
    "fira_f32,gap=2,side=1,rank=2,correct_bias=0",
    "fira_f32,gap=2,side=2,rank=1,weight_decay=0.1",
    "fira_f32,gap=2,side=3,rank=3,limiter=0",
    "apollo8_026,gap=2,rank=5,exp_avg.min_numel=0,variance.min_numel=0",
    "apollo8_026,gap=2,rank=5,factored=1,tensor_scale=1,scale_front=1,scale=4",
    "apollo8_026,gap=2,rank=7,beta1=-1,maximize=1,limiter=1",
    "adafactor8_026,gap=1,rank=6,scale_parameter=1,row_var.min_numel=0",
    "adafactor8_024_torch,gap=2,rank=6",
    "adafactor8_024_torch,gap=2,rank=6,factored=0,param=bf16/ecc8",
    "adafactor8_026_torch,gap=2,rank=6,factored=0,exp_avg.min_numel=0,variance.min_numel=0",
};
static const struct qm_shape matrices[] = {
    {2, {67, 71}}, {2, {71, 67}}, {2, {1, 45}}, {2, {33, 33}}, {3, {5, 31, 7}}, {4, {2, 3, 4, 9}},
};
enum { MATRICES = sizeof matrices / sizeof *matrices };

static void test_projections(void **state)
{
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    for (size_t i = 0; i < sizeof projecting / sizeof *projecting; i++)
        for (int k = 0; is_drawn((int)i) && k < MATRICES; k++)
            assert_int_equal(compare(projecting[i], &matrices[k]), QM_OK);
}

/* Fira's RMSProp, which no variant uses. */
static void test_fira_rms(void **state)
{
    static const struct {
        const char *recipe; /* of a rule that reads neither of the two */
        double momentum;
        int centered;
    } forms[] = {{"fira_f32,gap=2", 0.9, 0},
                 {"fira_f32,gap=2", 0.0, 0},
                 {"fira_f32,gap=2,rank=3", 0.9, 1},
                 {"fira_f32,gap=2,side=1,limiter=0", 0.0, 1}};
    struct qm_recipe r;
    char what[256];
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int k = 0; k < MATRICES; k++) {
            assert_int_equal(qm_recipe_parse(forms[i].recipe, &r), QM_OK);
            r.rule = qm_rule_find("fira_rms");
            r.hyper.momentum = forms[i].momentum;
            r.hyper.centered = forms[i].centered;
            r.slot[4] = r.slot[3];
            r.plain[4] = r.plain[3];
            if (qm_exact_compare(&qm_backend_emu, &r, &matrices[k], STEPS, SEED, what,
                                 sizeof what) != QM_OK)
                fail_msg("%s: %s", forms[i].recipe, qm_message());
            assert_string_equal(what, "");
        }
}

/* Steps in any order, as after a state is loaded: a plan that begins in the middle draws its
 * projection, one that goes back to an earlier step has that step's projection, and a given
 * projection stays. */
static void follow_any_order(const char *recipe, int proj)
{
    enum { M = 19, N = 23, MOST = 4 * M * N };
    static const int order[] = {2, 6, 3, 4, 6, 1, 6};
    static float p[2][M * N], g[M * N], is[2][MOST];
    const struct qm_backend *b[2] = {&qm_backend_cpu, &qm_backend_emu};
    const struct qm_shape shape = {2, {M, N}};
    struct qm_recipe r;
    void *plan[2];
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    qm_exact_gradient(SEED, 9, MOST, is[0]);
    for (int k = 0; k < 2; k++) {
        memset(p[k], 0, sizeof p[k]);
        assert_int_equal(b[k]->open(&r, &shape, 5, &plan[k]), QM_OK);
        if (proj)
            assert_int_equal(b[k]->load(plan[k], proj, NULL, is[0]), QM_OK);
    }
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        qm_exact_gradient(SEED, order[i], M * N, g);
        for (int k = 0; k < 2; k++) {
            struct qm_tensor pt = {p[k], QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
            if (b[k]->step(plan[k], &pt, &gt, order[i], SEED) != QM_OK)
                fail_msg("%s: %s", recipe, qm_message());
        }
        assert_memory_equal(p[0], p[1], sizeof p[0]);
    }
    for (int slot = 0; slot < r.rule->n_slots; slot++) {
        memset(is, 0, sizeof is);
        for (int k = 0; k < 2; k++)
            assert_int_equal(b[k]->decode(plan[k], slot, is[k]), QM_OK);
        assert_memory_equal(is[0], is[1], sizeof is[0]);
    }
    for (int k = 0; k < 2; k++)
        b[k]->close(plan[k]);
}

static void test_any_order(void **state)
{
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    static const struct {
        const char *recipe;
        int proj;
    } of[] = {{"apollo8_026,rank=5,gap=3", 0},
              {"adafactor8_024_torch,rank=5,gap=3", 0},
              {"adafactor8_026,rank=5,gap=-3", 7},
              {"apollo_f32,gap=200", 0},
              {"apollo_f32,gap=0", 2},
              {"fira_f32,gap=4", 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (is_one_drawn_in(3, (int)i))
            follow_any_order(of[i].recipe, of[i].proj);
}

/* Where the CPU fails in the middle of a step, the device fails with the same message, and both can
 * go on. */
static void test_refusal(void **state)
{
    const struct qm_backend *b[2] = {&qm_backend_cpu, &qm_backend_emu};
    const struct qm_shape shape = {2, {5, 9}};
    static float p[45], g[45];
    struct qm_tensor pt = {p, QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
    struct qm_recipe r;
    void *plan;
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    assert_int_equal(qm_recipe_parse("apollo_f32,side=2,rank=3", &r), QM_OK);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(b[k]->open(&r, &shape, 5, &plan), QM_OK);
        for (int t = 1; t <= 30; t++) { /* more steps than there are arrays to ask for */
            assert_int_equal(b[k]->step(plan, &pt, &gt, t, SEED), QM_BAD_ARG);
            assert_non_null(strstr(qm_message(), "3 channel scales do not fit a 5 x 9 gradient"));
        }
        b[k]->close(plan);
    }
    struct qm_rule on_the_host = *r.rule; /* loops of its own */
    struct qm_tensor_ops ops = *r.rule->tensor;
    ops.on_device = 0;
    on_the_host.tensor = &ops;
    r.rule = &on_the_host;
    assert_int_equal(qm_backend_emu.open(&r, &shape, 5, &plan), QM_SKIPPED);
    assert_non_null(strstr(qm_message(), "host only: rule apollo works on whole tensors there"));
}

/* Of large tensors the projection is given, where there is a slot for it. */
static void test_given(void **state)
{
    const struct qm_shape shape = {2, {131072, 4}};
    static const struct {
        const char *recipe;
        int slot;
        double gap;
    } of[] = {{"apollo_f32", 2, 0.0},
              {"fira_f32", 2, 0.0},
              {"apollo8_026", -1, 200.0},
              {"apollo8_026,gap=-3", 7, -3.0},
              {"came_f32,gap=200", -1, 200.0}};
    struct qm_recipe r;
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        assert_int_equal(qm_recipe_parse(of[i].recipe, &r), QM_OK);
        assert_int_equal(qm_given_projection(&r, &shape), of[i].slot);
        assert_true(r.hyper.gap == of[i].gap);
    }
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    if (is_one_drawn_in(4, 0))
        assert_int_equal(compare("apollo_f32", &shape), QM_OK);
}

/* A rule of sums only, over numbers that cancel: any other order of additions gives other bits. */
enum { ROWS = 71, COLS = 67, NUMBERS = ROWS * COLS };

static void sums_prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
}

static void sums_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                       struct qm_shape *out)
{
    static const int64_t n[] = {ROWS, COLS, 4, COLS * COLS};
    (void)h, (void)param;
    *out = (struct qm_shape){.rank = 1, .dim = {n[i]}};
}

static qm_status sums_states(const struct qm_tensor_rule_args *w)
{
    static float x[NUMBERS];
    const struct qm_matrices m = {1, ROWS, COLS};
    struct qm_draws d = qm_draws_for(SEED, w->s->t, 0, QM_ROLE_spare);
    float *room = w->room;
    void *ones = NULL;
    for (int i = 0; i < NUMBERS; i++) {
        uint32_t u = qm_draw(&d, i);
        int at =
            i / COLS + i % COLS; /* numbers of each sign cancel in every third row and column */
        float big = ldexpf(1.2345e18f, at / 3 % 20);
        x[i] = at % 3 == 2 ? (float)(int32_t)u * 0x1p-20f : at % 3 ? -big : big;
    }
    qm_tensor_rule_write(room, x, sizeof x);
    qm_row_means(&m, (struct qm_term){0}, room, w->slot[0]);
    qm_col_means(&m, (struct qm_term){0}, room, w->slot[1]);
    QM_TRY(qm_tensor_rule_alloc(sizeof x, &ones));
    qm_sweep_run(QM_SWEEP_fill, &(struct qm_sweep){.n = NUMBERS, .c = {1.0f}, .x = {ones}});
    qm_product(room, 1, COLS, ones, COLS, ROWS, COLS, w->slot[3]);
    qm_tensor_rule_free(ones);
    struct {
        double squares;
        float lanes, rest;
    } sums = {qm_sum_squares(room, NUMBERS), qm_lane_norm(room, NUMBERS - 3), 0.0f};
    qm_tensor_rule_write(w->slot[2], &sums, sizeof sums);
    return QM_OK;
}

static qm_status sums_apply(const struct qm_tensor_rule_args *w)
{
    (void)w;
    return QM_OK;
}

static void test_sums(void **state)
{
    static const struct qm_tensor_ops ops = {
        .states = sums_states, .apply = sums_apply, .on_device = 1};
    static const struct qm_rule sums = {.name = "sums",
                                        .n_slots = 4,
                                        .slot = {"rows", "cols", "all", "product"},
                                        .slot_sign = {1, 1, 1, 1},
                                        .prepare = sums_prepare,
                                        .tensor = &ops,
                                        .slot_shape = sums_shape};
    const struct qm_shape shape = {2, {ROWS, COLS}};
    struct qm_recipe r;
    char what[256];
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    assert_int_equal(qm_recipe_parse("adafactor_hf", &r), QM_OK); /* whose four slots are float32 */
    r.rule = &sums;
    assert_int_equal(qm_exact_compare(&qm_backend_emu, &r, &shape, STEPS, SEED, what, sizeof what),
                     QM_OK);
    assert_string_equal(what, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),        cmocka_unit_test(test_recipes),
        cmocka_unit_test(test_projections), cmocka_unit_test(test_fira_rms),
        cmocka_unit_test(test_any_order),   cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_given),       cmocka_unit_test(test_variants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
