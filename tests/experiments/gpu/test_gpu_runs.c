/* test_gpu_runs.c - Tests whole runs of gpu-check: resuming, damaged reports, implausible times, a
 * slow start, two runs at once, loaded kernels and signals. */
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

#include "core/base/clock.h"
#include "experiments/gpu/bench.h"
#include "tests/support/drawn.h"
#include "tests/support/rehearsal.h"

#define SPEED "adamw_f32", "--only", "speed", "--size", "0.008", "--rounds", "2"

/* A report goes on with the card, driver and NVRTC that it was begun with; else what differs
 * is said. */
static void test_another_card(void **state)
{
    const struct stand_in_card was = stand_in_card;
    struct stand_in_card others[] = {was, was, was, was, was};
    static const char *const says[] = {"name \"Stand-in\", now \"Other\"", "uuid \"GPU-01010101-",
                                       "memory_bytes 1073741824.0, now 536870912.0",
                                       "multiprocessors 4, now 5", "l2_bytes 4096, now 8192"};
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    NEEDS_COMPILER();
    clear();
    others[0].name = "Other";
    others[1].uuid = 7;
    others[2].memory = (size_t)1 << 29;
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

/* Changes a report in the way number `how`, and says what --resume answers. */
static const char *spoil(const char *path, int how, int *code)
{
    char stem[4096], command[8300];
    char *words[] = {(char *)(uintptr_t) "gpu-check"};
    struct qm_gpu_report r;
    snprintf(stem, sizeof stem, "%.*s", (int)strlen(path) - 3, path);
    *code = 3;
    if (how < 2) { /* cut in the middle of the line of its checksum; in the middle of the file */
        snprintf(command, sizeof command, "truncate -s -%d '%s'", how ? 9000 : 20, path);
        assert_int_equal(system(command), 0);
        return path;
    }
    assert_int_equal(qm_gpu_report_read(path, &r), QM_OK);
    json_t *row = json_array_get(r.rows[QM_GPU_speed], 0);
    if (how == 2)
        json_object_set_new(r.plan, "commit", json_string("0123456789ab"));
    else if (how == 3)
        json_object_set_new(row, qm_gpu_columns(QM_GPU_speed)->name, json_string("adamw_none"));
    else
        json_array_append_new(r.rows[QM_GPU_exact], json_object());
    assert_int_equal(qm_gpu_report_write(&r, stem, 1, words), QM_OK);
    qm_gpu_report_free(&r);
    return how == 2   ? "the commit of its plan is not that of /provenance"
           : how == 3 ? "row 0 of part speed, of 'adamw_none': the recipe is not in the plan"
                      : "row 0 of exact has no ";
}

/* A report that is cut, of another commit, or has rows that nobody measures or without a name:
 * --resume says so in a line, and leaves the file as it is. */
static void test_strange_reports(void **state)
{
    char path[4096], keep[8300];
    int code;
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    NEEDS_COMPILER();
    for (int how = 0; how < 5; how++) {
        clear();
        assert_int_equal(RUN(SPEED), 0);
        assert_int_equal(qm_gpu_report_newest(out, path, sizeof path), QM_OK);
        const char *says = spoil(path, how, &code);
        snprintf(keep, sizeof keep, "cp '%s' '%s/kept'", path, out);
        assert_int_equal(system(keep), 0);
        int got = RUN("--resume");
        if (got != code || !strstr(printed, says) || strchr(printed, '\n')[1])
            fail_msg("way %d: exit code %d: '%s' (want '%s')", how, got, printed, says);
        snprintf(keep, sizeof keep, "cmp '%s' '%s/kept'", path, out);
        assert_int_equal(system(keep), 0);
    }
}

/* Times that are none, and such as no GPU and no clock can have, are failed rows. */
static void test_times(void **state)
{
    static const float times[] = {NAN,    -1.0f, INFINITY, -INFINITY, 0.0f,
                                  1e-30f, 1e30f, 1e6f,     1e-6f};
    (void)state;
    AT_ONE_COMMIT_IN(4, 12);
    NEEDS_COMPILER();
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        clear();
        stand_in_card.is_fixed = 1;
        stand_in_card.milliseconds = times[i];
        assert_int_equal(RUN("adamw_f32", "--only", "speed,tables", "--size", "0.008"), 1);
        stand_in_card.is_fixed = 0;
        expect_rows(0, 3, i < 4 ? "failed: cuEventElapsedTime gives " : "failed: implausible: ");
    }
}

/* NaN against NaN is no verdict: a device that takes nothing, does nothing and holds NaN fails. */
static void test_deaf(void **state)
{
    struct qm_gpu_report r;
    size_t by[4];
    char first[64];
    (void)state;
    AT_ONE_COMMIT_IN(4, 13);
    NEEDS_COMPILER();
    clear();
    stand_in_card.is_idle = stand_in_card.is_deaf = 1;
    int code = RUN("adamw_f32", "adamw8_ao", "--only", "check", "--quick");
    stand_in_card.is_idle = stand_in_card.is_deaf = 0;
    assert_int_equal(code, 1);
    read_report(&r);
    count(&r, by, first, sizeof first);
    /* what is not put beside buffers is seen too */
    assert_int_equal(by[QM_GPU_bad] + by[QM_GPU_broken], 4);
    assert_int_equal(by[QM_GPU_good], 0);
    qm_gpu_report_free(&r);
}

/* On a slow driver, a hundred times faster than one that takes 2 s for each kernel: after what
 * would be 60, 200 and 500 s the report is whole, --resume goes on with it, and its rows are the
 * first of the plan: exact and speed of the first of the best-known recipes, of the second, and so
 * on. */
static void test_budget(void **state)
{
    static const char *const seconds[] = {"0.6", "1.4", "3"};
    struct qm_gpu_options o = {.quick = 1, .n = 8000, .rounds = 2, .limit = 60.0};
    int last = 0, n[3] = {0};
    (void)state;
    AT_ONE_COMMIT_IN(4, 14);
    clear();
    stand_in_card.is_idle = 1;
    stand_in_card.slow = 20;
    for (int i = 0; i < 3; i++) {
        struct qm_gpu_report r;
        struct qm_gpu_tasks t;
        int code = i ? RUN("--resume", "--ahead", "0", "--seconds", seconds[i])
                     : RUN("--quick", "--size", "0.008", "--rounds", "2", "--peers", "none",
                           "--ahead", "0", "--seconds", seconds[0]);
        if (code != 75)
            fail_msg("exit code %d\n%s", code, printed);
        read_report(&r);
        assert_int_equal(qm_gpu_tasks_make(&o, NULL, &t), QM_OK);
        assert_int_equal(qm_gpu_tasks_take(&t, &r), QM_OK);
        while (n[i] < t.n && t.at[n[i]].rows)
            n[i]++;
        for (int k = n[i]; k < t.n; k++)
            if (t.at[k].rows)
                fail_msg("row %d of %d is there, row %d is not", k, t.n, n[i]);
        int missing = (int)json_integer_value(json_object_get(r.plan, "missing"));
        assert_in_range(missing, t.n - n[i],
                        t.n - n[i] + last); /* and broken ones of earlier calls */
        assert_true(n[i] > last);
        if (n[i] <= 10 * FEW_ROWS) {
            int speeds = n[i] % FEW_ROWS > FEW_ROWS - 2 ? n[i] % FEW_ROWS - (FEW_ROWS - 2) : 0;
            assert_int_equal(json_array_size(r.rows[QM_GPU_speed]), n[i] / FEW_ROWS * 2 + speeds);
        }
        last = n[i];
        print_message("%s s more: %d of %d rows, %zu of exact, %zu of speed\n", seconds[i], n[i],
                      t.n, json_array_size(r.rows[QM_GPU_exact]),
                      json_array_size(r.rows[QM_GPU_speed]));
        qm_gpu_tasks_free(&t);
        qm_gpu_report_free(&r);
    }
    stand_in_card.is_idle = stand_in_card.slow = 0;
}

/* A time is plausible where it is at least half of the copy's less the latency, and no other. */
static void test_plausible(void **state)
{
    uint64_t seed = 20261123;
    (void)state;
    AT_ONE_COMMIT_IN(4, 15);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 1000; i++) {
        double draw[3];
        for (int k = 0; k < 3; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            draw[k] = (double)(seed >> 11) * 0x1p-53;
        }
        double bytes = pow(10.0, 4.0 + 7.0 * draw[0]), copy = pow(10.0, 10.0 + 3.0 * draw[1]);
        double least = 0.5 * bytes / copy - 20e-6, share = 0.1 + 3.0 * draw[2];
        double seconds = fmax(bytes / copy / share, 1.001 * bytes / 1e14);
        int is_plausible = seconds >= least && seconds >= 1e-7;
        assert_int_equal(qm_gpu_bench_plausible("a step", seconds, bytes, copy) == QM_OK,
                         is_plausible);
    }
    assert_int_equal(qm_gpu_bench_plausible("a step", 1e-6, 1.01e8, 0.0), QM_INTERNAL);
    assert_int_equal(qm_gpu_bench_plausible("a step", 1e-6, 0.99e8, 0.0), QM_OK);
    assert_int_equal(qm_gpu_bench_plausible("a step", 0.99e-7, 1.0, 0.0), QM_INTERNAL);
    assert_int_equal(qm_gpu_bench_plausible("a step", 1.01e-7, 1.0, 0.0), QM_OK);
}

/* What no GPU has is refused by name, and divides nothing. */
static void test_absurd(void **state)
{
    static const struct {
        int attribute, value;
        const char *says;
    } odd[] = {{QM_CU_SM_COUNT, 0, "has 0 multiprocessors"},
               {QM_CU_SM_COUNT, -1, "has -1 multiprocessors"},
               {QM_CU_L2_BYTES, -4096, "has -4096 bytes of L2 cache"},
               {QM_CU_L2_BYTES, 0, "has 0 bytes of L2 cache"},
               {QM_CU_THREADS_PER_SM, 0, "has 0 threads on a multiprocessor"},
               {QM_CU_MAJOR, 0, "has 0 as major compute capability"},
               {QM_CU_MINOR, -2147483647, "has -2147483647 as minor compute capability"}};
    const struct stand_in_card was = stand_in_card;
    (void)state;
    AT_ONE_COMMIT_IN(4, 16);
    clear();
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        stand_in_card.odd = odd[i].attribute;
        stand_in_card.odd_value = odd[i].value;
        assert_int_equal(RUN(FEW), 3);
        if (!strstr(printed, odd[i].says) || strchr(printed, '\n')[1])
            fail_msg("'%s' lacks '%s'", printed, odd[i].says);
    }
    stand_in_card = was;
    for (size_t memory = 0; memory < 2; memory++) {
        stand_in_card.memory = memory;
        assert_int_equal(RUN(FEW), 3);
        assert_non_null(
            strstr(printed, memory ? "has 1 bytes of memory" : "has 0 bytes of memory"));
    }
    stand_in_card = was;
    stand_in_card.name = "";
    assert_int_equal(RUN(FEW), 3);
    assert_non_null(strstr(printed, "the GPU has no name (cuDeviceGetName)"));
    stand_in_card = was;
    stand_in_card.memory = (size_t)1 << 51;
    assert_int_equal(RUN(FEW), 3);
    assert_non_null(strstr(printed, "has 2251799813685248 bytes of memory"));
    stand_in_card = was;
    const int version = stand_in_driver;
    for (int i = 0; i < 2; i++) {
        stand_in_driver = i ? -1515870811 : 999999;
        assert_int_equal(RUN(FEW), 3);
        assert_non_null(strstr(printed, "the driver says that it is of version "));
    }
    stand_in_driver = version;
    assert_true(access(out, F_OK) != 0); /* no file was begun */
}

/* No call's error, and no number of the driver's, is passed over, also the first time. */
static void test_every_error(void **state)
{
    static const struct {
        const char *call;
        int error, code;
        const char *says;
    } some[] = {{"cuDriverGetVersion", 999, 3, "cuDriverGetVersion: "},
                {"cuDriverGetVersion", 0, 3, "says that it is of version -15"},
                {"cuDeviceGetCount", 0, 3, "says that there are -1515870811 devices"},
                {"nvrtcVersion", 5, 3, "nvrtcVersion: error 5"},
                {"nvrtcVersion", 0, 3, "nvrtcVersion says -1515870811."},
                {"nvrtcDestroyProgram", 5, 1, "failed: NVRTC failed: nvrtcDestroyProgram: error 5"},
                {"cuFuncGetAttribute", 0, 1, "a thread has -1515870811 bytes of local memory"},
                {"cuOccupancyMaxActiveBlocksPerMultiprocessor", 0, 1,
                 "a multiprocessor takes -1515870811 blocks"}};
    (void)state;
    AT_ONE_COMMIT_IN(4, 22);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        if (some[i].code == 1)
            NEEDS_COMPILER();
        clear();
        assert_int_equal(system("rm -f $QM_CACHE/*.cubin"), 0); /* NVRTC is wanted */
        stand_in_fault = (struct stand_in_fault){some[i].call, 0, 1, some[i].error,
                                                 some[i].error ? STAND_IN_ERROR : STAND_IN_GARBAGE};
        int code = RUN(SPEED, "--ahead", "0");
        if (code != some[i].code || (code == 3 && !strstr(printed, some[i].says)))
            fail_msg("%s: exit code %d: '%s' (want '%s')", some[i].call, code, printed,
                     some[i].says);
        if (code == 1)
            expect_rows(0, 2, some[i].says);
    }
}

/* A process that gets another card than the one that was described measures nothing there. */
static void test_other_card(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 18);
    NEEDS_COMPILER();
    for (int from = 2; from < 4; from++) {
        clear();
        stand_in_card.other_from = from;
        int code = RUN(SPEED, "--ahead", "0");
        stand_in_card.other_from = 0;
        assert_int_equal(code, from == 2 ? 1 : 0); /* describes it; measures; there is no third */
        if (from == 2)
            expect_rows(0, 2, "failed: this process has another GPU: uuid GPU-02020202-");
    }
}

/* An error of a call that cleans up may be one of a launch: the row has failed, and the other one
 * is as without it. */
static void test_clean_up(void **state)
{
    static const char *const calls[] = {"cuMemFree_v2", "cuEventDestroy_v2", "cuGraphDestroy",
                                        "cuGraphExecDestroy", "cuModuleUnload"};
    (void)state;
    AT_ONE_COMMIT_IN(4, 17);
    NEEDS_COMPILER();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char says[80];
        clear();
        stand_in_fault = (struct stand_in_fault){calls[i], 2, 1, i % 2 ? 999 : 700, STAND_IN_ERROR};
        int code = RUN("adamw_f32", "--only", "speed", "--size", "0.008", "--rounds", "2");
        if (code != 1)
            fail_msg("%s: exit code %d\n%s", calls[i], code, printed);
        int n = (int)strcspn(calls[i], "_");
        snprintf(says, sizeof says, "failed: cleaning up: %.*s: CUDA_ERROR_", n, calls[i]);
        expect_rows(1, 1, says);
    }
}

/* The time of a run counts from its start: a driver that does not answer does not prolong it. */
static void test_slow_start(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 19);
    NEEDS_COMPILER();
    clear();
    stand_in_fault = (struct stand_in_fault){"cuInit", 0, 1, 0, STAND_IN_HANG};
    double from = qm_seconds();
    assert_int_equal(RUN(FEW, "--seconds", "0.5"), 75);
    assert_true(qm_seconds() - from < 8.0);
    assert_non_null(
        strstr(printed, "the time (--seconds 0.5) was over before the GPU had answered"));
    assert_non_null(strstr(printed, "in cuInit"));
    assert_non_null(strstr(printed, ".h5 has no rows, gpu-check --resume goes on"));
    assert_int_equal(RUN("--resume", "--seconds", "0.5"), 75);
    clear();
    stand_in_fault = (struct stand_in_fault){"cuInit", 0, 1, 0, STAND_IN_HANG};
    assert_int_equal(RUN(SPEED, "--seconds", "0.1"), 75);
    stand_in_fault = (struct stand_in_fault){0};
    assert_int_equal(system("cd ${QM_CACHE}/../gpu && for f in *; do >$f.77.part; done"), 0);
    assert_int_equal(RUN("--resume"), 0); /* with the GPU, and without what was left */
    expect_rows(2, 0, NULL);
    char begun[128], now[300];
    snprintf(begun, sizeof begun, "--resume=%s/gpu-speed-1970-01-01-000000.h5", out);
    snprintf(now, sizeof now, "%s is now %s/stand-in-speed-1970-01-01-000000.h5", begun + 9, out);
    assert_int_equal(RUN(begun), 0); /* the name that it was begun under */
    assert_non_null(strstr(printed, now));
    begun[strlen(begun) - 4] = '1'; /* and one that none has */
    assert_int_equal(RUN(begun), 3);
    assert_non_null(strstr(printed, begun + 9));
    assert_int_not_equal(system("ls ${QM_CACHE}/../gpu/*.part >/dev/null 2>&1"), 0);
    stand_in_fault = (struct stand_in_fault){"cuInit", 0, 1, 0, STAND_IN_HANG};
    from = qm_seconds();
    setenv("QM_CUDA_LIMIT", "0.2", 1);
    assert_int_equal(RUN(SPEED), 3);
    assert_true(qm_seconds() - from < 8.0);
    unsetenv("QM_CUDA_LIMIT");
    assert_int_equal(RUN("--only", "peers", "--seconds", "0.5", "--peers", "sleep 100 #"), 75);
    assert_true(qm_seconds() - from < 16.0);
}

/* What measures nothing is no success. */
static void test_nothing(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 20);
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
    setenv("QM_CUDA_DEVICE", "99999999999999999999", 1);
    assert_int_equal(RUN(FEW), 77);
    assert_non_null(strstr(printed, "QM_CUDA_DEVICE=99999999999999999999: expected a number from"));
    unsetenv("QM_CUDA_DEVICE");
}

/* Two runs at once have a report each, and a report that is being written is left alone. */
static void test_at_once(void **state)
{
    glob_t g;
    char pattern[96];
    (void)state;
    AT_ONE_COMMIT_IN(4, 21);
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

/* A process holds the kernels of two rows at most. */
static void test_modules(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(5, 1);
    NEEDS_COMPILER();
    clear();
    assert_int_equal(RUN("adafactor8_026", "--only", "exact", "--quick"), 0);
    print_message("%d kernels at once, %d loaded\n", stand_in_shared->most_modules,
                  stand_in_shared->loads);
    assert_in_range(stand_in_shared->most_modules, 1, 6);
    assert_true(stand_in_shared->loads > 6);
}

/* Waits until the fault has struck. */
static void await_fault(void)
{
    for (int i = 0; i < 3000 && !stand_in_shared->struck; i++)
        usleep(10000);
    assert_true(stand_in_shared->struck >= 1); /* a compilation may be begun in two processes */
}

/* Each signal while NVRTC compiles, in the measuring process and in one that compiles ahead: the
 * rows so far, 75, and --resume completes them. */
static void test_signal_in_nvrtc(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    char cache[96];
    (void)state;
    AT_ONE_COMMIT_IN(4, 23);
    NEEDS_COMPILER();
    snprintf(cache, sizeof cache, "%s/cold", base);
    setenv("QM_CACHE", cache, 1);
    for (int i = 0; i < 4; i++) {
        clear();
        stand_in_fault =
            (struct stand_in_fault){"nvrtcCompileProgram", i < 3 ? 2 : 0, 1, 0, STAND_IN_HANG};
        pid_t pid = start((const char *const[]){FEW, "--ahead", i < 3 ? "0" : "1", NULL});
        await_fault();
        double from = qm_seconds();
        kill(pid, signals[i % 3]);
        if (finish(pid) != 75)
            fail_msg("signal %d: %s", signals[i % 3], printed);
        assert_true(qm_seconds() - from < 8.0);
        assert_non_null(strstr(printed, "interrupted: "));
        struct qm_gpu_report r;
        read_report(&r); /* it is whole */
        assert_true(json_integer_value(json_object_get(r.plan, "missing")) > 0);
        qm_gpu_report_free(&r);
    }
    snprintf(cache, sizeof cache, "%s/cache", base);
    setenv("QM_CACHE", cache, 1);
    stand_in_fault = (struct stand_in_fault){0};
    assert_int_equal(RUN("--resume"), 0);
    expect_rows(FEW_ROWS, 0, NULL);
}

/* Codes of which only a part was compared are no bad row, and --resume compares the rest. */
static void test_part_of_codes(void **state)
{
    struct qm_gpu_options o = {.has_only = 1, .only = {[QM_GPU_codes] = 1}};
    struct qm_gpu_tasks tasks;
    (void)state;
    AT_ONE_COMMIT_IN(4, 24);
    assert_int_equal(qm_gpu_tasks_make(&o, NULL, &tasks), QM_OK);
    for (int i = 0; i < 2; i++) {
        struct qm_gpu_task *t = &tasks.at[i];
        json_t *row = json_deep_copy(t->key);
        json_object_set_new(row, "wrong", json_integer(0));
        json_object_set_new(row, "compared", json_integer(1));
        json_object_set_new(
            row, "status",
            json_string(i ? "ok" : QM_GPU_PART_OF_CODES "; all floats: the run ended"));
        assert_int_equal(qm_gpu_row_verdict(QM_GPU_codes, row), QM_GPU_good);
        t->rows = json_pack("[o]", row);
        assert_int_equal(qm_gpu_task_is_open(t), !i);
    }
    qm_gpu_tasks_free(&tasks);
}

int main(int argc, char **argv)
{
    if (argc > 1) /* the name of a test, or a pattern */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_card),    cmocka_unit_test(test_strange_reports),
        cmocka_unit_test(test_times),           cmocka_unit_test(test_deaf),
        cmocka_unit_test(test_budget),          cmocka_unit_test(test_plausible),
        cmocka_unit_test(test_absurd),          cmocka_unit_test(test_clean_up),
        cmocka_unit_test(test_other_card),      cmocka_unit_test(test_slow_start),
        cmocka_unit_test(test_nothing),         cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_every_error),     cmocka_unit_test(test_modules),
        cmocka_unit_test(test_signal_in_nvrtc), cmocka_unit_test(test_part_of_codes),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
