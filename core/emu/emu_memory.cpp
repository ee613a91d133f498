/* emu_memory.cpp - The memory a kernel may touch: buffers, shared variables, the file's
 * variables. */
#include "emu_memory.hpp"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { REGIONS = 16384, VARIABLES = 512 };

static struct region regions[REGIONS];
static int n_regions;
enum { FREED = 64, FREED_BYTES = 1 << 26 };
static struct freed buried[FREED]; /* a ring: from first_freed to n_freed - 1 */
static unsigned int first_freed, n_freed;
static size_t freed_bytes;
struct region *qm_region_seen[QM_PAGES];
static int is_sorted, any_seen; /* regions[] by address; qm_region_seen is not all NULL */

uintptr_t qm_module_base;

/* ---- shared memory --------------------------------------------------------------------------- */

extern "C" {
alignas(1024) unsigned char qm_emu_arena[QM_ARENA];
extern unsigned char qm_emu_dynamic[]; /* aligned to 16 bytes, and to no more */
__asm__(".globl qm_emu_dynamic\n.set qm_emu_dynamic, qm_emu_arena + 16\n");
}

static struct variable variables[VARIABLES];
static int n_variables;
/* Number + 1 of the variable that holds these 16 bytes, or that stands before the gap they are
 * in. */
static uint16_t owner[QM_ARENA / 16];
static size_t arena_used = QM_DYNAMIC_AT + QM_DYNAMIC_MOST + QM_GAP, static_bytes;
size_t qm_dynamic_bytes;
struct records qm_arena_records;

extern "C" void *qm_emu_shared(void *key, size_t size, size_t align, const char *name,
                               struct qm_emu_at at)
{
    int i = 0;
    while (i < n_variables && variables[i].key != key)
        i++;
    if (i == n_variables) {
        size_t to = align < 16 ? 16 : align, from = (arena_used + to - 1) / to * to;
        if (from + size + QM_GAP > QM_ARENA || i == VARIABLES) {
            qm_emu_fail(at, "shared %s of %zu bytes: too much shared memory", name, size);
            abort();
        }
        variables[n_variables++] = variable{key, name, from, size, 0};
        for (size_t k = from / 16; k <= (from + size + QM_GAP - 1) / 16; k++)
            owner[k] = (uint16_t)n_variables;
        arena_used = from + size + QM_GAP;
    }
    struct variable *v = &variables[i];
    if (qm_now.is_running && v->block != qm_now.block_epoch) {
        v->block = qm_now.block_epoch;
        static_bytes += v->bytes;
        size_t most =
            qm_shared_allowed() > QM_STATIC_MOST ? (size_t)QM_DYNAMIC_MOST : (size_t)QM_STATIC_MOST;
        if (static_bytes > QM_STATIC_MOST)
            qm_emu_fail(at, "shared %s: %zu bytes of static shared memory, at most %d", name,
                        static_bytes, QM_STATIC_MOST);
        else if (static_bytes + qm_dynamic_bytes > most)
            qm_emu_fail(at,
                        "shared %s: %zu bytes of static and %zu of dynamic shared memory, at most "
                        "%zu",
                        name, static_bytes, qm_dynamic_bytes, most);
    }
    return qm_emu_arena + v->at;
}

const struct variable *qm_variable_of(size_t at)
{
    return owner[at / 16] ? &variables[owner[at / 16] - 1] : NULL;
}

int qm_records_open(struct records *x, size_t bytes)
{
    size_t groups = bytes / 4 + 1, all = groups * (sizeof(struct group) + 4 * sizeof(struct cell));
    void *map =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return 0;
    x->group = (struct group *)map;
    x->byte = (struct cell *)(x->group + groups);
    x->map_bytes = all;
    return 1;
}

static void records_close(struct records *x)
{
    if (x->group)
        munmap(x->group, x->map_bytes);
    *x = {};
}

void qm_split(const struct records *x, size_t i)
{
    struct group *g = &x->group[i / 4];
    for (size_t k = 0; k < 4 && !g->is_split; k++)
        x->byte[i / 4 * 4 + k] = g->cell;
    g->is_split = 1;
}

void qm_memory_block(size_t dynamic)
{
    qm_dynamic_bytes = dynamic;
    static_bytes = 0;
    memset(qm_emu_dynamic, 0xff, dynamic); /* NaNs */
    memset(qm_emu_arena + QM_DYNAMIC_AT + QM_DYNAMIC_MOST, 0xff,
           arena_used - QM_DYNAMIC_AT - QM_DYNAMIC_MOST);
    if (!qm_arena_records.group && !qm_records_open(&qm_arena_records, QM_ARENA))
        abort();
}

/* ---- regions --------------------------------------------------------------------------------- */

/* Forgets what depends on regions[], which changes.  It must be cheap: a launch over hundreds of
 * tensors adds thousands of regions. */
static void forget_places(void)
{
    if (any_seen)
        memset(qm_region_seen, 0, sizeof qm_region_seen);
    any_seen = is_sorted = 0;
}

/* Copies of the regions whose accesses by the host are looked at, of device memory and of memory
 * that it shares: there are few of them, and many accesses while regions[] is not sorted. */
static struct region devices[REGIONS];
static int n_devices;
static uintptr_t devices_from = UINTPTR_MAX, devices_to; /* all that were ever there lie between */

const struct region *qm_watched_of(uintptr_t a)
{
    for (int i = 0; a >= devices_from && a < devices_to && i < n_devices; i++)
        if (a - devices[i].at < devices[i].bytes)
            return &devices[i];
    return NULL;
}

static void device_remove(uintptr_t at)
{
    for (int i = 0; i < n_devices; i++)
        if (devices[i].at == at)
            devices[i--] = devices[--n_devices];
}

void qm_region_add(const char *name, const void *at, size_t bytes, int flags)
{
    if (!at || bytes == 0 || n_regions == REGIONS)
        return;
    if (flags & (QM_REGION_DEVICE | QM_REGION_BLANK)) {
        uintptr_t a = (uintptr_t)at;
        devices[n_devices++] = region{name, a, bytes, flags, {}};
        devices_from = a < devices_from ? a : devices_from;
        devices_to = a + bytes > devices_to ? a + bytes : devices_to;
    }
    regions[n_regions++] = region{name, (uintptr_t)at, bytes, flags, {}};
    forget_places();
}

static void region_remove(int i)
{
    struct region *r = &regions[i];
    if (r->flags & (QM_REGION_DEVICE | QM_REGION_BLANK))
        device_remove(r->at);
    records_close(&r->records);
    *r = regions[--n_regions];
    forget_places();
}

/* A process loads and unloads many kernels, and the cells of the file's own variables are large. */
static void __attribute__((destructor)) regions_close()
{
    while (n_regions > 0)
        region_remove(n_regions - 1);
}

static void forget_freed(void)
{
    const struct freed *f = &buried[first_freed++ % FREED];
    munmap(f->map, f->map_bytes);
    freed_bytes -= f->map_bytes;
}

void qm_region_free(const void *at, void *map, size_t map_bytes)
{
    for (int i = 0; i < n_regions; i++)
        if (regions[i].at == (uintptr_t)at && !(regions[i].flags & QM_REGION_STEP)) {
            if (n_freed - first_freed == FREED)
                forget_freed();
            buried[n_freed++ % FREED] = {regions[i].name, regions[i].at, regions[i].bytes,
                                         map_bytes, map};
            region_remove(i--);
            freed_bytes += map_bytes;
        }
    mmap(map, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    while (freed_bytes > FREED_BYTES)
        forget_freed();
}

const struct freed *qm_freed_of(uintptr_t a)
{
    for (unsigned int i = first_freed; i != n_freed; i++)
        if (a - buried[i % FREED].at < buried[i % FREED].bytes)
            return &buried[i % FREED];
    return NULL;
}

int qm_region_flags(const void *at, const char **name)
{
    const struct region *r = qm_region_of((uintptr_t)at);
    const struct freed *f = r ? NULL : qm_freed_of((uintptr_t)at);
    *name = r ? r->name : f ? f->name : NULL;
    return r ? r->flags : -1;
}

void qm_region_drop_step(void)
{
    for (int i = 0; i < n_regions; i++)
        if (regions[i].flags & QM_REGION_STEP)
            region_remove(i--);
}

static int by_place(const void *a, const void *b)
{
    uintptr_t x = ((const struct region *)a)->at, y = ((const struct region *)b)->at;
    return (x > y) - (x < y);
}

/* Whether the region holds others, which must be found before it. */
static int holds_others(const struct region *r)
{
    const int variables = QM_REGION_MODULE | QM_REGION_CONST | QM_REGION_DEVICE;
    return (r->flags & variables) == QM_REGION_MODULE;
}

struct region *qm_region_of(uintptr_t a)
{
    struct region *none = NULL, **last = &qm_region_seen[(a >> 12) % QM_PAGES];
    if (*last && a - (*last)->at < (*last)->bytes)
        return *last;
    if (!is_sorted) {
        forget_places();
        qsort(regions, (size_t)n_regions, sizeof *regions, by_place);
        is_sorted = 1;
    }
    any_seen = 1;
    int low = 0; /* the last region that begins at or before a */
    for (int high = n_regions; high - low > 1;) {
        int middle = low + (high - low) / 2;
        *(regions[middle].at <= a ? &low : &high) = middle;
    }
    if (n_regions > 0 && a - regions[low].at < regions[low].bytes)
        return *(holds_others(&regions[low]) ? &none : last) = &regions[low];
    for (int i = 0; i < low; i++) /* a region may lie within another */
        if (a - regions[i].at < regions[i].bytes)
            return *(holds_others(&regions[i]) ? &none : last) = &regions[i];
    return NULL;
}

const struct region *qm_region_near(uintptr_t a)
{
    const struct region *best = NULL;
    uintptr_t least = UINTPTR_MAX;
    for (int i = 0; i < n_regions; i++) {
        const struct region *r = &regions[i];
        uintptr_t gap = a < r->at ? r->at - a : a - (r->at + r->bytes);
        if (!(r->flags & QM_REGION_MODULE) && gap < least) {
            least = gap;
            best = r;
        }
    }
    return best;
}

int qm_region_covers(const void *at, size_t bytes, const char **name, size_t *left)
{
    const struct region *r = qm_region_of((uintptr_t)at);
    if (!r || (r->flags & QM_REGION_MODULE))
        return 1; /* host memory, whose bounds are not known */
    *name = r->name;
    *left = r->bytes - ((uintptr_t)at - r->at);
    return bytes <= *left;
}

/* Calls work(cell) for the record of each byte, or of four bytes that are touched together. */
template <class F> static void each_cell(struct records *x, size_t from, size_t to, const F &work)
{
    for (size_t k = from; k < to; k++) {
        if (k % 4 == 0 && to - k >= 4 && !x->group[k / 4].is_split) {
            work(&x->group[k / 4].cell);
            k += 3;
            continue;
        }
        qm_split(x, k);
        work(&x->byte[k]);
    }
}

void qm_region_touched(const void *at, size_t bytes, int write, uint32_t epoch)
{
    struct region *r = qm_region_of((uintptr_t)at);
    const struct stamp now = {epoch, 0, 0, 0};
    if (!r || !(r->flags & (QM_REGION_BLANK | QM_REGION_DEVICE)) ||
        (!r->records.group && !qm_records_open(&r->records, r->bytes)))
        return;
    size_t k = (uintptr_t)at - r->at, end = bytes < r->bytes - k ? k + bytes : r->bytes;
    for (size_t i = k; i < end && write; i++) /* a new record for the four bytes */
        if (i % 4 == 0 && end - i >= 4) {
            r->records.group[i / 4] = group{{now, {}, {}}, 0};
            i += 3;
        } else {
            qm_split(&r->records, i);
            r->records.byte[i] = cell{now, {}, {}};
        }
    if (!write)
        each_cell(&r->records, k, end, [&](struct cell *c) {
            c->r[2] = c->r[1];
            c->r[1] = c->r[0];
            c->r[0] = now;
        });
}

const char *qm_region_unordered(const void *at, size_t bytes, int write, int is_host, int *wrote)
{
    struct region *r = qm_region_of((uintptr_t)at);
    const char *name = NULL;
    if (!r || !r->records.group)
        return NULL;
    size_t k = (uintptr_t)at - r->at, end = bytes < r->bytes - k ? k + bytes : r->bytes;
    each_cell(&r->records, k, end, [&](struct cell *c) {
        const struct stamp *stamps[] = {&c->w,    &c->a[0], &c->a[1], &c->a[2],
                                        &c->r[0], &c->r[1], &c->r[2]};
        for (int i = 0; i < (write ? 7 : 4) && !name; i++) {
            uint32_t epoch = stamps[i]->epoch;
            if (epoch >= qm_now.step_epoch)
                name = is_host ? qm_launch_unwaited(epoch) : qm_launch_unordered(epoch);
            *wrote = i < 4;
        }
    });
    return name;
}

void qm_region_ask(const void *at)
{
    struct region *r = qm_region_of((uintptr_t)at);
    if (r)
        r->flags |= QM_REGION_ASKED;
}

/* The table that core/emu/emu_device.c makes: the file's __device__, __constant__ and __managed__
 * variables. */
struct listed {
    const void *at;
    uint64_t bytes, kind; /* kind: QM_MARK_... of emu_device.h */
    const char *name;
};
enum { MARK_MANAGED = 18, MARK_CONSTANT = 19 };
extern "C" {
extern const struct listed __start_qm_variables[] __attribute__((weak));
extern const struct listed __stop_qm_variables[] __attribute__((weak));
}

static void add_variables(void)
{
    for (const struct listed *v = __start_qm_variables; v && v < __stop_qm_variables; v++)
        qm_region_add(v->name, v->at, (size_t)v->bytes,
                      QM_REGION_MODULE | (v->kind == MARK_MANAGED ? 0 : QM_REGION_DEVICE) |
                          (v->kind == MARK_CONSTANT ? QM_REGION_CONST : 0));
}

/* Adds the module's own data as regions. */
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
    qm_module_base = base;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || p->p_flags & PF_X || n_regions == REGIONS)
            continue;
        regions[n_regions++] = region{"variables of the file",
                                      base + p->p_vaddr,
                                      p->p_memsz,
                                      QM_REGION_MODULE | (p->p_flags & PF_W ? 0 : QM_REGION_CONST),
                                      {}};
    }
    forget_places();
    return 1;
}

__attribute__((constructor)) static void find_module()
{
    dl_iterate_phdr(add_module, (void *)(uintptr_t)find_module);
    add_variables();
}

/* A process loads and unloads many kernels. */
__attribute__((destructor)) static void cells_close()
{
    for (int i = 0; i < n_regions; i++)
        records_close(&regions[i].records);
    records_close(&qm_arena_records);
    while (first_freed != n_freed)
        forget_freed();
}
