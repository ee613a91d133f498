/* run_cells.h - Runs all cells of a suite and stores their outcomes (schema: results/README.md).
 *
 *     /cells          a row per cell: its recipe, source, seed and status
 *     /axes           a row per cell: the label of every axis of the suite
 *     /metrics        a row per cell: every metric of oracle/metric/metric.h, then QM_EXTRA_LIST of
 *                     lockstep.h
 *     /decades        count, mean_rel, rms_rel, zero_share [cells x 48] against the decade of |x|
 *     /unit_decades   the same four against the decade of |x| / scale; counts are 0 where no scale
 *                     belongs to an element (couplings other than oneshot, norms other than block
 *                     and tensor)
 *     /codebooks      the codebooks of the cells and their decision edges (codebook_tables.h)
 *     /curves         cell (the cell of each curve) and one ragged array per track
 *     /stairs         cell, and hitting times of closed cells (lockstep/hitting_times.h), ragged
 *     /summary        the suite's tables (write_results.h)
 *     /suite          attributes title, question, plan (the suite in canonical form) */
#ifndef QM_RUN_RUN_CELLS_H
#define QM_RUN_RUN_CELLS_H

#include "experiments/lockstep/results.h"
#include "experiments/store/store.h"

/* "ok", "skipped", "diverged", "failed". */
const char *qm_outcome_status(const struct qm_outcome *o);

/* The status of these with that text, as a static string; NULL: none has it (text may be NULL). */
const char *qm_outcome_status_of(const char *text);

/* Runs all cells with the given number of threads.  The outcomes do not depend on that number.
 * progress 0: silent.  stop as in lockstep.h.  On failure the message is that of the failed cell
 * with the lowest index. */
qm_status qm_results_run(const struct qm_suite *suite, struct qm_cell *cells, int64_t n_cells,
                         int threads, int progress, const volatile sig_atomic_t *stop,
                         struct qm_results *out);
void qm_results_free(struct qm_results *r); /* does not free the cells */

/* Stores all groups above but /summary. */
qm_status qm_results_store(const struct qm_results *r, struct qm_store *store);

#endif
