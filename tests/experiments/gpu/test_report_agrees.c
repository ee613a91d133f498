/* test_report_agrees.c - Reports of gpu-check whose plan, rows and figures contradict each other
 * are refused by their reader, though their digest is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/gpu_report_sample.h"

static char folder[] = "/tmp/qm-agrees-XXXXXX";

/* Writes the report, and reads it again: what the reader says, "" where it reads it. */
static const char *answer(const struct qm_gpu_report *r, const char **files)
{
    static char path[128], file[140], page[] = "/dev/null";
    char *words[] = {(char *)(uintptr_t) "gpu-check"}, *one[] = {file};
    struct qm_gpu_report again;
    snprintf(path, sizeof path, "%s/report", folder);
    snprintf(file, sizeof file, "%s.h5", path);
    if (files)
        *files = file;
    assert_int_equal(qm_gpu_report_write(r, path, 1, words), QM_OK);
    qm_status st = qm_gpu_report_read(file, &again);
    if (st == QM_OK)
        qm_gpu_report_free(&again);
    FILE *f = fopen(page, "w");
    assert_int_equal(qm_gpu_report_beside(f, one, 1), st);
    fclose(f);
    assert_true(st == QM_OK || st == QM_BAD_FILE);
    return st == QM_OK ? "" : qm_message();
}

static void expect(const char *what, const struct qm_gpu_report *r, const char *says)
{
    const char *got = answer(r, NULL);
    if (*says ? !strstr(got, says) || !strstr(got, "contradicts itself: ") : *got)
        fail_msg("%s: '%s', want '%s'", what, got, says);
}

static void agreeing_reports_are_read(void **state)
{
    struct qm_gpu_report r = sample_report("Card");
    (void)state;
    expect("sample", &r, "");
    json_t *row = json_array_get(r.rows[QM_GPU_exact], 3); /* two tasks of three are left */
    json_object_clear(json_array_get(r.rows[QM_GPU_speed], 0));
    json_object_update_new(json_array_get(r.rows[QM_GPU_speed], 0),
                           json_pack("{s:s, s:s, s:s}", "recipe", "adamw_f32", "mode", "exact",
                                     "status", "failed: cuInit"));
    expect("a failed row", &r, "");
    json_object_set_new(row, "equal", json_false());
    json_object_set_new(row, "difference", json_string("step 1: parameter 0"));
    expect("a bad row", &r, "");
    json_array_remove(r.rows[QM_GPU_exact], 5);
    json_object_set_new(r.plan, "missing", json_integer(1));
    json_object_set_new(r.plan, "state", json_string("begun"));
    expect("a missing row", &r, "");
    qm_gpu_report_free(&r);
}

/* A figure of the first row of a part, and what it becomes: times a factor, or set where factor is
 * 0; where is_derived is 1 the figures that follow from it too. */
static void figures_must_agree(void **state)
{
    static const struct {
        enum qm_gpu_part part;
        const char *name;
        double factor, value;
        int is_derived;
        const char *says;
    } all[] = {
        {QM_GPU_speed, "rate", 10, 0, 0, "rate is not"},
        {QM_GPU_speed, "share_of_copy", 10, 0, 0, "share_of_copy is not"},
        {QM_GPU_speed, "copy_rate", 10, 0, 0, "share_of_copy is not"},
        {QM_GPU_speed, "copy_rate", 0, 1e15, 1, "copy_rate is none"},
        {QM_GPU_speed, "seconds", 0.5, 0, 0, "rate is not"},
        {QM_GPU_speed, "seconds", 0.5, 0, 1, "least_seconds is above"},
        {QM_GPU_speed, "seconds", 1e-9, 0, 1, "seconds are none"},
        {QM_GPU_speed, "least_seconds", 100, 0, 0, "least_seconds is above"},
        {QM_GPU_tables, "graph_seconds", 0.001, 0, 0, "graph_seconds is less"},
        {QM_GPU_speed, "elements", 0, 134217728, 1, "elements are not"},
        {QM_GPU_speed, "elements", 0, 4096, 1, "elements are not"},
        {QM_GPU_speed, "bytes_per_parameter", 0.5, 0, 1, "bytes_per_parameter is not"},
        {QM_GPU_speed, "rounds", 0, 1, 0, "rounds are not"},
        {QM_GPU_speed, "rounds", 0, 9, 0, "rounds are not"},
        {QM_GPU_speed, "took", 0, 1e-6, 0, "took is less"},
        {QM_GPU_exact, "took", 0, -1, 0, "took is negative"},
        {QM_GPU_speed, "wait_seconds", 0, 0.5, 0, "a figure is a number that none can be"},
        {QM_GPU_tables, "wait_seconds", 0, 1e-9, 0, "a figure is a number that none can be"},
        {QM_GPU_tables, "tensors", 0, 1, 0, "tensors are not"},
        {QM_GPU_tables, "elements", 0, 16384, 0, "elements are not"},
        {QM_GPU_tables, "least_seconds", 2, 0, 0, "least_seconds is above"},
        {QM_GPU_codes, "inputs", 0.5, 0, 0, "inputs are not"},
        {QM_GPU_codes, "compared", 0, 4294967297.0, 0, "not all floats"},
        {QM_GPU_codes, "wrong", 0, 3, 0, "wrong and first_wrong"},
        {QM_GPU_codes, "wrong", 0, 1e6, 0, "more codes are wrong"},
        {QM_GPU_codes, "device_seconds", 0, 1e-6, 0, "device_seconds are none"},
        {QM_GPU_codes, "device_seconds", 0, 1e4, 0, "device_seconds are more"},
        {QM_GPU_check, "wrong", 0, 1, 0, "it passed, and"},
        {QM_GPU_check, "judged", 0, 0, 0, "it passed, and"},
        {QM_GPU_check, "off_by_one", 0, 1, 0, "it passed, and"},
        {QM_GPU_check, "equal", 0, 1e9, 0, "more than the numbers judged"},
        {QM_GPU_check, "worst_ratio", 0, 1.5, 0, "an error is above its bound"},
        {QM_GPU_peers, "ratio", 2, 0, 0, "ratio is not"},
        {QM_GPU_peers, "tensors", 0, 17, 0, "tensors or elements"},
        {QM_GPU_peers, "elements", 0, 4096, 1, "tensors or elements"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct qm_gpu_report r = sample_report("Card");
        json_t *row = json_array_get(r.rows[all[i].part], 0);
        double was = json_number_value(json_object_get(row, all[i].name));
        sample_set(row, all[i].name, all[i].factor > 0.0 ? was * all[i].factor : all[i].value);
        if (all[i].is_derived)
            sample_derive(all[i].part, row);
        expect(all[i].name, &r, all[i].says);
        qm_gpu_report_free(&r);
    }
}

/* A text of the first row of a part. */
static void texts_must_agree(void **state)
{
    static const struct {
        enum qm_gpu_part part;
        const char *name, *value, *says;
    } all[] = {
        {QM_GPU_exact, "difference", "step 1: parameter 0", "there is a difference"},
        {QM_GPU_exact, "variant", "adamw4_ao", "recipe is not in the plan"},
        {QM_GPU_exact, "variant", "nonsense", "recipe is not in the plan"},
        {QM_GPU_peers, "recipe", "nonsense", "the recipe is none"},
        {QM_GPU_peers, "status", "skipped: no kernel", "was not measured, and has figures"},
        {QM_GPU_exact, "gradients", "weird", NULL},
        {QM_GPU_exact, "shape", "999", NULL},
        {QM_GPU_exact, "status", "okay", "its status is none"},
        {QM_GPU_speed, "mode", "quick", NULL},
        {QM_GPU_speed, "mode", "fast", "it is there more than once"},
        {QM_GPU_speed, "status", "failed: cuInit", "was not measured, and has figures"},
        {QM_GPU_tables, "way", "two launches", NULL},
        {QM_GPU_tables, "mode", "fast", "mode is not exact"},
        {QM_GPU_codes, "routine", "nonsense", NULL},
        {QM_GPU_codes, "first_wrong", "0x1", "wrong and first_wrong"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct qm_gpu_report r = sample_report("Card");
        json_object_set_new(json_array_get(r.rows[all[i].part], 0), all[i].name,
                            json_string(all[i].value));
        expect(all[i].name, &r, all[i].says ? all[i].says : "is none that this program measures");
        qm_gpu_report_free(&r);
    }
}

static void rows_must_be_those_of_the_plan(void **state)
{
    (void)state;
    for (int part = 0; part < QM_GPU_PARTS; part++) {
        struct qm_gpu_report r = sample_report("Card");
        json_array_append_new(r.rows[part], json_deep_copy(json_array_get(r.rows[part], 0)));
        expect("twice", &r, "it is there more than once");
        json_array_remove(r.rows[part], json_array_size(r.rows[part]) - 1);
        json_array_remove(r.rows[part], 0);
        expect("removed", &r, "missing is less than the tasks without rows");
        qm_gpu_report_free(&r);
    }
}

static void plan_must_agree(void **state)
{
    static const struct {
        const char *name, *text, *says;
        int number;
    } all[] = {
        {"version", "9.9", "its version is not", 0},
        {"parts", "exact,speed", "the part is not in the plan", 0},
        {"parts", "all", "is none that this program measures", 0},
        {"recipes", "adamw4_ao", "the recipe is not in the plan", 0},
        {"recipes", "adamw_f32 lion8_bnb", "tasks are fewer", 0},
        {"recipes", "", "tasks are fewer", 0},
        {"not_covered", "", "not_covered is not", 0},
        {"state", "<b>", "its state is none", 0},
        {"state", "the time was over: 3 of 4 tasks are missing; gpu-check --resume goes on",
         "its state is none", 0},
        {"quick", NULL, "not all floats were compared", 0},
        {"elements", NULL, "elements are not the plan's", 134217728},
        {"elements", NULL, "elements are not the plan's", 4096},
        {"rounds", NULL, "time was left", 30},
        {"rounds", NULL, "rounds are not", 1},
        {"missing", NULL, "and tasks are missing", 0x7fffffff},
        {"missing", NULL, "is more than the tasks that are not measured", 5},
        {"tasks", NULL, "tasks are fewer", 3},
        {"tasks", NULL, "missing is less than the tasks without rows", 4000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct qm_gpu_report r = sample_report("Card");
        json_t *row = json_array_get(r.rows[QM_GPU_speed], 0);
        for (size_t k = 0; k < 2; k++) /* too few rounds for a plan of 30, in no time */
            sample_set(json_array_get(r.rows[QM_GPU_speed], k), "rounds", 7);
        sample_set(row, "took", 3.6);
        json_object_set_new(r.plan, all[i].name,
                            all[i].text ? json_string(all[i].text) : json_integer(all[i].number));
        const char *got = answer(&r, NULL);
        if (!strstr(got, "contradicts itself: ") ||
            (all[i].number != 0x7fffffff && !strstr(got, all[i].says)))
            fail_msg("%s, %d: '%s', want '%s'", all[i].name, all[i].number, got, all[i].says);
        qm_gpu_report_free(&r);
    }
}

static int prepare(void **state)
{
    (void)state;
    setenv("SOURCE_DATE_EPOCH", "0", 1);
    return mkdtemp(folder) ? 0 : 1;
}

static int clean(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agreeing_reports_are_read),
        cmocka_unit_test(figures_must_agree),
        cmocka_unit_test(texts_must_agree),
        cmocka_unit_test(rows_must_be_those_of_the_plan),
        cmocka_unit_test(plan_must_agree),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
