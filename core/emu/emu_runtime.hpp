/* emu_runtime.hpp - Declarations that the parts of the layer share: threads, memory, findings,
 * streams.
 *
 * The layer is compiled without sanitizers.  Kernels do not include this header. */
#ifndef QM_EMU_RUNTIME_HPP
#define QM_EMU_RUNTIME_HPP

#include <stddef.h>
#include <stdint.h>

#include "emu_boundary.hpp"

enum {
    QM_WARP = 32,
    QM_THREADS_MOST = 1024,
    QM_DYNAMIC_MOST = 227 * 1024,
    QM_STATIC_MOST = 48 * 1024,
    QM_STREAMS = 64
};

struct qm_index {
    unsigned int x, y, z;
};

/* Vector clocks of a warp's lanes.  A lane's clock own[] counts the meetings it took part in;
 * seen[b][a] is a's clock when b last met it, directly or through others.  `base` is the clock of
 * the last meeting of all lanes, which every lane has seen. */
struct qm_order {
    uint16_t base, own[QM_WARP], seen[QM_WARP][QM_WARP];
    int is_partial; /* seen is not all 0 */
};

/* Lanes `who`, of which `live` exist, have met: each has now seen what any of them has seen.
 * reset: begins a block. */
void qm_order_meet(struct qm_order *o, uint32_t who, uint32_t live);
void qm_order_reset(struct qm_order *o);

/* The state of a launch, read at every memory access. */
struct qm_emu_now {
    int is_running;        /* within a kernel */
    unsigned int thread;   /* of the block */
    uintptr_t stack;       /* of this fiber; 0 outside */
    uintptr_t host_stack;  /* frame of the code that launched */
    uint32_t epoch;        /* grows at every barrier of a block and every block, never shrinks */
    uint32_t block_epoch;  /* the first epoch of this block */
    uint32_t launch_epoch; /* the first epoch of this launch */
    uint32_t step_epoch;   /* the first epoch of this step */
    const struct qm_order *synced, *met; /* of this thread's warp: __syncwarp; all meetings */
    uintptr_t closure;                   /* of the launch: copies of the kernel's arguments */
    size_t closure_bytes;
    int is_entering; /* the arguments are copied for a thread */
    int is_unwaited; /* there is work that the host has not waited for */
    int many_streams;
    const char *kernel;
};
extern struct qm_emu_now qm_now;
extern const size_t qm_stack_bytes;

extern "C" {
/* Reports a finding: the first one of a step is kept, and the launch ends. */
void qm_emu_fail(struct qm_emu_at at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
extern char qm_emu_text[800]; /* "" while there is none */
/* Has findings copied to text, memory that outlives the process, as soon as they are there. */
void qm_emu_tell(char *text, size_t size);
extern struct qm_index qm_emu_thread_index, qm_emu_block_index, qm_emu_block_size, qm_emu_grid_size;
}

/* The C library's functions: calls of memcpy are checked like accesses of the file
 * (emu_access.cpp), the layer's own too. */
extern "C" {
void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__real_memset(void *to, int byte, size_t n);
}

/* Calls a step of the host; the end of the process after a finding is the end of the step. */
int qm_step_call(int (*step)(const void *a), const void *a);

/* Ends the step without a finding, from a thread of a kernel. */
void qm_step_leave(void);

/* Writes "thread (1,0,0) of block (0,0,0)", of a thread of this block, to text, which it
 * returns. */
const char *qm_thread_name(unsigned int thread, char text[64]);

/* Whether an address is in the memory of the fibers' stacks. */
int qm_is_stack(uintptr_t a);

/* Memory that kernels may touch.  CONST: read only; STEP: until the step ends; BLANK: not written
 * yet; MODULE: the file's own variables; DEVICE: not for the host; PINNED: the host's, page-locked;
 * FAR: address space without memory lies before it; ASKED: the host knows its address.  name: kept,
 * not copied. */
enum {
    QM_REGION_CONST = 1,
    QM_REGION_STEP = 2,
    QM_REGION_BLANK = 4,
    QM_REGION_MODULE = 8,
    QM_REGION_DEVICE = 16,
    QM_REGION_PINNED = 32,
    QM_REGION_FAR = 64,
    QM_REGION_ASKED = 128
};
void qm_region_add(const char *name, const void *at, size_t bytes, int flags);
/* Drops the region that begins at `at`, of memory that was mapped.  The mapping stays for a while,
 * without access, so that a use of it is known for what it is. */
void qm_region_free(const void *at, void *map, size_t map_bytes);
void qm_region_drop_step(void);
/* The flags of the region that holds an address, and its name; -1: none does, and *name is what was
 * freed there, or NULL. */
int qm_region_flags(const void *at, const char **name);
/* For copies: whether `bytes` bytes from `at` on lie in one region, or not in any known one; *left:
 * how many do. */
int qm_region_covers(const void *at, size_t bytes, const char **name, size_t *left);
/* Notes that code of the host or a copy has written or read the bytes; epoch 1: a write that
 * everything is ordered after. */
void qm_region_touched(const void *at, size_t bytes, int write, uint32_t epoch);
/* The name of an earlier launch or copy that wrote the bytes (for a write: or read them) and is
 * unordered with what is to touch them now, else NULL: with the current copy, or with the host. */
const char *qm_region_unordered(const void *at, size_t bytes, int write, int is_host, int *wrote);
/* Notes that the host has asked for the address of a variable of the device; whether it has. */
void qm_region_ask(const void *at);

/* Begins a block: shared memory is unwritten; `dynamic`: bytes of the launch's dynamic part. */
void qm_memory_block(size_t dynamic);

/* A launch, a block and a barrier of it, for the order between blocks (emu_blocks.cpp). */
void qm_blocks_launch(void);
void qm_blocks_block(void);
void qm_blocks_barrier(void);

/* A thread waits or ends: a plain read beside atomic operations is reported that no atomicCAS of
 * the thread has followed. */
void qm_read_settle(void);

/* Begins a launch in a stream (NULL: the default one): its number, or -1: it must not run. */
int qm_launch_begin(void *stream, const char *name, struct qm_emu_at at);

/* The name of the launch or copy of that epoch where the current one is not ordered after it, and
 * where the host has not waited for it, else NULL. */
const char *qm_launch_unordered(uint32_t epoch);
const char *qm_launch_unwaited(uint32_t epoch);

/* Whether CUDA's limits allow a launch; else it is reported. */
int qm_launch_is_valid(struct qm_index grid, struct qm_index block, size_t shared, const char *name,
                       struct qm_emu_at at);

/* A launch fails with an error of CUDA's; QM_ERROR_KERNEL: when it runs. */
enum { QM_ERROR_INVALID = 1, QM_ERROR_CONFIGURATION = 9, QM_ERROR_KERNEL = 719 };
void qm_launch_failed(int error);
size_t qm_shared_allowed(void); /* bytes of dynamic shared memory that a launch may have */

#endif
