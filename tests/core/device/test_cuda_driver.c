/* test_cuda_driver.c - Tests the host's side of backend cuda without a GPU.
 *
 * Stand-ins for the driver and NVRTC hand the kernels to the emulator.  They cannot show what a
 * GPU computes. */
#include "tests/support/device_compare.h"
#include "tests/support/drawn.h"
#include "tests/support/stand_in_gpu.h"

#include <math.h>

#include "experiments/gpu/bench.h"

static int open_stand_ins(void **state)
{
    (void)state;
    setenv("QM_CACHE", "off", 1); /* an earlier run has filled it */
    stand_in_open();
    stand_in_add_nvrtc();
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void needs_compiler(void)
{
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
}

static void test_steps(void **state)
{
    static const char *const recipes[] = {"adamw4_ao", "adamw4_lpmm", "lion8_ecc8",
                                          "adamw_f32,param=bf16/stoch,grad=bf16"};
    static const struct qm_shape shapes[] = {{1, {0}}, {1, {1}}, {2, {61, 67}}, {1, {4100}}};
    struct qm_recipe r;
    char what[256];
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    needs_compiler();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            assert_int_equal(qm_recipe_parse(recipes[i], &r), QM_OK);
            if (qm_exact_compare(&qm_backend_cuda, &r, &shapes[k], STEPS, SEED, what,
                                 sizeof what) != QM_OK)
                fail_msg("%s: %s", recipes[i], qm_message());
            if (*what)
                fail_msg("%s: %s", recipes[i], what);
        }
    assert_true(launches > 0 && compiles > 0);
    assert_int_equal(allocated, 0); /* everything is freed */
}

/* Every error is a status that names the call and the recipe, and no memory stays allocated. */
static void test_errors(void **state)
{
    const struct qm_shape shape = {1, {5120}};
    static float p[5120], g[5120];
    struct qm_tensor pt = {p, QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
    struct qm_recipe r;
    void *plan;
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    needs_compiler();
    assert_int_equal(qm_recipe_parse("adamw4_ao", &r), QM_OK);
    qm_status st = QM_NO_MEMORY;
    int k = 0;
    while (st != QM_OK) { /* each allocation fails once, in turn */
        fail_next_alloc = ++k;
        st = qm_backend_cuda.open(&r, &shape, 0, &plan);
        if (st == QM_OK)
            break;
        assert_int_equal(st, QM_NO_MEMORY);
        assert_non_null(strstr(qm_message(), "adamw4_ao"));
        assert_int_equal(allocated, 0);
    }
    fail_next_alloc = 0;
    assert_int_equal(k, 9); /* two slots of codes and scales, p, g, descriptors, chunks */
    fail_next_launch = 1;
    assert_int_equal(qm_backend_cuda.step(plan, &pt, &gt, 1, 0), QM_INTERNAL);
    assert_non_null(strstr(qm_message(), "qm_step: CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    assert_int_equal(qm_backend_cuda.step(plan, &pt, &gt, 0, 0), QM_BAD_ARG);
    pt.dtype = QM_DTYPE_bf16;
    assert_int_equal(qm_backend_cuda.step(plan, &pt, &gt, 1, 0), QM_BAD_ARG);
    qm_backend_cuda.close(plan);
    assert_int_equal(allocated, 0);
}

/* A gradient of another type than the recipe's is handled by kernels of its own. */
static void test_gradient_types(void **state)
{
    const struct qm_shape shape = {1, {300}};
    static float p[2][300], g[300];
    struct qm_recipe r;
    (void)state;
    AT_ONE_COMMIT_IN(4, 12);
    needs_compiler();
    assert_int_equal(qm_recipe_parse("adamw_f32", &r), QM_OK);
    for (int k = 0; k < 2; k++) {
        const struct qm_backend *b = k ? &qm_backend_cuda : &qm_backend_cpu;
        void *plan;
        assert_int_equal(b->open(&r, &shape, 0, &plan), QM_OK);
        for (int64_t t = 1; t <= 3; t++) {
            static const enum qm_dtype types[] = {QM_DTYPE_bf16, QM_DTYPE_f32, QM_DTYPE_f16};
            struct qm_tensor pt = {p[k], QM_DTYPE_f32, shape}, gt = {g, types[t - 1], shape};
            qm_exact_gradient(SEED, t, 300, g);
            for (int i = 0; i < 300 && t != 2; i++)
                ((uint16_t *)(void *)g)[i] = (uint16_t)(i * 37 % 0x4000);
            assert_int_equal(b->step(plan, &pt, &gt, t, 0), QM_OK);
        }
        b->close(plan);
    }
    assert_memory_equal(p[0], p[1], sizeof p[0]);
}

static json_int_t whole(json_t *row, const char *name)
{
    return json_integer_value(json_object_get(row, name));
}

static double real(json_t *row, const char *name)
{
    return json_real_value(json_object_get(row, name));
}

/* The measurements of a row: they find what they need, and free memory. */
static void test_speed(void **state)
{
    struct qm_gpu_bench b = {0};
    json_t *row = json_object();
    (void)state;
    AT_ONE_COMMIT_IN(5, 0);
    needs_compiler();
    assert_int_equal(qm_gpu_bench_open(8192, 2, 5.0, &b), QM_OK);
    if (qm_speed_row(&b, "adamw4_lpmm", QM_MODE_exact, row) != QM_OK)
        fail_msg("%s", qm_message());
    assert_true(real(row, "copy_rate") > 0.0 && real(row, "rate") > 0.0);
    assert_int_equal(whole(row, "registers"), 40);
    assert_int_equal(whole(row, "elements"), 8192);
    assert_true(real(row, "occupancy") == 0.5);
    /* p 2 x 4, g 2 x 4, exp_avg 2 x 0.5 + scales, exp_avg_sq 3 x 0.5 + scales */
    assert_true(real(row, "bytes_per_parameter") > 18.5 && real(row, "bytes_per_parameter") < 22.7);
    assert_true(reads >= whole(row, "rounds")); /* the cache is read full before each round */
    assert_true(recorded >= 2 && real(row, "graph_seconds") >= 0.0); /* a graph for each turn */
    json_object_clear(row);
    for (int way = 0; way < QM_SPEED_WAYS; way++)
        if (qm_speed_table_row(&b, "adamw4_lpmm_group", way, row) != QM_OK)
            fail_msg("%s", qm_message());
    assert_int_equal(whole(row, "elements"), 64);
    qm_gpu_bench_close(&b);
    assert_int_equal(allocated, 0);
    json_decref(row);
}

/* Tensor rules are measured too: every launch of a step lies between the events, the bytes are
 * those that a step must move, and there is no graph. */
static void test_speed_of_whole(void **state)
{
    struct qm_gpu_bench b = {0};
    json_t *row = json_object();
    (void)state;
    AT_ONE_COMMIT_IN(4, 13);
    needs_compiler();
    assert_int_equal(qm_gpu_bench_open(8192, 2, 5.0, &b), QM_OK);
    if (qm_speed_row(&b, "adamw4_lpmm_factor", QM_MODE_exact, row) != QM_OK)
        fail_msg("%s", qm_message());
    assert_in_range(whole(row, "rounds"), 2, 8);
    assert_true(real(row, "seconds") >= real(row, "least_seconds"));
    assert_null(json_object_get(row, "graph_seconds"));
    /* p both ways, g twice; codes and scales of exp_avg, two rows and 4096 columns: read twice,
     * written once */
    double want = 2 * 4 + 2 * 4 + 3 * (0.5 + 4.0 / 128) + 3 * 4 * (2 + 4096) / 8192.0;
    assert_true(fabs(real(row, "bytes_per_parameter") - want) < 1e-9);
    qm_gpu_bench_close(&b);
    assert_int_equal(allocated, 0);
    json_decref(row);
}

static qm_status slow(void *count)
{
    ++*(int *)count;
    usleep(20000);
    return QM_OK;
}

/* A measurement ends at its cap, and a rule whose time would not fit takes a smaller tensor. */
static void test_cap(void **state)
{
    struct qm_gpu_bench b = {0};
    struct qm_gpu_time time;
    int count = 0;
    (void)state;
    AT_ONE_COMMIT_IN(4, 14);
    assert_int_equal(qm_gpu_bench_open(8192, 1000, 0.1, &b), QM_OK);
    assert_int_equal(
        qm_gpu_bench_time(&b, &(struct qm_gpu_timed){.work = slow, .arg = &count}, &time), QM_OK);
    assert_in_range(time.rounds, QM_BENCH_LEAST, 8);
    assert_in_range(count, time.rounds + 1, 16);
    assert_true(time.median >= 0.02);
    qm_gpu_bench_close(&b);
}

/* Equal codes: the first state of every width and order, written eight at a time, is what packing
 * one at a time gives, with zeros behind the last. */
static void test_first_codes(void **state)
{
    static const char *const recipes[] = {"adamw8_bnb", "adamw4_ao", "adamw4_lpmm",
                                          "adamw4_lpmm,exp_avg=dyn:4s/block:128/bisect/mid/hi"};
    (void)state;
    AT_ONE_COMMIT_IN(5, 1);
    needs_compiler();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int64_t n = 4090; n < 4107; n++) {
            struct qm_recipe r;
            const struct qm_shape shape = {1, {n}};
            static uint8_t codes[2][4200];
            static float scales[2][4200];
            assert_int_equal(qm_recipe_parse(recipes[i], &r), QM_OK);
            for (int s = 0; s < r.rule->n_slots; s++) {
                r.min_numel[s] = r.whole_blocks[s] = 0;
                r.init_code[s] = 5;
            }
            for (int k = 0; k < 2; k++) {
                const struct qm_backend *b = k ? &qm_backend_cuda : &qm_backend_cpu;
                void *plan;
                memset(codes[k], 0xee, sizeof codes[k]);
                if (b->open(&r, &shape, 0, &plan) != QM_OK)
                    fail_msg("%s: %s", recipes[i], qm_message());
                assert_int_equal(b->save(plan, 0, codes[k], scales[k]), QM_OK);
                b->close(plan);
            }
            assert_memory_equal(codes[0], codes[1], sizeof codes[0]);
            assert_int_equal(codes[0][n - 1], 5);
        }
}

/* A late error has the name of the call that waits; with QM_CUDA_SYNC that is the kernel. */
static void test_sync(void **state)
{
    const struct qm_shape shape = {1, {5120}};
    static float p[5120], g[5120];
    struct qm_tensor pt = {p, QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
    struct qm_recipe r;
    void *plan;
    (void)state;
    AT_ONE_COMMIT_IN(4, 15);
    needs_compiler();
    assert_int_equal(qm_recipe_parse("adamw4_ao", &r), QM_OK);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(qm_backend_cuda.open(&r, &shape, 0, &plan), QM_OK);
        if (k)
            setenv("QM_CUDA_SYNC", "1", 1);
        stand_in_calls = 0;
        stand_in_fault = (struct stand_in_fault){"cuLaunchKernel", 0, 1, 700, STAND_IN_LATE};
        assert_int_equal(qm_backend_cuda.step(plan, &pt, &gt, 1, 0), QM_INTERNAL);
        assert_non_null(strstr(qm_message(), "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
        assert_int_equal(strstr(qm_message(), "qm_step: ") != NULL, k);
        stand_in_fault = (struct stand_in_fault){0};
        stand_in_sticky = 0;
        qm_backend_cuda.close(plan);
    }
    unsetenv("QM_CUDA_SYNC");
    assert_int_equal(allocated, 0);
}

/* A driver refuses what a newer NVRTC made: the next NVRTC that is there compiles it.  Where
 * none is left, the message names both versions. */
static void test_refused(void **state)
{
    const struct qm_shape shape = {1, {5120}};
    struct qm_recipe r;
    void *plan;
    (void)state;
    AT_ONE_COMMIT_IN(4, 16);
    needs_compiler();
    stand_in_refuses = 1;
    assert_int_equal(qm_recipe_parse("adamw_f32,lr=0.25,param=f16", &r), QM_OK);
    if (qm_backend_cuda.open(&r, &shape, 0, &plan) != QM_OK)
        fail_msg("%s", qm_message());
    qm_backend_cuda.close(plan);
    assert_int_equal(stand_in_made_by, stand_in_other_major);
    stand_in_other_major = stand_in_nvrtc_major; /* now both are refused */
    assert_int_equal(qm_recipe_parse("adamw_f32,param=bf16/kahan", &r), QM_OK);
    assert_int_equal(qm_backend_cuda.open(&r, &shape, 0, &plan), QM_INTERNAL);
    assert_non_null(strstr(qm_message(), "CUDA_ERROR_NO_BINARY_FOR_GPU (209)"));
    assert_non_null(strstr(qm_message(), "the driver is for CUDA 13.0"));
    assert_non_null(strstr(qm_message(), "compiled by NVRTC 13.4"));
    stand_in_refuses = 0;
    assert_int_equal(allocated, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_errors),
        cmocka_unit_test(test_gradient_types), cmocka_unit_test(test_speed),
        cmocka_unit_test(test_speed_of_whole), cmocka_unit_test(test_cap),
        cmocka_unit_test(test_first_codes),    cmocka_unit_test(test_sync),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_stand_ins, NULL);
}
