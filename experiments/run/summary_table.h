/* summary_table.h - The members of a computed table, for summary.c and summary_output.c only. */
#ifndef QM_RUN_SUMMARY_TABLE_H
#define QM_RUN_SUMMARY_TABLE_H

#include "experiments/run/summary.h"

enum {
    QM_SUMMARY_MAX_KEYS = QM_SUITE_BY + 1,
    QM_SUMMARY_MAX_NUMBERS = QM_SUITE_VALUES * QM_SUITE_VALUES
};

/* clang-format off */
#define QM_SUMMARY_STAT_LIST(X) X(median) X(mean) X(min) X(max) X(std) X(p05) X(p95) X(sum) X(wins)
#define QM_SUMMARY_CELL_KEY_LIST(X)                                                                \
    X(class) X(tensor) X(from) X(quantizer) X(recipe) X(coupling) X(status)
/* clang-format on */

enum qm_summary_stat {
#define X(name) QM_STAT_##name,
    QM_SUMMARY_STAT_LIST(X)
#undef X
        QM_SUMMARY_STAT_COUNT
};

enum qm_cell_key {
#define X(name) QM_CELL_KEY_##name,
    QM_SUMMARY_CELL_KEY_LIST(X)
#undef X
        QM_SUMMARY_CELL_KEY_COUNT
};

/* A key: an axis of the suite or a property of the cell; its distinct texts in order. */
struct qm_summary_key {
    const char *name;
    int axis; /* -1: of_cell */
    enum qm_cell_key of_cell;
    int n, room;
    char **text;
};

struct qm_summary_row {
    int at[QM_SUMMARY_MAX_KEYS];           /* indices of the texts of its keys */
    int64_t n, n_theory, n_plain;          /* n_plain: values left out, of cells without codes */
    int64_t n_cells, n_diverged, n_units;  /* units: after seeds of one were made one */
    int64_t n_best;                        /* values at the rates that were tuned for them */
    double number[QM_SUMMARY_MAX_NUMBERS]; /* the statistics, value-major */
    double low[QM_SUMMARY_MAX_NUMBERS];    /* 95 % intervals of medians; else NaN */
    double high[QM_SUMMARY_MAX_NUMBERS];
    double theory; /* largest |theory_z| of the n_theory cells that have one; NaN: none has */
};

struct qm_summary {
    const struct qm_results *results;
    const struct qm_summary_plan *plan;
    int n_keys, n_rows; /* keys: by, then across */
    struct qm_summary_key key[QM_SUMMARY_MAX_KEYS];
    int value[QM_SUITE_VALUES];
    int has_plain; /* some row leaves values out */
    int has_diverged;
    int is_united[QM_SUITE_AXES]; /* some unit has cells that differ on this axis of the suite */
    int has_theory;               /* the table shows errors, and some cell has a theory of them */
    enum qm_summary_stat stat[QM_SUITE_VALUES];
    struct qm_summary_row *row;
};

/* The values of one cell that counts, with the keys of its row, or those of a unit. */
struct qm_summary_member {
    int at[QM_SUMMARY_MAX_KEYS], n_keys, is_plain, is_best, is_diverged;
    int64_t order, base; /* its cell; the cell it is compared with, or -1 */
    int64_t unit;        /* members of one row with the same unit are one value */
    int64_t draw;        /* members of one unit with the same draw have the same seeds, too */
    double value[QM_SUITE_VALUES], theory;
};

/* The unit of cell i: the first of the cells that differ from it in nothing but a seed that draws
 * no data.  base: the cell it is compared with, or -1. */
int64_t qm_summary_unit(const struct qm_results *r, int64_t i, int64_t base);

/* Cell `unit` (i itself, or the unit of i) with the first value of each axis on which cells differ
 * that are of the same data, state and seeds: a format, a coupling, a learning rate. */
int64_t qm_summary_draw(const struct qm_results *r, int64_t i, int64_t unit);

/* Makes one member of those of a unit, which are adjacent, with the medians of their values;
 * returns how many are left.  In a row of a single unit only members of one draw, or else seeds of
 * equal results, become one.  Sets s->is_united.  scratch holds n numbers. */
int64_t qm_summary_fold(struct qm_summary *s, struct qm_summary_member *m, int64_t n,
                        double *scratch);

/* Whether a value (lockstep.h) is a gap or of gaps, in which a run that diverged counts with the
 * gap 1000; all its other values are of the moment at which it ended. */
int qm_summary_is_of_gap(int value);

#endif
