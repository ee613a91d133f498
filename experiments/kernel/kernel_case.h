/* kernel_case.h - Judges one case of a kernel that runs in a process of its own. */
#ifndef QM_EXPERIMENTS_KERNEL_KERNEL_CASE_H
#define QM_EXPERIMENTS_KERNEL_KERNEL_CASE_H

#include "core/user_kernel/backend_file.h"
#include "experiments/check/judge.h"

/* The result of a case: the judge's, or how the kernel's process ended. */
/* clang-format off */
#define QM_CASE_RESULT_LIST(X) \
    X(passed) X(failed) X(refused) X(crashed) X(hung) X(memory) X(left) X(processes) X(garbage) \
    X(unfit)
/* clang-format on */
enum qm_case_result {
#define X(name) QM_CASE_##name,
    QM_CASE_RESULT_LIST(X)
#undef X
        QM_CASE_RESULT_COUNT
};
const char *qm_case_result_name(enum qm_case_result r);
int qm_case_result_is_bad(enum qm_case_result r); /* 1: not passed, refused or unfit */

enum { QM_VERDICT_TEXT = 1200 };

struct qm_kernel_verdict {
    enum qm_case_result how;
    int signal;                /* that the process died by, or 0 */
    struct qm_finding finding; /* severity 0: there is none */
    /* the finding, why the case was refused or is unfit, or how the process ended */
    char text[QM_VERDICT_TEXT];
};

/* Copies text to out[size] and puts the decimal value beside each hexadecimal float, "0x1.8p-1 =
 * 0.75", in so many digits, 6 to 17, that those which differ do so in decimal too. */
void qm_decimal_text(const char *text, char *out, size_t size);

/* Makes the verdict of a case from the status of its judging (whose text is qm_message()) and its
 * finding, the end of the kernel's process and what it left changed; name: of the case, for texts.
 * kernel NULL: a registered variant.  Returns QM_OK, or the status of a failure that is not the
 * kernel's. */
qm_status qm_kernel_conclude(struct qm_kernel_file *kernel, qm_status st, const char *name,
                             const struct qm_finding *f, struct qm_kernel_verdict *v);

/* Judges one case on the subject's backend; adds to t, also what only the process shows. */
qm_status qm_kernel_judge(const struct qm_subject *s, struct qm_kernel_file *kernel,
                          const struct qm_case *c, uint64_t seed, struct qm_tally *t,
                          struct qm_kernel_verdict *v);

#endif
