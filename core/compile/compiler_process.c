/* compiler_process.c - Starts a compiler so that neither it nor what it starts outlives this
 * program. */
#include "core/compile/compiler_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Becomes the program; where that fails, writes errno to `failed`. */
static void become(char *const *argv, int out, int err, int failed, const sigset_t *mask)
{
    int error;
    int is_set = dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0;
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (is_set)
        execvp(argv[0], argv);
    error = errno;
    while (write(failed, &error, sizeof error) < 0 && errno == EINTR)
        ;
    _exit(127);
}

/* Ends the keeper's process group: the compiler first by a signal that it removes its temporary
 * files at. */
static void end_group(void)
{
    const struct timespec patience = {0, 100000000};
    kill(0, SIGTERM); /* the keeper has it blocked */
    nanosleep(&patience, NULL);
    kill(0, SIGKILL);
    _exit(1);
}

/* Waits for the compiler, or for the end of the program `parent`; all signals are blocked. */
static void keep(pid_t compiler, pid_t parent)
{
    sigset_t awaited;
    int state;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    for (;;) {
        if (getppid() != parent) /* a thread that ended is none */
            end_group();
        if (waitpid(compiler, &state, WNOHANG) == compiler) {
            if (WIFEXITED(state))
                _exit(WEXITSTATUS(state));
            kill(getpid(), SIGKILL);
        }
        sigwaitinfo(&awaited, NULL);
    }
}

static void be_keeper(char *const *argv, int out, int err, int failed, pid_t parent,
                      const sigset_t *mask)
{
    setpgid(0, 0);
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    pid_t compiler = fork();
    if (compiler == 0)
        become(argv, out, err, failed, mask);
    if (compiler < 0) {
        int error = errno;
        while (write(failed, &error, sizeof error) < 0 && errno == EINTR)
            ;
        _exit(127);
    }
    close(failed);
    keep(compiler, parent);
}

int qm_compiler_start(char *const *argv, int out, int err, pid_t *pid)
{
    sigset_t all, mask;
    int failed[2], error = 0;
    pid_t parent = getpid();
    if (pipe2(failed, O_CLOEXEC) != 0)
        return errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pid_t keeper = fork();
    if (keeper == 0) {
        close(failed[0]);
        be_keeper(argv, out, err, failed[1], parent, &mask);
    }
    int fork_error = errno;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    close(failed[1]);
    ssize_t n = keeper < 0 ? 0 : -1;
    while (n < 0 && (n = read(failed[0], &error, sizeof error)) < 0 && errno == EINTR)
        ;
    close(failed[0]);
    if (keeper < 0)
        return fork_error;
    if (n != sizeof error) {
        *pid = keeper;
        return 0;
    }
    while (waitpid(keeper, NULL, 0) < 0 && errno == EINTR)
        ;
    return error;
}
