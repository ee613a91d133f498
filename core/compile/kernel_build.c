/* kernel_build.c - compiles a kernel's source; the header and the templates that travel with the
 * executable. */
#include "core/compile/build.h"
#include "core/user_kernel/backend_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

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

/* Texts of core/emu are for the compiler alone: templates do not list them. */
static const struct text layer[] = {
#define QM_TEXT(name, ...) {name, (const char *const[]){__VA_ARGS__}},
#include "emu.inc"
#undef QM_TEXT
    {NULL, NULL}};

qm_status qm_text_folder(const char *folder, const char *name)
{
    char path[PATH_MAX];
    for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)(slash - name), name);
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    }
    return QM_OK;
}

qm_status qm_text_write(const char *folder, const char *name)
{
    char path[PATH_MAX];
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    const char *const *line = qm_kernel_file_text(base);
    for (const struct text *t = layer; !line && t->name; t++)
        line = strcmp(t->name, base) == 0 ? t->lines : NULL;
    QM_TRY(qm_text_folder(folder, name));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    for (; line && *line; line++)
        fputs(*line, f);
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
}

/* ---- the compiler -------------------------------------------------------------------------- */

void qm_command_add(struct qm_command *c, const char *word)
{
    if (c->n < QM_BUILD_WORDS)
        c->argv[c->n++] = (char *)(uintptr_t)word;
    c->argv[c->n] = NULL;
}

void qm_command_words(struct qm_command *c, char *text)
{
    for (char *word, *rest = text; rest && (word = strsep(&rest, " \t"));)
        if (*word && c->n < QM_BUILD_WORDS - 16)
            qm_command_add(c, word);
}

qm_status qm_command_start(struct qm_command *c, const char *hint, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    int failed = posix_spawnp(pid, c->argv[0], &actions, NULL, c->argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? qm_fail(QM_BAD_ARG, "cannot run the compiler '%s': %s (%s)", c->argv[0],
                            strerror(failed), hint)
                  : QM_OK;
}

qm_status qm_command_wait(const struct qm_command *c, pid_t pid, const char *source)
{
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        return qm_fail(QM_BAD_ARG, "%s does not compile (%s)", source, c->argv[0]);
    return QM_OK;
}

qm_status qm_command_run(struct qm_command *c, const char *source, const char *hint)
{
    pid_t pid;
    QM_TRY(qm_command_start(c, hint, &pid));
    return qm_command_wait(c, pid, source);
}

static int is_cuda(const char *source)
{
    size_t n = strlen(source);
    return n > 3 && strcmp(source + n - 3, ".cu") == 0;
}

qm_status qm_kernel_file_build(const char *source, const char *folder, char *object, size_t size)
{
    const char *cc = getenv("CC"), *more = getenv("CFLAGS");
    char compiler[512], flags[1024], include[PATH_MAX + 2];
    char fixed[] = "-std=c11 -O2 -ffp-contract=off -shared -fPIC";
    struct qm_command c = {0};
    if (access(source, R_OK) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", source, strerror(errno));
    if (is_cuda(source))
        return qm_emu_build(source, folder, "", object, size);
    QM_TRY(qm_text_write(folder, "kernel_abi.h"));
    QM_TRY(qm_text_write(folder, "kernel_nearest.h"));
    snprintf(compiler, sizeof compiler, "%s", cc && *cc ? cc : "cc");
    snprintf(flags, sizeof flags, "%s", more ? more : "");
    snprintf(include, sizeof include, "-I%s", folder);
    snprintf(object, size, "%s/kernel.so", folder);
    qm_command_words(&c, compiler);
    qm_command_words(&c, fixed);
    qm_command_words(&c, flags);
    const char *last[] = {include, "-o", object, source, "-lm"};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        qm_command_add(&c, last[i]);
    return qm_command_run(&c, source, "CC chooses another");
}
