/* probe.h - what the machine is and how its floating point behaves. */
#ifndef QM_MACHINE_PROBE_H
#define QM_MACHINE_PROBE_H

#include <jansson.h>

/* Rounding, FTZ, DAZ and whether this program was compiled as its numbers need: each checked by
 * computing, not by asking.  *broken is set to 1 when results would not be reproducible. */
json_t *qm_probe_float(int *broken);

json_t *qm_probe_machine(void); /* CPU, instruction sets, memory, cgroup limit, governor */
json_t *qm_probe_cuda(void);    /* driver, NVRTC, cuRAND: found, or why not, one line each */
json_t *qm_probe_plots(void);   /* python3, h5py, matplotlib */

#endif
