/* test_codebook.c - Tests codebooks against printed tables and golden files; tests
 * nearest codes. */
#include "core/base/philox.h"
#include "core/quant/map.h"
#include "oracle/codebook/codebook.h"

#include <hdf5.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The maps of the quantizers; those that no table holds, since the oracle has them as formulas. */
static const struct map {
    const char *name;
    int from, to, signs;
} axis_map[] = {
#define X(name, from, to, signs, text) {#name, from, to, signs},
    QM_MAP_LIST(X)
#undef X
};
enum { MAPS = sizeof axis_map / sizeof *axis_map };

/* Whether the oracle has a table of the map at this width and sign. */
static int is_table(const struct map *m, int bits, int sign)
{
    int is_formula = strcmp(m->name, "al") == 0 || strcmp(m->name, "qlog") == 0 ||
                     strcmp(m->name, "affine") == 0;
    return !is_formula && bits >= m->from && bits <= m->to && (m->signs >> sign & 1);
}

/* Every table ascends, has all its entries, lies in its range and reaches 1 (int: its
 * largest code). */
static void tables_are_sound(void **state)
{
    (void)state;
    for (int i = 0; i < MAPS; i++)
        for (int bits = 0; bits <= 9; bits++)
            for (int sign = 0; sign <= 1; sign++) {
                const char *name = axis_map[i].name;
                double v[256] = {0};
                int n = qm_oracle_codebook(name, bits, sign, v);
                assert_int_equal(n > 0, is_table(&axis_map[i], bits, sign));
                if (n == 0)
                    continue;
                int is_float = strcmp(name, "e4m3") == 0; /* -0 and two NaN are no entries */
                int short_by_one = (strcmp(name, "lint") == 0 && sign) ||
                                   strcmp(name, "nf4s") == 0 || strcmp(name, "intd") == 0;
                assert_int_equal(n, (1 << bits) - (is_float ? 3 : short_by_one));
                double unit = is_float                    ? 448.0
                              : strcmp(name, "int") == 0  ? 1 << (bits - 1)
                              : strcmp(name, "intd") == 0 ? (1 << (bits - 1)) - 1
                                                          : 1.0;
                double top = strncmp(name, "int", 3) == 0 && strcmp(name, "intd") != 0
                                 ? 1.0 - pow(0.5, bits - 1)
                                 : 1.0;
                if (strcmp(name, "dyndef") == 0) /* its defect: the largest entry is not 1 */
                    top = 0.0933203125;
                for (int k = 0; k < n; k++) {
                    assert_true(v[k] >= -unit * sign && v[k] <= unit);
                    assert_true(k == 0 || v[k] >= v[k - 1]);
                }
                assert_true(v[n - 1] == unit * top);
            }
}

static void refusals(void **state)
{
    (void)state;
    double v[256];
    assert_int_equal(qm_oracle_codebook("nf5", 4, 1, v), 0);
    assert_int_equal(qm_oracle_codebook("", 4, 1, v), 0);
    assert_int_equal(qm_oracle_codebook("nf4", 3, 1, v), 0);
    assert_int_equal(qm_oracle_codebook("nf4", 4, 0, v), 0);
    assert_int_equal(qm_oracle_codebook("int", 4, 0, v), 0);
    assert_int_equal(qm_oracle_codebook("log", 8, 1, v), 0);
    assert_int_equal(qm_oracle_codebook("log", 4, 0, v), 0);
    assert_int_equal(qm_oracle_codebook("dyn", 1, 1, v), 0);
    assert_int_equal(qm_oracle_codebook("dyn", 9, 1, v), 0);
    assert_int_equal(qm_oracle_codebook("dyn", -4, 1, v), 0);
}

/* ---- printed tables -------------------------------------------------------------------------- */

/* QLoRA, appendix E, and bitsandbytes functional.py. */
static const float nf4[16] = {-1.0f,
                              -0.6961928009986877f,
                              -0.5250730514526367f,
                              -0.39491748809814453f,
                              -0.28444138169288635f,
                              -0.18477343022823334f,
                              -0.09105003625154495f,
                              0.0f,
                              0.07958029955625534f,
                              0.16093020141124725f,
                              0.24611230194568634f,
                              0.33791524171829224f,
                              0.44070982933044434f,
                              0.5626170039176941f,
                              0.7229568362236023f,
                              1.0f};
static const float fp4[16] = {-1.0f,        -0.666666687f,  -0.5f,           -0.333333343f,
                              -0.25f,       -0.166666672f,  -0.00520833349f, -0.0f,
                              0.0f,         0.00520833349f, 0.166666672f,    0.25f,
                              0.333333343f, 0.5f,           0.666666687f,    1.0f};
/* lpmm, 4 bits. */
static const float de_signed[16] = {-0.887499988f,  -0.662500024f,  -0.4375f,        -0.212499991f,
                                    -0.0775000006f, -0.0325000025f, -0.00549999997f, 0.0f,
                                    0.00549999997f, 0.0325000025f,  0.0775000006f,   0.212499991f,
                                    0.4375f,        0.662500024f,   0.887499988f,    1.0f};
static const float de_unsigned[16] = {0.0f,          0.00325000007f, 0.00774999941f, 0.0212500002f,
                                      0.0437499993f, 0.0662500039f,  0.0887499973f,  0.15625f,
                                      0.268750012f,  0.381249994f,   0.493750006f,   0.606250048f,
                                      0.71875f,      0.831249952f,   0.943750024f,   1.0f};
static const float lin_signed[16] = {-1.0f,         -0.866666675f, -0.733333349f, -0.599999964f,
                                     -0.466666639f, -0.333333313f, -0.199999928f, -0.0666666031f,
                                     0.066666618f,  0.199999958f,  0.333333313f,  0.466666639f,
                                     0.599999964f,  0.73333329f,   0.866666675f,  1.0f};
/* low-bit-Shampoo qtensor/functional.py, create_linear_map(signed, 4 bits), squared. */
static const float lin2_signed[16] = {-1.0f,        -0.75111115f, -0.53777778f, -0.35999995f,
                                      -0.21777776f, -0.1111111f,  -0.03999998f, 0.0f,
                                      0.00444444f,  0.03999998f,  0.1111111f,   0.21777776f,
                                      0.35999995f,  0.53777778f,  0.75111115f,  1.0f};
static const float pow2_unsigned[16] = {
    0.00390625f, 0.015625f, 0.03515625f, 0.0625f, 0.09765625f, 0.140625f, 0.19140625f, 0.25f,
    0.31640625f, 0.390625f, 0.47265625f, 0.5625f, 0.66015625f, 0.765625f, 0.87890625f, 1.0f};
static const float fpx_signed[16] = {-1.0f,        -0.666666687f, -0.5f,         -0.333333343f,
                                     -0.25f,       -0.166666672f, -0.020833334f, 0.0f,
                                     -0.0f,        0.020833334f,  0.166666672f,  0.25f,
                                     0.333333343f, 0.5f,          0.666666687f,  1.0f};
static const float fpx_unsigned[16] = {0.0f,         0.00892857183f, 0.0178571437f, 0.0267857146f,
                                       0.142857149f, 0.178571433f,   0.214285716f,  0.25f,
                                       0.285714298f, 0.357142866f,   0.428571433f,  0.5f,
                                       0.571428597f, 0.714285731f,   0.857142866f,  1.0f};

static double ulp(float x) { return (double)(nextafterf(fabsf(x), 2.0f) - fabsf(x)); }

/* Compares table t with the definition, within `ulps` float32 steps plus `absolute`; ulps 0.5 means
 * that rounding the definition gives the table bit for bit. */
static void compare(const char *map, int bits, int sign, const float *t, int n, double ulps,
                    double absolute)
{
    double v[256];
    assert_int_equal(qm_oracle_codebook(map, bits, sign, v), n);
    for (int k = 0; k < n; k++) {
        int same = ulps <= 0.5 && absolute <= 0.0
                       ? qm_bits((float)v[k]) == qm_bits(t[k])
                       : fabs(v[k] - (double)t[k]) <= ulps * ulp(t[k]) + absolute;
        if (!same)
            fail_msg("%s:%d%s entry %d: %.17g, table %.9g", map, bits, sign ? "s" : "u", k, v[k],
                     (double)t[k]);
    }
}

static void printed_tables(void **state)
{
    (void)state;
    compare("nf4", 4, 1, nf4, 16, 0.5, 0.0);
    compare("fp4", 4, 1, fp4, 16, 0.5, 0.0);
    float swapped[16];
    memcpy(swapped, fp4, sizeof swapped);
    swapped[7] = 0.0f;
    swapped[8] = -0.0f;
    compare("fp4s", 4, 1, swapped, 16, 0.5, 0.0);
    compare("de", 4, 1, de_signed, 16, 2.0, 0.0);
    compare("de", 4, 0, de_unsigned, 16, 2.0, 0.0);
    compare("dyn", 4, 1, de_signed, 16, 2.0, 0.0);
    compare("lin", 4, 1, lin_signed, 16, 0.0, 1.2e-7);
    compare("pow2", 4, 0, pow2_unsigned, 16, 0.5, 0.0);
    compare("lin2", 4, 1, lin2_signed, 16, 0.0, 1.2e-7);
    compare("fpx", 4, 1, fpx_signed, 16, 0.5, 0.0);
    compare("fpx", 4, 0, fpx_unsigned, 16, 0.5, 0.0);
    float nozero[16];
    memcpy(nozero, de_unsigned, sizeof nozero);
    nozero[0] = nozero[1];
    compare("de0", 4, 0, nozero, 16, 2.0, 0.0);
    compare("de0", 4, 1, de_signed, 16, 2.0, 0.0);
}

/* Published facts about the 8-bit maps. */
static void printed_facts(void **state)
{
    (void)state;
    double v[256];
    qm_oracle_codebook("dyn", 8, 1, v);
    assert_true(v[127] == 0.0 && (float)v[0] == -0.992968738f && v[255] == 1.0);
    assert_true(fabs(v[128] - 5.5e-7) < 1e-20 && (float)v[129] == 3.25e-6f);
    for (int k = 1; k < 128; k++)
        assert_true(v[127 - k] == -v[127 + k]);
    qm_oracle_codebook("dyn", 8, 0, v);
    assert_true(v[0] == 0.0 && fabs(v[1] - 3.25e-7) < 1e-20 && (float)v[254] == 0.996484399f);
    qm_oracle_codebook("int", 4, 1, v);
    assert_true(v[0] == -8.0 && v[8] == 0.0 && v[15] == 7.0);
    qm_oracle_codebook("intd", 8, 1, v);
    assert_true(v[0] == -127.0 && v[127] == 0.0 && v[254] == 127.0);
    static const double sixths[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    qm_oracle_codebook("nvfp4", 4, 1, v);
    for (int k = 0; k < 8; k++)
        assert_true(v[8 + k] == sixths[k] / 6.0 && v[7 - k] == -v[8 + k]);
    qm_oracle_codebook("intm", 4, 1, v);
    assert_true(v[0] == -1.0 && v[15] == 0.875);
    qm_oracle_codebook("lint", 4, 1, v);
    assert_true(v[0] == -1.0 && v[7] == 0.0 && v[8] == 1.0 / 7.0 && v[14] == 1.0);
    qm_oracle_codebook("lin0", 8, 1, v);
    assert_true(v[126] == -1.0 / 127.0 && v[127] == 0.0 && v[128] == 0.0 && v[129] == 1.0 / 127.0);
    qm_oracle_codebook("lin", 4, 0, v);
    assert_true(v[0] == 0.0625 && v[15] == 1.0);
    qm_oracle_codebook("pow3", 8, 0, v);
    assert_true(v[0] == 0x1p-24);
    qm_oracle_codebook("log", 8, 0, v);
    assert_true(v[0] == 0.0 && v[51] == 0.2 && v[255] == 1.0);
    /* nf4a8: symmetric but for its last entry but one; mid-points = published thresholds */
    static const double threshold[8] = {0.0397901, 0.1262246, 0.2234769, 0.3317961,
                                        0.4572902, 0.6106329, 0.7801653, 0.9320689};
    static const double positive[9] = {0.0,        0.07958022, 0.17286907, 0.27408478, 0.3895074,
                                       0.52507306, 0.6961928,  0.8641379,  1.0};
    qm_oracle_codebook("nf4a8", 4, 1, v);
    for (int k = 0; k < 8; k++) {
        assert_true(fabs(0.5 * (v[7 + k] + v[8 + k]) - threshold[k]) < 1.1e-7);
        assert_true(v[8 + k] == positive[k + 1] && (k == 7 || v[7 - k] == -positive[k]));
    }
    assert_true(v[0] == -1.0);
}

/* ---- golden files ---------------------------------------------------------------------------- */

/* Opens data/golden/FILE of the full set, or the copy in the tree; -1 if neither exists. */
static hid_t golden(const char *file)
{
    char path[512];
    const char *shared = getenv("QM_SHARED");
    snprintf(path, sizeof path, "%s/data/golden/%s", shared ? shared : "../shared", file);
    if (access(path, R_OK) != 0)
        snprintf(path, sizeof path, "tests/golden/%s", file);
    if (access(path, R_OK) != 0) {
        print_message("%s: neither $QM_SHARED nor tests/golden has it\n", file);
        return -1;
    }
    return H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
}

/* Reads up to 256 floats and returns their number, 0 if the file has no such dataset. */
static int table(hid_t file, const char *dataset, float *out)
{
    H5O_info_t info;
    hid_t found = -1;
    H5E_BEGIN_TRY
    {
        if (H5Oget_info_by_name(file, dataset, &info, H5P_DEFAULT) >= 0)
            found = H5Dopen2(file, dataset, H5P_DEFAULT);
    }
    H5E_END_TRY
    if (found < 0)
        return 0;
    hid_t space = H5Dget_space(found);
    hssize_t n = H5Sget_simple_extent_npoints(space);
    assert_true(n > 0 && n <= 256);
    assert_true(H5Dread(found, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0);
    H5Sclose(space);
    H5Dclose(found);
    return (int)n;
}

/* All table maps of lpmm, 2 to 8 bits, both signs: its float32 linspace causes errors of at most 2
 * ulp in DE and 1.2e-7 in the signed powers; the others are correctly rounded. */
static void lpmm_tables(void **state)
{
    (void)state;
    static const struct {
        const char *source, *map;
        double ulps[2], absolute[2]; /* unsigned, signed */
    } want[] = {{"nonlinear", "de", {2.0, 2.0}, {0.0, 0.0}},
                {"nonlinear-nozero", "de0", {2.0, 2.0}, {0.0, 0.0}},
                {"power-1", "lin", {0.5, 0.0}, {0.0, 1.2e-7}},
                {"power-2", "pow2", {0.5, 0.0}, {0.0, 1.2e-7}},
                {"power-3", "pow3", {0.5, 0.0}, {0.0, 1.2e-7}},
                {"float-point", "fpx", {0.5, 0.5}, {0.0, 0.0}}};
    hid_t file = golden("lpmm.h5");
    if (file < 0)
        skip();
    int tables = 0;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int bits = 2; bits <= 8; bits++)
            for (int sign = 0; sign <= 1; sign++) {
                char text[96];
                float t[256];
                snprintf(text, sizeof text, "maps/%s_b%d_%s/qmap", want[i].source, bits,
                         sign ? "signed" : "unsigned");
                int n = table(file, text, t);
                if (n == 0)
                    continue;
                compare(want[i].map, bits, sign, t, n, want[i].ulps[sign], want[i].absolute[sign]);
                tables++;
            }
    H5Fclose(file);
    assert_true(tables > 0);
    print_message("lpmm.h5: %d tables\n", tables);
}

static void bitsandbytes_tables(void **state)
{
    (void)state;
    static const struct {
        const char *source, *map;
        int bits, sign;
        double ulps, absolute;
    } want[] = {{"maps/nf4", "nf4", 4, 1, 0.5, 0.0},
                {"maps/dynamic_signed", "dyn", 8, 1, 2.0, 0.0},
                {"maps/dynamic_unsigned", "dyn", 8, 0, 2.0, 0.0},
                {"maps/dynamic_unsigned_defect_0_36_to_0_41_0", "dyndef", 8, 0, 2.0, 0.0},
                {"maps/linear_signed", "lin0", 8, 1, 0.0, 1.2e-7},
                {"maps/linear_signed_nozero", "linb", 8, 1, 0.0, 1.2e-7},
                {"maps/fp8_e5m2", "fp52", 8, 1, 0.5, 0.0},
                {"maps/linear_unsigned", "lin0", 8, 0, 0.0, 1.2e-7}};
    hid_t file = golden("bitsandbytes.h5");
    if (file < 0)
        skip();
    int tables = 0;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        float t[256];
        int n = table(file, want[i].source, t);
        if (n == 0)
            continue;
        compare(want[i].map, want[i].bits, want[i].sign, t, n, want[i].ulps, want[i].absolute);
        tables++;
    }
    H5Fclose(file);
    assert_true(tables > 0);
    print_message("bitsandbytes.h5: %d tables\n", tables);
}

/* ---- nearest --------------------------------------------------------------------------------- */

/* The definition of nearest, in extended precision: no entry is nearer. */
static void check_nearest(const double *v, int n, double x)
{
    int k = qm_oracle_nearest(v, n, x, -1);
    long double d = fabsl((long double)x - (long double)v[k]);
    for (int i = 0; i < n; i++)
        if (fabsl((long double)x - (long double)v[i]) < d)
            fail_msg("%.17g: entry %d is nearer than %d", x, i, k);
}

static void nearest_is_nearest(void **state)
{
    (void)state;
    for (int i = 0; i < MAPS; i++)
        for (int bits = 2; bits <= 8; bits += 2)
            for (int sign = 0; sign <= 1; sign++) {
                double v[256];
                int n = qm_oracle_codebook(axis_map[i].name, bits, sign, v);
                for (int k = 0; k < n; k++)
                    v[k] = (double)(float)v[k]; /* mid-points of float32 entries are exact */
                for (int k = 0; k < n; k++) {
                    check_nearest(v, n, v[k]);
                    check_nearest(v, n, (double)nextafterf((float)v[k], 3.0f));
                }
                for (uint64_t j = 0; j < 300 && n > 0; j++)
                    check_nearest(v, n, qm_philox_stream(1, 0, j) / 2147483648.0 - 1.0);
            }
}

/* At every mid-point `tie` decides; one float32 step to either side it has no effect. */
static void ties(void **state)
{
    (void)state;
    double v[256];
    int n = qm_oracle_codebook("nf4", 4, 1, v);
    for (int k = 0; k + 1 < n; k++) {
        double mid = 0.5 * (v[k] + v[k + 1]);
        assert_int_equal(qm_oracle_nearest(v, n, mid, -1), k);
        assert_int_equal(qm_oracle_nearest(v, n, mid, 1), k + 1);
        assert_int_equal(qm_oracle_nearest(v, n, mid, 0), k % 2 ? k + 1 : k);
        assert_int_equal(qm_oracle_nearest(v, n, mid, 2), mid > 0.0 ? k + 1 : k);
        for (int tie = -1; tie <= 2; tie++) {
            assert_int_equal(qm_oracle_nearest(v, n, nextafter(mid, -2.0), tie), k);
            assert_int_equal(qm_oracle_nearest(v, n, nextafter(mid, 2.0), tie), k + 1);
        }
    }
    /* a false tie of |x - v| in double: x far nearer to 0 than its ulp at 1 */
    const double far[3] = {-1.0, 0.0, 1.0}, pair[2] = {-1.0, 1.0};
    assert_int_equal(qm_oracle_nearest(pair, 2, 1e-30, -1), 1);
    assert_int_equal(qm_oracle_nearest(pair, 2, -1e-30, 1), 0);
    assert_int_equal(qm_oracle_nearest(pair, 2, 0.0, 2), 1);
    assert_int_equal(qm_oracle_nearest(far, 3, -1e-300, -1), 1);
}

static void ends_and_equal_neighbours(void **state)
{
    (void)state;
    double v[256];
    int n = qm_oracle_codebook("de0", 4, 0, v);
    for (int tie = -1; tie <= 2; tie++) {
        assert_int_equal(qm_oracle_nearest(v, n, (double)INFINITY, tie), n - 1);
        assert_int_equal(qm_oracle_nearest(v, n, -(double)INFINITY, tie), 0);
        assert_int_equal(qm_oracle_nearest(v, n, (double)NAN, tie), 0);
        assert_int_equal(qm_oracle_nearest(v, n, v[1] + 1e-9, tie), 1);
        assert_int_equal(qm_oracle_nearest(v, n, v[1] - 1e-9, tie), 0);
        assert_int_equal(qm_oracle_nearest(v, n, v[1], tie), tie >= 1);
        assert_int_equal(qm_oracle_nearest(v, 1, 0.5, tie), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_sound),
        cmocka_unit_test(refusals),
        cmocka_unit_test(printed_tables),
        cmocka_unit_test(printed_facts),
        cmocka_unit_test(lpmm_tables),
        cmocka_unit_test(bitsandbytes_tables),
        cmocka_unit_test(nearest_is_nearest),
        cmocka_unit_test(ties),
        cmocka_unit_test(ends_and_equal_neighbours),
    };
    return cmocka_run_group_tests_name("codebook", tests, NULL, NULL);
}
