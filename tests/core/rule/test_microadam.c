/* test_microadam.c - Tests the rule microadam: its choice, its window, its bytes, its drift. */
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/half.h"
#include "core/recipe/backend.h"

enum { ERROR, INDEX, VALUE, MOST = 1 << 17 };
static const struct qm_backend *const cpu = &qm_backend_cpu;

static void *opened(const char *recipe, struct qm_shape shape)
{
    struct qm_recipe r;
    void *plan = NULL;
    if (qm_recipe_parse(recipe, &r) != QM_OK || cpu->open(&r, &shape, 0, &plan) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    return plan;
}

static void run(void *plan, struct qm_shape shape, float *p, const float *g, int64_t t)
{
    struct qm_tensor param = {p, QM_DTYPE_f32, shape};
    const struct qm_tensor grad = {(void *)(uintptr_t)g, QM_DTYPE_f32, shape};
    assert_int_equal(cpu->step(plan, &param, &grad, t, 1), QM_OK);
}

/* A pseudo-random bfloat16 of few distinct magnitudes, so that there are many ties. */
static float draw(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return (float)((int)(z >> 33 & 127) - 64) / 16.0f;
}

/* The k largest by sorting: the lower index of equal magnitudes. */
static int is_above(const float *x, int a, int b)
{
    return fabsf(x[a]) > fabsf(x[b]) || (fabsf(x[a]) == fabsf(x[b]) && a < b);
}

static void test_choice(void **state)
{
    enum { N = 230, BLOCK = 100, K = 5, FEW = 2 }; /* 5 % of 100; of 30: 1.5 */
    struct qm_shape shape = {2, {10, 23}};
    float p[N] = {0}, g[N], index[2 * (2 * K + FEW)], value[2 * (2 * K + FEW)], left[N];
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        void *plan =
            opened("microadam4,param=f32,error=f32,window=2,k_init=0.05,d_block=100", shape);
        for (int i = 0; i < N; i++)
            g[i] = draw(1000 * seed + (uint64_t)i);
        run(plan, shape, p, g, 1);
        assert_int_equal(cpu->decode(plan, INDEX, index), QM_OK);
        assert_int_equal(cpu->decode(plan, VALUE, value), QM_OK);
        assert_int_equal(cpu->decode(plan, ERROR, left), QM_OK);
        for (int b = 0, at = 0; b < 3; b++) {
            int size = b < 2 ? BLOCK : 30, k = b < 2 ? K : FEW;
            const float *x = g + BLOCK * b;
            for (int i = 0, taken = at; i < size; i++) {
                int above = 0;
                for (int j = 0; j < size; j++)
                    above += is_above(x, j, i);
                assert_true(left[BLOCK * b + i] == (above < k ? 0.0f : x[i]));
                if (above < k) { /* in ascending order */
                    assert_true(index[taken] == (float)i && value[taken] == x[i]);
                    taken++;
                }
            }
            at += k;
        }
        cpu->close(plan);
    }
}

/* Nothing is lost: what the window took and what is left add up to the gradients, where all sums
 * are exact. */
static void test_feedback(void **state)
{
    enum { N = 64, STEPS = 9, K = 7 };
    struct qm_shape shape = {1, {N}};
    float p[N] = {0}, g[N], index[STEPS * K], value[STEPS * K], left[N], sum[N] = {0};
    void *plan = opened("microadam4,param=f32,error=f32,window=9,k_init=0.1", shape);
    (void)state;
    for (int t = 1; t <= STEPS; t++) {
        for (int i = 0; i < N; i++) {
            g[i] = (float)((int)(draw((uint64_t)(N * t + i)) * 16.0f) % 4);
            sum[i] += g[i];
        }
        run(plan, shape, p, g, t);
    }
    assert_int_equal(cpu->decode(plan, INDEX, index), QM_OK);
    assert_int_equal(cpu->decode(plan, VALUE, value), QM_OK);
    assert_int_equal(cpu->decode(plan, ERROR, left), QM_OK);
    for (int j = 0; j < STEPS * K; j++)
        left[(int)index[j]] += value[j];
    assert_memory_equal(left, sum, sizeof sum);
    cpu->close(plan);
}

/* The bias corrections use t where sums have at most m terms: with a constant gradient the step is
 * Adam's, lr, until t = m, and then grows to
 * (1 - b1) (1 - b1^m) / (1 - b1) / sqrt((1 - b2) (1 - b2^m) / (1 - b2)) lr = 6.5 lr. */
static void test_drift(void **state)
{
    struct qm_shape shape = {1, {1}};
    float p = 0.0f, g = 0.25f, last = 0.0f;
    void *plan = opened("microadam4,param=f32,k_init=1,lr=0.0009765625", shape);
    double by = 0.0, limit = (1.0 - pow(0.9, 10)) / sqrt(1.0 - pow(0.999, 10));
    (void)state;
    for (int t = 1; t <= 20000; t++) {
        p = 0.0f;
        run(plan, shape, &p, &g, t);
        by = -(double)p * 1024.0;
        if (t <= 10)
            assert_true(fabs(by - 1.0) < 0x1p-7);
        assert_true(by >= (double)last * (1.0 - 0x1p-7));
        last = (float)by;
    }
    print_message("after 20000 steps: %.4g times Adam's; the limit is %.4g\n", by, limit);
    assert_true(fabs(limit - 6.53) < 0.01 && fabs(by / limit - 1.0) < 0x1p-7);
    cpu->close(plan);
}

/* The bytes of the package: ceil(d / 2) + 4 m k + 4 (max(1, d / q) + 1), spare pair included. */
static void test_bytes(void **state)
{
    static const int64_t sizes[] = {1, 50, 63999, 64000, 64001, 128000, 20864, 20865, 100000};
    struct qm_recipe r;
    (void)state;
    assert_int_equal(qm_recipe_parse("microadam4", &r), QM_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = sizes[i], block = n < 20864 ? n : 20864, bytes, rest = n % block;
        int64_t k =
            n / block * (int64_t)ceil((double)block * 0.01) + (int64_t)ceil((double)rest * 0.01);
        int64_t pairs = (n / 64000 > 1 ? n / 64000 : 1) + 1;
        struct qm_shape shape = {1, {n}};
        assert_int_equal(qm_recipe_bytes(&r, &shape, &bytes), QM_OK);
        assert_int_equal(bytes + qm_recipe_padding(&r, &shape),
                         (n + 1) / 2 + 4 * 10 * k + 4 * pairs);
    }
}

/* The same bits on one thread and on several; blocks and threads do not divide the tensor. */
static void test_threads(void **state)
{
    static float p[2][MOST], g[MOST];
    struct qm_shape shape = {1, {MOST - 77}};
    const char *recipe = "microadam4,param=f32,d_block=1000,window=3,alpha=0.25";
    int before = omp_get_max_threads();
    (void)state;
    for (int k = 0; k < 2; k++) {
        omp_set_num_threads(k ? 4 : 1);
        void *plan = opened(recipe, shape);
        for (int i = 0; i < MOST; i++)
            p[k][i] = draw((uint64_t)i);
        for (int t = 1; t <= 5; t++) {
            for (int i = 0; i < MOST; i++)
                g[i] = draw((uint64_t)(MOST * t + i)) * ldexpf(1.0f, i % 5);
            run(plan, shape, p[k], g, t);
        }
        cpu->close(plan);
    }
    omp_set_num_threads(before);
    assert_memory_equal(p[0], p[1], sizeof p[0]);
}

/* Indices of another window's block are left out, as are numbers that are none. */
static void test_foreign_index(void **state)
{
    enum { N = 40 };
    struct qm_shape shape = {1, {N}};
    float p[2][N] = {{0}}, g[N] = {0}, index[4] = {0}, value[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    static const float bad[] = {-1.0f, 20.0f, 32767.0f, NAN, INFINITY, 1e30f};
    (void)state;
    for (int k = 0; k < 6; k++) {
        void *plan =
            opened("microadam4,param=f32,index=f32,window=2,k_init=0.05,d_block=20", shape);
        index[2] = index[3] = bad[k]; /* row 1, which step 3 reads and does not write */
        assert_int_equal(cpu->load(plan, INDEX, NULL, index), QM_OK);
        assert_int_equal(cpu->load(plan, VALUE, NULL, value), QM_OK);
        memset(p, 0, sizeof p);
        run(plan, shape, p[0], g, 3);
        assert_memory_equal(p[0], p[1], sizeof g);
        cpu->close(plan);
    }
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "microadam4,window=0",    "microadam4,window=2.5",        "microadam4,d_block=40000",
        "microadam4,d_block=0.5", "microadam4,k_init=0",          "microadam4,k_init=1.5",
        "microadam4,alpha=1",     "microadam4,alpha=-1",          "microadam4,beta1=1",
        "microadam4,index=bf16",  "microadam4,value=i16",         "microadam4,eps=-1",
        "adamw_f32,exp_avg=i16",  "microadam4,index=lint:8s/row", "adamw_f32,window=5",
    };
    struct qm_recipe r;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (qm_recipe_parse(bad[i], &r) == QM_OK)
            fail_msg("%s is not refused", bad[i]);
}

/* The kernel has float32 betas: (1 - beta) / (1 - beta^t) of one that float32 rounds to 1 is 0 / 0,
 * and of 0.5 the same as in double. */
static void test_corrections(void **state)
{
    struct qm_shape shape = {1, {4}};
    const char *const recipes[] = {"microadam4,param=f32,window=2,k_init=1,d_block=4,beta1=0.5",
                                   "microadam4,param=f32,window=2,k_init=1,d_block=4,"
                                   "beta1=0.99999999"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        float p[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        const float g[4] = {1.0f, -1.0f, 2.0f, 0.5f};
        void *plan = opened(recipes[k], shape);
        run(plan, shape, p, g, 1);
        for (int i = 0; i < 4; i++)
            assert_int_equal(isnan(p[i]) != 0, k);
        cpu->close(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),  cmocka_unit_test(test_feedback),
        cmocka_unit_test(test_drift),   cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_foreign_index),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_corrections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
