/* cuda_apart.h - Gives what calls the driver a process of its own, because a driver may crash or
 * not return.
 *
 * The process notes each call of the driver in memory that it shares with its parent, so that the
 * parent can say in which call it ended, and end it where one call takes too long.  A process must
 * fork before it opens the driver itself. */
#ifndef QM_CUDA_CUDA_APART_H
#define QM_CUDA_CUDA_APART_H

#include <stddef.h>
#include <sys/types.h>

#include "core/base/status.h"

/* ---- calls that are under way ---------------------------------------------------------------- */

/* Notes that this thread calls the driver's function of that name, a literal, and (_over) that it
 * has returned, with its error, which is returned.  Nothing is noted in a process that nobody
 * watches. */
void qm_cuda_call(const char *name);
int qm_cuda_call_over(int error);

struct qm_cuda_calls; /* opaque: memory shared by a process and its watcher */

/* NULL: there is no memory, and nothing can be watched.  _note: calls of this process are noted
 * there from now on.  The page is unmapped by qm_cuda_calls_close, which accepts NULL. */
struct qm_cuda_calls *qm_cuda_calls_open(void);
void qm_cuda_calls_note(struct qm_cuda_calls *c);
void qm_cuda_calls_close(struct qm_cuda_calls *c);

/* A call of the driver that has not returned; NULL: there is none. */
const char *qm_cuda_calls_open_one(const struct qm_cuda_calls *c);

/* ---- processes ------------------------------------------------------------------------------- */

/* The seconds that one call of the driver may take: $QM_CUDA_LIMIT, a number from 0.01 to 1e6, 30
 * where that is not set.  QM_BAD_ARG: it is something else. */
qm_status qm_cuda_limit(double *seconds);

/* Forks a process that goes on with the program: there the function returns 1.  In this process it
 * returns 0 when the other has ended: *code is its exit code.  Signals that are sent to this
 * process reach the other.  QM_INTERNAL, as *st: the other crashed, or a call of the driver took
 * longer than qm_cuda_limit; the message names signal and call.  In a process that was forked like
 * this the function returns 1 and forks no more. */
int qm_cuda_apart(qm_status *st, int *code);

/* 1: this process was forked to call the driver; _set says so for a process forked by others. */
int qm_cuda_is_apart(void);
void qm_cuda_is_apart_set(void);

/* Has fill write one line to text[size] in a process of its own, within qm_cuda_limit.
 * QM_INTERNAL: it crashed or did not return, which the message says. */
qm_status qm_cuda_apart_text(void (*fill)(char *text, size_t size), char *text, size_t size);

#endif
