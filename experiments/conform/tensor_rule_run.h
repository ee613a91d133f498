/* tensor_rule_run.h - Replays recorded runs of rules over whole tensors: factors, projections.
 *
 * A float64 case judges the oracle, a float32 or bfloat16 case judges the rule.  Each case runs
 * twice, step by step from the recorded state before it, and free from the recorded start. */
#ifndef QM_CONFORM_TENSOR_RULE_RUN_H
#define QM_CONFORM_TENSOR_RULE_RUN_H

#include "core/rule/rule.h"
#include "experiments/conform/conform.h"
#include "experiments/conform/narrow_span.h"

/* Allowed differences of one step.  state: times each number or, where its average may cancel, the
 * sizes of its two terms, b m0 and (1 - b) u, in all at most |m| + 2 |b m0|; where numbers are sums
 * of products, which may cancel, times the largest of the tensor.  param: times the largest finite
 * magnitude before or after the step; step: of parameters, times the largest change of one.
 * Free runs: each step adds free_state to the error of a state, whose averages keep no more than
 * all of it; a parameter keeps |1 - lr weight_decay| of its error, takes in free_param and
 * free_step, and where the rate is in proportion to its RMS (scales) that share of its error, times
 * the step. */
struct qm_tensor_run_tolerance {
    double state, param, free_state, free_param, step, free_step;
};

/* A recorded step: the states [slot][step][...], NULL where none was recorded, and its gradient
 * and projection; proj NULL: it has none.  relative: the error of the other states.  before: of a
 * free run, what `more` came to for each state in the steps before; else 0.  unit: the unit
 * roundoff of the recording, 2^-24 or 2^-53.  change: the largest step made here, 0: not known. */
struct qm_tensor_run_at {
    const struct qm_shape *shape;
    int64_t t;
    const double *const *state, *grad, *proj;
    double relative, before[QM_MAX_SLOTS], unit, change;
};

struct qm_tensor_run_case {
    const struct qm_rule *rule;
    struct qm_hyper hyper;
    uint32_t tensor;
    const char *state[QM_MAX_SLOTS]; /* dataset of each slot; NULL: not recorded */
    int proj;                        /* the slot of the recorded projections; -1: none */
    struct qm_tensor_run_tolerance f64, f32, bf16;
    int average; /* the slot of the average of signed numbers, which may cancel; -1: none */
    double keep; /* of which a step keeps that much */
    int squares; /* the slot of averages of single squares, which have no sum: 10 roundings on both
                   * sides, but of narrow states; -1: none */
    /* Of each slot of second moments: what one number of it averages the squares of: 'e' an element
     * of the gradient, 'r' a row, 'c' a column, 'R' and 'C' those of CAME's residual; 0: not said.
     * added: what is added to each square. */
    char squares_of[QM_MAX_SLOTS];
    double added[QM_MAX_SLOTS];
    int has_sums; /* numbers of states are sums of products, so the largest is what counts */
    int has_narrow_states; /* states are of the parameter's format, bfloat16 too */
    int has_own_steps;     /* of float32 runs a parameter is off by shares of its own step and by
                            * its roundings, whatever the size of the others */
    int scales;            /* the rate is in proportion to the RMS of the parameters */
    /* Of float32 and bfloat16 runs: what state `slot` may be off by besides in a step or, of the
     * parameters (slot -1), the share of the step; free runs add up the steps.  HUGE_VAL:
     * the package's float32 overflows where the rule's double does not, or a root is taken of what
     * may have either sign, and the case is skipped.  NULL: nothing. */
    double (*more)(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at, int slot);
    /* What each number of state `slot` may be off by besides in a step, into out; free runs add up
     * the steps.  0: nothing.  NULL: of no state. */
    int (*more_each)(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                     int slot, double *out);
    int has_more_doubles; /* `more` and `more_each` of float64 runs, too */
    /* Of bfloat16 runs whose package rounds each operation to bfloat16: the range of each parameter
     * after the step from those before it; 1 where a number of the update is infinite or NaN, -1
     * where there are no ranges.  Free runs take the recorded numbers of the first kind, if they
     * are in their ranges.  NULL: intermediate numbers of the package are float32. */
    int (*narrow)(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                  const double *before, struct qm_narrow_span *out);
};

/* The shape that the attributes "shape" and "ndim" give param0; 0: the case cannot be read. */
int qm_tensor_run_shape(struct qm_conform *c, struct qm_shape *out);

/* 1: the texts that say how a run was recorded, on which no tolerance here depends, are known words
 * or absent; else the case is unreadable. */
int qm_tensor_run_texts_known(struct qm_conform *c);

/* Element i of an attribute of n numbers; `absent` where it is absent or NaN (the file's None).  An
 * attribute of another count or type makes the case unreadable. */
#define QM_TENSOR_RUN_NUMBERS 3 /* of an attribute at most */
double qm_tensor_run_number(struct qm_conform *c, const char *name, int i, int n, double absent);

/* Adds (n / 16 + 8) 2^-24 to the tolerances of float32 and bfloat16 runs, and to those of float64
 * (n / 8 + 8) 2^-53, n the elements of the tensor: torch adds up the squares of a norm in eight
 * lanes, of float64 in four, one after the other, n / 8 additions of u or n / 4, which the root
 * halves, and the norm divides the whole update. */
void qm_tensor_run_norms(struct qm_conform *c, struct qm_tensor_run_case *w);

/* Whether the average b m0 + (1 - b) u, which came to `now` in numbers of this unit roundoff, 2^-24
 * or 2^-53, is u to the bit: 1 - b is 1 in them, and b m0 less than half of the distance from u to
 * its neighbours, a quarter of the unit times |u| at least; with b = 0 it is always. */
int qm_tensor_run_is_new(double b, double old, double now, double unit);

double qm_tensor_run_rms(const double *x, int64_t n);

/* Judges state_RMS of transformers' Adafactor and of CAME, after step t that of the parameters
 * before it: a root, a quotient and the root of a sum of n squares in lanes, (n / 16 + 8) 2^-24
 * or, formed in float64, (n / 8 + 8) 2^-53, or for CAME's bfloat16 parameters, whose
 * norm is rounded to bfloat16, as is the quotient, 2^-7 besides.  Squares below 2^-126 are counts
 * of 2^-149, those beyond float32 infinite. */
void qm_tensor_run_judge_rms(struct qm_conform *c, const struct qm_tensor_run_case *w,
                             const double *p0, const double *params, int64_t steps, int64_t n);

/* Replays the group.  setup fills the case from its attributes, or skips it with a reason. */
void qm_tensor_run_replay(struct qm_conform *c, const char *group,
                          void (*setup)(struct qm_conform *c, struct qm_tensor_run_case *w));

/* Judge the cases of one group, or of all groups, of the file that is open in c, each system's by
 * its own rule; a case that lacks what it must hold becomes UNREADABLE and the others go on. */
void qm_conform_adafactor_group(struct qm_conform *c, const struct qm_golden_place *at);
void qm_conform_adafactor(struct qm_conform *c);
void qm_conform_came(struct qm_conform *c);
void qm_conform_apollo(struct qm_conform *c);
void qm_conform_fira(struct qm_conform *c);

#endif
