/* cuda_calls.h - The calls of the driver and of NVRTC that are under way in a process, for another
 * process that watches it.
 *
 * Both share a page.  A mad library may write there, so the watcher believes nothing: each record
 * carries a seal made of a number that the watcher has drawn, and a name is copied, bounded, before
 * it is read. */
#ifndef QM_CUDA_CUDA_CALLS_H
#define QM_CUDA_CUDA_CALLS_H

enum { QM_CUDA_CALL_NAME = 48, QM_CUDA_CALL_THREADS = 256 };

/* Notes that this thread calls the function of that name ("nvrtc..." of NVRTC, all others of the
 * driver; at most QM_CUDA_CALL_NAME - 1 letters, digits, underscores and spaces), and (_over) that
 * it has returned, with its error, which is returned.  Nothing is noted in a process that nobody
 * watches. */
void qm_cuda_call(const char *name);
int qm_cuda_call_over(int error);

struct qm_cuda_calls; /* opaque: the watcher's handle of the page */

/* NULL: there is no memory, and nothing can be watched.  _note: calls of this process are noted
 * there from now on; it was forked after _open, and a page that it had before is no longer its own.
 * _close accepts NULL. */
struct qm_cuda_calls *qm_cuda_calls_open(void);
void qm_cuda_calls_note(struct qm_cuda_calls *c);
void qm_cuda_calls_close(struct qm_cuda_calls *c);

/* A call that has not returned; 0: there is none, and name is "". */
int qm_cuda_calls_open_one(const struct qm_cuda_calls *c, char name[QM_CUDA_CALL_NAME]);

/* 1: somebody else than qm_cuda_call has written to the page. */
int qm_cuda_calls_are_damaged(const struct qm_cuda_calls *c);

/* What a watcher saw of each thread: the number of its call, and for how many seconds; zeroed at
 * first. */
struct qm_cuda_watch {
    unsigned state[QM_CUDA_CALL_THREADS];
    double seconds[QM_CUDA_CALL_THREADS];
};

/* `seconds` have passed since the last look.  1: a call has lasted for `limit` of them, or a call
 * of NVRTC for qm_cuda_call_factor times as many; name gets it. */
int qm_cuda_calls_late(const struct qm_cuda_calls *c, struct qm_cuda_watch *w, double seconds,
                       double limit, char name[QM_CUDA_CALL_NAME]);

/* How many times the limit a call may take: 10 for NVRTC, because it compiles, else 1. */
int qm_cuda_call_factor(const char *name);

#endif
