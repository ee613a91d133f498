/* test_variants.c - Tests every registered variant on any shape, instruction set and thread count.
 *
 * The steps do what the variant's file declares: state size, SQNR, quantizers.
 *
 * `test_variants WORD` tests only recipes whose text matches the word, as `qualm list` matches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <omp.h>

#include "core/base/half.h"
#include "core/base/isa.h"
#include "core/base/name.h"
#include "core/recipe/backend.h"
#include "oracle/oracle.h"
#include "tests/support/drawn.h"

static const struct qm_shape shapes[] = {
    {2, {96, 64}},    {1, {6145}}, {1, {1}},      {1, {4096}},   {2, {1, 4097}},
    {3, {9, 23, 31}}, {0, {0}},    {2, {0, 128}}, {2, {65, 65}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, STEPS = 4 };

static float gaussish(uint64_t seed, int64_t t, int64_t i)
{
    float sum = 0.0f;
    for (uint64_t k = 0; k < 4; k++)
        sum += qm_uniform(qm_philox_stream(seed, (uint64_t)t * 8 + k, (uint64_t)i)) - 0.5f;
    return sum;
}

struct run {
    int64_t n;
    float *p, *slot[QM_MAX_SLOTS];
    int64_t slot_n[QM_MAX_SLOTS];
    uint8_t *codes[QM_MAX_SLOTS];
    int64_t bytes;
};

static void run_free(struct run *r)
{
    free(r->p);
    for (int i = 0; i < QM_MAX_SLOTS; i++) {
        free(r->slot[i]);
        free(r->codes[i]);
    }
}

/* Elements of slot i of a parameter of this shape. */
static int64_t slot_numel(const struct qm_recipe *r, int i, const struct qm_shape *shape)
{
    struct qm_shape own;
    qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &own);
    return qm_shape_numel(&own);
}

/* Element i of the gradient of step t: another scale every 64 elements, and zeros in one block of
 * 256 of step 3. */
static float gradient(int64_t t, int64_t i)
{
    return t == 3 && i / 256 == 1 ? 0.0f : gaussish(2, t, i) * ldexpf(1.0f, -(int)(i / 64 % 11));
}

/* Runs STEPS steps of a recipe, with gradients in the recipe's type. */
static void run(const char *recipe, const struct qm_shape *shape, int threads, struct run *out)
{
    struct qm_recipe r;
    void *plan;
    int64_t n = qm_shape_numel(shape);
    omp_set_num_threads(threads);
    if (qm_recipe_parse(recipe, &r) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    if (qm_backend_cpu.open(&r, shape, 2, &plan) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    memset(out, 0, sizeof *out);
    out->n = n;
    out->p = malloc(sizeof(float) * (size_t)(n + 1));
    float *g = malloc(sizeof(float) * (size_t)(n + 1));
    uint16_t *h = malloc(sizeof(uint16_t) * (size_t)(n + 1));
    void *stored = malloc(sizeof(float) * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        out->p[i] = gaussish(1, 0, i);
    qm_param_from_float(&r.param, n, out->p, stored);
    out->p[n] = 77.0f; /* a sentinel behind the end */
    for (int64_t t = 1; t <= STEPS; t++) {
        for (int64_t i = 0; i < n; i++) {
            g[i] = gradient(t, i);
            h[i] = r.grad == QM_DTYPE_bf16 ? qm_float_to_bf16(g[i]) : qm_float_to_f16(g[i]);
        }
        struct qm_tensor p = {stored, qm_param_dtype(&r.param), *shape};
        struct qm_tensor gt = {r.grad == QM_DTYPE_f32 ? (void *)g : (void *)h, r.grad, *shape};
        assert_int_equal(qm_backend_cpu.step(plan, &p, &gt, t, 99), QM_OK);
    }
    qm_param_to_float(&r.param, n, stored, out->p);
    assert_true(out->p[n] == 77.0f);
    for (int i = 0; i < r.rule->n_slots; i++) {
        out->slot_n[i] = slot_numel(&r, i, shape);
        out->slot[i] = malloc(sizeof(float) * (size_t)(out->slot_n[i] + 1));
        out->codes[i] = calloc((size_t)out->slot_n[i] + 1, 1);
        assert_int_equal(qm_backend_cpu.decode(plan, i, out->slot[i]), QM_OK);
        assert_int_equal(qm_backend_cpu.save(plan, i, out->codes[i], NULL), QM_OK);
    }
    out->bytes = qm_backend_cpu.bytes(plan);
    qm_backend_cpu.close(plan);
    free(g);
    free(h);
    free(stored);
}

static void assert_same(const struct run *a, const struct run *b, const char *what)
{
    if (memcmp(a->p, b->p, sizeof(float) * (size_t)a->n) != 0)
        fail_msg("%s: parameters differ", what);
    for (int i = 0; i < QM_MAX_SLOTS && a->slot[i]; i++)
        if (memcmp(a->slot[i], b->slot[i], sizeof(float) * (size_t)a->slot_n[i]) != 0 ||
            memcmp(a->codes[i], b->codes[i], (size_t)a->slot_n[i]) != 0)
            fail_msg("%s: slot %d differs", what, i);
}

static const char *const more_recipes[] = {
    "adamw4_lpmm,exp_avg.round=stoch,exp_avg_sq.round=stoch,exp_avg.min_numel=0",
    "adamw4_lpmm,exp_avg=nf4:4s/rank1/bisect/mid/hi,exp_avg.min_numel=0,exp_avg_sq.min_numel=0",
    ("adamw4_lpmm_group,exp_avg.norm=rank1block:24,exp_avg_sq.norm=rank1block:64,"
     "exp_avg.min_numel=0,exp_avg_sq.min_numel=0"),
    "adamw8_lpmm,exp_avg_sq=lint:8u/rank1block:48/arith/dither/least:1,exp_avg_sq.min_numel=0",
    "adamw4_ao,grad=bf16,exp_avg_sq=lin:4u/tensor/scan/near/lo,exp_avg_sq.min_numel=0",
    "adamw8_ao,grad=f16,exp_avg_sq=log:8u/logblock:256/arith/even/floor:1e-12",
    "adamw4_lpmm_group,exp_avg=de:5s/block:64/bisect/mid/lo,exp_avg.min_numel=0",
    "adamw8_bnb,exp_avg=dyn:8s/block:2048/grid/mid/recip/maxskip/zero:0",
    "adamw8_ao,exp_avg=de:8s/block:64/lower/mid,exp_avg_sq=al:8u/block:96/arith/even/allog",
    "adafactor8_026_torch,exp_avg.min_numel=0,row_var=al:8u/block:64/arith/even/"
    "allog,rank=2,factored=0",
    "adamw8_ao,param=f16/kahan,exp_avg=e4m3:8s/rank1/bisect/stoch,exp_avg.min_numel=0",
    "adamw4_ao,param=bf16/ecc8,exp_avg_sq=f16,exp_avg.plain=bf16",
    "adamw4_lpmm,param=e4m3/stoch",
    "adamw_f32,param=f16/ecc16,exp_avg=bf16",
    "lion8_unfused,param=bf16,grad=bf16,weight_decay=0.1,initial_lr=2e-3",
    "lion8_unfused,param=f16,weight_decay=0.1",
    "lion8_fused,exp_avg=lint:4s/block:32/arith/near/lo/floor:1e-12/f16",
    "lion8_fused,exp_avg=lint:8s/block:32/arith/near/floor:6e-8/f16both,param=f16/ecc16,grad=f16",
    "flash_adamw,param=bf16/kahan,exp_avg=nf4:4s/block:32/bisect/mid/hi/f16",
    "flash_lion,param=bf16/stoch,exp_avg=f32,initial_lr=0",
    "shampoo4_adamw,stat_gap=2,root_gap=3,min_lowbit=1",
    "shampoo4_sgd,stat_gap=1,root_gap=2,min_lowbit=1,nesterov=1,left_root.map=lin2:8s",
    "shampoo4_adamw,stat_gap=1,root_gap=2,min_lowbit=25,max_order=6",
    "ademamix8_bnb,exp_avg.min_numel=0,exp_avg_slow=nf4:4s/rank1/bisect/even/hi/keepsign,t_beta3=3",
};
enum { MORE = sizeof more_recipes / sizeof *more_recipes };

/* Recipes of norms that vectors do not have. */
static const char *const matrix_recipes[] = {
    ("adamw4_lpmm_group,exp_avg.norm=rowcol,exp_avg_sq.norm=colrow,exp_avg.min_numel=0,"
     "exp_avg_sq.min_numel=0"),
    "adamw4_lpmm_fused,exp_avg_sq=lin:4u/colrow/bisect/stoch/lo/nantop,exp_avg_sq.min_numel=0",
};
enum { MATRIX = sizeof matrix_recipes / sizeof *matrix_recipes };

static const char *recipe_at(int i)
{
    if (i >= qm_variant_count() + MORE)
        return matrix_recipes[i - qm_variant_count() - MORE];
    return i < qm_variant_count() ? qm_variant_at(i)->name : more_recipes[i - qm_variant_count()];
}

/* 1: the recipe's rule takes tensors of this shape. */
static int is_taken(const char *recipe, const struct qm_shape *shape)
{
    struct qm_recipe r;
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    return qm_rule_takes(r.rule, &r.hyper, shape) == QM_OK;
}

/* The word of the command line, or NULL. */
static const char *filter;

/* Bits do not depend on threads or instruction set. */
static void test_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < qm_variant_count() + MORE + MATRIX; k++)
        for (int s = 0; s < SHAPES && qm_name_matches(recipe_at(k), filter); s++) {
            if (!is_drawn(k * SHAPES + s) ||
                (k >= qm_variant_count() + MORE && shapes[s].rank < 2) ||
                !is_taken(recipe_at(k), &shapes[s]))
                continue;
            struct run base, other;
            char what[256];
            assert_true(qm_isa_force(QM_ISA_sse2));
            run(recipe_at(k), &shapes[s], 1, &base);
            for (int isa = 0; isa < QM_ISA_COUNT; isa++)
                for (int threads = 1; threads <= 3; threads += 2) {
                    if (!qm_isa_force((enum qm_isa)isa))
                        continue;
                    run(recipe_at(k), &shapes[s], threads, &other);
                    snprintf(what, sizeof what, "%s, shape %d, %s, %d threads", recipe_at(k), s,
                             qm_isa_text((enum qm_isa)isa), threads);
                    assert_same(&base, &other, what);
                    run_free(&other);
                }
            run_free(&base);
        }
}

/* Rules over whole tensors on shapes large enough for threads; rows and columns are no multiples of
 * the SIMD width. */
static void test_whole_same_bits(void **state)
{
    (void)state;
    static const struct qm_shape large[] = {
        {2, {40, 2103}}, {2, {2103, 40}}, {3, {3, 150, 151}}, {1, {70001}}};
    static const char *const more[] = {"adafactor8_026,beta1=-1,maximize=1",
                                       "adafactor8_026_torch,limiter=1",
                                       "came8_026_cuda,maximize=1",
                                       "apollo8_026,rank=5,factored=1",
                                       "adafactor_hf,beta1=0.9,weight_decay=0.01",
                                       "adafactor8_026,param=bf16/stoch,grad=bf16",
                                       "adamw4_lpmm_factor,param=bf16/kahan",
                                       "adafactor_torch,row_var=bf16,maximize=1"};
    int n_more = sizeof more / sizeof *more, walked = 0;
    for (int k = 0; k < qm_variant_count() + n_more; k++)
        for (size_t s = 0; s < sizeof large / sizeof *large; s++) {
            const char *name =
                k < qm_variant_count() ? qm_variant_at(k)->name : more[k - qm_variant_count()];
            struct qm_recipe r;
            struct run base, other;
            assert_int_equal(qm_recipe_parse(name, &r), QM_OK);
            if (r.rule->elementwise || !qm_name_matches(name, filter) || !is_taken(name, &large[s]))
                continue;
            if (!is_drawn(walked++ + (int)s)) /* there are as many shapes as the share may be */
                continue;
            assert_true(qm_isa_force(QM_ISA_sse2));
            run(name, &large[s], 1, &base);
            for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
                if (!qm_isa_force((enum qm_isa)isa))
                    continue;
                char what[256];
                run(name, &large[s], isa == QM_ISA_avx2 ? 2 : 3, &other);
                snprintf(what, sizeof what, "%s, large shape %d, %s", name, (int)s,
                         qm_isa_text((enum qm_isa)isa));
                assert_same(&base, &other, what);
                run_free(&other);
            }
            run_free(&base);
        }
    assert_true(walked > 50 || filter);
}

/* The parameter that enters the rule, and the one that is stored; *residual is kept from step
 * to step. */
static float master(const struct qm_param *q, float p, int16_t residual)
{
    uint32_t h = qm_param_nearest(q->format, p);
    switch (q->write) {
    case QM_WRITE_kahan: return p + qm_param_widen(q->format, (uint16_t)residual);
    case QM_WRITE_ecc8: return qm_ecc_decode(q->format, h, residual, 127);
    case QM_WRITE_ecc16: return qm_ecc_decode(q->format, h, residual, 32767);
    default: return p;
    }
}

static float stored_as(const struct qm_param *q, float x, int64_t t, int64_t i, int16_t *residual)
{
    struct qm_draws d = qm_draws_for(99, t, 2, QM_ROLE_param);
    uint32_t h = q->write == QM_WRITE_stoch ? qm_param_stochastic(q->format, x, qm_draw(&d, i))
                                            : qm_param_nearest(q->format, x);
    switch (q->write) {
    case QM_WRITE_kahan: *residual = (int16_t)qm_kahan_residual(q->format, x, h); break;
    case QM_WRITE_ecc8: *residual = (int16_t)qm_ecc_encode(q->format, x, h, 127); break;
    case QM_WRITE_ecc16: *residual = (int16_t)qm_ecc_encode(q->format, x, h, 32767); break;
    default: break;
    }
    return qm_param_widen(q->format, h);
}

/* A recipe's state as whole tensors, stepped by decode, rule, encode; n elements everywhere. */
struct composition {
    struct qm_recipe r;
    const struct qm_shape *shape;
    int64_t n;
    struct qm_codec c[QM_MAX_SLOTS];
    float *p, *g, *x[QM_MAX_SLOTS], *scales[QM_MAX_SLOTS];
    int16_t *residual;
    uint8_t *codes[QM_MAX_SLOTS];
};

static void composition_open(struct composition *w)
{
    size_t room = (size_t)w->n + 1;
    w->p = malloc(sizeof(float) * room);
    w->g = malloc(sizeof(float) * room);
    w->residual = calloc(room, sizeof *w->residual);
    for (int i = 0; i < w->r.rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(&w->r, i, w->shape);
        assert_int_equal(qm_codec_init(&w->c[i], &q), QM_OK);
        w->x[i] = calloc(room, sizeof(float));
        w->codes[i] = malloc(room);
        memset(w->codes[i], w->r.init_code[i], room);
        int64_t count = qm_scale_count(&w->c[i], w->shape);
        w->scales[i] = malloc(sizeof(float) * (size_t)(count + 1));
        for (int64_t j = 0; j < count; j++)
            w->scales[i][j] = w->r.init_scale[i];
    }
    for (int64_t i = 0; i < w->n; i++)
        w->p[i] = qm_param_widen(w->r.param.format,
                                 qm_param_nearest(w->r.param.format, gaussish(1, 0, i)));
}

static void composition_close(struct composition *w)
{
    for (int i = 0; i < w->r.rule->n_slots; i++) {
        free(w->x[i]);
        free(w->codes[i]);
        free(w->scales[i]);
    }
    free(w->p);
    free(w->residual);
    free(w->g);
}

static void composition_step(struct composition *w, int64_t t)
{
    const struct qm_recipe *r = &w->r;
    struct qm_rule_step st;
    r->rule->prepare(&r->hyper, t, &st);
    st.param = r->param.format;
    for (int i = 0; i < r->rule->n_slots && w->n == 1 && r->rule->mark_absent; i++)
        if (w->c[i].q.bits == 0)
            r->rule->mark_absent(&st, i);
    for (int64_t i = 0; i < w->n; i++) {
        w->g[i] = gradient(t, i);
        if (r->grad == QM_DTYPE_bf16)
            w->g[i] = qm_bf16_to_float(qm_float_to_bf16(w->g[i]));
        if (r->grad == QM_DTYPE_f16)
            w->g[i] = qm_f16_to_float(qm_float_to_f16(w->g[i]));
    }
    for (int i = 0; i < r->rule->n_slots; i++)
        if (w->c[i].q.bits)
            qm_decode(&w->c[i], w->shape, w->codes[i], w->scales[i], w->x[i]);
    for (int64_t i = 0; i < w->n; i++)
        w->p[i] = master(&r->param, w->p[i], w->residual[i]);
    r->rule->elementwise->block(&st, w->n, w->p, w->g, w->x);
    for (int64_t i = 0; i < w->n; i++)
        w->p[i] = stored_as(&r->param, w->p[i], t, i, &w->residual[i]);
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_draws d = qm_draws_for(99, t, 2,
                                         i == 0   ? QM_ROLE_slot0
                                         : i == 1 ? QM_ROLE_slot1
                                                  : QM_ROLE_spare);
        if (w->c[i].q.bits)
            assert_int_equal(qm_encode(&w->c[i], w->shape, w->x[i], &d, w->codes[i], w->scales[i]),
                             QM_OK);
        else
            qm_plain_round(w->c[i].q.plain, w->n, w->x[i]);
    }
}

static void assert_composed(struct composition *w, const struct run *fast, const char *what)
{
    for (int i = 0; i < w->r.rule->n_slots; i++) {
        if (w->c[i].q.bits) {
            qm_decode(&w->c[i], w->shape, w->codes[i], w->scales[i], w->x[i]);
            if (memcmp(w->codes[i], fast->codes[i], (size_t)w->n) != 0)
                fail_msg("%s: codes of slot %d", what, i);
        }
        if (memcmp(w->x[i], fast->slot[i], sizeof(float) * (size_t)w->n) != 0)
            fail_msg("%s: values of slot %d", what, i);
    }
    if (memcmp(w->p, fast->p, sizeof(float) * (size_t)w->n) != 0)
        fail_msg("%s: parameters", what);
}

/* The backend's step equals the plain composition of decode, rule and encode over whole tensors. */
static void test_step_is_the_composition(void **state)
{
    (void)state;
    for (int k = 0; k < qm_variant_count() + MORE + MATRIX; k++)
        for (int s = 0; s < SHAPES && qm_name_matches(recipe_at(k), filter); s++) {
            if (!is_drawn(k * SHAPES + s) || (k >= qm_variant_count() + MORE && shapes[s].rank < 2))
                continue;
            struct composition w = {.shape = &shapes[s], .n = qm_shape_numel(&shapes[s])};
            struct run fast;
            char what[256];
            assert_int_equal(qm_recipe_parse(recipe_at(k), &w.r), QM_OK);
            if (!w.r.rule->elementwise) /* over whole tensors */
                continue;
            w.r = qm_recipe_at(&w.r, w.shape);
            run(recipe_at(k), w.shape, 2, &fast);
            composition_open(&w);
            for (int64_t t = 1; t <= STEPS; t++)
                composition_step(&w, t);
            snprintf(what, sizeof what, "%s, shape %d", recipe_at(k), s);
            assert_composed(&w, &fast, what);
            composition_close(&w);
            run_free(&fast);
        }
}

/* Names are sorted, state sizes as declared, and overrides print and parse back. */
static void test_promises(void **state)
{
    (void)state;
    struct qm_shape square = {2, {1024, 1024}};
    for (int k = 0; k < qm_variant_count(); k++) {
        const struct qm_variant *v = qm_variant_at(k);
        if (!qm_name_matches(v->name, filter))
            continue;
        struct qm_recipe r, again;
        char text[QM_RECIPE_TEXT], text2[QM_RECIPE_TEXT];
        int64_t bytes;
        void *plan;
        if (k > 0)
            assert_true(strcmp(qm_variant_at(k - 1)->name, v->name) < 0);
        assert_true(v->summary && v->source && strlen(v->summary) < 100);
        assert_int_equal(qm_recipe_parse(v->name, &r), QM_OK);
        assert_string_equal(qm_recipe_print(&r, text), v->name);
#define X(hyper_name, initial, says)                                       \
    if (v->hyper.hyper_name != 0 && !qm_rule_reads(r.rule, #hyper_name) && \
        !(r.small && qm_rule_reads(r.small, #hyper_name)))                 \
        fail_msg("%s states %s, which rule %s does not read", v->name, #hyper_name, r.rule->name);
        QM_HYPER_LIST(X)
        QM_HYPER_FLAG_LIST(X)
#undef X
        assert_int_equal(qm_recipe_bytes(&r, &square, &bytes), QM_OK);
        assert_int_equal(qm_backend_cpu.open(&r, &square, 0, &plan), QM_OK);
        assert_int_equal(qm_backend_cpu.bytes(plan), bytes);
        qm_backend_cpu.close(plan);
        if ((double)bytes * 8.0 != v->state_bits * 1024.0 * 1024.0)
            fail_msg("%s: %g bits of state per parameter, declared %g", v->name,
                     (double)bytes * 8.0 / 1048576.0, v->state_bits);
        for (int i = 0; i < r.rule->n_slots; i++) {
            char key[64];
            snprintf(key, sizeof key, "%s", r.rule->slot[i]);
            assert_int_equal(qm_recipe_set(&r, key,
                                           r.rule->slot_whole[i] ? "f32"
                                           : r.rule->slot_sign[i]
                                               ? "nf4:4s/block:32/argmin/mid/hi/f16"
                                               : "pow2:4u/row/scan/near/lo"),
                             QM_OK);
        }
        assert_int_equal(qm_recipe_set(&r, "lr", "0.3"),
                         qm_rule_reads(r.rule, "lr") ? QM_OK : QM_BAD_ARG);
        assert_int_equal(qm_recipe_parse(qm_recipe_print(&r, text), &again), QM_OK);
        assert_string_equal(text, qm_recipe_print(&again, text2));
    }
}

/* One step of variant and oracle from the same state; each slot's SQNR, and the parameter. */
static void step_sqnr(const struct qm_variant *v)
{
    enum { N = 8192, MOST = 4 * N };
    struct qm_shape shape = {2, {64, 128}};
    static double p[N], g[N], slot[QM_MAX_SLOTS][MOST];
    static float pf[N], gf[N], got[MOST], stored[N];
    struct qm_recipe r;
    void *plan;
    double *slots[QM_MAX_SLOTS];
    assert_int_equal(qm_recipe_parse(v->name, &r), QM_OK);
    const struct qm_oracle *o = qm_oracle_find(r.rule->family);
    if (!o)
        fail_msg("no oracle for %s", r.rule->family);
    struct qm_oracle_hyper h = {
#define X(name, value, text) .name = r.hyper.name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    for (int i = 0; i < N; i++) {
        pf[i] = gaussish(5, 0, i);
        g[i] = (double)(gf[i] = gaussish(6, 0, i));
    }
    qm_param_from_float(&r.param, N, pf, stored);
    qm_param_to_float(&r.param, N, stored, pf);
    for (int i = 0; i < N; i++)
        p[i] = (double)pf[i];
    assert_int_equal(qm_backend_cpu.open(&r, &shape, 0, &plan), QM_OK);
    for (int s = 0; s < r.rule->n_slots; s++) {
        slots[s] = slot[s];
        assert_true(slot_numel(&r, s, &shape) <= MOST);
        assert_int_equal(qm_backend_cpu.decode(plan, s, got), QM_OK);
        for (int64_t i = 0; i < slot_numel(&r, s, &shape); i++)
            slot[s][i] = (double)got[i];
    }
    struct qm_tensor pt = {stored, qm_param_dtype(&r.param), shape};
    struct qm_tensor gt = {gf, QM_DTYPE_f32, shape};
    assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, 1, 1), QM_OK);
    qm_param_to_float(&r.param, N, stored, pf);
    assert_int_equal(qm_oracle_step(o, p, slots, g, &shape, 0, &h, 1), QM_OK);
    for (int s = 0; s < r.rule->n_slots; s++) {
        double e2 = 0.0, x2 = 0.0;
        assert_int_equal(qm_backend_cpu.decode(plan, s, got), QM_OK);
        for (int64_t i = 0; i < slot_numel(&r, s, &shape); i++) {
            e2 += ((double)got[i] - slots[s][i]) * ((double)got[i] - slots[s][i]);
            x2 += slots[s][i] * slots[s][i];
        }
        double db = 10.0 * log10(x2 / e2);
        int is_untouched = x2 == 0.0 && e2 == 0.0; /* Shampoo's roots are not due at step 1 */
        if (slot_numel(&r, s, &shape) > 0 && !is_untouched && !(db >= v->step_sqnr_db))
            fail_msg("%s: slot %d has %.1f dB, declared at least %.1f", v->name, s, db,
                     v->step_sqnr_db);
    }
    /* A step from fresh moments gives the parameter to float32 accuracy, or to an ulp of its
     * format: at most 2^-7, 2^-10, 2^-3 of the value. */
    static const double ulp[] = {0.0, 0x1p-7, 0x1p-10, 0x1p-3};
    /* Muon's factor is made of numbers of 16 bits, of which some fall the other way; the rate is
     * multiplied by at most 0.2 sqrt(128). */
    double loose = strncmp(r.rule->name, "muon", 4) == 0 ? 2.3 * r.hyper.lr * 1e-2 : 0.0;
    for (int i = 0; i < N && !r.state_stored; i++)
        if (!(fabs((double)pf[i] - p[i]) <=
              1e-6 + loose + ulp[r.param.format] * fmax(fabs(p[i]), 0x1p-6)))
            fail_msg("%s: parameter %d is %.9g, wants %.9g", v->name, i, (double)pf[i], p[i]);
    qm_backend_cpu.close(plan);
}

static void test_step_sqnr(void **state)
{
    (void)state;
    for (int k = 0; k < qm_variant_count(); k++)
        if (qm_name_matches(qm_variant_at(k)->name, filter))
            step_sqnr(qm_variant_at(k));
}

static void test_bad_input(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"adamw4_a", "'adamw4_ao'"},
        {"adamw4_ao,exp_avgg=f32", "'exp_avg'"},
        {"adamw4_ao,lr", "key=value"},
        {"adamw4_ao,lr=fast", "number"},
        {"adamw4_ao,beta1=1", "[0, 1)"},
        {"adamw4_ao,exp_avg=dyn:4u/block:128/bisect/near", "both signs"},
        {"adamw4_ao,exp_avg.map=log:8u", "log2"},
        {"adamw4_ao,exp_avg.search=block:64", "axis"},
        {"adamw4_ao,exp_avg.serch=scan", "'search'"},
        {"adamw_f32,exp_avg.map=nf4", "f32"},
        {"adamw4_ao,grad=f64", "bf16"},
        {"adamw4_ao,nesterov=2", "0 or 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qm_recipe r;
        if (qm_recipe_parse(bad[i][0], &r) == QM_OK)
            fail_msg("'%s' should be refused", bad[i][0]);
        if (!strstr(qm_message(), bad[i][1]))
            fail_msg("'%s': '%s' does not mention %s", bad[i][0], qm_message(), bad[i][1]);
    }
    struct qm_recipe r;
    void *plan;
    float x[4] = {0}, y[4] = {0};
    struct qm_shape four = {1, {4}};
    assert_int_equal(qm_recipe_parse("adamw_f32", &r), QM_OK);
    assert_int_equal(qm_backend_cpu.open(&r, &four, 0, &plan), QM_OK);
    struct qm_tensor p = {x, QM_DTYPE_f32, four}, g = {y, QM_DTYPE_f32, four};
    struct qm_tensor wrong = {y, QM_DTYPE_f64, four};
    assert_int_equal(qm_backend_cpu.step(plan, &p, &g, 0, 0), QM_BAD_ARG);
    assert_int_equal(qm_backend_cpu.step(plan, &p, &wrong, 1, 0), QM_BAD_ARG);
    assert_int_equal(qm_backend_cpu.step(plan, &wrong, &g, 1, 0), QM_BAD_ARG);
    assert_int_equal(qm_backend_cpu.decode(plan, 2, x), QM_BAD_ARG);
    qm_backend_cpu.close(plan);
    qm_backend_cpu.close(NULL);
    assert_int_equal(qm_recipe_parse("adamw4_ao", &r), QM_OK);
    struct qm_shape square = {2, {64, 64}};
    assert_int_equal(qm_backend_cpu.open(&r, &square, 0, &plan), QM_OK);
    uint8_t codes[4096] = {16};
    assert_int_equal(qm_backend_cpu.load(plan, 0, codes, NULL), QM_BAD_ARG);
    qm_backend_cpu.close(plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promises),  cmocka_unit_test(test_step_is_the_composition),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_whole_same_bits),
        cmocka_unit_test(test_step_sqnr), cmocka_unit_test(test_bad_input),
    };
    int recipes = 0;
    filter = argc > 1 ? argv[1] : NULL;
    for (int k = 0; k < qm_variant_count() + MORE + MATRIX; k++)
        recipes += qm_name_matches(recipe_at(k), filter);
    if (filter)
        fprintf(stderr, "test_variants: %d recipes match '%s'\n", recipes, filter);
    return recipes ? cmocka_run_group_tests(tests, NULL, NULL) : 4;
}
