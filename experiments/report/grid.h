/* grid.h - A table of texts, written as HTML, Markdown or LaTeX.
 *
 * A grid is built column by column, then cell by cell, row by row.  A failed allocation is stored
 * in .failed and reported by qm_grid_check; the other functions may be called all the same. */
#ifndef QM_REPORT_GRID_H
#define QM_REPORT_GRID_H

#include "experiments/store/result_reader.h"

struct qm_grid_head {
    char *name, *unit, *text; /* unit "" or "1": not shown; text: meaning of the column, or "" */
    int number;               /* right-aligned, and sorted as numbers */
};

struct qm_grid_cell {
    char *text;
    double key; /* sort key in a number column; NaN sorts last */
};

struct qm_text_grid {
    char *name, *text; /* name: title of the table; text: one sentence, or "" */
    int n_cols, failed;
    int64_t n_cells, room;
    int64_t rows_left_out; /* rows of the stored table that the grid does not have */
    struct qm_grid_head *head;
    struct qm_grid_cell *cell; /* [n_cells], row by row */
};

void qm_grid_open(struct qm_text_grid *g, const char *name, const char *text);
void qm_grid_column(struct qm_text_grid *g, const char *name, const char *unit, const char *text,
                    int number);
void qm_grid_text(struct qm_text_grid *g, const char *text);               /* the next cell */
void qm_grid_number(struct qm_text_grid *g, double x, const char *format); /* NaN shows as "-" */
void qm_grid_keyed(struct qm_text_grid *g, double key, const char *text);  /* sorts by key */
qm_status qm_grid_check(const struct qm_text_grid *g); /* QM_NO_MEMORY, or QM_OK */
void qm_grid_close(struct qm_text_grid *g);            /* frees what it holds; accepts zeros */

int64_t qm_grid_rows(const struct qm_text_grid *g);

/* Reads the first `most` rows of a stored table.  Errors are those of store/result_reader.h. */
qm_status qm_grid_read(struct qm_result *r, const char *table, int64_t most,
                       struct qm_text_grid *out);

/* HTML: a scrolling box with a table whose heads are buttons that sort; the id is derived from the
 * grid's name. */
void qm_grid_html(const struct qm_text_grid *g, FILE *to);
void qm_grid_markdown(const struct qm_text_grid *g, FILE *to);
/* A table float with a tabular; needs no package. */
void qm_grid_latex(const struct qm_text_grid *g, FILE *to);

#endif
