/* test_cuda.c - the kernels of step.cu against the CPU backend, bit for bit, on the emulator: every
 * elementwise variant, ragged shapes, several steps; and what surrounds them without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/backend.h"
#include "core/engine/batch.h"
#include "core/rule/element.h"

enum { STEPS = 3, SEED = 77, MOST = 8192 };

#define skip_because(...)           \
    do {                            \
        print_message("skipped: "); \
        print_message(__VA_ARGS__); \
        print_message("\n");        \
        skip();                     \
    } while (0)

static float gaussish(uint64_t seed, int64_t t, int64_t i)
{
    float sum = 0.0f;
    for (uint64_t k = 0; k < 4; k++)
        sum += qm_uniform(qm_philox_stream(seed, (uint64_t)t * 8 + k, (uint64_t)i)) - 0.5f;
    return sum;
}

/* Gradients of many scales, with zeros, a zero block and an outlier. */
static void gradient(int64_t t, int64_t n, float *g)
{
    for (int64_t i = 0; i < n; i++)
        g[i] = i / 64 == 3 ? 0.0f : ldexpf(gaussish(SEED, t, i), -(int)(i % 13) * (t == 2 ? 3 : 1));
    if (n > 40)
        g[40] = 1000.0f;
}

static void narrow(const float *g, int64_t n, enum qm_dtype type, void *out)
{
    for (int64_t i = 0; i < n; i++)
        if (type == QM_DTYPE_f32)
            ((float *)out)[i] = g[i];
        else
            ((uint16_t *)out)[i] =
                type == QM_DTYPE_bf16 ? qm_float_to_bf16(g[i]) : qm_float_to_f16(g[i]);
}

struct state {
    uint8_t p[4 * MOST], residual[2 * MOST], codes[QM_MAX_SLOTS][MOST];
    float scales[QM_MAX_SLOTS][MOST], decoded[QM_MAX_SLOTS][MOST];
};

static int64_t scale_room(const struct qm_recipe *r, int i, const struct qm_shape *shape)
{
    struct qm_quantizer q = qm_recipe_slot(r, i, shape);
    struct qm_codec c;
    assert_int_equal(qm_codec_init(&c, &q), QM_OK);
    return q.bits ? qm_scale_count(&c, shape) : qm_shape_numel(shape);
}

static void read_back(const struct qm_backend *b, void *plan, const struct qm_recipe *r,
                      const struct qm_shape *shape, struct state *s)
{
    assert_int_equal(b->save(plan, QM_RESIDUAL, s->residual, NULL), QM_OK);
    for (int i = 0; i < r->rule->n_slots; i++) {
        assert_true(scale_room(r, i, shape) <= MOST);
        assert_int_equal(b->save(plan, i, s->codes[i], s->scales[i]), QM_OK);
        assert_int_equal(b->decode(plan, i, s->decoded[i]), QM_OK);
    }
}

/* The first difference of two states as text, or NULL. */
static const char *difference(const struct qm_recipe *r, const struct state *a,
                              const struct state *b, char *text, size_t size)
{
    const struct {
        const char *what;
        const void *a, *b;
        size_t bytes, each;
    } alone[] = {{"parameter", a->p, b->p, sizeof a->p, 1},
                 {"residual", a->residual, b->residual, sizeof a->residual, 1}};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < alone[k].bytes; i++)
            if (((const uint8_t *)alone[k].a)[i] != ((const uint8_t *)alone[k].b)[i]) {
                snprintf(text, size, "%s, byte %zu", alone[k].what, i);
                return text;
            }
    for (int s = 0; s < r->rule->n_slots; s++)
        for (int i = 0; i < MOST; i++) {
            const char *what = a->codes[s][i] != b->codes[s][i] ? "code" : NULL;
            if (qm_bits(a->scales[s][i]) != qm_bits(b->scales[s][i]))
                what = "scale";
            if (!what && qm_bits(a->decoded[s][i]) != qm_bits(b->decoded[s][i]))
                what = "decoded value";
            if (what) {
                snprintf(text, size, "%s: %s %d: %d %a %a, want %d %a %a", r->rule->slot[s], what,
                         i, b->codes[s][i], (double)b->scales[s][i], (double)b->decoded[s][i],
                         a->codes[s][i], (double)a->scales[s][i], (double)a->decoded[s][i]);
                return text;
            }
        }
    return NULL;
}

/* Steps of both sides; returns QM_SKIPPED where there is no kernel. */
static qm_status compare(const struct qm_backend *other, const char *recipe,
                         const struct qm_shape *shape)
{
    static struct state side[2];
    static float g[MOST], start[MOST], wide[MOST];
    const struct qm_backend *b[2] = {&qm_backend_cpu, other};
    struct qm_recipe r;
    void *plan[2] = {NULL, NULL};
    char text[300], dims[80];
    int64_t n = qm_shape_numel(shape);
    assert_true(n <= MOST);
    if (qm_recipe_parse(recipe, &r) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    qm_status st = b[1]->open(&r, shape, 5, &plan[1]);
    if (st == QM_SKIPPED)
        return st;
    if (st != QM_OK || b[0]->open(&r, shape, 5, &plan[0]) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    memset(side, 0, sizeof side);
    for (int64_t i = 0; i < n; i++)
        start[i] = gaussish(1, 0, i);
    qm_param_from_float(&r.param, n, start, side[0].p);
    qm_param_from_float(&r.param, n, start, side[1].p);
    for (int64_t t = 1; t <= STEPS; t++) {
        struct qm_tensor gt = {g, r.grad, *shape};
        gradient(t, n, wide);
        narrow(wide, n, r.grad, g);
        for (int k = 0; k < 2; k++) {
            struct qm_tensor p = {side[k].p, qm_param_dtype(&r.param), *shape};
            if (b[k]->step(plan[k], &p, &gt, t, SEED) != QM_OK)
                fail_msg("%s, %s: %s", recipe, b[k]->name, qm_message());
            read_back(b[k], plan[k], &r, shape, &side[k]);
        }
        if (difference(&r, &side[0], &side[1], text, sizeof text))
            fail_msg("%s, %s, step %lld: %s", recipe, qm_shape_print(shape, dims, sizeof dims),
                     (long long)t, text);
    }
    for (int k = 0; k < 2; k++)
        b[k]->close(plan[k]);
    return QM_OK;
}

static const struct qm_shape ragged[] = {
    {1, {0}}, {1, {1}}, {1, {31}}, {1, {257}}, {1, {4097}}, {2, {61, 67}}, {2, {1, 4100}},
};

static void compare_shapes(const char *recipe)
{
    for (size_t i = 0; i < sizeof ragged / sizeof *ragged; i++)
        if (compare(&qm_backend_emu, recipe, &ragged[i]) == QM_SKIPPED)
            print_message("skipped: %s\n", qm_message());
}

static void test_variants(void **state)
{
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    const char *only = getenv("QM_TEST_ONLY");
    int done = 0;
    for (int i = 0; i < qm_variant_count(); i++) {
        const struct qm_variant *v = qm_variant_at(i);
        if (!qm_rule_find(v->rule)->element || (only && strcmp(only, v->name) != 0))
            continue;
        compare_shapes(v->name);
        done++;
    }
    assert_true(done > 0);
}

/* What no variant has: other norms, widths, orders, curves, rounds, searches, scale words, types. */
static void test_formats(void **state)
{
    static const char *const slots[] = {
        "int:3s/block:24/bisect/near/lo",
        "int:5s/block:100/scan/even/hi",
        "dyn:6s/block:4/bisect/mid/byte",
        "lin:2s/block:1/bisect/near/hi",
        "nf4:4s/block:3000/argmin/mid/lo",
        "dyn:4s/tensor/bisect/stoch/lo",
        "dyn:8s/row/bisect/near",
        "dyn:8s/col/mids/mid",
        "dyn:4s/rank1block:64/bisect/mid/lo",
        "dyn:4s/rowcol/bisect/mid/lo",
        "dyn:4s/colrow/bisect/mid/hi/nantop",
        "fp4:4s/block:64/ladder/mid/hi",
        "af4:4s/block:64/argmin/mid/hi",
        "nf4s:4s/block:512/bisect/near/hi",
        "lint:8s/block:2048/arith/dither",
        "int:4s/block:128/arith/stoch/lo/recip",
        "e4m3:8s/rank1/bisect/even",
        "e4m3:8s/tensor/bisect/near/floor:1e-12",
        "nf4:4s/block:128/lower/mid/hi",
        "pow3:5s/block:40/bisect/ceil/lo/cap:0.01",
        "dyn:8s/block:256/grid/mid/guard:1e-3/recip_tail",
        "lin0:7s/id/bisect/near/lo",
        "nf4:4s/block:128/bisect/mid/hi/f16both/floor:1e-6",
        "nf4:4s/block:128/bisect/mid/hi/zero:3",
    };
    static const char *const unsigned_slots[] = {
        "log:8u/block:256/arith/even/log2/recip", "logf:8u/rank1/arith/near/log2",
        "al:8u/block:64/arith/even/allog",        "al:8u/block:12/arith/even/allog",
        "lin:4u/rank1/bisect/mid/lo/nantop",      "lint:8u/col/arith/near/sqrt",
        "al:8u/block:4096/arith/even/allog",      "lin:4u/block:128/bisect/mid/lo/least:2",
    };
    static const char *const others[] = {
        "adamw4_ao,param=bf16/stoch,grad=bf16",
        "adamw4_ao,param=f16/stoch,grad=f16",
        "adamw8_ao,param=e4m3/stoch",
        "adamw_f32,param=bf16/kahan,grad=bf16",
        "adamw_f32,param=f16/ecc16",
        "adamw_f32,maximize=1,exp_avg=bf16,exp_avg_sq=f16",
        "sgdm_f32,nesterov=1,weight_decay=0.1",
        "adamw4_lpmm,exp_avg.norm=rank1",
    };
    char recipe[300];
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    const struct qm_shape matrix = {2, {61, 67}}, cube = {3, {9, 23, 31}}, line = {1, {4100}};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        snprintf(recipe, sizeof recipe, "ema4_nf4,exp_avg=%s,exp_avg.min_numel=0", slots[i]);
        assert_int_equal(compare(&qm_backend_emu, recipe, &matrix), QM_OK);
    }
    for (size_t i = 0; i < sizeof unsigned_slots / sizeof *unsigned_slots; i++) {
        snprintf(recipe, sizeof recipe, "adamw4_lpmm,exp_avg_sq=%s,exp_avg_sq.min_numel=0",
                 unsigned_slots[i]);
        assert_int_equal(compare(&qm_backend_emu, recipe, &matrix), QM_OK);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(compare(&qm_backend_emu, others[i], &line), QM_OK);
    assert_int_equal(compare(&qm_backend_emu, "adamw4_lpmm", &cube), QM_OK);
    assert_int_equal(compare(&qm_backend_emu, "adamw4_lpmm,exp_avg.norm=row", &cube), QM_OK);
}

/* ---- many tensors ------------------------------------------------------------------------------ */

enum { TENSORS = 41 };

static void batch_steps(const char *recipe, int n, const struct qm_shape *shapes, int64_t chunk,
                        int blocks, int by_value, uint8_t (*out)[4 * MOST])
{
    static float p[MOST], g[MOST];
    struct qm_recipe r;
    struct qm_batch *b;
    uint32_t ids[TENSORS];
    for (int k = 0; k < n; k++)
        ids[k] = (uint32_t)(3 * k + 1);
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    if (qm_batch_open(&qm_device_emu, QM_MODE_exact, &r, n, shapes, ids, &b) != QM_OK ||
        qm_batch_cut(b, chunk, blocks) != QM_OK || qm_batch_by_value(b, by_value) != QM_OK)
        fail_msg("%s", qm_message());
    for (int k = 0; k < n; k++)
        for (int i = 0; i < MOST; i++)
            ((float *)out[k])[i] = gaussish(9, k, i);
    for (int64_t t = 1; t <= 2; t++) {
        for (int k = 0; k < n; k++) {
            gradient(t + 10 * k, qm_shape_numel(&shapes[k]), g);
            memcpy(p, out[k], sizeof p);
            assert_int_equal(qm_batch_give(b, k, p, g, QM_DTYPE_f32), QM_OK);
        }
        if (qm_batch_run(b, t, SEED) != QM_OK)
            fail_msg("%s", qm_message());
        for (int k = 0; k < n; k++)
            assert_int_equal(qm_batch_take(b, k, out[k]), QM_OK);
    }
    qm_batch_close(b);
}

/* The same tensors by themselves on the CPU. */
static void cpu_steps(const char *recipe, int n, const struct qm_shape *shapes,
                      uint8_t (*out)[4 * MOST])
{
    static float g[MOST];
    struct qm_recipe r;
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    for (int k = 0; k < n; k++) {
        void *plan;
        struct qm_tensor p = {out[k], QM_DTYPE_f32, shapes[k]}, gt = {g, QM_DTYPE_f32, shapes[k]};
        for (int i = 0; i < MOST; i++)
            ((float *)out[k])[i] = gaussish(9, k, i);
        assert_int_equal(qm_backend_cpu.open(&r, &shapes[k], (uint32_t)(3 * k + 1), &plan), QM_OK);
        for (int64_t t = 1; t <= 2; t++) {
            gradient(t + 10 * k, qm_shape_numel(&shapes[k]), g);
            assert_int_equal(qm_backend_cpu.step(plan, &p, &gt, t, SEED), QM_OK);
        }
        qm_backend_cpu.close(plan);
    }
}

/* One launch for all of them, however it is cut: the bits of each alone. */
static void test_batches(void **state)
{
    static const char *const recipes[] = {
        "adamw4_lpmm_group,exp_avg.min_numel=0,exp_avg_sq.min_numel=0,exp_avg.round=stoch",
        "adamw4_lpmm,exp_avg.min_numel=0,exp_avg_sq.min_numel=0"};
    static uint8_t want[TENSORS][4 * MOST], got[TENSORS][4 * MOST];
    struct qm_shape shapes[TENSORS];
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    for (int which = 0; which < 2; which++) {
        for (int k = 0; k < TENSORS; k++)
            shapes[k] = k % 7 == 6 ? (struct qm_shape){2, {0, 5}}
                                   : (struct qm_shape){2, {1 + k % 5, 1 + (k * 389) % 1500}};
        cpu_steps(recipes[which], TENSORS, shapes, want);
        const struct {
            int64_t chunk;
            int blocks, by_value;
        } cuts[] = {{0, 0, 0}, {1, 0, 0}, {4096, 7, 0}, {32768, 1, 0}, {2048, 0, 1}, {1, 3, 1}};
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            batch_steps(recipes[which], TENSORS, shapes, cuts[i].chunk, cuts[i].blocks,
                        cuts[i].by_value, got);
            for (int k = 0; k < TENSORS; k++)
                assert_memory_equal(want[k], got[k], sizeof want[k]);
        }
    }
}

/* Shapes that want other kernels do not share a launch. */
static void test_batch_refuses(void **state)
{
    const struct qm_shape shapes[] = {{2, {128, 64}}, {1, {100}}};
    const uint32_t ids[] = {0, 1};
    struct qm_recipe r;
    struct qm_batch *b;
    (void)state;
    assert_int_equal(qm_recipe_parse("adamw4_ao", &r), QM_OK);
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    assert_int_equal(qm_batch_open(&qm_device_emu, QM_MODE_exact, &r, 2, shapes, ids, &b),
                     QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "tensor 1"));
    assert_int_equal(qm_recipe_parse("came_f32", &r), QM_OK);
    assert_int_equal(qm_batch_open(&qm_device_emu, QM_MODE_exact, &r, 1, shapes, ids, &b),
                     QM_SKIPPED);
}

/* Every rule with a loop has its element function, and the list knows it. */
static void test_elements(void **state)
{
    static const char *const names[] = {
#define X(name) #name,
        QM_ELEMENT_LIST(X)
#undef X
    };
    (void)state;
    for (int i = 0; i < qm_rule_count(); i++) {
        const struct qm_rule *r = qm_rule_at(i);
        int found = 0;
        assert_int_equal(r->block != NULL, r->element != NULL);
        for (size_t k = 0; r->element && k < sizeof names / sizeof *names; k++)
            found |= strcmp(names[k], r->element) == 0;
        assert_int_equal(found, r->element != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements),      cmocka_unit_test(test_variants),
        cmocka_unit_test(test_formats),       cmocka_unit_test(test_batches),
        cmocka_unit_test(test_batch_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
