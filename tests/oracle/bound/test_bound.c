/* test_bound.c - Tests that error bounds hold for every rule in its order, and are not
 * too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "core/rule/rule.h"
#include "oracle/bound/bound.h"
#include "oracle/bound/verdict.h"

enum { N = 20000 };

/* ---- elementwise rules ----------------------------------------------------------------------- */

static double wide(uint64_t stream, uint64_t i, double decades)
{
    uint32_t a = qm_philox_stream(77, stream, 2 * i), b = qm_philox_stream(77, stream, 2 * i + 1);
    double u = (double)a * 0x1p-32;
    return qm_round_float32((b & 1 ? -1.0 : 1.0) * pow(10.0, decades * (u - 0.5)));
}

static struct qm_oracle_hyper oracle_hyper(const struct qm_hyper *h)
{
    return (struct qm_oracle_hyper){
#define X(name, value, text) .name = h->name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
}

/* p, g and slots: before the step, wanted, bounds, and the float32 numbers of the rule. */
struct data {
    double p[N], g[N], want_p[N], e_p[N];
    double slot[QM_MAX_SLOTS][N], want[QM_MAX_SLOTS][N], e[QM_MAX_SLOTS][N];
    float x[2 + QM_MAX_SLOTS][N];
};

static void fill(struct data *d, const struct qm_rule *rule)
{
    for (uint64_t i = 0; i < N; i++) {
        double reach = i % 2 ? 2.0 : 16.0;
        d->p[i] = d->want_p[i] = wide(1, i, 4.0);
        d->g[i] = wide(2, i, reach);
        for (int k = 0; k < rule->n_slots; k++) {
            double x = wide(3 + (uint64_t)k, i, rule->slot_sign[k] ? reach : 2.0 * reach);
            d->slot[k][i] = d->want[k][i] = rule->slot_sign[k] ? x : fabs(x);
        }
    }
    for (int i = 0; i < N; i++) {
        d->x[0][i] = (float)d->p[i];
        d->x[1][i] = (float)d->g[i];
        for (int k = 0; k < rule->n_slots; k++)
            d->x[2 + k][i] = (float)d->slot[k][i];
    }
}

/* The largest ratio of an error to its bound, over the parameter and all slots. */
static double worst_of(const struct data *d, const struct qm_rule *rule, const char *what)
{
    double worst = 0.0;
    for (int s = -1; s < rule->n_slots; s++)
        for (int i = 0; i < N; i++) {
            double got = (double)(s < 0 ? d->x[0][i] : d->x[2 + s][i]);
            double want = s < 0 ? d->want_p[i] : d->want[s][i];
            double bound = s < 0 ? d->e_p[i] : d->e[s][i], off = fabs(got - want);
            if (!(off <= bound))
                fail_msg("%s, %s, %d: slot %d is %a, want %a within %g (p %a, g %a, before %a)",
                         rule->name, what, i, s, got, want, bound, d->p[i], d->g[i], d->slot[0][i]);
            if (bound > 0.0 && off / bound > worst)
                worst = off / bound;
        }
    return worst;
}

static double run(struct data *d, const struct qm_rule *rule, struct qm_hyper h, int64_t t)
{
    const struct qm_oracle *oracle = qm_oracle_find(rule->family);
    const struct qm_shape shape = {1, {N}};
    const double *old[QM_MAX_SLOTS];
    double *want[QM_MAX_SLOTS], *e[QM_MAX_SLOTS];
    float *slot[QM_MAX_SLOTS];
    char what[64];
    h.amsgrad = rule->n_slots == 3 && strcmp(rule->slot[2], "max_exp_avg_sq") == 0;
    struct qm_oracle_hyper oh = oracle_hyper(&h);
    fill(d, rule);
    for (int k = 0; k < QM_MAX_SLOTS; k++) {
        old[k] = d->slot[k];
        want[k] = d->want[k];
        e[k] = d->e[k];
        slot[k] = d->x[2 + k];
    }
    struct qm_bound_step b = {.h = &oh,
                              .t = t,
                              .n = N,
                              .order = rule->order,
                              .shape = &shape,
                              .p = d->p,
                              .g = d->g,
                              .slot = old,
                              .p_want = d->want_p,
                              .want = want,
                              .e_p = d->e_p,
                              .e_slot = e};
    struct qm_rule_step s;
    assert_int_equal(qm_oracle_step(oracle, d->want_p, want, d->g, &shape, 0, &oh, t), QM_OK);
    assert_int_equal(oracle->bound(&b), QM_OK);
    rule->prepare(&h, t, &s);
    s.hyper = &h;
    rule->elementwise->block(&s, N, d->x[0], d->x[1], slot);
    snprintf(what, sizeof what, "lr %g, t %lld", h.lr, (long long)t);
    return worst_of(d, rule, what);
}

static const struct qm_hyper hypers[] = {
    {.lr = 1e-3,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .beta3 = 0.9999,
     .alpha = 5.0,
     .eps = 1e-8,
     .weight_decay = 1e-2,
     .momentum = 0.9},
    {.lr = 0.3,
     .beta1 = 0.5,
     .beta2 = 0.95,
     .beta3 = 0.7,
     .alpha = 2.0,
     .t_alpha = 50.0,
     .t_beta3 = 50.0,
     .eps = 1e-3,
     .momentum = 0.5,
     .gnorm_scale = 1.0,
     .nesterov = 1},
    {.lr = 1e-2,
     .beta1 = 0.3,
     .beta2 = 0.0,
     .beta3 = 0.9,
     .alpha = 1.0,
     .eps = 1e-6,
     .weight_decay = 0.1,
     .momentum = 0.99,
     .dampening = 0.1,
     .gnorm_scale = 0.3,
     .maximize = 1},
};

/* Clears the hyper-parameters that the rules or the oracle of a family do not have. */
static void restrict_to(const char *family, struct qm_hyper *h)
{
    static const char *const no_sign[] = {"adamw_after", "ademamix",    "ademamix_after",
                                          "momentum",    "rmsprop",     "rmsprop_raw",
                                          "adagrad",     "adagrad_raw", "lion"};
    for (size_t i = 0; i < sizeof no_sign / sizeof *no_sign; i++)
        if (strcmp(family, no_sign[i]) == 0)
            h->maximize = 0;
    if (strcmp(family, "lion") == 0)
        h->gnorm_scale = 0.0;
}

/* Every elementwise rule, over magnitudes of many decades and several settings, stays within the
 * bound and reaches at least half of it. */
static void test_bounds_hold(void **state)
{
    static const int64_t steps[] = {1, 2, 100, 1000000};
    struct data *d = malloc(sizeof *d);
    int held = 0;
    (void)state;
    assert_non_null(d);
    for (int k = 0; k < qm_rule_count(); k++) {
        const struct qm_rule *rule = qm_rule_at(k);
        const struct qm_oracle *oracle = qm_oracle_find(rule->family);
        double worst = 0.0;
        if (!rule->elementwise || !oracle || !oracle->bound)
            continue;
        held++;
        for (int j = 0; j < 12; j++) {
            struct qm_hyper h = hypers[j % 3];
            restrict_to(rule->family, &h);
            worst = fmax(worst, run(d, rule, h, steps[j / 3]));
        }
        print_message("%-24s worst error / bound %.3f\n", rule->name, worst);
        assert_true(worst > 0.5);
    }
    free(d);
    assert_true(held >= 20);
}

/* ---- rules over whole tensors ---------------------------------------------------------------- */

enum { ROWS = 24, COLS = 40, MOST = ROWS * COLS };

static const struct {
    const char *family;
    struct qm_hyper h;
} whole[] = {
    {"adafactor",
     {.lr = 1e-2,
      .eps1 = 1e-30,
      .eps2 = 1e-3,
      .clip = 1.0,
      .beta2_decay = -0.8,
      .beta1 = 0.9,
      .factored = 1,
      .scale_parameter = 1,
      .weight_decay = 0.1}},
    {"adafactor_torch",
     {.lr = 1e-2,
      .eps1 = 0x1p-23,
      .eps2 = 1e-3,
      .clip = 1.0,
      .beta2_decay = -0.8,
      .factored = 1,
      .weight_decay = 0.1}},
    {"came",
     {.lr = 1e-3,
      .eps1 = 1e-30,
      .eps2 = 1e-16,
      .clip = 1.0,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .beta3 = 0.9999,
      .weight_decay = 0.1}},
    {"adamw_factor", {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .factored = 1}},
    {"adafactor8",
     {.lr = 1e-2,
      .beta1 = 0.9,
      .beta2 = -1.0,
      .beta2_decay = -0.8,
      .eps1 = 1e-8,
      .eps2 = 1e-3,
      .clip = 1.0,
      .factored = 1,
      .limiter = 1,
      .margin = 0.01,
      .relative_step = 1,
      .scale_parameter = 1}},
    {"adafactor8",
     {.lr = 1e-2,
      .beta1 = 0.9,
      .beta2 = 0.99,
      .beta3 = 0.999,
      .eps1 = 1e-8,
      .eps = 1e-16,
      .eps2 = 1e-3,
      .clip = 1.0,
      .factored = 1}},
    {"adafactor8_024",
     {.lr = 1e-2,
      .beta1 = 0.9,
      .beta2 = 0.99,
      .beta3 = 0.999,
      .eps1 = 1e-8,
      .eps2 = 1e-3,
      .clip = 1.0,
      .factored = 1}},
    {"adafactor8_046",
     {.lr = 1e-2,
      .beta1 = 0.9,
      .beta2 = 0.99,
      .beta3 = 0.999,
      .eps1 = 1e-30,
      .eps = 1e-16,
      .eps2 = 1e-3,
      .clip = 1.0,
      .factored = 1}},
    {"adafactor8_046", {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps1 = 1e-8, .correct_bias = 1}},
    {"adafactor8_046", {.lr = 1e-2, .beta1 = 0.9, .beta2 = -1.0, .eps1 = 1e-30, .clip = 1.0}},
    {"adafactor8_021",
     {.lr = 1e-2,
      .beta1 = 0.9,
      .beta2 = 0.99,
      .eps1 = 1e-8,
      .eps = 1e-8,
      .eps2 = 1e-3,
      .clip = 1.0,
      .rank = 4,
      .gap = 200,
      .scale = 2.0,
      .margin = 0.01}},
};

/* Where stored states are read back, the wanted parameter is the midpoint of a ball: given the
 * oracle's own new states as the stored ones it must be the oracle's parameter. */
static void test_midpoints_are_the_formula(void **state)
{
    const struct qm_shape shape = {2, {ROWS, COLS}};
    static double p[MOST], g[MOST], want_p[MOST], again_p[MOST], e_p[MOST], slots[4][8][MOST];
    (void)state;
    for (size_t k = 0; k < sizeof whole / sizeof *whole; k++) {
        const struct qm_oracle *oracle = qm_oracle_find(whole[k].family);
        struct qm_oracle_hyper h = oracle_hyper(&whole[k].h);
        double *want[8], *e[8], *fresh[8];
        const double *old[8], *stored[8];
        memset(slots, 0, sizeof slots);
        for (int i = 0; i < MOST; i++) {
            want_p[i] = again_p[i] = p[i] = wide(1, (uint64_t)i, 2.0);
            g[i] = wide(2, (uint64_t)i, 2.0);
        }
        for (int s = 0; s < 8; s++) {
            old[s] = slots[0][s];
            stored[s] = want[s] = slots[1][s];
            e[s] = slots[2][s];
            fresh[s] = slots[3][s];
        }
        assert_int_equal(oracle->whole(want_p, want, g, &shape, 1, &h, 1), QM_OK);
        memcpy(slots[3], slots[1], sizeof slots[3]);
        struct qm_bound_step b = {.h = &h,
                                  .t = 1,
                                  .n = MOST,
                                  .shape = &shape,
                                  .tensor = 1,
                                  .p = p,
                                  .g = g,
                                  .slot = old,
                                  .p_want = again_p,
                                  .want = fresh,
                                  .stored = stored,
                                  .e_p = e_p,
                                  .e_slot = e};
        assert_int_equal(oracle->bound(&b), QM_OK);
        for (int i = 0; i < MOST; i++) {
            if (!(fabs(again_p[i] - want_p[i]) <= 1e-12 * (1.0 + fabs(want_p[i]))))
                fail_msg("%s (%zu): parameter %d is %a by balls, %a by the formula",
                         whole[k].family, k, i, again_p[i], want_p[i]);
            assert_true(e_p[i] > 0.0 && e_p[i] < 1e-5 * (1.0 + fabs(want_p[i])));
        }
    }
}

/* ---- one element ----------------------------------------------------------------------------- */

struct one {
    struct qm_oracle_hyper h;
    double p, g, slot[2], want[2], want_p, e_p, e[2];
};

static void bound_one(struct one *o, struct qm_reorder reorder)
{
    const struct qm_shape shape = {1, {1}};
    const double *old[2] = {&o->slot[0], &o->slot[1]};
    double *e[2] = {&o->e[0], &o->e[1]}, *fresh[2] = {&o->want[0], &o->want[1]};
    struct qm_bound_step b = {.h = &o->h,
                              .t = 1,
                              .n = 1,
                              .reorder = reorder,
                              .shape = &shape,
                              .p = &o->p,
                              .g = &o->g,
                              .slot = old,
                              .p_want = &o->want_p,
                              .want = fresh,
                              .e_p = &o->e_p,
                              .e_slot = e};
    o->want_p = o->p;
    for (int k = 0; k < 2; k++)
        o->want[k] = o->slot[k];
    qm_oracle_find("adamw")->step(&o->want_p, fresh, &o->g, 1, 1, &o->h, 1);
    assert_int_equal(qm_oracle_find("adamw")->bound(&b), QM_OK);
}

/* Exact operations have bound 0; a number that may overflow has an infinite bound. */
static void test_edges(void **state)
{
    struct one o = {.h = {.lr = 0.5, .beta1 = 0.0, .beta2 = 0.5, .eps = 0.25},
                    .p = 1.0,
                    .g = 2.0,
                    .slot = {3.0, 4.0}};
    (void)state;
    bound_one(&o, (struct qm_reorder){0});
    assert_true(o.e[0] == 0.0 && o.e[1] == 0.0 && o.e_p > 0.0 && o.e_p < 1e-6);
    o.g = 1e30;
    bound_one(&o, (struct qm_reorder){0});
    assert_true(isinf(o.e[1]));
}

/* Declared re-orderings add to the bound what the operations that they change may err, and
 * no more. */
static void test_reorderings(void **state)
{
    struct one o = {.h = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
                    .p = 0.0,
                    .g = 0.3,
                    .slot = {0.1, 0.02}};
    double strict, divided, rooted;
    (void)state;
    bound_one(&o, (struct qm_reorder){0});
    strict = o.e_p;
    bound_one(&o, (struct qm_reorder){.fma = 1});
    assert_true(o.e_p == strict);
    bound_one(&o, (struct qm_reorder){.recip = 1});
    divided = o.e_p - strict;
    assert_true(divided > 1.0 * QM_U * fabs(o.want_p) && divided < 3.0 * QM_U * fabs(o.want_p));
    bound_one(&o, (struct qm_reorder){.rsqrt_ulp = 2.0});
    rooted = o.e_p - strict;
    assert_true(rooted > 4.0 * QM_U * fabs(o.want_p) && rooted < 6.0 * QM_U * fabs(o.want_p));
}

static void test_verdicts(void **state)
{
    float third = 1.0f / 3.0f, next = nextafterf(third, 1.0f);
    (void)state;
    assert_int_equal(qm_verdict_number((double)third, 1.0 / 3.0, 1e-9), QM_VERDICT_EQUAL);
    assert_int_equal(qm_verdict_number((double)next, 1.0 / 3.0, 1e-7), QM_VERDICT_WITHIN_BOUND);
    assert_int_equal(qm_verdict_number((double)next, 1.0 / 3.0, 1e-8), QM_VERDICT_WRONG);
    assert_int_equal(qm_verdict_number((double)NAN, 1.0, 1e30), QM_VERDICT_WRONG);
    assert_int_equal(qm_verdict_number(1.0, (double)NAN, 0.0), QM_VERDICT_WRONG);
    assert_int_equal(qm_verdict_number((double)NAN, (double)NAN, 0.0), QM_VERDICT_WITHIN_BOUND);
    assert_int_equal(qm_verdict_number(HUGE_VAL, -HUGE_VAL, 0.0), QM_VERDICT_WRONG);
    assert_int_equal(qm_verdict_number(HUGE_VAL, HUGE_VAL, 0.0), QM_VERDICT_EQUAL);
    assert_int_equal(qm_verdict_code(3, 3, 3, 4), QM_VERDICT_EQUAL);
    assert_int_equal(qm_verdict_code(4, 3, 3, 4), QM_VERDICT_BOUNDARY);
    assert_int_equal(qm_verdict_code(5, 3, 3, 4), QM_VERDICT_OFF_BY_ONE);
    assert_int_equal(qm_verdict_code(1, 3, 3, 4), QM_VERDICT_WRONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_hold), cmocka_unit_test(test_midpoints_are_the_formula),
        cmocka_unit_test(test_edges),       cmocka_unit_test(test_reorderings),
        cmocka_unit_test(test_verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
