/* worker.h - the child process in which a kernel runs; see wire.h for what it says. */
#ifndef QM_EXPERIMENTS_KERNEL_WORKER_H
#define QM_EXPERIMENTS_KERNEL_WORKER_H

enum { QM_WORKER_FD = 199 }; /* the socket to the parent; standard output is the kernel's own */

/* job: {"object": FILE.so, "as": RECIPE or null, "against": FILE.so or null}.  Returns an exit code
 * when the parent hangs up. */
int qm_worker_main(const char *job);

#endif
