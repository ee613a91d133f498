/* test_gpu_nvml.c - gpu-check with an NVML that fails at its first question or at a later one, and
 * the name of a report whose GPU had not answered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/rehearsal.h"
#include "tests/support/stand_in_nvml.h"

#define SPEED "adamw_f32", "--only", "speed", "--size", "0.008", "--rounds", "2"

/* The device's fact `nvml` of the newest report has these words, and `driver` is this one. */
static void expect_nvml(const char *says, const char *driver)
{
    struct qm_gpu_report r;
    read_report(&r);
    const char *nvml = json_string_value(json_object_get(r.device, "nvml"));
    if (!nvml || !strstr(nvml, says))
        fail_msg("nvml: %s (want %s)", nvml ? nvml : "nothing", says);
    assert_string_equal(json_string_value(json_object_get(r.device, "driver")), driver);
    qm_gpu_report_free(&r);
}

static void misbehave(const char *call, enum stand_in_nvml_how how, int from)
{
    stand_in_nvml.call = call;
    stand_in_nvml.how = how;
    stand_in_nvml.from = from;
}

static void test_optional(void **state)
{
    static const struct {
        const char *call, *says, *driver;
        enum stand_in_nvml_how how;
        int from;
    } cases[] = {
        {NULL, "answers", "580.65.06", STAND_IN_NVML_GOOD, 0},
        {"nvmlInit_v2", "in nvmlInit_v2", "", STAND_IN_NVML_HANG, 0},
        {"nvmlInit_v2", "ended by signal 11", "", STAND_IN_NVML_CRASH, 0},
        {"nvmlDeviceGetClockInfo", "says what no GPU has", "", STAND_IN_NVML_LIE, 0},
        {"nvmlSystemGetDriverVersion", "a version of the driver", "", STAND_IN_NVML_LIE, 0},
        {"nvmlDeviceGetPowerUsage", "answers; nvmlDeviceGetPowerUsage gives error 18", "580.65.06",
         STAND_IN_NVML_ERROR, 0},
    };
    (void)state;
    NEEDS_COMPILER();
    setenv("QM_CUDA_LIMIT", "2", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clear();
        misbehave(cases[i].call, cases[i].how, cases[i].from);
        assert_int_equal(RUN(SPEED), 0);
        expect_rows(2, 0, NULL);
        expect_nvml(cases[i].says, cases[i].driver);
        int is_noted = strstr(printed, "rows have no clocks: ") != NULL;
        assert_int_equal(is_noted, strncmp(cases[i].says, "answers", 7) != 0);
        assert_true(!is_noted || strstr(printed, "QM_NVML=none leaves it out"));
        /* The next run may have another NVML: it is no other driver. */
        misbehave(NULL, STAND_IN_NVML_GOOD, 0);
        assert_int_equal(RUN("--resume"), 0);
        expect_nvml("answers", "580.65.06");
        misbehave("nvmlInit_v2", STAND_IN_NVML_CRASH, 0);
        assert_int_equal(RUN("--resume"), 0);
        expect_nvml("ended by signal 11", "580.65.06");
    }
    unsetenv("QM_CUDA_LIMIT");
}

/* A question during the run that fails ends no row, and nothing is asked after it. */
static void test_later(void **state)
{
    (void)state;
    NEEDS_COMPILER();
    setenv("QM_CUDA_LIMIT", "2", 1);
    clear();
    misbehave("nvmlDeviceGetPowerUsage", STAND_IN_NVML_CRASH, 1); /* at a second row */
    assert_int_equal(RUN(SPEED), 0);
    expect_rows(2, 0, NULL);
    expect_nvml("in nvmlDeviceGetPowerUsage", "580.65.06");
    unsetenv("QM_CUDA_LIMIT");
}

/* A report that was begun without an answer is called gpu-..., and gets the GPU's name later. */
static void test_name(void **state)
{
    char path[4096];
    (void)state;
    NEEDS_COMPILER();
    clear();
    misbehave(NULL, STAND_IN_NVML_GOOD, 0);
    stand_in_fault = (struct stand_in_fault){"cuInit", 0, 1, 0, STAND_IN_HANG};
    assert_int_equal(RUN(SPEED, "--seconds", "0.1"), 75);
    assert_int_equal(qm_gpu_report_newest(out, path, sizeof path), QM_OK);
    assert_non_null(strstr(path, "/gpu-speed-"));
    stand_in_fault = (struct stand_in_fault){0};
    char resume[4200];
    snprintf(resume, sizeof resume, "--resume=%s", path);
    assert_int_equal(RUN(resume), 0);
    expect_rows(2, 0, NULL);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(qm_gpu_report_newest(out, path, sizeof path), QM_OK);
    assert_non_null(strstr(path, "/stand-in-speed-"));
    assert_non_null(strstr(printed, path));
    assert_int_equal(system("[ $(ls ${QM_CACHE}/../gpu | wc -l) = 2 ]"), 0); /* NOLINT */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_optional),
                                       cmocka_unit_test(test_later), cmocka_unit_test(test_name)};
    qm_library_stand_in(QM_LIBRARY_nvml, nv_symbol);
    return cmocka_run_group_tests(tests, prepare, clean);
}
