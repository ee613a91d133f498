/* emu_memory.hpp - memory as the three parts that watch it see it. */
#ifndef QM_EMU_MEMORY_HPP
#define QM_EMU_MEMORY_HPP

#include "emu_runtime.hpp"

struct stamp {
    uint32_t epoch; /* 0: never */
    uint32_t code;  /* where, from the start of the module; or qm_place_number */
    uint16_t thread, clock;
};

/* Of one byte; or, while !is_split, of four, in the first one's: whoever touched one of them touched
 * all. */
struct cell {
    struct stamp w, r[2]; /* r[1]: by another thread than r[0] */
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
struct cell *qm_cells_for(size_t bytes);
const struct region *qm_region_near(uintptr_t a); /* the nearest one of a step or of cudaMalloc */

/* Shared memory: one arena, the launch's dynamic part first. */
enum { QM_ARENA = 1 << 20, QM_DYNAMIC_AT = 16, QM_GAP = 64 };
extern "C" unsigned char qm_emu_arena[QM_ARENA];
extern struct cell *qm_arena_cells;
extern size_t qm_dynamic_bytes;

struct variable {
    void *key;
    const char *name;
    size_t at, bytes;
    uint32_t block; /* the block that declared it last, by its epoch */
};
/* The variable that holds an offset of the arena, or lies before it; NULL: none. */
const struct variable *qm_variable_of(size_t at);

extern uintptr_t qm_module_base;

/* A place known by file and line, as a number that no code has. */
uint32_t qm_place_number(struct qm_emu_at at);

/* Findings.  r NULL: shared memory. */
void qm_found_outside(uintptr_t a, size_t size, int write, uint32_t code);
void qm_found_outside_shared(size_t at, size_t size, int write, uint32_t code);
void qm_found_constant(const struct region *r, uintptr_t a, size_t size, uint32_t code);
void qm_found_unwritten(const struct region *r, uintptr_t a, size_t size, uint32_t code);
void qm_found_race(const struct region *r, uintptr_t a, size_t size, const struct stamp *s,
                   int write, int was_write, uint32_t code);
void qm_found_streams(const struct region *r, uintptr_t a, size_t size, const char *kernel,
                      int write, int was_write, uint32_t code);

#endif
