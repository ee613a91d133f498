/* cell_id.h - what names a cell, in whatever suite it stands. */
#ifndef QM_SUITE_CELL_ID_H
#define QM_SUITE_CELL_ID_H

#include "experiments/suite/suite.h"

enum { QM_CELL_ID = 17 }; /* bytes, the NUL included */

/* The first 16 hex digits of the SHA-256 of the cell's canonical text: recipe, slot, coupling,
 * source, tensor, seed, steps, n, every, and every axis that none of these stands for.  Neither its
 * place in the suite nor the order of keys nor labels matter.  (A skipped cell may have no full
 * recipe: its text is all its axes.)  Two cells of one suite may share an id where the suite asks
 * for the same twice. */
void qm_cell_id(const struct qm_suite *s, const struct qm_cell *c, char out[QM_CELL_ID]);

#endif
