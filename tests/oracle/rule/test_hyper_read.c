/* test_hyper_read.c - Tests that each rule and its oracle read the hyper-parameters it lists, and
 * no others.
 *
 * Every hyper-parameter of every rule is changed from several settings, one at a time, and a few
 * steps are taken by the engine and by the oracle.  What the rule lists must change the results of
 * both in one of the settings; what it does not list must not change the engine's in any (an oracle
 * serves several rules and may read it), and an override of it must be refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "core/recipe/backend.h"
#include "experiments/recipes/oracle_hyper.h"

enum { ROWS = 12, COLS = 20, N = ROWS * COLS, MOST = 16 * N, STEPS = 7 };

/* ---- settings -------------------------------------------------------------------------------- */

/* Where each hyper-parameter can matter: a setting of the others in which a rule reads it. */
static const char *const settings[] = {
    "",
    "max_unorm=0.001,eps=0.01",
    "rank=4,gap=2,side=1",
    "rank=4,gap=2,limiter=0",
    "rank=4,gap=2,tensor_scale=1",
    "rank=4,gap=2,beta1=-1",
    "rank=4,gap=2,momentum=0",
    "rank=4,gap=2,scale=9,eps1=-1,factored=0",
    "rank=4,gap=2,scale=9,svd=1",
    "alpha=5,beta3=0.99,t_alpha=10,t_beta3=10",
    "beta1=-1,beta2=-1",
    "beta2=-1,relative_step=1,scale_parameter=1,lr=10",
    "relative_step=1,scale_parameter=1,lr=10,eps2=100",
    "relative_step=1,lr=10,beta1=0.5,clip=0.01",
    "scale_parameter=1,eps2=100,weight_decay=0.3",
    "decouple_lr=1,initial_lr=0.5",
    "beta3=0.9,eps=0.1,eps2=0.1,clip=0.1",
    "amsgrad=1",
    "eps1=10,eps2=0.1",
    "momentum=0.9,dampening=0.5",
    "momentum=0.9,nesterov=1",
    "momentum=0.5,eps=1000",
    "window=3,k_init=0.1,d_block=50,alpha=0.25",
    "stat_gap=1,root_gap=2",
};

/* Two other values of each hyper-parameter; the one that differs from the setting's is taken, or
 * both in turn. */
static const struct {
    const char *name;
    double value[2];
} changes[] = {
    {"lr", {0.3, 0.02}},         {"beta1", {0.4, 0.8}},        {"beta2", {0.3, 0.7}},
    {"beta3", {0.3, 0.6}},       {"eps", {0.5, 2.0}},          {"eps1", {0.5, 3.0}},
    {"eps2", {0.5, 30.0}},       {"weight_decay", {0.2, 0.0}}, {"momentum", {0.5, 0.7}},
    {"dampening", {0.25, 0.75}}, {"alpha", {2.0, 7.0}},        {"clip", {0.02, 0.4}},
    {"t_alpha", {4.0, 20.0}},    {"t_beta3", {4.0, 20.0}},     {"beta2_decay", {-0.5, -0.3}},
    {"rank", {3.0, 2.0}},        {"side", {2.0, 3.0}},         {"gap", {3.0, 1.0}},
    {"scale", {2.0, 0.5}},       {"margin", {0.5, 0.0}},       {"max_unorm", {0.01, 0.0001}},
    {"gnorm_scale", {0.5, 3.0}}, {"initial_lr", {0.7, 0.2}},   {"momentum_decay", {5.0, 20.0}},
    {"adjust", {1.0, 2.0}},      {"window", {2.0, 5.0}},       {"k_init", {0.05, 0.3}},
    {"d_block", {7.0, 60.0}},    {"alpha", {0.5, -2.0}},       {"stat_decay", {0.5, 0.7}},
    {"matrix_eps", {0.1, 0.01}}, {"stat_gap", {3.0, 2.0}},     {"root_gap", {3.0, 4.0}},
    {"start", {3.0, 5.0}},       {"rect_stat", {0.0, 2.0}},    {"rect_root", {0.0, 1.0}},
    {"max_order", {4.0, 2.0}},   {"min_lowbit", {1.0, 200.0}},
};

static void set(struct qm_hyper *h, const char *name, double value)
{
#define X(key, initial, text)      \
    if (strcmp(name, #key) == 0) { \
        h->key = value;            \
        return;                    \
    }
    QM_HYPER_LIST(X)
#undef X
#define X(key, initial, text)      \
    if (strcmp(name, #key) == 0) { \
        h->key = value != 0.0;     \
        return;                    \
    }
    QM_HYPER_FLAG_LIST(X)
#undef X
    fail_msg("no hyper-parameter %s", name);
}

static struct qm_hyper setting(const char *text)
{
    struct qm_hyper h = qm_hyper_default();
    char copy[128], *rest = copy, *part;
    h.lr = 0.1;
    h.weight_decay = 0.1;
    h.eps1 = 1e-3;
    snprintf(copy, sizeof copy, "%s", text);
    while ((part = strsep(&rest, ",")) != NULL && *part) {
        char *value = strchr(part, '=');
        assert_non_null(value);
        *value++ = '\0';
        set(&h, part, strtod(value, NULL));
    }
    return h;
}

/* ---- steps of engine and oracle -------------------------------------------------------------- */

struct result {
    int n;
    double x[N + QM_MAX_SLOTS * MOST];
};

static struct qm_shape shape = {2, {ROWS, COLS}};

static double draw(uint64_t stream, uint64_t i)
{
    return (double)(float)((double)qm_philox_stream(5, stream, i) * 0x1p-31 - 1.0);
}

/* Parameters before the first step, and the gradients of all: they grow from step to step, so that
 * limits of norms act. */
static double start[N], gradient[STEPS + 1][N];

static int draw_all(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        start[i] = draw(1000, (uint64_t)i);
        for (int t = 1; t <= STEPS; t++)
            gradient[t][i] = (double)(float)(draw((uint64_t)t, (uint64_t)i) * t * t);
    }
    return 0;
}

/* The rule with every state and the parameter in float32, but for CAME's confidence of
 * adafactor8bit, without whose codes nothing is clipped twice. */
static struct qm_recipe recipe_of(const struct qm_rule *rule, const struct qm_hyper *h)
{
    struct qm_recipe r;
    assert_int_equal(qm_recipe_parse("adamw_f32", &r), QM_OK);
    memset(r.slot, 0, sizeof r.slot);
    memset(r.plain, 0, sizeof r.plain);
    memset(r.min_numel, 0, sizeof r.min_numel);
    r.rule = rule;
    r.hyper = *h;
    for (int k = 0; k < rule->n_slots; k++)
        if (strcmp(rule->slot[k], "conf_row") == 0 && strncmp(rule->name, "adafactor8", 10) == 0) {
            const char *text = "log:8u/logblock:2048/arith/even/floor:1e-12";
            assert_int_equal(qm_quantizer_parse(text, &r.slot[k]), QM_OK);
            r.init_scale[k] = 1.0f;
        }
    return r;
}

static int engine(const struct qm_recipe *r, struct result *out)
{
    static float p[N], g[N], state[MOST];
    struct qm_tensor tp = {.dtype = QM_DTYPE_f32, .shape = shape, .data = p};
    struct qm_tensor tg = {.dtype = QM_DTYPE_f32, .shape = shape, .data = g};
    void *plan;
    if (qm_recipe_applicable(r) != QM_OK || qm_backend_cpu.open(r, &shape, 1, &plan) != QM_OK)
        return 0;
    for (int i = 0; i < N; i++)
        p[i] = (float)start[i];
    out->n = 0;
    for (int t = 1; t <= STEPS; t++) {
        for (int i = 0; i < N; i++)
            g[i] = (float)gradient[t][i];
        if (qm_backend_cpu.step(plan, &tp, &tg, t, 1) != QM_OK) {
            qm_backend_cpu.close(plan);
            return 0;
        }
    }
    for (int i = 0; i < N; i++)
        out->x[out->n++] = (double)p[i];
    for (int k = 0; k < r->rule->n_slots; k++) {
        struct qm_shape own = shape;
        qm_rule_slot_shape(r->rule, &r->hyper, k, &shape, &own);
        assert_true(qm_shape_numel(&own) <= MOST);
        assert_int_equal(qm_backend_cpu.decode(plan, k, state), QM_OK);
        for (int64_t i = 0; i < qm_shape_numel(&own); i++)
            out->x[out->n++] = (double)state[i];
    }
    qm_backend_cpu.close(plan);
    return 1;
}

static void oracle(const struct qm_recipe *r, struct result *out)
{
    static double slot[QM_MAX_SLOTS][MOST];
    const struct qm_oracle *o = qm_oracle_find(r->rule->family);
    struct qm_oracle_hyper h = qm_oracle_hyper_of(&r->hyper);
    double *slots[QM_MAX_SLOTS], p[N];
    assert_non_null(o);
    for (int k = 0; k < QM_MAX_SLOTS; k++)
        slots[k] = memset(slot[k], 0, sizeof slot[k]);
    memcpy(p, start, sizeof p);
    for (int t = 1; t <= STEPS; t++)
        assert_int_equal(qm_oracle_step(o, p, slots, gradient[t], &shape, 1, &h, t), QM_OK);
    out->n = 0;
    for (int i = 0; i < N; i++)
        out->x[out->n++] = p[i];
    for (int k = 0; k < r->rule->n_slots; k++) {
        struct qm_shape own = shape;
        qm_rule_slot_shape(r->rule, &r->hyper, k, &shape, &own);
        for (int64_t i = 0; i < qm_shape_numel(&own); i++)
            out->x[out->n++] = slot[k][i];
    }
}

/* 1: some result differs, or their number does. */
static int differs(const struct result *a, const struct result *b)
{
    if (a->n != b->n)
        return 1;
    for (int i = 0; i < a->n; i++)
        if (a->x[i] != b->x[i] && !(isnan(a->x[i]) && isnan(b->x[i])))
            return 1;
    return 0;
}

/* ---- the test -------------------------------------------------------------------------------- */

struct seen {
    int tried, by_engine, by_oracle;
};

static void try_value(const struct qm_rule *rule, const struct qm_hyper *h, const char *name,
                      double value, struct seen *s)
{
    static struct result a, b;
    struct qm_hyper other = *h;
    set(&other, name, value);
    struct qm_recipe r = recipe_of(rule, h), changed = recipe_of(rule, &other);
    if ((s->by_engine && s->by_oracle) || memcmp(h, &other, sizeof other) == 0 || !engine(&r, &a) ||
        !engine(&changed, &b))
        return;
    s->tried++;
    s->by_engine |= differs(&a, &b);
    if (!qm_rule_reads(rule, name))
        return;
    oracle(&r, &a);
    oracle(&changed, &b);
    s->by_oracle |= differs(&a, &b);
}

static struct seen try_all(const struct qm_rule *rule, const char *name)
{
    struct seen s = {0};
    int is_batch = strcmp(name, "flatten") == 0; /* what it does to a matrix is nothing */
    shape =
        is_batch ? (struct qm_shape){3, {4, ROWS / 4, COLS}} : (struct qm_shape){2, {ROWS, COLS}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct qm_hyper h = setting(settings[i]);
        int is_flag = 1;
        for (size_t c = 0; c < sizeof changes / sizeof *changes; c++)
            for (int v = 0; v < 2 && strcmp(changes[c].name, name) == 0; v++) {
                try_value(rule, &h, name, changes[c].value[v], &s);
                is_flag = 0;
            }
        for (int v = 0; v < 2 && is_flag; v++)
            try_value(rule, &h, name, v, &s);
    }
    return s;
}

static const char *const names[] = {
#define X(name, value, text) #name,
    QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
};
enum { NAMES = sizeof names / sizeof *names };

static void test_each_is_read_or_not(void **state)
{
    (void)state;
    for (int i = 0; i < qm_rule_count(); i++)
        for (int k = 0; k < NAMES; k++) {
            const struct qm_rule *rule = qm_rule_at(i);
            struct seen s = try_all(rule, names[k]);
            int listed = qm_rule_reads(rule, names[k]);
            if (!s.tried)
                fail_msg("%s: no setting lets %s change", rule->name, names[k]);
            if (listed && !(s.by_engine && s.by_oracle))
                fail_msg("%s lists %s, which changes nothing in the %s", rule->name, names[k],
                         s.by_engine ? "oracle" : "engine");
            if (!listed && s.by_engine)
                fail_msg("%s does not list %s, which changes its results", rule->name, names[k]);
        }
}

static void test_lists_hold_names(void **state)
{
    (void)state;
    for (int i = 0; i < qm_rule_count(); i++) {
        char copy[512], *rest = copy, *word;
        snprintf(copy, sizeof copy, "%s", qm_rule_at(i)->reads);
        while ((word = strsep(&rest, " ")) != NULL)
            if (!qm_hyper_has(word))
                fail_msg("%s lists '%s', which is no hyper-parameter", qm_rule_at(i)->name, word);
    }
}

/* Overrides of what the rule does not read are refused, unless they state the value it has or the
 * default; the others are printed again. */
static void test_overrides(void **state)
{
    (void)state;
    for (int v = 0; v < qm_variant_count(); v++)
        for (int k = 0; k < NAMES; k++) {
            struct qm_recipe r, base;
            char text[QM_RECIPE_TEXT];
            assert_int_equal(qm_recipe_parse(qm_variant_at(v)->name, &base), QM_OK);
            for (int value = 0; value < 2; value++) {
                struct qm_hyper h = base.hyper, initial = qm_hyper_default(), at_value = initial;
                r = base;
                set(&h, names[k], value);
                set(&at_value, names[k], value);
                int same = memcmp(&h, &base.hyper, sizeof h) == 0;
                int is_default = memcmp(&at_value, &initial, sizeof initial) == 0;
                qm_status st = qm_recipe_set(&r, names[k], value ? "1" : "0");
                int takes = same || is_default || qm_rule_reads(r.rule, names[k]);
                if ((st == QM_OK) != takes || (st != QM_OK && st != QM_BAD_ARG))
                    fail_msg("%s,%s=%d: status %d, %s", r.base->name, names[k], value, (int)st,
                             qm_message());
                if (st == QM_OK && !same && !strstr(qm_recipe_print(&r, text), names[k]))
                    fail_msg("%s: %s is not printed", text, names[k]);
            }
        }
    struct qm_recipe r;
    assert_int_equal(qm_recipe_parse("sgdm8_bnb,nesterov=1", &r), QM_BAD_ARG);
    assert_string_equal(qm_message(), "nesterov: rule momentum_bnb does not read it; it reads lr "
                                      "weight_decay momentum gnorm_scale");
    assert_int_equal(qm_recipe_parse("sgdm8_bnb,nesterov=0,lr=0.5", &r), QM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_is_read_or_not),
                                       cmocka_unit_test(test_lists_hold_names),
                                       cmocka_unit_test(test_overrides)};
    return cmocka_run_group_tests(tests, draw_all, NULL);
}
