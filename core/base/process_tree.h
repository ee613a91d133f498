/* process_tree.h - What the system knows of a process and its descendants (Linux, /proc). */
#ifndef QM_BASE_PROCESS_TREE_H
#define QM_BASE_PROCESS_TREE_H

#include <stddef.h>
#include <sys/types.h>

enum { QM_TREE_MOST = 4096, QM_PROCESS_STATE = 1536 };

/* The live descendants of a process, at most QM_TREE_MOST, parents first; zombies are left out but
 * their children are not.  Returns their number. */
int qm_process_descendants(pid_t pid, pid_t *out);

/* The children of a process, zombies too, at most QM_TREE_MOST.  Returns their number. */
int qm_process_children(pid_t pid, pid_t *out);

/* Kills and reaps the children of this process, with all that they started, but for the n of
 * keep[].  Where this process is a subreaper (PR_SET_CHILD_SUBREAPER) these are also what a child
 * has left behind. */
void qm_process_end_children(const pid_t *keep, int n);

double qm_process_resident(pid_t pid); /* resident memory in MiB; 0: unknown */

long qm_process_private(pid_t pid); /* resident memory that no file is behind, in KiB; 0: unknown */

/* Resident memory of a process and its descendants in MiB.  Where it seems to be above `most`,
 * pages that they share count once, which is slower to ask.  *descendants: their number. */
double qm_process_use(pid_t pid, double most, int *descendants);

int qm_process_threads(pid_t pid); /* 0: there is no such process */

/* Seconds that the threads of a process were ready to run and waited for a processor, their sum,
 * from /proc/PID/task/TID/schedstat; 0: unknown.  A thread that has ended no longer counts. */
double qm_process_delay(pid_t pid);

char qm_process_letter(pid_t pid); /* of the state: R, S, Z, T, ...; 0: there is no such process */

/* Writes the name of a signal, as sigabbrev_np of glibc 2.32 does. */
void qm_process_signal(int sig, char *text, size_t size);

/* Writes what a step must leave as it was, one "name\tvalue" a line: signal mask and handlers,
 * umask, working directory, resource limits. */
void qm_process_state(pid_t pid, char text[QM_PROCESS_STATE]);

/* Writes the name of the first line that differs to what[size], "" where none does. */
void qm_process_difference(const char *before, const char *now, char *what, size_t size);

/* Kills all descendants of a process until there are none; returns how many there were at first. */
int qm_process_end_descendants(pid_t pid);

/* A descriptor that is readable once the process has ended, or -1 where the system has none. */
int qm_process_watch(pid_t pid);

#endif
