/* bound_tensor.h - Error bounds over whole tensors: sums, means, norms, row and column factors.
 *
 * The rules sum in double, in the order of the indices, and round once.  So the functions below
 * return unrounded balls with the error of n additions in double, and qm_ball_float32 rounds them.
 * Where the judged side may sum in a float32 tree instead (reorder.tree), the depth of the tree
 * enters, and the operations that follow a sum count as float32, too (qm_ball_round_double). */
#ifndef QM_BOUND_BOUND_TENSOR_H
#define QM_BOUND_BOUND_TENSOR_H

#include "oracle/bound/bound.h"
#include "oracle/bound/factored_sums.h"

/* A result in double that is rounded to float32. */
static inline struct qm_ball qm_ball_float32(struct qm_ball a)
{
    if (a.e == 0.0 && qm_is_float(a.x))
        return a;
    return qm_ball_rounded(a.x, a.e, QM_ETA);
}

/* The rounding of an operation in double; of one in float32 where sums may be float32. */
static inline struct qm_ball qm_ball_round_double(const struct qm_bound_step *b, struct qm_ball a)
{
    if (b->reorder.tree)
        return qm_ball_rounded(a.x, a.e, QM_ETA);
    if (isnan(a.e)) /* 0 times Inf */
        a.e = HUGE_VAL;
    a.e += 0x1p-52 * (fabs(a.x) + a.e);
    return a;
}

/* Product, quotient and root as operations in double; in float32 where sums may be. */
struct qm_ball qm_ball_mul_double(const struct qm_bound_step *b, struct qm_ball x,
                                  struct qm_ball y);
struct qm_ball qm_ball_div_double(const struct qm_bound_step *b, struct qm_ball x,
                                  struct qm_ball y);
struct qm_ball qm_ball_sqrt_double(const struct qm_bound_step *b, struct qm_ball x);

/* The larger of two balls; as in fmax, a number wins over NaN.  Where the order of a and b is not
 * certain, the radius covers both: the larger x, and the distance of the other ball's upper end. */
struct qm_ball qm_ball_max(struct qm_ball a, struct qm_ball b);

/* The same where NaN stays NaN, as in torch.clamp. */
struct qm_ball qm_ball_at_least(struct qm_ball x, struct qm_ball least);

/* Mean, and root of the sum of squares, of n balls from x on, `step` apart. */
struct qm_ball qm_ball_mean(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n,
                            int64_t step);
struct qm_ball qm_ball_norm(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n,
                            int64_t step);

/* The ball of a sum of n products with sum |products| = size, where the judged side may round each
 * product and each partial sum to float32. */
struct qm_ball qm_ball_of_products(const struct qm_bound_step *b, struct qm_ball sum, double size,
                                   int64_t n);

/* The norm of n numbers by float32 sums in eight lanes (element i in lane i mod 8, one fma each),
 * added at the end. */
struct qm_ball qm_ball_norm_in_lanes(const struct qm_bound_step *b, const struct qm_ball *x,
                                     int64_t n);

/* n balls of exact numbers, and n balls (0, 0), from the heap; the caller frees them.  NULL: no
 * memory. */
struct qm_ball *qm_balls_of(const double *x, int64_t n);
struct qm_ball *qm_balls(int64_t n);

/* Element i of slot k before the step, as the step reads it. */
static inline struct qm_ball qm_bound_old(const struct qm_bound_step *b, int k, int64_t i)
{
    return (struct qm_ball){b->slot[k][i], b->e_old ? b->e_old[k][i] : 0.0};
}

/* Whether an element of the gradient, of the parameter (n each) or of one of the first `slots` old
 * states is not finite; *has_nan: whether one is NaN. */
static inline int qm_bound_is_not_finite(const struct qm_bound_step *b, int64_t n, int slots,
                                         int *has_nan)
{
    int is = 0;
    *has_nan = 0;
    for (int64_t i = 0; i < n; i++) {
        is |= !isfinite(b->g[i]) || !isfinite(b->p[i]);
        *has_nan |= isnan(b->g[i]) || isnan(b->p[i]);
    }
    for (int k = 0; k < slots; k++)
        for (int64_t i = 0; i < b->slot_n[k]; i++) {
            is |= !isfinite(b->slot[k][i]);
            *has_nan |= isnan(b->slot[k][i]);
        }
    return is;
}

/* Records the radius of a new state v and returns the ball of that radius around the oracle's
 * value. */
static inline struct qm_ball qm_bound_set(const struct qm_bound_step *b, int k, int64_t i,
                                          struct qm_ball v)
{
    b->e_slot[k][i] = v.e;
    b->want[k][i] = qm_bound_wanted(b->want[k][i], v.e);
    return (struct qm_ball){b->want[k][i], v.e};
}

/* The state that the update of the parameter uses: the stored value where the step reads it back,
 * else v. */
static inline struct qm_ball qm_bound_stored(const struct qm_bound_step *b, int k, int64_t i,
                                             struct qm_ball v)
{
    if (!b->stored || !b->stored[k])
        return v;
    return (struct qm_ball){b->stored[k][i], b->e_stored ? b->e_stored[k][i] : 0.0};
}

/* Records a new state and returns what the update of the parameter uses. */
static inline struct qm_ball qm_bound_new(const struct qm_bound_step *b, int k, int64_t i,
                                          struct qm_ball v)
{
    return qm_bound_stored(b, k, i, qm_bound_set(b, k, i, v));
}

/* Whether any stored slot is read back: then the wanted parameter follows from the stored slots,
 * not from the oracle. */
int qm_bound_reads_back(const struct qm_bound_step *b);

/* Records the bound of the new parameter; its wanted value, too, where stored slots are read
 * back. */
static inline void qm_bound_new_param(const struct qm_bound_step *b, int64_t i, struct qm_ball p)
{
    b->e_p[i] = p.e;
    if (qm_bound_reads_back(b))
        b->p_want[i] = p.x;
}

/* ---- factored second moments ----------------------------------------------------------------- */

/* Means of x over columns and over rows of every matrix, rounded to float32. */
void qm_ball_row_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_ball *x, struct qm_ball *row);
void qm_ball_col_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_ball *x, struct qm_ball *col);

/* Slot k <- average of the old slot and x[n]; the balls of the new states replace x. */
void qm_ball_average_slot(const struct qm_bound_step *b, int k, const struct qm_beta *w, int64_t n,
                          struct qm_ball *x);

/* out_ij = 1 / sqrt(r_i / mean(r)) times 1 / sqrt(c_j) in every matrix, each operation in
 * float32. */
void qm_ball_factors_rsqrt(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                           const struct qm_ball *row, const struct qm_ball *col,
                           struct qm_ball *out);

/* x <- x / max(1, rms(x) / clip). */
void qm_ball_clip(const struct qm_bound_step *b, struct qm_ball *x, int64_t n, double clip);

/* rms(x) in float32. */
struct qm_ball qm_ball_rms(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n);

/* For a source that adds up in float32.  Each of the n means is of a sum of `of` numbers; where
 * that sum may overflow, nothing is known of the mean.  The mean's error covers the rounding of the
 * sum, and 2^-20 the three roundings from the mean back to the sum. */
static inline void qm_ball_sums_overflow(struct qm_ball *mean, int64_t n, int64_t of)
{
    for (int64_t i = 0; i < n; i++)
        if (!((fabs(mean[i].x) + mean[i].e) * (double)of * (1.0 - 0x1p-20) <= (double)FLT_MAX))
            mean[i].e = HUGE_VAL;
}

#endif
