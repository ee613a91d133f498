/* kernel_build.c - Builds a C kernel with the system's compiler, whose command lines it runs. */
#include "core/compile/kernel_build.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/compile/compiler_process.h"
#include "core/compile/embedded_text.h"
#include "core/emu/emu_fast.h"

static int wrong(struct qm_argv *c, const char *name, const char *what)
{
    if (!*c->wrong)
        snprintf(c->wrong, sizeof c->wrong, "%s: %s", name, what);
    return 0;
}

static int append(struct qm_argv *c, const char *name, const char *word)
{
    if (name ? c->n - c->n_own == QM_BUILD_WORDS : c->n_own == QM_BUILD_OWN)
        return wrong(c, name ? name : "the command line", "too many words");
    c->n_own += !name;
    c->argv[c->n++] = (char *)(uintptr_t)word;
    c->argv[c->n] = NULL;
    return 1;
}

void qm_argv_add(struct qm_argv *c, const char *name, const char *word)
{
    (void)append(c, name, word);
}

/* Reads a word from `at` on; where it ends, or NULL: it is wrong.  It is written to the text. */
static const char *read_word(struct qm_argv *c, const char *name, const char *at)
{
    char quote = '\0';
    size_t from = c->used, most = name ? QM_BUILD_TEXT : sizeof c->text;
    for (; *at && (quote || !strchr(" \t\n", *at)); at++) {
        if (c->used + 2 > most) {
            (void)wrong(c, name ? name : "the command line", "too long");
            return NULL;
        }
        if (quote ? *at == quote : *at == '\'' || *at == '"')
            quote = quote ? '\0' : *at;
        else if (*at == '\\' && at[1] && quote != '\'' && (!quote || strchr("\"\\", at[1])))
            c->text[c->used++] = *++at;
        else
            c->text[c->used++] = *at;
    }
    c->text[c->used++] = '\0';
    if (quote)
        (void)wrong(c, name, quote == '"' ? "a \" is not closed" : "a ' is not closed");
    return !quote && append(c, name, c->text + from) ? at : NULL;
}

void qm_argv_words(struct qm_argv *c, const char *name, const char *text)
{
    for (const char *at = text; at && *(at += strspn(at, " \t\n"));)
        at = read_word(c, name, at);
}

void qm_argv_compiler(struct qm_argv *c, const char *name, const char *usual)
{
    int n = c->n;
    qm_argv_words(c, name, getenv(name));
    if (c->n == n)
        qm_argv_add(c, NULL, usual);
}

qm_status qm_argv_status(const struct qm_argv *c)
{
    return *c->wrong ? qm_fail(QM_BAD_ARG, "%s", c->wrong) : QM_OK;
}

/* Starts the program, whose standard output and error are these descriptors; 0, or errno. */
static int spawn(struct qm_argv *c, int out, int err, pid_t *pid)
{
    return qm_compiler_start(c->argv, out, err, pid);
}

/* The exit code; -1: a signal ended it. */
static int code_of(pid_t pid)
{
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

qm_status qm_argv_start(struct qm_argv *c, const char *hint, pid_t *pid)
{
    QM_TRY(qm_argv_status(c));
    int failed = spawn(c, STDERR_FILENO, STDERR_FILENO, pid);
    return failed ? qm_fail(QM_BAD_ARG, "cannot run the compiler '%s': %s (%s)", c->argv[0],
                            strerror(failed), hint)
                  : QM_OK;
}

qm_status qm_argv_wait(const struct qm_argv *c, pid_t pid, const char *source)
{
    if (code_of(pid) != 0)
        return qm_fail(QM_BAD_ARG, "%s does not compile (%s)", source, c->argv[0]);
    for (int i = 1; i + 1 < c->n; i++)
        if (strcmp(c->argv[i], "-o") == 0 && access(c->argv[i + 1], F_OK) != 0)
            return qm_fail(QM_BAD_ARG,
                           "%s: %s ends without an error and writes nothing: expected "
                           "a compiler (CC, CXX)",
                           source, c->argv[0]);
    return QM_OK;
}

qm_status qm_argv_run(struct qm_argv *c, const char *source, const char *hint)
{
    pid_t pid;
    QM_TRY(qm_argv_start(c, hint, &pid));
    return qm_argv_wait(c, pid, source);
}

/* Reads all there is, of which text[size] gets the beginning. */
static void read_all(int from, char *text, size_t size)
{
    char chunk[1024];
    size_t used = 0;
    ssize_t n;
    while ((n = read(from, chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR))
        for (ssize_t i = 0; i < n && used + 1 < size; i++)
            text[used++] = chunk[i];
    text[used] = '\0';
}

int qm_argv_ask(struct qm_argv *c, char *text, size_t size)
{
    int pipe[2] = {-1, -1}, code = -1, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t pid;
    int is_open = null >= 0 && (!text || pipe2(pipe, O_CLOEXEC) == 0);
    if (text)
        *text = '\0';
    int has_run = is_open && !*c->wrong && spawn(c, text ? pipe[1] : null, null, &pid) == 0;
    if (pipe[1] >= 0)
        close(pipe[1]);
    if (has_run && text)
        read_all(pipe[0], text, size);
    if (has_run)
        code = code_of(pid);
    if (pipe[0] >= 0)
        close(pipe[0]);
    if (null >= 0)
        close(null);
    return code;
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
    char include[PATH_MAX + 2];
    struct qm_argv c = {0};
    if (access(source, R_OK) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", source, strerror(errno));
    if (is_cuda(source)) {
        const char *form = qm_fmad_used() == QM_FMAD_true ? qm_emu_fast_flags() : "";
        return form ? qm_emu_build(source, folder, form, object, size)
                    : qm_fail(QM_SKIPPED, "contracted code wants a processor with fma");
    }
    QM_TRY(qm_embedded_write(folder, "kernel_abi.h"));
    QM_TRY(qm_embedded_write(folder, "kernel_nearest.h"));
    snprintf(include, sizeof include, "-I%s", folder);
    snprintf(object, size, "%s/kernel.so", folder);
    qm_argv_compiler(&c, "CC", "cc");
    qm_argv_words(&c, NULL, "-std=c11 -O2 -ffp-contract=off -shared -fPIC");
    if (integers_wrap)
        qm_argv_add(&c, NULL, "-fwrapv");
    qm_argv_words(&c, "CFLAGS", getenv("CFLAGS"));
    const char *last[] = {include, "-o", object, source, "-lm"};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        qm_argv_add(&c, NULL, last[i]);
    return qm_argv_run(&c, source, "CC chooses another");
}
