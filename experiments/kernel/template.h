/* template.h - The shipped kernels (variants/native): which serves a variant, its text, and whether
 * it takes a case that another refused.
 *
 * A kernel serves the variant it is named after, and those of the lines "Also: NAME NAME ..." of
 * its first comment: its text is then printed with that name in QM_KERNEL.  A CUDA kernel's
 * names end in .cu, and its line is QM_CUDA_KERNEL. */
#ifndef QM_EXPERIMENTS_KERNEL_TEMPLATE_H
#define QM_EXPERIMENTS_KERNEL_TEMPLATE_H

#include <stdio.h>

#include "experiments/kernel/kernel_case.h"

/* Writes name number i of those that qm_template_print takes: headers and kernels, each followed by
 * the other variants it serves.  0: i is beyond the last. */
int qm_template_name(int i, char *name, size_t size);

/* Prints the kernel that serves a variant, or the file of that name.  0: there is none. */
int qm_template_print(FILE *f, const char *name);

struct qm_template; /* opaque; any thread may ask */

/* The kernel that serves the subject's variant; where there is none, every case is taken, because
 * the engine takes it.  limits, subject: kept, not copied. */
qm_status qm_template_open(const struct qm_subject *s, const struct qm_host_limits *limits,
                           struct qm_template **out);
void qm_template_close(struct qm_template *t); /* accepts NULL */

/* 1: the template refuses this case too.  It is compiled when it is first asked; where that fails,
 * it takes every case. */
int qm_template_refuses(struct qm_template *t, const struct qm_case *c, uint64_t seed);

#endif
