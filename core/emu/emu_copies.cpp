/* emu_copies.cpp - Memory that the host allocates, copies and fills. */
#include "emu_far.hpp"
#include "emu_streams.hpp"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

extern "C" {
void qm_emu_wait(struct qm_emu_stream *stream, int for_all, struct qm_emu_at at);

void qm_emu_ask(const void *symbol) { qm_region_ask(symbol); }

int qm_emu_is_device(const void *p)
{
    const char *name;
    return qm_region_flags(p, &name) >= 0;
}

/* Memory is aligned to malloc_at bytes and to no more; malloc_most: the most bytes of one call, in
 * an ordinary step.  In a step beyond 2^31 elements bytes without memory lie before it, which no
 * index of 32 bits leaves. */
static const size_t malloc_at = 256, malloc_most = (size_t)1 << 30;
static const size_t far_most = (size_t)1 << 36, far_before = (size_t)1 << 33;
static const struct {
    const char *name;
    int flags;
} kinds[] = {{"memory of cudaMalloc", QM_REGION_BLANK | QM_REGION_DEVICE},
             {"memory of cudaMallocManaged", QM_REGION_BLANK},
             {"memory of cudaMallocHost", QM_REGION_BLANK | QM_REGION_PINNED}};

void *qm_emu_malloc(size_t bytes, enum qm_emu_memory kind)
{
    size_t lead = (qm_far.n > 0 ? far_before : 0) + malloc_at;
    void *map = bytes > 0 && bytes <= (qm_far.n > 0 ? far_most : malloc_most)
                    ? mmap(NULL, lead + bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                    : MAP_FAILED;
    if (map == MAP_FAILED)
        return NULL;
    void *p = (unsigned char *)map + lead;
    if (qm_far.n == 0)
        memset(p, 0xff, bytes); /* NaNs */
    qm_region_add(kinds[kind].name, p, bytes,
                  kinds[kind].flags | (qm_far.n > 0 ? QM_REGION_FAR : 0));
    return p;
}

void qm_emu_free(void *p, int is_host, struct qm_emu_at at)
{
    const char *name = NULL, *call = is_host ? "cudaFreeHost" : "cudaFree";
    size_t bytes = 0;
    if (!p)
        return;
    int flags = qm_region_flags(p, &name);
    if (flags < 0 && name) {
        qm_emu_fail(at, "%s of %s that was freed before", call, name);
        return;
    }
    if (flags < 0 || !(flags & QM_REGION_BLANK) || (uintptr_t)p % 4096 != malloc_at) {
        qm_emu_fail(at, "%s of what is not allocated", call);
        return;
    }
    if (is_host != ((flags & QM_REGION_PINNED) != 0)) {
        qm_emu_fail(at, "%s of %s", call, name);
        return;
    }
    (void)qm_region_covers(p, 0, &name, &bytes);
    size_t lead = (flags & QM_REGION_FAR ? far_before : 0) + malloc_at;
    qm_region_free(p, (unsigned char *)p - lead, lead + bytes);
}

/* Whether one end of a copy is memory of the kind that it must be: the host's, or a device's.  The
 * buffers of a step and managed memory are both.  by_symbol: the call takes a variable. */
static int end_is_valid(const void *p, int is_device, int by_symbol, const char *what,
                        struct qm_emu_at at)
{
    const char *name = NULL;
    int flags = qm_region_flags(p, &name);
    if (flags < 0 && name) {
        qm_emu_fail(at, "%s %s that was freed", what, name);
        return 0;
    }
    if (flags >= 0 && (flags & QM_REGION_MODULE) && (flags & QM_REGION_DEVICE) && !by_symbol &&
        !(flags & QM_REGION_ASKED)) {
        qm_emu_fail(at,
                    "%s %s by its name, which is no address of the device in code of the host: "
                    "cudaMemcpyToSymbol, cudaMemcpyFromSymbol or cudaGetSymbolAddress take it",
                    what, name);
        return 0;
    }
    int is_host = flags < 0 || (flags & QM_REGION_PINNED) ||
                  ((flags & QM_REGION_MODULE) && !(flags & QM_REGION_DEVICE) &&
                   strncmp(name, "__managed__", 11) != 0);
    if (is_device < 0 || (is_device ? !is_host : !(flags >= 0 && (flags & QM_REGION_DEVICE))))
        return 1;
    qm_emu_fail(at, "%s %s, expected memory of the %s", what,
                flags < 0 || (flags & QM_REGION_MODULE && is_host) ? "host memory" : name,
                is_host ? "device" : "host");
    return 0;
}

static int kind_is_valid(void *to, const void *from, int way, struct qm_emu_at at)
{
    static const struct {
        const char *name;
        int to, from; /* 1: a device's; 0: the host's; -1: either */
    } ways[] = {{"cudaMemcpyHostToHost", 0, 0},
                {"cudaMemcpyHostToDevice", 1, 0},
                {"cudaMemcpyDeviceToHost", 0, 1},
                {"cudaMemcpyDeviceToDevice", 1, 1},
                {"cudaMemcpyDefault", -1, -1}};
    char what[80];
    int to_symbol = way & QM_COPY_TO_SYMBOL, from_symbol = way & QM_COPY_FROM_SYMBOL;
    way &= ~(QM_COPY_TO_SYMBOL | QM_COPY_FROM_SYMBOL);
    if ((unsigned int)way >= sizeof ways / sizeof *ways) {
        qm_emu_fail(at, "a copy of kind %d: there is no such cudaMemcpyKind", way);
        return 0;
    }
    snprintf(what, sizeof what, "a copy of kind %s reads from", ways[way].name);
    if (!end_is_valid(from, ways[way].from, from_symbol, what, at))
        return 0;
    snprintf(what, sizeof what, "a copy of kind %s writes to", ways[way].name);
    return end_is_valid(to, ways[way].to, to_symbol, what, at);
}

static int copy_is_valid(const void *p, size_t bytes, const char *what, struct qm_emu_at at)
{
    const char *name = NULL;
    size_t left = 0;
    if (qm_region_covers(p, bytes, &name, &left))
        return 1;
    qm_emu_fail(at, "cudaMemcpy or cudaMemset %s %zu bytes, and %s ends after %zu", what, bytes,
                name, left);
    return 0;
}

static int copy_is_ordered(const void *p, size_t bytes, int write, struct qm_emu_at at)
{
    int wrote = 1;
    const char *work = qm_now.many_streams ? qm_region_unordered(p, bytes, write, 0, &wrote) : NULL;
    if (!work)
        return 1;
    qm_emu_fail(at, "a copy touches what %s %s in another stream, and nothing orders the two", work,
                wrote ? "wrote" : "read");
    return 0;
}

/* Whether the host can touch one end of an asynchronous copy before it is done. */
static int is_pinned(const void *p)
{
    const char *name;
    int flags = qm_region_flags(p, &name);
    return flags >= 0 && (flags & QM_REGION_PINNED);
}

/* Memory of which the host has no part: it waits for no fill of it, and for no copy within it. */
static int is_device_alone(const void *p)
{
    const char *name;
    int flags = qm_region_flags(p, &name);
    return flags >= 0 && (flags & QM_REGION_DEVICE);
}

int qm_emu_copy(void *to, const void *from, size_t bytes, int way, struct qm_emu_stream *stream,
                int waits, struct qm_emu_at at)
{
    if (*qm_emu_text || bytes == 0)
        return 0;
    waits = waits && !(is_device_alone(from) && is_device_alone(to));
    int is_seen = !waits && (is_pinned(from) || is_pinned(to));
    uint32_t epoch = qm_copy_begin(stream, is_seen, "a copy", at);
    if (epoch && kind_is_valid(to, from, way, at) && copy_is_valid(from, bytes, "reads", at) &&
        copy_is_valid(to, bytes, "writes", at) && copy_is_ordered(from, bytes, 0, at) &&
        copy_is_ordered(to, bytes, 1, at)) {
        if (qm_far.n > 0) {
            qm_far_copy(to, from, bytes);
        } else {
            __real_memcpy(to, from, bytes);
            if (epoch > 1)
                qm_region_touched(from, bytes, 0, epoch);
            qm_region_touched(to, bytes, 1, epoch);
        }
    }
    if (waits)
        qm_emu_wait(stream, 0, at);
    return *qm_emu_text ? QM_ERROR_INVALID : 0;
}

int qm_emu_fill(void *to, int byte, size_t bytes, struct qm_emu_stream *stream, int waits,
                struct qm_emu_at at)
{
    if (*qm_emu_text || bytes == 0)
        return 0;
    waits = waits && !is_device_alone(to);
    uint32_t epoch = qm_copy_begin(stream, is_pinned(to), "cudaMemset", at);
    if (epoch && end_is_valid(to, 1, 0, "cudaMemset writes to", at) &&
        copy_is_valid(to, bytes, "writes", at) && copy_is_ordered(to, bytes, 1, at)) {
        if (qm_far.n > 0) {
            qm_far_fill(to, byte, bytes);
        } else {
            __real_memset(to, byte, bytes);
            qm_region_touched(to, bytes, 1, epoch);
        }
    }
    if (waits)
        qm_emu_wait(stream, 0, at);
    return *qm_emu_text ? QM_ERROR_INVALID : 0;
}
}
