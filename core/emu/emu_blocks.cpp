/* emu_blocks.cpp - Which accesses by other blocks of a launch are ordered before the current one.
 *
 * A block releases what precedes a __threadfence by an atomic operation that follows the fence; a
 * block acquires it by an atomic operation on the same number, as the last block does that draws
 * the highest ticket.  In a release stand before the fence: accesses of the thread that executes
 * it, of other threads before the last barrier, of its warp before the last __syncwarp.  A fence
 * stands before the atomic operation in the same thread, or with a barrier between.  An acquired
 * access is seen by the thread's warp at once and by the block after the next barrier.  No fence is
 * asked for behind the acquiring operation. */
#include "emu_memory.hpp"

#include <stdlib.h>
#include <string.h>

/* Numbers beyond CHANNELS share the last channel, so that they order too much. */
enum { CHANNELS = 64, FENCES_MOST = 31 };

/* A number that blocks release and acquire by. */
static struct channel {
    uintptr_t at;
    uint64_t others; /* channels by which its releasing blocks had acquired */
    uint32_t epoch;  /* of the block's first acquisition */
    uint32_t warps;  /* that acquired it in that epoch */
} channels[CHANNELS];
static int n_channels;

static struct release {
    uint32_t begin, end; /* the block's epochs; end 0: it runs */
    uint32_t upto;       /* accesses of earlier epochs of the block are released */
    uint32_t epoch;      /* of the thread's own last fence */
    uint32_t now;        /* of the atomic operation */
    uint16_t thread, clock;
    uint8_t channel, count; /* count: of the thread's own fences */
    int has_fences;
    size_t fences; /* where counts[] begin that all threads had at the last barrier */
} * releases;
static size_t n_releases, releases_room, pool_used, pool_room;
static uint8_t *pool; /* arrays of QM_THREADS_MOST counts */
static int is_full;   /* no memory for a release: everything counts as ordered */

/* Fences of the threads of this block: how many, and at the last barrier; the epochs of the last
 * one of each and of any before that barrier. */
static uint8_t fences[QM_THREADS_MOST], fences_before[QM_THREADS_MOST];
static uint16_t fence_clock[QM_THREADS_MOST];
static uint32_t fence_epoch[QM_THREADS_MOST], any_epoch, any_before;
static size_t pool_at; /* of fences_before, where has_pool */
static int has_pool, any_in_launch;

static void __attribute__((destructor)) blocks_close()
{
    free(releases);
    free(pool);
}

void qm_blocks_launch(void)
{
    n_releases = pool_used = 0;
    n_channels = any_in_launch = is_full = 0;
}

void qm_blocks_block(void)
{
    for (size_t k = n_releases; k > 0 && releases[k - 1].end == 0; k--)
        releases[k - 1].end = qm_now.block_epoch;
    if (any_epoch) {
        memset(fences, 0, sizeof fences);
        memset(fences_before, 0, sizeof fences_before);
        memset(fence_epoch, 0, sizeof fence_epoch);
    }
    any_epoch = any_before = 0;
    has_pool = 0;
}

void qm_blocks_barrier(void)
{
    if (any_epoch > any_before) {
        memcpy(fences_before, fences, sizeof fences);
        any_before = any_epoch;
        has_pool = 0;
    }
}

extern "C" void qm_emu_fence(void)
{
    unsigned int t = qm_now.thread;
    fences[t] = (uint8_t)(fences[t] < FENCES_MOST ? fences[t] + 1 : FENCES_MOST);
    fence_epoch[t] = any_epoch = qm_now.epoch;
    fence_clock[t] = qm_now.synced->own[t % QM_WARP];
    any_in_launch = 1;
}

unsigned int qm_blocks_fences(void) { return fences[qm_now.thread]; }

/* ---- releases -------------------------------------------------------------------------------- */

static int channel_of(uintptr_t a)
{
    int k = 0;
    while (k < n_channels && channels[k].at != a)
        k++;
    if (k == CHANNELS)
        return CHANNELS - 1;
    if (k == n_channels)
        channels[n_channels++] = channel{a, 0, 0, 0};
    return k;
}

static int is_acquired(int k)
{
    const struct channel *c = &channels[k];
    return c->epoch >= qm_now.block_epoch &&
           (c->epoch < qm_now.epoch || (c->warps >> qm_now.thread / QM_WARP & 1));
}

static void *grown(void *p, size_t used, size_t *room, size_t size)
{
    if (used < *room)
        return p;
    size_t more = *room ? 2 * *room : 64;
    void *q = realloc(p, more * size);
    *room = q ? more : *room;
    is_full |= !q;
    return q ? q : p;
}

/* Keeps fences_before for the releases until the next barrier with a fence before it. */
static void keep_fences()
{
    if (has_pool)
        return;
    pool = (uint8_t *)grown(pool, pool_used, &pool_room, QM_THREADS_MOST);
    if (is_full)
        return;
    pool_at = pool_used++;
    memcpy(pool + pool_at * QM_THREADS_MOST, fences_before, sizeof fences_before);
    has_pool = 1;
}

static int is_known(const struct release *x)
{
    for (size_t k = n_releases; k > 0 && releases[k - 1].end == 0; k--) {
        const struct release *y = &releases[k - 1];
        if (y->channel == x->channel && y->upto == x->upto && y->epoch == x->epoch &&
            y->thread == x->thread && y->clock == x->clock && y->count == x->count &&
            y->now == x->now && y->has_fences == x->has_fences && y->fences == x->fences)
            return 1;
        if (n_releases - k > 8)
            break;
    }
    return 0;
}

static void release(int channel)
{
    unsigned int t = qm_now.thread;
    uint32_t own = fence_epoch[t];
    if (own == 0 && any_before == 0)
        return;
    if (any_before)
        keep_fences();
    struct release x = {qm_now.block_epoch,
                        0,
                        own > any_before ? own : any_before,
                        own,
                        qm_now.epoch,
                        (uint16_t)t,
                        fence_clock[t],
                        (uint8_t)channel,
                        fences[t],
                        any_before != 0,
                        any_before ? pool_at : 0};
    for (int k = 0; k < n_channels; k++) /* what it acquired by other numbers it releases too */
        if (is_acquired(k))
            channels[channel].others |= 1ull << k | channels[k].others;
    if (is_known(&x))
        return;
    releases = (struct release *)grown(releases, n_releases, &releases_room, sizeof x);
    if (!is_full)
        releases[n_releases++] = x;
}

void qm_blocks_atomic(uintptr_t a)
{
    if (!any_in_launch)
        return;
    int k = channel_of(a);
    struct channel *c = &channels[k];
    if (c->epoch < qm_now.block_epoch) {
        c->epoch = qm_now.epoch;
        c->warps = 0;
    }
    if (c->epoch == qm_now.epoch)
        c->warps |= 1u << qm_now.thread / QM_WARP;
    release(k);
}

/* ---- order ----------------------------------------------------------------------------------- */

static int covers(const struct release *r, const struct stamp *s)
{
    unsigned int t = qm_stamp_thread(s), count = qm_stamp_fences(s);
    int is_warp = t / QM_WARP == r->thread / QM_WARP && s->epoch == r->epoch;
    if ((s->thread & QM_STAMP_ATOMIC) && t == r->thread && s->epoch <= r->now && count <= r->count)
        return 1; /* the releasing operation itself */
    return s->epoch < r->upto || (t == r->thread && (count < r->count || count == FENCES_MOST)) ||
           (is_warp && s->clock < r->clock) ||
           (r->has_fences &&
            (pool[r->fences * QM_THREADS_MOST + t] > count ||
             (count == FENCES_MOST && pool[r->fences * QM_THREADS_MOST + t] == FENCES_MOST)));
}

int qm_blocks_are_ordered(const struct stamp *s)
{
    size_t low = 0, high = n_releases; /* the first release of a block that begins after s */
    if (is_full)
        return 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (releases[middle].begin <= s->epoch)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low > 0 && (releases[low - 1].end > s->epoch || releases[low - 1].end == 0); low--) {
        const struct release *r = &releases[low - 1];
        if (!covers(r, s))
            continue;
        for (int k = 0; k < n_channels; k++)
            if ((k == r->channel || (channels[k].others >> r->channel & 1)) && is_acquired(k))
                return 1;
    }
    return 0;
}
