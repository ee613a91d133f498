/* interrupt.h - What a signal that ends the program leaves behind: nothing that is half made.
 *
 * Files under temporary names and temporary folders are noted while they are there.  SIGINT and
 * SIGTERM, where a command does not handle them itself, remove what is noted, end what is noted of
 * processes, and end the program with the code of QM_INTERRUPTED: the same command does its work
 * anew.  A process that was forked removes nothing of its parent's. */
#ifndef QM_BASE_INTERRUPT_H
#define QM_BASE_INTERRUPT_H

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

/* From now on SIGINT and SIGTERM end the process as above, unless they are ignored. */
void qm_interrupt_handle(void);

/* Notes a file or a folder that is removed, with all in it, when a signal ends the process; forgets
 * it once it has its name, or is gone.  Of more than 64 at once, or longer than PATH_MAX, the
 * others are not noted. */
void qm_interrupt_note(const char *path);
void qm_interrupt_forget(const char *path);

/* Makes and notes TMPDIR/qualm-STEM-PID-XXXXXX (in /tmp where TMPDIR is not set, or too long for
 * the room), and removes those of this stem that killed processes of this user have left.  NULL
 * with errno. */
char *qm_interrupt_folder(char *room, size_t size, const char *stem);

/* Whether the digits [digits, end) are the id of a process that is no more. */
int qm_interrupt_is_dead(const char *digits, const char *end);

/* The process that is killed before files are removed, with its group where it leads one; 0: none.
 * The caller holds SIGINT and SIGTERM back from before it starts the process until here. */
void qm_interrupt_child(pid_t pid);

/* While the program waits for a file that may have no end, a signal ends it, also where a command
 * handles signals by looking at a flag later.  `end` puts back what `begin` found. */
struct qm_interrupt_wait {
    struct sigaction was[2];
};
void qm_interrupt_wait_begin(struct qm_interrupt_wait *w);
void qm_interrupt_wait_end(const struct qm_interrupt_wait *w);

#endif
