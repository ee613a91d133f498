/* nvml.h - a GPU's clocks, power and temperature, by NVIDIA's management library where it is there. */
#ifndef QM_CUDA_NVML_H
#define QM_CUDA_NVML_H

#include "core/base/status.h"

/* 0: not known. */
struct qm_gpu_now {
    unsigned sm_mhz, memory_mhz, most_sm_mhz, most_memory_mhz, watts, celsius;
};

/* Of the device with this PCI bus id ("0000:3b:00.0").  QM_SKIPPED: no library, or it does not know it. */
qm_status qm_gpu_now(const char *pci, struct qm_gpu_now *out);

#endif
