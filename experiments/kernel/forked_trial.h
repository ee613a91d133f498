/* forked_trial.h - trials in children of this process: whatever a step does, it can be tried again.
 *
 * Each attempt is a fork that loads the kernel anew, so that nothing is carried over: no static
 * variable, no damaged memory.  This process must not have run a parallel region before. */
#ifndef QM_KERNEL_FORKED_TRIAL_H
#define QM_KERNEL_FORKED_TRIAL_H

#include "experiments/check/trial.h"
#include "experiments/kernel/kernel.h"

/* How an attempt ended; in shared memory. */
struct qm_attempt {
    volatile int is_done, begun; /* begun: steps of a recording */
    enum qm_case_result how;     /* refused: not judged, by text; else as in a check */
    int signal;                  /* of crashed */
    struct qm_finding finding;   /* of failed */
    char text[480];              /* what was found, or how it died */
};

struct qm_forked_trial {
    struct qm_subject *subject; /* after qm_judge_begin; its backend is set here */
    const char *object;         /* the kernel's; NULL: the registered variant itself */
    double mebibytes;
    const volatile int *stop; /* not 0: attempts end as refused; may be NULL */
    int64_t attempts;
    struct qm_attempt *out;
};

qm_status
qm_forked_trial_open(struct qm_forked_trial *lab); /* subject, object, mebibytes, stop are given */
void qm_forked_trial_close(struct qm_forked_trial *lab);

/* Runs work(lab, arg) in a child with the kernel in use, killed after so many seconds.  What work
 * leaves in lab->out counts where the child ends well. */
const struct qm_attempt *qm_forked_trial_run(struct qm_forked_trial *lab,
                                             void (*work)(struct qm_forked_trial *lab,
                                                          const void *arg),
                                             const void *arg, double seconds);

/* qm_judge_trial and qm_judge_record as such work. */
const struct qm_attempt *qm_forked_trial_judge(struct qm_forked_trial *lab,
                                               const struct qm_trial *t, int slot, double seconds);
const struct qm_attempt *qm_forked_trial_record(struct qm_forked_trial *lab,
                                                const struct qm_case *c, int steps,
                                                struct qm_trial *t, double seconds);

#endif
