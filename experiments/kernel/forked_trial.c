/* forked_trial.c - Forks a process per attempt, waits for it, and tells how it ended. */
#include "experiments/kernel/forked_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/user_kernel/backend_file.h"
#include "experiments/check/slot.h"
#include "experiments/cli/cli.h"

enum { STACK = 65536, TICK_MS = 50 };

qm_status qm_forked_trial_open(struct qm_forked_trial *forked)
{
    void *map =
        mmap(NULL, sizeof *forked->out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    forked->out = map == MAP_FAILED ? NULL : map;
    forked->subject->backend = forked->object ? &qm_backend_file : &qm_backend_cpu;
    return forked->out ? QM_OK : qm_fail(QM_NO_MEMORY, "shared memory");
}

void qm_forked_trial_close(struct qm_forked_trial *forked)
{
    if (forked->out)
        munmap(forked->out, sizeof *forked->out);
    forked->out = NULL;
}

/* ---- the child ------------------------------------------------------------------------------- */

static struct qm_attempt *own; /* the attempt of this child process, for its signal handler */

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (sig == SIGSEGV || sig == SIGBUS)
        qm_kernel_file_where(info->si_addr, own->text, sizeof own->text);
    signal(sig, SIG_DFL);
    raise(sig);
}

static void prepare(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static char room[STACK];
    const struct rlimit none = {0, 0};
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    int null = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    sigaltstack(&stack, NULL);
    sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &act, NULL);
}

/* Turns the judge's status and finding into the outcome of the attempt. */
static void conclude(struct qm_attempt *o, qm_status st, const struct qm_finding *f)
{
    o->how = st != QM_OK ? QM_CASE_refused : f->severity ? QM_CASE_failed : QM_CASE_passed;
    snprintf(o->text, sizeof o->text, "%s", st != QM_OK ? qm_message() : f->text);
    o->finding = *f;
    if (st != QM_CHECK_FAILED) /* only the backend of kernel files gives this status */
        return;
    o->how = QM_CASE_failed;
    o->finding = (struct qm_finding){0};
    qm_finding_set(&o->finding, QM_BAD_MACHINERY, "%s", o->text);
    o->finding.place = strstr(o->text, " outside the buffer")       ? QM_PLACE_OUTSIDE
                       : strstr(o->text, " left the rounding mode") ? QM_PLACE_MODE
                                                                    : QM_PLACE_LAYER;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void describe(struct qm_attempt *o, int state, const char *killed)
{
    char where[200];
    snprintf(where, sizeof where, "%.199s", o->is_done ? "" : o->text);
    if (killed) {
        o->how = strstr(killed, "memory") ? QM_CASE_memory : QM_CASE_hung;
        snprintf(o->text, sizeof o->text, "%s", killed);
    } else if (WIFSIGNALED(state)) {
        const char *name = sigabbrev_np(WTERMSIG(state));
        o->how = QM_CASE_crashed;
        o->signal = WTERMSIG(state);
        snprintf(o->text, sizeof o->text, "SIG%s%s%s", name ? name : "?", *where ? " " : "", where);
    } else if (!o->is_done) {
        o->how = QM_CASE_left;
        snprintf(o->text, sizeof o->text, "it called exit(%d)", WEXITSTATUS(state));
    }
}

/* Waits for the child; returns NULL, or the reason why it was killed. */
static const char *await(const struct qm_forked_trial *forked, pid_t pid, double seconds)
{
    double until = qm_seconds() + seconds;
    struct pollfd end = {.fd = pidfd_open(pid, 0), .events = POLLIN};
    const char *why = NULL;
    while (end.fd >= 0 && !why && poll(&end, 1, TICK_MS) <= 0) {
        if (forked->stop && *forked->stop)
            why = "interrupted";
        else if (qm_seconds() > until)
            why = "no answer in time";
        else if (forked->mebibytes > 0.0 && qm_child_resident(pid) > forked->mebibytes)
            why = "more memory than the limit";
    }
    if (end.fd >= 0)
        close(end.fd);
    if (why)
        kill(pid, SIGKILL);
    return why;
}

const struct qm_attempt *qm_forked_trial_run(struct qm_forked_trial *forked,
                                             void (*work)(struct qm_forked_trial *forked,
                                                          const void *arg),
                                             const void *arg, double seconds)
{
    int state = 0;
    memset(forked->out, 0, sizeof *forked->out);
    forked->attempts++;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct qm_kernel_file *kernel = NULL;
        own = forked->out;
        prepare();
        qm_status st = forked->object ? qm_kernel_file_open(forked->object, &kernel) : QM_OK;
        const struct qm_finding none = {0};
        qm_kernel_file_use(kernel);
        if (st == QM_OK)
            work(forked, arg);
        else
            conclude(forked->out, st, &none);
        forked->out->is_done = 1;
        _exit(0);
    }
    if (pid < 0) {
        forked->out->how = QM_CASE_refused;
        snprintf(forked->out->text, sizeof forked->out->text, "no process: %s", strerror(errno));
        return forked->out;
    }
    const char *killed = await(forked, pid, seconds);
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    kill(-pid, SIGKILL); /* processes that the kernel started */
    describe(forked->out, state, killed);
    if (killed && forked->stop && *forked->stop)
        forked->out->how = QM_CASE_refused;
    return forked->out;
}

/* ---- work ------------------------------------------------------------------------------------ */

struct judging {
    const struct qm_trial *trial;
    int slot;
};

static void judge(struct qm_forked_trial *forked, const void *arg)
{
    const struct judging *j = arg;
    struct qm_finding f = {0};
    qm_status st = qm_judge_trial(forked->subject, j->trial, j->slot, &f);
    conclude(forked->out, st, &f);
}

const struct qm_attempt *qm_forked_trial_judge(struct qm_forked_trial *forked,
                                               const struct qm_trial *t, int slot, double seconds)
{
    struct judging j = {t, slot};
    return qm_forked_trial_run(forked, judge, &j, seconds);
}

struct recording {
    const struct qm_case *c;
    int steps;
    struct qm_trial *trial;
};

static void record(struct qm_forked_trial *forked, const void *arg)
{
    const struct recording *r = arg;
    struct qm_finding f = {0};
    qm_status st =
        qm_judge_record(forked->subject, r->c, r->steps, r->trial, &forked->out->begun, &f);
    conclude(forked->out, st, &f);
}

const struct qm_attempt *qm_forked_trial_record(struct qm_forked_trial *forked,
                                                const struct qm_case *c, int steps,
                                                struct qm_trial *t, double seconds)
{
    struct recording r = {c, steps, t};
    return qm_forked_trial_run(forked, record, &r, seconds);
}
