/* verdict.c - Decides the verdict on a number and on a code. */
#include "oracle/bound/verdict.h"

#include <math.h>

#include "oracle/bound/bound.h"

/* want is NaN or infinite.  NaN against an infinity is allowed either way: the order of operations
 * decides whether Inf - Inf occurs. */
static enum qm_verdict special(double got, double want)
{
    if (isinf(got) && isinf(want))
        return got == want ? QM_VERDICT_EQUAL : QM_VERDICT_WRONG;
    return isfinite(got) ? QM_VERDICT_WRONG : QM_VERDICT_WITHIN_BOUND;
}

enum qm_verdict qm_verdict_number(double got, double want, double bound)
{
    if (!isfinite(want))
        return special(got, want);
    if (got == qm_round_float32(want))
        return QM_VERDICT_EQUAL;
    return fabs(got - want) <= bound ? QM_VERDICT_WITHIN_BOUND : QM_VERDICT_WRONG;
}

enum qm_verdict qm_verdict_code(int k, int at, int from, int to)
{
    if (k < from - 1 || k > to + 1)
        return QM_VERDICT_WRONG;
    if (k < from || k > to)
        return QM_VERDICT_OFF_BY_ONE;
    return k == at ? QM_VERDICT_EQUAL : QM_VERDICT_BOUNDARY;
}
