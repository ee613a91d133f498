/* worker.h - The process in which a kernel runs; its protocol is in wire.h. */
#ifndef QM_EXPERIMENTS_KERNEL_WORKER_H
#define QM_EXPERIMENTS_KERNEL_WORKER_H

enum { QM_WORKER_FD = 199 }; /* the socket to the parent; standard output belongs to the kernel */

/* Runs a worker until the parent closes the socket.  job: {"object": FILE.so, "as": RECIPE or null,
 * "against": FILE.so or null}.  Returns an exit code where it cannot start. */
int qm_worker_main(const char *job);

#endif
