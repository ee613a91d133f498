/* expected_error.c - Expected errors by Gauss-Legendre quadrature; two closed forms of averages. */
#include "oracle/theory/expected_error.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_integration.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_ENTRIES = 65536 };

struct work {
    const struct qm_law *law;
    const double *value, *cut;
    int n;
    double low, high, step; /* of the law's variable */
    gsl_integration_glfixed_table *few, *some, *many;
    double *mass;  /* [n]: probability of each code among the elements below one maximum */
    double *total; /* [n]: probability of each code */
};

/* Integrals over the elements below one maximum; rho: of (sqrt(x / x^) - 1)^2. */
struct sums {
    double square, abs, bias, rho, zero;
};

/* The positions that x may get: lo, or with stochastic rounding hi, too (chance_up). */
struct cell {
    int lo, hi;
};

static double chance_up(const struct work *w, struct cell c, double u)
{
    double low = w->value[c.lo], high = w->value[c.hi];
    return c.lo == c.hi ? 0.0 : (u - low) / (high - low);
}

/* Adds probability `mass` of the value x that gets code k at scale m. */
static void add_outcome(const struct work *w, int k, double mass, double x, double m,
                        struct sums *s)
{
    double c = m * w->value[k], e = c - x, r = c > 0.0 ? sqrt(x / c) - 1.0 : 0.0;
    w->mass[k] += mass;
    s->square += mass * e * e;
    s->abs += mass * fabs(e);
    s->bias += mass * e;
    s->rho += mass * r * r;
    s->zero += c == 0.0 ? mass : 0.0;
}

/* Adds the values sign * |x| of one cell, z in [from, to], at scale m. */
static void add_cell(const struct work *w, struct cell c, double sign, double from, double to,
                     double m, struct sums *s)
{
    double chance = qm_law_sign(w->law) ? 0.5 : 1.0;
    int panels = (int)ceil((to - from) / w->step);
    const gsl_integration_glfixed_table *table = to - from < 0.1 * w->step ? w->few : w->some;
    for (int p = 0; p < panels; p++) {
        double a = from + (to - from) * p / panels, b = from + (to - from) * (p + 1) / panels;
        for (size_t i = 0; i < table->n; i++) {
            double z, weight;
            gsl_integration_glfixed_point(a, b, i, &z, &weight, table);
            double x = sign * qm_law_at(w->law, z), up = chance_up(w, c, x / m);
            double mass = chance * weight * qm_law_density(w->law, z);
            add_outcome(w, c.lo, mass * (1.0 - up), x, m, s);
            if (c.hi != c.lo)
                add_outcome(w, c.hi, mass * up, x, m, s);
        }
    }
}

/* Integrates a cell in two parts, because |e| has a kink at the code's value. */
static void add_split_cell(const struct work *w, struct cell c, double sign, double from, double to,
                           double m, struct sums *s)
{
    double x = sign * m * w->value[c.lo];
    double kink = x > 0.0 ? qm_law_inverse(w->law, x) : from;
    kink = kink > from ? kink : from;
    kink = kink < to ? kink : to;
    if (kink > from)
        add_cell(w, c, sign, from, kink, m, s);
    if (to > kink)
        add_cell(w, c, sign, kink, to, m, s);
}

/* The number of cells: intervals between decisions, or between values where rounding
 * is stochastic. */
static int cells(const struct work *w) { return w->cut ? w->n : w->n + 1; }

/* Cell k and its ends. */
static struct cell cell_at(const struct work *w, int k, double *below, double *above)
{
    const double *end = w->cut ? w->cut : w->value;
    struct cell c = {k, k};
    *below = k > 0 ? end[k - 1] : -HUGE_VAL;
    *above = k + 1 < cells(w) ? end[k] : HUGE_VAL;
    if (!w->cut) {
        c.lo = k > 0 ? k - 1 : 0;
        c.hi = k < w->n ? k : w->n - 1;
    }
    return c;
}

/* Integrates over z in [w->low, high] at scale m, into s and w->mass. */
static void add_elements(const struct work *w, double m, double high, struct sums *s)
{
    for (int k = 0; k < w->n; k++)
        w->mass[k] = 0.0;
    for (int side = 0; side <= qm_law_sign(w->law); side++)
        for (int k = 0; k < cells(w); k++) {
            double below, above;
            struct cell c = cell_at(w, k, &below, &above);
            double a = side ? -above : below, b = side ? -below : above; /* |x| / m */
            double from = a > 0.0 ? qm_law_inverse(w->law, m * a) : w->low;
            double to = b <= 0.0 ? w->low : b < HUGE_VAL ? qm_law_inverse(w->law, m * b) : high;
            from = from > w->low ? from : w->low;
            to = to < high ? to : high;
            if (to > from)
                add_split_cell(w, c, side ? -1.0 : 1.0, from, to, m, s);
        }
}

static void add(const struct sums *s, double weight, double m, struct qm_theory *out)
{
    out->mse += weight * s->square;
    out->mean_abs += weight * s->abs;
    out->bias += weight * s->bias;
    out->unit_mse += weight * s->square / (m * m);
    out->unit_bias += weight * s->bias / m;
    out->rho += weight * s->rho;
    out->zero += weight * s->zero;
}

/* Adds probability `weight` of the value u m, u = 1 or -1: the maximum itself. */
static void add_point(const struct work *w, double weight, double u, double m,
                      struct qm_theory *out)
{
    struct sums s = {0};
    double below, above = -HUGE_VAL;
    struct cell c = {0, 0};
    for (int k = 0; k < cells(w) && u > above; k++)
        c = cell_at(w, k, &below, &above);
    double up = chance_up(w, c, u);
    for (int k = 0; k < w->n; k++)
        w->mass[k] = 0.0;
    add_outcome(w, c.lo, 1.0 - up, m * u, m, &s);
    add_outcome(w, c.hi, up, m * u, m, &s);
    add(&s, weight, m, out);
    w->total[c.lo] += weight * (1.0 - up);
    w->total[c.hi] += weight * up;
}

/* Adds probability `weight` of a block whose maximum is at z. */
static void add_block(const struct work *w, double weight, double z, int64_t block,
                      struct qm_theory *out)
{
    double m = qm_law_at(w->law, z), share = weight / (double)block;
    out->max1 += weight * m;
    out->max2 += weight * m * m;
    if (block > 1) {
        double rest = share * (double)(block - 1) * exp(-qm_law_log_cdf(w->law, z));
        struct sums s = {0};
        add_elements(w, m, z, &s);
        add(&s, rest, m, out);
        for (int k = 0; k < w->n; k++)
            w->total[k] += rest * w->mass[k];
    }
    if (qm_law_sign(w->law))
        add_point(w, 0.5 * share, -1.0, m, out);
    add_point(w, qm_law_sign(w->law) ? 0.5 * share : share, 1.0, m, out);
}

/* Integrates over the maximum, whose density is B g(z) G(z)^(B-1).  Nodes whose share of every sum
 * is below 1e-18 are left out. */
static void over_blocks(const struct work *w, int64_t block, struct qm_theory *out)
{
    double square = qm_law_square(w->law);
    int panels = (int)ceil((w->high - w->low) * 2.0 / w->step);
    double length = (w->high - w->low) / panels;
    for (int p = 0; p < panels; p++)
        for (size_t i = 0; i < w->many->n; i++) {
            double z, weight;
            gsl_integration_glfixed_point(w->low + length * p, w->low + length * (p + 1), i, &z,
                                          &weight, w->many);
            double m = qm_law_at(w->law, z);
            weight *= (double)block * qm_law_density(w->law, z) *
                      exp((double)(block - 1) * qm_law_log_cdf(w->law, z));
            if (weight > 1e-18 || weight * m * m > 1e-18 * square)
                add_block(w, weight, z, block, out);
        }
}

static void without_blocks(const struct work *w, struct qm_theory *out)
{
    struct sums s = {0};
    add_elements(w, 1.0, w->high, &s);
    add(&s, 1.0, 1.0, out);
    out->max1 = out->max2 = 1.0;
    for (int k = 0; k < w->n; k++)
        w->total[k] = w->mass[k];
}

static void finish(const struct work *w, struct qm_theory *out)
{
    for (int k = 0; k < w->n; k++)
        out->entropy -= w->total[k] > 0.0 ? w->total[k] * log2(w->total[k]) : 0.0;
    out->rho = qm_law_sign(w->law) ? (double)NAN : sqrt(out->rho);
    if (w->law->kind == QM_LAW_student && w->law->shape <= 2.0)
        out->mse = out->max2 = (double)NAN;
    if (w->law->kind == QM_LAW_student && w->law->shape <= 1.0)
        out->mean_abs = out->bias = out->max1 = (double)NAN;
    out->nmse = out->mse / qm_law_square(w->law);
    out->sqnr_db = -10.0 * log10(out->nmse);
}

static qm_status check(const struct qm_law *law, const double *value, const double *cut, int n,
                       int64_t block)
{
    QM_TRY(qm_law_check(law));
    if (n < 1 || n > MAX_ENTRIES)
        return qm_fail(QM_BAD_ARG, "codebook of %d entries, expected 1 to %d", n, MAX_ENTRIES);
    if (block < 0)
        return qm_fail(QM_BAD_ARG, "block of %lld elements", (long long)block);
    for (int k = 0; k < n; k++)
        if (!isfinite(value[k]) || (k > 0 && !(value[k - 1] <= value[k])))
            return qm_fail(QM_BAD_ARG, "codebook entry %d (%g) does not ascend", k, value[k]);
    for (int k = 0; cut && k + 1 < n; k++)
        if (!isfinite(cut[k]) || (k > 0 && !(cut[k - 1] <= cut[k])))
            return qm_fail(QM_BAD_ARG, "boundary %d (%g) does not ascend", k, cut[k]);
    return QM_OK;
}

qm_status qm_theory_block(const struct qm_law *law, const double *value, const double *cut, int n,
                          int64_t block, struct qm_theory *out)
{
    QM_TRY(check(law, value, cut, n, block));
    gsl_set_error_handler_off();
    struct work w = {.law = law, .value = value, .cut = cut, .n = n};
    struct qm_theory sum = {0};
    qm_law_range(law, &w.low, &w.high, &w.step);
    w.few = gsl_integration_glfixed_table_alloc(4);
    w.some = gsl_integration_glfixed_table_alloc(8);
    w.many = gsl_integration_glfixed_table_alloc(16);
    w.mass = calloc((size_t)n, sizeof *w.mass);
    w.total = calloc((size_t)n, sizeof *w.total);
    qm_status st = QM_OK;
    if (w.few && w.some && w.many && w.mass && w.total) {
        if (block > 0)
            over_blocks(&w, block, &sum);
        else
            without_blocks(&w, &sum);
        finish(&w, &sum);
        *out = sum;
    } else
        st = qm_fail(QM_NO_MEMORY, "quadrature over a codebook of %d entries", n);
    free(w.total);
    free(w.mass);
    if (w.many)
        gsl_integration_glfixed_table_free(w.many);
    if (w.some)
        gsl_integration_glfixed_table_free(w.some);
    if (w.few)
        gsl_integration_glfixed_table_free(w.few);
    return st;
}

void qm_theory_midpoints(const double *value, int n, double *cut)
{
    for (int k = 0; k + 1 < n; k++)
        cut[k] = 0.5 * (value[k] + value[k + 1]);
}

double qm_ema_steady(double beta, double nmse)
{
    double left = 1.0 - beta * beta * (1.0 + nmse);
    return left > 0.0 ? nmse / left : HUGE_VAL;
}

double qm_ema_dead_zone(double beta, double half_gap) { return half_gap / (1.0 - beta); }
