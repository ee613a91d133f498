/* folder.h - for the files of campaign/: what lies in a campaign's folder. */
#ifndef QM_EXPERIMENTS_CAMPAIGN_FOLDER_H
#define QM_EXPERIMENTS_CAMPAIGN_FOLDER_H

#include <glob.h>

#include "experiments/campaign/campaign.h"

/* DIR/NAME. */
void qm_folder_path(const char *dir, const char *name, char *path, size_t size);

/* glob() in a folder whose own name is taken as it is; globfree() afterwards in any case. */
int qm_folder_glob(const char *dir, const char *pattern, glob_t *found);

/* open() of a plain file, close-on-exec: what else has its name (a pipe would wait for ever) is
 * QM_BAD_FILE, as are failures.  A new file, for O_CREAT, has mode 0666. */
qm_status qm_folder_open(const char *path, int flags, int *out);

/* Removes the files of a glob pattern. */
void qm_folder_clear(const char *dir, const char *pattern);

/* qm_campaign_begin, with the digest known. */
qm_status qm_folder_begin(const struct qm_loaded_suite *job, const char *dir, int fresh,
                          const char *digest);

#endif
