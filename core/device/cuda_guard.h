/* cuda_guard.h - Guards around the buffers of device "cuda", for measurements.
 *
 * A guard is QM_CUDA_GUARD bytes of the same allocation, just before a buffer or just after its
 * last byte, with a pattern that differs from buffer to buffer.  They show writes that miss a
 * buffer by less than that, and no reads. */
#ifndef QM_DEVICE_CUDA_GUARD_H
#define QM_DEVICE_CUDA_GUARD_H

#include "core/device/device.h"

enum { QM_CUDA_GUARD = 256 }; /* so that buffers stay at multiples of 256 bytes */

/* From now on each buffer that this process reserves has guards. */
void qm_cuda_guard(void);

/* QM_INTERNAL: the guards of a buffer that is there, or was released since the last call, have
 * changed: "out of range: ...", with the buffer's number in the order of reserving, its bytes and
 * the place. */
qm_status qm_cuda_guarded(void);

/* For device_cuda.c: the bytes of a guard, 0 where there are none; gives a buffer its guards; looks
 * at them and forgets the buffer, whose allocation begins at the result. */
size_t qm_cuda_guard_bytes(void);
qm_status qm_cuda_guard_add(qm_address at, size_t bytes);
qm_address qm_cuda_guard_remove(qm_address at);

#endif
