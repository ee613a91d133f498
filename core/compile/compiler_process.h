/* compiler_process.h - Starts a compiler so that neither it nor what it starts outlives this
 * program.
 *
 * Between the two stands a keeper, a copy of this program that waits.  When this program ends, by
 * SIGKILL too, the kernel tells the keeper, which ends the compiler's process group: a driver such
 * as cc starts others, which no signal at the driver's death would reach. */
#ifndef QM_COMPILE_COMPILER_PROCESS_H
#define QM_COMPILE_COMPILER_PROCESS_H

#include <sys/types.h>

/* Starts argv[0], found in PATH, with these descriptors as its standard output and error.
 * Returns 0, or errno.  *pid: of the keeper, which ends with the compiler's exit code, or by
 * SIGKILL where a signal ended that. */
int qm_compiler_start(char *const *argv, int out, int err, pid_t *pid);

#endif
