/* report.h - a result file as a page: what `qualm report` and `qualm run --against` do. */
#ifndef QM_REPORT_REPORT_H
#define QM_REPORT_REPORT_H

#include <jansson.h>
#include <stdint.h>

#include "core/base/status.h"

enum { QM_REPORT_ROWS = 300 };

struct qm_report {
    const char *path;             /* the result file */
    const char *out;              /* the page; NULL: X.html beside X.h5 */
    const char *markdown, *latex; /* files for the tables, "-" is stdout; NULL: none */
    const char *figures;          /* a folder of figures drawn beforehand; NULL: draw them */
    const char *against;          /* an archive: a path or NAME for results/NAME.h5; NULL: none */
    const char *archive;          /* also writes this archive (archive.h); NULL: none */
    int64_t rows;                 /* of a stored table on the page */
    int no_figures;
};

/* Writes the page and the tables, says so on stderr, and gives the same as JSON for the caller to
 * print or release.  Files appear whole or not at all. */
qm_status qm_report_make(const struct qm_report *o, json_t **out);

/* After a run: the page of the result file that the last object of `done` names as "file", beside an
 * archive; adds "page" to the object.  Nothing where it names none. */
qm_status qm_report_beside(json_t *done, const char *archive);

#endif
