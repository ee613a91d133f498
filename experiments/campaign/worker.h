/* worker.h - Worker processes: this program started again to run cells, with pipes to its runner.
 *
 * A worker reads cell numbers (int64) from its standard input and replies to each on file
 * descriptor 3: a struct qm_worker_reply, the words of the outcome and the bytes of its text.  Its
 * first reply is of cell QM_WORKER_HELLO and carries the number of cells in the suite; its last one
 * is of cell QM_WORKER_BYE, when it leaves at the end of its input, or after the running cell on
 * SIGUSR1, SIGTERM or SIGINT. */
#ifndef QM_CAMPAIGN_WORKER_H
#define QM_CAMPAIGN_WORKER_H

#include <stdint.h>
#include <sys/types.h>

#include "core/base/status.h"

#define QM_CAMPAIGN_WORKER "campaign-worker" /* the hidden command: campaign-worker SUITE */

enum { QM_WORKER_HELLO = -1, QM_WORKER_BYE = -2, QM_WORKER_REPLY_FD = 3 };

struct qm_worker_reply {
    int64_t cell, words; /* of QM_WORKER_HELLO: words is the number of cells */
    int64_t text;        /* bytes, padded with 1 to 8 NULs to a multiple of 8; 0: none */
    double seconds;      /* wall time of the cell */
};

/* Runs the hidden command by which a runner starts a worker; returns its exit code. */
int qm_campaign_worker(int argc, char **argv);

/* ---- the runner's side --------------------------------------------------------------------- */

enum {
    QM_CAMPAIGN_WORKERS = 256, /* most workers of a runner */
    QM_WORKER_DEPTH = 512      /* most cells that a worker holds */
};

struct qm_worker {
    pid_t pid;    /* 0: none */
    int to, from; /* pipes; -1: closed */
    int said_hello, said_bye, killed;
    const char *why;               /* why the runner killed it; static text, or NULL */
    int64_t fifo[QM_WORKER_DEPTH]; /* ring of the cells it holds, the running one first */
    int n_fifo, first;             /* cells in the ring, index of the running one */
    int64_t group;                 /* of the queue, that it took from last */
    double since;                  /* qm_seconds() when the running cell began */
    char *buffer;                  /* bytes of replies */
    size_t at, used, room;         /* at: start of the first reply that was not taken */
};

/* Starts a worker on a suite file; its stdout and stderr are appended to log.  QM_INTERNAL. */
qm_status qm_worker_start(struct qm_worker *w, const char *suite, const char *log);

/* Sends the worker n cells.  A worker that is gone reads none, which shows when it is reaped. */
void qm_worker_give(struct qm_worker *w, const int64_t *cell, int n);

/* Reads all bytes that are there, without waiting.  Returns 0 at the end of file. */
int qm_worker_read(struct qm_worker *w);

/* Takes the next whole reply: 1, 0 when there is none yet, -1 when the bytes are no reply.  *word
 * and *text (NULL: none) point into the buffer until the next read. */
int qm_worker_next_reply(struct qm_worker *w, struct qm_worker_reply *reply, const int64_t **word,
                         const char **text);

/* Waits for a worker that reached end of file or was killed, kills its process group and releases
 * everything.  Returns its wait status. */
int qm_worker_reap(struct qm_worker *w);

#endif
