/* archive.h - what is kept of a campaign for others to be compared with: small enough to ship. */
#ifndef QM_REPORT_ARCHIVE_H
#define QM_REPORT_ARCHIVE_H

#include "experiments/store/result_reader.h"

/* Writes to `out` the suite, /cells (what names a cell and how it ended), all tables of /protocol,
 * and of the suite's own cells the curves step and loss, the loss rounded to four digits: they are
 * drawn, everything that is compared is in /protocol/runs.  The attribute `of` of /archive is the
 * digest of the file it was made of.  QM_NO_MATCH: r holds no paired campaign. */
qm_status qm_archive_write(struct qm_result *r, const char *path, const char *out);

#endif
