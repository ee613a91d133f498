/* compare.h - Compares two result files cell by cell.
 *
 * Cells pair by their id; cells with equal ids pair in their order.  For each variant and metric
 * the comparison has the differences b - a of all pairs with two finite numbers, their mean with
 * Student's 95 % interval (cells are the units), and the one-sided p of b being worse.  Benjamini
 * and Hochberg's procedure keeps the false discovery rate over all judged metrics at 5 %.
 *
 *     same        every difference is 0
 *     worse       the test rejects at this false discovery rate and the mean exceeds the margin; or
 *                 a number became NaN, or became or ceased to be infinite, for the worse (an sqnr
 *                 of +Inf is exact)
 *     better      the whole interval lies on the better side, and the mean exceeds the margin
 *     within      worse or better, but the mean lies within the margin; or the difference of every
 *                 pair does, and no number broke or mended
 *     unclear     none of these
 *     too few     one pair, and it differs: no interval
 *     changed     a metric that is not judged, and has differences
 *
 * Beside the metrics the columns of /cells are compared pair by pair, but for the number of the
 * cell and times; nothing else is, as curves, summaries, verdicts, code books, axes and texts. */
#ifndef QM_REPORT_COMPARE_H
#define QM_REPORT_COMPARE_H

#include "experiments/store/result_reader.h"

/* clang-format off */
#define QM_COMPARED_LIST(X)                                                  \
    X(same, "same") X(worse, "worse") X(better, "better")                    \
    X(within, "within the margin") X(unclear, "unclear") X(few, "too few")   \
    X(changed, "changed")
/* clang-format on */
enum qm_compared {
#define X(name, text) QM_COMPARED_##name,
    QM_COMPARED_LIST(X)
#undef X
};
const char *qm_compared_name(enum qm_compared c);

struct qm_compare_row {
    char *variant, *metric;
    int direction; /* 1: larger is better, -1: smaller is, 0: not judged */
    int64_t n, equal;
    int64_t broken, mended;    /* pairs with a NaN or an infinity that became worse, better */
    double mean, lo, hi, p, q; /* NaN where undefined */
    double most;               /* the largest absolute difference of a pair */
    int differs;               /* most exceeds the margin, or a number broke or mended */
    enum qm_compared verdict;
};

/* A column of /cells, or of /metrics, that not both files have or in which pairs differ. */
struct qm_compare_column {
    char *name;     /* "cells/bits" */
    char in;        /* 'a' or 'b': that file alone has it; 0: both */
    int64_t differ; /* pairs */
};

struct qm_comparison {
    int64_t cells_a, cells_b, pairs, lost; /* lost: ok in a, diverged or failed in b */
    int64_t found;                         /* ok in b, diverged or failed in a */
    int n_rows;
    struct qm_compare_row *row; /* by variant, then metric */
    int worse, differ;          /* rows that are worse; rows that differ */
    int n_columns;
    struct qm_compare_column *column;
};

/* The direction that the list of metrics or of outcomes states (enum qm_better); 0: not judged. */
int qm_compare_direction(const char *metric);

/* metric: n_metrics names, with '+' or '-' at the end to set a direction; NULL: all metrics that
 * both files have.  margin: in the metric's unit, >= 0.  QM_NO_MATCH: the files have no cell in
 * common, or no such metric.  The caller frees *out with qm_comparison_free. */
qm_status qm_compare(const char *path_a, const char *path_b, char *const *metric, int n_metrics,
                     double margin, struct qm_comparison *out);
void qm_comparison_free(struct qm_comparison *c);

#endif
