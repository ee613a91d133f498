/* unit_law.h - The law of u = x / M in a block, weighted by a power of M; codebooks are fitted to
 * it.
 *
 * Let x_1 .. x_B be independent with a given law and M = max |x_i|.  For any error d(u) of the unit
 * value
 *
 *     E M^p d(x_i / M) = integral of d over a measure with
 *         density  (B - 1) / B  E [ M^p  M g(M |u|) / G(M) ]    on |u| < 1,
 *         atoms    E [ M^p ] / B                                at u = 1
 *
 * because one element of each block is the maximum itself and, given M = m, the other B - 1 follow
 * the law truncated to |x| <= m (g is the density of |x|, G its integral).  For laws of both signs
 * half of the density and of the atom lie on either side of 0.  With p = 2 the integral of
 * (u - Q(u))^2 is the mean square error of x, with p = 0 that of u.  Without blocks (block 0) the
 * measure is the law of x.
 *
 * The density is tabulated once as Legendre series on panels that shrink toward 0; the error of
 * a moment is then about 1e-13 of the mass on the panels that its interval touches, in the
 * tails, too. */
#ifndef QM_THEORY_UNIT_LAW_H
#define QM_THEORY_UNIT_LAW_H

#include <stdint.h>

#include "core/base/status.h"
#include "oracle/theory/law.h"

struct qm_unit_law; /* opaque */

/* block: 0 or >= 2; power: 0, 1 or 2.  The caller closes *out.  QM_BAD_ARG: another block or power,
 * or a law for which E |x|^power (without blocks E |x|^2) does not exist.  Switches GSL's
 * abort-on-error handler off. */
qm_status qm_unit_law_open(const struct qm_law *law, int64_t block, int power,
                           struct qm_unit_law **out);
void qm_unit_law_close(struct qm_unit_law *m); /* accepts NULL */

/* The integral of u^j over [a, b] without the atoms; j = 0, 1, 2; a <= b of any sign,
 * infinite, too. */
double qm_unit_law_moment(const struct qm_unit_law *m, int j, double a, double b);
/* The density at u; 0 outside the range of the law. */
double qm_unit_law_density(const struct qm_unit_law *m, double u);

/* The right end of the law of u, 1 (without blocks |x| at the end of the range of z); the atom
 * there and, for laws of both signs, at -top; whether the law has both signs. */
double qm_unit_law_top(const struct qm_unit_law *m);
double qm_unit_law_atom(const struct qm_unit_law *m);
int qm_unit_law_sign(const struct qm_unit_law *m);

#endif
