/* bound_tensor.h - pairs (x, e) of whole tensors: sums, means, norms, row and column factors.
 *
 * The rules take their sums in double, in the order of the indices, and round once; so quantities
 * here come unrounded, with the error of n additions in double, and qm_pair_float rounds them.  Where
 * the judged side may sum in a float32 tree instead, the depth of that tree counts, and what follows
 * a sum is taken to be float32 as well (qm_pair_loose). */
#ifndef QM_BOUND_BOUND_TENSOR_H
#define QM_BOUND_BOUND_TENSOR_H

#include "oracle/bound/bound.h"
#include "oracle/rule/factored_sums.h"

/* A double result that becomes a float32. */
static inline struct qm_pair qm_pair_float(struct qm_pair a)
{
    if (a.e == 0.0 && qm_is_float(a.x))
        return a;
    return qm_pair_rounded(a.x, a.e, QM_ETA);
}

/* An operation in double, or in float32 where sums may be. */
static inline struct qm_pair qm_pair_loose(const struct qm_bound_step *b, struct qm_pair a)
{
    if (b->reorder.tree > 0)
        return qm_pair_rounded(a.x, a.e, QM_ETA);
    if (isnan(a.e)) /* Inf 0 */
        a.e = HUGE_VAL;
    a.e += 0x1p-52 * (fabs(a.x) + a.e);
    return a;
}

/* Operations in double. */
struct qm_pair qm_pair_wide_mul(const struct qm_bound_step *b, struct qm_pair x, struct qm_pair y);
struct qm_pair qm_pair_wide_over(const struct qm_bound_step *b, struct qm_pair x, struct qm_pair y);
struct qm_pair qm_pair_wide_root(const struct qm_bound_step *b, struct qm_pair x);

/* The larger, as fmax has it: NaN loses.  A threshold within the error moves the result by no more
 * than the error. */
struct qm_pair qm_pair_max(struct qm_pair a, struct qm_pair b);

/* Sum, mean, and root of the sum of squares of n pairs from x on, step apart. */
struct qm_pair qm_pair_sum(const struct qm_bound_step *b, const struct qm_pair *x, int64_t n,
                           int64_t step);
struct qm_pair qm_pair_mean(const struct qm_bound_step *b, const struct qm_pair *x, int64_t n,
                            int64_t step);
struct qm_pair qm_pair_norm(const struct qm_bound_step *b, const struct qm_pair *x, int64_t n,
                            int64_t step);

/* The norm of n numbers by float32 sums in eight lanes with an fma each, added at the end. */
struct qm_pair qm_pair_norm_in_lanes(const struct qm_bound_step *b, const struct qm_pair *x,
                                     int64_t n);

/* Pairs of n exact numbers, from the heap, and n empty ones; NULL: no memory. */
struct qm_pair *qm_pairs_of(const double *x, int64_t n);
struct qm_pair *qm_pairs(int64_t n);

/* Slot k, n elements, as the step finds it. */
static inline struct qm_pair qm_old(const struct qm_bound_step *b, int k, int64_t i)
{
    return qm_pair_exact(b->slot[k][i]);
}

/* Notes a new state's error around the oracle's value. */
static inline struct qm_pair qm_fresh(const struct qm_bound_step *b, int k, int64_t i,
                                      struct qm_pair v)
{
    b->e_slot[k][i] = v.e;
    return (struct qm_pair){b->want[k][i], v.e};
}

/* What the parameter's part of the step finds: the stored value where it reads that back. */
static inline struct qm_pair qm_found(const struct qm_bound_step *b, int k, int64_t i,
                                      struct qm_pair v)
{
    return b->stored && b->stored[k] ? qm_pair_exact(b->stored[k][i]) : v;
}

static inline struct qm_pair qm_new(const struct qm_bound_step *b, int k, int64_t i,
                                    struct qm_pair v)
{
    return qm_found(b, k, i, qm_fresh(b, k, i, v));
}

/* Whether any slot is read back: then p_want is not the oracle's. */
int qm_bound_reads_back(const struct qm_bound_step *b);

/* The new parameter. */
static inline void qm_new_param(const struct qm_bound_step *b, int64_t i, struct qm_pair p)
{
    b->e_p[i] = p.e;
    if (qm_bound_reads_back(b))
        b->p_want[i] = p.x;
}

/* ---- factored second moments ------------------------------------------------------------------- */

/* Means of x over columns and over rows of every matrix, rounded to float32. */
void qm_pair_row_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_pair *x, struct qm_pair *row);
void qm_pair_col_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_pair *x, struct qm_pair *col);

/* Slot k <- average of old and x[n]; the pairs of the new states replace x. */
void qm_pair_average_slot(const struct qm_bound_step *b, int k, const struct qm_beta *w, int64_t n,
                          struct qm_pair *x);

/* out = 1 / sqrt(r / mean(r)) times 1 / sqrt(c), each step in float32. */
void qm_pair_factors_rsqrt(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                           const struct qm_pair *row, const struct qm_pair *col,
                           struct qm_pair *out);

/* x / max(1, rms(x) / clip). */
void qm_pair_clip(const struct qm_bound_step *b, struct qm_pair *x, int64_t n, double clip);

/* rms(x) in float32. */
struct qm_pair qm_pair_rms(const struct qm_bound_step *b, const struct qm_pair *x, int64_t n);

#endif
