/* probe.h - Reports of `qualm doctor`: machine, floating-point behaviour, CUDA, plots. */
#ifndef QM_MACHINE_PROBE_H
#define QM_MACHINE_PROBE_H

#include <jansson.h>

/* Rounding mode, flush-to-zero, denormals-are-zero, contraction, reassociation, reciprocal
 * division, ignored NaNs and excess precision, each found by a computation.  *broken: 1 when
 * results would not be reproducible. */
json_t *qm_probe_float(int *broken);

json_t *qm_probe_machine(void); /* CPU, instruction sets, cgroup limit, governor, memory */
/* Driver, NVRTC, cuRAND, NVML, cache: a line each, or why it is missing.  Each library is asked in
 * a process of its own, so that one that crashes or hangs is a line too. */
json_t *qm_probe_cuda(void);
json_t *qm_probe_plots(void); /* versions of python3, h5py and matplotlib, or why one is missing */

#endif
