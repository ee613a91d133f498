/* cuda_driver.c - Loads libcuda.so.1 and turns its errors into statuses. */
#include "core/cuda/cuda_driver.h"

#include <pthread.h>
#include <string.h>

#include "core/cuda/cuda_load.h"

enum { OUT_OF_MEMORY = 2, STUB = 34, NO_DEVICE = 100, MISMATCH = 803 };

static struct {
    struct qm_cuda cu;
    int usable;
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
    /* From 12.8 on the function without _v2 is restricted; older drivers export no other. */
    void *newer;
    if (qm_library_symbol(handle, "cuEventElapsedTime_v2", &newer) == QM_OK)
        memcpy(&driver.cu.EventElapsedTime, &newer, sizeof newer);
    return 1;
}

static void load(void)
{
    void *handle = qm_library_open(QM_LIBRARY_cuda, driver.path, sizeof driver.path);
    int error, count = 0;
    if (!handle) {
        snprintf(driver.reason, sizeof driver.reason, "no NVIDIA driver: %s", driver.path);
        return;
    }
    if (!bind_all(handle))
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
}

static void load_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}

qm_status qm_cuda_driver(const struct qm_cuda **out)
{
    load_once();
    if (!driver.usable)
        return qm_fail(QM_SKIPPED, "GPU backend unavailable: %s", driver.reason);
    *out = &driver.cu;
    return QM_OK;
}

void qm_cuda_driver_text(char *text, size_t size)
{
    char name[128] = "";
    int version = 0, count = 0, device = 0, major = 0, minor = 0;
    load_once();
    if (!driver.usable) {
        snprintf(text, size, "%s", driver.reason);
        return;
    }
    driver.cu.DriverGetVersion(&version);
    driver.cu.DeviceGetCount(&count);
    driver.cu.DeviceGet(&device, 0);
    driver.cu.DeviceGetName(name, (int)sizeof name, device);
    driver.cu.DeviceGetAttribute(&major, QM_CU_MAJOR, device);
    driver.cu.DeviceGetAttribute(&minor, QM_CU_MINOR, device);
    snprintf(text, size, "%s, driver API %d.%d, %d device%s: %s (sm_%d%d)", driver.path,
             version / 1000, version % 1000 / 10, count, count == 1 ? "" : "s", name, major, minor);
}
