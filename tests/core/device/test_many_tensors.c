/* test_many_tensors.c - Tests tensor rules on many tensors at once, on the emulator.
 *
 * The bits of each tensor must be those of the CPU backend, which steps it alone; the number of
 * launches must not grow with the number of tensors. */
#include "tests/support/device_compare.h"
#include "tests/support/drawn.h"

#include "core/device/tensor_rule_plan.h"

enum { MOST = 320, SLOT_BYTES = 1 << 16 };

/* The emulator, counting launches and buffers. */
static int launches;

static qm_status count_launch(void *module, enum qm_step_kernel k, unsigned grid_x, unsigned grid_y,
                              void **args)
{
    launches++;
    return qm_device_emu.launch(module, k, grid_x, grid_y, args);
}

static struct qm_device counting(void)
{
    struct qm_device d = qm_device_emu;
    d.launch = count_launch;
    return d;
}

struct tensor {
    struct qm_shape shape;
    int64_t n;
    uint8_t *p[2], *g;
    void *cpu;
};

struct many {
    struct qm_recipe r;
    struct qm_device d;
    int n;
    struct tensor tensor[MOST];
    struct qm_tensor_rule_plan *plan;
};

static void open_many(struct many *m, const char *recipe, int n, const struct qm_shape *shapes)
{
    uint32_t ids[MOST];
    if (qm_recipe_parse(recipe, &m->r) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    m->d = counting();
    m->n = n;
    for (int k = 0; k < n; k++) {
        struct tensor *t = &m->tensor[k];
        t->shape = shapes[k];
        t->n = qm_shape_numel(&shapes[k]);
        ids[k] = (uint32_t)(3 * k + 1);
        size_t bytes = sizeof(float) * (size_t)t->n + 1;
        float *x = malloc(bytes);
        t->g = malloc(bytes);
        qm_exact_gradient(SEED + (uint64_t)k, 9, t->n, x);
        for (int side = 0; side < 2; side++) {
            t->p[side] = calloc(bytes, 1);
            qm_param_from_float(&m->r.param, t->n, x, t->p[side]);
        }
        free(x);
        assert_int_equal(qm_backend_cpu.open(&m->r, &t->shape, ids[k], &t->cpu), QM_OK);
    }
    if (qm_tensor_rule_open(&m->d, QM_MODE_exact, &m->r, n, shapes, ids, &m->plan) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
}

static void close_many(struct many *m)
{
    qm_tensor_rule_close(m->plan);
    for (int k = 0; k < m->n; k++) {
        qm_backend_cpu.close(m->tensor[k].cpu);
        free(m->tensor[k].p[0]);
        free(m->tensor[k].p[1]);
        free(m->tensor[k].g);
    }
}

static void step_many(struct many *m, int64_t t)
{
    for (int k = 0; k < m->n; k++) {
        struct tensor *x = &m->tensor[k];
        struct qm_tensor p = {x->p[0], qm_param_dtype(&m->r.param), x->shape};
        struct qm_tensor g = {x->g, m->r.grad, x->shape};
        float *wide = malloc(sizeof *wide * (size_t)(x->n + 1));
        qm_exact_gradient(SEED + (uint64_t)k, t, x->n, wide);
        for (int64_t i = 0; i < x->n; i++)
            if (m->r.grad == QM_DTYPE_f32)
                ((float *)(void *)x->g)[i] = wide[i];
            else
                ((uint16_t *)(void *)x->g)[i] = qm_float_to_bf16(wide[i]);
        free(wide);
        assert_int_equal(qm_tensor_rule_give(m->plan, k, x->p[1], x->g, m->r.grad), QM_OK);
        assert_int_equal(qm_backend_cpu.step(x->cpu, &p, &g, t, SEED), QM_OK);
    }
    launches = 0;
    if (qm_tensor_rule_run(m->plan, t, SEED) != QM_OK)
        fail_msg("%s", qm_message());
    for (int k = 0; k < m->n; k++)
        assert_int_equal(qm_tensor_rule_take(m->plan, k, m->tensor[k].p[1]), QM_OK);
}

/* Compares parameters and slots. */
static void compare_many(struct many *m, const char *recipe, int64_t t)
{
    static uint8_t codes[2][SLOT_BYTES];
    static float scales[2][SLOT_BYTES];
    for (int k = 0; k < m->n; k++) {
        struct tensor *x = &m->tensor[k];
        char dims[80];
        qm_shape_print(&x->shape, dims, sizeof dims);
        assert_true(x->n <= SLOT_BYTES);
        if (memcmp(x->p[0], x->p[1], (size_t)(x->n * qm_param_bytes(&m->r.param))) != 0)
            fail_msg("%s, tensor %d of %s, step %d: parameters differ", recipe, k, dims, (int)t);
        for (int i = QM_RESIDUAL; i < m->r.rule->n_slots; i++) {
            memset(codes, 0, sizeof codes);
            memset(scales, 0, sizeof scales);
            assert_int_equal(qm_backend_cpu.save(x->cpu, i, codes[0], scales[0]), QM_OK);
            assert_int_equal(qm_tensor_rule_save(m->plan, k, i, codes[1], scales[1]), QM_OK);
            if (memcmp(codes[0], codes[1], sizeof codes[0]) != 0 ||
                memcmp(scales[0], scales[1], sizeof scales[0]) != 0)
                fail_msg("%s, tensor %d of %s, step %d: slot %d differs", recipe, k, dims, (int)t,
                         i);
        }
    }
}

/* Launches of the last step. */
static int run_many(const char *recipe, int n, const struct qm_shape *shapes)
{
    static struct many m;
    memset(&m, 0, sizeof m);
    open_many(&m, recipe, n, shapes);
    for (int64_t t = 1; t <= STEPS; t++) {
        step_many(&m, t);
        compare_many(&m, recipe, t);
    }
    close_many(&m);
    return launches;
}

static void needs_compiler(void)
{
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
}

static const struct qm_shape ragged[] = {
    {1, {0}},     {1, {1}},     {1, {37}},       {1, {4100}},   {2, {67, 71}},     {2, {1, 45}},
    {2, {83, 1}}, {2, {0, 5}},  {3, {5, 31, 7}}, {1, {1}},      {2, {64, 64}},     {2, {65, 129}},
    {1, {5000}},  {2, {3, 17}}, {0, {0}},        {2, {90, 90}}, {4, {2, 3, 4, 9}}, {1, {255}},
};
enum { RAGGED = sizeof ragged / sizeof *ragged };

/* Every rule with kernels: tensors that differ in size, form and dims, empty ones,
 * single elements. */
static void test_ragged(void **state)
{
    const char *only = getenv("QM_TEST_ONLY");
    int done = 0, rules = 0;
    (void)state;
    AT_ONE_COMMIT_IN(4, 13);
    needs_compiler();
    for (int i = 0; i < qm_variant_count(); i++) {
        const struct qm_variant *v = qm_variant_at(i);
        struct qm_recipe r;
        assert_int_equal(qm_recipe_parse(v->name, &r), QM_OK);
        if (!r.rule->tensor || !r.rule->tensor->on_device || (only && strcmp(only, v->name) != 0))
            continue;
        if (!is_drawn(rules++))
            continue;
        struct qm_shape taken[RAGGED];
        int n = 0;
        for (int k = 0; k < RAGGED; k++)
            if (qm_rule_takes(r.rule, &r.hyper, &ragged[k]) == QM_OK)
                taken[n++] = ragged[k];
        print_message("%s: %d launches for %d tensors\n", v->name, run_many(v->name, n, taken), n);
        done++;
    }
    assert_true(only || (done > 0 && rules > 10));
}

/* There are as many launches as the tensor that needs most has, and more where tensors of different
 * dims need different operations; but not a number for each tensor. */
static void test_launches(void **state)
{
    static const char *const recipes[] = {"lamb_bnb,max_unorm=1", "adafactor_hf", "came8_026"};
    static struct qm_shape shapes[200];
    (void)state;
    AT_ONE_COMMIT_IN(4, 14);
    needs_compiler();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        if (!is_drawn((int)i) && i > 0)
            continue;
        int most = 0, sum = 0, all = run_many(recipes[i], RAGGED, ragged), many;
        for (int k = 0; k < RAGGED; k++) {
            int one = run_many(recipes[i], 1, &ragged[k]);
            most = one > most ? one : most;
            sum += one;
        }
        for (int k = 0; k < 200; k++)
            shapes[k] = (struct qm_shape){2, {1 + k * 37 % 61, 1 + k * 53 % 47}};
        many = run_many(recipes[i], 200, shapes);
        print_message("%-22s %d of all kinds: %d launches; each by itself: %d, at most %d; 200 "
                      "matrices: %d\n",
                      recipes[i], RAGGED, all, sum, most, many);
        assert_true(all < sum && all <= 4 * most && many <= 4 * most);
    }
}

/* Parameters and gradients of 16 bits; states that are read back; two rules whose norms go to
 * the host. */
static void test_recipes(void **state)
{
    static const char *const recipes[] = {
        "lamb_bnb,max_unorm=1,param=bf16/kahan,grad=bf16",
        "lars_bnb_cpu,max_unorm=0.01,param=e4m3",
        "adafactor8_026,exp_avg.min_numel=0,row_var.min_numel=0,col_var.min_numel=0",
        "adafactor_hf,param=bf16/stoch,grad=bf16,beta1=0.9,scale_parameter=1,relative_step=1",
        ("adamw4_lpmm_factor,factored=0,state_used=stored,exp_avg_sq.min_numel=0,"
         "exp_avg.min_numel=0"),
    };
    (void)state;
    AT_ONE_COMMIT_IN(4, 12);
    needs_compiler();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (is_drawn((int)i))
            (void)run_many(recipes[i], RAGGED, ragged);
}

/* Hundreds of tensors of one form take the launches of one. */
static void test_hundreds(void **state)
{
    static struct qm_shape shapes[300];
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    needs_compiler();
    for (int k = 0; k < 300; k++)
        shapes[k] = (struct qm_shape){2, {3 + k % 7, 5 + k % 11}};
    int one = run_many("adamw4_lpmm_factor", 1, shapes);
    int all = run_many("adamw4_lpmm_factor", 300, shapes);
    print_message("adamw4_lpmm_factor: one tensor %d launches, 300 tensors %d\n", one, all);
    assert_int_equal(all, one);
}

/* A failure of one tensor's task is reported, and closing the plan frees everything. */
static int fail_at, buffers;

static qm_status failing_launch(void *module, enum qm_step_kernel k, unsigned grid_x,
                                unsigned grid_y, void **args)
{
    if (fail_at-- == 0)
        return qm_fail(QM_INTERNAL, "planted");
    return qm_device_emu.launch(module, k, grid_x, grid_y, args);
}

static qm_status counted_reserve(size_t bytes, qm_address *out)
{
    qm_status st = qm_device_emu.reserve(bytes, out);
    buffers += st == QM_OK;
    return st;
}

static void counted_release(qm_address at)
{
    buffers -= at != 0;
    qm_device_emu.release(at);
}

static void test_failures(void **state)
{
    static float p[2][64], g[64];
    const struct qm_shape shapes[] = {{2, {8, 8}}, {2, {4, 9}}};
    const uint32_t ids[] = {0, 1};
    struct qm_device d = qm_device_emu;
    struct qm_recipe r;
    struct qm_tensor_rule_plan *plan;
    int at = 0;
    qm_status st = QM_INTERNAL;
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    needs_compiler();
    d.launch = failing_launch;
    d.reserve = counted_reserve;
    d.release = counted_release;
    assert_int_equal(qm_recipe_parse("lamb_bnb,max_unorm=1", &r), QM_OK);
    for (; st != QM_OK; at++) {
        assert_int_equal(qm_tensor_rule_open(&d, QM_MODE_exact, &r, 2, shapes, ids, &plan), QM_OK);
        for (int k = 0; k < 2; k++)
            assert_int_equal(qm_tensor_rule_give(plan, k, p[k], g, QM_DTYPE_f32), QM_OK);
        fail_at = at;
        st = qm_tensor_rule_run(plan, 1, SEED);
        if (st != QM_OK) {
            assert_int_equal(st, QM_INTERNAL);
            assert_non_null(strstr(qm_message(), "planted"));
        }
        qm_tensor_rule_close(plan);
        assert_int_equal(buffers, 0);
    }
    assert_true(at > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hundreds), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_recipes),  cmocka_unit_test(test_ragged),
        cmocka_unit_test(test_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
