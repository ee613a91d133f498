/* clock.h - The monotonic clock, for time limits and measurements. */
#ifndef QM_BASE_CLOCK_H
#define QM_BASE_CLOCK_H

#include <time.h>

/* The seconds of CLOCK_MONOTONIC: since some fixed moment before the process began. */
static inline double qm_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
