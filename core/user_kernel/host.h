/* host.h - A process that holds a user's kernel and nothing else, seen from the judge.
 *
 *     judge (this program)  --socket-->  warden (this program again)  --fork-->  host: the kernel
 *
 * The warden never loads the kernel.  It forks hosts, reaps all that a kernel starts, and tells how
 * a host ended.  The host gets arrays in shared memory (arena.h), a page of requests, one byte per
 * request; what it says decides nothing in the kernel's favour: results are judged in the judge's
 * copy of the arrays, ends and changes of the process are asked of the system.
 *
 * A host may end at any time.  The next step then starts a fresh one, with the same arrays. */
#ifndef QM_USER_KERNEL_HOST_H
#define QM_USER_KERNEL_HOST_H

#include "core/user_kernel/arena.h"

/* The ways in which a request ends. */
/* clang-format off */
#define QM_END_LIST(X)                                                         \
    X(answered,  "an answer came")                                             \
    X(crashed,   "the process died by a signal")                               \
    X(hung,      "no answer within the limit; it was killed")                  \
    X(memory,    "it used more memory than the limit; it was killed")          \
    X(left,      "the process ended by itself, with exit() or the like")       \
    X(processes, "it started more processes than the limit, or left some")     \
    X(garbage,   "it wrote to or closed the judge's descriptors; it was killed") \
    X(stopped,   "the user interrupted")
/* clang-format on */
enum qm_end {
#define X(name, text) QM_END_##name,
    QM_END_LIST(X)
#undef X
};
const char *qm_end_name(enum qm_end e);

struct qm_host_limits {
    double seconds;           /* of one case, and of loading the kernel; while the host waits for a
                               * processor they stand still */
    double mebibytes;         /* resident memory of the host and its descendants */
    int processes;            /* of descendants at one time */
    const volatile int *stop; /* not 0: stop waiting; may be NULL */
};

enum { QM_HOST_PLANS = 64, QM_HOST_NOTES = 4, QM_HOST_TEXT = 480 };

/* The first argument of this program as a warden; its main must call qm_host_main then. */
#define QM_HOST_WORD "--kernel-host"
int qm_host_main(void);

struct qm_host; /* opaque; of one thread at a time */

/* object: path of a shared object or cubin.  Nothing is started yet. */
qm_status qm_host_open(const char *object, const struct qm_host_limits *limits,
                       struct qm_host **out);
void qm_host_close(struct qm_host *h); /* ends its processes; accepts NULL */

/* Starts a host and loads the kernel, unless one is there.  QM_CHECK_FAILED: the process ended
 * (qm_host_end); other codes: the kernel cannot be loaded. */
qm_status qm_host_up(struct qm_host *h);
void qm_host_down(struct qm_host *h); /* ends the process; the next request starts a fresh one */
const char *qm_host_as(struct qm_host *h); /* what the kernel claims to be, or NULL */

/* A case begins: its time is counted from 0, its notes and its end are forgotten. */
void qm_host_begin(struct qm_host *h);
void qm_host_allow(struct qm_host *h, double seconds); /* of cases that begin from now on */

/* A case ends.  QM_CHECK_FAILED: processes that the kernel started go on; they are ended. */
qm_status qm_host_settle(struct qm_host *h);

/* Waits a moment for threads that go on after the last step.  QM_CHECK_FAILED: they ended
 * the process. */
qm_status qm_host_linger(struct qm_host *h);

/* How the process ended since qm_host_begin; answered: it did not. */
enum qm_end qm_host_end(const struct qm_host *h);
const char *qm_host_why(const struct qm_host *h); /* the same in words, or "" */

/* 1: since qm_host_begin the driver of a kernel on the GPU failed: its process ended or did not
 * answer, but for a launch that does not end, or a call had an error that no kernel causes.
 * Nothing is known of the kernel then. */
int qm_host_driver_failed(const struct qm_host *h);
int qm_host_signal(const struct qm_host *h); /* that it died by, or 0 */

/* Note i of what the steps since qm_host_begin left changed: "left the rounding mode changed",
 * or NULL. */
const char *qm_host_note(const struct qm_host *h, int i);
void qm_host_add_note(struct qm_host *h, const char *format, const char *what); /* one %s */

double qm_host_seconds(const struct qm_host *h); /* that the last step took */

/* Tells the host of an arena; *slot: its number, *base: where the host mapped it.  The arena must
 * stay until qm_host_unmap.  A mapping ends with its process: see qm_host_is_mapped. */
qm_status qm_host_map(struct qm_host *h, const struct qm_arena *a, int *slot, uint64_t *base);
void qm_host_unmap(struct qm_host *h, int slot);
int qm_host_is_mapped(const struct qm_host *h, int slot, const struct qm_arena *a);

/* Calls the kernel with the arguments at the start of part 0 of the arena in `slot`, whose pointers
 * are the host's.  keep_open: the arrays stay accessible, for measurements of time.  QM_SKIPPED: it
 * refuses; QM_CHECK_FAILED: a finding of the emulator, a fault of the kernel on the GPU, or the
 * process ended; QM_INTERNAL: qm_host_driver_failed. */
qm_status qm_host_step(struct qm_host *h, int slot, int keep_open);

/* Runs the case of n elements (large_index.h) for a recipe within these limits.  The host
 * itself compares there, so this case can fail a kernel, and its pass is the host's word.  *judged:
 * numbers compared, or QM_FAR_REFUSED. */
qm_status qm_host_large_index(struct qm_host *h, const char *recipe, int64_t n, double seconds,
                              double mebibytes, int64_t *judged);

#endif
