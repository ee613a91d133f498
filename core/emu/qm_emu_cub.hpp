/* qm_emu_cub.hpp - CUB's collectives of a block and a warp that optimizers' kernels use.
 *
 * It is read before the file, whose macros it must not meet; CUB's headers only name the namespace.
 *
 * They move data through their TempStorage and wait as CUB's own do, so that reuse of the storage
 * without a barrier is found; sums are taken in CUB's order.  A result that CUB leaves undefined (a
 * reduction's, in all threads but the first) has all bits set, which is a NaN. */
#ifndef QM_EMU_CUB_HPP
#define QM_EMU_CUB_HPP

#pragma GCC system_header /* the rewriter leaves it alone */

/* The names of CUB's headers, which make them those of the file. */
namespace qm_emu_cub
{
namespace cub
{
struct Max {
    template <class T> T operator()(const T &a, const T &b) const { return a < b ? b : a; }
};
struct Min {
    template <class T> T operator()(const T &a, const T &b) const { return b < a ? b : a; }
};
struct Sum {
    template <class T> T operator()(const T &a, const T &b) const { return a + b; }
};

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE
};
enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS
};

namespace qm
{
template <class T> QM_PLAIN inline T undefined()
{
    T x;
    __builtin_memset((void *)&x, 0xff, sizeof x);
    return x;
}

inline int thread()
{
    return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

/* Lane 0 gets the sum of the first `valid` lanes: lane i adds lane i + 1, then i + 2, i + 4, ... */
template <int WIDTH, class T, class Op> inline T warp_reduce(T x, Op op, int valid, qm_emu_at at)
{
    int lane = qm_emu::lane() % WIDTH;
    unsigned int mask =
        WIDTH == 32 ? 0xffffffffu : ((1u << (WIDTH % 32)) - 1u) << (qm_emu::lane() / WIDTH * WIDTH);
    for (int by = 1; by < WIDTH; by *= 2) {
        T other = __shfl_down_sync(mask, x, (unsigned int)by, WIDTH, at);
        if (lane + by < valid)
            x = op(x, other);
    }
    return lane == 0 ? x : undefined<T>();
}
} // namespace qm

template <class T, int WIDTH = 32> class WarpReduce
{
  public:
    struct TempStorage {
        T unused;
    };
    explicit WarpReduce(TempStorage &) {}
    template <class Op> T Reduce(T x, Op op, QM_AT)
    {
        return qm::warp_reduce<WIDTH>(x, op, WIDTH, at);
    }
    template <class Op> T Reduce(T x, Op op, int valid, QM_AT)
    {
        return qm::warp_reduce<WIDTH>(x, op, valid, at);
    }
    T Sum(T x, QM_AT) { return Reduce(x, cub::Sum(), at); }
    T Max(T x, QM_AT) { return Reduce(x, cub::Max(), at); }
};

template <class T, int THREADS, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1,
          int Z = 1>
class BlockReduce
{
    enum { COUNT = THREADS * Y * Z, WARPS = (COUNT + 31) / 32 };

  public:
    struct TempStorage {
        T of_warp[WARPS];
    };
    explicit BlockReduce(TempStorage &t) : temp(t) {}
    template <class Op> T Reduce(T x, Op op, QM_AT) { return Reduce(x, op, (int)COUNT, at); }
    template <class Op> T Reduce(T x, Op op, int valid, QM_AT)
    {
        int i = qm::thread(), warp = i / 32, in_warp = valid - 32 * warp;
        int lanes = COUNT - 32 * warp < 32 ? COUNT - 32 * warp : 32;
        T sum = qm::warp_reduce<32>(x, op, in_warp < lanes ? in_warp : lanes, at);
        if (i % 32 == 0)
            temp.of_warp[warp] = sum;
        __syncthreads(at);
        if (i != 0)
            return qm::undefined<T>();
        for (int w = 1; w < WARPS && 32 * w < valid; w++)
            sum = op(sum, temp.of_warp[w]);
        return sum;
    }
    template <int ITEMS, class Op> T Reduce(T (&x)[ITEMS], Op op, QM_AT)
    {
        T own = x[0];
        for (int k = 1; k < ITEMS; k++)
            own = op(own, x[k]);
        return Reduce(own, op, at);
    }
    T Sum(T x, QM_AT) { return Reduce(x, cub::Sum(), at); }
    T Sum(T x, int valid, QM_AT) { return Reduce(x, cub::Sum(), valid, at); }
    template <int ITEMS> T Sum(T (&x)[ITEMS], QM_AT) { return Reduce(x, cub::Sum(), at); }

  private:
    TempStorage &temp;
};

/* Thread i gets items [i * ITEMS, (i + 1) * ITEMS); items from `valid` on are not loaded. */
template <class T, int THREADS, int ITEMS, BlockLoadAlgorithm ALGORITHM = BLOCK_LOAD_DIRECT>
class BlockLoad
{
  public:
    struct TempStorage {
        T item[THREADS * ITEMS];
    };
    explicit BlockLoad(TempStorage &t) : temp(t) {}
    template <class P> void Load(P from, T (&x)[ITEMS], QM_AT)
    {
        load(from, x, THREADS * ITEMS, qm::undefined<T>(), at);
    }
    template <class P> void Load(P from, T (&x)[ITEMS], int valid, QM_AT)
    {
        load(from, x, valid, qm::undefined<T>(), at);
    }
    template <class P, class D> void Load(P from, T (&x)[ITEMS], int valid, D otherwise, QM_AT)
    {
        load(from, x, valid, (T)otherwise, at);
    }

  private:
    TempStorage &temp;
    template <class P> void load(P from, T (&x)[ITEMS], int valid, T otherwise, qm_emu_at at)
    {
        int i = qm::thread(), base = i / 32 * 32 * ITEMS, lane = i % 32;
        for (int k = 0; k < ITEMS; k++) {
            int own = ALGORITHM == BLOCK_LOAD_STRIPED          ? i + THREADS * k
                      : ALGORITHM == BLOCK_LOAD_WARP_TRANSPOSE ? base + lane + 32 * k
                      : ALGORITHM == BLOCK_LOAD_TRANSPOSE      ? i + THREADS * k
                                                               : i * ITEMS + k;
            x[k] = own < valid ? (T)from[own] : otherwise;
            if (ALGORITHM == BLOCK_LOAD_TRANSPOSE || ALGORITHM == BLOCK_LOAD_WARP_TRANSPOSE)
                temp.item[own] = x[k];
        }
        if (ALGORITHM == BLOCK_LOAD_TRANSPOSE)
            __syncthreads(at);
        if (ALGORITHM == BLOCK_LOAD_WARP_TRANSPOSE)
            __syncwarp(0xffffffffu, at);
        for (int k = 0; k < ITEMS; k++)
            if (ALGORITHM == BLOCK_LOAD_TRANSPOSE || ALGORITHM == BLOCK_LOAD_WARP_TRANSPOSE)
                x[k] = temp.item[i * ITEMS + k];
    }
};

template <class T, int THREADS, int ITEMS, BlockStoreAlgorithm ALGORITHM = BLOCK_STORE_DIRECT>
class BlockStore
{
  public:
    struct TempStorage {
        T item[THREADS * ITEMS];
    };
    explicit BlockStore(TempStorage &t) : temp(t) {}
    template <class P> void Store(P to, T (&x)[ITEMS], QM_AT) { Store(to, x, THREADS * ITEMS, at); }
    template <class P> void Store(P to, T (&x)[ITEMS], int valid, QM_AT)
    {
        const bool moves =
            ALGORITHM == BLOCK_STORE_TRANSPOSE || ALGORITHM == BLOCK_STORE_WARP_TRANSPOSE;
        int i = qm::thread(), base = i / 32 * 32 * ITEMS, lane = i % 32;
        for (int k = 0; k < ITEMS && moves; k++)
            temp.item[i * ITEMS + k] = x[k];
        if (ALGORITHM == BLOCK_STORE_TRANSPOSE)
            __syncthreads(at);
        if (ALGORITHM == BLOCK_STORE_WARP_TRANSPOSE)
            __syncwarp(0xffffffffu, at);
        for (int k = 0; k < ITEMS; k++) {
            int own = ALGORITHM == BLOCK_STORE_STRIPED          ? i + THREADS * k
                      : ALGORITHM == BLOCK_STORE_WARP_TRANSPOSE ? base + lane + 32 * k
                      : ALGORITHM == BLOCK_STORE_TRANSPOSE      ? i + THREADS * k
                                                                : i * ITEMS + k;
            if (own < valid)
                to[own] = moves ? temp.item[own] : x[k];
        }
    }

  private:
    TempStorage &temp;
};
} // namespace cub

namespace cuda
{
template <class T = void> struct maximum : cub::Max {
};
template <class T = void> struct minimum : cub::Min {
};
namespace std
{
template <class T = void> struct plus : cub::Sum {
};
} // namespace std
} // namespace cuda
} // namespace qm_emu_cub

#endif
