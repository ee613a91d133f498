/* guarded_memory.c - One mapping for each buffer: a page without access, the buffer, another such
 * page. */
#include "core/user_kernel/guarded_memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64, POISON = 0xA5 };

static unsigned char *usable(const struct qm_guarded *g) { return g->map + g->page; }
static size_t usable_bytes(const struct qm_guarded *g) { return g->map_bytes - 2 * g->page; }

qm_status qm_guarded_open(struct qm_guarded *g, size_t bytes, const char *what)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    size_t inner = (room + page - 1) / page * page;
    unsigned char *map =
        mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return qm_fail(QM_NO_MEMORY, "a buffer of %zu bytes", bytes);
    if (inner > 0 && mprotect(map + page, inner, PROT_READ | PROT_WRITE) != 0) {
        munmap(map, inner + 2 * page);
        return qm_fail(QM_NO_MEMORY, "a buffer of %zu bytes", bytes);
    }
    *g = (struct qm_guarded){map, map + page + inner - room, inner + 2 * page, bytes, page, what};
    memset(usable(g), POISON, (size_t)(g->at - usable(g)));
    memset(g->at + bytes, POISON, room - bytes);
    return QM_OK;
}

void qm_guarded_close(struct qm_guarded *g)
{
    if (g->map)
        munmap(g->map, g->map_bytes);
    memset(g, 0, sizeof *g);
}

void qm_guarded_protect(struct qm_guarded *g, int read_only)
{
    if (g->map && usable_bytes(g) > 0)
        mprotect(usable(g), usable_bytes(g), read_only ? PROT_READ : PROT_READ | PROT_WRITE);
}

int qm_guarded_is_intact(const struct qm_guarded *g)
{
    const unsigned char *end = g->at + g->bytes;
    if (!g->map)
        return 1;
    for (const unsigned char *b = usable(g); b < g->at; b++)
        if (*b != POISON)
            return 0;
    for (; end < usable(g) + usable_bytes(g); end++)
        if (*end != POISON)
            return 0;
    return 1;
}
