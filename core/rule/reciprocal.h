/* reciprocal.h - Whether a loop multiplies by the reciprocals of a step instead of dividing; for files
 * that are compiled once per instruction set. */
#ifndef QM_RULE_RECIPROCAL_H
#define QM_RULE_RECIPROCAL_H

#include "core/rule/rule.h"

/* 1: all reciprocals that `prepare` made hold, for the divisors that c[] has now.  Without fused multiply-add
 * in the instruction set the division is faster. */
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
