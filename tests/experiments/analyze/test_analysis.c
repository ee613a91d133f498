/* test_analysis.c - The streamed analysis equals encoding the whole tensor at once.
 *
 * The comparison covers every norm, several pieces, and equal bits from any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/philox.h"
#include "experiments/analyze/analysis.h"

/* The tensor has three pieces, and its size is no multiple of any block. */
#define ROWS 750
#define COLS 1001
#define N    (ROWS * COLS)

static char path[64];

static float element(int64_t i, int is_signed)
{
    struct qm_philox_block b = qm_philox((uint32_t)i, 0, 0, 0, 7, 11);
    float u = qm_uniform(b.word[0]) + qm_uniform(b.word[1]) - 1.0f;
    float row = 1.0f + (float)(i / COLS % 13), x = u * u * u * row;
    return is_signed ? x : fabsf(x);
}

/* Writes an .npy file of float32. */
static void write_npy(const char *shape, const float *x, int64_t n)
{
    char header[128];
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    int used = snprintf(header, sizeof header,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", shape);
    memset(header + used, ' ', sizeof header - (size_t)used);
    header[117] = '\n';
    const unsigned char head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    assert_int_equal(fwrite(head, 1, 10, f), 10);
    assert_int_equal(fwrite(header, 1, 118, f), 118);
    assert_int_equal(fwrite(x, sizeof *x, (size_t)n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void analyze(struct qm_analysis *a, const char *const *quantizer, int n, int threads,
                    enum qm_metrics_level level, struct qm_float_classes *classes)
{
    struct qm_file *f;
    for (int i = 0; i < n; i++) {
        memset(&a[i], 0, sizeof a[i]);
        assert_int_equal(qm_codec_parse(&a[i].codec, quantizer[i]), QM_OK);
        assert_non_null(a[i].metrics = qm_metrics_open(level));
    }
    assert_int_equal(qm_file_open(path, &f), QM_OK);
    const struct qm_analysis_options how = {.level = level, .seed = 1, .threads = threads};
    assert_int_equal(qm_analyze_tensor(f, 0, a, n, &how, classes), QM_OK);
    qm_file_close(f);
}

static void release(struct qm_analysis *a, int n)
{
    for (int i = 0; i < n; i++)
        qm_metrics_close(a[i].metrics);
}

static double metric(const char *name, const struct qm_analysis *a)
{
    const struct qm_metric *m = qm_metric_find(name);
    assert_non_null(m);
    return m->value(a->metrics);
}

/* Compares with the whole tensor encoded at once and errors summed in plain loops. */
static void expect(const struct qm_analysis *a, const struct qm_shape *shape, const float *x,
                   int64_t n)
{
    struct qm_draws draws = qm_draws_for(1, 1, 0, QM_ROLE_slot0);
    int64_t n_scales = qm_scale_count(&a->codec, shape);
    uint8_t *code = malloc((size_t)n);
    float *scale = malloc((size_t)(n_scales + 1) * sizeof *scale);
    float *got = malloc((size_t)n * sizeof *got);
    assert_true(code && scale && got);
    assert_int_equal(qm_encode(&a->codec, shape, x, &draws, code, scale), QM_OK);
    qm_decode(&a->codec, shape, code, scale, got);
    long double error = 0.0L, power = 0.0L;
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double e = (double)got[i] - (double)x[i];
        error += (long double)e * (long double)e;
        power += (long double)x[i] * (long double)x[i];
        largest = fabs(e) > largest ? fabs(e) : largest;
    }
    double nmse = (double)(error / power);
    assert_true(nmse > 0.0); /* or the comparison would prove nothing */
    assert_true(fabs(metric("nmse", a) / nmse - 1.0) < 1e-13);
    assert_true(metric("max_abs", a) == largest);
    assert_true(metric("count", a) == (double)n);
    free(code);
    free(scale);
    free(got);
}

static float *values(int64_t n, int is_signed)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = element(i, is_signed);
    return x;
}

static void streamed_equals_whole(const char *dims, const struct qm_shape *shape, int is_signed,
                                  const char *const *quantizer, int n)
{
    struct qm_analysis a[16];
    struct qm_float_classes classes;
    int64_t numel = qm_shape_numel(shape);
    float *x = values(numel, is_signed);
    write_npy(dims, x, numel);
    analyze(a, quantizer, n, 2, QM_METRICS_basic, &classes);
    assert_int_equal(classes.n, numel);
    struct qm_analysis brief[16];
    analyze(brief, quantizer, n, 2, QM_METRICS_brief, &classes);
    for (int i = 0; i < n; i++) {
        assert_string_equal(a[i].skipped, "");
        expect(&a[i], shape, x, numel);
        for (int k = 0; k < qm_metric_count(); k++) {
            const struct qm_metric *m = qm_metric_at(k);
            if (m->level == QM_METRICS_brief)
                assert_true(m->value(brief[i].metrics) == m->value(a[i].metrics));
        }
    }
    release(a, n);
    release(brief, n);
    free(x);
}

static void test_signed(void **state)
{
    (void)state;
    static const char *const quantizer[] = {
        "dyn:4s/block:128/bisect/mid",
        "nf4:4s/block:100/bisect/near",
        "dyn:8s/block:300000/bisect/mid",
        "dyn:8s/block:600000/bisect/mid",
        "lin0:4s/rank1/bisect/mid",
        "dyn:4s/row/bisect/mid",
        "dyn:4s/col/bisect/mid",
        "dyn:8s/tensor/bisect/mid",
        "dyn:8s/block:64/bisect/mid/nest:256",
        "dyn:4s/block:128/bisect/stoch",
        "dyn:8s/block:256/mids/mid/recip_tail",
        "int:4s/block:128/arith/even",
    };
    struct qm_shape shape = {2, {ROWS, COLS}};
    streamed_equals_whole("750, 1001", &shape, 1, quantizer, 12);
}

static void test_unsigned(void **state)
{
    (void)state;
    static const char *const quantizer[] = {
        "lin:4u/rank1/bisect/mid", "lin:4u/block:128/bisect/mid", "dyn:8u/block:256/bisect/near"};
    struct qm_shape flat = {1, {N}}, deep = {3, {75, 10, COLS}};
    streamed_equals_whole("750750,", &flat, 0, quantizer, 3);
    streamed_equals_whole("75, 10, 1001", &deep, 0, quantizer, 3);
}

static void test_threads(void **state)
{
    (void)state;
    static const char *const quantizer[] = {
        "dyn:4s/block:128/bisect/mid", "nf4:4s/rank1/bisect/mid", "dyn:4s/block:128/bisect/stoch"};
    struct qm_analysis one[3], many[3];
    struct qm_float_classes classes;
    float *x = values(N, 1);
    write_npy("750, 1001", x, N);
    analyze(one, quantizer, 3, 1, QM_METRICS_full, &classes);
    for (int threads = 2; threads <= 5; threads += 3) {
        analyze(many, quantizer, 3, threads, QM_METRICS_full, &classes);
        for (int i = 0; i < 3; i++)
            for (int m = 0; m < qm_metric_count(); m++) {
                double a = qm_metric_at(m)->value(one[i].metrics);
                double b = qm_metric_at(m)->value(many[i].metrics);
                if (memcmp(&a, &b, sizeof a) != 0)
                    fail_msg("%s with %s: %.17g, with %d threads %.17g", qm_metric_at(m)->name,
                             quantizer[i], a, threads, b);
            }
        release(many, 3);
    }
    release(one, 3);
    free(x);
}

static void test_census_and_reasons(void **state)
{
    (void)state;
    static const char *const quantizer[] = {"lin:4u/block:128/bisect/mid", "f32",
                                            "dyn:4s/block:128/bisect/mid",
                                            "lin:4u/tensor/bisect/mid"};
    struct qm_analysis a[4];
    struct qm_float_classes classes;
    float *x = values(N, 0);
    x[5] = NAN;
    x[N - 2] = -INFINITY; /* the only negative element, in the last piece */
    x[N - 1] = 0.0f;
    x[17] = -0.0f;
    x[18] = 1e30f;
    write_npy("750750,", x, N);
    analyze(a, quantizer, 4, 2, QM_METRICS_basic, &classes);
    assert_int_equal(classes.n, N);
    assert_int_equal(classes.nan, 1);
    assert_int_equal(classes.inf, 1);
    assert_int_equal(classes.negative, 1);
    assert_true(classes.zero >= 2);
    assert_true(classes.max_abs == (double)1e30f);
    assert_non_null(strstr(a[0].skipped, "negative"));
    assert_true(metric("count", &a[0]) == 0.0); /* the counts of the first pieces are gone */
    assert_non_null(strstr(a[1].skipped, "not quantized"));
    assert_string_equal(a[2].skipped, "");
    assert_true(metric("nan_want", &a[2]) == 1.0);
    assert_non_null(strstr(a[3].skipped, "negative"));
    release(a, 4);
    free(x);
}

static void test_shapes_that_do_not_fit(void **state)
{
    (void)state;
    static const char *const quantizer[] = {"dyn:4s/col/bisect/mid",
                                            "dyn:4s/block:4194304/bisect/mid"};
    struct qm_analysis a[2];
    struct qm_float_classes classes;
    float *x = values(3 << 20, 1);
    write_npy("3145728,", x, 3 << 20);
    analyze(a, quantizer, 2, 2, QM_METRICS_basic, &classes);
    assert_string_not_equal(a[0].skipped, "");
    assert_non_null(strstr(a[1].skipped, "block"));
    assert_int_equal(classes.n, 3 << 20);
    release(a, 2);
    free(x);
}

static int open_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/qualm_analysis_XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signed),
        cmocka_unit_test(test_unsigned),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_census_and_reasons),
        cmocka_unit_test(test_shapes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, open_file, remove_file);
}
