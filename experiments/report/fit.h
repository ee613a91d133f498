/* fit.h - Checks that the tables and curves of a result file fit one another. */
#ifndef QM_REPORT_FIT_H
#define QM_REPORT_FIT_H

#include "experiments/report/listing.h"
#include "experiments/store/result_reader.h"

/* Checks what a page, its figures and `qualm plot` take for granted, before any of them is made:
 * /cells, /axes, /metrics, /curves, /stairs and the tables of /protocol are what results/README.md
 * says, have the columns that are always there with values of their types, one row per cell where
 * that is due, and name only cells that are there.  What a file lacks as a whole is not asked for.
 * QM_BAD_FILE: what, where, and what was expected. */
qm_status qm_fit_check(struct qm_result *r, const char *path, const struct qm_listing *listing);

#endif
