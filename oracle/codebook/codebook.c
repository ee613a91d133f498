/* codebook.c - Builds the codebooks of maps in double from their published definitions. */
#include "oracle/codebook/codebook.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort.h>
#include <stdlib.h>
#include <string.h>

static int sorted(double *value, int n)
{
    gsl_sort(value, 1, (size_t)n);
    return n;
}

/* value[k] = (from + k) / by. */
static int evenly_spaced(double *value, int n, double from, double by)
{
    for (int k = 0; k < n; k++)
        value[k] = (from + k) / by;
    return n;
}

static int integer(int bits, int sign, double *value)
{
    (void)sign;
    return evenly_spaced(value, 1 << bits, -(1 << (bits - 1)), 1.0);
}

/* The int8 of axolotl's Muon: code - MRQ, in units of absmax / MRQ. */
static int integer_symmetric(int bits, int sign, double *value)
{
    int mrq = (1 << (bits - 1)) - 1;
    (void)sign;
    return evenly_spaced(value, 2 * mrq + 1, -mrq, 1.0);
}

static int integer_over_2b(int bits, int sign, double *value)
{
    (void)sign;
    return evenly_spaced(value, 1 << bits, -(1 << (bits - 1)), 1 << (bits - 1));
}

/* The integer type of lpmm: code / MRQ, code in [-MRQ, MRQ] (2^b - 1 codes) or in [0,
 * MRQ] (unsigned). */
static int integer_linear(int bits, int sign, double *value)
{
    int mrq = sign ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    return evenly_spaced(value, sign ? 2 * mrq + 1 : mrq + 1, sign ? -mrq : 0, mrq);
}

static int linear(int bits, int sign, double *value)
{
    int n = 1 << bits;
    if (!sign)
        return evenly_spaced(value, n, 1.0, n);
    for (int k = 0; k < n; k++)
        value[k] = (double)(2 * k - (n - 1)) / (n - 1);
    return n;
}

static int linear_with_zero(int bits, int sign, double *value)
{
    int n = 1 << bits, half = n / 2 - 1; /* signed: half values, 0, 0, half values */
    if (!sign)
        return evenly_spaced(value, n, 0.0, n - 1);
    for (int k = 0; k < half; k++) {
        value[n - 1 - k] = (double)(half - k) / half;
        value[k] = -value[n - 1 - k];
    }
    value[half] = value[half + 1] = 0.0;
    return n;
}

static int power(int bits, int sign, int exponent, double *value)
{
    int n = linear(bits, sign, value);
    for (int k = 0; k < n; k++) {
        double t = value[k] < 0.0 ? -value[k] : value[k], p = t;
        for (int i = 1; i < exponent; i++)
            p *= t;
        value[k] = value[k] < 0.0 ? -p : p;
    }
    return n;
}

static int square(int bits, int sign, double *value) { return power(bits, sign, 2, value); }
static int cube(int bits, int sign, double *value) { return power(bits, sign, 3, value); }

/* low-bit-Shampoo: the table has 2^b entries, of which entry 2^(b-1) - 1 is 0. */
static int square_with_zero(int bits, int sign, double *value)
{
    int n = power(bits, sign, 2, value);
    value[n / 2 - 1] = 0.0;
    return n;
}

/* In decade i of E = bits - 1, [0.1, 1] is divided into K equal parts, K = 2^i signed and 2^(i+1)
 * unsigned; the values are the mid-points of the parts, 0.1 + 0.9 (2k + 1) / (2K), times 10^(i - E
 * + 1); 0 and 1 are added.  Numerator and denominator are exact integers, so each value is
 * correctly rounded. */
static int dynamic(int bits, int sign, double *value)
{
    int n = 0, decades = bits - 1;
    double down = 1.0;
    for (int i = decades - 1; i >= 0; i--, down *= 10.0) {
        int parts = 1 << (sign ? i : i + 1);
        for (int k = 0; k < parts; k++) {
            double v = (2.0 * parts + 9.0 * (2 * k + 1)) / (20.0 * parts * down);
            value[n++] = v;
            if (sign)
                value[n++] = -v;
        }
    }
    value[n++] = 0.0;
    value[n++] = 1.0;
    return sorted(value, n);
}

/* bitsandbytes 0.36.0 to 0.41.0, unsigned 8 bits: in decade i the mid-points of 2^(i+2) and
 * of 2 equal parts of [0.1, 1], times 10^(i - 6); 0 and 1; the lowest 256 of these 524 values
 * are kept. */
static int dynamic_defect(int bits, int sign, double *value)
{
    double all[524], down = 1e6;
    int n = 0;
    (void)bits;
    (void)sign;
    for (int i = 0; i < 7; i++, down /= 10.0)
        for (int parts = 4 << i;; parts = 2) {
            for (int k = 0; k < parts; k++)
                all[n++] = (2.0 * parts + 9.0 * (2 * k + 1)) / (20.0 * parts * down);
            if (parts == 2)
                break;
        }
    all[n++] = 0.0;
    all[n++] = 1.0;
    sorted(all, n);
    memcpy(value, all, 256 * sizeof *value);
    return 256;
}

static int dynamic_nozero(int bits, int sign, double *value)
{
    int n = dynamic(bits, sign, value);
    if (!sign)
        value[0] = value[1];
    return n;
}

/* The quantile of N(0, 1) at probability k of n equally spaced ones from the offset to 1/2. */
static float quantile(int k, int n)
{
    const double offset = (double)0.9677083f;
    float p = (float)(offset + (0.5 - offset) * k / (n - 1));
    return (float)gsl_cdf_ugaussian_Pinv((double)p);
}

/* NF4: quantiles at equally spaced probabilities (without 1/2), 8 positive and 7 negative, and
 * 0, divided by the largest.  By definition a float32 table: its source rounds probabilities,
 * quantiles and quotients to float32; omitting any of the three roundings moves entries by up
 * to 1.1e-7. */
static int normal_float(int bits, int sign, double *value)
{
    (void)bits;
    (void)sign;
    for (int k = 0; k < 8; k++)
        value[k] = (double)(quantile(k, 9) / quantile(0, 9));
    for (int k = 0; k < 7; k++)
        value[8 + k] = -(double)(quantile(k, 8) / quantile(0, 9));
    value[15] = 0.0;
    return sorted(value, 16);
}

/* bitsandbytes create_normal_map without the extra value: 7 magnitudes with both signs, and 0. */
static int normal_float_symmetric(int bits, int sign, double *value)
{
    (void)bits;
    (void)sign;
    for (int k = 0; k < 7; k++) {
        value[14 - k] = (double)(quantile(k, 8) / quantile(0, 8));
        value[k] = -value[14 - k];
    }
    value[7] = 0.0;
    return 15;
}

/* AF4: arXiv:2306.06965, block size 64, the printed list. */
static int abnormal_float(int bits, int sign, double *value)
{
    static const double table[16] = {-1.0,        -0.69441008, -0.51243739, -0.3736951,
                                     -0.25607552, -0.14982478, -0.04934812, 0.0,
                                     0.04273164,  0.12934483,  0.21961274,  0.31675666,
                                     0.42563882,  0.55496234,  0.72424863,  1.0};
    (void)bits;
    (void)sign;
    memcpy(value, table, sizeof table);
    return 16;
}

/* adafactor8bit 0.2.4: a printed list of 16; the source has no formula for it. */
static int normal_float_a8(int bits, int sign, double *value)
{
    static const double table[16] = {-1.0,        -0.6961928,  -0.52507306, -0.3895074,
                                     -0.27408478, -0.17286907, -0.07958022, 0.0,
                                     0.07958022,  0.17286907,  0.27408478,  0.3895074,
                                     0.52507306,  0.6961928,   0.8641379,   1.0};
    (void)bits;
    (void)sign;
    memcpy(value, table, sizeof table);
    return 16;
}

/* FP4 of bitsandbytes: magnitudes in twelfths, each with a sign bit; -0 and +0 are two entries. */
static int float4(int bits, int sign, double *value)
{
    static const double twelfths[8] = {0.0, 0.0625, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0};
    (void)bits;
    (void)sign;
    for (int k = 0; k < 8; k++) {
        value[8 + k] = twelfths[k] / 12.0;
        value[7 - k] = -value[8 + k];
    }
    return 16;
}

/* FP4 in the order of bitsandbytes' default backend: +0 below -0. */
static int float4_sorted(int bits, int sign, double *value)
{
    int n = float4(bits, sign, value);
    value[7] = 0.0;
    value[8] = -0.0;
    return n;
}

/* The E2M1 of OCP over its largest number, 6; -0 and +0 are two entries. */
static int float4_e2m1(int bits, int sign, double *value)
{
    (void)bits;
    (void)sign;
    for (int k = 0; k < 8; k++) {
        int e = k / 2, m = k % 2;
        value[8 + k] = (e > 0 ? (1.0 + 0.5 * m) * (1 << (e - 1)) : 0.5 * m) / 6.0;
        value[7 - k] = -value[8 + k];
    }
    return 16;
}

/* lpmm float-point: e exponent bits and p fraction bits, bias B = 2^(e-1).  Field 0: f 2^-B; field
 * ev >= 1: (1 + f) 2^(B+1-ev), decreasing with ev; f = k / 2^p.  All values are divided by the
 * largest; signed tables keep both zeros, +0 first. */
static int float_down_by(int e, int bits, int sign, double *value)
{
    int p = bits - e - (sign ? 1 : 0), bias = 1 << (e - 1), n = 0;
    double magnitude[256];
    for (int ev = 0; ev < 1 << e; ev++)
        for (int k = 0; k < 1 << p; k++) {
            double f = (double)k / (1 << p), scale = 1.0;
            int exponent = ev == 0 ? -bias : bias + 1 - ev;
            for (int i = 0; i < exponent; i++)
                scale *= 2.0;
            for (int i = 0; i < -exponent; i++)
                scale /= 2.0;
            magnitude[n++] = (ev == 0 ? f : 1.0 + f) * scale;
        }
    sorted(magnitude, n);
    for (int k = 0; k < n; k++) {
        double v = magnitude[k] / magnitude[n - 1];
        value[sign ? n + k : k] = v;
        if (sign)
            value[n - 1 - k] = k > 0 ? -v : 0.0;
    }
    if (sign)
        value[n] = -0.0;
    return sign ? 2 * n : n;
}

/* OCP 8-bit float E4M3: (1 + m/8) 2^(e-7), m/8 2^-6 for e = 0; e = 15 with m = 7 is NaN. */
static int float8(int bits, int sign, double *value)
{
    int n = 0;
    (void)bits;
    (void)sign;
    for (int code = 0; code < 127; code++) {
        int e = code / 8;
        double v = (e > 0 ? 8 + code % 8 : code % 8) / 8.0;
        for (int i = 7; i > (e > 0 ? e : 1); i--)
            v /= 2.0;
        for (int i = 7; i < e; i++)
            v *= 2.0;
        value[n++] = v;
        if (code > 0)
            value[n++] = -v;
    }
    return sorted(value, n);
}

static int float_down(int bits, int sign, double *value)
{
    static const int exponent_bits[9] = {0, 0, 1, 2, 2, 3, 3, 4, 4};
    return float_down_by(exponent_bits[bits], bits, sign, value);
}

static int float_down_52(int bits, int sign, double *value)
{
    return float_down_by(5, bits, sign, value);
}

/* adafactor8bit: code q stands for the fraction q / 255 of the stored range, in log2 units
 * above 2^-126. */
static int log_units(int bits, int sign, double *value)
{
    (void)sign;
    return evenly_spaced(value, 1 << bits, 0.0, (1 << bits) - 1);
}

static const struct {
    const char *name;
    int from, to, is_unsigned, is_signed;
    int (*fill)(int bits, int sign, double *value);
} maps[] = {
    {"int", 2, 8, 0, 1, integer},           {"intm", 2, 8, 0, 1, integer_over_2b},
    {"lint", 2, 8, 1, 1, integer_linear},   {"nf4", 4, 4, 0, 1, normal_float},
    {"nf4a8", 4, 4, 0, 1, normal_float_a8}, {"nf4s", 4, 4, 0, 1, normal_float_symmetric},
    {"af4", 4, 4, 0, 1, abnormal_float},    {"fp4", 4, 4, 0, 1, float4},
    {"fp4s", 4, 4, 0, 1, float4_sorted},    {"dyn", 2, 8, 1, 1, dynamic},
    {"dyndef", 8, 8, 1, 0, dynamic_defect}, {"de", 2, 8, 1, 1, dynamic},
    {"de0", 2, 8, 1, 1, dynamic_nozero},    {"lin", 2, 8, 1, 1, linear},
    {"lin0", 2, 8, 1, 1, linear_with_zero}, {"linb", 2, 8, 0, 1, linear},
    {"pow2", 2, 8, 1, 1, square},           {"pow3", 2, 8, 1, 1, cube},
    {"fpx", 2, 8, 1, 1, float_down},        {"fp52", 8, 8, 0, 1, float_down_52},
    {"e4m3", 8, 8, 0, 1, float8},           {"log", 8, 8, 1, 0, log_units},
    {"logf", 8, 8, 1, 0, log_units},        {"intd", 2, 8, 0, 1, integer_symmetric},
    {"nvfp4", 4, 4, 0, 1, float4_e2m1},     {"lin2", 2, 8, 0, 1, square_with_zero},
};

int qm_oracle_codebook(const char *map, int bits, int sign, double *value)
{
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (strcmp(maps[i].name, map) == 0)
            return bits < maps[i].from || bits > maps[i].to ||
                           !(sign ? maps[i].is_signed : maps[i].is_unsigned)
                       ? 0
                       : maps[i].fill(bits, sign, value);
    return 0;
}

int qm_oracle_nearest(const double *value, int n, double x, int tie)
{
    int k = 0;
    while (k + 1 < n && x > 0.5 * (value[k] + value[k + 1]))
        k++;
    if (k + 1 == n || x != 0.5 * (value[k] + value[k + 1]))
        return k;
    switch (tie) {
    case -1: return k;
    case 0: return k + (k & 1);
    case 1: return k + 1;
    default: return x >= 0.0 ? k + 1 : k;
    }
}
