/* stand_in_late.h - Makes the stand-in for a GPU one that works beside the host, and whose waits
 * end late.
 *
 * Launches, copies within the device and reads of the cache take their time after what was queued
 * before; an event has the time at which the device comes to it, and waiting for it ends then or
 * later.  What the emulator computes is done while it is launched. */
#ifndef QM_SUPPORT_STAND_IN_LATE_H
#define QM_SUPPORT_STAND_IN_LATE_H

#include <math.h>

#include "core/base/clock.h"
#include "core/base/philox.h"
#include "tests/support/stand_in_gpu.h"

/* Seconds: of a launch, of a read of the cache, and by which each wait is late; of waits one in
 * `often` (0: none) is late by up to `more` besides.  jitter: shares by which launches are longer,
 * at most; step: milliseconds of the device's clock (0: any). */
static struct stand_in_late {
    double launch, read, wait, more, jitter, step;
    int often;
    uint64_t seed;
} stand_in_late;

static double late_end;     /* by qm_seconds(), of all that was queued */
static uint64_t late_drawn; /* numbers so far */

static double late_draw(void)
{
    enum { STREAM = 0x6c617465 };
    return 0x1p-32 * (double)qm_philox_stream(stand_in_late.seed, STREAM, late_drawn++);
}
static void late_work(double seconds)
{
    late_end = fmax(late_end, qm_seconds());
    late_end += seconds * (1.0 + stand_in_late.jitter * late_draw());
}
static void late_sleep(double until)
{
    for (double left; (left = until - qm_seconds()) > 0.0;)
        usleep((useconds_t)(1e6 * left) + 1);
}
static int late_LaunchKernel(void *function, XYZ(grid), XYZ(block), unsigned shared, void *stream,
                             void **args, void **extra)
{
    int was_recording = is_recording;
    int e = cu_LaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                            stream, args, extra);
    if (!was_recording)
        late_work(function == &stand_in_reader ? stand_in_late.read : stand_in_late.launch);
    return e;
}
static int late_GraphLaunch(void *executable, void *stream)
{
    int e = cu_GraphLaunch(executable, stream);
    for (int i = 0; i < ((struct recording *)executable)->n; i++)
        late_work(stand_in_late.launch);
    return e;
}
static int late_MemcpyDtoDAsync(qm_device_pointer to, qm_device_pointer from, size_t bytes,
                                void *stream)
{
    int e = cu_MemcpyDtoDAsync(to, from, bytes, stream);
    late_work(stand_in_late.launch);
    return e;
}
static int late_MemcpyDtoHAsync(void *to, qm_device_pointer from, size_t bytes, void *stream)
{
    late_sleep(late_end);
    return cu_MemcpyDtoHAsync(to, from, bytes, stream);
}
static int late_EventRecord(void *event, void *stream)
{
    struct stand_in_event *at = event;
    int e = cu_EventRecord(event, stream);
    double t = fmax(late_end, qm_seconds());
    at->at.tv_sec = (time_t)t;
    at->at.tv_nsec = (long)(1e9 * (t - floor(t)));
    return e;
}
static int late_EventSynchronize(void *event)
{
    const struct stand_in_event *at = event;
    int e = cu_EventSynchronize(event);
    double more = stand_in_late.often && late_draw() * stand_in_late.often < 1.0
                      ? stand_in_late.more * late_draw()
                      : 0.0;
    late_sleep((double)at->at.tv_sec + 1e-9 * (double)at->at.tv_nsec + stand_in_late.wait + more);
    return e;
}
static int late_EventElapsedTime(float *ms, void *from, void *to)
{
    int e = cu_EventElapsedTime(ms, from, to);
    if (stand_in_late.step > 0.0)
        *ms = (float)(stand_in_late.step * floor((double)*ms / stand_in_late.step + 0.5));
    return e;
}

static void *late_symbol(const char *name)
{
    static const struct stand_in_symbol table[] = {
        {"cuLaunchKernel", (void (*)(void))late_LaunchKernel},
        {"cuGraphLaunch", (void (*)(void))late_GraphLaunch},
        {"cuMemcpyDtoDAsync_v2", (void (*)(void))late_MemcpyDtoDAsync},
        {"cuMemcpyDtoHAsync_v2", (void (*)(void))late_MemcpyDtoHAsync},
        {"cuEventRecord", (void (*)(void))late_EventRecord},
        {"cuEventSynchronize", (void (*)(void))late_EventSynchronize},
        {"cuEventElapsedTime", (void (*)(void))late_EventElapsedTime}};
    void *at = stand_in_symbol(table, sizeof table / sizeof *table, name);
    return at ? at : cu_symbol(name);
}

/* Puts this device before the stand-in; called before stand_in_open. */
static inline void stand_in_be_late(void) { qm_library_stand_in(QM_LIBRARY_cuda, late_symbol); }

#endif
