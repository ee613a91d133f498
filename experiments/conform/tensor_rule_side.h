/* tensor_rule_side.h - One side of the replay of a run over a whole tensor, and its tolerances. */
#ifndef QM_CONFORM_TENSOR_RULE_SIDE_H
#define QM_CONFORM_TENSOR_RULE_SIDE_H

#include "core/recipe/backend.h"
#include "experiments/conform/tensor_rule_run.h"
#include "experiments/recipes/oracle_hyper.h"
#include "oracle/oracle.h"

/* The data of one case; arrays are [step][...] and NULL where nothing was recorded. */
struct qm_tensor_record {
    const struct qm_tensor_run_case *w;
    struct qm_shape shape, slot_shape[QM_MAX_SLOTS];
    int64_t steps, n, slot_n[QM_MAX_SLOTS];
    const double *p0, *grads, *params, *state[QM_MAX_SLOTS];
    const double *proj; /* [matrix][...] */
    const int64_t *proj_step;
    int64_t n_proj;
    double so_far[QM_MAX_SLOTS]; /* of a free run: what `more` came to for each state */
};

/* The oracle, or the rule on the CPU backend. */
struct qm_tensor_side {
    struct qm_tensor_record *r;
    const struct qm_oracle *oracle; /* NULL: the plan */
    struct qm_oracle_hyper h;
    const struct qm_recipe *recipe;
    void *plan; /* of the recipe */
    enum qm_param_format format;
    double *p, *g, *slot[QM_MAX_SLOTS], *room;
    float *single;               /* room to convert the plan's tensors */
    struct qm_narrow_span *span; /* [n], where the rule has `narrow` */
    double *start, *low, *high;  /* [n], of bfloat16 parameters; else NULL */
    double *kept[QM_MAX_SLOTS];
    double *of_average;      /* what each number of the average may be off by */
    double *allowed, *error; /* of each number of a state; of the average, in a free run */
    double *lines;           /* what `more_each` makes of each number of a state */
    double *lines_so_far[QM_MAX_SLOTS]; /* of a free run: the sum of that over the steps */
    double average_off;      /* of one step: the error that cancelling adds to the average, of its
                              * largest number */
    double average_small;    /* of one step: what counts of 2^-149 of an update make of any number
                              * of the average */
    unsigned char *is_still; /* [n], of one step: qm_tensor_side_find_still */
    double *still_error;     /* [n], of a free run: what decays make of elements that are still */
};

/* The recorded step t. */
struct qm_tensor_run_at qm_tensor_record_at(const struct qm_tensor_record *r, int64_t t);

/* What the rule itself adds to the tolerance of every number of a slot, or of the parameters (slot
 * -1), of which the largest step made here is `change`; 0: not known. */
double qm_tensor_record_more(const struct qm_tensor_record *r, int slot, int64_t t, int is_free,
                             double change, const struct qm_tensor_run_tolerance *tol);

/* Starts a free run; adds up what the rule adds to the tolerances of states after its step t. */
void qm_tensor_side_start(struct qm_tensor_side *s);
void qm_tensor_side_add_up(struct qm_tensor_side *s, int64_t t,
                           const struct qm_tensor_run_tolerance *tol);

/* Finds the elements of which step t rounds nothing but a decay: gradient and old average are 0,
 * and in a free run were in every step before.  The update is the gradient times a factor, the new
 * average b 0 + (1 - b) 0, and the step that times a factor, all of them 0 to the bit, however far
 * off the factors are.  Where numbers are sums over the tensor, all gradients and averages must be
 * 0.  A factor that is infinite makes a NaN, which no tolerance covers. */
void qm_tensor_side_find_still(struct qm_tensor_side *s, int64_t t, int is_free);

/* What the numbers of slot i may be off by after step t, into allowed, and of the average into
 * of_average and average_off.  In a free run the average keeps its share of the error before, and
 * takes in that of what it averages, which grows with the states. */
void qm_tensor_side_state_allowed(struct qm_tensor_side *s, int i, int64_t t, int is_free,
                                  const struct qm_tensor_run_tolerance *tol);

/* What the parameters may be off by after step t, into allowed.  *error: after the steps before,
 * of a free run. */
void qm_tensor_side_params_allowed(struct qm_tensor_side *s, int64_t t, int is_free,
                                   const struct qm_tensor_run_tolerance *tol, double *error);

#endif
