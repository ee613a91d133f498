/* threads.h - How many threads are worth having, and how one thread waits for another.
 *
 * A thread that waits sleeps in the kernel, since the thread that it waits for may need its
 * processor: where two threads share one, a wait that only spins lasts until the end of a time
 * slice, thousands of times longer than the work it waits for. */
#ifndef QM_BASE_THREADS_H
#define QM_BASE_THREADS_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/status.h"

/* The processors that this process may use, at least 1: those of its affinity mask, and not more
 * than its control groups' quota of processor time, rounded up.  The first call decides. */
int qm_processors(void);

/* The processors of the affinity mask alone. */
int qm_processors_allowed(void);

/* The least quota, in processors, of the control groups that `list` names (a file as
 * /proc/self/cgroup) and of the groups above them, of both versions; `root` is where they are
 * mounted (/sys/fs/cgroup).  0: there is no quota, or none can be read. */
double qm_processors_quota(const char *list, const char *root);

/* Makes qm_processors() the number of threads of OpenMP, unless OMP_NUM_THREADS is set.  A program
 * calls it first, with one thread. */
void qm_threads_default(void);

/* Whether OMP_NUM_THREADS, where it is set, begins with a number from 1 to 4096: the OpenMP library
 * ends the program where it cannot make the threads.  QM_BAD_ARG: it does not. */
qm_status qm_threads_check(void);

/* A count that one thread raises and one other thread waits for.  It begins as {0} and is counted
 * modulo 2^32. */
struct qm_count {
    _Alignas(64) _Atomic uint32_t done;
    _Atomic uint32_t asleep, wanted; /* asleep: 1 while the other thread sleeps until `wanted` */
};

/* Raises the count by 1.  What this thread wrote before is seen by who waits for it. */
void qm_count_raise(struct qm_count *c);

/* Returns when the count is at least `until`, which is at most 2^31 ahead.  The thread first spins
 * for some microseconds if `team` threads have a processor each.  Then it sleeps until the count is
 * at least `asleep_until` >= until: being waked costs more than a small step of the count. */
void qm_count_await(struct qm_count *c, uint32_t until, uint32_t asleep_until, int team);

#endif
