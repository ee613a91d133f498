/* kernel_build.c - Builds a C kernel with the system's compiler, whose command lines it runs. */
#include "core/compile/kernel_build.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/compile/embedded_text.h"
#include "core/emu/emu_fast.h"

extern char **environ;

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

static int integers_wrap;

void qm_kernel_build_wraps(int wraps) { integers_wrap = wraps; }

qm_status qm_kernel_file_build(const char *source, const char *folder, char *object, size_t size)
{
    const char *cc = getenv("CC"), *more = getenv("CFLAGS");
    char compiler[512], flags[1024], include[PATH_MAX + 2];
    char fixed[] = "-std=c11 -O2 -ffp-contract=off -shared -fPIC";
    struct qm_command c = {0};
    if (access(source, R_OK) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", source, strerror(errno));
    if (is_cuda(source)) {
        const char *form = qm_fmad_used() == QM_FMAD_true ? qm_emu_fast_flags() : "";
        char words[2400], taken[1024], left[1024];
        qm_cuda_flags_emulated(taken, left, sizeof taken);
        snprintf(words, sizeof words, "%s %s", form ? form : "", taken);
        return form ? qm_emu_build(source, folder, words, object, size)
                    : qm_fail(QM_SKIPPED, "contracted code wants a processor with fma");
    }
    QM_TRY(qm_embedded_write(folder, "kernel_abi.h"));
    QM_TRY(qm_embedded_write(folder, "kernel_nearest.h"));
    snprintf(compiler, sizeof compiler, "%s", cc && *cc ? cc : "cc");
    snprintf(flags, sizeof flags, "%s", more ? more : "");
    snprintf(include, sizeof include, "-I%s", folder);
    snprintf(object, size, "%s/kernel.so", folder);
    qm_command_words(&c, compiler);
    qm_command_words(&c, fixed);
    if (integers_wrap)
        qm_command_add(&c, "-fwrapv");
    qm_command_words(&c, flags);
    const char *last[] = {include, "-o", object, source, "-lm"};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        qm_command_add(&c, last[i]);
    return qm_command_run(&c, source, "CC chooses another");
}
