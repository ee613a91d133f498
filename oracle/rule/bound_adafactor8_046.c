/* bound_adafactor8_046.c - The error bound of adafactor8bit 0.4.6 but for its APOLLO.
 *
 * It follows the formulas of adafactor8.c in the order of the package's PyTorch path: averages are
 * float32 by lerp, but those of float32 second moments of tensors that are not factored, which are
 * two products; sums, norms, roots and the limiter are double.  Where an input is not finite (0
 * times Inf in a lerp is NaN) the wanted values are the midpoints of the balls. */
#include <stdlib.h>

#include "oracle/bound/bound_tensor.h"
#include "oracle/rule/adafactor8.h"

/* The scalars and the shape of one step.  is_unit: the moment averages the update.  own: an input
 * is not finite; has_nan: one is NaN. */
struct scalars {
    const struct qm_bound_step *b;
    int has_m, is_factored, is_came, is_adam, is_sgd, is_unit, own, has_nan;
    double eps1, adam_eps, weight, rho, correction;
    struct qm_matrix_batch m;
    int64_t n;
};

/* torch adds up squares in float32: those beyond 2^128 make the norm infinite, and those below
 * 2^-126 are counts of 2^-149, each off by half of one, in every sum, too. */
struct qm_ball qm_bound_norm_of_floats(const struct qm_bound_step *b, const struct qm_ball *x,
                                       int64_t n, int64_t step)
{
    struct qm_ball y = qm_ball_norm(b, x, n, step);
    double off = 2.0 * (double)n * QM_ETA;
    if (isfinite(y.x) && y.x + y.e >= 0x1p63)
        return (struct qm_ball){y.x, HUGE_VAL};
    if (y.x > 0.0 && y.x < 0x1p-40)
        y.e += fmin(off / y.x, y.x + sqrt(off));
    return y;
}

static const struct qm_ball one = {1.0, 0.0};

/* A scalar formed in double by a few operations. */
static struct qm_ball in_double(double x) { return (struct qm_ball){x, 0x1p-48 * fabs(x)}; }

static struct qm_ball gradient(const struct scalars *a, int64_t i)
{
    return qm_ball_exact(a->b->h->maximize ? -a->b->g[i] : a->b->g[i]);
}

/* Records a new state.  Of NaN that no input is, another order of an average makes infinity. */
static struct qm_ball set_state(const struct scalars *a, int slot, int64_t i, struct qm_ball v)
{
    if (isnan(v.x) && !a->has_nan) {
        v = (struct qm_ball){0.0, HUGE_VAL};
        a->b->want[slot][i] = 0.0;
    }
    if (a->own)
        a->b->want[slot][i] = v.x;
    return qm_bound_set(a->b, slot, i, v);
}

/* Element i of a slot becomes the average of itself and x.  What becomes NaN of an infinity here is
 * the infinity in another order. */
static struct qm_ball averaged(const struct scalars *a, int slot, int64_t i,
                               const struct qm_beta *beta, struct qm_ball x)
{
    struct qm_ball old = qm_bound_old(a->b, slot, i), v = qm_bound_average_or_any(beta, old, x);
    return set_state(a, slot, i, v);
}

/* Element i of a slot takes in x with weight w. */
static struct qm_ball take_in(const struct scalars *a, int slot, int64_t i, double w, int is_lerp,
                              struct qm_ball x)
{
    struct qm_beta beta = qm_bound_weight(a->b, w, is_lerp);
    return averaged(a, slot, i, &beta, x);
}

static struct qm_ball moment(const struct scalars *a, int64_t i, struct qm_ball x)
{
    struct qm_beta beta = qm_bound_beta(a->b, a->b->h->beta1, 1);
    return averaged(a, M, i, &beta, x);
}

/* The row and column means of x, plus `add`, enter slots row and col with weight w; r and c get the
 * new states. */
static void factor_states(const struct scalars *a, const struct qm_ball *x, double add, double w,
                          int row, struct qm_ball *r, struct qm_ball *c)
{
    struct qm_ball e = qm_ball_scalar(add);
    qm_ball_row_means(a->b, &a->m, x, r);
    qm_ball_col_means(a->b, &a->m, x, c);
    qm_ball_sums_overflow(r, a->m.batch * a->m.rows, a->m.cols);
    qm_ball_sums_overflow(c, a->m.batch * a->m.cols, a->m.rows);
    for (int64_t i = 0; i < a->m.batch * a->m.rows; i++)
        r[i] = take_in(a, row, i, w, 1, qm_ball_add(r[i], e));
    for (int64_t i = 0; i < a->m.batch * a->m.cols; i++)
        c[i] = take_in(a, row + 1, i, w, 1, qm_ball_add(c[i], e));
}

/* r, c <- the states in slots row and row + 1 that the update of the parameter reads. */
static void use_stored(const struct scalars *a, int row, struct qm_ball *r, struct qm_ball *c)
{
    for (int64_t i = 0; i < a->m.batch * a->m.rows; i++)
        r[i] = qm_bound_stored(a->b, row, i, r[i]);
    for (int64_t i = 0; i < a->m.batch * a->m.cols; i++)
        c[i] = qm_bound_stored(a->b, row + 1, i, c[i]);
}

/* x <- x / sqrt(r c / mean r), rounded to float32. */
static void divide(const struct scalars *a, const struct qm_ball *row, const struct qm_ball *col,
                   struct qm_ball *x)
{
    const struct qm_bound_step *b = a->b;
    for (int64_t k = 0; k < a->m.batch; k++) {
        const struct qm_ball *r = row + k * a->m.rows, *c = col + k * a->m.cols;
        struct qm_ball mean =
            qm_ball_at_least(qm_ball_mean(b, r, a->m.rows, 1), qm_ball_exact(a->eps1));
        for (int64_t i = 0; i < a->m.rows; i++)
            for (int64_t j = 0; j < a->m.cols; j++) {
                struct qm_ball *to = &x[(k * a->m.rows + i) * a->m.cols + j];
                struct qm_ball q = qm_ball_float32(qm_ball_div_double(b, r[i], mean));
                struct qm_ball v = qm_bound_inverse_root(b, q, c[j]); /* q may vanish in float32 */
                *to = qm_bound_two_products(b, *to, v, q, c[j]);
            }
    }
}

/* The divisor of u such that its RMS is at most clip. */
static struct qm_ball clip_of(const struct scalars *a, const struct qm_ball *u)
{
    const struct qm_bound_step *b = a->b;
    if (!(b->h->clip > 0.0))
        return one;
    struct qm_ball by = in_double(sqrt((double)a->n) * b->h->clip);
    by = qm_ball_div_double(b, qm_bound_norm_of_floats(b, u, a->n, 1), by);
    return qm_ball_at_least(by, one);
}

/* CAME: the clipped u enters the momentum, (u - M)^2 the confidence; then u <- M over the root of
 * the confidence. */
static void came_update(const struct scalars *a, struct qm_ball *u, struct qm_ball *x,
                        struct qm_ball *r, struct qm_ball *c)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball clip = qm_ball_float32(clip_of(a, u));
    for (int64_t i = 0; i < a->n; i++) {
        struct qm_ball step = qm_ball_div(&b->reorder, u[i], clip);
        u[i] = moment(a, i, step);
        struct qm_ball off = qm_ball_add(step, qm_ball_negated(u[i]));
        x[i] = qm_ball_add(qm_ball_mul(off, off), qm_ball_scalar(b->h->eps));
    }
    factor_states(a, x, 0.0, 1.0 - b->h->beta3, CONF_R, r, c);
    for (int64_t i = 0; i < a->n; i++)
        u[i] = qm_bound_stored(b, M, i, u[i]);
    use_stored(a, CONF_R, r, c);
    divide(a, r, c, u);
}

static void factored_update(const struct scalars *a, struct qm_ball *u, struct qm_ball *x,
                            struct qm_ball *r, struct qm_ball *c)
{
    for (int64_t i = 0; i < a->n; i++) {
        u[i] = gradient(a, i);
        x[i] = qm_ball_mul(u[i], u[i]);
        if (a->has_m && !a->is_came)
            u[i] = qm_bound_stored(a->b, M, i, moment(a, i, u[i]));
    }
    factor_states(a, x, a->eps1, a->weight, R, r, c);
    if (!a->is_came)
        use_stored(a, R, r, c);
    divide(a, r, c, u);
    if (a->is_came)
        came_update(a, u, x, r, c);
}

/* A tensor that is not factored. */
static void full_update(const struct scalars *a, struct qm_ball *u)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball e = qm_ball_scalar(a->is_adam ? 0.0 : a->eps1);
    const struct qm_ball least = qm_ball_exact(fmax(a->eps1 * a->eps1, 0x1p-126));
    for (int64_t i = 0; i < a->n; i++) {
        struct qm_ball g = gradient(a, i), v = qm_ball_add(qm_ball_mul(g, g), e);
        if (b->plain >> V & 1u) { /* (w g) g, and w times what is added; or w (g^2 + e) */
            struct qm_beta w = qm_bound_weight(b, a->weight, 0);
            struct qm_ball old = qm_bound_old(b, V, i), whole = qm_bound_average(&w, old, v);
            v = qm_ball_add(qm_bound_square(b, &w, old, g), qm_ball_mul(w.weight, e));
            if (isfinite(v.x) && whole.x + whole.e < 0x1p127) /* w (g^2 + e), where g^2 is finite */
                v = qm_ball_either(v, whole);
            v = set_state(a, V, i, v);
        } else {
            v = take_in(a, V, i, a->weight, 1, v);
        }
        if (!a->is_unit)
            v = qm_bound_stored(b, V, i, v);
        if (a->has_m && !a->is_unit)
            g = qm_bound_stored(b, M, i, moment(a, i, g));
        if (a->is_adam && !a->is_unit) {
            v = qm_ball_sqrt_double(b, v);
            v.x += a->adam_eps;
            v.e += 0x1p-48 * a->adam_eps;
            v = qm_ball_round_double(b, v);
            if (a->has_m && v.x - v.e < 0x1p-127) /* its reciprocal may overflow in float32 */
                v.e = HUGE_VAL;
        } else {
            v = qm_ball_sqrt_double(b, qm_ball_at_least(v, least));
        }
        u[i] = qm_ball_float32(qm_ball_div_double(b, g, v));
    }
    if (!a->is_unit)
        return;
    struct qm_ball clip = qm_ball_float32(clip_of(a, u));
    int is_cleared = a->own && b->plain >> M & 1u; /* it may be 0 by the end of the step */
    for (int64_t i = 0; i < a->n; i++) {
        struct qm_ball x = qm_ball_div(&b->reorder, u[i], clip);
        u[i] = moment(a, i, x);
        if (is_cleared && isnan(x.x)) /* in every order */
            u[i].x = x.x;
        else if (!is_cleared)
            u[i] = qm_bound_stored(b, M, i, u[i]);
    }
}

/* SGD. */
static void plain_update(const struct scalars *a, struct qm_ball *u)
{
    for (int64_t i = 0; i < a->n; i++) {
        u[i] = gradient(a, i);
        if (a->has_m)
            u[i] = qm_ball_div(&a->b->reorder, qm_bound_stored(a->b, M, i, moment(a, i, u[i])),
                               qm_ball_scalar(1.0 - a->b->h->beta1));
    }
}

/* The factor that the limiter puts on an update of this norm.  A norm that is not finite, because
 * an input is not, counts as 0: *norm becomes 0.  An update that may overflow has a norm of which
 * nothing is known, nor whether there is a step: a radius of HUGE_VAL, but with a memory that is
 * NaN the factor is NaN. */
static struct qm_ball limit(const struct scalars *a, struct qm_ball *norm)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball threshold = qm_ball_exact(1.0 + b->h->margin), by = one, next, factor;
    double prev = b->slot[NORM][0];
    if (a->own && !isfinite(norm->x))
        *norm = qm_ball_exact(0.0);
    if (!isnan(prev) && (!isfinite(norm->x) || !(norm->e < HUGE_VAL))) {
        next = (struct qm_ball){0.0, HUGE_VAL};
        factor = (struct qm_ball){1.0, HUGE_VAL};
    } else {
        if (b->t > 1 && !(prev < 1e-6)) {
            by = qm_ball_div_double(b, *norm, in_double(prev + 1e-8));
            by = qm_ball_div_double(b, qm_ball_at_least(by, threshold), threshold);
        }
        next = qm_ball_float32(qm_ball_div_double(b, *norm, by));
        factor = qm_ball_div_double(b, one, by);
    }
    b->want[NORM][0] = next.x;
    (void)qm_bound_set(b, NORM, 0, next);
    return factor;
}

struct qm_ball qm_adafactor8_written(const struct qm_bound_step *b, double p, struct qm_ball rate,
                                     struct qm_ball step)
{
    double d = b->h->weight_decay;
    struct qm_ball decay = qm_ball_float32((struct qm_ball){1.0 - d * rate.x, d * rate.e}),
                   old = qm_ball_exact(p), kept = qm_ball_mul(old, decay), to;
    to = qm_ball_add(qm_ball_round_to(b->between, kept), qm_ball_negated(step));
    if (!b->reorder.fold || d == 0.0)
        return to;
    struct qm_ball unit = qm_ball_exact(1.0), narrow = qm_ball_float32(rate),
                   lost = qm_ball_float32((struct qm_ball){d * rate.x, d * rate.e});
    const struct qm_ball forms[] = {
        qm_ball_mul(old, qm_ball_add(unit, qm_ball_negated(lost))),
        qm_ball_add(old, qm_ball_negated(qm_ball_mul(lost, old))),
        qm_ball_add(old,
                    qm_ball_negated(qm_ball_mul(narrow, qm_ball_mul(qm_ball_scalar(d), old))))};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        to = qm_ball_either(
            to, qm_ball_add(qm_ball_round_to(b->between, forms[i]), qm_ball_negated(step)));
    if (b->between) /* a parameter that is rounded in between has its decay apart */
        return to;
    return qm_ball_either(
        to, qm_ball_add(old, qm_ball_negated(qm_ball_add(qm_ball_mul(lost, old), step))));
}

/* The parameter: p (1 - decay) - alpha / clip u. */
static void write_back(const struct scalars *a, int clips, const struct qm_ball *u)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball norm = qm_bound_norm_of_floats(b, u, a->n, 1), by = one,
                   alpha = in_double(a->rho);
    struct qm_ball *p = b->h->scale_parameter ? qm_balls_of(b->p, a->n) : NULL;
    if (b->h->scale_parameter) {
        alpha = (struct qm_ball){0.0, HUGE_VAL};
        if (p) {
            alpha = qm_ball_div_double(b, qm_bound_norm_of_floats(b, p, a->n, 1),
                                       in_double(sqrt((double)a->n)));
            alpha = qm_ball_at_least(alpha, qm_ball_exact(b->h->eps2));
            alpha = qm_ball_mul_double(b, alpha, in_double(a->rho));
        }
    }
    free(p);
    alpha = qm_ball_mul_double(b, alpha, in_double(a->correction));
    const struct qm_ball size = norm;
    if (b->h->limiter)
        by = limit(a, &norm);
    int is_stopped = b->h->limiter && a->own && !isfinite(size.x);
    int is_open = by.e == HUGE_VAL;                   /* whether there is a step */
    int is_update = a->is_unit && b->plain >> M & 1u; /* a float32 moment is the update itself */
    for (int64_t i = 0; i < a->n && is_update && (is_stopped || is_open); i++)
        (void)set_state(a, M, i, (struct qm_ball){0.0, is_stopped ? 0.0 : HUGE_VAL});
    struct qm_ball rate = alpha, decay = b->h->scale_weight_decay ? alpha : in_double(a->rho);
    if (clips && b->h->clip > 0.0) {
        struct qm_ball denom = in_double(sqrt((double)a->n) * b->h->clip);
        denom = qm_ball_at_least(qm_ball_div_double(b, norm, denom), one);
        rate = qm_ball_div_double(b, rate, denom);
    }
    rate = qm_ball_float32(qm_ball_mul_double(b, rate, by));
    for (int64_t i = 0; i < a->n; i++) {
        struct qm_ball step = qm_ball_mul(rate, is_stopped ? qm_ball_exact(0.0) : u[i]);
        if (is_open)
            step = (struct qm_ball){0.0, HUGE_VAL};
        struct qm_ball to = qm_adafactor8_written(b, b->p[i], decay, step);
        /* Of NaN that no input is, another order makes infinity, which as a norm stops the step. */
        if (isnan(size.x) && !a->has_nan)
            to = (struct qm_ball){0.0, HUGE_VAL};
        b->e_p[i] = to.e;
        if (a->own || b->between || is_open || qm_bound_reads_back(b))
            b->p_want[i] = to.x;
        if (!(to.e < HUGE_VAL) && !(a->has_nan && isnan(to.x)))
            b->p_want[i] = 0.0; /* what may overflow has any sign, or is NaN in one order alone */
    }
}

/* is_other: momentum_only_1d is against its default. */
static qm_status bound(const struct qm_bound_step *b, int is_other)
{
    const struct qm_oracle_hyper *h = b->h;
    struct scalars a = {.b = b, .n = b->n, .correction = 1.0, .m = qm_batch_of(b->shape)};
    a.is_sgd = h->beta2 < 0.0 && h->beta2_decay > 0.0;
    if (h->rank > 0.0 && b->shape->rank >= 2 && !a.is_sgd)
        return qm_bound_adafactor8_046_projected(b);
    double t = (double)b->t, root = h->beta2 >= 0.0 ? sqrt(1.0 - pow(h->beta2, t)) : 1.0;
    a.has_m = h->beta1 >= 0.0;
    a.is_factored = h->factored && b->shape->rank >= 2 && !a.is_sgd;
    a.is_came = a.is_factored && h->beta3 > 0.0 && a.has_m;
    a.is_adam = !h->factored && h->beta2 >= 0.0 && !(h->beta3 > 0.0);
    a.is_unit = a.has_m && !a.is_factored && !a.is_sgd && a.is_adam == is_other;
    a.eps1 = h->eps1 < 0.0 ? 1e-30 : h->eps1;
    a.adam_eps = a.eps1;
    a.weight = h->beta2 >= 0.0 ? 1.0 - h->beta2 : pow(t, h->beta2_decay);
    a.rho = h->relative_step ? fmin(h->lr, 1.0 / sqrt(t)) : h->lr;
    if (a.has_m && !h->relative_step && h->correct_bias && !a.is_sgd) {
        a.correction = root / (1.0 - pow(h->beta1, t));
        a.adam_eps *= root;
    }
    a.own = qm_bound_is_not_finite(b, a.n, SLOTS, &a.has_nan);
    if (a.n == 0)
        return QM_OK;
    struct qm_ball *u = qm_balls(4 * a.n + 2), *x = u + a.n, *r = x + a.n, *c = r + a.n + 1;
    if (!u)
        return QM_NO_MEMORY;
    if (a.is_sgd)
        plain_update(&a, u);
    else if (a.is_factored)
        factored_update(&a, u, x, r, c);
    else
        full_update(&a, u);
    write_back(&a, !a.is_came && !a.is_unit, u);
    free(u);
    return QM_OK;
}

qm_status qm_bound_adafactor8_046(const struct qm_bound_step *b) { return bound(b, 0); }
qm_status qm_bound_adafactor8_046_1d(const struct qm_bound_step *b) { return bound(b, 1); }
