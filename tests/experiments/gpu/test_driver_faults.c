/* test_driver_faults.c - A driver or an NVRTC that fails at any call, under every command that uses
 * them.
 *
 * Drawn pairs of a call and a fault (six errors, late ones, a hang, a crash, exit() and _exit()
 * with the codes of a verdict, writing to stdout or over all shared memory, raising a signal,
 * forking, lowering a limit, a device that is gone from then on, results that are garbage) meet
 * doctor, check in both modes, prove, kernels, gpu-check and its --resume: each ends soon, with a
 * documented exit code, says in a line what is wrong, and leaves no process; a process that left
 * has given no verdict; with --json stdout is one JSON value whatever comes.
 * gpu-check leaves a whole report, which --resume completes.  "all" on the command line tries every
 * pair, "all K N" those numbered K, K + N, K + 2 N, ..., "one COMMAND CALL COUNT FAULT" a single
 * one, by numbers that a complaint ends with; what is wrong with each is said, and how many faults
 * struck.  This process runs no OpenMP region, because it forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "core/base/clock.h"
#include "core/recipe/backend.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/gpu/gpu_report.h"
#include "tests/support/drawn.h"
#include "tests/support/stand_in_gpu.h"

enum { DRAWS = 8, MOST_WORDS = 20, STRIDE = 1000003 }; /* STRIDE: a prime, larger than all pairs */

static const double SOON = 30.0; /* seconds; hangs are ended after 0.3 s */
static char **one;               /* the words behind "one", or NULL */

static char base[] = "/tmp/qm-faults-XXXXXX", printed[8192];
static int is_all, part, parts = 1;
static int wrong; /* pairs */
static uint64_t seed = 20261122;

static const char *const calls[] = {
#define X(member, exported, arguments) exported,
    QM_CUDA_LIST(X) QM_CUDA_OPTIONAL_LIST(X)
#undef X
        "nvrtcVersion",
    "nvrtcCreateProgram",
    "nvrtcCompileProgram",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
    "nvrtcDestroyProgram",
    "nvrtcGetNumSupportedArchs"};
enum { CALLS = sizeof calls / sizeof *calls };

static const struct {
    enum stand_in_how how;
    int error;
} faults[] = {{STAND_IN_ERROR, 1},
              {STAND_IN_ERROR, 2},
              {STAND_IN_ERROR, 100},
              {STAND_IN_ERROR, 700},
              {STAND_IN_ERROR, 719},
              {STAND_IN_ERROR, 999},
              {STAND_IN_LATE, 700},
              {STAND_IN_HANG, 0},
              {STAND_IN_CRASH, 0},
              {STAND_IN_EXIT, 0},
              {STAND_IN_EXIT, 77},
              {STAND_IN_LEAVE, 0},
              {STAND_IN_LEAVE, 1},
              {STAND_IN_PRINT, 0},
              {STAND_IN_SCRIBBLE, 0x100},
              {STAND_IN_SCRIBBLE, 0},
              {STAND_IN_SCRIBBLE, 0x01010101},
              {STAND_IN_SCRIBBLE, -1},
              {STAND_IN_SIGNAL, SIGINT},
              {STAND_IN_SIGNAL, SIGTERM},
              {STAND_IN_SIGNAL, SIGHUP},
              {STAND_IN_FORK, 0},
              {STAND_IN_FSIZE, 0},
              {STAND_IN_TWIN, 0},
              {STAND_IN_GONE, 999},
              {STAND_IN_GARBAGE, 0}};
enum { FAULTS = sizeof faults / sizeof *faults };

/* Words of a command; codes: the exit codes that are right, as bits of 1 << code, 8 for 77. */
static const struct command {
    int (*run)(int argc, char **argv);
    unsigned codes;
    const char *word[MOST_WORDS];
} commands[] = {
    {qm_cmd_doctor, 1, {"doctor"}},
    {qm_cmd_check,
     1 | 8 | 256,
     {"check", "adamw_f32", "--backend", "cuda", "--case", "129/normal/default/t1/forced", "-q"}},
    {qm_cmd_prove,
     1 | 8 | 256,
     {"prove", "nf4:4s/scan/mid", "--backend", "cuda", "--range", "0.7:0.701", "-q"}},
    /* 77: the stand-in for NVRTC reports on one kernel alone */
    {qm_cmd_kernels, 256, {"kernels", "adamw_f32", "--arch", "sm_90", "-q"}},
    {qm_cmd_gpu_check,
     1 | 2 | 8 | 256,
     {"gpu-check", "adamw_f32", "--only", "speed,tables", "--size", "0.008", "--rounds", "2",
      "--limit", "0.7", "--ahead", "0", "-q"}},
    {qm_cmd_check,
     1 | 2 | 8 | 256,
     {"check", "lamb_bnb", "adamw4_ao", "--mode", "fast", "--backend", "cuda", "--case",
      "129/normal/default/t1/forced", "-q"}},
    {qm_cmd_gpu_check,
     1 | 2 | 8 | 256,
     {"gpu-check", "adamw4_ao", "--only", "exact", "--quick", "--limit", "0.7", "--ahead", "0",
      "-q"}},
    {qm_cmd_gpu_check,
     1 | 2 | 8 | 256,
     {"gpu-check", "--resume", "--limit", "0.7", "--ahead", "1", "-q"}}};
enum { COMMANDS = sizeof commands / sizeof *commands, BEGUN = 4 }; /* what --resume completes */

/* Says what is wrong with a pair, and goes on with the next. */
#define COMPLAIN(...)                      \
    do {                                   \
        wrong++;                           \
        print_error("WRONG " __VA_ARGS__); \
        print_error("\n");                 \
    } while (0)

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((seed >> 33) % below);
}

/* Runs a command with further words; its exit code, and what it printed: on stderr in `printed`, on
 * stdout in the file "answer". */
static int run(const struct command *c, const char *const *more)
{
    char *argv[MOST_WORDS + 8], path[80], answer[80];
    int argc = 0, state = 0;
    for (int i = 0; c->word[i]; i++)
        argv[argc++] = (char *)(uintptr_t)c->word[i];
    for (int i = 0; more[i]; i++)
        argv[argc++] = (char *)(uintptr_t)more[i];
    argv[argc] = NULL;
    snprintf(path, sizeof path, "%s/printed", base);
    snprintf(answer, sizeof answer, "%s/answer", base);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        static const int crashes[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS};
        for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
            signal(crashes[i], SIG_DFL); /* cmocka's would go on with the next test */
        signal(SIGXFSZ, SIG_IGN);        /* as main does */
        dup2(open(answer, O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
        dup2(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
        exit(c->run(argc, argv));
    }
    waitpid(pid, &state, 0);
    FILE *f = fopen(path, "r");
    printed[fread(printed, 1, sizeof printed - 1, f)] = '\0';
    fclose(f);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 1000 + WTERMSIG(state);
}

/* Processes that the command left come to this one. */
static void expect_no_process(const char *what)
{
    for (int i = 0; waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD; i++) {
        if (i == 300) {
            char command[80];
            snprintf(command, sizeof command, "ps -o pid,stat,args --ppid %d", (int)getpid());
            (void)!system(command);
            COMPLAIN("%s: a process is left", what);
            return;
        }
        usleep(10000);
    }
}

/* Whether a fault at this call may make another card of the one that is there, which --resume
 * refuses with exit code 2. */
static int is_of_identity(const char *call)
{
    static const char *const some[] = {
        "cuDeviceGetName",      "cuDeviceGetUuid_v2",  "cuDeviceGetPCIBusId", "cuDriverGetVersion",
        "cuDeviceGetAttribute", "cuDeviceTotalMem_v2", "nvrtcVersion"};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (strcmp(call, some[i]) == 0)
            return 1;
    return 0;
}

/* The report is whole; a fault is said in every row that failed; without the fault --resume
 * completes it. */
static void expect_report(const char *what, const char *call, const char *out, int code)
{
    const char *const more[] = {"--out", out, NULL};
    static const struct command resume = {
        qm_cmd_gpu_check, 1, {"gpu-check", "--resume", "--ahead", "0", "--limit", "60", "-q"}};
    struct qm_gpu_report r;
    char path[4096];
    json_t *row;
    size_t k, broken = 0, bad = 0;
    if (qm_gpu_report_newest(out, path, sizeof path) != QM_OK) {
        if (code != 3 && code != 77)
            COMPLAIN("%s: exit code %d and no report", what, code);
        return;
    }
    if (qm_gpu_report_read(path, &r) != QM_OK) {
        COMPLAIN("%s: %s", what, qm_message());
        return;
    }
    for (int i = 0; i < QM_GPU_PARTS; i++)
        json_array_foreach (r.rows[i], k, row) {
            broken += qm_gpu_row_verdict((enum qm_gpu_part)i, row) == QM_GPU_broken;
            bad += qm_gpu_row_verdict((enum qm_gpu_part)i, row) == QM_GPU_bad;
        }
    qm_gpu_report_free(&r);
    if (code < 2 && (broken + bad > 0) != (code == 1))
        COMPLAIN("%s: exit code %d and %zu broken, %zu bad rows", what, code, broken, bad);
    stand_in_fault = (struct stand_in_fault){0};
    stand_in_shared->is_gone = 0;
    int again = broken ? run(&resume, more) : (bad > 0); /* bad rows are an answer, and stay */
    if (again != (bad > 0) && (again != 2 || !is_of_identity(call)))
        COMPLAIN("%s: --resume: exit code %d: %s", what, again, printed);
}

/* stdout is one JSON value. */
static void expect_json(const char *what)
{
    char path[80];
    json_error_t error;
    snprintf(path, sizeof path, "%s/answer", base);
    json_t *value = json_load_file(path, JSON_DECODE_ANY, &error);
    if (!value)
        COMPLAIN("%s: stdout is not JSON, line %d: %s", what, error.line, error.text);
    json_decref(value);
}

/* Whether the exit code is one that the command may have: a documented one, and none of a verdict
 * where the process that gives it has left. */
static int is_right(const struct command *c, const char *call, enum stand_in_how how, int code)
{
    const int is_judging = c->run == qm_cmd_check || c->run == qm_cmd_prove;
    unsigned codes = c->codes, bit = code == 77 ? 8 : (unsigned)code;
    int is_nvrtc = strncmp(call, "nvrtc", 5) == 0;
    int has_left = (how == STAND_IN_EXIT || how == STAND_IN_LEAVE || how == STAND_IN_SCRIBBLE ||
                    how == STAND_IN_SIGNAL) &&
                   stand_in_shared->struck;
    int is_strange = how == STAND_IN_PRINT || how == STAND_IN_FORK || how == STAND_IN_TWIN;
    if (is_nvrtc) /* a source that does not compile; NVRTC is not there */
        codes |= c->run == qm_cmd_doctor ? 0 : 4 | 8 | 256;
    if (has_left && c->run != qm_cmd_doctor && c->run != qm_cmd_gpu_check &&
        (is_nvrtc || c->run != qm_cmd_kernels)) /* which asks the driver for its version alone */
        codes = 8;
    if (is_strange && c->run != qm_cmd_gpu_check) /* whose rows have short limits */
        codes = c->run == qm_cmd_kernels ? 256 : 1;
    if (how == STAND_IN_GARBAGE)     /* a GPU that gives wrong numbers has failed */
        codes |= is_judging ? 2 : 4; /* 2: another card than that of --resume */
    if (how == STAND_IN_SIGNAL && c->run != qm_cmd_gpu_check) /* what is under way is ended: all */
        codes |= c->run == qm_cmd_kernels ? 256 : 1;
    if (how == STAND_IN_FSIZE && c->run != qm_cmd_doctor)
        codes |= 8;
    return bit <= 8 && codes >> bit & 1;
}

/* Calls that commands make; most: times in one process. */
static struct pair {
    int command, call, most;
} pairs[COMMANDS * CALLS];
static int n_made;

/* By command: pairs, those whose fault struck, and exit codes 0, 1, 2, 3, 77 and others. */
static struct tried {
    int pairs, struck, codes[6];
} tried[COMMANDS];

/* A busy machine may be late once: is_again 0: such a pair is tried again. */
static void try_pair(int call, int fault, int count, int is_json, const struct command *c,
                     int is_again)
{
    char what[160], out[96], command[256];
    const char *const json = is_json ? "--json" : NULL;
    const char *const gpu[] = {"--out", out, json, NULL}, *const others[] = {json, NULL};
    const char *const *more = c->run == qm_cmd_gpu_check ? gpu : others;
    snprintf(what, sizeof what, "%s: how %d (error %d), one %d %s %d %d", c->word[0],
             (int)faults[fault].how, faults[fault].error, (int)(c - commands), calls[call], count,
             fault);
    /* what does not hang may take as long as a busy machine makes it */
    setenv("QM_CUDA_LIMIT", faults[fault].how == STAND_IN_HANG ? "0.3" : "60", 1);
    snprintf(out, sizeof out, "%s/gpu", base);
    snprintf(command, sizeof command, "rm -rf %s%s%s", out,
             strncmp(calls[call], "nvrtc", 5) == 0 ? " $QM_CACHE/*.cubin" : "",
             c->word[1] && strcmp(c->word[1], "--resume") == 0
                 ? " && cp -r ${QM_CACHE}/../begun ${QM_CACHE}/../gpu"
                 : "");
    assert_int_equal(system(command), 0);
    *stand_in_shared = (struct stand_in_shared){0};
    stand_in_fault =
        (struct stand_in_fault){calls[call], 0, count, faults[fault].error, faults[fault].how};
    double from = qm_seconds();
    int code = run(c, more);
    int is_late = qm_seconds() - from > SOON;
    struct tried *t = &tried[c - commands];
    t->pairs++;
    t->struck += stand_in_shared->struck > 0;
    t->codes[code == 77 ? 4 : code >= 0 && code < 4 ? code : 5]++;
    if (!is_right(c, calls[call], faults[fault].how, code))
        COMPLAIN("%s: exit code %d\n%s", what, code, printed);
    if (is_late && is_again)
        COMPLAIN("%s: more than %g s twice", what, SOON);
    if (is_json)
        expect_json(what);
    if (code > 1 && c->run != qm_cmd_gpu_check) { /* one line, which names the command */
        char head[40];
        snprintf(head, sizeof head, "qualm %s: ", c->word[0]);
        const char *line = strstr(printed, head); /* behind a library's chatter, if any */
        /* The stand-in itself says which access of a kernel that was compiled for another call is
         * out of bounds, before it aborts. */
        int is_alone = faults[fault].how == STAND_IN_PRINT || line == printed ||
                       (faults[fault].how == STAND_IN_GARBAGE &&
                        strncmp(printed, "stand_in_gpu.h: ", 16) == 0);
        if (!line || !is_alone || !strchr(line, '\n') || strchr(line, '\n')[1])
            COMPLAIN("%s: '%s'", what, printed);
    }
    stand_in_fault = (struct stand_in_fault){0};
    stand_in_shared->is_gone = 0;
    if (c->run == qm_cmd_gpu_check)
        expect_report(what, calls[call], out, code);
    expect_no_process(what);
    if (is_late && !is_again)
        try_pair(call, fault, count, is_json, c, 1);
}

/* Leaves a report of which rows are missing as "gpu", and a copy of it as "begun". */
static void begin_report(void)
{
    char out[96];
    const char *const more[] = {"--out", out, "--limit", "60", NULL};
    snprintf(out, sizeof out, "%s/gpu", base);
    assert_int_equal(system("rm -rf ${QM_CACHE}/../gpu"), 0);
    stand_in_fault = (struct stand_in_fault){"cuEventElapsedTime", 0, 4, 700, STAND_IN_ERROR};
    assert_int_equal(run(&commands[BEGUN], more), 1);
    stand_in_fault = (struct stand_in_fault){0};
    assert_int_equal(system("cp -r ${QM_CACHE}/../gpu ${QM_CACHE}/../begun"), 0);
}

/* Every command ends well; the emulator's objects are then in the cache, so that no call of the
 * stand-in takes long. */
static void try_without_faults(void)
{
    char out[96];
    snprintf(out, sizeof out, "%s/gpu", base);
    const char *const gpu[] = {"--out", out, "--limit", "60", NULL}, *const none[] = {NULL};
    setenv("QM_CUDA_LIMIT", "60", 1);
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].word[1] ? commands[i].word[1] : "", "--resume") == 0)
            begin_report();
        int code = run(&commands[i], commands[i].run == qm_cmd_gpu_check ? gpu : none);
        for (int k = 0; k < CALLS; k++)
            if (stand_in_made(calls[k]))
                pairs[n_made++] = (struct pair){i, k, stand_in_made(calls[k])};
        *stand_in_shared = (struct stand_in_shared){0};
        if (code != (commands[i].run == qm_cmd_kernels ? 77 : 0))
            fail_msg("%s: exit code %d\n%s", commands[i].word[0], code, printed);
        expect_no_process(commands[i].word[0]);
    }
}

static void every_fault_is_a_line(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    if (qm_backend_emu.probe() != QM_OK) {
        print_message("skipped: the emulator needs a C++ compiler\n");
        skip();
    }
    print_message("seed %llu\n", (unsigned long long)seed);
    try_without_faults();
    if (one) {
        int call = 0;
        while (strcmp(calls[call], one[1]) != 0)
            assert_true(++call < CALLS);
        assert_in_range(atoi(one[0]), 0, COMMANDS - 1);
        assert_in_range(atoi(one[3]), 0, FAULTS - 1);
        for (int is_json = 0; is_json < 2; is_json++)
            try_pair(call, atoi(one[3]), atoi(one[2]), is_json, &commands[atoi(one[0])], 0);
        assert_int_equal(wrong, 0);
        return;
    }
    const int n_pairs = n_made * FAULTS;
    if (is_all)
        print_message("%d pairs of a call that is made and a fault\n", n_pairs);
    for (int k = is_all ? part : 0; k < (is_all ? n_pairs : DRAWS); k += is_all ? parts : 1) {
        int which =
            is_all ? (int)((uint64_t)k * STRIDE % (unsigned)n_pairs) : (int)draw((uint32_t)n_pairs);
        const struct pair *p = &pairs[which / FAULTS];
        int is_json = (int)draw(2), count = 1 + (int)draw((uint32_t)(p->most < 3 ? p->most : 3));
        if (is_all && k % (50 * parts) == part)
            print_message("%d of %d\n", k, n_pairs);
        try_pair(p->call, which % FAULTS, count, is_json, &commands[p->command], 0);
    }
    for (int i = 0; i < COMMANDS; i++)
        print_message("%s %s: %d pairs, %d struck; exit codes 0: %d, 1: %d, 2: %d, 3: %d, 77: %d, "
                      "others: %d\n",
                      commands[i].word[0], commands[i].word[1] ? commands[i].word[1] : "",
                      tried[i].pairs, tried[i].struck, tried[i].codes[0], tried[i].codes[1],
                      tried[i].codes[2], tried[i].codes[3], tried[i].codes[4], tried[i].codes[5]);
    assert_int_equal(wrong, 0);
}

/* The core of it: at a call that every command makes, the library writes to stdout, or leaves with
 * the exit code of a good verdict. */
static void every_command_keeps_its_answer(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 10); /* with the report that the first test leaves */
    if (qm_backend_emu.probe() != QM_OK)
        skip();
    for (int fault = 0; fault < FAULTS; fault++)
        for (int c = 0; c < COMMANDS && faults[fault].how >= STAND_IN_EXIT; c++) {
            if (!is_all && draw(faults[fault].how > STAND_IN_PRINT ? 8 : 3))
                continue; /* a third or an eighth of these, drawn, at each run */
            const char *name = commands[c].run == qm_cmd_kernels ? "nvrtcCompileProgram" : "cuInit";
            int call = 0;
            while (strcmp(calls[call], name) != 0)
                call++;
            try_pair(call, fault, 1, 1, &commands[c], 0);
        }
    assert_int_equal(wrong, 0);
}

/* Kernels of earlier recipes and routines are unloaded: what is loaded at once does not grow with
 * their number. */
static void kernels_do_not_pile_up(void **state)
{
    static const struct command some[] = {
        {qm_cmd_check,
         1,
         {"check", "adamw_f32", "adamw4_ao", "lion8_bnb_cuda", "sgdm8_bnb_cuda",
          "adagrad8_bnb_cuda", "--backend", "cuda", "--case", "129/normal/default/t1/forced",
          "-q"}},
        {qm_cmd_prove,
         1,
         {"prove", "nf4:4s/scan/mid", "int:4s/scan/mid", "dyn:4s/scan/mid", "lin:4u/scan/mid",
          "--backend", "cuda", "--range", "0.7:0.701", "-q"}}};
    const char *const none[] = {NULL};
    (void)state;
    AT_ONE_COMMIT_IN(5, 2);
    if (qm_backend_emu.probe() != QM_OK)
        skip();
    setenv("QM_CUDA_LIMIT", "60", 1);
    for (int i = 0; i < 2; i++) {
        *stand_in_shared = (struct stand_in_shared){0};
        stand_in_fault = (struct stand_in_fault){0};
        if (run(&some[i], none) != 0)
            fail_msg("%s", printed);
        print_message("%d kernels at once, %d loaded\n", stand_in_shared->most_modules,
                      stand_in_shared->loads);
        assert_in_range(stand_in_shared->most_modules, 1, 2);
        assert_true(stand_in_shared->loads >= 4);
    }
}

static int prepare(void **state)
{
    char cache[96];
    (void)state;
    if (!mkdtemp(base))
        return 1;
    snprintf(cache, sizeof cache, "%s/cache", base);
    setenv("QM_CACHE", cache, 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    stand_in_open();
    return 0;
}

static int clean(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", base);
    return system(command) != 0;
}

int main(int argc, char **argv)
{
    const char *drawn = getenv("QM_TEST_SEED"); /* other pairs at each commit */
    seed += drawn ? strtoull(drawn, NULL, 10) : 0;
    is_all = argc > 1 && strcmp(argv[1], "all") == 0;
    if (is_all && argc == 4) {
        part = atoi(argv[2]);
        parts = atoi(argv[3]);
        seed += (uint64_t)part;
        cmocka_set_test_filter("every_fault_is_a_line");
    }
    if (argc == 6 && strcmp(argv[1], "one") == 0) {
        one = argv + 2;
        cmocka_set_test_filter("every_fault_is_a_line");
    } else if (argc > 1 && !is_all) /* the name of a test, or a pattern */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fault_is_a_line),
                                       cmocka_unit_test(every_command_keeps_its_answer),
                                       cmocka_unit_test(kernels_do_not_pile_up)};
    return cmocka_run_group_tests(tests, prepare, clean);
}
