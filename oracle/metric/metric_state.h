/* metric_state.h - The state of an accumulator; for metric.c, metric_full.c and metric_list.c. */
#ifndef QM_METRIC_METRIC_STATE_H
#define QM_METRIC_METRIC_STATE_H

#include "oracle/metric/compensated_sum.h"
#include "oracle/metric/log_histogram.h"
#include "oracle/metric/metric.h"
#include "oracle/metric/pair_sums.h"

/* Sums over one quantity t derived from each pair. */
struct qm_metric_stream {
    int64_t n;
    struct qm_sum sum, abs, sq;
    double max; /* of |t| */
};

struct qm_decade_sums {
    int64_t count, zero;
    struct qm_sum rel, sq_rel;
};

/* The eps of the inverse square root metrics: the optimizer's own, and 1e-6. */
enum { QM_EPS_OWN, QM_EPS_1E6, QM_EPS_COUNT };

/* The state that only level full has. */
struct qm_metrics_extra {
    struct qm_log_histogram rel;
    struct qm_signed_log_histogram want, got;
    struct qm_decade_sums decade[2][QM_DECADES]; /* of |x|; of |x| / scale */
    struct qm_metric_stream log, ulp, invsqrt[QM_EPS_COUNT], rho[QM_EPS_COUNT], rho_alive;
    int64_t negative; /* elements with want < 0 or got < 0: no square root */
    int64_t singular; /* eps = 0 and want = 0 or got = 0 */
    int64_t equal;    /* got == (float)want */
    int64_t scaled, clipped;
    double max_rel_scaled; /* over |x| >= scale / 100 */
    int64_t n_grad;
    struct qm_sum step_grad, sq_grad, sq_step; /* <got_step, grad> and the squares, same elements */
};

struct qm_metrics {
    enum qm_metrics_level level;
    enum qm_pair_sums_isa isa;
    int bits;
    int64_t nan_want, inf_want, nan_got, inf_got, step_nonfinite;
    int64_t unbounded, step_unbounded; /* finite numbers that became none */
    struct qm_pair_sums state, step;
    struct qm_sum lost_want_step, lost_got_step; /* |step| of collapsed elements (decoded to 0) */
    int64_t code[4][256];
    int64_t two[4][256]; /* pairs of neighbouring codes of at most 4 bits: first | second << 4 */
    struct qm_metrics_extra *extra; /* NULL below level full */
};

/* Up to QM_PAIR_SUMS_BLOCK elements, all with finite want and got; absent arrays are NULL. */
struct qm_metric_group {
    int n;
    const double *want, *got, *want_step, *got_step, *grad;
    const float *scale;
    const uint8_t *code;
};

/* Adds a group; eps: the optimizer's. */
void qm_extra_add(struct qm_metrics_extra *x, const struct qm_metric_group *g, double eps);
/* Adds the steps of a group whose steps are finite, too. */
void qm_extra_add_steps(struct qm_metrics_extra *x, const struct qm_metric_group *g);
void qm_extra_merge(struct qm_metrics_extra *into, const struct qm_metrics_extra *from);

#endif
