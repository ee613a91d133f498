/* h5_guard.h - What every reader of HDF5 files checks before it trusts one: opening, links, sizes.
 *
 * Meant for a reader process (reader_process.h): libhdf5 itself may crash on a damaged file. */
#ifndef QM_FOREIGN_H5_GUARD_H
#define QM_FOREIGN_H5_GUARD_H

#define H5_USE_110_API /* one signature of H5Literate_by_name in every library version */
#include <hdf5.h>

#include "core/base/status.h"
#include "core/base/tensor.h"

#define QM_H5_DEPTH_MAX 64     /* groups on one path */
#define QM_H5_LINK_MAX  250000 /* links followed */
#define QM_H5_SHARE_MAX 5000   /* soft links, and visits of groups that have several names */
#define QM_H5_PATH_MAX  4096   /* bytes of a path, NUL included */

/* The library's innermost error description of the last failed call, as one line; writes and
 * returns text. */
const char *qm_h5_guard_reason(char text[200]);

/* Opens a regular file for reading, locked where the file system has locks, with `cache` bytes of
 * inflated chunks kept per dataset; then closes the reader process's doors: nothing in the file
 * leads to another.  No plug-in of HDF5 is loaded.  QM_BAD_FILE: it is missing, no regular file,
 * not HDF5, or damaged. */
qm_status qm_h5_guard_open(const char *path, size_t cache, hid_t *out);

/* Whether a type is a float of IEEE (2, 4 or 8 bytes) or bfloat16 in all fields, in either byte
 * order.  HDF5 reads any other fields as they stand, wrong ones of a damaged file too. */
int qm_h5_guard_float(hid_t type, enum qm_dtype *out);

/* Whether the storage of an open dataset is what its dimensions claim, for every layout: compact
 * and contiguous storage in full, no more, inside the file; chunks within the memory limit, that
 * deflate could have packed, each at a place of its own (of 2^20 places at most: more are not
 * looked through); no giant that was never written; nothing in other files.  QM_BAD_FILE
 * with "PATH: NAME ...", or without PATH where it is NULL.  Call it before the first read, and
 * before that of values qm_h5_chunks_check (h5_chunks.h), which unpacks them. */
qm_status qm_h5_guard_dataset(const char *path, const char *name, hid_t set);

/* Whether some of a dataset's values were never written and its fill time is "never": what HDF5
 * reads there is what happened to be in memory.  Such a dataset is refused above. */
int qm_h5_guard_has_holes(hid_t set);

/* A walk over the links of a file; start with zeros. */
struct qm_h5_walk_count {
    int depth, links, shared;
};

/* Counts one more link; QM_BAD_FILE when there are too many. */
qm_status qm_h5_guard_count(struct qm_h5_walk_count *count);

/* Counts a visit of a group with `names` hard links: groups in groups that all have two multiply
 * the paths.  QM_BAD_FILE when there are too many. */
qm_status qm_h5_guard_group(unsigned names, struct qm_h5_walk_count *count);

/* As qm_h5_guard_count, for a link that is followed; QM_BAD_FILE when it leads out of the file. */
qm_status qm_h5_guard_link(const char *path, const char *name, const H5L_info_t *link,
                           struct qm_h5_walk_count *count);

#endif
