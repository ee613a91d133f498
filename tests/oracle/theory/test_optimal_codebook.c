/* test_optimal_codebook.c - Tests optimal codebooks: Lloyd's conditions, exact cases, simulation.
 *
 * Further references are published figures, other quadratures and perturbed levels. */
#include "core/base/philox.h"
#include "oracle/codebook/codebook.h"
#include "oracle/theory/expected_error.h"
#include "oracle/theory/optimal_codebook.h"
#include "oracle/theory/unit_law.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct qm_law normal = {QM_LAW_normal, 0.0}, laplace = {QM_LAW_laplace, 0.0},
                           uniform = {QM_LAW_uniform, 0.0};
static const struct qm_law laws[] = {
    {QM_LAW_normal, 0.0}, {QM_LAW_laplace, 0.0},   {QM_LAW_uniform, 0.0}, {QM_LAW_student, 3.0},
    {QM_LAW_chisq, 1.0},  {QM_LAW_lognormal, 1.0}, {QM_LAW_chisq, 39.0}};
enum { LAWS = sizeof laws / sizeof *laws, BOTH = QM_HOLD_ENDS | QM_HOLD_ZERO };

static void near_to(const char *what, double got, double want, double relative, double absolute)
{
    if (!(fabs(got - want) <= relative * fabs(want) + absolute))
        fail_msg("%s: got %.12g, want %.12g", what, got, want);
}

static struct qm_optimum best(const struct qm_law *law, int64_t block, int n, unsigned hold,
                              enum qm_loss loss)
{
    struct qm_optimum o;
    if (qm_optimal(law, block, n, hold, loss, &o) != QM_OK)
        fail_msg("%s", qm_message());
    return o;
}

static double mse_of(const struct qm_law *law, int64_t block, const double *value, int n)
{
    struct qm_theory t = {0};
    double cut[256];
    qm_theory_midpoints(value, n, cut);
    assert_int_equal(qm_theory_block(law, value, cut, n, block, &t), QM_OK);
    return t.mse;
}

/* Sixteen levels for N(0, 1), tabulated to 7 digits by another quadrature.  Those with -1, 0 and 1
 * held are the BOF4 codebook, published for blocks of 64 (arXiv:2505.06653, table 8). */
static void normal_table(void **state)
{
    (void)state;
    static const double mse[3][7] = {{6.777639e-03, 7.884958e-03, 8.804540e-03, 9.552334e-03,
                                      1.015167e-02, 1.062713e-02, 1.100157e-02},
                                     {6.869143e-03, 7.991526e-03, 8.923670e-03, 9.681735e-03,
                                      1.028935e-02, 1.077143e-02, 1.115112e-02},
                                     {6.623556e-03, 7.621537e-03, 8.389262e-03, 8.938954e-03,
                                      9.298791e-03, 9.510226e-03, 9.619547e-03}};
    static const unsigned hold[3] = {QM_HOLD_ENDS, BOTH, 0};
    for (int h = 0; h < 3; h++)
        for (int j = 0; j < 7; j++)
            near_to("mse", best(&normal, 32 << j, 16, hold[h], QM_LOSS_mse).loss, mse[h][j], 6e-7,
                    0.0);
    static const double bof4[16] = {
        -1,        -0.7535689, -0.5792681, -0.4386720, -0.3168191, -0.2060291, -0.1015641, 0,
        0.0887642, 0.1794526,  0.2742485,  0.3759495,  0.4885909,  0.6187701,  0.7790818,  1};
    static const double free64[8] = {0.046163, 0.139565, 0.236347, 0.339335,
                                     0.452480, 0.582078, 0.739854, 0.953212};
    struct qm_optimum o = best(&normal, 64, 16, BOTH, QM_LOSS_mse);
    for (int k = 0; k < 16; k++)
        near_to("bof4", o.value[k], bof4[k], 0.0, 5.1e-8);
    assert_true(o.value[0] == -1.0 && o.value[7] == 0.0 && o.value[15] == 1.0);
    o = best(&normal, 64, 16, 0, QM_LOSS_mse);
    for (int k = 0; k < 8; k++)
        near_to("free", o.value[8 + k], free64[k], 0.0, 5.1e-7);
}

/* Quantizers of Laplace's law in units of its variance, by the recursion of the exponential law:
 * they agree with W. C. Adams and C. E. Giesler, IEEE Trans. Commun. 26 (1978) 1295, to their
 * four digits. */
static void laplace_by_recursion(void **state)
{
    (void)state;
    /* The density exp(-x) is memoryless: the centroid of the outermost cell lies 1 above its
     * decision. In a cell whose upper decision lies d above the centroid, the distance d' from the
     * lower decision to the centroid solves centroid(0, d + d') = d'. */
    double up = 1.0; /* centroid minus the lower decision, outermost cell */
    struct qm_optimum o = best(&laplace, 0, 64, 0, QM_LOSS_mse);
    for (int k = 62; k >= 32; k--) {
        double low = 0.0, high = 1.0; /* of d' */
        for (int i = 0; i < 100; i++) {
            double d = 0.5 * (low + high), w = d + up;
            double centroid = 1.0 - w * exp(-w) / -expm1(-w);
            *(centroid > d ? &low : &high) = d;
        }
        near_to("spacing", o.value[k + 1] - o.value[k], 2.0 * up, 1e-10, 0.0);
        up = low;
    }
    near_to("first", o.value[32], up, 1e-10, 0.0);
    static const double nmse[3] = {0.5, 0.1762, 0.0545};
    for (int bits = 1; bits <= 3; bits++)
        near_to("nmse", 0.5 * best(&laplace, 0, 1 << bits, 0, QM_LOSS_mse).loss, nmse[bits - 1],
                0.0, 5.1e-5);
}

/* Uniform values are uniform below the maximum of their block: even steps h and an error of h^2
 * / 12. */
static void uniform_is_even(void **state)
{
    (void)state;
    static const int64_t block[] = {0, 2, 64, 2048};
    for (int j = 0; j < 4; j++)
        for (int n = 4; n <= 64; n *= 4) {
            double b = (double)block[j], h = 2.0 / (j ? n - 1 : n);
            struct qm_optimum o = best(&uniform, block[j], n, j ? QM_HOLD_ENDS : 0, QM_LOSS_mse);
            for (int k = 0; k < n; k++)
                near_to("level", o.value[k], h * (k - 0.5 * (n - 1)), 0.0, 1e-11);
            near_to("mse", o.loss, (j ? (b - 1.0) / b * b / (b + 2.0) : 1.0) * h * h / 12.0, 1e-9,
                    0.0);
            o = best(&uniform, block[j], n, j ? QM_HOLD_ENDS : 0, QM_LOSS_mae);
            near_to("mae step", o.value[1] - o.value[0], h, 0.0, 1e-10);
        }
    /* a block with one element below the maximum: B = 2, 3 levels, mse by hand */
    struct qm_optimum o = best(&uniform, 2, 3, BOTH, QM_LOSS_mse);
    near_to("three", o.loss, 0.25 / 12.0, 1e-10, 0.0);
}

/* The loss equals that of qm_theory_block; every free level fulfils its condition; moving any free
 * level raises the loss. */
static void conditions(void **state)
{
    (void)state;
    static const struct {
        int64_t block;
        int n;
        unsigned hold;
    } want[] = {{0, 16, 0}, {128, 16, QM_HOLD_ENDS}, {64, 16, BOTH}, {256, 16, 0}, {128, 4, 0}};
    for (int l = 0; l < LAWS; l++)
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
            int n = want[i].n;
            struct qm_optimum o = best(&laws[l], want[i].block, n, want[i].hold, QM_LOSS_mse);
            double moved[256], scale = fmax(1.0, o.value[n - 1]);
            double loss = mse_of(&laws[l], want[i].block, o.value, n);
            near_to("theory", loss, o.loss, 1e-10, 0.0);
            assert_true(o.residual <= 1e-9 * scale && o.pivot >= 0.0);
            for (int k = 0; k < n; k += l == 0 ? 1 : 5)
                for (int side = -1; side <= 1 && !o.held[k]; side += 2) {
                    int next = k + side >= 0 && k + side < n ? k + side : k - side;
                    memcpy(moved, o.value, sizeof moved);
                    moved[k] += 0.01 * side * fabs(o.value[next] - o.value[k]);
                    double other = mse_of(&laws[l], want[i].block, moved, n);
                    if (!(other > loss))
                        fail_msg("law %d, design %d: level %d moved by %g: %.15g, was %.15g", l,
                                 (int)i, k, moved[k] - o.value[k], other, loss);
                }
        }
    for (int bits = 2; bits <= 8; bits++) { /* all widths */
        struct qm_optimum o = best(&normal, 128, 1 << bits, QM_HOLD_ENDS, QM_LOSS_mse);
        near_to("theory", mse_of(&normal, 128, o.value, o.n), o.loss, 1e-10, 0.0);
        assert_true(o.residual <= 1e-9 && o.pivot > 0.0);
    }
}

/* No known codebook has a smaller loss than the optimum of its block and width, in any of
 * four losses. */
static void nothing_beats_it(void **state)
{
    (void)state;
    static const char *const maps[] = {"nf4", "nf4a8", "af4", "lin", "dyn", "fp4", "pow2"};
    for (int loss = 0; loss < QM_LOSS_COUNT; loss++)
        for (int l = 0; l < 4; l++) {
            double value[256], held = best(&laws[l], 64, 16, BOTH, (enum qm_loss)loss).loss;
            double least = best(&laws[l], 64, 16, QM_HOLD_ENDS, (enum qm_loss)loss).loss;
            assert_true(held > least);
            if (loss == QM_LOSS_mse || loss == QM_LOSS_unit_mse)
                least = best(&laws[l], 64, 16, 0, (enum qm_loss)loss).loss;
            struct qm_unit_law *of;
            int power = qm_loss_power((enum qm_loss)loss);
            assert_int_equal(qm_unit_law_open(&laws[l], 64, power, &of), QM_OK);
            for (size_t m = 0; m < sizeof maps / sizeof *maps; m++) {
                int n = qm_oracle_codebook(maps[m], 4, 1, value);
                double got = qm_optimal_loss(of, (enum qm_loss)loss, value, n);
                if (value[0] == -1.0 || loss == QM_LOSS_mse || loss == QM_LOSS_unit_mse)
                    assert_true(got >= least * (1.0 - 1e-9));
                if (strcmp(maps[m], "nf4") == 0 || strcmp(maps[m], "af4") == 0)
                    assert_true(got > held);
            }
            qm_unit_law_close(of);
        }
}

/* Absolute errors: the loss equals E |e| of qm_theory_block, and levels halve the mass of
 * their cells. */
static void absolute(void **state)
{
    (void)state;
    for (int l = 0; l < LAWS; l++) {
        struct qm_optimum o = best(&laws[l], 64, 16, QM_HOLD_ENDS, QM_LOSS_mae);
        struct qm_unit_law *m;
        struct qm_theory t;
        assert_int_equal(qm_theory_block(&laws[l], o.value, o.cut, 16, 64, &t), QM_OK);
        near_to("E |e|", t.mean_abs, o.loss, 1e-9, 0.0);
        assert_int_equal(qm_unit_law_open(&laws[l], 64, 1, &m), QM_OK);
        for (int k = 1; k < 15; k++)
            near_to("halves", qm_unit_law_moment(m, 0, o.cut[k - 1], o.value[k]),
                    qm_unit_law_moment(m, 0, o.value[k], o.cut[k]), 1e-9, 0.0);
        qm_unit_law_close(m);
        assert_true(best(&laws[l], 64, 16, QM_HOLD_ENDS, QM_LOSS_mse).loss <=
                    mse_of(&laws[l], 64, o.value, 16) * (1.0 + 1e-9));
    }
}

/* No quantizer is better than Shannon's bound.  As the number of levels grows, the optimum of the
 * normal law lies 10 log10(sqrt(3) pi / 2) = 4.347 dB above the bound (P. F. Panter and W. Dite,
 * 1951), that of the uniform law 10 log10(pi e / 6) = 1.533 dB. */
static void shannon(void **state)
{
    (void)state;
    for (int l = 0; l < LAWS; l++)
        for (int bits = 1; bits <= 8; bits++) {
            double nmse =
                best(&laws[l], 0, 1 << bits, 0, QM_LOSS_mse).loss / qm_law_square(&laws[l]);
            double gap = 10.0 * log10(nmse / qm_shannon_bound(&laws[l], bits));
            assert_true(gap > 0.0);
            if (l == 2)
                near_to("uniform", gap, 10.0 * log10(M_PI * M_E / 6.0), 0.0, 1e-9);
            if (l == 0 && bits == 8)
                near_to("normal", gap, 4.347, 0.0, 0.05);
        }
}

static double draw(uint64_t stream, int64_t i)
{
    return ((double)qm_philox_stream(20240812u, stream, (uint64_t)i) + 0.5) / 4294967296.0;
}

/* Quantized random blocks: the mean of (x^ - x)^2 is within 4 standard errors of the loss. */
static void simulation(void **state)
{
    (void)state;
    enum { BLOCK = 64, BLOCKS = 20000 };
    for (int l = 0; l < 2; l++) {
        struct qm_optimum o = best(&laws[l], BLOCK, 16, l ? 0 : QM_HOLD_ENDS, QM_LOSS_mse);
        double sum = 0.0, squares = 0.0;
        for (int64_t j = 0; j < BLOCKS; j++) {
            double x[BLOCK], m = 0.0, e2 = 0.0;
            for (int i = 0; i < BLOCK; i++) {
                double u = draw(0, j * BLOCK + i);
                x[i] =
                    l ? (u < 0.5 ? log(2.0 * u) : -log(2.0 - 2.0 * u)) : gsl_cdf_ugaussian_Pinv(u);
                m = fmax(m, fabs(x[i]));
            }
            for (int i = 0; i < BLOCK; i++) {
                int k = qm_oracle_nearest(o.value, o.n, x[i] / m, -1);
                e2 += (m * o.value[k] - x[i]) * (m * o.value[k] - x[i]) / BLOCK;
            }
            sum += e2;
            squares += e2 * e2;
        }
        double mean = sum / BLOCKS, se = sqrt((squares / BLOCKS - mean * mean) / (BLOCKS - 1));
        near_to("simulated", mean, o.loss, 0.0, 4.0 * se);
        assert_true(se < 0.005 * o.loss);
    }
}

static void bad_arguments(void **state)
{
    (void)state;
    struct qm_optimum o = {.n = 7};
    struct qm_law two = {QM_LAW_student, 2.0}, wrong = {QM_LAW_chisq, 0.0};
    assert_int_equal(qm_optimal(&normal, 64, 1, 0, QM_LOSS_mse, &o), QM_BAD_ARG);
    assert_int_equal(qm_optimal(&normal, 64, 257, 0, QM_LOSS_mse, &o), QM_BAD_ARG);
    assert_int_equal(qm_optimal(&normal, 64, 2, BOTH, QM_LOSS_mse, &o), QM_BAD_ARG);
    assert_int_equal(qm_optimal(&normal, 1, 16, 0, QM_LOSS_mse, &o), QM_BAD_ARG);
    assert_int_equal(qm_optimal(&normal, -1, 16, 0, QM_LOSS_mse, &o), QM_BAD_ARG);
    assert_int_equal(qm_optimal(&normal, 0, 16, QM_HOLD_ENDS, QM_LOSS_mse, &o), QM_BAD_ARG);
    assert_int_equal(qm_optimal(&two, 64, 16, 0, QM_LOSS_mse, &o), QM_BAD_ARG);
    assert_int_equal(qm_optimal(&wrong, 64, 16, 0, QM_LOSS_mse, &o), QM_BAD_ARG);
    assert_int_equal(qm_optimal(&two, 64, 16, QM_HOLD_ENDS, QM_LOSS_mae, &o), QM_OK);
    assert_int_equal(qm_optimal(&two, 64, 16, 0, QM_LOSS_mae, &o), QM_BAD_ARG);
    o.n = 7;
    assert_int_equal(qm_optimal(&two, 0, 16, 0, QM_LOSS_mae, &o), QM_BAD_ARG);
    assert_int_equal(o.n, 7); /* untouched on failure */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_table),     cmocka_unit_test(laplace_by_recursion),
        cmocka_unit_test(uniform_is_even),  cmocka_unit_test(conditions),
        cmocka_unit_test(nothing_beats_it), cmocka_unit_test(absolute),
        cmocka_unit_test(shannon),          cmocka_unit_test(simulation),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests_name("optimal", tests, NULL, NULL);
}
