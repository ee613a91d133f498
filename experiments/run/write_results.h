/* write_results.h - from outcomes to the one results file and the tables on stdout.
 *
 * The only way a results file of kind "run" comes about, whether the cells ran in this process or
 * in many: so all of it outside /provenance and /timing is the same. */
#ifndef QM_RUN_WRITE_RESULTS_H
#define QM_RUN_WRITE_RESULTS_H

#include <jansson.h>

#include "experiments/run/claim.h"
#include "experiments/run/run_cells.h"

/* What is printed, and what comes of it. */
struct qm_write_results {
    int headline, claims;                 /* print only those tables; only the claims */
    int verdicts[QM_CLAIM_VERDICT_COUNT]; /* of expectations: added to */
    const volatile sig_atomic_t *stop; /* not 0: QM_INTERRUPTED, nothing is written; may be NULL */
    double started;                    /* qm_seconds() */
};

/* Makes the suite's tables, stores all, commits the store (which is gone whatever comes out), prints
 * the tables, or with --json appends an object to `into`.  QM_NO_MATCH: every cell was skipped (the
 * file is there). */
qm_status qm_write_results(struct qm_write_results *f, const struct qm_results *r,
                           struct qm_store *store, const char *path, json_t *into);

#endif
