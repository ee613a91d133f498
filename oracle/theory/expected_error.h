/* expected_error.h - Expected errors of a codebook, for a block size and a law, by quadrature.
 *
 * No samples are drawn: the figures are independent of the measurements that they are compared
 * with. These functions switch GSL's abort-on-error handler off. */
#ifndef QM_THEORY_EXPECTED_ERROR_H
#define QM_THEORY_EXPECTED_ERROR_H

#include <stdint.h>

#include "core/base/status.h"
#include "oracle/theory/law.h"

/* Expectations per element; e = x^ - x.  The block maximum M is a random variable, and so are the
 * other elements given M; all elements of the block count, the maximum included. */
struct qm_theory {
    double max1, max2;          /* E M and E M^2, M = max |x| in a block; 1 and 1 without blocks */
    double mse, nmse;           /* E e^2, and the same over E x^2 */
    double sqnr_db;             /* -10 log10 nmse */
    double mean_abs, bias;      /* E |e| and E e */
    double unit_mse, unit_bias; /* E (e / M)^2 and E e / M */
    double zero;                /* P(x^ = 0): zero collapse (x = 0 has probability 0) */
    double entropy;             /* of the code, in bits */
    double rho; /* RMS of sqrt(x / x^) - 1, elements with x^ = 0 counting 0; NaN for signed laws */
};

/* Expected errors of x^ = M value[code(x / M)], x_1 .. x_B independent with this law, M = max
 * |x_i|.
 *   value  n entries, ascending (equal neighbours allowed), 1 <= n <= 65536
 *   cut    n - 1 decision boundaries, ascending: the position of u = x / M is above k iff u >
 *   cut[k].
 *          NULL: stochastic rounding, up with probability (u - value[k]) / (value[k + 1] -
 *          value[k])
 *   block  B >= 1; 0: no blocks, the scale is 1 and u beyond the end cuts gets the end values
 * Given M = m one element sits at m (at -m with probability 1/2 for laws of both signs) and the
 * other B - 1 follow the law truncated to |x| <= m.  A format whose scale is not the maximum is
 * described by its value[]: int decodes to k / (2^(b-1) - 1) times M, so value[] holds these
 * quotients. Relative accuracy about 1e-9 (student: shape >= 2.5 for quadratic and >= 1.5 for
 * linear quantities).  Student: mse, nmse, sqnr_db and max2 are NaN for shape <= 2, mean_abs, bias
 * and max1 for shape <= 1.
 * QM_BAD_ARG: entries out of order or NaN, n, block or shape out of range.  QM_NO_MEMORY.
 * Source: order statistics (density of the maximum B g G^(B-1)); the same numbers are published
 * for NF4 as a Monte-Carlo table by bitsandbytes, tests/test_functional.py. */
qm_status qm_theory_block(const struct qm_law *law, const double *value, const double *cut, int n,
                          int64_t block, struct qm_theory *out);

/* For tests: cut[n - 1] <- the mid-points of value[n], nearest-code decisions. */
void qm_theory_midpoints(const double *value, int n, double *cut);

/* The steady-state NMSE of a moving average s of independent inputs that is requantized at every
 * step by an unbiased (stochastic) rounding of NMSE `nmse` on values of its law.  The error follows
 * e <- beta e + d with E d = 0 given the past and E d^2 = nmse E (s + beta e)^2, so
 *     E e^2 = beta^2 E e^2 + nmse (E s^2 + beta^2 E e^2),
 *     E e^2 / E s^2 = nmse / (1 - beta^2 (1 + nmse)).
 * HUGE_VAL where the error grows without bound, beta^2 (1 + nmse) >= 1.  The formula does not hold
 * for rounding to nearest, which is biased: see the dead zone below. */
double qm_ema_steady(double beta, double nmse);

/* The dead zone of a moving average that is rounded to nearest, half_gap / (1 - beta): the distance
 * of the input from a code's value, in units of the scale, below which the code does not change.
 * With input 0, an element whose unit value is smaller than this cannot decay. */
double qm_ema_dead_zone(double beta, double half_gap);

#endif
