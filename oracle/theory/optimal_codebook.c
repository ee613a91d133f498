/* optimal_codebook.c - Solves Lloyd's conditions by Newton's method. */
#include "oracle/theory/optimal_codebook.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, ROUNDS = 400, LLOYD_STEPS = 25, START_NODES = 20000 };
#define FLAT (-1e-7) /* a relative pivot above this counts as not negative */

static const struct {
    const char *name;
    int power, error;
} losses[] = {
#define X(name, power, error, text) {#name, power, error},
    QM_LOSS_LIST(X)
#undef X
};

/* The levels while they are optimized. */
struct design {
    const struct qm_unit_law *m;
    int n, squared;
    int mirrored; /* symmetric levels, the decision between the middle two held at 0 */
    int held[MOST];
    double value[MOST];
};

/* The loss and its derivatives with respect to the levels; off[k]: with respect to levels k and
 * k + 1. */
struct slope {
    double loss, gradient[MOST], diagonal[MOST], off[MOST];
};

/* ---- cells ----------------------------------------------------------------------------------- */

static double low_end(const double *v, int k)
{
    return k > 0 ? 0.5 * (v[k - 1] + v[k]) : -HUGE_VAL;
}

static double high_end(const struct design *d, const double *v, int k)
{
    return k + 1 < d->n ? 0.5 * (v[k] + v[k + 1]) : HUGE_VAL;
}

/* The integral of u^j over (a, b], atoms included. */
static double moment(const struct design *d, int j, double a, double b)
{
    double top = qm_unit_law_top(d->m), atom = qm_unit_law_atom(d->m);
    double sum = qm_unit_law_moment(d->m, j, a, b);
    if (a < top && top <= b)
        sum += atom;
    if (qm_unit_law_sign(d->m) && a < -top && -top <= b)
        sum += j % 2 ? -atom : atom;
    return sum;
}

/* The median of a cell, by bisection. */
static double median(const struct design *d, double a, double b)
{
    double top = qm_unit_law_top(d->m), half = 0.5 * moment(d, 0, a, b);
    double low = fmax(a, qm_unit_law_sign(d->m) ? -top : 0.0), high = fmin(b, top);
    for (int i = 0; i < 100 && low < high; i++) {
        double mid = 0.5 * (low + high);
        if (moment(d, 0, a, mid) < half)
            low = mid;
        else
            high = mid;
    }
    return high;
}

/* The level that Lloyd's second condition demands for cell k: its centroid or median; held levels
 * and empty cells keep theirs. */
static double wanted(const struct design *d, const double *v, int k)
{
    double a = low_end(v, k), b = high_end(d, v, k), mass = moment(d, 0, a, b);
    if (d->held[k] || !(mass > 0.0))
        return v[k];
    return d->squared ? moment(d, 1, a, b) / mass : median(d, a, b);
}

/* Loss, gradient and Hessian.  The errors on both sides of a decision half way are equal, so the
 * movement of the decisions enters the second derivatives only. */
static void slope_of(const struct design *d, const double *v, struct slope *s)
{
    s->loss = 0.0;
    for (int k = 0; k < d->n; k++) {
        double a = low_end(v, k), b = high_end(d, v, k);
        double half_a = k > 0 ? v[k] - a : 0.0, half_b = k + 1 < d->n ? b - v[k] : 0.0;
        int moves_a = k > 0 && !(d->mirrored && 2 * k == d->n);
        int moves_b = k + 1 < d->n && !(d->mirrored && 2 * k + 2 == d->n);
        double w_a = moves_a ? qm_unit_law_density(d->m, a) : 0.0;
        double w_b = moves_b ? qm_unit_law_density(d->m, b) : 0.0;
        if (d->squared) {
            double w0 = moment(d, 0, a, b), w1 = moment(d, 1, a, b), w2 = moment(d, 2, a, b);
            s->loss += w2 - 2.0 * v[k] * w1 + v[k] * v[k] * w0;
            s->gradient[k] = 2.0 * (v[k] * w0 - w1);
            s->diagonal[k] = 2.0 * w0 - half_a * w_a - half_b * w_b;
            s->off[k] = -half_b * w_b;
        } else {
            double below = moment(d, 0, a, v[k]), above = moment(d, 0, v[k], b);
            s->loss += v[k] * (below - above) + moment(d, 1, v[k], b) - moment(d, 1, a, v[k]);
            s->gradient[k] = below - above;
            s->diagonal[k] = 2.0 * qm_unit_law_density(d->m, v[k]) - 0.5 * (w_a + w_b);
            s->off[k] = -0.5 * w_b;
        }
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Solves Hessian * step = -gradient over the free levels; returns the smallest ratio of a pivot to
 * its diagonal entry (not positive: the Hessian is not positive definite, and step is not set). */
static double newton(const struct design *d, const struct slope *s, double *step)
{
    double pivot[MOST], least = HUGE_VAL;
    for (int k = 0; k < d->n; k++) {
        double link = k > 0 && !d->held[k] && !d->held[k - 1] ? s->off[k - 1] / pivot[k - 1] : 0.0;
        pivot[k] = d->held[k] ? 1.0 : s->diagonal[k] - (link != 0.0 ? link * s->off[k - 1] : 0.0);
        step[k] = d->held[k] ? 0.0 : -s->gradient[k] - (link != 0.0 ? link * step[k - 1] : 0.0);
        if (!d->held[k])
            least = fmin(least, pivot[k] / s->diagonal[k]);
        if (!(least > 0.0))
            return least;
    }
    for (int k = d->n - 1; k >= 0; k--) {
        int linked = k + 1 < d->n && !d->held[k] && !d->held[k + 1];
        step[k] = (step[k] - (linked ? s->off[k] * step[k + 1] : 0.0)) / pivot[k];
    }
    return least;
}

/* The largest distance of a level from the one that Lloyd's second condition demands. */
static double residual(const struct design *d)
{
    double most = 0.0;
    for (int k = 0; k < d->n; k++)
        most = fmax(most, fabs(wanted(d, d->value, k) - d->value[k]));
    return most;
}

static void lloyd(struct design *d)
{
    double next[MOST];
    for (int i = 0; i < LLOYD_STEPS; i++) {
        for (int k = 0; k < d->n; k++)
            next[k] = wanted(d, d->value, k);
        memcpy(d->value, next, sizeof next[0] * (size_t)d->n);
    }
}

/* Moves the levels by `step` and returns 1 if they still ascend and the loss does not grow;
 * else 0. */
static int try_step(struct design *d, const double *step, double loss)
{
    struct slope s;
    double next[MOST];
    for (int k = 0; k < d->n; k++) {
        next[k] = d->value[k] + step[k];
        if (k > 0 && !(next[k] > next[k - 1]))
            return 0;
    }
    slope_of(d, next, &s);
    if (!(s.loss <= loss * (1.0 + 1e-12)))
        return 0;
    memcpy(d->value, next, sizeof next[0] * (size_t)d->n);
    return 1;
}

/* Iterates from the present levels to a minimum; 0: no convergence. */
static int solve(struct design *d)
{
    struct slope s;
    double step[MOST];
    for (int round = 0; round < ROUNDS; round++) {
        double change = 0.0, scale = fmax(fabs(d->value[0]), fabs(d->value[d->n - 1]));
        slope_of(d, d->value, &s);
        if (newton(d, &s, step) > 0.0 && try_step(d, step, s.loss)) {
            for (int k = 0; k < d->n; k++)
                change = fmax(change, fabs(step[k]));
            if (change <= 1e-12 * scale)
                return 1;
        } else
            lloyd(d);
    }
    return 0;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* `count` ascending levels on (0, top): quantiles of the density to the power 1/3 (1/2 for absolute
 * errors), the spacing of the optimum as n grows.  Nodes are evenly spaced in log2 u, so that heavy
 * tails and densities that are unbounded at 0 are both resolved. */
static void spread(const struct design *d, int count, double *level)
{
    double power = d->squared ? 1.0 / 3.0 : 0.5, whole = 0.0, sum = 0.0;
    double octaves = 40.0 + log2(qm_unit_law_top(d->m));
    int k = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = START_NODES - 1; i >= 0; i--) {
            double down = octaves * (i + 0.5) / START_NODES;
            double u = qm_unit_law_top(d->m) * exp2(-down);
            double here = u * pow(fmax(qm_unit_law_density(d->m, u), 0.0), power);
            if (pass == 0)
                whole += here;
            for (sum += pass * here; pass && k < count && sum >= whole * (k + 0.5) / count; k++)
                level[k] = u;
        }
    for (; k < count; k++)
        level[k] = qm_unit_law_top(d->m);
    for (k = 1; k < count; k++) /* several levels at one node */
        if (!(level[k] > level[k - 1]))
            level[k] = nextafter(level[k - 1], HUGE_VAL) * (1.0 + 1e-9);
}

/* Sets the start.  middle: one level is at 0; else an even number of levels starts symmetric. */
static void start(struct design *d, unsigned hold, int middle)
{
    double side[MOST];
    int sign = qm_unit_law_sign(d->m), n = d->n, more = n - middle;
    int left = sign ? more / 2 : 0, right = more - left;
    memset(d->held, 0, sizeof d->held);
    if (left > 0)
        spread(d, left, side);
    for (int k = 0; k < left; k++)
        d->value[left - 1 - k] = -side[k];
    if (middle) {
        d->value[left] = 0.0;
        d->held[left] = (hold & QM_HOLD_ZERO) != 0;
    }
    spread(d, right, d->value + left + middle);
    if (hold & QM_HOLD_ENDS) {
        d->value[n - 1] = 1.0;
        d->held[n - 1] = 1;
        if (sign) {
            d->value[0] = -1.0;
            d->held[0] = 1;
        }
    }
}

/* The better of the minima reached from the starts with and without a level at 0.  With an even
 * number of levels the symmetric point is a saddle where the law is more peaked than Laplace's; for
 * Laplace's law the loss does not depend on the middle decision, so that pivot may be 0. */
static qm_status design(struct design *d, unsigned hold, struct qm_optimum *o)
{
    int zero = (hold & QM_HOLD_ZERO) != 0, sign = qm_unit_law_sign(d->m);
    o->loss = HUGE_VAL;
    for (int middle = zero; middle <= (zero || sign); middle++) {
        struct slope s;
        double step[MOST];
        start(d, hold, middle);
        d->mirrored = sign && !middle && d->n % 2 == 0;
        int found = solve(d);
        for (int k = 0; d->mirrored && 2 * k < d->n; k++) { /* symmetric up to rounding */
            d->value[d->n - 1 - k] = 0.5 * (d->value[d->n - 1 - k] - d->value[k]);
            d->value[k] = -d->value[d->n - 1 - k];
        }
        d->mirrored = 0;
        slope_of(d, d->value, &s);
        double pivot = newton(d, &s, step);
        if (!found || !(pivot > FLAT) || !(s.loss < o->loss * (1.0 - 1e-9)))
            continue;
        o->loss = s.loss;
        o->pivot = fmax(pivot, 0.0);
        o->residual = residual(d);
        for (int k = 0; k < d->n; k++) {
            o->value[k] = d->value[k];
            o->held[k] = d->held[k];
            if (k > 0)
                o->cut[k - 1] = low_end(d->value, k);
        }
    }
    return o->loss < HUGE_VAL ? QM_OK : qm_fail(QM_INTERNAL, "%d levels: no convergence", d->n);
}

/* ---- public ---------------------------------------------------------------------------------- */

static qm_status check(const struct qm_law *law, int64_t block, int n, unsigned hold,
                       enum qm_loss loss)
{
    QM_TRY(qm_law_check(law));
    int held = (hold & QM_HOLD_ENDS ? 1 + qm_law_sign(law) : 0) + (hold & QM_HOLD_ZERO ? 1 : 0);
    if ((int)loss < 0 || loss >= QM_LOSS_COUNT)
        return qm_fail(QM_BAD_ARG, "loss %d is not in the list", (int)loss);
    if (n < 2 || n > MOST || n < held)
        return qm_fail(QM_BAD_ARG, "%d levels, expected 2 to %d, and at least the %d held", n, MOST,
                       held);
    if (hold & QM_HOLD_ENDS && block == 0)
        return qm_fail(QM_BAD_ARG, "without blocks there are no ends to hold");
    if (!(hold & QM_HOLD_ENDS) && block > 0 && losses[loss].error == 1)
        return qm_fail(QM_BAD_ARG, "absolute errors with blocks: the ends must be held");
    return QM_OK;
}

qm_status qm_optimal(const struct qm_law *law, int64_t block, int n, unsigned hold,
                     enum qm_loss loss, struct qm_optimum *out)
{
    struct qm_optimum o = {.n = n};
    struct qm_unit_law *m;
    QM_TRY(check(law, block, n, hold, loss));
    QM_TRY(qm_unit_law_open(law, block, losses[loss].power, &m));
    struct design d = {.m = m, .n = n, .squared = losses[loss].error == 2};
    qm_status st = design(&d, hold, &o);
    qm_unit_law_close(m);
    if (st == QM_OK)
        *out = o;
    return st;
}

double qm_optimal_loss(const struct qm_unit_law *m, enum qm_loss loss, const double *value, int n)
{
    struct design d = {.m = m, .n = n, .squared = losses[loss].error == 2};
    struct slope s;
    slope_of(&d, value, &s);
    return s.loss;
}

int qm_loss_power(enum qm_loss loss) { return losses[loss].power; }
int qm_loss_is_squared(enum qm_loss loss) { return losses[loss].error == 2; }
const char *qm_loss_name(enum qm_loss loss) { return losses[loss].name; }

double qm_shannon_bound(const struct qm_law *law, double bits)
{
    return exp(2.0 * (qm_law_entropy(law) - bits * M_LN2) - 1.0) / (2.0 * M_PI) /
           qm_law_square(law);
}
