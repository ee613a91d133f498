/* value_range.c - Words for the distinct values of a few numbers: all of them, or their ends. */
#include "experiments/report/value_range.h"

#include <math.h>
#include <stdio.h>

void qm_value_range_add(struct qm_value_range *r, double x)
{
    int k = 0;
    if (isnan(x))
        return;
    r->low = r->n == 0 || x < r->low ? x : r->low;
    r->high = r->n == 0 || x > r->high ? x : r->high;
    while (k < r->n && k < QM_VALUE_RANGE_MOST && r->value[k] != x)
        k++;
    if (k == r->n && k < QM_VALUE_RANGE_MOST)
        r->value[k] = x;
    r->n += k == r->n;
    r->is_more |= k == QM_VALUE_RANGE_MOST;
}

void qm_value_range_text(const struct qm_value_range *r, char *out, size_t size)
{
    size_t n = 0;
    snprintf(out, size, "%s", r->n ? "" : "none");
    if (r->is_more)
        snprintf(out, size, "from %.9g to %.9g", r->low, r->high);
    for (int k = 0; k < r->n && !r->is_more && n < size; k++)
        n += (size_t)snprintf(out + n, size - n, "%s%.9g", k ? ", " : "", r->value[k]);
}
