/* host_main.c - The warden, which forks hosts and tells how they ended, and the host itself. */
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/process_tree.h"
#include "core/recipe/recipe.h"
#include "core/user_kernel/backend_file.h"
#include "core/user_kernel/host_page.h"
#include "core/user_kernel/kernel_object.h"
#include "core/user_kernel/large_index.h"
#include "core/user_kernel/user_cuda.h"

enum { STACK = 65536, REAP_MS = 100, ENDING = 50000 };

/* ---- the host -------------------------------------------------------------------------------- */

/* Addresses of mappings only grow within these, so that an address of an earlier call
 * stays invalid. */
static const uint64_t lowest = UINT64_C(0x100000000000), beyond = UINT64_C(0x400000000000);

static struct {
    struct qm_host_page *page;
    struct qm_kernel_object *kernel;
    uint64_t next;
    struct {
        unsigned char *base;
        uint64_t total;
        struct qm_arena_view view;
    } map[QM_HOST_PLANS];
} host;

/* Keeps the address; the judge knows which array lies there. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    if (sig == SIGSEGV || sig == SIGBUS) {
        host.page->fault = (uint64_t)(uintptr_t)info->si_addr;
        host.page->has_fault = (int)qm_host_fault_of(info, context);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

static void catch_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static char room[STACK];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&stack, NULL); /* the kernel may have exhausted its own stack */
    sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &act, NULL);
}

static void say(qm_status st)
{
    host.page->status = (int)st;
    snprintf(host.page->text, sizeof host.page->text, "%s", st == QM_OK ? "" : qm_message());
}

static void load(void)
{
    qm_status st = qm_kernel_object_open(host.page->object, &host.kernel);
    const char *as = st == QM_OK ? qm_kernel_object_as(host.kernel) : NULL;
    snprintf(host.page->as, sizeof host.page->as, "%s", as ? as : "");
    void (*tell)(char *text, size_t size) = NULL;
    void *symbol = st == QM_OK ? qm_kernel_object_symbol(host.kernel, "qm_emu_tell") : NULL;
    memcpy(&tell, &symbol, sizeof tell);
    if (tell) /* the kernel may end this process after a finding */
        tell(host.page->finding, sizeof host.page->finding);
    say(st);
}

static void map(int slot, int fd)
{
    if (host.next < lowest || host.next > beyond)
        host.next = lowest;
    host.map[slot].view = host.page->view;
    host.map[slot].base =
        qm_arena_map(fd, &host.page->view, (void *)(uintptr_t)host.next, &host.map[slot].total);
    close(fd);
    host.page->base = (uint64_t)(uintptr_t)host.map[slot].base;
    host.page->total = host.map[slot].total;
    if (host.page->base >= lowest && host.page->base < beyond)
        host.next = host.page->base + host.page->total;
}

static void unmap(int slot)
{
    if (host.map[slot].base)
        munmap(host.map[slot].base, host.map[slot].total);
    host.map[slot].base = NULL;
}

static void step(int slot)
{
    unsigned char *base = host.map[slot].base;
    const struct qm_arena_view *view = &host.map[slot].view;
    enum qm_float_mode mode;
    int keep_open = host.page->keep_open;
    const struct qm_kernel_args *a = (const void *)(uintptr_t)host.page->args;
    qm_arena_access(base, view, host.map[slot].total, 1);
    host.page->is_running = 1;
    qm_status st = qm_kernel_object_step(host.kernel, a, &mode);
    host.page->is_running = 0;
    if (!keep_open)
        qm_arena_access(base, view, host.map[slot].total, 0);
    host.page->mode = (int)mode;
    say(st);
}

static void large_index(void)
{
    struct qm_recipe r;
    struct qm_kernel_file *k;
    int64_t judged = 0;
    qm_status st = qm_recipe_parse(host.page->recipe, &r);
    if (st == QM_OK)
        st = qm_kernel_file_open(host.page->object, &k); /* loaded already: counted once more */
    if (st == QM_OK) {
        st = qm_large_index(k, &r, host.page->large_n, &judged);
        host.page->judged = judged;
        qm_kernel_file_close(k);
    }
    say(st);
}

static void close_others(int from)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, from, ~0u, 0) == 0)
        return;
#endif
    for (int fd = from; fd < 1024; fd++)
        close(fd);
}

/* Runs requests until the judge closes the socket. */
static void be_host(const int fds[3], int judge, int warden)
{
    const struct rlimit none = {0, 0};
    char byte = QM_HOST_ready;
    int fd, null = open("/dev/null", O_RDONLY);
    void *page = mmap(NULL, sizeof *host.page, PROT_READ | PROT_WRITE, MAP_SHARED, fds[2], 0);
    int socket = fcntl(fds[0], F_DUPFD, 16), out = fcntl(fds[1], F_DUPFD, 16);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    if (page == MAP_FAILED || socket < 0 || out < 0 || getppid() != warden)
        _exit(QM_HOST_LOST);
    host.page = page;
    host.page->is_launched = 0;
    qm_user_cuda_tell(&host.page->is_launched);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    dup2(socket, QM_HOST_SOCKET);
    close_others(QM_HOST_SOCKET + 1);
    fcntl(QM_HOST_SOCKET, F_SETFD, FD_CLOEXEC); /* not for programs that the kernel starts */
    catch_signals();
    qm_host_confine(judge, warden);
    prctl(PR_SET_DUMPABLE, 1); /* the judge reads its working directory */
    do {
        if (qm_host_send(QM_HOST_SOCKET, &byte, 1, NULL, 0) != 1)
            _exit(QM_HOST_LOST);
        if (qm_host_receive(QM_HOST_SOCKET, &byte, 1, &fd, 1) != 1)
            _exit(QM_HOST_LOST);
        int slot = host.page->slot;
        slot = slot >= 0 && slot < QM_HOST_PLANS ? slot : 0;
        *host.page->finding = '\0';
        switch (byte) {
        case QM_HOST_load: load(); break;
        case QM_HOST_map: map(slot, fd); break;
        case QM_HOST_unmap: unmap(slot); break;
        case QM_HOST_step: step(slot); break;
        case QM_HOST_large: large_index(); break;
        default: _exit(QM_HOST_LOST);
        }
    } while (1);
}

/* ---- the warden ------------------------------------------------------------------------------ */

static struct {
    pid_t host;
    int state, has_ended;
} warden;

/* Takes the end states of all children that have ended. */
static void reap(void)
{
    int state;
    for (pid_t pid; (pid = waitpid(-1, &state, WNOHANG)) > 0;)
        if (pid == warden.host) {
            warden.state = state;
            warden.has_ended = 1;
        }
}

/* Ends the host, where it does not end by itself within `patience` milliseconds, and everything
 * that it started. */
static struct qm_warden_answer end_all(int patience)
{
    struct qm_warden_answer a = {.state = -1};
    reap();
    for (int k = 0; warden.host > 0 && !warden.has_ended && k < patience; k++) {
        usleep(1000);
        reap();
    }
    a.had_ended = warden.has_ended;
    if (warden.host > 0 && !warden.has_ended)
        kill(warden.host, SIGKILL);
    for (int k = 0; warden.host > 0 && !warden.has_ended && k < ENDING; k++) {
        usleep(200);
        reap();
    }
    qm_process_end_descendants(getpid());
    a.state = warden.host > 0 ? warden.state : -1;
    warden.host = 0;
    warden.has_ended = 0;
    reap();
    return a;
}

static struct qm_warden_answer start(const int fds[3], int judge)
{
    struct qm_warden_answer a = {.state = -1};
    int own = getpid();
    end_all(0);
    warden.host = fork();
    if (warden.host == 0)
        be_host(fds, judge, own);
    a.pid = warden.host;
    return a;
}

/* A kernel's own threads are four unless OMP_NUM_THREADS says otherwise, so that the pieces of a
 * loop meet at three places on a machine of any size, and none spins where there are fewer
 * processors.  The variable is for an OpenMP that only the kernel brings. */
static void set_threads(void)
{
    if (getenv("OMP_NUM_THREADS"))
        return;
    setenv("OMP_NUM_THREADS", "4", 1);
    omp_set_num_threads(4);
}

int qm_host_main(void)
{
    set_threads();
    int judge = getppid(), fds[3];
    struct qm_warden_request request;
    struct pollfd asked = {QM_HOST_SOCKET, POLLIN, 0};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_DUMPABLE, 0);
    close_others(QM_HOST_SOCKET + 1);
    for (;;) {
        if (poll(&asked, 1, REAP_MS) <= 0) {
            reap();
            continue;
        }
        if (qm_host_receive(QM_HOST_SOCKET, &request, sizeof request, fds, 3) != sizeof request)
            break;
        struct qm_warden_answer a = request.ends ? end_all(request.patience) : start(fds, judge);
        for (int i = 0; i < 3; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        if (qm_host_send(QM_HOST_SOCKET, &a, sizeof a, NULL, 0) != sizeof a)
            break;
    }
    end_all(0);
    _exit(0);
}
