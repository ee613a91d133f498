/* profiles.c - Runtimes over problems, seeds and targets: ECDF, performance profiles, scores.
 *
 * E. Dolan, J. More, Math. Program. 91 (2002) 201, for the profiles; the score is AlgoPerf's
 * (arXiv:2306.07179) with tau up to 4. */
#include "experiments/lockstep/hitting_times.h"
#include "experiments/protocol/tables.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAUS = 65, MOST_TAU = 4 };

/* tau = 2^(i / 8), i = -32 ... 32: 1/16 to 16. */
static double tau_at(int i) { return exp2((double)(i - TAUS / 2) / 8.0); }

static double runtime(int64_t hit) { return hit < 0 ? HUGE_VAL : hit < 1 ? 1.0 : (double)hit; }

/* Whether a run counts in the score of its label: not the cells of the error budget, nor those at a
 * rate of their own. */
static int is_scored(const struct qm_protocol *p, const struct qm_run_row *run)
{
    enum qm_cell_role role = qm_run_cell(p, run)->role;
    return run->scale == p->one && role != QM_CELL_without && role != QM_CELL_own;
}

/* Whether a run counts in ECDFs and profiles: not on problems whose twins reach nothing below their
 * start, because all targets are then the start itself. */
static int is_counted(const struct qm_protocol *p, const struct qm_run_row *run)
{
    return is_scored(p, run) && p->target[run->problem][QM_TARGETS - 1] > 0;
}

/* ---- ECDF ------------------------------------------------------------------------------------ */

static int64_t steps_of(const struct qm_protocol *p)
{
    int64_t most = 1;
    for (int64_t i = 0; i < p->n_runs; i++)
        most =
            p->r->outcome[p->run[i].cell].steps > most ? p->r->outcome[p->run[i].cell].steps : most;
    return most;
}

/* The point of the ECDF after t: 1, 2, ... 16, 18, ... as for curves, up to the longest run. */
static int64_t next_tau(int64_t t, int64_t last)
{
    int64_t next = t < 16 ? t + 1 : t + t / 8;
    return t == last ? last + 1 : next < last ? next : last;
}

/* Whether a run counts in the ECDF of a label (family < 0) or of a family's twins.  A twin that
 * several runs share counts once, with the run of the rule in float32; one that diverged does not
 * count. */
static int is_member(const struct qm_protocol *p, const struct qm_run_row *run, int label,
                     int family)
{
    const struct qm_cell *c = qm_run_cell(p, run);
    if (!is_counted(p, run))
        return 0;
    return family < 0 ? run->label == label /* a failed run has no hits */
                      : run->ok && run->twin_gap < QM_DIVERGED_GAP &&
                            strcmp(c->recipe->rule->family, p->family.word[family]) == 0 &&
                            !c->start_ulp && qm_recipe_is_full(c->recipe);
}

static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Adds the ECDF of the twins of a family (>= 0), else of a label; hit is scratch. */
static void ecdf(struct qm_protocol *p, int label, int family, int64_t last, int64_t *hit)
{
    int64_t n = 0, all = 0, at = 0;
    const int64_t *from = p->hits[family < 0 ? QM_HITS_hits : QM_HITS_twin_hits];
    for (int64_t i = 0; i < p->n_runs; i++)
        for (int j = 0; j < QM_TARGETS && is_member(p, &p->run[i], label, family); j++, all++)
            if (from[i * QM_TARGETS + j] >= 0)
                hit[n++] = from[i * QM_TARGETS + j];
    if (all == 0)
        return;
    qsort(hit, (size_t)n, sizeof *hit, by_step);
    for (int64_t t = 1; t <= last; t = next_tau(t, last)) {
        while (at < n && hit[at] <= t)
            at++;
        p->ecdf[p->n_ecdf++] = (struct qm_curve_row){.label = family < 0 ? label : -2 - family,
                                                     .tau = (double)t,
                                                     .share = (double)at / (double)all};
    }
}

static qm_status ecdfs(struct qm_protocol *p)
{
    int64_t last = steps_of(p), points = 0;
    for (int64_t t = 1; t <= last; t = next_tau(t, last))
        points++;
    size_t curves = (size_t)(p->label.n + p->family.n) + 1;
    int64_t *hit = malloc((size_t)(p->n_runs + 1) * QM_TARGETS * sizeof *hit);
    p->ecdf = calloc(curves * (size_t)points, sizeof *p->ecdf);
    int ok = hit && p->ecdf;
    for (int l = 0; ok && l < p->label.n; l++)
        ecdf(p, l, -1, last, hit);
    for (int f = 0; ok && f < p->family.n; f++)
        ecdf(p, -1, f, last, hit);
    free(hit);
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "ecdf");
}

/* ---- profiles -------------------------------------------------------------------------------- */

static int by_instance(const void *a, const void *b, void *context)
{
    const struct qm_protocol *p = context;
    const struct qm_run_row *x = &p->run[*(const int64_t *)a], *y = &p->run[*(const int64_t *)b];
    uint64_t sx = qm_cell_seed(qm_run_cell(p, x)), sy = qm_cell_seed(qm_run_cell(p, y));
    return x->problem != y->problem ? x->problem - y->problem : (sx > sy) - (sx < sy);
}

/* Sets best[run][target] to the smallest runtime of any label, nulls included, on the same problem
 * and seed. */
static void find_best(struct qm_protocol *p, int64_t *order, double *best)
{
    const int64_t *hit = p->hits[QM_HITS_hits];
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_runs; i++)
        if (is_counted(p, &p->run[i]))
            order[n++] = i;
    qsort_r(order, (size_t)n, sizeof *order, by_instance, p);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && by_instance(&order[i], &order[end], p) == 0; end++)
            ;
        for (int j = 0; j < QM_TARGETS; j++) {
            double least = HUGE_VAL;
            for (int64_t k = i; k < end; k++)
                least = fmin(least, runtime(hit[order[k] * QM_TARGETS + j]));
            for (int64_t k = i; k < end; k++)
                best[order[k] * QM_TARGETS + j] = least;
        }
    }
}

/* The row that holds the twin's hits of run i.  A failed run has lost them, but its null pair has
 * the same twin. */
static int64_t twin_row(const struct qm_protocol *p, int64_t i)
{
    int64_t null = qm_run_cell(p, &p->run[i])->float32;
    return p->run[i].ok || null < 0 || p->row_of[null] < 0 ? i : p->row_of[null];
}

/* Whether a run and its twin diverged both: such a pair says nothing of the variant. */
static int is_lost(const struct qm_run_row *run)
{
    return run->ok && run->gap >= QM_DIVERGED_GAP && run->twin_gap >= QM_DIVERGED_GAP;
}

/* Sets ratio[] to a label's runtimes over those of the reference (its twin or the best label), and
 * returns their number.  Targets that neither reaches do not count, nor do, against the twin, runs
 * that diverged with it. */
static int64_t ratios(const struct qm_protocol *p, int label, const double *best, int is_twin,
                      double *ratio)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_runs; i++)
        for (int j = 0; j < QM_TARGETS && p->run[i].label == label && is_counted(p, &p->run[i]);
             j++) {
            int64_t at = i * QM_TARGETS + j, twin = twin_row(p, i) * QM_TARGETS + j;
            double own = runtime(p->hits[QM_HITS_hits][at]);
            double of = is_twin ? runtime(p->hits[QM_HITS_twin_hits][twin]) : best[at];
            if ((isfinite(own) || isfinite(of)) && !(is_twin && is_lost(&p->run[i])))
                ratio[n++] = isfinite(own) ? own / of : HUGE_VAL;
        }
    return n;
}

static void profile(struct qm_protocol *p, int label, int is_twin, double *ratio, int64_t n,
                    struct qm_score_row *score)
{
    double sum = 0.0;
    int64_t at = 0;
    score->label = label;
    score->n[is_twin] = n;
    score->score[is_twin] = nan("");
    if (n == 0)
        return;
    gsl_sort(ratio, 1, (size_t)n);
    for (int64_t i = 0; i < n; i++) /* the part of [1, 4] where tau is at least this ratio */
        sum += fmax(0.0, MOST_TAU - fmax(ratio[i], 1.0)) / (MOST_TAU - 1);
    score->score[is_twin] = sum / (double)n;
    for (int i = is_twin ? 0 : TAUS / 2; i < TAUS; i++) {
        while (at < n && ratio[at] <= tau_at(i))
            at++;
        p->profile[p->n_profiles++] = (struct qm_curve_row){.label = label,
                                                            .is_twin_kind = is_twin,
                                                            .tau = tau_at(i),
                                                            .share = (double)at / (double)n};
    }
}

qm_status qm_protocol_profiles(struct qm_protocol *p)
{
    size_t labels = (size_t)p->label.n + 1, instances = (size_t)(p->n_runs + 1) * QM_TARGETS;
    double *best = malloc(2 * instances * sizeof *best), *ratio = best ? best + instances : NULL;
    int64_t *order = malloc((size_t)(p->n_runs + 1) * sizeof *order);
    p->profile = calloc(labels * 2 * TAUS, sizeof *p->profile);
    p->score = calloc(labels, sizeof *p->score);
    int ok = best && order && p->profile && p->score;
    if (ok)
        find_best(p, order, best);
    for (int l = 0; ok && l < p->label.n; l++) {
        struct qm_score_row *score = &p->score[p->n_scores];
        int64_t n = ratios(p, l, best, 0, ratio);
        int any = 0;
        for (int64_t i = 0; i < p->n_runs; i++)
            any |= p->run[i].label == l && is_scored(p, &p->run[i]);
        if (!any)
            continue;
        profile(p, l, 0, ratio, n, score);
        profile(p, l, 1, ratio, ratios(p, l, best, 1, ratio), score);
        p->n_scores++;
    }
    free(best);
    free(order);
    return ok ? ecdfs(p) : qm_fail(QM_NO_MEMORY, "profiles");
}
