/* bound.h - how far float32 arithmetic in a rule's documented order may be from the oracle.
 *
 * Running error analysis.  Every quantity is a pair (x, e): the exact value of the formula, and a
 * bound on |computed - x|.  With u = 2^-24 and eta = 2^-150 (half the smallest denormal),
 *
 *   a + b   e = ea + eb                              and then rounding: u (|x| + e)
 *   a * b   e = |a| eb + |b| ea + ea eb              u (|x| + e) + eta
 *   a / b   e = (ea + |x| eb) / (|b| - eb)           u (|x| + e) + eta
 *   sqrt a  e = the larger distance to sqrt(a -+ ea) u (|x| + e)
 *
 * The rounding term is left out where both operands are exact (e = 0) and the result is a float32:
 * such an operation makes no error, so that planted ties are judged without any slack.  An fma
 * rounds once where the analysis counts two, so fused and unfused orders are both covered.  Where
 * |x| + e passes the largest float the bound is infinite: the computed value may have overflowed.
 * Each e carries a factor 1 + 2^-20 for the double arithmetic of analysis and oracle. */
#ifndef QM_EXPERIMENTS_CHECK_BOUND_H
#define QM_EXPERIMENTS_CHECK_BOUND_H

#include "core/base/status.h"
#include "oracle/oracle.h"

#include <stdint.h>

#define QM_U   0x1p-24  /* unit roundoff of float32 */
#define QM_ETA 0x1p-150 /* half its smallest denormal */

/* x rounded to float32.  Through memory: GCC 12's basic-block vectorizer (-O2) drops the rounding of
 * (double)(float)x where two such conversions stand side by side. */
static inline double qm_narrow(double x)
{
    volatile float rounded = (float)x;
    return (double)rounded;
}

struct qm_bound_scalar {
    double x, e;
};

/* One step's scalars; plain data, filled by qm_bound_init. */
struct qm_bound {
    int family; /* index of the family's analysis */
    struct qm_oracle_hyper h;
    int64_t t;
    int lerp_m, lerp_v, torchao, fused; /* the orders this rule documents */
    struct qm_bound_scalar b1, w1, w1_less_1, b2, w2, w2_less_1, root_bc2, eps, lr, lr_over_bc1,
        bc1, decay, lr_wd, wd;
};

/* Step t of a rule of this family.  A rule that the list of orders does not know gets the widest
 * ones.  QM_BAD_ARG: no bound has been derived for the family. */
qm_status qm_bound_init(struct qm_bound *b, const char *family, const char *rule,
                        const struct qm_oracle_hyper *h, int64_t t);

/* Bounds of one element from its exact inputs (p, g, slots before) and the oracle's results.
 * e_slot has one entry per slot; any bound may be INFINITY. */
void qm_bound_element(const struct qm_bound *b, double p, double g, const double *slot,
                      const double *slot_want, double *e_p, double *e_slot);

#endif
