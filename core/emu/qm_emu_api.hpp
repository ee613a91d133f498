/* qm_emu_api.hpp - The part of CUDA's runtime library that the launching code of a kernel uses.
 *
 * Work is done at once.  The order that streams and events define is recorded, so that a kernel is
 * found that uses another kernel's result without being ordered after it. */
#ifndef QM_EMU_API_HPP
#define QM_EMU_API_HPP

#pragma GCC system_header /* the rewriter leaves it alone */

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999
};
typedef cudaError_t cudaError;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};

typedef struct qm_emu_stream *cudaStream_t;
typedef struct qm_emu_event *cudaEvent_t;
#define cudaStreamDefault      0u
#define cudaStreamNonBlocking  1u
#define cudaStreamLegacy       ((cudaStream_t)0)
#define cudaStreamPerThread    ((cudaStream_t)0)
#define cudaEventDefault       0u
#define cudaEventBlockingSync  1u
#define cudaEventDisableTiming 2u
#define cudaHostAllocDefault   0u
#define cudaHostAllocPortable  1u
#define cudaHostAllocMapped    2u
#define cudaMemAttachGlobal    1u

extern "C" {
void *qm_emu_malloc(size_t bytes, enum qm_emu_memory kind);
void qm_emu_free(void *p, int is_host, qm_emu_at at);
cudaError_t qm_emu_copy(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream,
                        int waits, qm_emu_at at);
cudaError_t qm_emu_fill(void *to, int byte, size_t bytes, cudaStream_t stream, int waits,
                        qm_emu_at at);
void qm_emu_ask(const void *symbol); /* the host gets the address of a variable */
cudaStream_t qm_emu_stream_open(unsigned int flags);
void qm_emu_stream_close(cudaStream_t stream, qm_emu_at at);
void qm_emu_wait(cudaStream_t stream, int for_all, qm_emu_at at); /* the host waits */
cudaEvent_t qm_emu_event_open(void);
void qm_emu_event_close(cudaEvent_t event);
double qm_emu_event_seconds(cudaEvent_t event); /* when it was recorded */
void qm_emu_event_record(cudaEvent_t event, cudaStream_t stream, qm_emu_at at);
void qm_emu_event_wait(cudaEvent_t event, cudaStream_t stream, int is_host, qm_emu_at at);

/* What a call returns: `error`, which is then the last one; or that of a kernel which failed, where
 * this call waits or an earlier one has. */
cudaError_t qm_emu_result(cudaError_t error, int waits);
cudaError_t qm_emu_last_error(int reset);
void qm_emu_allow_shared(int bytes);
int qm_emu_is_device(const void *p); /* memory that kernels may touch */

/* The threads that __launch_bounds__ of a kernel allows: call(kernel) enters it, and comes no
 * further than its first statement. */
int qm_emu_threads_most(void (*call)(const void *kernel), const void *kernel);
}

namespace qm_emu
{
inline cudaError_t result(cudaError_t e = cudaSuccess) { return qm_emu_result(e, 0); }
inline cudaError_t waited(cudaError_t e = cudaSuccess) { return qm_emu_result(e, 1); }
} // namespace qm_emu

inline cudaError_t cudaGetLastError() { return qm_emu_last_error(1); }
inline cudaError_t cudaPeekAtLastError() { return qm_emu_last_error(0); }
#define QM_ERRORS(X)                                                   \
    X(cudaSuccess, "no error")                                         \
    X(cudaErrorInvalidValue, "invalid argument")                       \
    X(cudaErrorMemoryAllocation, "out of memory")                      \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument") \
    X(cudaErrorInvalidDevicePointer, "invalid device pointer")         \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction")       \
    X(cudaErrorInvalidDeviceFunction, "invalid device function")       \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")         \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                \
    X(cudaErrorNotReady, "device not ready")                           \
    X(cudaErrorIllegalAddress, "an illegal memory access")             \
    X(cudaErrorLaunchFailure, "unspecified launch failure")            \
    X(cudaErrorNotSupported, "operation not supported")
inline const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
#define X(name, text) \
    case name: return text;
        QM_ERRORS(X)
#undef X
    default: return "unknown error";
    }
}
inline const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
#define X(name, text) \
    case name: return #name;
        QM_ERRORS(X)
#undef X
    default: return "cudaErrorUnknown";
    }
}
#undef QM_ERRORS

/* ---- memory -------------------------------------------------------------------------------- */

namespace qm_emu
{
template <class T> inline cudaError_t allocate(T **p, size_t bytes, enum qm_emu_memory kind)
{
    *p = static_cast<T *>(qm_emu_malloc(bytes, kind));
    return result(*p || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}
} // namespace qm_emu

template <class T> inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return qm_emu::allocate(p, bytes, QM_MEMORY_DEVICE);
}
template <class T> inline cudaError_t cudaMallocAsync(T **p, size_t bytes, cudaStream_t)
{
    return qm_emu::allocate(p, bytes, QM_MEMORY_DEVICE);
}
template <class T> inline cudaError_t cudaMallocManaged(T **p, size_t bytes, unsigned int = 1)
{
    return qm_emu::allocate(p, bytes, QM_MEMORY_MANAGED);
}
template <class T> inline cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned int = 0)
{
    return qm_emu::allocate(p, bytes, QM_MEMORY_HOST);
}
template <class T> inline cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned int)
{
    return qm_emu::allocate(p, bytes, QM_MEMORY_HOST);
}
template <class T> inline cudaError_t cudaHostGetDevicePointer(T **p, void *host, unsigned int)
{
    *p = static_cast<T *>(host);
    return qm_emu::result(qm_emu_is_device(host) ? cudaSuccess : cudaErrorInvalidValue);
}
inline cudaError_t cudaFree(void *p, QM_AT)
{
    qm_emu_wait(0, 1, at);
    qm_emu_free(p, 0, at);
    return qm_emu::waited();
}
inline cudaError_t cudaFreeHost(void *p, QM_AT)
{
    qm_emu_wait(0, 1, at);
    qm_emu_free(p, 1, at);
    return qm_emu::waited();
}
inline cudaError_t cudaFreeAsync(void *p, cudaStream_t, QM_AT) { return cudaFree(p, at); }
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, QM_AT)
{
    return qm_emu::waited(qm_emu_copy(to, from, bytes, kind, 0, 1, at));
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream = 0, QM_AT)
{
    return qm_emu::result(qm_emu_copy(to, from, bytes, kind, stream, 0, at));
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T &symbol, const void *from, size_t bytes, size_t offset,
                                           cudaMemcpyKind kind, cudaStream_t stream = 0, QM_AT)
{
    if (offset > sizeof symbol || bytes > sizeof symbol - offset)
        return qm_emu::result(cudaErrorInvalidValue);
    return qm_emu::result(qm_emu_copy((char *)(void *)&symbol + offset, from, bytes,
                                      kind | QM_COPY_TO_SYMBOL, stream, 0, at));
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void *to, const T &symbol, size_t bytes, size_t offset,
                                             cudaMemcpyKind kind, cudaStream_t stream = 0, QM_AT)
{
    if (offset > sizeof symbol || bytes > sizeof symbol - offset)
        return qm_emu::result(cudaErrorInvalidValue);
    return qm_emu::result(qm_emu_copy(to, (const char *)(const void *)&symbol + offset, bytes,
                                      kind | QM_COPY_FROM_SYMBOL, stream, 0, at));
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T &symbol, const void *from, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice, QM_AT)
{
    cudaError_t e = cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, 0, at);
    qm_emu_wait(0, 0, at);
    return qm_emu::waited(e);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void *to, const T &symbol, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost, QM_AT)
{
    cudaError_t e = cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, 0, at);
    qm_emu_wait(0, 0, at);
    return qm_emu::waited(e);
}
template <class T> inline cudaError_t cudaGetSymbolAddress(void **p, T &symbol)
{
    *p = (void *)&symbol;
    qm_emu_ask(*p);
    return qm_emu::result();
}
template <class T> inline cudaError_t cudaGetSymbolSize(size_t *bytes, const T &symbol)
{
    *bytes = sizeof symbol;
    return qm_emu::result();
}
inline cudaError_t cudaMemset(void *to, int byte, size_t bytes, QM_AT)
{
    return qm_emu::result(qm_emu_fill(to, byte, bytes, 0, 1, at));
}
inline cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream = 0, QM_AT)
{
    return qm_emu::result(qm_emu_fill(to, byte, bytes, stream, 0, at));
}
inline cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    *left = *total = (size_t)1 << 32;
    return qm_emu::result();
}

/* ---- streams and events --------------------------------------------------------------------- */

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned int flags)
{
    *s = qm_emu_stream_open(flags);
    return qm_emu::result(*s ? cudaSuccess : cudaErrorMemoryAllocation);
}
inline cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, 0); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned int flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t s, QM_AT)
{
    qm_emu_stream_close(s, at);
    return qm_emu::result();
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t s, QM_AT)
{
    qm_emu_wait(s, 0, at);
    return qm_emu::waited();
}
inline cudaError_t cudaDeviceSynchronize(QM_AT)
{
    qm_emu_wait(0, 1, at);
    return qm_emu::waited();
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned int)
{
    *e = qm_emu_event_open();
    return qm_emu::result(*e ? cudaSuccess : cudaErrorMemoryAllocation);
}
inline cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
inline cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    qm_emu_event_close(e);
    return qm_emu::result();
}
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = 0, QM_AT)
{
    qm_emu_event_record(e, s, at);
    return qm_emu::result();
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int = 0, QM_AT)
{
    qm_emu_event_wait(e, s, 0, at);
    return qm_emu::result();
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t e, QM_AT)
{
    qm_emu_event_wait(e, 0, 1, at);
    return qm_emu::waited();
}

/* Work is done at once, so that no stream or event is ever waited for. */
inline cudaError_t cudaStreamQuery(cudaStream_t s, QM_AT) { return cudaStreamSynchronize(s, at); }
inline cudaError_t cudaEventQuery(cudaEvent_t e, QM_AT) { return cudaEventSynchronize(e, at); }
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms =
        from && to ? (float)(1e3 * (qm_emu_event_seconds(to) - qm_emu_event_seconds(from))) : 0.0f;
    return qm_emu::result(from && to ? cudaSuccess : cudaErrorInvalidValue);
}

/* ---- the device: few multiprocessors, so that grids sized by their number stay small -------- */

struct cudaDeviceProp {
    char name[256] = "qualm emu";
    size_t totalGlobalMem = (size_t)1 << 32, sharedMemPerBlock = 49152, totalConstMem = 65536;
    size_t sharedMemPerMultiprocessor = 233472, sharedMemPerBlockOptin = 232448;
    size_t reservedSharedMemPerBlock = 1024;
    int regsPerBlock = 65536, regsPerMultiprocessor = 65536, warpSize = 32;
    int maxThreadsPerBlock = 1024;
    int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {INT_MAX, 65535, 65535};
    int major = 9, minor = 0, multiProcessorCount = 4, maxThreadsPerMultiProcessor = 2048;
    int maxBlocksPerMultiProcessor = 32, l2CacheSize = 1 << 25, memoryBusWidth = 512;
    int clockRate = 1000000, memoryClockRate = 1000000; /* kHz */
    int concurrentKernels = 1, unifiedAddressing = 1, managedMemory = 1, canMapHostMemory = 1;
    int cooperativeLaunch = 0, asyncEngineCount = 1, integrated = 0;
};
#define QM_ATTRIBUTES(X)                                                             \
    X(cudaDevAttrMaxThreadsPerBlock, 1, p.maxThreadsPerBlock)                        \
    X(cudaDevAttrMaxBlockDimX, 2, p.maxThreadsDim[0])                                \
    X(cudaDevAttrMaxBlockDimY, 3, p.maxThreadsDim[1])                                \
    X(cudaDevAttrMaxBlockDimZ, 4, p.maxThreadsDim[2])                                \
    X(cudaDevAttrMaxGridDimX, 5, p.maxGridSize[0])                                   \
    X(cudaDevAttrMaxGridDimY, 6, p.maxGridSize[1])                                   \
    X(cudaDevAttrMaxGridDimZ, 7, p.maxGridSize[2])                                   \
    X(cudaDevAttrMaxSharedMemoryPerBlock, 8, p.sharedMemPerBlock)                    \
    X(cudaDevAttrTotalConstantMemory, 9, p.totalConstMem)                            \
    X(cudaDevAttrWarpSize, 10, p.warpSize)                                           \
    X(cudaDevAttrMaxRegistersPerBlock, 12, p.regsPerBlock)                           \
    X(cudaDevAttrClockRate, 13, p.clockRate)                                         \
    X(cudaDevAttrMultiProcessorCount, 16, p.multiProcessorCount)                     \
    X(cudaDevAttrIntegrated, 18, p.integrated)                                       \
    X(cudaDevAttrCanMapHostMemory, 19, p.canMapHostMemory)                           \
    X(cudaDevAttrConcurrentKernels, 31, p.concurrentKernels)                         \
    X(cudaDevAttrMemoryClockRate, 36, p.memoryClockRate)                             \
    X(cudaDevAttrGlobalMemoryBusWidth, 37, p.memoryBusWidth)                         \
    X(cudaDevAttrL2CacheSize, 38, p.l2CacheSize)                                     \
    X(cudaDevAttrMaxThreadsPerMultiProcessor, 39, p.maxThreadsPerMultiProcessor)     \
    X(cudaDevAttrAsyncEngineCount, 40, p.asyncEngineCount)                           \
    X(cudaDevAttrUnifiedAddressing, 41, p.unifiedAddressing)                         \
    X(cudaDevAttrComputeCapabilityMajor, 75, p.major)                                \
    X(cudaDevAttrComputeCapabilityMinor, 76, p.minor)                                \
    X(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81, p.sharedMemPerMultiprocessor) \
    X(cudaDevAttrMaxRegistersPerMultiprocessor, 82, p.regsPerMultiprocessor)         \
    X(cudaDevAttrManagedMemory, 83, p.managedMemory)                                 \
    X(cudaDevAttrCooperativeLaunch, 95, p.cooperativeLaunch)                         \
    X(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97, p.sharedMemPerBlockOptin)         \
    X(cudaDevAttrMaxBlocksPerMultiprocessor, 106, p.maxBlocksPerMultiProcessor)      \
    X(cudaDevAttrReservedSharedMemoryPerBlock, 111, p.reservedSharedMemPerBlock)
enum cudaDeviceAttr {
#define X(name, number, value) name = number,
    QM_ATTRIBUTES(X)
#undef X
};
inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return qm_emu::result();
}
inline cudaError_t cudaSetDevice(int device)
{
    return qm_emu::result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return qm_emu::result();
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    *p = cudaDeviceProp();
    return cudaSetDevice(device);
}
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device)
{
    const cudaDeviceProp p;
    if (device != 0)
        return qm_emu::result(cudaErrorInvalidDevice);
    switch (which) {
#define X(name, number, x) \
    case name: *value = (int)(x); return qm_emu::result();
        QM_ATTRIBUTES(X)
#undef X
    default: return qm_emu::result(cudaErrorInvalidValue);
    }
}
#undef QM_ATTRIBUTES
inline cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return qm_emu::result();
}
inline cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return qm_emu::result();
}
inline cudaError_t cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }

/* ---- kernels as values: a launch by a function, attributes, occupancy ------------------------ */

/* The rewriter takes casts to void * away from the first argument of these functions
 * (core/emu/emu_rewrite.c), because a kernel is called by its type. */

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaFuncCache {
    cudaFuncCachePreferNone,
    cudaFuncCachePreferShared,
    cudaFuncCachePreferL1,
    cudaFuncCachePreferEqual
};
enum cudaSharedCarveout {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxL1 = 0,
    cudaSharedmemCarveoutMaxShared = 100
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
    int maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
enum cudaLaunchAttributeID { cudaLaunchAttributeIgnore, cudaLaunchAttributeClusterDimension = 4 };
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned int numAttrs;
};

namespace qm_emu
{
template <class T> struct plain {
    typedef T type;
};
template <class T> struct plain<const T> {
    typedef T type;
};
template <size_t... I> struct numbers {
};
template <size_t N, size_t... I> struct count : count<N - 1, N - 1, I...> {
};
template <size_t... I> struct count<0, I...> {
    typedef numbers<I...> type;
};
template <class... A, size_t... I>
QM_PLAIN inline void call(void (*kernel)(A...), void **args, numbers<I...>)
{
    (void)args;
    kernel(*static_cast<typename plain<A>::type *>(args[I])...);
}

/* Whether the addresses of arguments can be those of variables of the kernel's types. */
template <class... A, size_t... I>
QM_PLAIN inline int are_aligned(void **args, numbers<I...>, qm_emu_at at)
{
    const size_t size[] = {sizeof(A)..., 0}, align[] = {alignof(A)..., 1};
    for (size_t i = 0; i < sizeof...(A); i++)
        if ((uintptr_t)args[i] % align[i] != 0) {
            qm_emu_fail(at,
                        "argument %zu of cudaLaunchKernel points to a variable of another type: "
                        "the kernel takes %zu bytes, aligned to %zu, and the address is %zu past a "
                        "multiple of that",
                        i, size[i], align[i], (size_t)((uintptr_t)args[i] % align[i]));
            return 0;
        }
    return 1;
}

/* Enters a kernel with arguments of zeros, of which it comes to use none. */
template <class... A> QM_PLAIN inline void enter(const void *kernel)
{
    static unsigned char zeros[4096 + 256];
    void *args[sizeof...(A) + 1];
    for (size_t i = 0; i < sizeof...(A); i++)
        args[i] = (void *)(((uintptr_t)zeros + 255) / 256 * 256);
    call(*static_cast<void (*const *)(A...)>(kernel), args, typename count<sizeof...(A)>::type());
}
template <class... A> inline int threads_most(void (*kernel)(A...))
{
    return qm_emu_threads_most(enter<A...>, &kernel);
}
inline int threads_most(const void *) { return cudaDeviceProp().maxThreadsPerBlock; }
} // namespace qm_emu

template <class... A>
inline cudaError_t cudaLaunchKernel(void (*kernel)(A...), dim3 grid, dim3 block, void **args,
                                    size_t shared = 0, cudaStream_t stream = 0, QM_AT)
{
    typedef typename qm_emu::count<sizeof...(A)>::type numbers;
    if (!qm_emu::are_aligned<A...>(args, numbers(), at))
        return qm_emu::result(cudaErrorInvalidValue);
    return qm_emu::result((cudaError_t)qm_emu::launched(
        qm_emu::config(grid, block, shared, stream), "a kernel of cudaLaunchKernel",
        [=]() QM_PLAIN { qm_emu::call(kernel, args, numbers()); }, at));
}
inline cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t = 0, cudaStream_t = 0,
                                    QM_AT)
{
    qm_emu_fail(at, "cudaLaunchKernel gets a pointer to void that was made elsewhere: the emulator "
                    "needs the kernel itself there, as in cudaLaunchKernel((const void *)k, ...)");
    return qm_emu::result(cudaErrorInvalidDeviceFunction);
}
template <class... A, class... B>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(A...),
                                      B &&...given)
{
    const qm_emu_at at = qm_emu_at::here();
    for (unsigned int i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id != cudaLaunchAttributeIgnore)
            return qm_emu::result(cudaErrorNotSupported);
    return qm_emu::result((cudaError_t)qm_emu::launched(
        qm_emu::config(c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream),
        "a kernel of cudaLaunchKernelEx", [&]() QM_PLAIN { kernel(given...); }, at));
}
template <class F> inline cudaError_t cudaFuncSetAttribute(F *, cudaFuncAttribute which, int value)
{
    if (which == cudaFuncAttributePreferredSharedMemoryCarveout)
        return qm_emu::result(value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue);
    if (value < 0 || (size_t)value > cudaDeviceProp().sharedMemPerBlockOptin)
        return qm_emu::result(cudaErrorInvalidValue);
    qm_emu_allow_shared(value);
    return qm_emu::result();
}
template <class F> inline cudaError_t cudaFuncSetCacheConfig(F *, cudaFuncCache)
{
    return qm_emu::result();
}
/* Shared memory, registers and local memory are not known here: 0, 32 and 0. */
template <class F> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, F *kernel)
{
    *out = {};
    out->maxThreadsPerBlock = qm_emu::threads_most(kernel);
    out->numRegs = 32;
    out->ptxVersion = out->binaryVersion = 90;
    out->maxDynamicSharedSizeBytes = 49152;
    out->preferredShmemCarveout = -1;
    return qm_emu::result();
}
/* The blocks that a multiprocessor holds by threads and dynamic shared memory. */
template <class F>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, F *kernel,
                                                                 int threads, size_t shared)
{
    const cudaDeviceProp p;
    if (threads <= 0)
        return qm_emu::result(cudaErrorInvalidValue);
    int by_threads = p.maxThreadsPerMultiProcessor / ((threads + 31) / 32 * 32);
    int by_shared = (int)(p.sharedMemPerMultiprocessor / (shared + p.reservedSharedMemPerBlock));
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    *blocks = *blocks < p.maxBlocksPerMultiProcessor ? *blocks : p.maxBlocksPerMultiProcessor;
    if (threads > qm_emu::threads_most(kernel) || shared > p.sharedMemPerBlockOptin)
        *blocks = 0;
    return qm_emu::result();
}
template <class F>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *blocks, int *threads, F *kernel,
                                                      size_t shared = 0, int most = 0)
{
    int each = 0, allowed = qm_emu::threads_most(kernel);
    *threads = most > 0 && most < allowed ? most : allowed;
    cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, *threads, shared);
    *blocks = each * cudaDeviceProp().multiProcessorCount;
    return e;
}

#endif
