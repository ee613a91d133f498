/* compensated_sum.h - A compensated sum; two of them can be merged.
 *
 * Ogita, Rump, Oishi, "Accurate sum and dot product" (SIAM J. Sci. Comput. 2005), Sum2: Knuth's
 * two-sum yields the rounding error of every addition exactly, and these errors are summed in lo.
 * The error of the value is about one rounding plus n^2 2^-106 times the sum of magnitudes. */
#ifndef QM_METRIC_COMPENSATED_SUM_H
#define QM_METRIC_COMPENSATED_SUM_H

/* The sum is hi + lo; zeroed memory is an empty sum. */
struct qm_sum {
    double hi, lo;
};

static inline void qm_sum_add(struct qm_sum *s, double x)
{
    double t = s->hi + x, part = t - s->hi;
    s->lo += (s->hi - (t - part)) + (x - part);
    s->hi = t;
}

static inline void qm_sum_merge(struct qm_sum *into, const struct qm_sum *from)
{
    qm_sum_add(into, from->hi);
    qm_sum_add(into, from->lo);
}

static inline double qm_sum_value(const struct qm_sum *s) { return s->hi + s->lo; }

/* The total of the eight lanes of a partial sum, always added in this order. */
static inline double qm_sum_lanes(const double v[8])
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

#endif
