/* emu_far.cpp - Chooses the blocks of a step beyond 2^31 elements, and copies its sparse memory. */
#include "emu_far.hpp"
#include "emu_memory.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct qm_far qm_far;

/* ---- which elements block 0 touches ---------------------------------------------------------- */

static uint64_t *touched; /* a bit per element, in address space without memory */
static int64_t n_touched;

/* What a block touches on either side of the element that is looked for. */
static struct {
    int64_t element, below, above; /* below -1, above n: nothing */
} looked_for;

/* Bits of memory per element where the region holds so many for each element of the tensor, as
 * arrays do that are padded a little; 0: it is no such array. */
static int64_t bits_of(const struct region *r)
{
    static const int64_t all[] = {2, 4, 8, 16, 32, 64};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t least = (qm_far.n * all[i] + 7) / 8, bytes = (int64_t)r->bytes;
        if (bytes >= least && bytes - least <= least / 64)
            return all[i];
    }
    return 0;
}

/* Counts a page of memory once: a bit for each page of the lower half of 2^48 bytes. */
static uint64_t *seen;

static void count_page(uintptr_t a)
{
    uintptr_t page = a >> 12;
    if (!seen) {
        void *map = mmap(NULL, (size_t)1 << 32, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        seen = map == MAP_FAILED ? NULL : (uint64_t *)map;
    }
    if (!seen || page >> 35)
        return;
    qm_far.pages += !(seen[page / 64] >> page % 64 & 1);
    seen[page / 64] |= 1ull << page % 64;
}

int qm_far_access(uintptr_t a, size_t size, int write)
{
    if (write)
        count_page(a);
    int64_t most = qm_far.n <= QM_FAR_WHOLE ? QM_FAR_WHOLE_ACCESSES : QM_FAR_ACCESSES;
    if (++qm_far.accesses > most || qm_far.pages > QM_FAR_PAGES) {
        qm_far.left = "its thread blocks loop over too many elements for the emulator";
        return 0;
    }
    const struct region *r = qm_far.is_learning && touched ? qm_region_of(a) : NULL;
    int64_t bits = r ? bits_of(r) : 0;
    if (bits == 0)
        return 1;
    int64_t from = (int64_t)(a - r->at) * 8 / bits, to = (int64_t)(a - r->at + size) * 8 / bits;
    for (int64_t i = from; i < to && i < qm_far.n; i++) {
        n_touched += !(touched[i / 64] >> i % 64 & 1);
        touched[i / 64] |= 1ull << i % 64;
        if (i < looked_for.element && i > looked_for.below)
            looked_for.below = i;
        if (i > looked_for.element && i < looked_for.above)
            looked_for.above = i;
    }
    return 1;
}

void qm_far_communicates(struct qm_emu_at at)
{
    static char text[200];
    const char *slash = strrchr(at.file, '/');
    if (qm_far.doubt || qm_far.n <= QM_FAR_WHOLE)
        return;
    snprintf(text, sizeof text,
             "its blocks communicate by atomic operations, as at %.80s:%d, and only some of them "
             "are run",
             slash ? slash + 1 : at.file, at.line);
    qm_far.doubt = text;
}

/* Address space for so many bits, without memory; NULL: there is none. */
static uint64_t *bits_open(uint64_t n)
{
    void *map = mmap(NULL, (n / 64 + 2) * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return map == MAP_FAILED ? NULL : (uint64_t *)map;
}

static void bits_close(uint64_t *bits, uint64_t n)
{
    if (bits)
        munmap(bits, (n / 64 + 2) * sizeof *bits);
}

void qm_far_learn(void)
{
    touched = bits_open((uint64_t)qm_far.n);
    n_touched = 0;
    qm_far.is_learning = 1;
}

/* The first element from `from` on whose bit is `bit`; n: there is none. */
static int64_t next(int64_t from, uint64_t bit)
{
    int64_t i = from;
    while (i < qm_far.n && (touched[i / 64] >> i % 64 & 1) != bit)
        i += i % 64 == 0 && touched[i / 64] == (bit ? 0 : ~0ull) ? 64 : 1;
    return i < qm_far.n ? i : qm_far.n;
}

static int add(uint64_t block, uint64_t blocks, uint64_t chosen[QM_FAR_BLOCKS], int count)
{
    int at = 0;
    while (at < count && chosen[at] < block)
        at++;
    if (block == 0 || block >= blocks || count == QM_FAR_BLOCKS ||
        (at < count && chosen[at] == block))
        return count;
    memmove(&chosen[at + 1], &chosen[at], (size_t)(count - at) * sizeof *chosen);
    chosen[at] = block;
    return count + 1;
}

/* Blocks before the share of the last window: the last block of a part may be nearly empty. */
enum { BEFORE = 3 };

int qm_far_learned(uint64_t blocks, uint64_t chosen[QM_FAR_BLOCKS])
{
    const int64_t n = qm_far.n, first[] = {0, n - 7 - qm_far.block};
    const int64_t end[] = {qm_far.block, n};
    int64_t begin = touched ? next(0, 1) : n; /* of the part that the launch works on */
    int64_t run = begin < n ? next(begin, 0) - begin : 0;
    int64_t stride = run > 0 ? next(begin + run, 1) - begin : 0;
    int count = 0;
    for (int k = 0; k < 2 && run > 0; k++) {
        int64_t e = first[k] > begin ? first[k] - begin : 0;
        for (; e < end[k] - begin; e = e / run * run + run)
            count = add((uint64_t)(begin + stride < n ? e % stride : e) / (uint64_t)run, blocks,
                        chosen, count);
    }
    for (int k = 0; k < 2 && begin > 0; k++) { /* by their share of the grid too */
        uint64_t from = (uint64_t)((unsigned __int128)first[k] * blocks / (uint64_t)n);
        uint64_t to = (uint64_t)((unsigned __int128)(end[k] - 1) * blocks / (uint64_t)n);
        for (uint64_t b = from > BEFORE ? from - BEFORE : 0; b <= to && b < blocks; b++)
            count = add(b, blocks, chosen, count);
    }
    return count;
}

/* ---- blocks of another layout ---------------------------------------------------------------- */

/* Blocks that a search may run. */
enum { SEARCHED = 4096 };

/* Blocks first, first + step, ... of which `count` are searched. */
struct block_line {
    uint64_t first, step, count;
};

struct block_search {
    uint64_t blocks, runs, *was_run; /* a bit per block */
    size_t shared;
    int (*run)(uint64_t block, size_t shared);
};

static int has_touched(int64_t e) { return touched[e / 64] >> e % 64 & 1; }

/* Runs a block once.  The side of element e on which the nearest element lies that it touches: -1
 * or 1; 0 where e is touched, it touches none, it has run before or no more may run. */
static int side_of_block(struct block_search *s, uint64_t block, int64_t e)
{
    if (block >= s->blocks || s->was_run[block / 64] >> block % 64 & 1 || s->runs == SEARCHED)
        return 0;
    s->was_run[block / 64] |= 1ull << block % 64;
    s->runs++;
    looked_for = {e, -1, qm_far.n};
    if (!s->run(block, s->shared))
        s->runs = SEARCHED;
    if (has_touched(e) || (looked_for.below < 0 && looked_for.above == qm_far.n))
        return 0;
    return looked_for.below < 0 || looked_for.above - e < e - looked_for.below ? 1 : -1;
}

/* Whether a block of the line touches e: by bisection, as if the elements of its blocks rose or
 * fell. */
static int bisect_blocks(struct block_search *s, struct block_line l, int64_t e, uint64_t *found)
{
    if (l.count < 2)
        return 0;
    uint64_t low = 0, high = l.count - 1;
    while (low < high &&
           s->was_run[(l.first + low * l.step) / 64] >> (l.first + low * l.step) % 64 & 1)
        low++;
    int at_low = side_of_block(s, *found = l.first + low * l.step, e);
    int at_high = has_touched(e) ? 0 : side_of_block(s, *found = l.first + high * l.step, e);
    if (has_touched(e) || at_low == 0 || at_low == at_high)
        return has_touched(e);
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        int side = side_of_block(s, *found = l.first + middle * l.step, e);
        if (has_touched(e) || side == 0)
            return has_touched(e);
        *(side == at_low ? &low : &high) = middle;
    }
    return 0;
}

/* Whether a block that has not run touches e: beside the one that was found last, or of all, of a
 * half, or of every second one. */
static int find_block(struct block_search *s, int64_t e, uint64_t *found)
{
    uint64_t n = s->blocks, half = n / 2, last = *found;
    const struct block_line lines[] = {
        {0, 1, n}, {0, 1, half + 1}, {half + 1, 1, n - half - 1}, {0, 2, n - half}, {1, 2, half}};
    for (int k = 0; k < 2 && !has_touched(e); k++)
        (void)side_of_block(s, *found = k ? last - 1 : last + 1, e);
    for (size_t k = 0; k < sizeof lines / sizeof *lines && !has_touched(e); k++)
        (void)bisect_blocks(s, lines[k], e, found);
    return has_touched(e);
}

void qm_far_search(uint64_t blocks, const uint64_t *chosen, int n_chosen, size_t shared,
                   int (*run)(uint64_t block, size_t shared))
{
    const int64_t first[] = {0, qm_far.n - 7 - qm_far.block}, end[] = {qm_far.block, qm_far.n};
    struct block_search s = {blocks, 0, bits_open(blocks), shared, run};
    uint64_t found = 0;
    /* a launch that works on a part of the tensor has not these blocks, and those of a grid that
     * strides are few and long */
    int is_over_all =
        (unsigned __int128)n_touched * blocks / (uint64_t)(n_chosen + 1) >= (uint64_t)qm_far.n / 2;
    int is_short = qm_far.accesses / (n_chosen + 1) < QM_FAR_ACCESSES / 1024;
    for (int k = -1; k < n_chosen && s.was_run; k++) {
        uint64_t block = k < 0 ? 0 : chosen[k];
        s.was_run[block / 64] |= 1ull << block % 64;
    }
    for (int k = 0; k < 2 && touched && s.was_run && is_over_all && is_short; k++)
        for (int64_t e = next(first[k], 0); e < end[k]; e = next(e, 0))
            if (!find_block(&s, e, &found))
                break;
    bits_close(s.was_run, blocks);
    bits_close(touched, (uint64_t)qm_far.n);
    touched = NULL;
    qm_far.is_learning = 0;
}

enum { KEPT = 256 };
static struct kept {
    uintptr_t at;
    size_t bytes;
    void *copy;
} kept[KEPT];
static int n_kept;

void qm_far_keep(const struct region *r)
{
    if (qm_far.n <= QM_FAR_WHOLE || r->flags & (QM_REGION_FAR | QM_REGION_STEP))
        return;
    for (int i = 0; i < n_kept; i++)
        if (kept[i].at == r->at)
            return;
    void *copy = n_kept < KEPT ? malloc(r->bytes) : NULL;
    if (!copy)
        return;
    __real_memcpy(copy, (const void *)r->at, r->bytes);
    kept[n_kept++] = {r->at, r->bytes, copy};
}

static void give_back()
{
    for (; n_kept > 0; n_kept--) {
        const struct kept *k = &kept[n_kept - 1];
        const struct region *r = qm_region_of(k->at);
        if (r && r->at == k->at && r->bytes == k->bytes)
            __real_memcpy((void *)k->at, k->copy, k->bytes);
        free(k->copy);
    }
}

void qm_far_end(void)
{
    give_back();
    if (seen)
        munmap(seen, (size_t)1 << 32);
    seen = NULL;
    qm_far = {};
}

/* ---- sparse memory --------------------------------------------------------------------------- */

enum { PAGE = 4096, PAGES = 4096 };

/* Calls work for the part of each page in [at, at + bytes) that holds something. */
template <class F> static void each_page(const void *at, size_t bytes, const F &work)
{
    static uint64_t entry[PAGES]; /* of /proc/self/pagemap: bit 63, present; bit 62, swapped out */
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uintptr_t from = (uintptr_t)at, end = from + bytes;
    for (uintptr_t page = from / PAGE; page <= (end - 1) / PAGE; page += PAGES) {
        size_t n = (end - 1) / PAGE - page + 1;
        n = n < PAGES ? n : (size_t)PAGES;
        ssize_t got = pread(fd, entry, n * sizeof *entry, (off_t)(page * sizeof *entry));
        if (got != (ssize_t)(n * sizeof *entry)) {
            qm_far.left = "/proc/self/pagemap, which its copies need, cannot be read";
            break;
        }
        for (size_t i = 0; i < n; i++) {
            uintptr_t low = (page + i) * PAGE, high = low + PAGE;
            low = low > from ? low : from;
            high = high < end ? high : end;
            if (entry[i] >> 62)
                work(low, high - low);
        }
    }
    if (fd >= 0)
        close(fd);
}

void qm_far_copy(void *to, const void *from, size_t bytes)
{
    uintptr_t a = (uintptr_t)from, b = (uintptr_t)to;
    if (bytes == 0)
        return;
    each_page(to, bytes, [](uintptr_t at, size_t n) { __real_memset((void *)at, 0, n); });
    each_page(from, bytes, [=](uintptr_t at, size_t n) {
        __real_memcpy((void *)(b + (at - a)), (void *)at, n);
    });
}

void qm_far_fill(void *to, int byte, size_t bytes)
{
    const struct region *r = qm_region_of((uintptr_t)to);
    int64_t bits = r ? bits_of(r) : 0;
    const int64_t first[] = {0, qm_far.n - 7 - qm_far.block}, end[] = {qm_far.block, qm_far.n};
    if (bytes == 0)
        return;
    each_page(to, bytes, [=](uintptr_t at, size_t n) { __real_memset((void *)at, byte, n); });
    for (int k = 0; k < 2 && bits > 0 && byte != 0; k++) {
        uintptr_t low = r->at + (uintptr_t)(first[k] * bits / 8);
        uintptr_t high = k == 1 ? r->at + r->bytes : r->at + (uintptr_t)((end[k] * bits + 7) / 8);
        low = low > (uintptr_t)to ? low : (uintptr_t)to;
        high = high < (uintptr_t)to + bytes ? high : (uintptr_t)to + bytes;
        if (low < high)
            __real_memset((void *)low, byte, high - low);
    }
}
