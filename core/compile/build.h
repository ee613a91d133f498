/* build.h - what compiling kernels shares: the compiler's argv, running it, the texts that travel
 * with the executable. */
#ifndef QM_COMPILE_BUILD_H
#define QM_COMPILE_BUILD_H

#include <sys/types.h>

#include "core/base/status.h"

enum { QM_BUILD_WORDS = 96 };

/* A command line: words of strings that the caller keeps. */
struct qm_command {
    int n;
    char *argv[QM_BUILD_WORDS + 1];
};

/* Adds the blank-separated words of text, which is cut in place; too many are left out. */
void qm_command_words(struct qm_command *c, char *text);
void qm_command_add(struct qm_command *c, const char *word);

/* Runs it, its standard output on ours for errors.  QM_BAD_ARG: it cannot be run (hint: what to do), or
 * it finds `source` wrong. */
qm_status qm_command_run(struct qm_command *c, const char *source, const char *hint);
qm_status qm_command_start(struct qm_command *c, const char *hint, pid_t *pid);
qm_status qm_command_wait(const struct qm_command *c, pid_t pid, const char *source);

/* A whole file and a NUL behind it, which the caller frees; size: without that. */
qm_status qm_build_read(const char *path, char **out, size_t *size);

/* Makes the folders that a file's name goes through. */
qm_status qm_text_folder(const char *folder, const char *name);

/* One of the texts of qm_kernel_file_text, or of core/emu, as a file of a folder; name may go through
 * folders, which are made. */
qm_status qm_text_write(const char *folder, const char *name);

/* A CUDA source for backend emu: see qm_kernel_file_build.  flags: more of the compiler's, or "". */
qm_status qm_emu_build(const char *source, const char *folder, const char *flags, char *object,
                       size_t size);

#endif
