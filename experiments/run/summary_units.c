/* summary_units.c - Counts units: seeds that draw no data are draws of one unit. */
#include "experiments/run/summary_table.h"

#include "experiments/protocol/protocol.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int qm_summary_is_of_gap(int value)
{
    switch (value - qm_metric_count()) {
    case QM_EXTRA_start_gap:
    case QM_EXTRA_gap:
    case QM_EXTRA_twin_gap:
    case QM_EXTRA_log_gap:
    case QM_EXTRA_area:
    case QM_EXTRA_late_gap:
    case QM_EXTRA_twin_late_gap:
    case QM_EXTRA_late:
    case QM_EXTRA_twin_area: return 1;
    default: return 0;
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

/* How far apart two cells are whose values of the axis are neighbours and all else equal. */
static int64_t stride_of(const struct qm_results *r, int axis)
{
    const struct qm_suite *suite = r->suite;
    int source = qm_suite_axis(suite, "source");
    int64_t others = 1, stride = 1, own = qm_protocol_own(r->cell, r->n_cells);
    for (int a = 0; a < suite->n_axes; a++)
        others *= a == source ? 1 : suite->axis[a].n;
    for (int a = suite->n_axes - 1; a > axis; a--)
        stride *= a == source ? own / others : suite->axis[a].n;
    return stride;
}

/* Whether cells i and j have the same results, to the bit. */
static int is_equal(const struct qm_results *r, int64_t i, int64_t j)
{
    const struct qm_outcome *a = &r->outcome[i], *b = &r->outcome[j];
    if (i == j)
        return 1;
    return !a->reason && !b->reason && a->value && b->value &&
           memcmp(a->value, b->value, (size_t)qm_value_count() * sizeof *a->value) == 0;
}

int64_t qm_summary_unit(const struct qm_results *r, int64_t i, int64_t base)
{
    static const char *const seeds[] = {"rounding_seed", "seed"};
    const struct qm_cell *c = &r->cell[i];
    int64_t unit = i;
    for (size_t k = 0; k < sizeof seeds / sizeof *seeds; k++) {
        int axis = qm_suite_axis(r->suite, seeds[k]);
        int value = axis < 0 ? 0 : qm_cell_value(r->suite, c, axis);
        if (value <= 0)
            continue;
        int64_t stride = stride_of(r, axis);
        int draws_data = c->coupling == QM_COUPLING_closed || (k == 1 && !c->recorded);
        if (!draws_data)
            unit -= value * stride;
        for (int earlier = 0; draws_data && earlier < value; earlier++) {
            int64_t back = (value - earlier) * stride;
            if (is_equal(r, i, i - back) && (base < 0 || is_equal(r, base, base - back))) {
                unit -= back;
                break;
            }
        }
    }
    return unit;
}

/* ---- folding --------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Gives m[0] the medians of n members. */
static void unite(const struct qm_summary *s, struct qm_summary_member *m, int64_t n, double *x)
{
    for (int v = 0; v < s->plan->n_values; v++) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++)
            if (!isnan(m[i].value[v]))
                x[count++] = m[i].value[v];
        qsort(x, (size_t)count, sizeof *x, ascending);
        if (count)
            m[0].value[v] = count % 2 || x[count / 2] == x[count / 2 - 1]
                                ? x[count / 2]
                                : 0.5 * (x[count / 2 - 1] + x[count / 2]);
    }
    for (int64_t i = 1; i < n; i++)
        m[0].theory = fmax(m[0].theory, m[i].theory);
}

int64_t qm_summary_fold(const struct qm_summary *s, struct qm_summary_member *m, int64_t n,
                        double *scratch)
{
    int is_single = n > 0 && m[0].unit == m[n - 1].unit; /* they are sorted */
    int64_t kept = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && m[end].unit == m[i].unit; end++)
            if (is_single && (!is_equal(s->results, m[i].order, m[end].order) ||
                              (m[i].base >= 0 && !is_equal(s->results, m[i].base, m[end].base))))
                break;
        unite(s, &m[i], end - i, scratch);
        m[kept++] = m[i];
    }
    return kept;
}
