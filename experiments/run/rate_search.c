/* rate_search.c - Searches learning rates on a grid of 8 per decade. */
#include "experiments/run/rate_search.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A search starts at every fourth rate, and halves the stride around the best. */
enum { FIRST_STRIDE = 4 };

double qm_rate_at(int k) { return k ? pow(10.0, (double)k / QM_RATES_PER_DECADE) : 1.0; }

void qm_rate_unit_start(struct qm_rate_unit *u, int centre, int reach)
{
    u->centre = u->best = u->chosen = centre;
    u->reach = reach;
    u->is_edge = 0;
    for (int k = -QM_RATE_MOST; k <= QM_RATE_MOST; k++)
        u->point[QM_RATE_MOST + k] = (struct qm_rate_point){qm_rate_at(k), nan(""), nan("")};
}

static int is_wanted(const struct qm_rate_unit *u, int k)
{
    return abs(k) <= QM_RATE_MOST && isnan(u->point[QM_RATE_MOST + k].loss);
}

static int is_better(const struct qm_rate_unit *u, int k, int than)
{
    double x = u->point[QM_RATE_MOST + k].loss, y = u->point[QM_RATE_MOST + than].loss;
    int near = abs(k - u->centre) - abs(than - u->centre);
    return isnan(y) || x < y || (x == y && (near < 0 || (near == 0 && k < than)));
}

int qm_rate_next(struct qm_rate_unit *u, int *k)
{
    int n = 0, any = 0;
    u->best = u->centre;
    for (int i = -QM_RATE_MOST; i <= QM_RATE_MOST; i++)
        if (!isnan(u->point[QM_RATE_MOST + i].loss)) {
            any = 1;
            u->best = is_better(u, i, u->best) ? i : u->best;
        }
    for (int i = u->centre - u->reach; !any && i <= u->centre + u->reach; i += FIRST_STRIDE)
        if (is_wanted(u, i))
            k[n++] = i;
    for (int distance = FIRST_STRIDE; any && n == 0 && distance >= 1; distance /= 2)
        for (int side = -1; side <= 1; side += 2)
            if (is_wanted(u, u->best + side * distance))
                k[n++] = u->best + side * distance;
    u->is_edge = n == 0 && abs(u->best) == QM_RATE_MOST;
    return n;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* How many steps of the grid lie between two rates. */
static long steps_between(double a, double b)
{
    return labs(lround(QM_RATES_PER_DECADE * log10(a / b)));
}

int qm_rate_choose(const struct qm_rate_point *point, int n, double near)
{
    int lowest = -1;
    for (int i = 0; i < n; i++)
        if (point[i].loss < (lowest < 0 ? HUGE_VAL : point[lowest].loss))
            lowest = i;
    int chosen = lowest;
    for (int i = 0; near > 0.0 && lowest >= 0 && i < n; i++) {
        if (!(point[i].loss <= point[lowest].loss + point[i].margin))
            continue;
        long nearer = steps_between(point[chosen].rate, near) - steps_between(point[i].rate, near);
        if (nearer > 0 || (nearer == 0 && point[i].loss < point[chosen].loss))
            chosen = i;
    }
    return chosen;
}

double qm_rate_rounded(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", x);
    return strtod(text, NULL);
}

/* The margin of the scores of a rate beside those of the lowest. */
static double margin(const double *score, const double *lowest, int seeds)
{
    double mean = 0.0, square = 0.0;
    if (seeds == 1)
        return 0.0;
    for (int i = 0; i < seeds; i++)
        mean += (score[i] - lowest[i]) / seeds;
    for (int i = 0; i < seeds; i++)
        square += (score[i] - lowest[i] - mean) * (score[i] - lowest[i] - mean);
    return gsl_cdf_tdist_Pinv(0.975, seeds - 1) * sqrt(square / (seeds - 1) / seeds);
}

static void end_search(struct qm_rate_unit *u, int seeds)
{
    const double *lowest = u->score + (size_t)(QM_RATE_MOST + u->best) * (size_t)seeds;
    for (int i = 0; i < QM_RATE_POINTS; i++)
        if (!isnan(u->point[i].loss))
            u->point[i].margin =
                qm_rate_rounded(margin(u->score + (size_t)i * (size_t)seeds, lowest, seeds));
    u->chosen = u->best;
    int chosen = qm_rate_choose(u->point, QM_RATE_POINTS, u->is_twin ? 0 : qm_rate_at(u->centre));
    if (!u->is_twin && !u->is_edge && chosen >= 0)
        u->chosen = chosen - QM_RATE_MOST;
    free(u->score);
    u->score = NULL;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* The cells of one round: `seeds` ones for each rate that a unit wants. */
struct round {
    struct qm_cell *cell;
    int *unit, *k;
    int64_t n;
};

static void add_cells(struct round *r, const struct qm_rate_unit *u, int unit, int k,
                      uint64_t first_seed, int seeds)
{
    for (int s = 0; s < seeds; s++) {
        struct qm_cell *c = &r->cell[r->n];
        *c = *u->like;
        c->index = r->n;
        c->recipe = u->recipe;
        c->slot = 0;
        c->seed = first_seed + (uint64_t)s;
        c->rounding_seed = 0;
        c->lr_scale = 1.0;
        c->rate = qm_rate_at(k);
        c->every = 0;
        c->start_ulp = 0;
        r->unit[r->n] = unit;
        r->k[r->n++] = k;
    }
}

/* The score of a run: log10 of its late gap; infinite where it failed. */
static double score(const struct qm_rate_unit *u, const struct qm_outcome *o)
{
    int which = u->is_twin ? QM_EXTRA_twin_late_gap : QM_EXTRA_late_gap;
    double gap = o->reason ? nan("") : o->value[qm_metric_count() + which];
    return isfinite(gap) ? log10(gap) : HUGE_VAL;
}

static qm_status run_round(const struct qm_suite *s, struct qm_rate_unit *unit, struct round *r,
                           int seeds, int threads, const volatile sig_atomic_t *stop)
{
    struct qm_results out;
    QM_TRY(qm_results_run(s, r->cell, r->n, threads, 1, stop, &out));
    for (int64_t i = 0; i < r->n; i += seeds) {
        struct qm_rate_unit *u = &unit[r->unit[i]];
        int at = QM_RATE_MOST + r->k[i];
        double sum = 0.0, *own = u->score + (size_t)at * (size_t)seeds;
        for (int j = 0; j < seeds; j++)
            sum += own[j] = score(u, &out.outcome[i + j]);
        u->point[at].loss = qm_rate_rounded(sum / seeds);
    }
    qm_results_free(&out);
    return QM_OK;
}

qm_status qm_rates_search(const struct qm_suite *s, struct qm_rate_unit *unit, int n,
                          uint64_t first_seed, int seeds, int threads,
                          const volatile sig_atomic_t *stop)
{
    int k[QM_RATE_POINTS];
    size_t room = (size_t)n * 2 * QM_RATE_POINTS * (size_t)seeds + 1;
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < n; i++) {
        unit[i].score = calloc((size_t)QM_RATE_POINTS * (size_t)seeds, sizeof(double));
        st = unit[i].recipe && unit[i].score ? QM_OK : qm_fail(QM_NO_MEMORY, "rates");
    }
    for (int more = 1; st == QM_OK && more;) {
        struct round r = {.unit = calloc(room, sizeof *r.unit), .k = calloc(room, sizeof *r.k)};
        int wanted = 0;
        for (int i = 0; i < n; i++)
            wanted += qm_rate_next(&unit[i], k);
        r.cell = calloc((size_t)wanted * (size_t)seeds + 1, sizeof *r.cell);
        more = wanted > 0;
        if (!r.unit || !r.k || !r.cell)
            st = qm_fail(QM_NO_MEMORY, "rates");
        for (int i = 0; st == QM_OK && i < n; i++)
            for (int j = 0, m = qm_rate_next(&unit[i], k); j < m; j++)
                add_cells(&r, &unit[i], i, k[j], first_seed, seeds);
        if (st == QM_OK && more)
            st = run_round(s, unit, &r, seeds, threads, stop);
        free(r.cell);
        free(r.unit);
        free(r.k);
    }
    for (int i = 0; i < n; i++)
        if (st == QM_OK)
            end_search(&unit[i], seeds);
        else
            free(unit[i].score);
    return st;
}
