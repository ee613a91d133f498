/* shipped_files.c - Finds the files that ship with the program, from any folder. */
#include "experiments/machine/shipped_files.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether a file is there that `path`, which may be a pattern of glob, names. */
static int is_there(const char *path)
{
    glob_t found = {0};
    int is_found = access(path, F_OK) == 0 || glob(path, 0, NULL, &found) == 0;
    globfree(&found);
    return is_found;
}

/* Cuts the last part of a path off; the path of the root stays. */
static void to_parent(char *path)
{
    char *end = strrchr(path, '/');
    if (end)
        *end = 0;
}

/* Whether FOLDER/BELOW PATH, written together, is there and fits; writes it to out[size]. */
static int found_in(const char *folder, const char *below, const char *path, char *out, size_t size)
{
    return snprintf(out, size, "%s/%s%s", folder, below, path) < (int)size && is_there(out);
}

char *qm_shipped(const char *path, char *out, size_t size)
{
    char own[PATH_MAX], parent[PATH_MAX];
    const char *share = getenv("QUALM_SHARE");
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = 0;
    to_parent(own);
    memcpy(parent, own, sizeof parent);
    to_parent(parent);
    if (!is_there(path) && path[0] != '/') {
        if ((share && *share && found_in(share, "", path, out, size)) ||
            found_in(parent, "share/qualm/", path, out, size) || found_in(own, "", path, out, size))
            return out;
        to_parent(parent);
        if (found_in(parent, "", path, out, size))
            return out;
    }
    snprintf(out, size, "%s", path);
    return out;
}
