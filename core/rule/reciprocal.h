/* reciprocal.h - Decides whether a loop multiplies by reciprocals instead of dividing.
 *
 * For files that are compiled once per instruction set. */
#ifndef QM_RULE_RECIPROCAL_H
#define QM_RULE_RECIPROCAL_H

#include "core/rule/rule.h"

/* 1: `prepare` has made reciprocals, and all of them hold for the divisors that c[] has now.
 * Always 0 without fused multiply-add in the instruction set, where dividing is faster. */
static inline int qm_rule_multiplies(const struct qm_rule_step *s)
{
#ifdef __FMA__
    int all = s->n_reciprocals > 0;
    for (int k = 0; k < s->n_reciprocals; k++)
        all &= s->reciprocal[k].holds && s->reciprocal[k].c == s->c[s->divisor[k]];
    return all;
#else
    (void)s;
    return 0;
#endif
}

#endif
