/* repro_text.h - Writes the input-independent parts of a reproducer, and arrays as C. */
#ifndef QM_EXPERIMENTS_KERNEL_REPRO_TEXT_H
#define QM_EXPERIMENTS_KERNEL_REPRO_TEXT_H

#include "experiments/kernel/attempt.h"

/* Writes the kernel's source.  kernel_abi.h replaces the line that includes it, without its
 * comments; other files that are included by quotes get absolute paths.  is_quiet: warnings of the
 * source are turned off. */
qm_status qm_repro_source(FILE *f, const char *path, int is_quiet);

/* Writes kernel_abi.h, and a qm_kernel_step that calls the shared object's qm_kernel_step. */
qm_status qm_repro_object(FILE *f, const char *object);

/* Writes "static const float repro_NAME[calls][n] = {" and returns its length.  type: f for float;
 * 1, 2, 4 for unsigned integers of 1, 2, 4 bytes. */
int qm_repro_array(FILE *f, const char *name, char type, int calls, int64_t n);

/* Writes "    _Alignas(64) static float repro_NAME[n] = " and returns its length: an array of main
 * that the step receives itself. */
int qm_repro_own(FILE *f, const char *name, char type, int64_t n, int is_const);

/* Writes n numbers in braces, from this column on. */
void qm_repro_row(FILE *f, char type, const void *x, int64_t n, int column);

/* Writes text within a comment, broken into lines. */
void qm_repro_comment(FILE *f, const char *text);

/* The memory of the buffers: from the heap; between pages that are not mapped; between such pages,
 * and in a list that is searched after the step. */
enum qm_repro_memory { QM_REPRO_PLAIN, QM_REPRO_GUARDED, QM_REPRO_LISTED };
enum qm_repro_memory qm_repro_memory(const struct qm_kernel_verdict *o);

void qm_repro_includes(FILE *f, const struct qm_kernel_verdict *o, int is_direct);

/* Writes the function that allocates a buffer and, where is_repeated is 1, one that releases all
 * buffers. */
void qm_repro_place(FILE *f, enum qm_repro_memory memory, int is_repeated);

/* The last lines of main, by the finding.  qm_repro_repeat is a format; its %d is twice the number
 * of calls. */
extern const char *const qm_repro_died,
    *const qm_repro_outside, *const qm_repro_layer, *const qm_repro_mode, *const qm_repro_repeat;

#endif
