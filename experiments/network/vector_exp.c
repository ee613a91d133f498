/* vector_exp.c - The vector exponential of dense.h; compiled once per instruction set (QM_ISA). */
#include "experiments/network/dense.h"

#include <string.h>

enum { LANES = 8 };
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t longs __attribute__((vector_size(LANES * sizeof(int64_t))));

/* 1 / k! from k = 13 down; the next term is below 4.2e-18 of the sum for |r| <= ln 2 / 2. */
static const double term[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                              1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
                              1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
                              1.0 / 24.0,         1.0 / 6.0,         0.5};
enum { TERMS = sizeof term / sizeof *term };

#define LOG2E  0x1.71547652b82fep+0
#define LN2_HI 0x1.62e42fefa0000p-1 /* 37 bits: times a whole number below 2^16 it is exact */
#define LN2_LO 0x1.cf79abc9e3b3ap-40
#define WHOLE  0x1.8p52 /* plus x: the nearest whole number in the low bits */

/* exp(x) = 2^k exp(r), r = x - k ln 2. */
static inline void exp_8(const double *x, double *y)
{
    lanes v, low = {0}, high, shifted, k, r, sum = {0};
    longs power;
    memcpy(&v, x, sizeof v);
    low -= 708.0;
    high = low + 1417.0;
    v = (lanes)(((longs)low & (v < low)) | ((longs)v & ~(v < low))); /* NaN stays */
    v = (lanes)(((longs)high & (v > high)) | ((longs)v & ~(v > high)));
    shifted = v * LOG2E + WHOLE;
    k = shifted - WHOLE;
    r = (v - k * LN2_HI) - k * LN2_LO;
    sum += term[0];
    for (int i = 1; i < TERMS; i++)
        sum = sum * r + term[i];
    sum = (sum * r) * r + r + 1.0;
    power = ((longs)shifted + 1023) << 52;
    sum *= (lanes)power;
    memcpy(y, &sum, sizeof sum);
}

static void vector_exp(const double *x, int64_t n, double *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        exp_8(x + i, y + i);
    if (i < n) {
        double some[LANES] = {0};
        memcpy(some, x + i, (size_t)(n - i) * sizeof *x);
        exp_8(some, some);
        memcpy(y + i, some, (size_t)(n - i) * sizeof *y);
    }
}

qm_vector_exp_fn *const QM_ISA_NAME(qm_vector_exp) = vector_exp;
