/* case_run.h - The run of one case: two judged plans, the oracle's numbers, checks of a step.
 *
 * Internal to judge.c and the files case_*.c.  The first plan runs with one thread, the second with
 * two. */
#ifndef QM_EXPERIMENTS_CHECK_CASE_RUN_H
#define QM_EXPERIMENTS_CHECK_CASE_RUN_H

#include "experiments/check/judge.h"
#include "experiments/check/stored.h"
#include "experiments/check/trial.h"
#include "oracle/oracle.h"

enum { QM_GUARD = 64 };

/* Poison is a NaN in floats of any size, and in bytes the largest code: what is read without having
 * been written, or beyond an end, shows in every maximum. */
#define QM_POISON_FLOAT 0x7fa5a5a5u
enum { QM_POISON_HALF = 0x7fa5, QM_POISON_BYTE = 0xff, QM_POISON_RESIDUAL = 0x7f };

/* Poisoned memory between two guards of QM_GUARD bytes. */
struct qm_poisoned {
    unsigned char *base;
    size_t bytes;
    uint32_t word; /* four bytes of poison */
};

/* Another tensor, which is stepped before each step of the judged one (companion.c). */
enum qm_companion_role {
    QM_COMPANION_warm,
    QM_COMPANION_second,
    QM_COMPANION_group,
    QM_COMPANION_busy,
    QM_COMPANIONS
};
struct qm_companion {
    void *plan; /* NULL: not part of the case */
    struct qm_recipe recipe;
    struct qm_shape shape;
    uint32_t tensor;
    int64_t t, n;
    void *p;           /* as the recipe stores it */
    float *g, *values; /* [n]; values: scratch */
};

/* One of the two plans, with all memory that its backend writes to. */
struct qm_case_plan {
    void *handle; /* the backend's plan */
    struct qm_poisoned p_memory, stored_memory, residual_memory, state_memory[QM_MAX_SLOTS],
        codes_memory[QM_MAX_SLOTS], scales_memory[QM_MAX_SLOTS];
    void *stored, *residual; /* the parameter as the backend stores it */
    /* Values as float32; p is the stored parameter with its residual. */
    float *p, *state[QM_MAX_SLOTS], *scales[QM_MAX_SLOTS];
    uint8_t *codes[QM_MAX_SLOTS];
};

struct qm_case_run {
    const struct qm_subject *s;
    const struct qm_case *c;
    struct qm_recipe judged, run; /* with the settings of this step; run: altered too */
    struct qm_recipe first;       /* judged, with the settings of the first step */
    const struct qm_oracle *oracle;
    struct qm_oracle_hyper hyper;
    struct qm_stored format; /* of the parameter */
    int n_slots;
    struct qm_shape shape[QM_MAX_SLOTS]; /* of the slots */
    int64_t n, slot_n[QM_MAX_SLOTS], n_scales[QM_MAX_SLOTS];
    const struct qm_decider *decider[QM_MAX_SLOTS]; /* NULL: float32 */
    uint64_t seed;
    uint32_t tensor;             /* the judged tensor's number */
    struct qm_case_plan plan[2]; /* with one thread, with two threads */
    struct qm_companion companion[QM_COMPANIONS];
    struct qm_baseline float32; /* open where errors are compared with float32 */
    struct qm_poisoned g_memory, h_memory;
    float *g;                                     /* the gradient in float32 */
    uint16_t *h;                                  /* the gradient in 16 bits */
    double *want_p, *want[QM_MAX_SLOTS];          /* the oracle's results */
    double *error_p, *error[QM_MAX_SLOTS];        /* their bounds */
    double *lo, *hi;                              /* scratch of qm_slot_judge, with flag */
    double *wide_p, *wide_g, *wide[QM_MAX_SLOTS]; /* the inputs of a step, in double */
    double *stored[QM_MAX_SLOTS];                 /* the slots after the step, decoded */
    /* qm_case_fused_errors of the slots before and after the step */
    double *fused_before[QM_MAX_SLOTS], *fused_after[QM_MAX_SLOTS];
    float *before_p, *before[QM_MAX_SLOTS]; /* the inputs of a step, as they decode */
    /* Draw errors (draws.h) of this step and of the step before; entry QM_MAX_SLOTS: the
     * parameter. */
    float *draw_error[2][QM_MAX_SLOTS + 1];
    int *flag;
    const struct qm_trial *trial; /* source of the inputs; NULL: the case's generators */
    struct qm_trial *record;      /* takes the inputs of every step, or NULL */
    volatile int *begun;          /* number of steps begun; written where record is given */
    int only;                     /* the slot that is judged, or QM_SLOT_ANY */
    int n_plans, steps;
    struct qm_tally *t;
    struct qm_finding finding;
};

static inline const char *qm_case_slot_name(const struct qm_case_run *r, int i)
{
    return r->judged.rule->slot[i];
}

static inline int qm_case_is_wanted(const struct qm_case_run *r, int slot)
{
    return r->only == QM_SLOT_ANY || r->only == slot;
}

/* case_run.c.  Fills the derived members; r->judged, r->c and r->s are given.  QM_SKIPPED: a
 * quantizer does not take the shape, the rule does not take the hyper-parameters, or the backend
 * cannot change them. */
qm_status qm_case_run_open(struct qm_case_run *r);
qm_status qm_case_run_memory(struct qm_case_run *r); /* all buffers and both plans */
void qm_case_run_close(struct qm_case_run *r);
int qm_poisoned_is_intact(const struct qm_poisoned *r); /* 1: both guards are whole */

/* Reads the parameter and codes and scales of every slot into freshly poisoned memory; the decoded
 * values too where `decodes` is 1. */
qm_status qm_case_run_read(struct qm_case_run *r, struct qm_case_plan *s, int decodes);

/* Sets the hyper-parameters of step t, the run's k-th, in r and in the plans. */
qm_status qm_case_run_hyper(struct qm_case_run *r, int k);

/* Closes all plans, restarts the backend where it can be, and opens the plans again with the states
 * that they had; the judged plans were read before. */
qm_status qm_case_run_renew(struct qm_case_run *r);

/* companion.c.  Opens the companion of this role where the case has it (warm: with its first step),
 * steps all that are open, closes them, or opens them again after a restart with the states that
 * they had. */
qm_status qm_company_open(struct qm_case_run *r, enum qm_companion_role role);
qm_status qm_company_step(struct qm_case_run *r);
void qm_company_close(struct qm_case_run *r);
struct qm_company_states; /* opaque */
qm_status qm_company_save(struct qm_case_run *r, struct qm_company_states **out);
qm_status qm_company_load(struct qm_case_run *r, const struct qm_company_states *from);
void qm_company_forget(struct qm_company_states *s); /* accepts NULL */

/* case_input.c.  1: slot i of a rule by elements sums at step t, and does not average, so that g =
 * Inf makes a finite state infinite in every order.  Weights whose sum is 1 to within 1e-3 count as
 * an average's, which are rounded but never so far off: a sum that comes as near is left open. */
int qm_case_is_sum(const struct qm_case_run *r, int i, int64_t t);

/* case_input.c.  Loads the state before the first step into both plans; the buffers of plan[1] hold
 * all of it until that is read. */
qm_status qm_case_run_start(struct qm_case_run *r);

/* Makes the gradient of step t, the run's k-th, in the recipe's type, and in double in
 * r->wide_g. */
void qm_case_make_gradient(struct qm_case_run *r, int64_t t, int k, struct qm_tensor *out);

/* Loads the state that call k of the trial starts from into every plan. */
qm_status qm_case_take_call(struct qm_case_run *r, int k);

/* Finding: the state that plan[0] was just read to have, from which the oracle steps, is not the
 * one that it was given: the run's first, or that of call k of the trial. */
void qm_case_judge_start(struct qm_case_run *r, int k);

/* Copies the inputs of step t, number k of this run, from plan[0], which was just read, to
 * r->record. */
void qm_case_keep_call(struct qm_case_run *r, int k, int64_t t, const struct qm_tensor *g);

/* case_fused.c.  Fills out[k] for every slot k: how far the values that s decodes to are from what
 * a step that fuses their last product starts from; 0 where nothing may be fused. */
void qm_case_fused_errors(struct qm_case_run *r, const struct qm_case_plan *s, double *const *out);

/* case_oracle.c.  Sets r->want_p, r->want, r->error_p and r->error: the oracle's step from the
 * judged plan's state, and the bound of every result. */
qm_status qm_case_oracle(struct qm_case_run *r, int64_t t, const struct qm_tensor *g);

/* case_numbers.c.  Judges the parameter and every slot after step t against the oracle. */
qm_status qm_case_judge_numbers(struct qm_case_run *r, int64_t t, const struct qm_tensor *g,
                                const char *case_name);

/* case_around.c.  Findings: an element that is still poisoned and a guard that is not; a second
 * plan with other bits; a gradient that was changed.  decoded: whether the values were read too. */
void qm_case_judge_memory(struct qm_case_run *r, const struct qm_case_plan *s, int decoded);
void qm_case_judge_repetition(struct qm_case_run *r, int decoded);
void qm_case_judge_gradient(struct qm_case_run *r, const struct qm_tensor *g);

/* Judges the draws of stochastic rounding in step k of the case; then keeps them as those of the
 * step before. */
void qm_case_judge_draws(struct qm_case_run *r, int k);

#endif
