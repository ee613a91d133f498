/* device_cuda.c - The device "cuda": GPU 0, or number $QM_CUDA_DEVICE; its primary context, one
 * stream.  With QM_CUDA_SYNC=1 every launch is waited for, so that a fault is reported under the
 * name of the kernel that made it. */
#include "core/device/device_cuda.h"
#include "core/device/cuda_guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/cuda/cuda_driver.h"

enum { MODULES = 4096 };

static struct module {
    char key[65];
    void *module, *function[QM_STEP_KERNELS];
    struct qm_kernel_use use[QM_STEP_KERNELS];
    double seconds;
    int from_cache;
    unsigned period;  /* of the last qm_cuda_unload_idle that it was asked for after */
} modules[MODULES];   /* key "": a free place */
static int n_modules; /* places in use and free ones between them */
static unsigned period;
static atomic_ullong asked; /* launches */

static struct {
    const struct qm_cuda *cu;
    int device, arch, sms;
    void *context, *stream;
    qm_status st;
    char reason[512];
} gpu;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the device ------------------------------------------------------------------------------ */

static qm_status open_device(void)
{
    int major = 0, minor = 0;
    int number = 0;
    QM_TRY(qm_cuda_device_number(&number)); /* before the driver: it is wrong without one too */
    QM_TRY(qm_cuda_driver(&gpu.cu));
    QM_TRY(qm_nvrtc_probe());
    QM_TRY(qm_cuda_device(&gpu.device));
    QM_CU(gpu.cu, DevicePrimaryCtxRetain, (&gpu.context, gpu.device));
    QM_CU(gpu.cu, CtxSetCurrent, (gpu.context));
    QM_CU(gpu.cu, StreamCreate, (&gpu.stream, 1));
    QM_TRY(qm_cuda_attribute(gpu.cu, QM_CU_MAJOR, gpu.device, &major));
    QM_TRY(qm_cuda_attribute(gpu.cu, QM_CU_MINOR, gpu.device, &minor));
    QM_TRY(qm_cuda_attribute(gpu.cu, QM_CU_SM_COUNT, gpu.device, &gpu.sms));
    gpu.arch = 10 * major + minor;
    return QM_OK;
}

static void open_once(void)
{
    gpu.st = open_device();
    if (gpu.st != QM_OK && gpu.st != QM_BAD_ARG && strncmp(qm_message(), "GPU backend", 11) != 0)
        (void)qm_fail_in(gpu.st, "GPU backend unavailable");
    snprintf(gpu.reason, sizeof gpu.reason, "%s", qm_message());
}

/* Opens the device once, and makes its context current: contexts belong to threads. */
static qm_status enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
    if (gpu.st != QM_OK)
        return qm_fail(gpu.st, "%s", gpu.reason);
    QM_CU(gpu.cu, CtxSetCurrent, (gpu.context));
    return QM_OK;
}

static qm_status cuda_probe(void) { return enter(); }

int qm_cuda_waits(void)
{
    const char *wait = getenv("QM_CUDA_SYNC");
    return wait && *wait && strcmp(wait, "0") != 0;
}

/* ---- clean-up ------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    qm_status st;
    char message[600];
} cleaning = {.lock = PTHREAD_MUTEX_INITIALIZER};

void qm_cuda_clean_up(int error, const char *call)
{
    char before[600];
    if (error == 0)
        return;
    snprintf(before, sizeof before, "%s", qm_message()); /* of what the caller cleans up after */
    qm_status st = qm_cuda_error(error, call);
    pthread_mutex_lock(&cleaning.lock);
    if (cleaning.st == QM_OK) {
        cleaning.st = st;
        snprintf(cleaning.message, sizeof cleaning.message, "%s", qm_message());
    }
    pthread_mutex_unlock(&cleaning.lock);
    (void)qm_fail(st, "%s", before);
}

qm_status qm_cuda_cleaned_up(void)
{
    pthread_mutex_lock(&cleaning.lock);
    qm_status st = cleaning.st;
    if (st != QM_OK)
        (void)qm_fail(st, "cleaning up: %s", cleaning.message);
    cleaning.st = QM_OK;
    pthread_mutex_unlock(&cleaning.lock);
    return st;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static qm_status cuda_reserve(size_t bytes, qm_address *out)
{
    qm_address at;
    const size_t guard = qm_cuda_guard_bytes(), room = bytes ? bytes : 256;
    const size_t all = room + 2 * guard;
    QM_TRY(enter());
    QM_CU(gpu.cu, MemAlloc, (&at, all));
    qm_status st = qm_cuda_error(QM_CU_ERROR(gpu.cu, MemsetD8Async, (at, 0, all, gpu.stream)),
                                 "cuMemsetD8Async");
    if (st == QM_OK && guard)
        st = qm_cuda_guard_add(at + guard, room);
    if (st != QM_OK)
        qm_cuda_clean_up(QM_CU_ERROR(gpu.cu, MemFree, (at)), "cuMemFree");
    else
        *out = at + guard;
    return st;
}

static void cuda_release(qm_address at)
{
    if (!at)
        return;
    at = qm_cuda_guard_remove(at);
    qm_cuda_clean_up(QM_CU_ERROR(gpu.cu, CtxSetCurrent, (gpu.context)), "cuCtxSetCurrent");
    qm_cuda_clean_up(QM_CU_ERROR(gpu.cu, StreamSynchronize, (gpu.stream)), "cuStreamSynchronize");
    qm_cuda_clean_up(QM_CU_ERROR(gpu.cu, MemFree, (at)), "cuMemFree");
}

/* Waits for all work, with the context current; `what` is what the message of a failure begins
 * with.  A launch that faults is reported by whatever call comes next, unless every launch is
 * waited for. */
static qm_status wait_for(const char *what)
{
    qm_status st = qm_cuda_error(QM_CU_ERROR(gpu.cu, StreamSynchronize, (gpu.stream)), what);
    if (st == QM_OK || qm_cuda_waits())
        return st;
    char text[600];
    snprintf(text, sizeof text, "%s", qm_message());
    return qm_fail(st, "%s (perhaps of an earlier launch: QM_CUDA_SYNC=1 waits for each one)",
                   text);
}

static qm_status cuda_sync(void)
{
    QM_TRY(enter());
    return wait_for("cuStreamSynchronize");
}

static qm_status cuda_put(qm_address to, const void *from, size_t bytes)
{
    QM_TRY(enter());
    if (bytes)
        QM_CU(gpu.cu, MemcpyHtoDAsync, (to, from, bytes, gpu.stream));
    return wait_for("cuStreamSynchronize"); /* the caller may free its memory on return */
}

static qm_status cuda_get(void *to, qm_address from, size_t bytes)
{
    QM_TRY(enter());
    if (bytes)
        QM_CU(gpu.cu, MemcpyDtoHAsync, (to, from, bytes, gpu.stream));
    return wait_for("cuStreamSynchronize");
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* The failure of a module that the driver refused, with the versions of both sides. */
static qm_status refused(int error)
{
    int driver = qm_cuda_driver_version(), major = 0, minor = 0;
    long long bytes;
    char text[700];
    (void)qm_nvrtc_identity(&major, &minor, &bytes);
    qm_status st = qm_cuda_error(error, "cuModuleLoadData");
    snprintf(text, sizeof text, "%s", qm_message());
    return qm_fail(st,
                   "%s; the driver is for CUDA %d.%d, the kernel was compiled by NVRTC %d.%d, and "
                   "no other NVRTC is left to try: an NVRTC of CUDA %d is wanted "
                   "(QM_NVRTC=PATH names one)",
                   text, driver / 1000, driver % 1000 / 10, major, minor, driver / 1000);
}

qm_status qm_cuda_load_binary(qm_status (*compile)(const void *of, struct qm_device_binary *b),
                              const void *of, struct qm_device_binary *b, void **module)
{
    QM_TRY(enter());
    for (;;) {
        QM_TRY(compile(of, b));
        int error = QM_CU_ERROR(gpu.cu, ModuleLoadData, (module, b->data));
        if (!qm_cuda_is_refused(error))
            return qm_cuda_error(error, "cuModuleLoadData");
        if (!qm_nvrtc_next())
            return refused(error);
        qm_device_binary_free(b);
    }
}

struct form_and_mode {
    const struct qm_step_form *f;
    enum qm_mode mode;
};

static qm_status compile_form(const void *of, struct qm_device_binary *b)
{
    const struct form_and_mode *x = of;
    return qm_step_compile(x->f, x->mode, gpu.arch, b);
}

static qm_status bind_kernels(const struct qm_step_form *f, const struct qm_device_binary *b,
                              struct module *m)
{
    for (int k = 0; k < QM_STEP_KERNELS; k++) {
        const char *name = qm_step_kernel_name((enum qm_step_kernel)k);
        if (!qm_step_has_kernel(f, (enum qm_step_kernel)k))
            continue;
        QM_CU(gpu.cu, ModuleGetFunction, (&m->function[k], m->module, name));
        qm_kernel_use(b->log, name, &m->use[k]);
    }
    m->seconds = b->seconds;
    m->from_cache = b->from_cache;
    return QM_OK;
}

static qm_status load_locked(const struct qm_step_form *f, enum qm_mode mode, const char *text,
                             void **module)
{
    char key[65];
    struct qm_sha256 h;
    struct qm_device_binary b = {0};
    qm_sha256_start(&h);
    qm_sha256_add(&h, &mode, sizeof mode);
    qm_sha256_add(&h, text, strlen(text));
    qm_sha256_hex(&h, key);
    struct module *m = NULL;
    for (int i = 0; i < n_modules; i++) {
        if (strcmp(modules[i].key, key) == 0) {
            modules[i].period = period;
            *module = &modules[i];
            return QM_OK;
        }
        if (!m && !*modules[i].key)
            m = &modules[i];
    }
    if (!m && n_modules == MODULES)
        return qm_fail(QM_NO_MEMORY, "more than %d different kernels", MODULES);
    m = m ? m : &modules[n_modules];
    memset(m, 0, sizeof *m);
    const struct form_and_mode of = {f, mode};
    qm_status st = qm_cuda_load_binary(compile_form, &of, &b, &m->module);
    if (st == QM_OK)
        st = bind_kernels(f, &b, m);
    qm_device_binary_free(&b);
    if (st != QM_OK && m->module)
        qm_cuda_clean_up(QM_CU_ERROR(gpu.cu, ModuleUnload, (m->module)), "cuModuleUnload");
    QM_TRY(st);
    memcpy(m->key, key, sizeof key);
    m->period = period;
    n_modules += m == &modules[n_modules];
    *module = m;
    return QM_OK;
}

qm_status qm_cuda_unload_idle(void)
{
    QM_TRY(enter());
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_modules; i++) {
        struct module *m = &modules[i];
        if (!*m->key || m->period == period)
            continue;
        qm_cuda_clean_up(QM_CU_ERROR(gpu.cu, ModuleUnload, (m->module)), "cuModuleUnload");
        memset(m, 0, sizeof *m);
    }
    while (n_modules && !*modules[n_modules - 1].key)
        n_modules--;
    period++;
    pthread_mutex_unlock(&lock);
    return qm_cuda_cleaned_up();
}

static qm_status cuda_load(const struct qm_step_form *f, enum qm_mode mode, void **module)
{
    QM_TRY(enter());
    char *text = qm_step_text(f);
    if (!text)
        return qm_fail(QM_NO_MEMORY, "the source of a kernel");
    pthread_mutex_lock(&lock);
    qm_status st = load_locked(f, mode, text, module);
    pthread_mutex_unlock(&lock);
    free(text);
    return st;
}

static qm_status cuda_launch(void *module, enum qm_step_kernel k, unsigned grid_x, unsigned grid_y,
                             void **args)
{
    const struct module *m = module;
    QM_TRY(enter());
    asked++;
    QM_TRY(qm_cuda_error(QM_CU_ERROR(gpu.cu, LaunchKernel,
                                     (m->function[k], grid_x, grid_y, 1, QM_STEP_THREADS, 1, 1, 0,
                                      gpu.stream, args, NULL)),
                         qm_step_kernel_name(k)));
    return qm_cuda_waits() ? wait_for(qm_step_kernel_name(k)) : QM_OK;
}

static int cuda_blocks(void) { return enter() == QM_OK ? gpu.sms : 1; }

const struct qm_device qm_device_cuda = {
    .name = "cuda",
    .probe = cuda_probe,
    .reserve = cuda_reserve,
    .release = cuda_release,
    .put = cuda_put,
    .get = cuda_get,
    .load = cuda_load,
    .launch = cuda_launch,
    .sync = cuda_sync,
    .blocks = cuda_blocks,
};

/* ---- for measuring --------------------------------------------------------------------------- */

qm_status qm_cuda_context(const struct qm_cuda **cu, void **stream, int *device)
{
    QM_TRY(enter());
    *cu = gpu.cu;
    *stream = gpu.stream;
    *device = gpu.device;
    return QM_OK;
}

qm_status qm_cuda_begun(void *driver_module, uint64_t *begun)
{
    qm_device_pointer at = 0;
    size_t bytes = 0;
    *begun = 0;
    QM_CU(gpu.cu, ModuleGetGlobal, (&at, &bytes, driver_module, QM_LAUNCHES));
    if (bytes != sizeof *begun)
        return qm_fail(QM_INTERNAL, "cuModuleGetGlobal gives %zu bytes for %s, which has %zu",
                       bytes, QM_LAUNCHES, sizeof *begun);
    return cuda_get(begun, at, sizeof *begun);
}

qm_status qm_cuda_launches(uint64_t *n_asked, uint64_t *begun)
{
    qm_status st = enter();
    uint64_t one;
    *n_asked = asked;
    *begun = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_modules && st == QM_OK; i++) {
        if (!*modules[i].key)
            continue;
        st = qm_cuda_begun(modules[i].module, &one);
        *begun += one;
    }
    pthread_mutex_unlock(&lock);
    return st;
}

void *qm_cuda_function(const void *module, enum qm_step_kernel k)
{
    return ((const struct module *)module)->function[k];
}

struct qm_kernel_use qm_cuda_use(const void *module, enum qm_step_kernel k)
{
    return ((const struct module *)module)->use[k];
}

double qm_cuda_compile_seconds(const void *module, int *from_cache)
{
    const struct module *m = module;
    *from_cache = m->from_cache;
    return m->seconds;
}
