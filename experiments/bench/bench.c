/* bench.c - Medians and input numbers that the parts of the bench share. */
#include "experiments/bench/bench.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double qm_bench_median(const double *x, int n)
{
    double copy[QM_BENCH_ROUNDS];
    memcpy(copy, x, sizeof *x * (size_t)n);
    gsl_sort(copy, 1, (size_t)n);
    return n % 2 ? copy[n / 2] : 0.5 * (copy[n / 2 - 1] + copy[n / 2]);
}

double qm_bench_ratio(int rounds, const double *over, const double *under, double factor)
{
    double x[QM_BENCH_ROUNDS];
    for (int r = 0; r < rounds; r++)
        x[r] = over[r] / under[r] * factor;
    return qm_bench_median(x, rounds);
}

void qm_bench_fill(float *p, float *g, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        uint64_t h = (uint64_t)i * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
        p[i] = 1.0f + (float)(h & 0xffff) * 1e-6f;
        g[i] = ((float)(h >> 40) * 0x1p-23f - 1.0f) * ldexpf(1.0f, (int)(i / 4096 % 9) - 4);
    }
}
