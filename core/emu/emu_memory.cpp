/* emu_memory.cpp - every access of a kernel: in bounds, of what was written, without a race.
 *
 * A byte of memory that can be written has a cell: who wrote it last, who read it last.  Accesses by
 * two threads of a block conflict within an epoch (between two barriers) unless both are atomic, or
 * __syncwarp stands between them; those of two blocks within a launch. */
#include "emu_runtime.hpp"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ATOMIC = 0x8000,
    REGIONS = 256,
    PAGES = 1024,
    VARIABLES = 512,
    GAP = 64,
    HOST_STACK = 1 << 20
};

enum { MODULE = 8 }; /* a region's flag: the file's own variables */

struct stamp {
    uint32_t epoch; /* 0: never */
    uint32_t code;  /* where, from the start of the module */
    uint16_t thread, clock;
};

struct cell {
    struct stamp w, r[2]; /* r[1]: by another thread than r[0] */
};

struct region {
    const char *name;
    uintptr_t at;
    size_t bytes;
    int flags;
    struct cell *cells; /* NULL: none yet */
};

static struct region regions[REGIONS];
static int n_regions;
static struct {
    uintptr_t page;
    int region;
} seen[PAGES]; /* the region last found on a page */

static uintptr_t module_base;

/* ---- shared memory ---------------------------------------------------------------------------- */

enum { ARENA = 1 << 20, DYNAMIC_AT = 16 }; /* aligned to 16 bytes, and to no more */

extern "C" {
alignas(1024) unsigned char qm_emu_arena[ARENA];
extern unsigned char qm_emu_dynamic[] __asm__("qm_emu_dynamic");
__asm__(".globl qm_emu_dynamic\n.set qm_emu_dynamic, qm_emu_arena + 16\n");
}

static struct variable {
    void *key;
    const char *name;
    size_t at, bytes;
    uint32_t block; /* the block that declared it last, by its epoch */
} variables[VARIABLES];
static int n_variables;
static uint16_t
    owner[ARENA / 16]; /* the variable + 1 that a granule, or the gap behind it, is of */
static size_t arena_used = DYNAMIC_AT + QM_DYNAMIC_MOST + GAP, dynamic_bytes, static_bytes;
static struct cell *arena_cells;

extern "C" void *qm_emu_shared(void *key, size_t size, size_t align, const char *name)
{
    int i = 0;
    while (i < n_variables && variables[i].key != key)
        i++;
    if (i == n_variables) {
        size_t to = align < 16 ? 16 : align, at = (arena_used + to - 1) / to * to;
        if (at + size + GAP > ARENA || i == VARIABLES) {
            struct qm_emu_at nowhere = {NULL, 0};
            qm_emu_fail(nowhere, "shared %s of %zu bytes: too much shared memory", name, size);
            abort();
        }
        variables[n_variables++] = variable{key, name, at, size, 0};
        for (size_t k = at / 16; k <= (at + size + GAP - 1) / 16; k++)
            owner[k] = (uint16_t)n_variables;
        arena_used = at + size + GAP;
    }
    struct variable *v = &variables[i];
    if (qm_now.is_running && v->block != qm_now.block_epoch) {
        v->block = qm_now.block_epoch;
        static_bytes += v->bytes;
        if (static_bytes > QM_STATIC_MOST) {
            struct qm_emu_at nowhere = {NULL, 0};
            qm_emu_fail(nowhere, "shared %s: %zu bytes of static shared memory, at most %d", name,
                        static_bytes, QM_STATIC_MOST);
        }
    }
    return qm_emu_arena + v->at;
}

/* The variable that holds an offset of the arena, or lies before it; NULL: none. */
static const struct variable *variable_of(size_t at)
{
    return owner[at / 16] ? &variables[owner[at / 16] - 1] : NULL;
}

static struct cell *cells_for(size_t bytes)
{
    void *map = mmap(NULL, bytes * sizeof(struct cell), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return map == MAP_FAILED ? NULL : (struct cell *)map;
}

void qm_memory_block(size_t dynamic)
{
    dynamic_bytes = dynamic;
    static_bytes = 0;
    memset(qm_emu_dynamic, 0xff, dynamic); /* NaNs */
    memset(qm_emu_arena + DYNAMIC_AT + QM_DYNAMIC_MOST, 0xff,
           arena_used - DYNAMIC_AT - QM_DYNAMIC_MOST);
    if (!arena_cells)
        arena_cells = cells_for(ARENA);
}

/* ---- regions ---------------------------------------------------------------------------------- */

void qm_region_add(const char *name, const void *at, size_t bytes, int flags)
{
    if (!at || bytes == 0 || n_regions == REGIONS)
        return;
    regions[n_regions++] = region{name, (uintptr_t)at, bytes, flags, NULL};
    memset(seen, 0, sizeof seen);
}

static void region_remove(int i)
{
    struct region *r = &regions[i];
    if (r->cells)
        munmap(r->cells, r->bytes * sizeof(struct cell));
    *r = regions[--n_regions];
    memset(seen, 0, sizeof seen);
}

void qm_region_drop(const void *at)
{
    for (int i = 0; i < n_regions; i++)
        if (regions[i].at == (uintptr_t)at && !(regions[i].flags & QM_REGION_STEP))
            region_remove(i--);
}

void qm_region_drop_step(void)
{
    for (int i = 0; i < n_regions; i++)
        if (regions[i].flags & QM_REGION_STEP)
            region_remove(i--);
}

/* The region that holds an address; NULL: none. */
static struct region *region_of(uintptr_t a)
{
    uintptr_t page = a >> 12;
    int k = seen[page % PAGES].region;
    if (seen[page % PAGES].page == page && k < n_regions && a - regions[k].at < regions[k].bytes)
        return &regions[k];
    for (int i = 0; i < n_regions; i++)
        if (a - regions[i].at < regions[i].bytes) {
            seen[page % PAGES].page = page;
            seen[page % PAGES].region = i;
            return &regions[i];
        }
    return NULL;
}

int qm_region_covers(const void *at, size_t bytes, const char **name, size_t *left)
{
    const struct region *r = region_of((uintptr_t)at);
    if (!r || (r->flags & MODULE))
        return 1; /* host memory: not known */
    *name = r->name;
    *left = r->bytes - ((uintptr_t)at - r->at);
    return bytes <= *left;
}

void qm_region_written(const void *at, size_t bytes)
{
    struct region *r = region_of((uintptr_t)at);
    if (!r || (r->flags & QM_REGION_CONST) || !(r->flags & QM_REGION_BLANK))
        return;
    if (!r->cells)
        r->cells = cells_for(r->bytes);
    for (size_t i = 0, k = (uintptr_t)at - r->at; r->cells && i < bytes && k < r->bytes; i++, k++) {
        memset(&r->cells[k], 0, sizeof r->cells[k]);
        r->cells[k].w.epoch = 1;
    }
}

int qm_region_unordered(const void *at, size_t bytes, const char **kernel)
{
    const struct region *r = region_of((uintptr_t)at);
    size_t k = r ? (uintptr_t)at - r->at : 0;
    for (size_t i = 0; r && r->cells && i < bytes && k + i < r->bytes; i++)
        if (r->cells[k + i].w.epoch >= qm_now.step_epoch &&
            (*kernel = qm_launch_unordered(r->cells[k + i].w.epoch)))
            return 1;
    return 0;
}

/* The module's own data: __device__ and __constant__ variables. */
static int add_module(struct dl_phdr_info *info, size_t size, void *self)
{
    (void)size;
    uintptr_t own = (uintptr_t)self, base = info->dlpi_addr;
    int is_it = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        is_it |= p->p_type == PT_LOAD && own - (base + p->p_vaddr) < p->p_memsz;
    }
    if (!is_it)
        return 0;
    module_base = base;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || p->p_flags & PF_X || n_regions == REGIONS)
            continue;
        regions[n_regions++] = region{"variables of the file", base + p->p_vaddr, p->p_memsz,
                                      MODULE | (p->p_flags & PF_W ? 0 : QM_REGION_CONST), NULL};
    }
    return 1;
}

__attribute__((constructor)) static void find_module()
{
    dl_iterate_phdr(add_module, (void *)(uintptr_t)find_module);
}

/* ---- places ----------------------------------------------------------------------------------- */

void qm_place_of(uintptr_t code, char *text, size_t size)
{
    Dl_info info;
    char command[1200], line[1024];
    snprintf(text, size, "code %#zx", (size_t)code);
    if (!dladdr((void *)(uintptr_t)find_module, &info) || strchr(info.dli_fname, '\''))
        return;
    snprintf(command, sizeof command, "addr2line -i -e '%s' %#zx 2>/dev/null", info.dli_fname,
             (size_t)code);
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, " \n")] = '\0';
        const char *slash = strrchr(line, '/'), *name = slash ? slash + 1 : line;
        if (strncmp(name, "qm_emu", 6) == 0 || *name == '?')
            continue; /* an inline function of the layer: who called it? */
        snprintf(text, size, "%s", name);
        break;
    }
    if (f)
        pclose(f);
}

/* ---- findings --------------------------------------------------------------------------------- */

static void fail_at(uint32_t code, const char *what)
{
    char place[200];
    struct qm_emu_at nowhere = {NULL, 0};
    qm_place_of(code, place, sizeof place);
    qm_emu_fail(nowhere, "%s: %s", place, what);
}

/* "4 bytes at byte 64 of shared of_warp" */
static void name_bytes(const struct region *r, uintptr_t a, size_t size, char *text, size_t room)
{
    if (r) {
        snprintf(text, room, "%zu byte%s at byte %zu of %s", size, size == 1 ? "" : "s",
                 (size_t)(a - r->at), r->name);
        return;
    }
    size_t at = a - (uintptr_t)qm_emu_arena;
    const struct variable *v = variable_of(at);
    if (at < DYNAMIC_AT + QM_DYNAMIC_MOST)
        snprintf(text, room, "%zu byte%s at byte %zu of the dynamic shared memory", size,
                 size == 1 ? "" : "s", at - DYNAMIC_AT);
    else
        snprintf(text, room, "%zu byte%s at byte %zu of shared %s", size, size == 1 ? "" : "s",
                 at - v->at, v->name);
}

/* An access outside of all buffers: which one is nearest? */
static void fail_outside(uintptr_t a, size_t size, int write, uint32_t code)
{
    char who[64], what[400];
    const struct region *best = NULL;
    uintptr_t least = UINTPTR_MAX;
    for (int i = 0; i < n_regions; i++) {
        const struct region *r = &regions[i];
        uintptr_t gap = a < r->at ? r->at - a : a - (r->at + r->bytes);
        if (!(r->flags & MODULE) && gap < least) {
            least = gap;
            best = r;
        }
    }
    qm_thread_name(qm_now.thread, who);
    int n = snprintf(what, sizeof what, "%s %s %zu byte%s out of bounds", who,
                     write ? "writes" : "reads", size, size == 1 ? "" : "s");
    if (a < 65536)
        snprintf(what + n, sizeof what - (size_t)n, ", at a null pointer");
    else if (best)
        snprintf(what + n, sizeof what - (size_t)n, ", %zu bytes %s the %s (%zu bytes)",
                 (size_t)(a < best->at ? best->at - a : a - (best->at + best->bytes)),
                 a < best->at ? "before" : "past the end of", best->name, best->bytes);
    fail_at(code, what);
}

static void fail_shared(size_t at, size_t size, int write, uint32_t code)
{
    char who[64], what[400];
    const struct variable *v = variable_of(at);
    qm_thread_name(qm_now.thread, who);
    if (at < DYNAMIC_AT + QM_DYNAMIC_MOST + GAP || !v)
        snprintf(what, sizeof what,
                 "%s %s %zu byte%s out of bounds, at byte %zd of the launch's %zu bytes of dynamic "
                 "shared memory",
                 who, write ? "writes" : "reads", size, size == 1 ? "" : "s",
                 (ptrdiff_t)at - DYNAMIC_AT, dynamic_bytes);
    else
        snprintf(what, sizeof what,
                 "%s %s %zu byte%s out of bounds, at byte %zu of shared %s (%zu bytes)", who,
                 write ? "writes" : "reads", size, size == 1 ? "" : "s", at - v->at, v->name,
                 v->bytes);
    fail_at(code, what);
}

static void fail_unwritten(const struct region *r, uintptr_t a, size_t size, uint32_t code)
{
    char who[64], bytes[200], what[400];
    qm_thread_name(qm_now.thread, who);
    name_bytes(r, a, size, bytes, sizeof bytes);
    snprintf(what, sizeof what, "%s reads %s, which %s", who, bytes,
             r ? "nothing has written" : "no thread of the block has written");
    fail_at(code, what);
}

static void fail_race(const struct region *r, uintptr_t a, size_t size, const struct stamp *s,
                      int write, int was_write, uint32_t code)
{
    char who[64], other[80], bytes[200], place[200], what[640];
    qm_thread_name(qm_now.thread, who);
    if (s->epoch >= qm_now.block_epoch)
        qm_thread_name(s->thread & 1023u, other);
    else
        snprintf(other, sizeof other, "thread %u of another block", s->thread & 1023u);
    name_bytes(r, a, size, bytes, sizeof bytes);
    qm_place_of(s->code, place, sizeof place);
    snprintf(what, sizeof what, "data race: %s %s %s, which %s %s at %s with nothing between", who,
             write ? "writes" : "reads", bytes, other, was_write ? "wrote" : "read", place);
    fail_at(code, what);
}

static void fail_streams(const struct region *r, uintptr_t a, size_t size, const char *kernel,
                         int write, int was_write, uint32_t code)
{
    char who[64], bytes[200], what[640];
    qm_thread_name(qm_now.thread, who);
    name_bytes(r, a, size, bytes, sizeof bytes);
    snprintf(what, sizeof what,
             "%s %s %s, which %s %s in another stream, and nothing orders the two launches", who,
             write ? "writes" : "reads", bytes, kernel, was_write ? "wrote" : "read");
    fail_at(code, what);
}

/* ---- accesses --------------------------------------------------------------------------------- */

enum access { READ, WRITE, BOTH }; /* BOTH: an atomic */

/* Whether an earlier access of this block comes before this thread's by __syncwarp, or is its own. */
static inline int is_ordered(const struct stamp *s)
{
    uint32_t thread = s->thread & 1023u;
    if (thread == qm_now.thread)
        return 1;
    return thread / QM_WARP == qm_now.thread / QM_WARP &&
           (s->clock == 65535 || qm_now.clocks[thread % QM_WARP] > s->clock);
}

static uint32_t last_fence;

/* Whether `s` conflicts with an access now; stamps of launches before this one do not. */
static inline int conflicts(const struct stamp *s, int is_atomic, int is_shared)
{
    if (s->epoch < qm_now.launch_epoch || (is_atomic && (s->thread & ATOMIC)))
        return 0;
    if (s->epoch >= qm_now.block_epoch)
        return s->epoch == qm_now.epoch && !is_ordered(s);
    return !is_shared &&
           last_fence < qm_now.launch_epoch; /* another block's; a fence hands it over */
}

static void check_launches(const struct region *r, uintptr_t a, size_t size, const struct cell *c,
                           int write, uint32_t code)
{
    const char *kernel = NULL;
    int was_write = 1;
    if (c->w.epoch >= qm_now.step_epoch && c->w.epoch < qm_now.launch_epoch)
        kernel = qm_launch_unordered(c->w.epoch);
    for (int i = 0; i < 2 && !kernel && write; i++)
        if (c->r[i].epoch >= qm_now.step_epoch && c->r[i].epoch < qm_now.launch_epoch) {
            kernel = qm_launch_unordered(c->r[i].epoch);
            was_write = 0;
        }
    if (kernel)
        fail_streams(r, a, size, kernel, write, was_write, code);
}

/* One byte; 0: it conflicts, which has been reported. */
static inline int touch(struct cell *c, enum access how, uint32_t code, const struct region *r,
                        uintptr_t a, size_t size)
{
    struct stamp now = {qm_now.epoch, code, (uint16_t)qm_now.thread,
                        qm_now.clocks[qm_now.thread % QM_WARP]};
    const struct stamp *bad = NULL;
    if (conflicts(&c->w, how == BOTH, !r))
        bad = &c->w;
    else if (how != READ && conflicts(&c->r[0], 0, !r))
        bad = &c->r[0];
    else if (how != READ && conflicts(&c->r[1], 0, !r))
        bad = &c->r[1];
    if (bad) {
        fail_race(r, a, size, bad, how != READ, bad == &c->w, code);
        return 0;
    }
    if (how != READ) {
        if (how == BOTH)
            now.thread |= ATOMIC;
        c->w = now;
        return 1;
    }
    /* r[1] is kept where it tells more than r[0] would: it is of another warp. */
    if (c->r[0].epoch == now.epoch && c->r[0].thread != now.thread &&
        (c->r[1].epoch != now.epoch || c->r[0].thread / QM_WARP != now.thread / QM_WARP))
        c->r[1] = c->r[0];
    c->r[0] = now;
    return 1;
}

static void access_shared(uintptr_t a, size_t size, enum access how, int is_range, uint32_t code)
{
    size_t at = a - (uintptr_t)qm_emu_arena, unwritten = 0;
    if (at < DYNAMIC_AT + QM_DYNAMIC_MOST + GAP) {
        if (at < DYNAMIC_AT || at - DYNAMIC_AT + size > dynamic_bytes) {
            fail_shared(at, size, how != READ, code);
            return;
        }
    } else {
        const struct variable *v = variable_of(at);
        if (!v || at < v->at || at - v->at + size > v->bytes) {
            fail_shared(at, size, how != READ, code);
            return;
        }
    }
    for (size_t i = 0; i < size; i++) {
        struct cell *c = &arena_cells[at + i];
        unwritten += how != WRITE && c->w.epoch < qm_now.block_epoch;
        if (!touch(c, how, code, NULL, a, size))
            return;
    }
    if (unwritten && (!is_range || unwritten == size)) /* a struct's padding may be */
        fail_unwritten(NULL, a, size, code);
}

static void access_region(struct region *r, uintptr_t a, size_t size, enum access how, int is_range,
                          uint32_t code)
{
    size_t at = a - r->at, unwritten = 0;
    if (size > r->bytes - at || ((r->flags & QM_REGION_CONST) && how != READ)) {
        char who[64], bytes[200], what[400];
        if (size > r->bytes - at) {
            fail_outside(a + (r->bytes - at), size - (r->bytes - at), how != READ, code);
            return;
        }
        qm_thread_name(qm_now.thread, who);
        name_bytes(r, a, size, bytes, sizeof bytes);
        snprintf(what, sizeof what, "%s writes %s, which is constant", who, bytes);
        fail_at(code, what);
        return;
    }
    if ((r->flags & QM_REGION_CONST))
        return;
    if (!r->cells && !(r->cells = cells_for(r->bytes)))
        return;
    for (size_t i = 0; i < size; i++) {
        struct cell *c = &r->cells[at + i];
        unwritten += how != WRITE && c->w.epoch == 0;
        if (c->w.epoch >= qm_now.step_epoch || c->r[0].epoch >= qm_now.step_epoch)
            check_launches(r, a, size, c, how != READ, code);
        if (!touch(c, how, code, r, a, size))
            return;
    }
    if (unwritten && (r->flags & QM_REGION_BLANK) && (!is_range || unwritten == size))
        fail_unwritten(r, a, size, code);
}

static inline void access(const volatile void *address, size_t size, enum access how, int is_range,
                          void *from)
{
    if (!qm_now.is_running)
        return;
    uintptr_t a = (uintptr_t)address;
    uint32_t code = (uint32_t)((uintptr_t)from - 1 - module_base);
    if (a - qm_now.stack < qm_stack_bytes)
        return;
    if (a - (uintptr_t)qm_emu_arena < ARENA) {
        access_shared(a, size, how, is_range, code);
        return;
    }
    struct region *r = region_of(a);
    if (r)
        access_region(r, a, size, how, is_range, code);
    else if (a - qm_now.host_stack > HOST_STACK || !is_range) /* a call's arguments are copied */
        fail_outside(a, size, how != READ, code);
}

extern "C" void qm_emu_atomic(const volatile void *address, size_t size, struct qm_emu_at at)
{
    (void)at;
    access(address, size, BOTH, 0, __builtin_return_address(0));
}

extern "C" void qm_emu_fence(void) { last_fence = qm_now.epoch; }

/* ---- what the compiler calls -------------------------------------------------------------------- */

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

/* Calls that the compiler leaves; the linker sends them here (--wrap). */
void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__real_memset(void *to, int byte, size_t n);
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
