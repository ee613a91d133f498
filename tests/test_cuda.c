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
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
