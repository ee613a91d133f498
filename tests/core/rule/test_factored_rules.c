/* test_factored_rules.c - Tests Adafactor and CAME: oracles on closed forms and published figures,
 * float rules against the oracles, and the points where these methods are delicate. */
#include "tests/support/expect_near.h"
#include "tests/support/rule_pair.h"

/* ---- rules against oracles ------------------------------------------------------------------- */

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

/* ---- Adafactor ------------------------------------------------------------------------------- */

/* At t = 1 beta2 is 0: the factors become the current means, whatever they held before. */
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
            expect_near(q->slot64[0][i], mean, 1e-12);
            expect_near((double)q->slot[0][i], mean, 3e-7); /* five roundings of 2^-24 */
        }
        free(q);
    }
}

/* For g = a b^T the squared gradient has rank 1 and its factors are exact: U = sign(g) has an
 * RMS of 1, so every element moves by lr_t. */
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
            expect_near(0.25 - q->p64[i], 1e-2 * 0.25 * (q->g[i] > 0.0f ? 1.0 : -1.0), 1e-11);
        free(q);
    }
}

/* If the gradients are zero from the first step on, the parameter keeps every value. */
static void zero_gradients_are_finite(void **state)
{
    (void)state;
    struct qm_hyper h = plain(1e-2), came = came_hyper(1e-3), low = lowrank_hyper(3, 1.0);
    h.beta1 = 0.0;
    h.eps1 = 0x1p-23; /* PyTorch's default; its square must not underflow */
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

/* With gradients of 1e-12 the paper's form makes full steps.  PyTorch's form clamps V at eps1^2,
 * so U = g / eps1. */
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
        expect_near(1.0 - q->p64[3], torch ? 1e-2 * 1e-12 / 0x1p-23 : 1e-2, 1e-5);
        free(q);
    }
}

/* ---- CAME ------------------------------------------------------------------------------------ */

/* A gradient of constant magnitude has exact factors, and clipping makes u = sign(g).  Then
 *   m_t = 1 - beta1^t,  R_t = sum_k (1 - beta3) beta3^(t-k) beta1^(2k),  step = m_t / sqrt(R_t),
 * which is 0.1 / (0.9 sqrt(1e-4)) = 11.11 at step 1 and 48.5 at step 59: R is not
 * corrected for its bias. */
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
        expect_near(seen[t], (1.0 - pow(0.9, t)) / sqrt(r), 1e-9);
    }
    for (size_t k = 0; k < sizeof published / sizeof *published; k++)
        assert_true(fabs(seen[published[k].t] - published[k].step) < 0.051);
    expect_near(seen[1], 100.0 / 9.0, 1e-9);
    free(q);
}

/* The RMS of CAME's steps, with a new Gaussian gradient of 64 x 64 at every step. */
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
        /* The published run drew other normals, and most of its figures have two digits. */
        expect_near(norm(before, ROOM) / 64.0, published[t - 1], t == 1 ? 1e-3 : 2e-2);
    }
    free(q);
}

/* With beta1 = 0, m = u and q = eps2 exactly, so the step is u / sqrt((1 - beta3^t) eps2). */
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
            expect_near(-q->p64[i], q->slot64[0][i] / sqrt((1.0 - pow(0.9999, t)) * 1e-16), 1e-9);
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
    expect_near(q->slot64[4][0], 1e-20, 1e-9);
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
        expect_near(q->p64[i], -0.5 * q->slot64[0][i], 1e-15);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adafactor_follows),
        cmocka_unit_test(came_follows),
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
