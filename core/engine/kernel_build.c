/* kernel_build.c - compiles a kernel's source; the header and the templates that travel with the
 * executable. */
#include "core/engine/backend_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { WORDS = 64 };

/* ---- texts --------------------------------------------------------------------------------- */

static const struct text {
    const char *name;
    const char *const *lines;
} texts[] = {
#define QM_TEXT(name, ...) {name, (const char *const[]){__VA_ARGS__}},
#include "texts.inc"
#undef QM_TEXT
    {NULL, NULL}};

const char *qm_kernel_file_name(int i)
{
    int n = 0;
    while (texts[n].name)
        n++;
    return i >= 0 && i < n ? texts[i].name : NULL;
}

const char *const *qm_kernel_file_text(const char *name)
{
    for (const struct text *t = texts; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t->lines;
    return NULL;
}

static qm_status write_header(const char *folder, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    for (const char *const *line = qm_kernel_file_text(name); *line; line++)
        fputs(*line, f);
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
}

/* ---- the compiler -------------------------------------------------------------------------- */

/* Adds the blank-separated words of text (cut in place) to argv. */
static int add_words(char **argv, int n, char *text)
{
    for (char *word, *rest = text; rest && (word = strsep(&rest, " \t"));)
        if (*word && n < WORDS - 8)
            argv[n++] = word;
    return n;
}

/* Runs argv with its standard output on ours for errors; QM_BAD_ARG when it fails. */
static qm_status run(char **argv, const char *source)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int state = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    int failed = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return qm_fail(QM_BAD_ARG, "cannot run the compiler '%s': %s (CC chooses another)", argv[0],
                       strerror(failed));
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        return qm_fail(QM_BAD_ARG, "%s does not compile (%s)", source, argv[0]);
    return QM_OK;
}

qm_status qm_kernel_file_build(const char *source, const char *folder, char *object, size_t size)
{
    const char *cc = getenv("CC"), *more = getenv("CFLAGS");
    char compiler[512], flags[1024], include[PATH_MAX + 2], *argv[WORDS + 1] = {NULL};
    char fixed[] = "-std=c11 -O2 -ffp-contract=off -shared -fPIC";
    if (access(source, R_OK) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", source, strerror(errno));
    QM_TRY(write_header(folder, "kernel_abi.h"));
    QM_TRY(write_header(folder, "kernel_nearest.h"));
    snprintf(compiler, sizeof compiler, "%s", cc && *cc ? cc : "cc");
    snprintf(flags, sizeof flags, "%s", more ? more : "");
    snprintf(include, sizeof include, "-I%s", folder);
    snprintf(object, size, "%s/kernel.so", folder);
    int n = add_words(argv, 0, compiler);
    n = add_words(argv, n, fixed);
    n = add_words(argv, n, flags);
    char *last[] = {include, "-o", object, (char *)(uintptr_t)source, "-lm"};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        argv[n++] = last[i];
    return run(argv, source);
}
