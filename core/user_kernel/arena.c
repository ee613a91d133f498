/* arena.c - Lays arrays out in a memory file, maps them between guards, finds stray writes. */
#include "core/user_kernel/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64, GUARD_PAGES = 16 };

static uint64_t page(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }
static uint64_t rounded(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

int qm_arena_add(struct qm_arena *a, uint64_t bytes, uint64_t room, int is_const,
                 enum qm_poison poison, const char *what)
{
    int i = a->view.n++;
    a->view.part[i].from = a->bytes;
    a->view.part[i].room = rounded(room > bytes ? room : bytes, page());
    a->view.part[i].is_const = is_const;
    a->array[i].bytes = bytes;
    a->array[i].poison = poison;
    snprintf(a->array[i].what, sizeof a->array[i].what, "%s", what);
    a->bytes += a->view.part[i].room;
    return i;
}

/* ---- poison ---------------------------------------------------------------------------------- */

static unsigned char poison_at(const struct qm_arena *a, int i, uint64_t offset)
{
    enum qm_poison poison = a->array[i].poison;
    uint32_t word = poison == QM_POISON_CODES ? 0xffffffffu : (uint32_t)poison;
    uint32_t finite = poison == QM_POISON_CODES ? 0x7e7e7e7eu
                      : poison == QM_POISON_16  ? 0x7b7bfb7bu
                      : offset / 4 % 2          ? 0x7f7fffffu
                                                : 0xff7fffffu;
    return (unsigned char)((a->at_start ? finite : word) >> 8 * (offset % 4));
}

/* Writes poison into bytes [k, end) of the arena where check is 0; returns the offset of the first
 * byte that is no poison, or -1.  Whole blocks of 64 bytes, of which an array starts one, are
 * taken at once. */
static int64_t poisoned(const struct qm_arena *a, int i, uint64_t k, uint64_t end, int check)
{
    unsigned char block[ALIGN];
    for (uint64_t at = 0; at < ALIGN; at++)
        block[at] = poison_at(a, i, at);
    while (k < end) {
        uint64_t skip = k % ALIGN, n = ALIGN - skip < end - k ? ALIGN - skip : end - k;
        if (!check)
            memcpy(a->kept + k, block + skip, n);
        else if (memcmp(a->kept + k, block + skip, n) != 0)
            for (uint64_t at = 0; at < n; at++)
                if (a->kept[k + at] != block[skip + at])
                    return (int64_t)(k + at);
        k += n;
    }
    return -1;
}

/* The same around array i. */
static int64_t around(const struct qm_arena *a, int i, int check)
{
    uint64_t from = a->view.part[i].from, end = from + a->view.part[i].room, at = a->array[i].at;
    int64_t before = poisoned(a, i, from, at, check);
    return before >= 0 ? before : poisoned(a, i, at + a->array[i].bytes, end, check);
}

void qm_arena_resize(struct qm_arena *a, int i, uint64_t bytes)
{
    uint64_t from = a->view.part[i].from, room = a->view.part[i].room;
    a->array[i].bytes = bytes;
    a->array[i].at = a->at_start ? from : from + room - rounded(bytes, ALIGN);
    memset(a->kept + a->array[i].at, 0, bytes);
    around(a, i, 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

qm_status qm_arena_open(struct qm_arena *a, int at_start)
{
    uint64_t bytes = a->bytes > 0 ? a->bytes : page();
    a->at_start = at_start;
    a->view.guard = GUARD_PAGES * page();
    a->fd = memfd_create("qualm-arrays", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (a->fd < 0 || ftruncate(a->fd, (off_t)bytes) != 0)
        return qm_fail(QM_NO_MEMORY, "shared memory of %llu bytes: %s", (unsigned long long)bytes,
                       strerror(errno));
    /* Nobody can shorten the file, which would end the judge by SIGBUS. */
    fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    void *kept = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    a->bytes = bytes;
    a->shared = shared == MAP_FAILED ? NULL : shared;
    a->kept = kept == MAP_FAILED ? NULL : kept;
    if (!a->shared || !a->kept)
        return qm_fail(QM_NO_MEMORY, "arrays of %llu bytes", (unsigned long long)bytes);
    for (int i = 0; i < a->view.n; i++)
        qm_arena_resize(a, i, a->array[i].bytes);
    a->is_checked = 1;
    return QM_OK;
}

void qm_arena_close(struct qm_arena *a)
{
    if (a->shared)
        munmap(a->shared, a->bytes);
    if (a->kept)
        munmap(a->kept, a->bytes);
    if (a->shared || a->fd > 0)
        close(a->fd);
    memset(a, 0, sizeof *a);
}

void *qm_arena_data(const struct qm_arena *a, int i) { return a->kept + a->array[i].at; }

uint64_t qm_arena_address(const struct qm_arena *a, int i, uint64_t base)
{
    return base + a->array[i].at + a->view.guard * (uint64_t)(i + 1);
}

/* ---- to the kernel and back ------------------------------------------------------------------ */

qm_status qm_arena_settle(struct qm_arena *a)
{
    if (a->is_checked || !a->shared)
        return QM_OK;
    a->is_checked = 1;
    for (int i = 0; i < a->view.n; i++)
        if (memcmp(a->shared + a->view.part[i].from, a->kept + a->view.part[i].from,
                   a->view.part[i].room) != 0)
            return qm_fail(QM_CHECK_FAILED,
                           a->view.part[i].is_const ? "it changed the %s, which are const"
                                                    : "it wrote to the %s after its return",
                           a->array[i].what);
    return QM_OK;
}

void qm_arena_publish(struct qm_arena *a)
{
    memcpy(a->shared, a->kept, a->bytes);
    a->is_checked = 1;
}

qm_status qm_arena_take(struct qm_arena *a)
{
    int damaged = -1, changed = -1;
    for (int i = a->view.n - 1; i >= 0; i--) {
        uint64_t from = a->view.part[i].from, room = a->view.part[i].room;
        if (a->view.part[i].is_const) {
            changed = memcmp(a->shared + from, a->kept + from, room) != 0 ? i : changed;
            continue;
        }
        memcpy(a->kept + from, a->shared + from, room);
        damaged = around(a, i, 1) >= 0 ? i : damaged;
    }
    a->is_checked = 0;
    if (damaged >= 0)
        return qm_fail(QM_CHECK_FAILED, "wrote outside the buffer of the %s",
                       a->array[damaged].what);
    if (changed >= 0)
        return qm_fail(QM_CHECK_FAILED, "changed the %s, which are const", a->array[changed].what);
    return QM_OK;
}

qm_status qm_arena_is_untouched(const struct qm_arena *a)
{
    for (int i = 0; i < a->view.n; i++)
        if (memcmp(a->shared + a->view.part[i].from, a->kept + a->view.part[i].from,
                   a->view.part[i].room) != 0)
            return qm_fail(QM_CHECK_FAILED, "changed the %s and then refused the input",
                           a->array[i].what);
    return QM_OK;
}

/* ---- the mapping between guards -------------------------------------------------------------- */

unsigned char *qm_arena_map(int fd, const struct qm_arena_view *view, void *hint, uint64_t *total)
{
    uint64_t bytes = view->guard * (uint64_t)(view->n + 1);
    for (int i = 0; i < view->n; i++)
        bytes += view->part[i].room;
    void *map = mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *base = map == MAP_FAILED ? NULL : map;
    for (int i = 0; base && i < view->n; i++) {
        unsigned char *at = base + view->part[i].from + view->guard * (uint64_t)(i + 1);
        if (view->part[i].room > 0 &&
            mmap(at, view->part[i].room, PROT_NONE, MAP_SHARED | MAP_FIXED, fd,
                 (off_t)view->part[i].from) == MAP_FAILED) {
            munmap(base, bytes);
            base = NULL;
        }
    }
    *total = bytes;
    return base;
}

void qm_arena_access(unsigned char *base, const struct qm_arena_view *view, uint64_t total, int on)
{
    if (!on) {
        mprotect(base, total, PROT_NONE);
        return;
    }
    for (int i = 0; i < view->n; i++) {
        unsigned char *at = base + view->part[i].from + view->guard * (uint64_t)(i + 1);
        if (view->part[i].room > 0)
            mprotect(at, view->part[i].room,
                     view->part[i].is_const ? PROT_READ : PROT_READ | PROT_WRITE);
    }
}

void qm_arena_describe(const struct qm_arena *a, uint64_t base, uint64_t address, char *text,
                       size_t size)
{
    *text = '\0';
    for (int i = 0; i < a->view.n; i++) {
        uint64_t pages = base + a->view.part[i].from + a->view.guard * (uint64_t)(i + 1);
        uint64_t at = qm_arena_address(a, i, base), end = at + a->array[i].bytes;
        uint64_t last = pages + a->view.part[i].room;
        /* Half of each gap belongs to the array before it, half to the array behind it. */
        if (address < pages - a->view.guard / 2 || address >= last + a->view.guard / 2)
            continue;
        if (address < at)
            snprintf(text, size, "before the %s, start minus %llu", a->array[i].what,
                     (unsigned long long)(at - address));
        else if (address < end)
            snprintf(text, size, "within the %s, byte %llu%s", a->array[i].what,
                     (unsigned long long)(address - at),
                     a->view.part[i].is_const ? " (read-only)" : "");
        else
            snprintf(text, size, "past the %s, end plus %llu", a->array[i].what,
                     (unsigned long long)(address - end));
        return;
    }
}
