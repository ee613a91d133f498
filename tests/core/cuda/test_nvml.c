/* test_nvml.c - NVML that answers, fails, hangs, crashes, leaves or lies: an answer or a reason,
 * within the limit, and no process is left. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "core/cuda/nvml.h"
#include "tests/support/stand_in_nvml.h"

static const double limit = 0.3; /* seconds */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Starts the process anew, in which this happens. */
static void start(const char *call, enum stand_in_nvml_how how, int from)
{
    stand_in_nvml.call = call;
    stand_in_nvml.how = how;
    stand_in_nvml.from = from;
    qm_nvml_start(limit);
}

static void test_answers(void **state)
{
    struct qm_gpu_now x;
    (void)state;
    assert_int_equal(qm_gpu_now("0000:01:00.0", &x), QM_SKIPPED); /* nothing was started */
    start(NULL, STAND_IN_NVML_GOOD, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(qm_gpu_now("0000:01:00.0", &x), QM_OK);
        assert_int_equal(x.sm_mhz, 1500);
        assert_int_equal(x.memory_mhz, 2600);
        assert_int_equal(x.most_sm_mhz, 1980);
        assert_int_equal(x.most_memory_mhz, 2619);
        assert_int_equal(x.watts, 312);
        assert_int_equal(x.celsius, 50);
        assert_string_equal(x.driver, "580.65.06");
    }
    assert_null(qm_nvml_failed());
    /* What one card does not tell is 0, and the rest is an answer. */
    start("nvmlDeviceGetPowerUsage", STAND_IN_NVML_ERROR, 0);
    assert_int_equal(qm_gpu_now("0000:01:00.0", &x), QM_OK);
    assert_true(x.watts == 0 && x.sm_mhz == 1500);
}

static void test_misbehaves(void **state)
{
    static const struct {
        const char *call;
        enum stand_in_nvml_how how;
        const char *says;
    } cases[] = {
        {"nvmlInit_v2", STAND_IN_NVML_ERROR, "nvmlInit_v2 gives error 18"},
        {"nvmlInit_v2", STAND_IN_NVML_HANG, "has not answered within 0.3 s, in nvmlInit_v2"},
        {"nvmlInit_v2", STAND_IN_NVML_STOP, "has not answered within 0.3 s, in nvmlInit_v2"},
        {"nvmlInit_v2", STAND_IN_NVML_CRASH, "ended by signal 11"},
        {"nvmlInit_v2", STAND_IN_NVML_LEAVE, "left with exit code 0, in nvmlInit_v2"},
        {"nvmlInit_v2", STAND_IN_NVML_CLOSE, "closed its connection, in nvmlInit_v2"},
        {"nvmlDeviceGetHandleByPciBusId_v2", STAND_IN_NVML_ERROR, "does not know device"},
        {"nvmlDeviceGetPowerUsage", STAND_IN_NVML_HANG, "in nvmlDeviceGetPowerUsage"},
        {"nvmlDeviceGetTemperature", STAND_IN_NVML_CRASH, "in nvmlDeviceGetTemperature"},
        {"nvmlDeviceGetClockInfo", STAND_IN_NVML_LIE, "says what no GPU has: 4000000000 and"},
        {"nvmlDeviceGetTemperature", STAND_IN_NVML_LIE, "4000000000 degrees"},
        {"nvmlSystemGetDriverVersion", STAND_IN_NVML_LIE, "a version of the driver that is none"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int from = 0; from < 2; from++) {
            struct qm_gpu_now x;
            double begun = seconds();
            if (from && strcmp(cases[i].call, "nvmlInit_v2") == 0)
                continue;
            start(cases[i].call, cases[i].how, from);
            if (from)
                assert_int_equal(qm_gpu_now("0000:01:00.0", &x), QM_OK);
            assert_int_equal(qm_gpu_now("0000:01:00.0", &x), QM_SKIPPED);
            if (!strstr(qm_message(), cases[i].says))
                fail_msg("%s: %s (want %s)", cases[i].call, qm_message(), cases[i].says);
            assert_true(x.sm_mhz == 0 && x.watts == 0 && !*x.driver);
            assert_non_null(strstr(qm_nvml_failed(), cases[i].says));
            assert_int_equal(qm_gpu_now("0000:01:00.0", &x), QM_SKIPPED); /* at once */
            assert_true(seconds() - begun < limit + 2.0);
        }
}

/* Of each process that was started none is left that does not wait for a question. */
static void test_leaves_nothing(void **state)
{
    struct qm_gpu_now x;
    (void)state;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    start("nvmlInit_v2", STAND_IN_NVML_HANG, 0);
    assert_int_equal(qm_gpu_now("0000:01:00.0", &x), QM_SKIPPED);
    int left = 0;
    for (int i = 0; i < 100; i++) {
        int state_of = 0;
        pid_t pid = waitpid(-1, &state_of, WNOHANG);
        left += pid > 0;
    }
    assert_int_equal(left, 0); /* it was reaped */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers),
                                       cmocka_unit_test(test_misbehaves),
                                       cmocka_unit_test(test_leaves_nothing)};
    qm_library_stand_in(QM_LIBRARY_nvml, nv_symbol);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
