/* empty_source.h - Source `empty`: cells without work, for measuring and testing the runner itself.
 *
 *     empty              values drawn from the cell's seed and number; runs under any coupling
 *     empty:sleep:MS     the same values after MS milliseconds
 *     empty:crash        the process dies by SIGSEGV
 *     empty:exit         the process exits with code 9
 *     empty:hang         the cell never ends
 *     empty:eat          the cell takes memory without end
 *     empty:error        the cell returns QM_INTERNAL
 *     empty:crash:FILE   the failure (also of exit, hang, eat and error) only while FILE exists
 *
 * `qualm list` does not list this source, because it says nothing about optimizers. */
#ifndef QM_LOCKSTEP_EMPTY_SOURCE_H
#define QM_LOCKSTEP_EMPTY_SOURCE_H

#include "experiments/lockstep/lockstep.h"

/* Fills out->value[], which the caller has allocated.  QM_BAD_ARG: an unknown word;
 * QM_INTERNAL: `error`. */
qm_status qm_empty_run(const struct qm_cell *c, struct qm_outcome *out);

#endif
