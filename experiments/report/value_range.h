/* value_range.h - Words for the distinct values of a few numbers: all of them, or their ends. */
#ifndef QM_REPORT_VALUE_RANGE_H
#define QM_REPORT_VALUE_RANGE_H

#include <stddef.h>

enum { QM_VALUE_RANGE_MOST = 4 }; /* distinct values that are named */

/* Begins as {0}; value: the first distinct ones, in the order in which they were added. */
struct qm_value_range {
    double value[QM_VALUE_RANGE_MOST], low, high;
    int n, is_more;
};

void qm_value_range_add(struct qm_value_range *r, double x); /* NaN is left out */

/* "20, 40", or "from 1 to 64" of more than QM_VALUE_RANGE_MOST, or "none". */
void qm_value_range_text(const struct qm_value_range *r, char *out, size_t size);

#endif
