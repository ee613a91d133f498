/* repro.h - a shrunk failure as one C file that needs nothing of this project.
 *
 * It holds the interface's structs, the candidate's source (or the path of its shared object), the
 * inputs as hexadecimal floats, and what the oracle's bounds allow for the number in question.  It
 * prints expected and got, and exits 1 while they differ, 0 once they do not. */
#ifndef QM_EXPERIMENTS_KERNEL_REPRO_H
#define QM_EXPERIMENTS_KERNEL_REPRO_H

#include "experiments/kernel/shrink.h"

struct qm_repro {
    const char *source; /* the kernel's .c file; NULL: an object is loaded */
    const char *object; /* which one; NULL: the lab's, which the user gave */
    const char *origin; /* "case ..., seed 1": where it was found */
    const char *path;   /* to be written */
    const char *folder; /* where it may be compiled */
};

/* Writes it, compiles it with warnings and runs it: *verified 1 where it compiles without any and
 * exits 1.  QM_SKIPPED: this failure cannot be told by such a program. */
qm_status qm_repro_write(struct qm_forked_trial *lab, const struct qm_shrunk *s,
                         const struct qm_repro *r, int *verified);

#endif
