/* test_network.c - Matrix products, the vector exponential and the Markov chain. */
#include "tests/support/problem_bench.h"

#include "core/base/isa.h"
#include "experiments/network/dense.h"
#include "experiments/network/markov_chain.h"

/* ---- the Markov chain ------------------------------------------------------------------------ */

static void test_chain_table(void **state)
{
    static const struct {
        int64_t symbols;
        int order;
        double a, entropy, unigram, bigram; /* bigram of order 1: the entropy */
    } want[] = {
        {32, 1, 3, 2.666037328686, 3.436985826607, 2.666037328686},
        {32, 1, 6, 2.268065011405, 3.417095931926, 2.268065011405},
        {64, 1, 3, 3.338618769351, 4.148253702717, 3.338618769351},
        {128, 1, 4, 3.835865584717, 4.842647803175, 3.835865584717},
        {16, 2, 3, 2.005489027059, 2.765453415900, 2.706526612166},
        {32, 2, 3, 2.659545852781, 3.464181142477, 3.432236487551},
    };
    (void)state;
    for (int k = 0; k < 6; k++) {
        struct qm_markov_chain c = {0};
        assert_int_equal(qm_markov_chain_open(want[k].symbols, want[k].order, want[k].a, &c),
                         QM_OK);
        check_close("entropy", c.entropy, want[k].entropy, DIGITS(13));
        check_close("unigram", c.unigram, want[k].unigram, DIGITS(13));
        check_close("bigram", c.entropy1, want[k].bigram, DIGITS(13));
        check_close("floor", qm_markov_chain_floor(&c, 10),
                    (want[k].bigram + 9 * want[k].entropy) / 10, DIGITS(13));
        if (k == 0) {
            check_close("P00", qm_markov_chain_next(&c, -1, 0)[0], 0.128600635615, DIGITS(12));
            check_close("P01", qm_markov_chain_next(&c, -1, 0)[1], 0.011495811141, DIGITS(11));
        }
        qm_markov_chain_close(&c);
    }
}

/* Drawn tokens follow the chain: the mean of -log P is the entropy, at the start and later. */
static void test_chain_draws(void **state)
{
    enum { SEQUENCES = 4000, LENGTH = 6 };
    static int32_t x[SEQUENCES * LENGTH];
    (void)state;
    for (int order = 1; order <= 2; order++) {
        struct qm_markov_chain c = {0};
        assert_int_equal(qm_markov_chain_open(16, order, 3, &c), QM_OK);
        qm_markov_chain_draw(&c, 11, QM_STREAM_rows, 7, SEQUENCES, LENGTH, x);
        for (int i = 0; i < LENGTH; i++) {
            double sum = 0, sum2 = 0, want = i == 0 ? c.unigram : i == 1 ? c.entropy1 : c.entropy;
            for (int b = 0; b < SEQUENCES; b++) {
                const int32_t *s = x + b * LENGTH + i;
                double p =
                    i ? qm_markov_chain_next(&c, i > 1 ? s[-2] : -1, s[-1])[*s] : c.stationary[*s];
                sum -= log(p) / SEQUENCES;
                sum2 += log(p) * log(p) / SEQUENCES;
            }
            assert_true(fabs(sum - want) < 4 * sqrt((sum2 - sum * sum) / SEQUENCES));
        }
        qm_markov_chain_close(&c);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Products with every instruction set and shape have the bits of plain loops.  Every tenth shape
 * may have more rows and more terms than a block of dense.c. */
static void test_dense(void **state)
{
    enum { MOST = 300, DEEP = 600, WIDE = 40 };
    static double a[MOST * DEEP], b[DEEP * WIDE], start[MOST * WIDE], c[MOST * WIDE],
        want[MOST * WIDE];
    enum qm_isa own = qm_isa();
    (void)state;
    qm_normals(1, QM_STREAM_dist, 0, 0, MOST * DEEP, a);
    qm_normals(2, QM_STREAM_dist, 0, 0, DEEP * WIDE, b);
    qm_normals(3, QM_STREAM_dist, 0, 0, MOST * WIDE, start);
    for (int draw = 0; draw < 400; draw++) {
        int is_large = draw % 10 == 9, is_left = draw % 20 >= 10;
        int64_t m = 1 + qm_pick(4, QM_STREAM_dist, 0, 3 * draw, (is_large ? MOST : 40) - 1);
        int64_t depth = qm_pick(4, QM_STREAM_dist, 0, 3 * draw + 1, is_large ? DEEP : 40);
        int64_t n = 1 + qm_pick(4, QM_STREAM_dist, 0, 3 * draw + 2, WIDE - 1);
        int64_t row = is_left ? 1 : DEEP, col = is_left ? MOST : 1;
        memcpy(want, start, sizeof want);
        for (int64_t i = 0; i < m; i++)
            for (int64_t k = 0; k < depth; k++)
                for (int64_t j = 0; j < n; j++)
                    want[i * WIDE + j] += a[i * row + k * col] * b[k * WIDE + j];
        for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
            if (!qm_isa_force((enum qm_isa)isa))
                continue;
            memcpy(c, start, sizeof c);
            qm_dense_of()(&(struct qm_dense_product){m, depth, n, row, col, WIDE, WIDE}, a, b, c);
            assert_memory_equal(c, want, sizeof c);
        }
    }
    qm_isa_force(own);
}

/* The exponential is within 2 ULP and has the same bits for every instruction set and length. */
static void test_vector_exp(void **state)
{
    enum { N = 40000 };
    static double x[N], y[N], first[N];
    enum qm_isa own = qm_isa();
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = i < N / 2 ? -708 + 1417.0 * i / (N / 2) : -2 + 4.0 * (i - N / 2) / (N / 2);
    for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
        if (!qm_isa_force((enum qm_isa)isa))
            continue;
        qm_vector_exp_of()(x, N, y);
        if (isa == 0)
            memcpy(first, y, sizeof y);
        assert_memory_equal(y, first, sizeof y);
        for (int n = 0; n < 20; n++) {
            double some[20];
            qm_vector_exp_of()(x + 777, n, some);
            assert_memory_equal(some, y + 777, (size_t)n * sizeof *some);
        }
    }
    for (int i = 0; i < N; i++) {
        long double want = expl((long double)x[i]);
        assert_true(fabsl((long double)y[i] - want) <= 2 * 0x1p-52L * want);
    }
    double ends[4] = {-1e300, 1e300, 0, -0.0};
    qm_vector_exp_of()(ends, 4, ends);
    assert_true(ends[0] > 0 && ends[0] < 1e-300 && ends[1] > 1e300 && isfinite(ends[1]));
    assert_true(ends[2] == 1 && ends[3] == 1);
    ends[0] = nan("");
    qm_vector_exp_of()(ends, 1, ends);
    assert_true(isnan(ends[0]));
    qm_isa_force(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_table),
        cmocka_unit_test(test_chain_draws),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_vector_exp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
