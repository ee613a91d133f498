/* emu_access.cpp - Checks every memory access of a kernel: bounds, unwritten memory, data races.
 *
 * Writable memory has a record for each byte, a cell: its last write and its last reads.  Two
 * accesses of which one is a write are a race where nothing orders them:
 *
 *   threads of one block    in the same epoch (between two barriers), unless both are atomic or
 *                           __syncwarp stands between them
 *   threads of two blocks   in the same launch, unless both are atomic or the first is released
 *                           and acquired (emu_blocks.cpp)
 *   two launches            in streams that nothing orders
 *
 * A plain read beside atomic operations, with nothing between, is let pass where the thread's next
 * write is an atomicCAS of the same number: so do the loops that make other operations atomic. */
#include "emu_far.hpp"
#include "emu_memory.hpp"

enum { READ, WRITE, ATOMICS }; /* and ATOMICS + an enum qm_emu_atomic */
enum { RELAXED = ATOMICS + QM_ATOMIC_READ, SET = ATOMICS + QM_ATOMIC_SET };
enum { SWAP = ATOMICS + QM_ATOMIC_SWAP };
static inline int is_read(int how) { return how == READ || how == RELAXED; }
static inline int is_atomic(int how) { return how >= ATOMICS; }

/* Whether an access earlier in this epoch is by this thread, or is ordered before the current
 * access by its warp.  o: which meetings of lanes count.  After a write only __syncwarp orders;
 * after a read also a shuffle or vote, which does not end before that lane has reached it. */
static inline int is_ordered(const struct stamp *s, const struct qm_order *o)
{
    uint32_t thread = qm_stamp_thread(s), lane = thread % QM_WARP;
    if (thread == qm_now.thread)
        return 1;
    return thread / QM_WARP == qm_now.thread / QM_WARP &&
           (s->clock == 65535 || s->clock < o->base ||
            o->seen[qm_now.thread % QM_WARP][lane] > s->clock);
}

/* Whether the access `s` races with the current one; accesses of earlier launches do not. */
static inline int conflicts(const struct stamp *s, const struct qm_order *o, int how, int is_shared)
{
    if (s->epoch < qm_now.launch_epoch || (is_atomic(how) && (s->thread & QM_STAMP_ATOMIC)))
        return 0;
    if (s->epoch >= qm_now.block_epoch)
        return s->epoch == qm_now.epoch && !is_ordered(s, o);
    return !is_shared && !qm_blocks_are_ordered(s);
}

/* Whether this launch is ordered after those that touched the cell; 0: it is not, which has been
 * reported. */
static int launches_are_ordered(const struct region *r, uintptr_t a, size_t size,
                                const struct cell *c, int write, uint32_t code)
{
    const struct stamp *stamps[] = {&c->w,    &c->a[0], &c->a[1], &c->a[2],
                                    &c->r[0], &c->r[1], &c->r[2]};
    for (int i = 0; i < (write ? 7 : 4); i++) {
        uint32_t epoch = stamps[i]->epoch;
        const char *kernel = epoch >= qm_now.step_epoch && epoch < qm_now.launch_epoch
                                 ? qm_launch_unordered(epoch)
                                 : NULL;
        if (kernel) {
            qm_found_streams(r, a, size, kernel, write, i < 4, code);
            return 0;
        }
    }
    return 1;
}

/* ---- a read that an atomicCAS may follow ----------------------------------------------------- */

static struct {
    int is_there;
    const struct region *r;
    uintptr_t a;
    size_t size;
    struct stamp s;
    uint32_t code;
} pending; /* of the thread that runs */

void qm_read_settle(void)
{
    if (!pending.is_there)
        return;
    pending.is_there = 0;
    qm_found_race(pending.r, pending.a, pending.size, &pending.s, "reads", "changed atomically",
                  pending.code);
}

/* Before an access of the running thread. */
static inline void settle(uintptr_t a, int how)
{
    if (!pending.is_there || (how == READ && a != pending.a))
        return;
    if (how == SWAP && a == pending.a)
        pending.is_there = 0;
    else
        qm_read_settle();
}

/* ---- one cell -------------------------------------------------------------------------------- */

/* Notes an access as the last one of s.  The one before moves to s[2] where another block made it.
 * Of this block's it moves to s[1], unless s[1] is of this epoch and s[0] of this warp: then s[1]
 * tells more. */
static inline void note(struct stamp s[3], struct stamp now)
{
    unsigned int thread = qm_stamp_thread(&s[0]), own = qm_now.thread;
    if (s[0].epoch && s[0].epoch < qm_now.block_epoch)
        s[2] = s[0];
    else if (s[0].epoch == now.epoch && thread != own &&
             (s[1].epoch != now.epoch || thread / QM_WARP != own / QM_WARP))
        s[1] = s[0];
    s[0] = now;
}

/* The first of three stamps that conflicts, or NULL. */
static inline const struct stamp *conflict(const struct stamp s[3], const struct qm_order *o,
                                           int how, int is_shared)
{
    for (int i = 0; i < 3; i++)
        if (s[i].epoch && conflicts(&s[i], o, how, is_shared))
            return &s[i];
    return NULL;
}

/* Checks an access to one cell and records it; 0: a race, which has been reported. */
static inline int touch(struct cell *c, int how, uint32_t code, const struct region *r, uintptr_t a,
                        size_t size)
{
    const struct qm_order *o = is_read(how) ? qm_now.met : qm_now.synced;
    struct stamp now = {qm_now.epoch, code,
                        (uint16_t)(qm_now.thread | qm_blocks_fences() << 10 |
                                   (is_atomic(how) ? QM_STAMP_ATOMIC : 0)),
                        o->own[qm_now.thread % QM_WARP]};
    const struct stamp *bad = NULL;
    const char *was = "wrote";
    for (int i = 0; i < 3 && how == SWAP; i++) /* its own read was a part of the loop */
        if (c->r[i].epoch == now.epoch && qm_stamp_thread(&c->r[i]) == qm_now.thread)
            c->r[i] = {};
    if (conflicts(&c->w, qm_now.synced, how, !r))
        bad = &c->w;
    else if (!is_atomic(how) && (bad = conflict(c->a, qm_now.synced, how, !r))) {
        was = "changed atomically";
        if (how == READ) {
            pending = {1, r, a, size, *bad, code};
            return 1;
        }
    } else if (!is_read(how) && (bad = conflict(c->r, qm_now.met, how, !r)))
        was = "read";
    if (bad) {
        qm_found_race(r, a, size, bad,
                      is_read(how)     ? "reads"
                      : is_atomic(how) ? "changes atomically"
                                       : "writes",
                      was, code);
        return 0;
    }
    if (how == WRITE)
        c->w = now;
    else
        note(is_read(how) ? c->r : c->a, now);
    return 1;
}

/* Checks and records an access to bytes [from, to) of the cells.  written: writes of earlier epochs
 * do not count.  Returns how many bytes nobody has written; -1: a race has been reported. */
static inline int64_t touch_all(const struct records *x, size_t from, size_t to, int how,
                                uint32_t code, const struct region *r, uintptr_t a,
                                uint32_t written)
{
    int64_t unwritten = 0;
    for (size_t i = from, step; i < to; i += step) {
        step = 4;
        if (x->group[i / 4].is_split || i % 4 || to - i < 4) {
            qm_split(x, i);
            step = 1;
        }
        struct cell *c = qm_cell(x, i);
        int is_blank = c->w.epoch < written && c->a[0].epoch < written;
        unwritten += how != WRITE && how != SET && is_blank ? (int64_t)step : 0;
        if (r && qm_now.many_streams &&
            !launches_are_ordered(r, a, to - from, c, !is_read(how), code))
            return -1;
        if (!touch(c, how, code, r, a, to - from))
            return -1;
    }
    return unwritten;
}

static void access_shared(uintptr_t a, size_t size, int how, int is_range, uint32_t code)
{
    size_t at = a - (uintptr_t)qm_emu_arena;
    const struct variable *v = qm_variable_of(at);
    int is_dynamic = at < QM_DYNAMIC_AT + QM_DYNAMIC_MOST + QM_GAP;
    if (is_dynamic ? at < QM_DYNAMIC_AT || at - QM_DYNAMIC_AT + size > qm_dynamic_bytes
                   : !v || at < v->at || at - v->at + size > v->bytes) {
        qm_found_outside_shared(at, size, !is_read(how), code);
        return;
    }
    int64_t unwritten =
        touch_all(&qm_arena_records, at, at + size, how, code, NULL, a, qm_now.block_epoch);
    if (unwritten > 0 && (!is_range || unwritten == (int64_t)size)) /* of a struct: padding */
        qm_found_unwritten(NULL, a, size, code);
}

/* Whether memory that the host shares holds something, as where a library has written it: its first
 * bytes are all ones. */
static int is_written(const struct region *r, uintptr_t a, size_t size)
{
    for (size_t i = 0; i < size && !(r->flags & QM_REGION_DEVICE); i++)
        if (((const unsigned char *)a)[i] != 0xff)
            return 1;
    return 0;
}

static void access_region(struct region *r, uintptr_t a, size_t size, int how, int is_range,
                          uint32_t code)
{
    size_t at = a - r->at;
    if (size > r->bytes - at) {
        qm_found_outside(a + (r->bytes - at), size - (r->bytes - at), !is_read(how), code);
        return;
    }
    if (r->flags & QM_REGION_CONST) {
        if (!is_read(how))
            qm_found_constant(r, a, size, code);
        return;
    }
    if (qm_far.n > 0) { /* memory without records */
        if (!is_read(how))
            qm_far_keep(r);
        return;
    }
    if (!r->records.group && !qm_records_open(&r->records, r->bytes))
        return;
    int64_t unwritten =
        touch_all(&r->records, at, at + size, how, code, r, a, r->flags & QM_REGION_BLANK ? 1 : 0);
    if (unwritten > 0 && (!is_range || unwritten == (int64_t)size) && !is_written(r, a, size))
        qm_found_unwritten(r, a, size, code);
}

static inline void access_at(uintptr_t a, size_t size, int how, int is_range, uint32_t code)
{
    settle(a, how);
    if (a - (uintptr_t)qm_emu_arena < QM_ARENA) {
        access_shared(a, size, how, is_range, code);
        return;
    }
    struct region *r = qm_region_of(a);
    if (r)
        access_region(r, a, size, how, is_range, code);
    else if ((a - qm_now.host_stack > HOST_STACK || !is_range) && /* arguments are copied */
             !(qm_now.is_entering && a - qm_now.closure < qm_now.closure_bytes))
        qm_found_outside(a, size, !is_read(how), code);
}

/* An access by code of the host: device memory is not for it, and what it shares with the device
 * only after it has waited. */
static void access_host(uintptr_t a, size_t size, int how, void *from)
{
    const struct region *r = size && !*qm_emu_text ? qm_watched_of(a) : NULL;
    uint32_t code = (uint32_t)((uintptr_t)from - 1 - qm_module_base);
    int write = !is_read(how), wrote = 0;
    if (r && r->flags & QM_REGION_DEVICE) {
        qm_found_host(r, a, size, write, code);
        return;
    }
    if (!size || *qm_emu_text || qm_far.n > 0)
        return;
    const char *work =
        qm_now.is_unwaited ? qm_region_unordered((const void *)a, size, write, 1, &wrote) : NULL;
    if (work)
        qm_found_early(qm_region_of(a), a, size, work, write, wrote, code);
    else if (r && write)
        qm_region_touched((const void *)a, size, 1, 1);
}

static inline void access(const volatile void *address, size_t size, int how, int is_range,
                          void *from)
{
    uintptr_t a = (uintptr_t)address;
    const struct region *r = qm_region_seen[(a >> 12) % QM_PAGES];
    if (!qm_now.is_running) {
        access_host(a, size, how, from);
        return;
    }
    if (a - qm_now.stack < qm_stack_bytes || size == 0)
        return;
    if (qm_far.n > 0 && !qm_far_access(a, size, !is_read(how))) {
        qm_step_leave();
        return;
    }
    if (how == READ && r && (r->flags & QM_REGION_CONST) && a - r->at < r->bytes &&
        size <= r->bytes - (a - r->at))
        return; /* the most common access, and always correct */
    access_at(a, size, how, is_range, (uint32_t)((uintptr_t)from - 1 - qm_module_base));
}

extern "C" void qm_emu_atomically(const volatile void *address, size_t size,
                                  enum qm_emu_atomic kind, struct qm_emu_at at)
{
    uintptr_t a = (uintptr_t)address;
    if (!qm_now.is_running || a - qm_now.stack < qm_stack_bytes)
        return;
    access_at(a, size, ATOMICS + kind, 0, qm_place_number(at));
    if (a - (uintptr_t)qm_emu_arena < QM_ARENA)
        return;
    qm_blocks_atomic(a);
    if (qm_far.n > 0 && kind != QM_ATOMIC_JOIN && kind != QM_ATOMIC_READ)
        qm_far_communicates(at);
}

/* ---- functions that the compiler's instrumentation calls ------------------------------------- */

#define FROM __builtin_return_address(0)
#define QM_HOOK(n)                                                            \
    void __tsan_read##n(void *a) { access(a, n, READ, 0, FROM); }             \
    void __tsan_write##n(void *a) { access(a, n, WRITE, 0, FROM); }           \
    void __tsan_unaligned_read##n(void *a) { access(a, n, READ, 0, FROM); }   \
    void __tsan_unaligned_write##n(void *a) { access(a, n, WRITE, 0, FROM); } \
    void __tsan_volatile_read##n(void *a) { access(a, n, READ, 0, FROM); }    \
    void __tsan_volatile_write##n(void *a) { access(a, n, WRITE, 0, FROM); }
extern "C" {
QM_HOOK(1)
QM_HOOK(2)
QM_HOOK(4)
QM_HOOK(8)
QM_HOOK(16)
void __tsan_read_range(void *a, size_t n) { access(a, n, READ, 1, FROM); }
void __tsan_write_range(void *a, size_t n) { access(a, n, WRITE, 1, FROM); }
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **a, void *) { access(a, sizeof(void *), WRITE, 0, FROM); }
void __tsan_vptr_read(void **a) { access(a, sizeof(void *), READ, 0, FROM); }

/* Calls of these functions in the kernel come here by the linker's option --wrap. */
void *__wrap_memcpy(void *to, const void *from, size_t n)
{
    access(from, n, READ, 1, FROM);
    access(to, n, WRITE, 1, FROM);
    return __real_memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n)
{
    access(from, n, READ, 1, FROM);
    access(to, n, WRITE, 1, FROM);
    return __real_memmove(to, from, n);
}
void *__wrap_memset(void *to, int byte, size_t n)
{
    access(to, n, WRITE, 1, FROM);
    return __real_memset(to, byte, n);
}
}
