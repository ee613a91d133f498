/* lockstep_internal.h - Functions that the couplings share, for this folder and its tests. */
#ifndef QM_LOCKSTEP_LOCKSTEP_INTERNAL_H
#define QM_LOCKSTEP_LOCKSTEP_INTERNAL_H

#include "experiments/lockstep/lockstep.h"

/* ---- lockstep_curves.c ----------------------------------------------------------------------- */

/* The SQNR in dB of got[n] against want[n], both counted from from[n] (NULL: from 0); -Inf where
 * want is finite and got is not. */
double qm_sqnr_db(const double *want, const double *from, const float *got, int64_t n);

/* The loss above the floor, at least DBL_EPSILON times that of the start: smaller differences from
 * the floor are below the resolution of double. */
double qm_above_floor(const struct qm_lockstep_pair *a, double loss);
/* Whether a loss above the floor counts as diverged (QM_DIVERGED_GAP). */
int qm_has_diverged(const struct qm_lockstep_pair *a, double loss);

/* Whether the update of the rule is measured as the movement of the parameter.  Then
 * qm_curves_store_before stores both parameters before a step whose update is measured. */
int qm_curves_need_before(const struct qm_lockstep_pair *a);
void qm_curves_store_before(struct qm_lockstep_pair *a);

/* Adds a point of the curves after k updates, with both losses (NaN: none); returns its index. */
int64_t qm_curves_add_point(int64_t k, double loss, double twin, struct qm_outcome *out);

/* Compares variant and twin after k updates at point `at` of the curves, and adds the state to m
 * unless m is NULL.  Sets out->diverged where the variant's parameter is not finite. */
qm_status qm_curves_compare(struct qm_lockstep_pair *a, int64_t k, int64_t at, struct qm_metrics *m,
                            struct qm_outcome *out);

/* Sets the values of the cell from m and the points. */
void qm_curves_finish(const struct qm_lockstep_pair *a, const struct qm_metrics *m,
                      struct qm_outcome *out);

/* ---- lockstep.c ------------------------------------------------------------------------------ */

int64_t qm_cell_steps(const struct qm_cell *c);

/* The step of the point of the curves that follows step k, and the number of points from step 0 on.
 * Points lie c->every steps apart; every = 0 stands for 1, 2, ... 16, 18, ..., about 20 per decade.
 * The last step is a point. */
int64_t qm_next_point(const struct qm_cell *c, int64_t k, int64_t steps);
int64_t qm_count_points(const struct qm_cell *c, int64_t steps);

qm_status qm_polled(const volatile sig_atomic_t *stop); /* QM_OK or QM_INTERRUPTED */

/* ---- closed_loop.c --------------------------------------------------------------------------- */

/* Runs an open pair of coupling closed.  The plotted losses are evaluated at every step where a
 * gradient brings them along (gives_loss), else at the problem's loss_interval and at points. */
qm_status qm_closed_run(struct qm_lockstep_pair *a, struct qm_metrics *m,
                        struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                        struct qm_outcome *out);

/* ---- next_update.c --------------------------------------------------------------------------- */

/* Runs an open pair of coupling update.  Where the record has no gradient or no parameter,
 * out->steps is 0 and the updates are those of the recorded state itself (qm_adam_update with the
 * corrections of the updates done so far). */
qm_status qm_next_update_run(struct qm_lockstep_pair *a, struct qm_metrics *m,
                             struct qm_outcome *out);

#endif
