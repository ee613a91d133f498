/* metric.h - error statistics: streaming, mergeable, in double.
 *
 * A metric sees pairs (want, got) once, in any number of pieces, and merges with another
 * accumulator of its kind.  The bits of a result depend on how the data was cut into calls of
 * qm_metrics_add and on the order of merges, on nothing else: a caller that always cuts into the
 * same pieces, gives each its own accumulator and merges those in index order gets the same bits
 * from any number of threads and on any CPU.
 *
 * NaN and Inf are counted in fields of their own; an element with one in want or got takes no part
 * in anything else (not in the code histogram either), one with a non-finite step in nothing that
 * needs steps.  Other values must lie within [1e-150, 1e150] in magnitude, or be 0.
 * Definitions, units and the errors of the binned metrics: results/METRICS.md. */
#ifndef QM_METRIC_METRIC_H
#define QM_METRIC_METRIC_H

#include <stddef.h>
#include <stdint.h>

/* What one piece brings.  Arrays of n elements; those a source does not have are NULL, and
 * metrics that need them return NaN. */
struct qm_sample {
    int64_t n;
    const double *want;      /* exact values x */
    const float *got;        /* decoded values x^ */
    const uint8_t *code;     /* codes, one byte each, all below 2^bits */
    const double *want_step; /* the exact update m / (sqrt(v) + eps) */
    const double *got_step;  /* the update from the quantized state */
    const double *grad;      /* the gradient, for the update's projection on it */
    const float *scale;      /* what 1 in the map's range stands for, of each element; >= 0 */
    int bits;                /* code width, 0 when unquantized, at most 8; the same in all pieces */
    double eps;              /* the optimizer's eps, for the inverse square root metrics */
};

/* brief: the squares, the largest error, zeros and codes.  basic: all sums over pairs; about 1
 * nanosecond an element with codes, 2 with codes and steps (one AVX-512 core); brief about a third of
 * that.  Either 17 KiB.  full: everything; some 40 nanoseconds and 1.2 MiB.  What a level has is the
 * same to the bit at every level above it. */
enum qm_metrics_level { QM_METRICS_brief, QM_METRICS_basic, QM_METRICS_full };

struct qm_metrics; /* opaque; one accumulator for all metrics */

struct qm_metrics *qm_metrics_open(enum qm_metrics_level level); /* NULL when out of memory */
void qm_metrics_close(struct qm_metrics *m);                     /* accepts NULL */
void qm_metrics_reset(struct qm_metrics *m);
void qm_metrics_add(struct qm_metrics *m, const struct qm_sample *s);
/* Both of the same level. */
void qm_metrics_merge(struct qm_metrics *into, const struct qm_metrics *from);

/* The list: name, unit, one line, and the value from an accumulator.  A statistic over zero
 * elements is NaN; so is one from an accumulator below its level. */
struct qm_metric {
    const char *name, *unit, *text;
    enum qm_metrics_level level; /* the least that has it */
    double (*value)(const struct qm_metrics *m);
};
int qm_metric_count(void);
const struct qm_metric *qm_metric_at(int i);
const struct qm_metric *qm_metric_find(const char *name); /* NULL when there is none */

/* Error against magnitude (full level): decades of |x| from 10^(QM_DECADE_LOW) on; the first takes
 * everything below as well, the last everything above.  Zeros are in none.  In the second form
 * decades of |x| / scale; elements without a scale, or with scale 0, are in none.  Counts are 0
 * and means NaN below it. */
enum { QM_DECADES = 48, QM_DECADE_LOW = -40 };
struct qm_decade {
    int64_t count;
    double mean_rel, rms_rel, zero_share; /* of |e| / |x|; share decoded to 0 */
};
void qm_metrics_decades(const struct qm_metrics *m, struct qm_decade out[QM_DECADES]);
void qm_metrics_unit_decades(const struct qm_metrics *m, struct qm_decade out[QM_DECADES]);

/* How often each code occurs. */
void qm_metrics_codes(const struct qm_metrics *m, int64_t out[256]);

/* The p-quantile of |e| / max(|x|, 2^-126), p in [0, 1], as log_histogram.h says: within 1/128 of it.
 * NaN below the full level. */
double qm_metrics_rel_quantile(const struct qm_metrics *m, double p);

#endif
