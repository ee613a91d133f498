/* unit_law.c - Tabulates the weighted law of the unit value and integrates over it. */
#include "oracle/theory/unit_law.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_integration.h>
#include <math.h>
#include <stdlib.h>

enum { NODES = 16, MOMENTS = 3, FINE = 16, FINE_OCTAVES = 4, COARSE = 2, LAST_OCTAVE = -120 };

/* Panels descend from the top; panel 0 is the outermost. */
struct panel {
    double low, high;
    double series[MOMENTS][NODES];         /* Legendre coefficients of u^j times the density */
    double below[MOMENTS], above[MOMENTS]; /* integrals over all panels below and above this one */
};

/* A value m of the block maximum and its weight in the density. */
struct maximum {
    double m, weight;
};

struct qm_unit_law {
    int sign, n;
    double top, atom;
    struct panel *panel;
};

/* P_0 .. P_n of s in [-1, 1]. */
static void legendre(double s, int n, double *p)
{
    p[0] = 1.0;
    p[1] = s;
    for (int l = 1; l < n; l++)
        p[l + 1] = ((2 * l + 1) * s * p[l] - l * p[l - 1]) / (l + 1);
}

/* The integral over a whole panel. */
static double whole(const struct panel *p, int j) { return (p->high - p->low) * p->series[j][0]; }

/* ---- building -------------------------------------------------------------------------------- */

/* The maxima that are not negligible, with weight P(M in dm) m^(power + 1) (B - 1) / B / G(m), and
 * the atom; returns their number. */
static int64_t maxima(const struct qm_law *law, int64_t block, int power, double *atom,
                      struct maximum *out, const gsl_integration_glfixed_table *table)
{
    double low, high, step, b = (double)block, sum = 0.0;
    int64_t n = 0, kept = 0;
    qm_law_range(law, &low, &high, &step);
    int panels = (int)ceil((high - low) * 2.0 / step);
    for (int p = 0; p < panels; p++)
        for (size_t i = 0; i < table->n; i++) {
            double z, weight, below;
            double length = (high - low) / panels;
            gsl_integration_glfixed_point(low + length * p, low + length * (p + 1), i, &z, &weight,
                                          table);
            below = qm_law_log_cdf(law, z);
            double m = qm_law_at(law, z), g = weight * qm_law_density(law, z) * pow(m, power);
            sum += g * exp((b - 1.0) * below);
            out[n++] = (struct maximum){m, (b - 1.0) * g * m * exp((b - 2.0) * below)};
        }
    for (int64_t i = 0; i < n; i++) /* weight / m is a part of E M^power, up to a factor B / G */
        if (out[i].weight > 1e-19 * sum * out[i].m)
            out[kept++] = out[i];
    *atom = sum;
    return kept;
}

/* The density at u > 0, summed over the maxima; without blocks (n = 0) that of |x|. */
static double density(const struct qm_law *law, const struct maximum *m, int64_t n, double u)
{
    double sum = 0.0;
    if (n == 0)
        return qm_law_pdf(law, u);
    for (int64_t i = 0; i < n; i++)
        sum += m[i].weight * qm_law_pdf(law, m[i].m * u);
    return sum;
}

static void fill_panel(struct panel *p, const struct qm_law *law, const struct maximum *m,
                       int64_t n, const gsl_integration_glfixed_table *table)
{
    for (size_t i = 0; i < NODES; i++) {
        double s, weight, basis[NODES + 1];
        gsl_integration_glfixed_point(-1.0, 1.0, i, &s, &weight, table);
        double u = 0.5 * (p->low + p->high) + 0.5 * (p->high - p->low) * s;
        double w = density(law, m, n, u) * weight;
        legendre(s, NODES, basis);
        for (int j = 0; j < MOMENTS; j++, w *= u)
            for (int l = 0; l < NODES; l++)
                p->series[j][l] += 0.5 * (2 * l + 1) * w * basis[l];
    }
}

/* FINE panels per octave in the top FINE_OCTAVES, COARSE below, down to 2^LAST_OCTAVE; the last
 * panel extends to 0. */
static qm_status panels_make(struct qm_unit_law *out)
{
    int octaves = (int)ceil(log2(out->top)) - LAST_OCTAVE, fine = FINE * FINE_OCTAVES;
    out->n = fine + COARSE * (octaves - FINE_OCTAVES);
    if (!(out->panel = calloc((size_t)out->n, sizeof *out->panel)))
        return qm_fail(QM_NO_MEMORY, "a law on %d panels", out->n);
    for (int i = 0; i <= out->n; i++) {
        double down = i <= fine ? (double)i / FINE : FINE_OCTAVES + (double)(i - fine) / COARSE;
        double at = out->top * exp2(-down);
        if (i < out->n)
            out->panel[i].high = at;
        if (i > 0)
            out->panel[i - 1].low = i < out->n ? at : 0.0;
    }
    return QM_OK;
}

static qm_status build(const struct qm_law *law, int64_t block, int power, struct qm_unit_law *out)
{
    double low, high, step;
    gsl_set_error_handler_off();
    qm_law_range(law, &low, &high, &step);
    out->sign = qm_law_sign(law);
    out->top = block > 0 ? 1.0 : qm_law_at(law, high);
    gsl_integration_glfixed_table *table = gsl_integration_glfixed_table_alloc(NODES);
    size_t room = (size_t)ceil((high - low) * 2.0 / step) * NODES;
    struct maximum *m = calloc(room, sizeof *m);
    qm_status st = table && m ? panels_make(out) : qm_fail(QM_NO_MEMORY, "maxima of blocks");
    if (st == QM_OK) {
        int64_t n = block > 0 ? maxima(law, block, power, &out->atom, m, table) : 0;
        for (int i = 0; i < out->n; i++)
            fill_panel(&out->panel[i], law, m, n, table);
    }
    for (int j = 0; st == QM_OK && j < MOMENTS; j++) {
        for (int i = out->n - 2; i >= 0; i--)
            out->panel[i].below[j] = out->panel[i + 1].below[j] + whole(&out->panel[i + 1], j);
        for (int i = 1; i < out->n; i++)
            out->panel[i].above[j] = out->panel[i - 1].above[j] + whole(&out->panel[i - 1], j);
    }
    free(m);
    if (table)
        gsl_integration_glfixed_table_free(table);
    return st;
}

qm_status qm_unit_law_open(const struct qm_law *law, int64_t block, int power,
                           struct qm_unit_law **out)
{
    QM_TRY(qm_law_check(law));
    if (block < 0 || block == 1 || power < 0 || power > 2)
        return qm_fail(QM_BAD_ARG, "block %lld, power %d of its maximum", (long long)block, power);
    if (law->kind == QM_LAW_student && law->shape <= (block > 0 ? power : 2))
        return qm_fail(QM_BAD_ARG, "student: the error of %g degrees of freedom is infinite",
                       law->shape);
    struct qm_unit_law *m = calloc(1, sizeof *m);
    if (!m)
        return qm_fail(QM_NO_MEMORY, "the law of a unit value");
    qm_status st = build(law, block, power, m);
    if (st == QM_OK)
        *out = m;
    else
        qm_unit_law_close(m);
    return st;
}

void qm_unit_law_close(struct qm_unit_law *m)
{
    if (m)
        free(m->panel);
    free(m);
}

/* ---- reading --------------------------------------------------------------------------------- */

static const struct panel *panel_of(const struct qm_unit_law *m, double u)
{
    int from = 0, to = m->n - 1; /* u lies in a panel of [from, to]; panels descend */
    while (from < to) {
        int mid = (from + to) / 2;
        if (u < m->panel[mid].low)
            from = mid + 1;
        else
            to = mid;
    }
    return &m->panel[from];
}

static double place(const struct panel *p, double u)
{
    return (2.0 * u - p->low - p->high) / (p->high - p->low);
}

/* The integral over panel p from its lower end to u. */
static double part(const struct panel *p, int j, double u)
{
    double basis[NODES + 1], s = place(p, u), sum = p->series[j][0] * (s + 1.0);
    legendre(s, NODES, basis);
    for (int l = 1; l < NODES; l++) /* the integral of P_l from -1 to s */
        sum += p->series[j][l] * (basis[l + 1] - basis[l - 1]) / (2 * l + 1);
    return 0.5 * (p->high - p->low) * sum;
}

/* The integral over 0 <= a <= b.  The panels between are a difference of two sums, taken from the
 * side where the sums are smaller. */
static double between(const struct qm_unit_law *m, int j, double a, double b)
{
    a = fmin(a, m->top);
    b = fmin(b, m->top);
    const struct panel *p = panel_of(m, a), *q = panel_of(m, b);
    if (!(a < b))
        return 0.0;
    if (p == q)
        return part(p, j, b) - part(p, j, a);
    double inner = q->below[j] < p->above[j] ? q->below[j] - p->below[j] - whole(p, j)
                                             : p->above[j] - q->above[j] - whole(q, j);
    return whole(p, j) - part(p, j, a) + inner + part(q, j, b);
}

double qm_unit_law_moment(const struct qm_unit_law *m, int j, double a, double b)
{
    double right = between(m, j, fmax(a, 0.0), fmax(b, 0.0)), left;
    if (!m->sign)
        return right;
    left = between(m, j, fmax(-b, 0.0), fmax(-a, 0.0));
    return 0.5 * (right + (j % 2 ? -left : left));
}

double qm_unit_law_density(const struct qm_unit_law *m, double u)
{
    double basis[NODES + 1], sum = 0.0;
    if (fabs(u) > m->top || (u < 0.0 && !m->sign))
        return 0.0;
    const struct panel *p = panel_of(m, fabs(u));
    legendre(place(p, fabs(u)), NODES, basis);
    for (int l = 0; l < NODES; l++)
        sum += p->series[0][l] * basis[l];
    return m->sign ? 0.5 * sum : sum;
}

double qm_unit_law_top(const struct qm_unit_law *m) { return m->top; }
double qm_unit_law_atom(const struct qm_unit_law *m) { return m->sign ? 0.5 * m->atom : m->atom; }
int qm_unit_law_sign(const struct qm_unit_law *m) { return m->sign; }
