/* cell_table.h - Finds the cell of a list that makes the same run as another. */
#ifndef QM_SUITE_CELL_TABLE_H
#define QM_SUITE_CELL_TABLE_H

#include "experiments/suite/suite.h"

/* Open addressing over indices of cells, of 4.6 to 9.2 bytes a cell. */
struct qm_cell_table {
    uint32_t *at; /* [size]: 1 + the index of a cell; 0: free */
    int64_t size; /* a power of two */
    int64_t n;
};

/* *same: the index of the first cell of the table that makes the run of cell[i], with the same
 * recipe, source, seeds and training; i itself, which is added then, where there is none.  cell
 * holds the cells of the table; their recipes and source texts are shared (shared.h).
 * QM_NO_MEMORY. */
qm_status qm_cell_table_add(struct qm_cell_table *t, const struct qm_cell *cell, int64_t i,
                            int64_t *same);

#endif
