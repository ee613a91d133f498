/* second_loss.h - A problem's loss and gradient against a second loss in complex long double.
 *
 * At x + i h d with h = 1e-40, the imaginary part of the loss over h is its derivative along d to
 * the last bits of long double, without differences or truncation; the real part is the loss, and
 * decides the branch of ReLU.  The draws of a step are derived again from their definition: rows,
 * tokens and samples are functions of (seed, stream, step, index). */
#ifndef QM_SUPPORT_SECOND_LOSS_H
#define QM_SUPPORT_SECOND_LOSS_H

#include "tests/support/problem_bench.h"

#include <complex.h>
#include <stdio.h>

typedef long double complex num;
#define IM ((num)I)
#define H  1e-40L

/* ---- functions that look at the real part, or that libm lacks -------------------------------- */

static inline num relu(num z) { return creall(z) > 0 ? z : 0; }
static inline num erf_of(num z)
{
    long double x = creall(z);
    return erfl(x) + IM * cimagl(z) * 2 / sqrtl(acosl(-1)) * expl(-x * x);
}
static inline num asin_of(num z)
{
    long double x = creall(z);
    return asinl(x) + IM * cimagl(z) / sqrtl(1 - x * x);
}
static inline num acos_of(num z) { return acosl(-1) / 2 - asin_of(z); }
static inline num sqrt_of(num z)
{
    long double r = sqrtl(creall(z));
    return r + IM * cimagl(z) / (2 * r);
}
static inline num exp_of(num z)
{
    long double e = expl(creall(z));
    return e + IM * e * cimagl(z);
}
static inline num log_of(num z) { return logl(creall(z)) + IM * cimagl(z) / creall(z); }
static inline num tanh_of(num z)
{
    long double t = tanhl(creall(z));
    return t + IM * cimagl(z) * (1 - t * t);
}

static inline num dot(const num *a, const double *b, int64_t n)
{
    num sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * (long double)b[i];
    return sum;
}

/* log sum exp of n numbers. */
static inline num log_sum_exp(const num *z, int64_t n)
{
    long double top = creall(z[0]);
    num sum = 0;
    for (int64_t i = 1; i < n; i++)
        top = fmaxl(top, creall(z[i]));
    for (int64_t i = 0; i < n; i++)
        sum += exp_of(z[i] - top);
    return top + log_of(sum);
}

/* The loss at a point: step >= 1 that of the step; step 0 the one that is plotted. */
typedef num loss_fn(const num *x, uint64_t seed, int64_t step);

struct second_loss {
    const char *name, *args;
    loss_fn *second;
    double spread; /* of the point around the start */
};

/* Rounding of the problem, which is in double: a few operations' worth of the largest element. */
#define ROUNDING 2e-14

static inline void check_case(const struct second_loss *c, uint64_t seed, int64_t step)
{
    struct bench b = opened(c->name, c->args, seed);
    num *x = malloc((size_t)b.n * sizeof *x);
    double largest = 0, size = 0;
    qm_normals(seed, QM_STREAM_dist, 1, 0, b.n, b.m);
    for (int64_t i = 0; i < b.n; i++)
        x[i] = b.x[i] += c->spread * b.m[i];
    double value = b.p->eval(b.self, b.x, step, b.g), plotted = loss(&b);
    check_close(c->name, value, (double)creall(c->second(x, seed, step)), ROUNDING);
    check_close(c->name, plotted, (double)creall(c->second(x, seed, 0)), ROUNDING);
    for (int64_t i = 0; i < b.n; i++) {
        largest = fmax(largest, fabs(b.g[i]));
        size += fabs(b.g[i] * b.m[i]);
    }
    assert_true(largest > 0);
    for (int64_t i = 0; i < b.n; i++) {
        x[i] += IM * H;
        double want = (double)(cimagl(c->second(x, seed, step)) / H);
        x[i] = creall(x[i]);
        if (!(fabs(b.g[i] - want) <= ROUNDING * largest))
            fail_msg("%s %s: element %d is %.17g, derivative %.17g, largest %g", c->name, c->args,
                     (int)i, b.g[i], want, largest);
    }
    double along = 0;
    for (int64_t i = 0; i < b.n; i++) {
        along += b.g[i] * b.m[i];
        x[i] += IM * H * (long double)b.m[i];
    }
    double want = (double)(cimagl(c->second(x, seed, step)) / H);
    if (!(fabs(along - want) <= ROUNDING * size))
        fail_msg("%s: along a direction %.17g, derivative %.17g", c->name, along, want);
    free(x);
    done(&b);
}

#endif
