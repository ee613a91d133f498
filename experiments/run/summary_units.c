/* summary_units.c - Counts units: seeds that draw no data, and values of an axis that is not a key
 * of the table, are draws of one unit. */
#include "experiments/run/summary_table.h"

#include "experiments/protocol/protocol.h"

#include <gsl/gsl_sort.h>
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
    int64_t others = 1, stride = 1, own = qm_plain_cell_count(r->cell, r->n_cells);
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

/* Whether cells that differ on this axis alone are of other data, another state or another draw. */
static int makes_data(const char *axis)
{
    static const char *const names[] = {"source", "instance",     "n", "steps", "slot",
                                        "seed",   "rounding_seed"};
    int yes = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        yes |= strcmp(axis, names[k]) == 0;
    return yes;
}

int64_t qm_summary_draw(const struct qm_results *r, int64_t i, int64_t unit)
{
    const struct qm_suite *suite = r->suite;
    for (int a = 0; a < suite->n_axes; a++) {
        int value = qm_cell_value(suite, &r->cell[i], a);
        if (value > 0 && !makes_data(suite->axis[a].key))
            unit -= value * stride_of(r, a);
    }
    return unit;
}

/* ---- folding --------------------------------------------------------------------------------- */

/* Gives m[0] the medians of n members, of those with codes where any has them. */
static void unite(const struct qm_summary *s, struct qm_summary_member *m, int64_t n, double *x)
{
    int is_plain = 1, is_best = 1;
    for (int64_t i = 0; i < n; i++)
        is_plain &= m[i].is_plain;
    for (int64_t i = 0; i < n; i++)
        is_best &= m[i].is_best || (m[i].is_plain && !is_plain);
    for (int v = 0; v < s->plan->n_values; v++) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++)
            if (!isnan(m[i].value[v]) && m[i].is_plain == is_plain)
                x[count++] = m[i].value[v];
        gsl_sort(x, 1, (size_t)count);
        m[0].value[v] = count == 0 ? nan("")
                        : count % 2 || x[count / 2] == x[count / 2 - 1]
                            ? x[count / 2]
                            : 0.5 * (x[count / 2 - 1] + x[count / 2]);
    }
    for (int64_t i = 1; i < n; i++)
        m[0].theory = fmax(m[0].theory, m[i].theory);
    m[0].is_plain = is_plain;
    m[0].is_best = is_best;
}

/* Notes on which axes the n members of a unit differ. */
static void note_axes(struct qm_summary *s, const struct qm_summary_member *m, int64_t n)
{
    const struct qm_results *r = s->results;
    for (int64_t i = 1; i < n; i++)
        for (int a = 0; a < r->suite->n_axes; a++)
            s->is_united[a] |= qm_cell_value(r->suite, &r->cell[m[i].order], a) !=
                               qm_cell_value(r->suite, &r->cell[m[0].order], a);
}

/* Whether cells a and b, and those that they are compared with, have the same results. */
static int is_repeated(const struct qm_results *r, const struct qm_summary_member *a,
                       const struct qm_summary_member *b)
{
    return is_equal(r, a->order, b->order) && (a->base < 0 || is_equal(r, a->base, b->base));
}

int64_t qm_summary_fold(struct qm_summary *s, struct qm_summary_member *m, int64_t n,
                        double *scratch)
{
    int is_single = n > 0 && m[0].unit == m[n - 1].unit, has_several = 0; /* they are sorted */
    int64_t kept = 0;
    for (int64_t i = 1; i < n; i++)
        has_several |= m[i].draw == m[i - 1].draw;
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && m[end].unit == m[i].unit; end++)
            if (is_single && m[end].draw != m[i].draw &&
                (has_several || !is_repeated(s->results, &m[i], &m[end])))
                break;
        note_axes(s, &m[i], end - i);
        unite(s, &m[i], end - i, scratch);
        m[kept++] = m[i];
    }
    return kept;
}
