/* test_distribution.c - Distributions follow their exact laws; streams keep their contract. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "experiments/source/distribution.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 100000

static float sample[N];

static struct qm_dist_bound parsed(const char *text)
{
    struct qm_dist_bound d;
    if (qm_dist_parse(text, &d) != QM_OK)
        fail_msg("%s: %s", text, qm_message());
    return d;
}

static void draw(const char *text, uint64_t seed, int64_t n)
{
    struct qm_dist_bound d = parsed(text);
    assert_true(n <= N);
    qm_dist_fill(&d, seed, 0, n, sample);
}

/* ---- laws ------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* sqrt(n) times the Kolmogorov-Smirnov distance of x[n] from cdf; sorts x. */
static double distance(double *x, int64_t n, double (*cdf)(double x, double arg), double arg)
{
    double worst = 0;
    qsort(x, (size_t)n, sizeof *x, compare);
    for (int64_t i = 0; i < n; i++) {
        double p = cdf(x[i], arg);
        worst = fmax(worst,
                     fmax(fabs(p - (double)i / (double)n), fabs(p - (double)(i + 1) / (double)n)));
    }
    return worst * sqrt((double)n);
}

/* P(D sqrt(n) > 2.2) = 1.2e-4 under the law; the seeds are fixed. */
#define KS_LIMIT 2.2

static double cdf_gauss(double x, double arg) { return gsl_cdf_gaussian_P(x, arg); }
static double cdf_laplace(double x, double arg) { return gsl_cdf_laplace_P(x, arg); }
static double cdf_student(double x, double nu) { return gsl_cdf_tdist_P(x, nu); }
static double cdf_flat(double x, double half) { return gsl_cdf_flat_P(x, -half, half); }
static double cdf_unit(double x, double arg)
{
    (void)arg;
    return gsl_cdf_flat_P(x, 0, 1);
}
static double cdf_lognormal(double x, double sigma) { return gsl_cdf_lognormal_P(x, 0, sigma); }
static double cdf_chi2(double x, double k) { return gsl_cdf_chisq_P(x, k); }
static double cdf_mean_chi2(double x, double k) { return gsl_cdf_chisq_P(k * x, k); }
static double cdf_studentsq(double x, double nu) { return gsl_cdf_fdist_P(x, 1, nu); }

static void test_laws(void **state)
{
    static const struct {
        const char *text;
        double (*cdf)(double x, double arg);
        double arg;
    } laws[] = {
        {"gauss", cdf_gauss, 1},
        {"laplace", cdf_laplace, 1},
        {"student:3", cdf_student, 3},
        {"student:1.5", cdf_student, 1.5},
        {"student:100", cdf_student, 100},
        {"uniform", cdf_flat, 1},
        {"lognormal:1", cdf_lognormal, 1},
        {"lognormal:2", cdf_lognormal, 2},
        {"chi2", cdf_chi2, 1},
        {"chi2:2", cdf_chi2, 2},
        {"chi2:k=7", cdf_chi2, 7},
        {"ema2:beta=0.95", cdf_mean_chi2, 39},
        {"ema2:0.5", cdf_mean_chi2, 3},
        {"ema2:0.33333333333333335", cdf_mean_chi2, 2},
        {"ema2:0.999", cdf_mean_chi2, 1999},
        {"studentsq:4", cdf_studentsq, 4},
    };
    double *x = malloc(N * sizeof *x);
    (void)state;
    assert_non_null(x);
    for (size_t k = 0; k < sizeof laws / sizeof laws[0]; k++)
        for (uint64_t seed = 1; seed <= 2; seed++) {
            draw(laws[k].text, seed, N);
            for (int i = 0; i < N; i++)
                x[i] = (double)sample[i];
            double d = distance(x, N, laws[k].cdf, laws[k].arg);
            if (d > KS_LIMIT)
                fail_msg("%s, seed %d: sqrt(n) D = %.3f", laws[k].text, (int)seed, d);
        }
    /* the test detects a scale that is wrong by 5 % */
    draw("gauss", 1, N);
    for (int i = 0; i < N; i++)
        x[i] = 1.05 * (double)sample[i];
    assert_true(distance(x, N, cdf_gauss, 1) > KS_LIMIT);
    free(x);
}

/* The sample mean of f minus its exact value, in standard errors. */
static void check_mean(const char *text, const char *what, double (*f)(double), double exact)
{
    double sum = 0, sum2 = 0;
    draw(text, 7, N);
    for (int i = 0; i < N; i++) {
        double y = f((double)sample[i]);
        sum += y;
        sum2 += y * y;
    }
    double mean = sum / N, error = sqrt((sum2 / N - mean * mean) / N);
    if (!(fabs(mean - exact) <= 4.5 * error))
        fail_msg("%s: mean of %s is %.6g, expected %.6g +- %.2g", text, what, mean, exact, error);
}

static double identity(double x) { return x; }
static double square(double x) { return x * x; }
static double fourth(double x) { return x * x * x * x; }
static double size_of(double x) { return fabs(x); }
static double log10_size(double x) { return log10(fabs(x)); }
static double log_size(double x) { return log(fabs(x)); }
static double is_zero(double x) { return x == 0; }
static double is_positive(double x) { return x > 0; }

static void test_moments(void **state)
{
    (void)state;
    check_mean("gauss", "x", identity, 0);
    check_mean("gauss", "x^2", square, 1);
    check_mean("gauss", "x^4", fourth, 3);
    check_mean("laplace", "x", identity, 0);
    check_mean("laplace", "x^2", square, 2);
    check_mean("laplace", "x^4", fourth, 24);
    check_mean("student:12", "x", identity, 0);
    check_mean("student:12", "x^2", square, 12.0 / 10);
    check_mean("student:12", "x^4", fourth, 3.0 * 144 / (10 * 8));
    check_mean("student:3", "|x|", size_of, 2 * sqrt(3) / M_PI);
    check_mean("uniform", "x", identity, 0);
    check_mean("uniform", "x^2", square, 1.0 / 3);
    check_mean("lognormal:0.5", "x", identity, exp(0.125));
    check_mean("lognormal:0.5", "x^2", square, exp(0.5));
    check_mean("lognormal:3", "ln x", log_size, 0);
    check_mean("chi2", "x", identity, 1);
    check_mean("chi2", "x^2", square, 3);
    check_mean("loguniform:-8:0", "log10 |x|", log10_size, -4);
    check_mean("loguniform:-8:0", "x > 0", is_positive, 0.5);
    check_mean("sparse:0.9", "x = 0", is_zero, 0.9);
    check_mean("sparse:0.25", "x^2", square, 0.75);
    check_mean("sparse:0.25", "x > 0", is_positive, 0.375);
    check_mean("ema2:0.9", "x", identity, 1);
    check_mean("ema2:0.9", "x^2", square, 1 + 2.0 / 19);
    check_mean("studentsq:12", "x", identity, 1.2);
    check_mean("rowcol:0", "x^2", square, 1);
}

static void test_loguniform(void **state)
{
    double *x = malloc(N * sizeof *x);
    (void)state;
    assert_non_null(x);
    draw("loguniform:lo=-6,hi=2", 3, N);
    for (int i = 0; i < N; i++) {
        x[i] = (log10(fabs((double)sample[i])) + 6) / 8;
        assert_true(x[i] > -1e-7 && x[i] < 1 + 1e-7);
    }
    double d = distance(x, N, cdf_unit, 0);
    free(x);
    assert_true(d < KS_LIMIT);
}

/* ---- constructions --------------------------------------------------------------------------- */

static void test_outlier(void **state)
{
    static float plain[12800];
    int at_end = 0, moved = 0, last = -1;
    (void)state;
    draw("gauss", 5, 12800);
    memcpy(plain, sample, sizeof plain);
    draw("outlier", 5, 12800);
    for (int run = 0; run < 100; run++) {
        int count = 0, where = 0;
        for (int i = 0; i < 128; i++)
            if (sample[128 * run + i] != plain[128 * run + i]) {
                count++;
                where = i;
                double ratio = (double)sample[128 * run + i] / (double)plain[128 * run + i];
                assert_true(fabs(ratio - 1e4) < 1e-2);
            }
        assert_int_equal(count, 1);
        at_end += where >= 64;
        moved += where != last;
        last = where;
    }
    assert_true(moved > 80);                  /* the place differs between runs, */
    assert_true(at_end > 25 && at_end < 75);  /* binomial: 50 +- 5 */
    draw("outlier:run=8,factor=0", 5, 12800); /* one exact zero in every 8 */
    for (int i = 0, zeros = 0; i < 12800; i++) {
        zeros += sample[i] == 0;
        if (i % 8 == 7)
            assert_int_equal(zeros, i / 8 + 1);
    }
}

/* The ratio to gauss of equal seed is a matrix of rank one with log-normal factors. */
static void test_rowcol(void **state)
{
    static double log_ratio[N];
    const int width = 50, rows = N / width;
    double *row = malloc((size_t)rows * sizeof *row);
    (void)state;
    assert_non_null(row);
    draw("gauss", 11, N);
    for (int i = 0; i < N; i++)
        log_ratio[i] = -log(fabs((double)sample[i]));
    draw("rowcol:sigma=2,width=50", 11, N);
    for (int i = 0; i < N; i++)
        log_ratio[i] += log(fabs((double)sample[i]));
    for (int r = 0; r < rows; r++) {
        row[r] = log_ratio[r * width];
        for (int c = 0; c < width; c++) {
            double want = log_ratio[r * width] + log_ratio[c] - log_ratio[0];
            assert_true(fabs(log_ratio[r * width + c] - want) < 1e-6);
        }
    }
    /* logarithms of the first column are N(b_0, 2^2); b_0 is one draw, so the mean is subtracted */
    double mean = 0;
    for (int r = 0; r < rows; r++)
        mean += row[r] / rows;
    for (int r = 0; r < rows; r++)
        row[r] -= mean;
    assert_true(distance(row, rows, cdf_gauss, 2) < KS_LIMIT);
    double spread = 0, middle = 0;
    for (int c = 0; c < width; c++)
        middle += log_ratio[c] / width;
    for (int c = 0; c < width; c++)
        spread += (log_ratio[c] - middle) * (log_ratio[c] - middle) / 4;
    free(row);
    assert_true(gsl_cdf_chisq_P(spread, width - 1) > 1e-3);
    assert_true(gsl_cdf_chisq_Q(spread, width - 1) > 1e-3);
}

static void test_uniform_is_open(void **state)
{
    (void)state;
    draw("uniform", 1, N);
    for (int i = 0; i < N; i++) {
        double odd = ((double)sample[i] + 1) * 0x1p24;
        assert_true(fabsf(sample[i]) < 1);
        assert_true(odd == floor(odd) && fmod(odd, 2) == 1);
    }
}

static void test_finite_and_signed(void **state)
{
    static const char *const hard[] = {"student:0.5",   "lognormal:10",  "loguniform:-45:38",
                                       "studentsq:1",   "rowcol:4",      "outlier:1:1e30",
                                       "ema2:0.333334", "ema2:0.9999999"};
    (void)state;
    for (size_t k = 0; k < sizeof hard / sizeof hard[0]; k++) {
        draw(hard[k], 2, N);
        for (int i = 0; i < N; i++)
            assert_true(isfinite(sample[i]));
    }
    for (int k = 0; k < qm_dist_count(); k++) {
        const struct qm_dist *d = qm_dist_at(k);
        int negative = 0;
        draw(d->name, 9, N);
        for (int i = 0; i < N; i++)
            negative += sample[i] < 0;
        if (d->sign)
            assert_true(negative > N / 100);
        else
            assert_int_equal(negative, 0);
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

static void check_split(const struct qm_dist_bound *d, int64_t base, int64_t n)
{
    static float whole[5000], part[5000];
    static const int64_t lengths[] = {1, 2, 3, 0, 5, 127, 1, 256, 257, 300, 8, 511};
    qm_dist_fill(d, 42, base, n, whole);
    for (int64_t at = 0, k = 0; at < n; k++) {
        int64_t m = lengths[k % 12] < n - at ? lengths[k % 12] : n - at;
        qm_dist_fill(d, 42, base + at, m, part + at);
        at += m;
    }
    assert_memory_equal(whole, part, (size_t)n * sizeof *whole);
}

static void test_any_split(void **state)
{
    (void)state;
    for (int k = 0; k < qm_dist_count(); k++) {
        struct qm_dist_bound d = parsed(qm_dist_at(k)->name);
        check_split(&d, 0, 5000);
        check_split(&d, 1234567, 5000);
        check_split(&d, ((int64_t)1 << 40) + 3, 5000);
    }
    struct qm_dist_bound narrow = parsed("rowcol:1:7"), runs = parsed("outlier:1000:5");
    check_split(&narrow, 5, 5000);
    check_split(&runs, 77, 5000);
}

static void test_seeds_and_streams(void **state)
{
    static float other[1000];
    double a[4], b[4];
    (void)state;
    for (int k = 0; k < qm_dist_count(); k++) {
        struct qm_dist_bound d = parsed(qm_dist_at(k)->name);
        int same = 0;
        qm_dist_fill(&d, 1, 0, 1000, sample);
        qm_dist_fill(&d, 1ull << 32 | 1, 0, 1000, other);
        for (int i = 0; i < 1000; i++)
            same += sample[i] == other[i] && sample[i] != 0;
        assert_true(same < 3);
        qm_dist_fill(&d, 1, (int64_t)1 << 34, 1000, other); /* no wrap at 2^32 blocks */
        assert_memory_not_equal(sample, other, sizeof other);
    }
    static const enum qm_stream streams[] = {QM_STREAM_rows, QM_STREAM_start, QM_STREAM_noise,
                                             QM_STREAM_dist};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) {
            qm_normals(1, streams[i], 5, 0, 4, a);
            qm_normals(1, streams[j], 5, 0, 4, b);
            assert_true(a[0] != b[0] && a[1] != b[1]);
        }
    qm_normals(1, QM_STREAM_noise, 5, 0, 4, a);
    qm_normals(1, QM_STREAM_noise, 6, 0, 4, b);
    assert_true(a[0] != b[0]);
}

/* The documented construction is repeated word by word from the cuRAND-ordered stream. */
static void test_normals_from_words(void **state)
{
    double z[3];
    (void)state;
    qm_normals(99, QM_STREAM_noise, 17, 6, 3, z);
    struct qm_draws d = qm_draws_for(99, 17, 0xFFFFFE, QM_ROLE_param);
    uint64_t w[4];
    for (int i = 0; i < 4; i++)
        w[i] = qm_draw(&d, 12 + i);
    double u1 = ((double)(w[0] << 21 | w[1] >> 11) + 0.5) / 0x1p53;
    double u2 = ((double)(w[2] << 21 | w[3] >> 11) + 0.5) / 0x1p53;
    assert_true(fabs(z[0] - sqrt(-2 * log(u1)) * cos(2 * M_PI * u2)) < 1e-14);
    assert_true(fabs(z[1] - sqrt(-2 * log(u1)) * sin(2 * M_PI * u2)) < 1e-14);
}

static void test_pick(void **state)
{
    int count[7] = {0};
    double chi2 = 0;
    (void)state;
    for (int i = 0; i < 70000; i++) {
        int64_t k = qm_pick(3, QM_STREAM_rows, 1, i, 7);
        assert_true(k >= 0 && k < 7);
        count[k]++;
    }
    for (int k = 0; k < 7; k++)
        chi2 += (count[k] - 10000) * (count[k] - 10000) / 10000.0;
    assert_true(gsl_cdf_chisq_Q(chi2, 6) > 1e-3 && gsl_cdf_chisq_P(chi2, 6) > 1e-3);
}

static void test_names(void **state)
{
    static const struct {
        const char *text, *message;
        qm_status status;
    } bad[] = {
        {"gaus", "did you mean 'gauss'?", QM_NO_MATCH},
        {"studnet:3", "did you mean 'student'?", QM_NO_MATCH},
        {"", "no distribution ''", QM_NO_MATCH},
        {"student:0", "student: nu is 0, expected a number from 0.5", QM_BAD_ARG},
        {"student:nan", "expected a number", QM_BAD_ARG},
        {"student:3x", "nu is '3x', expected a number", QM_BAD_ARG},
        {"student:mu=3", "student: no argument 'mu'; there is nu", QM_BAD_ARG},
        {"student:3:4", "one value too many, it takes 1", QM_BAD_ARG},
        {"student:3,nu=4", "nu is given twice", QM_BAD_ARG},
        {"gauss:1", "one value too many, it takes 0", QM_BAD_ARG},
        {"gauss:a=1", "there is none", QM_BAD_ARG},
        {"outlier:1.5", "a whole number", QM_BAD_ARG},
        {"loguniform:2:1", "lo 2 is above hi 1", QM_BAD_ARG},
        {"student:", NULL, QM_OK},
    };
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        struct qm_dist_bound d = {.id = -7};
        assert_int_equal(qm_dist_parse(bad[k].text, &d), bad[k].status);
        if (bad[k].status == QM_OK)
            continue;
        if (!strstr(qm_message(), bad[k].message))
            fail_msg("'%s' gave: %s", bad[k].text, qm_message());
        assert_int_equal(d.id, -7);
    }
    struct qm_dist_bound a = parsed("loguniform:-3:4"), b = parsed("loguniform:hi=4,lo=-3");
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.arg[0] == -3 && a.arg[1] == 4);
    assert_true(parsed("student").arg[0] == 3);
    assert_null(qm_dist_at(-1));
    assert_null(qm_dist_at(qm_dist_count()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laws),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_loguniform),
        cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_rowcol),
        cmocka_unit_test(test_uniform_is_open),
        cmocka_unit_test(test_finite_and_signed),
        cmocka_unit_test(test_any_split),
        cmocka_unit_test(test_seeds_and_streams),
        cmocka_unit_test(test_normals_from_words),
        cmocka_unit_test(test_pick),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
