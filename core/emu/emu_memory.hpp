/* emu_memory.hpp - Records of memory, shared by emu_memory.cpp, emu_access.cpp and
 * emu_found.cpp. */
#ifndef QM_EMU_MEMORY_HPP
#define QM_EMU_MEMORY_HPP

#include "emu_runtime.hpp"

/* An access that was seen. */
struct stamp {
    uint32_t epoch; /* 0: there was none */
    uint32_t code;  /* its instruction, from the start of the module; or qm_place_number */
    uint16_t thread, clock;
};

/* The record of one byte.  While !is_split, the first cell of four stands for all four bytes: every
 * access touched all of them. */
struct cell {
    struct stamp w, r[2]; /* the last write; the last reads, by two threads */
    uint32_t is_split;
};

enum { QM_REGION_MODULE = 8 }; /* a region's flag: the file's own variables */

struct region {
    const char *name;
    uintptr_t at;
    size_t bytes;
    int flags;
    struct cell *cells; /* NULL: none yet */
};

/* The region that holds an address; NULL: none.  Valid until one is added or dropped. */
struct region *qm_region_of(uintptr_t a);
enum { QM_PAGES = 1024 };
extern struct region *qm_region_seen[QM_PAGES]; /* last found on a page, by the page's number */
struct cell *qm_cells_for(size_t bytes);
const struct region *qm_region_near(uintptr_t a); /* the nearest that is not the file's own */

/* Shared memory is one arena: the launch's dynamic part first, then variables with gaps between. */
enum { QM_ARENA = 1 << 20, QM_DYNAMIC_AT = 16, QM_GAP = 64 };
extern "C" unsigned char qm_emu_arena[QM_ARENA];
extern struct cell *qm_arena_cells;
extern size_t qm_dynamic_bytes;

struct variable {
    void *key;
    const char *name;
    size_t at, bytes;
    uint32_t block; /* first epoch of the block that declared it last */
};
/* The variable that holds an offset of the arena, or lies before it; NULL: there is none. */
const struct variable *qm_variable_of(size_t at);

extern uintptr_t qm_module_base;

/* A place known by file and line as a number, with bit 31 set: no instruction has such a number. */
uint32_t qm_place_number(struct qm_emu_at at);

/* Report a finding.  r NULL: shared memory; code: as in struct stamp. */
void qm_found_outside(uintptr_t a, size_t size, int write, uint32_t code);
void qm_found_outside_shared(size_t at, size_t size, int write, uint32_t code);
void qm_found_constant(const struct region *r, uintptr_t a, size_t size, uint32_t code);
void qm_found_unwritten(const struct region *r, uintptr_t a, size_t size, uint32_t code);
void qm_found_race(const struct region *r, uintptr_t a, size_t size, const struct stamp *s,
                   int write, int was_write, uint32_t code);
void qm_found_streams(const struct region *r, uintptr_t a, size_t size, const char *kernel,
                      int write, int was_write, uint32_t code);

#endif
