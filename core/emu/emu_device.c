/* emu_device.c - Reads unoptimized assembly: what calls and uses what, and what of it is device
 * code. */
#include "core/emu/emu_device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/emu/emu_symbol.h"

enum { FILES = 1024, CONSTANT_MOST = 16, AROUND = 6 };

/* ---- what the assembly says ------------------------------------------------------------------ */

struct symbol {
    const char *name;
    int n; /* bytes of the name */
    enum { UNKNOWN, FUNCTION, VARIABLE } kind;
    int mark, is_defined, is_read_only, alias; /* alias: another symbol's number, or -1 */
    long size;
    int file, line; /* of a function: where it begins; file 0: unknown */
    int first_use, last_use;
    int is_visited;
};

/* An instruction that names a symbol. */
struct use {
    int what, is_call, file, line;
};

struct reader {
    struct symbol *symbol;
    struct use *use;
    int n_symbols, room, n_uses, use_room, *table, table_size, failed;
    const char *text, *layer;
    struct {
        char *path;
        int is_users;
    } file[FILES];
    /* While lines are read. */
    int power, current, is_read_only, at_file, at_line;
};

static int is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.'; }

static int name_length(const char *s)
{
    int n = 0;
    while (is_name(s[n]))
        n++;
    return n;
}

static unsigned int hash(const char *s, int n)
{
    unsigned int h = 2166136261u;
    for (int i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h;
}

static int grow_table(struct reader *r)
{
    int size = r->table_size ? 2 * r->table_size : 4096;
    int *table = malloc(sizeof *table * (size_t)size);
    struct symbol *more = realloc(r->symbol, sizeof *more * (size_t)size / 2);
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
static int symbol_of(struct reader *r, const char *name, int n)
{
    if (r->n_symbols == r->room && !grow_table(r))
        return -1;
    unsigned int k = hash(name, n) % (unsigned int)r->table_size;
    for (; r->table[k] >= 0; k = (k + 1) % (unsigned int)r->table_size) {
        const struct symbol *s = &r->symbol[r->table[k]];
        if (s->n == n && memcmp(s->name, name, (size_t)n) == 0)
            return r->table[k];
    }
    r->symbol[r->n_symbols] = (struct symbol){.name = name, .n = n, .alias = -1};
    return r->table[k] = r->n_symbols++;
}

static void add_use(struct reader *r, const char *name, int n, int is_call)
{
    if (r->n_uses == r->use_room) {
        int room = 2 * r->use_room + 1024;
        struct use *more = realloc(r->use, sizeof *more * (size_t)room);
        if (!more) {
            r->failed = 1;
            return;
        }
        r->use = more;
        r->use_room = room;
    }
    int what = symbol_of(r, name, n);
    if (what >= 0)
        r->use[r->n_uses++] = (struct use){what, is_call, r->at_file, r->at_line};
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
static int is_users_file(const struct reader *r, const char *path)
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
static void add_file(struct reader *r, const char *s)
{
    char *end, path[2][1024] = {"", ""}, whole[2050];
    long k = strtol(s, &end, 10);
    if (end == s || k < 0 || k >= FILES)
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
static const char *line_of(const struct reader *r, int file, int line)
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

/* Whether a line of n bytes has a word, which `after` follows where that is not 0. */
static int has_word(const char *s, int n, const char *word, int length, char after)
{
    for (const char *at = s; at < s + n; at += is_name(*at) ? name_length(at) : 1)
        if (name_length(at) == length && strncmp(at, word, (size_t)length) == 0 &&
            (!after || at[length] == after))
            return 1;
    return 0;
}

static int has_words(const char *s, int n, const char *const *words)
{
    for (; *words; words++)
        if (has_word(s, n, *words, (int)strlen(*words), 0))
            return 1;
    return 0;
}

/* Whether a function is constexpr: the word stands on its line, or before it and after the end of
 * another declaration. */
static int is_constant(const struct reader *r, const struct symbol *f)
{
    static const char *const words[] = {"constexpr", "consteval", NULL};
    for (int back = 0; back < AROUND && f->line - back > 0; back++) {
        const char *s = line_of(r, f->file, f->line - back);
        int n = s ? (int)strcspn(s, "\n") : 0;
        if (back > 0 && s && (memchr(s, ';', (size_t)n) || memchr(s, '}', (size_t)n)))
            return 0;
        if (s && has_words(s, n, words))
            return 1;
    }
    return 0;
}

/* Whether the compiler made a member function: a constructor, destructor or assignment whose line is
 * that of its class, or that is defaulted or inherited. */
static int is_implicit(const struct reader *r, const struct symbol *f)
{
    static const char *const classes[] = {"struct", "class", "union", NULL};
    static const char *const words[] = {"default", "using", NULL};
    char text[QM_SYMBOL_TEXT];
    const char *s = line_of(r, f->file, f->line);
    int n = s ? (int)strcspn(s, "\n") : 0;
    qm_symbol_text(f->name, f->n, text);
    char *last = strrchr(text, ':');
    if (!s || !last || last - text < 2)
        return 0;
    last[-1] = '\0'; /* text: the class */
    const char *name = strrchr(text, ':') ? strrchr(text, ':') + 1 : text;
    int is_destructor = last[1] == '~', is_operator = strcmp(last + 1, "operator") == 0;
    if (!is_operator && strcmp(last + 1 + is_destructor, name) != 0)
        return 0;
    if (has_words(s, n, words))
        return 1;
    int is_written = is_operator ? has_word(s, n, "operator", 8, '=')
                                 : has_word(s, n, name, (int)strlen(name), '(');
    return has_words(s, n, classes) && !is_written;
}

/* ---- lines of the assembly ------------------------------------------------------------------- */

static int starts(const char *s, const char *word)
{
    size_t n = strlen(word);
    return strncmp(s, word, n) == 0 && !is_name(s[n]);
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
    return power >= QM_MARK_BOTH && power <= QM_MARK_GLOBAL ? power : 0;
}

static void directive(struct reader *r, const char *s)
{
    const char *args = s + strcspn(s, " \t\n");
    args += strspn(args, " \t");
    int n = name_length(args), k;
    const char *rest = args + n + strspn(args + n, " \t");
    if (starts(s, ".file"))
        add_file(r, args);
    else if (starts(s, ".loc")) {
        char *end;
        r->at_file = (int)strtol(args, &end, 10) % FILES;
        r->at_line = (int)strtol(end, NULL, 10);
        struct symbol *f = r->current >= 0 ? &r->symbol[r->current] : NULL;
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
            r->symbol[k].kind = strncmp(value + 1, "function", 8) == 0 ? FUNCTION : VARIABLE;
        else if (starts(s, ".size"))
            r->symbol[k].size = strtol(value, NULL, 10);
        else if (starts(s, ".comm")) {
            char *end;
            r->symbol[k].kind = VARIABLE;
            r->symbol[k].is_defined = 1;
            r->symbol[k].size = strtol(value, &end, 10);
            r->symbol[k].mark = mark_of(*end == ',' ? power_of(end + 1, 0) : 0);
        } else if (starts(s, ".set")) {
            int other = symbol_of(r, value, name_length(value));
            r->symbol[k].alias = other;
        }
    } else if (starts(s, ".cfi_endproc")) {
        if (r->current >= 0)
            r->symbol[r->current].last_use = r->n_uses;
        r->current = -1;
    }
}

static void label(struct reader *r, const char *s, int n)
{
    int k = symbol_of(r, s, n);
    if (k < 0 || *s == '.')
        return;
    struct symbol *x = &r->symbol[k];
    x->is_defined = 1;
    x->mark = mark_of(r->power);
    x->is_read_only = r->is_read_only;
    r->power = 0;
    if (x->kind == FUNCTION) {
        r->current = k;
        x->first_use = x->last_use = r->n_uses;
        x->file = 0;
    }
}

static void instruction(struct reader *r, const char *s)
{
    int n = name_length(s);
    int is_call = strncmp(s, "call", 4) == 0 || strncmp(s, "jmp", 3) == 0 || starts(s, "bl") ||
                  starts(s, "b");
    for (s += n; *s && *s != '\n' && *s != '#';) {
        if (!is_name(*s) || isdigit((unsigned char)*s) || s[-1] == '%' || s[-1] == '@') {
            s += is_name(*s) ? name_length(s) : 1;
            continue;
        }
        n = name_length(s);
        if (*s != '.')
            add_use(r, s, n, is_call);
        s += n;
    }
}

static void read_all(struct reader *r, const char *assembly)
{
    r->current = -1;
    for (const char *s = assembly; *s && !r->failed; s += *s == '\n') {
        const char *at = s + strspn(s, " \t");
        int n = name_length(at);
        if (n && at[n] == ':')
            label(r, at, n);
        else if (n && *at == '.')
            directive(r, at);
        else if (n && r->current >= 0)
            instruction(r, at);
        else if (n && at[n] == ' ' && at[n + 1] == '=') { /* a = b */
            int k = symbol_of(r, at, n);
            const char *other = at + n + 2 + strspn(at + n + 2, " ");
            int to = symbol_of(r, other, name_length(other));
            if (k >= 0)
                r->symbol[k].alias = to;
        }
        s += strcspn(s, "\n");
    }
}

/* ---- what device code may use ---------------------------------------------------------------- */

/* Functions of libraries that a GPU has, or that stand for what it has; those of the header math.h
 * are taken without the f or l at their end. */
static int is_on_gpu(const char *name, int n)
{
    static const char *const names[] = {
        "memcpy",  "memmove",         "memset", "memcmp",         "malloc",           "free",
        "printf",  "vprintf",         "puts",   "putchar",        "__assert_fail",    "abort",
        "strlen",  "strcmp",          "strcpy", "abs",            "labs",             "llabs",
        "_Znwm",   "_Znam",           "_ZdlPv", "_ZdaPv",         "_ZdlPvm",          "_ZdaPvm",
        "clock",   "_Unwind_Resume",  "__stack_chk_fail", "__clang_call_terminate",
        "__cxa_pure_virtual", "_ZSt9terminatev", "__assert", NULL};
    static const char *const math[] = {
        "acos",  "acosh",  "asin",   "asinh",    "atan",     "atan2",     "atanh",   "cbrt",
        "ceil",  "copysign", "cos",  "cosh",     "cospi",    "erf",       "erfc",    "exp",
        "exp10", "exp2",   "expm1",  "fabs",     "fdim",     "floor",     "fma",     "fmax",
        "fmin",  "fmod",   "frexp",  "hypot",    "ilogb",    "j0",        "j1",      "jn",
        "ldexp", "lgamma", "llrint", "llround",  "log",      "log10",     "log1p",   "log2",
        "logb",  "lrint",  "lround", "modf",     "nan",      "nearbyint", "nextafter", "pow",
        "remainder", "remquo", "rint", "round",  "roundeven", "scalbln",  "scalbn",  "sin",
        "sincos", "sinh",  "sinpi",  "sqrt",     "tan",      "tanh",      "tgamma",  "trunc",
        "y0",    "y1",     "yn",     "finite",   "__isnan",  "__isinf",   "__finite", "__signbit",
        "__fpclassify", NULL};
    static const char *const layer[] = {"qm_emu_barrier", "qm_emu_warp",    "qm_emu_atomically",
                                        "qm_emu_fence",   "qm_emu_shared",  "qm_emu_fail",
                                        "qm_emu_bounds", NULL};
    const char *const *lists[] = {names, layer, math};
    if (n > 3 && name[0] == '_' && name[1] == '_' && strchr("234", name[n - 1]))
        return 1; /* of the compiler's own library: __popcountdi2 */
    for (int l = 0; l < 3; l++)
        for (const char *const *x = lists[l]; *x; x++) {
            int m = (int)strlen(*x);
            int has_type = l == 2 && n == m + 1 && (name[m] == 'f' || name[m] == 'l');
            if ((n == m || has_type) && memcmp(name, *x, (size_t)m) == 0)
                return 1;
        }
    return 0;
}

static int has_prefix(const struct symbol *s, const char *prefix)
{
    int n = (int)strlen(prefix);
    return s->n >= n && memcmp(s->name, prefix, (size_t)n) == 0;
}

static int is_named(const struct symbol *s, const char *name)
{
    return s->n == (int)strlen(name) && has_prefix(s, name);
}

/* Whether a variable is no variable to nvcc, or one that it makes in device memory: tables of the
 * compiler, static variables of functions, constants of few bytes. */
static int is_harmless(const struct symbol *v)
{
    return v->mark || has_prefix(v, "_ZZ") || has_prefix(v, "_ZT") || has_prefix(v, "_ZG") ||
           has_prefix(v, "DW.ref.") || (v->is_read_only && v->size <= CONSTANT_MOST);
}

/* Where a walk through device code is. */
struct walk {
    struct reader *r;
    const struct symbol *root;
    char message[600];
    int file, line; /* of the use in the user's file that led here */
};

static int found(struct walk *w, const char *what)
{
    const char *path = w->r->file[w->file].path, *slash = path ? strrchr(path, '/') : NULL;
    snprintf(w->message, sizeof w->message, "%s:%d: %s", slash ? slash + 1 : path ? path : "?",
             w->line, what);
    return 1;
}

static const char *who(const struct walk *w, char text[QM_SYMBOL_TEXT + 16])
{
    char name[QM_SYMBOL_TEXT];
    qm_symbol_text(w->root->name, w->root->n, name);
    snprintf(text, QM_SYMBOL_TEXT + 16, "%s %s",
             w->root->mark == QM_MARK_GLOBAL ? "kernel" : "device function", name);
    return text;
}

static int found_call(struct walk *w, const struct symbol *f)
{
    char what[500], root[QM_SYMBOL_TEXT + 16], name[QM_SYMBOL_TEXT];
    who(w, root);
    qm_symbol_text(f->name, f->n, name);
    if (is_named(f, "qm_emu_tries") || has_prefix(f, "__cxa_throw") ||
        has_prefix(f, "__cxa_rethrow") || has_prefix(f, "__cxa_begin_catch") ||
        has_prefix(f, "__cxa_allocate_exception"))
        snprintf(what, sizeof what, "%s has try, catch or throw, which device code cannot", root);
    else if (has_prefix(f, "__cxa_guard"))
        snprintf(what, sizeof what, "%s initializes a static variable when it runs, which device "
                                    "code cannot", root);
    else if (is_named(f, "qm_emu_launch"))
        snprintf(what, sizeof what, "%s launches a kernel, which the emulator does not emulate",
                 root);
    else if (f->mark == QM_MARK_GLOBAL)
        snprintf(what, sizeof what, "%s calls the kernel %s like a function, without <<<>>>", root,
                 name);
    else if (has_prefix(f, "qm_emu_"))
        snprintf(what, sizeof what, "%s calls a function of CUDA's runtime library for the host",
                 root);
    else if (f->is_defined && w->r->file[f->file].is_users)
        snprintf(what, sizeof what, "%s calls %s, a function of the host: it has no __device__",
                 root, name);
    else
        snprintf(what, sizeof what, "%s calls %s, which device code has not", root, name);
    return found(w, what);
}

static int found_variable(struct walk *w, const struct symbol *v)
{
    char what[500], root[QM_SYMBOL_TEXT + 16], name[QM_SYMBOL_TEXT];
    qm_symbol_text(v->name, v->n, name);
    snprintf(what, sizeof what,
             "%s uses %s, a variable of the host: it has no __device__ and no __constant__%s",
             who(w, root), name, v->is_read_only ? ", and no plain number" : "");
    return found(w, what);
}

static const struct symbol *real(const struct reader *r, int k)
{
    for (int i = 0; i < 8 && r->symbol[k].alias >= 0; i++)
        k = r->symbol[k].alias;
    return &r->symbol[k];
}

/* Whether a function without a mark may be called by device code: one of a system header, a lambda,
 * one that may be evaluated by the compiler, one that the compiler made. */
static int is_let_pass(const struct reader *r, const struct symbol *f)
{
    return !r->file[f->file].is_users || qm_symbol_is_lambda(f->name, f->n) || is_constant(r, f) ||
           is_implicit(r, f);
}

/* Checks what a function uses, and the functions without a mark behind it; 1: something was
 * found. */
static int check(struct walk *w, const struct symbol *f, int depth)
{
    struct reader *r = w->r;
    ((struct symbol *)f)->is_visited = 1;
    for (int i = f->first_use; i < f->last_use; i++) {
        const struct use *u = &r->use[i];
        const struct symbol *to = real(r, u->what);
        int file = w->file, line = w->line;
        if (r->file[u->file].is_users) {
            w->file = u->file;
            w->line = u->line;
        }
        int is_found = 0;
        if (!u->is_call)
            is_found = to->kind == VARIABLE && to->is_defined && !is_harmless(to)
                           ? found_variable(w, to)
                           : 0;
        else if (!to->is_defined)
            is_found = !is_on_gpu(to->name, to->n) && to->alias < 0 ? found_call(w, to) : 0;
        else if (to->kind != FUNCTION || is_named(to, "__clang_call_terminate"))
            is_found = 0;
        else if (to->mark == QM_MARK_GLOBAL ||
                 (!to->mark && r->file[to->file].is_users && !is_let_pass(r, to)))
            is_found = found_call(w, to);
        else if (to->mark != QM_MARK_DEVICE && !to->is_visited && depth < 100)
            is_found = check(w, to, depth + 1);
        if (is_found)
            return 1;
        if (depth > 0) {
            w->file = file;
            w->line = line;
        }
    }
    return 0;
}

/* What is wrong with a use by code of the host, behind a launch or not; NULL: nothing. */
static const char *host_flaw(const struct symbol *to, int is_launch)
{
    if (to->kind != FUNCTION || is_launch)
        return NULL;
    return to->mark == QM_MARK_GLOBAL   ? "the kernel %s is called like a function, without <<<>>>"
           : to->mark == QM_MARK_DEVICE ? "code of the host calls %s, a function of the device"
                                        : NULL;
}

/* Checks the host's code: what is launched is a kernel (launches), nothing else calls one, or a
 * function of the device. */
static int check_host(struct walk *w, const struct symbol *f, int launches)
{
    const struct reader *r = w->r;
    char what[500], name[QM_SYMBOL_TEXT];
    const char *flaw = NULL;
    const struct symbol *called = NULL;
    int is_launch = 0, n_kernels = 0, is_free = is_let_pass(r, f);
    for (int i = f->first_use; i < f->last_use && !flaw; i++) {
        const struct use *u = &r->use[i];
        const struct symbol *to = real(r, u->what);
        if (!u->is_call)
            continue;
        if (r->file[u->file].is_users) {
            w->file = u->file;
            w->line = u->line;
        }
        n_kernels += is_launch && to->mark == QM_MARK_GLOBAL;
        called = is_launch && to->is_defined ? to : called;
        is_launch |= is_named(to, "qm_emu_launches");
        if (!launches && (!is_free || to->mark == QM_MARK_GLOBAL) && (flaw = host_flaw(to, is_launch)))
            called = to;
    }
    if (launches && called && !n_kernels)
        flaw = "%s is launched by <<<>>>, and is no kernel: it has no __global__";
    if (!flaw)
        return 0;
    qm_symbol_text(called->name, called->n, name);
    snprintf(what, sizeof what, flaw, name);
    return found(w, what);
}

static int is_root(const struct symbol *s)
{
    return s->kind == FUNCTION && s->is_defined &&
           (s->mark == QM_MARK_GLOBAL || s->mark == QM_MARK_DEVICE);
}

/* ---- the table of variables ------------------------------------------------------------------ */

static int defines(const char *built, const struct symbol *v)
{
    char label[600], common[600];
    snprintf(label, sizeof label, "\n%.*s:", v->n, v->name);
    snprintf(common, sizeof common, ".comm\t%.*s,", v->n, v->name);
    return strstr(built, label) != NULL || strstr(built, common) != NULL;
}

static qm_status write_variables(const struct reader *r, const char *built, char **out)
{
    size_t size;
    char name[QM_SYMBOL_TEXT];
    FILE *f = open_memstream(out, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "a table of variables");
    fprintf(f, "\t.section qm_variables,\"aw\"\n");
    for (int i = 0; i < r->n_symbols; i++) {
        const struct symbol *v = &r->symbol[i];
        if (v->kind != VARIABLE || !v->is_defined || !v->mark || !defines(built, v))
            continue;
        qm_symbol_text(v->name, v->n, name);
        fprintf(f, "\t.balign 8\n\t.quad %.*s\n\t.quad %ld\n\t.quad %d\n\t.quad 7f\n", v->n,
                v->name, v->size, v->mark);
        fprintf(f, "\t.section .rodata\n7:\t.string \"%s %s\"\n\t.section qm_variables,\"aw\"\n",
                v->mark == QM_MARK_CONSTANT  ? "__constant__"
                : v->mark == QM_MARK_MANAGED ? "__managed__"
                                             : "__device__",
                name);
    }
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_NO_MEMORY, "a table of variables");
}

/* ---- all ------------------------------------------------------------------------------------- */

static qm_status check_all(struct reader *r)
{
    enum { LAUNCHES, DEVICE, HOST, PASSES };
    struct walk w = {.r = r};
    for (int pass = LAUNCHES; pass < PASSES; pass++)
        for (int i = 0; i < r->n_symbols; i++) {
            struct symbol *f = &r->symbol[i];
            if (f->kind != FUNCTION || !f->is_defined || (pass == DEVICE ? !is_root(f) : f->mark))
                continue;
            w.root = f;
            w.file = f->file;
            w.line = f->line;
            if (pass == DEVICE ? check(&w, f, 0) : check_host(&w, f, pass == LAUNCHES))
                return qm_fail(QM_BAD_ARG, "%s", w.message);
        }
    return QM_OK;
}

qm_status qm_emu_device(const char *assembly, const char *text, const char *layer,
                        const char *built, char **variables)
{
    struct reader *r = calloc(1, sizeof *r);
    if (!r)
        return qm_fail(QM_NO_MEMORY, "a reader of assembly");
    r->text = text;
    r->layer = layer;
    read_all(r, assembly);
    qm_status st = r->failed ? qm_fail(QM_NO_MEMORY, "symbols of a kernel") : check_all(r);
    if (st == QM_OK)
        st = write_variables(r, built, variables);
    for (int i = 0; i < FILES; i++)
        free(r->file[i].path);
    free(r->symbol);
    free(r->use);
    free(r->table);
    free(r);
    return st;
}
