/* lowrank.h - what APOLLO and Fira share: projections of a matrix, channel norms, the limiter.
 *
 * G is m x n.  A right projection P is r x n and gives R = G P^T (m x r); a left one is m x r and
 * gives R = P^T G (r x n).  Sums are in double in index order, rounded once (whole.h).
 *
 * Arrays lie where the rule runs (whole.h).  A new P is made on the host, every gap steps, and handed
 * over as data: at random from its number alone, or as singular vectors of G, which is fetched for that. */
#ifndef QM_RULE_LOWRANK_H
#define QM_RULE_LOWRANK_H

#include "core/rule/rule.h"
#include "core/rule/sweep.h"

struct qm_lowrank {
    int right;
    int64_t m, n, r;
    int64_t rows, cols; /* of R */
};

/* How h projects a tensor of this shape; cut: ranks beyond the smaller side are cut to it, as a
 * slice of singular vectors is.  0: not at all (no rank given, not two dims, or empty). */
int qm_lowrank_of(const struct qm_hyper *h, int cut, const struct qm_shape *param,
                  struct qm_lowrank *out);

/* Shapes of the states: R, P. */
struct qm_shape qm_lowrank_state(const struct qm_lowrank *l);
struct qm_shape qm_lowrank_proj(const struct qm_lowrank *l);

qm_status qm_lowrank_project(const struct qm_lowrank *l, const float *g, const float *p,
                             float *low);

/* alpha (X P) or alpha (P X), of the size of G. */
void qm_lowrank_back(const struct qm_lowrank *l, const float *x, const float *p, double alpha,
                     float *out);

/* Averages of squares: mul_(beta).addcmul_(x, x, value=1-beta), fused. */
void qm_lowrank_average_squares(float *old, const float *x, int64_t n, double beta);

/* out = x / (sqrt(sq) + eps), the square of avg taken off sq where avg is not NULL; out may be x. */
void qm_lowrank_adapt(const float *x, const float *sq, const float *avg, double eps, int64_t n,
                      float *out);

/* The channels of R are its rows (axis 1) or its columns (axis 0): a sweep of them, n, inner and steps; and
 * the sum of the squares of each. */
struct qm_sweep qm_lowrank_sweep(const struct qm_lowrank *l, int axis);
void qm_lowrank_squares(const struct qm_lowrank *l, int axis, const float *x, double *out);

/* out[i] = |norm_grad| / (|low| + 1e-8) of each channel, float32 numbers; out holds as many more. */
void qm_lowrank_ratios(const struct qm_lowrank *l, int axis, const float *norm_grad,
                       const float *low, double *out);

/* out = x, of the size of G, each row (axis 1) or column by its factor, or all by one; rounded once. */
void qm_lowrank_channels(const struct qm_lowrank *l, int axis, int is_one, double *factor,
                         const float *x, float *out);

/* The norm-growth limiter of arXiv:2410.01623: at t = 1 keeps |x| in prev[1]; later divides x by
 * max(|x| / (prev + 1e-8), 1 + margin) / (1 + margin) and keeps the norm that remains. */
void qm_limit_growth(float *x, int64_t n, double margin, int64_t t, float *prev);

/* ---- projection matrices ---- */

/* The seed of matrix k (from 0) of parameter number `index` (from 1): apollo_torch
 * random_projector.py, next_seed, as torch's generator on the CPU draws. */
uint64_t qm_lowrank_seed(uint64_t index, int64_t k);

/* n entries N(0, 1/r), row-major, in float32: torch.randn of a fresh CPU generator over sqrt(r).
 * Within 1e-6 of torch's, whose logarithm and cosine are approximations. */
void qm_lowrank_random(uint64_t seed, int64_t n, int64_t r, float *out);

/* The r leading right singular vectors as rows, or left ones as columns, of G; orthonormal also
 * where singular values are 0; of each vector the first entry of largest magnitude is positive. */
qm_status qm_lowrank_svd(const struct qm_lowrank *l, const float *g, float *out);

/* Renews P where step t asks for it: h->gap steps after the last, or while P is all zero; never
 * with h->gap 0. */
qm_status qm_lowrank_renew(const struct qm_hyper *h, int svd, const struct qm_lowrank *l,
                           const float *g, uint32_t tensor, int64_t t, float *p);

#endif
