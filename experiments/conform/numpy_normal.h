/* numpy_normal.h - Computes numpy's default_rng(seed).standard_normal.
 *
 * Some recorded cases give the seed of their gradients instead of the gradients. */
#ifndef QM_CONFORM_NUMPY_NORMAL_H
#define QM_CONFORM_NUMPY_NORMAL_H

#include <stdint.h>

/* PCG64 (XSL-RR) seeded by SeedSequence, with the ziggurat's tables. */
struct qm_numpy {
    uint64_t state[2], inc[2]; /* high word first */
    double wide[256], height[256];
    uint64_t limit[256];
};

void qm_numpy_seed(struct qm_numpy *r, uint32_t seed);

/* Consecutive draws are the elements of standard_normal(shape) in C order.  The tables are computed
 * here but printed constants in numpy: about one draw in 2^50 may differ. */
double qm_numpy_normal(struct qm_numpy *r);

#endif
