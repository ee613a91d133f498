/* expected_error.h - what a codebook, a block size and a law must give: quadrature, no samples.
 *
 * An independent third opinion besides oracle and measurement.  GSL's abort-on-error handler is
 * switched off by these functions. */
#ifndef QM_THEORY_EXPECTED_ERROR_H
#define QM_THEORY_EXPECTED_ERROR_H

#include <stdint.h>

#include "core/base/status.h"
#include "oracle/theory/law.h"

/* Expectations per element; e = x^ - x.  A block maximum M is a random variable, as are the others
 * given M; sums run over the whole block, the maximum included. */
struct qm_theory {
    double max1, max2;     /* E M and E M^2 of M = max |x| of a block; 1 and 1 without blocks */
    double mse, nmse;      /* E e^2, and the same over E x^2 */
    double sqnr_db;        /* -10 log10 nmse */
    double mean_abs, bias; /* E |e| and E e */
    double unit_mse, unit_bias; /* E (e / M)^2 and E e / M */
    double zero;                /* P(x^ = 0): zero collapse (x itself is 0 with probability 0) */
    double entropy;             /* of the code, in bits */
    double rho; /* RMS of sqrt(x / x^) - 1, elements with x^ = 0 counting 0; NaN for signed laws */
};

/* x_1 .. x_B independent of the law, M = max |x_i|, x^ = M value[code(x / M)].
 *   value  n entries, ascending (equal neighbours allowed), 1 <= n <= 65536
 *   cut    n - 1 decision boundaries, ascending: position above k iff u > cut[k].  NULL: stochastic
 *          rounding, up with probability (u - value[k]) / (value[k + 1] - value[k])
 *   block  B >= 1; 0: no blocks, the scale is 1 and u beyond the end cuts takes the end values
 * Given M = m one element sits at m (at -m with probability 1/2 for laws of both signs) and the
 * other B - 1 follow the law truncated to |x| <= m.  A format whose scale is not the maximum
 * itself is described by its value[]: int decodes as k / (2^(b-1) - 1), so value[] holds that.
 * Relative accuracy about 1e-9 (student: shape >= 2.5 for quadratic and >= 1.5 for linear
 * quantities).  Student: mse, nmse, sqnr_db and max2 are NaN for shape <= 2, mean_abs, bias and
 * max1 for shape <= 1.
 * QM_BAD_ARG: entries out of order or NaN, n, block or shape out of range.  QM_NO_MEMORY.
 * Source: order statistics (density of the maximum B g G^(B-1)); the same numbers are published
 * for NF4 as a Monte-Carlo table by bitsandbytes, tests/test_functional.py. */
qm_status qm_theory_block(const struct qm_law *law, const double *value, const double *cut, int n,
                          int64_t block, struct qm_theory *out);

/* cut[n - 1]: the mid-points, that is nearest-code decisions. */
void qm_theory_midpoints(const double *value, int n, double *cut);

/* Steady-state NMSE of an average of independent inputs that is requantized at every step by an
 * unbiased rounding (stochastic) of NMSE `nmse` on values of that law.  With e = beta e + d, E d = 0
 * given the past and E d^2 = nmse E s^2 of what is quantized, whose own error is beta e:
 *     E e^2 = beta^2 E e^2 + nmse (E s^2 + beta^2 E e^2),
 *     E e^2 / E s^2 = nmse / (1 - beta^2 (1 + nmse)).
 * HUGE_VAL where the error feeds itself, beta^2 (1 + nmse) >= 1.  (Nearest rounding is not unbiased:
 * there the dead zone below rules.) */
double qm_ema_steady(double beta, double nmse);

/* Dead zone of nearest rounding: how far the input must lie from a code, in units of the scale,
 * before the code moves: half_gap / (1 - beta).  The same figure is the unit value below which an
 * element with input 0 cannot decay. */
double qm_ema_dead_zone(double beta, double half_gap);

#endif
