/* nvml.h - A GPU's clocks, power and temperature, from NVIDIA's management library (NVML). */
#ifndef QM_CUDA_NVML_H
#define QM_CUDA_NVML_H

#include <stddef.h>

#include "core/base/status.h"

/* Clocks in MHz (`most`: the highest), power in watts, temperature in degrees Celsius; 0:
 * unknown. */
struct qm_gpu_now {
    unsigned sm_mhz, memory_mhz, most_sm_mhz, most_memory_mhz, watts, celsius;
};

/* The state of the device with this PCI bus id ("0000:3b:00.0").  QM_SKIPPED: there is no NVML, or
 * it does not know the device; QM_INTERNAL: it says what no GPU has, as 200 kW. */
qm_status qm_gpu_now(const char *pci, struct qm_gpu_now *out);

/* The version of the driver, "550.54.15"; "" where there is no NVML or it does not tell. */
void qm_nvml_driver(char *text, size_t size);

#endif
