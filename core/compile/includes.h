/* includes.h - The files that a CUDA source includes, for the key of a compiled kernel. */
#ifndef QM_COMPILE_INCLUDES_H
#define QM_COMPILE_INCLUDES_H

#include "core/base/status.h"

enum { QM_INCLUDES_WHY = 256 };

/* Hashes the names and contents of all files that a source includes, directly or not.  path, text:
 * the source; options: the compiler's, ended by NULL, whose -I and --include-path name folders.
 * Every #include counts, also one that a condition leaves out.  What is found nowhere (a header
 * that the compiler brings along) does not count.
 *
 * What counts is #include, also as %:include, with a name that is written out.  why: "", or, where
 * the files cannot be told without a preprocessor, what stands in the way: #include MACRO,
 * #include_next, #import, #embed, __has_include, raw strings, trigraphs, an option that includes a
 * file.  Such a kernel is not to be cached. */
qm_status qm_includes_hash(const char *path, const char *text, const char *const *options,
                           char hex[65], char why[QM_INCLUDES_WHY]);

#endif
