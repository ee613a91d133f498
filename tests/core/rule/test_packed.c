/* test_packed.c - Tests that rules on packed blocks in one loop give the bits of decoding, rule
 * and encoding one after another, for any content of the blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "core/base/isa.h"
#include "core/base/philox.h"
#include "core/recipe/backend.h"

enum { BLOCKS = 41, N = 256 * BLOCKS };

struct outcome {
    float p[N], scales[2][N];
    uint8_t packed[2][N];
};

static struct outcome want, got;
static float g[N];

/* An approximately normal number for an element and a step. */
static float noise(int64_t i, int64_t t)
{
    float sum = -2.0f;
    for (uint64_t k = 0; k < 4; k++)
        sum += qm_uniform(qm_philox_stream(7, (uint64_t)(t + 1), 4 * (uint64_t)i + k));
    return sum;
}

/* Gradients with the cases that the loop must leave to other code: NaN, Inf, zeros, first
 * moments below the range of inverses, squares that overflow or underflow. */
static void gradients(int64_t t, int64_t n, int64_t block)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t b = i / block;
        g[i] = noise(i, t) * (b % 11 == 4 ? 1e-36f : b % 11 == 5 ? 1e-20f : 0.01f);
        if (b % 13 == 6)
            g[i] = 0.0f;
    }
    if (t == 5 && n > 9 * block) {
        g[block + 5] = NAN;
        g[3 * block - 1] = -INFINITY;
        g[8 * block + 64] = 1e30f;
    }
}

static void parse(const char *text, struct qm_codec *c)
{
    assert_int_equal(qm_codec_parse(c, text), QM_OK);
}

static void start(const struct qm_codec c[2], struct outcome *s)
{
    memset(s, 0, sizeof *s);
    for (int64_t i = 0; i < N; i++)
        s->p[i] = i / c[0].q.block % 11 == 4 ? 0.0f : noise(i, -1); /* shows the smallest steps */
    for (int k = 0; k < 2; k++)
        qm_encode_blocks(&c[k], g, N, s->packed[k], s->scales[k]); /* g: zeros */
}

/* One step, phase by phase. */
static void step_plainly(const struct qm_rule *rule, const struct qm_rule_step *s,
                         const struct qm_codec c[2], int64_t n, struct outcome *x)
{
    static float m[N], v[N];
    float *const slot[] = {m, v};
    for (int k = 0; k < 2; k++)
        qm_decode_blocks(&c[k], x->packed[k], x->scales[k], n, slot[k]);
    rule->elementwise->block(s, n, x->p, g, slot);
    for (int k = 0; k < 2; k++)
        qm_encode_blocks(&c[k], slot[k], n, x->packed[k], x->scales[k]);
}

enum use { REFUSED, DONE, DONE_BY_INVERSES };

static int expected(enum use use, const struct qm_rule_step *s)
{
    int holds = s->reciprocal[0].holds && s->reciprocal[1].holds;
    return qm_isa() == QM_ISA_avx512 && (use == DONE || (use == DONE_BY_INVERSES && holds));
}

static void compare(const char *name, const char *const text[2], enum use use)
{
    static const int counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 40, BLOCKS};
    const struct qm_rule *rule = qm_rule_find(name);
    struct qm_hyper h = qm_hyper_default();
    struct qm_codec c[2];
    parse(text[0], &c[0]);
    parse(text[1], &c[1]);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        int64_t block = c[0].q.block, n = counts[k] * block;
        memset(g, 0, sizeof g);
        start(c, &want);
        start(c, &got);
        for (int64_t t = 1; t <= 24; t++) { /* some corrections have no inverse */
            struct qm_rule_step s;
            struct qm_packed_slot at[2];
            for (int i = 0; i < 2; i++)
                at[i] = (struct qm_packed_slot){
                    .c = &c[i], .packed = got.packed[i], .scales = got.scales[i]};
            gradients(t, n, block);
            rule->prepare(&h, t, &s);
            s.hyper = &h;
            int done = rule->elementwise->packed(&s, n, got.p, g, at);
            assert_int_equal(done, expected(use, &s));
            if (!done)
                step_plainly(rule, &s, c, n, &got);
            step_plainly(rule, &s, c, n, &want);
            for (int i = 0; i < 2; i++) {
                assert_memory_equal(want.packed[i], got.packed[i], sizeof want.packed[i]);
                assert_memory_equal(want.scales[i], got.scales[i], sizeof want.scales[i]);
            }
            assert_memory_equal(want.p, got.p, sizeof want.p);
        }
    }
}

static void one_loop_is_the_phases(void **state)
{
    (void)state;
    compare("adamw_ao",
            (const char *const[]){"dyn:4s/block:128/bisect/near/hi/floor:1e-12",
                                  "lin:4u/block:128/bisect/near/hi/floor:1e-12"},
            DONE);
    compare("adam_ao",
            (const char *const[]){"dyn:4s/block:64/bisect/near/lo/floor:1e-12",
                                  "lin:4u/block:64/bisect/near/hi/floor:1e-12"},
            DONE_BY_INVERSES);
    compare("adamw_ao",
            (const char *const[]){"dyn:8s/block:256/bisect/near/floor:1e-12",
                                  "dyn:8u/block:256/bisect/near/floor:1e-12"},
            DONE);
    compare("adamw_bnb",
            (const char *const[]){"dyn:8s/block:256/mids/mid/recip_tail/guard:1e-38/nantop",
                                  "dyn:8u/block:256/mids/mid/recip_tail/guard:1e-38/nantop"},
            DONE);
    compare("adamw_lpmm",
            (const char *const[]){"de:4s/block:128/bisect/mid/lo/nantop",
                                  "lin:4u/block:128/bisect/mid/lo/nantop"},
            DONE);
    compare("adamw_lpmm_fused",
            (const char *const[]){"de:4s/block:192/bisect/mid/lo/maxskip/nantop",
                                  "lin:4u/block:192/bisect/mid/lo/maxskip/nantop"},
            DONE);
}

/* The loop refuses slots of unlike block sizes, keepsign, blocks of 32 elements, and recip. */
static void others_are_refused(void **state)
{
    (void)state;
    compare("adamw_lpmm",
            (const char *const[]){"de:4s/block:128/bisect/mid/lo/nantop",
                                  "lin:4u/block:64/bisect/mid/lo/nantop"},
            REFUSED);
    compare("adamw_lpmm",
            (const char *const[]){"dyn:4s/block:128/bisect/even/keepsign",
                                  "lin:4u/block:128/bisect/mid"},
            REFUSED);
    compare("adamw_ao",
            (const char *const[]){"dyn:4s/block:32/bisect/near", "lin:4u/block:32/bisect/near"},
            REFUSED);
    compare("adamw_ao",
            (const char *const[]){"dyn:8s/block:256/bisect/near/recip",
                                  "dyn:8u/block:256/bisect/near/recip"},
            REFUSED);
}

/* Runs whole steps of a recipe with this many threads at the current instruction set; x receives
 * the parameters, codes and scales. */
static void run(const char *text, struct qm_shape shape, int steps, int threads, struct outcome *x)
{
    struct qm_recipe r;
    void *plan;
    int64_t n = qm_shape_numel(&shape), cols = shape.rank > 1 ? shape.dim[1] : n;
    omp_set_num_threads(threads);
    assert_int_equal(qm_recipe_parse(text, &r), QM_OK);
    assert_int_equal(qm_backend_cpu.open(&r, &shape, 1, &plan), QM_OK);
    memset(x, 0, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x->p[i] = noise(i, -1);
    for (int64_t t = 1; t <= steps; t++) {
        struct qm_tensor p = {x->p, QM_DTYPE_f32, shape}, grad = {g, QM_DTYPE_f32, shape};
        gradients(t, n, 128);
        for (int64_t i = 70; i < n && cols < n; i += cols)
            g[i] = 0.0f; /* a column of zeros */
        assert_int_equal(qm_backend_cpu.step(plan, &p, &grad, t, 7), QM_OK);
    }
    for (int64_t i = 0; i < n; i++) /* the sign of a NaN is unspecified */
        x->p[i] = x->p[i] != x->p[i] ? NAN : x->p[i];
    for (int k = 0; k < 2; k++)
        assert_int_equal(qm_backend_cpu.save(plan, k, x->packed[k], x->scales[k]), QM_OK);
    qm_backend_cpu.close(plan);
}

static void expect_agreement(const char *text, struct qm_shape shape)
{
    enum qm_isa best = qm_isa();
    int threads = omp_get_max_threads();
    for (int steps = 4; steps <= 6; steps++) { /* before NaN and Inf, with them, after them */
        qm_isa_force(QM_ISA_sse2);
        run(text, shape, steps, 1, &want);
        qm_isa_force(best);
        for (int team = 1; team <= 3; team++) {
            run(text, shape, steps, team, &got);
            assert_memory_equal(&want, &got, sizeof want);
        }
    }
    omp_set_num_threads(threads);
}

static void levels_threads_and_tails_agree(void **state)
{
    (void)state;
    static const char *const recipe[] = {
        "adamw4_lpmm_group,exp_avg.min_numel=0,exp_avg_sq.min_numel=0", "adamw4_lpmm_fused",
        "adamw8_bnb,exp_avg.min_numel=0,exp_avg_sq.min_numel=0", "adamw8_ao", "adamw4_ao"};
    static const int64_t sizes[] = {648,   1000, 1024, 1032, 4097, 5000, 1024 * 9, 1024 * 10 + 127,
                                    N - 1, N};
    for (size_t k = 0; k < sizeof recipe / sizeof *recipe; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            expect_agreement(recipe[k],
                             (struct qm_shape){1, {k > 2 ? sizes[i] / 256 * 256 : sizes[i]}});
}

/* The gradients hold rows of zeros, a column of zeros, NaN and Inf; some rows are whole groups,
 * other rows are not. */
static void rank1_agrees(void **state)
{
    (void)state;
    static const int64_t dims[][2] = {{80, 128}, {160, 64}, {16, 640}, {3, 1024}, {33, 192},
                                      {70, 100}, {1, 9216}, {50, 64},  {9, 1000}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        expect_agreement("adamw4_lpmm,exp_avg.min_numel=0,exp_avg_sq.min_numel=0",
                         (struct qm_shape){2, {dims[i][0], dims[i][1]}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_loop_is_the_phases),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(levels_threads_and_tails_agree),
        cmocka_unit_test(rank1_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
