/* bound.c - Error bounds of the parts that several families share: averages, squares,
 * corrections. */
#include "oracle/bound/bound.h"

static struct qm_ball negated_weight(const struct qm_beta *w, double beta)
{
    if (w->weight.e == 0.0 && w->beta.e == 0.0)
        return qm_ball_exact(-beta);
    return (struct qm_ball){-beta, QM_U * fmax(beta, 1.0 - beta)};
}

/* The weight 1 - beta is formed in double and rounded to float32.  weight - 1 is then exact, or is
 * rounded from double; either way its error is at most u max(beta, 1 - beta) (negated_weight). */
struct qm_beta qm_bound_beta(const struct qm_bound_step *b, double beta, int lerp)
{
    struct qm_beta w = {
        lerp, b->reorder.average, qm_ball_scalar(beta), qm_ball_scalar(1.0 - beta), {0.0, 0.0}};
    int in_float = b->order & (QM_ORDER_fused | QM_ORDER_flash | QM_ORDER_cuda);
    if (in_float && !qm_is_float(beta)) /* 1 - beta is exact for a float32 beta >= 1/2 */
        w.weight = qm_ball_rounded(1.0 - beta, QM_U * beta, 0.0);
    w.weight_minus_1 = negated_weight(&w, beta);
    return w;
}

struct qm_beta qm_bound_weight(const struct qm_bound_step *b, double weight, int lerp)
{
    struct qm_beta w = {
        lerp, b->reorder.average, qm_ball_scalar(1.0 - weight), qm_ball_scalar(weight), {0.0, 0.0}};
    w.weight_minus_1 = negated_weight(&w, 1.0 - weight);
    return w;
}

/* old + weight (fresh - old), and the same from the other end, fresh + (weight - 1) (fresh - old).
 * The difference is rounded to u |fresh - old|, so where a weight is 1 or 0 the smaller of two
 * operands of different size is lost: the error is then of the size u of the larger one.  The
 * second is only for weights from 1/2 on: the rounding of weight - 1 to float32 is an error u of a
 * smaller weight's 1, as if 1 - beta were formed in float32. */
static struct qm_ball from_old(const struct qm_beta *w, struct qm_ball old, struct qm_ball fresh)
{
    struct qm_ball difference = qm_ball_add(fresh, qm_ball_negated(old));
    return qm_ball_add(old, qm_ball_mul(w->weight, difference));
}

static struct qm_ball from_fresh(const struct qm_beta *w, struct qm_ball old, struct qm_ball fresh)
{
    struct qm_ball difference = qm_ball_add(fresh, qm_ball_negated(old));
    return qm_ball_add(fresh, qm_ball_mul(w->weight_minus_1, difference));
}

static struct qm_ball sum(const struct qm_beta *w, struct qm_ball old, struct qm_ball fresh)
{
    return qm_ball_add(qm_ball_mul(w->weight, fresh), qm_ball_mul(w->beta, old));
}

struct qm_ball qm_bound_average(const struct qm_beta *w, struct qm_ball old, struct qm_ball fresh)
{
    int is_small = w->weight.x < 0.5;
    struct qm_ball x = !w->lerp   ? sum(w, old, fresh)
                       : is_small ? from_old(w, old, fresh)
                                  : from_fresh(w, old, fresh);
    if (!w->either)
        return x;
    x = qm_ball_either(qm_ball_either(x, sum(w, old, fresh)), from_old(w, old, fresh));
    return is_small ? x : qm_ball_either(x, from_fresh(w, old, fresh));
}

struct qm_ball qm_bound_average_or_any(const struct qm_beta *w, struct qm_ball old,
                                       struct qm_ball fresh)
{
    struct qm_ball x = qm_bound_average(w, old, fresh);
    int is_of_infinity = isnan(x.x) && !isnan(old.x) && !isnan(fresh.x);
    return is_of_infinity ? QM_BALL_UNKNOWN : x;
}

static struct qm_ball weighted_square(const struct qm_beta *w, struct qm_ball old, struct qm_ball g)
{
    return qm_ball_add(qm_ball_mul(qm_ball_mul(w->weight, g), g), qm_ball_mul(w->beta, old));
}

struct qm_ball qm_bound_square(const struct qm_bound_step *b, const struct qm_beta *w,
                               struct qm_ball old, struct qm_ball g)
{
    int squares = w->lerp || b->order & QM_ORDER_flash;
    struct qm_ball x =
        squares ? qm_bound_average(w, old, qm_ball_mul(g, g)) : weighted_square(w, old, g);
    if (!w->either)
        return x;
    return qm_ball_either(x, squares ? weighted_square(w, old, g)
                                     : qm_bound_average(w, old, qm_ball_mul(g, g)));
}

/* The most that beta^t changes when beta is rounded to float32, which leaves it at most 1.  The
 * derivative t beta^(t - 1) is too small where t u is large: beta = 1 - 2^-30 becomes 1, and so
 * does its power. */
static double rounded_power(double beta, int64_t t, double power)
{
    double above = fmin(beta * QM_U, 1.0 - beta), below = beta * QM_U;
    double most = exp((double)t * log1p(beta - 1.0 + above));
    double least = exp((double)t * log1p(beta - 1.0 - below));
    return fmax(most - power, power - least) * (1.0 + 0x1p-40);
}

/* In double: two roundings of 2^-53 relative to 1.  In float32: the power P = beta^t of the rounded
 * beta (rounded_power) is rounded once, error u P (powf of QM_ORDER_fused is within an ulp: 2 u P);
 * the difference 1 - P is rounded, too. */
struct qm_ball qm_bound_correction(const struct qm_bound_step *b, double beta)
{
    double power = pow(beta, (double)b->t), x = qm_oracle_correction(beta, b->t), e;
    int in_float = b->order & (QM_ORDER_torchao | QM_ORDER_fused | QM_ORDER_cuda);
    if (!in_float)
        return (struct qm_ball){x, power > 0.0 ? 0x1p-52 : 0.0};
    e = qm_is_float(beta) ? 0.0 : rounded_power(beta, b->t, power);
    if (!qm_is_float(power))
        e += (b->order & QM_ORDER_fused ? 2.0 : 1.0) * QM_U * (power + e);
    return e == 0.0 && qm_is_float(x) ? qm_ball_exact(x) : qm_ball_rounded(x, e, 0.0);
}

struct qm_ball qm_bound_one_minus(const struct qm_bound_step *b, double x, double y)
{
    struct qm_ball product = qm_ball_scalar(x * y);
    if (!(b->order & (QM_ORDER_flash | QM_ORDER_cuda)))
        return qm_ball_scalar(1.0 - x * y);
    if (b->order & QM_ORDER_cuda)
        product = qm_ball_mul(qm_ball_scalar(x), qm_ball_scalar(y));
    return qm_ball_add(qm_ball_exact(1.0), qm_ball_negated(product));
}

struct qm_ball qm_bound_decayed(const struct qm_bound_step *b, struct qm_ball p,
                                struct qm_ball decay, double x, double y)
{
    struct qm_ball kept = qm_ball_mul(p, decay), a = qm_ball_scalar(x), c = qm_ball_scalar(y);
    if (!b->reorder.fold || x * y == 0.0)
        return kept;
    struct qm_ball one = qm_ball_exact(1.0), rate = qm_ball_mul(a, c);
    kept = qm_ball_either(kept, qm_ball_mul(p, qm_ball_add(one, qm_ball_negated(rate))));
    kept = qm_ball_either(kept, qm_ball_add(p, qm_ball_negated(qm_ball_mul(rate, p))));
    return qm_ball_either(kept, qm_ball_add(p, qm_ball_negated(qm_ball_mul(a, qm_ball_mul(c, p)))));
}

struct qm_ball qm_bound_stepped(const struct qm_bound_step *b, struct qm_ball p,
                                struct qm_ball kept, double x, double y, struct qm_ball step)
{
    struct qm_ball after = qm_ball_add(kept, qm_ball_negated(step));
    if (!b->reorder.fold || x * y == 0.0)
        return after;
    struct qm_ball lost = qm_ball_mul(qm_ball_mul(qm_ball_scalar(x), qm_ball_scalar(y)), p);
    struct qm_ball sum = qm_ball_mul(qm_ball_add(lost, step), qm_ball_exact(1.0)); /* by lr */
    return qm_ball_either(after, qm_ball_add(p, qm_ball_negated(sum)));
}

double qm_bound_decay_rate(const struct qm_oracle_hyper *h)
{
    if (!h->decouple_lr)
        return h->lr;
    return h->initial_lr != 0.0 ? h->lr / h->initial_lr : 1.0;
}

struct qm_ball qm_bound_l2_gradient(const struct qm_bound_step *b, double g, double p)
{
    double gamma = qm_oracle_gnorm_scale(b->h), lambda = b->h->weight_decay;
    struct qm_ball d = qm_ball_mul(qm_ball_scalar(gamma), qm_ball_exact(g));
    if (lambda != 0.0)
        d = qm_ball_add(d, qm_ball_mul(qm_ball_scalar(lambda), qm_ball_exact(p)));
    return d;
}

int qm_bound_is_zero_l2(const struct qm_bound_step *b, struct qm_bound_element *at, int n_slots)
{
    int adds = !!(b->order & (QM_ORDER_torchao | QM_ORDER_zero_l2));
    if (!adds || b->h->weight_decay != 0.0 || isfinite(at->p))
        return 0;
    at->p_want = (double)NAN;
    at->e_p = 0.0;
    for (int k = 0; k < n_slots; k++) {
        at->want[k] = (double)NAN;
        at->e[k] = 0.0;
    }
    return 1;
}

void qm_bound_elements(const struct qm_bound_step *b, int n_slots, const void *scalars,
                       void (*element)(const void *scalars, struct qm_bound_element *at))
{
    for (int64_t i = 0; i < b->n; i++) {
        struct qm_bound_element at;
        at.p = b->p[i];
        at.g = b->g[i];
        at.p_want = b->p_want[i];
        at.p_got = b->p_got ? (double)b->p_got[i] : (double)NAN;
        for (int k = 0; k < n_slots; k++) {
            at.slot[k] = b->slot[k][i];
            at.old[k] = (struct qm_ball){at.slot[k], b->e_old ? b->e_old[k][i] : 0.0};
            at.want[k] = b->want[k][i];
        }
        element(scalars, &at);
        b->e_p[i] = at.e_p;
        b->p_want[i] = at.p_want;
        for (int k = 0; k < n_slots; k++) {
            b->e_slot[k][i] = at.e[k];
            b->want[k][i] = qm_bound_wanted(at.want[k], at.e[k]);
        }
    }
}
