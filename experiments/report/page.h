/* page.h - Writes a result file as one self-contained HTML page, and its tables for a paper. */
#ifndef QM_REPORT_PAGE_H
#define QM_REPORT_PAGE_H

#include <jansson.h>

#include "experiments/report/grid.h"
#include "experiments/report/listing.h"

struct qm_page {
    const char *path; /* path of the result file, as commands on the page name it */
    struct qm_result *r;
    struct qm_listing listing;
    json_t *figures;         /* figures.h; an empty array where none were drawn */
    const char *no_figures;  /* why no figures were drawn, or NULL */
    int64_t most;            /* the most rows of a stored table on the page */
    struct qm_result *pairs; /* against.h: the comparison with an archive, or NULL */
    const char *archive;     /* path of the archive */
};

/* Writes the page: the same bytes for the same file, figures and program.  Errors are those
 * of store/result_reader.h. */
qm_status qm_page_write(const struct qm_page *p, FILE *to);

/* Writes the tables for a paper: the comparison with the archive, the verdicts, and those of
 * /summary and /claims, as far as the file has them. */
qm_status qm_page_markdown(const struct qm_page *p, FILE *to);
qm_status qm_page_latex(const struct qm_page *p, FILE *to);

#endif
