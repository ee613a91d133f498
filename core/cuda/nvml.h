/* nvml.h - A GPU's clocks, power and temperature, from NVIDIA's management library (NVML).
 *
 * NVML is optional, and may crash, leave, not return or lie.  So a process of its own loads and
 * asks it (cuda_apart.h is for work without which nothing goes on); what fails there is a reason,
 * and the asking process goes on without. */
#ifndef QM_CUDA_NVML_H
#define QM_CUDA_NVML_H

#include <stddef.h>

#include "core/base/status.h"

enum { QM_NVML_DRIVER = 96 };

/* Clocks in MHz (`most`: the highest), power in watts, temperature in degrees Celsius; 0: unknown.
 * driver: its version, "550.54.15"; "": unknown. */
struct qm_gpu_now {
    unsigned sm_mhz, memory_mhz, most_sm_mhz, most_memory_mhz, watts, celsius;
    char driver[QM_NVML_DRIVER];
    char missing[300]; /* the calls that gave an error, and which; "": none */
};

/* Starts the process that asks NVML for this one, which has not called the driver yet; it ends with
 * this one.  limit: the seconds that an answer may take. */
void qm_nvml_start(double limit);

/* The state of the device with this PCI bus id ("0000:3b:00.0").  QM_SKIPPED, and *out is zeroed:
 * there is no answer, with the reason: no process was started, there is no NVML, it does not know
 * the device, crashed, left, took longer than the limit, or says what no GPU has, as 200 kW.  After
 * that nothing is asked any more. */
qm_status qm_gpu_now(const char *pci, struct qm_gpu_now *out);

/* Why nothing is asked any more; NULL: no question has failed. */
const char *qm_nvml_failed(void);

/* One line about NVML, as of `qm_cuda_apart_text`: its path and the driver's version, or why it
 * does not answer. */
void qm_nvml_text(char *text, size_t size);

#endif
