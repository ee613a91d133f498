/* emu_boundary.hpp - The types that a kernel file and the layer exchange.
 *
 * The two are compiled apart, and both include this header: what stands here is their binary
 * interface. */
#ifndef QM_EMU_BOUNDARY_HPP
#define QM_EMU_BOUNDARY_HPP

#pragma GCC system_header /* the rewriter leaves it alone */

#include <stddef.h>

/* A place in the kernel's source; as a defaulted last parameter (QM_AT) it is the place of the
 * call. */
struct qm_emu_at {
    const char *file;
    int line;
    int number; /* of a barrier in the file, where several may stand in one line; 0: not known */
    static constexpr qm_emu_at here(const char *f = __builtin_FILE(), int l = __builtin_LINE())
    {
        return {f, l, 0};
    }
};

/* What runs a kernel for one thread: function(closure), which reads the bytes of the closure. */
struct qm_emu_call {
    void (*function)(void *closure);
    void *closure;
    size_t bytes;
};

enum qm_emu_kind { QM_SHUFFLE, QM_VOTE, QM_MATCH, QM_SYNCWARP, QM_ACTIVE };
enum qm_emu_atomic {
    QM_ATOMIC_READ,
    QM_ATOMIC_JOIN,  /* a sum of floats, a maximum or minimum */
    QM_ATOMIC_COUNT, /* other operations, whose result a kernel may use */
    QM_ATOMIC_SET,   /* atomicExch, which may ignore what was there */
    QM_ATOMIC_SWAP   /* atomicCAS */
};
enum qm_emu_join { QM_JOIN_NONE, QM_JOIN_COUNT, QM_JOIN_AND, QM_JOIN_OR };
enum qm_emu_memory { QM_MEMORY_DEVICE, QM_MEMORY_MANAGED, QM_MEMORY_HOST };
enum { QM_COPY_TO_SYMBOL = 1 << 16, QM_COPY_FROM_SYMBOL = 1 << 17 }; /* beside cudaMemcpyKind */

#endif
