/* adafactor8_apollo.c - APOLLO of adafactor8bit (arXiv:2412.05270).
 *
 * Each channel of the gradient is scaled by what an adaptive step does to it in a random
 * projection. The source draws a new projection from the generator of its framework; here its
 * numbers are counted by tensor and projection, and are not part of the state either.  gap < 0: a
 * projection lasts |gap| steps, and is slot proj, which the caller fills. */
#include "core/rule/adafactor8.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/philox.h"
#include "core/rule/lowrank.h"
#include "core/rule/tensor_rule.h"

static int64_t gap_of(const struct qm_adafactor8 *a)
{
    double gap = fabs(a->h->gap);
    return gap >= 1.0 ? (int64_t)gap : 1;
}

int qm_adafactor8_starts(const struct qm_adafactor8 *a)
{
    return a->t == 1 || (!a->is_026 && (a->t - 1) % gap_of(a) == 0);
}

static struct qm_lowrank lowrank_of(const struct qm_adafactor8 *a)
{
    return (struct qm_lowrank){.right = a->is_right,
                               .m = a->rows,
                               .n = a->cols,
                               .r = a->rank,
                               .rows = a->is_right ? a->rows : a->rank,
                               .cols = a->is_right ? a->rank : a->cols};
}

/* N(0, 1) / sqrt(rank) by Box and Muller from two words of the counter generator. */
static void draw_numbers(const struct qm_adafactor8 *a, int64_t which, int64_t n, float *p)
{
    const double tau = 6.283185307179586;
    struct qm_draws d = qm_draws_for(0, (int64_t)0x80000000 + which, a->w->tensor,
                                     QM_ROLE_spare); /* apart from the draws of rounding */
    for (int64_t i = 0; i < n; i++) {
        double u = (double)qm_uniform(qm_draw(&d, 2 * i));
        double v = (double)qm_uniform(qm_draw(&d, 2 * i + 1));
        p[i] = (float)(sqrt(-2.0 * log(u)) * cos(tau * v) / sqrt((double)a->rank));
    }
}

/* The projection of this step, which the caller frees.  It is drawn on the host; a device keeps it
 * until the next one. */
static qm_status draw_projection(const struct qm_adafactor8 *a, void **out)
{
    int64_t n = a->rank * (a->is_right ? a->cols : a->rows), which = (a->w->s->t - 1) / gap_of(a);
    size_t bytes = sizeof(float) * (size_t)n;
    int is_new = 0;
    QM_TRY(qm_tensor_rule_cached(which, bytes, out, &is_new));
    float *here = is_new ? malloc(bytes + 1) : NULL;
    if (is_new && !here) {
        qm_tensor_rule_free(*out);
        return qm_fail(QM_NO_MEMORY, "a projection of rank %lld", (long long)a->rank);
    }
    if (is_new) {
        draw_numbers(a, which, n, here);
        qm_tensor_rule_write(*out, here, bytes);
    }
    free(here);
    return QM_OK;
}

/* low = the projected gradient; the gradient itself goes to w->room.  0.2.5 and 0.2.6 count entries
 * that are not finite as 0 before they project. */
static qm_status project(const struct qm_adafactor8 *a, const struct qm_lowrank *l, float *low)
{
    float *g = a->w->room;
    void *drawn = NULL;
    if (a->h->gap >= 0.0)
        QM_TRY(draw_projection(a, &drawn));
    qm_adafactor8_gradients(a, a->is_025 || a->is_cuda, g);
    qm_status st = qm_lowrank_project(l, g, drawn ? drawn : a->w->slot[QM_ADAFACTOR8_PROJ], low);
    qm_tensor_rule_free(drawn);
    return st;
}

/* eps1 of Adafactor or, in 0.4.6 and where the source is given None, apollo_eps. */
static double regularizer(const struct qm_adafactor8 *a)
{
    return a->is_046 || a->h->eps1 < 0.0 ? a->h->eps : a->h->eps1;
}

/* What is added to squares (is_mean: to means of them). */
static double added(const struct qm_adafactor8 *a, int is_mean)
{
    if (a->is_046)
        return is_mean ? (double)QM_ADAFACTOR8_TINY : 0.0;
    return a->is_026 ? regularizer(a) : 0.0;
}

double qm_adafactor8_norm(const struct qm_lazy_floats *x, int64_t n, int is_torch)
{
    return sqrt(n == 1 && is_torch ? qm_sum_squares_of(x, n) : qm_float_squares_of(x, n));
}

double qm_adafactor8_limit(const struct qm_adafactor8 *a, double norm)
{
    float prev, next;
    qm_tensor_rule_read(&prev, a->w->slot[QM_ADAFACTOR8_NORM], sizeof prev);
    double n = a->is_025 && !isfinite(norm) ? 0.0 : norm, p = (double)prev;
    double threshold = 1.0 + a->h->margin;
    double limit = qm_at_least(n / (p + 1e-8), threshold) / threshold;
    if (a->t == 1 || (a->is_025 && p < 1e-6))
        limit = 1.0;
    next = (float)(n / limit);
    qm_tensor_rule_write(a->w->slot[QM_ADAFACTOR8_NORM], &next, sizeof next);
    return 1.0 / limit;
}

/* ---- states --------------------------------------------------------------------------------- */

/* The averages of the row and column means of the squares, in float32; the first means
 * start them. */
static void factor_states(const struct qm_adafactor8 *a, const struct qm_lowrank *l,
                          const float *low)
{
    double add = added(a, 1), b = a->b, old = 1.0 - b;
    float least = 0.0f;
    if (qm_adafactor8_starts(a)) {
        b = a->is_024 ? b : 1.0;
        old = 0.0;
        least = a->is_024 && !a->is_046 ? QM_ADAFACTOR8_TINY : 0.0f;
    }
    for (int axis = 1; axis >= 0; axis--) {
        struct qm_sweep s = qm_lowrank_sweep(l, axis);
        s.c[QM_ADAFACTOR8_LOW_KEEP] = (float)old;
        s.c[QM_ADAFACTOR8_LOW_WEIGHT] = (float)b;
        s.c[QM_ADAFACTOR8_LOW_LEAST] = least;
        s.d[QM_ADAFACTOR8_LOW_ADD] = add;
        s.flag[QM_ADAFACTOR8_LOW_STARTS] = qm_adafactor8_starts(a);
        s.x[0] = a->w->slot[axis ? QM_ADAFACTOR8_ROW : QM_ADAFACTOR8_COL];
        s.x[1] = QM_AT(low);
        qm_sweep_run(QM_SWEEP_adafactor8_low_means, &s);
    }
}

/* The unfactored second moment of R[n]. */
static void second_states(const struct qm_adafactor8 *a, int64_t n, const float *low)
{
    float add = (float)added(a, 0), first = a->is_024 ? (float)a->b : 1.0f;
    float least = a->is_046 ? 0.0f : QM_ADAFACTOR8_TINY;
    if (qm_adafactor8_starts(a))
        qm_sweep_run(
            QM_SWEEP_adafactor8_begin,
            &(struct qm_sweep){
                .n = n,
                .c = {[QM_ADAFACTOR8_BEGIN_WEIGHT] = first, [QM_ADAFACTOR8_BEGIN_LEAST] = least},
                .x = {a->w->slot[QM_ADAFACTOR8_V], QM_AT(low)}});
    else
        qm_adafactor8_squares_of(a, QM_ADAFACTOR8_V, low, n, 0, add);
}

qm_status qm_adafactor8_apollo_states(const struct qm_adafactor8 *a)
{
    const struct qm_lowrank l = lowrank_of(a);
    int64_t n = l.rows * l.cols;
    void *low = NULL;
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)n, &low));
    qm_status st = project(a, &l, low);
    if (st == QM_OK && a->h->factored)
        factor_states(a, &l, low);
    else if (st == QM_OK)
        second_states(a, n, low);
    if (st == QM_OK && a->has_m &&
        !a->is_026) /* before 0.2.6: forgets the momentum in every step */
        qm_sweep_run(QM_SWEEP_fill, &(struct qm_sweep){.n = n, .x = {a->w->slot[QM_ADAFACTOR8_M]}});
    if (st == QM_OK && a->has_m)
        qm_adafactor8_moment(a, n, low, a->w->slot[QM_ADAFACTOR8_M]);
    qm_tensor_rule_free(low);
    return st;
}

/* ---- the step ------------------------------------------------------------------------------- */

/* factor[i] = |adapted| / |plain| of channel i of R, or of all of R in each.  The array has room
 * for as many numbers behind them, and for three more. */
static void scaling_factors(const struct qm_adafactor8 *a, const struct qm_lowrank *l,
                            const float *low, double *factor)
{
    float *const *slot = a->w->slot;
    struct qm_sweep s = qm_lowrank_sweep(l, l->right);
    double *totals = factor + 2 * s.n, *mean = totals + 2;
    if (a->h->factored)
        qm_sweep_run(QM_SWEEP_adafactor8_low_mean,
                     &(struct qm_sweep){.n = 1,
                                        .inner = l->rows,
                                        .d = {[QM_ADAFACTOR8_LOW_MEAN_LEAST] = regularizer(a)},
                                        .x = {NULL, slot[QM_ADAFACTOR8_ROW]},
                                        .y = {mean}});
    s.d[QM_ADAFACTOR8_CHANNEL_EPS] = a->h->eps;
    s.flag[QM_ADAFACTOR8_CHANNEL_FACTORED] = a->h->factored;
    s.flag[QM_ADAFACTOR8_CHANNEL_CUDA] = a->is_cuda;
    s.x[1] = a->has_m ? slot[QM_ADAFACTOR8_M] : QM_AT(low);
    s.x[2] = slot[!a->h->factored ? QM_ADAFACTOR8_V
                  : l->right      ? QM_ADAFACTOR8_ROW
                                  : QM_ADAFACTOR8_COL];
    s.x[3] = slot[l->right ? QM_ADAFACTOR8_COL : QM_ADAFACTOR8_ROW];
    s.y[0] = factor;
    s.y[1] = mean;
    qm_sweep_run(QM_SWEEP_adafactor8_channel_squares, &s);
    qm_lowrank_squares(l, l->right, low, factor + s.n);
    if (a->h->tensor_scale)
        qm_sweep_run(QM_SWEEP_adafactor8_totals,
                     &(struct qm_sweep){.n = 2, .inner = s.n, .y = {totals, factor}});
    qm_sweep_run(
        QM_SWEEP_adafactor8_ratio,
        &(struct qm_sweep){
            .n = s.n,
            .d = {[QM_ADAFACTOR8_RATIO_SCALE] = (a->is_046 ? 1.0 : a->correction) *
                                                (a->h->scale_front ? sqrt(a->h->scale) : 1.0)},
            .flag = {[QM_ADAFACTOR8_RATIO_TOTALS] = a->h->tensor_scale,
                     [QM_ADAFACTOR8_RATIO_ONE] = (a->h->tensor_scale ? s.n : 1) * s.inner == 1},
            .y = {factor, totals}});
}

/* The channels of the gradient: their factors and the sums of their squares.  is_one: each, or the
 * tensor where one factor is for all, is one number, of whose norm torch makes no square. */
struct channels {
    int64_t n;
    int is_one;
    double *factor, *squares;
};

static float root_of(const struct channels *c, double squares)
{
    return (float)sqrt(c->is_one ? squares : qm_float_sum(squares));
}

/* The norm of the gradient with each channel times its factor times `limit`, as the source forms
 * it: from the norms of channels, whose squares, and those of the factors, may overflow or vanish
 * in float32; or from the norm of all of it. */
static double scaled_norm(const struct qm_adafactor8 *a, const struct channels *c, double limit)
{
    double s = 0.0;
    for (int64_t k = 0; k < c->n; k++) {
        float norm = root_of(c, c->squares[k]), f = (float)(c->factor[k] * limit);
        float square = norm * norm, by = f * f, both = square * by;
        s += a->h->tensor_scale ? c->squares[k] : (double)both;
    }
    if (!a->h->tensor_scale)
        return sqrt(qm_float_sum(s));
    float norm = root_of(c, s), f = (float)(c->factor[0] * limit), both = norm * f;
    return (double)both;
}

/* Multiplies the factors by the limiter's one and by the rate; *alpha: the rate without clip. */
static void limit_channels(const struct qm_adafactor8 *a, const struct channels *c, double *alpha)
{
    double norm = scaled_norm(a, c, 1.0), back = a->h->scale_front ? 1.0 : sqrt(a->h->scale);
    double limit = a->h->margin >= 0.0 ? qm_adafactor8_limit(a, norm) : 1.0;
    norm = a->is_026 ? norm : scaled_norm(a, c, limit);
    double denom = qm_at_least(norm / (sqrt((double)a->n) * a->h->clip), 1.0);
    *alpha = qm_adafactor8_rate(a);
    denom = a->is_046 && !(a->h->clip > 0.0) ? 1.0 : denom;
    float rate = (float)(*alpha / denom * (a->is_046 ? a->correction : 1.0));
    for (int64_t k = 0; k < c->n; k++) {
        float f = (float)(c->factor[k] * limit * back);
        c->factor[k] = (double)f * (double)rate;
    }
}

/* u, the gradient, becomes the step: each channel times its factor, limiter and rate. */
static qm_status scaled(const struct qm_adafactor8 *a, float *u, double *alpha)
{
    const struct qm_lowrank l = lowrank_of(a);
    struct qm_lowrank whole = l;
    int64_t channels = l.right ? l.rows : l.cols, n = l.rows * l.cols;
    int is_one = (a->h->tensor_scale ? a->n : a->n / channels) == 1;
    size_t bytes = sizeof(double) * (size_t)channels;
    double *here = malloc(2 * bytes + 1);
    void *room = NULL;
    qm_status st = here ? qm_tensor_rule_alloc(
                              2 * bytes + 3 * sizeof(double) + sizeof(float) * (size_t)n, &room)
                        : qm_fail(QM_NO_MEMORY, "%lld channels", (long long)channels);
    double *factor = room;
    float *low = room ? (float *)(factor + 2 * channels + 3) : NULL;
    if (st == QM_OK)
        st = project(a, &l, low);
    if (st == QM_OK) {
        scaling_factors(a, &l, low, factor);
        whole.rows = l.m;
        whole.cols = l.n;
        struct qm_sweep s = qm_lowrank_sweep(&whole, l.right);
        s.flag[QM_CHANNEL_SQUARES_SINGLE] = !is_one;
        s.x[1] = u;
        s.y[0] = factor + channels;
        qm_sweep_run(QM_SWEEP_channel_squares, &s);
        qm_tensor_rule_read(here, factor, 2 * bytes);
        limit_channels(a, &(struct channels){channels, is_one, here, here + channels}, alpha);
        qm_tensor_rule_write(factor, here, bytes);
        qm_lowrank_channels(&l, l.right, 0, factor, u, u);
    }
    qm_tensor_rule_free(room);
    free(here);
    return st;
}

qm_status qm_adafactor8_apollo_apply(const struct qm_adafactor8 *a)
{
    double alpha = 0.0;
    QM_TRY(scaled(a, a->w->room, &alpha));
    qm_adafactor8_write(a, alpha, 1.0, a->w->room);
    return QM_OK;
}
