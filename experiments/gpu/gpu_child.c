/* gpu_child.c - Forks a process that measures, reads its lines within limits, tells its end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/process_tree.h"
#include "experiments/cli/cli.h"
#include "experiments/gpu/gpu_run.h"

enum { TICK_MS = 100, READ = 65536 };

static const double PATIENCE = 3.0; /* seconds for a process to end */

/* Children of this process that are not to be ended: those that were there before the first
 * measuring process, and those that measure. */
static pid_t kept[QM_TREE_MOST];
static int n_kept = -1;

/* From now on what a measuring process leaves behind comes to this process. */
static void adopt(void)
{
    if (n_kept >= 0)
        return;
    n_kept = qm_process_children(getpid(), kept);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void keep(pid_t pid)
{
    if (n_kept < QM_TREE_MOST)
        kept[n_kept++] = pid;
}

/* A measuring process has ended: ends what it has left. */
static void end_left(pid_t pid)
{
    for (int i = 0; i < n_kept; i++)
        if (kept[i] == pid)
            kept[i--] = kept[--n_kept];
    qm_process_end_children(kept, n_kept);
}

/* The parent is gone: the process ends with all that it has started. */
static void end_group(int number)
{
    (void)number;
    kill(0, SIGKILL);
}

qm_status qm_gpu_child_start(struct qm_gpu_child *c, void (*work)(void *of, int fd), void *of)
{
    int both[2];
    memset(c, 0, sizeof *c);
    c->calls = qm_cuda_calls_open();
    if (pipe2(both, O_CLOEXEC) != 0) {
        qm_cuda_calls_close(c->calls);
        return qm_fail(QM_INTERNAL, "no pipe: %s", strerror(errno));
    }
    fflush(NULL);
    adopt();
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0) {
        static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGSEGV, SIGBUS};
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
            signal(signals[i], SIG_DFL);
        setpgid(0, 0); /* Ctrl-C reaches the parent alone; one kill reaches what the child starts */
        signal(SIGRTMIN, end_group); /* a signal that neither NVRTC nor python takes */
        prctl(PR_SET_PDEATHSIG, SIGRTMIN);
        if (getppid() != parent)
            _exit(1);
        close(both[0]);
        close(qm_cuda_apart_stdout());
        qm_cuda_is_apart_set();
        qm_cuda_calls_note(c->calls);
        work(of, both[1]);
        if (qm_cuda_is_twin())
            _exit(1);
        exit(0);
    }
    close(both[1]);
    if (c->pid > 0)
        keep(c->pid);
    if (c->pid < 0) {
        close(both[0]);
        qm_cuda_calls_close(c->calls);
        memset(c, 0, sizeof *c);
        return qm_fail(QM_INTERNAL, "no process: %s", strerror(errno));
    }
    setpgid(c->pid, c->pid); /* whoever comes first */
    c->fd = both[0];
    return QM_OK;
}

void qm_gpu_child_send(int fd, json_t *value)
{
    if (qm_cuda_is_twin())
        _exit(1); /* a library has forked: one process answers */
    char *text = json_dumps(value, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0, done = 0;
    if (text)
        text[n++] = '\n'; /* in place of the NUL */
    while (done < n) {
        ssize_t k = write(fd, text + done, n - done);
        if (k < 0 && errno != EINTR)
            _exit(1); /* the parent is gone */
        done += k > 0 ? (size_t)k : 0;
    }
    free(text);
    json_decref(value);
}

/* Takes the first line of what was read; 0: there is none yet. */
static int take_line(struct qm_gpu_child *c, json_t **value)
{
    char *newline = c->used ? memchr(c->line, '\n', c->used) : NULL;
    if (!newline)
        return 0;
    size_t n = (size_t)(newline - c->line) + 1;
    *value = json_loadb(c->line, n, 0, NULL);
    memmove(c->line, c->line + n, c->used - n);
    c->used -= n;
    return 1;
}

enum qm_gpu_wait qm_gpu_child_wait(struct qm_gpu_child *c, double until,
                                   const volatile sig_atomic_t *stop, json_t **value)
{
    for (;;) {
        struct pollfd p = {c->fd, POLLIN, 0};
        *value = NULL;
        if (take_line(c, value))
            return *value ? QM_GPU_WAIT_line : QM_GPU_WAIT_ended;
        if (stop && *stop)
            return QM_GPU_WAIT_stopped;
        double left = until - qm_seconds();
        if (left <= 0.0)
            return QM_GPU_WAIT_late;
        if (poll(&p, 1, left < 0.001 * TICK_MS ? (int)(1000.0 * left) + 1 : TICK_MS) <= 0)
            continue;
        if (c->room - c->used < READ) {
            char *more = realloc(c->line, c->room + 2 * READ);
            if (!more)
                return QM_GPU_WAIT_ended;
            c->line = more;
            c->room += 2 * READ;
        }
        ssize_t n = read(c->fd, c->line + c->used, READ);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            c->is_closed = 1;
            return QM_GPU_WAIT_ended;
        }
        c->used += n > 0 ? (size_t)n : 0;
    }
}

/* Waits for the process up to `seconds`; 1: it has ended. */
static int reap(pid_t pid, double seconds, int *state)
{
    double until = qm_seconds() + seconds;
    for (;;) {
        pid_t got = waitpid(pid, state, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            return 1;
        if (qm_seconds() > until)
            return 0;
        poll(NULL, 0, 2);
    }
}

const char *qm_gpu_child_call(const struct qm_gpu_child *c, char *text, size_t size)
{
    char name[QM_CUDA_CALL_NAME];
    int is_in = qm_cuda_calls_open_one(c->calls, name);
    snprintf(text, size, "%s%s", is_in ? ", in " : "", name);
    return text;
}

void qm_gpu_child_kill(const struct qm_gpu_child *c)
{
    if (c->pid > 0)
        kill(-c->pid, SIGKILL);
}

void qm_gpu_child_end(struct qm_gpu_child *c, char *how, size_t size)
{
    int state = 0;
    char call[80];
    pid_t pid = c->pid;
    if (c->pid <= 0)
        return;
    int by_itself = reap(c->pid, c->is_closed ? 1.0 : 0.0, &state); /* it is about to end */
    kill(-c->pid, SIGKILL);                                         /* and what it has started */
    qm_gpu_child_call(c, call, sizeof call);
    if (!by_itself && !reap(c->pid, PATIENCE, &state))
        snprintf(how, size, "the process was killed and does not end: the driver holds it%s", call);
    else if (by_itself && WIFSIGNALED(state))
        snprintf(how, size, "the process ended by signal %d (%s)%s", WTERMSIG(state),
                 strsignal(WTERMSIG(state)), call);
    else if (by_itself)
        snprintf(how, size, "the process left with exit code %d%s", WEXITSTATUS(state), call);
    else
        snprintf(how, size, "the process was killed%s", call);
    close(c->fd);
    free(c->line);
    qm_cuda_calls_close(c->calls);
    memset(c, 0, sizeof *c);
    end_left(pid);
}
