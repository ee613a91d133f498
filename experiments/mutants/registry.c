/* registry.c - Reads the lists of mutants and applies their changes to the templates. */
#include "experiments/mutants/registry.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/name.h"
#include "experiments/kernel/template.h"

static const char *const regime_names[] = {
#define X(name, parts, text) #name,
    QM_MUTANT_REGIME_LIST(X)
#undef X
};
static const char *const regime_parts[] = {
#define X(name, parts, text) parts,
    QM_MUTANT_REGIME_LIST(X)
#undef X
};
static const char *const regime_texts[] = {
#define X(name, parts, text) text,
    QM_MUTANT_REGIME_LIST(X)
#undef X
};

const char *qm_mutant_regime_name(int regime) { return regime_names[regime]; }
const char *qm_mutant_regime_text(int regime) { return regime_texts[regime]; }

void qm_mutant_regime_case(int regime, const char *shape, char *text, size_t size)
{
    snprintf(text, size, "%s/%s/forced", shape, regime_parts[regime]);
}

/* ---- one file -------------------------------------------------------------------------------- */

enum { PIECE = 4096 };

struct reader {
    struct qm_registry *r;
    const char *file;
    int line, of;                /* of: entry of the file's template; -1: not read yet */
    char from[PIECE], to[PIECE]; /* the current change: `from` is replaced by `to` */
    char last;                   /* sign of the previous line of code, or ' ' */
};

static qm_status bad(const struct reader *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static qm_status bad(const struct reader *s, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return qm_fail(QM_BAD_ARG, "%s:%d: %s", s->file, s->line, text);
}

static struct qm_mutant_entry *last_entry(const struct reader *s)
{
    return &s->r->entry[s->r->n - 1];
}

static qm_status entry_new(struct reader *s, const struct qm_mutant_entry *e)
{
    struct qm_registry *r = s->r;
    if (qm_registry_find(r, e->id))
        return bad(s, "%s is there twice", e->id);
    QM_TRY(qm_grow((void **)&r->entry, &r->room, r->n + 1, sizeof *r->entry));
    r->entry[r->n++] = *e;
    return QM_OK;
}

/* The text of the kernel that serves a variant. */
static char *template_text(const char *name)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    int is_there = f && qm_template_print(f, name);
    if ((f && fclose(f) != 0) || !is_there) {
        free(text);
        text = NULL;
    }
    return text;
}

static qm_status read_template(struct reader *s, const char *text)
{
    struct qm_mutant_entry e = {.kind = QM_MUTANT_template, .of = s->r->n, .text = "as it is"};
    if (s->of >= 0)
        return bad(s, "a second template");
    if (sscanf(text, "%39s %23s", e.template, e.shape) != 2)
        return bad(s, "expected: template NAME SHAPE");
    snprintf(e.id, sizeof e.id, "%s", e.template);
    e.source = template_text(e.template);
    if (!e.source)
        return bad(s, "there is no template %s", e.template);
    s->of = s->r->n;
    qm_status st = entry_new(s, &e);
    if (st != QM_OK)
        free(e.source);
    return st;
}

/* Reads "NAME CLASS: TEXT" of a mutant, or "NAME: TEXT" of a benign entry. */
static qm_status read_head(struct reader *s, const char *text, enum qm_mutant_kind kind)
{
    struct qm_mutant_entry e;
    char name[36], class[24] = "";
    int used = 0, benign = kind == QM_MUTANT_benign;
    if (s->of < 0)
        return bad(s, "expected the line with the template first");
    int n = benign ? sscanf(text, "%35[a-z0-9-]: %n", name, &used) + 1
                   : sscanf(text, "%35[a-z0-9-] %23[a-z0-9-]: %n", name, class, &used);
    if (n != 2 || used == 0 || !text[used])
        return bad(s, "expected: %s NAME%s: TEXT", benign ? "benign" : "mutant",
                   benign ? "" : " CLASS");
    e = s->r->entry[s->of];
    e.kind = kind;
    snprintf(e.id, sizeof e.id, "%s.%s", e.template, name);
    snprintf(e.class, sizeof e.class, "%s", benign ? "benign" : class);
    snprintf(e.text, sizeof e.text, "%s", text + used);
    e.source = strdup(s->r->entry[s->of].source);
    if (!e.source)
        return qm_fail(QM_NO_MEMORY, "%s", e.id);
    qm_status st = entry_new(s, &e);
    if (st != QM_OK)
        free(e.source);
    return st;
}

static qm_status read_within(struct reader *s, const char *text)
{
    char name[24];
    int used = 0;
    struct qm_mutant_entry *e = s->r->n ? last_entry(s) : NULL;
    if (!e || e->kind != QM_MUTANT_mutant)
        return bad(s, "'within' belongs to a mutant");
    if (sscanf(text, "%23[a-z]: %n", name, &used) != 1 || used == 0 || !text[used])
        return bad(s, "expected: within REGIME: WHY");
    int regime = qm_name_find(name, regime_names, QM_MUTANT_REGIME_COUNT);
    if (regime < 0 || e->within[regime])
        return bad(s, regime < 0 ? "no regime '%s'" : "regime '%s' is there twice", name);
    e->within[regime] = strdup(text + used);
    return e->within[regime] ? QM_OK : qm_fail(QM_NO_MEMORY, "%s", e->id);
}

static const char *skip_blanks(const char *at) { return at + strspn(at, " "); }

/* Length of the piece in the text at `at`, whatever the indentation of its lines; 0:
 * another text. */
static size_t match(const char *at, const char *piece)
{
    const char *from = at;
    for (; *piece; at++, piece++) {
        if (*at != *piece)
            return 0;
        if (*piece == '\n') {
            at = skip_blanks(at + 1) - 1;
            piece = skip_blanks(piece + 1) - 1;
        }
    }
    return (size_t)(at - from);
}

static char *find(char *at, const char *piece, size_t *length)
{
    for (; *at; at++)
        if ((*length = match(at, piece)) > 0)
            return at;
    return NULL;
}

/* Replaces the piece in the source of the last entry. */
static qm_status apply(struct reader *s)
{
    struct qm_mutant_entry *e = s->r->n ? last_entry(s) : NULL;
    if (s->last == ' ')
        return QM_OK;
    if (!e || e->kind == QM_MUTANT_template || !*s->from)
        return bad(s, "code without a mutant, or without what it replaces");
    size_t take, other, give = strlen(s->to);
    char *at = find(e->source, s->from, &take);
    if (!at || find(at + 1, s->from, &other))
        return bad(s, "%s: the source holds this %s: %s", e->id, at ? "more than once" : "nowhere",
                   s->from);
    size_t before = (size_t)(at - e->source);
    char *text = malloc(strlen(e->source) - take + give + 1);
    if (!text)
        return qm_fail(QM_NO_MEMORY, "%s", e->id);
    memcpy(text, e->source, before);
    memcpy(text + before, s->to, give);
    strcpy(text + before + give, at + take);
    free(e->source);
    e->source = text;
    s->from[0] = s->to[0] = '\0';
    s->last = ' ';
    return QM_OK;
}

/* Adds a line of code to the current change, or begins the next change. */
static qm_status read_code(struct reader *s, char sign, const char *text)
{
    if (sign == '-' && s->last == '+')
        QM_TRY(apply(s));
    char *piece = sign == '-' ? s->from : s->to;
    size_t used = strlen(piece);
    if (sign == '-' && used == 0)
        text = skip_blanks(text);
    int n = snprintf(piece + used, PIECE - used, "%s%s", sign == s->last ? "\n" : "", text);
    if (n >= (int)(PIECE - used))
        return bad(s, "a piece of at most %d characters", PIECE - 1);
    s->last = sign;
    return QM_OK;
}

static qm_status read_line(struct reader *s, const char *text)
{
    char word[12] = "";
    int used = 0;
    if ((text[0] == '-' || text[0] == '+') && (text[1] == ' ' || !text[1]))
        return read_code(s, text[0], text[1] ? text + 2 : "");
    QM_TRY(apply(s));
    if (!text[0] || text[0] == '#')
        return QM_OK;
    sscanf(text, "%11s %n", word, &used);
    if (strcmp(word, "template") == 0)
        return read_template(s, text + used);
    if (strcmp(word, "mutant") == 0)
        return read_head(s, text + used, QM_MUTANT_mutant);
    if (strcmp(word, "benign") == 0)
        return read_head(s, text + used, QM_MUTANT_benign);
    if (strcmp(word, "within") == 0)
        return read_within(s, text + used);
    return bad(s, "'%s': expected template, mutant, benign, within, -, + or #", word);
}

qm_status qm_registry_add(struct qm_registry *r, const char *file, const char *const *lines)
{
    struct reader *s = calloc(1, sizeof *s);
    qm_status st = QM_OK;
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", file);
    *s = (struct reader){.r = r, .file = file, .of = -1, .last = ' '};
    for (; st == QM_OK && *lines; lines++) {
        char *text = strndup(*lines, strcspn(*lines, "\n"));
        s->line++;
        st = text ? read_line(s, text) : qm_fail(QM_NO_MEMORY, "%s", file);
        free(text);
    }
    if (st == QM_OK)
        st = apply(s);
    free(s);
    return st;
}

/* ---- all files ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    const char *const *lines;
} files[] = {
#define QM_TEXT(name, ...) {name, (const char *const[]){__VA_ARGS__}},
#include "mutants.inc"
#undef QM_TEXT
};

qm_status qm_registry_open(struct qm_registry *r)
{
    *r = (struct qm_registry){0};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        QM_TRY(qm_registry_add(r, files[i].name, files[i].lines));
    return QM_OK;
}

void qm_registry_close(struct qm_registry *r)
{
    for (int i = 0; i < r->n; i++) {
        free(r->entry[i].source);
        for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++)
            free(r->entry[i].within[k]);
    }
    free(r->entry);
    *r = (struct qm_registry){0};
}

const struct qm_mutant_entry *qm_registry_find(const struct qm_registry *r, const char *id)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->entry[i].id, id) == 0)
            return &r->entry[i];
    return NULL;
}
