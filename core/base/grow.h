/* grow.h - Growth of a dynamic array: room for one more element, amortised by doubling. */
#ifndef QM_BASE_GROW_H
#define QM_BASE_GROW_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"

/* Makes *array (malloc'd, or NULL) hold at least `needed` elements of `size` bytes; *capacity
 * is the number that it holds.  The first elements stay; QM_NO_MEMORY leaves both arguments as
 * they were. */
static inline qm_status qm_grow(void **array, int64_t *capacity, int64_t needed, size_t size)
{
    int64_t room = needed > 2 * *capacity ? needed : 2 * *capacity;
    void *old, *more;
    if (needed <= *capacity)
        return QM_OK;
    memcpy(&old, array, sizeof old); /* whatever element type the caller's pointer has */
    more = realloc(old, (size_t)room * size);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "%lld elements of %zu bytes", (long long)room, size);
    memcpy(array, &more, sizeof more);
    *capacity = room;
    return QM_OK;
}

#endif
