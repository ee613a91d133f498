/* against.h - a result file beside an archive of other variants, pair by pair.
 *
 * Runs are paired where problem, seed, multiple of the learning rate, number of steps and
 * the double-precision twin agree: the twin is a function of problem, data, noise and
 * hyper-parameters alone.  Its start must agree to 1e-9, its final gap to 1e-6 in log10 (two builds
 * of libm may differ in last bits, and some problems amplify that).
 *
 * What is compared is d, log10 of the gap over the twin's: with equal twins, log10 of the ratio of
 * the two gaps.  Intervals, false discovery rate and verdicts as in protocol/stats.h, over seeds and
 * over all rows. */
#ifndef QM_REPORT_AGAINST_H
#define QM_REPORT_AGAINST_H

#include "experiments/store/result_reader.h"

/* Compares every label of `mine` that its suite names with every variant of `archive`, and writes the
 * result file `out` of kind "against" with
 *
 *     /against/pairs   problem, label, archive, lr_scale, n, mean, lo95, hi95, lo90, hi90, p, q, delta,
 *                      verdict: of label against archive, positive is worse
 *     /against/apart   problem, label, runs, reason: runs that found no partner, and what did not agree
 *
 * QM_NO_MATCH: one of them holds no paired campaign. */
qm_status qm_against_write(struct qm_result *mine, struct qm_result *archive, const char *out);

/* The archive that a word means: a path, or NAME for results/NAME.h5.  QM_NO_MATCH. */
qm_status qm_against_find(const char *word, char *path, size_t size);

/* Whether that file has runs to pair with.  QM_BAD_FILE, QM_NO_MATCH. */
qm_status qm_against_check(const char *path);

#endif
