/* worker_process.c - The runner's side of worker processes: starts, feeds, reads and reaps them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "experiments/campaign/outcome_codec.h"
#include "experiments/campaign/worker.h"
#include "experiments/cli/cli.h"

extern char **environ;

enum { READ = 1 << 18 };

static int spawn(struct qm_worker *w, const char *suite, const char *log, int in, int out)
{
    char program[] = "/proc/self/exe", name[] = QM_CAMPAIGN_WORKER, called[] = "qualm";
    char *argv[] = {called, name, (char *)(uintptr_t)suite, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND,
                                     0666);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, QM_WORKER_REPLY_FD);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP); /* Ctrl-C reaches the runner alone */
    int failed = posix_spawn(&w->pid, program, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

qm_status qm_worker_start(struct qm_worker *w, const char *suite, const char *log)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    *w = (struct qm_worker){.to = -1, .from = -1, .group = -1, .since = qm_seconds()};
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
        qm_status st = qm_fail(QM_INTERNAL, "cannot start a worker: no pipe: %s", strerror(errno));
        close(in[0]);
        close(in[1]);
        return st;
    }
    /* above any target of dup2: a descriptor duplicated onto itself would keep its
     * close-on-exec flag */
    int end = fcntl(out[1], F_DUPFD_CLOEXEC, 10);
    int failed = end < 0 ? errno : spawn(w, suite, log, in[0], end);
    close(in[0]);
    close(out[1]);
    if (end >= 0)
        close(end);
    w->to = in[1];
    w->from = out[0];
    fcntl(w->from, F_SETFL, O_NONBLOCK);
    if (!failed)
        return QM_OK;
    w->pid = 0;
    qm_worker_reap(w);
    return qm_fail(QM_INTERNAL, "cannot start a worker: %s", strerror(failed));
}

void qm_worker_give(struct qm_worker *w, const int64_t *cell, int n)
{
    for (int i = 0; i < n; i++)
        w->fifo[(w->first + w->n_fifo++) % QM_WORKER_DEPTH] = cell[i];
    ssize_t wrote =
        write(w->to, cell, (size_t)n * sizeof *cell); /* the pipe has room: 4 KiB at most */
    (void)wrote;
}

/* Replies that were taken are removed before more bytes are read, so that replies stay aligned
 * to 8. */
int qm_worker_read(struct qm_worker *w)
{
    if (w->at > 0) {
        memmove(w->buffer, w->buffer + w->at, w->used - w->at);
        w->used -= w->at;
        w->at = 0;
    }
    for (;;) {
        if (w->room - w->used < READ) {
            size_t room = 2 * w->room + READ;
            char *more = realloc(w->buffer, room);
            if (!more)
                return 0; /* treated as the end of file */
            w->buffer = more;
            w->room = room;
        }
        ssize_t n = read(w->from, w->buffer + w->used, w->room - w->used);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN;
        w->used += n > 0 ? (size_t)n : 0;
    }
}

int qm_worker_next_reply(struct qm_worker *w, struct qm_worker_reply *reply, const int64_t **word,
                         const char **text)
{
    const char *from = w->buffer + w->at;
    size_t there = w->used - w->at;
    *word = NULL;
    *text = NULL;
    if (there < sizeof *reply)
        return 0;
    memcpy(reply, from, sizeof *reply);
    if (reply->cell < 0) {
        w->at += sizeof *reply;
        return reply->cell == QM_WORKER_HELLO || reply->cell == QM_WORKER_BYE ? 1 : -1;
    }
    if (reply->words < 0 || reply->words > QM_OUTCOME_WORDS_MOST || reply->text < 0 ||
        reply->text > QM_OUTCOME_TEXT_MOST || reply->text % 8)
        return -1;
    size_t bytes = sizeof *reply + (size_t)reply->words * sizeof **word;
    if (there < bytes + (size_t)reply->text)
        return 0;
    *word = (const int64_t *)(const void *)(from + sizeof *reply);
    *text = reply->text ? from + bytes : NULL;
    if (*text && (*text)[reply->text - 1])
        return -1;
    w->at += bytes + (size_t)reply->text;
    return 1;
}

int qm_worker_reap(struct qm_worker *w)
{
    int state = 0;
    if (w->pid > 0) {
        while (waitpid(w->pid, &state, 0) < 0 && errno == EINTR)
            ;
        kill(-w->pid, SIGKILL); /* processes that a cell may have started */
    }
    if (w->to >= 0)
        close(w->to);
    if (w->from >= 0)
        close(w->from);
    free(w->buffer);
    w->pid = 0;
    w->to = w->from = -1;
    w->buffer = NULL;
    w->at = w->used = w->room = 0;
    return state;
}
