/* bound_tensor.h - pairs (x, e) of whole tensors: sums, means, norms, row and column factors.
 *
 * The rules take their sums in double, in the order of the indices, and round once; so quantities
 * here come unrounded, with the error of n additions in double, and qm_ball_float32 rounds them.  Where
 * the judged side may sum in a float32 tree instead, the depth of that tree counts, and what follows
 * a sum is taken to be float32 as well (qm_ball_round_double). */
#ifndef QM_BOUND_BOUND_TENSOR_H
#define QM_BOUND_BOUND_TENSOR_H

#include "oracle/bound/bound.h"
#include "oracle/rule/factored_sums.h"

/* A double result that becomes a float32. */
static inline struct qm_ball qm_ball_float32(struct qm_ball a)
{
    if (a.e == 0.0 && qm_is_float(a.x))
        return a;
    return qm_ball_rounded(a.x, a.e, QM_ETA);
}

/* An operation in double, or in float32 where sums may be. */
static inline struct qm_ball qm_ball_round_double(const struct qm_bound_step *b, struct qm_ball a)
{
    if (b->reorder.tree > 0)
        return qm_ball_rounded(a.x, a.e, QM_ETA);
    if (isnan(a.e)) /* Inf 0 */
        a.e = HUGE_VAL;
    a.e += 0x1p-52 * (fabs(a.x) + a.e);
    return a;
}

/* Operations in double. */
struct qm_ball qm_ball_mul_double(const struct qm_bound_step *b, struct qm_ball x,
                                  struct qm_ball y);
struct qm_ball qm_ball_div_double(const struct qm_bound_step *b, struct qm_ball x,
                                  struct qm_ball y);
struct qm_ball qm_ball_sqrt_double(const struct qm_bound_step *b, struct qm_ball x);

/* The larger, as fmax has it: NaN loses.  A threshold within the error moves the result by no more
 * than the error. */
struct qm_ball qm_ball_max(struct qm_ball a, struct qm_ball b);

/* Sum, mean, and root of the sum of squares of n pairs from x on, step apart. */
struct qm_ball qm_ball_sum(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n,
                           int64_t step);
struct qm_ball qm_ball_mean(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n,
                            int64_t step);
struct qm_ball qm_ball_norm(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n,
                            int64_t step);

/* The norm of n numbers by float32 sums in eight lanes with an fma each, added at the end. */
struct qm_ball qm_ball_norm_in_lanes(const struct qm_bound_step *b, const struct qm_ball *x,
                                     int64_t n);

/* Pairs of n exact numbers, from the heap, and n empty ones; NULL: no memory. */
struct qm_ball *qm_balls_of(const double *x, int64_t n);
struct qm_ball *qm_balls(int64_t n);

/* Slot k, n elements, as the step finds it. */
static inline struct qm_ball qm_bound_old(const struct qm_bound_step *b, int k, int64_t i)
{
    return qm_ball_exact(b->slot[k][i]);
}

/* Notes a new state's error around the oracle's value. */
static inline struct qm_ball qm_bound_set(const struct qm_bound_step *b, int k, int64_t i,
                                          struct qm_ball v)
{
    b->e_slot[k][i] = v.e;
    return (struct qm_ball){b->want[k][i], v.e};
}

/* What the parameter's part of the step finds: the stored value where it reads that back. */
static inline struct qm_ball qm_bound_stored(const struct qm_bound_step *b, int k, int64_t i,
                                             struct qm_ball v)
{
    return b->stored && b->stored[k] ? qm_ball_exact(b->stored[k][i]) : v;
}

static inline struct qm_ball qm_bound_new(const struct qm_bound_step *b, int k, int64_t i,
                                          struct qm_ball v)
{
    return qm_bound_stored(b, k, i, qm_bound_set(b, k, i, v));
}

/* Whether any slot is read back: then p_want is not the oracle's. */
int qm_bound_reads_back(const struct qm_bound_step *b);

/* The new parameter. */
static inline void qm_bound_new_param(const struct qm_bound_step *b, int64_t i, struct qm_ball p)
{
    b->e_p[i] = p.e;
    if (qm_bound_reads_back(b))
        b->p_want[i] = p.x;
}

/* ---- factored second moments ------------------------------------------------------------------- */

/* Means of x over columns and over rows of every matrix, rounded to float32. */
void qm_ball_row_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_ball *x, struct qm_ball *row);
void qm_ball_col_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_ball *x, struct qm_ball *col);

/* Slot k <- average of old and x[n]; the pairs of the new states replace x. */
void qm_ball_average_slot(const struct qm_bound_step *b, int k, const struct qm_beta *w, int64_t n,
                          struct qm_ball *x);

/* out = 1 / sqrt(r / mean(r)) times 1 / sqrt(c), each step in float32. */
void qm_ball_factors_rsqrt(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                           const struct qm_ball *row, const struct qm_ball *col,
                           struct qm_ball *out);

/* x / max(1, rms(x) / clip). */
void qm_ball_clip(const struct qm_bound_step *b, struct qm_ball *x, int64_t n, double clip);

/* rms(x) in float32. */
struct qm_ball qm_ball_rms(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n);

#endif
