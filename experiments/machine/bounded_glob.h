/* bounded_glob.h - glob() for patterns that others wrote: it comes to an end.
 *
 * A pattern with a star in every folder visits the whole disk. */
#ifndef QM_MACHINE_BOUNDED_GLOB_H
#define QM_MACHINE_BOUNDED_GLOB_H

#include <glob.h>

#define QM_GLOB_MOST    100000 /* entries of folders that one pattern visits */
#define QM_GLOB_ENDLESS (-1)

/* As glob(pattern, 0, NULL, out); QM_GLOB_ENDLESS, with nothing found: it visits more entries. */
int qm_bounded_glob(const char *pattern, glob_t *out);

#endif
