/* memory.h - How much memory is free. */
#ifndef QM_BASE_MEMORY_H
#define QM_BASE_MEMORY_H

#include <stddef.h>

/* Bytes that the system can give away without swapping, by its own estimate (MemAvailable of
 * /proc/meminfo); 0: unknown.  Limits of control groups are not looked at. */
size_t qm_memory_available(void);

#endif
