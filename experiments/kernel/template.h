/* template.h - Asks the shipped kernel of a recipe whether it takes a case that another refused. */
#ifndef QM_EXPERIMENTS_KERNEL_TEMPLATE_H
#define QM_EXPERIMENTS_KERNEL_TEMPLATE_H

#include "experiments/kernel/kernel_case.h"

struct qm_template; /* opaque; any thread may ask */

/* The kernel of variants/native of the subject's variant; where there is none, every case is
 * taken, because the engine takes it.  limits, subject: kept, not copied. */
qm_status qm_template_open(const struct qm_subject *s, const struct qm_host_limits *limits,
                           struct qm_template **out);
void qm_template_close(struct qm_template *t); /* accepts NULL */

/* 1: the template refuses this case too.  It is compiled when it is first asked; where that fails,
 * it takes every case. */
int qm_template_refuses(struct qm_template *t, const struct qm_case *c, uint64_t seed);

#endif
