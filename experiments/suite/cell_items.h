/* cell_items.h - The sources of a suite's cells: recorded tensors, distributions, problems. */
#ifndef QM_SUITE_CELL_ITEMS_H
#define QM_SUITE_CELL_ITEMS_H

#include "experiments/suite/suite.h"

/* One source of cells: a recorded tensor that a source word matches, or the word itself. */
struct qm_cell_item {
    int value; /* index on the axis "source" */
    enum qm_source_kind kind;
    struct qm_recorded *recorded;
    const struct qm_dist_bound *dist;
    const struct qm_problem *problem;
    const char *rest;   /* the text after "states:", "problem:NAME:" */
    const char *text;   /* for the column `source`; shared */
    const char *tensor; /* that of `recorded`, shared; NULL without */
    char *reason;       /* NULL, or why the word matches no source */
};

struct qm_cell_items {
    int n;
    int64_t room;
    struct qm_cell_item *item;
};

/* Finds what the words of the axis "source" stand for, in the order of the axis.  QM_BAD_ARG or
 * QM_NO_MATCH with file and line.  Free with qm_cell_items_free, also on failure. */
qm_status qm_cell_items_find(const struct qm_suite *s, const struct qm_replay *replay,
                             struct qm_cell_items *list);
void qm_cell_items_free(struct qm_cell_items *list);

/* The failure st, with its message behind "FILE:LINE: ", as qm_yaml_place. */
qm_status qm_suite_fail_at(const struct qm_suite *s, int line, qm_status st);

#endif
