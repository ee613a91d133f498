/* test_mutate.c - Tests the registry of mutants, the gate of the kill matrix, and the acceptance
 * rules of other projects. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "core/user_kernel/host.h"
#include "experiments/check/draws.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/peer_rules.h"
#include "experiments/mutants/matrix.h"
#include "tests/support/drawn.h"

/* ---- the registry ---------------------------------------------------------------------------- */

static qm_status add(struct qm_registry *r, const char *const *lines)
{
    qm_registry_close(r);
    return qm_registry_add(r, "list.txt", lines);
}

static void pieces(void **state)
{
    static const char *const lines[] = {"template adamw_f32 100\n",
                                        "# a comment\n",
                                        "\n",
                                        "mutant one bias: first\n",
                                        "within late: because\n",
                                        "- double bc1 = 1.0 - pow(a->beta1, (double)a->t), bc2 =\n",
                                        "+ double bc1 = 1.0, bc2 =\n",
                                        "benign two: second\n",
                                        "- : x - beta1 * (x - m[i]);\n",
                                        "- v[i] = beta2\n",
                                        "+ : (x - beta1 * (x - m[i]));\n",
                                        "+ v[i] = beta2\n",
                                        "- return 0;\n",
                                        "+ return 0 ;\n",
                                        NULL};
    struct qm_registry r = {0};
    (void)state;
    assert_int_equal(add(&r, lines), QM_OK);
    assert_int_equal(r.n, 3);
    assert_string_equal(r.entry[1].id, "adamw_f32.one");
    assert_string_equal(r.entry[1].class, "bias");
    assert_string_equal(r.entry[1].text, "first");
    assert_string_equal(r.entry[1].within[QM_MUTANT_REGIME_late], "because");
    assert_null(r.entry[1].within[QM_MUTANT_REGIME_usual]);
    assert_non_null(strstr(r.entry[1].source, "double bc1 = 1.0, bc2 ="));
    assert_null(strstr(r.entry[0].source, "double bc1 = 1.0, bc2 ="));
    assert_int_equal(r.entry[2].kind, QM_MUTANT_benign);
    assert_non_null(strstr(r.entry[2].source, ": (x - beta1 * (x - m[i]));\nv[i] = beta2 *"));
    assert_non_null(strstr(r.entry[2].source, "return 0 ;"));
    assert_null(strstr(r.entry[2].source, "return 0;"));
    assert_null(qm_registry_find(&r, "adamw_f32.three"));
    qm_registry_close(&r);
}

static void bad_lists(void **state)
{
    static const struct {
        const char *lines[6], *message;
    } cases[] = {
        {{"mutant a b: c\n"}, "list.txt:1: expected the line with the template first"},
        {{"template nosuch 10\n"}, "list.txt:1: there is no template nosuch"},
        {{"template adamw_f32 10\n", "mutant a: c\n"}, "list.txt:2: expected: mutant NAME CLASS"},
        {{"template adamw_f32 10\n", "mutant a b: c\n", "- nowhere at all\n", "+ x\n"},
         "the source holds this nowhere: nowhere at all"},
        {{"template adamw_f32 10\n", "mutant a b: c\n", "- beta1\n", "+ x\n"},
         "the source holds this more than once: beta1"},
        {{"template adamw_f32 10\n", "mutant a b: c\n", "+ x\n"}, "without what it replaces"},
        {{"template adamw_f32 10\n", "benign a: c\n", "within late: x\n"}, "belongs to a mutant"},
        {{"template adamw_f32 10\n", "mutant a b: c\n", "within noon: x\n"}, "no regime 'noon'"},
        {{"template adamw_f32 10\n", "benign a: c\n", "benign a: d\n"},
         "adamw_f32.a is there twice"},
        {{"template adamw_f32 10\n", "what\n"}, "'what': expected template, mutant, benign"},
    };
    struct qm_registry r = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(add(&r, cases[i].lines), QM_BAD_ARG);
        if (!strstr(qm_message(), cases[i].message))
            fail_msg("%s: expected %s", qm_message(), cases[i].message);
    }
    qm_registry_close(&r);
}

/* The lists of the executable keep the promises of the registry. */
static void shipped(void **state)
{
    int templates = 0, mutants = 0, benign = 0;
    struct qm_registry r;
    (void)state;
    if (qm_registry_open(&r) != QM_OK)
        fail_msg("%s", qm_message());
    for (int i = 0; i < r.n; i++) {
        const struct qm_mutant_entry *e = &r.entry[i];
        templates += e->kind == QM_MUTANT_template;
        mutants += e->kind == QM_MUTANT_mutant;
        benign += e->kind == QM_MUTANT_benign;
        if (e->kind != QM_MUTANT_template)
            assert_string_not_equal(e->source, r.entry[e->of].source);
    }
    assert_true(templates >= 10 && mutants >= 60 && benign >= 20);
    qm_registry_close(&r);
}

/* ---- the gate -------------------------------------------------------------------------------- */

/* FINE multiplies in another order, with equal bits; OTHER rounds otherwise, within the bound. */
/* clang-format off */
#define TEMPLATE "template sgdm8_bnb 700\n"
#define BUG   "- s[i] * momentum + d;\n", "+ s[i] * momentum - d;\n"
#define FINE  "- fmaf(*w, decay, d)\n", \
              "+ fmaf(decay, *w, d)\n"
#define OTHER "- fmaf(*w, decay, d)\n", \
              "+ *w * decay + d\n"
/* clang-format on */

static struct qm_matrix judged(const char *const *lines)
{
    static struct qm_registry r;
    struct qm_matrix m;
    if (add(&r, lines) != QM_OK)
        fail_msg("%s", qm_message());
    struct qm_matrix_options o = {.registry = &r, .runs = 5, .seed = 3, .threads = 2};
    if (qm_matrix_run(&o, &m) != QM_OK)
        fail_msg("%s", qm_message());
    return m;
}

static void assert_fault(const char *const *lines, const char *text)
{
    struct qm_matrix m = judged(lines);
    if (text && (m.n_faults == 0 || !strstr(m.fault[m.n_faults - 1], text)))
        fail_msg("faults: %d, last: %s; expected: %s", m.n_faults,
                 m.n_faults ? m.fault[m.n_faults - 1] : "-", text);
    if (!text && m.n_faults)
        fail_msg("%s", m.fault[0]);
    qm_matrix_free(&m);
}

/* A correct judge and registry pass.  The gate fails on a bug that is listed as benign, a mutant
 * without a bug, a mutant that differs within the bounds, and a file that does not compile. */
static void gate(void **state)
{
    static const char *const fine[] = {TEMPLATE, "mutant a rule: b\n", BUG, "benign c: d\n", FINE,
                                       NULL};
    static const char *const hidden[] = {TEMPLATE, "benign a: a bug\n", BUG, NULL};
    static const char *const none[] = {TEMPLATE, "mutant a rule: no bug\n", FINE, NULL};
    static const char *const allowed[] = {TEMPLATE, "mutant a rule: no bug either\n", OTHER, NULL};
    static const char *const broken[] = {TEMPLATE, "mutant a rule: b\n", "- return 0;\n",
                                         "+ return nothing;\n", NULL};
    static const char *const crash[] = {TEMPLATE, "mutant a rule: b\n", "- return 0;\n",
                                        "+ return *(volatile int *)0;\n", NULL};
    (void)state;
    AT_ONE_COMMIT_IN(5, 10);
    assert_fault(fine, NULL);
    assert_fault(hidden, "sgdm8_bnb.a: false alarm");
    assert_fault(none, "sgdm8_bnb.a: survives everywhere");
    assert_fault(allowed, "sgdm8_bnb.a: survives everywhere");
    assert_fault(broken, "does not compile");
    assert_fault(crash, NULL); /* its crash is a kill */
}

/* An unfound difference without a reason is a fault, even where another regime kills the mutant. */
static void unexplained(void **state)
{
    static const char *const lines[] = {TEMPLATE, "mutant a rule: off in the first step only\n",
                                        "- *w = fmaf(s[i], -lr, *w);\n",
                                        "+ *w = a->t > 1 ? *w - lr * s[i] : *w;\n", NULL};
    int with_reason = 0;
    (void)state;
    AT_ONE_COMMIT_IN(5, 11);
    struct qm_matrix m = judged(lines);
    const struct qm_mutant_result *t = &m.result[1];
    assert_int_equal(t->cell[QM_MUTANT_REGIME_start].is, QM_MATRIX_CELL_killed);
    assert_int_equal(t->cell[QM_MUTANT_REGIME_usual].is, QM_MATRIX_CELL_survives);
    for (int i = 0; i < m.n_faults; i++)
        with_reason += strstr(m.fault[i], "survives in usual, where its results differ") != NULL;
    assert_int_equal(with_reason, 1);
    qm_matrix_free(&m);
}

/* Equal digests mean equal bits: a mutant of the decay, where there is no decay. */
static void equivalence(void **state)
{
    static const char *const lines[] = {TEMPLATE, "mutant a decay: twice\n",
                                        "- fmaf(*w, decay, d\n", "+ fmaf(*w, 2.0f * decay, d\n",
                                        NULL};
    (void)state;
    AT_ONE_COMMIT_IN(5, 12);
    struct qm_matrix m = judged(lines);
    const struct qm_mutant_result *base = &m.result[0], *t = &m.result[1];
    assert_int_equal(m.n_faults, 0);
    assert_int_equal(t->cell[QM_MUTANT_REGIME_start].is, QM_MATRIX_CELL_equal);
    assert_true(t->cell[QM_MUTANT_REGIME_start].digest ==
                base->cell[QM_MUTANT_REGIME_start].digest);
    assert_int_equal(t->cell[QM_MUTANT_REGIME_late].is, QM_MATRIX_CELL_killed);
    assert_true(t->cell[QM_MUTANT_REGIME_late].digest != base->cell[QM_MUTANT_REGIME_late].digest);
    /* The decay is ten times as large there, so that rules of peers see it too. */
    assert_true(t->cell[QM_MUTANT_REGIME_late].rejected_by != 0);
    qm_matrix_free(&m);
}

/* A constant in the place of a hyper-parameter is right at its default, which is all that regimes
 * and listed cases have; drawn cases find it. */
static void sets(void **state)
{
    static const char *const lines[] = {TEMPLATE, "mutant a rule: momentum is a constant\n",
                                        "- momentum = (float)a->momentum\n", "+ momentum = 0.9f\n",
                                        NULL};
    (void)state;
    struct qm_matrix m = judged(lines);
    const struct qm_mutant_result *base = &m.result[0], *t = &m.result[1];
    assert_int_equal(m.n_faults, 0);
    assert_int_equal(t->set[QM_CASE_SET_listed].is, QM_MATRIX_CELL_survives);
    assert_int_equal(t->set[QM_CASE_SET_drawn].is, QM_MATRIX_CELL_killed);
    assert_non_null(t->set[QM_CASE_SET_drawn].finding);
    assert_int_equal(base->set[QM_CASE_SET_drawn].is, QM_MATRIX_CELL_survives);
    assert_true(base->set[QM_CASE_SET_listed].cases > 300);
    qm_matrix_free(&m);
}

/* ---- rules of peers -------------------------------------------------------------------------- */

static void rules(void **state)
{
    const float want[] = {1.0f, 2.0f, -2.0f, 4.0f}; /* squares: 25 */
    float got[] = {1.0f, 2.0f, -2.0f, 4.0f};
    (void)state;
    assert_true(qm_peer_rule_nmse(got, want, 4, 0.0));
    got[1] = 2.5f; /* 0.25 / 25 = 0.01 */
    assert_true(qm_peer_rule_nmse(got, want, 4, 0.0101));
    assert_false(qm_peer_rule_nmse(got, want, 4, 0.0099));
    assert_false(qm_peer_rule_close(got, want, 4, 0.1, 0.1, 0)); /* 0.5 > 0.1 + 0.2 */
    assert_true(qm_peer_rule_close(got, want, 4, 0.31, 0.1, 0));
    assert_true(qm_peer_rule_close(got, want, 4, 0.1, 0.1, 1));
    got[1] = NAN;
    assert_false(qm_peer_rule_nmse(got, want, 4, 1e9));
    assert_false(qm_peer_rule_close(got, want, 4, 1e9, 1e9, 0));
}

/* ---- draws ----------------------------------------------------------------------------------- */

enum { N = 20000 };

/* Draw errors of rounding with probability p(i) by the draws of a stream; same: all draws of
 * block 100. */
static void choose(float *left, uint64_t seed, int same)
{
    struct qm_draws d = qm_draws_for(seed, 1, 1, QM_ROLE_spare),
                    e = qm_draws_for(7, 1, 2, QM_ROLE_spare);
    for (int64_t i = 0; i < N; i++) {
        float p = qm_uniform(qm_draw(&e, i)), u = qm_uniform(qm_draw(&d, same ? i % 128 : i));
        left[i] = (u < p ? 1.0f : 0.0f) - p;
    }
}

static void draws(void **state)
{
    static float a[N], b[N];
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) { /* correct draws pass */
        choose(a, seed, 0);
        choose(b, seed + 100, 0);
        assert_false(qm_draws_biased(a, N));
        assert_int_equal(qm_draws_repeat(a, N), 0);
        assert_false(qm_draws_related(a, b, N));
    }
    choose(b, 50, 0);
    assert_true(qm_draws_related(a, b, N)); /* equal draws */
    choose(a, 1, 1);
    assert_true(qm_draws_repeat(a, N) >= 128);
    for (int64_t i = 0; i < N; i++) { /* always the lower end */
        float p = a[i] > 0.0f ? 1.0f - a[i] : -a[i];
        a[i] = -p;
    }
    assert_true(qm_draws_biased(a, N));
    assert_false(qm_draws_biased(a, 50)); /* too few to judge */
}

/* The processes of kernels are this program again. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces), cmocka_unit_test(bad_lists),   cmocka_unit_test(shipped),
        cmocka_unit_test(gate),   cmocka_unit_test(unexplained), cmocka_unit_test(equivalence),
        cmocka_unit_test(sets),   cmocka_unit_test(rules),       cmocka_unit_test(draws),
    };
    if (argc > 1 && strcmp(argv[1], QM_HOST_WORD) == 0)
        return qm_host_main();
    qm_cli.quiet = 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
