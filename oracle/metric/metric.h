/* metric.h - Error statistics of decoded values: streaming, mergeable, in double.
 *
 * An accumulator sees each pair (want, got) once, in any number of pieces, and can be merged with
 * another one of its level.  The bits of a result depend on how the data are cut into calls of
 * qm_metrics_add and on the order of merges, and on nothing else: a caller that always cuts the
 * data into the same pieces, gives each piece its own accumulator and merges in index order gets
 * equal bits from any number of threads and on any CPU.
 *
 * NaN and Inf are counted in fields of their own.  An element with a NaN or Inf in want or got
 * enters no other statistic (nor the code histogram); an element with a step that is not finite
 * enters no statistic of steps.  All other values must lie within [1e-150, 1e150] in magnitude, or
 * be 0.  results/METRICS.md has definitions, units and the errors of the binned metrics. */
#ifndef QM_METRIC_METRIC_H
#define QM_METRIC_METRIC_H

#include <stddef.h>
#include <stdint.h>

/* One piece of data.  Arrays of n elements; an array that the source does not have is NULL, and
 * metrics that need it return NaN. */
struct qm_sample {
    int64_t n;
    const double *want;      /* exact values x */
    const float *got;        /* decoded values x^ */
    const uint8_t *code;     /* codes, one byte each, all below 2^bits */
    const double *want_step; /* the exact update (results/METRICS.md) */
    const double *got_step;  /* the update from the quantized state */
    const double *grad;      /* the gradient, for the update's projection on it */
    const float *scale; /* of each element, >= 0: the value that 1 in the map's range stands for */
    int bits;           /* code width, 0 when unquantized, at most 8; the same in all pieces */
    double eps;         /* the optimizer's eps, for the inverse square root metrics */
};

/* How much is computed.
 *   brief  squares, largest error, zeros and codes; 17 KiB; a third of the time of basic
 *   basic  all sums over pairs; 17 KiB; about 1 ns per element with codes, 2 ns with codes
 *          and steps (one AVX-512 core)
 *   full   everything; 1.2 MiB; about 40 ns per element
 * A statistic has equal bits at every level that has it. */
enum qm_metrics_level { QM_METRICS_brief, QM_METRICS_basic, QM_METRICS_full };

struct qm_metrics; /* opaque: one accumulator for all metrics */

size_t qm_metrics_bytes(enum qm_metrics_level level);            /* of an accumulator's memory */
struct qm_metrics *qm_metrics_open(enum qm_metrics_level level); /* NULL when out of memory */
void qm_metrics_close(struct qm_metrics *m);                     /* accepts NULL */
void qm_metrics_reset(struct qm_metrics *m);
void qm_metrics_add(struct qm_metrics *m, const struct qm_sample *s);
/* Both must have one level. */
void qm_metrics_merge(struct qm_metrics *into, const struct qm_metrics *from);

/* Where a value is better, as comparisons of results judge it; none: they do not judge it. */
enum qm_better { QM_BETTER_lower = -1, QM_BETTER_none = 0, QM_BETTER_higher = 1 };
const char *qm_better_text(enum qm_better better); /* "lower", "higher" or "" */

/* One metric of the list: name, unit, a line of text, and its value.  A statistic over no elements
 * is NaN; so is one from an accumulator below the metric's level. */
struct qm_metric {
    const char *name, *unit, *text;
    enum qm_metrics_level level; /* the lowest level that has it */
    enum qm_better better;
    double (*value)(const struct qm_metrics *m);
};
int qm_metric_count(void);
const struct qm_metric *qm_metric_at(int i);
const struct qm_metric *qm_metric_find(const char *name); /* NULL when there is none */

/* Error by magnitude (level full): decades of |x| from 10^QM_DECADE_LOW on.  The first decade also
 * holds everything below it, the last everything above; zeros are in no decade.
 * qm_metrics_unit_decades takes decades of |x| / scale; elements without a scale, or with scale 0,
 * are in none.  Below level full counts are 0 and means NaN. */
enum { QM_DECADES = 48, QM_DECADE_LOW = -40 };
struct qm_decade {
    int64_t count;
    double mean_rel, rms_rel, zero_share; /* mean and RMS of |e| / |x|; share decoded to 0 */
};
void qm_metrics_decades(const struct qm_metrics *m, struct qm_decade out[QM_DECADES]);
void qm_metrics_unit_decades(const struct qm_metrics *m, struct qm_decade out[QM_DECADES]);

/* How often each code occurs. */
void qm_metrics_codes(const struct qm_metrics *m, int64_t out[256]);

/* The p-quantile of |e| / max(|x|, 2^-126), p in [0, 1], within 1/128 of itself (log_histogram.h).
 * NaN below level full. */
double qm_metrics_rel_quantile(const struct qm_metrics *m, double p);

#endif
