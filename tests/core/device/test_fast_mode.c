/* test_fast_mode.c - Tests mode fast on the emulator: contracted, quotients and roots as inexact as
 * allowed.
 *
 * Results are judged by the oracle's bounds with these errors declared, which must pass, and
 * without, which must fail. */
#include "tests/support/device_compare.h"
#include "tests/support/drawn.h"

#include "core/device/step_kernels.h"
#include "core/emu/emu_fast.h"
#include "experiments/check/judge.h"

static void needs_fast(void)
{
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    if (!qm_emu_fast_flags())
        skip_because("no fma on this processor");
}

/* Every stride-th case. */
static qm_status judge(const char *recipe, struct qm_reorder reorder, int first, int stride,
                       struct qm_tally *t)
{
    struct qm_subject s = {.backend = &qm_backend_emu, .reorder = reorder};
    assert_int_equal(qm_recipe_parse(recipe, &s.recipe), QM_OK);
    qm_backend_device_mode(QM_MODE_fast);
    qm_status st = qm_judge_begin(&s, t);
    if (st == QM_OK)
        st = qm_judge_list(&s, first, stride, 20240501, t, (struct qm_judge_watch){.done = NULL});
    qm_backend_device_mode(QM_MODE_exact);
    if (st == QM_OK)
        qm_judge_end(&s, t);
    return st;
}

static void must_pass(const char *recipe, int stride)
{
    struct qm_tally t;
    qm_status st = judge(recipe, qm_step_reorder(QM_MODE_fast), 1, stride, &t);
    if (st == QM_SKIPPED) {
        print_message("skipped: %s: %s\n", recipe, qm_message());
        return;
    }
    if (st != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    print_message("%-24s %3d cases, %7d numbers, worst/bound %.3f%s\n", recipe, (int)t.cases,
                  (int)t.judged, t.worst_ratio, qm_tally_passed(&t) ? "" : "  FAILED");
    for (int i = 0; i < t.n_findings && i < 3; i++)
        print_message("    %s: %s\n", t.finding[i].name, t.finding[i].text);
    assert_true(qm_tally_passed(&t));
}

/* All tensor rules that have kernels. */
static void test_whole(void **state)
{
    const char *only = getenv("QM_TEST_ONLY");
    int done = 0, rules = 0;
    (void)state;
    AT_ONE_COMMIT_IN(5, 10);
    needs_fast();
    for (int i = 0; i < qm_variant_count(); i++) {
        const struct qm_variant *v = qm_variant_at(i);
        if (!qm_rule_find(v->rule)->tensor || (only && strcmp(only, v->name) != 0))
            continue;
        if (!is_drawn(rules++))
            continue;
        must_pass(v->name, 29);
        done++;
    }
    assert_true(only || (done > 0 && rules > 10));
}

/* One format for each way that a quotient or root enters: by a scale, a maximum, a curve,
 * two scales. */
static void test_elementwise(void **state)
{
    static const char *const recipes[] = {"adamw4_ao", "adam_fp8_ao", "flash_adamw",
                                          "adamw8_bnb_cuda", "adamw4_lpmm"};
    (void)state;
    needs_fast();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (is_drawn((int)i))
            must_pass(recipes[i], 41);
}

static void must_fail(const char *recipe, struct qm_reorder reorder)
{
    struct qm_tally t;
    assert_int_equal(judge(recipe, reorder, 1, 29, &t), QM_OK);
    print_message("%s: %d of %d cases fail\n", recipe, (int)t.failed_cases, (int)t.cases);
    assert_false(qm_tally_passed(&t));
}

/* Formats notice quotients that are not declared.  In a rule the roundings of its other operations
 * hide an error of two units, but errors larger than declared are found there too, of quotients and
 * of roots. */
static void test_bounds_are_needed(void **state)
{
    const struct qm_reorder all = qm_step_reorder(QM_MODE_fast);
    struct qm_reorder exact_div = all;
    static const struct {
        const char *recipe, *flags; /* NULL: the quotients are as declared */
    } wrong[] = {{"adamw4_lpmm_factor", NULL},
                 {"adafactor_torch", "-DQM_EMU_DIV_ULP=12.0"},
                 {"came_f32", "-DQM_EMU_ROOT_ULP=24.0"},
                 {"adamw8_bnb_cuda", "-DQM_EMU_DIV_ULP=12.0"},
                 {"flash_adamw", NULL},
                 {"lamb_bnb", "-DQM_EMU_DIV_ULP=12.0"},
                 {"lamb_bnb", "-DQM_EMU_ROOT_ULP=24.0"}};
    (void)state;
    AT_ONE_COMMIT_IN(5, 11);
    needs_fast();
    exact_div.div_ulp = 0.0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (!is_drawn((int)i))
            continue;
        if (wrong[i].flags)
            setenv("CXXFLAGS", wrong[i].flags, 1);
        must_fail(wrong[i].recipe, wrong[i].flags ? all : exact_div);
        unsetenv("CXXFLAGS");
    }
}

/* With exact quotients and roots only contraction is left, which shows in the bits; its bounds are
 * those of the two roundings that it saves. */
static void test_contraction(void **state)
{
    const struct qm_shape shape = {2, {61, 67}};
    struct qm_recipe r;
    char what[256];
    (void)state;
    needs_fast();
    setenv("CXXFLAGS", "-DQM_EMU_DIV_ULP=0.5 -DQM_EMU_ROOT_ULP=0.5", 1);
    assert_int_equal(qm_recipe_parse("lamb_bnb", &r), QM_OK);
    for (int fast = 0; fast < 2; fast++) {
        qm_backend_device_mode(fast ? QM_MODE_fast : QM_MODE_exact);
        assert_int_equal(
            qm_exact_compare(&qm_backend_emu, &r, &shape, STEPS, SEED, what, sizeof what), QM_OK);
        assert_int_equal(*what != '\0', fast);
    }
    qm_backend_device_mode(QM_MODE_exact);
    must_pass("lamb_bnb", 41);
    unsetenv("CXXFLAGS");
}

/* The rewriter finds every division, and nothing else. */
static void test_divisions(void **state)
{
    static const char source[] = "#include \"a/b.h\"\n"
                                 "#define M(x) \\\n  (x / 2)\n"
                                 "/* a / b */ x = a / b; // c / d\n"
                                 "s = \"e/\\\"f\" + '/'; y /= 2; z = f(x)/g\n";
    static const char want[] = "#include \"a/b.h\"\n"
                               "#define M(x) \\\n  (x / 2)\n"
                               "/* a / b */ x = a / qm_emu::over / b; // c / d\n"
                               "s = \"e/\\\"f\" + '/'; y /= 2; z = f(x)/ qm_emu::over /g\n";
    char *text;
    (void)state;
    assert_int_equal(qm_emu_divisions(source, &text), QM_OK);
    assert_string_equal(text, want);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divisions),   cmocka_unit_test(test_whole),
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_bounds_are_needed),
        cmocka_unit_test(test_contraction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
