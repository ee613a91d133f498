/* test_oracle_bnb.c - Tests the oracles of bitsandbytes' optimizers on closed forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "oracle/oracle.h"

enum { N = 3, T = 20 };

/* The start of every test: parameters of different sign and size, a constant gradient. */
struct case3 {
    double p[N], g[N], s0[N], s1[N], s2[N];
    double *slot[3];
};

static void start(struct case3 *c)
{
    *c = (struct case3){.p = {0.5, -2.0, 1.5}, .g = {0.25, -0.5, 2.0}};
    c->slot[0] = c->s0;
    c->slot[1] = c->s1;
    c->slot[2] = c->s2;
}

static void run(const char *family, const struct qm_oracle_hyper *h, int steps, struct case3 *c)
{
    const struct qm_oracle *o = qm_oracle_find(family);
    assert_non_null(o);
    for (int t = 1; t <= steps; t++)
        o->step(c->p, c->slot, c->g, 1, N, h, t);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-13 * (1.0 + fabs(want))))
        fail_msg("got %.17g, want %.17g", got, want);
}

/* b_t = g (1 - mu^t) / (1 - mu); gnorm_scale is a factor on g. */
static void test_momentum(void **state)
{
    struct qm_oracle_hyper h = {.lr = 0.1, .momentum = 0.9, .gnorm_scale = 0.5};
    struct case3 c, d;
    (void)state;
    start(&c);
    run("momentum", &h, T, &c);
    for (int i = 0; i < N; i++)
        near(c.s0[i], 0.5 * c.g[i] * (1.0 - pow(0.9, T)) / 0.1);
    start(&c), start(&d);
    h = (struct qm_oracle_hyper){
        .lr = 0.1, .momentum = 0.9, .weight_decay = 0.3, .gnorm_scale = 1.0};
    run("momentum", &h, T, &c);
    run("sgdm", &h, T, &d); /* sgdm without dampening */
    for (int i = 0; i < N; i++)
        near(c.p[i], d.p[i]);
}

/* RMSprop has v_t = (1 - beta2^t) g^2, Adagrad v_t = t g^2; the steps follow. */
static void test_squares(void **state)
{
    struct qm_oracle_hyper h = {.lr = 0.1, .beta2 = 0.9, .eps = 1e-3, .gnorm_scale = 1.0};
    struct case3 c;
    double sum = 0.0;
    (void)state;
    start(&c);
    run("rmsprop", &h, T, &c);
    for (int i = 0; i < N; i++)
        near(c.s0[i], (1.0 - pow(0.9, T)) * c.g[i] * c.g[i]);
    h.eps = 0.0;
    start(&c);
    run("adagrad", &h, T, &c);
    for (int t = 1; t <= T; t++)
        sum += 0.1 / sqrt(t);
    near(c.s0[2], T * 4.0);
    near(c.p[2], 1.5 - sum);
}

/* Raw families: gamma g + lambda theta enters the state, g alone the numerator. */
static void test_raw(void **state)
{
    static const char *const names[2] = {"rmsprop_raw", "adagrad_raw"};
    struct qm_oracle_hyper h = {
        .lr = 0.1, .beta2 = 0.75, .eps = 0.5, .weight_decay = 0.5, .gnorm_scale = 0.5};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct case3 c;
        start(&c);
        run(names[k], &h, 1, &c);
        double d = 0.5 * 2.0 + 0.5 * 1.5, v = (k ? 1.0 : 0.25) * d * d;
        near(c.s0[2], v);
        near(c.p[2], 1.5 - 0.1 * 2.0 / (sqrt(v) + 0.5));
    }
}

/* Decay after the step multiplies the new parameter; without decay the family is AdamW; a NaN
 * gradient leaves the parameter and clears the moments. */
static void test_after(void **state)
{
    static const char *const pairs[2][2] = {{"adamw", "adamw_after"},
                                            {"ademamix", "ademamix_after"}};
    struct qm_oracle_hyper h = {.lr = 0.1,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .beta3 = 0.999,
                                .alpha = 5.0,
                                .eps = 1e-8,
                                .gnorm_scale = 1.0};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct case3 c, d;
        h.weight_decay = 0.0;
        start(&c), start(&d);
        run(pairs[k][0], &h, T, &c);
        run(pairs[k][1], &h, T, &d);
        for (int i = 0; i < N; i++)
            near(d.p[i], c.p[i]);
        start(&c), start(&d);
        run(pairs[k][0], &h, 1, &c);
        h.weight_decay = 2.0;
        run(pairs[k][1], &h, 1, &d);
        for (int i = 0; i < N; i++)
            near(d.p[i], (1.0 - 0.1 * 2.0) * c.p[i]);
        d.g[1] = (double)NAN;
        double kept = d.p[1];
        run(pairs[k][1], &h, 1, &d);
        assert_true(d.p[1] == kept && d.s0[1] == 0.0 && d.s1[1] == 0.0);
        assert_true(isfinite(d.p[0]) && d.s0[0] != 0.0);
    }
}

/* Without the slow moment AdEMAMix is AdamW; m2 = (1 - beta3^t) g.  The schedules end at alpha and
 * beta3; the half-life ln 2 / -ln beta3 grows linearly in t from that of beta1. */
static void test_ademamix(void **state)
{
    struct qm_oracle_hyper h = {.lr = 0.1,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .beta3 = 0.999,
                                .eps = 1e-8,
                                .weight_decay = 0.1,
                                .gnorm_scale = 1.0};
    struct case3 c, d;
    (void)state;
    start(&c), start(&d);
    run("adamw", &h, T, &c);
    run("ademamix", &h, T, &d);
    for (int i = 0; i < N; i++) {
        near(d.p[i], c.p[i]);
        near(d.s1[i], (1.0 - pow(0.999, T)) * c.g[i]);
    }
    h.t_beta3 = 4.0;
    start(&d);
    run("ademamix", &h, 1, &d); /* 1 / -ln beta3 has grown by a quarter of its total growth */
    double start_life = -1.0 / log(0.9), end_life = -1.0 / log(0.999);
    double beta3 = exp(-1.0 / (start_life + 0.25 * (end_life - start_life)));
    near(d.s1[2], (1.0 - beta3) * d.g[2]);
    h.t_beta3 = 1.0;
    h.t_alpha = 2.0;
    h.alpha = 5.0;
    h.eps = h.weight_decay = 0.0;
    start(&d);
    run("ademamix", &h, 1, &d); /* beta3 and half of alpha */
    near(d.s1[2], (1.0 - 0.999) * 2.0);
    near(d.p[2], 1.5 - 0.1 * (1.0 + 2.5 * 0.001));
}

/* Each step is lr sign(g); where the gradient is 0 only the decay (1 - lr lambda)^t remains. */
static void test_lion(void **state)
{
    struct qm_oracle_hyper h = {.lr = 0.125, .beta1 = 0.9, .beta2 = 0.99, .gnorm_scale = 1.0};
    struct case3 c;
    (void)state;
    start(&c);
    run("lion", &h, 4, &c);
    near(c.p[0], 0.5 - 0.5);
    near(c.p[1], -2.0 + 0.5);
    near(c.s0[2], (1.0 - pow(0.99, 4)) * 2.0);
    start(&c);
    c.g[0] = 0.0;
    h.weight_decay = 0.8;
    run("lion", &h, T, &c);
    near(c.p[0], 0.5 * pow(0.9, T));
}

static double length(const double *x) { return sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2]); }

/* Without max_unorm LAMB is AdamW and LARS is momentum.  With it, the length of the step is
 * lr max_unorm |theta| where the limited norm is the norm of the step; the two families of each
 * differ in the vector whose norm is limited. */
static void test_bounded(void **state)
{
    struct qm_oracle_hyper h = {.lr = 0.1,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .eps = 1e-8,
                                .momentum = 0.9,
                                .weight_decay = 0.1,
                                .gnorm_scale = 1.0};
    static const char *const pairs[4][2] = {
        {"lamb", "adamw"}, {"lamb_raw", "adamw"}, {"lars", "momentum"}, {"lars_bare", "momentum"}};
    struct case3 c, d;
    (void)state;
    for (int k = 0; k < 4; k++) {
        start(&c), start(&d);
        run(pairs[k][0], &h, T, &c);
        run(pairs[k][1], &h, T, &d);
        for (int i = 0; i < N; i++)
            near(c.p[i], d.p[i]);
    }
    h.max_unorm = 0.25;
    h.weight_decay = 0.0;
    h.eps = 0.0;
    double r_raw = (1.0 - 0.9) / sqrt(1.0 - 0.99); /* |w| of lamb_raw over that of lamb, t = 1 */
    const double factor[4] = {1.0, 1.0 / r_raw, 1.0, 1.0};
    for (int k = 0; k < 4; k++) {
        start(&c), start(&d);
        run(pairs[k][0], &h, 1, &c);
        for (int i = 0; i < N; i++)
            c.p[i] -= d.p[i];
        near(length(c.p), 0.1 * 0.25 * length(d.p) * (factor[k] < 1.0 ? factor[k] : 1.0));
    }
    h.weight_decay = 0.5; /* b = g + theta / 2; bare: g.  eps enters bare alone */
    h.eps = 0.125;
    for (int bare = 0; bare < 2; bare++) {
        double b[N];
        start(&c), start(&d);
        run(bare ? "lars_bare" : "lars", &h, 1, &c);
        for (int i = 0; i < N; i++)
            b[i] = d.g[i] + 0.5 * d.p[i];
        double most = 0.25 * length(d.p) + (bare ? 0.125 : 0.0);
        double r = most / (bare ? length(d.g) : length(b));
        assert_true(r < 1.0);
        for (int i = 0; i < N; i++)
            near(c.p[i], d.p[i] - 0.1 * r * b[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_momentum), cmocka_unit_test(test_squares),
        cmocka_unit_test(test_raw),      cmocka_unit_test(test_after),
        cmocka_unit_test(test_ademamix), cmocka_unit_test(test_lion),
        cmocka_unit_test(test_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
