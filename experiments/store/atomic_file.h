/* atomic_file.h - A file that appears under its name whole or not at all.
 *
 * Bytes are written to "<path>.<pid>.part" in the same folder; commit flushes them to the disk,
 * renames the file, and flushes the folder.  An existing file of that name keeps its contents until
 * then.  Of a symbolic link the target is replaced.  A killed process may leave the temporary file,
 * which no reader opens, and which the next one that opens `path` removes. */
#ifndef QM_STORE_ATOMIC_FILE_H
#define QM_STORE_ATOMIC_FILE_H

#include <stddef.h>

#include "core/base/status.h"

struct qm_atomic_file {
    char *path, *temporary;
    int fd; /* of the temporary file, locked; -1 when there is nothing to remove */
};

/* Makes the temporary file at once, so that an unwritable folder is found before a long run.
 * QM_BAD_FILE: path is a folder, its folder is missing or not writable, or this process is writing
 * path already.  On failure nothing is held. */
qm_status qm_atomic_file_open(const char *path, struct qm_atomic_file *out);
/* QM_BAD_FILE: no file can be made in the folder of `path`, by the value of errno; names both. */
qm_status qm_atomic_file_no_folder(const char *path, int error);
/* Makes the folders that path names before its last '/', which are not there. */
qm_status qm_make_folders(const char *path);
qm_status qm_atomic_file_write(const struct qm_atomic_file *p, const void *bytes, size_t n);
qm_status qm_atomic_file_commit(struct qm_atomic_file *p); /* releases p on success */
/* Removes the temporary file and releases p; accepts a released p. */
void qm_atomic_file_abort(struct qm_atomic_file *p);
/* Fails as qm_atomic_file_open does, and leaves nothing. */
qm_status qm_atomic_file_check(const char *path);

#endif
