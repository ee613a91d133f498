/* stoch.h - stochastic rounding: exact where draws can be enumerated, sequential where not. */
#ifndef QM_EXPERIMENTS_PROVE_STOCH_H
#define QM_EXPERIMENTS_PROVE_STOCH_H

#include <stdint.h>

/* Rounding float32 to its upper 16 bits: how many of the 65,536 draws go up in magnitude for each 16-bit
 * fraction; exact is as many as the fraction. */
struct qm_sr16 {
    int64_t worst; /* draws too many (or, negative, too few) where that is largest */
    uint32_t at;   /* the first such fraction */
    int64_t sum;   /* of the deviations over all fractions: 2^32 of them are a bias of one ulp */
    int64_t evaluations;
};

/* ups(of, base, fraction) counts for the float of bits base << 16 | fraction. */
void qm_sr16_enumerate(int64_t (*ups)(const void *of, uint32_t base, uint32_t fraction),
                       const void *of, uint32_t base, struct qm_sr16 *out);

/* Draws of 32 bits: value(of, x, draw) is monotone in draw, so that the number of draws for each value
 * is found by bisection, exactly. */
struct qm_rounder {
    double (*value)(const void *of, float x, uint32_t draw);
    const void *of;
};

struct qm_expectation {
    double low, high; /* smallest and largest value that any draw gives */
    uint64_t ups;     /* draws of 2^32 that give the largest */
    double mean;      /* over all draws, rounded once or twice in long double */
    int is_monotone;  /* 0: a probe of 64 draws found it is not */
};

void qm_expect(const struct qm_rounder *r, float x, struct qm_expectation *out);

#endif
