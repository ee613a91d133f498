/* emu_threads.cpp - Runs the threads of a block as fibers: launches, barriers, warp functions.
 *
 * A fiber runs until it waits; then the next one runs.  Threads take turns in the order of their
 * numbers, so a run is exactly reproducible. */
#include "emu_far.hpp"
#include "emu_runtime.hpp"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

extern "C" {
struct qm_index qm_emu_thread_index, qm_emu_block_index, qm_emu_block_size, qm_emu_grid_size;
char qm_emu_text[800];
}
struct qm_emu_now qm_now;

enum { STACK = 65536, GUARD = 4096 };
const size_t qm_stack_bytes = STACK;

enum state { READY, AT_BARRIER, IN_WARP, ENDED };

struct fiber {
    enum state state;
    unsigned char *stack;
    struct qm_index index;
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    /* Where it waits: a barrier or a function of its warp. */
    struct qm_emu_at at;
    const char *name;
    enum qm_emu_join join; /* barrier */
    int x;
    enum qm_emu_kind kind;
    uint32_t mask, met; /* warp: the lanes of the call; those that met */
    uint64_t value;
    uint64_t *values;
    int from;
};

static struct fiber fibers[QM_THREADS_MOST];
static struct warp {
    uint32_t live, waiting;      /* lanes that have not ended; lanes that are IN_WARP */
    struct qm_order synced, met; /* meetings by __syncwarp; by any function of the warp */
} warps[QM_THREADS_MOST / QM_WARP];
static unsigned int n_threads;
static int running = -1; /* the fiber that runs; -1: the scheduler */
static int is_abandoned; /* the launch has a finding and ends */
static struct qm_emu_call kernel_call;

static void to_scheduler();

/* ---- findings ------------------------------------------------------------------------------- */

const char *qm_thread_name(unsigned int thread, char text[64])
{
    struct qm_index i = fibers[thread].index, b = qm_emu_block_index;
    snprintf(text, 64, "thread (%u,%u,%u) of block (%u,%u,%u)", i.x, i.y, i.z, b.x, b.y, b.z);
    return text;
}

static const char *file_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

static char *told;
static size_t told_size;

extern "C" void qm_emu_tell(char *text, size_t size)
{
    told = text;
    told_size = size;
}

/* Keeps the first finding, and ends the launch. */
static void report_list(struct qm_emu_at at, const char *format, va_list list)
{
    char what[600], where[200] = "";
    vsnprintf(what, sizeof what, format, list);
    if (at.file)
        snprintf(where, sizeof where, "%s:%d: ", file_of(at.file), at.line);
    if (!*qm_emu_text) {
        snprintf(qm_emu_text, sizeof qm_emu_text, "%s%s%s%s", where, what,
                 qm_now.kernel ? "; kernel " : "", qm_now.kernel ? qm_now.kernel : "");
        if (told)
            snprintf(told, told_size, "%s", qm_emu_text);
    }
    is_abandoned = 1;
}

/* Reports a finding from the scheduler's code. */
static void __attribute__((format(printf, 2, 3)))
report(struct qm_emu_at at, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    report_list(at, format, list);
    va_end(list);
}

extern "C" void qm_emu_fail(struct qm_emu_at at, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    report_list(at, format, list);
    va_end(list);
    if (running >= 0)
        to_scheduler();
}

void qm_step_leave(void)
{
    is_abandoned = 1;
    if (running >= 0)
        to_scheduler();
}

/* ---- switching ------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static void *scheduler_sp;
extern "C" void qm_emu_switch(void **save, void *to);
__asm__(".text\n.type qm_emu_switch,@function\nqm_emu_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size qm_emu_switch, .-qm_emu_switch\n");
#else
static ucontext_t scheduler_context;
#endif

static void to_scheduler()
{
    struct fiber *f = &fibers[running];
    running = -1;
#if defined(__x86_64__)
    qm_emu_switch(&f->sp, scheduler_sp);
#else
    swapcontext(&f->context, &scheduler_context);
#endif
}

static void to_fiber(int i)
{
    struct fiber *f = &fibers[i];
    running = i;
    qm_emu_thread_index = f->index;
    qm_now.thread = (unsigned int)i;
    qm_now.stack = (uintptr_t)f->stack;
    qm_now.synced = &warps[i / QM_WARP].synced;
    qm_now.met = &warps[i / QM_WARP].met;
    qm_now.is_running = 1;
#if defined(__x86_64__)
    qm_emu_switch(&scheduler_sp, f->sp);
#else
    swapcontext(&scheduler_context, &f->context);
#endif
    qm_now.is_running = 0;
}

static void entry()
{
    qm_now.is_entering = 1;
    kernel_call.function(kernel_call.closure);
    qm_read_settle();
    fibers[running].state = ENDED;
    warps[running / QM_WARP].live &= ~(1u << running % QM_WARP);
    to_scheduler();
}

static unsigned char *stacks;
static const size_t stacks_bytes = (size_t)(STACK + GUARD) * QM_THREADS_MOST + GUARD;

/* A process loads and unloads many kernels, and each stack takes two of the mappings it may
 * have. */
static void __attribute__((destructor)) stacks_close()
{
    if (stacks)
        munmap(stacks, stacks_bytes);
}

static int stacks_open()
{
    static int done;
    if (done)
        return done > 0;
    size_t stride = STACK + GUARD;
    unsigned char *all =
        (unsigned char *)mmap(NULL, stacks_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    done = all == MAP_FAILED ? -1 : 1;
    stacks = done > 0 ? all : NULL;
    for (int i = 0; done > 0 && i < QM_THREADS_MOST; i++) {
        mprotect(all + stride * (size_t)i, GUARD, PROT_NONE);
        fibers[i].stack = all + stride * (size_t)i + GUARD;
    }
    return done > 0;
}

int qm_is_stack(uintptr_t a)
{
    uintptr_t from = (uintptr_t)fibers[0].stack - GUARD;
    return fibers[0].stack && a - from < (uintptr_t)QM_THREADS_MOST * (STACK + GUARD);
}

static void fiber_start(unsigned int i)
{
    struct fiber *f = &fibers[i];
    unsigned int bx = qm_emu_block_size.x, by = qm_emu_block_size.y;
    f->index = qm_index{i % bx, i / bx % by, i / bx / by};
    f->state = READY;
#if defined(__x86_64__)
    /* Stacks at different offsets of a page, so that they share the cache. */
    uintptr_t top = (uintptr_t)(f->stack + STACK) - 64 - (i * 832u) % 4096 / 64 * 64;
    void **sp = (void **)top;
    *--sp = NULL; /* as if `entry` were called: its frame starts 8 off a multiple of 16 */
    *--sp = (void *)entry;
    for (int r = 0; r < 6; r++)
        *--sp = NULL;
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, entry, 0);
#endif
}

/* ---- barriers ------------------------------------------------------------------------------- */

extern "C" int qm_emu_barrier(enum qm_emu_join join, int x, const char *name, struct qm_emu_at at)
{
    qm_read_settle();
    struct fiber *f = &fibers[running];
    f->state = AT_BARRIER;
    f->at = at;
    f->name = name;
    f->join = join;
    f->x = x;
    to_scheduler();
    return f->x;
}

static int is_same_line(const struct qm_emu_at *a, const struct qm_emu_at *b)
{
    return a->line == b->line && strcmp(a->file, b->file) == 0;
}

static int is_same_barrier(const struct qm_emu_at *a, const struct qm_emu_at *b)
{
    return is_same_line(a, b) && (a->number == b->number || !a->number || !b->number);
}

static void divergent(const struct fiber *a, const struct fiber *b)
{
    char one[64], two[64];
    qm_thread_name((unsigned int)(a - fibers), one);
    qm_thread_name((unsigned int)(b - fibers), two);
    if (is_same_line(&a->at, &b->at))
        report(a->at, "divergent barrier: %s waits here, in %s, and %s in another %s of this line",
               one, a->name, two, b->name);
    else
        report(a->at, "divergent barrier: %s waits here, in %s, and %s at %s:%d, in %s", one,
               a->name, two, file_of(b->at.file), b->at.line, b->name);
}

/* Opens a barrier: every thread waits at one or has ended. */
static void barrier_open()
{
    const struct fiber *first = NULL;
    int sum = 0, all = 1, any = 0;
    for (unsigned int i = 0; i < n_threads; i++) {
        const struct fiber *f = &fibers[i];
        if (f->state == ENDED)
            continue;
        if (first && !is_same_barrier(&f->at, &first->at)) {
            divergent(first, f);
            return;
        }
        first = first ? first : f;
        sum += f->x != 0;
        all &= f->x != 0;
        any |= f->x != 0;
    }
    for (unsigned int i = 0; i < n_threads; i++) {
        struct fiber *f = &fibers[i];
        int join = f->join;
        if (f->state == ENDED)
            continue;
        f->state = READY;
        f->x = join == QM_JOIN_COUNT ? sum
               : join == QM_JOIN_AND ? all
               : join == QM_JOIN_OR  ? any
                                     : 0;
    }
    qm_blocks_barrier();
    qm_now.epoch++;
}

/* ---- warps ---------------------------------------------------------------------------------- */

/* Lanes `who` have met: each gets the values of the others. */
static void meet(unsigned int warp, uint32_t who)
{
    struct fiber *base = &fibers[warp * QM_WARP];
    uint64_t value[QM_WARP] = {0};
    enum qm_emu_kind kind = base[__builtin_ctz(who)].kind;
    for (unsigned int i = 0; i < QM_WARP; i++)
        if (who >> i & 1)
            value[i] = base[i].value;
    for (unsigned int i = 0; i < QM_WARP; i++)
        if (who >> i & 1) {
            if (kind == QM_SHUFFLE)
                base[i].values[base[i].from] = value[base[i].from];
            else
                memcpy(base[i].values, value, sizeof value);
            base[i].met = who;
            base[i].state = READY;
        }
    struct warp *w = &warps[warp];
    if (kind != QM_ACTIVE)
        qm_order_meet(&w->met, who, w->live);
    if (kind == QM_SYNCWARP)
        qm_order_meet(&w->synced, who, w->live);
    w->waiting &= ~who;
}

/* Lets those lanes of a warp go on whose partners have all arrived.  Returns whether any did. */
static int warp_open(unsigned int warp)
{
    struct fiber *base = &fibers[warp * QM_WARP];
    uint32_t live = warps[warp].live;
    int moved = 0;
    for (unsigned int i = 0; i < QM_WARP && warp * QM_WARP + i < n_threads; i++) {
        if (base[i].state != IN_WARP || base[i].kind == QM_ACTIVE)
            continue;
        uint32_t who = base[i].mask & live, there = 0;
        if ((warps[warp].waiting & who) != who)
            continue;
        for (unsigned int k = 0; k < QM_WARP; k++)
            if ((who >> k & 1) && base[k].state == IN_WARP && base[k].kind == base[i].kind &&
                base[k].mask == base[i].mask && base[k].name == base[i].name)
                there |= 1u << k;
        if (there != who)
            continue;
        for (unsigned int k = 0; k < QM_WARP; k++)
            if ((who >> k & 1) && base[k].from >= 0 && !(who >> base[k].from & 1)) {
                char text[64];
                qm_thread_name(warp * QM_WARP + k, text);
                report(base[k].at, "%s by %s reads lane %d, which does not take part: %s",
                       base[k].name, text, base[k].from,
                       base[k].mask >> base[k].from & 1 ? "it has ended, or does not exist"
                                                        : "it is not in the mask");
                return 0;
            }
        meet(warp, who);
        moved = 1;
    }
    return moved;
}

/* No lane of the warp can go on: the lanes that wait in __activemask are the active ones.  Returns
 * whether there are any. */
static int active_open(unsigned int warp)
{
    struct fiber *base = &fibers[warp * QM_WARP];
    const struct fiber *first = NULL;
    uint32_t who = 0;
    for (unsigned int i = 0; i < QM_WARP && warp * QM_WARP + i < n_threads; i++) {
        if (base[i].state != IN_WARP || base[i].kind != QM_ACTIVE)
            continue;
        first = first ? first : &base[i];
        who |= base[i].at.line == first->at.line ? 1u << i : 0;
    }
    if (who)
        meet(warp, who);
    return who != 0;
}

extern "C" unsigned int qm_emu_warp(enum qm_emu_kind kind, unsigned int mask, uint64_t x, int from,
                                    uint64_t value[32], const char *name, struct qm_emu_at at)
{
    struct fiber *f = &fibers[running];
    unsigned int warp = (unsigned int)running / QM_WARP, lane = (unsigned int)running % QM_WARP;
    qm_read_settle();
    if (!(mask >> lane & 1)) {
        qm_emu_fail(at, "%s: lane %u is not in its own mask 0x%08x", name, lane, mask);
        return 0;
    }
    f->state = IN_WARP;
    warps[warp].waiting |= 1u << lane;
    f->kind = kind;
    f->mask = mask;
    f->value = x;
    f->values = value;
    f->from = from;
    f->name = name;
    f->at = at;
    if ((warps[warp].waiting & mask) == (warps[warp].live & mask)) {
        qm_now.is_running = 0; /* memcpy here is not an access by the kernel */
        warp_open(warp);
        qm_now.is_running = 1;
    }
    if (is_abandoned || f->state != READY)
        to_scheduler();
    return f->met;
}

/* ---- a block -------------------------------------------------------------------------------- */

/* Reports who waits for whom: no thread can go on. */
static void stuck()
{
    const struct fiber *waits = NULL, *other = NULL;
    for (unsigned int i = 0; i < n_threads && !waits; i++)
        if (fibers[i].state == IN_WARP)
            waits = &fibers[i]; /* there is one, or the barrier would have opened */
    unsigned int base = (unsigned int)(waits - fibers) / QM_WARP * QM_WARP;
    for (unsigned int k = 0; k < QM_WARP && base + k < n_threads && !other; k++) {
        const struct fiber *f = &fibers[base + k];
        if ((waits->mask >> k & 1) && f->state != ENDED && f != waits &&
            (f->state != IN_WARP || f->mask != waits->mask || f->name != waits->name))
            other = f;
    }
    char one[64], two[64];
    qm_thread_name((unsigned int)(waits - fibers), one);
    if (!other) {
        report(waits->at, "%s by %s waits for ever", waits->name, one);
        return;
    }
    qm_thread_name((unsigned int)(other - fibers), two);
    if (other->state == IN_WARP && other->name == waits->name)
        report(waits->at, "%s: %s calls it with mask 0x%08x, %s with 0x%08x at %s:%d", waits->name,
               one, waits->mask, two, other->mask, file_of(other->at.file), other->at.line);
    else
        report(waits->at,
               "divergent warp: %s waits in %s with mask 0x%08x for %s, which is in %s at %s:%d",
               one, waits->name, waits->mask, two, other->name, file_of(other->at.file),
               other->at.line);
}

/* Runs a warp until each of its lanes has ended or waits for other warps, or for ever.  Returns
 * whether any lane ran. */
static int run_warp(unsigned int from, unsigned int end)
{
    int any = 0;
    for (int moved = 1; moved && !is_abandoned;) {
        moved = 0;
        for (unsigned int i = from; i < end && !is_abandoned; i++)
            if (fibers[i].state == READY) {
                to_fiber((int)i);
                moved = 1;
            }
        if (!moved)
            moved = warp_open(from / QM_WARP);
        any |= moved;
    }
    return any;
}

static void run_block(size_t shared)
{
    unsigned int n_warps = (n_threads + QM_WARP - 1) / QM_WARP;
    qm_now.epoch++;
    qm_now.block_epoch = qm_now.epoch;
    qm_memory_block(shared);
    qm_blocks_block();
    for (unsigned int w = 0; w < n_warps; w++) {
        warps[w].live = warps[w].waiting = 0;
        qm_order_reset(&warps[w].synced);
        qm_order_reset(&warps[w].met);
    }
    for (unsigned int i = 0; i < n_threads; i++) {
        fiber_start(i);
        warps[i / QM_WARP].live |= 1u << i % QM_WARP;
    }
    while (!is_abandoned) {
        unsigned int at_barrier = 0, ended = 0;
        int moved = 0;
        for (unsigned int w = 0; w < n_warps && !is_abandoned; w++) {
            unsigned int end = (w + 1) * QM_WARP < n_threads ? (w + 1) * QM_WARP : n_threads;
            moved |= run_warp(w * QM_WARP, end);
            for (unsigned int i = w * QM_WARP; i < end; i++) {
                at_barrier += fibers[i].state == AT_BARRIER;
                ended += fibers[i].state == ENDED;
            }
        }
        if (is_abandoned || ended == n_threads)
            return;
        if (at_barrier + ended == n_threads) {
            barrier_open();
            continue;
        }
        for (unsigned int w = 0; w < n_warps && !moved; w++)
            moved |= active_open(w);
        if (!moved)
            stuck();
    }
}

/* ---- launches ------------------------------------------------------------------------------- */

static void run_block_number(uint64_t i, size_t shared)
{
    struct qm_index g = qm_emu_grid_size;
    qm_emu_block_index = qm_index{(unsigned int)(i % g.x), (unsigned int)(i / g.x % g.y),
                                  (unsigned int)(i / g.x / g.y)};
    run_block(shared);
}

static int run_far_block(uint64_t i, size_t shared)
{
    if (!is_abandoned)
        run_block_number(i, shared);
    return !is_abandoned;
}

static void run_far(uint64_t blocks, size_t shared)
{
    static uint64_t chosen[QM_FAR_BLOCKS];
    qm_far_learn();
    run_block_number(0, shared);
    int n = qm_far_learned(blocks, chosen);
    for (int k = 0; k < n && !is_abandoned; k++)
        run_block_number(chosen[k], shared);
    qm_far_search(blocks, chosen, n, shared, run_far_block);
}

extern "C" int qm_emu_launch(struct qm_index grid, struct qm_index block, size_t shared,
                             void *stream, const char *name, struct qm_emu_call call,
                             struct qm_emu_at at)
{
    if (*qm_emu_text || qm_far.left)
        return 0; /* this step has a finding already, or is left */
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
        qm_launch_failed(QM_ERROR_CONFIGURATION);
        return QM_ERROR_CONFIGURATION;
    }
    if (!stacks_open()) {
        qm_emu_fail(at, "no memory for the stacks of %s", name);
        return QM_ERROR_CONFIGURATION;
    }
    if (!qm_launch_is_valid(grid, block, shared, name, at) ||
        qm_launch_begin(stream, name, at) < 0) {
        qm_launch_failed(QM_ERROR_CONFIGURATION);
        return QM_ERROR_CONFIGURATION;
    }
    qm_now.kernel = name;
    qm_now.epoch++;
    qm_now.launch_epoch = qm_now.epoch;
    qm_blocks_launch();
    kernel_call = call;
    qm_now.closure = (uintptr_t)call.closure;
    qm_now.closure_bytes = call.bytes;
    qm_emu_grid_size = grid;
    qm_emu_block_size = block;
    n_threads = block.x * block.y * block.z;
    is_abandoned = 0;
    qm_now.host_stack = (uintptr_t)__builtin_frame_address(0);
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (qm_far.n > QM_FAR_WHOLE)
        run_far(blocks, shared);
    for (uint64_t k = 0; k < blocks && qm_far.n <= QM_FAR_WHOLE && !is_abandoned; k++)
        run_block_number(k, shared);
    running = -1;
    qm_now.stack = 0;
    qm_now.kernel = NULL;
    if (is_abandoned && !qm_far.left)
        qm_launch_failed(QM_ERROR_KERNEL);
    return 0;
}
