/* page.h - one self-contained HTML page of a result file. */
#ifndef QM_REPORT_PAGE_H
#define QM_REPORT_PAGE_H

#include <jansson.h>

#include "experiments/report/grid.h"
#include "experiments/report/listing.h"

struct qm_page {
    const char *path; /* of the result file, as commands on the page name it */
    struct qm_result *r;
    struct qm_listing listing;
    json_t *figures;         /* figures.h; empty where none were drawn */
    const char *no_figures;  /* why there are none, or NULL */
    int64_t most;            /* rows of a stored table on the page */
    struct qm_result *pairs; /* against.h: the comparison with an archive, or NULL */
    const char *archive;     /* its path */
};

/* The same bytes for the same file, figures and program.  Errors of result_reader.h. */
qm_status qm_page_write(const struct qm_page *p, FILE *to);

/* The tables for a paper: verdicts, or where there are none those of /summary and /claims. */
qm_status qm_page_markdown(const struct qm_page *p, FILE *to);
qm_status qm_page_latex(const struct qm_page *p, FILE *to);

#endif
