/* guarded_memory.h - buffers between unmapped pages. */
#ifndef QM_USER_KERNEL_GUARDED_MEMORY_H
#define QM_USER_KERNEL_GUARDED_MEMORY_H

#include "core/base/status.h"

#include <stddef.h>

/* at[0 .. bytes - 1], aligned to 64; plain data, filled by qm_guarded_open. */
struct qm_guarded {
    unsigned char *map, *at;
    size_t map_bytes, bytes, page;
    const char *what; /* for messages; not owned */
};

/* Zeroed memory; 0 bytes give a buffer that cannot be touched.  what: kept, not copied. */
qm_status qm_guarded_open(struct qm_guarded *g, size_t bytes, const char *what);
void qm_guarded_close(struct qm_guarded *g); /* accepts a zeroed struct */

/* From now on the pages can be read only, or written again. */
void qm_guarded_protect(struct qm_guarded *g, int read_only);

/* Whether what lies between the buffer and the unmapped pages is as it was. */
int qm_guarded_is_intact(const struct qm_guarded *g);

#endif
