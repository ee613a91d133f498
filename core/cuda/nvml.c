/* nvml.c - Loads libnvidia-ml.so.1 in a process of its own, and asks it for a GPU's state. */
#include "core/cuda/nvml.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/cuda/cuda_calls.h"
#include "core/cuda/cuda_load.h"

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0, PATIENCE_MS = 1000, WHY = 700 };

/* ---- the library ----------------------------------------------------------------------------- */

static struct {
    int (*init)(void), (*by_pci)(const char *, void **), (*clock)(void *, int, unsigned *),
        (*most)(void *, int, unsigned *), (*power)(void *, unsigned *),
        (*temperature)(void *, int, unsigned *), (*driver)(char *, unsigned);
    char path[512];
} ml;

/* A call that is noted by its name. */
#define ASK(name, call) (qm_cuda_call(name), qm_cuda_call_over(call))

static qm_status load(void)
{
    qm_cuda_call("loading NVML");
    void *h = qm_library_open(QM_LIBRARY_nvml, ml.path, sizeof ml.path);
    (void)qm_cuda_call_over(0);
    if (!h)
        return qm_fail(QM_SKIPPED, "no NVML: %s", ml.path);
    QM_TRY(qm_library_symbol(h, "nvmlInit_v2", &ml.init));
    QM_TRY(qm_library_symbol(h, "nvmlDeviceGetHandleByPciBusId_v2", &ml.by_pci));
    QM_TRY(qm_library_symbol(h, "nvmlDeviceGetClockInfo", &ml.clock));
    QM_TRY(qm_library_symbol(h, "nvmlDeviceGetMaxClockInfo", &ml.most));
    QM_TRY(qm_library_symbol(h, "nvmlDeviceGetPowerUsage", &ml.power));
    QM_TRY(qm_library_symbol(h, "nvmlDeviceGetTemperature", &ml.temperature));
    if (qm_library_symbol(h, "nvmlSystemGetDriverVersion", &ml.driver) != QM_OK)
        ml.driver = NULL;
    int error = ASK("nvmlInit_v2", ml.init());
    return error ? qm_fail(QM_SKIPPED, "%s: nvmlInit_v2 gives error %d", ml.path, error) : QM_OK;
}

static void ask_driver(char text[QM_NVML_DRIVER])
{
    if (!ml.driver || ASK("nvmlSystemGetDriverVersion", ml.driver(text, QM_NVML_DRIVER - 1)) != 0)
        *text = '\0';
    text[QM_NVML_DRIVER - 1] = '\0';
}

/* Keeps a figure where its call gave no error, else the call's name: not every card has all. */
static void keep(const char *call, int error, unsigned value, unsigned *to, struct qm_gpu_now *out)
{
    size_t n = strlen(out->missing);
    *to = error ? 0 : value;
    if (error)
        snprintf(out->missing + n, sizeof out->missing - n, "%s%s gives error %d", n ? ", " : "",
                 call, error);
}

static qm_status ask(const char *pci, struct qm_gpu_now *out)
{
    void *device = NULL;
    unsigned x = 0;
    ask_driver(out->driver);
    int error = ASK("nvmlDeviceGetHandleByPciBusId_v2", ml.by_pci(pci, &device));
    if (error)
        return qm_fail(QM_SKIPPED, "NVML does not know device %s (error %d)", pci, error);
#define KEEP(name, call, value, to) \
    error = ASK(name, call);        \
    keep(name, error, value, to, out)
    KEEP("nvmlDeviceGetClockInfo", ml.clock(device, CLOCK_SM, &x), x, &out->sm_mhz);
    KEEP("nvmlDeviceGetClockInfo", ml.clock(device, CLOCK_MEMORY, &x), x, &out->memory_mhz);
    KEEP("nvmlDeviceGetMaxClockInfo", ml.most(device, CLOCK_SM, &x), x, &out->most_sm_mhz);
    KEEP("nvmlDeviceGetMaxClockInfo", ml.most(device, CLOCK_MEMORY, &x), x, &out->most_memory_mhz);
    KEEP("nvmlDeviceGetPowerUsage", ml.power(device, &x), x / 1000, &out->watts);
    KEEP("nvmlDeviceGetTemperature", ml.temperature(device, TEMPERATURE_GPU, &x), x, &out->celsius);
#undef KEEP
    return QM_OK;
}

/* Whether a GPU can have this state. */
static qm_status believe(const struct qm_gpu_now *x)
{
    const unsigned most = 100000; /* far above any GPU's MHz and watts */
    if (x->sm_mhz > most || x->memory_mhz > most || x->most_sm_mhz > most ||
        x->most_memory_mhz > most || x->watts > most || x->celsius > 1000)
        return qm_fail(QM_SKIPPED,
                       "NVML says what no GPU has: %u and %u MHz (at most %u and %u), %u W, %u "
                       "degrees",
                       x->sm_mhz, x->memory_mhz, x->most_sm_mhz, x->most_memory_mhz, x->watts,
                       x->celsius);
    if (memchr(x->driver, '\0', sizeof x->driver) == NULL ||
        x->driver[strspn(x->driver, "0123456789.")])
        return qm_fail(QM_SKIPPED, "NVML gives a version of the driver that is none: expected "
                                   "digits and points");
    return QM_OK;
}

/* ---- the process ----------------------------------------------------------------------------- */

struct question {
    uint64_t token;
    char pci[300];
};

struct answer {
    uint64_t token;
    int is_there;
    char why[WHY]; /* where it is not */
    struct qm_gpu_now now;
};

static struct {
    pid_t pid; /* 0: there is none */
    int fd;
    double limit;
    uint64_t token;
    struct qm_cuda_calls *calls;
    char why[WHY]; /* why nothing is asked any more, or "" */
} other;

static _Noreturn void serve(int fd)
{
    static struct answer a;
    static struct question q;
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO); /* a library may write there */
    dup2(nowhere, STDERR_FILENO);
    qm_status loaded = load();
    snprintf(a.why, sizeof a.why, "%s", loaded == QM_OK ? "" : qm_message());
    while (recv(fd, &q, sizeof q, 0) == (ssize_t)sizeof q) {
        memset(&a.now, 0, sizeof a.now);
        q.pci[sizeof q.pci - 1] = '\0';
        a.token = q.token;
        a.is_there = loaded == QM_OK && ask(q.pci, &a.now) == QM_OK;
        if (loaded == QM_OK && !a.is_there)
            snprintf(a.why, sizeof a.why, "%s", qm_message());
        if (send(fd, &a, sizeof a, MSG_NOSIGNAL) != (ssize_t)sizeof a)
            break;
    }
    _exit(0);
}

void qm_nvml_start(double limit)
{
    int both[2];
    other.limit = limit;
    other.why[0] = '\0';
    other.calls = qm_cuda_calls_open();
    if (!other.calls || getrandom(&other.token, sizeof other.token, 0) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) != 0) {
        snprintf(other.why, sizeof other.why, "no process for NVML: %s", strerror(errno));
        return;
    }
    fflush(NULL);
    pid_t parent = getpid();
    other.pid = fork();
    if (other.pid == 0) {
        static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT};
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
            signal(signals[i], SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close(both[0]);
        qm_cuda_calls_note(other.calls);
        serve(both[1]);
    }
    close(both[1]);
    other.fd = both[0];
    if (other.pid < 0) {
        snprintf(other.why, sizeof other.why, "no process for NVML: %s", strerror(errno));
        close(other.fd);
        other.pid = 0;
    }
}

/* Ends the process; *state: how it had ended by itself, where that is returned. */
static int end_process(int ms, int *state)
{
    int by_itself = 0;
    for (; !by_itself && ms >= 0; ms -= 2) {
        by_itself = waitpid(other.pid, state, WNOHANG) == other.pid;
        if (!by_itself)
            poll(NULL, 0, 2);
    }
    kill(other.pid, SIGKILL);
    for (int left = PATIENCE_MS; !by_itself && left > 0; left -= 2) {
        int ignored;
        if (waitpid(other.pid, &ignored, WNOHANG) == other.pid)
            break;
        poll(NULL, 0, 2);
    }
    close(other.fd);
    other.pid = 0;
    return by_itself;
}

/* Waits for an answer to the question; 1: it has come, or its end has (*n <= 0). */
static int await(struct answer *a, ssize_t *n)
{
    double until = qm_seconds() + other.limit;
    for (double left; (left = until - qm_seconds()) > 0.0;) {
        struct pollfd p = {other.fd, POLLIN, 0};
        if (poll(&p, 1, (int)(1e3 * left) + 1) <= 0)
            continue;
        *n = recv(other.fd, a, sizeof *a, MSG_DONTWAIT);
        if (*n >= 0 || (errno != EAGAIN && errno != EINTR))
            return 1;
    }
    return 0;
}

static qm_status question(const char *pci, struct answer *a)
{
    struct question q = {.token = other.token};
    char call[QM_CUDA_CALL_NAME];
    int state = 0, is_in;
    ssize_t n = 0;
    snprintf(q.pci, sizeof q.pci, "%s", pci);
    (void)!send(other.fd, &q, sizeof q, MSG_NOSIGNAL); /* where it has ended, that is read below */
    int has_come = await(a, &n);
    is_in = qm_cuda_calls_open_one(other.calls, call);
    if (!has_come) {
        (void)end_process(0, &state);
        return qm_fail(QM_SKIPPED, "NVML has not answered within %g s%s%s", other.limit,
                       is_in ? ", in " : "", call);
    }
    if (n > 0) {
        if (n == (ssize_t)sizeof *a && a->token == other.token)
            return QM_OK;
        (void)end_process(0, &state);
        return qm_fail(QM_SKIPPED, "what came from the process that asks NVML is no answer");
    }
    if (!end_process(PATIENCE_MS / 10, &state))
        return qm_fail(QM_SKIPPED, "the process that asks NVML has closed its connection%s%s",
                       is_in ? ", in " : "", call);
    if (WIFSIGNALED(state))
        return qm_fail(QM_SKIPPED, "the process that asks NVML ended by signal %d (%s)%s%s",
                       WTERMSIG(state), strsignal(WTERMSIG(state)), is_in ? ", in " : "", call);
    return qm_fail(QM_SKIPPED, "the process that asks NVML left with exit code %d%s%s",
                   WEXITSTATUS(state), is_in ? ", in " : "", call);
}

qm_status qm_gpu_now(const char *pci, struct qm_gpu_now *out)
{
    struct answer a;
    memset(out, 0, sizeof *out);
    if (!other.pid && !*other.why)
        return qm_fail(QM_SKIPPED, "NVML is not asked here");
    if (*other.why)
        return qm_fail(QM_SKIPPED, "%s", other.why);
    qm_status st = question(pci, &a);
    a.why[WHY - 1] = '\0';
    if (st == QM_OK && !a.is_there)
        st = qm_fail(QM_SKIPPED, "%s", a.why);
    if (st == QM_OK)
        st = believe(&a.now);
    if (st == QM_OK)
        *out = a.now;
    else
        snprintf(other.why, sizeof other.why, "%s", qm_message());
    return st;
}

const char *qm_nvml_failed(void) { return *other.why ? other.why : NULL; }

void qm_nvml_text(char *text, size_t size)
{
    struct qm_gpu_now x = {0};
    qm_status st = load();
    if (st == QM_OK) {
        ask_driver(x.driver);
        st = believe(&x);
    }
    if (st != QM_OK)
        snprintf(text, size, "%s; clocks are not measured", qm_message());
    else
        snprintf(text, size, "%s%s%s", ml.path, *x.driver ? ", driver " : "", x.driver);
}
