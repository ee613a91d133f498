/* reader_process.c - Forks, limits, watches and asks the process that opens a foreign file. */
#include "experiments/foreign/reader_process.h"
#include "core/base/clock.h"
#include "core/base/process_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum {
    MEMORY_MIB = 320,        /* the default limit */
    MEMORY_LEAST = 16,       /* MiB */
    MEMORY_MOST = 1 << 20,   /* MiB */
    REQUEST_ROOM = 64 << 10, /* bytes: two paths and some numbers */
    PAGE = 4096,
    KEPT = 16 << 20, /* bytes of an answer that stay in memory until the next */
    LOOK_MS = 200,   /* between two looks at the progress */
};

/* The head of the shared memory; requests and answers follow. */
struct shared {
    _Atomic uint64_t progress;
};

/* What goes through the socket in either direction: a request or a status, and the length of what
 * lies in the shared memory. */
struct letter {
    int64_t code;
    uint64_t used;
};

struct qm_reader_process {
    const struct qm_reader_service *service;
    char *path;
    unsigned char *shared; /* PAGE bytes, the request, the answer */
    size_t room;           /* of an answer */
    uint64_t used;         /* of the last answer */
    int fd;                /* of the socket; -1: there is no process */
    pid_t pid;
    void *object; /* of a service in this process */
    struct qm_file_mark mark;
};

static struct shared *progress;             /* in a reader process */
static const struct qm_file_mark *expected; /* in a reader process */
static int in_this_process;

void qm_reader_in_this_process(int on) { in_this_process = on; }

void qm_reader_progress(void)
{
    if (progress)
        atomic_fetch_add(&progress->progress, 1);
}

qm_status qm_reader_expect(const char *path, int fd)
{
    return expected && expected->fd >= 0 ? qm_file_mark_check_other(expected, path, fd) : QM_OK;
}

int qm_reader_follows_links(void)
{
    const char *word = getenv("QM_FOLLOW_LINKS");
    return word && strcmp(word, "1") == 0;
}

void qm_reader_close_doors(void)
{
    if (progress && !qm_reader_follows_links())
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0});
}

int64_t qm_reader_memory(void)
{
    const char *word = getenv("QM_READER_MEMORY");
    char *end = NULL;
    long long mib = word && *word ? strtoll(word, &end, 10) : MEMORY_MIB;
    if ((end && *end) || mib < MEMORY_LEAST || mib > MEMORY_MOST)
        mib = MEMORY_MIB; /* qm_reader_start refuses such a word */
    return (int64_t)mib << 20;
}

uint64_t qm_reader_claim_most(uint64_t stored)
{
    uint64_t most = (uint64_t)qm_reader_memory(), times;
    if (__builtin_mul_overflow(stored, (uint64_t)QM_READER_CLAIM, &times))
        times = UINT64_MAX;
    return times > most ? times : most;
}

qm_status qm_reader_claim_fail(const char *what, uint64_t claimed, uint64_t stored)
{
    return qm_fail(QM_BAD_FILE,
                   "%s %llu bytes, and %llu are stored; beyond %llu MiB at most %d times as many "
                   "are read (QM_READER_MEMORY sets another number of MiB)",
                   what, (unsigned long long)claimed, (unsigned long long)stored,
                   (unsigned long long)qm_reader_memory() >> 20, QM_READER_CLAIM);
}

static qm_status memory_word_check(void)
{
    const char *word = getenv("QM_READER_MEMORY");
    char *end;
    if (!word || !*word)
        return QM_OK;
    long long mib = strtoll(word, &end, 10);
    if (*end || mib < MEMORY_LEAST || mib > MEMORY_MOST)
        return qm_fail(QM_BAD_ARG, "QM_READER_MEMORY is '%.40s', expected MiB from %d to %d", word,
                       MEMORY_LEAST, MEMORY_MOST);
    return QM_OK;
}

/* ---- the reader process -------------------------------------------------------------------- */

/* Limits memory to what the process has after the fork, and the limit. */
static void limit_memory(void)
{
    unsigned long long field[6] = {0};
    FILE *f = fopen("/proc/self/statm", "re");
    int n = f ? fscanf(f, "%llu %llu %llu %llu %llu %llu", &field[0], &field[1], &field[2],
                       &field[3], &field[4], &field[5])
              : 0;
    if (f)
        fclose(f);
    rlim_t most = (rlim_t)field[5] * (rlim_t)sysconf(_SC_PAGESIZE) + (rlim_t)qm_reader_memory();
    if (n == 6 && !SANITIZED) /* a sanitizer's own maps count as data */
        setrlimit(RLIMIT_DATA, &(struct rlimit){most, most});
}

static void confine(void)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGQUIT, SIGPIPE};
    static const int fatal[] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL}; /* SIGBUS: file_mark.c */
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN); /* the terminal's signals are for the program */
    for (size_t i = 0; !SANITIZED && i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    limit_memory();
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        if (!SANITIZED) /* the C library writes its last words there */
            dup2(fd, STDERR_FILENO);
    }
}

static int send_letter(int fd, int64_t code, uint64_t used)
{
    struct letter l = {code, used};
    ssize_t n;
    do
        n = send(fd, &l, sizeof l, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof l;
}

static struct qm_blob request_blob(const struct qm_reader_process *p)
{
    return (struct qm_blob){.base = p->shared + PAGE, .room = REQUEST_ROOM};
}

static struct qm_blob answer_blob(const struct qm_reader_process *p)
{
    return (struct qm_blob){.base = p->shared + PAGE + REQUEST_ROOM, .room = p->room};
}

/* The status of a service, with its message in place of an answer that it did not make. */
static qm_status settle(const struct qm_reader_process *p, qm_status st, struct qm_blob *out)
{
    if (st == QM_OK && out->bad)
        st =
            qm_fail(QM_BAD_FILE, "%s: what it lists takes more than %lld MiB%s", p->path,
                    (long long)(p->room >> 20),
                    p->room == (size_t)qm_reader_memory() ? ", which QM_READER_MEMORY allows" : "");
    if (st != QM_OK) {
        *out = answer_blob(p);
        qm_blob_put_text(out, qm_message());
    }
    return st;
}

/* Serves until the other side closes the socket. */
static _Noreturn void live(struct qm_reader_process *p, void *context, int fd)
{
    void *object = NULL;
    struct letter l;
    progress = (struct shared *)(void *)p->shared;
    expected = &p->mark;
    confine();
    struct qm_blob out = answer_blob(p);
    qm_status st = settle(p, p->service->open(p->path, context, &object, &out), &out);
    int more = send_letter(fd, st, out.used) && st == QM_OK && p->service->serve;
    while (more && recv(fd, &l, sizeof l, MSG_WAITALL) == (ssize_t)sizeof l) {
        struct qm_blob in = request_blob(p);
        in.used = l.used <= in.room ? l.used : 0;
        out = answer_blob(p);
        qm_reader_progress();
        st = settle(p, p->service->serve(object, (int)l.code, &in, &out), &out);
        more = send_letter(fd, st, out.used);
    }
    _exit(0);
}

static qm_status start_process(struct qm_reader_process *p, void *context)
{
    int pair[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return qm_fail(QM_INTERNAL, "%s: a socket: %s", p->path, strerror(errno));
    p->pid = fork();
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        close(pair[0]);
        live(p, context, pair[1]);
    }
    close(pair[1]);
    p->fd = pair[0];
    if (p->pid < 0)
        return qm_fail(QM_INTERNAL, "%s: a process to read it: %s", p->path, strerror(errno));
    return QM_OK;
}

/* ---- the program --------------------------------------------------------------------------- */

/* Ends the process; its wait status, or -1 where another waited for it. */
static int stop(struct qm_reader_process *p, int is_dead)
{
    int status = -1;
    if (p->fd < 0)
        return -1;
    close(p->fd);
    p->fd = -1;
    if (p->pid <= 0)
        return -1;
    if (!is_dead)
        kill(p->pid, SIGKILL);
    pid_t got;
    do
        got = waitpid(p->pid, &status, 0);
    while (got < 0 && errno == EINTR);
    return got == p->pid ? status : -1;
}

static qm_status died(struct qm_reader_process *p)
{
    int status = stop(p, 1);
    if (status >= 0 && WIFSIGNALED(status))
        return qm_fail(
            QM_BAD_FILE,
            "%s: the process that read it was ended by signal %d (%s): it is damaged, or "
            "made to do harm",
            p->path, WTERMSIG(status), strsignal(WTERMSIG(status)));
    return qm_fail(QM_BAD_FILE,
                   "%s: the process that read it ended: it is damaged, or made to do "
                   "harm",
                   p->path);
}

/* Waits for a letter while the process makes progress.  Seconds in which it waits for a processor
 * do not count, up to QM_READER_DELAY of them. */
static qm_status receive(struct qm_reader_process *p, struct letter *out)
{
    struct shared *s = (struct shared *)(void *)p->shared;
    uint64_t seen = atomic_load(&s->progress);
    double since = qm_seconds(), delay = qm_process_delay(p->pid);
    for (;;) {
        struct pollfd ready = {.fd = p->fd, .events = POLLIN};
        int n = poll(&ready, 1, LOOK_MS);
        if (n > 0)
            break;
        uint64_t made = atomic_load(&s->progress);
        if (made != seen) {
            since = qm_seconds();
            delay = qm_process_delay(p->pid);
        }
        seen = made;
        double silent = qm_seconds() - since;
        if (silent >= QM_READER_SECONDS &&
            (silent >= QM_READER_SECONDS + QM_READER_DELAY ||
             silent - (qm_process_delay(p->pid) - delay) >= QM_READER_SECONDS)) {
            stop(p, 0);
            return qm_fail(QM_BAD_FILE, "%s: reading it made no progress in %d s", p->path,
                           QM_READER_SECONDS);
        }
    }
    ssize_t got;
    do
        got = recv(p->fd, out, sizeof *out, MSG_WAITALL);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof *out ? QM_OK : died(p);
}

/* Replaces what a terminal would act on, as in names of the file. */
static void make_plain(char *text)
{
    for (char *c = text; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

/* The status that was sent, with its message; *answer is what was put. */
static qm_status accept_answer(struct qm_reader_process *p, const struct letter *l,
                               struct qm_blob *answer)
{
    *answer = answer_blob(p);
    p->used = l->used;
    if (l->used > answer->room || l->code < 0 || l->code > QM_SKIPPED)
        return qm_reader_garbled(p);
    answer->used = l->used;
    if (l->code == QM_OK)
        return QM_OK;
    char *text = qm_blob_take_text(answer), path[1024];
    snprintf(path, sizeof path, "%s", p->path);
    make_plain(text);
    make_plain(path);
    qm_status st = (qm_status)l->code;
    if (st == QM_NO_MEMORY)
        st = qm_fail(QM_BAD_FILE, "%s: needs more than the %lld MiB that QM_READER_MEMORY allows",
                     p->path, (long long)(qm_reader_memory() >> 20));
    else if (text && strstr(text, path))
        qm_fail(st, "%s", text);
    else
        qm_fail(st, "%s: %s", p->path, text ? text : "");
    free(text);
    return st;
}

qm_status qm_reader_check(const struct qm_reader_process *p)
{
    return qm_file_mark_check(&p->mark, p->path);
}

/* What a file says that changed meanwhile, good or bad, does not count. */
static qm_status unless_changed(const struct qm_reader_process *p, qm_status st)
{
    qm_status changed = qm_reader_check(p);
    return changed != QM_OK ? changed : st;
}

static qm_status gone(const struct qm_reader_process *p)
{
    return qm_fail(QM_BAD_FILE, "%s: the process that read it has ended", p->path);
}

qm_status qm_reader_garbled(const struct qm_reader_process *p)
{
    return qm_fail(QM_BAD_FILE, "%s: the process that read it gave a garbled answer", p->path);
}

struct qm_blob qm_reader_request(struct qm_reader_process *p)
{
    if (p->used > KEPT)
        madvise(p->shared + PAGE + REQUEST_ROOM, p->room, MADV_REMOVE);
    p->used = 0;
    return request_blob(p);
}

static qm_status ask(struct qm_reader_process *p, int request, const struct qm_blob *arguments,
                     struct qm_blob *answer)
{
    struct letter l = {QM_OK, 0};
    if (arguments->bad)
        return qm_fail(QM_BAD_ARG, "%s: a path of more than %d bytes", p->path, REQUEST_ROOM);
    if (p->object) {
        struct qm_blob in = *arguments, out = answer_blob(p);
        l.code = settle(p, p->service->serve(p->object, request, &in, &out), &out);
        l.used = out.used;
        return accept_answer(p, &l, answer);
    }
    if (p->fd < 0)
        return gone(p);
    if (!send_letter(p->fd, request, arguments->used))
        return died(p);
    QM_TRY(receive(p, &l));
    return accept_answer(p, &l, answer);
}

qm_status qm_reader_ask(struct qm_reader_process *p, int request, const struct qm_blob *arguments,
                        struct qm_blob *answer)
{
    return unless_changed(p, ask(p, request, arguments, answer));
}

static qm_status first_answer(struct qm_reader_process *p, void *context, struct qm_blob *first)
{
    struct letter l = {QM_OK, 0};
    if (in_this_process) {
        struct qm_blob out = answer_blob(p);
        l.code = settle(p, p->service->open(p->path, context, &p->object, &out), &out);
        l.used = out.used;
        return accept_answer(p, &l, first);
    }
    QM_TRY(start_process(p, context));
    QM_TRY(receive(p, &l));
    QM_TRY(accept_answer(p, &l, first));
    if (!p->service->serve)
        stop(p, 0);
    return QM_OK;
}

static void close_mark(const struct qm_file_mark *m)
{
    if (m->fd >= 0)
        close(m->fd);
}

qm_status qm_reader_start(const struct qm_reader_service *service, const char *path, void *context,
                          size_t room, const struct qm_file_mark *mark, struct qm_blob *first,
                          struct qm_reader_process **out)
{
    qm_status st = memory_word_check();
    if (st != QM_OK) {
        close_mark(mark);
        return st;
    }
    struct qm_reader_process *p = calloc(1, sizeof *p);
    char *copy = strdup(path);
    size_t most = (size_t)qm_reader_memory();
    room = room && room < most ? room : most;
    void *shared = mmap(NULL, PAGE + REQUEST_ROOM + room, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!p || !copy || shared == MAP_FAILED) {
        if (shared != MAP_FAILED)
            munmap(shared, PAGE + REQUEST_ROOM + room);
        close_mark(mark);
        free(copy);
        free(p);
        return qm_fail(QM_NO_MEMORY, "%s: %zu bytes to hand it over", path, room);
    }
    *p = (struct qm_reader_process){
        .service = service, .path = copy, .shared = shared, .room = room, .fd = -1, .mark = *mark};
    st = unless_changed(p, first_answer(p, context, first));
    if (st == QM_OK)
        *out = p;
    else
        qm_reader_end(p);
    return st;
}

void qm_reader_end(struct qm_reader_process *p)
{
    if (!p)
        return;
    stop(p, 0);
    if (in_this_process && p->service->close)
        p->service->close(p->object);
    close_mark(&p->mark);
    munmap(p->shared, PAGE + REQUEST_ROOM + p->room);
    free(p->path);
    free(p);
}
