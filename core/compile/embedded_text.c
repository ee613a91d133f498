/* embedded_text.c - Source texts that the executable carries, line by line or joined. */
#include "core/compile/embedded_text.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct lined_text {
    const char *name;
    const char *const *lines; /* ended by NULL */
};

/* ---- the device's sources -------------------------------------------------------------------- */

static const struct lined_text texts[] = {
#define QM_TEXT(path, ...) {path, (const char *const[]){__VA_ARGS__}},
#include "device.inc"
#undef QM_TEXT
};

enum { TEXTS = sizeof texts / sizeof *texts };

static char *joined[TEXTS];

static void join(void)
{
    for (int i = 0; i < TEXTS; i++) {
        size_t size = 1, at = 0;
        for (const char *const *line = texts[i].lines; *line; line++)
            size += strlen(*line);
        joined[i] = malloc(size);
        for (const char *const *line = texts[i].lines; *line && joined[i]; line++) {
            size_t n = strlen(*line);
            memcpy(joined[i] + at, *line, n);
            at += n;
        }
        if (joined[i])
            joined[i][at] = '\0';
    }
}

const char *qm_device_text_path(int i) { return i >= 0 && i < TEXTS ? texts[i].name : NULL; }

const char *qm_device_text(const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, join);
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(texts[i].name, path) == 0)
            return joined[i];
    return NULL;
}

/* ---- a user's files and the emulator's layer ------------------------------------------------- */

static const struct lined_text user_texts[] = {
#define QM_TEXT(name, ...) {name, (const char *const[]){__VA_ARGS__}},
#include "texts.inc"
#undef QM_TEXT
    {NULL, NULL}};

const char *qm_kernel_file_name(int i)
{
    int n = 0;
    while (user_texts[n].name)
        n++;
    return i >= 0 && i < n ? user_texts[i].name : NULL;
}

const char *const *qm_kernel_file_text(const char *name)
{
    for (const struct lined_text *t = user_texts; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t->lines;
    return NULL;
}

/* The texts of core/emu are for the compiler alone: qm_kernel_file_name does not list them. */
static const struct lined_text layer[] = {
#define QM_TEXT(name, ...) {name, (const char *const[]){__VA_ARGS__}},
#include "emu.inc"
#undef QM_TEXT
    {NULL, NULL}};

qm_status qm_embedded_folder(const char *folder, const char *name)
{
    char path[PATH_MAX];
    for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)(slash - name), name);
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    }
    return QM_OK;
}

qm_status qm_embedded_write(const char *folder, const char *name)
{
    char path[PATH_MAX];
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    const char *const *line = qm_kernel_file_text(base);
    for (const struct lined_text *t = layer; !line && t->name; t++)
        line = strcmp(t->name, base) == 0 ? t->lines : NULL;
    QM_TRY(qm_embedded_folder(folder, name));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    for (; line && *line; line++)
        fputs(*line, f);
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
}
