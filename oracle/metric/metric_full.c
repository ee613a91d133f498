/* metric_full.c - Collects the statistics that only level full has. */
#include "oracle/metric/metric_state.h"
#include <math.h>
#include <string.h>

static void stream_add(struct qm_metric_stream *s, const double *t, int n)
{
    double sum[8] = {0}, mag[8] = {0}, sq[8] = {0}, most = s->max;
    for (int i = 0; i < n; i++) {
        double a = fabs(t[i]);
        sum[i & 7] += t[i];
        mag[i & 7] += a;
        sq[i & 7] += a * a;
        most = a > most ? a : most;
    }
    s->max = most;
    s->n += n;
    qm_sum_add(&s->sum, qm_sum_lanes(sum));
    qm_sum_add(&s->abs, qm_sum_lanes(mag));
    qm_sum_add(&s->sq, qm_sum_lanes(sq));
}

static void stream_merge(struct qm_metric_stream *into, const struct qm_metric_stream *from)
{
    into->n += from->n;
    qm_sum_merge(&into->sum, &from->sum);
    qm_sum_merge(&into->abs, &from->abs);
    qm_sum_merge(&into->sq, &from->sq);
    into->max = fmax(into->max, from->max);
}

/* floor(log2 |x|) of a normal double. */
static int exponent_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)((bits >> 52) & 2047) - 1023;
}

/* 1 over the float32 ULP at x >= 2^-126: 2^(23 - e), e = floor(log2 x); its exponent field is
 * 1023 + 23 - e. */
static double inverse_ulp(double x)
{
    int64_t bits = (int64_t)(2 * 1023 + 23 - (exponent_of(x) + 1023)) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* clang-format off */
static const double power10[QM_DECADES + 1] = {
    1e-40, 1e-39, 1e-38, 1e-37, 1e-36, 1e-35, 1e-34, 1e-33, 1e-32, 1e-31, 1e-30, 1e-29, 1e-28,
    1e-27, 1e-26, 1e-25, 1e-24, 1e-23, 1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16, 1e-15,
    1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1,
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};
/* clang-format on */

/* The decade of x > 0, clamped to the table.  floor(e log10 2), with log10 2 as 1233 / 4096 for
 * |e| <= 140, is the decade or the one below it. */
static int decade_of(double x)
{
    int e = exponent_of(x);
    e = e < -140 ? -140 : e > 140 ? 140 : e;
    int k = ((e * 1233) >> 12) - QM_DECADE_LOW;
    k = k < 0 ? 0 : k;
    k = k < QM_DECADES ? k : QM_DECADES - 1;
    return k < QM_DECADES - 1 && x >= power10[k + 1] ? k + 1 : k;
}

/* The nonzero elements of a group: size (|x| or |x| / scale), relative error, decoded value. */
struct sized {
    int n;
    double size[QM_PAIR_SUMS_BLOCK], rel[QM_PAIR_SUMS_BLOCK], got[QM_PAIR_SUMS_BLOCK];
};

static void add_decades(struct qm_decade_sums *d, const struct sized *s)
{
    double sum[QM_DECADES] = {0}, sq[QM_DECADES] = {0};
    int64_t count[QM_DECADES] = {0};
    for (int i = 0; i < s->n; i++) {
        int k = decade_of(s->size[i]);
        count[k]++;
        d[k].zero += s->got[i] == 0.0;
        sum[k] += s->rel[i];
        sq[k] += s->rel[i] * s->rel[i];
    }
    for (int k = 0; k < QM_DECADES; k++) {
        if (count[k] == 0)
            continue;
        d[k].count += count[k];
        qm_sum_add(&d[k].rel, sum[k]);
        qm_sum_add(&d[k].sq_rel, sq[k]);
    }
}

static void sized_put(struct sized *s, double size, double want, double got)
{
    s->size[s->n] = size;
    s->rel[s->n] = fabs(got - want) / fabs(want);
    s->got[s->n++] = got;
}

/* Error by magnitude, and by magnitude in units of the scale. */
static void add_magnitudes(struct qm_metrics_extra *x, const struct qm_metric_group *g)
{
    struct sized s;
    double most = x->max_rel_scaled;
    s.n = 0;
    for (int i = 0; i < g->n; i++)
        if (g->want[i] != 0.0)
            sized_put(&s, fabs(g->want[i]), g->want[i], g->got[i]);
    add_decades(x->decade[0], &s);
    s.n = 0;
    for (int i = 0; g->scale && i < g->n; i++) {
        double a = fabs(g->want[i]), scale = (double)g->scale[i];
        x->scaled++;
        x->clipped += a > scale * (1.0 + 0x1p-23); /* beyond the float32 rounding of the scale */
        if (a == 0.0 || !(scale > 0.0) || isinf(scale))
            continue;
        sized_put(&s, a / scale, g->want[i], g->got[i]);
        if (a >= 0.01 * scale)
            most = s.rel[s.n - 1] > most ? s.rel[s.n - 1] : most;
    }
    x->max_rel_scaled = most;
    add_decades(x->decade[1], &s);
}

/* Relative, logarithmic and ULP errors. */
static void add_relative(struct qm_metrics_extra *x, const struct qm_metric_group *g)
{
    double rel[QM_PAIR_SUMS_BLOCK], ulp[QM_PAIR_SUMS_BLOCK], log[QM_PAIR_SUMS_BLOCK];
    int n_log = 0;
    for (int i = 0; i < g->n; i++) {
        double want = g->want[i], got = g->got[i], e = got - want;
        double size = fabs(want) > 0x1p-126 ? fabs(want) : 0x1p-126;
        rel[i] = fabs(e) / size;
        ulp[i] = fabs(e) * inverse_ulp(size);
        x->equal += got == (double)(float)want;
        if (want != 0.0 && got != 0.0 && (want < 0.0) == (got < 0.0))
            log[n_log++] = log1p(e / want);
    }
    qm_log_histogram_add(&x->rel, rel, g->n);
    stream_add(&x->ulp, ulp, g->n);
    stream_add(&x->log, log, n_log);
}

/* Errors of 1 / (sqrt(v) + eps), with want and got as second moments v. */
static void add_invsqrt(struct qm_metrics_extra *x, const struct qm_metric_group *g, double own_eps)
{
    const double eps[QM_EPS_COUNT] = {own_eps, 1e-6};
    double inv[QM_EPS_COUNT][QM_PAIR_SUMS_BLOCK], rho[QM_EPS_COUNT][QM_PAIR_SUMS_BLOCK];
    double alive[QM_PAIR_SUMS_BLOCK];
    int n[QM_EPS_COUNT] = {0}, n_alive = 0;
    for (int i = 0; i < g->n; i++) {
        double v = g->want[i], w = g->got[i];
        if (v < 0.0 || w < 0.0) {
            x->negative++;
            continue;
        }
        double root_v = sqrt(v), root_w = sqrt(w);
        /* sqrt(v) - sqrt(w) = (v - w) / (sqrt(v) + sqrt(w)), without cancellation */
        double diff = root_v + root_w > 0.0 ? (v - w) / (root_v + root_w) : 0.0;
        alive[n_alive++] = w > 0.0 ? diff / root_w : 0.0;
        for (int k = 0; k < QM_EPS_COUNT; k++) {
            double dv = root_v + eps[k], dw = root_w + eps[k];
            if (dv > 0.0 && dw > 0.0) {
                rho[k][n[k]] = diff / dw;
                inv[k][n[k]++] = diff / dw / dv;
            } else {
                x->singular++;
            }
        }
    }
    stream_add(&x->rho_alive, alive, n_alive);
    for (int k = 0; k < QM_EPS_COUNT; k++) {
        stream_add(&x->invsqrt[k], inv[k], n[k]);
        stream_add(&x->rho[k], rho[k], n[k]);
    }
}

void qm_extra_add(struct qm_metrics_extra *x, const struct qm_metric_group *g, double eps)
{
    qm_signed_log_histogram_add(&x->want, g->want, g->n);
    qm_signed_log_histogram_add(&x->got, g->got, g->n);
    add_relative(x, g);
    add_magnitudes(x, g);
    add_invsqrt(x, g, eps);
}

void qm_extra_add_steps(struct qm_metrics_extra *x, const struct qm_metric_group *g)
{
    double cross[8] = {0}, grad[8] = {0}, step[8] = {0};
    for (int i = 0; g->grad && i < g->n; i++) {
        if (!isfinite(g->grad[i]))
            continue;
        cross[i & 7] += g->got_step[i] * g->grad[i];
        grad[i & 7] += g->grad[i] * g->grad[i];
        step[i & 7] += g->got_step[i] * g->got_step[i];
        x->n_grad++;
    }
    qm_sum_add(&x->step_grad, qm_sum_lanes(cross));
    qm_sum_add(&x->sq_grad, qm_sum_lanes(grad));
    qm_sum_add(&x->sq_step, qm_sum_lanes(step));
}

void qm_extra_merge(struct qm_metrics_extra *into, const struct qm_metrics_extra *from)
{
    qm_log_histogram_merge(&into->rel, &from->rel);
    qm_signed_log_histogram_merge(&into->want, &from->want);
    qm_signed_log_histogram_merge(&into->got, &from->got);
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < QM_DECADES; k++) {
            struct qm_decade_sums *d = &into->decade[t][k];
            const struct qm_decade_sums *o = &from->decade[t][k];
            d->count += o->count;
            d->zero += o->zero;
            qm_sum_merge(&d->rel, &o->rel);
            qm_sum_merge(&d->sq_rel, &o->sq_rel);
        }
    stream_merge(&into->log, &from->log);
    stream_merge(&into->ulp, &from->ulp);
    stream_merge(&into->rho_alive, &from->rho_alive);
    for (int k = 0; k < QM_EPS_COUNT; k++) {
        stream_merge(&into->invsqrt[k], &from->invsqrt[k]);
        stream_merge(&into->rho[k], &from->rho[k]);
    }
    into->negative += from->negative;
    into->singular += from->singular;
    into->equal += from->equal;
    into->scaled += from->scaled;
    into->clipped += from->clipped;
    into->max_rel_scaled = fmax(into->max_rel_scaled, from->max_rel_scaled);
    into->n_grad += from->n_grad;
    qm_sum_merge(&into->step_grad, &from->step_grad);
    qm_sum_merge(&into->sq_grad, &from->sq_grad);
    qm_sum_merge(&into->sq_step, &from->sq_step);
}
