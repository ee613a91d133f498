/* guarded_memory.h - Buffers between pages without access, so that accesses outside of them
 * fault. */
#ifndef QM_USER_KERNEL_GUARDED_MEMORY_H
#define QM_USER_KERNEL_GUARDED_MEMORY_H

#include "core/base/status.h"

#include <stddef.h>

/* The buffer is at[bytes], aligned to 64 bytes; it ends at the page behind it but for that
 * alignment. */
struct qm_guarded {
    unsigned char *map, *at;
    size_t map_bytes, bytes, page;
    const char *what; /* for messages; not owned */
};

/* Opens a zeroed buffer; of 0 bytes, one that no access can touch.  what: kept, not copied. */
qm_status qm_guarded_open(struct qm_guarded *g, size_t bytes, const char *what);
void qm_guarded_close(struct qm_guarded *g); /* accepts a zeroed struct */

/* Makes the buffer's pages read-only, or writable again. */
void qm_guarded_protect(struct qm_guarded *g, int read_only);

/* Whether the bytes between the buffer and the pages around it are unchanged. */
int qm_guarded_is_intact(const struct qm_guarded *g);

#endif
