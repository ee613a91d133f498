/* bound_projection.c - Error bounds of projections, channel norms and the limiter, in APOLLO, Fira.
 *
 * Every product of matrices and every norm is a sum in double that is rounded once; all other
 * operations are float32. */
#include "oracle/rule/projection.h"

/* sum over k of x[k step_x] y[k step_y], rounded. */
static struct qm_ball dot(const struct qm_bound_step *b, const struct qm_ball *x, int64_t step_x,
                          const double *y, int64_t step_y, int64_t n)
{
    struct qm_ball sum = {0.0, 0.0};
    double size = 0.0;
    for (int64_t k = 0; k < n; k++) {
        double f = y[k * step_y], term = x[k * step_x].x * f;
        sum.x += term;
        sum.e += x[k * step_x].e * fabs(f);
        size += fabs(term);
    }
    sum.e += 0x1p-52 * (double)n * size;
    if (isnan(sum.e))
        sum.e = HUGE_VAL;
    return qm_ball_float32(qm_ball_of_products(b, sum, size, n));
}

void qm_ball_project(const struct qm_bound_step *b, const struct qm_projection *q, const double *p,
                     struct qm_ball *r)
{
    for (int64_t i = 0; i < q->rows; i++)
        for (int64_t j = 0; j < q->cols; j++) {
            int64_t n = q->right ? q->n : q->m, step = q->right ? 1 : q->n;
            const double *g = q->right ? b->g + i * q->n : b->g + j;
            const double *f = q->right ? p + j * q->n : p + i;
            struct qm_ball sum = {0.0, 0.0};
            double size = 0.0;
            for (int64_t k = 0; k < n; k++) {
                double term = g[k * step] * f[k * (q->right ? 1 : q->r)];
                sum.x += term;
                size += fabs(term);
            }
            sum.e = 0x1p-52 * (double)n * size;
            r[i * q->cols + j] = qm_ball_float32(qm_ball_of_products(b, sum, size, n));
        }
}

void qm_ball_project_back(const struct qm_bound_step *b, const struct qm_projection *q,
                          const struct qm_ball *x, const double *p, double alpha,
                          struct qm_ball *out)
{
    struct qm_ball by = qm_ball_scalar(alpha);
    for (int64_t i = 0; i < q->m; i++)
        for (int64_t j = 0; j < q->n; j++) {
            struct qm_ball sum = q->right ? dot(b, x + i * q->r, 1, p + j, q->n, q->r)
                                          : dot(b, x + j, q->n, p + i * q->r, 1, q->r);
            out[i * q->n + j] = qm_ball_mul(sum, by);
        }
}

static struct qm_ball ratio(const struct qm_bound_step *b, const struct qm_ball *top,
                            const struct qm_ball *low, int64_t n, int64_t step)
{
    struct qm_ball a = qm_ball_float32(qm_ball_norm(b, top, n, step));
    struct qm_ball c = qm_ball_float32(qm_ball_norm(b, low, n, step));
    return qm_ball_div(&b->reorder, a, qm_ball_add(c, qm_ball_scalar(1e-8)));
}

void qm_ball_project_scale(const struct qm_bound_step *b, const struct qm_projection *q, int axis,
                           const struct qm_ball *top, const struct qm_ball *low, struct qm_ball *x)
{
    int64_t count = axis ? q->rows : q->cols, inner = axis ? q->cols : q->rows;
    int64_t wanted = axis ? q->m : q->n, other = axis ? q->n : q->m;
    struct qm_ball all = ratio(b, top, low, inner, axis ? 1 : q->cols);
    for (int64_t k = 0; k < wanted; k++) {
        int64_t from = axis ? k * q->cols : k;
        struct qm_ball by =
            count == 1 ? all : ratio(b, top + from, low + from, inner, axis ? 1 : q->cols);
        for (int64_t l = 0; l < other; l++) {
            int64_t i = axis ? k * q->n + l : l * q->n + k;
            x[i] = qm_ball_mul(x[i], by);
        }
    }
}

/* The maximum with 1 is 1-Lipschitz: where the ball of the ratio contains the threshold, the error
 * of the result is no larger than the error of the ratio. */
void qm_ball_project_limit(const struct qm_bound_step *b, int slot, struct qm_ball *x)
{
    const struct qm_reorder *o = &b->reorder;
    struct qm_ball norm = qm_ball_float32(qm_ball_norm(b, x, b->n, 1)),
                   limiter = qm_ball_exact(1.0);
    struct qm_ball gamma = qm_ball_scalar(1.0 + b->h->margin);
    if (b->t > 1) {
        struct qm_ball old = qm_ball_add(qm_bound_old(b, slot, 0), qm_ball_scalar(1e-8));
        struct qm_ball growth = qm_ball_div(o, qm_ball_div(o, norm, old), gamma);
        limiter = isnan(growth.x) ? growth : qm_ball_max(growth, limiter);
        for (int64_t i = 0; i < b->n; i++)
            x[i] = qm_ball_div(o, x[i], limiter);
        norm = qm_ball_div(o, norm, limiter);
    }
    b->want[slot][0] = norm.x;
    (void)qm_bound_set(b, slot, 0, norm);
}

static int all_finite(const double *x, int64_t n)
{
    int64_t i = 0;
    while (i < n && isfinite(x[i]))
        i++;
    return i == n;
}

qm_status qm_ball_project_matrix(const struct qm_bound_step *b, const struct qm_projection *q,
                                 int svd, int slot)
{
    int64_t n = q->r * (q->right ? q->n : q->m);
    int due = qm_project_is_due(b->h, q, b->t, b->slot[slot]);
    for (int64_t i = 0; i < n && !due; i++) { /* the old P is kept */
        b->want[slot][i] = b->slot[slot][i];
        b->e_slot[slot][i] = 0.0;
    }
    if (due && svd && all_finite(b->g, b->n))
        return qm_ball_project_singular(b, q, slot);
    for (int64_t i = 0; i < n && due && svd; i++) { /* G is not finite: any P is accepted */
        b->want[slot][i] = b->stored[slot][i];
        b->e_slot[slot][i] = HUGE_VAL;
    }
    /* random entries: numbers made in double, perhaps an ulp of float32 off, are rounded twice */
    for (int64_t i = 0; i < n && due && !svd; i++)
        b->e_slot[slot][i] = 4.0 * QM_U * fabs(b->want[slot][i]) + QM_ETA;
    return QM_OK;
}

void qm_ball_adam_states(const struct qm_bound_step *b, int own, const struct qm_ball *r, int64_t k,
                         struct qm_ball *r_tilde)
{
    struct qm_beta first = qm_bound_beta(b, b->h->beta1, 0),
                   second = qm_bound_beta(b, b->h->beta2, 0);
    struct qm_ball eps = qm_ball_scalar(b->h->eps), den;
    double c1 = qm_oracle_correction(b->h->beta1, b->t);
    double c2 = qm_oracle_correction(b->h->beta2, b->t);
    double rate = b->h->lr * fmin(sqrt(c2) / c1, 1.0);
    int is_before = b->reorder.fold && !own && rate > 0.0; /* (rate m) / den, rate m denormal */
    for (int64_t i = 0; i < k; i++) {
        struct qm_ball m = qm_bound_average(&first, qm_bound_old(b, 0, i), r[i]);
        struct qm_ball v = qm_bound_square(b, &second, qm_bound_old(b, 1, i), r[i]);
        if (own) {
            b->want[0][i] = m.x;
            b->want[1][i] = v.x;
        }
        m = qm_bound_new(b, 0, i, m);
        v = qm_bound_new(b, 1, i, v);
        den = qm_ball_add(qm_ball_sqrt(&b->reorder, v), eps);
        r_tilde[i] = qm_ball_div(&b->reorder, m, den);
        if (is_before && den.x > den.e)
            r_tilde[i].e += QM_ETA / (rate * (den.x - den.e));
    }
}

static struct qm_ball late_decay(const struct qm_bound_step *b, struct qm_ball p,
                                 struct qm_ball decay)
{
    struct qm_ball kept = qm_ball_add(p, qm_ball_negated(qm_ball_mul(p, decay)));
    if (!b->reorder.fold)
        return kept;
    return qm_ball_either(
        kept, qm_bound_decayed(b, p, qm_ball_scalar(1.0 - decay.x), b->h->lr, b->h->weight_decay));
}

void qm_ball_update_param(const struct qm_bound_step *b, int own, double step,
                          const struct qm_ball *u, int decays)
{
    struct qm_ball by = qm_ball_rounded(step, 0x1p-48 * fabs(step), QM_ETA);
    struct qm_ball decay = qm_ball_scalar(b->h->lr * b->h->weight_decay);
    for (int64_t i = 0; i < b->n; i++) {
        struct qm_ball p = qm_ball_exact(b->p[i]);
        p = qm_ball_add(p, qm_ball_negated(qm_ball_mul(u[i], by)));
        if (decays && b->h->weight_decay > 0.0)
            p = late_decay(b, p, decay);
        b->e_p[i] = p.e;
        if (own)
            b->p_want[i] = p.x;
    }
}
