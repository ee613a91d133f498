/* shipped_files.c - Finds the files that ship with the program, from whatever folder it is started. */
#include "experiments/machine/shipped_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether `path`, or the folder of a pattern, is there. */
static int is_there(const char *path)
{
    char folder[PATH_MAX];
    const char *end = strrchr(path, '/');
    if (!strchr(path, '*') || !end)
        return access(path, F_OK) == 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(end - path), path);
    return access(folder, F_OK) == 0;
}

/* The folder of the running program; "" where the system does not tell. */
static const char *own_folder(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    out[n > 0 ? n : 0] = 0;
    char *end = strrchr(out, '/');
    if (end)
        *end = 0;
    return out;
}

char *qm_shipped(const char *path, char *out, size_t size)
{
    static const char *const below[] = {"/../share/qualm", "", "/../.."};
    char own[PATH_MAX];
    const char *share = getenv("QUALM_SHARE");
    if (is_there(path) || path[0] == '/') {
        snprintf(out, size, "%s", path);
        return out;
    }
    if (share && *share && snprintf(out, size, "%s/%s", share, path) < (int)size && is_there(out))
        return out;
    own_folder(own, sizeof own);
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
        if (snprintf(out, size, "%s%s/%s", own, below[i], path) < (int)size && is_there(out))
            return out;
    snprintf(out, size, "%s", path);
    return out;
}
