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

/* Sets path to the archive of a word: a path, or NAME for results/NAME.h5.  QM_NO_MATCH. */
qm_status qm_archive_find(const char *word, char *path, size_t size);

/* Checks that the file has runs to pair with.  QM_BAD_FILE, QM_NO_MATCH. */
qm_status qm_archive_check(const char *path);

#endif
