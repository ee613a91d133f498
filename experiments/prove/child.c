/* child.c - Starts worker processes, awaits their answers within limits, tells how they ended. */
#include "experiments/prove/child.h"
#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/process_tree.h"
#include "experiments/cli/cli.h"
#include "experiments/prove/wire.h"

extern char **environ;

enum { LINE_MOST = 1 << 20, TICK_MS = 20 };

/* ---- start and stop -------------------------------------------------------------------------- */

static int spawn(struct qm_child *c, const char *command, int fd, int out)
{
    char program[] = "/proc/self/exe", name[32], option[] = "--kernel-worker";
    char *argv[] = {program, name, option, c->job, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    snprintf(name, sizeof name, "%s", command);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fd, QM_WORKER_FD);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP); /* Ctrl-C reaches the parent alone */
    int failed = posix_spawn(&c->pid, program, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

qm_status qm_child_start(struct qm_child *c, const char *command, const json_t *job,
                         const volatile int *stop)
{
    int both[2] = {-1, -1}, out[2] = {-1, -1};
    memset(c, 0, sizeof *c);
    c->fd = c->out = -1;
    c->stop = stop;
    c->job = json_dumps(job, JSON_COMPACT);
    c->line = malloc(LINE_MOST);
    if (!c->job || !c->line)
        return qm_fail(QM_NO_MEMORY, "a worker");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0)
        return qm_fail(QM_INTERNAL, "no socket: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC | O_NONBLOCK) != 0) {
        close(both[0]);
        close(both[1]);
        return qm_fail(QM_INTERNAL, "no pipe: %s", strerror(errno));
    }
    fcntl(out[1], F_SETFL, 0); /* writes of the kernel block */
    int failed = spawn(c, command, both[1], out[1]);
    close(both[1]);
    close(out[1]);
    c->fd = both[0];
    c->out = out[0];
    if (!failed)
        return QM_OK;
    c->pid = 0;
    qm_child_stop(c);
    return qm_fail(QM_INTERNAL, "cannot start a worker: %s", strerror(failed));
}

/* Waits for the worker, after killing it where kill_it is 1, and kills its process group; returns
 * its exit state. */
static int end(struct qm_child *c, int kill_it)
{
    int state = 0;
    if (c->pid <= 0)
        return 0;
    if (kill_it)
        kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &state, 0) < 0 && errno == EINTR)
        ;
    kill(-c->pid, SIGKILL); /* processes that the kernel started stay in the group */
    c->pid = 0;
    return state;
}

void qm_child_stop(struct qm_child *c)
{
    end(c, 1);
    if (c->fd > 0)
        close(c->fd);
    if (c->out > 0)
        close(c->out);
    free(c->job);
    free(c->line);
    memset(c, 0, sizeof *c);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Keeps the last characters that the kernel prints. */
static void drain(struct qm_child *c)
{
    char more[4096];
    ssize_t n;
    for (int k = 0; k < 64 && (n = read(c->out, more, sizeof more)) > 0;
         k++) { /* the output may never end */
        size_t used = strlen(c->printed), room = sizeof c->printed - 1, take = (size_t)n;
        const char *from = more;
        if (take > room) {
            from += take - room;
            take = room;
        }
        if (used + take > room) {
            memmove(c->printed, c->printed + used + take - room, room - take);
            used = room - take;
        }
        for (size_t i = 0; i < take; i++)
            c->printed[used + i] = from[i] ? from[i] : ' ';
        c->printed[used + take] = '\0';
    }
}

/* 1: the process has ended; another process may still hold its end of the socket. */
static int is_over(const struct qm_child *c)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* Reads a line into c->line, without its newline, or returns how the request ended. */
static enum qm_end read_line(struct qm_child *c, const struct qm_child_limits *limits, char *why,
                             size_t size)
{
    double until = qm_seconds() + limits->seconds;
    c->used = 0;
    for (;;) {
        struct pollfd fds[] = {{c->fd, POLLIN, 0}, {c->out, POLLIN, 0}};
        poll(fds, 2, TICK_MS);
        drain(c);
        ssize_t n =
            fds[0].revents ? recv(c->fd, c->line + c->used, LINE_MOST - 1 - c->used, 0) : -1;
        if (n == 0 || (n < 0 && fds[0].revents && errno != EINTR))
            return QM_END_left; /* or crashed, by its exit state */
        if (n > 0)
            c->used += (size_t)n;
        c->line[c->used] = '\0';
        char *newline = memchr(c->line, '\n', c->used);
        if (newline) {
            *newline = '\0';
            return QM_END_answered;
        }
        if (c->used == LINE_MOST - 1)
            return QM_END_garbage;
        if (n < 0 && is_over(c))
            return QM_END_left;
        if (c->stop && *c->stop)
            return QM_END_stopped;
        if (qm_seconds() > until) {
            snprintf(why, size, "no answer within %g s", limits->seconds);
            return QM_END_hung;
        }
        double used = qm_process_resident(c->pid);
        if (used > limits->mebibytes) {
            snprintf(why, size, "%.0f MiB of memory, the limit is %g", used, limits->mebibytes);
            return QM_END_memory;
        }
    }
}

/* ---- how it ended ---------------------------------------------------------------------------- */

static void signal_text(int sig, char *text, size_t size)
{
    const char *name = sigabbrev_np(sig);
    if (name)
        snprintf(text, size, "SIG%s", name);
    else
        snprintf(text, size, "signal %d", sig);
}

/* Tells from the exit state how the worker ended.  where: the address in words, or NULL. */
static enum qm_end ended(struct qm_child *c, const char *where, char *why, size_t size)
{
    char name[32];
    for (int k = 0; k < 50 && !is_over(c); k++)
        poll(NULL, 0, TICK_MS);
    if (!is_over(c)) {
        snprintf(why, size, "it closed the connection and went on");
        return QM_END_garbage;
    }
    int state = end(c, 0);
    if (WIFSIGNALED(state)) {
        signal_text(WTERMSIG(state), name, sizeof name);
        snprintf(why, size, "%s%s%s", name, where && *where ? " " : "", where ? where : "");
        return QM_END_crashed;
    }
    snprintf(why, size, "it called exit(%d)", WEXITSTATUS(state));
    return QM_END_left;
}

static void add_printed(const struct qm_child *c, char *why, size_t size)
{
    size_t used = strlen(why), from = strlen(c->printed) > 160 ? strlen(c->printed) - 160 : 0;
    if (!*c->printed)
        return;
    snprintf(why + used, size - used, "; it had printed: %s", c->printed + from);
    for (char *p = why + used; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = p[1] ? ' ' : '\0';
}

/* 1: the line answers the request, because its case is the case of the request. */
static int is_answer(const json_t *value, const json_t *asked)
{
    const json_t *name = json_object_get(value, "case");
    return json_is_object(value) &&
           (!asked || json_object_get(value, "error") || (name && json_equal(asked, name)));
}

enum qm_end qm_child_ask(struct qm_child *c, json_t *request, const struct qm_child_limits *limits,
                         json_t **reply, char *why, size_t size)
{
    json_t *asked = request ? json_incref(json_object_get(request, "case")) : NULL, *value = NULL;
    const char *where = NULL;
    *why = '\0';
    *c->printed = '\0';
    if (request)
        qm_wire_write(c->fd, request); /* where writing fails, reading tells why */
    enum qm_end how = read_line(c, limits, why, size);
    if (how == QM_END_answered) {
        value = json_loads(c->line, 0, NULL);
        where = json_string_value(json_object_get(value, "where"));
    }
    if (how == QM_END_left || where)
        how = ended(c, where, why, size);
    else if (how == QM_END_answered && !is_answer(value, asked))
        how = QM_END_garbage;
    if (how == QM_END_garbage && !*why)
        snprintf(why, size, "what came from the worker is no answer: %.60s", c->line);
    json_decref(asked);
    if (how == QM_END_answered) {
        *reply = value;
        return how;
    }
    json_decref(value);
    end(c, 1);
    drain(c);
    add_printed(c, why, size);
    return how;
}
