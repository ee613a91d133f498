/* run_cells.h - what a suite's run leaves, and how it is stored (schema: results/README.md).
 *
 *     /cells     a row per cell: what it was, and whether it ran
 *     /axes      the same rows: the label of every axis of the suite
 *     /metrics   the same rows: every metric of oracle/metric/metric.h, then lockstep.h's
 *     /decades   count, mean_rel, rms_rel, zero_share [cells x 48] against the decade of |x|
 *     /unit_decades   the same against the decade of |x| / scale; no counts where scales are not
 *                of single elements (couplings other than oneshot, norms other than block, tensor)
 *     /codebooks the tables that the cells decide by (codebook_tables.h)
 *     /curves    cell (which cell each curve belongs to) and one ragged array per track
 *     /stairs    cell, and first hits of closed cells (protocol/stairs.h), ragged
 *     /summary   the suite's tables
 *     /suite     attributes title, question, plan (the suite in canonical form) */
#ifndef QM_RUN_RUN_CELLS_H
#define QM_RUN_RUN_CELLS_H

#include "experiments/lockstep/lockstep.h"
#include "experiments/store/store.h"

/* outcome[i] belongs to cell[i]. */
struct qm_results {
    const struct qm_suite *suite;
    struct qm_cell *cell;
    struct qm_outcome *outcome;
    double *seconds; /* of each cell */
    int64_t n_cells;
};

/* "ok", "skipped", "diverged", "failed". */
const char *qm_outcome_status(const struct qm_outcome *o);

/* Runs all cells with the given number of threads; outcome[] and seconds[] are filled in by index,
 * so the number of threads does not show.  progress 0: silent.  stop as in lockstep.h.  On failure
 * the message is that of the failed cell with the lowest index. */
qm_status qm_results_run(const struct qm_suite *suite, struct qm_cell *cells, int64_t n_cells,
                         int threads, int progress, const volatile sig_atomic_t *stop,
                         struct qm_results *out);
void qm_results_free(struct qm_results *r); /* not the cells */

/* Everything but /summary. */
qm_status qm_results_store(const struct qm_results *r, struct qm_store *store);

#endif
