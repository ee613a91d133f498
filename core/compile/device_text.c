/* device_text.c - lines (build/gen/device.inc) to texts. */
#include "core/compile/device_text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *path;
    const char *const *lines;
} texts[] = {
#define QM_TEXT(path, ...) {path, (const char *const[]){__VA_ARGS__}},
#include "device.inc"
#undef QM_TEXT
};

enum { TEXTS = sizeof texts / sizeof *texts };

static char *whole[TEXTS];

static void join(void)
{
    for (int i = 0; i < TEXTS; i++) {
        size_t size = 1, at = 0;
        for (const char *const *line = texts[i].lines; *line; line++)
            size += strlen(*line);
        whole[i] = malloc(size);
        for (const char *const *line = texts[i].lines; *line && whole[i]; line++) {
            size_t n = strlen(*line);
            memcpy(whole[i] + at, *line, n);
            at += n;
        }
        if (whole[i])
            whole[i][at] = '\0';
    }
}

const char *qm_device_text_path(int i) { return i >= 0 && i < TEXTS ? texts[i].path : NULL; }

const char *qm_device_text(const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, join);
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(texts[i].path, path) == 0)
            return whole[i];
    return NULL;
}
