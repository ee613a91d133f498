/* stand_in_gpu.h - Stand-ins for the CUDA driver and NVRTC, which hand the kernels to the emulator.
 *
 * They cannot show what a GPU computes.  A fault may be planted in one call of one process
 * (struct stand_in_fault): an error, out of memory, a late error, a hang, a crash.  Nothing here
 * fails a cmocka test by itself, because the calls also come from forked processes: what must not
 * be is an abort(). */
#ifndef QM_SUPPORT_STAND_IN_GPU_H
#define QM_SUPPORT_STAND_IN_GPU_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/cuda/cuda_load.h"
#include "core/device/device_cuda.h"
#include "tests/support/stand_in_fault.h"
#include "tests/support/stand_in_memory.h"
#include "tests/support/stand_in_nvrtc.h"
#include "tests/support/stand_in_symbol.h"

/* ---- the driver ------------------------------------------------------------------------------ */

static int fail_next_alloc, fail_next_launch;
static int64_t allocated, launches, reads, modules_loaded;
static int readings;               /* of events */
static int is_recording, recorded; /* cuStreamBeginCapture; launches while it lasts */
static char nothing[16];

static char stand_in_reader; /* the module of bench.c, and its kernel */

/* A module: one of the emulator, or NULL, which two may share; the launches that it counted. */
struct loaded {
    void *emulated;
    uint64_t launches;
};
struct function {
    struct loaded *module;
    enum qm_step_kernel kernel;
};
enum { FUNCTIONS = 8192 };
static struct function functions[FUNCTIONS];
static struct loaded loaded[FUNCTIONS];
static int n_functions, n_loaded;

static int stand_in_refuses; /* 1: modules of NVRTC stand_in_nvrtc_major are refused; 2: all */

static int cu_Init(unsigned flags)
{
    if (!stand_in_process)
        stand_in_process = ++stand_in_shared->processes;
    STRIKE("cuInit");
    return flags ? 1 : 0;
}
static int cu_DriverGetVersion(int *version)
{
    STRIKE_OUT("cuDriverGetVersion", version, sizeof *version);
    *version = stand_in_driver;
    return 0;
}
static int cu_DeviceGetCount(int *count)
{
    STRIKE_OUT("cuDeviceGetCount", count, sizeof *count);
    *count = 1;
    return 0;
}
static int cu_DeviceGet(int *device, int ordinal)
{
    STRIKE_OUT("cuDeviceGet", device, sizeof *device);
    *device = ordinal;
    return ordinal ? 101 : 0;
}
static int cu_DeviceGetName(char *name, int size, int device)
{
    STRIKE_OUT("cuDeviceGetName", name, size);
    (void)device;
    snprintf(name, (size_t)size, "%s", stand_in_card.name);
    return 0;
}
static int cu_DeviceGetAttribute(int *value, int attribute, int device)
{
    STRIKE_OUT("cuDeviceGetAttribute", value, sizeof *value);
    (void)device;
    *value = attribute == stand_in_card.odd      ? stand_in_card.odd_value
             : attribute == QM_CU_SM_COUNT       ? stand_in_card.sms
             : attribute == QM_CU_L2_BYTES       ? stand_in_card.l2
             : attribute == QM_CU_THREADS_PER_SM ? 2048
             : attribute == QM_CU_MAJOR          ? 9
                                                 : 0;
    return 0;
}
static int cu_DeviceGetPCIBusId(char *id, int size, int device)
{
    STRIKE_OUT("cuDeviceGetPCIBusId", id, size);
    (void)device;
    snprintf(id, (size_t)size, "0000:00:00.0");
    return 0;
}
static int cu_DeviceTotalMem(size_t *bytes, int device)
{
    STRIKE_OUT("cuDeviceTotalMem_v2", bytes, sizeof *bytes);
    (void)device;
    *bytes = stand_in_card.memory;
    return 0;
}
static int cu_DeviceGetUuid(unsigned char uuid[16], int device)
{
    STRIKE_OUT("cuDeviceGetUuid_v2", uuid, 16);
    (void)device;
    int is_other = stand_in_card.other_from && stand_in_process >= stand_in_card.other_from;
    memset(uuid, stand_in_card.uuid + is_other, 16);
    return 0;
}
static int cu_DevicePrimaryCtxRetain(void **context, int device)
{
    STRIKE_OUT("cuDevicePrimaryCtxRetain", context, sizeof *context);
    (void)device;
    *context = nothing;
    return 0;
}
static int cu_DevicePrimaryCtxRelease(int device)
{
    STRIKE("cuDevicePrimaryCtxRelease_v2");
    (void)device;
    return 0;
}
static int cu_CtxSetCurrent(void *context)
{
    STRIKE("cuCtxSetCurrent");
    return context == nothing ? 0 : 201;
}
static int cu_CtxSynchronize(void)
{
    STRIKE("cuCtxSynchronize");
    return 0;
}

static int cu_MemAlloc(qm_device_pointer *at, size_t bytes)
{
    STRIKE_OUT("cuMemAlloc_v2", at, sizeof *at);
    if (fail_next_alloc && fail_next_alloc-- == 1)
        return 2;
    allocated++;
    if (qm_device_emu.reserve(bytes, at) != QM_OK)
        return 2;
    note_allocation(0, *at, bytes);
    return 0;
}
static int cu_MemFree(qm_device_pointer at)
{
    STRIKE("cuMemFree_v2");
    allocated--;
    if (at)
        note_allocation(at, 0, 0);
    qm_device_emu.release(at);
    return 0;
}
static int cu_MemGetInfo(size_t *left, size_t *total)
{
    STRIKE_OUT("cuMemGetInfo_v2", left, sizeof *left);
    *left = *total = (size_t)1 << 30;
    return 0;
}
static int cu_MemcpyHtoDAsync(qm_device_pointer to, const void *from, size_t bytes, void *stream)
{
    STRIKE("cuMemcpyHtoDAsync_v2");
    (void)stream;
    return stand_in_card.is_deaf || qm_device_emu.put(to, from, bytes) == QM_OK ? 0 : 1;
}
static int cu_MemcpyDtoHAsync(void *to, qm_device_pointer from, size_t bytes, void *stream)
{
    STRIKE_OUT("cuMemcpyDtoHAsync_v2", to, bytes);
    (void)stream;
    return stand_in_card.is_mute || qm_device_emu.get(to, from, bytes) == QM_OK ? 0 : 1;
}
static int cu_MemcpyDtoDAsync(qm_device_pointer to, qm_device_pointer from, size_t bytes,
                              void *stream)
{
    STRIKE("cuMemcpyDtoDAsync_v2");
    (void)stream;
    if (stand_in_is_idle("cuMemcpyDtoDAsync_v2"))
        return 0;
    for (size_t k = 0, n; k < bytes; k += n) {
        n = bytes - k < STAND_IN_COPY ? bytes - k : STAND_IN_COPY;
        if (!stand_in_is_idle("copied"))
            memcpy((void *)(uintptr_t)(to + k), (const void *)(uintptr_t)(from + k), n);
    }
    return 0;
}
static int cu_MemsetD8Async(qm_device_pointer at, unsigned char value, size_t bytes, void *stream)
{
    STRIKE("cuMemsetD8Async");
    (void)stream;
    memset((void *)(uintptr_t)at, stand_in_card.is_deaf ? 0xff : value, bytes);
    return 0;
}
static int cu_ModuleLoadData(void **module, const void *image)
{
    STRIKE_OUT("cuModuleLoadData", module, sizeof *module);
    const char *text = (const char *)image + STAND_IN_HEAD;
    if (stand_in_refuses > 1 || (stand_in_refuses && stand_in_made_by == stand_in_nvrtc_major))
        return 209;
    usleep(1000 * (useconds_t)stand_in_card.slow);
    if (strcmp(text, "bench_read.cu") == 0) {
        *module = &stand_in_reader;
        modules_loaded++;
        return 0;
    }
    stand_in_must(n_loaded < FUNCTIONS);
    *module = &loaded[n_loaded];
    if (stand_in_card.slow)
        return n_loaded++, 0;
    if (qm_emu_load_text(text, QM_MODE_exact, &loaded[n_loaded].emulated) != QM_OK)
        return 209;
    n_loaded++;
    stand_in_shared->loads++;
    if (++modules_loaded > stand_in_shared->most_modules)
        stand_in_shared->most_modules = (int)modules_loaded;
    return 0;
}
static int cu_ModuleUnload(void *module)
{
    STRIKE("cuModuleUnload");
    (void)module;
    modules_loaded--;
    return 0;
}
static int cu_ModuleGetFunction(void **function, void *module, const char *name)
{
    STRIKE_OUT("cuModuleGetFunction", function, sizeof *function);
    if (module == &stand_in_reader) {
        *function = &stand_in_reader;
        return strcmp(name, "qm_bench_read") == 0 ? 0 : 500;
    }
    for (int k = 0; k < QM_STEP_KERNELS; k++)
        if (strcmp(name, qm_step_kernel_name((enum qm_step_kernel)k)) == 0) {
            stand_in_must(n_functions < FUNCTIONS);
            functions[n_functions] = (struct function){module, (enum qm_step_kernel)k};
            *function = &functions[n_functions++];
            return 0;
        }
    return 500;
}
static int cu_ModuleGetGlobal(qm_device_pointer *at, size_t *bytes, void *module, const char *name)
{
    STRIKE_OUT("cuModuleGetGlobal_v2", at, sizeof *at);
    struct loaded *m = module;
    *at = module == &stand_in_reader ? (uintptr_t)&reads : (uintptr_t)&m->launches;
    *bytes = stand_in_card.counter_bytes;
    return strcmp(name, QM_LAUNCHES) == 0 ? 0 : 500;
}
static int cu_FuncGetAttribute(int *value, int attribute, void *function)
{
    STRIKE_OUT("cuFuncGetAttribute", value, sizeof *value);
    (void)attribute, (void)function;
    *value = 0;
    return 0;
}
/* Launches between cuStreamBeginCapture and _EndCapture, which cuGraphLaunch makes again: their
 * arguments are copied, as a driver does. */
enum { RECORDED = 128, GRAPHS = 4, ARGUMENT = QM_STEP_BY_VALUE };
struct recording {
    int n;
    struct {
        const struct function *f;
        unsigned grid_x, grid_y;
        unsigned char args[4][ARGUMENT];
    } launch[RECORDED];
};
static struct recording graphs[GRAPHS];
static int n_graphs;

/* Bytes of argument i of a kernel of elementwise rules (core/device/batch.c). */
static size_t argument_bytes(enum qm_step_kernel k, int i)
{
    if (k == QM_KERNEL_step_by_value)
        return i == 0   ? QM_STEP_BY_VALUE
               : i == 1 ? sizeof(int64_t)
               : i == 2 ? sizeof(struct qm_step_scalars)
                        : 0;
    if (k == QM_KERNEL_scales)
        return i == 0 ? sizeof(qm_address) : 0;
    return i < 3 ? sizeof(qm_address) : sizeof(struct qm_step_scalars);
}

static void record_launch(const struct function *f, unsigned grid_x, unsigned grid_y, void **args)
{
    struct recording *g = &graphs[n_graphs % GRAPHS];
    stand_in_must(g->n < RECORDED);
    g->launch[g->n].f = f;
    g->launch[g->n].grid_x = grid_x;
    g->launch[g->n].grid_y = grid_y;
    for (int i = 0; i < 4 && argument_bytes(f->kernel, i); i++)
        memcpy(g->launch[g->n].args[i], args[i], argument_bytes(f->kernel, i));
    g->n++;
}

/* What the emulated module has counted since it was loaded. */
static uint64_t counted(const struct loaded *m)
{
    const uint64_t *at = qm_emu_variable(m->emulated, QM_LAUNCHES);
    return at ? *at : 0;
}

/* wrong: what it does beside. */
static void launch_now(const struct function *f, unsigned grid_x, unsigned grid_y, void **args,
                       enum stand_in_how_wrong wrong)
{
    if (stand_in_card.is_idle)
        return;
    struct loaded *m = f->module;
    qm_status st = QM_OK;
    uint64_t times = wrong == STAND_IN_WRONG_twice ? 2 : 1, before = counted(m);
    keep_memory(wrong);
    for (uint64_t k = 0; k < times && st == QM_OK; k++)
        st = qm_device_emu.launch(m->emulated, f->kernel, grid_x, grid_y, args);
    m->launches += (counted(m) - before) / times;
    change_memory(wrong);
    if (st != QM_OK)
        fprintf(stderr, "stand_in_gpu.h: %s\n", qm_message());
    stand_in_must(st == QM_OK);
}

/* Runs qm_codes in parts, each as a launch of its own. */
static void launch_codes(const struct function *f, unsigned grid_x, void **args)
{
    uint64_t first = *(const uint64_t *)args[0], count = *(const uint64_t *)args[1], at = 0;
    void *part[] = {&first, &count, args[2], args[3], args[4], args[5]};
    uint64_t all = count;
    for (uint64_t k = 1; k <= STAND_IN_PARTS; k++, at += count, first += count) {
        count = all * k / STAND_IN_PARTS - at;
        if (count && !stand_in_is_idle("qm_codes"))
            launch_now(f, grid_x, 1, part, STAND_IN_WRONG_none);
    }
}

#define XYZ(name) unsigned name##_x, unsigned name##_y, unsigned name##_z
static int cu_LaunchKernel(void *function, XYZ(grid), XYZ(block), unsigned shared, void *stream,
                           void **args, void **extra)
{
    STRIKE("cuLaunchKernel");
    const struct function *f = function;
    stand_in_must(grid_z * block_y * block_z == 1 && block_x == QM_STEP_THREADS && !shared &&
                  stream && !extra && grid_x > 0 && grid_y > 0 && grid_y < 65536);
    if (function == &stand_in_reader) {
        reads += !stand_in_is_idle("qm_bench_read");
        return 0;
    }
    launches++;
    if (is_recording) {
        record_launch(f, grid_x, grid_y, args);
        recorded++;
        return 0;
    }
    if (fail_next_launch && fail_next_launch-- == 1)
        return 700;
    if (stand_in_is_idle("cuLaunchKernel"))
        return 0;
    if (f->kernel == QM_KERNEL_codes)
        launch_codes(f, grid_x, args);
    else
        launch_now(f, grid_x, grid_y, args, stand_in_how_wrong("cuLaunchKernel"));
    return 0;
}
static int cu_OccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                        size_t shared)
{
    STRIKE_OUT("cuOccupancyMaxActiveBlocksPerMultiprocessor", blocks, sizeof *blocks);
    (void)function, (void)threads, (void)shared;
    *blocks = 4;
    return 0;
}
static int cu_StreamCreate(void **stream, unsigned flags)
{
    STRIKE_OUT("cuStreamCreate", stream, sizeof *stream);
    (void)flags;
    *stream = nothing + 1;
    return 0;
}
static int cu_StreamSynchronize(void *stream)
{
    STRIKE("cuStreamSynchronize");
    (void)stream;
    return 0;
}
static int cu_StreamDestroy(void *stream)
{
    STRIKE("cuStreamDestroy_v2");
    (void)stream;
    return 0;
}
enum { STAND_IN_EVENTS = 3 }; /* that a process is asked for at once */
static struct stand_in_event {
    struct timespec at;
    int k; /* its number */
} * stand_in_events[STAND_IN_EVENTS];

static int cu_EventCreate(void **event, unsigned flags)
{
    static int created;
    STRIKE_OUT("cuEventCreate", event, sizeof *event);
    (void)flags;
    struct stand_in_event *e = calloc(1, sizeof *e);
    e->k = created++ % STAND_IN_EVENTS;
    *event = stand_in_events[e->k] = e;
    stand_in_is_timing = 1;
    return 0;
}
static int cu_EventRecord(void *event, void *stream)
{
    STRIKE("cuEventRecord");
    (void)stream;
    return clock_gettime(CLOCK_MONOTONIC, &((struct stand_in_event *)event)->at);
}
static float between(const struct stand_in_event *from, const struct stand_in_event *to)
{
    const struct timespec *a = &from->at, *b = &to->at;
    return 1e3f * (float)(b->tv_sec - a->tv_sec) + 1e-6f * (float)(b->tv_nsec - a->tv_nsec);
}
static int cu_EventSynchronize(void *event)
{
    STRIKE("cuEventSynchronize");
    (void)event;
    return 0;
}
static int cu_EventElapsedTime(float *ms, void *from, void *to)
{
    STRIKE_OUT("cuEventElapsedTime", ms, sizeof *ms);
    const struct stand_in_event *a = from, *b = to;
    *ms = between(a, b);
    if (stand_in_card.shift > 0.0f && a->k == 1 && b->k == 2)
        *ms *= stand_in_card.shift;
    if (stand_in_card.is_hidden && a->k == 0 && b->k == 1)
        *ms += (1.0f - stand_in_card.shift) * between(stand_in_events[1], stand_in_events[2]);
    if (stand_in_card.is_fixed)
        *ms = stand_in_card.milliseconds;
    *ms *= stand_in_card.quick;
    *ms *= ++readings == stand_in_card.long_reading ? 1000.0f : 1.0f;
    return 0;
}
static int cu_EventDestroy(void *event)
{
    STRIKE("cuEventDestroy_v2");
    free(event);
    return 0;
}
static int cu_StreamBeginCapture(void *stream, int mode)
{
    STRIKE("cuStreamBeginCapture_v2");
    stand_in_must(stream && mode == 2 && !is_recording);
    is_recording = 1;
    graphs[n_graphs % GRAPHS].n = 0;
    return 0;
}
static int cu_StreamEndCapture(void *stream, void **graph)
{
    stand_in_must(stream && is_recording);
    is_recording = 0;
    STRIKE_OUT("cuStreamEndCapture", graph, sizeof *graph);
    *graph = &graphs[n_graphs++ % GRAPHS];
    return 0;
}
static int is_graph(const void *at)
{
    const struct recording *g = at;
    return g >= graphs && g < graphs + GRAPHS;
}
static int cu_GraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags)
{
    STRIKE_OUT("cuGraphInstantiateWithFlags", executable, sizeof *executable);
    *executable = graph;
    return is_graph(graph) && !flags ? 0 : 1;
}
static int cu_GraphLaunch(void *executable, void *stream)
{
    STRIKE("cuGraphLaunch");
    struct recording *g = executable;
    if (stand_in_is_idle("cuGraphLaunch"))
        return 0;
    enum stand_in_how_wrong wrong = stand_in_how_wrong("cuGraphLaunch");
    for (int i = 0; is_graph(g) && i < g->n; i++) {
        void *args[4];
        for (int k = 0; k < 4; k++)
            args[k] = g->launch[i].args[k];
        launch_now(g->launch[i].f, g->launch[i].grid_x, g->launch[i].grid_y, args, wrong);
    }
    return is_graph(g) && stream ? 0 : 1;
}
static int cu_GraphExecDestroy(void *executable)
{
    STRIKE("cuGraphExecDestroy");
    return is_graph(executable) ? 0 : 1;
}
static int cu_GraphDestroy(void *graph)
{
    STRIKE("cuGraphDestroy");
    return is_graph(graph) ? 0 : 1;
}
static int cu_GetErrorName(int error, const char **name)
{
    *name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
            : error == 999 ? "CUDA_ERROR_UNKNOWN"
                           : "CUDA_ERROR_ILLEGAL_ADDRESS";
    return 0;
}
static int cu_GetErrorString(int error, const char **text)
{
    *text = error == 2 ? "out of memory" : "an illegal memory access was encountered";
    return 0;
}

static void *cu_symbol(const char *name)
{
    static const struct stand_in_symbol table[] = {
#define X(member, exported, arguments) {exported, (void (*)(void))cu_##member},
        QM_CUDA_LIST(X) QM_CUDA_OPTIONAL_LIST(X)
#undef X
    };
    return stand_in_symbol(table, sizeof table / sizeof *table, name);
}

/* Puts the stand-ins in the place of driver and NVRTC. */
static inline void stand_in_open(void)
{
    stand_in_shared = mmap(NULL, sizeof *stand_in_shared, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stand_in_must(stand_in_shared != MAP_FAILED);
    qm_library_stand_in(QM_LIBRARY_cuda, cu_symbol);
    qm_library_stand_in(QM_LIBRARY_nvrtc, rtc_symbol);
}

/* Adds a second NVRTC, of version stand_in_other_major. */
static inline void stand_in_add_nvrtc(void)
{
    qm_library_stand_in(QM_LIBRARY_nvrtc, rtc_other_symbol);
}

#endif
