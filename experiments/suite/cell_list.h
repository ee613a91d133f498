/* cell_list.h - Lists the cells of a suite as a table or as JSON. */
#ifndef QM_SUITE_CELL_LIST_H
#define QM_SUITE_CELL_LIST_H

#include <jansson.h>

#include "experiments/suite/suite.h"

/* Prints a table on stdout, a row per cell; with --json appends {suite, cells} to
 * `into` instead. */
void qm_cells_list(const struct qm_suite *s, const struct qm_cell *cells, int64_t n, json_t *into);

#endif
