/* adafactor.c - Adafactor of the paper in double, with the options of its best known code.
 *
 *   s   = g^2 + eps1,  b = 1 - t^decay
 *   R  <- b R + (1 - b) mean over columns of s,  C <- b C + (1 - b) mean over rows of s
 *   V   = R C / mean(R);                 vectors: V <- b V + (1 - b) s
 *   U   = g / sqrt(V),  U <- U / max(1, RMS(U) / d)
 *   lr_t = rho_t max(eps2, RMS(theta));  rho_t = min(lr, 1 / sqrt(t)) where relative_step, else lr
 *   m  <- beta1 m + (1 - beta1) lr_t U   where beta1 is given, else m = lr_t U
 *   theta <- (1 - lambda lr_t) theta - m
 *
 * Slots: row means [batch x rows], column means [batch x cols], V of a vector, m. */
#include "oracle/oracle.h"

#include <stdlib.h>

#include "oracle/factor.h"

static double step_size(const double *theta, int64_t n, const struct qm_oracle_hyper *h, int64_t t)
{
    double rho = h->lr;
    if (h->relative_step)
        rho = fmin(h->warmup ? 1e-6 * (double)t : h->lr, 1.0 / sqrt((double)t));
    return h->scale_parameter ? rho * fmax(h->eps2, qm_rms_of(theta, n)) : rho;
}

static qm_status whole(double *theta, double *const *slot, const double *g,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_batch m = qm_batch_of(shape);
    int64_t n = m.numel;
    double beta = 1.0 - pow((double)t, h->beta2_decay);
    double *u = calloc((size_t)(n + 1), sizeof *u);
    (void)tensor;
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);

    double lr = step_size(theta, n, h, t);
    for (int64_t i = 0; i < n; i++)
        u[i] = g[i] * g[i] + h->eps1;
    if (shape->rank >= 2 && h->factored) {
        qm_factors_average(&m, u, beta, slot[0], slot[1]);
        for (int64_t i = 0; i < n; i++)
            u[i] = g[i];
        qm_factors_divide(&m, slot[0], slot[1], u);
    } else {
        for (int64_t i = 0; i < n; i++)
            slot[2][i] = beta * slot[2][i] + (1.0 - beta) * u[i];
        for (int64_t i = 0; i < n; i++)
            u[i] = g[i] / sqrt(slot[2][i]);
    }
    double clip = qm_rms_of(u, n) / h->clip;
    for (int64_t i = 0; i < n; i++)
        u[i] = u[i] / (clip < 1.0 ? 1.0 : clip) * lr;
    for (int64_t i = 0; i < n && h->beta1 != 0.0; i++)
        u[i] = slot[3][i] = h->beta1 * slot[3][i] + (1.0 - h->beta1) * u[i];
    for (int64_t i = 0; i < n; i++)
        theta[i] = (1.0 - h->weight_decay * lr) * theta[i] - u[i];
    free(u);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_adafactor;
const struct qm_oracle qm_oracle_adafactor = {
    .family = "adafactor",
    .source = "arXiv:1804.04235, algorithms 4 and 5; options as transformers optimization.py",
    .n_slots = 4,
    .slot = {"exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "exp_avg"},
    .whole = whole,
};
