/* test_metric.c - Compares every metric with its direct definition, summed in long double. */
#pragma GCC diagnostic ignored "-Wdouble-promotion" /* the definitions are summed in long double */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/metric_data.h"

/* ---- the list -------------------------------------------------------------------------------- */

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
    check(m, "step_sqnr", (double)(-10.0L * log10l(e2 / w2)));
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

static void every_metric_has_a_definition(void **state)
{
    (void)state;
    all_are_compared(0);
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
        cmocka_unit_test(every_metric_has_a_definition), /* of those above */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
