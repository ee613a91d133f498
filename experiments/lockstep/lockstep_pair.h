/* lockstep_pair.h - the two sides of a lockstep run: a variant's plans and its twin, the oracle.
 *
 * All tensors of a problem lie one after the other in every array; tensor i is numel[i] elements
 * from first[i] on. */
#ifndef QM_LOCKSTEP_LOCKSTEP_PAIR_H
#define QM_LOCKSTEP_LOCKSTEP_PAIR_H

#include "experiments/suite/suite.h"
#include "oracle/oracle.h"

struct qm_lockstep_pair {
    const struct qm_cell *c;
    struct qm_recipe recipe; /* with the source's hyper-parameters */
    struct qm_oracle_hyper twin_hyper;
    const struct qm_oracle *oracle;
    int n_tensors, n_slots;
    struct qm_shape shape[QM_PROBLEM_TENSORS];
    int64_t first[QM_PROBLEM_TENSORS], numel[QM_PROBLEM_TENSORS], total;
    void *plan[QM_PROBLEM_TENSORS];
    void *problem;  /* self of c->problem */
    int64_t t0;     /* the first update's number */
    double full_lr; /* after the warm-up */
    double floor, start_loss;
    int is_double; /* start: ulp; the variant's side is a second run of the oracle, in double */
    /* [total]; the variant's side in float, the twin's in double */
    float *p, *g, *got; /* p: widened from what is stored */
    void *stored;       /* the parameters as the recipe stores them; unused for float32 */
    uint16_t *g16;
    uint8_t *codes;
    double *twin_p, *twin_g, *start, *twin_slot[QM_MAX_SLOTS], *scratch;
    double *m, *v, *update, *got_update;
    double *grad; /* of a problem at the variant's parameter, before rounding */
    double *moved_p, *moved_slot[QM_MAX_SLOTS]; /* the variant's side where it is in double */
};

/* Opens plans, states and start as the cell's source says; a was zeroed.  QM_BAD_ARG: the shapes or
 * the problem's arguments do not go with the recipe.  Close it whatever comes out. */
qm_status qm_lockstep_pair_open(const struct qm_cell *c, struct qm_lockstep_pair *a);
void qm_lockstep_pair_close(struct qm_lockstep_pair *a); /* frees a */

/* Elements of slot s of a tensor; never more than the parameter has. */
int64_t qm_lockstep_pair_slot_numel(const struct qm_lockstep_pair *a, int tensor, int s);

/* Slot s of the variant as it decodes, into a->got; 0 beyond a slot smaller than its parameter. */
qm_status qm_lockstep_pair_decode(struct qm_lockstep_pair *a, int s);

/* The twin takes over the variant's decoded states and its parameter. */
qm_status qm_lockstep_pair_take_over(struct qm_lockstep_pair *a);

/* Gradient of update k (from 0) for the variant: a->g; but for coupling closed a->twin_g is the same.
 * Returns the problem's loss where it was evaluated, which is before the update; 0 without one. */
double qm_lockstep_pair_gradient(struct qm_lockstep_pair *a, int64_t k);

/* Coupling closed: a->twin_g of the twin's own parameter, and its loss there. */
double qm_lockstep_pair_twin_gradient(struct qm_lockstep_pair *a, int64_t k);

/* The basin in which the variant, or its twin, lies; 0 of a problem that knows of none. */
double qm_lockstep_pair_basin(struct qm_lockstep_pair *a, int is_twin);

/* The variant's loss after k updates, without a gradient. */
double qm_lockstep_pair_loss(struct qm_lockstep_pair *a, int64_t k);

/* Update k of the variant, of the twin. */
qm_status qm_lockstep_pair_step(struct qm_lockstep_pair *a, int64_t k);
qm_status qm_lockstep_pair_twin_step(struct qm_lockstep_pair *a, int64_t k);

#endif
