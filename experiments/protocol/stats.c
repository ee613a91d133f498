/* stats.c - Trimmed means and their intervals, intervals of medians, power, false
 * discovery rates. */
#include "experiments/protocol/stats.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double endless = HUGE_VAL;

static const char *const decisions[] = {
#define X(name, words) words,
    QM_DECISION_LIST(X)
#undef X
};

const char *qm_decision_text(enum qm_decision d) { return decisions[d]; }

double qm_quantile(const double *x, int64_t n, double q)
{
    if (n == 0)
        return nan("");
    double at = q * (double)(n - 1);
    int64_t i = (int64_t)at;
    double f = at - (double)i;
    if (f == 0.0 || x[i] == x[i + 1] || isinf(x[i])) /* -Inf + f Inf would be NaN */
        return x[i];
    return x[i] + f * (x[i + 1] - x[i]);
}

/* ---- locations ------------------------------------------------------------------------------- */

static double mean_of(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

static double squares_about(const double *x, int64_t n, double centre)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - centre) * (x[i] - centre);
    return sum;
}

/* Sets mean, error and df of ascending x[n], n >= 2; x is Winsorized. */
static void trim(double *x, int64_t n, struct qm_paired *out)
{
    int64_t g = n / 5, h = n - 2 * g;
    out->mean = x[g] == x[n - 1 - g] ? x[g] : mean_of(x + g, h);
    out->df = (double)(h - 1);
    for (int64_t i = 0; i < g; i++) {
        x[i] = x[g];
        x[n - 1 - i] = x[n - 1 - g];
    }
    double spread = x[0] == x[n - 1] ? 0.0 : squares_about(x, n, mean_of(x, n));
    out->error = sqrt(spread / (double)(h * (h - 1)));
    if (g > 0) /* a share of 0.2 is trimmed in the limit; h / n is larger for small n */
        out->error = fmax(out->error, sqrt(spread / (double)(n * (n - 1))) / 0.6);
}

/* Sets the intervals and p from mean, error and df. */
static void set_intervals(struct qm_paired *x)
{
    double half95 = gsl_cdf_tdist_Qinv(0.025, x->df) * x->error;
    double half90 = gsl_cdf_tdist_Qinv(0.05, x->df) * x->error;
    x->lo95 = x->mean - half95;
    x->hi95 = x->mean + half95;
    x->lo90 = x->mean - half90;
    x->hi90 = x->mean + half90;
    x->p = x->error > 0.0   ? 2.0 * gsl_cdf_tdist_Q(fabs(x->mean) / x->error, x->df)
           : x->mean == 0.0 ? 1.0
                            : 0.0;
}

/* Counts the numbers far from the median of ascending x[n]; away is scratch of n. */
static int64_t count_far(const double *x, int64_t n, double median, double *away)
{
    int64_t far = 0;
    for (int64_t i = 0; i < n; i++)
        away[i] = fabs(x[i] - median);
    gsl_sort(away, 1, (size_t)n);
    double most = fmax(8.0 * 1.4826 * qm_quantile(away, n, 0.5), QM_USUAL_DELTA);
    for (int64_t i = 0; i < n; i++)
        far += away[i] > most;
    return far;
}

qm_status qm_paired_make(const double *d, int64_t n, struct qm_paired *out)
{
    double none = nan("");
    *out = (struct qm_paired){n,    none, none, none, none, none, none, none,
                              none, none, none, none, none, none, 0,    1};
    if (n == 0)
        return QM_OK;
    double *x = malloc(2 * (size_t)n * sizeof *x);
    if (!x)
        return qm_fail(QM_NO_MEMORY, "%lld pairs", (long long)n);
    int64_t rank = qm_median_rank(n, 0.95);
    memcpy(x, d, (size_t)n * sizeof *x);
    gsl_sort(x, 1, (size_t)n);
    out->median = qm_quantile(x, n, 0.5);
    out->median_lo = rank ? x[rank - 1] : -endless;
    out->median_hi = rank ? x[n - rank] : endless;
    out->far = count_far(x, n, out->median, x + n);
    out->mean = out->plain_mean = x[0] == x[n - 1] ? x[0] : mean_of(d, n);
    out->sd = n > 1 ? sqrt(squares_about(d, n, out->plain_mean) / (double)(n - 1)) : none;
    out->lo95 = out->lo90 = -endless;
    out->hi95 = out->hi90 = endless;
    if (n > 1) {
        trim(x, n, out);
        set_intervals(out);
    }
    free(x);
    return QM_OK;
}

struct at_instance {
    int instance;
    double d;
};

static int by_instance(const void *a, const void *b)
{
    const struct at_instance *x = a, *y = b;
    int order = (x->instance > y->instance) - (x->instance < y->instance);
    return order ? order : (x->d > y->d) - (x->d < y->d);
}

/* Sets x[] to the numbers of each instance in turn and centre[] to their locations; returns the
 * number of instances, or -1 without memory. */
static int64_t locations(struct at_instance *at, int64_t n, double *x, double *centre)
{
    int64_t instances = 0;
    qsort(at, (size_t)n, sizeof *at, by_instance);
    for (int64_t i = 0; i < n; i++)
        x[i] = at[i].d;
    for (int64_t i = 0, end; i < n; i = end) {
        struct qm_paired one;
        for (end = i; end < n && at[end].instance == at[i].instance; end++)
            ;
        if (qm_paired_make(x + i, end - i, &one) != QM_OK)
            return -1;
        centre[instances++] = one.mean;
    }
    return instances;
}

qm_status qm_paired_levels(const double *d, const int *instance, int64_t n, struct qm_paired *out)
{
    QM_TRY(qm_paired_make(d, n, out));
    struct at_instance *at = malloc((size_t)(n + 1) * sizeof *at);
    double *x = malloc((size_t)(2 * n + 1) * sizeof *x);
    qm_status st = at && x ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld pairs", (long long)n);
    for (int64_t i = 0; st == QM_OK && i < n; i++)
        at[i] = (struct at_instance){instance[i], d[i]};
    int64_t instances = st == QM_OK ? locations(at, n, x, x + n) : -1;
    if (instances > 1) {
        struct qm_paired upper;
        st = qm_paired_make(x + n, instances, &upper);
        out->instances = instances;
        out->mean = upper.mean, out->error = upper.error, out->df = upper.df;
        out->lo95 = upper.lo95, out->hi95 = upper.hi95;
        out->lo90 = upper.lo90, out->hi90 = upper.hi90, out->p = upper.p;
    }
    free(x);
    free(at);
    return st != QM_OK || instances >= 0 ? st : QM_NO_MEMORY;
}

/* ---- medians --------------------------------------------------------------------------------- */

double qm_median_coverage(int64_t n, int64_t rank)
{
    double term = pow(0.5, (double)n), below = 0.0; /* term: P(Bin(n, 1/2) = k) */
    for (int64_t k = 0; k < rank; k++) {
        below += term;
        term *= (double)(n - k) / (double)(k + 1);
    }
    return 1.0 - 2.0 * below;
}

int64_t qm_median_rank(int64_t n, double level)
{
    int64_t rank = 0;
    while (2 * (rank + 1) <= n && qm_median_coverage(n, rank + 1) >= level)
        rank++;
    return rank;
}

/* ---- power ----------------------------------------------------------------------------------- */

/* P(|T| > c) of the noncentral t with nu degrees of freedom: the integral over s = chi / sqrt(nu)
 * by Simpson's rule between the quantiles 1e-12 and 1 - 1e-12 of s. */
static double power_of(double shift, double c, double nu)
{
    enum { PANELS = 2000 };
    double lo = sqrt(gsl_cdf_chisq_Pinv(1e-12, nu) / nu);
    double hi = sqrt(gsl_cdf_chisq_Qinv(1e-12, nu) / nu), h = (hi - lo) / PANELS, sum = 0.0;
    double log_norm = (1.0 - 0.5 * nu) * log(2.0) - lgamma(0.5 * nu) + 0.5 * nu * log(nu);
    for (int i = 0; i <= PANELS; i++) {
        double s = lo + h * i;
        double density = exp(log_norm + (nu - 1.0) * log(s) - 0.5 * nu * s * s);
        double beyond = gsl_cdf_ugaussian_Q(c * s - shift) + gsl_cdf_ugaussian_P(-c * s - shift);
        sum += (i == 0 || i == PANELS ? 1.0 : i % 2 ? 4.0 : 2.0) * density * beyond;
    }
    return sum * h / 3.0;
}

double qm_detectable(double df, double alpha, double power)
{
    double c = gsl_cdf_tdist_Qinv(0.5 * alpha, df), lo = 0.0, hi = 1.0;
    while (power_of(hi, c, df) < power)
        hi *= 2.0;
    for (int i = 0; i < 60; i++) {
        double mid = 0.5 * (lo + hi);
        *(power_of(mid, c, df) < power ? &lo : &hi) = mid;
    }
    return hi;
}

/* ---- decisions ------------------------------------------------------------------------------- */

struct ranked {
    double p;
    int64_t index;
};

static int by_p(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->p != y->p ? (x->p > y->p) - (x->p < y->p)
                        : (x->index > y->index) - (x->index < y->index);
}

qm_status qm_false_discovery(const double *p, int64_t n, double *q)
{
    struct ranked *r = malloc((size_t)(n + 1) * sizeof *r);
    int64_t m = 0;
    double least = 1.0;
    if (!r)
        return qm_fail(QM_NO_MEMORY, "family of tests");
    for (int64_t i = 0; i < n; i++) {
        q[i] = nan("");
        if (!isnan(p[i]))
            r[m++] = (struct ranked){p[i], i};
    }
    qsort(r, (size_t)m, sizeof *r, by_p);
    for (int64_t k = m - 1; k >= 0; k--) { /* q of rank k: min over j >= k of p(j) m / j */
        double scaled = r[k].p * (double)m / (double)(k + 1);
        least = scaled < least ? scaled : least;
        q[r[k].index] = least;
    }
    free(r);
    return QM_OK;
}

enum qm_decision qm_decide(const struct qm_paired *x, double delta, double q)
{
    int found = isnan(q) || q <= 0.05;
    if (x->n < QM_LEAST_PAIRS)
        return QM_DECISION_few;
    if (x->lo90 >= -delta && x->hi90 <= delta)
        return QM_DECISION_equivalent;
    if (found && x->hi95 < 0.0)
        return QM_DECISION_better;
    return found && x->lo95 > 0.0 ? QM_DECISION_worse : QM_DECISION_undecided;
}

int qm_is_apart(const struct qm_paired *null, double delta)
{
    return null->n >= QM_LEAST_PAIRS && qm_decide(null, delta, nan("")) != QM_DECISION_equivalent;
}
