/* name_index.c - Numbers by name, in a table with open addresses. */
#include "core/base/name_index.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/fnv1a.h"

/* FNV-1a, its halves mixed. */
static uint64_t hash(const char *name, size_t length)
{
    uint64_t h = qm_fnv1a(QM_FNV1A, name, length);
    return h ^ h >> 32;
}

/* The slot of a name, or the free one where it belongs; there is a free one. */
static struct qm_name_slot *slot_of(const struct qm_name_index *x, const char *name, size_t length)
{
    uint64_t mask = (uint64_t)x->room - 1, i = hash(name, length) & mask;
    while (x->slot[i].name &&
           (x->slot[i].length != length || memcmp(x->slot[i].name, name, length) != 0))
        i = (i + 1) & mask;
    return &x->slot[i];
}

static qm_status grow(struct qm_name_index *x)
{
    struct qm_name_index more = {NULL, x->n, x->room ? 2 * x->room : 64};
    more.slot = calloc((size_t)more.room, sizeof *more.slot);
    if (!more.slot)
        return qm_fail(QM_NO_MEMORY, "%lld names", (long long)more.room);
    for (int64_t i = 0; i < x->room; i++)
        if (x->slot[i].name)
            *slot_of(&more, x->slot[i].name, x->slot[i].length) = x->slot[i];
    free(x->slot);
    *x = more;
    return QM_OK;
}

qm_status qm_name_index_put(struct qm_name_index *x, const char *name, size_t length, int64_t value)
{
    if (2 * (x->n + 1) > x->room)
        QM_TRY(grow(x));
    struct qm_name_slot *s = slot_of(x, name, length);
    if (!s->name) {
        *s = (struct qm_name_slot){name, length, value};
        x->n++;
    }
    return QM_OK;
}

int64_t qm_name_index_get(const struct qm_name_index *x, const char *name, size_t length)
{
    const struct qm_name_slot *s = x->room ? slot_of(x, name, length) : NULL;
    return s && s->name ? s->value : -1;
}

void qm_name_index_free(struct qm_name_index *x)
{
    free(x->slot);
    *x = (struct qm_name_index){NULL, 0, 0};
}
