/* rehearsal.h - Runs gpu-check in a process of its own on the stand-in for a GPU, and reads its
 * report.
 *
 * The process of a test runs no OpenMP region, because it forks. */
#ifndef QM_SUPPORT_REHEARSAL_H
#define QM_SUPPORT_REHEARSAL_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

#include "core/recipe/backend.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/gpu/gpu_run.h"
#include "tests/support/stand_in_gpu.h"

/* Most of the tests measure one recipe: 38 rows of exact and 2 of speed. */
#define FEW "adamw_f32", "--only", "exact,speed", "--quick", "--size", "0.008", "--rounds", "2"
enum { FEW_ROWS = 38 + 2, MOST_WORDS = 32 };

static char base[] = "/tmp/qm-rehearsal-XXXXXX", out[64], printed[4096];
static int has_compiler;

/* ---- running --------------------------------------------------------------------------------- */

/* Starts a command in a process of its own; what it prints goes to the file "printed". */
static pid_t start_command(int (*command)(int, char **), int argc, char **argv)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        /* cmocka's handlers would go on with the next test in this process */
        static const int crashes[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS};
        for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
            signal(crashes[i], SIG_DFL);
        char path[80];
        snprintf(path, sizeof path, "%s/printed", base);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        exit(command(argc, argv));
    }
    return pid;
}

static pid_t start(const char *const *words)
{
    char *argv[MOST_WORDS] = {(char *)(uintptr_t) "gpu-check", (char *)(uintptr_t) "--out", out};
    int argc = 3;
    for (int i = 0; words[i]; i++)
        argv[argc++] = (char *)(uintptr_t)words[i];
    return start_command(qm_cmd_gpu_check, argc, argv);
}

static int finish(pid_t pid)
{
    int state = 0;
    char path[80];
    waitpid(pid, &state, 0);
    snprintf(path, sizeof path, "%s/printed", base);
    FILE *f = fopen(path, "r");
    printed[fread(printed, 1, sizeof printed - 1, f)] = '\0';
    fclose(f);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

/* Runs gpu-check with these words and returns its exit code. */
static int gpu_check(const char *const *words) { return finish(start(words)); }
#define RUN(...) gpu_check((const char *const[]){__VA_ARGS__, NULL})

/* The newest report; its page must be there and whole too. */
static void read_report(struct qm_gpu_report *r)
{
    char path[4096], page[4096], text[64] = "";
    assert_int_equal(qm_gpu_report_newest(out, path, sizeof path), QM_OK);
    if (qm_gpu_report_read(path, r) != QM_OK)
        fail_msg("%s", qm_message());
    snprintf(page, sizeof page, "%.*s.md", (int)strlen(path) - 3, path);
    FILE *f = fopen(page, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "# Stand-in\n");
}

static void clear(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", out);
    assert_int_equal(system(command), 0);
    stand_in_fault = (struct stand_in_fault){0};
    stand_in_idle = (struct stand_in_idle){0};
    *stand_in_shared = (struct stand_in_shared){0};
}

/* Rows of all parts by what they say; *first: the status of the first broken one. */
static void count(const struct qm_gpu_report *r, size_t by[4], char *first, size_t size)
{
    json_t *row;
    size_t k;
    memset(by, 0, 4 * sizeof *by);
    *first = '\0';
    for (int i = 0; i < QM_GPU_PARTS; i++)
        json_array_foreach (r->rows[i], k, row) {
            enum qm_gpu_verdict v = qm_gpu_row_verdict((enum qm_gpu_part)i, row);
            if (v == QM_GPU_broken && !by[v])
                snprintf(first, size, "%s", json_string_value(json_object_get(row, "status")));
            by[v]++;
        }
}

/* The report has this many good and broken rows, no others, and the first broken one says so. */
static void expect_rows(size_t good, size_t broken, const char *says)
{
    struct qm_gpu_report r;
    size_t by[4];
    char first[1300];
    read_report(&r);
    count(&r, by, first, sizeof first);
    if (by[QM_GPU_good] != good || by[QM_GPU_broken] != broken || by[QM_GPU_bad] ||
        by[QM_GPU_skipped] || (says && !strstr(first, says)))
        fail_msg("%zu good (want %zu), %zu broken (want %zu), %zu bad, %zu skipped: '%s' (want "
                 "'%s')\n%s",
                 by[0], good, by[2], broken, by[1], by[3], first, says ? says : "", printed);
    qm_gpu_report_free(&r);
}

#define NEEDS_COMPILER()                                                   \
    do {                                                                   \
        if (!has_compiler) {                                               \
            print_message("skipped: the emulator needs a C++ compiler\n"); \
            skip();                                                        \
        }                                                                  \
    } while (0)

/* Whether the report could not be read because it was renewed then: the writer closes it just after
 * renaming it, and a reader opens it twice. */
static inline int is_renewed(void)
{
    return strstr(qm_message(), "lock") || strstr(qm_message(), "changed while it was read");
}

/* Waits until the report has a row; the pid's process is measuring then. */
static inline void await_row(void)
{
    char path[4096];
    struct qm_gpu_report r;
    for (int i = 0; i < 3000; i++) {
        size_t n = 0;
        if (qm_gpu_report_newest(out, path, sizeof path) == QM_OK) {
            qm_status st = qm_gpu_report_read(path, &r); /* at every moment */
            for (int k = 0; st != QM_OK && is_renewed() && k < 100; k++) {
                usleep(10000);
                st = qm_gpu_report_read(path, &r);
            }
            if (st != QM_OK)
                fail_msg("%s", qm_message());
            n = json_array_size(r.rows[QM_GPU_exact]);
            qm_gpu_report_free(&r);
        }
        if (n > 0)
            return;
        usleep(10000);
    }
    fail_msg("no row came");
}

static int prepare(void **state)
{
    char cache[96];
    (void)state;
    if (!mkdtemp(base))
        return 1;
    snprintf(out, sizeof out, "%s/gpu", base);
    snprintf(cache, sizeof cache, "%s/cache", base);
    setenv("QM_CACHE", cache, 1);
    setenv("SOURCE_DATE_EPOCH", "0", 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    signal(SIGHUP, SIG_DFL); /* under nohup the tests of signals would raise none */
    stand_in_open();
    has_compiler = qm_backend_emu.probe() == QM_OK;
    return 0;
}

static int clean(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", base);
    return system(command) != 0;
}

#endif
