/* forked_trial.c - forks, waits, and says how it went. */
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

qm_status qm_forked_trial_open(struct qm_forked_trial *lab)
{
    void *map =
        mmap(NULL, sizeof *lab->out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lab->out = map == MAP_FAILED ? NULL : map;
    lab->subject->backend = lab->object ? &qm_backend_file : &qm_backend_cpu;
    return lab->out ? QM_OK : qm_fail(QM_NO_MEMORY, "shared memory");
}

void qm_forked_trial_close(struct qm_forked_trial *lab)
{
    if (lab->out)
        munmap(lab->out, sizeof *lab->out);
    lab->out = NULL;
}

/* ---- the child ------------------------------------------------------------------------------- */

static struct qm_attempt *own; /* of this child */

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

/* A status of the judge as an outcome. */
static void conclude(struct qm_attempt *o, qm_status st, const struct qm_finding *f)
{
    o->how = st != QM_OK ? QM_CASE_refused : f->severity ? QM_CASE_failed : QM_CASE_passed;
    snprintf(o->text, sizeof o->text, "%s", st != QM_OK ? qm_message() : f->text);
    o->finding = *f;
    if (st != QM_CHECK_FAILED) /* which only the kernel's own backend gives */
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

/* Waits for the child; NULL, or why it was killed. */
static const char *await(const struct qm_forked_trial *lab, pid_t pid, double seconds)
{
    double until = qm_seconds() + seconds;
    struct pollfd end = {.fd = pidfd_open(pid, 0), .events = POLLIN};
    const char *why = NULL;
    while (end.fd >= 0 && !why && poll(&end, 1, TICK_MS) <= 0) {
        if (lab->stop && *lab->stop)
            why = "interrupted";
        else if (qm_seconds() > until)
            why = "no answer in time";
        else if (lab->mebibytes > 0.0 && qm_child_resident(pid) > lab->mebibytes)
            why = "more memory than the limit";
    }
    if (end.fd >= 0)
        close(end.fd);
    if (why)
        kill(pid, SIGKILL);
    return why;
}

const struct qm_attempt *qm_forked_trial_run(struct qm_forked_trial *lab,
                                             void (*work)(struct qm_forked_trial *lab,
                                                          const void *arg),
                                             const void *arg, double seconds)
{
    int state = 0;
    memset(lab->out, 0, sizeof *lab->out);
    lab->attempts++;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct qm_kernel_file *kernel = NULL;
        own = lab->out;
        prepare();
        qm_status st = lab->object ? qm_kernel_file_open(lab->object, &kernel) : QM_OK;
        const struct qm_finding none = {0};
        qm_kernel_file_use(kernel);
        if (st == QM_OK)
            work(lab, arg);
        else
            conclude(lab->out, st, &none);
        lab->out->is_done = 1;
        _exit(0);
    }
    if (pid < 0) {
        lab->out->how = QM_CASE_refused;
        snprintf(lab->out->text, sizeof lab->out->text, "no process: %s", strerror(errno));
        return lab->out;
    }
    const char *killed = await(lab, pid, seconds);
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    kill(-pid, SIGKILL); /* children of the kernel's */
    describe(lab->out, state, killed);
    if (killed && lab->stop && *lab->stop)
        lab->out->how = QM_CASE_refused;
    return lab->out;
}

/* ---- work ------------------------------------------------------------------------------------ */

struct judging {
    const struct qm_trial *trial;
    int slot;
};

static void judge(struct qm_forked_trial *lab, const void *arg)
{
    const struct judging *j = arg;
    struct qm_finding f = {0};
    qm_status st = qm_judge_trial(lab->subject, j->trial, j->slot, &f);
    conclude(lab->out, st, &f);
}

const struct qm_attempt *qm_forked_trial_judge(struct qm_forked_trial *lab,
                                               const struct qm_trial *t, int slot, double seconds)
{
    struct judging j = {t, slot};
    return qm_forked_trial_run(lab, judge, &j, seconds);
}

struct recording {
    const struct qm_case *c;
    int steps;
    struct qm_trial *trial;
};

static void record(struct qm_forked_trial *lab, const void *arg)
{
    const struct recording *r = arg;
    struct qm_finding f = {0};
    qm_status st = qm_judge_record(lab->subject, r->c, r->steps, r->trial, &lab->out->begun, &f);
    conclude(lab->out, st, &f);
}

const struct qm_attempt *qm_forked_trial_record(struct qm_forked_trial *lab,
                                                const struct qm_case *c, int steps,
                                                struct qm_trial *t, double seconds)
{
    struct recording r = {c, steps, t};
    return qm_forked_trial_run(lab, record, &r, seconds);
}
