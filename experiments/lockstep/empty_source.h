/* empty_source.h - source `empty`: cells that cost nothing, for measuring and testing the runner itself.
 *
 *     empty              values drawn from the cell's seed and number; runs under any coupling
 *     empty:sleep:MS     the same after so many milliseconds
 *     empty:crash        the process dies by SIGSEGV; :exit leaves with code 9; :hang never ends;
 *                        :eat takes memory without end; :error is a status that is not QM_OK
 *     empty:crash:FILE   (exit, hang ... too) only while FILE exists
 *
 * Not listed by `qualm list`: it says nothing about optimizers. */
#ifndef QM_LOCKSTEP_EMPTY_SOURCE_H
#define QM_LOCKSTEP_EMPTY_SOURCE_H

#include "experiments/lockstep/lockstep.h"

/* out->value[] is there.  QM_BAD_ARG: a word that is none of those above; QM_INTERNAL: `error`. */
qm_status qm_empty_run(const struct qm_cell *c, struct qm_outcome *out);

#endif
