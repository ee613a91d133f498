/* shipped_files.c - Finds the files that ship with the program, from any folder. */
#include "experiments/machine/shipped_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/machine/bounded_glob.h"

static int is_there(const char *path, int is_pattern)
{
    glob_t found = {0};
    int is_found = access(path, F_OK) == 0, failed = 1;
    if (!is_found && is_pattern)
        failed = qm_bounded_glob(path, &found);
    is_found |= failed == 0 || failed == QM_GLOB_ENDLESS; /* whoever reads it says so */
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

/* Whether FOLDER/BELOW PATH, written together, is there and fits; writes it to out[size].  Of a
 * pattern only PATH is one: glob() is told by backslashes to take FOLDER as it is. */
static int found_in(const char *folder, const char *below, const char *path, int is_pattern,
                    char *out, size_t size)
{
    char plain[2 * PATH_MAX];
    size_t n = 0;
    for (const char *c = folder; *c && n + 2 < sizeof plain; c++) {
        if (is_pattern && strchr("[]*?\\", *c))
            plain[n++] = '\\';
        plain[n++] = *c;
    }
    plain[n] = 0;
    return snprintf(out, size, "%s/%s%s", plain, below, path) < (int)size &&
           is_there(out, is_pattern);
}

static char *find(const char *path, int is_pattern, char *out, size_t size)
{
    char own[PATH_MAX], parent[PATH_MAX];
    const char *share = getenv("QUALM_SHARE");
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = 0;
    to_parent(own);
    memcpy(parent, own, sizeof parent);
    to_parent(parent);
    if (*path && *path != '/' && !is_there(path, is_pattern)) {
        if ((share && *share && found_in(share, "", path, is_pattern, out, size)) ||
            found_in(parent, "share/qualm/", path, is_pattern, out, size) ||
            found_in(own, "", path, is_pattern, out, size))
            return out;
        to_parent(parent);
        if (found_in(parent, "", path, is_pattern, out, size))
            return out;
    }
    snprintf(out, size, "%s", path);
    return out;
}

char *qm_shipped(const char *path, char *out, size_t size) { return find(path, 0, out, size); }

char *qm_shipped_pattern(const char *path, char *out, size_t size)
{
    return find(path, 1, out, size);
}

char *qm_shipped_pattern_from(const char *folder, const char *path, char *out, size_t size)
{
    if (folder && *path != '/' && found_in(folder, "", path, 1, out, size))
        return out;
    return qm_shipped_pattern(path, out, size);
}

/* Whether the folder of a pattern is there. */
static int has_folder(const char *pattern)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(pattern, '/');
    if (!slash)
        return 1;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - pattern), pattern);
    return strpbrk(folder, "*?[") || access(folder, F_OK) == 0;
}

int qm_has_shipped_data(void)
{
    char pattern[PATH_MAX];
    return has_folder(qm_shipped_pattern(QM_SHIPPED_DATA "*.h5", pattern, sizeof pattern));
}
