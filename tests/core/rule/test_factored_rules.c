/* test_factored_rules.c - Adafactor, CAME, APOLLO, Fira and Lion: oracles on closed forms and on
 * published figures, float rules against the oracles, and the points where these methods are
 * delicate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/mt19937.h"
#include "core/base/philox.h"
#include "core/recipe/backend.h"
#include "core/rule/lowrank.h"
#include "oracle/oracle.h"
#include "oracle/rule/projection.h"

enum { ROOM = 4096 };

/* Float32 steps against the oracle from the same state, of a tensor's largest value: what the
 * recorded runs of the public code allow (tests/golden); a sum rounds once here, so far less is
 * used. */
#define STEP_TOLERANCE 2e-6

/* ---- both sides of a step -------------------------------------------------------------------- */

/* A rule's tensor in float and the oracle's in double. */
struct pair {
    const struct qm_rule *rule;
    const struct qm_oracle *oracle;
    struct qm_hyper h;
    struct qm_oracle_hyper oh;
    struct qm_shape shape, own[QM_MAX_SLOTS];
    uint32_t tensor;
    int64_t n, slot_n[QM_MAX_SLOTS];
    float p[ROOM], g[ROOM], slot[QM_MAX_SLOTS][ROOM];
    float room[ROOM];
    double p64[ROOM], g64[ROOM], slot64[QM_MAX_SLOTS][ROOM];
};

static struct pair *pair_open(const char *rule, const struct qm_hyper *h, int rank, int64_t a,
                              int64_t b, int64_t c)
{
    struct pair *q = calloc(1, sizeof *q);
    assert_non_null(q);
    q->rule = qm_rule_find(rule);
    assert_non_null(q->rule);
    q->oracle = qm_oracle_find(q->rule->family);
    assert_non_null(q->oracle);
    q->h = *h;
    q->oh = (struct qm_oracle_hyper){
#define X(name, value, text) .name = h->name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    q->shape = (struct qm_shape){rank, {a, b, c}};
    q->n = qm_shape_numel(&q->shape);
    assert_int_equal(q->rule->n_slots, q->oracle->n_slots);
    for (int i = 0; i < q->rule->n_slots; i++) {
        assert_string_equal(q->rule->slot[i], q->oracle->slot[i]);
        q->own[i] = q->shape;
        qm_rule_slot_shape(q->rule, &q->h, i, &q->shape, &q->own[i]);
        q->slot_n[i] = qm_shape_numel(&q->own[i]);
        assert_in_range(q->slot_n[i], 0, ROOM);
    }
    return q;
}

static qm_status step_float(struct pair *q, int64_t t)
{
    struct qm_rule_step s;
    struct qm_tensor_rule_args w = {
        .s = &s, .shape = &q->shape, .tensor = q->tensor, .p = q->p, .g = q->g, .room = q->room};
    float *slots[QM_MAX_SLOTS];
    for (int i = 0; i < QM_MAX_SLOTS; i++) {
        slots[i] = w.slot[i] = q->slot[i];
        w.slot_shape[i] = q->own[i];
    }
    q->rule->prepare(&q->h, t, &s);
    s.hyper = &q->h;
    if (q->rule->elementwise) {
        q->rule->elementwise->block(&s, q->n, q->p, q->g, slots);
        return QM_OK;
    }
    QM_TRY(q->rule->tensor->states(&w));
    return q->rule->tensor->apply(&w);
}

static qm_status step_double(struct pair *q, int64_t t)
{
    double *slots[QM_MAX_SLOTS];
    for (int i = 0; i < QM_MAX_SLOTS; i++)
        slots[i] = q->slot64[i];
    for (int64_t i = 0; i < q->n; i++)
        q->g64[i] = (double)q->g[i];
    return qm_oracle_step(q->oracle, q->p64, slots, q->g64, &q->shape, q->tensor, &q->oh, t);
}

/* The oracle goes on from the rule's state. */
static void take_over(struct pair *q)
{
    for (int64_t i = 0; i < q->n; i++)
        q->p64[i] = (double)q->p[i];
    for (int i = 0; i < q->rule->n_slots; i++)
        for (int64_t k = 0; k < q->slot_n[i]; k++)
            q->slot64[i][k] = (double)q->slot[i][k];
}

static double largest(const double *x, int64_t n)
{
    double m = 0.0;
    for (int64_t i = 0; i < n; i++)
        m = fabs(x[i]) > m ? fabs(x[i]) : m;
    return m;
}

/* scale: the largest value before the step, which counts where a lone value cancels. */
static void assert_close(const char *what, int64_t t, const float *got, const double *want,
                         int64_t n, double scale)
{
    double allowed = STEP_TOLERANCE * fmax(largest(want, n), scale);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= allowed))
            fail_msg("step %lld, %s[%lld]: got %.9g, want %.9g, allowed %.2g", (long long)t, what,
                     (long long)i, (double)got[i], want[i], allowed);
}

static double normal(uint64_t seed, int64_t i)
{
    double u = ((double)qm_philox_stream(seed, 1, (uint64_t)i) + 0.5) * 0x1p-32;
    double w = ((double)qm_philox_stream(seed, 2, (uint64_t)i) + 0.5) * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * w);
}

static void draw(float *x, int64_t n, uint64_t seed, double scale)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * normal(seed, i));
}

static double norm(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void near_to(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

static struct qm_hyper plain(double lr)
{
    struct qm_hyper h = qm_hyper_default();
    h.lr = lr;
    h.weight_decay = 0.0;
    return h;
}

/* ---- rules against oracles ------------------------------------------------------------------- */

static struct qm_hyper came_hyper(double lr)
{
    struct qm_hyper h = plain(lr);
    h.beta3 = 0.9999;
    h.eps2 = 1e-16;
    return h;
}

static struct qm_hyper lowrank_hyper(double rank, double scale)
{
    struct qm_hyper h = plain(1e-2);
    h.eps = 1e-6;
    h.rank = rank;
    h.scale = scale;
    h.gap = 5;
    return h;
}

/* 24 steps, each from the rule's state: rows of other scales, a zero gradient, a spike. */
static void follow(const char *rule, const struct qm_hyper *h, int rank, int64_t a, int64_t b,
                   int64_t c)
{
    struct pair *q = pair_open(rule, h, rank, a, b, c);
    int64_t last = rank > 0 ? q->shape.dim[rank - 1] : 1;
    q->tensor = 1;
    draw(q->p, q->n, 1, 0.3);
    for (int64_t t = 1; t <= 24; t++) {
        draw(q->g, q->n, 100 + (uint64_t)t, t == 6 ? 0.0 : t == 12 ? 1e3 : 1.0);
        for (int64_t i = 0; i < q->n; i++)
            q->g[i] = ldexpf(q->g[i], -(int)(i / last % 7));
        take_over(q);
        double scale[QM_MAX_SLOTS], p_scale = largest(q->p64, q->n);
        for (int i = 0; i < q->rule->n_slots; i++)
            scale[i] = largest(q->slot64[i], q->slot_n[i]);
        assert_int_equal(step_float(q, t), QM_OK);
        assert_int_equal(step_double(q, t), QM_OK);
        assert_close("parameter", t, q->p, q->p64, q->n, p_scale);
        for (int i = 0; i < q->rule->n_slots; i++)
            assert_close(q->rule->slot[i], t, q->slot[i], q->slot64[i], q->slot_n[i], scale[i]);
    }
    free(q);
}

static void follow_shapes(const char *rule, const struct qm_hyper *h)
{
    follow(rule, h, 2, 24, 10, 0);
    follow(rule, h, 2, 8, 28, 0);
    follow(rule, h, 2, 16, 16, 0);
    follow(rule, h, 2, 1, 33, 0);
    follow(rule, h, 2, 33, 1, 0);
    follow(rule, h, 1, 37, 0, 0);
    follow(rule, h, 0, 0, 0, 0);
    follow(rule, h, 3, 3, 8, 6);
    follow(rule, h, 2, 0, 8, 0);
}

static void adafactor_follows(void **state)
{
    (void)state;
    struct qm_hyper h = plain(1e-2), second;
    h.relative_step = h.scale_parameter = 1;
    follow_shapes("adafactor", &h);
    second = h;
    second.warmup = 1;
    second.weight_decay = 0.01;
    follow_shapes("adafactor", &second);
    second = plain(1e-3);
    second.beta1 = 0.9;
    second.clip = 0.5;
    follow_shapes("adafactor", &second);
    second.factored = 0;
    follow_shapes("adafactor", &second);
    h = plain(0.5);
    h.beta1 = 0.0;
    h.eps1 = 0x1p-23;
    h.weight_decay = 0.1;
    follow_shapes("adafactor_torch", &h);
    h.maximize = 1;
    h.eps1 = 1e-3;
    h.eps2 = 0.1;
    h.clip = 2.0;
    follow_shapes("adafactor_torch", &h);
}

static void came_follows(void **state)
{
    (void)state;
    struct qm_hyper h = came_hyper(1e-3);
    follow_shapes("came", &h);
    h.beta2 = 0.95;
    h.beta3 = 0.995;
    h.weight_decay = 0.1;
    h.clip = 0.5;
    follow_shapes("came", &h);
}

static void lowrank_follows(void **state)
{
    (void)state;
    struct qm_hyper h = lowrank_hyper(4, 2.0);
    h.limiter = 1;
    follow_shapes("apollo", &h);
    h.svd = 1;
    h.rank = 0.25;
    follow_shapes("apollo", &h);
    h.svd = 0;
    h.rank = 1;
    h.scale = 128;
    h.tensor_scale = h.scale_front = 1;
    h.weight_decay = 0.1;
    follow_shapes("apollo", &h);
    h.side = 1;
    h.rank = 3;
    h.limiter = 0;
    follow_shapes("apollo", &h);
    h = lowrank_hyper(4, 0.25);
    follow_shapes("fira", &h);
    h.rank = 1;
    h.weight_decay = 0.1;
    h.correct_bias = 0;
    follow_shapes("fira", &h);
    h.beta2 = 0.9;
    follow_shapes("fira_rms", &h);
    h.momentum = 0.0;
    follow_shapes("fira_rms", &h);
    h.momentum = 0.9;
    h.centered = 1;
    h.rank = 3;
    follow_shapes("fira_rms", &h);
    h.limiter = 0;
    follow_shapes("fira_rms", &h);
    follow_shapes("fira", &h);
}

/* ---- Adafactor ------------------------------------------------------------------------------- */

/* At t = 1 beta2 is 0: whatever the factors held, they are the current means. */
static void adafactor_starts_fresh(void **state)
{
    (void)state;
    static const char *const rules[] = {"adafactor", "adafactor_torch"};
    for (int k = 0; k < 2; k++) {
        struct qm_hyper h = plain(1e-2);
        h.beta1 = 0.0;
        struct pair *q = pair_open(rules[k], &h, 2, 6, 5, 0);
        draw(q->g, q->n, 3, 1.0);
        for (int i = 0; i < 6; i++)
            q->slot[0][i] = 1e3f;
        for (int i = 0; i < 5; i++)
            q->slot[1][i] = 1e-3f;
        take_over(q);
        assert_int_equal(step_float(q, 1), QM_OK);
        assert_int_equal(step_double(q, 1), QM_OK);
        for (int i = 0; i < 6; i++) {
            double mean = 0.0;
            for (int j = 0; j < 5; j++)
                mean += (double)q->g[i * 5 + j] * (double)q->g[i * 5 + j] / 5.0;
            near_to(q->slot64[0][i], mean, 1e-12);
            near_to((double)q->slot[0][i], mean, 3e-7); /* five roundings of 2^-24 */
        }
        free(q);
    }
}

/* g = a b^T has a squared gradient of rank 1, of which the factors are exact: U = sign(g), of RMS
 * 1, so the step is lr_t in every element. */
static void adafactor_of_rank_one(void **state)
{
    (void)state;
    static const char *const rules[] = {"adafactor", "adafactor_torch"};
    for (int k = 0; k < 2; k++) {
        struct qm_hyper h = plain(1e-2);
        h.beta1 = 0.0;
        h.eps1 = k ? 0x1p-23 : 1e-30;
        h.scale_parameter = 1;
        struct pair *q = pair_open(rules[k], &h, 2, 6, 5, 0);
        for (int i = 0; i < 30; i++) {
            q->g[i] = ldexpf(i % 7 < 3 ? -1.0f : 1.0f, i / 5 - 2 * (i % 5));
            q->p64[i] = 0.25;
        }
        assert_int_equal(step_double(q, 1), QM_OK);
        for (int i = 0; i < 30; i++)
            near_to(0.25 - q->p64[i], 1e-2 * 0.25 * (q->g[i] > 0.0f ? 1.0 : -1.0), 1e-11);
        free(q);
    }
}

/* All-zero gradients from the first step on: finite, and the parameter stays. */
static void zero_gradients_are_finite(void **state)
{
    (void)state;
    struct qm_hyper h = plain(1e-2), came = came_hyper(1e-3), low = lowrank_hyper(3, 1.0);
    h.beta1 = 0.0;
    h.eps1 = 0x1p-23; /* PyTorch's; its square must not underflow */
    const struct {
        const char *rule;
        const struct qm_hyper *h;
    } cases[] = {{"adafactor", &h}, {"adafactor_torch", &h}, {"came", &came},
                 {"apollo", &low},  {"fira", &low},          {"fira_rms", &low}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct pair *q = pair_open(cases[k].rule, cases[k].h, 2, 7, 5, 0);
        draw(q->p, q->n, 5, 1.0);
        take_over(q);
        float before[35];
        memcpy(before, q->p, sizeof before);
        for (int64_t t = 1; t <= 3; t++) {
            assert_int_equal(step_float(q, t), QM_OK);
            assert_int_equal(step_double(q, t), QM_OK);
        }
        for (int i = 0; i < 35; i++) {
            assert_true(q->p[i] == before[i]);
            assert_true(q->p64[i] == (double)before[i]);
        }
        free(q);
    }
}

/* Of gradients of 1e-12 the paper's form makes full steps; PyTorch's clamps V at eps1^2, so that U
 * is g / eps1. */
static void tiny_gradients(void **state)
{
    (void)state;
    struct qm_hyper h = plain(1e-2);
    h.beta1 = 0.0;
    for (int torch = 0; torch < 2; torch++) {
        h.eps1 = torch ? 0x1p-23 : 1e-30;
        struct pair *q = pair_open(torch ? "adafactor_torch" : "adafactor", &h, 2, 4, 4, 0);
        for (int i = 0; i < 16; i++) {
            q->g[i] = 1e-12f;
            q->p[i] = 1.0f;
        }
        take_over(q);
        assert_int_equal(step_double(q, 1), QM_OK);
        near_to(1.0 - q->p64[3], torch ? 1e-2 * 1e-12 / 0x1p-23 : 1e-2, 1e-5);
        free(q);
    }
}

/* ---- CAME ------------------------------------------------------------------------------------ */

/* A gradient of one magnitude has factors of rank 1 and, clipped, u = sign(g): then
 *   m_t = 1 - beta1^t,  R_t = sum_k (1 - beta3) beta3^(t-k) beta1^(2k),  step = m_t / sqrt(R_t),
 * 0.1 / (0.9 sqrt(1e-4)) = 11.11 at first, 48.5 at step 59: R is not corrected for its start. */
static void came_amplifies(void **state)
{
    (void)state;
    static const struct {
        int t;
        double step;
    } published[] = {{1, 11.1}, {2, 15.7}, {3, 19.2}, {10, 33.7}, {59, 48.5}};
    struct qm_hyper h = came_hyper(1.0);
    struct pair *q = pair_open("came", &h, 2, 8, 8, 0);
    double r = 0.0, seen[60];
    for (int i = 0; i < 64; i++)
        q->g[i] = i % 3 ? 0.5f : -0.5f;
    for (int t = 1; t <= 59; t++) {
        r = 0.9999 * r + (1.0 - 0.9999) * pow(0.9, 2 * t);
        double before = q->p64[1];
        assert_int_equal(step_double(q, t), QM_OK);
        assert_int_equal(step_float(q, t), QM_OK);
        seen[t] = before - q->p64[1];
        near_to(seen[t], (1.0 - pow(0.9, t)) / sqrt(r), 1e-9);
    }
    for (size_t k = 0; k < sizeof published / sizeof *published; k++)
        assert_true(fabs(seen[published[k].t] - published[k].step) < 0.051);
    near_to(seen[1], 100.0 / 9.0, 1e-9);
    free(q);
}

/* The same on fresh Gaussian gradients of 64 x 64. */
static void came_on_noise(void **state)
{
    (void)state;
    static const double published[] = {11.1113, 10.4, 10.0, 9.5, 9.0, 8.6, 8.3};
    struct qm_hyper h = came_hyper(1.0);
    struct pair *q = pair_open("came", &h, 2, 64, 64, 0);
    double before[ROOM];
    for (int t = 1; t <= 7; t++) {
        draw(q->g, q->n, 40 + (uint64_t)t, 1.0);
        memcpy(before, q->p64, sizeof before);
        assert_int_equal(step_double(q, t), QM_OK);
        for (int i = 0; i < ROOM; i++)
            before[i] -= q->p64[i];
        /* another draw of 4096 normals, and figures of two digits */
        near_to(norm(before, ROOM) / 64.0, published[t - 1], t == 1 ? 1e-3 : 2e-2);
    }
    free(q);
}

/* beta1 = 0: m = u and q = eps2 exactly, the step is u / sqrt((1 - beta3^t) eps2). */
static void came_without_momentum(void **state)
{
    (void)state;
    struct qm_hyper h = came_hyper(1.0);
    h.beta1 = 0.0;
    struct pair *q = pair_open("came", &h, 2, 8, 8, 0);
    for (int t = 1; t <= 5; t++) {
        draw(q->g, q->n, 7, 1.0);
        memset(q->p64, 0, sizeof q->p64);
        memset(q->p, 0, sizeof q->p);
        assert_int_equal(step_double(q, t), QM_OK);
        assert_int_equal(step_float(q, t), QM_OK);
        for (int i = 0; i < 64; i++)
            near_to(-q->p64[i], q->slot64[0][i] / sqrt((1.0 - pow(0.9999, t)) * 1e-16), 1e-9);
        assert_close("parameter", t, q->p, q->p64, q->n, 0.0);
    }
    free(q);
}

/* A zero first gradient leaves R at (1 - beta3) eps2; the next step is large and finite. */
static void came_after_zero(void **state)
{
    (void)state;
    struct qm_hyper h = came_hyper(1.0);
    struct pair *q = pair_open("came", &h, 2, 12, 9, 0);
    assert_int_equal(step_double(q, 1), QM_OK);
    near_to(q->slot64[4][0], 1e-20, 1e-9);
    take_over(q);
    draw(q->g, q->n, 8, 1.0);
    assert_int_equal(step_float(q, 2), QM_OK);
    assert_int_equal(step_double(q, 2), QM_OK);
    assert_true(isfinite(largest(q->p64, q->n)) && largest(q->p64, q->n) > 8.0);
    for (int64_t i = 0; i < q->n; i++)
        assert_true(isfinite((double)q->p[i]));
    free(q);
}

/* A vector has no confidence stage: the step is m. */
static void came_of_vectors(void **state)
{
    (void)state;
    struct qm_hyper h = came_hyper(0.5);
    struct pair *q = pair_open("came", &h, 1, 20, 0, 0);
    draw(q->g, q->n, 9, 1.0);
    assert_int_equal(step_double(q, 1), QM_OK);
    for (int i = 0; i < 20; i++)
        near_to(q->p64[i], -0.5 * q->slot64[0][i], 1e-15);
    assert_int_equal(q->slot_n[1] + q->slot_n[2] + q->slot_n[4] + q->slot_n[5], 0);
    free(q);
}

/* A bfloat16 parameter is rounded after the decay and after the step. */
static void came_rounds_twice(void **state)
{
    (void)state;
    struct qm_recipe r;
    struct qm_shape shape = {1, {1}};
    void *plan;
    uint16_t p = qm_float_to_bf16(1.0f), g = qm_float_to_bf16(1.0f);
    struct qm_tensor pt = {&p, QM_DTYPE_bf16, shape}, gt = {&g, QM_DTYPE_bf16, shape};
    /* 1 decays by 0.003 to 0.997, stored 0.99609375; less lr m = 0.002 that is 0.99409375, stored
     * 0.9921875.  Rounded once, 0.997 - 0.002 would be stored as 0.99609375. */
    assert_int_equal(qm_recipe_parse("came_f32,param=bf16/near,grad=bf16,lr=0.02,weight_decay=0.15,"
                                     "beta2=0",
                                     &r),
                     QM_OK);
    assert_int_equal(qm_backend_cpu.open(&r, &shape, 0, &plan), QM_OK);
    assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, 1, 0), QM_OK);
    assert_true(qm_bf16_to_float(p) == 0.9921875f);
    qm_backend_cpu.close(plan);
}

/* ---- the limiter ----------------------------------------------------------------------------- */

/* One step of U = 0 leaves prev = 0; from there the norm is let grow by 1.01 (prev + 1e-8):
 * 1.01e-8, 2.0301e-8, ... and 1388 steps to 1, 1730 to 30: ln(1 + |U| / 1.01e-6) / ln 1.01. */
static void limiter_latches(void **state)
{
    (void)state;
    static const struct {
        double norm;
        int steps;
    } cases[] = {{1.0, 1388}, {30.0, 1730}};
    for (size_t k = 0; k < 2; k++) {
        double prev = 1.0, x = 0.0;
        float kept = 1.0f;
        int steps = 0;
        qm_project_limit(&x, 1, 0.01, 1, &prev);
        assert_true(prev == 0.0);
        do {
            x = cases[k].norm;
            qm_project_limit(&x, 1, 0.01, 2, &prev);
            if (++steps <= 2)
                near_to(x, steps == 1 ? 1.01e-8 : 2.0301e-8, 1e-12);
        } while (x < cases[k].norm && steps < 5000);
        assert_int_equal(steps, cases[k].steps);
        assert_int_equal(steps, ceil(log1p(cases[k].norm / 1.01e-6) / log(1.01)));

        float y = 0.0f;
        qm_limit_growth(&y, 1, 0.01, 1, &kept);
        assert_true(kept == 0.0f);
        for (int i = 1; i <= 3000; i++) {
            y = (float)cases[k].norm;
            qm_limit_growth(&y, 1, 0.01, 2, &kept);
            if (i <
                cases[k].steps - 5) /* each step errs by some roundings, the sum over all counts */
                assert_true(y < (float)cases[k].norm);
            if (i > cases[k].steps + 5)
                assert_true(y == (float)cases[k].norm && kept == y);
        }
    }
}

/* In one line: x min(1, gamma (prev + 1e-8) / |x|); what is kept is the limited norm. */
static void limiter_formula(void **state)
{
    (void)state;
    for (int k = 0; k < 200; k++) {
        double x[8], before[8], prev = exp(3.0 * normal(21, k)), old = prev;
        float y[8], kept = (float)prev;
        for (int i = 0; i < 8; i++) {
            x[i] = before[i] = normal(22, 8 * k + i);
            y[i] = (float)x[i];
        }
        qm_project_limit(x, 8, 0.01, 2 + k, &prev);
        qm_limit_growth(y, 8, 0.01, 2 + k, &kept);
        double factor = fmin(1.0, 1.01 * (old + 1e-8) / norm(before, 8));
        for (int i = 0; i < 8; i++) {
            near_to(x[i], before[i] * factor, 1e-14);
            near_to((double)y[i], before[i] * factor, 1e-6);
        }
        near_to(prev, norm(x, 8), 1e-14);
        near_to((double)kept, prev, 1e-6);
    }
}

/* The latch in a whole step: APOLLO and Fira after one all-zero gradient. */
static void limiter_in_a_step(void **state)
{
    (void)state;
    static const char *const rules[] = {"apollo", "fira"};
    for (int k = 0; k < 2; k++) {
        struct qm_hyper h = lowrank_hyper(2, 1.0);
        struct pair *q = pair_open(rules[k], &h, 2, 8, 6, 0);
        double prev = 0.0;
        for (int64_t t = 1; t <= 12; t++) {
            draw(q->g, q->n, 60 + (uint64_t)t, t == 1 ? 0.0 : 1.0);
            assert_int_equal(step_float(q, t), QM_OK);
            assert_int_equal(step_double(q, t), QM_OK);
            prev = t == 1 ? 0.0 : 1.01 * (prev + 1e-8);
            near_to(q->slot64[3][0], prev, 1e-12);
            near_to((double)q->slot[3][0], prev, 1e-5);
        }
        free(q);
    }
}

/* Off, Fira steps as with a margin that is never reached, to the bit, and keeps no norm. */
static void limiter_off(void **state)
{
    (void)state;
    struct pair *q[3];
    for (int k = 0; k < 3; k++) {
        struct qm_hyper h = lowrank_hyper(2, 0.25);
        h.limiter = k != 1;
        h.margin = k == 2 ? 1e30 : 0.01;
        q[k] = pair_open("fira", &h, 2, 8, 6, 0);
        assert_int_equal(q[k]->slot_n[3], k != 1);
    }
    for (int64_t t = 1; t <= 12; t++)
        for (int k = 0; k < 3; k++) {
            draw(q[k]->g, q[k]->n, 60 + (uint64_t)t, t == 1 ? 0.0 : 1.0);
            assert_int_equal(step_float(q[k], t), QM_OK);
        }
    assert_memory_equal(q[1]->p, q[2]->p, sizeof(float) * 48);
    assert_memory_not_equal(q[1]->p, q[0]->p, sizeof(float) * 48);
    for (int k = 0; k < 3; k++)
        free(q[k]);
}

/* ---- projections ----------------------------------------------------------------------------- */

/* The generator's published words, and the chain of seeds recorded from the public code. */
static void seeds(void **state)
{
    (void)state;
    static const uint64_t chain[3][5] = {
        {1, 505211975917066638u, 7574884091489552460u, 430731051963529425u, 8673971657109261924u},
        {2, 3402314949991714867u, 9110370213325666520u, 9086233296041500609u, 0},
        {3, 3251329097462014787u, 4382609644022153958u, 5668474022095656923u, 0}};
    struct qm_mt19937 r;
    uint32_t word = 0;
    qm_mt_seed(&r, 5489);
    for (int i = 0; i < 10000; i++) {
        word = qm_mt_next(&r);
        if (i == 0)
            assert_true(word == 3499211612u);
    }
    assert_true(word == 4123659995u); /* ISO C++ 2011, 26.5.5 */
    for (int p = 0; p < 3; p++)
        for (int k = 0; k < 5 && chain[p][k]; k++)
            assert_true(qm_lowrank_seed((uint64_t)p + 1, k) == chain[p][k]);
}

/* Rule and oracle draw the same bits: 16 and more, no multiple of 16, less than 16; both sides. */
static void random_matrices(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{24, 10, 4}, {16, 16, 5}, {8, 28, 1},
                                       {7, 7, 2},   {40, 3, 3},  {1, 9, 1}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int side = 2; side < 4; side++)
            for (uint32_t tensor = 0; tensor < 3; tensor++) {
                struct qm_hyper h = lowrank_hyper((double)sizes[k][2], 1.0);
                h.tensor_scale = 1;
                h.side = side;
                struct pair *q = pair_open("apollo", &h, 2, sizes[k][0], sizes[k][1], 0);
                q->tensor = tensor;
                draw(q->g, q->n, 70, 1.0);
                assert_int_equal(step_float(q, 11), QM_OK); /* the third matrix */
                assert_int_equal(step_double(q, 11), QM_OK);
                for (int64_t i = 0; i < q->slot_n[2]; i++)
                    assert_true((double)q->slot[2][i] == q->slot64[2][i]);
                free(q);
            }
    static float many[100000];
    double sum = 0.0, squares = 0.0;
    qm_lowrank_random(12345, 100000, 4, many);
    for (int i = 0; i < 100000; i++) {
        sum += (double)many[i];
        squares += (double)many[i] * (double)many[i];
    }
    assert_true(fabs(sum / 1e5) < 4.0 * 0.5 / sqrt(1e5)); /* four standard errors */
    assert_true(fabs(squares / 1e5 - 0.25) < 4.0 * 0.25 * sqrt(2.0 / 1e5));
}

/* Moments go on through a new projection; without a gap the given one stays. */
static void refresh(void **state)
{
    (void)state;
    struct qm_hyper h = lowrank_hyper(3, 1.0);
    struct pair *q = pair_open("apollo", &h, 2, 9, 7, 0);
    float proj[21], avg[27];
    for (int64_t t = 1; t <= 6; t++) {
        draw(q->g, q->n, 80 + (uint64_t)t, 1.0);
        memcpy(proj, q->slot[2], sizeof proj);
        memcpy(avg, q->slot[0], sizeof avg);
        assert_int_equal(step_float(q, t), QM_OK);
        assert_int_equal(memcmp(proj, q->slot[2], sizeof proj) != 0, t == 1 || t == 6);
    }
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < 3; k++) {
            double low = 0.0, old = (double)avg[i * 3 + k];
            for (int j = 0; j < 7; j++)
                low += (double)q->g[i * 7 + j] * (double)q->slot[2][k * 7 + j];
            double want = 0.9 * old + 0.1 * low;
            assert_true(fabs((double)q->slot[0][i * 3 + k] - want) < 1e-6);
        }
    q->h.gap = 0;
    memcpy(proj, q->slot[2], sizeof proj);
    assert_int_equal(step_float(q, 11), QM_OK);
    assert_memory_equal(proj, q->slot[2], sizeof proj);
    free(q);
}

/* Orthonormal to float rounding; the directions of a matrix with known singular vectors; the whole
 * basis where G is zero; oracle and rule agree up to rounding over the gap. */
static void singular_vectors(void **state)
{
    (void)state;
    for (int side = 2; side < 4; side++) {
        struct qm_hyper h = lowrank_hyper(4, 1.0);
        h.side = side;
        struct pair *q = pair_open("fira", &h, 2, 9, 7, 0);
        int64_t k = side == 2 ? 7 : 9;
        draw(q->g, q->n, 90, 1.0);
        assert_int_equal(step_float(q, 1), QM_OK);
        assert_int_equal(step_double(q, 1), QM_OK);
        for (int64_t i = 0; i < q->slot_n[2]; i++)
            assert_true(fabs((double)q->slot[2][i] - q->slot64[2][i]) <= 0x1p-23);
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++) {
                double dot = 0.0;
                for (int64_t i = 0; i < k; i++)
                    dot += side == 2 ? q->slot64[2][a * 7 + i] * q->slot64[2][b * 7 + i]
                                     : q->slot64[2][i * 4 + a] * q->slot64[2][i * 4 + b];
                assert_true(fabs(dot - (a == b)) < 5e-7);
            }
        struct qm_lowrank l;
        assert_true(qm_lowrank_of(&h, 1, &q->shape, &l));
        float p[36], zero[63] = {0.0f}, known[63] = {0.0f};
        assert_int_equal(qm_lowrank_svd(&l, zero, p), QM_OK);
        for (int a = 0; a < 4; a++)
            assert_true(p[side == 2 ? a * 7 + a : a * 4 + a] == 1.0f);
        known[0 * 7 + 5] = 1.0f; /* singular values 4, 2, 1 at (3,0), (8,2), (0,5) */
        known[3 * 7 + 0] = -4.0f;
        known[8 * 7 + 2] = 2.0f;
        assert_int_equal(qm_lowrank_svd(&l, known, p), QM_OK);
        static const int right[3] = {0, 2, 5}, left[3] = {3, 8, 0};
        for (int a = 0; a < 3; a++)
            assert_true((side == 2 ? p[a * 7 + right[a]] : p[left[a] * 4 + a]) == 1.0f);
        free(q);
    }
}

/* At full rank P P^T is 1: with alpha = 1 nothing is left, with 1/4 three quarters of G. */
static void fira_keeps_the_rest(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct qm_hyper h = lowrank_hyper(6, k ? 0.25 : 1.0);
        struct pair *q = pair_open("fira", &h, 2, 9, 6, 0);
        draw(q->g, q->n, 95, 1.0);
        assert_int_equal(step_double(q, 1), QM_OK);
        double sum = 0.0;
        for (int i = 0; i < 9; i++) {
            double g = 0.0, r = 0.0, low = 0.0;
            for (int j = 0; j < 6; j++) {
                double m = q->slot64[0][i * 6 + j], v = q->slot64[1][i * 6 + j];
                g += q->g64[i * 6 + j] * q->g64[i * 6 + j];
                r += pow(m / (sqrt(v) + 1e-6), 2.0);
                low += pow(m / 0.1, 2.0);
            }
            sum += g * r / pow(sqrt(low) + 1e-8, 2.0);
        }
        double want = (k ? 0.75 : 0.0) * sqrt(sum);
        assert_true(fabs(q->slot64[3][0] - want) < 1e-5 * (1.0 + want));
        free(q);
    }
}

/* A side that does not fit the channels is refused, as the source raises; rank 1 and one scale a
 * tensor fit everything; neither more nor less than two dims are projected. */
static void sides(void **state)
{
    (void)state;
    struct qm_hyper h = lowrank_hyper(3, 1.0);
    h.side = 1;
    struct pair *q = pair_open("apollo", &h, 2, 9, 7, 0);
    draw(q->g, q->n, 96, 1.0);
    assert_int_equal(step_float(q, 1), QM_BAD_ARG);
    assert_int_equal(step_double(q, 1), QM_BAD_ARG);
    q->h.tensor_scale = q->oh.tensor_scale = 1;
    assert_int_equal(step_float(q, 1), QM_OK);
    assert_int_equal(step_double(q, 1), QM_OK);
    free(q);
    h.rank = 1;
    follow("apollo", &h, 2, 9, 7, 0);
    follow("fira", &h, 2, 9, 7, 0);
    struct qm_lowrank l;
    struct qm_shape vector = {1, {8}}, batch = {3, {2, 4, 4}}, square = {2, {8, 8}};
    assert_false(qm_lowrank_of(&h, 0, &vector, &l));
    assert_false(qm_lowrank_of(&h, 0, &batch, &l));
    h.rank = 0.25;
    assert_true(qm_lowrank_of(&h, 0, &square, &l) && l.r == 2);
    static const char *const bad[] = {"apollo_f32,rank=1e300", "apollo_f32,rank=-1",
                                      "fira_f32,gap=-1", "apollo_f32,side=4"};
    struct qm_recipe r;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_int_equal(qm_recipe_parse(bad[k], &r), QM_BAD_ARG);
    h.rank = 1e300;
    assert_true(qm_lowrank_of(&h, 0, &square, &l) && l.r == 1 << 20);
    h.rank = 12;
    assert_true(qm_lowrank_of(&h, 0, &square, &l) && l.r == 12);
    assert_true(qm_lowrank_of(&h, 1, &square, &l) && l.r == 8);
}

/* ---- Lion ------------------------------------------------------------------------------------ */

static void lion(void **state)
{
    (void)state;
    struct qm_hyper h = plain(1e-2);
    h.beta2 = 0.99;
    h.weight_decay = 0.1;
    struct pair *q = pair_open("lion", &h, 1, 5, 0, 0);
    const float g[5] = {3.0f, -1e-30f, 0.0f, -0.0f, NAN};
    for (int i = 0; i < 5; i++) {
        q->g[i] = g[i];
        q->p[i] = 1.0f;
    }
    take_over(q);
    assert_int_equal(step_float(q, 1), QM_OK);
    assert_int_equal(step_double(q, 1), QM_OK);
    static const double step[5] = {1e-2, -1e-2, 0.0, 0.0, 0.0}; /* sign(0) = sign(NaN) = 0 */
    for (int i = 0; i < 5; i++) {
        near_to(q->p64[i], 0.999 - step[i], 1e-15);
        near_to((double)q->p[i], 0.999 - step[i], 2e-7);
        if (i < 4)
            near_to((double)q->slot[0][i], 0.01 * (double)g[i], 2e-7);
    }
    assert_true(isnan((double)q->slot[0][4]) && isnan(q->slot64[0][4]));
    free(q);
}

/* Signs disagree only where the interpolation is within its rounding of 0; else steps are equal. */
static void lion_signs(void **state)
{
    (void)state;
    struct qm_hyper h = plain(1e-2);
    h.beta2 = 0.99;
    struct pair *q = pair_open("lion", &h, 1, ROOM, 0, 0);
    for (int64_t t = 1; t <= 50; t++) {
        draw(q->g, q->n, 300 + (uint64_t)t, 1.0);
        take_over(q);
        assert_int_equal(step_float(q, t), QM_OK);
        assert_int_equal(step_double(q, t), QM_OK);
        for (int i = 0; i < ROOM; i++) {
            double m = (q->slot64[0][i] - (1.0 - 0.99) * (double)q->g[i]) / 0.99;
            double u = 0.9 * m + (1.0 - 0.9) * (double)q->g[i];
            double bound = 4.0 * 0x1p-24 * (fabs(0.9 * m) + fabs(0.1 * (double)q->g[i]));
            if (fabs(u) > bound)
                assert_true(fabs((double)q->p[i] - q->p64[i]) <= 1e-6);
        }
    }
    free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adafactor_follows),
        cmocka_unit_test(came_follows),
        cmocka_unit_test(lowrank_follows),
        cmocka_unit_test(adafactor_starts_fresh),
        cmocka_unit_test(adafactor_of_rank_one),
        cmocka_unit_test(zero_gradients_are_finite),
        cmocka_unit_test(tiny_gradients),
        cmocka_unit_test(came_amplifies),
        cmocka_unit_test(came_on_noise),
        cmocka_unit_test(came_without_momentum),
        cmocka_unit_test(came_after_zero),
        cmocka_unit_test(came_of_vectors),
        cmocka_unit_test(came_rounds_twice),
        cmocka_unit_test(limiter_latches),
        cmocka_unit_test(limiter_formula),
        cmocka_unit_test(limiter_in_a_step),
        cmocka_unit_test(limiter_off),
        cmocka_unit_test(seeds),
        cmocka_unit_test(random_matrices),
        cmocka_unit_test(refresh),
        cmocka_unit_test(singular_vectors),
        cmocka_unit_test(fira_keeps_the_rest),
        cmocka_unit_test(sides),
        cmocka_unit_test(lion),
        cmocka_unit_test(lion_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
