/* coverage.h - Counts which pairs of bins of the domain the judged cases exercised.
 *
 * A pair is a bin of one coordinate together with a bin of another.  A pair is reachable where the
 * domain's distribution meets it in QM_COVERAGE_DRAWS draws: impossible pairs (a scalar of 256
 * elements) are not counted, and neither are values that the rule refuses. */
#ifndef QM_EXPERIMENTS_CHECK_COVERAGE_H
#define QM_EXPERIMENTS_CHECK_COVERAGE_H

#include <jansson.h>

#include "experiments/check/domain.h"

enum {
    QM_COVERAGE_DRAWS = 8192,
    QM_COVERAGE_BINS = QM_COORDINATE_hyper * QM_BINS_MOST + QM_HYPERS * QM_HYPER_BINS,
    QM_COVERAGE_WORDS = (QM_COVERAGE_BINS + 63) / 64
};

struct qm_coverage {
    int64_t cases;
    int64_t refused; /* cases that the rule or a quantizer refused at their shape: not judged */
    uint64_t pair[QM_COVERAGE_BINS][QM_COVERAGE_WORDS];
};

/* Adds a case that was judged. */
void qm_coverage_add(struct qm_coverage *to, const struct qm_domain *d, const struct qm_case *c);

/* {"cases", "refused", "pairs", "reachable", "bins", "bins_reachable", "coordinates": {NAME:
 * {"exercised": [BIN...], "never": [BIN...]}}, "pairs_of": [{"coordinates": [A, B], "pairs",
 * "reachable"}], "not_exercised": [{"coordinate", "reason"}]}. The caller owns the object. NULL:
 * no memory. */
json_t *qm_coverage_json(const struct qm_coverage *c, const struct qm_domain *d);

/* Prints the object of qm_coverage_json to stdout: one line of counts, and one line of what was
 * never exercised where there is anything. */
void qm_coverage_print(const json_t *coverage, const char *of);

#endif
