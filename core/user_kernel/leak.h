/* leak.h - Whether a process keeps more memory with every call. */
#ifndef QM_USER_KERNEL_LEAK_H
#define QM_USER_KERNEL_LEAK_H

#include <sys/types.h>

/* Private memory of a process, sampled after every 1024 calls of one plan with none of another in
 * between.  Starts as {0}. */
struct qm_leak {
    pid_t pid;
    int slot, calls, growths;
    long kib;
};

#define QM_LEAK_TEXT "24 KiB or more were added by each of three times 1024 calls of one tensor"

/* Counts a call of the plan in `slot` in process pid.  Returns 1 once each of three samples in a
 * row is larger by 24 KiB or more than the one before, which 24 bytes a call are: the least that
 * malloc takes is 32.  0 where the system does not tell. */
int qm_leak_grows(struct qm_leak *l, pid_t pid, int slot);

#endif
