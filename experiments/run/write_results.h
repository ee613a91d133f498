/* write_results.h - Turns the outcomes of a suite into its result file and the tables on stdout.
 *
 * Every result file of kind "run" is written here, whether the cells ran in one process or in many;
 * its content outside /provenance and /timing is therefore the same. */
#ifndef QM_RUN_WRITE_RESULTS_H
#define QM_RUN_WRITE_RESULTS_H

#include <jansson.h>

#include "experiments/run/claim.h"
#include "experiments/run/run_cells.h"

/* Options of qm_write_results, and its counts. */
struct qm_write_results {
    int headline, claims;                 /* print only headline tables; only the claims */
    int verdicts[QM_CLAIM_VERDICT_COUNT]; /* counts of expectations by verdict, increased */
    const volatile sig_atomic_t *stop;    /* set: QM_INTERRUPTED, no file is written; may be NULL */
    double started;                       /* qm_seconds() at the start of the run */
};

/* Computes the suite's tables, stores them with the outcomes, commits the store, and prints the
 * tables or, with --json, appends an object to `into`.  The store is closed on failure too.
 * QM_NO_MATCH: every cell was skipped; the file is written all the same. */
qm_status qm_write_results(struct qm_write_results *f, const struct qm_results *r,
                           struct qm_store *store, const char *path, json_t *into);

#endif
