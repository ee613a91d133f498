/* fake_cuda.c - A libcuda.so.1 for tests of the command line: it has memory, computes nothing, and
 * fails where it is told to.
 *
 * FAKE_CALL names a call ("load": when the library is opened), FAKE_HOW what happens there: a
 * number is returned as its error; hang; crash; late: the call is good and every later one gives
 * error 700; exit0: it calls exit(0); print: it writes to stdout; int, term, hup: it raises that
 * signal; fork: it starts a process that stays; twin: it returns in two processes; fsize: no file
 * may grow from then on; scribble: it writes over all shared memory, then _exit(0).
 * FAKE_COUNT: at which call of that name (1).  FAKE_MS: what cuEventElapsedTime gives (default: by
 * the clock); FAKE_MODE: the compute mode of the device (0); FAKE_KERNEL: an object whose variables
 * and functions are those of every module; a launch calls the function with the pointers to its
 * arguments.  Each call is a line "PROCESS NAME" of the file FAKE_TRACE. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int sticky, calls;

static void trace(const char *call)
{
    const char *path = getenv("FAKE_TRACE");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "%d %s\n", (int)getpid(), call);
    fclose(f);
}

/* Words of 0x100 over every writable shared mapping. */
static void scribble(void)
{
    char line[512], access[8];
    unsigned long from, to;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, access) == 3 && strcmp(access, "rw-s") == 0)
            for (int *at = (int *)from; at < (int *)to; at++)
                *at = 0x100;
    _exit(0);
}

/* Raises a signal; one that this process was started to ignore, as in the background of a shell or
 * under nohup, strikes too. */
static void be_hit(int number)
{
    struct sigaction was;
    if (sigaction(number, NULL, &was) == 0 && was.sa_handler == SIG_IGN)
        signal(number, SIG_DFL);
    raise(number);
}

static void misbehave(const char *how)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"crash", SIGSEGV}, {"int", SIGINT}, {"term", SIGTERM}, {"hup", SIGHUP}};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (strcmp(how, signals[i].name) == 0)
            be_hit(signals[i].number);
    if (strcmp(how, "scribble") == 0)
        scribble();
    if (strcmp(how, "fsize") == 0)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
    if (strcmp(how, "twin") == 0)
        (void)!fork();
    if (strcmp(how, "fork") == 0 && fork() == 0) {
        sleep(60);
        _exit(0);
    }
}

static int strike(const char *call)
{
    const char *at = getenv("FAKE_CALL"), *how = getenv("FAKE_HOW"), *count = getenv("FAKE_COUNT");
    trace(call);
    if (sticky)
        return sticky;
    if (!at || !how || strcmp(at, call) != 0 || ++calls != (count ? atoi(count) : 1))
        return 0;
    misbehave(how);
    if (strcmp(how, "exit0") == 0)
        exit(0);
    if (strcmp(how, "print") == 0)
        puts("a driver's chatter");
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
    const char *mode = getenv("FAKE_MODE");
    return which == 16   ? 4
           : which == 20 ? (mode ? atoi(mode) : 0)
           : which == 38 ? 4096
           : which == 39 ? 2048
           : which == 75 ? 9
                         : 0;
}

static float milliseconds(const struct timespec *a, const struct timespec *b)
{
    return (float)(1e3 * (double)(b->tv_sec - a->tv_sec) +
                   1e-6 * (double)(b->tv_nsec - a->tv_nsec));
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

/* A variable or function of FAKE_KERNEL; NULL: there is none. */
static void *of_kernel(const char *name)
{
    static void *object;
    const char *path = getenv("FAKE_KERNEL");
    if (!object && path)
        object = dlopen(path, RTLD_NOW);
    return object ? dlsym(object, name) : NULL;
}

int cuModuleGetFunction(void **out, void *m, const char *name);
int cuModuleGetFunction(void **out, void *m, const char *name)
{
    int error = strike("cuModuleGetFunction");
    (void)m;
    *out = getenv("FAKE_KERNEL") ? of_kernel(name) : thing;
    return error ? error : *out ? 0 : 500;
}

CALL(cuFuncGetAttribute, (int *out, int a, void *f), *out = 0, (void)a, (void)f)
CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *out, void *f, int n, size_t b), *out = 4,
     (void)f, (void)n, (void)b)
CALL(cuStreamCreate, (void **out, unsigned flags), *out = thing, (void)flags)
CALL(cuStreamSynchronize, (void *s), (void)s)
CALL(cuStreamDestroy_v2, (void *s), (void)s)
CALL(cuEventCreate, (void **out, unsigned flags), *out = calloc(1, sizeof(struct timespec)),
     (void)flags)
CALL(cuEventRecord, (void *e, void *s), clock_gettime(CLOCK_MONOTONIC, e), (void)s)
CALL(cuEventSynchronize, (void *e), (void)e)
CALL(cuEventElapsedTime, (float *out, void *a, void *b),
     *out = getenv("FAKE_MS") ? strtof(getenv("FAKE_MS"), NULL) : milliseconds(a, b))
CALL(cuEventDestroy_v2, (void *e), free(e))

int cuModuleGetGlobal_v2(ANY *at, size_t *n, void *m, const char *name);
int cuModuleGetGlobal_v2(ANY *at, size_t *n, void *m, const char *name)
{
    static unsigned long long launches; /* of a driver that begins none */
    int error = strike("cuModuleGetGlobal_v2");
    (void)m;
    if (strcmp(name, "qm_launches") == 0) {
        *at = (ANY)&launches;
        *n = sizeof launches;
        return error;
    }
    *at = (ANY)of_kernel(name);
    *n = strcmp(name, "qm_cuda_as") == 0 && *at ? strlen((char *)*at) + 1
         : strcmp(name, "qm_cuda_abi") == 0     ? sizeof(int)
                                                : 3 * sizeof(int);
    return error ? error : *at ? 0 : 500;
}

#define XYZ(name) unsigned name##_x, unsigned name##_y, unsigned name##_z
int cuLaunchKernel(void *f, XYZ(g), XYZ(b), unsigned shared, void *s, void **args, void **extra);
int cuLaunchKernel(void *f, XYZ(g), XYZ(b), unsigned shared, void *s, void **args, void **extra)
{
    void (*call)(void **);
    int error = strike("cuLaunchKernel");
    (void)g_x, (void)g_y, (void)g_z, (void)b_x, (void)b_y, (void)b_z, (void)shared, (void)s;
    (void)extra;
    memcpy(&call, &f, sizeof call);
    if (!error && f != thing)
        call(args);
    return error;
}

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
