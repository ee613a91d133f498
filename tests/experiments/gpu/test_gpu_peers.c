/* test_gpu_peers.c - Tests part peers of gpu-check: our times where no part has them, times that
 * none can be, and what an earlier call measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/support/drawn.h"
#include "tests/support/rehearsal.h"

/* The number in a file that a program will write. */
static int number_in(const char *path)
{
    int number = 0;
    for (int i = 0; i < 3000 && number == 0; i++) {
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%d", &number) != 1)
            number = 0;
        if (f)
            fclose(f);
        usleep(10000);
    }
    assert_true(number > 0);
    return number;
}

static int is_alive(int pid)
{
    char path[64], letter = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d %*s %c", &letter) != 1)
        letter = 'Z';
    if (f)
        fclose(f);
    usleep(10000);
    return letter != 'Z';
}

/* What peers were measured stays in the report where --resume cannot list them; a report's own
 * command is named and never run; a signal ends the listing, and its program with it. */
static void test_earlier_peers(void **state)
{
    struct qm_gpu_report r;
    char script[96], command[128];
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    clear();
    snprintf(script, sizeof script, "%s/peers.sh", base);
    FILE *f = fopen(script, "w");
    fputs("touch $0.ran\n"
          "[ $1 = --names ] && echo '[\"x\", \"y\"]' && exit\n"
          "[ $2 = y ] && exit 1\n"
          "echo '{\"rows\": [], \"skipped\": [{\"peer\": \"x\", \"reason\": \"no x\"}]}'\n"
          "exit 77\n",
          f);
    fclose(f);
    snprintf(command, sizeof command, "sh %s", script);
    assert_int_equal(RUN("--only", "peers", "--peers", command), 1);
    char ran[112], path[1024];
    snprintf(ran, sizeof ran, "%s.ran", script);
    assert_int_equal(unlink(ran), 0);
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    unsetenv("PATH"); /* without python3 there is no default */
    (void)RUN("--resume");
    setenv("PATH", path, 1);
    assert_non_null(strstr(printed, "which is not run: none are timed"));
    assert_int_equal(access(ran, F_OK), -1);
    unlink(script);
    assert_int_equal(RUN("--resume", "--peers", command), 1);
    read_report(&r);
    json_t *rows = r.rows[QM_GPU_peers];
    assert_int_equal(json_array_size(rows), 2); /* the command that failed, and x */
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "peer")),
                        command);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 1), "status")),
                        "skipped: no x");
    qm_gpu_report_free(&r);
    clear();
    snprintf(command, sizeof command, "echo $$ > %s; sleep 100 #", script);
    for (int kills = 0; kills < 2; kills++) {
        pid_t pid = start((const char *const[]){"--only", "peers", "--peers", command, NULL});
        int peer = number_in(script);
        double from = qm_seconds();
        kill(pid, kills ? SIGKILL : SIGTERM);
        assert_int_equal(finish(pid), kills ? -SIGKILL : 75);
        while (is_alive(peer))
            if (qm_seconds() - from > 8.0)
                fail_msg("the peers' program is left, after signal %d", kills ? SIGKILL : SIGTERM);
        unlink(script);
    }
}

/* A program of peers for tests: x and y, each one time of adamw_f32 at both sizes; x, or y, takes
 * 0.005 s or what FAKE_X and FAKE_Y say; FAKE_MORE, a statement, changes its answer, `out`. */
static const char *peers_program(const char *name)
{
    static char command[128];
    char script[96];
    snprintf(script, sizeof script, "%s/%s.py", base, name);
    FILE *f = fopen(script, "w");
    fputs("import json, os, sys\n"
          "if '--names' in sys.argv:\n"
          "    sys.exit(print('[\"x\", \"y\"]'))\n"
          "a = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
          "s = os.environ.get('FAKE_' + a['--name'].upper(), '0.005')\n"
          "out = {'rows': [{'peer': a['--name'], 'version': '1', 'recipe': 'adamw_f32',\n"
          "    'tensors': int(t), 'elements': int(n), 'seconds': float(s)}\n"
          "    for t, n in ((1, a['--size']), (a['--tensors'], a['--small']))]}\n"
          "code = 0\n"
          "exec(os.environ.get('FAKE_MORE', ''))\n"
          "print(json.dumps(out))\n"
          "sys.exit(code)\n",
          f);
    fclose(f);
    snprintf(command, sizeof command, "/usr/bin/python3 %s", script);
    return command;
}

/* Peers need no part but their own: our times are measured where the report has none of them. */
static void test_peers_alone(void **state)
{
    struct qm_gpu_report r;
    json_t *row;
    size_t i;
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    NEEDS_COMPILER();
    for (int with_speed = 0; with_speed < 2; with_speed++) {
        clear();
        assert_int_equal(RUN("--only", with_speed ? "speed,peers" : "peers", "adamw_f32", "--size",
                             "0.008", "--rounds", "2", "--peers", peers_program("one")),
                         0);
        read_report(&r);
        assert_int_equal(json_array_size(r.rows[QM_GPU_peers]), 2 * 3); /* exact, fast; many */
        json_array_foreach (r.rows[QM_GPU_peers], i, row) {
            assert_true(json_real_value(json_object_get(row, "ratio")) ==
                        json_real_value(json_object_get(row, "seconds")) / 0.005);
            assert_string_equal(json_string_value(json_object_get(row, "program")),
                                peers_program("one"));
        }
        qm_gpu_report_free(&r);
    }
    clear(); /* a kernel that fails is no reason to skip */
    stand_in_fault = (struct stand_in_fault){"cuLaunchKernel", 0, 3, 700, STAND_IN_ERROR};
    assert_int_equal(
        RUN("--only", "peers", "--size", "0.008", "--rounds", "2", "--peers", peers_program("one")),
        1);
    expect_rows(0, 4,
                "failed: no time of adamw_f32 for 1 tensors of 8192 elements: cuLaunchKernel");
}

/* Another optimizer's time that no GPU has is a failed row, and --resume times it again, by another
 * program; the note and the rows name each program. */
static void test_false_peers(void **state)
{
    struct qm_gpu_report r;
    char one[128];
    (void)state;
    AT_ONE_COMMIT_IN(4, 12);
    NEEDS_COMPILER();
    clear();
    snprintf(one, sizeof one, "%s", peers_program("one"));
    setenv("FAKE_Y", "1e-30", 1);
    assert_int_equal(RUN("adamw_f32", "--only", "tables,peers", "--size", "0.008", "--rounds", "2",
                         "--peers", one),
                     1);
    expect_rows(1 + 3, 2, "failed: implausible: their step takes 1e-30 s");
    unsetenv("FAKE_Y");
    const char *two = peers_program("two");
    assert_int_equal(RUN("--resume", "--peers", two), 0);
    assert_non_null(strstr(printed, one));
    expect_rows(1 + 6, 0, NULL);
    assert_int_equal(RUN("--resume", "--peers", "none"), 0);
    char says[300];
    snprintf(says, sizeof says, "were timed by `%s`, `%s`, which is not run: none are timed", one,
             two);
    assert_non_null(strstr(printed, says));
    read_report(&r);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(
            json_string_value(json_object_get(json_array_get(r.rows[QM_GPU_peers], i), "program")),
            i < 3 ? one : two);
    qm_gpu_report_free(&r);
}

/* An answer that cannot be true has no good row. */
static void test_false_answers(void **state)
{
    static const struct {
        const char *more, *says;
        size_t good, broken; /* rows of x and y */
    } all[] = {
        {"r = out['rows'][0]; r['rounds'] = 100000", "and the program ran for", 2, 2},
        {"out['rows'][0]['seconds'] = 1e9", "implausible: 1 rounds of 1e+09 s", 2, 2},
        {"out['rows'][0]['peer'] = 'z'", "a row of peer 'z', and 'x' was asked for", 0, 2},
        {"out['skipped'] = [{'peer': 'z', 'reason': ''}]", "a row of peer 'z', and", 0, 2},
        {"out['rows'][1] = dict(out['rows'][0], seconds=0.001)", "is there more than once", 0, 4},
        {"out['rows'][0]['rounds'] = 0", "in 0 rounds, expected 1 at least", 2, 2},
        {"out['rows'][0]['rounds'] = -3", "in -3 rounds, expected 1 at least", 2, 2},
        {"out['rows'][0]['tensors'] = 0", "0 tensors of 8192 elements in 1 rounds", 2, 2},
        {"out['rows'][0]['least_seconds'] = 1", "least_seconds 1, expected 0 to", 2, 2},
        {"out['rows'][0]['least_seconds'] = -1", "least_seconds -1, expected 0 to", 2, 2},
        {"code = 77", "and exit code 77, which says that nothing was timed", 0, 4}};
    (void)state;
    AT_ONE_COMMIT_IN(4, 13);
    NEEDS_COMPILER();
    const char *program = peers_program("one");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!is_one_drawn_in(3, (int)i))
            continue;
        clear();
        setenv("FAKE_MORE", all[i].more, 1);
        assert_int_equal(RUN("adamw_f32", "--only", "peers", "--size", "0.008", "--rounds", "2",
                             "--peers", program),
                         1);
        unsetenv("FAKE_MORE");
        expect_rows(all[i].good, all[i].broken, all[i].says);
    }
}

/* What our own copy shows to be too fast is refused, whether the copy was timed before or now. */
static void test_faster_than_a_copy(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 14);
    NEEDS_COMPILER();
    setenv("FAKE_MORE", "out['rows'].pop(); out['rows'][0]['seconds'] = 6e-7", 1);
    for (int with_speed = 0; with_speed < 2; with_speed++) {
        clear();
        int code = RUN("adamw_f32", "--only", with_speed ? "speed,peers" : "peers", "--size", "1",
                       "--rounds", "2", "--peers", peers_program("one"));
        assert_int_equal(code, 1);
        expect_rows(with_speed ? 2 : 0, 2, "failed: implausible: their step takes 6e-07 s");
    }
    unsetenv("FAKE_MORE");
}

int main(int argc, char **argv)
{
    if (argc > 1) /* the name of a test, or a pattern */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_earlier_peers),      cmocka_unit_test(test_peers_alone),
        cmocka_unit_test(test_false_peers),        cmocka_unit_test(test_false_answers),
        cmocka_unit_test(test_faster_than_a_copy),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
