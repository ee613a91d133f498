/* codebook_tables.h - the tables that the cells of a suite decide by, stored with their results. */
#ifndef QM_RUN_CODEBOOK_TABLES_H
#define QM_RUN_CODEBOOK_TABLES_H

#include "experiments/run/run_cells.h"

/* Writes /codebooks: for every map, search and round that a state of a cell uses, one row per
 * position of the sorted table, in the order of cells, each once.  Columns:
 *   map, search, round   "nf4:4s", "ladder", "mid"
 *   position, code       place in the sorted table; the code stored for it
 *   value                what it decodes to; the block's maximum is 1
 *   edge                 the smallest float32 that is given the next position
 *   midpoint             half way to the next value: where the nearest value changes
 * edge and midpoint are NaN at the last position; edge also under stochastic rounding and where
 * no value of the unit range gets the next position.  What lies between the two is not given its
 * nearest value.  Cells that were skipped and float32 states bring no rows. */
qm_status qm_codebooks_store(const struct qm_results *r, struct qm_store *store);

#endif
