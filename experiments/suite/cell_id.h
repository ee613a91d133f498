/* cell_id.h - The id of a cell: a hash that is equal for the same experiment in any suite. */
#ifndef QM_SUITE_CELL_ID_H
#define QM_SUITE_CELL_ID_H

#include "experiments/suite/suite.h"

enum { QM_CELL_ID = 17 }; /* bytes, the NUL included */

/* Writes the first 16 hex digits of the SHA-256 of the cell's canonical text: recipe, slot,
 * coupling, source, tensor, seed, steps, n, every, and every axis that none of these covers.  The
 * cell's place in the suite, the order of keys and labels do not matter.  (A skipped cell may have
 * no full recipe; its text holds all its axes.)  Two cells of one suite share an id where the suite
 * asks for the same experiment twice. */
void qm_cell_id(const struct qm_suite *s, const struct qm_cell *c, char out[QM_CELL_ID]);

#endif
