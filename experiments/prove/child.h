/* child.h - The parent's side of a worker process, which may crash, hang or exit. */
#ifndef QM_EXPERIMENTS_PROVE_CHILD_H
#define QM_EXPERIMENTS_PROVE_CHILD_H

#include <jansson.h>
#include <sys/types.h>

#include "core/user_kernel/host.h"

enum { QM_WORKER_FD = 199 }; /* the socket to the parent; standard output belongs to the kernel */

struct qm_child_limits {
    double seconds;   /* of one request, wall clock */
    double mebibytes; /* resident memory of the worker */
};

struct qm_child {
    pid_t pid;     /* 0: there is no worker */
    int is_on_gpu; /* the caller's: the worker holds the driver alone */
    int fd, out;   /* socket; pipe with the output of the kernel */
    char *job;     /* owned */
    char *line;    /* the received part of an answer, `used` characters; owned */
    size_t used;
    char printed[513];        /* the last characters that the kernel printed */
    const volatile int *stop; /* not 0: stop waiting; may be NULL */
};

/* Starts a worker, which is this program run as `command --kernel-worker JOB`; *c is zeroed first.
 * The worker's first line is read by qm_child_ask with request NULL. */
qm_status qm_child_start(struct qm_child *c, const char *command, const json_t *job,
                         const volatile int *stop);

/* Sends a request and waits for its answer.  answered: *reply is the answer, which the caller owns.
 * Otherwise the worker has ended, and `why` tells how in words. */
enum qm_end qm_child_ask(struct qm_child *c, json_t *request, const struct qm_child_limits *limits,
                         json_t **reply, char *why, size_t size);

void qm_child_stop(struct qm_child *c); /* kills the worker; accepts a zeroed or stopped one */

#endif
