/* unit_law.h - the law of u = x / M within a block, weighed by a power of M: what a codebook fits.
 *
 * x_1 .. x_B independent of a law, M = max |x_i|.  For any error d(u) of the unit value
 *
 *     E M^p d(x_i / M) = integral of d over a measure with
 *         density  (B - 1) / B  E [ M^p  M g(M |u|) / G(M) ]    on |u| < 1,
 *         atoms    E [ M^p ] / B                                at u = 1
 *
 * because one element of each block is the maximum itself and, given M = m, the other B - 1 follow
 * the law truncated to |x| <= m (g the density of |x|, G its integral).  Laws of both signs have
 * half of either on each side.  p = 2 makes the integral of (u - Q(u))^2 the mean square error of x,
 * p = 0 that of u.  Without blocks (block 0) it is the law of x itself.
 *
 * Tabulated once as Legendre series on panels that halve toward 0; moments are then exact to about
 * 1e-13 of what lies on the panels they touch, in the tails too. */
#ifndef QM_THEORY_UNIT_LAW_H
#define QM_THEORY_UNIT_LAW_H

#include <stdint.h>

#include "core/base/status.h"
#include "oracle/theory/law.h"

struct qm_unit_law; /* opaque */

/* block 0 or >= 2; power 0, 1 or 2.  QM_BAD_ARG: those, or a law for which E |x|^power (without
 * blocks: E |x|^2) does not exist.  Switches GSL's abort-on-error handler off. */
qm_status qm_unit_law_open(const struct qm_law *law, int64_t block, int power,
                           struct qm_unit_law **out);
void qm_unit_law_close(struct qm_unit_law *m); /* accepts NULL */

/* Integral of u^j over [a, b] without the atoms; j = 0, 1, 2; a <= b of either sign, infinite too. */
double qm_unit_law_moment(const struct qm_unit_law *m, int j, double a, double b);
double qm_unit_law_density(const struct qm_unit_law *m, double u);

double qm_unit_law_top(const struct qm_unit_law *m);  /* 1; without blocks the end of the law */
double qm_unit_law_atom(const struct qm_unit_law *m); /* at +top, and at -top of signed laws */
int qm_unit_law_sign(const struct qm_unit_law *m);

#endif
