/* draws.c - Tests sums of draw errors against 7 standard deviations. */
#include "experiments/check/draws.h"

#include <math.h>

static const double least_variance = 100.0, deviations = 7.0;

/* p (1 - p), from a draw error of 1 - p or -p. */
static double variance(float error) { return fabs((double)error) * (1.0 - fabs((double)error)); }

/* |sum| in standard deviations where it is above the limit; 0: within it, or too little
 * variance. */
static double excess(double sum, double variance_sum)
{
    double z = variance_sum >= least_variance ? fabs(sum) / sqrt(variance_sum) : 0.0;
    return z > deviations ? z : 0.0;
}

/* The excess of the sum of products, whose terms have expectation 0 where a and b are
 * independent. */
static double related(const float *a, const float *b, int64_t n)
{
    double sum = 0.0, variance_sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
        variance_sum += variance(a[i]) * variance(b[i]);
    }
    return excess(sum, variance_sum);
}

int qm_draws_biased(const float *error, int64_t n)
{
    double sum = 0.0, variance_sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)error[i];
        variance_sum += variance(error[i]);
    }
    return excess(sum, variance_sum) > 0.0;
}

int qm_draws_related(const float *a, const float *b, int64_t n) { return related(a, b, n) > 0.0; }

int64_t qm_draws_repeat(const float *error, int64_t n)
{
    double most = 0.0;
    int64_t at = 0;
    for (int64_t d = 1; d < n; d *= 2) {
        double far = related(error, error + d, n - d);
        if (far > most) {
            most = far;
            at = d;
        }
    }
    return at;
}
