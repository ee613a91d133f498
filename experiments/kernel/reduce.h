/* reduce.h - qualm shrink from a kernel's file, or a registered variant, to what is written. */
#ifndef QM_EXPERIMENTS_KERNEL_REDUCE_H
#define QM_EXPERIMENTS_KERNEL_REDUCE_H

#include "experiments/kernel/shrink.h"

struct qm_reduction {
    /* Given. */
    const char *file, *as; /* the kernel, what it claims to be; NULL, variant: a registered one */
    const char *out;       /* NULL: no program is written */
    const char *one_case;  /* NULL: the first of the list that fails */
    const char *shape;     /* "1000003": in place of the list's shapes; or NULL */
    uint64_t seed;
    int steps;
    double seconds, mebibytes;
    /* Found. */
    struct qm_recipe recipe;
    struct qm_case c;
    struct qm_shrunk shrunk;
    int is_written, is_verified;
    char why[400]; /* why no program is written, or "" */
};

/* QM_NO_MATCH: nothing fails.  The caller frees with qm_reduction_free even on failure. */
qm_status qm_reduce(struct qm_reduction *r);
void qm_reduction_free(struct qm_reduction *r);

/* "dir/mine.c" -> "mine-repro.c", a file of the current folder. */
void qm_reduction_name(const char *file, char *text, size_t size);

/* To stdout, as text or as JSON. */
void qm_reduction_report(const struct qm_reduction *r);

#endif
