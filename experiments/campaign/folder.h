/* folder.h - Files in a campaign's folder; internal to experiments/campaign. */
#ifndef QM_CAMPAIGN_FOLDER_H
#define QM_CAMPAIGN_FOLDER_H

#include <glob.h>
#include <sys/types.h>

#include "experiments/campaign/campaign.h"

/* glob() in a folder whose own name is taken literally.  Returns glob's code; globfree(found) is
 * due in any case. */
int qm_folder_glob(const char *dir, const char *pattern, glob_t *found);

/* open() of a regular file, close-on-exec.  QM_BAD_FILE: it cannot be opened, or is none (a pipe
 * would block for ever).  A file made by O_CREAT has mode 0666. */
qm_status qm_folder_open(const char *path, int flags, int *out);

/* As qm_folder_open, of a file that its campaign bounds: QM_BAD_FILE as well where it has more than
 * `most` bytes, which would take hours and gibibytes to read. */
qm_status qm_folder_open_within(const char *path, int flags, off_t most, int *out);

/* Removes the files of the folder that match a glob pattern. */
void qm_folder_clear(const char *dir, const char *pattern);

/* qm_campaign_begin with the digest computed already. */
qm_status qm_folder_begin(const struct qm_loaded_suite *job, const char *dir, int fresh,
                          const char *digest);

#endif
