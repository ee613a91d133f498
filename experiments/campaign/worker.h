/* worker.h - the process that runs cells: this program again, told by pipes.
 *
 * A worker reads cell numbers (int64) from its standard input and answers on file descriptor 3, for
 * each with a qm_answer, the words and the bytes of the text.  Before the first comes an answer of
 * cell QM_HELLO with the number of cells it sees, when it leaves of its own accord one of QM_BYE:
 * with SIGUSR1 or SIGTERM after the cell it is at, or at the end of its input. */
#ifndef QM_EXPERIMENTS_CAMPAIGN_WORKER_H
#define QM_EXPERIMENTS_CAMPAIGN_WORKER_H

#include <stdint.h>
#include <sys/types.h>

#include "core/base/status.h"

#define QM_CAMPAIGN_WORKER "campaign-worker" /* the hidden command: campaign-worker SUITE */

enum { QM_HELLO = -1, QM_BYE = -2, QM_ANSWER_FD = 3 };

struct qm_answer {
    int64_t cell, words; /* QM_HELLO: words is the number of cells */
    int64_t text;        /* bytes with at least one NUL, a multiple of 8; 0: none */
    double seconds;
};

int qm_campaign_worker(int argc, char **argv);

/* ---- as the runner sees it ------------------------------------------------------------------- */

enum {
    QM_CAMPAIGN_WORKERS = 256, /* at a time, at most */
    QM_WORKER_DEPTH = 512      /* cells given to a worker and not answered, at most */
};

struct qm_worker {
    pid_t pid;    /* 0: none */
    int to, from; /* pipes; -1: closed */
    int said_hello, said_bye, killed;
    const char *why;               /* we killed it; static text, or NULL */
    int64_t fifo[QM_WORKER_DEPTH]; /* given and not answered, the running one first */
    int n_fifo, first;             /* a ring */
    int64_t group;
    double since;          /* when the running cell began: qm_seconds() */
    char *buffer;          /* what has come of answers */
    size_t at, used, room; /* at: where the first that was not taken begins */
};

/* Starts one on a suite file; what it prints goes to the end of log.  QM_INTERNAL. */
qm_status qm_worker_start(struct qm_worker *w, const char *suite, const char *log);

/* Hands it cells; what it does not take because it is gone shows when it is reaped. */
void qm_worker_give(struct qm_worker *w, const int64_t *cell, int n);

/* Reads what there is, without waiting; 0 at the end of file. */
int qm_worker_read(struct qm_worker *w);

/* Takes the next whole answer; words and text point into the buffer until the next read.  0: none
 * yet; -1: garbage. */
int qm_worker_answer(struct qm_worker *w, struct qm_answer *a, const int64_t **word,
                     const char **text);

/* Waits for its end after end of file or a kill and frees all; the exit state. */
int qm_worker_reap(struct qm_worker *w);

#endif
