/* problem_bench.h - An open problem with a point, a gradient and two state vectors, for tests. */
#ifndef QM_SUPPORT_PROBLEM_BENCH_H
#define QM_SUPPORT_PROBLEM_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    const struct qm_problem *p;
    void *self;
    struct qm_shape shape[QM_PROBLEM_TENSORS];
    int n_tensors;
    int64_t n;
    double *x, *g, *m, *v;
};

static inline struct bench opened(const char *name, const char *args, uint64_t seed)
{
    struct bench b = {0};
    if (qm_problem_find(name, &b.p) != QM_OK ||
        b.p->open(args, seed, &b.self, &b.n_tensors, b.shape) != QM_OK)
        fail_msg("%s: %s", name, qm_message());
    for (int i = 0; i < b.n_tensors; i++)
        b.n += qm_shape_numel(&b.shape[i]);
    b.x = calloc(4 * (size_t)b.n, sizeof *b.x);
    assert_non_null(b.x);
    b.g = b.x + b.n;
    b.m = b.g + b.n;
    b.v = b.m + b.n;
    b.p->start(b.self, b.x);
    return b;
}

static inline void done(struct bench *b)
{
    b->p->close(b->self);
    free(b->x);
}

static inline double loss(struct bench *b) { return b->p->eval(b->self, b->x, 1, NULL); }

static inline void sgdm_step(struct bench *b, double lr, double momentum, int64_t t)
{
    b->p->eval(b->self, b->x, t, b->g);
    for (int64_t i = 0; i < b->n; i++) {
        b->m[i] = momentum * b->m[i] + b->g[i];
        b->x[i] -= lr * b->m[i];
    }
}

static inline void adam_step(struct bench *b, double lr, int64_t t)
{
    double bc1 = 1 - pow(0.9, (double)t), bc2 = 1 - pow(0.999, (double)t);
    b->p->eval(b->self, b->x, t, b->g);
    for (int64_t i = 0; i < b->n; i++) {
        b->m[i] = 0.9 * b->m[i] + 0.1 * b->g[i];
        b->v[i] = 0.999 * b->v[i] + 0.001 * b->g[i] * b->g[i];
        b->x[i] -= lr / bc1 * b->m[i] / (sqrt(b->v[i]) / sqrt(bc2) + 1e-8);
    }
}

static inline void lion_step(struct bench *b, double lr, int64_t t)
{
    b->p->eval(b->self, b->x, t, b->g);
    for (int64_t i = 0; i < b->n; i++) {
        double u = 0.9 * b->m[i] + 0.1 * b->g[i];
        b->x[i] -= lr * ((u > 0) - (u < 0));
        b->m[i] = 0.99 * b->m[i] + 0.01 * b->g[i];
    }
}

static inline void check_close(const char *what, double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%s: %.15g, expected %.15g within %g relative", what, got, want, relative);
}

/* Relative tolerance of a printed number of n digits: half a unit of the last digit of 1.00... */
#define DIGITS(n) (0.5001 * pow(10, 1 - (n)))

#endif
