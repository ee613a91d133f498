/* test_tensor_sums.c - Tests sums and loops of rules over whole tensors on their definitions, to
 * the bit, at every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

static uint64_t word(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 32;
}

/* A float of either sign with an exponent of -60 to 3 and at most `bits` fraction bits. */
static float any(uint64_t *s, int bits)
{
    uint32_t w = (uint32_t)word(s), e = 67u + w % 64u;
    w = (uint32_t)word(s) & 0x80000000u;
    return qm_float(w | e << 23 | ((uint32_t)word(s) & 0x7fffffu & ~((1u << (23 - bits)) - 1u)));
}

static double in_order(const float *x, int64_t n)
{
    double s = 0.0;
    for (int64_t i = 0; i < n; i++)
        s += (double)x[i] * (double)x[i];
    return s;
}

/* Compares with the sum in index order, at every instruction set with one thread and with three. */
static void expect_sum(const float *x, int64_t n, const char *what)
{
    double want = in_order(x, n);
    for (int isa = 0; isa < QM_ISA_COUNT; isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            if (!qm_isa_force((enum qm_isa)isa))
                continue;
            omp_set_num_threads(threads);
            double got = qm_sum_squares(x, n);
            if (memcmp(&got, &want, sizeof got) != 0 && !(isnan(got) && isnan(want)))
                fail_msg("%s: %a, in order %a (%s, %d threads)", what, got, want,
                         qm_isa_text((enum qm_isa)isa), threads);
        }
}

static void test_sum_squares(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    float *x = malloc(sizeof *x * N);
    uint64_t s = 5;
    for (int bits = 1; bits <= 23; bits += 2) { /* few bits: every sum is exact; more: many ties */
        for (int64_t i = 0; i < N; i++)
            x[i] = any(&s, bits);
        expect_sum(x, N - bits, "sizes 2^-60 to 2^3");
        for (int64_t i = 0; i < N; i++)
            x[i] = 1.0f + fabsf(any(&s, bits)) * 0.1f;
        expect_sum(x, N - 300 * bits, "sizes about 1");
    }
    for (int64_t i = 0; i < N; i++) /* with s = 2^26 or more each is a tie, of either parity */
        x[i] = i == 0 ? 0x1p13f : i % 3 ? 0x1p-14f : 0x1p-13f;
    x[7] = x[4096] = 0x1p-13f;
    x[8] = 0x1.8p-13f;
    expect_sum(x, N, "ties");
    for (int64_t i = 0; i < N; i++) /* the numbers double every 9000 elements */
        x[i] = ldexpf(1.0f + 0x1p-23f * (float)(i % 77), (int)(i / 9000));
    expect_sum(x, N, "growing");
    memset(x, 0, sizeof *x * N);
    expect_sum(x, N, "zeros");
    x[N / 2] = 0x1p-149f;
    x[N / 2 + 900] = 0x1.abcdp-140f;
    expect_sum(x, N, "denormal");
    x[N - 5000] = INFINITY;
    expect_sum(x, N, "infinity");
    x[N - 4000] = NAN;
    expect_sum(x, N, "NaN");
    expect_sum(x, 0, "nothing");
    free(x);
}

static void test_means(void **state)
{
    (void)state;
    static const struct qm_matrices sizes[] = {
        {1, 1, 1}, {3, 7, 5}, {1, 8, 1100}, {2, 131, 517}, {1, 1030, 3}};
    static float x[200000], row[4000], col[4000];
    uint64_t s = 9;
    for (int i = 0; i < 200000; i++)
        x[i] = any(&s, 23);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int isa = 0; isa < 2 * QM_ISA_COUNT; isa++) {
            const struct qm_matrices *m = &sizes[k];
            const struct qm_term t = {isa % 2, 0.25f, 0};
            if (!qm_isa_force((enum qm_isa)(isa / 2)))
                continue;
            omp_set_num_threads(3);
            qm_row_means(m, t, x, row);
            qm_col_means(m, t, x, col);
            for (int64_t b = 0; b < m->batch; b++) {
                const float *at = x + b * m->rows * m->cols;
                for (int64_t i = 0; i < m->rows; i++) {
                    double sum = 0.0;
                    for (int64_t j = 0; j < m->cols; j++) {
                        float v = at[i * m->cols + j];
                        sum += (double)(t.is_square ? v * v + 0.25f : v);
                    }
                    assert_true(row[b * m->rows + i] == (float)(sum / (double)m->cols));
                }
                for (int64_t j = 0; j < m->cols; j++) {
                    double sum = 0.0;
                    for (int64_t i = 0; i < m->rows; i++) {
                        float v = at[i * m->cols + j];
                        sum += (double)(t.is_square ? v * v + 0.25f : v);
                    }
                    assert_true(col[b * m->cols + j] == (float)(sum / (double)m->rows));
                }
            }
        }
}

struct doubling {
    const float *x;
    int *times; /* how often each number was formed */
};

static void form_doubled(const void *how, int64_t from, int64_t n, float *out)
{
    const struct doubling *d = how;
    for (int64_t i = 0; i < n; i++) {
        out[i] = 2.0f * d->x[from + i];
        d->times[from + i]++;
    }
}

/* Means and sums of numbers that are formed on demand, or made before, equal those of the
 * separate passes; qm_two_means forms each number once. */
static void test_two_means(void **state)
{
    (void)state;
    enum { MOST = 300000 };
    static const struct qm_matrices sizes[] = {
        {1, 1, 1},     {3, 7, 5},     {1, 8, 1100},  {2, 131, 517}, {1, 1030, 3},  {1, 3, 70001},
        {900, 16, 16}, {2, 300, 300}, {3, 33, 1024}, {1, 70001, 1}, {1, 290, 1024}};
    static float x[MOST], twice[MOST], room[MOST], row[2][MOST], col[2][MOST];
    static int times[MOST];
    uint64_t s = 11;
    for (int i = 0; i < MOST; i++)
        twice[i] = 2.0f * (x[i] = any(&s, 23));
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int which = 0; which < 12 * QM_ISA_COUNT; which++) {
            const struct qm_matrices *m = &sizes[k];
            const struct qm_term t = {which / 6 % 2, 0.25f, 0};
            int64_t n_rows = m->batch * m->rows, n_cols = m->batch * m->cols, n = n_rows * m->cols;
            const struct doubling how = {x, times};
            const struct qm_lazy_floats f = {form_doubled, &how, which % 2 ? twice : NULL};
            if (!qm_isa_force((enum qm_isa)(which / 12)))
                continue;
            omp_set_num_threads(1 + which / 2 % 3);
            memset(times, 0, sizeof times);
            qm_row_means(m, t, twice, row[0]);
            qm_col_means(m, t, twice, col[0]);
            assert_int_equal(qm_two_means(m, t, &f, room, row[1], col[1]), QM_OK);
            assert_memory_equal(row[0], row[1], sizeof(float) * (size_t)n_rows);
            assert_memory_equal(col[0], col[1], sizeof(float) * (size_t)n_cols);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(times[i], f.made ? 0 : 1);
            if (which < 6) {
                double want = in_order(twice, n), got = qm_sum_squares_of(&f, n);
                assert_memory_equal(&got, &want, sizeof got);
            }
        }
}

static void test_product(void **state)
{
    (void)state;
    enum { ROWS = 37, INNER = 111, COLS = 53 };
    static float x[ROWS * INNER], y[INNER * COLS], out[ROWS * COLS];
    uint64_t s = 2;
    for (int i = 0; i < ROWS * INNER; i++)
        x[i] = any(&s, 23);
    for (int i = 0; i < INNER * COLS; i++)
        y[i] = any(&s, 23);
    for (int isa = 0; isa < 2 * QM_ISA_COUNT; isa++) {
        int64_t step_a = isa % 2 ? INNER : 1, step_k = isa % 2 ? 1 : ROWS;
        if (!qm_isa_force((enum qm_isa)(isa / 2)))
            continue;
        qm_product(x, step_a, step_k, y, ROWS, INNER, COLS, out);
        for (int a = 0; a < ROWS; a++)
            for (int c = 0; c < COLS; c++) {
                double sum = 0.0;
                for (int k = 0; k < INNER; k++)
                    sum += (double)x[a * step_a + k * step_k] * (double)y[k * COLS + c];
                assert_true(out[a * COLS + c] == (float)sum);
            }
    }
}

/* Four million quotients; some are at the floor, tiny, zero or not finite.  Every third row
 * divides by 1/b, b odd: many products x b are mid-points of floats, so the rounding of the root
 * decides. */
static void test_over_root(void **state)
{
    (void)state;
    enum { N = 4096, ROWS = 1024 };
    static float x[N], col[N], out[N];
    static double root[N];
    uint64_t s = 3;
    for (int i = 0; i < ROWS; i++) {
        double mean = 0x1p-20 + fabs((double)any(&s, 23)), floor = 0x1p-53;
        float row = i % 3 == 0 ? 1.0f : i % 50 == 7 ? 0.0f : fabsf(any(&s, 23));
        for (int j = 0; j < N; j++) {
            x[j] = any(&s, 23);
            col[j] = i % 3 == 0 ? 1.0f : j % 100 == 3 ? 0.0f : fabsf(any(&s, 23));
            root[j] = 1.0 / sqrt((double)col[j]);
        }
        mean = i % 3 == 0 ? (double)(i | 1) * (double)(i | 1) : mean;
        x[0] = 0.0f, x[1] = -0.0f, x[2] = 0x1p-149f, x[3] = 0x1.8p-140f, x[4] = 0x1.fffffep127f;
        x[5] = INFINITY, x[6] = 0x1.3p-126f, x[9] = 0x1.7p100f;
        const struct qm_root r = {(double)row, mean, floor, col, root};
        for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
            if (!qm_isa_force((enum qm_isa)isa))
                continue;
            int in_place = (i + isa) % 2;
            if (in_place)
                memcpy(out, x, sizeof x);
            qm_tensor_rule_loops()->over_root(&r, N - i % 9, in_place ? out : x, out);
            for (int j = 0; j < N - i % 9; j++) {
                double q = fmax((double)row * (double)col[j] / mean, floor);
                float want = (float)((double)x[j] * (1.0 / sqrt(q)));
                if (qm_bits(out[j]) != qm_bits(want))
                    fail_msg("row %d, column %d, %s: %a, wants %a", i, j,
                             qm_isa_text((enum qm_isa)isa), (double)out[j], (double)want);
            }
        }
    }
}

/* Rows and columns of any size: x times the row overflows, vanishes or is subnormal in many of
 * them.  Infinite, NaN and zero are what two products in float32 make, at least a step of float32
 * away from its range. */
static void test_outer(void **state)
{
    (void)state;
    enum { N = 509, ROWS = 512 };
    static float x[N], out[N];
    static double root[N];
    uint64_t s = 11;
    int open = 0, small = 0;
    for (int i = 0; i < ROWS; i++) {
        float row = i % 64 == 9 ? INFINITY : ldexpf(any(&s, 23), (int)(word(&s) % 120u) - 30);
        for (int j = 0; j < N; j++) {
            x[j] = j % 100 == 3 ? 0.0f : ldexpf(any(&s, 23), (int)(word(&s) % 180u) - 60);
            root[j] = j % 97 == 5 ? (double)INFINITY : fabs((double)any(&s, 23));
        }
        x[0] = NAN, x[1] = -INFINITY, x[2] = 0x1p-149f, x[4] = 0x1.fffffep127f;
        for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
            if (!qm_isa_force((enum qm_isa)isa))
                continue;
            qm_tensor_rule_loops()->outer(N, (double)row, root, x, out);
            for (int j = 0; j < N; j++) {
                double first = (double)x[j] * (double)row, size = fabs(first);
                int is_usual = size >= 0x1p-126 && size < (double)FLT_MAX;
                float want = is_usual ? (float)((double)x[j] * ((double)row * root[j]))
                                      : (float)((double)(float)first * root[j]);
                float plain = x[j] * row * (float)root[j];
                open += !isfinite(plain), small += size > 0.0 && size < 0x1p-126;
                if (qm_bits(out[j]) != qm_bits(want) && !(isnan(out[j]) && isnan(want)))
                    fail_msg("row %d, column %d, %s: %a, wants %a", i, j,
                             qm_isa_text((enum qm_isa)isa), (double)out[j], (double)want);
                if (size < 0x1.fp127 || size > 0x1.1p128)
                    assert_int_equal(!isfinite(out[j]), !isfinite(plain));
            }
        }
    }
    assert_true(open > ROWS && small > ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_squares), cmocka_unit_test(test_means),
        cmocka_unit_test(test_two_means),   cmocka_unit_test(test_product),
        cmocka_unit_test(test_over_root),   cmocka_unit_test(test_outer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
