/* reduce.h - qualm shrink, from a kernel's file or a registered variant to the reproducer. */
#ifndef QM_EXPERIMENTS_KERNEL_REDUCE_H
#define QM_EXPERIMENTS_KERNEL_REDUCE_H

#include "experiments/kernel/shrink.h"

struct qm_reduction {
    /* Given. */
    const char *file, *as;  /* the kernel and its recipe; file NULL: a registered variant */
    const char *out;        /* the reproducer's path; NULL: none is written */
    const char *one_case;   /* NULL: the first case of the list that fails */
    const char *shape;      /* "1000003" replaces the shapes of the list; or NULL */
    struct qm_reorder fast; /* of a kernel: as in qm_kernel_options */
    uint64_t seed;
    int steps;
    double seconds, mebibytes;
    /* Found. */
    struct qm_recipe recipe;
    struct qm_case c;
    struct qm_shrunk shrunk;
    int is_written, is_verified;
    char why[400]; /* why no reproducer is written, or "" */
};

/* QM_NO_MATCH: no case fails.  The caller calls qm_reduction_free even on failure. */
qm_status qm_reduce(struct qm_reduction *r);
void qm_reduction_free(struct qm_reduction *r);

/* Writes the reproducer's default name: "dir/mine.c" gives "mine-repro.c" in the current folder. */
void qm_reduction_name(const char *file, char *text, size_t size);

/* Notes where time ran out before the reduction was finished, with the longer command. */
void qm_reduction_tell_cut(const struct qm_reduction *r);

/* Prints the report to stdout, as text or JSON. */
void qm_reduction_report(const struct qm_reduction *r);

#endif
