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

#include "experiments/store/result_reader.h"

/* Compares every label of `mine` that its suite names with every variant of `archive`, and writes
 * the result file `out` of kind "against" with
 *
 *     /against/pairs   problem, label, archive, lr_scale, n, mean, lo95, hi95, lo90, hi90, p, q,
 *                      delta, verdict: of label against archive, positive is worse
 *     /against/apart   problem, label, runs, reason: runs without a partner, and what did not agree
 *
 * QM_NO_MATCH: one of the two files holds no paired campaign. */
qm_status qm_against_write(struct qm_result *mine, struct qm_result *archive, const char *out);

/* Sets path to the archive of a word: a path, or NAME for results/NAME.h5.  QM_NO_MATCH. */
qm_status qm_against_find(const char *word, char *path, size_t size);

/* Checks that the file has runs to pair with.  QM_BAD_FILE, QM_NO_MATCH. */
qm_status qm_against_check(const char *path);

#endif
