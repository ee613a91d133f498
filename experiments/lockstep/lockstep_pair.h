/* lockstep_pair.h - A variant and its twin, the double-precision oracle: states, gradients, steps.
 *
 * All tensors of a problem lie one after the other in every array; tensor i has numel[i] elements
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
    void *problem;            /* the open c->problem, or NULL */
    int64_t t0;               /* number of the first update */
    int64_t steps;            /* updates of the whole run, for the schedule */
    double full_lr;           /* learning rate after the warm-up */
    double floor, start_loss; /* start_loss: above the floor */
    int is_double; /* start: ulp; a second run of the oracle, in double, replaces the variant */
    /* Arrays of [total]; the variant in float, the twin in double. */
    float *p, *g, *got; /* p: widened from `stored`; got: a decoded state */
    void *stored;       /* the parameters as the recipe stores them; unused for float32 */
    uint16_t *g16;
    uint8_t *codes;
    double *twin_p, *twin_g, *start, *twin_slot[QM_MAX_SLOTS], *scratch;
    double *m, *v, *update, *got_update;
    double *grad; /* gradient of a problem at the variant's parameter, before rounding */
    double *double_p, *double_slot[QM_MAX_SLOTS]; /* the variant where is_double */
};

/* Opens plans, states and start as the cell's source says; the caller zeroes *a first and closes it
 * on failure too.  QM_BAD_ARG: the shapes or the arguments of the problem do not fit the recipe. */
qm_status qm_lockstep_pair_open(const struct qm_cell *c, struct qm_lockstep_pair *a);
void qm_lockstep_pair_close(struct qm_lockstep_pair *a); /* frees a */

/* Elements of slot s of a tensor; never more than the parameter has. */
int64_t qm_lockstep_pair_slot_numel(const struct qm_lockstep_pair *a, int tensor, int s);

/* Decodes slot s of the variant into a->got; 0 beyond the end of a slot that is smaller than
 * its parameter. */
qm_status qm_lockstep_pair_decode(struct qm_lockstep_pair *a, int s);

/* Copies the variant's decoded states and its parameter to the twin. */
qm_status qm_lockstep_pair_take_over(struct qm_lockstep_pair *a);

/* Sets a->g to the variant's gradient of update k (from 0), and a->twin_g to the same numbers
 * unless the coupling is closed.  Returns the loss that the problem's eval returns with this
 * gradient (at the parameter before the update); 0 without a problem. */
double qm_lockstep_pair_gradient(struct qm_lockstep_pair *a, int64_t k);

/* Coupling closed: sets a->twin_g to the gradient at the twin's parameter; returns its loss. */
double qm_lockstep_pair_twin_gradient(struct qm_lockstep_pair *a, int64_t k);

/* The basin of attraction of the variant's or the twin's parameter; 0 where there is one basin. */
double qm_lockstep_pair_basin(struct qm_lockstep_pair *a, int is_twin);

/* The variant's plotted loss after k updates. */
double qm_lockstep_pair_loss(struct qm_lockstep_pair *a, int64_t k);

/* Does update k (from 0) of the variant, or of the twin. */
qm_status qm_lockstep_pair_step(struct qm_lockstep_pair *a, int64_t k);
qm_status qm_lockstep_pair_twin_step(struct qm_lockstep_pair *a, int64_t k);

#endif
