/* pair_sums.h - Sums over pairs (want, got), from which the metrics below level full are computed.
 *
 * Elements come in groups of at most QM_PAIR_SUMS_BLOCK.  A group is summed in eight lanes (element
 * i in lane i mod 8, lanes added by qm_sum_lanes), and groups are added with compensation, so the
 * bits depend on how the data are cut and neither on the CPU nor on threads.  Below, x is want, x^
 * is got, e = x^ - x.
 *
 * Two quantities are second moments about a centre that is known only at the end.  Each group forms
 * them about its own centre in a second pass, and groups merge by formulas without cancellation:
 *   spread    sum (e - mean e)^2;    Chan, Golub, LeVeque:  + d^2 nA nB / (nA + nB),
 *             d the difference of the two means
 *   residual  sum (e - a x)^2 with a = sum x e / sum x^2;   + d^2 XA XB / (XA + XB),
 *             d the difference of the two a, X = sum x^2
 * The residual is the squared norm of the error's component orthogonal to x, so the angle between x
 * and x^ is atan2(sqrt(residual), (1 + a) |x|).  This is accurate for angles of every size, where 1
 * - cos has no correct digit below 1e-8; the absolute error of the angle is about 2^-52 |e| / |x|.
 *
 * Range: |x| and |x^| within [1e-150, 1e150] or 0, so that squares neither overflow nor vanish. */
#ifndef QM_METRIC_PAIR_SUMS_H
#define QM_METRIC_PAIR_SUMS_H

#include "oracle/metric/compensated_sum.h"
#include <stdint.h>

enum { QM_PAIR_SUMS_BLOCK = 512 };

/* Counts and sums.  collapsed: got = 0 and want != 0; flipped: opposite signs, both nonzero;
 * beyond: want != 0 and got / want outside [1/2, 2]. */
struct qm_pair_sums {
    int64_t n, zero_want, zero_got, collapsed, flipped, beyond;
    struct qm_sum err, abs_err, sq_err;     /* e, |e|, e^2 */
    struct qm_sum abs_want, sq_want, cross; /* |x|, x^2, x e */
    struct qm_sum shrink;                   /* |x^| - |x| */
    struct qm_sum collapsed_abs;            /* |x| of the collapsed */
    struct qm_sum flipped_abs;              /* |x| of the flipped */
    struct qm_sum spread, residual;
    double max_err, max_got; /* of |e| and |x^| */
    double max_rel;          /* of |e| / |x| over x != 0, to 1 part in 2^51 */
};

/* The instruction sets with kernels of their own; all give equal bits. */
enum qm_pair_sums_isa { QM_PAIR_SUMS_base, QM_PAIR_SUMS_avx2, QM_PAIR_SUMS_avx512 };
enum qm_pair_sums_isa qm_pair_sums_best(void); /* the widest that this CPU has */

/* Adds n <= QM_PAIR_SUMS_BLOCK pairs and returns 1.  If a pair has a NaN or Inf, or squares
 * overflow, p stays as it is and 0 is returned; the caller then leaves those pairs out and calls
 * qm_pair_sums_add_any, which adds without the test. */
int qm_pair_sums_add(struct qm_pair_sums *p, const double *want, const double *got, int n,
                     enum qm_pair_sums_isa isa);
void qm_pair_sums_add_any(struct qm_pair_sums *p, const double *want, const double *got, int n,
                          enum qm_pair_sums_isa isa);
/* Like qm_pair_sums_add, but updates only n, zero_want, collapsed, sq_err, sq_want and max_err,
 * with equal bits; n > 0 must be a multiple of 8. */
int qm_pair_sums_add_brief(struct qm_pair_sums *p, const double *want, const float *got, int n,
                           enum qm_pair_sums_isa isa);
void qm_pair_sums_merge(struct qm_pair_sums *into, const struct qm_pair_sums *from);

/* out[0], out[1]: sums of |a| and of |b| over the collapsed pairs; n <= QM_PAIR_SUMS_BLOCK,
 * all finite. */
void qm_pair_sums_lost(const double *want, const double *got, const double *a, const double *b,
                       int n, double out[2], enum qm_pair_sums_isa isa);

/* got[n] converted to double, n <= QM_PAIR_SUMS_BLOCK. */
void qm_pair_sums_widen(const float *got, int n, double *out, enum qm_pair_sums_isa isa);

/* Sum of e^2 over sum of x^2: 0 where e = 0 throughout, Inf where only x is 0; NaN over
 * no elements. */
double qm_pair_sums_nmse(const struct qm_pair_sums *p);
/* The angle between x and x^ in radians; NaN where x or x^ is 0 throughout. */
double qm_pair_sums_angle(const struct qm_pair_sums *p);
/* |x^| / |x|; NaN where x is 0 throughout. */
double qm_pair_sums_norm_ratio(const struct qm_pair_sums *p);
/* The share of elements with sign(x^) != sign(x), sign(0) = 0; NaN over no elements. */
double qm_pair_sums_disagree(const struct qm_pair_sums *p);

#endif
