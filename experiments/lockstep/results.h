/* results.h - The cells of a suite with their outcomes: what runs of them leave and tables read. */
#ifndef QM_LOCKSTEP_RESULTS_H
#define QM_LOCKSTEP_RESULTS_H

#include "experiments/lockstep/lockstep.h"

/* outcome[i] belongs to cell[i]. */
struct qm_results {
    const struct qm_suite *suite;
    struct qm_cell *cell;
    struct qm_outcome *outcome;
    double *seconds; /* [n_cells]: wall time of each cell */
    int64_t n_cells;
};

#endif
