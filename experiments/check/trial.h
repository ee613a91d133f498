/* trial.h - the explicit inputs of a few steps of one tensor, whatever they came from.
 *
 * Each step (a call) brings its own state, parameters and gradients, so calls can be left out one by
 * one.  The memory is shared with children of this process: what they write stays. */
#ifndef QM_EXPERIMENTS_CHECK_TRIAL_H
#define QM_EXPERIMENTS_CHECK_TRIAL_H

#include "experiments/check/judge.h"

/* One step's inputs, within the trial's memory. */
struct qm_call {
    int64_t *t;
    void *p;                      /* as stored: n * qm_param_bytes */
    void *residual;               /* n * qm_param_residual */
    void *g;                      /* of recipe.grad */
    uint8_t *codes[QM_MAX_SLOTS]; /* unpacked, slot_n; unused where the slot is plain */
    float *scales[QM_MAX_SLOTS];  /* n_scales; a plain slot's values */
};

struct qm_trial {
    struct qm_recipe recipe; /* with settings and fallbacks applied: the same for every shape */
    struct qm_shape shape;
    uint64_t seed; /* of random draws */
    int n_calls;
    int n_sides; /* 2: each call is made for a second plan too, at once after the first */
    /* Derived. */
    int64_t n, slot_n[QM_MAX_SLOTS], n_scales[QM_MAX_SLOTS];
    struct qm_shape slot_shape[QM_MAX_SLOTS];
    struct qm_quantizer slot[QM_MAX_SLOTS]; /* what this shape gets; bits 0: plain */
    size_t call_bytes;
    unsigned char *data;
};

/* Zeroed calls.  recipe, shape, seed, n_calls and n_sides of *out are given. */
qm_status qm_trial_open(struct qm_trial *out);
void qm_trial_close(struct qm_trial *t); /* accepts a zeroed one */

/* An empty trial of two sides for what the case's steps start from. */
qm_status qm_trial_of_case(const struct qm_recipe *recipe, const struct qm_case *c, uint64_t seed,
                           int n_calls, struct qm_trial *out);
uint64_t qm_case_seed(const struct qm_case *c, uint64_t seed); /* of the case's draws */

struct qm_call qm_trial_call(const struct qm_trial *t, int k);

/* The calls from[0 .. n - 1] of a trial, or all where from is NULL, as a new one. */
qm_status qm_trial_copy(const struct qm_trial *old, const int *from, int n, struct qm_trial *out);

/* The trial for another shape: element i comes from element map[i] of the old one, a scale from the one
 * that its first element had.  Slots of other shapes (one number per row or column) follow their
 * first element. */
qm_status qm_trial_remap(const struct qm_trial *old, const struct qm_shape *shape,
                         const int64_t *map, struct qm_trial *out);

/* Elements that share a scale where they are consecutive: the largest block of any slot; or 0. */
int64_t qm_trial_block(const struct qm_trial *t);

/* As text for people: recipe, shape, and every number that is not 0. */
void qm_trial_print(const struct qm_trial *t, FILE *to);

#endif
