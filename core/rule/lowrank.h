/* lowrank.h - What APOLLO and Fira share: projections of a matrix, channel norms, the limiter.
 *
 * G is m x n.  A right projection P is r x n and gives R = G P^T (m x r); a left one is m x r and
 * gives R = P^T G (r x n).  Sums are in double in index order, rounded once (tensor_rule.h).
 *
 * Arrays lie where the rule runs (tensor_rule.h).  A new P is made on the host, every `gap` steps,
 * and copied there: at random from its number alone, or as singular vectors of G, which is copied
 * to the host for this. */
#ifndef QM_RULE_LOWRANK_H
#define QM_RULE_LOWRANK_H

#include "core/rule/rule.h"
#include "core/rule/sweep.h"

struct qm_lowrank {
    int right;
    int64_t m, n, r;
    int64_t rows, cols; /* of R */
};

/* How h projects a tensor of this shape.  cut: a rank above the smaller side is cut to it, as a
 * slice of singular vectors is.  Returns 0 if h does not project it: no rank is given, it has not
 * two dims, or it is empty. */
int qm_lowrank_of(const struct qm_hyper *h, int cut, const struct qm_shape *param,
                  struct qm_lowrank *out);

/* The shapes of R and of P. */
struct qm_shape qm_lowrank_state(const struct qm_lowrank *l);
struct qm_shape qm_lowrank_proj(const struct qm_lowrank *l);

qm_status qm_lowrank_project(const struct qm_lowrank *l, const float *g, const float *p,
                             float *low);

/* out = alpha (X P) or alpha (P X), of the size of G. */
void qm_lowrank_back(const struct qm_lowrank *l, const float *x, const float *p, double alpha,
                     float *out);

/* old[n].mul_(beta).addcmul_(x, x, value=1-beta) of torch, fused: averages of squares. */
void qm_lowrank_average_squares(float *old, const float *x, int64_t n, double beta);

/* out = x / (sqrt(sq) + eps); where avg is not NULL, avg^2 is subtracted from sq.  out may be x. */
void qm_lowrank_adapt(const float *x, const float *sq, const float *avg, double eps, int64_t n,
                      float *out);

/* The channels of R are its rows (axis 1) or its columns (axis 0).  qm_lowrank_sweep returns the
 * arguments n, inner, cols, step_a and step_k of an operation on all channels; qm_lowrank_squares
 * sets out[i] to the sum of the squares of channel i. */
struct qm_sweep qm_lowrank_sweep(const struct qm_lowrank *l, int axis);
void qm_lowrank_squares(const struct qm_lowrank *l, int axis, const float *x, double *out);

/* out[i] = |norm_grad| / (|low| + 1e-8) of channel i, rounded to float32: the norm of the adapted
 * update of the projected gradient over that of the projected gradient.  out has room for twice
 * as many. */
void qm_lowrank_ratios(const struct qm_lowrank *l, int axis, const float *norm_grad,
                       const float *low, double *out);

/* out = x, of the size of G, times the factor of its row (axis 1) or column (axis 0), or one factor
 * for all (is_one); rounded once. */
void qm_lowrank_channels(const struct qm_lowrank *l, int axis, int is_one, double *factor,
                         const float *x, float *out);

/* The norm-growth limiter of arXiv:2410.01623.  At t = 1 it stores |x| in *prev; later it divides
 * x by max(|x| / (prev + 1e-8), 1 + margin) / (1 + margin) and stores the norm that remains. */
void qm_limit_growth(float *x, int64_t n, double margin, int64_t t, float *prev);

/* ---- projection matrices ---- */

/* The seed of matrix k (from 0) of parameter number `index` (from 1): apollo_torch
 * random_projector.py, next_seed, as the generator of torch on the CPU draws. */
uint64_t qm_lowrank_seed(uint64_t index, int64_t k);

/* n entries N(0, 1/r), row-major, in float32: torch.randn of a fresh CPU generator over sqrt(r).
 * Within 1e-6 of torch, whose logarithm and cosine are approximations. */
void qm_lowrank_random(uint64_t seed, int64_t n, int64_t r, float *out);

/* The r leading right singular vectors of G as rows, or left ones as columns.  They are
 * orthonormal also where singular values are 0; in each vector the first entry of largest
 * magnitude is positive. */
qm_status qm_lowrank_svd(const struct qm_lowrank *l, const float *g, float *out);

/* Makes a new P at steps 1, 1 + gap, 1 + 2 gap, ..., and while P is all zero; never if h->gap
 * is 0. */
qm_status qm_lowrank_renew(const struct qm_hyper *h, int svd, const struct qm_lowrank *l,
                           const float *g, uint32_t tensor, int64_t t, float *p);

#endif
