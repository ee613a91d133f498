/* test_gpu_runs.c - Runs of gpu-check as a whole: another card, times that are none, a slow start,
 * nothing to measure, two at once, kernels that stay loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/rehearsal.h"

/* A report goes on with the card, driver and NVRTC that it was begun with; else what differs is
 * said. */
static void test_another_card(void **state)
{
    const struct stand_in_card was = stand_in_card;
    struct stand_in_card others[] = {was, was, was, was, was};
    static const char *const says[] = {"name \"Stand-in\", now \"Other\"", "uuid \"GPU-01010101-",
                                       "memory_bytes 1073741824.0, now 10",
                                       "multiprocessors 4, now 5", "l2_bytes 4096, now 8192"};
    (void)state;
    NEEDS_COMPILER();
    clear();
    others[0].name = "Other";
    others[1].uuid = 7;
    others[2].memory = 1000;
    others[3].sms = 5;
    others[4].l2 = 8192;
    assert_int_equal(RUN(FEW, "--seconds", "0.5"), 75);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        stand_in_card = others[i];
        assert_int_equal(RUN("--resume"), 2);
        if (!strstr(printed, says[i]))
            fail_msg("'%s' lacks '%s'", printed, says[i]);
        assert_ptr_equal(strchr(printed, '\n'), strrchr(printed, '\n')); /* one line */
    }
    stand_in_card = was;
    stand_in_driver = 12040;
    assert_int_equal(RUN("--resume"), 2);
    assert_non_null(strstr(printed, "driver_api \"13.0\", now \"12.4\""));
    stand_in_driver = 13000;
    assert_int_equal(RUN("--resume", "--seconds", "0.5"), 75);
}

/* Times that are none are failed rows. */
static void test_times(void **state)
{
    static const float times[] = {NAN, 0.0f, -1.0f, INFINITY, -INFINITY};
    (void)state;
    NEEDS_COMPILER();
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        clear();
        stand_in_card.is_fixed = 1;
        stand_in_card.milliseconds = times[i];
        assert_int_equal(RUN("adamw_f32", "--only", "speed,tables", "--size", "0.008"), 1);
        stand_in_card.is_fixed = 0;
        expect_rows(0, 3, "failed: cuEventElapsedTime gives ");
    }
}

/* The time of a run counts from its start: a driver that does not answer does not prolong it. */
static void test_slow_start(void **state)
{
    (void)state;
    NEEDS_COMPILER();
    clear();
    stand_in_fault = (struct stand_in_fault){"cuInit", 0, 1, 0, STAND_IN_HANG};
    double from = qm_seconds();
    assert_int_equal(RUN(FEW, "--seconds", "0.5"), 75);
    assert_true(qm_seconds() - from < 8.0);
    assert_non_null(
        strstr(printed, "the time (--seconds 0.5) was over before the GPU had answered"));
    assert_non_null(strstr(printed, "in cuInit"));
    stand_in_fault = (struct stand_in_fault){0};
    assert_int_equal(RUN(FEW, "--seconds", "0.5"), 75);
    stand_in_fault = (struct stand_in_fault){"cuInit", 0, 1, 0, STAND_IN_HANG};
    from = qm_seconds();
    assert_int_equal(RUN("--resume", "--seconds", "0.5"), 75);
    assert_true(qm_seconds() - from < 8.0);
    assert_int_equal(RUN("--only", "peers", "--seconds", "0.5", "--peers", "sleep 100 #"), 75);
    assert_true(qm_seconds() - from < 16.0);
}

/* What measures nothing is no success. */
static void test_nothing(void **state)
{
    (void)state;
    NEEDS_COMPILER();
    clear();
    assert_int_equal(
        RUN("adamw_f32,exp_avg=dyn:8s/block:64/bisect/mid/nest:256", "--only", "exact", "--quick"),
        77);
    assert_non_null(strstr(printed, "every row was skipped, the first because: skipped: "));
    assert_int_equal(RUN("--only", "peers", "--peers", "none"), 4);
    assert_non_null(strstr(printed, "nothing to measure"));
    setenv("QM_CUDA_DEVICE", "1x", 1);
    assert_int_equal(RUN(FEW), 2);
    setenv("QM_CUDA_DEVICE", "1", 1);
    assert_int_equal(RUN(FEW), 77);
    unsetenv("QM_CUDA_DEVICE");
}

/* Two runs at once have a report each, and a report that is being written is left alone. */
static void test_at_once(void **state)
{
    glob_t g;
    char pattern[96];
    (void)state;
    NEEDS_COMPILER();
    clear();
    stand_in_fault = (struct stand_in_fault){"cuLaunchKernel", 2, 40, 0, STAND_IN_HANG};
    pid_t first = start((const char *const[]){FEW, NULL});
    await_row();
    stand_in_fault = (struct stand_in_fault){0};
    assert_int_equal(RUN("--resume"), 3);
    assert_non_null(strstr(printed, "another process is writing it"));
    assert_int_equal(RUN(FEW), 0);
    kill(first, SIGTERM);
    assert_int_equal(finish(first), 75);
    snprintf(pattern, sizeof pattern, "%s/*", out);
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    assert_int_equal(g.gl_pathc, 4); /* two reports, no lock */
    globfree(&g);
}

/* A process holds the kernels of two rows at most, and an error of unloading is said in a good
 * row. */
static void test_modules(void **state)
{
    (void)state;
    NEEDS_COMPILER();
    clear();
    stand_in_fault = (struct stand_in_fault){"cuModuleUnload", 0, 1, 700, STAND_IN_ERROR};
    int code = RUN("adafactor8_026", "--only", "exact", "--quick");
    assert_int_equal(code, 0);
    print_message("%d kernels at once, %d loaded\n", stand_in_shared->most_modules,
                  stand_in_shared->loads);
    assert_in_range(stand_in_shared->most_modules, 1, 6);
    assert_true(stand_in_shared->loads > 6);
    struct qm_gpu_report r;
    int found = 0;
    size_t k;
    json_t *row;
    read_report(&r);
    json_array_foreach(r.rows[QM_GPU_exact], k, row) found +=
        strstr(json_string_value(json_object_get(row, "status")),
               "ok; afterwards the process was left: cuModuleUnload: ") != NULL;
    assert_true(found > 0);
    qm_gpu_report_free(&r);
}

int main(int argc, char **argv)
{
    if (argc > 1) /* the name of a test, or a pattern */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_card), cmocka_unit_test(test_times),
        cmocka_unit_test(test_slow_start),   cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_at_once),      cmocka_unit_test(test_modules),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
