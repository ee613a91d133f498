/* test_effect.c - Which hyper-parameters a case depends on, by formulas that are known, and that
 * plain cases of a default check depend on every hyper-parameter of every variant. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/recipe/variant.h"
#include "experiments/check/effect.h"
#include "tests/support/drawn.h"

static struct qm_domain domain_of(const char *recipe)
{
    struct qm_recipe r;
    struct qm_domain d;
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    qm_domain_of(&r, &qm_backend_cpu, &d);
    return d;
}

static void test_known_effects(void **state)
{
    static const struct {
        const char *recipe, *name;
        int hyper, has;
    } known[] = {
        {"adamw_f32", "6x6/normal/default/t1/forced", QM_HYPER_lr, 1},
        {"adamw_f32", "6x6/normal/lr=0/t1/forced", QM_HYPER_weight_decay, 0},
        {"adamw_f32", "6x6/normal/default/t1/forced", QM_HYPER_maximize, 1},
        {"adamw_f32", "6x6/zeros/default/t1/forced", QM_HYPER_beta1, 0},
        /* initial steps are relative: the weight decay of the source needs it or a rate */
        {"adafactor_hf", "6x6/normal/relative_step=0+lr=0.1/t9/forced", QM_HYPER_warmup, 0},
        {"adafactor_hf", "6x6/normal/relative_step=1/t9/forced", QM_HYPER_warmup, 1},
        /* the limiter stands between the two places of the scale */
        {"apollo_f32", "16x16/normal/limiter=0+scale=64/t1/forced", QM_HYPER_scale_front, 0},
        {"apollo_f32", "16x16/normal/limiter=0/t1/forced", QM_HYPER_margin, 0},
        {"apollo_f32", "40/normal/default/t1/forced", QM_HYPER_scale, 0}, /* no matrix */
        {"apollo_f32", "16x16/normal/default/t1/forced", QM_HYPER_scale, 1},
        {"apollo_f32", "16x16/normal/gap=1/t2/forced", QM_HYPER_gap, 1},
        {"sgdm_f32", "9/normal/momentum=0/t3/forced", QM_HYPER_nesterov, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct qm_domain d = domain_of(known[i].recipe);
        struct qm_case c;
        if (qm_case_parse(known[i].name, &c) != QM_OK)
            fail_msg("%s", qm_message());
        if ((int)(qm_case_effects(&d, &c) >> known[i].hyper & 1) != known[i].has)
            fail_msg("%s, %s: %s has %s effect", known[i].recipe, known[i].name,
                     qm_hyper_names[known[i].hyper], known[i].has ? "no" : "an");
    }
}

/* DRAWS: of a default check; ENOUGH: per cent of all pairs. */
enum { DRAWS = QM_CHECK_DRAWS, ENOUGH = 75 };

/* The hyper-parameters without effect in at most DRAWS drawn cases of a seed, as bits; *pairs: how
 * many pairs have effects in one case.  It stops once there is nothing more to find. */
static uint64_t without_effect(const struct qm_domain *d, uint64_t seed, int64_t *pairs)
{
    uint64_t seen = 0;
    static uint64_t with[QM_HYPERS];
    memset(with, 0, sizeof with);
    int64_t n = __builtin_popcountll(d->reads);
    for (int64_t i = 0; i < DRAWS && (seen != d->reads || *pairs * 100 < n * n * ENOUGH); i++) {
        struct qm_case c = qm_domain_draw(d, seed, i);
        seen |= c.effects;
        for (int k = 0; k < QM_HYPERS; k++)
            with[k] |= c.effects >> k & 1 ? c.effects : 0;
        *pairs = 0;
        for (int k = 0; k < QM_HYPERS; k++)
            *pairs += __builtin_popcountll(with[k]);
    }
    return d->reads & ~seen;
}

/* The confidence of CAME is clipped where it is quantized, which small tensors are not.  Shampoo's
 * orthogonalizations change vectors that codes have bent, and a case in which a root follows such
 * codes is seldom drawn. */
static int is_excused(const struct qm_domain *d, int k)
{
    const char *rule = d->recipe.rule->name;
    return (k == QM_HYPER_clip_twice && strncmp(rule, "adafactor8", 10) == 0) ||
           ((k == QM_HYPER_rect_root || k == QM_HYPER_rect_stat) &&
            strncmp(rule, "shampoo", 7) == 0);
}

/* Three quarters of the pairs of hyper-parameters have effects in one case, at least. */
static void test_every_hyper_parameter_has_an_effect(void **state)
{
    int checked = 0;
    (void)state;
    for (int v = 0; v < qm_variant_count(); v++) {
        struct qm_domain d = domain_of(qm_variant_at(v)->name);
        int64_t pairs = 0, n = __builtin_popcountll(d.reads);
        if (!is_drawn(v))
            continue;
        uint64_t none = without_effect(&d, 20240501 + (uint64_t)v, &pairs);
        checked++;
        for (int k = 0; k < QM_HYPERS; k++)
            if (none >> k & 1 && !is_excused(&d, k))
                fail_msg("%s: %s never has an effect", qm_variant_at(v)->name, qm_hyper_names[k]);
        if (pairs * 100 < n * n * ENOUGH)
            fail_msg("%s: %lld of %lld pairs", qm_variant_at(v)->name, (long long)pairs,
                     (long long)(n * n));
    }
    assert_true(checked > 0);
}

/* The smallest (is_up 0) or largest value of hyper-parameter k among the drawn cases in which
 * leaving hyper-parameter `other` out has an effect. */
static double extreme_of(const struct qm_domain *d, uint64_t seed, int k, int other, int is_up)
{
    double found = is_up ? 0.0 : (double)INFINITY;
    for (int64_t i = 0; i < DRAWS; i++) {
        struct qm_case c = qm_domain_draw(d, seed, i);
        struct qm_recipe r = d->recipe;
        qm_case_apply(&c, &r);
        double x = qm_hyper_get(&r.hyper, k);
        if (qm_shape_numel(&c.shape) < 4096 && (is_up ? x > found : x < found && x > 0.0) &&
            qm_case_drops(d, &c, (uint64_t)1 << other))
            found = x;
    }
    return found;
}

/* What is left out below or above a value of a hyper-parameter shows nearly up to where it has no
 * effect any more: a decay beside a rate as long as their product reaches 2^-21. */
static void test_extremes_keep_effects(void **state)
{
    enum { LR = QM_HYPER_lr, WD = QM_HYPER_weight_decay, EPS = QM_HYPER_eps };
    static const struct {
        const char *recipe;
        int k, other, is_up;
        double reached;
    } pairs[] = {
        {"adamw4_ao", LR, WD, 0, 1e-8},     {"adamw4_ao", WD, WD, 0, 1e-8},
        {"adamw4_ao", EPS, EPS, 0, 1e-25},  {"adamw_f32", LR, WD, 0, 1e-8},
        {"adamw_f32", WD, WD, 0, 1e-8},     {"adamw_f32", LR, EPS, 1, 1e3},
        {"lamb_bnb", WD, WD, 0, 1e-6},      {"adafactor_hf", WD, WD, 0, 1e-8},
        {"ademamix8_bnb", LR, WD, 0, 1e-6}, {"ademamix8_bnb", QM_HYPER_alpha, WD, 1, 1e5},
        {"adamw8_coat", LR, WD, 0, 1e-7},   {"muon_f32", LR, WD, 0, 1e-7},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct qm_domain d = domain_of(pairs[i].recipe);
        double x = extreme_of(&d, 20240501 + i, pairs[i].k, pairs[i].other, pairs[i].is_up);
        if (pairs[i].is_up ? x < pairs[i].reached : x > pairs[i].reached)
            fail_msg("%s: %s with an effect at %s %g alone", pairs[i].recipe,
                     qm_hyper_names[pairs[i].other], qm_hyper_names[pairs[i].k], x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_effects),
        cmocka_unit_test(test_every_hyper_parameter_has_an_effect),
        cmocka_unit_test(test_extremes_keep_effects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
