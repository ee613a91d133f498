/* test_metric_accuracy.c - Tests accuracy, reproducibility and special values of the metrics.
 *
 * Quantiles and distances are compared with sorted data; figures of cancelling sums, instruction
 * sets, levels and merges with each other. */
#pragma GCC diagnostic ignored "-Wdouble-promotion" /* the definitions are summed in long double */
#include <stdlib.h>

#include "oracle/metric/pair_sums.h"
#include "tests/support/metric_data.h"

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
    const struct {
        const char *name;
        double p;
    } quantile[] = {{"rel_p1", 0.01},  {"rel_p5", 0.05},  {"rel_p25", 0.25}, {"rel_p50", 0.5},
                    {"rel_p75", 0.75}, {"rel_p95", 0.95}, {"rel_p99", 0.99}, {"rel_p99_9", 0.999}};
    for (size_t k = 0; k < sizeof quantile / sizeof *quantile; k++)
        near(quantile[k].name, get(m, quantile[k].name), rel[(int)ceil(quantile[k].p * N) - 1],
             1.0 / 128.0);
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
        for (int i = 0; round == 2 && i < N; i++) /* both distributions continuous */
            y[i] = (float)(x[i] * (1.0 + 0.02 * normal(9, i)));
        struct qm_metrics *m = collect(QM_METRICS_full, 8);
        double want[3];
        sorted_distances(x, y, N, want);
        const double tiny = 1e-12;
        assert_true(get(m, "ks") <= want[0] + tiny && want[0] <= get(m, "ks_high") + tiny);
        assert_true(get(m, "w1") <= want[1] * (1 + tiny));
        assert_true(want[1] <= get(m, "w1_high") * (1 + tiny));
        assert_true(fabs(get(m, "w2") - want[2]) <= get(m, "w2_error") + tiny * want[2]);
        if (round == 0) { /* cells of the quantizer wider than bins: the enclosures are narrow */
            near("w1", get(m, "w1"), want[1], 0.02);
            near("w2", get(m, "w2"), want[2], 0.02);
        }
        if (round == 1) /* cells of the quantizer about as wide as bins */
            near("w1", get(m, "w1"), want[1], 0.25);
        qm_metrics_close(m);
    }
}

/* Point masses: KS, W1 and W2 have closed forms. */
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

/* Mean 1e9, variance 1: sum x^2 - (sum x)^2 / N would have no correct digit. */
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
    /* a group's mean of 1e9 is rounded by about 2^-23 = 1.2e-7; the variance depends linearly on
     * the shifts between the means of groups (about 1/16): an error of at most 2 x 1.2e-7 / 16 */
    near("error_sd", get(m, "error_sd"), sd, 1.5e-8);
    near("unit variance", sd * sd, 1.0, 0.01);
    check(m, "bias", (double)mean);
    qm_metrics_close(m);
    free(want);
    free(got);
}

/* Vectors turned by a known small angle, and scaled. */
static void small_angles_are_accurate(void **state)
{
    (void)state;
    enum { DIM = 4096 };
    static double a[DIM], b[DIM];
    static float g[DIM];
    const double angle[] = {1e-2, 1e-5, 1e-8, 1e-10, 1e-13};
    for (int k = 0; k < 5; k++)
        for (int grown = 0; grown < 2; grown++) {
            /* each pair of elements is turned by the angle, so the whole vector is, too */
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
            /* b is rounded: each element by 2^-53, which is 2^-52 / angle of the angle at most */
            double slack = 0x1p-52 / angle[k] + 1e-13;
            near("angle", qm_pair_sums_angle(&pair), angle[k], slack);
            near("norm_ratio", qm_pair_sums_norm_ratio(&pair), (double)factor, 1e-14);
        }
    /* an obtuse angle, and opposite vectors */
    double p[2] = {1.0, 0.0}, q[2] = {-1.0, 1.0}, r[2] = {-2.0, 0.0};
    struct qm_pair_sums far = {0}, back = {0};
    qm_pair_sums_add(&far, p, q, 2, QM_PAIR_SUMS_base);
    qm_pair_sums_add(&back, p, r, 2, QM_PAIR_SUMS_base);
    near("135 degrees", qm_pair_sums_angle(&far), 2.356194490192345, 1e-15);
    near("180 degrees", qm_pair_sums_angle(&back), 3.141592653589793, 1e-15);
    /* the public metric through float32: one element changed by one float32 step */
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
    for (int i = 0; i < DIM; i++)
        g[i] = i % 3 ? g[i] : 0.0f;
    qm_metrics_reset(m);
    qm_metrics_add(m, &one);
    long double y2 = 0, both = 0;
    for (int i = 0; i < DIM; i++)
        y2 += (long double)g[i] * g[i], both += (long double)g[i] * a[i];
    near("cosine", get(m, "cosine"), (double)(both / sqrtl(x2 * y2)), 1e-12);
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

/* A metric has equal bits at every level that has it, also where elements are left out. */
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

/* Equal pieces give equal bits in any order of filling; other cuts give the value up
 * to rounding. */
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

/* Whether the metric is a size of an error, which has no bound where a finite number became none;
 * is_step: of the update. */
static int is_size(const char *name, int is_step)
{
    static const char *const names[2][8] = {
        {"mse", "rmse", "nmse", "sqnr", "mean_abs", "max_abs"},
        {"step_nmse", "step_rmse", "step_sqnr", "step_max_abs"},
    };
    for (int i = 0; names[is_step][i]; i++)
        if (strcmp(names[is_step][i], name) == 0)
            return 1;
    return 0;
}

static void is_unbounded(const struct qm_metrics *m, int is_step)
{
    for (int i = 0; i < qm_metric_count(); i++) {
        const struct qm_metric *k = qm_metric_at(i);
        if (is_size(k->name, is_step))
            check(m, k->name, strstr(k->name, "sqnr") ? -HUGE_VAL : HUGE_VAL);
    }
}

/* Elements that are not finite are counted; all other metrics are as without them, but the sizes of
 * errors. */
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
        if (strncmp(k->name, "nan_", 4) && strncmp(k->name, "inf_", 4) && !is_size(k->name, 0))
            near(k->name, k->value(dirty), k->value(clean), 1e-11);
    }
    is_unbounded(dirty, 0);
    /* a step that is not finite does not change the metrics of the state */
    pgs[0] = HUGE_VAL, pws[1] = (double)NAN;
    qm_metrics_reset(dirty);
    qm_metrics_add(dirty, &s);
    check(dirty, "count", N);
    check(dirty, "step_nonfinite", 2.0);
    near("bias", get(dirty, "bias"), get(clean, "bias"), 1e-13);
    is_unbounded(dirty, 1); /* by the first of them */
    assert_true(isfinite(get(dirty, "step_cos_grad")));
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
    is_unbounded(m, 0);
    assert_true(isnan(get(m, "bias")) && isnan(get(m, "max_rel")) && isnan(get(m, "ks")));
    want[1] = (double)NAN; /* what was not finite has no error */
    qm_metrics_reset(m);
    qm_metrics_add(m, &s);
    assert_true(isnan(get(m, "nmse")) && isnan(get(m, "max_abs")) && isnan(get(m, "sqnr")));
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

/* Squares of normals on the grid k / 255 in blocks of 128: NMSE, collapse and the RMS of sqrt(v /
 * v^) - 1 agree with their integrals within 4 standard errors of 20 batches. */
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

static void every_metric_has_a_definition(void **state)
{
    (void)state;
    all_are_compared(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(published_second_moment_figures),
        cmocka_unit_test(every_metric_has_a_definition), /* of those above */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
