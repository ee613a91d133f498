/* stats.c - The bootstrap: bootstrap-t intervals, median intervals, power, false discovery
 * rates. */
#include "experiments/protocol/stats.h"

#include "core/base/philox.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The Philox key of all resamples, and the counter word that separates them from other draws. */
enum { KEY = 0x5eed, STREAM = 0xB007 };
static const double endless = HUGE_VAL;

struct qm_bootstrap {
    int64_t n;
    uint32_t *pick; /* [QM_RESAMPLES][n] */
    double t[QM_RESAMPLES], *copy;
};

static const char *const decisions[] = {
#define X(name, words, text) words,
    QM_DECISION_LIST(X)
#undef X
};

const char *qm_decision_text(enum qm_decision d) { return decisions[d]; }

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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

/* ---- resampling ------------------------------------------------------------------------------ */

qm_status qm_bootstrap_open(struct qm_bootstrap **out)
{
    struct qm_bootstrap *b = calloc(1, sizeof *b);
    if (!b)
        return qm_fail(QM_NO_MEMORY, "bootstrap");
    *out = b;
    return QM_OK;
}

void qm_bootstrap_close(struct qm_bootstrap *b)
{
    if (!b)
        return;
    free(b->pick);
    free(b->copy);
    free(b);
}

static qm_status prepare(struct qm_bootstrap *b, int64_t n)
{
    if (n == b->n)
        return QM_OK;
    free(b->pick);
    free(b->copy);
    b->n = 0;
    b->pick = malloc((size_t)(QM_RESAMPLES * n) * sizeof *b->pick);
    b->copy = malloc((size_t)n * sizeof *b->copy);
    if (!b->pick || !b->copy)
        return qm_fail(QM_NO_MEMORY, "%lld pairs", (long long)n);
    for (uint32_t r = 0; r < QM_RESAMPLES; r++)
        for (int64_t i = 0; i < n; i += 4) {
            struct qm_philox_block w = qm_philox((uint32_t)(i / 4), r, STREAM, 0, KEY, 0);
            for (int64_t j = 0; j < 4 && i + j < n; j++)
                b->pick[r * n + i + j] = (uint32_t)((uint64_t)w.word[j] * (uint64_t)n >> 32);
        }
    b->n = n;
    return QM_OK;
}

static void moments(const double *d, const uint32_t *pick, int64_t n, double *mean, double *sd)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += d[pick ? pick[i] : i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double e = d[pick ? pick[i] : i] - *mean;
        squares += e * e;
    }
    *sd = n > 1 ? sqrt(squares / (double)(n - 1)) : nan("");
}

static int all_equal(const double *d, const uint32_t *pick, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (d[pick ? pick[i] : i] != d[pick ? pick[0] : 0])
            return 0;
    return 1;
}

/* Sets b->t to the t statistics of all resamples about the sample's mean, ascending. */
static void resample(struct qm_bootstrap *b, const double *d, int64_t n, double mean)
{
    for (int64_t r = 0; r < QM_RESAMPLES; r++) {
        const uint32_t *pick = b->pick + r * n;
        double m, s;
        moments(d, pick, n, &m, &s);
        if (all_equal(d, pick, n)) /* s is 0, and m may differ from d by rounding */
            b->t[r] = d[pick[0]] == mean ? 0.0 : copysign(endless, d[pick[0]] - mean);
        else
            b->t[r] = (m - mean) / s * sqrt((double)n);
    }
    qsort(b->t, QM_RESAMPLES, sizeof *b->t, ascending);
}

static double two_sided(const double *t, double t0)
{
    int64_t below = 0, above = 0;
    for (int64_t r = 0; r < QM_RESAMPLES; r++) {
        below += t[r] <= t0;
        above += t[r] >= t0;
    }
    double p = 2.0 * (double)(1 + (below < above ? below : above)) / (QM_RESAMPLES + 1);
    return p < 1.0 ? p : 1.0;
}

static void median_of(struct qm_bootstrap *b, const double *d, int64_t n, struct qm_paired *out)
{
    int64_t rank = qm_median_rank(n, 0.95);
    memcpy(b->copy, d, (size_t)n * sizeof *d);
    qsort(b->copy, (size_t)n, sizeof *d, ascending);
    out->median = qm_quantile(b->copy, n, 0.5);
    out->median_lo = rank ? b->copy[rank - 1] : -endless;
    out->median_hi = rank ? b->copy[n - rank] : endless;
}

qm_status qm_paired_make(struct qm_bootstrap *b, const double *d, int64_t n, struct qm_paired *out)
{
    double none = nan("");
    *out = (struct qm_paired){n, none, none, none, none, none, none, none, none, none, none};
    if (n == 0)
        return QM_OK;
    QM_TRY(prepare(b, n));
    moments(d, NULL, n, &out->mean, &out->sd);
    median_of(b, d, n, out);
    if (n == 1) {
        out->lo95 = out->lo90 = -endless;
        out->hi95 = out->hi90 = endless;
        return QM_OK;
    }
    if (all_equal(d, NULL, n)) { /* no spread: the smallest p that the resamples can give */
        out->mean = out->lo95 = out->hi95 = out->lo90 = out->hi90 = d[0];
        out->sd = 0.0;
        out->p = d[0] == 0.0 ? 1.0 : 2.0 / (QM_RESAMPLES + 1);
        return QM_OK;
    }
    double error = out->sd / sqrt((double)n);
    resample(b, d, n, out->mean);
    out->lo95 = out->mean - qm_quantile(b->t, QM_RESAMPLES, 0.975) * error;
    out->hi95 = out->mean - qm_quantile(b->t, QM_RESAMPLES, 0.025) * error;
    out->lo90 = out->mean - qm_quantile(b->t, QM_RESAMPLES, 0.95) * error;
    out->hi90 = out->mean - qm_quantile(b->t, QM_RESAMPLES, 0.05) * error;
    out->p = two_sided(b->t, out->mean / error);
    return QM_OK;
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

double qm_detectable(int64_t n, double alpha, double power)
{
    double nu = (double)(n - 1), c = gsl_cdf_tdist_Qinv(0.5 * alpha, nu), lo = 0.0, hi = 1.0;
    while (power_of(hi * sqrt((double)n), c, nu) < power)
        hi *= 2.0;
    for (int i = 0; i < 60; i++) {
        double mid = 0.5 * (lo + hi);
        *(power_of(mid * sqrt((double)n), c, nu) < power ? &lo : &hi) = mid;
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
