/* optimal_codebook.h - The optimal codebook of n levels for a law, with or without block-absmax
 * scales.
 *
 * Without blocks this is the quantizer of Lloyd (1982) and Max (1960).  With blocks x^ = M Q(x /
 * M), and the loss is an integral over the weighted law of the unit value (unit_law.h), to which
 * their two conditions apply unchanged:
 *
 *     decisions  half way between neighbouring levels
 *     levels     the centroid of their cell (squared error), or its median (absolute error)
 *
 * with the atoms at the ends counted in the cells that contain them.  Levels that are held fixed
 * (the ends, the zero) need not fulfil the second condition.  The solver is Newton's method on the
 * levels, whose Hessian is tridiagonal, with Lloyd's iteration where a Newton step does not reduce
 * the loss.  The result has a positive definite Hessian, so it is a local minimum.  It is the only
 * one where the law of u is log-concave (normal, Laplace, uniform without free ends); elsewhere it
 * is the minimum that the iteration reaches from the high-rate spacing (density to the power 1/3
 * or 1/2). */
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

/* Levels that are held fixed: the ends, 1 and (for laws of both signs) -1; the zero. */
enum { QM_HOLD_ENDS = 1, QM_HOLD_ZERO = 2 };

/* An optimal codebook. */
struct qm_optimum {
    int n;
    double value[256], cut[255]; /* ascending levels; decisions half way between them */
    int held[256];
    double loss;     /* as QM_LOSS_LIST says, over all elements of a block, the maximum included */
    double residual; /* largest distance of a level from its cell's centroid or median */
    double pivot;    /* smallest ratio of a pivot of the free levels' Hessian to its diagonal
                      * entry: positive, or 0 (Laplace without blocks) */
};

/* Finds the optimum of 2 <= n <= 256 levels.  block: 0 (no blocks, no ends to hold) or >= 2.  With
 * the zero held and n even, a law of both signs has one level fewer on the negative side, as NF4
 * has. Absolute errors with blocks require the ends to be held, because the median of an end's
 * cell may be the atom.  Levels are within about 1e-10 of the minimum.  QM_BAD_ARG: an argument
 * outside these limits, fewer levels than are held, or a law whose error is infinite.
 * QM_INTERNAL: no convergence. */
qm_status qm_optimal(const struct qm_law *law, int64_t block, int n, unsigned hold,
                     enum qm_loss loss, struct qm_optimum *out);

/* The loss of any ascending levels with decisions half way, by the integrals of qm_optimal; m must
 * have been opened with the loss's power of M (qm_loss_power). */
double qm_optimal_loss(const struct qm_unit_law *m, enum qm_loss loss, const double *value, int n);
int qm_loss_power(enum qm_loss loss);      /* of M: 0, 1, 2 */
int qm_loss_is_squared(enum qm_loss loss); /* of the error */
const char *qm_loss_name(enum qm_loss loss);

/* Shannon's lower bound on E (x^ - x)^2 / E x^2 at `bits` per element, for codes of any length:
 * 2^(-2 bits) e^(2 h) / (2 pi e) / E x^2, h the differential entropy.  For the normal law it is the
 * rate-distortion function, 2^(-2 bits).  C. E. Shannon 1959; T. Berger 1971, 4.3. */
double qm_shannon_bound(const struct qm_law *law, double bits);

#endif
