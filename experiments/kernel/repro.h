/* repro.h - Writes a reproducer: a shrunk failure as one C file that does not need this project.
 *
 * The file holds the interface's structs, the kernel's source (or the path of its shared object),
 * the inputs as hexadecimal floats, and the range that the oracle's bounds allow for the number in
 * question.  The program prints the expected and the actual result; it exits with 1 while they
 * differ, else 0. */
#ifndef QM_EXPERIMENTS_KERNEL_REPRO_H
#define QM_EXPERIMENTS_KERNEL_REPRO_H

#include "experiments/kernel/shrink.h"

struct qm_repro {
    const char *source; /* the kernel's .c file; NULL: an object is loaded */
    const char *object; /* the path of its shared object */
    const char *origin; /* "case ..., seed 1": the failing case */
    const char *path;   /* of the file that is written */
    const char *folder; /* temporary folder for compiling */
};

/* Writes the program, compiles it with warnings and runs it.  *verified 1: it compiles without a
 * warning and exits with 1.  QM_SKIPPED: a program cannot check this failure. */
qm_status qm_repro_write(struct qm_attempts *attempts, const struct qm_shrunk *s,
                         const struct qm_repro *r, int *verified);

#endif
