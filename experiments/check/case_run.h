/* case_run.h - one case as it is run: the judged step on one thread and on two, the oracle's numbers
 * beside it, and what each step is asked.  For the files of judge.h alone. */
#ifndef QM_EXPERIMENTS_CHECK_CASE_RUN_H
#define QM_EXPERIMENTS_CHECK_CASE_RUN_H

#include "experiments/check/judge.h"
#include "experiments/check/stored.h"
#include "experiments/check/trial.h"
#include "oracle/oracle.h"

enum { QM_CASE_TENSOR = 1, QM_GUARD = 64, QM_POISON = 0xA5 };

/* Poisoned memory between two guards of QM_GUARD bytes. */
struct qm_room {
    unsigned char *base;
    size_t bytes;
};

/* One of the two plans, with everything that a backend writes to. */
struct qm_case_side {
    void *plan;
    struct qm_room p_room, stored_room, residual_room, state_room[QM_MAX_SLOTS],
        codes_room[QM_MAX_SLOTS], scales_room[QM_MAX_SLOTS];
    void *stored, *residual; /* the parameter as it is stored; f32: p itself */
    float *p, *state[QM_MAX_SLOTS], *scales[QM_MAX_SLOTS];
    uint8_t *codes[QM_MAX_SLOTS];
};

struct qm_case_run {
    const struct qm_subject *s;
    const struct qm_case *c;
    struct qm_recipe judged, run; /* applied to the case; run: altered too */
    const struct qm_oracle *oracle;
    struct qm_oracle_hyper hyper;
    struct qm_stored format; /* of the parameter */
    int n_slots;
    struct qm_shape shape[QM_MAX_SLOTS]; /* of the slots */
    int64_t n, slot_n[QM_MAX_SLOTS], n_scales[QM_MAX_SLOTS];
    const struct qm_decider *decider[QM_MAX_SLOTS]; /* NULL: float32 */
    uint64_t seed;
    struct qm_case_side side[2]; /* one thread, two threads */
    struct qm_baseline float32;  /* open where RMSEs are taken */
    struct qm_room g_room, h_room;
    float *g;
    uint16_t *h;
    double *want_p, *want[QM_MAX_SLOTS], *error_p, *error[QM_MAX_SLOTS], *lo, *hi;
    double *wide_p, *wide_g, *wide[QM_MAX_SLOTS]; /* the inputs of a step */
    double *stored[QM_MAX_SLOTS];                 /* slots after it, as they decode */
    float *before_p, *before[QM_MAX_SLOTS];
    float *left[2][QM_MAX_SLOTS + 1]; /* choices of this step and of the one before; QM_MAX_SLOTS:
                                       * of the parameter */
    int *flag;
    const struct qm_trial *trial; /* where the inputs come from; NULL: from the case */
    struct qm_trial *record;      /* where they go to, or NULL */
    volatile int *begun;          /* steps, or NULL */
    int only;                     /* slot that is judged, or QM_SLOT_ANY */
    int n_sides, steps;
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

/* case_run.c: r->judged, r->c and r->s are given; QM_SKIPPED: the shape does not fit. */
qm_status qm_case_run_open(struct qm_case_run *r);
qm_status qm_case_run_memory(struct qm_case_run *r);
void qm_case_run_close(struct qm_case_run *r);
int qm_room_is_intact(const struct qm_room *r);

/* Reads codes, scales and, where wanted, values of every slot into poisoned memory. */
qm_status qm_case_run_read(struct qm_case_run *r, struct qm_case_side *s, int decodes);

/* case_input.c: the state before the first step, and the gradient of step t, the run's k-th, in the
 * recipe's type, with what it widens to in r->wide_g. */
qm_status qm_case_run_start(struct qm_case_run *r);
void qm_case_make_gradient(struct qm_case_run *r, int64_t t, int k, struct qm_tensor *out);

/* Both sides take over the state that call k of the trial starts from. */
qm_status qm_case_take_call(struct qm_case_run *r, int k);

/* Keeps the inputs of step t, number k of this run; side 0 was just read. */
void qm_case_keep_call(struct qm_case_run *r, int k, int64_t t, const struct qm_tensor *g);

/* case_oracle.c: the oracle from the judged side's state, and the bound of every result. */
qm_status qm_case_oracle(struct qm_case_run *r, int64_t t, const struct qm_tensor *g);

/* case_numbers.c: what the oracle says of the parameter and of every slot after step t. */
qm_status qm_case_judge_numbers(struct qm_case_run *r, int64_t t, const struct qm_tensor *g,
                                const char *case_name);

/* case_around.c: poison that is still there, and guards that are not; a second run that differs; a
 * gradient that was changed. */
void qm_case_judge_memory(struct qm_case_run *r, const struct qm_case_side *s, int decoded);
void qm_case_judge_repetition(struct qm_case_run *r, int decoded);
void qm_case_judge_gradient(struct qm_case_run *r, const struct qm_tensor *g);

/* The choices of stochastic rounding in step k of the case; then they become those of the step
 * before. */
void qm_case_judge_draws(struct qm_case_run *r, int k);

#endif
