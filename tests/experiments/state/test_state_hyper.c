/* test_state_hyper.c - Hyper-parameters of a stored tensor pass to other recipes, or are said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "experiments/state/state_file.h"

static void must(qm_status st)
{
    if (st != QM_OK)
        fail_msg("%s", qm_message());
}

static void collect(const char *line, void *context)
{
    strcat(context, line);
    strcat(context, "\n");
}

/* Hyper-parameters pass from every variant to every other one: what both rules read is kept where
 * the target can have it, what the target states stands, and the rest is said. */
static void test_hyper_parameters_are_kept(void **state)
{
    (void)state;
    struct qm_shape shape = {2, {64, 64}};
    struct qm_recipe r, from;
    static struct qm_state_tensor t; /* only its recipe is read */
    int64_t bytes;
    for (int i = 0; i < qm_variant_count(); i++)
        for (int k = 0; k < qm_variant_count(); k++) {
            const char *target = qm_variant_at(k)->name;
            char notes[4096] = "";
            snprintf(t.recipe, sizeof t.recipe, "%s", qm_variant_at(i)->name);
            must(qm_recipe_parse(t.recipe, &from));
            must(qm_recipe_parse(target, &r));
            int takes = qm_recipe_bytes(&r, &shape, &bytes) == QM_OK;
            qm_state_keep_hyper(&t, target, &r, collect, notes);
            must(qm_recipe_applicable(&r));
            if (takes && qm_recipe_bytes(&r, &shape, &bytes) != QM_OK)
                fail_msg("%s to %s: %s", t.recipe, target, qm_message());
#define X(name, initial, text)                                                \
    if (qm_rule_reads(from.rule, #name) && r.hyper.name != from.hyper.name && \
        (qm_rule_reads(r.rule, #name) || from.hyper.name != (initial)) &&     \
        !strstr(notes, #name "="))                                            \
        fail_msg("%s to %s: " #name " is lost without a word", t.recipe, target);
            QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
        }
}

/* What the target states stands, also where it is the variant's own value. */
static void test_what_is_stated_stands(void **state)
{
    (void)state;
    static struct qm_state_tensor t = {.recipe = "adamw_f32,lr=0.25,beta2=0.95"};
    struct qm_recipe r;
    char notes[512] = "";
    static const char target[] = "adamw4_ao,beta2=0.999";
    must(qm_recipe_parse(target, &r));
    qm_state_keep_hyper(&t, target, &r, collect, notes);
    assert_true(r.hyper.beta2 == 0.999 && r.hyper.lr == 0.25);
    assert_string_equal(notes, "");
    strcpy(t.recipe, "from_tomorrow");
    qm_state_keep_hyper(&t, target, &r, collect, notes);
    assert_non_null(strstr(notes, "recipe 'from_tomorrow' is refused: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hyper_parameters_are_kept),
        cmocka_unit_test(test_what_is_stated_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
