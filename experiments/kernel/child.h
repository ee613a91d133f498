/* child.h - a worker process seen from its parent, which survives whatever the kernel does. */
#ifndef QM_EXPERIMENTS_KERNEL_CHILD_H
#define QM_EXPERIMENTS_KERNEL_CHILD_H

#include <jansson.h>
#include <sys/types.h>

#include "core/base/status.h"

/* How a request ended. */
/* clang-format off */
#define QM_END_LIST(X)                                                    \
    X(answered, "an answer came")                                         \
    X(crashed,  "the process died by a signal")                           \
    X(hung,     "no answer within the limit; it was killed")              \
    X(memory,   "it used more memory than the limit; it was killed")      \
    X(left,     "the process ended by itself, with exit() or the like")   \
    X(garbage,  "what came was no answer; it was killed")                 \
    X(stopped,  "the user interrupted")
/* clang-format on */
enum qm_end {
#define X(name, text) QM_END_##name,
    QM_END_LIST(X)
#undef X
};
const char *qm_end_name(enum qm_end e);

struct qm_child_limits {
    double seconds; /* for one request, wall clock */
    double mebibytes;
};

struct qm_child {
    pid_t pid;   /* 0: there is none */
    int fd, out; /* socket; what the kernel prints */
    char *job;   /* owned */
    char *line;  /* what has come of an answer; owned */
    size_t used;
    char said[513];           /* the last the kernel printed */
    const volatile int *stop; /* not 0: give up waiting; may be NULL */
};

/* Starts the worker (this program itself, `command --kernel-worker JOB`) on a job; *c is zeroed first.  The worker's first line is
 * asked for with request NULL. */
qm_status qm_child_start(struct qm_child *c, const char *command, const json_t *job,
                         const volatile int *stop);

/* Sends a request and waits.  answered: *reply is the answer, the caller's.  Otherwise the worker is
 * gone and `why` says how, in words; *old: it was within the old kernel. */
enum qm_end qm_child_ask(struct qm_child *c, json_t *request, const struct qm_child_limits *limits,
                         json_t **reply, char *why, size_t size, int *old);

double qm_child_resident(pid_t pid); /* MiB; 0 where it is not known */

void qm_child_stop(struct qm_child *c); /* accepts a zeroed or stopped one */

#endif
