/* metric.h - error statistics: streaming, mergeable, in double.
 *
 * A metric sees pairs (want, got) once, in any number of pieces, and merges with another
 * accumulator of its kind; pieces are merged in index order, so results do not depend on threads.
 * Definitions: the project's results/README.md, section "Metrics". */
#ifndef QM_ORACLE_METRIC_H
#define QM_ORACLE_METRIC_H

#include <stddef.h>
#include <stdint.h>

/* What one piece brings.  Arrays of n elements; those a source does not have are NULL, and
 * metrics that need them return NaN. */
struct qm_sample {
    int64_t n;
    const double *want;      /* exact values x */
    const float *got;        /* decoded values x^ */
    const uint8_t *code;     /* codes, one byte each */
    const double *want_step; /* the exact update m / (sqrt(v) + eps) */
    const double *got_step;  /* the update from the quantized state */
    const float *scale;      /* the scale of each element, or NULL */
    int bits;                /* code width, 0 when unquantized */
    double eps;              /* the optimizer's eps, for the inverse square root metrics */
};

/* One accumulator for all metrics: counts, compensated sums, moments, log bins. */
struct qm_metrics; /* opaque; about 200 KiB */

struct qm_metrics *qm_metrics_open(void); /* NULL when out of memory */
void qm_metrics_close(struct qm_metrics *m);
void qm_metrics_reset(struct qm_metrics *m);
void qm_metrics_add(struct qm_metrics *m, const struct qm_sample *s);
void qm_metrics_merge(struct qm_metrics *into, const struct qm_metrics *from);

/* The list: name, unit, one line, and the value from an accumulator.  A statistic over zero
 * elements is NaN. */
struct qm_metric {
    const char *name, *unit, *text;
    double (*value)(const struct qm_metrics *m);
};
int qm_metric_count(void);
const struct qm_metric *qm_metric_at(int i);
const struct qm_metric *qm_metric_find(const char *name); /* NULL when there is none */

/* Error against magnitude: decades of |x| from 10^(QM_DECADE_LOW) on. */
enum { QM_DECADES = 48, QM_DECADE_LOW = -40 };
struct qm_decade {
    int64_t count;
    double mean_rel, rms_rel, zero_share; /* of |e| / |x|; share decoded to 0 */
};
void qm_metrics_decades(const struct qm_metrics *m, struct qm_decade out[QM_DECADES]);

#endif
