/* fake_cuda.c - A libcuda.so.1 for tests of the command line: it has memory, computes nothing, and
 * fails where it is told to.
 *
 * FAKE_CALL names a call ("load": when the library is opened), FAKE_HOW what happens there: a
 * number is returned as its error; hang; crash; late: the call is good and every later one gives
 * error 700.  FAKE_COUNT: at which call of that name (1).  FAKE_MS: what cuEventElapsedTime gives
 * (1). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int sticky, calls;

static int strike(const char *call)
{
    const char *at = getenv("FAKE_CALL"), *how = getenv("FAKE_HOW"), *count = getenv("FAKE_COUNT");
    if (sticky)
        return sticky;
    if (!at || !how || strcmp(at, call) != 0 || ++calls != (count ? atoi(count) : 1))
        return 0;
    if (strcmp(how, "crash") == 0)
        raise(SIGSEGV);
    while (strcmp(how, "hang") == 0)
        pause();
    sticky = strcmp(how, "late") == 0 ? 700 : 0;
    return atoi(how);
}

__attribute__((constructor)) static void loaded(void) { (void)strike("load"); }

#define CALL(name, arguments, ...) \
    int name arguments;            \
    int name arguments             \
    {                              \
        int error = strike(#name); \
        if (!error) {              \
            __VA_ARGS__;           \
        }                          \
        return error;              \
    }
#define ANY unsigned long long

static char thing[16];

static int attribute(int which)
{
    return which == 16 ? 4 : which == 38 ? 4096 : which == 39 ? 2048 : which == 75 ? 9 : 0;
}

CALL(cuInit, (unsigned flags), (void)flags)
CALL(cuDriverGetVersion, (int *out), *out = 13000)
CALL(cuDeviceGetCount, (int *out), *out = 2)
CALL(cuDeviceGet, (int *out, int i), *out = i)
CALL(cuDeviceGetName, (char *out, int n, int d), snprintf(out, (size_t)n, "Card %c", 'A' + d))
CALL(cuDeviceGetAttribute, (int *out, int a, int d), *out = attribute(a), (void)d)
CALL(cuDeviceGetPCIBusId, (char *out, int n, int d), snprintf(out, (size_t)n, "0000:0%d:00.0", d))
CALL(cuDeviceTotalMem_v2, (size_t * out, int d), *out = 1 << 28, (void)d)
CALL(cuDevicePrimaryCtxRetain, (void **out, int d), *out = thing, (void)d)
CALL(cuDevicePrimaryCtxRelease_v2, (int d), (void)d)
CALL(cuCtxSetCurrent, (void *c), (void)c)
CALL(cuCtxSynchronize, (void), (void)0)
CALL(cuMemAlloc_v2, (ANY * out, size_t n), *out = (ANY)calloc(n, 1))
CALL(cuMemFree_v2, (ANY at), free((void *)at))
CALL(cuMemGetInfo_v2, (size_t * left, size_t *all), *left = *all = 1 << 28)
CALL(cuMemcpyHtoDAsync_v2, (ANY to, const void *from, size_t n, void *s),
     memcpy((void *)to, from, n), (void)s)
CALL(cuMemcpyDtoHAsync_v2, (void *to, ANY from, size_t n, void *s), memcpy(to, (void *)from, n),
     (void)s)
CALL(cuMemcpyDtoDAsync_v2, (ANY to, ANY from, size_t n, void *s),
     memcpy((void *)to, (void *)from, n), (void)s)
CALL(cuMemsetD8Async, (ANY at, unsigned char x, size_t n, void *s), memset((void *)at, x, n),
     (void)s)
CALL(cuModuleLoadData, (void **out, const void *image), *out = thing, (void)image)
CALL(cuModuleUnload, (void *m), (void)m)
CALL(cuModuleGetFunction, (void **out, void *m, const char *name), *out = thing, (void)m,
     (void)name)
CALL(cuFuncGetAttribute, (int *out, int a, void *f), *out = 0, (void)a, (void)f)
CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *out, void *f, int n, size_t b), *out = 4,
     (void)f, (void)n, (void)b)
CALL(cuStreamCreate, (void **out, unsigned flags), *out = thing, (void)flags)
CALL(cuStreamSynchronize, (void *s), (void)s)
CALL(cuStreamDestroy_v2, (void *s), (void)s)
CALL(cuEventCreate, (void **out, unsigned flags), *out = thing, (void)flags)
CALL(cuEventRecord, (void *e, void *s), (void)e, (void)s)
CALL(cuEventSynchronize, (void *e), (void)e)
CALL(cuEventElapsedTime, (float *out, void *a, void *b),
     *out = getenv("FAKE_MS") ? strtof(getenv("FAKE_MS"), NULL) : 1.0f, (void)a, (void)b)
CALL(cuEventDestroy_v2, (void *e), (void)e)

int cuModuleGetGlobal_v2(ANY *at, size_t *n, void *m, const char *name);
int cuModuleGetGlobal_v2(ANY *at, size_t *n, void *m, const char *name)
{
    (void)at, (void)n, (void)m, (void)name;
    int error = strike("cuModuleGetGlobal_v2");
    return error ? error : 500;
}

#define XYZ(name) unsigned name##_x, unsigned name##_y, unsigned name##_z
CALL(cuLaunchKernel, (void *f, XYZ(g), XYZ(b), unsigned shared, void *s, void **args, void **extra),
     (void)f, (void)g_x, (void)g_y, (void)g_z, (void)b_x, (void)b_y, (void)b_z, (void)shared,
     (void)s, (void)args, (void)extra)

int cuGetErrorName(int error, const char **name);
int cuGetErrorName(int error, const char **name)
{
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return 0;
}
int cuGetErrorString(int error, const char **text);
int cuGetErrorString(int error, const char **text)
{
    *text = error == 700 ? "not UTF-8: \xff|<b>" : "a planted error";
    return 0;
}
