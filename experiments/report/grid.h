/* grid.h - a table of texts for reading: as HTML, Markdown or LaTeX.
 *
 * Built column by column, then cell by cell in the order of reading.  A failure to find memory is
 * kept in .failed and reported by qm_grid_check; everything else may be called on. */
#ifndef QM_REPORT_GRID_H
#define QM_REPORT_GRID_H

#include "experiments/store/result_reader.h"

struct qm_grid_head {
    char *name, *unit, *text; /* unit "" or "1": not shown; text: "" or what the column means */
    int number;               /* to the right, and sorted as numbers */
};

struct qm_text_grid {
    char *name, *text; /* name: of the table; text: one sentence, or "" */
    int n_cols, failed;
    int64_t n_cells, room;
    int64_t rows_left_out; /* stored, but not here */
    struct qm_grid_head *head;
    char **cell; /* n_cells, row by row */
    double *key; /* what a number column sorts by; NaN sorts last */
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

/* A stored table, its first `most` rows.  Errors as result_reader.h's. */
qm_status qm_grid_read(struct qm_result *r, const char *table, int64_t most,
                       struct qm_text_grid *out);

/* HTML: a box that scrolls by itself, a table whose heads are buttons that sort; its
 * id is made of the grid's name. */
void qm_grid_html(const struct qm_text_grid *g, FILE *to);
void qm_grid_markdown(const struct qm_text_grid *g, FILE *to);
/* A table float with a tabular; needs no package. */
void qm_grid_latex(const struct qm_text_grid *g, FILE *to);

#endif
