/* problem.h - closed-loop problems and their registration (one file each in problems/). */
#ifndef QM_EXPERIMENTS_PROBLEM_H
#define QM_EXPERIMENTS_PROBLEM_H

#include "core/base/tensor.h"

#define QM_PROBLEM_TENSORS 16

/* A problem is a pure function of (name, arguments, seed): the variant and its twin see the same
 * start, data and noise whatever else they draw.  Values and gradients in double. */
struct qm_problem {
    const char *name, *summary, *source;
    const char *args; /* the arguments it takes with their defaults: "n=1024,cond=1e4" */

    /* args: "key=value,..." or "".  Sets the number of tensors and their shapes. */
    qm_status (*open)(const char *args, uint64_t seed, void **self, int *n_tensors,
                      struct qm_shape *shapes);
    /* The start: all tensors one after the other. */
    void (*start)(void *self, double *x);
    /* Gradient of step t >= 1 at x, noise included; returns the loss that the study plots
     * (population loss where it has a closed form). grad NULL: the loss only. */
    double (*eval)(void *self, const double *x, int64_t t, double *grad);
    /* The floor of that loss. */
    double (*optimum)(void *self);
    /* Expected loss after t steps of the full-precision optimizer where a closed form exists;
     * NaN where it does not.  family: "sgdm", ...; lr and momentum as given. */
    double (*expected)(void *self, const char *family, double lr, double momentum, int64_t t);
    void (*close)(void *self);
    /* Suggested budget and learning rate for the families, for suites that give none. */
    int64_t steps;
    double lr_adamw, lr_sgdm;
};

int qm_problem_count(void);
const struct qm_problem *qm_problem_at(int i);
qm_status qm_problem_find(const char *name, const struct qm_problem **out);

#endif
