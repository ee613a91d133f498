/* test_idle_calls.c - Tests that a device which leaves out some of what it is asked to do,
 * whichever part it is, gives no figure and no proof. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/drawn.h"
#include "tests/support/rehearsal.h"

#define TIMED "--size", "0.008", "--rounds", "2"

/* Which calls are done; a seed of 0 becomes that of QM_TEST_SEED. */
static const struct stand_in_idle ways[] = {
    {"", STAND_IN_DONE_first, 0, 0}, {"", STAND_IN_DONE_first, 1, 0},
    {"", STAND_IN_DONE_first, 3, 0}, {"", STAND_IN_DONE_first, 4, 0},
    {"", STAND_IN_DONE_later, 1, 0}, {"", STAND_IN_DONE_later, 3, 0},
    {"", STAND_IN_DONE_most, 2, 0},  {"", STAND_IN_DONE_most, 3, 0},
    {"", STAND_IN_DONE_most, 5, 0},  {"", STAND_IN_DONE_each, 2, 0},
    {"", STAND_IN_DONE_each, 3, 0},  {"", STAND_IN_DONE_each, 5, 0},
    {"", STAND_IN_DONE_drawn, 2, 0}, {"", STAND_IN_DONE_drawn, 3, 0}};
enum { WAYS = sizeof ways / sizeof *ways };

/* Leaves calls of this name out, in one of the ways. */
static void leave_out(const char *call, int way)
{
    const char *seed = getenv("QM_TEST_SEED");
    clear();
    stand_in_idle = ways[way];
    stand_in_idle.call = call;
    stand_in_idle.seed = seed ? strtoull(seed, NULL, 0) : 1;
}

/* A run in which calls were left out has failed and says so; where the draw left none out, it has
 * passed. */
static void expect_failed(int code, const char *call, int way, const char *says)
{
    if (ways[way].done == STAND_IN_DONE_drawn && !stand_in_shared->struck) {
        assert_int_equal(code, 0);
        return;
    }
    if (code != 1 || !stand_in_shared->struck || !strstr(printed, says))
        fail_msg("%s, way %d: exit code %d, %d left out: '%s' (want '%s')", call, way, code,
                 stand_in_shared->struck, printed, says);
}

/* A proof on a device that visits a part of the floats alone. */
static void test_codes(void **state)
{
    static const char *const words[] = {"prove", "nf4:4s/scan/mid", "--backend",
                                        "cuda",  "--range",         "0.7:0.701"};
    char *argv[MOST_WORDS];
    int argc = sizeof words / sizeof *words;
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    NEEDS_COMPILER();
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)(uintptr_t)words[i];
    argv[argc] = NULL;
    clear();
    assert_int_equal(finish(start_command(qm_cmd_prove, argc, argv)), 0);
    for (int i = 0; i < WAYS; i++) {
        leave_out("qm_codes", i);
        int code = finish(start_command(qm_cmd_prove, argc, argv));
        expect_failed(code, "qm_codes", i, "the kernel");
        if (ways[i].done == STAND_IN_DONE_most)
            expect_failed(code, "qm_codes", i, "the kernel visited ");
    }
}

/* Copies within the device, launches of steps, launches of graphs, and reads of the cache, of which
 * some are left out while they are timed.  What is drawn may strike one of the two rows alone: the
 * other one, whose calls were all made, is good then. */
static void test_timed(void **state)
{
    static const struct {
        const char *call, *only, *says;
    } calls[] = {
        {"cuMemcpyDtoDAsync_v2", "speed", "did not copy the first bytes"},
        {"cuLaunchKernel", "speed", "implausible: "},
        {"cuLaunchKernel", "tables", "implausible: "},
        {"cuGraphLaunch", "speed", "implausible: "},
        {"cuGraphLaunch", "tables", "implausible: "},
        {"qm_bench_read", "speed", "launches of the kernel that reads the cache full"},
        {"qm_bench_read", "tables", "launches of the kernel that reads the cache full"},
    };
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    NEEDS_COMPILER();
    clear();
    assert_int_equal(RUN("adamw_f32", "--only", "speed,tables", TIMED), 0);
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        for (int i = 0; i < WAYS; i++) {
            struct qm_gpu_report r;
            size_t by[4];
            if (!is_one_drawn_in(5, WAYS * (int)k + i))
                continue;
            leave_out(calls[k].call, i);
            int code = RUN("adamw_f32", "--only", calls[k].only, TIMED);
            int struck = stand_in_shared->struck;
            read_report(&r);
            count(&r, by, printed, sizeof printed);
            qm_gpu_report_free(&r);
            expect_failed(code, calls[k].call, i, calls[k].says);
            if (struck && by[QM_GPU_good] > (ways[i].done == STAND_IN_DONE_drawn ? 1 : 0))
                fail_msg("%s, way %d: %d left out, %zu good rows", calls[k].call, i, struck,
                         by[QM_GPU_good]);
        }
}

/* Launches of a step that has several: those that leave no trace in the parameters too. */
static void test_folds(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 12);
    NEEDS_COMPILER();
    for (int i = 0; i < WAYS; i++) {
        if (!is_one_drawn_in(5, i))
            continue;
        leave_out("cuLaunchKernel", i);
        int code = RUN("adamw4_lpmm", "adafactor8_026", "--only", "speed", TIMED);
        int is_drawn = ways[i].done == STAND_IN_DONE_drawn;
        assert_int_equal(code, stand_in_shared->struck > 0);
        assert_true(is_drawn || stand_in_shared->struck > 0);
    }
}

/* Launches that change a part of what they should, wherever it lies and whichever part of it, and
 * copies within the device that copy a part. */
static void test_parts(void **state)
{
    static const char *const recipes[] = {"adamw_f32", "adamw4_ao", "adamw4_lpmm", "adamw8_bnb"};
    static const char *const only[] = {"speed", "tables"};
    (void)state;
    AT_ONE_COMMIT_IN(4, 13);
    NEEDS_COMPILER();
    for (int i = 0; i < WAYS; i++)
        for (int k = 0; k < 3 && ways[i].done != STAND_IN_DONE_later; k++) {
            if (!is_one_drawn_in(4, 3 * i + k))
                continue;
            leave_out(k < 2 ? "changes" : "copied", i);
            const char *drawn = recipes[(stand_in_idle.seed + (uint64_t)i) % 4];
            int code = k == 1 ? RUN("adamw4_ao", "--only", only[k], TIMED)
                              : RUN(drawn, "--only", only[k % 2], TIMED);
            struct qm_gpu_report r;
            size_t by[4];
            int struck = stand_in_shared->struck;
            read_report(&r);
            count(&r, by, printed, sizeof printed);
            qm_gpu_report_free(&r);
            if (struck ? code != 1 || by[QM_GPU_good] : code != 0)
                fail_msg("%s, way %d of %d: %d left out, exit code %d, %zu good rows: %s", recipe,
                         i, k, struck, code, by[QM_GPU_good], printed);
        }
}

/* Events that show less time than there was. */
static void test_quick(void **state)
{
    static const float quick[] = {0.0f, 0.01f, 0.3f, 0.7f};
    (void)state;
    AT_ONE_COMMIT_IN(4, 16);
    NEEDS_COMPILER();
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) {
        clear();
        stand_in_card.quick = quick[i];
        int code = RUN("adamw_f32", "--only", "speed,tables", TIMED);
        stand_in_card.quick = 1.0f;
        assert_int_equal(code, 1);
    }
}

/* Events that show less time for what is timed alone, and those that show the rest where nothing is
 * published: whichever the share, no row is good. */
static void test_shifted(void **state)
{
    static const float shares[] = {1e-6f, 0.002f, 0.3f, 0.5f};
    (void)state;
    AT_ONE_COMMIT_IN(4, 14);
    NEEDS_COMPILER();
    for (int i = 0; i < 2 * (int)(sizeof shares / sizeof *shares); i++) {
        if (i != 0 && i != 7 && !is_drawn(i))
            continue;
        clear();
        stand_in_card.shift = shares[i / 2];
        stand_in_card.is_hidden = i % 2;
        int code = RUN("adamw_f32", "--only", "speed,tables", TIMED);
        stand_in_card.shift = 0.0f;
        stand_in_card.is_hidden = 0;
        assert_int_equal(code, 1);
        expect_rows(0, 3, "failed: implausible: ");
    }
}

/* A byte beside a buffer that a launch changes, near it or farther away, after it or before. */
static void test_outside(void **state)
{
    static const int places[] = {0, 8, 32, 255, -1, -4, -256};
    static const char *const recipes[] = {"adamw_f32", "adamw4_ao", "adafactor8_026"};
    (void)state;
    AT_ONE_COMMIT_IN(4, 15);
    NEEDS_COMPILER();
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int k = 0; k < 2; k++) {
            if (i != 0 && !is_drawn((int)(2 * i) + k))
                continue;
            clear();
            stand_in_wrong =
                (struct stand_in_wrong){"cuLaunchKernel", STAND_IN_WRONG_outside, 3, 1};
            stand_in_outside = places[i];
            int code = RUN(recipes[i % 3], "--only", k ? "exact" : "speed", "--quick", TIMED);
            struct qm_gpu_report r;
            size_t by[4];
            read_report(&r);
            count(&r, by, printed, sizeof printed);
            qm_gpu_report_free(&r);
            if (code != 1 || by[QM_GPU_good] || !stand_in_shared->struck ||
                !strstr(printed, "out of range: "))
                fail_msg("place %d, part %d: exit code %d, %zu good rows: %s", places[i], k, code,
                         by[QM_GPU_good], printed);
            stand_in_wrong = (struct stand_in_wrong){0};
        }
}

/* Launches that do nothing have no speed, whatever the events say. */
static void test_idle(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 17);
    NEEDS_COMPILER();
    clear();
    stand_in_card.is_idle = 1;
    int code = RUN("adamw_f32", "adamw8_ao", "adafactor8_026", "--only", "speed,tables", TIMED);
    stand_in_card.is_idle = 0;
    assert_int_equal(code, 1);
    expect_rows(0, 2 * 3 + 4, "failed: implausible: the timed steps left the first parameters");
}

/* A driver whose copies to the host do nothing, as its launches, has no speed either. */
static void test_mute(void **state)
{
    static const char *const only[] = {"speed,tables", "tables"}; /* which alone times no copy */
    static const char *const says[] = {
        "failed: implausible: two copies of the same 4096 bytes of the device differ",
        "failed: implausible: two copies of the same 256 bytes of the device differ"};
    (void)state;
    AT_ONE_COMMIT_IN(4, 18);
    NEEDS_COMPILER();
    for (int i = 0; i < 2; i++) {
        clear();
        stand_in_card.is_idle = stand_in_card.is_mute = 1;
        int code = RUN("adamw_f32", "--only", only[i], TIMED);
        stand_in_card.is_idle = stand_in_card.is_mute = 0;
        assert_int_equal(code, 1);
        expect_rows(0, i ? 1 : 3, says[i]);
    }
}

/* Some launches were wrong, no row is good, and the first one says why. */
static void expect_struck(int code, const char *name, const char *only)
{
    struct qm_gpu_report r;
    size_t by[4];
    read_report(&r);
    count(&r, by, printed, sizeof printed);
    qm_gpu_report_free(&r);
    if (code != 1 || by[QM_GPU_good] || !stand_in_shared->struck ||
        !strstr(printed, "implausible: "))
        fail_msg("%s, %s, %s, %d of %d: %d struck, exit code %d, %zu good rows: %s", name, only,
                 stand_in_wrong.call, stand_in_wrong.phase, stand_in_wrong.n,
                 stand_in_shared->struck, code, by[QM_GPU_good], printed);
}

/* Launches that are counted and wrong: some do nothing, all add to what they change, all are made
 * twice; and graphs of them.  No row is good, whichever launch of a timed step it is. */
static void test_wrong(void **state)
{
    enum { ONCE = 1 << 20 };
    static const struct stand_in_wrong wrongs[] = {
        {"cuLaunchKernel", STAND_IN_WRONG_undone, 3, 2},
        {"cuLaunchKernel", STAND_IN_WRONG_undone, 5, 3},
        {"cuLaunchKernel", STAND_IN_WRONG_undone, ONCE, 0}, /* one that is drawn */
        {"cuLaunchKernel", STAND_IN_WRONG_added, 1, 0},
        {"cuLaunchKernel", STAND_IN_WRONG_twice, 1, 0},
        {"cuGraphLaunch", STAND_IN_WRONG_undone, 3, 2},
        {"cuGraphLaunch", STAND_IN_WRONG_undone, ONCE, 0},
        {"cuGraphLaunch", STAND_IN_WRONG_added, 1, 0},
        {"cuGraphLaunch", STAND_IN_WRONG_twice, 1, 0}};
    static const struct {
        const char *recipe, *only, *size;
        int is_of_elements;
    } rows[] = {{"adamw_f32", "speed", "0.008", 1},
                {"adamw_f32", "tables", "0.008", 1},
                {"adamw4_lpmm", "speed", "0.04", 1},
                {"adamw8_ao_bf16sr", "speed", "0.04", 1},
                {"adafactor8_026", "speed", "0.008", 0}};
    enum { ROWS = sizeof rows / sizeof *rows };
    const char *seed = getenv("QM_TEST_SEED");
    uint64_t drawn = seed ? strtoull(seed, NULL, 0) : 1;
    (void)state;
    AT_ONE_COMMIT_IN(4, 19);
    NEEDS_COMPILER();
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        for (size_t k = 0; k < ROWS; k++) {
            int is_graph = strcmp(wrongs[i].call, "cuGraphLaunch") == 0;
            int is_always = k == 0 && (wrongs[i].n == 3 || i == 3 || i == 4);
            if (k != 0 && (drawn + i) % (ROWS - 1) != k - 1) /* of the others one of each case */
                continue;
            if ((!is_always && !is_drawn((int)(ROWS * i + k))) ||
                (!rows[k].is_of_elements && (is_graph || wrongs[i].n == ONCE)))
                continue; /* the first steps of a rule over whole tensors only choose the size */
            clear();
            stand_in_wrong = wrongs[i];
            if (wrongs[i].n == ONCE)
                stand_in_wrong.phase = 1 + (int)((drawn + 7 * i + 3 * k) % 9);
            int code = RUN(rows[k].recipe, "--only", rows[k].only, "--size", rows[k].size,
                           "--rounds", "2");
            expect_struck(code, rows[k].recipe, rows[k].only);
            stand_in_wrong = (struct stand_in_wrong){0};
        }
}

/* One reading of events that is far too long, whichever it is: the first of a round, or the
 * second. */
static void test_long_reading(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 20);
    NEEDS_COMPILER();
    for (int i = 1; i <= 20; i++) {
        if (i > 2 && i < 19 && !is_drawn(i))
            continue;
        clear();
        stand_in_card.long_reading = i;
        int code = RUN("adamw_f32", "--only", i % 4 ? "speed" : "tables", TIMED);
        stand_in_card.long_reading = 0;
        assert_int_equal(code, 1);
        expect_rows(0, i % 4 ? 2 : 1, "failed: implausible: cuEventElapsedTime gives ");
    }
}

/* A counter of launches that is no number of 64 bits. */
static void test_counter(void **state)
{
    static const size_t bytes[] = {0, 4, 16};
    (void)state;
    AT_ONE_COMMIT_IN(4, 21);
    NEEDS_COMPILER();
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        char says[96];
        clear();
        stand_in_card.counter_bytes = bytes[i];
        int code = RUN("adamw_f32", "--only", "speed,tables", TIMED);
        stand_in_card.counter_bytes = sizeof(uint64_t);
        assert_int_equal(code, 1);
        snprintf(says, sizeof says,
                 "cuModuleGetGlobal gives %zu bytes for qm_launches, which has 8", bytes[i]);
        expect_rows(0, 3, says);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) /* the name of a test, or a pattern */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),        cmocka_unit_test(test_timed),
        cmocka_unit_test(test_folds),        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_shifted),      cmocka_unit_test(test_outside),
        cmocka_unit_test(test_quick),        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_mute),         cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_long_reading), cmocka_unit_test(test_counter),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
