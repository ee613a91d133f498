/* file_mark.h - Notices that a file changed while it was read, and maps files so that this is safe.
 *
 * A file is marked when it is opened, and compared with its mark after every read: what was read
 * counts only where the file still has its size and its times of modification and, where it has as
 * many names as before, of its inode's change. */
#ifndef QM_FOREIGN_FILE_MARK_H
#define QM_FOREIGN_FILE_MARK_H

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "core/base/status.h"

/* Which file it is, and what it was when it was opened. */
struct qm_file_mark {
    int fd; /* what qm_file_mark_check looks at; -1: nothing, so that it finds no change */
    dev_t dev;
    ino_t ino;
    nlink_t names; /* in folders */
    off_t size;
    struct timespec modified, changed; /* changed: of its inode; nobody can set it back */
};

/* A mark of no file. */
#define QM_FILE_MARK_NONE ((struct qm_file_mark){.fd = -1})

/* Marks an open file; the mark holds fd, and does not own it.  0: fstat failed, with errno. */
int qm_file_mark_take(int fd, struct qm_file_mark *out);

/* QM_BAD_FILE with "PATH: became shorter than ..." or "PATH: changed while it was read". */
qm_status qm_file_mark_check(const struct qm_file_mark *m, const char *path);

/* As qm_file_mark_check, of the file that a path or another descriptor leads to now: it has to be
 * the marked one.  Where fd is -1 the path is followed. */
qm_status qm_file_mark_check_other(const struct qm_file_mark *m, const char *path, int fd);

/* Whether two marks are of the same file in the same state. */
int qm_file_mark_equal(const struct qm_file_mark *a, const struct qm_file_mark *b);

/* QM_BAD_FILE: the file became shorter than the mark's size, or its disk failed. */
qm_status qm_file_mark_lost(const struct qm_file_mark *m, const char *path);

/* A read-only mapping.  A page that the file no longer has, or that the disk fails to give, reads
 * as zeros instead of ending the program by SIGBUS, and is remembered. */
struct qm_mapping;

/* Maps the first size >= 1 bytes.  NULL with errno. */
struct qm_mapping *qm_mapping_open(int fd, size_t size);
void qm_mapping_close(struct qm_mapping *m); /* accepts NULL */
const unsigned char *qm_mapping_bytes(const struct qm_mapping *m);
int qm_mapping_has_lost(const struct qm_mapping *m); /* accepts NULL: 0 */

#endif
