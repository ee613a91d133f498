/* stoch.h - Counts the draws of stochastic rounding exactly, by enumeration or bisection. */
#ifndef QM_EXPERIMENTS_PROVE_STOCH_H
#define QM_EXPERIMENTS_PROVE_STOCH_H

#include <stdint.h>

/* How far a rounding of float32 to its upper 16 bits (bfloat16) is off: of the 65,536 draws,
 * exactly f must go up in magnitude for the 16-bit fraction f. */
struct qm_bf16_deviations {
    int64_t worst; /* largest deviation, in draws; negative: too few go up */
    uint32_t at;   /* the first fraction with this deviation */
    int64_t sum;   /* of the deviations over all fractions; 2^32 are a bias of one ulp */
    int64_t evaluations;
};

/* ups(of, base, fraction): number of draws that round the float with bits base << 16 |
 * fraction up. */
void qm_bf16_deviations_count(int64_t (*ups)(const void *of, uint32_t base, uint32_t fraction),
                              const void *of, uint32_t base, struct qm_bf16_deviations *out);

/* A rounding with draws of 32 bits.  value(of, x, draw) is monotone in draw, so bisection finds the
 * exact number of draws of each value. */
struct qm_rounder {
    double (*value)(const void *of, float x, uint32_t draw);
    const void *of;
};

struct qm_expectation {
    double low, high; /* smallest and largest value of any draw */
    uint64_t ups;     /* draws, of 2^32, that give the largest value */
    double mean;      /* over all draws, rounded once or twice in long double */
    int is_monotone;  /* 0: a probe of 64 draws was not monotone */
};

void qm_expect(const struct qm_rounder *r, float x, struct qm_expectation *out);

#endif
