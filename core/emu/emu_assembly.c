/* emu_assembly.c - Reads unoptimized assembly: which symbols there are, and what names them. */
#include "core/emu/emu_assembly.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/fnv1a.h"
#include "core/emu/emu_device.h"

/* ---- symbols -------------------------------------------------------------------------------- */

int qm_asm_is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.'; }

int qm_asm_name_length(const char *s)
{
    int n = 0;
    while (qm_asm_is_name(s[n]))
        n++;
    return n;
}

static unsigned int hash(const char *s, int n)
{
    return (unsigned int)qm_fnv1a(QM_FNV1A, s, (size_t)n);
}

static int grow_table(struct qm_assembly *r)
{
    int size = r->table_size ? 2 * r->table_size : 4096;
    int *table = malloc(sizeof *table * (size_t)size);
    struct qm_symbol *more = realloc(r->symbol, sizeof *more * (size_t)size / 2);
    if (more)
        r->symbol = more;
    if (!table || !more) {
        free(table);
        r->failed = 1;
        return 0;
    }
    for (int i = 0; i < size; i++)
        table[i] = -1;
    for (int i = 0; i < r->n_symbols; i++) {
        unsigned int k = hash(r->symbol[i].name, r->symbol[i].n) % (unsigned int)size;
        while (table[k] >= 0)
            k = (k + 1) % (unsigned int)size;
        table[k] = i;
    }
    free(r->table);
    r->table = table;
    r->table_size = size;
    r->room = size / 2;
    return 1;
}

/* The number of a symbol, which is added where it is new; -1: there is no memory. */
static int symbol_of(struct qm_assembly *r, const char *name, int n)
{
    if (r->n_symbols == r->room && !grow_table(r))
        return -1;
    unsigned int k = hash(name, n) % (unsigned int)r->table_size;
    for (; r->table[k] >= 0; k = (k + 1) % (unsigned int)r->table_size) {
        const struct qm_symbol *s = &r->symbol[r->table[k]];
        if (s->n == n && memcmp(s->name, name, (size_t)n) == 0)
            return r->table[k];
    }
    r->symbol[r->n_symbols] = (struct qm_symbol){.name = name, .n = n, .alias = -1};
    return r->table[k] = r->n_symbols++;
}

static void add_use(struct qm_assembly *r, const char *name, int n, int is_call, int is_address)
{
    if (r->n_uses == r->use_room) {
        int room = 2 * r->use_room + 1024;
        struct qm_symbol_use *more = realloc(r->use, sizeof *more * (size_t)room);
        if (!more) {
            r->failed = 1;
            return;
        }
        r->use = more;
        r->use_room = room;
    }
    int what = symbol_of(r, name, n);
    if (what >= 0)
        r->use[r->n_uses++] =
            (struct qm_symbol_use){what, is_call, is_address, r->at_file, r->at_line};
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Whether a line marker, # 12 "path" 3, names this path; *is_system: a system header. */
static int marker_is(const char *s, const char *path, int *is_system)
{
    const char *from = strchr(s, '"'), *line_end = s + strcspn(s, "\n");
    const char *to = from ? strchr(from + 1, '"') : NULL;
    if (!to || to > line_end)
        return 0;
    size_t n = (size_t)(to - from - 1), m = strlen(path);
    *is_system = memchr(to, '3', (size_t)(line_end - to)) != NULL;
    return n <= m && memcmp(path + m - n, from + 1, n) == 0 && (n == m || path[m - n - 1] == '/');
}

/* The next line marker of the preprocessed text from s on, or NULL. */
static const char *next_marker(const char *s)
{
    for (; s; s = (s = strchr(s, '\n')) ? s + 1 : NULL)
        if (s[0] == '#' && s[1] == ' ' && isdigit((unsigned char)s[2]))
            return s;
    return NULL;
}

/* The first marker of a file counts: a pragma makes no system header of a user's file, and lines
 * that macros of system headers made have such markers too.  The first of all is of the source
 * itself, which may stand in the layer's folder. */
static int is_users_file(const struct qm_assembly *r, const char *path)
{
    int is_system;
    const char *s = next_marker(r->text);
    if (strncmp(path, r->layer, strlen(r->layer)) == 0 && !(s && marker_is(s, path, &is_system)))
        return 0;
    for (; s; s = next_marker(s + 1))
        if (marker_is(s, path, &is_system))
            return !is_system;
    return 0;
}

/* .file 1 "path", .file 1 "folder" "name" */
static void add_file(struct qm_assembly *r, const char *s)
{
    char *end, path[2][1024] = {"", ""}, whole[2050];
    long k = strtol(s, &end, 10);
    if (end == s || k < 0 || k >= QM_ASM_FILES)
        return;
    for (int i = 0; i < 2; i++) {
        end += strspn(end, " \t");
        if (*end != '"')
            break;
        int n = (int)strcspn(end + 1, "\"\n");
        snprintf(path[i], sizeof path[i], "%.*s", n, end + 1);
        end += n + 2;
    }
    snprintf(whole, sizeof whole, "%s%s%s", *path[1] == '/' ? "" : path[0],
             *path[1] && *path[1] != '/' ? "/" : "", path[1]);
    free(r->file[k].path);
    r->file[k].path = strdup(whole);
    r->file[k].is_users = is_users_file(r, whole);
}

/* The text of a line of a user's file in the preprocessed source, or NULL. */
const char *qm_asm_line(const struct qm_assembly *r, int file, int line)
{
    int is_system;
    for (const char *s = next_marker(r->text); s;) {
        const char *next = next_marker(s + 1), *at = strchr(s, '\n');
        long number = strtol(s + 2, NULL, 10);
        if (at && marker_is(s, r->file[file].path, &is_system))
            for (at++; *at && at != next; number++) {
                if (number == line)
                    return at;
                at += strcspn(at, "\n");
                at += *at == '\n';
            }
        s = next;
    }
    return NULL;
}

/* ---- lines of the assembly ------------------------------------------------------------------- */

static int starts(const char *s, const char *word)
{
    size_t n = strlen(word);
    return strncmp(s, word, n) == 0 && !qm_asm_is_name(s[n]);
}

/* The power of two of an .align, .balign or .p2align; .align counts bytes or is a power. */
static int power_of(const char *s, int is_power)
{
    long n = strtol(s, NULL, 0);
    int power = 0;
    if (is_power || n < 32)
        return (int)n;
    while (n > 1) {
        n /= 2;
        power++;
    }
    return power;
}

static int mark_of(int power)
{
    return power >= QM_MARK_DEVICE && power <= QM_MARK_BOTH ? power : 0;
}

static void directive(struct qm_assembly *r, const char *s)
{
    const char *args = s + strcspn(s, " \t\n");
    args += strspn(args, " \t");
    int n = qm_asm_name_length(args), k;
    const char *rest = args + n + strspn(args + n, " \t");
    if (starts(s, ".file"))
        add_file(r, args);
    else if (starts(s, ".loc")) {
        char *end;
        r->at_file = (int)strtol(args, &end, 10) % QM_ASM_FILES;
        r->at_line = (int)strtol(end, NULL, 10);
        struct qm_symbol *f = r->current >= 0 ? &r->symbol[r->current] : NULL;
        if (f && !f->file) {
            f->file = r->at_file;
            f->line = r->at_line;
        }
    } else if (starts(s, ".align") || starts(s, ".balign") || starts(s, ".p2align")) {
        int power = power_of(args, s[1] == 'p');
        r->power = power > r->power ? power : r->power;
    } else if (starts(s, ".section") || starts(s, ".text") || starts(s, ".data") ||
               starts(s, ".bss")) {
        r->is_read_only = starts(s, ".section") && (strncmp(args, ".rodata", 7) == 0 ||
                                                    strncmp(args, ".data.rel.ro", 12) == 0);
    } else if (*rest == ',' && n && (k = symbol_of(r, args, n)) >= 0) {
        const char *value = rest + 1 + strspn(rest + 1, " \t");
        if (starts(s, ".type"))
            r->symbol[k].kind =
                strncmp(value + 1, "function", 8) == 0 ? QM_SYMBOL_function : QM_SYMBOL_variable;
        else if (starts(s, ".size"))
            r->symbol[k].size = strtol(value, NULL, 10);
        else if (starts(s, ".comm")) {
            char *end;
            r->symbol[k].kind = QM_SYMBOL_variable;
            r->symbol[k].is_defined = 1;
            r->symbol[k].size = strtol(value, &end, 10);
            r->symbol[k].mark = mark_of(*end == ',' ? power_of(end + 1, 0) : 0);
        } else if (starts(s, ".set")) {
            int other = symbol_of(r, value, qm_asm_name_length(value));
            r->symbol[k].alias = other;
        }
    } else if (starts(s, ".cfi_endproc")) {
        if (r->current >= 0)
            r->symbol[r->current].last_use = r->n_uses;
        r->current = -1;
    }
}

static void label(struct qm_assembly *r, const char *s, int n)
{
    int k = symbol_of(r, s, n);
    if (k < 0 || *s == '.')
        return;
    struct qm_symbol *x = &r->symbol[k];
    x->is_defined = 1;
    x->mark = mark_of(r->power);
    x->is_read_only = r->is_read_only;
    r->power = 0;
    if (x->kind == QM_SYMBOL_function) {
        r->current = k;
        x->first_use = x->last_use = r->n_uses;
        x->file = 0;
    }
}

static void instruction(struct qm_assembly *r, const char *s)
{
    int n = qm_asm_name_length(s);
    int is_address = strncmp(s, "lea", 3) == 0;
    int is_call = strncmp(s, "call", 4) == 0 || strncmp(s, "jmp", 3) == 0 || starts(s, "bl") ||
                  starts(s, "b");
    for (s += n; *s && *s != '\n' && *s != '#';) {
        if (!qm_asm_is_name(*s) || isdigit((unsigned char)*s) || s[-1] == '%' || s[-1] == '@') {
            s += qm_asm_is_name(*s) ? qm_asm_name_length(s) : 1;
            continue;
        }
        n = qm_asm_name_length(s);
        if (*s != '.')
            add_use(r, s, n, is_call, is_address);
        s += n;
    }
}

void qm_asm_free(struct qm_assembly *r)
{
    if (!r)
        return;
    for (int i = 0; i < QM_ASM_FILES; i++)
        free(r->file[i].path);
    free(r->symbol);
    free(r->use);
    free(r->table);
    free(r);
}

qm_status qm_asm_read(const char *assembly, const char *text, const char *layer,
                      struct qm_assembly **out)
{
    struct qm_assembly *r = calloc(1, sizeof *r);
    if (!r)
        return qm_fail(QM_NO_MEMORY, "a reader of assembly");
    r->text = text;
    r->layer = layer;
    r->current = -1;
    for (const char *s = assembly; *s && !r->failed; s += *s == '\n') {
        const char *at = s + strspn(s, " \t");
        int n = qm_asm_name_length(at);
        if (n && at[n] == ':')
            label(r, at, n);
        else if (n && *at == '.')
            directive(r, at);
        else if (n && r->current >= 0)
            instruction(r, at);
        else if (n && at[n] == ' ' && at[n + 1] == '=') { /* a = b */
            int k = symbol_of(r, at, n);
            const char *other = at + n + 2 + strspn(at + n + 2, " ");
            int to = symbol_of(r, other, qm_asm_name_length(other));
            if (k >= 0)
                r->symbol[k].alias = to;
        }
        s += strcspn(s, "\n");
    }
    if (r->failed) {
        qm_asm_free(r);
        return qm_fail(QM_NO_MEMORY, "symbols of a kernel");
    }
    *out = r;
    return QM_OK;
}
