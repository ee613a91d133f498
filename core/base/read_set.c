/* read_set.c - Keeps devices and inodes of files in memory that forked processes share. */
#include "core/base/read_set.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum { MOST = 1 << 17, PLACES = 2 * MOST };
enum { FREE, TAKEN, WHOLE }; /* WHOLE: device and inode are written */

/* A hash table with open addressing. */
struct set {
    _Atomic uint32_t n;
    struct place {
        uint64_t device, inode;
        _Atomic uint32_t state;
    } place[PLACES];
};

static struct set *set;

/* Pages that no file needs are never touched. */
void qm_read_set_start(void)
{
    void *room = mmap(NULL, sizeof *set, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    set = room == MAP_FAILED ? NULL : room;
}

/* The place of the file, or the free one where it belongs. */
static struct place *place_of(const struct stat *info)
{
    uint64_t i = ((uint64_t)info->st_ino * 0x9e3779b97f4a7c15u) >> 46; /* of 2^18 */
    for (;; i = (i + 1) % PLACES) {
        struct place *p = &set->place[i];
        uint32_t state = atomic_load(&p->state);
        if (state == FREE ||
            (state == WHOLE && p->device == info->st_dev && p->inode == info->st_ino))
            return p;
    }
}

int qm_read_set_has(const struct stat *info)
{
    return set && (atomic_load(&set->n) > MOST || atomic_load(&place_of(info)->state) == WHOLE);
}

void qm_read_set_note(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || qm_read_set_has(&info) || !set ||
        atomic_fetch_add(&set->n, 1) >= MOST)
        return;
    for (uint32_t free = FREE;; free = FREE) {
        struct place *p = place_of(&info);
        if (!atomic_compare_exchange_strong(&p->state, &free, TAKEN))
            continue; /* another has taken it meanwhile */
        p->device = info.st_dev;
        p->inode = info.st_ino;
        atomic_store(&p->state, WHOLE);
        return;
    }
}
