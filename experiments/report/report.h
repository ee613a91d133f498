/* report.h - Makes the page of a result file for `qualm report` and `qualm run --against`. */
#ifndef QM_REPORT_REPORT_H
#define QM_REPORT_REPORT_H

#include <jansson.h>
#include <stdint.h>

#include "core/base/status.h"

enum { QM_REPORT_ROWS = 300 }; /* rows of a stored table on the page, unless asked otherwise */

struct qm_report {
    const char *path;             /* the result file */
    const char *out;              /* the page; NULL: X.html in the folder of X.h5 */
    const char *markdown, *latex; /* files for the tables, "-" is stdout; NULL: none */
    const char *figures;          /* a folder of figures drawn beforehand; NULL: draw them */
    const char *against;          /* an archive: a path or NAME for results/NAME.h5; NULL: none */
    const char *archive;          /* also writes this archive (archive.h); NULL: none */
    int64_t rows;                 /* the most rows of a stored table on the page */
    int no_figures;               /* 1: draws none */
};

/* Writes the page and the tables, notes them on stderr, and returns the same facts as JSON, which
 * the caller owns.  Files appear whole or not at all.  QM_BAD_FILE where one cannot be read or
 * written, QM_BAD_ARG for a file that is no result file, QM_INTERRUPTED after a signal. */
qm_status qm_report_make(const struct qm_report *o, json_t **out);

/* QM_NO_MATCH: what qm_report_make returned compares with an archive, and no archived variant has a
 * run to pair with. */
qm_status qm_report_expect_pairs(const json_t *out);

/* After a run: makes the page, against an archive, of the result file that the last object of
 * `done` names as "file", adds "page", "against" (the archive) and "against_counts" to the object,
 * and prints the counts where JSON is not asked for.  Does nothing where the object names
 * no file. */
qm_status qm_report_against(json_t *done, const char *archive);

#endif
