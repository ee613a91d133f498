/* came.c - CAME in double.
 *
 *   s  = g^2 + eps1
 *   r <- beta2 r + (1 - beta2) mean over columns of s,  c likewise over rows
 *   u  = g / sqrt(r c / mean(r));           vectors: v <- beta2 v + (1 - beta2) s, u = g / sqrt(v)
 *   u <- u / max(1, RMS(u) / d)
 *   m <- beta1 m + (1 - beta1) u
 *   q  = (u - m)^2 + eps2
 *   R <- beta3 R + (1 - beta3) mean over columns of q,  C likewise over rows
 *   theta <- (1 - lambda lr) theta - lr m / sqrt(R C / mean(R));     vectors: - lr m
 *
 * Nothing is corrected for its start at 0.  Slots: m, r, c, v, R, C. */
#include "oracle/oracle.h"

#include <stdlib.h>

#include "oracle/factor.h"

static qm_status whole(double *theta, double *const *slot, const double *g,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_batch b = qm_batch_of(shape);
    int64_t n = b.numel;
    double *m = slot[0], *r = slot[1], *c = slot[2], *v = slot[3], *big_r = slot[4],
           *big_c = slot[5];
    double *u = calloc((size_t)(n + 1), sizeof *u);
    (void)tensor;
    (void)t;
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);

    for (int64_t i = 0; i < n; i++)
        u[i] = g[i] * g[i] + h->eps1;
    if (shape->rank >= 2) {
        qm_factors_average(&b, u, h->beta2, r, c);
        for (int64_t i = 0; i < n; i++)
            u[i] = g[i];
        qm_factors_divide(&b, r, c, u);
    } else {
        for (int64_t i = 0; i < n; i++) {
            v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * u[i];
            u[i] = g[i] / sqrt(v[i]);
        }
    }
    double clip = qm_rms_of(u, n) / h->clip;
    for (int64_t i = 0; i < n; i++)
        u[i] = u[i] / (clip < 1.0 ? 1.0 : clip);
    for (int64_t i = 0; i < n; i++)
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * u[i];
    for (int64_t i = 0; i < n; i++)
        u[i] = (u[i] - m[i]) * (u[i] - m[i]) + h->eps2;
    if (shape->rank >= 2)
        qm_factors_average(&b, u, h->beta3, big_r, big_c);
    for (int64_t i = 0; i < n; i++)
        u[i] = m[i];
    if (shape->rank >= 2)
        qm_factors_divide(&b, big_r, big_c, u);
    for (int64_t i = 0; i < n; i++)
        theta[i] = (1.0 - h->weight_decay * h->lr) * theta[i] - h->lr * u[i];
    free(u);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_came;
const struct qm_oracle qm_oracle_came = {
    .family = "came",
    .source = "arXiv:2307.02047, algorithm 2; without bias correction as CAME.py",
    .n_slots = 6,
    .slot = {"exp_avg", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "exp_avg_res_row",
             "exp_avg_res_col"},
    .whole = whole,
};
