/* emu_found.cpp - The texts of findings about memory: which thread, which bytes, which line. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "emu_memory.hpp"

/* Bytes: from there on an address has nothing to do with a buffer; and so near that it has. */
enum { FAR_AWAY = 1 << 20, BESIDE = 256 };

/* ---- places ---------------------------------------------------------------------------------- */

/* A place in the source is a number (stamp.code): the address of an instruction in the module, or,
 * with bit 31 set, an entry of the hash table `places`. */

enum { PLACES = 4096 };
static struct qm_emu_at places[PLACES];
static uint32_t n_places;

uint32_t qm_place_number(struct qm_emu_at at)
{
    uint32_t k = ((uint32_t)at.line * 61u) % PLACES;
    for (uint32_t n = 0; n < PLACES && places[k].file; n++, k = (k + 1) % PLACES)
        if (places[k].line == at.line && places[k].file == at.file)
            return k | 1u << 31;
    if (n_places < PLACES - 1) {
        places[k] = at;
        n_places++;
    }
    return k | 1u << 31;
}

static void place_of(uint32_t code, char *text, size_t size)
{
    Dl_info info;
    char command[1200], line[1024];
    if (code >> 31) {
        const struct qm_emu_at *at = &places[code % PLACES];
        const char *slash = at->file ? strrchr(at->file, '/') : NULL;
        if (!at->file) { /* the table is full */
            snprintf(text, size, "an atomic operation");
            return;
        }
        snprintf(text, size, "%s:%d", slash ? slash + 1 : at->file, at->line);
        return;
    }
    snprintf(text, size, "code %#zx", (size_t)code);
    if (!dladdr((void *)(uintptr_t)qm_found_outside, &info) || strchr(info.dli_fname, '\''))
        return;
    snprintf(command, sizeof command, "addr2line -i -e '%s' %#zx 2>/dev/null", info.dli_fname,
             (size_t)code);
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, " \n")] = '\0';
        const char *slash = strrchr(line, '/'), *name = slash ? slash + 1 : line;
        if (strncmp(name, "qm_emu", 6) == 0 || *name == '?')
            continue; /* an inline function of the layer: the next line is its caller */
        snprintf(text, size, "%.199s", name);
        if (strncmp(line, "/usr/", 5) != 0)
            break; /* else a function of a system header */
    }
    if (f)
        pclose(f);
}

/* ---- findings -------------------------------------------------------------------------------- */

static void fail_at(uint32_t code, const char *what)
{
    char place[200];
    struct qm_emu_at nowhere = {NULL, 0, 0};
    place_of(code, place, sizeof place);
    qm_emu_fail(nowhere, "%s: %s", place, what);
}

/* Writes "4 bytes at byte 64 of shared of_warp"; r NULL: shared memory. */
static void name_bytes(const struct region *r, uintptr_t a, size_t size, char *text, size_t room)
{
    if (r) {
        snprintf(text, room, "%zu byte%s at byte %zu of %s", size, size == 1 ? "" : "s",
                 (size_t)(a - r->at), r->name);
        return;
    }
    size_t at = a - (uintptr_t)qm_emu_arena;
    const struct variable *v = qm_variable_of(at);
    if (at < QM_DYNAMIC_AT + QM_DYNAMIC_MOST)
        snprintf(text, room, "%zu byte%s at byte %zu of the dynamic shared memory", size,
                 size == 1 ? "" : "s", at - QM_DYNAMIC_AT);
    else
        snprintf(text, room, "%zu byte%s at byte %zu of shared %s", size, size == 1 ? "" : "s",
                 at - v->at, v->name);
}

static uintptr_t gap_to(const struct region *near, uintptr_t a)
{
    return a < near->at ? near->at - a : a - (near->at + near->bytes);
}

/* Whether an address far from all buffers is in memory that the process has: the host's. */
static int is_hosts(uintptr_t a, const struct region *near)
{
    unsigned char in_core;
    uintptr_t gap = gap_to(near, a);
    return gap > FAR_AWAY && !(near->flags & QM_REGION_FAR) &&
           mincore((void *)(a / 4096 * 4096), 4096, &in_core) == 0;
}

/* An access outside of all buffers: the finding names the nearest one. */
void qm_found_outside(uintptr_t a, size_t size, int write, uint32_t code)
{
    char who[64], what[400];
    const struct region *best = qm_region_near(a);
    const struct freed *gone = qm_freed_of(a);
    qm_thread_name(qm_now.thread, who);
    if (gone) {
        snprintf(what, sizeof what, "%s %s %zu byte%s at byte %zu of %s that was freed", who,
                 write ? "writes" : "reads", size, size == 1 ? "" : "s", (size_t)(a - gone->at),
                 gone->name);
        fail_at(code, what);
        return;
    }
    int n = snprintf(what, sizeof what, "%s %s %zu byte%s out of bounds", who,
                     write ? "writes" : "reads", size, size == 1 ? "" : "s");
    if (a < 65536)
        snprintf(what + n, sizeof what - (size_t)n, ", at a null pointer");
    else if (qm_is_stack(a))
        snprintf(what + n, sizeof what - (size_t)n, ", in another thread's local memory");
    else if (a - qm_now.host_stack < HOST_STACK && !(best && gap_to(best, a) < BESIDE))
        snprintf(what + n, sizeof what - (size_t)n,
                 ", on the stack of the host's code: a kernel cannot use a pointer or reference to "
                 "its variables");
    else if (best && is_hosts(a, best))
        snprintf(what + n, sizeof what - (size_t)n,
                 ", in memory of the host, which a kernel cannot use: cudaMalloc and cudaMemcpy "
                 "make a copy for the device");
    else if (best)
        snprintf(what + n, sizeof what - (size_t)n, ", %zu bytes %s the %s (%zu bytes)",
                 (size_t)gap_to(best, a), a < best->at ? "before" : "past the end of", best->name,
                 best->bytes);
    fail_at(code, what);
}

void qm_found_outside_shared(size_t at, size_t size, int write, uint32_t code)
{
    char who[64], what[400];
    const struct variable *v = qm_variable_of(at);
    qm_thread_name(qm_now.thread, who);
    if (at < QM_DYNAMIC_AT + QM_DYNAMIC_MOST + QM_GAP || !v)
        snprintf(what, sizeof what,
                 "%s %s %zu byte%s out of bounds, at byte %zd of the launch's %zu bytes of dynamic "
                 "shared memory",
                 who, write ? "writes" : "reads", size, size == 1 ? "" : "s",
                 (ptrdiff_t)at - QM_DYNAMIC_AT, qm_dynamic_bytes);
    else
        snprintf(what, sizeof what,
                 "%s %s %zu byte%s out of bounds, at byte %zu of shared %s (%zu bytes)", who,
                 write ? "writes" : "reads", size, size == 1 ? "" : "s", at - v->at, v->name,
                 v->bytes);
    fail_at(code, what);
}

void qm_found_early(const struct region *r, uintptr_t a, size_t size, const char *work, int write,
                    int wrote, uint32_t code)
{
    char bytes[200], what[640];
    name_bytes(r, a, size, bytes, sizeof bytes);
    snprintf(what, sizeof what,
             "code of the host %s %s, which %s %s, and the host has not waited for it",
             write ? "writes" : "reads", bytes, work, wrote ? "wrote" : "read");
    fail_at(code, what);
}

void qm_found_unwritten(const struct region *r, uintptr_t a, size_t size, uint32_t code)
{
    char who[64], bytes[200], what[400];
    qm_thread_name(qm_now.thread, who);
    name_bytes(r, a, size, bytes, sizeof bytes);
    snprintf(what, sizeof what, "%s reads %s, which %s", who, bytes,
             r ? "nothing has written" : "no thread of the block has written");
    fail_at(code, what);
}

void qm_found_race(const struct region *r, uintptr_t a, size_t size, const struct stamp *s,
                   const char *what, const char *was, uint32_t code)
{
    char who[64], other[80], bytes[200], place[200], text[640];
    int is_near = s->epoch >= qm_now.block_epoch;
    qm_thread_name(qm_now.thread, who);
    if (is_near)
        qm_thread_name(qm_stamp_thread(s), other);
    else
        snprintf(other, sizeof other, "thread %u of another block", qm_stamp_thread(s));
    name_bytes(r, a, size, bytes, sizeof bytes);
    place_of(s->code, place, sizeof place);
    snprintf(text, sizeof text, "data race: %s %s %s, which %s %s at %s with %s between", who, what,
             bytes, other, was, place,
             is_near || !s->epoch ? "nothing" : "no __threadfence and atomic operation");
    fail_at(code, text);
}

void qm_found_streams(const struct region *r, uintptr_t a, size_t size, const char *kernel,
                      int write, int was_write, uint32_t code)
{
    char who[64], bytes[200], what[640];
    qm_thread_name(qm_now.thread, who);
    name_bytes(r, a, size, bytes, sizeof bytes);
    snprintf(what, sizeof what,
             "%s %s %s, which %s %s in another stream, and nothing orders the two", who,
             write ? "writes" : "reads", bytes, kernel, was_write ? "wrote" : "read");
    fail_at(code, what);
}

void qm_found_constant(const struct region *r, uintptr_t a, size_t size, uint32_t code)
{
    char who[64], bytes[200], what[400];
    qm_thread_name(qm_now.thread, who);
    name_bytes(r, a, size, bytes, sizeof bytes);
    snprintf(what, sizeof what, "%s writes %s, which is constant", who, bytes);
    fail_at(code, what);
}

void qm_found_host(const struct region *r, uintptr_t a, size_t size, int write, uint32_t code)
{
    char bytes[200], what[400];
    name_bytes(r, a, size, bytes, sizeof bytes);
    snprintf(what, sizeof what, "code of the host %s %s, which only a kernel or a copy may touch",
             write ? "writes" : "reads", bytes);
    fail_at(code, what);
}
