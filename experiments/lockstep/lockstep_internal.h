/* lockstep_internal.h - the inside of a lockstep run: for lockstep.c, closed_loop.c and measure.c only. */
#ifndef QM_LOCKSTEP_LOCKSTEP_INTERNAL_H
#define QM_LOCKSTEP_LOCKSTEP_INTERNAL_H

#include "experiments/lockstep/lockstep.h"

/* A side is lost where its normalised gap exceeds this or is not finite, and counts as this. */
#define QM_LOST_GAP 1e3

/* ---- measure.c ------------------------------------------------------------------------------- */

/* Loss above the floor; what double cannot tell from the floor counts as its resolution. */
double qm_above_floor(const struct qm_lockstep_pair *a, double loss);
int qm_is_lost(const struct qm_lockstep_pair *a, double loss); /* loss above the floor */

/* Whether the rule's update is to be seen in the parameter alone; then keep both sides' before an
 * update that is measured. */
int qm_measure_wants_before(const struct qm_lockstep_pair *a);
void qm_measure_before(struct qm_lockstep_pair *a);

/* A new point of the curves after k updates, with both losses (NaN: none). */
int64_t qm_measure_point(int64_t k, double loss, double twin, struct qm_outcome *out);

/* What both sides hold at point `at`, made after k updates; m: the metrics of this state are wanted
 * too.  Sets out->diverged where a parameter is not finite. */
qm_status qm_measure(struct qm_lockstep_pair *a, int64_t k, int64_t at, struct qm_metrics *m,
                     struct qm_outcome *out);

/* The values of the cell, from m and the last point. */
void qm_measure_end(const struct qm_lockstep_pair *a, const struct qm_metrics *m,
                    struct qm_outcome *out);

/* ---- lockstep.c ------------------------------------------------------------------------------ */

int64_t qm_cell_steps(const struct qm_cell *c);

/* The point of the curves after this one, and how many there are from step 0 on; every 0: 1, 2, ...
 * 16, 18, ..., 20 per decade. */
int64_t qm_next_point(const struct qm_cell *c, int64_t k, int64_t steps);
int64_t qm_count_points(const struct qm_cell *c, int64_t steps);

qm_status qm_polled(const volatile sig_atomic_t *stop); /* QM_OK or QM_INTERRUPTED */

/* ---- closed_loop.c -------------------------------------------------------------------------------- */

/* Runs opened sides of coupling closed.  Losses are looked at every step where a gradient brings
 * them along, else as often as the problem says, and at points. */
qm_status qm_closed_run(struct qm_lockstep_pair *a, struct qm_metrics *m,
                        struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                        struct qm_outcome *out);

#endif
