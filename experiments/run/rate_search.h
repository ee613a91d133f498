/* rate_search.h - Searches the learning rate at which a rule or a variant ends lowest. */
#ifndef QM_RUN_RATE_SEARCH_H
#define QM_RUN_RATE_SEARCH_H

#include "experiments/run/run_cells.h"

/* Rates are factors 10^(k / 8) of the problem's rate, |k| <= 40. */
enum { QM_RATES_PER_DECADE = 8, QM_RATE_MOST = 40, QM_RATE_POINTS = 2 * QM_RATE_MOST + 1 };

double qm_rate_at(int k);

/* A rate, loss or margin to six digits, which say as much as a mean over seeds is good for. */
double qm_rate_rounded(double x);

/* What is known of one rate.  loss: the mean over seeds of log10 of the late gap (lockstep.h); NaN:
 * not evaluated.  margin: t(0.975; seeds - 1) standard errors of its loss minus the lowest loss, of
 * the same seeds; a loss below lowest + margin cannot be told apart from the lowest.  0 with one
 * seed and for the lowest; NaN where a run failed, and before the search has ended.  Both are
 * rounded by qm_rate_rounded, as files hold them. */
struct qm_rate_point {
    double rate, loss, margin;
};

/* One search: the twin of a cell, or its variant.  point[QM_RATE_MOST + k] is rate k. */
struct qm_rate_unit {
    const struct qm_cell *like;     /* its source, instance, steps and schedule */
    const struct qm_recipe *recipe; /* of the variant; of the twin the rule in float32; shared */
    int is_twin;
    char key[QM_RATE_TEXT];
    int centre, reach; /* the first rates: centre, and that -+ 4 ... reach; of a variant the
                        * centre is its twin's rate */
    int best;          /* the lowest of the rates so far */
    int chosen;        /* at the end, by qm_rate_choose: of a twin the best */
    int is_edge;       /* the search ended at |k| = QM_RATE_MOST, where no rate is known */
    struct qm_rate_point point[QM_RATE_POINTS];
    double *score; /* [QM_RATE_POINTS][seeds], log10 of each late gap, while a search runs */
};

/* The rate to be used, an index of point[n]; -1: none has a loss below infinity.  near > 0, the
 * twin's rate: of the rates that cannot be told apart from the lowest the one nearest to it (in
 * steps of the grid), of equally near ones the one with the lower loss and then the lower rate: so
 * noise of tuning gives no variant a rate of its own.  near 0: the lowest, of equal ones the
 * first. */
int qm_rate_choose(const struct qm_rate_point *point, int n, double near);

/* Sets no loss, and the first rates. */
void qm_rate_unit_start(struct qm_rate_unit *u, int centre, int reach);

/* Sets u->best to the rate of the lowest loss, of equal ones the nearest to the centre and of these
 * the lower, and k[] (room for QM_RATE_POINTS) to the rates to be evaluated next: the first ones,
 * then the neighbours of the best at distance 4, 2 and 1.  Returns their number; 0: both neighbours
 * at distance 1 are known and not lower, or u->is_edge. */
int qm_rate_next(struct qm_rate_unit *u, int *k);

/* Runs the searches of n units to their ends, and sets chosen and the margins; each rate with the
 * seeds first_seed on; all rates that are wanted at a time run in parallel.  QM_INTERRUPTED: *stop
 * was set. */
qm_status qm_rates_search(const struct qm_suite *s, struct qm_rate_unit *unit, int n,
                          uint64_t first_seed, int seeds, int threads,
                          const volatile sig_atomic_t *stop);

#endif
