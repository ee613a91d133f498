/* memory.c - How much memory is free. */
#include "core/base/memory.h"

#include <stdio.h>

size_t qm_memory_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *in = fopen("/proc/meminfo", "re");
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (in)
        fclose(in);
    return (size_t)kib << 10;
}
