/* adabelief.c - AdaBelief in double with decoupled weight decay, and its error bound.
 *
 *   theta <- (1 - lr lambda) theta
 *   m     <- beta1 m + (1 - beta1) g
 *   v     <- beta2 v + (1 - beta2) (g - m)^2
 *   theta <- theta - lr mhat / (sqrt(vhat) + eps)
 *
 * with the new m in the second average, mhat = m / (1 - beta1^t) and vhat = v / (1 - beta2^t).  The
 * paper's epsilon inside the second average is left out.  maximize negates g.
 *
 * Bound: the error of g - m is that of the new m, and one rounding; the average of its square and
 * the step have the errors of AdamW's (bound_adam.c) with g - m for g. */
#include "oracle/bound/bound.h"

#include <math.h>
#include <stddef.h>

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    double *m = slot[0], *v = slot[1], sign = h->maximize ? -1.0 : 1.0;
    for (int64_t i = 0; i < rows * cols; i++) {
        double g = sign * grad[i];
        theta[i] = (1.0 - h->lr * h->weight_decay) * theta[i];
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * g;
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * ((g - m[i]) * (g - m[i]));
        double m_hat = m[i] / qm_oracle_correction(h->beta1, t),
               v_hat = v[i] / qm_oracle_correction(h->beta2, t);
        theta[i] = theta[i] - h->lr * (m_hat / (sqrt(v_hat) + h->eps));
    }
}

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct qm_adam_scalars *s = scalars;
    struct qm_ball p = qm_ball_exact(at->p), g = qm_ball_exact(at->g);
    if (s->b->h->maximize)
        g = qm_ball_negated(g);
    struct qm_ball m = qm_bound_average(&s->m, at->old[0], g);
    m.x = at->want[0];
    struct qm_ball v = qm_bound_square(s->b, &s->v, at->old[1], qm_ball_add(g, qm_ball_negated(m)));
    v.x = at->want[1];
    at->e[0] = m.e;
    at->e[1] = v.e;
    qm_bound_param(at, qm_bound_adam_own(s, p, m, v));
    if (!(fabs(at->p_got - at->p_want) <= at->e_p))
        qm_bound_param(at, qm_bound_adam_param(s, p, m, v));
}

static qm_status bound(const struct qm_bound_step *b)
{
    struct qm_adam_scalars s = qm_adam_scalars_of(b, 0, 0);
    qm_bound_elements(b, 2, &s, element);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_adabelief;
const struct qm_oracle qm_oracle_adabelief = {
    .family = "adabelief",
    .source = "arXiv:2010.07468, algorithm 2, with decoupled decay and without the inner epsilon",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = step,
    .bound = bound,
};
