/* against.h - Compares the variants of a result file with those of an archive, pair by pair.
 *
 * Runs are paired where problem, seed, multiple of the learning rate, number of steps and the
 * double-precision twin agree: the twin is a function of problem, data, noise and hyper-parameters
 * alone.  Its start must agree to 1e-9, its final gap to 1e-6 in log10 (two builds of libm may
 * differ in last bits, and some problems amplify such differences).
 *
 * The compared number is d, log10 of the gap over the twin's gap; with equal twins, a difference of
 * d is log10 of the ratio of the two gaps.  Intervals and verdicts over seeds, and the false
 * discovery rate over all rows, are those of protocol/stats.h. */
#ifndef QM_REPORT_AGAINST_H
#define QM_REPORT_AGAINST_H

#include <jansson.h>

#include "experiments/report/grid.h"

/* Compares every label of `mine` that its suite names with every variant of `archive`, and writes
 * the result file `out` of kind "against" with
 *
 *     /against/pairs   problem, label, archive, lr_scale, n, mean, lo95, hi95, lo90, hi90, p, q,
 *                      delta, verdict, rates: of label against archive, positive is worse
 *     /against/apart   label, archive, runs, reason, problems: runs without a partner in an
 *                      archived variant, and what did not agree
 *     /against         attributes rates (at which the pairs ran, in words), advice, archived: how
 *                      many variants the archive has
 *
 * QM_NO_MATCH: one of the two files holds no paired campaign. */
qm_status qm_against_write(struct qm_result *mine, struct qm_result *archive, const char *out);

/* The verdicts of a file that qm_against_write wrote, counted over problems: {rates, advice,
 * archived, counts: [{label, archive, lr_scale, problems, and how many of these have each
 * verdict}]}; labels that are better most often come first. */
qm_status qm_against_counts(struct qm_result *pairs, json_t **out);

/* The counts as a table of a page, and on stdout, with the rates and how to be sure. */
qm_status qm_against_table(struct qm_result *pairs, struct qm_text_grid *out);
void qm_against_print(const json_t *counts, const char *archive);

#endif
