/* texts.c - The embedded texts of the report: page.css, page.js and the plotting scripts. */
#include "experiments/report/texts.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

static const struct {
    const char *name;
    const char *const *lines;
} texts[] = {
#define QM_TEXT(name, ...) {name, (const char *const[]){__VA_ARGS__}},
#include "report.inc"
#undef QM_TEXT
};

enum { TEXTS = sizeof texts / sizeof *texts };

void qm_report_text(const char *name, FILE *to)
{
    for (int i = 0; i < TEXTS; i++)
        for (const char *const *line = texts[i].lines; strcmp(texts[i].name, name) == 0 && *line;)
            fputs(*line++, to);
}

qm_status qm_report_scripts(const char *folder)
{
    for (int i = 0; i < TEXTS; i++) {
        char path[PATH_MAX];
        const char *dot = strrchr(texts[i].name, '.');
        if (!dot || strcmp(dot, ".py") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, texts[i].name);
        FILE *f = fopen(path, "w");
        if (f)
            qm_report_text(texts[i].name, f);
        if (!f || fclose(f) != 0)
            return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    }
    return QM_OK;
}
