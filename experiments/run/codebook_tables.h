/* codebook_tables.h - Stores the codebooks of a suite's cells and their decision edges. */
#ifndef QM_RUN_CODEBOOK_TABLES_H
#define QM_RUN_CODEBOOK_TABLES_H

#include "experiments/run/run_cells.h"

/* Writes /codebooks: for every combination of map, search and round that a state of a cell uses,
 * one row per position of the sorted table, in the order of cells.  Columns:
 *   map, search, round   "nf4:4s", "ladder", "mid"
 *   position, code       index in the sorted table; the code stored for it
 *   value                the decoded value; the block's maximum is 1
 *   edge                 the smallest float32 that is encoded as the next position
 *   midpoint             the middle between this value and the next, where the nearest changes
 * edge and midpoint are NaN at the last position; edge also under stochastic rounding and where no
 * value of the unit range is encoded as the next position.  Numbers between edge and midpoint are
 * not encoded as their nearest value.  Skipped cells and float32 states have no rows. */
qm_status qm_codebooks_store(const struct qm_results *r, struct qm_store *store);

#endif
