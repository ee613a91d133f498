/* cuda_apart.c - Processes that call the driver, and the watch over their calls. */
#include "core/cuda/cuda_apart.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 256, TICK_MS = 50, PATIENCE_MS = 3000 };

/* ---- calls ----------------------------------------------------------------------------------- */

/* The call of one thread: name NULL: none is under way; count: calls so far. */
struct call {
    _Atomic(const char *) name;
    atomic_uint count;
};

struct qm_cuda_calls {
    struct call thread[THREADS]; /* threads beyond share the last one */
};

static struct qm_cuda_calls *noted;
static int is_apart;

static struct call *mine(void)
{
    static atomic_int threads;
    static _Thread_local int own = -1;
    if (own < 0) {
        own = atomic_fetch_add(&threads, 1);
        own = own < THREADS ? own : THREADS - 1;
    }
    return &noted->thread[own];
}

void qm_cuda_call(const char *name)
{
    if (!noted)
        return;
    atomic_fetch_add_explicit(&mine()->count, 1, memory_order_relaxed);
    atomic_store_explicit(&mine()->name, name, memory_order_release);
}

int qm_cuda_call_over(int error)
{
    if (noted)
        atomic_store_explicit(&mine()->name, NULL, memory_order_release);
    return error;
}

struct qm_cuda_calls *qm_cuda_calls_open(void)
{
    void *at = mmap(NULL, sizeof(struct qm_cuda_calls), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void qm_cuda_calls_note(struct qm_cuda_calls *c) { noted = c; }

void qm_cuda_calls_close(struct qm_cuda_calls *c)
{
    if (c)
        munmap(c, sizeof *c);
}

const char *qm_cuda_calls_open_one(const struct qm_cuda_calls *c)
{
    const char *name = NULL;
    for (int i = 0; c && i < THREADS && !name; i++)
        name = atomic_load_explicit(&c->thread[i].name, memory_order_acquire);
    return name;
}

/* ---- a process that is watched --------------------------------------------------------------- */

int qm_cuda_is_apart(void) { return is_apart; }
void qm_cuda_is_apart_set(void) { is_apart = 1; }

qm_status qm_cuda_limit(double *seconds)
{
    const char *text = getenv("QM_CUDA_LIMIT");
    char *end = NULL;
    double x = text ? strtod(text, &end) : 30.0;
    if (text && (end == text || *end || !(x >= 0.01 && x <= 1e6)))
        return qm_fail(QM_BAD_ARG, "QM_CUDA_LIMIT=%s: expected seconds, from 0.01 to 1e6", text);
    *seconds = x;
    return QM_OK;
}

/* What the watcher saw of each thread: the call, by its number, and for how many ticks.  Ticks and
 * not the clock, because a stopped process is not late. */
struct watch {
    unsigned count[THREADS];
    int ticks[THREADS];
};

/* The name of a call that has lasted for `limit` ticks; NULL: there is none. */
static const char *late_call(const struct qm_cuda_calls *c, struct watch *w, int limit)
{
    for (int i = 0; c && i < THREADS; i++) {
        const char *name = atomic_load_explicit(&c->thread[i].name, memory_order_acquire);
        unsigned count = atomic_load_explicit(&c->thread[i].count, memory_order_relaxed);
        w->ticks[i] = name && count == w->count[i] ? w->ticks[i] + 1 : 0;
        w->count[i] = count;
        if (w->ticks[i] >= limit)
            return name;
    }
    return NULL;
}

/* Waits for the process up to `ms`; 1: it has ended, or is none of ours. */
static int reap(pid_t pid, int ms, int *state)
{
    for (;; ms -= 2) {
        pid_t got = waitpid(pid, state, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            return 1;
        if (ms <= 0)
            return 0;
        poll(NULL, 0, 2);
    }
}

static qm_status ended_by(int number, const char *call)
{
    return qm_fail(QM_INTERNAL, "the process that uses the GPU ended by signal %d (%s)%s%s", number,
                   strsignal(number), call ? ", in " : "", call ? call : "");
}

static qm_status too_late(pid_t pid, const char *call, double limit)
{
    int state = 0;
    kill(pid, SIGKILL);
    int is_gone = reap(pid, PATIENCE_MS, &state);
    return qm_fail(QM_INTERNAL,
                   "the CUDA driver has not returned from %s within %g s (QM_CUDA_LIMIT)%s", call,
                   limit, is_gone ? "" : "; it holds the process, which was killed");
}

/* ---- the program goes on in another process -------------------------------------------------- */

static volatile pid_t follower; /* who gets this process's signals */

/* What the terminal sends has reached the other process too. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0 && follower > 0)
        kill(follower, number);
}

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1};
enum { PASSED = sizeof passed / sizeof *passed };

/* Waits until the process ends or a call of it is late. */
static qm_status follow(pid_t pid, const struct qm_cuda_calls *calls, double limit, int *code)
{
    struct watch w = {{0}, {0}};
    const struct timespec tick = {0, TICK_MS * 1000000L};
    int state = 0, most = (int)(limit * (1000.0 / TICK_MS)) + 1;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        pid_t got = waitpid(pid, &state, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            break;
        if (sigtimedwait(&child, NULL, &tick) >= 0 || errno != EAGAIN)
            continue; /* SIGCHLD, or a signal that was passed on */
        const char *call = late_call(calls, &w, most);
        if (call)
            return too_late(pid, call, limit);
    }
    if (!WIFSIGNALED(state)) {
        *code = WEXITSTATUS(state);
        return QM_OK;
    }
    for (int i = 0; i < PASSED; i++)
        if (WTERMSIG(state) == passed[i]) { /* as if it had reached this process alone */
            signal(passed[i], SIG_DFL);
            raise(passed[i]);
        }
    return ended_by(WTERMSIG(state), qm_cuda_calls_open_one(calls));
}

int qm_cuda_apart(qm_status *st, int *code)
{
    double limit = 0.0;
    if (is_apart)
        return 1;
    if ((*st = qm_cuda_limit(&limit)) != QM_OK)
        return 0;
    struct sigaction act = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO}, was[PASSED];
    struct qm_cuda_calls *calls = qm_cuda_calls_open();
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    fflush(NULL);
    pid_t parent = getpid(), pid = calls ? fork() : -1;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        sigprocmask(SIG_SETMASK, &before, NULL);
        qm_cuda_calls_note(calls);
        is_apart = 1;
        return 1;
    }
    if (pid < 0) {
        *st = qm_fail(QM_INTERNAL, "no process for the GPU: %s", strerror(errno));
    } else {
        follower = pid;
        for (int i = 0; i < PASSED; i++)
            sigaction(passed[i], &act, &was[i]);
        *st = follow(pid, calls, limit, code);
        for (int i = 0; i < PASSED; i++)
            sigaction(passed[i], &was[i], NULL);
        follower = 0;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    qm_cuda_calls_close(calls);
    return 0;
}

/* ---- a line of text -------------------------------------------------------------------------- */

/* Reads until the other end is closed or `ms` are over; returns the bytes, or -1: too late. */
static ssize_t read_all(int fd, char *text, size_t size, int ms)
{
    struct timespec now;
    size_t used = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const long long end = 1000LL * now.tv_sec + now.tv_nsec / 1000000 + ms;
    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        clock_gettime(CLOCK_MONOTONIC, &now);
        long long left = end - (1000LL * now.tv_sec + now.tv_nsec / 1000000);
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready == 0)
            return -1;
        ssize_t n = ready > 0 ? read(fd, text + used, size - used) : -1;
        if (n == 0 || (n < 0 && errno != EINTR))
            return (ssize_t)used;
        used += n > 0 ? (size_t)n : 0;
    }
}

/* The other process: writes the line and its NUL, which says that it is whole. */
static void write_line(int fd, void (*fill)(char *text, size_t size), char *text, size_t size)
{
    size_t done = 0;
    is_apart = 1;
    fill(text, size);
    for (size_t n = strlen(text) + 1; done < n;) {
        ssize_t k = write(fd, text + done, n - done);
        if (k < 0 && errno != EINTR)
            _exit(1);
        done += k > 0 ? (size_t)k : 0;
    }
    _exit(0);
}

qm_status qm_cuda_apart_text(void (*fill)(char *text, size_t size), char *text, size_t size)
{
    double limit = 0.0;
    int both[2], state = 0;
    QM_TRY(qm_cuda_limit(&limit));
    struct qm_cuda_calls *calls = qm_cuda_calls_open();
    char *own = malloc(size);
    if (!calls || !own || pipe(both) != 0) {
        qm_cuda_calls_close(calls);
        free(own);
        return qm_fail(QM_NO_MEMORY, "a process for the GPU");
    }
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        qm_cuda_calls_note(calls);
        write_line(both[1], fill, own, size);
    }
    close(both[1]);
    qm_status st = pid > 0 ? QM_OK : qm_fail(QM_INTERNAL, "no process: %s", strerror(errno));
    ssize_t n = pid > 0 ? read_all(both[0], own, size, (int)(1000.0 * limit)) : 0;
    const char *call = qm_cuda_calls_open_one(calls);
    close(both[0]);
    if (pid > 0 && n < 0)
        st = too_late(pid, call ? call : "loading", limit);
    else if (pid > 0 && (!reap(pid, PATIENCE_MS, &state) || WIFSIGNALED(state)))
        st = WIFSIGNALED(state) ? ended_by(WTERMSIG(state), call) : QM_OK;
    if (st == QM_OK && (n <= 0 || own[n - 1]))
        st = qm_fail(QM_INTERNAL, "the process that uses the GPU left with exit code %d%s%s",
                     WEXITSTATUS(state), call ? ", in " : "", call ? call : "");
    if (st == QM_OK)
        memcpy(text, own, (size_t)n);
    free(own);
    qm_cuda_calls_close(calls);
    return st;
}
