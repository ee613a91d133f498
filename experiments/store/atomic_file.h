/* atomic_file.h - a file that appears under its name whole or not at all.
 *
 * Bytes go to "<path>.<pid>.part" in the same folder; commit flushes them to the disk, renames, and
 * flushes the folder.  A file of that name keeps its old contents until then.  A killed process may
 * leave the temporary file behind; readers never look at it. */
#ifndef QM_STORE_ATOMIC_FILE_H
#define QM_STORE_ATOMIC_FILE_H

#include <stddef.h>

#include "core/base/status.h"

struct qm_atomic_file {
    char *path, *part;
    int fd; /* of part, locked; -1 when there is nothing to remove */
};

/* Makes the temporary file at once, so that an unwritable folder shows before a long run does.
 * QM_BAD_FILE: path is a folder, its folder is missing or not writable, or this path is being
 * written already by this process.  On failure nothing is held. */
qm_status qm_atomic_file_open(const char *path, struct qm_atomic_file *out);
qm_status qm_atomic_file_write(const struct qm_atomic_file *p, const void *bytes, size_t n);
qm_status qm_atomic_file_commit(struct qm_atomic_file *p); /* releases p where it succeeds */
void qm_atomic_file_abort(
    struct qm_atomic_file *p); /* removes the temporary file; accepts a released p */

#endif
