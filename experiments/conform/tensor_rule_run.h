/* tensor_rule_run.h - replaying recorded runs of rules over whole tensors: factored moments, projections.
 *
 * A case in float64 is judged on the oracle, one in float32 or bfloat16 on the rule.  Either runs
 * twice: step by step, each from the recorded state before it (case NAME), and free from the
 * recorded start (case NAME/free). */
#ifndef QM_CONFORM_TENSOR_RULE_RUN_H
#define QM_CONFORM_TENSOR_RULE_RUN_H

#include "core/rule/rule.h"
#include "experiments/conform/conform.h"

/* What may differ, times the largest magnitude of the tensor; 0: every bit. */
struct qm_tensor_run_tolerance {
    double state, param, free_state, free_param;
};

struct qm_tensor_run_case {
    const struct qm_rule *rule;
    struct qm_hyper hyper;
    uint32_t tensor;
    const char *state[QM_MAX_SLOTS]; /* dataset of each slot; NULL: not recorded */
    int proj;                        /* the slot that takes the recorded matrices; -1: none */
    struct qm_tensor_run_tolerance f64, f32, bf16;
};

/* The shape that the attributes "shape" and "ndim" give param0; 0: the case cannot be read. */
int qm_tensor_run_shape(struct qm_conform *c, struct qm_shape *out);

/* The attribute as a number with NaN (the file's None) and absence as given. */
double qm_tensor_run_number(struct qm_conform *c, const char *name, int i, double absent);

/* Replays every group of the file: setup fills the case from the group's attributes, and says by a
 * verdict where it cannot; extra, if any, judges what else the group holds. */
void qm_tensor_run_replay(struct qm_conform *c,
                          void (*setup)(struct qm_conform *c, struct qm_tensor_run_case *w),
                          void (*extra)(struct qm_conform *c, const char *group));

void qm_conform_adafactor(struct qm_conform *c);
void qm_conform_came(struct qm_conform *c);
void qm_conform_apollo(struct qm_conform *c);
void qm_conform_fira(struct qm_conform *c);

#endif
