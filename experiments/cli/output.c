/* output.c - Where data goes, and commands that print it in a process of their own. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cuda/cuda_apart.h"
#include "experiments/cli/cli.h"

static FILE *out, *notes; /* NULL: stdout, stderr */

FILE *qm_out(void) { return out ? out : stdout; }
FILE *qm_notes(void)
{
    fflush(qm_out()); /* keeps their order, and lines whole, where both go to one file */
    return notes ? notes : stderr;
}

void qm_print(const char *format, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return;
    qm_cli_make_plain(text, 1);
    fwrite(text, 1, (size_t)n, qm_out());
    free(text);
}

/* Whether the reader has closed the stream, which is no error. */
static int reader_gone(void)
{
    struct pollfd p = {.fd = fileno(qm_out()), .events = POLLOUT};
    return errno == EPIPE || (poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP)));
}

/* Why stdout could not be written: the system's words, of errno where that is not 0. */
static const char *stdout_reason(void)
{
    /* stdio keeps no reason of a write that failed before: another byte fails for the same one */
    return errno                                  ? strerror(errno)
           : write(fileno(qm_out()), "\n", 1) < 0 ? strerror(errno)
                                                  : "an earlier write failed";
}

static int is_finished;

int qm_cli_finish(int code)
{
    int is_said = code == qm_exit_code(QM_BAD_FILE);
    is_finished = 1;
    qm_cli_notes_end();
    errno = 0;
    int failed = ferror(qm_out());
    if ((fflush(qm_out()) != 0 || failed) && !reader_gone()) {
        if (!is_said)
            fprintf(qm_notes(), "qualm: cannot write to stdout: %s\n", stdout_reason());
        return qm_exit_code(QM_BAD_FILE);
    }
    return code == 0 && qm_cli.is_json_lost ? qm_exit_code(QM_BAD_FILE) : code;
}

void qm_cli_finish_at_exit(void)
{
    int code = is_finished ? 0 : qm_cli_finish(0);
    if (code)
        _exit(code);
}

/* ---- a process of its own -------------------------------------------------------------------- */

struct job {
    const char *command;
    int (*work)(void *of);
    void *of;
};

/* A stream of the process that works: what is written there is said to the parent. */
static ssize_t say(void *kind, const char *text, size_t n)
{
    return qm_cuda_apart_say(*(const enum qm_cuda_said *)kind, text, n) ? (ssize_t)n : 0;
}

static FILE *saying(enum qm_cuda_said kind)
{
    static enum qm_cuda_said kinds[QM_CUDA_SAID_KINDS];
    kinds[kind] = kind;
    return fopencookie(&kinds[kind], "w", (cookie_io_functions_t){.write = say});
}

static int do_job(void *of)
{
    const struct job *j = of;
    out = saying(QM_CUDA_SAID_data);
    notes = saying(QM_CUDA_SAID_note);
    if (!out || !notes)
        return qm_exit_code(QM_NO_MEMORY);
    setvbuf(notes, NULL, _IOLBF, 0);
    return qm_cli_finish(j->work(j->of));
}

static void print(enum qm_cuda_said kind, const char *text, size_t n)
{
    if (kind == QM_CUDA_SAID_note)
        fflush(stdout);
    fwrite(text, 1, n, kind == QM_CUDA_SAID_note ? stderr : stdout);
}

int qm_cli_apart(const char *command, int (*work)(void *of), void *of)
{
    struct job j = {command, work, of};
    int code = 0;
    if (qm_cuda_is_apart())
        return work(of);
    qm_status st = qm_cuda_apart(do_job, &j, &code, print);
    if (st != QM_OK)
        qm_progress_clear(); /* of the process that worked */
    return st == QM_OK ? code : qm_cli_failed(command, st);
}
