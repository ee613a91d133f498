/* adafactor_torch.c - Adafactor as PyTorch's documentation defines it, in double.
 *
 *   w = t^tau,  rho = min(lr, 1 / sqrt(t)),  alpha = max(eps2, RMS(theta)) rho
 *   theta <- (1 - lr lambda) theta
 *   R <- R + w (mean over columns of g^2 - R),  C <- C + w (mean over rows of g^2 - C)
 *   V = R C / max(mean(R), eps1);        vectors: V <- V + w (g^2 - V)
 *   U = g / sqrt(max(V, eps1^2))
 *   theta <- theta - alpha / max(1, RMS(U) / d) U
 *
 * Slots: R [batch x rows], C [batch x cols], V of a vector.  maximize negates g. */
#include "oracle/oracle.h"

#include <stdlib.h>

#include "oracle/factor.h"

/* V of every element, before it is clamped. */
static void estimate(const struct qm_batch *m, const double *r, const double *c, double eps1,
                     double *v)
{
    for (int64_t b = 0; b < m->batch; b++) {
        double mean = fmax(qm_mean_of(r + b * m->rows, m->rows, 1), eps1);
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++)
                v[(b * m->rows + i) * m->cols + j] = r[b * m->rows + i] * c[b * m->cols + j] / mean;
    }
}

static qm_status whole(double *theta, double *const *slot, const double *grad,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_batch m = qm_batch_of(shape);
    int64_t n = m.numel;
    double w = pow((double)t, h->beta2_decay), sign = h->maximize ? -1.0 : 1.0;
    double *u = calloc((size_t)(n + 1), sizeof *u);
    (void)tensor;
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);

    double alpha = fmax(h->eps2, qm_rms_of(theta, n)) * fmin(h->lr, 1.0 / sqrt((double)t));
    for (int64_t i = 0; i < n; i++)
        theta[i] = (1.0 - h->lr * h->weight_decay) * theta[i];
    for (int64_t i = 0; i < n; i++)
        u[i] = grad[i] * grad[i];
    if (shape->rank >= 2 && h->factored) {
        qm_factors_average(&m, u, 1.0 - w, slot[0], slot[1]);
        estimate(&m, slot[0], slot[1], h->eps1, u);
    } else {
        for (int64_t i = 0; i < n; i++)
            u[i] = slot[2][i] = slot[2][i] + w * (u[i] - slot[2][i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double v = u[i] < h->eps1 * h->eps1 ? h->eps1 * h->eps1 : u[i];
        u[i] = sign * grad[i] / sqrt(v);
    }
    double clip = qm_rms_of(u, n) / h->clip;
    for (int64_t i = 0; i < n; i++)
        theta[i] = theta[i] - alpha / (clip > 1.0 ? clip : 1.0) * u[i];
    free(u);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_adafactor_torch;
const struct qm_oracle qm_oracle_adafactor_torch = {
    .family = "adafactor_torch",
    .source = "torch/optim/_adafactor.py, the algorithm of its documentation",
    .n_slots = 3,
    .slot = {"row_var", "col_var", "variance"},
    .whole = whole,
};
