/* name_index.h - Numbers by name: a table that finds any of its names in constant time. */
#ifndef QM_BASE_NAME_INDEX_H
#define QM_BASE_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

struct qm_name_slot {
    const char *name; /* NULL: the slot is free */
    size_t length;
    int64_t value;
};

/* Starts as {0}.  Names are not copied: they live at least as long as the index. */
struct qm_name_index {
    struct qm_name_slot *slot;
    int64_t n, room; /* names; slots, a power of two */
};

/* Gives a name of `length` bytes a value >= 0; a name that has one keeps it. */
qm_status qm_name_index_put(struct qm_name_index *x, const char *name, size_t length,
                            int64_t value);

/* The value of a name, or -1. */
int64_t qm_name_index_get(const struct qm_name_index *x, const char *name, size_t length);

void qm_name_index_free(struct qm_name_index *x); /* leaves {0} */

#endif
