/* metric_data.h - Data and comparisons that the tests of the metrics share.
 *
 * The second definition of a metric, from which `check` and `near` take what they expect, stands in
 * tests/oracle/metric/test_metric.c, or for the names of in_accuracy[] in test_metric_accuracy.c;
 * a metric that has none fails the last test of either program.
 *
 * x: exact values; y: decoded values; ws, gs: the updates from the exact and from the quantized
 * state; grad: the gradient; scale and code: of each element. */
#ifndef QM_TESTS_METRIC_DATA_H
#define QM_TESTS_METRIC_DATA_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "oracle/metric/metric.h"

enum { N = 5003 };

static double x[N], ws[N], gs[N], grad[N];
static float y[N], scale[N];
static uint8_t code[N];

/* Metrics with their second definition in test_metric_accuracy.c, by sorted or special data. */
static const char *const in_accuracy[] = {
    "rel_p1",    "rel_p5",        "rel_p25", "rel_p50", "rel_p75",  "rel_p95",  "rel_p99",
    "rel_p99_9", "rel_min",       "rel_max", "ks",      "ks_high",  "w1",       "w1_high",
    "w2",        "w2_error",      "angle",   "cosine",  "nan_want", "inf_want", "nan_got",
    "inf_got",   "step_nonfinite"};
static char is_compared[256]; /* metrics that were compared with a number so far */

static inline double uniform(uint64_t stream, int64_t i)
{
    return (double)qm_uniform(qm_philox_stream(12345, stream, (uint64_t)i));
}

static inline double normal(uint64_t stream, int64_t i)
{
    double r = sqrt(-2.0 * log(uniform(stream, 2 * i)));
    return r * cos(6.283185307179586 * uniform(stream, 2 * i + 1));
}

/* x over several decades with some zeros, decoded on 15 even levels in [-M, M], M the
 * largest |x| of each 64 elements; two zeros that become nonzero ("births") and one changed
 * sign are planted. */
static inline void make_signed(void)
{
    for (int i = 0; i < N; i++)
        x[i] = i % 97 == 5 ? 0.0 : normal(1, i) * exp(1.5 * normal(2, i));
    for (int b = 0; b < N; b += 64) {
        int end = b + 64 < N ? b + 64 : N;
        double most = 0.0;
        for (int i = b; i < end; i++)
            most = fmax(most, fabs(x[i]));
        for (int i = b; i < end; i++) {
            double k = rint(x[i] / most * 7.0);
            scale[i] = (float)most;
            code[i] = (uint8_t)(k + 7.0);
            y[i] = (float)(k * most / 7.0);
        }
    }
    y[5] = 0.25f; /* births: x = 0 and x^ is not */
    y[102] = -0.5f;
    y[11] = (float)-x[11]; /* a sign flip */
    for (int i = 0; i < N; i++) {
        ws[i] = normal(3, i);
        gs[i] = ws[i] + 0.3 * normal(4, i) * (i % 7 == 0);
        grad[i] = ws[i] + normal(5, i);
    }
}

/* Second moments, positive with some zeros, decoded on 256 even levels in [0, M], M the largest of
 * each 64 elements; some nonzero x are decoded to 0. */
static inline void make_second_moment(void)
{
    for (int i = 0; i < N; i++)
        x[i] = i % 211 == 3 ? 0.0 : 1e-6 * pow(normal(6, i), 2.0);
    for (int b = 0; b < N; b += 64) {
        int end = b + 64 < N ? b + 64 : N;
        double most = 0.0;
        for (int i = b; i < end; i++)
            most = fmax(most, x[i]);
        for (int i = b; i < end; i++) {
            code[i] = (uint8_t)rint(x[i] / most * 255.0);
            y[i] = (float)(code[i] * most / 255.0);
            scale[i] = (float)most;
        }
    }
}

static inline struct qm_sample sample(int at, int n)
{
    struct qm_sample s = {.n = n, .want = x + at, .got = y + at, .code = code + at};
    s.want_step = ws + at;
    s.got_step = gs + at;
    s.grad = grad + at;
    s.scale = scale + at;
    s.bits = 4;
    s.eps = 1e-8;
    return s;
}

static inline struct qm_metrics *collect(enum qm_metrics_level level, int bits)
{
    struct qm_metrics *m = qm_metrics_open(level);
    struct qm_sample s = sample(0, N);
    s.bits = bits;
    assert_non_null(m);
    qm_metrics_add(m, &s);
    return m;
}

static inline double get(const struct qm_metrics *m, const char *name)
{
    const struct qm_metric *k = qm_metric_find(name);
    if (!k)
        fail_msg("no metric %s", name);
    return k->value(m);
}

/* Fails unless |got - want| <= tol |want|, or both are equal, or both are NaN. */
static inline void near(const char *name, double got, double want, double tol)
{
    for (int i = 0; i < qm_metric_count() && !isnan(want); i++)
        if (strcmp(qm_metric_at(i)->name, name) == 0)
            is_compared[i] = 1;
    if (got == want || (isnan(got) && isnan(want)))
        return;
    if (!(fabs(got - want) <= tol * fabs(want)))
        fail_msg("%s: %.17g, expected %.17g within %g", name, got, want, tol);
}

static inline void check(const struct qm_metrics *m, const char *name, double want)
{
    near(name, get(m, name), want, 1e-13);
}

/* Fails where a metric of the list was not compared with a definition: is_accuracy 0: one that is
 * not of in_accuracy[], 1: one of these. */
static inline void all_are_compared(int is_accuracy)
{
    assert_in_range(qm_metric_count(), 1, sizeof is_compared);
    for (int i = 0; i < qm_metric_count(); i++) {
        int is_there = 0;
        for (size_t k = 0; k < sizeof in_accuracy / sizeof *in_accuracy; k++)
            is_there += strcmp(in_accuracy[k], qm_metric_at(i)->name) == 0;
        if (is_there == is_accuracy && !is_compared[i])
            fail_msg("%s has no second definition in tests/oracle/metric", qm_metric_at(i)->name);
    }
}

#endif
