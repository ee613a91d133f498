/* stand_in_nvml.h - A stand-in for NVML that answers, or misbehaves as `stand_in_nvml` says. */
#ifndef QM_SUPPORT_STAND_IN_NVML_H
#define QM_SUPPORT_STAND_IN_NVML_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cuda/cuda_load.h"
#include "tests/support/stand_in_symbol.h"

enum stand_in_nvml_how {
    STAND_IN_NVML_GOOD,
    STAND_IN_NVML_ERROR,
    STAND_IN_NVML_HANG,
    STAND_IN_NVML_STOP,
    STAND_IN_NVML_CRASH,
    STAND_IN_NVML_LEAVE,
    STAND_IN_NVML_CLOSE, /* it closes every descriptor, and hangs */
    STAND_IN_NVML_LIE
};

/* What happens at a call of that name; from: at which question of a process, the first is 0. */
static struct {
    const char *call;
    enum stand_in_nvml_how how;
    int from;
} stand_in_nvml;
static int stand_in_nvml_questions;

/* Returns the call's error; *lies: it is to say what no GPU has. */
static int stand_in_nvml_call(const char *name, int *lies)
{
    *lies = 0;
    if (!stand_in_nvml.call || strcmp(name, stand_in_nvml.call) != 0 ||
        stand_in_nvml_questions < stand_in_nvml.from)
        return 0;
    switch (stand_in_nvml.how) {
    case STAND_IN_NVML_GOOD: return 0;
    case STAND_IN_NVML_ERROR: return 18;
    case STAND_IN_NVML_LIE: *lies = 1; return 0;
    case STAND_IN_NVML_STOP: raise(SIGSTOP); return 0;
    case STAND_IN_NVML_CRASH: raise(SIGSEGV); return 0;
    case STAND_IN_NVML_LEAVE: exit(0);
    case STAND_IN_NVML_CLOSE:
        for (int i = 0; i < 256; i++)
            close(i);
        break;
    case STAND_IN_NVML_HANG: break;
    }
    for (;;)
        pause();
}

static int nv_init(void)
{
    int lies;
    return stand_in_nvml_call("nvmlInit_v2", &lies);
}
static int nv_by_pci(const char *pci, void **device)
{
    int lies, error = stand_in_nvml_call("nvmlDeviceGetHandleByPciBusId_v2", &lies);
    *device = &stand_in_nvml;
    return strcmp(pci, "none") == 0 ? 6 : error;
}
static int nv_number(const char *name, unsigned good, unsigned *to)
{
    int lies, error = stand_in_nvml_call(name, &lies);
    *to = lies ? 4000000000u : good;
    return error;
}
static int nv_clock(void *device, int which, unsigned *to)
{
    (void)device;
    return nv_number("nvmlDeviceGetClockInfo", which == 1 ? 1500 : 2600, to);
}
static int nv_most(void *device, int which, unsigned *to)
{
    (void)device;
    return nv_number("nvmlDeviceGetMaxClockInfo", which == 1 ? 1980 : 2619, to);
}
static int nv_power(void *device, unsigned *to)
{
    (void)device;
    return nv_number("nvmlDeviceGetPowerUsage", 312345, to);
}
static int nv_temperature(void *device, int which, unsigned *to)
{
    (void)device, (void)which;
    int error = nv_number("nvmlDeviceGetTemperature", 50, to);
    stand_in_nvml_questions++; /* it is the last call of one */
    return error;
}
static int nv_driver(char *text, unsigned n)
{
    int lies, error = stand_in_nvml_call("nvmlSystemGetDriverVersion", &lies);
    if (lies)
        memset(text, 0xff, n);
    else
        snprintf(text, n, "580.65.06");
    return error;
}

static void *nv_symbol(const char *name)
{
    static const struct stand_in_symbol table[] = {
        {"nvmlInit_v2", (void (*)(void))nv_init},
        {"nvmlDeviceGetHandleByPciBusId_v2", (void (*)(void))nv_by_pci},
        {"nvmlDeviceGetClockInfo", (void (*)(void))nv_clock},
        {"nvmlDeviceGetMaxClockInfo", (void (*)(void))nv_most},
        {"nvmlDeviceGetPowerUsage", (void (*)(void))nv_power},
        {"nvmlDeviceGetTemperature", (void (*)(void))nv_temperature},
        {"nvmlSystemGetDriverVersion", (void (*)(void))nv_driver},
    };
    return stand_in_symbol(table, sizeof table / sizeof *table, name);
}

#endif
