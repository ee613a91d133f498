/* reference.h - A recorded run of a class of torch.optim, or of Lion. */
#ifndef QM_CONFORM_REFERENCE_H
#define QM_CONFORM_REFERENCE_H

#include "core/rule/rule.h"
#include "experiments/conform/conform.h"

/* A class with an option: the rule, and the dataset of each state in the order of its slots. */
struct qm_reference_family {
    const char *optimizer;
    int option; /* that asks for another rule: decoupled decay, or RMSprop's */
    const char *rule;
    int n_slots, has_tail, has_old; /* has_tail: the fused kernel's last elements have a rule */
    const char *state[3];
    const char *takes; /* for each state m, s or q: mean, square, quotient (enum qm_run_takes) */
};

/* A recorded run. */
struct qm_reference {
    const struct qm_reference_family *f;
    struct qm_hyper h;
    int64_t steps, n;
    int is_fused, is_foreach, is_ieee;
    int is_unsaid;      /* which square roots ran: no attribute sqrt */
    int is_old, is_gpu; /* is_old: PyTorch 1 */
    double first, *lr;  /* of the state; [steps] or NULL */
};

/* Judges the oracle by a float64 run, each step from the recorded state. */
void qm_reference_double(struct qm_conform *c, const struct qm_reference *r);

/* The recorded numbers of a bfloat16 run, [step][n]; state: by the slots of the rule, and amsgrad's
 * maximum; NULL where the class keeps none.  mu_product: NAdam's, [step]. */
struct qm_narrow_data {
    const float *p0, *grads, *params, *state[4];
    const double *mu_product;
};

/* Whether parameters of a bfloat16 run are judged by the roundings of each operation. */
int qm_reference_is_narrow(const struct qm_reference *r);

/* Judges the parameters of step t by what the roundings of each operation make of the recorded
 * states after it and of the parameters before it. */
void qm_reference_narrow(struct qm_conform *c, const struct qm_reference *r,
                         const struct qm_narrow_data *data, int64_t t, const char *what);

#endif
