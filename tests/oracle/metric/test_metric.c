/* test_metric.c - every metric against its slow direct definition and against closed values. */
#pragma GCC diagnostic ignored "-Wdouble-promotion" /* the definitions are summed in long double */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "oracle/metric/block_error.h"
#include "oracle/metric/metric.h"
#include "oracle/metric/pair_sums.h"
#include "oracle/theory/drift.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5003 };

static double x[N], ws[N], gs[N], grad[N];
static float y[N], scale[N];
static uint8_t code[N];

static double uniform(uint64_t stream, int64_t i)
{
    return (double)qm_uniform(qm_philox_stream(12345, stream, (uint64_t)i));
}

static double normal(uint64_t stream, int64_t i)
{
    double r = sqrt(-2.0 * log(uniform(stream, 2 * i)));
    return r * cos(6.283185307179586 * uniform(stream, 2 * i + 1));
}

/* A signed 4-bit grid of 15 levels, one scale in 64, x over several decades, some zeros. */
static void make_signed(void)
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
    y[5] = 0.25f; /* births: x = 0 decoded to something */
    y[102] = -0.5f;
    y[11] = (float)-x[11]; /* a flip */
    for (int i = 0; i < N; i++) {
        ws[i] = normal(3, i);
        gs[i] = ws[i] + 0.3 * normal(4, i) * (i % 7 == 0);
        grad[i] = ws[i] + normal(5, i);
    }
}

/* A second moment: positive, decoded in 8 bits of a uniform grid per 64, so that some collapse. */
static void make_second_moment(void)
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

static struct qm_sample sample(int at, int n)
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

static struct qm_metrics *collect(enum qm_metrics_level level, int bits)
{
    struct qm_metrics *m = qm_metrics_open(level);
    struct qm_sample s = sample(0, N);
    s.bits = bits;
    assert_non_null(m);
    qm_metrics_add(m, &s);
    return m;
}

static double get(const struct qm_metrics *m, const char *name)
{
    const struct qm_metric *k = qm_metric_find(name);
    if (!k)
        fail_msg("no metric %s", name);
    return k->value(m);
}

/* |got - want| <= tol |want|, or both NaN, or equal */
static void near(const char *name, double got, double want, double tol)
{
    if (got == want || (isnan(got) && isnan(want)))
        return;
    if (!(fabs(got - want) <= tol * fabs(want)))
        fail_msg("%s: %.17g, expected %.17g within %g", name, got, want, tol);
}

static void check(const struct qm_metrics *m, const char *name, double want)
{
    near(name, get(m, name), want, 1e-13);
}

/* ---- the list ------------------------------------------------------------------------------ */

static void list_is_sound(void **state)
{
    (void)state;
    for (int level = QM_METRICS_brief; level <= QM_METRICS_basic; level++) {
        struct qm_metrics *m = collect((enum qm_metrics_level)level, 4);
        for (int i = 0; i < qm_metric_count(); i++) {
            const struct qm_metric *k = qm_metric_at(i);
            assert_ptr_equal(qm_metric_find(k->name), k);
            assert_true(strlen(k->unit) > 0 && strlen(k->text) > 0);
            assert_int_equal((int)k->level > level, isnan(k->value(m)) != 0);
        }
        qm_metrics_close(m);
    }
    assert_null(qm_metric_find("no_such"));
    qm_metrics_close(NULL);
}

/* Every statistic over nothing is NaN, every count 0. */
static void empty_is_nan(void **state)
{
    (void)state;
    for (int level = QM_METRICS_brief; level <= QM_METRICS_full; level++) {
        struct qm_metrics *m = qm_metrics_open((enum qm_metrics_level)level);
        struct qm_sample s = sample(0, 0);
        qm_metrics_add(m, &s);
        for (int i = 0; i < qm_metric_count(); i++) {
            const struct qm_metric *k = qm_metric_at(i);
            double v = k->value(m);
            if (strcmp(k->unit, "elements") == 0 && (int)k->level <= level)
                assert_true(v == 0.0);
            else if (!isnan(v))
                fail_msg("%s of nothing is %g", k->name, v);
        }
        struct qm_decade d[QM_DECADES];
        qm_metrics_decades(m, d);
        assert_true(d[40].count == 0 && isnan(d[40].mean_rel));
        assert_true(isnan(qm_metrics_rel_quantile(m, 0.5)));
        qm_metrics_close(m);
    }
}

/* ---- against the definitions ----------------------------------------------------------------- */

static void sums_match_definitions(void **state)
{
    (void)state;
    make_signed();
    struct qm_metrics *m = collect(QM_METRICS_basic, 4);
    long double e1 = 0, e2 = 0, x2 = 0, ae = 0, ax = 0, shrink = 0, y2 = 0, lost = 0, steps = 0;
    long double lost_step = 0, lost_got = 0, got_steps = 0, spread = 0;
    double max_e = 0, max_rel = 0;
    int zeros = 0, collapsed = 0, births = 0, flips = 0, beyond = 0;
    for (int i = 0; i < N; i++) {
        double v = (double)y[i], e = v - x[i];
        e1 += e, e2 += (long double)e * e, x2 += (long double)x[i] * x[i];
        y2 += (long double)v * v, ae += fabs(e), ax += fabs(x[i]), shrink += fabs(v) - fabs(x[i]);
        steps += fabs(ws[i]), got_steps += fabs(gs[i]);
        max_e = fmax(max_e, fabs(e));
        zeros += x[i] == 0.0;
        births += x[i] == 0.0 && v != 0.0;
        if (x[i] == 0.0)
            continue;
        max_rel = fmax(max_rel, fabs(e) / fabs(x[i]));
        flips += v * x[i] < 0.0;
        beyond += v / x[i] < 0.5 || v / x[i] > 2.0;
        if (v == 0.0) {
            collapsed++;
            lost += fabs(x[i]), lost_step += fabs(ws[i]), lost_got += fabs(gs[i]);
        }
    }
    long double mean = e1 / N;
    for (int i = 0; i < N; i++)
        spread += ((double)y[i] - x[i] - mean) * ((double)y[i] - x[i] - mean);
    double sd = (double)sqrtl(spread / (N - 1));
    assert_true(births == 2 && flips == 1 && collapsed > 100);
    check(m, "count", N);
    check(m, "mse", (double)(e2 / N));
    check(m, "rmse", (double)sqrtl(e2 / N));
    check(m, "nmse", (double)(e2 / x2));
    check(m, "sqnr", (double)(-10.0L * log10l(e2 / x2)));
    check(m, "mean_abs", (double)(ae / N));
    check(m, "max_abs", max_e);
    check(m, "max_rel", max_rel);
    near("bias", get(m, "bias"), (double)mean, 1e-11);
    check(m, "error_sd", sd);
    check(m, "bias_se", sd / sqrt(N));
    near("bias_z", get(m, "bias_z"), (double)mean / (sd / sqrt(N)), 1e-11);
    near("rel_bias", get(m, "rel_bias"), (double)(e1 / ax), 1e-11);
    near("shrinkage", get(m, "shrinkage"), (double)(shrink / N), 1e-12);
    near("rel_shrinkage", get(m, "rel_shrinkage"), (double)(shrink / ax), 1e-12);
    check(m, "norm_ratio", (double)sqrtl(y2 / x2));
    check(m, "collapse", (double)collapsed / (N - zeros));
    check(m, "collapse_abs", (double)(lost / ax));
    check(m, "collapse_step", (double)(lost_step / steps));
    check(m, "collapse_got_step", (double)(lost_got / got_steps));
    check(m, "birth", 2.0 / zeros);
    check(m, "sign_flip", 1.0 / (N - zeros));
    check(m, "beyond_2x", (double)beyond / (N - zeros));
    qm_metrics_close(m);
}

static void step_matches_definitions(void **state)
{
    (void)state;
    make_signed();
    gs[20] = 0.0;
    ws[40] = 0.0;
    struct qm_metrics *m = collect(QM_METRICS_full, 4);
    long double e2 = 0, w2 = 0, g2 = 0, au = 0, wrong = 0, wg = 0, gr = 0, d2 = 0, s2 = 0;
    double max_g = 0, max_e = 0;
    int signs = 0;
    for (int i = 0; i < N; i++) {
        double e = gs[i] - ws[i];
        e2 += (long double)e * e, w2 += (long double)ws[i] * ws[i];
        g2 += (long double)gs[i] * gs[i], au += fabs(ws[i]);
        max_g = fmax(max_g, fabs(gs[i]));
        max_e = fmax(max_e, fabs(e));
        int other = (gs[i] > 0) - (gs[i] < 0) != (ws[i] > 0) - (ws[i] < 0);
        signs += other;
        wrong += other ? fabs(ws[i]) : 0.0;
        wg += (long double)gs[i] * grad[i], gr += (long double)grad[i] * grad[i];
    }
    for (int i = 0; i < N; i++) { /* angle by the formula of the list */
        long double a = ws[i] / sqrtl(w2), b = gs[i] / sqrtl(g2);
        d2 += (a - b) * (a - b), s2 += (a + b) * (a + b);
    }
    assert_true(signs > 20);
    check(m, "step_nmse", (double)(e2 / w2));
    check(m, "step_rmse", (double)sqrtl(e2 / N));
    check(m, "step_rms", (double)sqrtl(g2 / N));
    check(m, "step_max", max_g);
    check(m, "step_max_abs", max_e);
    check(m, "step_norm_ratio", (double)sqrtl(g2 / w2));
    check(m, "step_angle", (double)(2.0L * atan2l(sqrtl(d2), sqrtl(s2))));
    check(m, "step_sign", (double)signs / N);
    check(m, "step_sign_abs", (double)(wrong / au));
    check(m, "step_cos_grad", (double)(wg / sqrtl(gr * g2)));
    qm_metrics_close(m);
}

static void codes_match_definitions(void **state)
{
    (void)state;
    make_signed();
    struct qm_metrics *m = collect(QM_METRICS_basic, 4);
    int64_t count[256] = {0}, out[256];
    double h = 0.0;
    int used = 0;
    for (int i = 0; i < N; i++)
        count[code[i]]++;
    for (int k = 0; k < 256; k++) {
        used += count[k] > 0;
        h -= count[k] ? (double)count[k] / N * log2((double)count[k] / N) : 0.0;
    }
    qm_metrics_codes(m, out);
    assert_memory_equal(out, count, sizeof out);
    check(m, "codes_used", used);
    check(m, "code_utilisation", used / 16.0);
    check(m, "code_entropy", h);
    check(m, "code_entropy_mm", h + (used - 1) / (2.0 * N * log(2.0)));
    check(m, "code_efficiency", h / 4.0);
    check(m, "code_perplexity", exp2(h));
    check(m, "code_low", (double)count[0] / N);
    check(m, "code_high", 0.0); /* 15 levels: code 15 never occurs */
    check(m, "saturation", (double)count[0] / N);
    qm_metrics_close(m);
}

/* 256 codes equally often: 8 bits exactly. */
static void uniform_codes_have_full_entropy(void **state)
{
    (void)state;
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_basic);
    for (int i = 0; i < 1024; i++)
        code[i] = (uint8_t)i;
    struct qm_sample s = {.n = 1024, .want = x, .got = y, .code = code, .bits = 8};
    qm_metrics_add(m, &s);
    check(m, "code_entropy", 8.0);
    check(m, "code_efficiency", 1.0);
    check(m, "code_perplexity", 256.0);
    check(m, "saturation", 2.0 / 256.0);
    assert_true(isnan(get(m, "step_nmse")));
    qm_metrics_close(m);
}

static void full_matches_definitions(void **state)
{
    (void)state;
    make_signed();
    struct qm_metrics *m = collect(QM_METRICS_full, 4);
    long double l1 = 0, l2 = 0, u1 = 0, u2 = 0;
    double lmax = 0, umax = 0, rel_scaled = 0;
    int nl = 0, exact = 0;
    for (int i = 0; i < N; i++) {
        double v = (double)y[i], e = fabs(v - x[i]);
        double u = e / exp2(fmax(floor(log2(fabs(x[i]))), -126.0) - 23.0);
        u1 += u, u2 += (long double)u * u, umax = fmax(umax, u);
        exact += y[i] == (float)x[i];
        if (x[i] != 0.0 && fabs(x[i]) >= 0.01 * (double)scale[i])
            rel_scaled = fmax(rel_scaled, e / fabs(x[i]));
        if (v * x[i] > 0.0) {
            long double l = logl((long double)v / x[i]);
            l1 += l, l2 += l * l, lmax = fmax(lmax, fabs((double)l)), nl++;
        }
    }
    near("log_mean", get(m, "log_mean"), (double)(l1 / nl), 1e-11);
    check(m, "log_rms", (double)sqrtl(l2 / nl));
    check(m, "log_max", lmax);
    check(m, "ulp_mean", (double)(u1 / N));
    check(m, "ulp_rms", (double)sqrtl(u2 / N));
    check(m, "ulp_max", umax);
    check(m, "exact", (double)exact / N);
    check(m, "clipped", 0.0);
    check(m, "max_rel_scaled", rel_scaled);
    qm_metrics_reset(m);
    for (int i = 0; i < 100; i++)
        scale[i] = (float)(fabs(x[i]) * 0.75);
    struct qm_sample s = sample(0, N);
    qm_metrics_add(m, &s);
    int zeros = 0;
    for (int i = 0; i < 100; i++)
        zeros += x[i] == 0.0;
    check(m, "clipped", (100.0 - zeros) / N);
    qm_metrics_close(m);
}

static void inverse_root_matches_definition(void **state)
{
    (void)state;
    make_second_moment();
    struct qm_metrics *m = collect(QM_METRICS_full, 8);
    const char *name[2][6] = {
        {"invsqrt_mean", "invsqrt_rms", "invsqrt_max", "rho_mean", "rho_rms", "rho_max"},
        {"invsqrt_mean_1e6", "invsqrt_rms_1e6", "invsqrt_max_1e6", "rho_mean_1e6", "rho_rms_1e6",
         "rho_max_1e6"}};
    for (int k = 0; k < 2; k++) {
        long double eps = k ? 1e-6 : 1e-8, i1 = 0, i2 = 0, im = 0, r1 = 0, r2 = 0, rm = 0;
        for (int i = 0; i < N; i++) {
            long double dv = sqrtl(x[i]) + eps, dw = sqrtl((long double)y[i]) + eps;
            long double inv = fabsl(1 / dv - 1 / dw), rho = dv / dw - 1;
            i1 += inv, i2 += inv * inv, im = fmaxl(im, inv);
            r1 += rho, r2 += rho * rho, rm = fmaxl(rm, fabsl(rho));
        }
        long double want[6] = {i1 / N, sqrtl(i2 / N), im, r1 / N, sqrtl(r2 / N), rm};
        for (int j = 0; j < 6; j++)
            check(m, name[k][j], (double)want[j]);
    }
    long double alive = 0;
    for (int i = 0; i < N; i++)
        if (y[i] > 0.0f)
            alive += powl(sqrtl((long double)x[i] / (long double)y[i]) - 1, 2);
    check(m, "rho_alive_rms", (double)sqrtl(alive / N));
    check(m, "invsqrt_negative", 0.0);
    assert_true(get(m, "collapse") > 0.05); /* 8-bit uniform maps collapse small v */
    qm_metrics_close(m);
}

/* eps = 0 with a zero on either side has no inverse root; negatives have no root. */
static void inverse_root_leaves_out_what_has_none(void **state)
{
    (void)state;
    double want[4] = {4.0, 0.0, 1.0, -1.0};
    float got[4] = {1.0f, 1.0f, 0.0f, 1.0f};
    struct qm_sample s = {.n = 4, .want = want, .got = got};
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    qm_metrics_add(m, &s);
    check(m, "invsqrt_negative", 1.0);
    check(m, "invsqrt_singular", 2.0);
    check(m, "rho_mean", 1.0);
    check(m, "invsqrt_mean", 0.5);
    check(m, "rho_alive_rms", sqrt((1.0 + 1.0) / 3.0)); /* 1, -1 and the collapsed 0 */
    qm_metrics_close(m);
}

static void decades_match_definition(void **state)
{
    (void)state;
    make_signed();
    x[0] = 1e-3, x[1] = nextafter(1e-3, 0.0), x[2] = 3e-44, x[3] = 1e30; /* ends and beyond */
    struct qm_metrics *m = collect(QM_METRICS_full, 4);
    struct qm_decade got[2][QM_DECADES];
    qm_metrics_decades(m, got[0]);
    qm_metrics_unit_decades(m, got[1]);
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < QM_DECADES; k++) {
            char low[32], high[32]; /* the nearest doubles to the powers of ten */
            long double r1 = 0, r2 = 0;
            int n = 0, zero = 0;
            snprintf(low, sizeof low, "1e%d", k + QM_DECADE_LOW);
            snprintf(high, sizeof high, "1e%d", k + 1 + QM_DECADE_LOW);
            double from = k ? strtod(low, NULL) : 0.0;
            double to = k < QM_DECADES - 1 ? strtod(high, NULL) : HUGE_VAL;
            for (int i = 0; i < N; i++) {
                double a = t ? fabs(x[i]) / (double)scale[i] : fabs(x[i]);
                if (a == 0.0 || a < from || a >= to)
                    continue;
                double r = fabs((double)y[i] - x[i]) / fabs(x[i]);
                r1 += r, r2 += (long double)r * r, n++, zero += y[i] == 0.0f;
            }
            assert_int_equal(got[t][k].count, n);
            if (n == 0)
                continue;
            near("mean_rel", got[t][k].mean_rel, (double)(r1 / n), 1e-13);
            near("rms_rel", got[t][k].rms_rel, (double)sqrtl(r2 / n), 1e-13);
            near("zero_share", got[t][k].zero_share, (double)zero / n, 1e-15);
        }
    assert_int_equal(got[0][-3 - QM_DECADE_LOW].count > 0, 1);
    qm_metrics_close(m);
}

/* ---- sorted data ----------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double p = *(const double *)a, q = *(const double *)b;
    return (p > q) - (p < q);
}

static void quantiles_are_within_their_bound(void **state)
{
    (void)state;
    static double rel[N];
    make_signed();
    struct qm_metrics *m = collect(QM_METRICS_full, 4);
    for (int i = 0; i < N; i++)
        rel[i] = fabs((double)y[i] - x[i]) / fmax(fabs(x[i]), 0x1p-126);
    qsort(rel, N, sizeof *rel, ascending);
    for (int k = 0; k <= 1000; k++) {
        double p = k / 1000.0, at = rel[(int)fmax(1.0, ceil(p * N)) - 1];
        double got = qm_metrics_rel_quantile(m, p);
        if (at < 0x1p127)
            near("quantile", got, at, 1.0 / 128.0);
        else
            assert_true(got >= 0x1p127 && got <= rel[N - 1]);
    }
    check(m, "rel_p50", qm_metrics_rel_quantile(m, 0.5));
    check(m, "rel_p99_9", qm_metrics_rel_quantile(m, 0.999));
    check(m, "rel_min", rel[0]);
    check(m, "rel_max", rel[N - 1]);
    qm_metrics_close(m);
}

/* KS, W1 and W2 of two samples by sorting. */
static void sorted_distances(const double *want, const float *got, int n, double out[3])
{
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    assert_true(a && b);
    for (int i = 0; i < n; i++) {
        a[i] = want[i];
        b[i] = (double)got[i];
    }
    qsort(a, (size_t)n, sizeof *a, ascending);
    qsort(b, (size_t)n, sizeof *b, ascending);
    long double w1 = 0, w2 = 0;
    int ks = 0;
    for (int i = 0; i < n; i++) {
        w1 += fabs(a[i] - b[i]);
        w2 += (long double)(a[i] - b[i]) * (a[i] - b[i]);
    }
    for (int i = 0, j = 0; i < n || j < n;) {
        double t = j == n || (i < n && a[i] <= b[j]) ? a[i] : b[j];
        while (i < n && a[i] == t)
            i++;
        while (j < n && b[j] == t)
            j++;
        ks = abs(i - j) > ks ? abs(i - j) : ks;
    }
    out[0] = (double)ks / n;
    out[1] = (double)(w1 / n);
    out[2] = (double)sqrtl(w2 / n);
    free(a);
    free(b);
}

static void distances_enclose_the_sorted_ones(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            make_second_moment();
        else
            make_signed();
        for (int i = 0; round == 2 && i < N; i++) /* continuous against continuous */
            y[i] = (float)(x[i] * (1.0 + 0.02 * normal(9, i)));
        struct qm_metrics *m = collect(QM_METRICS_full, 8);
        double want[3];
        sorted_distances(x, y, N, want);
        const double tiny = 1e-12;
        assert_true(get(m, "ks") <= want[0] + tiny && want[0] <= get(m, "ks_high") + tiny);
        assert_true(get(m, "w1") <= want[1] * (1 + tiny));
        assert_true(want[1] <= get(m, "w1_high") * (1 + tiny));
        assert_true(fabs(get(m, "w2") - want[2]) <= get(m, "w2_error") + tiny * want[2]);
        if (round == 0) { /* cells wider than bins: the enclosures are narrow */
            near("w1", get(m, "w1"), want[1], 0.02);
            near("w2", get(m, "w2"), want[2], 0.02);
        }
        if (round == 1) /* cells of the size of bins */
            near("w1", get(m, "w1"), want[1], 0.25);
        qm_metrics_close(m);
    }
}

/* All mass moved by a constant: KS, W1 and W2 have closed values. */
static void distances_of_point_masses(void **state)
{
    (void)state;
    double want[4] = {-1.0, -1.0, 2.0, 0.0};
    float got[4] = {1.0f, -1.0f, 2.0f, 0.0f};
    struct qm_sample s = {.n = 4, .want = want, .got = got};
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    qm_metrics_add(m, &s);
    check(m, "ks", 0.25);
    check(m, "ks_high", 0.5); /* both have mass in the bin that ends at -1 */
    check(m, "w1", 0.5);
    check(m, "w1_high", 0.5);
    /* sorted: -1 -1 0 2 against -1 0 1 2 */
    check(m, "w2", sqrt(2.0 / 4.0));
    check(m, "w2_error", 0.0);
    qm_metrics_close(m);
}

/* ---- numerical soundness --------------------------------------------------------------------- */

/* Mean 1e9, variance 1: sum x^2 - (sum x)^2 / N has nothing left of it. */
static void variance_about_a_far_mean(void **state)
{
    (void)state;
    enum { MANY = 1000000 };
    double *want = malloc(MANY * sizeof *want);
    float *got = calloc(MANY, sizeof *got);
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_basic);
    assert_true(want && got && m);
    long double mean = 0, spread = 0;
    for (int i = 0; i < MANY; i++) {
        want[i] = -(1e9 + normal(7, i));
        mean -= want[i];
    }
    mean /= MANY;
    for (int i = 0; i < MANY; i++)
        spread += (-want[i] - mean) * (-want[i] - mean);
    struct qm_sample s = {.n = MANY, .want = want, .got = got};
    qm_metrics_add(m, &s);
    double sd = (double)sqrtl(spread / (MANY - 1));
    /* a group's mean of 1e9 is rounded by some 2^-23 = 1.2e-7, which shifts between groups (about
     * 1/16) take part in linearly: 2 x 1.2e-7 / 16 of the variance at worst */
    near("error_sd", get(m, "error_sd"), sd, 1.5e-8);
    near("unit variance", sd * sd, 1.0, 0.01);
    check(m, "bias", (double)mean);
    qm_metrics_close(m);
    free(want);
    free(got);
}

/* Turned by a known small angle, grown and shifted along x besides. */
static void small_angles_are_accurate(void **state)
{
    (void)state;
    enum { DIM = 4096 };
    static double a[DIM], b[DIM];
    static float g[DIM];
    const double angle[] = {1e-2, 1e-5, 1e-8, 1e-10, 1e-13};
    for (int k = 0; k < 5; k++)
        for (int grown = 0; grown < 2; grown++) {
            /* pairs (p, q) are turned by the angle: exactly that of the whole */
            struct qm_pair_sums pair;
            long double c = cosl(angle[k]), s = sinl(angle[k]), factor = grown ? 1.5L : 1.0L;
            memset(&pair, 0, sizeof pair);
            for (int i = 0; i < DIM; i += 2) {
                a[i] = normal(8, i);
                a[i + 1] = normal(8, i + 1);
                b[i] = (double)(factor * (c * a[i] - s * a[i + 1]));
                b[i + 1] = (double)(factor * (s * a[i] + c * a[i + 1]));
            }
            for (int i = 0; i < DIM; i += 256)
                assert_true(qm_pair_sums_add(&pair, a + i, b + i, 256, qm_pair_sums_best()));
            /* b itself is rounded: 2^-53 of each element, over root of the count in effect */
            double slack = 0x1p-52 / angle[k] + 1e-13;
            near("angle", qm_pair_sums_angle(&pair), angle[k], slack);
            near("norm_ratio", qm_pair_sums_norm_ratio(&pair), (double)factor, 1e-14);
        }
    /* beyond a right angle, and opposite */
    double p[2] = {1.0, 0.0}, q[2] = {-1.0, 1.0}, r[2] = {-2.0, 0.0};
    struct qm_pair_sums far = {0}, back = {0};
    qm_pair_sums_add(&far, p, q, 2, QM_PAIR_SUMS_base);
    qm_pair_sums_add(&back, p, r, 2, QM_PAIR_SUMS_base);
    near("135 degrees", qm_pair_sums_angle(&far), 2.356194490192345, 1e-15);
    near("180 degrees", qm_pair_sums_angle(&back), 3.141592653589793, 1e-15);
    /* the public metric, through float32: one element in 1024 turned by float steps */
    for (int i = 0; i < DIM; i++) {
        g[i] = (float)a[i];
        a[i] = (double)g[i];
    }
    g[7] = nextafterf(g[7], 100.0f);
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_basic);
    struct qm_sample one = {.n = DIM, .want = a, .got = g};
    qm_metrics_add(m, &one);
    long double e = (long double)g[7] - a[7], dot = 0, x2 = 0;
    for (int i = 0; i < DIM; i++)
        x2 += (long double)a[i] * a[i];
    dot = e * a[7] / x2;
    near("angle", get(m, "angle"),
         (double)atan2l(sqrtl(e * e - dot * dot * x2), (1 + dot) * sqrtl(x2)), 1e-9);
    assert_true(get(m, "angle") < 1e-8 && get(m, "cosine") == 1.0);
    qm_metrics_close(m);
}

static void kernels_agree_to_the_bit(void **state)
{
    (void)state;
    static double got[N], lost[3][QM_PAIR_SUMS_BLOCK][2];
    make_signed();
    for (int i = 0; i < N; i++)
        got[i] = (double)y[i];
    struct qm_pair_sums base = {0};
    for (int isa = QM_PAIR_SUMS_base; isa <= (int)qm_pair_sums_best(); isa++) {
        struct qm_pair_sums p;
        memset(&p, 0, sizeof p);
        for (int n = 1; n <= QM_PAIR_SUMS_BLOCK; n++) { /* every length */
            int at = 7 * n % (N - QM_PAIR_SUMS_BLOCK);
            assert_true(qm_pair_sums_add(&p, x + at, got + at, n, (enum qm_pair_sums_isa)isa));
            qm_pair_sums_lost(x + at, got + at, ws, gs, n, lost[isa][n - 1],
                              (enum qm_pair_sums_isa)isa);
        }
        assert_memory_equal(lost[isa], lost[QM_PAIR_SUMS_base], sizeof lost[isa]);
        if (isa == QM_PAIR_SUMS_base)
            base = p;
        assert_memory_equal(&p, &base, sizeof p);
        for (int n = 8; n <= QM_PAIR_SUMS_BLOCK; n += 8) {
            struct qm_pair_sums all = {0}, few = {0};
            assert_true(qm_pair_sums_add(&all, x + n, got + n, n, (enum qm_pair_sums_isa)isa));
            assert_true(qm_pair_sums_add_brief(&few, x + n, y + n, n, (enum qm_pair_sums_isa)isa));
            assert_memory_equal(&few.sq_err, &all.sq_err, sizeof few.sq_err);
            assert_memory_equal(&few.sq_want, &all.sq_want, sizeof few.sq_want);
            assert_true(few.n == all.n && few.zero_want == all.zero_want);
            assert_true(few.collapsed == all.collapsed && few.max_err == all.max_err);
        }
        double wide[256];
        qm_pair_sums_widen(y, 255, wide, (enum qm_pair_sums_isa)isa);
        assert_memory_equal(wide, got, 255 * sizeof *wide);
    }
}

/* Whatever a level has is the same at those above it, where elements are dropped as well. */
static void levels_agree_to_the_bit(void **state)
{
    (void)state;
    for (int poisoned = 0; poisoned < 2; poisoned++)
        for (int bits = 4; bits <= 8; bits += 4) {
            make_signed();
            if (poisoned) {
                x[700] = (double)NAN, x[2000] = -HUGE_VAL, x[2001] = 1e200;
                y[701] = NAN, y[4990] = HUGE_VALF;
            }
            struct qm_metrics *m[3];
            for (int level = QM_METRICS_brief; level <= QM_METRICS_full; level++)
                m[level] = collect((enum qm_metrics_level)level, bits);
            for (int i = 0; i < qm_metric_count(); i++) {
                const struct qm_metric *k = qm_metric_at(i);
                double full = k->value(m[QM_METRICS_full]);
                for (int level = (int)k->level; level < QM_METRICS_full; level++) {
                    double v = k->value(m[level]);
                    if (memcmp(&v, &full, sizeof v) != 0)
                        fail_msg("%s: %.17g at level %d, %.17g at full", k->name, v, level, full);
                }
            }
            check(m[QM_METRICS_brief], "nan_want", poisoned);
            check(m[QM_METRICS_brief], "inf_got", poisoned);
            for (int level = QM_METRICS_brief; level <= QM_METRICS_full; level++)
                qm_metrics_close(m[level]);
        }
}

/* The same pieces give the same bits whoever fills them; other cuts the same value to rounding. */
static void merging_is_reproducible(void **state)
{
    (void)state;
    enum { PIECE = 517, PIECES = (N + PIECE - 1) / PIECE };
    make_signed();
    struct qm_metrics *part[2][PIECES], *sum[2];
    for (int who = 0; who < 2; who++) {
        for (int k = 0; k < PIECES; k++)
            part[who][k] = qm_metrics_open(QM_METRICS_full);
        for (int j = 0; j < PIECES; j++) { /* filled forwards, then backwards */
            int k = who ? PIECES - 1 - j : j, at = k * PIECE;
            struct qm_sample s = sample(at, at + PIECE < N ? PIECE : N - at);
            qm_metrics_add(part[who][k], &s);
        }
        sum[who] = qm_metrics_open(QM_METRICS_full);
        for (int k = 0; k < PIECES; k++)
            qm_metrics_merge(sum[who], part[who][k]);
    }
    struct qm_metrics *whole = collect(QM_METRICS_full, 4), *tree = part[0][0];
    for (int step = 1; step < PIECES; step *= 2) /* merged as a tree */
        for (int k = 0; k + step < PIECES; k += 2 * step)
            qm_metrics_merge(part[0][k], part[0][k + step]);
    for (int i = 0; i < qm_metric_count(); i++) {
        const struct qm_metric *k = qm_metric_at(i);
        double a = k->value(sum[0]), b = k->value(sum[1]);
        assert_memory_equal(&a, &b, sizeof a);
        near(k->name, a, k->value(whole), 1e-11);
        near(k->name, a, k->value(tree), 1e-11);
    }
    struct qm_decade d[2][QM_DECADES];
    qm_metrics_decades(sum[0], d[0]);
    qm_metrics_decades(whole, d[1]);
    for (int k = 0; k < QM_DECADES; k++) {
        assert_int_equal(d[0][k].count, d[1][k].count);
        near("mean_rel", d[0][k].mean_rel, d[1][k].mean_rel, 1e-13);
    }
    for (int who = 0; who < 2; who++) {
        for (int k = 0; k < PIECES; k++)
            qm_metrics_close(part[who][k]);
        qm_metrics_close(sum[who]);
    }
    qm_metrics_close(whole);
}

/* ---- special values -------------------------------------------------------------------------- */

/* Poisoned elements are counted, and everything else is as if they were not there. */
static void nonfinite_is_counted_and_left_out(void **state)
{
    (void)state;
    static double px[2 * N], pws[2 * N], pgs[2 * N], pgrad[2 * N];
    static float py[2 * N], pscale[2 * N];
    static uint8_t pcode[2 * N];
    make_signed();
    int n = 0, bad[4] = {0};
    struct qm_metrics *clean = qm_metrics_open(QM_METRICS_full);
    struct qm_metrics *dirty = qm_metrics_open(QM_METRICS_full);
    for (int i = 0; i < N; i++) {
        if (i % 700 == 699) {
            int kind = i / 700 % 4;
            px[n] = kind == 0 ? (double)NAN : kind == 1 ? -HUGE_VAL : 1.0;
            py[n] = kind == 2 ? NAN : kind == 3 ? HUGE_VALF : 1.0f;
            pcode[n] = 3, pscale[n] = 1.0f, pws[n] = 1.0, pgs[n] = 1.0, pgrad[n] = 1.0;
            bad[kind]++;
            n++;
        }
        px[n] = x[i], py[n] = y[i], pws[n] = ws[i], pgs[n] = gs[i], pgrad[n] = grad[i];
        pcode[n] = code[i], pscale[n] = scale[i], n++;
    }
    struct qm_sample s = {n, px, py, pcode, pws, pgs, pgrad, pscale, 4, 1e-8}, c = sample(0, N);
    qm_metrics_add(clean, &c);
    qm_metrics_add(dirty, &s);
    check(dirty, "count", N);
    check(dirty, "nan_want", bad[0]);
    check(dirty, "inf_want", bad[1]);
    check(dirty, "nan_got", bad[2]);
    check(dirty, "inf_got", bad[3]);
    for (int i = 0; i < qm_metric_count(); i++) {
        const struct qm_metric *k = qm_metric_at(i);
        if (strncmp(k->name, "nan_", 4) && strncmp(k->name, "inf_", 4))
            near(k->name, k->value(dirty), k->value(clean), 1e-11);
    }
    /* a non-finite step leaves the state's metrics alone */
    pgs[0] = HUGE_VAL, pws[1] = (double)NAN;
    qm_metrics_reset(dirty);
    qm_metrics_add(dirty, &s);
    check(dirty, "count", N);
    check(dirty, "step_nonfinite", 2.0);
    near("nmse", get(dirty, "nmse"), get(clean, "nmse"), 1e-13);
    assert_true(isfinite(get(dirty, "step_nmse")) && isfinite(get(dirty, "step_cos_grad")));
    qm_metrics_close(clean);
    qm_metrics_close(dirty);
}

static void all_nonfinite_is_empty(void **state)
{
    (void)state;
    double want[3] = {(double)NAN, 1.0, HUGE_VAL};
    float got[3] = {1.0f, NAN, 2.0f};
    struct qm_sample s = {.n = 3, .want = want, .got = got};
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    qm_metrics_add(m, &s);
    check(m, "count", 0.0);
    assert_true(isnan(get(m, "nmse")) && isnan(get(m, "max_abs")) && isnan(get(m, "ks")));
    qm_metrics_close(m);
}

static void zeros_and_exact_copies(void **state)
{
    (void)state;
    double want[9] = {0.0};
    float got[9] = {0.0f};
    struct qm_sample s = {.n = 9, .want = want, .got = got};
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    qm_metrics_add(m, &s);
    check(m, "nmse", 0.0);
    check(m, "sqnr", HUGE_VAL);
    check(m, "bias", 0.0);
    check(m, "bias_z", 0.0);
    check(m, "rel_bias", 0.0);
    check(m, "w1", 0.0);
    check(m, "rel_p99", 0.0);
    check(m, "exact", 1.0);
    check(m, "birth", 0.0);
    assert_true(isnan(get(m, "angle")) && isnan(get(m, "collapse")) && isnan(get(m, "max_rel")));
    got[4] = -1e-3f; /* an error on an all-zero tensor */
    qm_metrics_reset(m);
    qm_metrics_add(m, &s);
    check(m, "nmse", HUGE_VAL);
    check(m, "sqnr", -HUGE_VAL);
    near("birth", get(m, "birth"), 1.0 / 9.0, 1e-15);
    check(m, "sign_flip", (double)NAN);
    qm_metrics_close(m);
}

static void ulp_distance_counts_steps(void **state)
{
    (void)state;
    assert_int_equal(qm_ulp_distance(1.0f, 1.0f), 0);
    assert_int_equal(qm_ulp_distance(1.0f, nextafterf(1.0f, 2.0f)), 1);
    assert_int_equal(qm_ulp_distance(-0.0f, 0.0f), 1);
    assert_int_equal(qm_ulp_distance(1.0f, 2.0f), 1 << 23);
    assert_int_equal(qm_ulp_distance(-HUGE_VALF, HUGE_VALF), 2LL * 0x7f800000 + 1);
}

/* Squares of normals in 8 bits of k/255, one maximum in 128: NMSE, collapse and the RMS of
 * sqrt(v / v^) - 1 as their integrals give them, within 4 standard errors from 20 batches. */
static void published_second_moment_figures(void **state)
{
    (void)state;
    enum { BLOCKS = 250, B = 128, BATCHES = 20 };
    const char *name[3] = {"nmse", "collapse", "rho_alive_rms"};
    const double expected[3] = {2.9218e-05, 9.9536e-02, 4.6627e-02};
    double *v = malloc(BLOCKS * B * sizeof *v), sum[3] = {0}, sq[3] = {0};
    float *w = malloc(BLOCKS * B * sizeof *w);
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    assert_true(v && w && m);
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; i < BLOCKS * B; i++)
            v[i] = pow(normal(20, (int64_t)batch * BLOCKS * B + i), 2.0);
        for (int b = 0; b < BLOCKS * B; b += B) {
            double most = 0.0;
            for (int i = b; i < b + B; i++)
                most = fmax(most, v[i]);
            for (int i = b; i < b + B; i++)
                w[i] = (float)(rint(v[i] / most * 255.0) / 255.0 * most);
        }
        struct qm_sample s = {.n = BLOCKS * B, .want = v, .got = w};
        qm_metrics_reset(m);
        qm_metrics_add(m, &s);
        for (int k = 0; k < 3; k++) {
            double r = get(m, name[k]) / expected[k] - 1.0;
            sum[k] += r;
            sq[k] += r * r;
        }
    }
    for (int k = 0; k < 3; k++) {
        double mean = sum[k] / BATCHES;
        double se = sqrt((sq[k] / BATCHES - mean * mean) / (BATCHES - 1));
        if (!(fabs(mean) <= 4.0 * se) || !(se < 0.01))
            fail_msg("%s: off by %g, standard error %g", name[k], mean, se);
    }
    qm_metrics_close(m);
    free(v);
    free(w);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void blocks_match_definition(void **state)
{
    (void)state;
    enum { B = 64, COUNT = N / B, REST = N - COUNT * B };
    static double nmse[COUNT + 1];
    struct qm_block_stats *b = calloc(1, sizeof *b), *half = calloc(1, sizeof *half);
    assert_true(b && half);
    make_signed();
    x[70] = (double)NAN;
    for (int i = 128; i < 192; i++)
        x[i] = 0.0; /* decoded to something: Inf */
    long double e_all = 0, x_all = 0, var = 0;
    static double mse[COUNT + 1], power[COUNT + 1];
    for (int j = 0; j <= COUNT; j++) {
        long double e2 = 0, x2 = 0;
        int n = 0;
        for (int i = j * B; i < N && i < (j + 1) * B; i++)
            if (isfinite(x[i])) {
                e2 += powl((long double)y[i] - x[i], 2), x2 += (long double)x[i] * x[i], n++;
            }
        nmse[j] = x2 > 0 ? (double)(e2 / x2) : HUGE_VAL;
        mse[j] = (double)(e2 / n), power[j] = (double)(x2 / n);
        e_all += mse[j], x_all += power[j];
    }
    double r = (double)(e_all / x_all);
    for (int j = 0; j <= COUNT; j++)
        var += powl(mse[j] - r * power[j], 2);
    struct qm_block_view first = {0, 40, B, B, 1}, more = {40, COUNT - 40, B, B, 1};
    struct qm_block_view rest = {COUNT, 1, REST, B, 1};
    qm_block_stats_add(b, &first, x, y);
    qm_block_stats_add(half, &more, x + 40 * B, y + 40 * B);
    qm_block_stats_add(half, &rest, x + COUNT * B, y + COUNT * B);
    qm_block_stats_merge(b, half);
    assert_int_equal(b->n, COUNT + 1);
    assert_int_equal(b->infinite, 1);
    assert_int_equal(b->nonfinite, 1);
    near("block nmse", qm_block_stats_nmse(b), r, 1e-13);
    near("block nmse se", qm_block_stats_nmse_se(b),
         (double)(sqrtl(var / COUNT / (COUNT + 1)) / (x_all / (COUNT + 1))), 1e-11);
    assert_int_equal(b->n_worst, QM_BLOCK_WORST);
    assert_int_equal(b->worst[0].index, 2);
    int64_t crests = 0;
    for (int k = 0; k < QM_BLOCK_CRESTS; k++)
        crests += b->crest[k].count;
    assert_int_equal(crests, COUNT);
    for (int k = 1; k < QM_BLOCK_WORST; k++)
        near("worst", b->worst[k].nmse, nmse[b->worst[k].index], 1e-13);
    qsort(nmse, COUNT + 1, sizeof *nmse, ascending);
    for (int k = 1; k < QM_BLOCK_WORST; k++)
        near("worst by size", b->worst[k].nmse, nmse[COUNT - k], 1e-13);
    for (int k = 1; k < 20; k++)
        near("block quantile", qm_block_stats_quantile(b, k / 20.0),
             nmse[(int)ceil(k / 20.0 * (COUNT + 1)) - 1], 1.0 / 128.0);
    assert_true(isinf(qm_block_stats_quantile(b, 1.0)));
    free(b);
    free(half);
}

/* Columns of a matrix by stride are the rows of its transpose. */
static void columns_by_stride(void **state)
{
    (void)state;
    enum { ROWS = 20, COLS = 30 };
    static double t[ROWS * COLS];
    static float u[ROWS * COLS];
    make_signed();
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) {
            t[j * ROWS + i] = x[i * COLS + j];
            u[j * ROWS + i] = y[i * COLS + j];
        }
    struct qm_block_stats *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    assert_true(a && b);
    struct qm_block_view columns = {0, COLS, ROWS, 1, COLS}, rows = {0, COLS, ROWS, ROWS, 1};
    qm_block_stats_add(a, &columns, x, y);
    qm_block_stats_add(b, &rows, t, u);
    assert_memory_equal(a, b, sizeof *a);
    free(a);
    free(b);
}

/* ---- drift ----------------------------------------------------------------------------------- */

/* Element 0: the error alternates (-1); 1: grows by a ramp (+1); 2: a frozen code while the state
 * walks away; 3: exact. */
static void drift_of_known_series(void **state)
{
    (void)state;
    struct qm_drift *d = NULL;
    enum { T = 41 };
    assert_int_equal(qm_drift_open(0, &d), QM_BAD_ARG);
    assert_int_equal(qm_drift_open(4, &d), QM_OK);
    struct qm_drift_values v = qm_drift_values(d);
    assert_true(isnan(v.rel_error) && isnan(v.dead) && isnan(v.autocorrelation));
    double dead_sum = 0.0;
    for (int t = 0; t < T; t++) {
        double want[4] = {8.0, 8.0, 4.0 + 0.125 * t, 2.0};
        float got[4] = {t % 2 ? 8.25f : 7.75f, 8.0f + 0.0625f * (float)t, 4.0f, 2.0f};
        uint8_t codes[4] = {(uint8_t)(t % 2), (uint8_t)t, 7, 1};
        float half[4] = {0.5f, 0.5f, 1.0f, 0.5f};
        qm_drift_add(d, want, got, codes, half);
        v = qm_drift_values(d);
        double e[4] = {t % 2 ? 0.25 : -0.25, 0.0625 * t, -0.125 * t, 0.0}, e2 = 0, x2 = 0, s = 0;
        for (int i = 0; i < 4; i++)
            e2 += e[i] * e[i], x2 += want[i] * want[i], s += e[i];
        near("rel_error", v.rel_error, sqrt(e2 / x2), 1e-14);
        near("mean_error", v.mean_error, s / 4.0, 1e-14);
        near("rel_bias", v.rel_bias, s / (want[0] + want[1] + want[2] + want[3]), 1e-14);
        near("dead", v.dead, 0.125 * t > 1.0 ? 0.25 : 0.0, 0.0);
        dead_sum += t > 0 ? v.dead : 0.0;
    }
    near("dead_mean", v.dead_mean, dead_sum / (T - 1), 1e-14);
    assert_int_equal(v.steps, T);
    assert_int_equal(v.correlated, 3);
    near("autocorrelation", v.autocorrelation, (-1.0 + 1.0 + 1.0) / 3.0, 1e-12);
    qm_drift_close(d);
    qm_drift_close(NULL);
}

/* White error fed through e = beta e + d: lag-1 correlation beta (to sampling error), and equal to
 * Pearson's over the pairs. */
static void drift_correlation_of_an_average(void **state)
{
    (void)state;
    enum { ELEMENTS = 50, T = 400 };
    static double e[T][ELEMENTS], zero[ELEMENTS];
    static float got[ELEMENTS];
    struct qm_drift *d = NULL;
    assert_int_equal(qm_drift_open(ELEMENTS, &d), QM_OK);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < ELEMENTS; i++) {
            e[t][i] = (t ? 0.9 * e[t - 1][i] : 0.0) + normal(10, t * ELEMENTS + i);
            got[i] = (float)e[t][i];
            e[t][i] = (double)got[i];
        }
        qm_drift_add(d, zero, got, NULL, NULL);
    }
    double mean = 0.0;
    for (int i = 0; i < ELEMENTS; i++) {
        long double a = 0, b = 0, aa = 0, bb = 0, ab = 0;
        for (int t = 1; t < T; t++)
            a += e[t - 1][i], b += e[t][i];
        a /= T - 1, b /= T - 1;
        for (int t = 1; t < T; t++) {
            aa += (e[t - 1][i] - a) * (e[t - 1][i] - a), bb += (e[t][i] - b) * (e[t][i] - b);
            ab += (e[t - 1][i] - a) * (e[t][i] - b);
        }
        mean += (double)(ab / sqrtl(aa * bb)) / ELEMENTS;
    }
    struct qm_drift_values v = qm_drift_values(d);
    near("autocorrelation", v.autocorrelation, mean, 1e-12);
    near("beta", v.autocorrelation_pooled, 0.9, 0.02);
    assert_true(isnan(v.dead) && isinf(v.rel_error));
    qm_drift_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_is_nan),
        cmocka_unit_test(sums_match_definitions),
        cmocka_unit_test(list_is_sound),
        cmocka_unit_test(step_matches_definitions),
        cmocka_unit_test(codes_match_definitions),
        cmocka_unit_test(uniform_codes_have_full_entropy),
        cmocka_unit_test(full_matches_definitions),
        cmocka_unit_test(inverse_root_matches_definition),
        cmocka_unit_test(inverse_root_leaves_out_what_has_none),
        cmocka_unit_test(decades_match_definition),
        cmocka_unit_test(quantiles_are_within_their_bound),
        cmocka_unit_test(distances_enclose_the_sorted_ones),
        cmocka_unit_test(distances_of_point_masses),
        cmocka_unit_test(variance_about_a_far_mean),
        cmocka_unit_test(small_angles_are_accurate),
        cmocka_unit_test(kernels_agree_to_the_bit),
        cmocka_unit_test(levels_agree_to_the_bit),
        cmocka_unit_test(merging_is_reproducible),
        cmocka_unit_test(nonfinite_is_counted_and_left_out),
        cmocka_unit_test(all_nonfinite_is_empty),
        cmocka_unit_test(zeros_and_exact_copies),
        cmocka_unit_test(ulp_distance_counts_steps),
        cmocka_unit_test(published_second_moment_figures),
        cmocka_unit_test(blocks_match_definition),
        cmocka_unit_test(columns_by_stride),
        cmocka_unit_test(drift_of_known_series),
        cmocka_unit_test(drift_correlation_of_an_average),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
