/* test_lowrank_rules.c - Tests APOLLO and Fira: float rules against the oracles, the norm-growth
 * limiter and the projections. */
#include "core/base/mt19937.h"
#include "core/rule/lowrank.h"
#include "oracle/rule/projection.h"
#include "tests/support/expect_near.h"
#include "tests/support/rule_pair.h"

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

/* ---- the limiter ----------------------------------------------------------------------------- */

/* A first step with U = 0 leaves prev = 0.  Afterwards the norm is at most 1.01 (prev + 1e-8),
 * which gives 1.01e-8, 2.0301e-8, ...  It reaches |U| after ln(1 + |U| / 1.01e-6) / ln 1.01
 * steps, rounded up: 1388 steps to 1, 1730 steps to 30. */
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
                expect_near(x, steps == 1 ? 1.01e-8 : 2.0301e-8, 1e-12);
        } while (x < cases[k].norm && steps < 5000);
        assert_int_equal(steps, cases[k].steps);
        assert_int_equal(steps, ceil(log1p(cases[k].norm / 1.01e-6) / log(1.01)));

        float y = 0.0f;
        qm_limit_growth(&y, 1, 0.01, 1, &kept);
        assert_true(kept == 0.0f);
        for (int i = 1; i <= 3000; i++) {
            y = (float)cases[k].norm;
            qm_limit_growth(&y, 1, 0.01, 2, &kept);
            /* The roundings of all steps add up: 5 steps of tolerance. */
            if (i < cases[k].steps - 5)
                assert_true(y < (float)cases[k].norm);
            if (i > cases[k].steps + 5)
                assert_true(y == (float)cases[k].norm && kept == y);
        }
    }
}

/* The limiter gives x min(1, (1 + margin) (prev + 1e-8) / |x|), and prev becomes the
 * limited norm. */
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
            expect_near(x[i], before[i] * factor, 1e-14);
            expect_near((double)y[i], before[i] * factor, 1e-6);
        }
        expect_near(prev, norm(x, 8), 1e-14);
        expect_near((double)kept, prev, 1e-6);
    }
}

/* After a zero first gradient the norms of APOLLO's and Fira's steps grow as in limiter_latches. */
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
            expect_near(q->slot64[3][0], prev, 1e-12);
            expect_near((double)q->slot[3][0], prev, 1e-5);
        }
        free(q);
    }
}

/* Without the limiter Fira's steps equal, to the bit, the steps with a margin that is never
 * reached, and no norm is stored. */
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

/* The Mersenne Twister gives its published words, and the seeds of the projections are the chain
 * that was recorded from the public code. */
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

/* Rule and oracle draw the same bits for right and left projections.  The numbers of entries are
 * multiples of 16, other numbers above 16, and numbers below 16. */
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

/* The moments continue unchanged when the projection is replaced; with gap 0 the given
 * projection stays. */
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

/* The vectors are orthonormal up to float rounding.  They are the known ones of a matrix with
 * known singular vectors, and the standard basis where G is zero.  Oracle and rule agree up to
 * rounding over the gap between singular values. */
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

/* At full rank P^T P = I: the residual that Fira adds is 0 for alpha = 1 and 3/4 of G for
 * alpha = 1/4. */
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

/* A side that does not fit the channels is refused; the source raises an error there.  Rank 1
 * and one scale per tensor fit every side.  Only tensors of two dimensions are projected. */
static void side_must_fit(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowrank_follows),  cmocka_unit_test(limiter_latches),
        cmocka_unit_test(limiter_formula),  cmocka_unit_test(limiter_in_a_step),
        cmocka_unit_test(limiter_off),      cmocka_unit_test(seeds),
        cmocka_unit_test(random_matrices),  cmocka_unit_test(refresh),
        cmocka_unit_test(singular_vectors), cmocka_unit_test(fira_keeps_the_rest),
        cmocka_unit_test(side_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
