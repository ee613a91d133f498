/* draws.c - sums over the choices of stochastic rounding. */
#include "experiments/check/draws.h"

#include <math.h>

static const double least_variance = 100.0, deviations = 7.0;

static double variance(float left) { return fabs((double)left) * (1.0 - fabs((double)left)); }

/* How many deviations the sum is off; 0: within bounds, or too little to say. */
static double off(double sum, double squares)
{
    double far = squares >= least_variance ? fabs(sum) / sqrt(squares) : 0.0;
    return far > deviations ? far : 0.0;
}

static double related(const float *a, const float *b, int64_t n)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
        squares += variance(a[i]) * variance(b[i]);
    }
    return off(sum, squares);
}

int qm_draws_biased(const float *left, int64_t n)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)left[i];
        squares += variance(left[i]);
    }
    return off(sum, squares) > 0.0;
}

int qm_draws_related(const float *a, const float *b, int64_t n) { return related(a, b, n) > 0.0; }

int64_t qm_draws_repeat(const float *left, int64_t n)
{
    double most = 0.0;
    int64_t at = 0;
    for (int64_t d = 1; d < n; d *= 2) {
        double far = related(left, left + d, n - d);
        if (far > most) {
            most = far;
            at = d;
        }
    }
    return at;
}
