/* qm_emu.hpp - CUDA's language on a CPU, for one kernel file, which includes it before anything
 * else.
 *
 * The kernel is compiled as C++17 with -fsanitize=thread, so that each memory access calls a
 * function (__tsan_read4, ...); emu_access.cpp defines these functions and so sees every access
 * with its place. Threads are fibers (emu_threads.cpp), which run one after the other, each until
 * it waits; blocks run one after the other.
 *
 * __shared__, extern __shared__ and <<<>>> are rewritten before compilation (emu_rewrite.c).  CUDA
 * that the layer does not know does not compile, or is a finding that names it. */
#ifndef QM_EMU_HPP
#define QM_EMU_HPP

#pragma GCC system_header /* the rewriter leaves it alone */

#define QM_EMU        1
#define __CUDACC__    1
#define __CUDA_ARCH__ 900

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_boundary.hpp"

#define QM_PLAIN __attribute__((no_sanitize("thread"))) /* accesses of the layer itself */

/* The rewriter takes these words away, or makes marks of them (core/emu/emu_device.h). */
#define __global__   __attribute__((noinline)) __qm_global__
#define __device__   __qm_device__
#define __host__     __qm_host__
#define __constant__ __qm_constant__
#define __managed__  __qm_managed__
#define __grid_constant__
#define __forceinline__ inline __qm_always__
#define __align__(n)    __attribute__((aligned(n)))
#define __maxnreg__(...)
#define __cluster_dims__(...) QM_EMU_cannot_emulate_clusters

/* ---- types --------------------------------------------------------------------------------- */

#define QM_VECTOR(T, name, a2, a4)                                        \
    struct name##1 { T x; };                                              \
    struct alignas(a2) name##2 { T x, y; };                               \
    struct name##3 { T x, y, z; };                                        \
    struct alignas(a4) name##4 { T x, y, z, w; };                         \
    constexpr name##1 make_##name##1(T x) { return {x}; }                 \
    constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
QM_VECTOR(signed char, char, 2, 4)
QM_VECTOR(unsigned char, uchar, 2, 4)
QM_VECTOR(short, short, 4, 8)
QM_VECTOR(unsigned short, ushort, 4, 8)
QM_VECTOR(int, int, 8, 16)
QM_VECTOR(unsigned int, uint, 8, 16)
QM_VECTOR(long, long, 16, 16)
QM_VECTOR(unsigned long, ulong, 16, 16)
QM_VECTOR(long long, longlong, 16, 16)
QM_VECTOR(unsigned long long, ulonglong, 16, 16)
QM_VECTOR(float, float, 8, 16)
QM_VECTOR(double, double, 16, 16)
#undef QM_VECTOR

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

/* The layer sets these before a fiber runs; the fiber itself never sees them change. */
extern "C" {
extern const uint3 threadIdx __asm__("qm_emu_thread_index");
extern const uint3 blockIdx __asm__("qm_emu_block_index");
extern const dim3 blockDim __asm__("qm_emu_block_size");
extern const dim3 gridDim __asm__("qm_emu_grid_size");
}
static const int warpSize = 32;

/* ---- functions of the layer ---------------------------------------------------------------- */

#define QM_AT qm_emu_at at = qm_emu_at::here()

extern "C" {
/* A barrier of all threads of the block that have not ended; returns the join of their x. */
int qm_emu_barrier(enum qm_emu_join join, int x, const char *name, qm_emu_at at);

/* The lanes of `mask` meet, each with a number x.  Then value[] holds each lane's x; returns the
 * lanes that took part.  QM_SHUFFLE sets value[from] only; lane `from` must take part. */
unsigned int qm_emu_warp(enum qm_emu_kind kind, unsigned int mask, uint64_t x, int from,
                         uint64_t value[32], const char *name, qm_emu_at at);

/* Announces an atomic operation, with which another one does not race. */
void qm_emu_atomically(const volatile void *address, size_t size, enum qm_emu_atomic kind,
                       qm_emu_at at);
void qm_emu_fence(void);

/* The memory of a shared variable, one for all threads of a block and undefined when the block
 * starts. */
void *qm_emu_shared(void *key, size_t size, size_t align, const char *name, QM_AT);
extern unsigned char qm_emu_dynamic[];

/* Marks for core/emu/emu_device.c, in a build that never runs: what follows is a launch; this
 * stands in a try. */
void qm_emu_launches(void);
void qm_emu_tries(void);

/* Reports a finding and ends the launch. */
void qm_emu_fail(qm_emu_at at, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A kernel's first statement: a launch with more threads fails. */
void qm_emu_bounds(long long most, const char *name, qm_emu_at at);

/* Runs a kernel: calls call.function(call.closure) once for each thread, which may read the bytes
 * of the closure until the kernel begins.  stream: of cudaStreamCreate, or 0.  Returns an error of
 * CUDA's where it does not start. */
int qm_emu_launch(dim3 grid, dim3 block, size_t shared, void *stream, const char *name,
                  struct qm_emu_call call, qm_emu_at at);
}

namespace qm_emu
{
struct config {
    dim3 grid, block;
    size_t shared;
    void *stream;
    constexpr config(dim3 g, dim3 b, size_t n = 0, void *s = nullptr)
        : grid(g), block(b), shared(n), stream(s)
    {
    }
};

/* A copy of a kernel's argument, as a parameter would be one. */
template <class T> struct copy {
    mutable T value;
};
template <class T> QM_PLAIN inline copy<T> copied(T x) { return {static_cast<T &&>(x)}; }

template <class F>
QM_PLAIN inline int launched(const config &c, const char *name, F &&kernel, qm_emu_at at)
{
    return qm_emu_launch(
        c.grid, c.block, c.shared, c.stream, name,
        {[](void *closure) QM_PLAIN { (*static_cast<F *>(closure))(); }, &kernel, sizeof kernel},
        at);
}
template <class F> QM_PLAIN inline void launch(const config &c, const char *name, F &&kernel, QM_AT)
{
    launched(c, name, static_cast<F &&>(kernel), at);
}

/* What __launch_bounds__ says, or 1024; a kernel's first statement tells it.  The rewriting puts it
 * there (core/emu/emu_rewrite.c), in the files that a source includes too; a macro of that name
 * would hide it from the rewriting, which follows the preprocessor. */
struct bounds {
    long long most, blocks, cluster;
    constexpr bounds(long long m, long long b = 0, long long c = 0) : most(m), blocks(b), cluster(c)
    {
    }
};
QM_PLAIN inline void launch_bounds(const bounds &x, const char *name = __builtin_FUNCTION(), QM_AT)
{
    qm_emu_bounds(x.most, name, at);
}

template <class To, class From> QM_PLAIN inline To bits(const From &x)
{
    To to{};
    __builtin_memcpy(&to, &x, sizeof to < sizeof x ? sizeof to : sizeof x);
    return to;
}

/* The value x, through a register that the compiler does not see into: nothing before is contracted
 * with anything after. */
#if defined(__x86_64__)
#define QM_OPAQUE "+x"
#elif defined(__aarch64__)
#define QM_OPAQUE "+w"
#else
#define QM_OPAQUE "+m"
#endif
inline __attribute__((always_inline)) float opaque(float x)
{
    __asm__("" : QM_OPAQUE(x));
    return x;
}
inline __attribute__((always_inline)) double opaque(double x)
{
    __asm__("" : QM_OPAQUE(x));
    return x;
}
template <class T> inline T opaque(T x) { return x; }
#undef QM_OPAQUE

/* a * b, contracted with nothing, and never taken for a product that the kernel writes itself: the
 * compiler does not contract a product that has another use. */
template <class T> inline __attribute__((always_inline)) T product(T a, T b)
{
    return opaque(opaque(a) * opaque(b));
}
} // namespace qm_emu

/* ---- barriers and warps -------------------------------------------------------------------- */

namespace qm_emu
{
/* The rewriting counts a file's barriers, and gives each its number as a first argument. */
struct barrier {
    int number;
};
} // namespace qm_emu

inline void __syncthreads(QM_AT) { qm_emu_barrier(QM_JOIN_NONE, 0, "__syncthreads", at); }
inline int __syncthreads_count(int x, QM_AT)
{
    return qm_emu_barrier(QM_JOIN_COUNT, x, "__syncthreads_count", at);
}
inline int __syncthreads_and(int x, QM_AT)
{
    return qm_emu_barrier(QM_JOIN_AND, x, "__syncthreads_and", at);
}
inline int __syncthreads_or(int x, QM_AT)
{
    return qm_emu_barrier(QM_JOIN_OR, x, "__syncthreads_or", at);
}
inline void __syncthreads(qm_emu::barrier b, QM_AT)
{
    at.number = b.number;
    __syncthreads(at);
}
#define QM_COUNTED(name)                             \
    inline int name(qm_emu::barrier b, int x, QM_AT) \
    {                                                \
        at.number = b.number;                        \
        return name(x, at);                          \
    }
QM_COUNTED(__syncthreads_count)
QM_COUNTED(__syncthreads_and)
QM_COUNTED(__syncthreads_or)
#undef QM_COUNTED
inline void __syncwarp(unsigned int mask = 0xffffffffu, QM_AT)
{
    uint64_t value[32];
    qm_emu_warp(QM_SYNCWARP, mask, 0, -1, value, "__syncwarp", at);
}
inline void __threadfence() { qm_emu_fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { qm_emu_fence(); }

namespace qm_emu
{
inline int lane()
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}

template <class T>
QM_PLAIN inline T shuffle(unsigned int mask, T x, int from, const char *name, qm_emu_at at)
{
    static_assert(sizeof(T) <= 8, "shuffles take at most 8 bytes");
    uint64_t value[32];
    qm_emu_warp(QM_SHUFFLE, mask, bits<uint64_t>(x), from, value, name, at);
    return bits<T>(value[from]);
}

inline void width_is_valid(int width, const char *name, qm_emu_at at)
{
    if (width < 1 || width > 32 || (width & (width - 1)))
        qm_emu_fail(at, "%s with width %d: it must be a power of two up to 32", name, width);
}
} // namespace qm_emu

template <class T> inline T __shfl_sync(unsigned int mask, T x, int lane, int width = 32, QM_AT)
{
    qm_emu::width_is_valid(width, "__shfl_sync", at);
    int self = qm_emu::lane();
    return qm_emu::shuffle(mask, x, (self & ~(width - 1)) | (lane & (width - 1)), "__shfl_sync",
                           at);
}
template <class T>
inline T __shfl_up_sync(unsigned int mask, T x, unsigned int by, int width = 32, QM_AT)
{
    qm_emu::width_is_valid(width, "__shfl_up_sync", at);
    int self = qm_emu::lane(), from = self - (int)by;
    return qm_emu::shuffle(mask, x, from < (self & ~(width - 1)) ? self : from, "__shfl_up_sync",
                           at);
}
template <class T>
inline T __shfl_down_sync(unsigned int mask, T x, unsigned int by, int width = 32, QM_AT)
{
    qm_emu::width_is_valid(width, "__shfl_down_sync", at);
    int self = qm_emu::lane(), from = self + (int)by;
    return qm_emu::shuffle(mask, x, from > (self | (width - 1)) ? self : from, "__shfl_down_sync",
                           at);
}
template <class T> inline T __shfl_xor_sync(unsigned int mask, T x, int by, int width = 32, QM_AT)
{
    qm_emu::width_is_valid(width, "__shfl_xor_sync", at);
    int self = qm_emu::lane(), from = self ^ by;
    return qm_emu::shuffle(mask, x, from > (self | (width - 1)) ? self : from, "__shfl_xor_sync",
                           at);
}

namespace qm_emu
{
inline unsigned int ballot(unsigned int mask, int x, const char *name, unsigned int *who,
                           qm_emu_at at)
{
    uint64_t value[32];
    unsigned int set = 0;
    *who = qm_emu_warp(QM_VOTE, mask, x != 0, -1, value, name, at);
    for (int i = 0; i < 32; i++)
        set |= (*who >> i & 1) && value[i] ? 1u << i : 0;
    return set;
}

template <class T, class F>
inline T reduce(unsigned int mask, T x, const char *name, qm_emu_at at, F op)
{
    uint64_t value[32];
    unsigned int who = qm_emu_warp(QM_VOTE, mask, bits<uint64_t>(x), -1, value, name, at);
    int first = __builtin_ctz(who);
    T sum = bits<T>(value[first]);
    for (int i = first + 1; i < 32; i++)
        if (who >> i & 1)
            sum = op(sum, bits<T>(value[i]));
    return sum;
}
} // namespace qm_emu

inline unsigned int __ballot_sync(unsigned int mask, int x, QM_AT)
{
    unsigned int who;
    return qm_emu::ballot(mask, x, "__ballot_sync", &who, at);
}
inline int __any_sync(unsigned int mask, int x, QM_AT)
{
    unsigned int who;
    return qm_emu::ballot(mask, x, "__any_sync", &who, at) != 0;
}
inline int __all_sync(unsigned int mask, int x, QM_AT)
{
    unsigned int who, set = qm_emu::ballot(mask, x, "__all_sync", &who, at);
    return set == who;
}
inline unsigned int __activemask(QM_AT)
{
    uint64_t value[32];
    return qm_emu_warp(QM_ACTIVE, 0xffffffffu, 0, -1, value, "__activemask", at);
}
template <class T> inline unsigned int __match_any_sync(unsigned int mask, T x, QM_AT)
{
    uint64_t value[32], own = qm_emu::bits<uint64_t>(x);
    unsigned int same = 0,
                 who = qm_emu_warp(QM_MATCH, mask, own, -1, value, "__match_any_sync", at);
    for (int i = 0; i < 32; i++)
        same |= (who >> i & 1) && value[i] == own ? 1u << i : 0;
    return same;
}
#define QM_REDUCE(name, op)                                                          \
    template <class T> inline T name(unsigned int mask, T x, QM_AT)                  \
    {                                                                                \
        return qm_emu::reduce(mask, x, #name, at, [](T a, T b) -> T { return op; }); \
    }
QM_REDUCE(__reduce_add_sync, a + b)
QM_REDUCE(__reduce_min_sync, a < b ? a : b)
QM_REDUCE(__reduce_max_sync, a < b ? b : a)
QM_REDUCE(__reduce_and_sync, a &b)
QM_REDUCE(__reduce_or_sync, a | b)
QM_REDUCE(__reduce_xor_sync, a ^ b)
#undef QM_REDUCE

/* ---- atomics ------------------------------------------------------------------------------- */

namespace qm_emu
{
template <class T> struct same { /* keeps an argument out of deduction */
    typedef T type;
};
/* A sum of whole numbers may be a ticket. */
template <class T> constexpr enum qm_emu_atomic sum = QM_ATOMIC_JOIN;
template <> constexpr enum qm_emu_atomic sum<int> = QM_ATOMIC_COUNT;
template <> constexpr enum qm_emu_atomic sum<unsigned int> = QM_ATOMIC_COUNT;
template <> constexpr enum qm_emu_atomic sum<long> = QM_ATOMIC_COUNT;
template <> constexpr enum qm_emu_atomic sum<unsigned long> = QM_ATOMIC_COUNT;
template <> constexpr enum qm_emu_atomic sum<long long> = QM_ATOMIC_COUNT;
template <> constexpr enum qm_emu_atomic sum<unsigned long long> = QM_ATOMIC_COUNT;
} // namespace qm_emu

#define QM_ATOMIC(name, kind, op)                                                                  \
    template <class T> QM_PLAIN inline T name(T *address, typename qm_emu::same<T>::type x, QM_AT) \
    {                                                                                              \
        qm_emu_atomically(address, sizeof *address, kind, at);                                     \
        T old = *address;                                                                          \
        *address = (T)(op);                                                                        \
        return old;                                                                                \
    }                                                                                              \
    template <class T>                                                                             \
    QM_PLAIN inline T name##_block(T *address, typename qm_emu::same<T>::type x, QM_AT)            \
    {                                                                                              \
        return name(address, x, at);                                                               \
    }                                                                                              \
    template <class T>                                                                             \
    QM_PLAIN inline T name##_system(T *address, typename qm_emu::same<T>::type x, QM_AT)           \
    {                                                                                              \
        return name(address, x, at);                                                               \
    }
QM_ATOMIC(atomicAdd, qm_emu::sum<T>, old + qm_emu::opaque(x))
QM_ATOMIC(atomicSub, qm_emu::sum<T>, old - qm_emu::opaque(x))
QM_ATOMIC(atomicExch, QM_ATOMIC_SET, x)
QM_ATOMIC(atomicAnd, QM_ATOMIC_COUNT, old &x)
QM_ATOMIC(atomicOr, QM_ATOMIC_COUNT, old | x)
QM_ATOMIC(atomicXor, QM_ATOMIC_COUNT, old ^ x)
QM_ATOMIC(atomicInc, QM_ATOMIC_COUNT, old >= x ? 0 : old + 1)
QM_ATOMIC(atomicDec, QM_ATOMIC_COUNT, old == 0 || old > x ? x : old - 1)
#undef QM_ATOMIC

/* Not templates: kernels overload these functions for float, which CUDA does not have. */
#define QM_ATOMIC(T)                                                     \
    QM_PLAIN inline T atomicMax(T *address, T x, QM_AT)                  \
    {                                                                    \
        qm_emu_atomically(address, sizeof *address, QM_ATOMIC_JOIN, at); \
        T old = *address;                                                \
        *address = old < x ? x : old;                                    \
        return old;                                                      \
    }                                                                    \
    QM_PLAIN inline T atomicMin(T *address, T x, QM_AT)                  \
    {                                                                    \
        qm_emu_atomically(address, sizeof *address, QM_ATOMIC_JOIN, at); \
        T old = *address;                                                \
        *address = x < old ? x : old;                                    \
        return old;                                                      \
    }
QM_ATOMIC(int)
QM_ATOMIC(unsigned int)
QM_ATOMIC(long long)
QM_ATOMIC(unsigned long long)
#undef QM_ATOMIC

/* What a volatile read is on a GPU, beside atomic operations on the same number. */
template <class T> QM_PLAIN inline T qm_emu_glance(const T *address, QM_AT)
{
    qm_emu_atomically(address, sizeof *address, QM_ATOMIC_READ, at);
    return *address;
}

template <class T>
QM_PLAIN inline T atomicCAS(T *address, typename qm_emu::same<T>::type was,
                            typename qm_emu::same<T>::type x, QM_AT)
{
    qm_emu_atomically(address, sizeof *address, QM_ATOMIC_SWAP, at);
    T old = *address;
    if (old == was)
        *address = x;
    return old;
}

/* The host's entry is compiled without contraction in either form (core/compile/kernel_build.h). */
#if !defined(__clang__)
struct qm_kernel_args;
extern "C" int qm_kernel_step(const struct qm_kernel_args *a)
    __attribute__((optimize("fp-contract=off")));
#endif

#include "qm_emu_api.hpp"
#include "qm_emu_math.hpp"

/* Before the file, whose macros they must not meet. */
#include "qm_emu_cub.hpp"
#include "qm_emu_half.hpp"

#endif
