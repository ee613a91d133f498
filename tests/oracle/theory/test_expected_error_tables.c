/* test_expected_error_tables.c - Compares expected errors with tabulated and published figures. */
#include <gsl/gsl_cdf.h>

#include "oracle/theory/optimal_codebook.h"
#include "tests/support/expected_error_cases.h"

/* The thresholds of adafactor8bit 0.2.4, which compares |x| on both sides of 0. */
static void one_sided_cuts(struct codebook *b)
{
    static const double at[8] = {0.0397901, 0.1262246, 0.2234769, 0.3317961,
                                 0.4572902, 0.6106329, 0.7801653, 0.9320689};
    for (int i = 0; i < 8; i++)
        b->cut[7 + i] = at[i];
    for (int i = 0; i < 7; i++) /* from the seventh threshold on the negative side is code 0 */
        b->cut[6 - i] = -at[i];
}

/* clang-format off */
/* Mean square error and SQNR on N(0, 1) for blocks of 32 to 2048, by another quadrature to 1e-13,
 * which was confirmed by 6.4e7 samples. */
static const struct { const char *name; double mse[7], db[7]; } table_normal[] = {
    {"nf4",
     {7.623418e-03, 8.460053e-03, 9.135622e-03, 9.728830e-03,
      1.029451e-02, 1.086547e-02, 1.145833e-02},
     {21.179, 20.726, 20.393, 20.119, 19.874, 19.640, 19.409}},
    {"nf4a8",
     {7.610370e-03, 8.673098e-03, 9.590628e-03, 1.041692e-02,
      1.119273e-02, 1.194498e-02, 1.268968e-02},
     {21.186, 20.618, 20.182, 19.823, 19.511, 19.228, 18.965}},
    {"nf4a8 thresholds",
     {8.725957e-03, 9.729965e-03, 1.053356e-02, 1.122113e-02,
      1.185513e-02, 1.247574e-02, 1.310558e-02},
     {20.592, 20.119, 19.774, 19.500, 19.261, 19.039, 18.825}},
    {"int4",
     {9.409726e-03, 1.157757e-02, 1.375188e-02, 1.593242e-02,
      1.812083e-02, 2.031844e-02, 2.252580e-02},
     {20.264, 19.364, 18.616, 17.977, 17.418, 16.921, 16.473}},
    {"lin",
     {8.196569e-03, 1.008502e-02, 1.197913e-02, 1.387868e-02,
      1.578509e-02, 1.769950e-02, 1.962239e-02},
     {20.864, 19.963, 19.216, 18.577, 18.018, 17.520, 17.072}},
    {"de4",
     {1.683395e-02, 1.942484e-02, 2.196084e-02, 2.440165e-02,
      2.672656e-02, 2.892746e-02, 3.100370e-02},
     {17.738, 17.116, 16.584, 16.126, 15.731, 15.387, 15.086}},
    {"e2m1",
     {1.022045e-02, 1.117379e-02, 1.185362e-02, 1.237573e-02,
      1.282346e-02, 1.324884e-02, 1.368028e-02},
     {19.905, 19.518, 19.261, 19.074, 18.920, 18.778, 18.639}},
    {"de8",
     {7.699808e-05, 9.033437e-05, 1.037432e-04, 1.170505e-04,
      1.301509e-04, 1.429844e-04, 1.555194e-04},
     {41.135, 40.441, 39.840, 39.316, 38.856, 38.447, 38.082}},
    {"int8",
     {2.857735e-05, 3.516375e-05, 4.177051e-05, 4.839654e-05,
      5.504648e-05, 6.172416e-05, 6.843116e-05},
     {45.440, 44.539, 43.791, 43.152, 42.593, 42.095, 41.647}},
    {"e4m3",
     {5.753500e-04, 6.280095e-04, 6.613985e-04, 6.812853e-04,
      6.923095e-04, 6.978346e-04, 7.001457e-04},
     {32.401, 32.020, 31.795, 31.667, 31.597, 31.562, 31.548}},
};

/* Second moments: NMSE, P(0) and rho for blocks of 32 to 2048. */
enum { NMSE, ZERO, RHO };
static const struct { enum qm_law_kind law; double shape; const char *map; int bits, what;
                      double want[7]; } table_second[] = {
    {QM_LAW_chisq, 1, "lin0", 4, NMSE,
     {3.8185e-03, 5.4086e-03, 7.2908e-03, 9.4612e-03, 1.1915e-02, 1.4647e-02, 1.7652e-02}},
    {QM_LAW_chisq, 1, "lin0", 4, ZERO,
     {3.2907e-01, 3.6277e-01, 3.9305e-01, 4.2062e-01, 4.4597e-01, 4.6945e-01, 4.9130e-01}},
    {QM_LAW_chisq, 1, "lin0", 4, RHO,
     {7.6969e-02, 7.9351e-02, 8.1106e-02, 8.2403e-02, 8.3351e-02, 8.4024e-02, 8.4477e-02}},
    {QM_LAW_chisq, 1, "lin", 4, NMSE,
     {1.5345e-02, 2.2886e-02, 3.2498e-02, 4.4379e-02, 5.8708e-02, 7.5648e-02, 9.5342e-02}},
    {QM_LAW_chisq, 1, "lin", 4, RHO,
     {3.9337e-01, 4.1341e-01, 4.3074e-01, 4.4605e-01, 4.5979e-01, 4.7226e-01, 4.8368e-01}},
    {QM_LAW_chisq, 1, "dyn", 4, NMSE,
     {4.3448e-03, 5.7350e-03, 7.1638e-03, 8.5844e-03, 9.9638e-03, 1.1280e-02, 1.2520e-02}},
    {QM_LAW_chisq, 1, "dyn", 4, ZERO,
     {7.4985e-02, 8.3162e-02, 9.0656e-02, 9.7619e-02, 1.0415e-01, 1.1033e-01, 1.1620e-01}},
    {QM_LAW_chisq, 1, "dyn", 4, RHO,
     {9.5208e-02, 9.8652e-02, 1.0143e-01, 1.0373e-01, 1.0568e-01, 1.0737e-01, 1.0884e-01}},
    {QM_LAW_chisq, 1, "de0", 4, NMSE,
     {4.3524e-03, 5.7465e-03, 7.1803e-03, 8.6073e-03, 9.9946e-03, 1.1321e-02, 1.2571e-02}},
    {QM_LAW_chisq, 1, "de0", 4, RHO,
     {2.0869e-01, 2.1906e-01, 2.2802e-01, 2.3596e-01, 2.4311e-01, 2.4962e-01, 2.5562e-01}},
    {QM_LAW_chisq, 1, "lin0", 8, NMSE,
     {1.5025e-05, 2.1471e-05, 2.9218e-05, 3.8289e-05, 4.8705e-05, 6.0479e-05, 7.3625e-05}},
    {QM_LAW_chisq, 1, "lin0", 8, ZERO,
     {8.2341e-02, 9.1314e-02, 9.9536e-02, 1.0717e-01, 1.1434e-01, 1.2111e-01, 1.2755e-01}},
    {QM_LAW_chisq, 1, "lin0", 8, RHO,
     {4.2539e-02, 4.4729e-02, 4.6627e-02, 4.8308e-02, 4.9819e-02, 5.1193e-02, 5.2453e-02}},
    {QM_LAW_chisq, 1, "dyn", 8, NMSE,
     {2.0082e-05, 2.6831e-05, 3.3968e-05, 4.1288e-05, 4.8633e-05, 5.5883e-05, 6.2949e-05}},
    {QM_LAW_chisq, 1, "dyn", 8, ZERO,
     {7.5109e-04, 8.3325e-04, 9.0863e-04, 9.7875e-04, 1.0446e-03, 1.1069e-03, 1.1662e-03}},
    {QM_LAW_chisq, 1, "dyn", 8, RHO,
     {1.4373e-02, 1.5089e-02, 1.5708e-02, 1.6256e-02, 1.6749e-02, 1.7199e-02, 1.7612e-02}},
    {QM_LAW_lognormal, 1, "lin0", 4, NMSE,
     {5.7625e-03, 9.2333e-03, 1.4250e-02, 2.1288e-02, 3.0864e-02, 4.3508e-02, 5.9710e-02}},
    {QM_LAW_lognormal, 1, "lin0", 4, ZERO,
     {1.1431e-01, 1.6577e-01, 2.2648e-01, 2.9433e-01, 3.6666e-01, 4.4065e-01, 5.1366e-01}},
    {QM_LAW_lognormal, 1, "lin0", 4, RHO,
     {8.9703e-02, 9.6480e-02, 1.0104e-01, 1.0349e-01, 1.0401e-01, 1.0282e-01, 1.0019e-01}},
    {QM_LAW_lognormal, 1, "lin", 4, NMSE,
     {1.2335e-02, 2.1991e-02, 3.8175e-02, 6.4704e-02, 1.0718e-01, 1.7357e-01, 2.7492e-01}},
    {QM_LAW_lognormal, 1, "lin", 4, RHO,
     {1.7308e-01, 2.0689e-01, 2.4192e-01, 2.7768e-01, 3.1363e-01, 3.4930e-01, 3.8429e-01}},
    {QM_LAW_lognormal, 1, "dyn", 4, NMSE,
     {4.7376e-03, 6.3628e-03, 8.1120e-03, 9.9229e-03, 1.1744e-02, 1.3541e-02, 1.5301e-02}},
    {QM_LAW_lognormal, 1, "dyn", 4, ZERO,
     {8.0728e-05, 1.5591e-04, 2.9204e-04, 5.3058e-04, 9.3416e-04, 1.5928e-03, 2.6296e-03}},
    {QM_LAW_lognormal, 1, "dyn", 4, RHO,
     {8.1400e-02, 8.8386e-02, 9.5309e-02, 1.0224e-01, 1.0909e-01, 1.1570e-01, 1.2191e-01}},
    {QM_LAW_lognormal, 1, "de0", 4, NMSE,
     {4.7377e-03, 6.3629e-03, 8.1123e-03, 9.9235e-03, 1.1745e-02, 1.3543e-02, 1.5306e-02}},
    {QM_LAW_lognormal, 1, "de0", 4, RHO,
     {8.1475e-02, 8.8522e-02, 9.5546e-02, 1.0264e-01, 1.0976e-01, 1.1679e-01, 1.2364e-01}},
    {QM_LAW_lognormal, 1, "lin0", 8, NMSE,
     {1.9199e-05, 3.0819e-05, 4.7882e-05, 7.2504e-05, 1.0749e-04, 1.5650e-04, 2.2436e-04}},
    {QM_LAW_lognormal, 1, "lin0", 8, ZERO,
     {1.4803e-04, 2.8331e-04, 5.2449e-04, 9.3954e-04, 1.6277e-03, 2.7263e-03, 4.4163e-03}},
    {QM_LAW_lognormal, 1, "lin0", 8, RHO,
     {1.5180e-02, 1.8850e-02, 2.2942e-02, 2.7439e-02, 3.2307e-02, 3.7492e-02, 4.2933e-02}},
    {QM_LAW_lognormal, 1, "dyn", 8, NMSE,
     {2.3192e-05, 3.1828e-05, 4.1453e-05, 5.1745e-05, 6.2397e-05, 7.3167e-05, 8.3923e-05}},
    {QM_LAW_lognormal, 1, "dyn", 8, ZERO,
     {0, 0, 0, 0, 0, 0, 0}},
    {QM_LAW_lognormal, 1, "dyn", 8, RHO,
     {5.6197e-03, 6.0945e-03, 6.5638e-03, 7.0393e-03, 7.5219e-03, 8.0062e-03, 8.4857e-03}},
    {QM_LAW_lognormal, 2, "lin0", 4, NMSE,
     {1.2157e-03, 2.1975e-03, 3.8052e-03, 6.3283e-03, 1.0126e-02, 1.5617e-02, 2.3261e-02}},
    {QM_LAW_lognormal, 2, "lin0", 4, ZERO,
     {6.2278e-01, 7.1804e-01, 7.9423e-01, 8.5291e-01, 8.9676e-01, 9.2868e-01, 9.5141e-01}},
    {QM_LAW_lognormal, 2, "lin0", 4, RHO,
     {7.0271e-02, 6.5036e-02, 5.8664e-02, 5.1863e-02, 4.5114e-02, 3.8722e-02, 3.2865e-02}},
    {QM_LAW_lognormal, 2, "lin", 4, NMSE,
     {1.0542e-01, 2.1049e-01, 4.1353e-01, 8.0129e-01, 1.5321e+00, 2.8907e+00, 5.3804e+00}},
    {QM_LAW_lognormal, 2, "lin", 4, RHO,
     {5.5683e-01, 6.1871e-01, 6.7262e-01, 7.1922e-01, 7.5926e-01, 7.9350e-01, 8.2269e-01}},
    {QM_LAW_lognormal, 2, "dyn", 4, NMSE,
     {4.0311e-04, 6.7122e-04, 1.0617e-03, 1.6058e-03, 2.3354e-03, 3.2829e-03, 4.4823e-03}},
    {QM_LAW_lognormal, 2, "dyn", 4, ZERO,
     {1.4999e-01, 2.1191e-01, 2.8217e-01, 3.5776e-01, 4.3541e-01, 5.1205e-01, 5.8508e-01}},
    {QM_LAW_lognormal, 2, "dyn", 4, RHO,
     {1.1598e-01, 1.1848e-01, 1.1824e-01, 1.1575e-01, 1.1152e-01, 1.0598e-01, 9.9529e-02}},
    {QM_LAW_lognormal, 2, "de0", 4, NMSE,
     {5.9190e-04, 1.0524e-03, 1.8220e-03, 3.1073e-03, 5.2721e-03, 8.9667e-03, 1.5355e-02}},
    {QM_LAW_lognormal, 2, "de0", 4, RHO,
     {2.5648e-01, 3.0246e-01, 3.4972e-01, 3.9743e-01, 4.4473e-01, 4.9086e-01, 5.3522e-01}},
    {QM_LAW_lognormal, 2, "lin0", 8, NMSE,
     {1.7023e-05, 3.2818e-05, 6.1559e-05, 1.1252e-04, 2.0037e-04, 3.4754e-04, 5.8693e-04}},
    {QM_LAW_lognormal, 2, "lin0", 8, ZERO,
     {1.7016e-01, 2.3729e-01, 3.1199e-01, 3.9082e-01, 4.7031e-01, 5.4737e-01, 6.1955e-01}},
    {QM_LAW_lognormal, 2, "lin0", 8, RHO,
     {6.6059e-02, 7.1458e-02, 7.4870e-02, 7.6407e-02, 7.6268e-02, 7.4703e-02, 7.1983e-02}},
    {QM_LAW_lognormal, 2, "dyn", 8, NMSE,
     {2.0394e-06, 3.4246e-06, 5.4656e-06, 8.3407e-06, 1.2232e-05, 1.7318e-05, 2.3773e-05}},
    {QM_LAW_lognormal, 2, "dyn", 8, ZERO,
     {4.9820e-07, 1.0006e-06, 1.9787e-06, 3.8567e-06, 7.4005e-06, 1.3951e-05, 2.5783e-05}},
    {QM_LAW_lognormal, 2, "dyn", 8, RHO,
     {1.4312e-02, 1.6602e-02, 1.9020e-02, 2.1582e-02, 2.4301e-02, 2.7186e-02, 3.0246e-02}},
};
/* clang-format on */

static struct codebook row_codebook(const char *name)
{
    struct codebook b;
    if (strcmp(name, "nf4a8 thresholds") == 0) {
        b = codebook_of("nf4a8", 4, 1);
        one_sided_cuts(&b);
        return b;
    }
    if (strcmp(name, "int4") == 0)
        return codebook_of("int", 4, 1);
    if (strcmp(name, "int8") == 0)
        return codebook_of("int", 8, 1);
    if (strcmp(name, "de4") == 0)
        return codebook_of("de", 4, 1);
    if (strcmp(name, "de8") == 0)
        return codebook_of("dyn", 8, 1);
    return codebook_of(name, 4, 1);
}

static void normal_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table_normal / sizeof *table_normal; i++) {
        struct codebook b = row_codebook(table_normal[i].name);
        for (int j = 0; j < 7; j++) {
            struct qm_theory t = theory(&normal, &b, 32 << j);
            near_to(table_normal[i].name, t.mse, table_normal[i].mse[j], 1e-6, 0.0);
            near_to(table_normal[i].name, t.sqnr_db, table_normal[i].db[j], 0.0, 5.1e-4);
            near_to(table_normal[i].name, t.nmse, t.mse, 1e-15, 0.0);
        }
    }
}

static void normal_maximum(void **state)
{
    (void)state;
    static const double max1[7] = {2.347079, 2.596111, 2.827558, 3.044225,
                                   3.248391, 3.441870, 3.626116};
    static const double max2[7] = {5.709505,  6.913897,  8.148252, 9.403783,
                                   10.674983, 11.958263, 13.251184};
    struct codebook b = codebook_of("nf4", 4, 1);
    for (int j = 0; j < 7; j++) {
        struct qm_theory t = theory(&normal, &b, 32 << j);
        near_to("E M", t.max1, max1[j], 0.0, 5.1e-7);
        near_to("E M^2", t.max2, max2[j], 0.0, 5.1e-7);
    }
}

/* Mean |error| of NF4, also against the Monte-Carlo row of bitsandbytes; SQNR for blocks
 * of 4096. */
static void normal_mean_abs(void **state)
{
    (void)state;
    static const double want[8] = {0.067748, 0.072796, 0.076835, 0.080329,
                                   0.083540, 0.086605, 0.089592, 0.092529};
    static const double measured[8] = {0.067746, 0.072798, 0.076831, 0.080337,
                                       0.083547, 0.086610, 0.089592, 0.092547};
    struct codebook b = codebook_of("nf4", 4, 1);
    for (int j = 0; j < 8; j++) {
        struct qm_theory t = theory(&normal, &b, 32 << j);
        near_to("E |e|", t.mean_abs, want[j], 0.0, 5.1e-7);
        near_to("E |e| measured", t.mean_abs, measured[j], 0.0, 1.9e-5);
        if (j == 7)
            near_to("dB at 4096", t.sqnr_db, 19.180, 0.0, 5.1e-4);
    }
}

static void normal_entropy_and_zero(void **state)
{
    (void)state;
    static const int block[4] = {64, 128, 256, 2048};
    static const struct {
        const char *name;
        double entropy[4], zero[4];
    } want[] = {
        {"nf4", {3.885, 3.817, 3.751, 3.573}, {.0880, .0959, .1033, .1229}},
        {"int4", {3.500, 3.385, 3.280, 3.026}, {.1467, .1599, .1720, .2043}},
        {"de4", {3.546, 3.488, 3.436, 3.319}, {.0057, .0062, .0067, .0080}},
        {"e2m1", {3.818, 3.763, 3.709, 3.560}, {-1, -1, -1, -1}},
        {"de8", {7.335, 7.287, 7.235, 7.101}, {-1, -1, -1, -1}},
        {"int8", {7.621, 7.531, 7.438, 7.191}, {-1, -1, -1, -1}},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int j = 0; j < 4; j++) {
            struct codebook b = row_codebook(want[i].name);
            struct qm_theory t = theory(&normal, &b, block[j]);
            near_to(want[i].name, t.entropy, want[i].entropy[j], 0.0, 5.1e-4);
            if (want[i].zero[j] >= 0.0)
                near_to(want[i].name, t.zero, want[i].zero[j], 0.0, 5.1e-5);
        }
}

static void second_moment_table(void **state)
{
    (void)state;
    struct qm_theory t[7] = {0};
    for (size_t i = 0; i < sizeof table_second / sizeof *table_second; i++) {
        struct qm_law law = {table_second[i].law, table_second[i].shape};
        struct codebook b = codebook_of(table_second[i].map, table_second[i].bits, 0);
        for (int j = 0; j < 7; j++) {
            if (table_second[i].what == NMSE) /* the first row of each map */
                t[j] = theory(&law, &b, 32 << j);
            const double got[3] = {t[j].nmse, t[j].zero, t[j].rho};
            near_to(table_second[i].map, got[table_second[i].what], table_second[i].want[j], 1e-4,
                    1e-20);
            if (b.value[0] > 0.0)
                assert_true(t[j].zero == 0.0); /* no zero code, no collapse */
        }
    }
}

/* Nearest codes and one-sided thresholds, errors in units of the scale, for uniform data without
 * blocks and N(0, 1) in blocks.  The figures come from a separate analytic evaluation, which was
 * confirmed by 2.1e6 samples of the original code. */
static void threshold_search(void **state)
{
    (void)state;
    struct qm_law uniform = {QM_LAW_uniform, 0.0};
    struct codebook near = codebook_of("nf4a8", 4, 1), ladder = row_codebook("nf4a8 thresholds");
    struct qm_theory a = theory(&uniform, &near, 0), b = theory(&uniform, &ladder, 0);
    near_to("uniform, nearest", a.mse, 2.41963e-3, 3e-6, 0.0);
    near_to("uniform, thresholds", b.mse, 3.12061e-3, 3e-6, 0.0);
    near_to("uniform, extra |e|", b.mean_abs - a.mean_abs, 2.307320e-3, 1e-5, 0.0);
    near_to("uniform, bias of nearest", a.bias, 0.0, 0.0, 1e-6);
    near_to("uniform, bias of thresholds", b.bias, -1.03190e-2, 1e-5, 0.0);
    static const struct {
        const char *name;
        double mse;
    } flat[] = {{"intm", 1.546e-3}, {"int", 1.701e-3}, {"nf4", 2.912e-3}};
    for (int i = 0; i < 3; i++) {
        struct codebook c = codebook_of(flat[i].name, 4, 1);
        near_to(flat[i].name, theory(&uniform, &c, 0).mse, flat[i].mse, 0.0, 5.1e-7);
    }
    static const struct {
        int block;
        double near, ladder, near_bias, ladder_bias;
    } want[] = {{32, 1.41444e-3, 1.64711e-3, 4.7e-4, -2.81e-3},
                {128, 1.21833e-3, 1.35115e-3, 3.66e-4, -1.47e-3},
                {256, 1.13722e-3, 1.23403e-3, 2.98e-4, -1.03e-3},
                {2048, 9.6925e-4, 1.00374e-3, 1.3e-4, -3.2e-4}};
    for (int i = 0; i < 4; i++) {
        a = theory(&normal, &near, want[i].block);
        b = theory(&normal, &ladder, want[i].block);
        near_to("nearest", a.unit_mse, want[i].near, 1e-5, 0.0);
        near_to("thresholds", b.unit_mse, want[i].ladder, 1e-5, 0.0);
        near_to("bias of nearest", a.unit_bias, want[i].near_bias, 0.0, 5.1e-6);
        near_to("bias of thresholds", b.unit_bias, want[i].ladder_bias, 0.0, 5.1e-6);
    }
}

/* clang-format off */
static const struct { double mse, db, entropy, gap, step, uniform; } table_lloyd[8] = {
    {0.3633802276,     4.3964, 1.0000, 1.624, 1.5957691, 0.36338023},
    {0.1174818478,     9.3003, 1.9111, 2.741, 0.9956867, 0.11884605},
    {0.0345477608,    14.6158, 2.8249, 3.446, 0.5860194, 0.03743966},
    {0.00950100800819, 20.2223, 3.7653, 3.860, 0.3352006, 0.01154288},
    {0.0025046684,    26.0125, 4.7298, 4.091, 0.1881388, 0.00349521},
    {0.0006442397,    31.9095, 5.7101, 4.214, 0.1040630, 0.00104005},
    {0.0001634782,    37.8654, 6.6996, 4.279, 0.0568677, 0.00030433},
    {0.0000411851,    43.8526, 7.6941, 4.312, 0.0307624, 0.00008769},
};
static const double lloyd_cut[8] = {0, 0.258221664671, 0.522403709011, 0.79954978751,
    1.09928582692, 1.43713879168, 1.84353180628, 2.40080339876};
static const double lloyd_level[8] = {0.128395029851, 0.38804829949, 0.656759118532,
    0.942340456487, 1.25623119735, 1.61804638602, 2.06901722653, 2.73258957100};
/* clang-format on */

static double uniform_mse(int bits, double step)
{
    struct codebook b = {.n = 1 << bits};
    for (int k = 0; k < b.n; k++)
        b.value[k] = step * (k + 0.5 - 0.5 * b.n);
    qm_theory_midpoints(b.value, b.n, b.cut);
    return theory(&normal, &b, 0).mse;
}

/* The Lloyd-Max quantizer of N(0, 1). */
static struct codebook best_of_normal(int n)
{
    struct codebook b = {.n = n};
    struct qm_optimum o;
    assert_int_equal(qm_optimal(&normal, 0, n, 0, QM_LOSS_mse, &o), QM_OK);
    memcpy(b.value, o.value, sizeof b.value);
    memcpy(b.cut, o.cut, sizeof b.cut);
    return b;
}

static void lloyd_max(void **state)
{
    (void)state;
    for (int bits = 1; bits <= 8; bits++) {
        struct codebook b = best_of_normal(1 << bits);
        struct qm_theory t = theory(&normal, &b, 0);
        double power = 0.0, rate = pow(4.0, -bits);
        near_to("mse", t.mse, table_lloyd[bits - 1].mse, 0.0, bits == 4 ? 6e-15 : 5.1e-11);
        near_to("dB", t.sqnr_db, table_lloyd[bits - 1].db, 0.0, 5.1e-5);
        near_to("entropy", t.entropy, table_lloyd[bits - 1].entropy, 0.0, 5.1e-5);
        near_to("gap", 10.0 * log10(t.mse / rate), table_lloyd[bits - 1].gap, 0.0, 5.1e-4);
        near_to("rate-distortion", qm_shannon_bound(&normal, bits), rate, 1e-14, 0.0);
        for (int k = 0; k < b.n; k++) { /* levels are centroids: mse = 1 - sum p c^2 */
            double a = k > 0 ? b.cut[k - 1] : -HUGE_VAL, c = k + 1 < b.n ? b.cut[k] : HUGE_VAL;
            power += (gsl_cdf_ugaussian_P(c) - gsl_cdf_ugaussian_P(a)) * b.value[k] * b.value[k];
        }
        near_to("centroids", 1.0 - power, t.mse, 0.0, 1e-12);
        double step = table_lloyd[bits - 1].step, best = uniform_mse(bits, step);
        near_to("uniform", best, table_lloyd[bits - 1].uniform, 0.0, 5.1e-9);
        assert_true(uniform_mse(bits, step * 1.001) > best);
        assert_true(uniform_mse(bits, step * 0.999) > best);
    }
    struct codebook b = best_of_normal(16);
    for (int k = 0; k < 8; k++) {
        near_to("cut", b.cut[7 + k], lloyd_cut[k], 0.0, 1.1e-11);
        near_to("level", b.value[8 + k], lloyd_level[k], 0.0, 1.1e-11);
        near_to("symmetric", b.value[7 - k], -b.value[8 + k], 0.0, 1e-13);
    }
    near_to("middle of 7", best_of_normal(7).value[3], 0.0, 0.0, 1e-13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_table),        cmocka_unit_test(normal_maximum),
        cmocka_unit_test(normal_mean_abs),     cmocka_unit_test(normal_entropy_and_zero),
        cmocka_unit_test(second_moment_table), cmocka_unit_test(threshold_search),
        cmocka_unit_test(lloyd_max),
    };
    return cmocka_run_group_tests_name("theory tables", tests, NULL, NULL);
}
