/* emu_runtime.hpp - what the parts of the layer share: threads, memory, findings, streams.
 *
 * Compiled with each kernel, without sanitizers; nothing here is for kernels. */
#ifndef QM_EMU_RUNTIME_HPP
#define QM_EMU_RUNTIME_HPP

#include <stddef.h>
#include <stdint.h>

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

struct qm_emu_at {
    const char *file;
    int line;
};

enum qm_emu_kind { QM_SHUFFLE, QM_VOTE, QM_MATCH, QM_SYNCWARP, QM_ACTIVE };
enum qm_emu_join { QM_JOIN_NONE, QM_JOIN_COUNT, QM_JOIN_AND, QM_JOIN_OR };

/* What lanes of a warp know of each other.  Each has a clock that counts where it met others;
 * seen[b][a] is a's clock when b last met it.  Where all met, all have the clock `base`, seen or not. */
struct qm_order {
    uint16_t base, own[QM_WARP], seen[QM_WARP][QM_WARP];
    int is_partial; /* seen is not all 0 */
};

/* Where a launch stands: read by the memory part at every access. */
struct qm_emu_now {
    int is_running;        /* within a kernel */
    unsigned int thread;   /* of the block */
    uintptr_t stack;       /* of this fiber; 0 outside */
    uintptr_t host_stack;  /* where the launching code's begins */
    uint32_t epoch;        /* grows at every barrier of a block and every block, never shrinks */
    uint32_t block_epoch;  /* the first of this block */
    uint32_t launch_epoch; /* of this launch */
    uint32_t step_epoch;   /* of this step */
    const struct qm_order *synced, *met; /* of this thread's warp */
    int many_streams;
    const char *kernel;
};
extern struct qm_emu_now qm_now;
extern const size_t qm_stack_bytes;
extern int64_t qm_far_n; /* not 0: elements of a tensor of which only the ends are run */

extern "C" {
/* The first finding of a step is kept; the launch is given up. */
void qm_emu_fail(struct qm_emu_at at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
extern char qm_emu_text[800]; /* "" while there is none */
extern struct qm_index qm_emu_thread_index, qm_emu_block_index, qm_emu_block_size, qm_emu_grid_size;
}

/* "thread (1,0,0) of block (0,0,0)" of a thread of this block; the buffer's. */
const char *qm_thread_name(unsigned int thread, char text[64]);

/* Whether an address is in the memory of the fibers' stacks. */
int qm_is_stack(uintptr_t a);

/* A buffer that kernels may use.  name: kept. */
enum {
    QM_REGION_CONST = 1,
    QM_REGION_STEP = 2,
    QM_REGION_BLANK = 4
}; /* STEP: for this step;
                                                                        * BLANK: not written yet */
void qm_region_add(const char *name, const void *at, size_t bytes, int flags);
void qm_region_drop(const void *at);
void qm_region_drop_step(void);
int qm_region_covers(const void *at, size_t bytes, const char **name, size_t *left);
void qm_region_written(const void *at, size_t bytes); /* by cudaMemcpy and the like */
int qm_region_unordered(const void *at, size_t bytes, const char **kernel); /* for a copy */

/* A block starts: shared memory holds nothing; `dynamic` bytes of the launch's. */
void qm_memory_block(size_t dynamic);

/* Launches, ordered by streams.  */
int qm_launch_begin(void *stream, const char *name); /* its number; -1: not to be run */
const char *qm_launch_unordered(uint32_t epoch); /* name of a launch of that epoch which the current
                                                      * one is not ordered after; else NULL */
void qm_streams_step(void);
const char *qm_launch_unwaited(void); /* one the host has not waited for, or NULL */
void qm_launch_failed(int error);
size_t qm_shared_allowed(void);

#endif
