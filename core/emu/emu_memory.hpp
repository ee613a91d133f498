/* emu_memory.hpp - Records of memory, shared by emu_memory.cpp, emu_access.cpp and
 * emu_found.cpp. */
#ifndef QM_EMU_MEMORY_HPP
#define QM_EMU_MEMORY_HPP

#include "emu_runtime.hpp"

/* An access that was seen. */
struct stamp {
    uint32_t epoch;  /* 0: there was none */
    uint32_t code;   /* its instruction, from the start of the module; or qm_place_number */
    uint16_t thread; /* bits 0 to 9; 10 to 14: fences before it (qm_blocks_fences); 15: atomic */
    uint16_t clock;
};
enum { QM_STAMP_ATOMIC = 0x8000 };
static inline unsigned int qm_stamp_thread(const struct stamp *s) { return s->thread & 1023u; }
static inline unsigned int qm_stamp_fences(const struct stamp *s) { return s->thread >> 10 & 31u; }

/* The record of a byte: the last plain write; atomic operations and plain reads, each the last one,
 * one by another thread of the same block and one by another block. */
struct cell {
    struct stamp w, a[3], r[3];
};

/* Four bytes.  While !is_split, one cell stands for all: every access touched all of them. */
struct group {
    struct cell cell;
    uint32_t is_split;
};

/* The records of a piece of memory; group NULL: none yet. */
struct records {
    struct group *group;
    struct cell *byte; /* of split groups */
    size_t map_bytes;
};
static inline struct cell *qm_cell(const struct records *x, size_t i)
{
    return x->group[i / 4].is_split ? &x->byte[i] : &x->group[i / 4].cell;
}
void qm_split(const struct records *x, size_t i);     /* the group of byte i */
int qm_records_open(struct records *x, size_t bytes); /* 0: no memory */

enum { HOST_STACK = 1 << 20 }; /* bytes above the frame that launched */

struct region {
    const char *name;
    uintptr_t at;
    size_t bytes;
    int flags;
    struct records records;
};

/* The region that holds an address; NULL: none.  Valid until one is added or dropped. */
struct region *qm_region_of(uintptr_t a);
enum { QM_PAGES = 1024 };
extern struct region *qm_region_seen[QM_PAGES];   /* last found on a page, by the page's number */
const struct region *qm_region_near(uintptr_t a); /* the nearest that is not the file's own */

/* The region of device memory, or of memory of CUDA's that the host shares, that holds an address;
 * NULL: none.  It has no records. */
const struct region *qm_watched_of(uintptr_t a);

/* Memory that was freed, whose mapping is kept. */
struct freed {
    const char *name;
    uintptr_t at;
    size_t bytes, map_bytes;
    void *map;
};
/* The one that held an address; NULL: none. */
const struct freed *qm_freed_of(uintptr_t a);

/* Shared memory is one arena: the launch's dynamic part first, then variables with gaps between. */
enum { QM_ARENA = 1 << 20, QM_DYNAMIC_AT = 16, QM_GAP = 64 };
extern "C" unsigned char qm_emu_arena[QM_ARENA];
extern struct records qm_arena_records;
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
void qm_found_host(const struct region *r, uintptr_t a, size_t size, int write, uint32_t code);
/* The host touches what a launch or copy wrote, or read, that it has not waited for. */
void qm_found_early(const struct region *r, uintptr_t a, size_t size, const char *work, int write,
                    int wrote, uint32_t code);
void qm_found_unwritten(const struct region *r, uintptr_t a, size_t size, uint32_t code);
/* what, was: what each of the two does, as in "writes" and "wrote". */
void qm_found_race(const struct region *r, uintptr_t a, size_t size, const struct stamp *s,
                   const char *what, const char *was, uint32_t code);
void qm_found_streams(const struct region *r, uintptr_t a, size_t size, const char *kernel,
                      int write, int was_write, uint32_t code);

/* Order between the blocks of a launch (emu_blocks.cpp): notes an atomic operation of the current
 * thread; whether an access by an earlier block is ordered before the current one; fences that the
 * current thread has executed in this block, at most 31. */
void qm_blocks_atomic(uintptr_t a);
int qm_blocks_are_ordered(const struct stamp *s);
unsigned int qm_blocks_fences(void);

#endif
