/* report.h - Reports proofs as JSON objects and as a table. */
#ifndef QM_EXPERIMENTS_PROVE_REPORT_H
#define QM_EXPERIMENTS_PROVE_REPORT_H

#include <jansson.h>

#include "experiments/prove/routine.h"

/* 1: the routine agrees with its definition and the engine's edges inside its range, with its
 * definition for NaN, and gives a code everywhere; a foreign routine is also nearest inside
 * its range. */
int qm_proof_holds(const struct qm_routine *r, const struct qm_record *p);

/* One proof as JSON, with at most `most` intervals of each list.  The caller owns the object.
 * Codes are sorted positions: 0 is the lowest value. */
json_t *qm_proof_json(const struct qm_routine *r, const char *name, const struct qm_record *p,
                      double seconds, int most);

/* Prints a row for each object of qm_proof_json. */
void qm_proof_table(json_t *proofs);

#endif
