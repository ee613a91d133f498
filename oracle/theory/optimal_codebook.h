/* optimal_codebook.h - the best codebook of n levels for a law, with or without block-absmax scales.
 *
 * Without blocks that is the quantizer of Lloyd (1982) and Max (1960).  With blocks x^ = M Q(x / M),
 * and the error to be made small is an integral over the weighed law of the unit value (measure.h),
 * to which their two conditions apply as they stand:
 *
 *     decisions  half way between neighbouring levels
 *     levels     the centroid of their cell (squared error), or its median (absolute error)
 *
 * with the atoms at the ends counted in the cells they lie in.  Levels that are held (the ends, the
 * zero) need not fulfil the second.  The solver is Newton's method on the levels, which has a
 * tridiagonal Hessian, with Lloyd's iteration where Newton's step does not help; what it returns has
 * a positive definite Hessian, so it is a minimum.  It is the only one where the measure is
 * log-concave (normal, Laplace, uniform without free ends); elsewhere it is the one that the
 * high-rate spacing (density to the power 1/3 or 1/2) leads to. */
#ifndef QM_THEORY_OPTIMAL_CODEBOOK_H
#define QM_THEORY_OPTIMAL_CODEBOOK_H

#include <stdint.h>

#include "core/base/status.h"
#include "oracle/theory/law.h"
#include "oracle/theory/unit_law.h"

/* clang-format off */
#define QM_LOSS_LIST(X)  /* name, power of M, power of the error, what */  \
    X(mse,      2, 2, "E (x^ - x)^2")                                      \
    X(mae,      1, 1, "E |x^ - x|")                                        \
    X(unit_mse, 0, 2, "E ((x^ - x) / M)^2")                                \
    X(unit_mae, 0, 1, "E |x^ - x| / M")
/* clang-format on */

enum qm_loss {
#define X(name, power, error, text) QM_LOSS_##name,
    QM_LOSS_LIST(X)
#undef X
        QM_LOSS_COUNT
};

/* Levels that are held: -1 (of laws of both signs) and 1; 0. */
enum { QM_HOLD_ENDS = 1, QM_HOLD_ZERO = 2 };

struct qm_optimum {
    int n;
    double value[256], cut[255]; /* ascending; decisions half way */
    int held[256];
    double loss;     /* as QM_LOSS_LIST says, over all elements of a block, the maximum included */
    double residual; /* largest distance of a level from what its condition wants */
    double pivot;    /* smallest pivot of the Hessian of the free levels over its diagonal entry:
                        positive, or 0 (Laplace without blocks) */
};

/* 2 <= n <= 256.  block 0: none (no ends to hold); else >= 2.  With the zero held, a law of both
 * signs has one level fewer on the negative side when n is even, as NF4 has.  Absolute errors with
 * blocks want the ends held: the median of an end's cell may be the atom itself.
 * QM_BAD_ARG: those, fewer levels than are held, a law whose error is infinite.  QM_INTERNAL: no
 * convergence.  Levels are within about 1e-10 of the minimum. */
qm_status qm_optimal(const struct qm_law *law, int64_t block, int n, unsigned hold,
                     enum qm_loss loss, struct qm_optimum *out);

/* Loss of any ascending levels under decisions half way, by the same integrals; m: opened with the
 * loss's power of M. */
double qm_optimal_loss(const struct qm_unit_law *m, enum qm_loss loss, const double *value, int n);
int qm_loss_power(enum qm_loss loss);      /* of M: 0, 1, 2 */
int qm_loss_is_squared(enum qm_loss loss); /* of the error */
const char *qm_loss_name(enum qm_loss loss);

/* Shannon's lower bound on E (x^ - x)^2 / E x^2 at `bits` per element, of any code of any length:
 * 2^(-2 bits) e^(2 h) / (2 pi e) / E x^2, h the differential entropy.  For the normal law it is the
 * rate-distortion function itself, 2^(-2 bits).  C. E. Shannon 1959; T. Berger 1971, 4.3. */
double qm_shannon_bound(const struct qm_law *law, double bits);

#endif
