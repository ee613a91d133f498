/* report.h - a proof as JSON, and the table of many. */
#ifndef QM_EXPERIMENTS_PROVE_REPORT_H
#define QM_EXPERIMENTS_PROVE_REPORT_H

#include <jansson.h>

#include "experiments/prove/routine.h"

/* 1: the routine is what it claims to be: its own definition and the engine's edges inside its range
 * and for NaN, nothing that is no code anywhere; a foreign one is nearest inside its range besides. */
int qm_proof_holds(const struct qm_routine *r, const struct qm_record *p);

/* Everything about one proof; at most `most` intervals of each list.  The caller owns the object.
 * Codes are sorted positions: 0 is the lowest value. */
json_t *qm_proof_json(const struct qm_routine *r, const char *name, const struct qm_record *p,
                      double seconds, int most);

/* A line per proof, of objects that qm_proof_json made. */
void qm_proof_table(json_t *proofs);

#endif
