/* repro_text.h - the parts of a reproducer that do not depend on its inputs; how data are spelled. */
#ifndef QM_EXPERIMENTS_KERNEL_REPRO_TEXT_H
#define QM_EXPERIMENTS_KERNEL_REPRO_TEXT_H

#include "experiments/kernel/forked_trial.h"

/* The kernel's source; where it includes kernel_abi.h, that header without its comments.  Other files
 * that it includes by quotes get absolute paths.  is_quiet: warnings about it are turned off. */
qm_status qm_repro_source(FILE *f, const char *path, int is_quiet);

/* The same header, and a qm_kernel_step that calls the shared object's. */
qm_status qm_repro_object(FILE *f, const char *object);

/* "static const float repro_NAME[calls][n] = {", whose length is returned, and one row of it, from this
 * column on.  type: f float; 1, 2, 4 unsigned integers of so many bytes. */
int qm_repro_array(FILE *f, const char *name, char type, int calls, int64_t n);

/* The same of an array in main that the step gets itself: "    _Alignas(64) static float ... = ". */
int qm_repro_own(FILE *f, const char *name, char type, int64_t n, int is_const);
void qm_repro_row(FILE *f, char type, const void *x, int64_t n, int column);

/* Text within a comment, in lines. */
void qm_repro_comment(FILE *f, const char *text);

/* Where the buffers lie: anywhere; between pages that are not mapped; so, and in a list that can be
 * looked through afterwards. */
enum qm_repro_memory { QM_REPRO_PLAIN, QM_REPRO_GUARDED, QM_REPRO_LISTED };
enum qm_repro_memory qm_repro_memory(const struct qm_attempt *o);

void qm_repro_includes(FILE *f, const struct qm_attempt *o, int is_direct);

/* The function that makes one. */
void qm_repro_place(FILE *f, enum qm_repro_memory memory);

/* Ends of main.  repeat is a format: %d is twice the calls. */
extern const char *const qm_repro_died,
    *const qm_repro_outside, *const qm_repro_layer, *const qm_repro_mode, *const qm_repro_repeat;

#endif
