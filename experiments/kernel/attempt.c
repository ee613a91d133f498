/* attempt.c - Runs one trial or one recording on a fresh process, and concludes. */
#include "experiments/kernel/attempt.h"

static void begin(struct qm_attempts *a, double seconds)
{
    a->n++;
    if (a->progress)
        qm_progress_add(a->progress, 1, 0);
    if (!a->kernel)
        return;
    qm_host_down(qm_kernel_file_host(a->kernel));
    qm_host_allow(qm_kernel_file_host(a->kernel), seconds);
    qm_host_begin(qm_kernel_file_host(a->kernel));
    qm_kernel_file_use(a->kernel);
}

static const struct qm_kernel_verdict *end(struct qm_attempts *a, qm_status st,
                                           const struct qm_finding *f)
{
    st = qm_kernel_conclude(a->kernel, st, "", f, &a->out);
    if (st != QM_OK) {
        a->out = (struct qm_kernel_verdict){.how = QM_CASE_refused};
        snprintf(a->out.text, sizeof a->out.text, "%s", qm_message());
    }
    return &a->out;
}

const struct qm_kernel_verdict *qm_attempt_judge(struct qm_attempts *a, const struct qm_trial *t,
                                                 int slot, double seconds)
{
    struct qm_finding f = {0};
    begin(a, seconds);
    return end(a, qm_judge_trial(a->subject, t, slot, &f), &f);
}

const struct qm_kernel_verdict *qm_attempt_record(struct qm_attempts *a, const struct qm_case *c,
                                                  int steps, struct qm_trial *t, double seconds)
{
    struct qm_finding f = {0};
    volatile int begun = 0;
    begin(a, seconds);
    qm_status st = qm_judge_record(a->subject, c, steps, t, &begun, &f);
    a->begun = begun;
    return end(a, st, &f);
}
