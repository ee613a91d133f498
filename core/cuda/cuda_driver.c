/* cuda_driver.c - Loads libcuda.so.1 and turns its errors into statuses. */
#include "core/cuda/cuda_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/cuda/cuda_load.h"

enum { OUT_OF_MEMORY = 2, STUB = 34, NO_DEVICE = 100, MISMATCH = 803 };
enum { INVALID_IMAGE = 200, NO_BINARY = 209, INVALID_PTX = 218, UNSUPPORTED_PTX = 222 };

static struct {
    struct qm_cuda cu;
    int is_bound, usable, version, count;
    char path[512], reason[1024];
} driver;

static const char *error_name(int error)
{
    const char *name = NULL;
    if (driver.cu.GetErrorName)
        driver.cu.GetErrorName(error, &name);
    return name ? name : "an error this driver has no name for";
}

qm_status qm_cuda_error(int error, const char *call)
{
    const char *text = NULL;
    if (error == 0)
        return QM_OK;
    if (driver.cu.GetErrorString)
        driver.cu.GetErrorString(error, &text);
    return qm_fail(error == OUT_OF_MEMORY ? QM_NO_MEMORY : QM_INTERNAL, "%s: %s (%d): %s", call,
                   error_name(error), error, text ? text : "no text");
}

int qm_cuda_is_refused(int error)
{
    return error == INVALID_IMAGE || error == NO_BINARY || error == INVALID_PTX ||
           error == UNSUPPORTED_PTX;
}

static int bind_all(void *handle)
{
    static const char *const names[] = {
#define X(member, exported, arguments) exported,
        QM_CUDA_LIST(X)
#undef X
    };
    void **const members[] = {
#define X(member, exported, arguments) (void **)(void *)&driver.cu.member,
        QM_CUDA_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (qm_library_symbol(handle, names[i], members[i]) != QM_OK) {
            snprintf(driver.reason, sizeof driver.reason, "%s has no %s", driver.path, names[i]);
            return 0;
        }
#define X(member, exported, arguments)                                           \
    if (qm_library_symbol(handle, exported, (void *)&driver.cu.member) != QM_OK) \
        driver.cu.member = NULL;
    QM_CUDA_OPTIONAL_LIST(X)
#undef X
    /* From 12.8 on the function without _v2 is restricted; older drivers export no other. */
    void *newer;
    if (qm_library_symbol(handle, "cuEventElapsedTime_v2", &newer) == QM_OK)
        memcpy(&driver.cu.EventElapsedTime, &newer, sizeof newer);
    return 1;
}

static void load(void)
{
    void *handle = qm_library_open(QM_LIBRARY_cuda, driver.path, sizeof driver.path);
    if (!handle)
        snprintf(driver.reason, sizeof driver.reason, "no NVIDIA driver: %s", driver.path);
    else if (bind_all(handle)) {
        driver.is_bound = 1;
        driver.cu.DriverGetVersion(&driver.version);
    }
}

static void load_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}

static void start(void)
{
    int error, count = 0;
    load_once();
    if (!driver.is_bound)
        return;
    if ((error = driver.cu.Init(0)) != 0)
        snprintf(driver.reason, sizeof driver.reason, "%s: cuInit gives error %d%s", driver.path,
                 error,
                 error == STUB        ? ", the toolkit's stub: no driver, no GPU"
                 : error == NO_DEVICE ? ", no CUDA device"
                 : error == MISMATCH  ? ", the driver and its library do not match"
                                      : "");
    else if ((error = driver.cu.DeviceGetCount(&count)) != 0 || count < 1)
        snprintf(driver.reason, sizeof driver.reason, "%s: no device (cuDeviceGetCount: %d)",
                 driver.path, error);
    else
        driver.usable = 1;
    driver.count = count;
}

static void start_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

int qm_cuda_driver_version(void)
{
    load_once();
    return driver.version;
}

qm_status qm_cuda_driver(const struct qm_cuda **out)
{
    start_once();
    if (!driver.usable)
        return qm_fail(QM_SKIPPED, "GPU backend unavailable: %s", driver.reason);
    *out = &driver.cu;
    return QM_OK;
}

qm_status qm_cuda_device(int *device)
{
    const struct qm_cuda *cu;
    const char *text = getenv("QM_CUDA_DEVICE");
    char *end = NULL;
    QM_TRY(qm_cuda_driver(&cu));
    long number = text && *text ? strtol(text, &end, 10) : 0;
    if ((end && (*end || end == text)) || number < 0 || number >= driver.count)
        return qm_fail(QM_SKIPPED,
                       "GPU backend unavailable: QM_CUDA_DEVICE=%s: expected a number from 0 to %d",
                       text, driver.count - 1);
    QM_CU(cu, DeviceGet, (device, (int)number));
    return QM_OK;
}

void qm_cuda_driver_text(char *text, size_t size)
{
    char name[128] = "";
    int device = 0, major = 0, minor = 0;
    start_once();
    int version = driver.version;
    if (!driver.usable) {
        snprintf(text, size, "%s", driver.reason);
        return;
    }
    if (qm_cuda_device(&device) != QM_OK) {
        snprintf(text, size, "%s, driver API %d.%d: %s", driver.path, version / 1000,
                 version % 1000 / 10, qm_message());
        return;
    }
    driver.cu.DeviceGetName(name, (int)sizeof name, device);
    driver.cu.DeviceGetAttribute(&major, QM_CU_MAJOR, device);
    driver.cu.DeviceGetAttribute(&minor, QM_CU_MINOR, device);
    const char *number = getenv("QM_CUDA_DEVICE");
    snprintf(text, size, "%s, driver API %d.%d, %d device%s, number %s: %s (sm_%d%d)", driver.path,
             version / 1000, version % 1000 / 10, driver.count, driver.count == 1 ? "" : "s",
             number && *number ? number : "0", name, major, minor);
}
