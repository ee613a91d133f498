/* cell_table.h - Finds the cell of a list that makes the same run as another. */
#ifndef QM_SUITE_CELL_TABLE_H
#define QM_SUITE_CELL_TABLE_H

#include "experiments/suite/suite.h"

/* Open addressing over indices of cells, of 5.4 to 10.7 bytes a cell.  All zero: an empty one; free
 * at with free(). */
struct qm_cell_table {
    uint32_t *at; /* [size]; 0: free */
    int64_t size; /* a power of two */
    int64_t n;
};

/* Adds cell[i], when cells 0 to i - 1 have been offered before.  *same: the index of the first cell
 * that makes its run, with the same recipe, source, seeds and training; i where there is none, and
 * only then is it in the table.  Recipes and source texts of the cells are shared (shared.h), and
 * cell[i] may be replaced when it was not taken.  QM_NO_MEMORY. */
qm_status qm_cell_table_add(struct qm_cell_table *t, const struct qm_cell *cell, int64_t i,
                            int64_t *same);

#endif
