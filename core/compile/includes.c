/* includes.c - Follows the #include lines of a source. */
#include "core/compile/includes.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/sha256.h"
#include "core/compile/kernel_build.h"

enum { FILES = 512, FOLDERS = 32 };

struct search {
    struct qm_sha256 hash;
    char *file[FILES]; /* real paths of the files taken */
    int n, is_whole, n_folders;
    const char *folder[FOLDERS];
};

static qm_status follow(struct search *s, const char *path, const char *text);

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
            s->is_whole = 0;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            const char *folder = value_of(options[i], names[k]);
            if (folder && !*folder)
                folder = options[i + 1];
            if (!folder)
                continue;
            if (s->n_folders < FOLDERS)
                s->folder[s->n_folders++] = folder;
            else
                s->is_whole = 0;
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
        s->is_whole = 0;
        return QM_OK;
    }
    s->file[s->n] = strdup(real);
    if (!s->file[s->n++])
        return qm_fail(QM_NO_MEMORY, "%s", path);
    QM_TRY(qm_build_read(path, &text, &size));
    qm_sha256_add(&s->hash, path, strlen(path) + 1);
    qm_sha256_add(&s->hash, &size, sizeof size);
    qm_sha256_add(&s->hash, text, size);
    qm_status status = follow(s, path, text);
    free(text);
    return status;
}

/* Takes the file that a line names: beside the file it stands in, then in the folders. */
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

static qm_status directive(struct search *s, const char *path, const char *at)
{
    char name[PATH_MAX];
    at += strspn(at, " \t");
    if (strncmp(at, "include", 7) != 0 || isalnum((unsigned char)at[7]) || at[7] == '_')
        return QM_OK;
    at += 7 + strspn(at + 7, " \t");
    const char *end =
        *at == '"' || *at == '<' ? strpbrk(at + 1, *at == '<' ? ">\n" : "\"\n") : NULL;
    if (!end || *end == '\n') {
        s->is_whole = 0;
        return QM_OK;
    }
    snprintf(name, sizeof name, "%.*s", (int)(end - at - 1), at + 1);
    return find(s, path, name, *at == '"');
}

static qm_status follow(struct search *s, const char *path, const char *text)
{
    char *lines = plain(text);
    qm_status st = lines ? QM_OK : qm_fail(QM_NO_MEMORY, "%s", path);
    if (lines && (strstr(lines, "__has_include") || strstr(lines, "R\"")))
        s->is_whole = 0;
    for (const char *at = lines; st == QM_OK && at && *at;) {
        const char *first = at + strspn(at, " \t");
        if (*first == '#')
            st = directive(s, path, first + 1);
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    free(lines);
    return st;
}

qm_status qm_includes_hash(const char *path, const char *text, const char *const *options,
                           char hex[65], int *is_whole)
{
    struct search *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    s->is_whole = 1;
    qm_sha256_start(&s->hash);
    read_options(s, options);
    qm_status st = follow(s, path, text);
    qm_sha256_hex(&s->hash, hex);
    *is_whole = s->is_whole;
    for (int i = 0; i < s->n; i++)
        free(s->file[i]);
    free(s);
    return st;
}
