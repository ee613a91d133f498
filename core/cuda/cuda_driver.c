/* cuda_driver.c - Loads libcuda.so.1 and turns its errors into statuses. */
#include "core/cuda/cuda_driver.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/cuda/cuda_load.h"

enum { OUT_OF_MEMORY = 2, STUB = 34, NO_DEVICE = 100, INVALID_DEVICE = 101, MISMATCH = 803 };
enum { INVALID_IMAGE = 200, NO_BINARY = 209, INVALID_PTX = 218, UNSUPPORTED_PTX = 222 };

static struct {
    struct qm_cuda cu;
    int is_bound, version, count;
    qm_status st; /* of starting: QM_SKIPPED: there is no GPU; QM_INTERNAL: the driver failed */
    char path[512], reason[1024];
    char version_error[400]; /* why it does not tell its version; "": it does, or is no driver */
} driver;

/* A text of the driver as printable ASCII. */
static const char *plain(const char *from, char *text, size_t size)
{
    size_t n = 0;
    for (; n + 1 < size && from[n]; n++)
        text[n] = (char)(from[n] >= ' ' && from[n] <= '~' ? from[n] : '?');
    text[n] = '\0';
    return text;
}

static const char *error_name(int error, char *text, size_t size)
{
    const char *name = NULL;
    if (driver.cu.GetErrorName && QM_CU_ERROR(&driver.cu, GetErrorName, (error, &name)) != 0)
        name = NULL;
    return plain(name ? name : "an error this driver has no name for", text, size);
}

qm_status qm_cuda_error(int error, const char *call)
{
    const char *said = NULL;
    char name[80], text[240];
    if (error == 0)
        return QM_OK;
    if (driver.cu.GetErrorString && QM_CU_ERROR(&driver.cu, GetErrorString, (error, &said)) != 0)
        said = NULL;
    return qm_fail(error == OUT_OF_MEMORY ? QM_NO_MEMORY : QM_INTERNAL, "%s: %s (%d): %s", call,
                   error_name(error, name, sizeof name), error,
                   plain(said ? said : "no text", text, sizeof text));
}

int qm_cuda_is_refused(int error)
{
    return error == INVALID_IMAGE || error == NO_BINARY || error == INVALID_PTX ||
           error == UNSUPPORTED_PTX;
}

/* The check of every whole number that the driver gives.  The ranges are wider than those of any
 * GPU, so that only nonsense is outside. */
static qm_status in_range(const char *before, int value, const char *after, int least, int most,
                          const char *call)
{
    return value >= least && value <= most
               ? QM_OK
               : qm_fail(QM_INTERNAL, "the driver says that %s %d%s (%s), expected %d to %d",
                         before, value, after, call, least, most);
}

/* Why an error of the driver says that there is no GPU to use; NULL: it says that it failed. */
static const char *absence(int error)
{
    return error == STUB        ? ", the toolkit's stub: no driver, no GPU"
           : error == NO_DEVICE ? ", no CUDA device"
           : error == MISMATCH  ? ", the driver and its library do not match"
                                : NULL;
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

static qm_status version_is_one(int version)
{
    return in_range("it is of version", version, "", 1000, 999990, "cuDriverGetVersion");
}

static void ask_version(void)
{
    int error = QM_CU_ERROR(&driver.cu, DriverGetVersion, (&driver.version));
    if (qm_cuda_error(error, "cuDriverGetVersion") == QM_OK &&
        version_is_one(driver.version) == QM_OK)
        return;
    driver.version = 0;
    if (!absence(error)) /* else cuInit says so */
        snprintf(driver.version_error, sizeof driver.version_error, "%s", qm_message());
}

static void load(void)
{
    qm_cuda_call("loading libcuda");
    void *handle = qm_library_open(QM_LIBRARY_cuda, driver.path, sizeof driver.path);
    (void)qm_cuda_call_over(0);
    if (!handle)
        snprintf(driver.reason, sizeof driver.reason, "no NVIDIA driver: %s", driver.path);
    else if (bind_all(handle)) {
        driver.is_bound = 1;
        ask_version();
    }
}

static int is_loaded;

static void load_and_say(void)
{
    load();
    is_loaded = 1;
}

static void load_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_and_say);
}

static void start(void)
{
    int error, count = 0;
    load_once();
    driver.st = QM_SKIPPED;
    if (!driver.is_bound)
        return;
    if ((error = QM_CU_ERROR(&driver.cu, Init, (0))) != 0) {
        const char *why = absence(error);
        driver.st = why ? QM_SKIPPED : QM_INTERNAL;
        snprintf(driver.reason, sizeof driver.reason, "%s: cuInit gives error %d%s", driver.path,
                 error, why ? why : "");
    } else if (*driver.version_error) {
        driver.st = QM_INTERNAL;
        snprintf(driver.reason, sizeof driver.reason, "%s: %s", driver.path, driver.version_error);
    } else if ((error = QM_CU_ERROR(&driver.cu, DeviceGetCount, (&count))) == 0 &&
               in_range("there are", count, " devices", 0, 65536, "cuDeviceGetCount") != QM_OK) {
        driver.st = QM_INTERNAL;
        snprintf(driver.reason, sizeof driver.reason, "%s: %s", driver.path, qm_message());
    } else if (error != 0 || count == 0) {
        driver.st = error == 0 || error == NO_DEVICE ? QM_SKIPPED : QM_INTERNAL;
        snprintf(driver.reason, sizeof driver.reason, "%s: %s (cuDeviceGetCount: error %d)",
                 driver.path, driver.st == QM_SKIPPED ? "no device" : "the driver failed", error);
    } else {
        driver.st = QM_OK;
    }
    driver.count = count;
}

static void start_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

/* "13000 ", or "0 REASON". */
static void print_version(char *text, size_t size)
{
    load_once();
    snprintf(text, size, "%d %s", driver.version, driver.version_error);
}

/* What another process has answered. */
static struct {
    qm_status st;
    int version, is_asked;
    char message[sizeof driver.version_error + 16];
} elsewhere;

static struct {
    qm_status st;
    struct qm_cuda_gpu gpu;
    int is_asked;
    char message[1024 + 64];
} described;

static void ask_elsewhere(void)
{
    char text[sizeof elsewhere.message] = "";
    const char *why = text;
    int n = 0;
    elsewhere.st = qm_cuda_apart_text(print_version, text, sizeof text);
    if (elsewhere.st != QM_OK)
        why = qm_message();
    else if (sscanf(text, "%d %n", &elsewhere.version, &n) == 1 && *(why = text + n))
        elsewhere.st = QM_INTERNAL;
    snprintf(elsewhere.message, sizeof elsewhere.message, "%s", why);
    elsewhere.is_asked = 1;
}

qm_status qm_cuda_driver_asked(int *version)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *version = described.gpu.version;
    if (described.is_asked && described.st != QM_INTERNAL)
        return QM_OK;
    if (!elsewhere.is_asked && (is_loaded || qm_cuda_is_apart())) {
        load_once();
        *version = driver.version;
        return QM_OK;
    }
    pthread_once(&once, ask_elsewhere);
    if (elsewhere.st != QM_OK)
        return qm_fail(elsewhere.st, "%s", elsewhere.message);
    *version = elsewhere.version;
    return QM_OK;
}

int qm_cuda_driver_version(void)
{
    int version;
    (void)qm_cuda_driver_asked(&version);
    return version;
}

qm_status qm_cuda_driver(const struct qm_cuda **out)
{
    start_once();
    if (driver.st != QM_OK)
        return qm_fail(driver.st, "GPU backend unavailable: %s", driver.reason);
    *out = &driver.cu;
    return QM_OK;
}

qm_status qm_cuda_device_number(int *number)
{
    const char *text = getenv("QM_CUDA_DEVICE");
    char *end = NULL;
    long x = text ? strtol(text, &end, 10) : 0;
    if (text && (*text < '0' || *text > '9' || *end))
        return qm_fail(QM_BAD_ARG, "QM_CUDA_DEVICE=%s: expected the number of a GPU, from 0 on",
                       text);
    *number = x < INT_MAX ? (int)x : INT_MAX;
    return QM_OK;
}

qm_status qm_cuda_device(int *device)
{
    const struct qm_cuda *cu;
    int number = 0;
    QM_TRY(qm_cuda_device_number(&number));
    QM_TRY(qm_cuda_driver(&cu));
    if (number >= driver.count)
        return qm_fail(QM_SKIPPED,
                       "GPU backend unavailable: QM_CUDA_DEVICE=%s: expected a number from 0 to %d",
                       getenv("QM_CUDA_DEVICE"), driver.count - 1);
    int error = QM_CU_ERROR(cu, DeviceGet, (device, number));
    qm_status st = qm_cuda_error(error, "cuDeviceGet");
    return error == NO_DEVICE || error == INVALID_DEVICE
               ? qm_fail_in(QM_SKIPPED, "GPU backend unavailable")
               : st;
}

/* ---- what a device is like ------------------------------------------------------------------- */

/* Bytes of a GPU's memory; those with 16 MiB are older than CUDA. */
static const size_t LEAST_MEMORY = (size_t)1 << 24, MOST_MEMORY = (size_t)1 << 50;

static const struct {
    int attribute, least, most;
    const char *what;
} attributes[] = {
    {QM_CU_SM_COUNT, 1, 65536, " multiprocessors"},
    {QM_CU_COMPUTE_MODE, 0, 3, " as compute mode"},
    {QM_CU_L2_BYTES, 1, INT_MAX, " bytes of L2 cache"},
    {QM_CU_THREADS_PER_SM, 32, 1 << 20, " threads on a multiprocessor"},
    {QM_CU_MAJOR, 1, 99, " as major compute capability"},
    {QM_CU_MINOR, 0, 9, " as minor compute capability"},
};
enum { ATTRIBUTES = sizeof attributes / sizeof *attributes };

qm_status qm_cuda_attribute(const struct qm_cuda *cu, int attribute, int device, int *value)
{
    char call[40];
    QM_CU(cu, DeviceGetAttribute, (value, attribute, device));
    snprintf(call, sizeof call, "cuDeviceGetAttribute %d", attribute);
    for (int i = 0; i < ATTRIBUTES; i++)
        if (attributes[i].attribute == attribute)
            return in_range("the GPU has", *value, attributes[i].what, attributes[i].least,
                            attributes[i].most, call);
    return QM_OK;
}

qm_status qm_cuda_local_bytes(const struct qm_cuda *cu, void *function, int *bytes)
{
    QM_CU(cu, FuncGetAttribute, (bytes, QM_CU_FUNC_LOCAL, function));
    return in_range("a thread has", *bytes, " bytes of local memory", 0, 1 << 20,
                    "cuFuncGetAttribute");
}

qm_status qm_cuda_blocks(const struct qm_cuda *cu, void *function, int threads, int most_threads,
                         int *blocks)
{
    QM_CU(cu, OccupancyMaxActiveBlocksPerMultiprocessor, (blocks, function, threads, 0));
    return in_range("a multiprocessor takes", *blocks, " blocks", 1, most_threads / threads,
                    "cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

qm_status qm_cuda_milliseconds(const struct qm_cuda *cu, void *from, void *to, double *ms)
{
    float x = NAN; /* a driver that writes nothing has measured nothing */
    QM_CU(cu, EventElapsedTime, (&x, from, to));
    *ms = (double)x;
    return *ms >= 0.0 && *ms < (double)INFINITY
               ? QM_OK
               : qm_fail(QM_INTERNAL, "cuEventElapsedTime gives %g ms, expected 0 or more", *ms);
}

qm_status qm_cuda_total_memory(const struct qm_cuda *cu, int device, size_t *bytes)
{
    QM_CU(cu, DeviceTotalMem, (bytes, device));
    return *bytes >= LEAST_MEMORY && *bytes <= MOST_MEMORY
               ? QM_OK
               : qm_fail(QM_INTERNAL,
                         "the driver says that the GPU has %zu bytes of memory "
                         "(cuDeviceTotalMem), expected 2^24 to 2^50",
                         *bytes);
}

qm_status qm_cuda_memory(const struct qm_cuda *cu, size_t *left, size_t *total)
{
    QM_CU(cu, MemGetInfo, (left, total));
    return *total >= LEAST_MEMORY && *left <= *total && *total <= MOST_MEMORY
               ? QM_OK
               : qm_fail(QM_INTERNAL,
                         "the driver says that %zu of %zu bytes of memory are free (cuMemGetInfo)",
                         *left, *total);
}

qm_status qm_cuda_version(const struct qm_cuda *cu, int *version)
{
    QM_CU(cu, DriverGetVersion, (version));
    return version_is_one(*version);
}

/* ---- the device, for who leaves it to another process ---------------------------------------- */

static qm_status describe_here(struct qm_cuda_gpu *gpu)
{
    const struct qm_cuda *cu = &driver.cu;
    int device, major = 0, minor = 0, mode = 0;
    load_once();
    gpu->version = driver.version;
    QM_TRY(qm_cuda_device(&device));
    QM_TRY(qm_cuda_attribute(cu, QM_CU_MAJOR, device, &major));
    QM_TRY(qm_cuda_attribute(cu, QM_CU_MINOR, device, &minor));
    QM_TRY(qm_cuda_attribute(cu, QM_CU_COMPUTE_MODE, device, &mode));
    gpu->arch = 10 * major + minor;
    gpu->is_exclusive = mode == QM_CU_EXCLUSIVE_PROCESS;
    return QM_OK;
}

static void print_gpu(char *text, size_t size)
{
    struct qm_cuda_gpu gpu = {0};
    qm_status st = describe_here(&gpu);
    snprintf(text, size, "%d %d %d %d %s", (int)st, gpu.version, gpu.arch, gpu.is_exclusive,
             st == QM_OK ? "" : qm_message());
}

static void ask_for_gpu(void)
{
    char text[sizeof described.message];
    struct qm_cuda_gpu *gpu = &described.gpu;
    const char *said = text;
    int st = QM_INTERNAL, n = 0;
    described.st = qm_cuda_apart_text(print_gpu, text, sizeof text);
    if (described.st != QM_OK)
        said = qm_message();
    else if (sscanf(text, "%d %d %d %d %n", &st, &gpu->version, &gpu->arch, &gpu->is_exclusive,
                    &n) == 4)
        said += n;
    described.st = described.st == QM_OK ? (qm_status)st : described.st;
    snprintf(described.message, sizeof described.message, "%s", said);
    described.is_asked = 1;
}

qm_status qm_cuda_gpu_asked(struct qm_cuda_gpu *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (is_loaded)
        return describe_here(out);
    pthread_once(&once, ask_for_gpu);
    if (described.st != QM_OK)
        return qm_fail(described.st, "%s", described.message);
    *out = described.gpu;
    return QM_OK;
}

void qm_cuda_driver_text(char *text, size_t size)
{
    enum { LENGTH = 128 };
    char name[LENGTH + 1] = "", shown[LENGTH + 1]; /* a driver may leave the NUL out */
    int device = 0, major = 0, minor = 0;
    start_once();
    char version[32];
    snprintf(version, sizeof version, "%d.%d", driver.version / 1000, driver.version % 1000 / 10);
    if (driver.st != QM_OK) {
        snprintf(text, size, "%s", driver.reason);
        return;
    }
    if (qm_cuda_device(&device) != QM_OK) {
        snprintf(text, size, "%s, driver API %s: %s", driver.path, version, qm_message());
        return;
    }
    qm_status st =
        qm_cuda_error(QM_CU_ERROR(&driver.cu, DeviceGetName, (name, LENGTH, device)), "its name");
    if (st == QM_OK)
        st = qm_cuda_attribute(&driver.cu, QM_CU_MAJOR, device, &major);
    if (st == QM_OK)
        st = qm_cuda_attribute(&driver.cu, QM_CU_MINOR, device, &minor);
    int number = 0;
    (void)qm_cuda_device_number(&number);
    size_t used =
        (size_t)snprintf(text, size, "%s, driver API %s, %d device%s, number %d: ", driver.path,
                         version, driver.count, driver.count == 1 ? "" : "s", number);
    if (used >= size)
        return;
    if (st != QM_OK)
        snprintf(text + used, size - used, "it cannot be described: %s", qm_message());
    else
        snprintf(text + used, size - used, "%s (sm_%d%d)", plain(name, shown, sizeof shown), major,
                 minor);
}
