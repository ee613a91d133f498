/* test_rehearsal.c - gpu-check against a stand-in for the driver that fails at each call in turn,
 * late, out of memory, by a hang, a crash, a refused module, a device that disappears.
 *
 * Each fault must be a row that says so; every other row must be as without it; the report must be
 * readable at every moment, and --resume must complete it.  This process runs no OpenMP region,
 * because it forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/support/drawn.h"
#include "tests/support/rehearsal.h"

/* ---- tests ----------------------------------------------------------------------------------- */

/* Without a fault: all rows, exit code 0; a second report of the same second has its own name. */
static void test_whole(void **state)
{
    glob_t g;
    char pattern[96];
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    NEEDS_COMPILER();
    clear();
    assert_int_equal(RUN(FEW), 0);
    expect_rows(FEW_ROWS, 0, NULL);
    assert_non_null(strstr(printed, "stand-in-exact-speed-1970-01-01-000000.h5 and .md: complete"));
    assert_int_equal(RUN("adamw_f32", "--only", "exact", "--quick"), 0);
    assert_int_equal(RUN("adamw_f32", "--only", "exact", "--quick"), 0);
    snprintf(pattern, sizeof pattern, "%s/*.h5", out);
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    assert_int_equal(g.gl_pathc, 3);
    globfree(&g);
}

/* Each call of the driver that a row makes fails once, in the process of the first rows (number 2:
 * the first describes the device) or of the timed ones: one row says which call it was. */
static void test_each_call(void **state)
{
    static const struct {
        const char *call;
        int process;
    } calls[] = {
        {"cuInit", 2},
        {"cuDeviceGet", 2},
        {"cuDevicePrimaryCtxRetain", 2},
        {"cuCtxSetCurrent", 2},
        {"cuStreamCreate", 2},
        {"cuMemAlloc_v2", 2},
        {"cuMemsetD8Async", 2},
        {"cuMemcpyHtoDAsync_v2", 2},
        {"cuMemcpyDtoHAsync_v2", 2},
        {"cuModuleLoadData", 2},
        {"cuModuleGetFunction", 2},
        {"cuLaunchKernel", 2},
        {"cuStreamSynchronize", 2},
        {"cuDeviceGetCount", 2},
        {"cuMemGetInfo_v2", 3},
        {"cuEventCreate", 3},
        {"cuEventRecord", 3},
        {"cuEventSynchronize", 3},
        {"cuEventElapsedTime", 3},
        {"cuMemcpyDtoDAsync_v2", 3},
        {"cuFuncGetAttribute", 3},
        {"cuOccupancyMaxActiveBlocksPerMultiprocessor", 3},
        {"cuStreamBeginCapture_v2", 3},
        {"cuStreamEndCapture", 3},
        {"cuGraphInstantiateWithFlags", 3},
        {"cuGraphLaunch", 3},
        {"cuDeviceGetPCIBusId", 3},
        {"cuDeviceGetAttribute", 3},
    };
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    NEEDS_COMPILER();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (!is_drawn((int)i))
            continue;
        clear();
        stand_in_fault =
            (struct stand_in_fault){calls[i].call, calls[i].process, 1, 700, STAND_IN_ERROR};
        int code = RUN(FEW);
        if (code != 1)
            fail_msg("%s: exit code %d\n%s", calls[i].call, code, printed);
        assert_int_equal(stand_in_shared->struck, 1);
        expect_rows(FEW_ROWS - 1, 1, "failed: ");
    }
    clear();
    stand_in_fault = (struct stand_in_fault){"cuMemAlloc_v2", 2, 3, 2, STAND_IN_ERROR};
    assert_int_equal(RUN(FEW), 1);
    expect_rows(FEW_ROWS - 1, 1, "out of memory: ");
}

/* A late error comes with another call than the one that caused it, and the whole process is lost;
 * the rows before it and the other processes are not. */
static void test_late(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 12);
    NEEDS_COMPILER();
    clear();
    stand_in_fault = (struct stand_in_fault){"cuLaunchKernel", 2, 50, 700, STAND_IN_LATE};
    assert_int_equal(RUN(FEW), 1);
    expect_rows(FEW_ROWS - 1, 1, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
}

/* A process that crashes, and one that hangs; then two hangs of one recipe: its other rows are not
 * waited for, and say so. */
static void test_crash_and_hang(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 13);
    NEEDS_COMPILER();
    clear();
    stand_in_fault = (struct stand_in_fault){"cuLaunchKernel", 2, 9, 0, STAND_IN_CRASH};
    assert_int_equal(RUN(FEW), 1);
    expect_rows(FEW_ROWS - 1, 1, "failed: the process ended by signal 11");
    clear();
    stand_in_fault = (struct stand_in_fault){"cuStreamSynchronize", 2, 30, 0, STAND_IN_HANG};
    assert_int_equal(RUN(FEW, "--limit", "3"), 1);
    expect_rows(FEW_ROWS - 1, 1, "timed out after 3 s");
    clear();
    stand_in_fault = (struct stand_in_fault){"cuLaunchKernel", 0, 20, 0, STAND_IN_HANG};
    double from = qm_seconds();
    assert_int_equal(RUN("adamw_f32", "--only", "exact", "--quick", "--limit", "1"), 1);
    assert_true(qm_seconds() - from < 20.0);
    struct qm_gpu_report r;
    size_t by[4];
    char first[1300];
    read_report(&r);
    count(&r, by, first, sizeof first);
    assert_true(by[QM_GPU_good] > 0 && by[QM_GPU_broken] > 2);
    json_t *last = json_array_get(r.rows[QM_GPU_exact], FEW_ROWS - 2 - 1);
    assert_string_equal(json_string_value(json_object_get(last, "status")),
                        "failed: not run, because 2 rows of adamw_f32 failed before");
    qm_gpu_report_free(&r);
}

/* The driver refuses every module: rows say so, with the versions of both sides, and
 * nothing hangs. */
static void test_refused(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 14);
    NEEDS_COMPILER();
    clear();
    stand_in_refuses = 2;
    stand_in_driver = 12040;
    assert_int_equal(RUN(FEW), 1);
    stand_in_refuses = 0;
    stand_in_driver = 13000;
    expect_rows(0, FEW_ROWS, "the driver is for CUDA 12.4, the kernel was compiled by NVRTC 13.0");
}

/* The device disappears in the middle: what was measured stays, every other row says why, and when
 * it is back --resume measures these. */
static void test_device_gone(void **state)
{
    struct qm_gpu_report r;
    size_t by[4];
    char first[1300];
    (void)state;
    AT_ONE_COMMIT_IN(4, 15);
    NEEDS_COMPILER();
    clear();
    stand_in_fault = (struct stand_in_fault){"cuLaunchKernel", 2, 60, 0, STAND_IN_GONE};
    assert_int_equal(RUN(FEW), 1);
    read_report(&r);
    count(&r, by, first, sizeof first);
    qm_gpu_report_free(&r);
    assert_true(by[QM_GPU_good] > 5 && by[QM_GPU_good] < FEW_ROWS - 2);
    assert_int_equal(by[QM_GPU_good] + by[QM_GPU_broken], FEW_ROWS);
    stand_in_fault = (struct stand_in_fault){0};
    assert_int_equal(RUN("--resume"), 77); /* still gone */
    assert_non_null(strstr(printed, "no CUDA device"));
    stand_in_shared->is_gone = 0;
    assert_int_equal(RUN("--resume"), 0);
    expect_rows(FEW_ROWS, 0, NULL);
}

/* The time is over: a whole, readable report and exit code 75, after each of several lengths; the
 * calls that follow complete it, and no row is measured twice. */
static void test_time_over(void **state)
{
    struct qm_gpu_report r;
    int code, calls = 1, last = -1;
    (void)state;
    AT_ONE_COMMIT_IN(4, 16);
    NEEDS_COMPILER();
    clear();
    assert_int_equal(RUN(FEW, "--seconds", "0.05"), 75);
    for (;; calls++) {
        read_report(&r);
        int left = (int)json_integer_value(json_object_get(r.plan, "missing"));
        assert_true(left > 0 && (last < 0 || left <= last));
        last = left;
        qm_gpu_report_free(&r);
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%g", 0.2 * calls);
        code = RUN("--resume", "--seconds", seconds);
        if (code == 0)
            break;
        assert_int_equal(code, 75);
        assert_non_null(strstr(printed, "the time was over: "));
        assert_true(calls < 100);
    }
    expect_rows(FEW_ROWS, 0, NULL);
    assert_int_equal(RUN("--resume"), 0); /* nothing is left */
    expect_rows(FEW_ROWS, 0, NULL);
    assert_int_equal(RUN("--resume", "--only", "exact"), 2);
}

/* SIGTERM while a row hangs: the rows so far, 75, and no process is left.  SIGKILL: the rows so
 * far, and --resume goes on with them. */
static void test_signals(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 17);
    NEEDS_COMPILER();
    for (int kills = 0; kills < 2; kills++) {
        clear();
        stand_in_fault = (struct stand_in_fault){"cuLaunchKernel", 2, 40, 0, STAND_IN_HANG};
        pid_t pid = start((const char *const[]){FEW, NULL});
        await_row();
        kill(pid, kills ? SIGKILL : SIGTERM);
        assert_int_equal(finish(pid), kills ? -SIGKILL : 75);
        stand_in_fault = (struct stand_in_fault){0};
        assert_int_equal(RUN("--resume"), 0);
        expect_rows(FEW_ROWS, 0, NULL);
    }
}

/* A device that cannot be described: one line, and the documented codes. */
static void test_no_device(void **state)
{
    static const struct {
        enum stand_in_how how;
        int code;
        const char *says;
    } ends[] = {{STAND_IN_ERROR, 3, "GPU backend unavailable: a stand-in: cuInit gives error 700"},
                {STAND_IN_HANG, 3, "no answer within the limit"},
                {STAND_IN_CRASH, 3, "ended by signal 11"}};
    (void)state;
    AT_ONE_COMMIT_IN(4, 18);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        clear();
        stand_in_fault = (struct stand_in_fault){"cuInit", 1, 1, 700, ends[i].how};
        assert_int_equal(RUN(FEW, "--limit", "1"), ends[i].code);
        if (!strstr(printed, ends[i].says))
            fail_msg("'%s' lacks '%s'", printed, ends[i].says);
        assert_true(access(out, F_OK) != 0); /* no file was begun */
    }
    assert_int_equal(RUN("--resume"), 4);
    assert_int_equal(RUN("adamw4_oa"), 4);
    assert_non_null(strstr(printed, "did you mean 'adamw4_ao'?"));
}

/* Peers: times, reasons, a program that fails, one that hangs, and one that is no such program. */
static void test_peers(void **state)
{
    struct qm_gpu_report r;
    (void)state;
    AT_ONE_COMMIT_IN(4, 19);
    NEEDS_COMPILER();
    clear();
    setenv("FAKE_SECONDS", "0.00390625", 1);
    int code = RUN("adamw_f32", "--only", "speed,tables,peers", "--size", "0.008", "--rounds", "2",
                   "--peers",
                   "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/peers/fake /usr/bin/python3 "
                   "tests/peers/peers.py");
    assert_int_equal(code, 0);
    read_report(&r);
    json_t *row = json_array_get(r.rows[QM_GPU_peers], 0);
    assert_string_equal(json_string_value(json_object_get(row, "peer")), "torch AdamW(fused=True)");
    assert_true(json_real_value(json_object_get(row, "peer_seconds")) == 0x1p-8);
    assert_true(json_real_value(json_object_get(row, "ratio")) ==
                json_real_value(json_object_get(row, "seconds")) / 0x1p-8);
    assert_int_equal(json_array_size(r.rows[QM_GPU_peers]), 3 + 4); /* exact, fast, many; skipped */
    row = json_array_get(r.rows[QM_GPU_peers], 3);
    assert_non_null(
        strstr(json_string_value(json_object_get(row, "status")), "skipped: ModuleNotFoundError"));
    qm_gpu_report_free(&r);
    static const struct {
        const char *command, *says;
    } bad[] = {
        {"false", "exit code 1, expected 0 or 77"},
        {"echo no #", "expected JSON"},
        {"f() { [ $1 = --names ] && echo '[\"x\"]' || sleep 100; }; f", "timed out after 0.9 s"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        clear();
        assert_int_equal(RUN("--only", "peers", "--limit", "0.3", "--peers", bad[i].command), 1);
        expect_rows(0, 1, bad[i].says);
    }
}

/* Kernels that were compiled ahead are all that the measuring processes need: elementwise and whole
 * tensors, both modes, every way of launching. */
static void test_ahead(void **state)
{
    static const char *const recipes[] = {"adamw4_lpmm_group", "adafactor8_026"};
    char *words[2];
    struct qm_gpu_options o = {.n_recipes = 2, .recipes = words, .has_only = 1, .quick = 1};
    struct qm_gpu_tasks tasks;
    (void)state;
    AT_ONE_COMMIT_IN(5, 0);
    NEEDS_COMPILER();
    for (int i = 0; i < 2; i++)
        words[i] = (char *)(uintptr_t)recipes[i];
    char cache[96];
    clear();
    snprintf(cache, sizeof cache, "%s/cold", base); /* what other tests compiled does not help */
    setenv("QM_CACHE", cache, 1);
    o.only[QM_GPU_exact] = o.only[QM_GPU_speed] = o.only[QM_GPU_tables] = 1;
    pid_t pid = fork();
    if (pid == 0) {
        if (qm_gpu_tasks_make(&o, NULL, &tasks) != QM_OK)
            _exit(1);
        for (int i = 0; i < tasks.n; i++)
            qm_gpu_compile_ahead(&tasks.at[i], 8192, 90);
        _exit(compiles > 10 ? 0 : 2);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(stand_in_shared->compiles_beside, 0);
    int code = RUN("adamw4_lpmm_group", "adafactor8_026", "--only", "exact,speed,tables", "--quick",
                   "--size", "0.008", "--rounds", "2", "--ahead", "0");
    if (code != 0)
        fail_msg("exit code %d\n%s", code, printed);
    assert_int_equal(stand_in_shared->compiles_beside, 0);
    clear(); /* and without them there is something to compile */
    setenv("QM_CACHE", "off", 1);
    assert_int_equal(RUN("adamw_f32", "--only", "speed", "--size", "0.008", "--rounds", "2"), 0);
    snprintf(cache, sizeof cache, "%s/cache", base);
    setenv("QM_CACHE", cache, 1);
    assert_true(stand_in_shared->compiles_beside > 0);
    clear();
    assert_int_equal(RUN(FEW, "--ahead", "2"), 0); /* and the processes leave nothing behind */
    expect_rows(FEW_ROWS, 0, NULL);
}

/* Reports side by side, and what is no report. */
static void test_beside(void **state)
{
    char a[128], b[128];
    (void)state;
    AT_ONE_COMMIT_IN(4, 20);
    NEEDS_COMPILER();
    clear();
    assert_int_equal(RUN("adamw_f32", "--only", "speed", "--size", "0.008", "--rounds", "2"), 0);
    assert_int_equal(RUN("adamw_f32", "--only", "exact", "--quick"), 0);
    snprintf(a, sizeof a, "%s/stand-in-speed-1970-01-01-000000.h5", out);
    snprintf(b, sizeof b, "%s/stand-in-exact-1970-01-01-000000.h5", out);
    assert_int_equal(RUN("--beside", a, b), 0);
    assert_non_null(strstr(printed, "| share\\_of\\_copy | 1: Stand-in | 2: Stand-in |"));
    assert_non_null(strstr(printed, "| steps with the CPU's bits | - | 38 of 38 (quick) |"));
    assert_non_null(strstr(printed, "| adamw\\_f32, fast | "));
    assert_non_null(strstr(printed, "**These reports differ in quick, "));
    assert_int_equal(RUN("adamw_f32", "--only", "speed", "--size", "0.02", "--rounds", "2"), 0);
    snprintf(b, sizeof b, "%s/stand-in-speed-1970-01-01-000000-2.h5", out);
    assert_int_equal(RUN("--beside", a, b), 0);
    assert_non_null(strstr(printed, "**These reports differ in elements: compare with care.**"));
    assert_non_null(strstr(printed, " (8192) | "));
    assert_non_null(strstr(printed, " (20480) |"));
    stand_in_card.is_idle = 1; /* a line also for rows that only failed */
    assert_int_equal(RUN("lion_f32", "--only", "speed", "--size", "0.008", "--rounds", "2"), 1);
    stand_in_card.is_idle = 0;
    snprintf(b, sizeof b, "%s/stand-in-speed-1970-01-01-000000-3.h5", out);
    assert_int_equal(RUN("--beside", a, b), 0);
    assert_non_null(strstr(printed, "| lion\\_f32, fast | - | failed |"));
    assert_int_equal(RUN("--beside", "results/baseline.h5"), 3);
    assert_non_null(strstr(printed, "expected gpu"));
    assert_int_equal(RUN("--beside"), 2);
}

int main(int argc, char **argv)
{
    if (argc > 1) /* the name of a test, or a pattern */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),     cmocka_unit_test(test_each_call),
        cmocka_unit_test(test_late),      cmocka_unit_test(test_crash_and_hang),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_device_gone),
        cmocka_unit_test(test_time_over), cmocka_unit_test(test_signals),
        cmocka_unit_test(test_no_device), cmocka_unit_test(test_peers),
        cmocka_unit_test(test_beside),    cmocka_unit_test(test_ahead),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
