/* sealed_file.h - Compiled code in the cache, with a hash that is verified before it is loaded.
 *
 * A sealed file is a file with a line of 80 bytes after its end, which the loader of shared objects
 * ignores: "\nqualm-sealed " and the SHA-256 of the file's name in the cache and its bytes.  Only
 * the user's own files that no other can write to count. */
#ifndef QM_COMPILE_SEALED_FILE_H
#define QM_COMPILE_SEALED_FILE_H

#include <sys/stat.h>

#include "core/base/status.h"

/* Copies the file `from` to the new file `to`, for this user alone, and seals it under name. */
qm_status qm_sealed_copy(const char *from, const char *to, const char *name);

/* Whether path is a regular file of this user that others cannot write to, sealed under name. */
int qm_sealed_is_good(const char *path, const char *name);

/* Whether a file or folder is this user's, and nobody else's to write to. */
int qm_own_alone(const struct stat *s);

#endif
