/* shipped_files.h - Finds the files that ship with the program, from whatever folder it is started.
 *
 * Suites, recorded states and the baseline are named by their path in the source tree
 * ("experiments/suites/").  qm_shipped looks for such a path, in this order,
 *   in the current folder, which is the source tree for who builds from it;
 *   in $QUALM_SHARE, where that is set;
 *   in share/qualm beside the program's own folder (`make install`);
 *   in the program's own folder and two folders above it (`make bundle`, build/gcc/qualm). */
#ifndef QM_MACHINE_SHIPPED_FILES_H
#define QM_MACHINE_SHIPPED_FILES_H

#include <stddef.h>

/* Writes to out[size] where `path` stands.  Where nothing is found, or where the result would not
 * fit, out is `path` itself, cut to size, so that an error names it.  Returns out. */
char *qm_shipped(const char *path, char *out, size_t size);

#define QM_SHIPPED_DATA "experiments/data/" /* recorded states that come with qualm */

/* As qm_shipped, for a pattern of glob ("*.h5"), of which at least one file must be there.  The
 * result is a pattern, in which the characters of the folder stand for themselves. */
char *qm_shipped_pattern(const char *path, char *out, size_t size);

/* As qm_shipped_pattern, of a relative pattern that is looked for in `folder` first (NULL: not). */
char *qm_shipped_pattern_from(const char *folder, const char *path, char *out, size_t size);

/* Whether recorded states came with this copy, whatever a pattern below their folder names. */
int qm_has_shipped_data(void);

#endif
