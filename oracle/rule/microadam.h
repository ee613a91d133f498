/* microadam.h - What the oracle of MicroAdam and its error bound share: blocks and roundings. */
#ifndef QM_ORACLE_MICROADAM_H
#define QM_ORACLE_MICROADAM_H

#include "oracle/bound/bound_tensor.h"

enum { QM_MICROADAM_ERROR, QM_MICROADAM_INDEX, QM_MICROADAM_VALUE }; /* slots */

/* Block number b of a tensor of n elements: its first element and size, its first place in a row of
 * the window and how many elements a row takes of it.  size 0: there is no such block. */
struct qm_microadam_block {
    int64_t from, size, at, k;
};
struct qm_microadam_block qm_microadam_block(const struct qm_oracle_hyper *h, int64_t n, int64_t b);

/* Elements that a row takes of a tensor of n elements. */
int64_t qm_microadam_row(const struct qm_oracle_hyper *h, int64_t n);

extern const struct qm_float_format qm_microadam_bf16;

/* x rounded to float32 and then to bfloat16, as float32 arithmetic stores it. */
static inline double qm_microadam_round(double x)
{
    return qm_float_format_round(&qm_microadam_bf16, qm_round_float32(x));
}

/* pick[k] <- in ascending order the indices of the k largest magnitudes of x[n]; of equal ones the
 * lower index; NaN is the largest. */
qm_status qm_microadam_largest(const double *x, int64_t n, int64_t k, int64_t *pick);

/* The bound of a step (bound_microadam.c). */
qm_status qm_microadam_bound(const struct qm_bound_step *b);

#endif
