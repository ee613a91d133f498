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
    cudaErrorLaunchFailure = 719
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
#define cudaEventDefault       0u
#define cudaEventDisableTiming 2u

extern "C" {
void *qm_emu_malloc(size_t bytes);
void qm_emu_free(void *p, qm_emu_at at);
void qm_emu_copy(void *to, const void *from, size_t bytes, cudaStream_t stream, int waits,
                 qm_emu_at at);
void qm_emu_fill(void *to, int byte, size_t bytes, cudaStream_t stream, qm_emu_at at);
cudaStream_t qm_emu_stream_open(unsigned int flags);
void qm_emu_stream_close(cudaStream_t stream);
void qm_emu_wait(cudaStream_t stream, int for_all); /* the host waits */
cudaEvent_t qm_emu_event_open(void);
void qm_emu_event_close(cudaEvent_t event);
void qm_emu_event_record(cudaEvent_t event, cudaStream_t stream);
void qm_emu_event_wait(cudaEvent_t event, cudaStream_t stream, int is_host);
cudaError_t qm_emu_last_error(int reset);
void qm_emu_allow_shared(int bytes);
}

inline cudaError_t cudaGetLastError() { return qm_emu_last_error(1); }
inline cudaError_t cudaPeekAtLastError() { return qm_emu_last_error(0); }
inline const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess                     ? "no error"
           : e == cudaErrorInvalidValue         ? "invalid argument"
           : e == cudaErrorMemoryAllocation     ? "out of memory"
           : e == cudaErrorInvalidConfiguration ? "invalid configuration argument"
                                                : "unspecified launch failure";
}
inline const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaSuccess                     ? "cudaSuccess"
           : e == cudaErrorInvalidValue         ? "cudaErrorInvalidValue"
           : e == cudaErrorMemoryAllocation     ? "cudaErrorMemoryAllocation"
           : e == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
                                                : "cudaErrorLaunchFailure";
}

/* ---- memory -------------------------------------------------------------------------------- */

template <class T> inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    *p = static_cast<T *>(qm_emu_malloc(bytes));
    return *p || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T> inline cudaError_t cudaMallocManaged(T **p, size_t bytes, unsigned int = 1)
{
    return cudaMalloc(p, bytes);
}
template <class T> inline cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned int = 0)
{
    return cudaMalloc(p, bytes);
}
template <class T> inline cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned int)
{
    return cudaMalloc(p, bytes);
}
template <class T> inline cudaError_t cudaMallocAsync(T **p, size_t bytes, cudaStream_t)
{
    return cudaMalloc(p, bytes);
}
inline cudaError_t cudaFree(void *p, QM_AT)
{
    qm_emu_wait(0, 1);
    qm_emu_free(p, at);
    return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void *p, QM_AT) { return cudaFree(p, at); }
inline cudaError_t cudaFreeAsync(void *p, cudaStream_t, QM_AT) { return cudaFree(p, at); }
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind, QM_AT)
{
    qm_emu_copy(to, from, bytes, 0, 1, at);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream = 0, QM_AT)
{
    qm_emu_copy(to, from, bytes, stream, 0, at);
    return cudaSuccess;
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T &symbol, const void *from, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind = cudaMemcpyHostToDevice, QM_AT)
{
    if (offset > sizeof symbol || bytes > sizeof symbol - offset)
        return cudaErrorInvalidValue;
    qm_emu_copy((char *)(void *)&symbol + offset, from, bytes, 0, 1, at);
    return cudaSuccess;
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void *to, const T &symbol, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind = cudaMemcpyDeviceToHost, QM_AT)
{
    if (offset > sizeof symbol || bytes > sizeof symbol - offset)
        return cudaErrorInvalidValue;
    qm_emu_copy(to, (const char *)(const void *)&symbol + offset, bytes, 0, 1, at);
    return cudaSuccess;
}
template <class T> inline cudaError_t cudaGetSymbolAddress(void **p, T &symbol)
{
    *p = (void *)&symbol;
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void *to, int byte, size_t bytes, QM_AT)
{
    qm_emu_fill(to, byte, bytes, 0, at);
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream = 0, QM_AT)
{
    qm_emu_fill(to, byte, bytes, stream, at);
    return cudaSuccess;
}

/* ---- streams and events --------------------------------------------------------------------- */

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned int flags)
{
    *s = qm_emu_stream_open(flags);
    return *s ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, 0); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned int flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    qm_emu_stream_close(s);
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    qm_emu_wait(s, 0);
    return qm_emu_last_error(0);
}
inline cudaError_t cudaDeviceSynchronize()
{
    qm_emu_wait(0, 1);
    return qm_emu_last_error(0);
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned int)
{
    *e = qm_emu_event_open();
    return *e ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
inline cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    qm_emu_event_close(e);
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = 0)
{
    qm_emu_event_record(e, s);
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int = 0)
{
    qm_emu_event_wait(e, s, 0);
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    qm_emu_event_wait(e, 0, 1);
    return cudaSuccess;
}

/* ---- the device: few multiprocessors, so that grids sized by their number stay small -------- */

struct cudaDeviceProp {
    char name[256] = "qualm emu";
    size_t totalGlobalMem = (size_t)1 << 32, sharedMemPerBlock = 49152;
    size_t sharedMemPerMultiprocessor = 233472, sharedMemPerBlockOptin = 232448;
    int regsPerBlock = 65536, warpSize = 32, maxThreadsPerBlock = 1024;
    int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {INT_MAX, 65535, 65535};
    int major = 9, minor = 0, multiProcessorCount = 4, maxThreadsPerMultiProcessor = 2048;
    int maxBlocksPerMultiProcessor = 32, l2CacheSize = 1 << 25;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    *p = cudaDeviceProp();
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int)
{
    cudaDeviceProp p;
    *value = which == cudaDevAttrMultiProcessorCount  ? p.multiProcessorCount
             : which == cudaDevAttrMaxThreadsPerBlock ? p.maxThreadsPerBlock
                                                      : p.maxThreadsPerMultiProcessor;
    return cudaSuccess;
}
template <class F> inline cudaError_t cudaFuncSetAttribute(F *, cudaFuncAttribute which, int value)
{
    if (which == cudaFuncAttributeMaxDynamicSharedMemorySize)
        qm_emu_allow_shared(value);
    return cudaSuccess;
}

#endif
