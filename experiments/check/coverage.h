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
    QM_EFFECTS = 3, /* plain cases that should depend on each hyper-parameter, at least */
    QM_COVERAGE_BINS = QM_COORDINATE_hyper * QM_BINS_MOST + QM_HYPERS * QM_HYPER_BINS,
    QM_COVERAGE_WORDS = (QM_COVERAGE_BINS + 63) / 64
};

struct qm_coverage {
    int64_t cases;
    int64_t refused; /* cases that the rule or a quantizer refused at their shape: not judged */
    int64_t largest; /* elements of the largest tensor that was judged */
    int64_t plain, effective[QM_HYPERS]; /* plain cases; those in which number k had an effect */
    int64_t large, effective_large[QM_HYPERS];  /* the same of large tensors (QM_LARGE) */
    int64_t refusals[QM_HYPERS][QM_HYPER_BINS]; /* refused plain cases with such a value */
    uint64_t pair[QM_COVERAGE_BINS][QM_COVERAGE_WORDS];
};

/* Adds a case that was judged. */
void qm_coverage_add(struct qm_coverage *to, const struct qm_domain *d, const struct qm_case *c);

/* Adds a plain case that the judged side refused. */
void qm_coverage_refuse(struct qm_coverage *to, const struct qm_domain *d, const struct qm_case *c);

/* Sets d->subjects to the hyper-parameters that had an effect in fewer than QM_EFFECTS plain cases,
 * and d->refused to what two cases gave and no judged one did.  Returns whether there are any. */
int qm_coverage_lacks(const struct qm_coverage *c, struct qm_domain *d);

/* {"cases", "refused", "pairs", "reachable", "bins", "bins_reachable", "coordinates": {NAME:
 * {"exercised": [BIN...], "never": [BIN...]}}, "pairs_of": [{"coordinates": [A, B], "pairs",
 * "reachable"}], "not_exercised": [{"coordinate", "reason"}], "largest": elements of the
 * largest tensor that was judged, "plain": cases with effects,
 * "effective": {NAME: how many of them depend on it (effect.h)}, "large", "effective_large": the
 * same of large tensors alone}.  The caller owns it.  NULL: no memory. */
json_t *qm_coverage_json(const struct qm_coverage *c, const struct qm_domain *d);

/* Prints the object of qm_coverage_json to stdout: one line of counts, of what was never
 * exercised, of the largest size, and of hyper-parameters that never had an effect, or none in a
 * large tensor. */
void qm_coverage_print(const json_t *coverage, const char *of);

#endif
