/* emu_contracted.c - Counts fused multiply-adds in assembly, by the lines of the source. */
#include "core/emu/emu_contracted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 1024, PLACES = 4096 };

struct place {
    int file, line, count;
};

struct listing {
    char *file[FILES]; /* by the numbers of .file */
    struct place place[PLACES];
    int n;
};

/* Copies the last text in quotes before `end` that is a path; .file 3 "folder" "name" names two. */
static char *path_of(const char *s, const char *end)
{
    char path[2][256] = {"", ""};
    for (int k = 0; k < 2; k++) {
        const char *open = memchr(s, '"', (size_t)(end - s));
        const char *close = open ? memchr(open + 1, '"', (size_t)(end - open - 1)) : NULL;
        if (!close)
            break;
        snprintf(path[k], sizeof path[k], "%.*s", (int)(close - open - 1), open + 1);
        s = close + 1;
    }
    char *out = malloc(sizeof path);
    if (out && (!*path[1] || path[1][0] == '/'))
        snprintf(out, sizeof path, "%s", *path[1] ? path[1] : path[0]);
    else if (out)
        snprintf(out, sizeof path, "%s/%s", path[0], path[1]);
    return out;
}

static int is_fused(const char *s)
{
    static const char *const names[] = {"vfmadd", "vfmsub", "vfnmadd", "vfnmsub",
                                        "fmadd",  "fmsub",  "fnmadd",  "fnmsub"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(s, names[i], strlen(names[i])) == 0)
            return 1;
    return 0;
}

static void count(struct listing *l, int file, int line)
{
    for (int i = 0; i < l->n; i++)
        if (l->place[i].file == file && l->place[i].line == line) {
            l->place[i].count++;
            return;
        }
    if (l->n < PLACES)
        l->place[l->n++] = (struct place){file, line, 1};
}

static qm_status read_listing(const char *text, struct listing **out)
{
    struct listing *l = calloc(1, sizeof *l);
    int file = 0, line = 0;
    if (!l)
        return qm_fail(QM_NO_MEMORY, "a listing");
    for (const char *s = text, *end; *s; s = end + (*end == '\n')) {
        int k = 0, at = 0;
        end = s + strcspn(s, "\n");
        s += strspn(s, " \t");
        if (sscanf(s, ".file %d%n", &k, &at) == 1 && k >= 0 && k < FILES) {
            free(l->file[k]);
            l->file[k] = path_of(s + at, end);
        } else if (strncmp(s, ".loc", 4) == 0) {
            sscanf(s, ".loc %d %d", &file, &line);
        } else if (is_fused(s)) {
            count(l, file, line);
        }
    }
    *out = l;
    return QM_OK;
}

static void listing_free(struct listing *l)
{
    for (int i = 0; l && i < FILES; i++)
        free(l->file[i]);
    free(l);
}

static int count_at(const struct listing *l, const char *file, int line)
{
    for (int i = 0; i < l->n; i++) {
        const char *name = l->place[i].file < FILES ? l->file[l->place[i].file] : NULL;
        if (l->place[i].line == line && name && strcmp(name, file) == 0)
            return l->place[i].count;
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file) : x->line - y->line;
}

qm_status qm_emu_contracted(const char *contracted, const char *plain, struct qm_contracted *out)
{
    struct listing *with = NULL, *without = NULL;
    memset(out, 0, sizeof *out);
    qm_status st = read_listing(contracted, &with);
    if (st == QM_OK)
        st = read_listing(plain, &without);
    if (st == QM_OK)
        qsort(with->place, (size_t)with->n, sizeof *with->place, by_place);
    for (int i = 0; st == QM_OK && i < with->n; i++) {
        const struct place *p = &with->place[i];
        const char *file = p->file >= 0 && p->file < FILES ? with->file[p->file] : NULL;
        if (p->count <= count_at(without, file ? file : "?", p->line))
            continue;
        if (out->n < QM_CONTRACTED_LINES) {
            snprintf(out->at[out->n].file, sizeof out->at->file, "%s", file ? file : "?");
            out->at[out->n].line = p->line;
        }
        out->n++;
    }
    listing_free(with);
    listing_free(without);
    return st;
}
