/* claim.h - Judges whether a suite's cells show what a claim of the literature says.
 *
 *     {value: sqnr, of: {exp_avg: nf4}, versus: {exp_avg: int4}, unit: tensor, relation: above 0}
 *
 *   value     a column of /metrics
 *   of        {KEY: VALUE, ...}: only these cells, as `where` of summary.h
 *   versus    {KEY: VALUE}: the difference from the cell that has VALUE on the axis KEY and is
 *             equal on all other axes; without `versus` the value itself
 *   unit      the independent unit: tensor (default), seed, or any key of summary.h.  The cells of
 *             one unit (block sizes, steps of one run ...) are averaged first
 *   relation  above X, below X, between X Y
 *   each      an axis: the expectation is judged separately for each value of this axis
 *
 * The effect is the mean over units; its 95 % interval is Student's, mean +- t s / sqrt(n) with
 * n - 1 degrees of freedom; for differences this is the paired t interval.  Cells that were skipped
 * or have no value do not count; the number of cells that count is printed.
 *
 * In a paired suite cells whose variants have tuned rates (qualm tune --variants) are judged best
 * against best (protocol/protocol.h); the number of those that are is printed.
 *
 * Verdicts: `holds` when the whole interval satisfies the relation, `does not hold` when the whole
 * interval violates it, else `undecided`; with fewer than two units always `undecided`. */
#ifndef QM_RUN_CLAIM_H
#define QM_RUN_CLAIM_H

#include <jansson.h>

#include "experiments/run/run_cells.h"

/* clang-format off */
#define QM_CLAIM_VERDICT_LIST(X) /* name, text */ \
    X(holds,     "holds")                   \
    X(fails,     "does not hold")           \
    X(undecided, "undecided")
/* clang-format on */

enum qm_claim_verdict {
#define X(name, text) QM_CLAIM_VERDICT_##name,
    QM_CLAIM_VERDICT_LIST(X)
#undef X
        QM_CLAIM_VERDICT_COUNT
};

struct qm_effect {
    double mean, lo, hi; /* NaN for no units; an infinite interval for one */
    int64_t n, cells;    /* units; the values that were averaged */
    int64_t left_out;    /* values of cells that were not quantized (lockstep/coded_share.h) */
    int64_t best;        /* values of runs at the rates that were tuned for them */
    int not_finite;      /* units whose value is not finite, as the SQNR of an exact one */
    enum qm_claim_verdict verdict;
};

/* Student's interval for the mean of x[n], at a level in (0, 1). */
void qm_mean_interval(const double *x, int64_t n, double level, struct qm_effect *out);

/* The verdict on `effect relation bound`, from the effect's interval; bound[1] is read by
 * relations of two bounds alone. */
enum qm_claim_verdict qm_claim_verdict_of(const struct qm_effect *e, enum qm_relation relation,
                                          const double bound[2]);

/* Checks before a run that the words of an expectation exist.  QM_BAD_ARG or QM_NO_MATCH with file
 * and line. */
qm_status qm_claim_check(const struct qm_suite *suite, const struct qm_expect *e);

/* Sets effect[n_expects] from the results of the suite. */
qm_status qm_claim_judge(const struct qm_results *r, struct qm_effect *effect);

void qm_claim_print(const struct qm_suite *s, const struct qm_effect *effect); /* on stdout */
json_t *qm_claim_json(const struct qm_suite *s, const struct qm_effect *effect);

/* Stores the table /claims, a row per expectation, and the attributes claim and claim_source
 * of /suite. */
qm_status qm_claim_store(const struct qm_suite *s, const struct qm_effect *effect,
                         struct qm_store *store);

#endif
