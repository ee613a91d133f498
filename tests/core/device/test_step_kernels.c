/* test_step_kernels.c - Compares step.cu on the emulator with the CPU backend, bit for bit.
 *
 * Every elementwise variant, ragged shapes, several steps. */
#include "tests/support/device_compare.h"

#include "core/rule/element.h"

static const struct qm_shape ragged[] = {
    {1, {0}}, {1, {1}}, {1, {31}}, {1, {257}}, {1, {4097}}, {2, {61, 67}}, {2, {1, 4100}},
};

static void compare_shapes(const char *recipe)
{
    for (size_t i = 0; i < sizeof ragged / sizeof *ragged; i++)
        if (compare(recipe, &ragged[i]) == QM_SKIPPED)
            print_message("skipped: %s\n", qm_message());
}

static void test_variants(void **state)
{
    (void)state;
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    const char *only = getenv("QM_TEST_ONLY");
    int done = 0, rules = 0;
    for (int i = 0; i < qm_variant_count(); i++) {
        const struct qm_variant *v = qm_variant_at(i);
        if (!qm_rule_find(v->rule)->elementwise || (only && strcmp(only, v->name) != 0))
            continue;
        if (!is_drawn(rules++))
            continue;
        compare_shapes(v->name);
        done++;
    }
    assert_true(done > 0);
}

/* Every rule with a loop has an element function, which is in the list. */
static void test_elements(void **state)
{
    static const char *const names[] = {
#define X(name, ...) #name,
        QM_ELEMENT_LIST(X)
#undef X
    };
    (void)state;
    for (int i = 0; i < qm_rule_count(); i++) {
        const struct qm_rule *r = qm_rule_at(i);
        int found = 0;
        assert_int_equal(r->elementwise != NULL, r->tensor == NULL);
        for (size_t k = 0; r->elementwise && k < sizeof names / sizeof *names; k++)
            found |= strcmp(names[k], r->elementwise->element) == 0;
        assert_int_equal(found, r->elementwise != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
