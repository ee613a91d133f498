/* pool.c - The runner's loop: gives cells to workers, takes replies, enforces limits. */
#include "experiments/campaign/pool.h"
#include "core/base/clock.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/process_tree.h"
#include "experiments/campaign/mpi_dispatch.h"
#include "experiments/campaign/worker.h"
#include "experiments/cli/cli.h"

enum {
    TICK_MS = 50,
    SEGMENT_WORDS = 8 << 20, /* 64 MiB */
    START_TRIES = 5,         /* workers in a row that may end before their hello */
    KILL_TRIES = 5,          /* times a cell's worker may get a SIGKILL that we did not send */
};
static const double GIVE_SECONDS = 0.3; /* of work that a worker holds */
/* Seconds between segments: CLOSE_SHARE of the time so far, from CLOSE_FIRST to CLOSE_LAST. */
static const double CLOSE_FIRST = 1.0, CLOSE_LAST = 60.0, CLOSE_SHARE = 0.02;

struct state {
    struct qm_pool *p;
    struct qm_worker *worker;
    unsigned char *kills; /* per cell: SIGKILLs that we did not send */
    struct qm_progress progress;
    char suite[1100], log[1100];
    double started, closed; /* qm_seconds(): of the run, and of the last segment */
    double mean;            /* recent wall seconds per cell, overhead included; 0: none yet */
    int n;                  /* workers */
    int unstarted;          /* workers in a row that ended before their hello */
    int stopping, no_more;  /* *stop as last seen; rank 0 has no more cells */
    int64_t open;           /* cells given and not replied to */
};

/* ---- segments ------------------------------------------------------------------------------ */

static qm_status close_segment(struct state *s)
{
    qm_status st = qm_writer_segment(s->p->writer);
    s->closed = qm_seconds();
    return st;
}

/* Whether to write a segment.  Cells in no segment are in the journal, which only a power failure
 * loses: about a second of work, or in a long campaign a minute. */
static int is_due(const struct state *s, double now)
{
    double wait = fmin(CLOSE_LAST, fmax(CLOSE_FIRST, CLOSE_SHARE * (now - s->started)));
    const struct qm_segment *waiting = &s->p->writer->waiting;
    return waiting->rows > 0 && (waiting->words >= SEGMENT_WORDS || now - s->closed >= wait);
}

/* ---- results ------------------------------------------------------------------------------- */

static qm_status record(struct state *s, int64_t cell, double seconds,
                        struct qm_outcome_words *packed)
{
    struct qm_pool *p = s->p;
    int failed = 0;
    QM_TRY(qm_writer_add(p->writer, cell, seconds, packed, &failed));
    p->ran++;
    p->failed += failed;
    qm_progress_add(&s->progress, 1, failed);
    return QM_OK;
}

/* Records a failed outcome, with the way its worker ended, for a cell that sent none. */
static qm_status record_failure(struct state *s, int64_t cell, double seconds, const char *why)
{
    struct qm_outcome o = {.failed = 1};
    struct qm_outcome_words packed = {0};
    o.reason = strdup(why);
    qm_status st = o.reason ? qm_outcome_encode(&o, &packed) : qm_fail(QM_NO_MEMORY, "an outcome");
    if (st == QM_OK)
        st = record(s, cell, seconds, &packed);
    qm_outcome_words_free(&packed);
    qm_outcome_free(&o);
    return st;
}

/* Removes the running cell from the worker's ring. */
static void pop(struct state *s, struct qm_worker *w)
{
    w->first = (w->first + 1) % QM_WORKER_DEPTH;
    w->n_fifo--;
    s->open--;
    w->since = qm_seconds();
}

/* *garbage: the reply belongs to no given cell, or its words are no outcome. */
static qm_status take_reply(struct state *s, struct qm_worker *w,
                            const struct qm_worker_reply *reply, const int64_t *word,
                            const char *text, int *garbage)
{
    if (reply->cell == QM_WORKER_HELLO) {
        if (reply->words != s->p->job->n_cells)
            return qm_fail(QM_INTERNAL,
                           "a worker sees %lld cells, not %lld; do all machines have "
                           "the same program and data?",
                           (long long)reply->words, (long long)s->p->job->n_cells);
        w->said_hello = 1;
        w->since = qm_seconds();
        s->unstarted = 0;
        return QM_OK;
    }
    if (reply->cell == QM_WORKER_BYE) {
        w->said_bye = 1;
        return QM_OK;
    }
    *garbage = w->n_fifo == 0 || reply->cell != w->fifo[w->first];
    if (*garbage)
        return QM_OK;
    double around = qm_seconds() - w->since;
    s->mean = s->mean > 0.0 ? 0.9 * s->mean + 0.1 * around : around;
    struct qm_outcome_words packed = {.n = reply->words, .word = (int64_t *)(uintptr_t)word};
    packed.text = text ? strdup(text) : NULL;
    qm_status st = text && !packed.text ? qm_fail(QM_NO_MEMORY, "an outcome")
                                        : record(s, reply->cell, reply->seconds, &packed);
    free(packed.text);
    *garbage = st == QM_BAD_ARG; /* no outcome: nothing was recorded */
    if (st == QM_OK)
        pop(s, w);
    return *garbage ? QM_OK : st;
}

/* ---- ends of workers ----------------------------------------------------------------------- */

/* why: the outcome's reason, static; NULL: the runner gave the cell up, and no outcome
 * is recorded. */
static void kill_worker(struct qm_worker *w, const char *why)
{
    if (!w->killed)
        kill(w->pid, SIGKILL);
    w->killed = 1;
    w->why = why;
}

/* The exit state in words; they depend on nothing that differs between two runs. */
static void end_text(int state, char *text, size_t size)
{
    if (WIFSIGNALED(state)) {
        const char *name = sigabbrev_np(WTERMSIG(state));
        snprintf(text, size, "died by SIG%s", name ? name : "");
        if (!name)
            snprintf(text, size, "died by signal %d", WTERMSIG(state));
    } else {
        snprintf(text, size, "left with exit code %d", WEXITSTATUS(state));
    }
}

/* A SIGKILL that we did not send comes from outside, and may have nothing to do with the cell. */
static int is_innocent(struct state *s, const struct qm_worker *w, int state, int64_t cell)
{
    if (w->killed || !WIFSIGNALED(state) || WTERMSIG(state) != SIGKILL)
        return 0;
    return ++s->kills[cell] < KILL_TRIES;
}

/* Reaps a worker that ended: the cell it was running has failed, its other cells go back to
 * the queue. */
static qm_status bury(struct state *s, struct qm_worker *w)
{
    char why[96];
    double spent = qm_seconds() - w->since;
    int state = qm_worker_reap(w);
    qm_status st = QM_OK;
    if (!w->said_hello && !s->stopping && ++s->unstarted >= START_TRIES) {
        end_text(state, why, sizeof why);
        st = qm_fail(QM_INTERNAL, "%d workers ended before they began (the last %s); see %s",
                     s->unstarted, why, s->log);
    }
    if (w->said_hello && !w->said_bye && w->n_fifo > 0 && !(w->killed && !w->why)) {
        int64_t cell = w->fifo[w->first];
        if (!is_innocent(s, w, state, cell)) {
            end_text(state, why, sizeof why);
            st = record_failure(s, cell, spent, w->why ? w->why : why);
            pop(s, w);
        }
    }
    while (w->n_fifo >
           0) { /* the last first, because returned cells are taken last in, first out */
        w->n_fifo--;
        s->open--;
        qm_queue_return(s->p->queue, w->fifo[(w->first + w->n_fifo) % QM_WORKER_DEPTH]);
    }
    return st;
}

/* Kills a worker whose running cell exceeds its time, or which exceeds its memory. */
static void check_limits(struct state *s, struct qm_worker *w, double now)
{
    const struct qm_campaign_options *o = s->p->o;
    static char late[64], large[64]; /* the limits are the same for all workers */
    snprintf(late, sizeof late, "no result within %g s", o->seconds);
    snprintf(large, sizeof large, "more than %g MiB of memory", o->mebibytes);
    if (!w->said_hello || w->n_fifo == 0 || w->killed)
        return;
    if (now - w->since > o->seconds)
        kill_worker(w, late);
    else if (qm_process_resident(w->pid) > o->mebibytes)
        kill_worker(w, large);
}

/* ---- giving cells to workers --------------------------------------------------------------- */

/* Cells that a worker should hold: GIVE_SECONDS of work, at most its share of the rest, at
 * least one. */
static int depth(const struct state *s)
{
    double n = s->mean > 0.0 ? GIVE_SECONDS / s->mean : 2.0;
    double share = (double)s->p->queue->left / (2.0 * s->n) + 1.0;
    n = fmin(fmin(n, share), QM_WORKER_DEPTH);
    return n < 1.0 ? 1 : (int)n;
}

/* Under MPI: asks rank 0 for another chunk when the queue is empty. */
static void refill(struct state *s)
{
    int64_t cell[QM_CHUNK];
    if (!s->p->o->dispatched || s->no_more || s->stopping || s->p->queue->left > 0)
        return;
    int n = qm_mpi_dispatch_ask(cell);
    s->no_more = n == 0;
    s->progress.total += n;
    while (n > 0)
        qm_queue_return(s->p->queue, cell[--n]);
}

static qm_status give_cells(struct state *s, struct qm_worker *w)
{
    int64_t cell[QM_WORKER_DEPTH];
    int n = 0, most = depth(s);
    if (s->stopping || s->p->queue->left == 0)
        return QM_OK;
    if (w->pid == 0)
        QM_TRY(qm_worker_start(w, s->suite, s->log));
    if (w->to < 0 || w->n_fifo > most / 2 || w->killed)
        return QM_OK;
    while (w->n_fifo + n < most && s->p->queue->left > 0)
        cell[n++] = qm_queue_take(s->p->queue, &w->group);
    s->open += n;
    if (n > 0 && w->n_fifo == 0)
        w->since = qm_seconds();
    if (n > 0)
        qm_worker_give(w, cell, n);
    return QM_OK;
}

/* No worker gets more cells; running ones are finished, or with a second signal abandoned. */
static qm_status stop_all(struct state *s)
{
    int how = *s->p->stop;
    for (int i = 0; i < s->n && how > s->stopping; i++) {
        struct qm_worker *w = &s->worker[i];
        if (w->pid == 0)
            continue;
        if (how > 1)
            kill_worker(w, NULL);
        else
            kill(w->pid, SIGUSR1);
        if (w->to >= 0)
            close(w->to);
        w->to = -1;
    }
    int first = s->stopping == 0;
    if (first && how == 1 && s->open > 0)
        qm_note("interrupted: the cells under way are finished first; once more gives them up");
    s->stopping = how;
    return first ? close_segment(s) : QM_OK; /* the sender may not wait for running cells */
}

/* ---- the loop ------------------------------------------------------------------------------ */

static qm_status serve(struct state *s, struct qm_worker *w)
{
    struct qm_worker_reply reply;
    const int64_t *word;
    const char *text;
    int more = qm_worker_read(w), garbage = 0, found = 0;
    while (!garbage && (found = qm_worker_next_reply(w, &reply, &word, &text)) > 0)
        QM_TRY(take_reply(s, w, &reply, word, text, &garbage));
    if (garbage || found < 0)
        kill_worker(w, "what came from its process is no answer");
    return more && !garbage && found >= 0 ? QM_OK : bury(s, w);
}

/* One round of the loop; *busy: there are cells to give, or replies to wait for. */
static qm_status turn(struct state *s, int *busy)
{
    struct pollfd fds[QM_CAMPAIGN_WORKERS];
    int at[QM_CAMPAIGN_WORKERS], n = 0;
    if (*s->p->stop > s->stopping)
        QM_TRY(stop_all(s));
    for (int i = 0; i < s->n; i++) {
        if (s->worker[i].n_fifo == 0)
            refill(s);
        QM_TRY(give_cells(s, &s->worker[i]));
        if (s->worker[i].pid > 0) {
            fds[n] = (struct pollfd){s->worker[i].from, POLLIN, 0};
            at[n++] = i;
        }
    }
    *busy = s->stopping ? n > 0 : s->open > 0 || s->p->queue->left > 0;
    if (!*busy)
        return QM_OK;
    poll(fds, (nfds_t)n, TICK_MS);
    for (int i = 0; i < n; i++)
        if (fds[i].revents)
            QM_TRY(serve(s, &s->worker[at[i]]));
    double now = qm_seconds();
    for (int i = 0; i < s->n; i++)
        if (s->worker[i].pid > 0)
            check_limits(s, &s->worker[i], now);
    return is_due(s, now) ? close_segment(s) : QM_OK;
}

static void dismiss(struct state *s)
{
    for (int i = 0; i < s->n; i++) {
        struct qm_worker *w = &s->worker[i];
        if (w->pid > 0)
            kill(w->pid, SIGKILL); /* it is idle, or this runner has failed */
        qm_worker_reap(w);
    }
}

qm_status qm_pool_run(struct qm_pool *p)
{
    struct state s = {.p = p, .n = p->o->workers, .started = qm_seconds()};
    s.worker = calloc((size_t)s.n, sizeof *s.worker);
    s.kills = calloc((size_t)(p->job->n_cells + 1), 1);
    qm_status st = s.worker && s.kills ? QM_OK : qm_fail(QM_NO_MEMORY, "%d workers", s.n);
    for (int i = 0; s.worker && i < s.n; i++)
        s.worker[i].to = s.worker[i].from = -1;
    snprintf(s.suite, sizeof s.suite, "%s/suite.yaml", p->o->dir);
    snprintf(s.log, sizeof s.log, "%s/%s.log", p->o->dir, p->writer->shard);
    s.closed = s.started;
    qm_progress_start(&s.progress, p->job->suite->stem, p->queue->n);
    for (int busy = 1; st == QM_OK && busy;)
        st = turn(&s, &busy);
    if (s.worker)
        dismiss(&s);
    if (st == QM_OK)
        st = close_segment(&s);
    qm_progress_end(&s.progress);
    if (st == QM_OK && s.stopping && (p->queue->left > 0 || s.open > 0))
        st = qm_fail(QM_INTERRUPTED, "interrupted; the same command goes on");
    free(s.worker);
    free(s.kills);
    return st;
}
