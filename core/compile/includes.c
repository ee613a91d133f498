/* includes.c - Follows the #include lines of a source. */
#include "core/compile/includes.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/sha256.h"
#include "core/compile/kernel_build.h"

enum { FILES = 512, FOLDERS = 32 };

struct search {
    struct qm_sha256 hash;
    char *file[FILES]; /* real paths of the files taken */
    int n, n_folders;
    const char *folder[FOLDERS];
    char *why; /* of size QM_INCLUDES_WHY; "": all files are known so far */
};

/* White space within a line. */
#define BLANKS " \t\v\f\r"

static qm_status follow(struct search *s, const char *path, const char *text);

/* Keeps the first reason why the files are not known; of n bytes of `what`. */
static void not_known(struct search *s, const char *path, const char *what, size_t n)
{
    if (!*s->why)
        snprintf(s->why, QM_INCLUDES_WHY, "%s%s%.*s", path, *path ? ": " : "", (int)n, what);
}
#define NOT_KNOWN(s, path, text) not_known(s, path, text, strlen(text))

static const char *value_of(const char *option, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(option, name, n) != 0)
        return NULL;
    return option + n + (option[n] == '=');
}

static void read_options(struct search *s, const char *const *options)
{
    static const char *const names[] = {"--include-path", "-I"};
    for (int i = 0; options && options[i]; i++) {
        if (value_of(options[i], "--pre-include") || value_of(options[i], "-include"))
            NOT_KNOWN(s, "", options[i]);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            const char *folder = value_of(options[i], names[k]);
            if (folder && !*folder)
                folder = options[i + 1];
            if (!folder)
                continue;
            if (s->n_folders < FOLDERS)
                s->folder[s->n_folders++] = folder;
            else
                NOT_KNOWN(s, "", "too many folders of included files");
            break;
        }
    }
}

static qm_status take(struct search *s, const char *path, int *is_there)
{
    char real[PATH_MAX], *text;
    size_t size;
    struct stat st;
    *is_there = stat(path, &st) == 0 && S_ISREG(st.st_mode) && realpath(path, real);
    if (!*is_there)
        return QM_OK;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->file[i], real) == 0)
            return QM_OK;
    if (s->n == FILES) {
        NOT_KNOWN(s, "", "too many included files");
        return QM_OK;
    }
    s->file[s->n] = strdup(real);
    if (!s->file[s->n++])
        return qm_fail(QM_NO_MEMORY, "%s", path);
    QM_TRY(qm_build_read(path, &text, &size));
    qm_sha256_add(&s->hash, path, strlen(path) + 1);
    qm_sha256_add(&s->hash, &size, sizeof size);
    qm_sha256_add(&s->hash, text, size);
    if (strlen(text) != size)
        NOT_KNOWN(s, path, "a NUL byte");
    qm_status status = follow(s, path, text);
    free(text);
    return status;
}

/* Takes the file that a line names: in quotes, beside the file it stands in, then in the
 * folders. */
static qm_status find(struct search *s, const char *from, const char *name, int is_quoted)
{
    char path[2 * PATH_MAX];
    const char *slash = strrchr(from, '/');
    int is_there = 0;
    if (is_quoted) {
        snprintf(path, sizeof path, "%.*s%.*s", slash ? (int)(slash + 1 - from) : 0, from, PATH_MAX,
                 name);
        QM_TRY(take(s, *name == '/' ? name : path, &is_there));
    }
    for (int i = 0; i < s->n_folders && !is_there; i++) {
        snprintf(path, sizeof path, "%.*s/%.*s", PATH_MAX - 2, s->folder[i], PATH_MAX, name);
        QM_TRY(take(s, path, &is_there));
    }
    return QM_OK;
}

/* The end of a string or of the character '"' at s; s itself where there is none. */
static const char *literal_end(const char *s)
{
    if (strncmp(s, "'\"'", 3) == 0 || strncmp(s, "'\\\"", 3) == 0)
        return s + 3;
    if (*s != '"')
        return s;
    for (s++; *s && *s != '"' && *s != '\n'; s++)
        s += *s == '\\' && s[1];
    return s + (*s == '"');
}

/* Blanks comments out, and joins lines that end in a backslash; strings stay as they are. */
static char *plain(const char *text)
{
    char *out = malloc(strlen(text) + 1), *to = out;
    for (const char *at = text; out && *at;) {
        const char *end = literal_end(at);
        if (end > at) {
            memcpy(to, at, (size_t)(end - at));
            to += end - at;
            at = end;
        } else if (at[0] == '\\' && at[1] == '\n') {
            at += 2;
        } else if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            end = strstr(at + 2, "*/");
            at = end ? end + 2 : at + strlen(at);
            *to++ = ' ';
        } else {
            *to++ = *at++;
        }
    }
    if (out)
        *to = '\0';
    return out;
}

/* Follows a directive, from behind its '#' on: #include with a name that is written out.  Of others
 * that bring in a file it is not known which. */
static qm_status directive(struct search *s, const char *path, const char *at)
{
    char name[PATH_MAX];
    at += strspn(at, BLANKS);
    int is_include = strncmp(at, "include", 7) == 0;
    if (!is_include && strncmp(at, "import", 6) != 0 && strncmp(at, "embed", 5) != 0)
        return QM_OK;
    const char *from = at, *end = NULL;
    at += is_include ? 7 + strspn(at + 7, BLANKS) : 0;
    if (*at == '"' || *at == '<')
        end = strpbrk(at + 1, *at == '<' ? ">\n" : "\"\n");
    if (!end || *end == '\n') {
        char line[128];
        snprintf(line, sizeof line, "#%.*s", (int)strcspn(from, "\n"), from);
        NOT_KNOWN(s, path, line);
        return QM_OK;
    }
    snprintf(name, sizeof name, "%.*s", (int)(end - at - 1), at + 1);
    return find(s, path, name, *at == '"');
}

/* Where the text has one of these, lines are not what they seem. */
static void find_strange(struct search *s, const char *path, const char *lines)
{
    static const char *const strange[] = {"__has_include", "__has_embed", "R\"", "\?\?=", "\?\?/"};
    for (size_t k = 0; k < sizeof strange / sizeof *strange; k++)
        if (strstr(lines, strange[k]))
            NOT_KNOWN(s, path, strange[k]);
    for (const char *at = strchr(lines, '\\'); at; at = strchr(at + 1, '\\'))
        if (at[1 + strspn(at + 1, BLANKS)] == '\n') /* which compilers do not agree on */
            NOT_KNOWN(s, path, "a backslash with white space behind it");
}

static qm_status follow(struct search *s, const char *path, const char *text)
{
    char *lines = plain(text);
    qm_status st = lines ? QM_OK : qm_fail(QM_NO_MEMORY, "%s", path);
    if (lines)
        find_strange(s, path, lines);
    for (const char *at = lines; st == QM_OK && at && *at;) {
        const char *first = at + strspn(at, BLANKS);
        if (*first == '#' || strncmp(first, "%:", 2) == 0)
            st = directive(s, path, first + 1 + (*first == '%'));
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    free(lines);
    return st;
}

qm_status qm_includes_hash(const char *path, const char *text, const char *const *options,
                           char hex[65], char why[QM_INCLUDES_WHY])
{
    struct search *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    s->why = why;
    *why = '\0';
    qm_sha256_start(&s->hash);
    read_options(s, options);
    qm_status st = follow(s, path, text);
    qm_sha256_hex(&s->hash, hex);
    for (int i = 0; i < s->n; i++)
        free(s->file[i]);
    free(s);
    return st;
}
