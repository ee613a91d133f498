/* includes.h - The files that a CUDA source includes, for the key of a compiled kernel. */
#ifndef QM_COMPILE_INCLUDES_H
#define QM_COMPILE_INCLUDES_H

#include "core/base/status.h"

/* Hashes the names and contents of all files that a source includes, directly or not.  path, text:
 * the source; options: the compiler's, ended by NULL, whose -I and --include-path name folders.
 * Every #include counts, also one that a condition leaves out.  What is found nowhere (a header
 * that the compiler brings along) does not count.
 *
 * *is_whole: 0 where the files cannot be told without a preprocessor (#include MACRO,
 * __has_include, raw strings, an option that includes a file): such a kernel is not to
 * be cached. */
qm_status qm_includes_hash(const char *path, const char *text, const char *const *options,
                           char hex[65], int *is_whole);

#endif
