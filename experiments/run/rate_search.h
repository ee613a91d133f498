/* rate_search.h - Searches the learning rate at which a rule or a variant ends lowest. */
#ifndef QM_RUN_RATE_SEARCH_H
#define QM_RUN_RATE_SEARCH_H

#include "experiments/run/run_cells.h"

/* Rates are factors 10^(k / 8) of the problem's rate, |k| <= 40. */
enum { QM_RATES_PER_DECADE = 8, QM_RATE_MOST = 40, QM_RATE_POINTS = 2 * QM_RATE_MOST + 1 };

double qm_rate_at(int k);

/* One search: the twin of a cell, or its variant.  loss[QM_RATE_MOST + k] is the mean over seeds of
 * log10 of the late gap (lockstep.h) at rate k; NaN: not evaluated. */
struct qm_rate_unit {
    const struct qm_cell *like;     /* its source, instance, steps and schedule */
    const struct qm_recipe *recipe; /* of the variant; of the twin the rule in float32; shared */
    int is_twin;
    char key[QM_RATE_TEXT];
    int centre, reach; /* the first rates: centre, and that -+ 4 ... reach */
    int best;          /* of the rates so far */
    int is_edge;       /* the search ended at |k| = QM_RATE_MOST, where no rate is known */
    double loss[QM_RATE_POINTS];
};

/* Sets no loss, and the first rates. */
void qm_rate_unit_start(struct qm_rate_unit *u, int centre, int reach);

/* Sets u->best to the rate of the lowest loss, of equal ones the nearest to the centre and of these
 * the lower, and k[] (room for QM_RATE_POINTS) to the rates to be evaluated next: the first ones,
 * then the neighbours of the best at distance 4, 2 and 1.  Returns their number; 0: both neighbours
 * at distance 1 are known and not lower, or u->is_edge. */
int qm_rate_next(struct qm_rate_unit *u, int *k);

/* Runs the searches of n units to their ends, each rate with the seeds first_seed on; all rates
 * that are wanted at a time run in parallel.  QM_INTERRUPTED: *stop was set. */
qm_status qm_rates_search(const struct qm_suite *s, struct qm_rate_unit *unit, int n,
                          uint64_t first_seed, int seeds, int threads,
                          const volatile sig_atomic_t *stop);

#endif
