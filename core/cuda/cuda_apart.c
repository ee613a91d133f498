/* cuda_apart.c - Processes that call the driver or NVRTC: their start, their one message, their
 * end. */
#include "core/cuda/cuda_apart.h"
#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/process_tree.h"
#include "core/base/sha256.h"

enum { TICK_MS = 50, PATIENCE_MS = 3000 };

#define MAGIC UINT64_C(0x6d75714141504152)
#define MOST  ((size_t)1 << 28) /* bytes of a message */

static pid_t apart; /* the process that this one is, or is a copy of, where it is apart; else 0 */

int qm_cuda_is_apart(void) { return apart != 0; }
void qm_cuda_is_apart_set(void) { apart = getpid(); }
int qm_cuda_is_twin(void) { return apart && apart != getpid(); }

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

int qm_cuda_apart_stdout(void)
{
    fflush(stdout);
    int was = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    return was;
}

/* ---- the message ----------------------------------------------------------------------------- */

struct message {
    uint64_t magic, token[2], bytes; /* bytes: of the records behind it */
    int64_t pid, code;
    uint8_t hash[32]; /* of all above and of the records */
};

/* Before each piece of what was said. */
struct record {
    uint64_t kind, bytes;
};

/* Bytes that grow. */
struct bytes {
    char *at;
    size_t n, room;
};

static struct bytes said; /* in the process that is apart: records */

static int add(struct bytes *b, const void *from, size_t n)
{
    if (b->room - b->n < n) {
        size_t room = b->room + (n > b->room ? n : b->room) + 4096;
        char *more = realloc(b->at, room);
        if (!more)
            return 0;
        b->at = more;
        b->room = room;
    }
    if (n)
        memcpy(b->at + b->n, from, n);
    b->n += n;
    return 1;
}

int qm_cuda_apart_say(enum qm_cuda_said kind, const char *text, size_t n)
{
    const struct record r = {kind, n};
    return qm_cuda_is_twin() || (add(&said, &r, sizeof r) && add(&said, text, n));
}

static void hash_of(const struct message *m, const char *records, uint8_t hash[32])
{
    struct qm_sha256 h;
    qm_sha256_start(&h);
    qm_sha256_add(&h, m, offsetof(struct message, hash));
    qm_sha256_add(&h, records, m->bytes);
    qm_sha256_end(&h, hash);
}

static int write_all(int fd, const void *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, (const char *)from + done, n - done);
        if (k < 0 && errno != EINTR)
            return 0;
        done += k > 0 ? (size_t)k : 0;
    }
    return 1;
}

/* Whether what came is one message with this token of this process, and whole. */
static int is_whole(const struct bytes *b, const uint64_t token[2], pid_t pid, int *code)
{
    struct message m;
    uint8_t hash[32];
    if (b->n < sizeof m)
        return 0;
    memcpy(&m, b->at, sizeof m);
    if (m.magic != MAGIC || m.token[0] != token[0] || m.token[1] != token[1] || m.pid != pid ||
        m.bytes != b->n - sizeof m || m.code < 0 || m.code > 255)
        return 0;
    hash_of(&m, b->at + sizeof m, hash);
    *code = (int)m.code;
    return memcmp(hash, m.hash, sizeof hash) == 0;
}

/* Gives the records of a whole message to hear; 0: they are none. */
static int hear_all(const struct bytes *b,
                    void (*hear)(enum qm_cuda_said kind, const char *text, size_t n))
{
    struct record r;
    for (size_t at = sizeof(struct message); at < b->n; at += r.bytes) {
        if (b->n - at < sizeof r)
            return 0;
        memcpy(&r, b->at + at, sizeof r);
        at += sizeof r;
        if (r.kind >= QM_CUDA_SAID_KINDS || r.bytes > b->n - at)
            return 0;
        if (hear)
            hear((enum qm_cuda_said)r.kind, b->at + at, r.bytes);
    }
    return 1;
}

/* ---- the other process ----------------------------------------------------------------------- */

/* A job for another process, and what the parent keeps of it. */
struct job {
    int (*work)(void *of);
    void *of;
    double limit, total; /* seconds: of a call; of all, 0: without limit */
    struct qm_cuda_calls *calls;
    uint64_t token[2];
    pid_t pid;
    int fd; /* the end of the pipe that is read; -1: at its end */
    struct bytes came;
    int passes_on;           /* signals of the parent reach the process */
    struct sigaction was[8]; /* of the parent */
};

static volatile sig_atomic_t
    signalled;                  /* the last signal that reached the parent while it waited */
static volatile pid_t follower; /* who gets the parent's signals */
static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1};
enum { SIGNALS = sizeof signals / sizeof *signals };

/* What the terminal sends has reached the other process too. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    (void)context;
    signalled = number;
    if (info->si_code <= 0 && follower > 0)
        kill(follower, number);
}

/* Blocks the signals that are passed on, so that one that comes before there is a process for it
 * waits. */
static void hold(sigset_t *before)
{
    sigset_t held;
    sigemptyset(&held);
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(&held, signals[i]);
    sigprocmask(SIG_BLOCK, &held, before);
}

/* Leaves at once when its work is done, so that no library's handler for the exit runs after
 * that. */
static _Noreturn void do_work(const struct job *j, int fd)
{
    qm_cuda_calls_note(j->calls);
    apart = getpid();
    said.n = 0;
    close(qm_cuda_apart_stdout());
    int code = j->work(j->of);
    if (qm_cuda_is_twin())
        _exit(1);
    fflush(NULL);
    struct message m = {MAGIC, {j->token[0], j->token[1]}, said.n, (int64_t)apart, (int64_t)code,
                        {0}};
    hash_of(&m, said.at, m.hash);
    _exit(!write_all(fd, &m, sizeof m) || !write_all(fd, said.at, said.n));
}

/* Forks; the child does not return. */
static qm_status start(struct job *j)
{
    int both[2];
    sigset_t mask;
    j->calls = qm_cuda_calls_open();
    if (!j->calls || getrandom(j->token, sizeof j->token, 0) != sizeof j->token ||
        pipe2(both, O_CLOEXEC) != 0)
        return qm_fail(QM_INTERNAL, "no process for the GPU: %s", strerror(errno));
    fflush(NULL);
    hold(&mask);
    pid_t parent = getpid();
    j->pid = fork();
    if (j->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close(both[0]);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        do_work(j, both[1]);
    }
    signalled = 0;
    follower = j->pid;
    for (int i = 0; j->passes_on && i < SIGNALS; i++) {
        const struct sigaction act = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
        sigaction(signals[i], NULL, &j->was[i]);
        if (j->was[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &act, NULL);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    close(both[1]);
    j->fd = both[0];
    fcntl(j->fd, F_SETFL, O_NONBLOCK);
    return j->pid > 0 ? QM_OK : qm_fail(QM_INTERNAL, "no process for the GPU: %s", strerror(errno));
}

/* ---- the watch over it ----------------------------------------------------------------------- */

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

/* Reads what has come; a library that writes without end does so to a full pipe. */
static void take(struct job *j)
{
    char text[65536];
    ssize_t n = 0;
    while (j->fd >= 0 && j->came.n <= MOST && (n = read(j->fd, text, sizeof text)) > 0)
        if (!add(&j->came, text, (size_t)n))
            break;
    if (j->fd >= 0 && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))) {
        close(j->fd);
        j->fd = -1;
    }
}

/* ", in cuInit", or "". */
static const char *in_call(const struct job *j, char text[QM_CUDA_CALL_NAME + 8])
{
    char name[QM_CUDA_CALL_NAME];
    int is_in = qm_cuda_calls_open_one(j->calls, name);
    snprintf(text, QM_CUDA_CALL_NAME + 8, "%s%s", is_in ? ", in " : "", name);
    return text;
}

static qm_status damaged(void)
{
    return qm_fail(QM_INTERNAL, "the process that uses the GPU was ended: the driver or NVRTC "
                                "overwrote what it shares with this one");
}

static qm_status too_late(const char *call, double limit, int is_gone)
{
    int factor = qm_cuda_call_factor(call);
    return qm_fail(QM_INTERNAL, "%s has not returned from %s within %g s (%sQM_CUDA_LIMIT)%s",
                   factor > 1                      ? "NVRTC"
                   : strncmp(call, "nvml", 4) == 0 ? "NVML"
                                                   : "the CUDA driver",
                   call, factor * limit, factor > 1 ? "ten times " : "",
                   is_gone ? "" : "; it holds the process, which was killed");
}

/* Waits until the process ends, or kills it: a call is late, the time is over, or what it shares is
 * overwritten.  Seconds that pass between two looks count for at most one tick, because a stopped
 * process is not late. */
static qm_status follow(struct job *j, int *state)
{
    struct qm_cuda_watch w = {{0}, {0}};
    char call[QM_CUDA_CALL_NAME];
    const double tick = 1e-3 * TICK_MS;
    double last = qm_seconds(), spent = 0.0;
    for (;;) {
        struct pollfd p = {j->fd, POLLIN, 0};
        pid_t got = waitpid(j->pid, state, WNOHANG);
        if (got == j->pid)
            return QM_OK;
        if (got < 0 && errno != EINTR)
            return qm_fail(QM_INTERNAL, "the end of the process that uses the GPU is unknown: %s",
                           strerror(errno));
        poll(&p, 1, j->fd < 0 && j->came.n ? 1 : TICK_MS);
        take(j);
        double t = qm_seconds(), passed = t - last < tick ? t - last : tick;
        last = t;
        spent += passed;
        int is_damaged = qm_cuda_calls_are_damaged(j->calls);
        int is_late = qm_cuda_calls_late(j->calls, &w, passed, j->limit + tick, call);
        if (!is_late && j->total > 0.0 && spent >= j->total) {
            is_late = 1;
            if (!qm_cuda_calls_open_one(j->calls, call))
                strcpy(call, "loading");
        }
        if (!is_damaged && !is_late && j->came.n <= MOST)
            continue;
        if (reap(j->pid, 0, state)) /* it has just ended */
            return QM_OK;
        kill(j->pid, SIGKILL);
        int is_gone = reap(j->pid, PATIENCE_MS, state);
        return is_late && !is_damaged ? too_late(call, j->limit, is_gone) : damaged();
    }
}

/* How a process that has ended did so, and what it returned. */
static qm_status end_of(struct job *j, int state, int *code)
{
    char in[QM_CUDA_CALL_NAME + 8];
    take(j);
    if (WIFSIGNALED(state))
        return qm_fail(QM_INTERNAL, "the process that uses the GPU ended by signal %d (%s)%s",
                       WTERMSIG(state), strsignal(WTERMSIG(state)), in_call(j, in));
    if (qm_cuda_calls_are_damaged(j->calls))
        return damaged();
    if (WEXITSTATUS(state) != 0 || j->came.n == 0)
        return qm_fail(QM_INTERNAL,
                       "the process that uses the GPU left with exit code %d%s, before its work "
                       "was done",
                       WEXITSTATUS(state), in_call(j, in));
    if (!is_whole(&j->came, j->token, j->pid, code) || !hear_all(&j->came, NULL))
        return qm_fail(QM_INTERNAL, "what came from the process that uses the GPU is no answer%s",
                       in_call(j, in));
    return QM_OK;
}

/* Runs a job in a process of its own.  What that leaves behind comes to this process, which ends
 * it; other children of this process are left alone, if they were there before. */
static qm_status run(struct job *j, int *code)
{
    int was_reaper = 0, state = 0;
    pid_t *before = malloc(sizeof *before * QM_TREE_MOST);
    int n = before ? qm_process_children(getpid(), before) : 0;
    prctl(PR_GET_CHILD_SUBREAPER, &was_reaper);
    if (before && !apart)
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    j->fd = -1;
    qm_status st = start(j);
    if (st == QM_OK)
        st = follow(j, &state);
    if (st == QM_OK)
        st = end_of(j, state, code);
    if (before && !apart && j->pid > 0)
        qm_process_end_children(before, n);
    if (before && !apart)
        prctl(PR_SET_CHILD_SUBREAPER, was_reaper);
    free(before);
    for (int i = 0; j->passes_on && j->pid && i < SIGNALS; i++)
        sigaction(signals[i], &j->was[i], NULL);
    follower = 0;
    if (j->fd >= 0)
        close(j->fd);
    qm_cuda_calls_close(j->calls);
    if (st != QM_OK && j->passes_on && signalled)
        return qm_fail(QM_INTERRUPTED, "interrupted (%s)", strsignal(signalled));
    return st;
}

/* ---- work and text --------------------------------------------------------------------------- */

qm_status qm_cuda_apart(int (*work)(void *of), void *of, int *code,
                        void (*hear)(enum qm_cuda_said kind, const char *text, size_t n))
{
    struct job j = {.work = work, .of = of, .passes_on = 1};
    if (apart) {
        *code = work(of);
        return QM_OK;
    }
    QM_TRY(qm_cuda_limit(&j.limit));
    qm_status st = run(&j, code);
    if (st == QM_OK)
        (void)hear_all(&j.came, hear);
    free(j.came.at);
    return st;
}

struct line {
    void (*fill)(char *text, size_t size);
    char *text;
    size_t size;
};

static int say_line(void *of)
{
    struct line *l = of;
    l->fill(l->text, l->size);
    return !qm_cuda_apart_say(QM_CUDA_SAID_data, l->text, strnlen(l->text, l->size));
}

qm_status qm_cuda_apart_text(void (*fill)(char *text, size_t size), char *text, size_t size)
{
    int code = 0;
    struct line l = {fill, calloc(1, size), size};
    struct job j = {.work = say_line, .of = &l};
    struct record r = {0, 0};
    QM_TRY(qm_cuda_limit(&j.limit));
    j.total = j.limit;
    qm_status st = l.text ? run(&j, &code) : qm_fail(QM_NO_MEMORY, "a line of text");
    const size_t from = sizeof(struct message) + sizeof r;
    if (st == QM_OK && j.came.n >= from)
        memcpy(&r, j.came.at + sizeof(struct message), sizeof r);
    if (st == QM_OK && (code || j.came.n != from + r.bytes || r.bytes >= size))
        st = qm_fail(QM_INTERNAL, "what came from the process that uses the GPU is no line");
    if (st == QM_OK) {
        memcpy(text, j.came.at + from, r.bytes);
        text[r.bytes] = '\0';
    }
    free(l.text);
    free(j.came.at);
    return st;
}
