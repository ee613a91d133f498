/* nvml.c - Loads libnvidia-ml.so.1 and asks it for a GPU's state. */
#include "core/cuda/nvml.h"

#include <pthread.h>
#include <string.h>

#include "core/cuda/cuda_apart.h"
#include "core/cuda/cuda_load.h"

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0 };

static struct {
    int (*init)(void), (*by_pci)(const char *, void **), (*clock)(void *, int, unsigned *),
        (*most)(void *, int, unsigned *), (*power)(void *, unsigned *),
        (*temperature)(void *, int, unsigned *), (*driver)(char *, unsigned);
    int usable;
    char path[512];
} ml;

static void load(void)
{
    void *h = qm_library_open(QM_LIBRARY_nvml, ml.path, sizeof ml.path);
    ml.usable = h && qm_library_symbol(h, "nvmlInit_v2", &ml.init) == QM_OK &&
                qm_library_symbol(h, "nvmlDeviceGetHandleByPciBusId_v2", &ml.by_pci) == QM_OK &&
                qm_library_symbol(h, "nvmlDeviceGetClockInfo", &ml.clock) == QM_OK &&
                qm_library_symbol(h, "nvmlDeviceGetMaxClockInfo", &ml.most) == QM_OK &&
                qm_library_symbol(h, "nvmlDeviceGetPowerUsage", &ml.power) == QM_OK &&
                qm_library_symbol(h, "nvmlDeviceGetTemperature", &ml.temperature) == QM_OK &&
                ml.init() == 0;
    if (ml.usable && qm_library_symbol(h, "nvmlSystemGetDriverVersion", &ml.driver) != QM_OK)
        ml.driver = NULL;
}

static void load_and_note(void)
{
    qm_cuda_call("loading NVML");
    load();
    (void)qm_cuda_call_over(0);
}

static void load_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_and_note);
}

void qm_nvml_driver(char *text, size_t size)
{
    load_once();
    *text = '\0';
    qm_cuda_call("NVML");
    if (!ml.usable || !ml.driver || ml.driver(text, (unsigned)size - 1) != 0)
        *text = '\0';
    (void)qm_cuda_call_over(0);
    text[size - 1] = '\0';
}

qm_status qm_gpu_now(const char *pci, struct qm_gpu_now *out)
{
    void *device;
    load_once();
    if (!ml.usable)
        return qm_fail(QM_SKIPPED, "no NVML: %s", ml.path);
    qm_cuda_call("NVML");
    int error = ml.by_pci(pci, &device);
    (void)qm_cuda_call_over(0);
    if (error)
        return qm_fail(QM_SKIPPED, "NVML does not know device %s", pci);
    memset(out, 0, sizeof *out);
    qm_cuda_call("NVML");
    ml.clock(device, CLOCK_SM, &out->sm_mhz);
    ml.clock(device, CLOCK_MEMORY, &out->memory_mhz);
    ml.most(device, CLOCK_SM, &out->most_sm_mhz);
    ml.most(device, CLOCK_MEMORY, &out->most_memory_mhz);
    ml.power(device, &out->watts);
    out->watts /= 1000;
    ml.temperature(device, TEMPERATURE_GPU, &out->celsius);
    (void)qm_cuda_call_over(0);
    const unsigned most = 100000; /* far above any GPU's MHz and watts */
    if (out->sm_mhz > most || out->memory_mhz > most || out->most_sm_mhz > most ||
        out->most_memory_mhz > most || out->watts > most || out->celsius > 1000)
        return qm_fail(QM_INTERNAL,
                       "NVML says what no GPU has: %u and %u MHz (at most %u and %u), %u W, %u "
                       "degrees",
                       out->sm_mhz, out->memory_mhz, out->most_sm_mhz, out->most_memory_mhz,
                       out->watts, out->celsius);
    return QM_OK;
}
