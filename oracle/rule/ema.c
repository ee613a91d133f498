/* ema.c - The exponential moving average alone in double, and its error bound.
 *
 *   m <- beta1 m + (1 - beta1) g        (-g for g where the objective is maximized)
 *
 * The parameter is not touched, so the effect of a quantized state on an average is seen without an
 * optimizer around it. */
#include "oracle/bound/bound.h"

static void step(double *theta, double *const *slot, const double *g, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    (void)theta;
    (void)t;
    double *m = slot[0];
    for (int64_t i = 0; i < rows * cols; i++)
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * (h->maximize ? -g[i] : g[i]);
}

/* The scalars of one step. */
struct average {
    int maximize;
    struct qm_beta w;
};

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct average *s = scalars;
    struct qm_ball g = qm_ball_exact(s->maximize ? -at->g : at->g);
    at->e[0] = qm_bound_average(&s->w, at->old[0], g).e;
    at->e_p = 0.0;
}

static qm_status bound(const struct qm_bound_step *b)
{
    struct average s = {b->h->maximize,
                        qm_bound_beta(b, b->h->beta1, !!(b->order & QM_ORDER_lerp_m))};
    qm_bound_elements(b, 1, &s, element);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_ema;
const struct qm_oracle qm_oracle_ema = {
    .family = "ema",
    .source = "arXiv:1412.6980, algorithm 1, first moment",
    .n_slots = 1,
    .slot = {"exp_avg"},
    .step = step,
    .bound = bound,
};
