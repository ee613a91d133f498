/* forked_trial.h - Runs trials in child processes, so that a crashing step can be tried again.
 *
 * Each attempt is a fork that loads the kernel anew, so that no static variable and no damaged
 * memory is carried over.  The parent must not have run an OpenMP parallel region before. */
#ifndef QM_KERNEL_FORKED_TRIAL_H
#define QM_KERNEL_FORKED_TRIAL_H

#include "experiments/check/trial.h"
#include "experiments/kernel/kernel.h"

/* The outcome of an attempt; in shared memory. */
struct qm_attempt {
    volatile int is_done, begun; /* begun: steps that a recording has begun */
    enum qm_case_result how;     /* refused: not judged, for the reason in text */
    int signal;                  /* where it crashed */
    struct qm_finding finding;   /* where it failed */
    char text[480];              /* the finding, or how the child ended */
};

struct qm_forked_trial {
    struct qm_subject *subject; /* after qm_judge_begin; qm_forked_trial_open sets its backend */
    const char *object;         /* the kernel's shared object; NULL: the registered variant */
    double mebibytes;           /* limit of resident memory; 0: none */
    const volatile int *stop;   /* not 0: attempts end as refused; may be NULL */
    int64_t attempts;           /* number so far */
    struct qm_attempt *out;
};

/* Allocates the outcome; subject, object, mebibytes and stop are given. */
qm_status qm_forked_trial_open(struct qm_forked_trial *forked);
void qm_forked_trial_close(struct qm_forked_trial *forked);

/* Runs work(forked, arg) in a child that has loaded the kernel, and kills it after `seconds`.
 * Returns forked->out, which `work` fills; where the child does not end by itself, the parent fills
 * it. */
const struct qm_attempt *qm_forked_trial_run(struct qm_forked_trial *forked,
                                             void (*work)(struct qm_forked_trial *forked,
                                                          const void *arg),
                                             const void *arg, double seconds);

/* Run qm_judge_trial and qm_judge_record in a child. */
const struct qm_attempt *qm_forked_trial_judge(struct qm_forked_trial *forked,
                                               const struct qm_trial *t, int slot, double seconds);
const struct qm_attempt *qm_forked_trial_record(struct qm_forked_trial *forked,
                                                const struct qm_case *c, int steps,
                                                struct qm_trial *t, double seconds);

#endif
