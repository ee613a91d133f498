/* trial.h - The explicit inputs of a few steps of one tensor, of any origin.
 *
 * Each step (a call) has its own state, parameters and gradients, so calls can be removed one by
 * one.  The memory is shared with child processes: their writes stay. */
#ifndef QM_EXPERIMENTS_CHECK_TRIAL_H
#define QM_EXPERIMENTS_CHECK_TRIAL_H

#include "experiments/check/judge.h"

/* The inputs of one step; pointers into the trial's memory. */
struct qm_call {
    int64_t *t;                   /* number of the step */
    struct qm_hyper *hyper;       /* of the step, where the trial has part schedule */
    void *p;                      /* stored parameters: n * qm_param_bytes */
    void *residual;               /* n * qm_param_residual bytes */
    void *g;                      /* n gradients of type recipe.grad */
    uint8_t *codes[QM_MAX_SLOTS]; /* [slot_n], unpacked; unused where the slot is plain */
    float *scales[QM_MAX_SLOTS];  /* [n_scales]; a plain slot's values */
};

struct qm_trial {
    struct qm_recipe recipe; /* with settings and fallbacks applied, so equal for every shape */
    struct qm_shape shape;
    uint64_t seed;             /* of random draws */
    unsigned part;             /* bit QM_PART_...: schedule, other tensors, fresh plans */
    uint32_t tensor_after_one; /* the tensor's number, as in struct qm_case */
    int n_calls;
    int n_plans; /* 2: each call is made for a second plan too, directly after the first */
    /* Derived. */
    int64_t n, slot_n[QM_MAX_SLOTS], n_scales[QM_MAX_SLOTS];
    struct qm_shape slot_shape[QM_MAX_SLOTS];
    struct qm_quantizer slot[QM_MAX_SLOTS]; /* the quantizers for this shape; bits 0: plain */
    size_t call_bytes;
    unsigned char *data;
};

/* Allocates zeroed calls.  recipe, shape, seed, n_calls and n_plans of *out are given.  QM_BAD_ARG:
 * the shape has no number of elements; or the status of a quantizer that does not take it. */
qm_status qm_trial_open(struct qm_trial *out);
void qm_trial_close(struct qm_trial *t); /* accepts a zeroed one */

/* A zeroed trial of two plans that the inputs of the case's steps can be recorded in. */
qm_status qm_trial_of_case(const struct qm_recipe *recipe, const struct qm_case *c, uint64_t seed,
                           int n_calls, struct qm_trial *out);
struct qm_case qm_trial_case(const struct qm_trial *t); /* shape, parts and tensor of the calls */
uint64_t qm_case_seed(const struct qm_case *c, uint64_t seed); /* seed of the case's draws */

struct qm_call qm_trial_call(const struct qm_trial *t, int k);

/* A new trial with the calls from[0 .. n - 1] of the old one, or all where from is NULL. */
qm_status qm_trial_copy(const struct qm_trial *old, const int *from, int n, struct qm_trial *out);

/* A new trial of another shape.  Element i comes from element map[i] of the old trial, a scale from
 * the old scale of its first element, an entry per row or column from the old entry of its first
 * element. */
qm_status qm_trial_remap(const struct qm_trial *old, const struct qm_shape *shape,
                         const int64_t *map, struct qm_trial *out);

/* The largest block (consecutive elements that share a scale) of any slot; 0: there is none. */
int64_t qm_trial_block(const struct qm_trial *t);

/* Prints recipe, shape, and every number that is not 0. */
void qm_trial_print(const struct qm_trial *t, FILE *to);

#endif
