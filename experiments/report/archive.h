/* archive.h - Writes the part of a campaign that later campaigns are compared with, small
 * to ship. */
#ifndef QM_REPORT_ARCHIVE_H
#define QM_REPORT_ARCHIVE_H

#include "experiments/store/result_reader.h"

/* Writes to `out` the suite, /cells (the columns that identify a cell, and its status), all tables
 * of /protocol, and the curves step and loss of the plain cells.  The loss is rounded to four
 * digits, because curves are only drawn; comparisons use /protocol/runs.  The attribute `of` of
 * /archive is the digest of the file at `path`, which is r.  QM_NO_MATCH: r holds no
 * paired campaign. */
qm_status qm_archive_write(struct qm_result *r, const char *path, const char *out);

#endif
