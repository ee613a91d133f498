/* specials_table.c - Prints the table of special values as text or JSON. */
#include "experiments/check/specials_table.h"

#include "experiments/check/special.h"
#include "experiments/cli/cli.h"

static json_t *row(const char *recipe, const struct qm_special *s)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "variant",
                     recipe, "special", s->kind, "text", s->text, "passed", s->passed, "parameters",
                     (json_int_t)s->n, "parameters_not_finite", (json_int_t)s->p_bad,
                     "parameters_unchanged", (json_int_t)s->p_still, "state_values",
                     (json_int_t)s->state_n, "state_not_finite", (json_int_t)s->state_bad,
                     "state_zero", (json_int_t)s->state_zero, "judged", (json_int_t)s->judged,
                     "may_overflow", (json_int_t)s->unbounded, "wrong", (json_int_t)s->wrong);
}

static void print(json_t *rows)
{
    static const char *const heads[] = {
        "variant", "special", "parameters not finite", "unchanged", "states", "not finite",
        "zero",    "judged",  "may overflow",          "verdict"};
    static const char *const counts[] = {
        "parameters_not_finite", "parameters_unchanged", "state_values",
        "state_not_finite",      "state_zero",           "judged",
        "may_overflow"};
    struct qm_table *t = qm_table_open(10, heads);
    json_t *r;
    size_t i;
    json_array_foreach (rows, i, r) {
        qm_table_cell(t, "%s", json_string_value(json_object_get(r, "variant")));
        qm_table_cell(t, "%s", json_string_value(json_object_get(r, "special")));
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            qm_table_cell(t, "%lld", (long long)json_integer_value(json_object_get(r, counts[c])));
        qm_table_cell(t, "%s", json_is_true(json_object_get(r, "passed")) ? "passed" : "FAILED");
    }
    qm_table_close(t);
}

qm_status qm_specials_rows(const struct qm_subject *s, const char *name, uint64_t seed,
                           json_t *rows, int *failed)
{
    for (int k = 0; k < QM_SPECIAL_COUNT; k++) {
        struct qm_special special;
        QM_TRY(qm_special_run(s, k, seed, &special));
        json_array_append_new(rows, row(name, &special));
        *failed |= !special.passed;
    }
    return QM_OK;
}

int qm_specials_end(json_t *rows, json_t *skipped, const struct qm_check_run *run, int failed)
{
    if (qm_cli.json) {
        json_t *all = qm_check_head(run, !failed);
        json_object_set_new(all, "specials", rows);
        if (skipped)
            json_object_set_new(all, "skipped", skipped);
        qm_json_print(all);
    } else {
        print(rows);
        qm_check_print_skipped(skipped);
        qm_check_end(run);
        json_decref(rows);
        json_decref(skipped);
    }
    return failed ? qm_exit_code(QM_CHECK_FAILED) : 0;
}

int qm_specials_print(const struct qm_recipes *recipes, const struct qm_subject *by,
                      const struct qm_check_run *run, json_t *skipped)
{
    json_t *rows = json_array();
    qm_status st = QM_OK;
    int failed = 0;
    for (int i = 0; i < recipes->n && st == QM_OK; i++) {
        struct qm_subject s = *by;
        struct qm_tally t;
        char name[QM_RECIPE_TEXT];
        s.recipe = recipes->recipe[i];
        st = qm_judge_begin(&s, &t);
        if (st == QM_OK)
            st = qm_specials_rows(&s, qm_recipe_print(&s.recipe, name), run->seed, rows, &failed);
        if (st == QM_OK)
            st = qm_check_unload(s.backend);
    }
    if (st == QM_OK)
        return qm_specials_end(rows, json_incref(skipped), run, failed);
    json_decref(rows);
    return qm_cli_failed("check --specials", st);
}
