/* read_set.h - The files that this program, or a process that it forked, has read tensors from.
 *
 * A checkpoint names other files (shards, external links), so that the command line alone does not
 * tell what is read.  Whoever replaces a file asks here first (experiments/store/atomic_file.c). */
#ifndef QM_BASE_READ_SET_H
#define QM_BASE_READ_SET_H

#include <sys/stat.h>

/* Begins to note files, of this process and of those that it forks afterwards; before it nothing is
 * noted, and no file was read. */
void qm_read_set_start(void);

/* Notes the regular file of a descriptor, by any thread. */
void qm_read_set_note(int fd);

/* 1: the file of this status was noted.  Beyond 2^17 different files every file counts as noted. */
int qm_read_set_has(const struct stat *info);

#endif
