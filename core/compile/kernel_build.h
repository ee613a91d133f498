/* kernel_build.h - Builds a kernel's source into a shared object by the system's compiler. */
#ifndef QM_COMPILE_KERNEL_BUILD_H
#define QM_COMPILE_KERNEL_BUILD_H

#include <sys/types.h>

#include "core/base/status.h"

/* Compiles a user's kernel file into `folder`/kernel.so, whose path goes to object[size].
 *
 * A C source is compiled by $CC (cc where that is blank) with -std=c11 -O2 -ffp-contract=off and
 * the words of $CFLAGS; kernel_abi.h and kernel_nearest.h are written into `folder` first.  A .cu
 * source is built for backend emu (qm_emu_build).  The compiler's messages go to stderr.
 * QM_BAD_ARG: the compiler cannot be run or finds an error; QM_BAD_FILE: source or folder cannot
 * be used. */
qm_status qm_kernel_file_build(const char *source, const char *folder, char *object, size_t size);

/* 1: C sources are compiled with -fwrapv from now on.  Without it the compiler may widen an int
 * index that overflows, which hides the fault from a run (core/user_kernel/large_index.h). */
void qm_kernel_build_wraps(int wraps);

/* Builds a CUDA source for backend emu into `folder`/kernel.so, with $CXX (c++ where that is blank)
 * and the words of $CXXFLAGS; form: flags for the kernel itself, or ""; it also gets what
 * qm_cuda_flags_emulated takes.  Statuses as above; QM_BAD_ARG too for CUDA that cannot be emulated
 * (core/emu/emu_rewrite.h). */
qm_status qm_emu_build(const char *source, const char *folder, const char *form, char *object,
                       size_t size);

/* ---- contraction of a user's CUDA source ----------------------------------------------------- */

/* nvcc and NVRTC make a product and a sum one fused operation, unless they get --fmad=false.  So a
 * user's CUDA source has two forms. */
enum qm_fmad { QM_FMAD_true, QM_FMAD_false, QM_FMADS };

/* The form that qm_kernel_file_build and qm_user_cuda_build compile from now on; at
 * first QM_FMAD_false. */
void qm_fmad_use(enum qm_fmad form);
enum qm_fmad qm_fmad_used(void);

/* "contracted (--fmad=true)" */
const char *qm_fmad_text(enum qm_fmad form);

/* Which forms are to be judged: has[form] is 1 for each.  option: "true" or "false" of an option
 * --fmad, or NULL; then the last --fmad or -fmad among the words of $CUDAFLAGS; else both.
 * QM_BAD_ARG: $CUDAFLAGS is wrong (qm_cuda_flags). */
qm_status qm_fmad_asked(const char *option, int has[QM_FMADS]);

/* 1: this processor and compiler can run contracted code on backend emu. */
int qm_fmad_emulated(void);

/* The lines that the last build in form QM_FMAD_true for backend emu contracted, as
 * "mine.cu:20: TEXT" with a newline between them; "": none, so that the two forms are the same. */
const char *qm_fmad_lines(void);

/* Reads a whole file; a NUL follows its bytes.  The caller frees *out; *size does not count
 * the NUL. */
qm_status qm_build_read(const char *path, char **out, size_t *size);

/* ---- words of command lines ------------------------------------------------------------------ */

/* What variables may hold, and what there is room for beside it: the program's own words. */
enum { QM_BUILD_WORDS = 96, QM_BUILD_OWN = 64, QM_BUILD_TEXT = 8192, QM_BUILD_OWN_TEXT = 2048 };

/* Words that a program is started with.  wrong: why they cannot be used, or "". */
struct qm_argv {
    int n, n_own;
    size_t used;
    char *argv[QM_BUILD_WORDS + QM_BUILD_OWN + 1];
    char wrong[120], text[QM_BUILD_TEXT + QM_BUILD_OWN_TEXT]; /* of qm_argv_words */
};

/* Adds the words of text, which a variable of that name holds, split as a shell does: at blanks and
 * ends of lines, but not within '...' and "..." or after a backslash, which within "..." keeps its
 * meaning before a double quote and a backslash alone.  NULL is no text.  An open quote, or more
 * words or bytes than there is room for, is `wrong`, which names the variable, and which the next
 * function that returns a status says.  name NULL: the program's own words. */
void qm_argv_words(struct qm_argv *c, const char *name, const char *text);

/* Adds one word, which the caller keeps; name: the variable that it comes from, or NULL. */
void qm_argv_add(struct qm_argv *c, const char *name, const char *word);

/* Adds the words of the variable `name`, or, where it is not set or blank, the word `usual`. */
void qm_argv_compiler(struct qm_argv *c, const char *name, const char *usual);

/* QM_BAD_ARG: the words are wrong. */
qm_status qm_argv_status(const struct qm_argv *c);

/* Runs the compiler and waits for it; or starts it, and waits later.  Its standard output
 * goes to stderr.  QM_BAD_ARG: it cannot be run (hint: what the user can do), or it finds
 * `source` wrong. */
qm_status qm_argv_run(struct qm_argv *c, const char *source, const char *hint);
qm_status qm_argv_start(struct qm_argv *c, const char *hint, pid_t *pid);
qm_status qm_argv_wait(const struct qm_argv *c, pid_t pid, const char *source);

/* Runs a program without its messages and returns its exit code; -1: it cannot be run, or a signal
 * ended it.  text[size] gets the beginning of its standard output; NULL: nobody reads that. */
int qm_argv_ask(struct qm_argv *c, char *text, size_t size);

/* ---- $CUDAFLAGS ------------------------------------------------------------------------------ */

/* Adds the words of $CUDAFLAGS but for --fmad and -fmad with their values, which the form says;
 * *fmad: the last of these values, or NULL; may be NULL.  A value that is neither true nor false is
 * wrong. */
void qm_cuda_flags(struct qm_argv *c, const char **fmad);

/* The words of $CUDAFLAGS on backend emu: `taken` gets folders (-I, --include-path) and macros (-D,
 * -U, --define-macro, --undefine-macro) as the C++ compiler wants them; left[size] the others, but
 * for --fmad, and folders with CUDA's own headers, for which texts of core/emu stand in. */
void qm_cuda_flags_emulated(struct qm_argv *taken, char *left, size_t size);

#endif
