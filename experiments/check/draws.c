/* draws.c - sums over the choices of stochastic rounding. */
#include "experiments/check/draws.h"

#include <math.h>

static const double least_variance = 100.0, deviations = 7.0;

static double variance(float left) { return fabs((double)left) * (1.0 - fabs((double)left)); }

static int is_off(double sum, double squares)
{
    return squares >= least_variance && fabs(sum) > deviations * sqrt(squares);
}

int qm_draws_lean(const float *left, int64_t n)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double z = (double)left[i], p = z > 0.0 ? 1.0 - z : -z;
        sum += p < 0.5 ? z : -z;
        squares += variance(left[i]);
    }
    return is_off(sum, squares);
}

int qm_draws_related(const float *a, const float *b, int64_t n)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
        squares += variance(a[i]) * variance(b[i]);
    }
    return is_off(sum, squares);
}

int64_t qm_draws_repeat(const float *left, int64_t n)
{
    for (int64_t d = 1; d < n; d *= 2)
        if (qm_draws_related(left, left + d, n - d))
            return d;
    return 0;
}
