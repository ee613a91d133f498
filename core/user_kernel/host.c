/* host.c - The judge's side of a kernel's process: starts it, asks it, watches it, ends it. */
#include "core/user_kernel/host.h"
#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/process_tree.h"
#include "core/user_kernel/host_page.h"
#include "core/user_kernel/kernel_object.h"
#include "core/user_kernel/large_index.h"
#include "core/user_kernel/leak.h"

enum { TICK_MS = 20, PATIENCE_MS = 1000, LINGER_MS = 100, PRINTED = 512 };
enum { CALLS = 1024 }; /* double the time limit of a case: they may wait for a processor */

struct qm_host {
    char object[4096];
    struct qm_host_limits limits;
    pid_t warden, pid;                      /* 0: there is none */
    int warden_fd, fd, out, watch, page_fd; /* -1: closed */
    struct qm_host_page *page;
    char before[QM_PROCESS_STATE]; /* the host's state before it loaded the kernel */
    struct {
        const struct qm_arena *arena; /* NULL: free */
        uint64_t base, total;
        int is_mapped; /* 0: in a process that has ended */
    } plan[QM_HOST_PLANS];
    uint64_t first, last;  /* addresses of all mappings of this process */
    double spent, seconds; /* waited for in this case; of the last request */
    enum qm_end end;
    struct qm_leak leak;
    int signal, is_stale;  /* is_stale: the next case gets a fresh process */
    int n_notes, answered; /* answered: requests of this case */
    int is_on_gpu;         /* the kernel runs on the GPU: the process holds the driver alone */
    int has_driver_failed;
    char note[QM_HOST_NOTES][160], as[1024], printed[PRINTED + 1], why[QM_HOST_TEXT];
};

static const char *const end_names[] = {
#define X(name, text) #name,
    QM_END_LIST(X)
#undef X
};

const char *qm_end_name(enum qm_end e) { return end_names[e]; }

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- the warden ------------------------------------------------------------------------------ */

static qm_status warden_up(struct qm_host *h)
{
    int both[2], failed = 0;
    if (h->warden > 0)
        return QM_OK;
    prctl(PR_SET_DUMPABLE, 0); /* nobody traces the judge, or writes to its memory */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) != 0)
        return qm_fail(QM_INTERNAL, "no socket: %s", strerror(errno));
    if (both[1] == QM_HOST_SOCKET) /* dup2 onto itself would keep close-on-exec */
        both[1] = fcntl(both[1], F_DUPFD_CLOEXEC, QM_HOST_SOCKET + 1), close(QM_HOST_SOCKET);
    failed = qm_host_spawn(h->object, both[1], &h->warden);
    close(both[1]);
    h->warden_fd = both[0];
    if (!failed)
        return QM_OK;
    h->warden = 0;
    close_fd(&h->warden_fd);
    return qm_fail(QM_INTERNAL, "cannot start a process: %s", strerror(failed));
}

static void warden_down(struct qm_host *h)
{
    close_fd(&h->warden_fd); /* it ends what is left, and itself */
    while (h->warden > 0 && waitpid(h->warden, NULL, 0) < 0 && errno == EINTR)
        ;
    h->warden = 0;
}

/* Asks the warden; 0: it is gone. */
static int ask_warden(struct qm_host *h, struct qm_warden_request request, const int *fds, int n,
                      struct qm_warden_answer *a)
{
    *a = (struct qm_warden_answer){.state = -1};
    return qm_host_send(h->warden_fd, &request, sizeof request, fds, n) == sizeof request &&
           qm_host_receive(h->warden_fd, a, sizeof *a, NULL, 0) == sizeof *a;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Ends the host; returns how the system says that it ended. */
static struct qm_warden_answer end_host(struct qm_host *h, int patience)
{
    struct qm_warden_answer a = {.state = -1};
    if (h->pid > 0 &&
        !ask_warden(h, (struct qm_warden_request){.ends = 1, .patience = patience}, NULL, 0, &a))
        warden_down(h);
    h->pid = 0;
    h->is_stale = 0;
    close_fd(&h->fd);
    close_fd(&h->watch);
    for (int i = 0; i < QM_HOST_PLANS; i++)
        h->plan[i].is_mapped = 0;
    return a;
}

void qm_host_down(struct qm_host *h)
{
    end_host(h, 0);
    close_fd(&h->out);
}

qm_status qm_host_open(const char *object, const struct qm_host_limits *limits,
                       struct qm_host **out)
{
    struct qm_host *h = calloc(1, sizeof *h);
    if (!h)
        return qm_fail(QM_NO_MEMORY, "a host");
    h->warden_fd = h->fd = h->out = h->watch = -1;
    h->limits = *limits;
    snprintf(h->object, sizeof h->object, "%s", object);
    const char *dot = strrchr(h->object, '.');
    h->is_on_gpu = dot && strcmp(dot, ".cubin") == 0;
    h->page_fd = memfd_create("qualm-requests", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *page = MAP_FAILED;
    if (h->page_fd >= 0 && ftruncate(h->page_fd, sizeof *h->page) == 0)
        page = mmap(NULL, sizeof *h->page, PROT_READ | PROT_WRITE, MAP_SHARED, h->page_fd, 0);
    h->page = page == MAP_FAILED ? NULL : page;
    if (h->page) {
        fcntl(h->page_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        *out = h;
        return QM_OK;
    }
    qm_host_close(h);
    return qm_fail(QM_NO_MEMORY, "shared memory: %s", strerror(errno));
}

void qm_host_close(struct qm_host *h)
{
    if (!h)
        return;
    qm_host_down(h);
    warden_down(h);
    if (h->page)
        munmap(h->page, sizeof *h->page);
    close_fd(&h->page_fd);
    free(h);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Looks at what the host uses; QM_END_answered: all is within its limits. */
static enum qm_end look(struct qm_host *h, char *why, size_t size)
{
    int n;
    double used = qm_process_use(h->pid, h->limits.mebibytes, &n);
    if (used > h->limits.mebibytes) {
        snprintf(why, size, "%.0f MiB of memory%s, the limit is %g", used,
                 n > 0 ? " with its child processes" : "", h->limits.mebibytes);
        return QM_END_memory;
    }
    if (n > h->limits.processes) {
        snprintf(why, size, "%d child processes at one time, the limit is %d", n,
                 h->limits.processes);
        return QM_END_processes;
    }
    if (qm_process_letter(h->pid) == 'T') {
        snprintf(why, size, "it stopped itself (SIGSTOP)");
        return QM_END_hung;
    }
    return QM_END_answered;
}

/* Reads what the host sent; QM_END_stopped: nothing yet. */
static enum qm_end read_answer(struct qm_host *h, char byte, char *why, size_t size)
{
    char got[64];
    ssize_t n = recv(h->fd, got, sizeof got, MSG_DONTWAIT);
    if (n == 1 && *got == byte)
        return QM_END_answered;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return QM_END_left; /* or crashed, by its state */
    if (n < 0)
        return QM_END_stopped;
    snprintf(why, size, "what came from its process is no answer: %d bytes", (int)n);
    return QM_END_garbage;
}

/* Seconds since `from`, a tenth at least: without waits of the host's threads for a processor. */
static double time_of(const struct qm_host *h, double from, double delay)
{
    double all = qm_seconds() - from, waited = fmax(qm_process_delay(h->pid) - delay, 0.0);
    return fmax(all - waited, 0.1 * all);
}

/* Waits for the host's byte, within `seconds`. */
static enum qm_end await(struct qm_host *h, char byte, double seconds, char *why, size_t size)
{
    double from = qm_seconds(), next_look = from + 1e-3 * TICK_MS;
    double delay = qm_process_delay(h->pid);
    for (;;) {
        struct pollfd fds[] = {{h->fd, POLLIN, 0}, {h->out, POLLIN, 0}, {h->watch, POLLIN, 0}};
        poll(fds, 3, TICK_MS);
        qm_host_drain(h->out, h->printed, PRINTED);
        int has_ended = fds[2].revents != 0;
        enum qm_end how = read_answer(h, byte, why, size);
        if (how != QM_END_stopped)
            return how;
        if (has_ended)
            return QM_END_left;
        if (h->limits.stop && *h->limits.stop)
            return QM_END_stopped;
        if (qm_seconds() - from > seconds && time_of(h, from, delay) > seconds) {
            snprintf(why, size, "no answer within %g s", h->limits.seconds);
            return QM_END_hung;
        }
        if (qm_seconds() < next_look)
            continue;
        next_look = qm_seconds() + 1e-3 * TICK_MS;
        if (h->watch < 0 && qm_process_letter(h->pid) == 'Z')
            return QM_END_left;
        how = look(h, why, size);
        if (how != QM_END_answered)
            return how;
    }
}

/* ---- how it ended ---------------------------------------------------------------------------- */

/* Describes the address of the fault that the host tells. */
static void where_text(const struct qm_host *h, char *text, size_t size)
{
    uint64_t at = h->page->fault;
    *text = '\0';
    if (h->page->has_fault == QM_FAULT_MISALIGNED)
        snprintf(text, size, "by a vector instruction at an address that is not aligned for it");
    else if (h->page->has_fault == QM_FAULT_NO_ADDRESS)
        snprintf(text, size, "at a number that is no address");
    else if (at < 65536)
        snprintf(text, size, "at a null pointer");
    for (int i = 0; i < QM_HOST_PLANS && !*text; i++)
        if (h->plan[i].arena && at >= h->plan[i].base && at < h->plan[i].base + h->plan[i].total)
            qm_arena_describe(h->plan[i].arena, h->plan[i].base, at, text, size);
    if (!*text && at >= h->first && at < h->last)
        snprintf(text, size, "in the arrays of an earlier call");
    if (*text && at >= 65536 && !h->page->is_running)
        snprintf(text + strlen(text), size - strlen(text), ", after the step's return");
}

/* What h->why tells was the driver's doing, where the kernel runs on the GPU. */
static qm_status driver_failed(struct qm_host *h)
{
    h->has_driver_failed = 1;
    return qm_fail(QM_INTERNAL, "the driver failed, and nothing is known of the kernel: %s",
                   h->why);
}

/* Ends the host after a request that was not answered, and tells how it ended.  QM_CHECK_FAILED,
 * QM_INTERRUPTED; QM_INTERNAL: the kernel runs on the GPU, and only the driver can have ended its
 * process, or not have answered. */
static qm_status ended(struct qm_host *h, enum qm_end how, char *why, size_t size)
{
    char where[200] = "", name[32], state[QM_PROCESS_STATE], what[64] = "";
    int was_launched = h->page->is_launched == 1;
    if (how != QM_END_left && !h->is_on_gpu) {
        qm_process_state(h->pid, state);
        qm_process_difference(h->before, state, what, sizeof what);
    }
    if (h->page->has_fault)
        where_text(h, where, sizeof where);
    struct qm_warden_answer a = end_host(h, how == QM_END_left ? PATIENCE_MS : 0);
    qm_host_drain(h->out, h->printed, PRINTED);
    close_fd(&h->out);
    h->signal = 0;
    if (how == QM_END_left && a.state < 0) {
        snprintf(why, size, "it ended the process that watches it");
        how = QM_END_garbage;
    } else if (how == QM_END_left &&
               (!a.had_ended || (WIFEXITED(a.state) && WEXITSTATUS(a.state) == QM_HOST_LOST))) {
        snprintf(why, size, "it closed the connection%s", a.had_ended ? "" : " and went on");
        how = QM_END_garbage;
    } else if (how == QM_END_left && WIFSIGNALED(a.state)) {
        h->signal = WTERMSIG(a.state);
        qm_process_signal(h->signal, name, sizeof name);
        snprintf(why, size, "%s%s%s", name, *where ? " " : "", where);
        how = QM_END_crashed;
    } else if (how == QM_END_left) {
        snprintf(why, size, "it called exit(%d)", WEXITSTATUS(a.state));
    }
    if (*what)
        snprintf(why + strlen(why), size - strlen(why), "; it had changed its %s", what);
    char finding[QM_HOST_TEXT];
    qm_host_copy_text(finding, h->page->finding, sizeof finding);
    if (*finding && how != QM_END_stopped) { /* what it does after it is of no interest */
        snprintf(why, size, "%s", finding);
        how = QM_END_answered;
        h->signal = 0;
    }
    if (how == QM_END_garbage) /* its words might be taken for the judge's */
        snprintf(why + strlen(why), size - strlen(why), "; it had printed %zu bytes",
                 strlen(h->printed));
    else
        qm_host_add_printed(why, size, h->printed);
    h->end = how;
    snprintf(h->why, sizeof h->why, "%s", why);
    if (h->is_on_gpu && how != QM_END_stopped && !(how == QM_END_hung && was_launched))
        return driver_failed(h);
    return how == QM_END_stopped ? qm_fail(QM_INTERRUPTED, "interrupted")
                                 : qm_fail(QM_CHECK_FAILED, "%s", why);
}

/* Sends a request, with a descriptor where fd >= 0, and waits for its answer. */
static qm_status ask(struct qm_host *h, enum qm_host_request what, int fd, double seconds)
{
    char byte = (char)what, why[QM_HOST_TEXT + 200] = "", junk[64];
    enum qm_end how = QM_END_answered;
    double from = qm_seconds(), delay = qm_process_delay(h->pid);
    if (what != QM_HOST_ready) {
        *h->printed = '\0';
        ssize_t n = recv(h->fd, junk, sizeof junk - 1, MSG_DONTWAIT);
        if (n > 0) {
            snprintf(why, sizeof why, "it wrote %d bytes to the judge's descriptor", (int)n);
            how = QM_END_garbage;
        } else if (n == 0 || qm_host_send(h->fd, &byte, 1, &fd, fd >= 0) != 1) {
            how = QM_END_left;
        }
    }
    if (how == QM_END_answered)
        how = await(h, byte, seconds, why, sizeof why);
    h->seconds = qm_seconds() - from;
    h->spent += time_of(h, from, delay);
    h->answered += how == QM_END_answered;
    return how == QM_END_answered ? QM_OK : ended(h, how, why, sizeof why);
}

/* ---- requests -------------------------------------------------------------------------------- */

static qm_status start(struct qm_host *h)
{
    int both[2], out[2];
    struct qm_warden_answer a;
    QM_TRY(warden_up(h));
    close_fd(&h->out);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0)
        return qm_fail(QM_INTERNAL, "no socket: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(both[0]);
        close(both[1]);
        return qm_fail(QM_INTERNAL, "no pipe: %s", strerror(errno));
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK); /* writes of the kernel block */
    const int fds[] = {both[1], out[1], h->page_fd};
    int ok = ask_warden(h, (struct qm_warden_request){.ends = 0}, fds, 3, &a);
    close(both[1]);
    close(out[1]);
    h->fd = both[0];
    h->out = out[0];
    h->pid = ok ? a.pid : 0;
    h->first = h->last = 0;
    h->page->has_fault = h->page->is_running = 0;
    *h->page->finding = '\0';
    if (!ok) { /* the last kernel ended it */
        warden_down(h);
        close_fd(&h->fd);
        return qm_fail(QM_INTERNAL, "the process that starts kernels has ended");
    }
    if (h->pid <= 0) {
        h->pid = 0;
        close_fd(&h->fd);
        return qm_fail(QM_INTERNAL, "no process for the kernel");
    }
    h->watch = qm_process_watch(h->pid);
    return ask(h, QM_HOST_ready, -1, h->limits.seconds);
}

/* Fails, and ends the process, where it has started others that are still there.  On the GPU it is
 * the driver that has: a copy of the process computes in the same memory. */
static qm_status expect_alone(struct qm_host *h)
{
    pid_t *all = malloc(sizeof *all * QM_TREE_MOST);
    if (!all)
        return qm_fail(QM_NO_MEMORY, "a list of processes");
    int n = qm_process_descendants(h->warden, all) - 1;
    free(all);
    if (n <= 0)
        return QM_OK;
    end_host(h, 0);
    h->end = QM_END_processes;
    snprintf(h->why, sizeof h->why, "it left %d process%s behind, which %s ended", n,
             n > 1 ? "es" : "", n > 1 ? "were" : "was");
    if (h->is_on_gpu)
        return driver_failed(h);
    return qm_fail(QM_CHECK_FAILED, "%s", h->why);
}

/* The host's status and text.  A status that no kernel has reason to give is a failed check, but on
 * the GPU a failure of the driver, QM_INTERNAL; after a kernel's failure there the process is of no
 * use, and ended. */
static qm_status said(struct qm_host *h, int is_loading)
{
    char text[QM_HOST_TEXT];
    qm_status st = (qm_status)h->page->status;
    qm_host_copy_text(text, h->page->text, sizeof text);
    if (h->is_on_gpu && !is_loading) /* before its numbers are judged */
        QM_TRY(expect_alone(h));
    if (st == QM_OK)
        return QM_OK;
    int is_known = st == QM_SKIPPED || (is_loading && (st == QM_BAD_ARG || st == QM_BAD_FILE));
    if (h->is_on_gpu && !is_known && st != QM_CHECK_FAILED) {
        snprintf(h->why, sizeof h->why, "%s", text);
        return driver_failed(h);
    }
    if (h->is_on_gpu && !is_known)
        end_host(h, 0);
    return qm_fail(is_known ? st : QM_CHECK_FAILED, "%s", text);
}

qm_status qm_host_up(struct qm_host *h)
{
    if (h->pid > 0)
        return QM_OK;
    qm_status st = start(h);
    if (st == QM_INTERNAL) /* the warden may have been ended: once more */
        st = start(h);
    QM_TRY(st);
    qm_process_state(h->pid, h->before);
    snprintf(h->page->object, sizeof h->page->object, "%s", h->object);
    QM_TRY(ask(h, QM_HOST_load, -1, h->limits.seconds));
    st = said(h, 1);
    qm_host_copy_text(h->as, h->page->as, sizeof h->as);
    if (h->is_on_gpu && h->pid > 0) /* the driver has changed what it likes */
        qm_process_state(h->pid, h->before);
    if (st != QM_OK)
        qm_host_down(h);
    return st;
}

const char *qm_host_as(struct qm_host *h) { return *h->as ? h->as : NULL; }

void qm_host_begin(struct qm_host *h)
{
    if (h->is_stale)
        qm_host_down(h);
    h->spent = 0.0;
    h->answered = h->n_notes = h->signal = 0;
    h->end = QM_END_answered;
    h->has_driver_failed = 0;
    *h->why = '\0';
}

void qm_host_allow(struct qm_host *h, double seconds) { h->limits.seconds = seconds; }

void qm_host_add_note(struct qm_host *h, const char *format, const char *what)
{
    char text[160];
    h->is_stale = 1;
    if (h->is_on_gpu) /* the driver changes what it likes */
        return;
    snprintf(text, sizeof text, format, what);
    for (int i = 0; i < h->n_notes; i++)
        if (strcmp(h->note[i], text) == 0)
            return;
    if (h->n_notes < QM_HOST_NOTES)
        memcpy(h->note[h->n_notes++], text, sizeof text);
}

static void compare_state(struct qm_host *h)
{
    char state[QM_PROCESS_STATE], what[64];
    qm_process_state(h->pid, state);
    qm_process_difference(h->before, state, what, sizeof what);
    if (*what)
        qm_host_add_note(h, "left the %s of its process changed", what);
}

qm_status qm_host_settle(struct qm_host *h)
{
    if (h->pid <= 0)
        return QM_OK;
    compare_state(h);
    return expect_alone(h);
}

qm_status qm_host_linger(struct qm_host *h)
{
    char why[QM_HOST_TEXT] = "";
    if (h->pid <= 0 || qm_process_threads(h->pid) < 2)
        return QM_OK;
    struct pollfd fds[] = {{h->fd, POLLIN, 0}, {h->watch, POLLIN, 0}};
    if (poll(fds, 2, LINGER_MS) <= 0)
        return QM_OK;
    return ended(h, QM_END_left, why, sizeof why);
}

enum qm_end qm_host_end(const struct qm_host *h) { return h->end; }
const char *qm_host_why(const struct qm_host *h) { return h->why; }
int qm_host_driver_failed(const struct qm_host *h) { return h->has_driver_failed; }
int qm_host_signal(const struct qm_host *h) { return h->signal; }
double qm_host_seconds(const struct qm_host *h) { return h->seconds; }

const char *qm_host_note(const struct qm_host *h, int i)
{
    return i < h->n_notes ? h->note[i] : NULL;
}

static double left(const struct qm_host *h)
{
    return fmax(h->limits.seconds * (1.0 + (double)h->answered / CALLS) - h->spent, 0.0);
}

int qm_host_is_mapped(const struct qm_host *h, int slot, const struct qm_arena *a)
{
    return h->pid > 0 && slot >= 0 && h->plan[slot].arena == a && h->plan[slot].is_mapped;
}

qm_status qm_host_map(struct qm_host *h, const struct qm_arena *a, int *slot, uint64_t *base)
{
    int i = 0;
    while (i < QM_HOST_PLANS && h->plan[i].arena && h->plan[i].arena != a)
        i++;
    if (i == QM_HOST_PLANS)
        return qm_fail(QM_INTERNAL, "more than %d plans of a kernel at once", QM_HOST_PLANS);
    QM_TRY(qm_host_up(h));
    h->page->view = a->view;
    h->page->slot = i;
    QM_TRY(ask(h, QM_HOST_map, a->fd, h->limits.seconds));
    h->plan[i].arena = a;
    h->plan[i].base = *base = h->page->base;
    h->plan[i].total = h->page->total;
    *slot = i;
    if (*base == 0) {
        compare_state(h);
        h->plan[i].arena = NULL;
        return qm_fail(QM_CHECK_FAILED, "its process has no address space for the arrays");
    }
    h->plan[i].is_mapped = 1;
    uint64_t end = *base + h->plan[i].total;
    h->first = h->first && h->first < *base ? h->first : *base;
    h->last = h->last > end ? h->last : end;
    return QM_OK;
}

void qm_host_unmap(struct qm_host *h, int slot)
{
    if (h->pid > 0 && h->plan[slot].is_mapped) {
        h->page->slot = slot;
        if (ask(h, QM_HOST_unmap, -1, h->limits.seconds) != QM_OK)
            h->is_stale = 0; /* it has ended, and qm_host_end tells how */
    }
    h->plan[slot].arena = NULL;
    h->plan[slot].is_mapped = 0;
}

qm_status qm_host_step(struct qm_host *h, int slot, int keep_open)
{
    h->page->slot = slot;
    h->page->keep_open = keep_open;
    h->page->args =
        h->plan[slot].base + h->plan[slot].arena->array[0].at + h->plan[slot].arena->view.guard;
    QM_TRY(ask(h, QM_HOST_step, -1, left(h)));
    if (h->page->mode == QM_FLOAT_ROUNDING)
        qm_host_add_note(h, "left the rounding mode changed%s", "");
    else if (h->page->mode != QM_FLOAT_PLAIN)
        qm_host_add_note(
            h, "left the treatment of denormals changed%s",
            ": they are flushed to zero, as crtfastmath.o does, which -ffast-math links");
    if (qm_leak_grows(&h->leak, h->pid, slot))
        qm_host_add_note(h, "keeps more and more memory%s", ": " QM_LEAK_TEXT);
    return said(h, 0);
}

qm_status qm_host_large_index(struct qm_host *h, const char *recipe, int64_t n, double seconds,
                              double mebibytes, int64_t *judged)
{
    struct qm_host_limits before = h->limits;
    *judged = 0;
    QM_TRY(qm_host_up(h));
    h->limits.seconds = seconds, h->limits.mebibytes = mebibytes;
    snprintf(h->page->recipe, sizeof h->page->recipe, "%s", recipe);
    h->page->large_n = n;
    qm_status st = ask(h, QM_HOST_large, -1, seconds);
    h->limits = before;
    *judged = st == QM_OK && h->page->judged >= QM_FAR_REFUSED ? h->page->judged : 0;
    return st == QM_OK ? said(h, 0) : st;
}
