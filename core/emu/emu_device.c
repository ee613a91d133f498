/* emu_device.c - Walks through device code from function to function, and names what it may not
 * use. */
#include "core/emu/emu_device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/emu/emu_assembly.h"
#include "core/emu/emu_symbol.h"

enum { CONSTANT_MOST = 8, AROUND = 6, DEPTH = 4 };

/* ---- what the source says of a function ------------------------------------------------------ */

/* Whether a line of n bytes has a word, which `after` follows where that is not 0. */
static int has_word(const char *s, int n, const char *word, int length, char after)
{
    for (const char *at = s; at < s + n; at += qm_asm_is_name(*at) ? qm_asm_name_length(at) : 1)
        if (qm_asm_name_length(at) == length && strncmp(at, word, (size_t)length) == 0 &&
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
static int is_constant(const struct qm_assembly *r, const struct qm_symbol *f)
{
    static const char *const words[] = {"constexpr", "consteval", NULL};
    for (int back = 0; back < AROUND && f->line - back > 0; back++) {
        const char *s = qm_asm_line(r, f->file, f->line - back);
        int n = s ? (int)strcspn(s, "\n") : 0;
        if (back > 0 && s && (memchr(s, ';', (size_t)n) || memchr(s, '}', (size_t)n)))
            return 0;
        if (s && has_words(s, n, words))
            return 1;
    }
    return 0;
}

/* Whether the compiler made a member function: a constructor, destructor or assignment whose line
 * is that of its class, or that is defaulted or inherited. */
static int is_implicit(const struct qm_assembly *r, const struct qm_symbol *f)
{
    static const char *const classes[] = {"struct", "class", "union", NULL};
    static const char *const words[] = {"default", "using", NULL};
    char text[QM_SYMBOL_TEXT];
    const char *s = qm_asm_line(r, f->file, f->line);
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

/* ---- what device code may use ---------------------------------------------------------------- */

/* Functions of libraries that a GPU has, or that stand for what it has; those of the header math.h
 * are taken without the f or l at their end. */
static int is_on_gpu(const char *name, int n)
{
    static const char *const names[] = {"memcpy",
                                        "memmove",
                                        "memset",
                                        "memcmp",
                                        "malloc",
                                        "free",
                                        "printf",
                                        "vprintf",
                                        "puts",
                                        "putchar",
                                        "__assert_fail",
                                        "abort",
                                        "strlen",
                                        "strcmp",
                                        "strcpy",
                                        "abs",
                                        "labs",
                                        "llabs",
                                        "_Znwm",
                                        "_Znam",
                                        "_ZdlPv",
                                        "_ZdaPv",
                                        "_ZdlPvm",
                                        "_ZdaPvm",
                                        "clock",
                                        "_Unwind_Resume",
                                        "__stack_chk_fail",
                                        "__clang_call_terminate",
                                        "__cxa_pure_virtual",
                                        "_ZSt9terminatev",
                                        "__assert",
                                        NULL};
    static const char *const math[] = {
        "acos",     "acosh",     "asin",         "asinh",     "atan",      "atan2",   "atanh",
        "cbrt",     "ceil",      "copysign",     "cos",       "cosh",      "cospi",   "erf",
        "erfc",     "exp",       "exp10",        "exp2",      "expm1",     "fabs",    "fdim",
        "floor",    "fma",       "fmax",         "fmin",      "fmod",      "frexp",   "hypot",
        "ilogb",    "j0",        "j1",           "jn",        "ldexp",     "lgamma",  "llrint",
        "llround",  "log",       "log10",        "log1p",     "log2",      "logb",    "lrint",
        "lround",   "modf",      "nan",          "nearbyint", "nextafter", "pow",     "remainder",
        "remquo",   "rint",      "round",        "roundeven", "scalbln",   "scalbn",  "sin",
        "sincos",   "sinh",      "sinpi",        "sqrt",      "tan",       "tanh",    "tgamma",
        "trunc",    "y0",        "y1",           "yn",        "finite",    "__isnan", "__isinf",
        "__finite", "__signbit", "__fpclassify", NULL};
    static const char *const layer[] = {
        "qm_emu_barrier", "qm_emu_warp", "qm_emu_atomically", "qm_emu_fence",
        "qm_emu_shared",  "qm_emu_fail", "qm_emu_bounds",     NULL};
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

static int has_prefix(const struct qm_symbol *s, const char *prefix)
{
    int n = (int)strlen(prefix);
    return s->n >= n && memcmp(s->name, prefix, (size_t)n) == 0;
}

static int is_named(const struct qm_symbol *s, const char *name)
{
    return s->n == (int)strlen(name) && has_prefix(s, name);
}

/* Whether a variable is no variable to nvcc, or one that it makes in device memory: tables of the
 * compiler, static variables of functions, numbers that are constant and whose address nobody
 * takes. */
static int is_harmless(const struct qm_symbol *v, int is_address)
{
    return v->mark || has_prefix(v, "_ZZ") || has_prefix(v, "_ZT") || has_prefix(v, "_ZG") ||
           has_prefix(v, "DW.ref.") || (v->is_read_only && v->size <= CONSTANT_MOST && !is_address);
}

/* Where a walk through device code is. */
struct walk {
    struct qm_assembly *r;
    const struct qm_symbol *root;
    char message[600];
    int file, line; /* of the use in the user's file that led here */
};

static int found(struct walk *w, const char *what)
{
    const char *path = w->r->file[w->file].path, *slash = path ? strrchr(path, '/') : NULL;
    snprintf(w->message, sizeof w->message, "%s:%d: %s",
             slash  ? slash + 1
             : path ? path
                    : "?",
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

static int found_call(struct walk *w, const struct qm_symbol *f)
{
    char what[500], root[QM_SYMBOL_TEXT + 16], name[QM_SYMBOL_TEXT];
    who(w, root);
    qm_symbol_text(f->name, f->n, name);
    if (is_named(f, "qm_emu_tries") || has_prefix(f, "__cxa_throw") ||
        has_prefix(f, "__cxa_rethrow") || has_prefix(f, "__cxa_begin_catch") ||
        has_prefix(f, "__cxa_allocate_exception"))
        snprintf(what, sizeof what, "%s has try, catch or throw, which device code cannot", root);
    else if (has_prefix(f, "__cxa_guard"))
        snprintf(what, sizeof what,
                 "%s initializes a static variable when it runs, which device "
                 "code cannot",
                 root);
    else if (is_named(f, "qm_emu_launch"))
        snprintf(what, sizeof what, "%s launches a kernel, which the emulator does not emulate",
                 root);
    else if (f->mark == QM_MARK_GLOBAL)
        snprintf(what, sizeof what, "%s calls the kernel %s like a function, without <<<>>>", root,
                 name);
    else if (has_prefix(f, "qm_emu_"))
        snprintf(what, sizeof what,
                 "%s calls CUDA's runtime library, which is emulated for the host alone", root);
    else if (f->is_defined && w->r->file[f->file].is_users)
        snprintf(what, sizeof what, "%s calls %s, a function of the host: it has no __device__",
                 root, name);
    else
        snprintf(what, sizeof what, "%s calls %s, which device code has not", root, name);
    return found(w, what);
}

static int found_variable(struct walk *w, const struct qm_symbol *v)
{
    char what[500], root[QM_SYMBOL_TEXT + 16], name[QM_SYMBOL_TEXT];
    qm_symbol_text(v->name, v->n, name);
    snprintf(what, sizeof what,
             "%s uses %s, a variable of the host: it has no __device__ and no __constant__%s",
             who(w, root), name, v->is_read_only ? ", and no plain number" : "");
    return found(w, what);
}

static const struct qm_symbol *real(const struct qm_assembly *r, int k)
{
    for (int i = 0; i < 8 && r->symbol[k].alias >= 0; i++)
        k = r->symbol[k].alias;
    return &r->symbol[k];
}

/* Whether a function without a mark may be called by device code: one of a system header, a lambda,
 * one that may be evaluated by the compiler, one that the compiler made. */
static int is_let_pass(const struct qm_assembly *r, const struct qm_symbol *f)
{
    return !r->file[f->file].is_users || qm_symbol_is_lambda(f->name, f->n) || is_constant(r, f) ||
           is_implicit(r, f);
}

/* Checks what a function uses, and the functions without a mark behind it; 1: something was
 * found. */
static int check(struct walk *w, const struct qm_symbol *f, int depth)
{
    struct qm_assembly *r = w->r;
    ((struct qm_symbol *)f)->is_visited = 1;
    for (int i = f->first_use; i < f->last_use; i++) {
        const struct qm_symbol_use *u = &r->use[i];
        const struct qm_symbol *to = real(r, u->what);
        int file = w->file, line = w->line;
        if (r->file[u->file].is_users) {
            w->file = u->file;
            w->line = u->line;
        }
        int is_found = 0;
        if (!u->is_call)
            is_found =
                to->kind == QM_SYMBOL_variable && to->is_defined && !is_harmless(to, u->is_address)
                    ? found_variable(w, to)
                    : 0;
        else if (!to->is_defined)
            is_found = !is_on_gpu(to->name, to->n) && to->alias < 0 ? found_call(w, to) : 0;
        else if (to->kind != QM_SYMBOL_function || is_named(to, "__clang_call_terminate"))
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

/* Whether a function of the layer is for device code: it leads to a barrier, a warp function, an
 * atomic operation or a fence. */
static int is_for_device(const struct qm_assembly *r, const struct qm_symbol *f, int depth)
{
    static const char *const names[] = {"qm_emu_barrier", "qm_emu_warp", "qm_emu_atomically",
                                        "qm_emu_fence"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_named(f, names[i]))
            return 1;
    for (int i = f->first_use; f->is_defined && depth < DEPTH && i < f->last_use; i++)
        if (r->use[i].is_call && is_for_device(r, real(r, r->use[i].what), depth + 1))
            return 1;
    return 0;
}

/* What is wrong with a call by code of the host, behind a launch or not; NULL: nothing. */
static const char *host_flaw(const struct qm_assembly *r, const struct qm_symbol *to, int is_launch)
{
    if (to->kind != QM_SYMBOL_function || is_launch)
        return NULL;
    if (to->mark == QM_MARK_GLOBAL)
        return "the kernel %s is called like a function, without <<<>>>";
    int is_layers = !to->mark && to->file && !r->file[to->file].is_users && !has_prefix(to, "_ZN");
    return to->mark == QM_MARK_DEVICE || (is_layers && is_for_device(r, to, 0))
               ? "code of the host calls %s, a function of the device"
               : NULL;
}

/* Checks the host's code: what is launched is a kernel (launches), nothing else calls one, or a
 * function of the device. */
static int check_host(struct walk *w, const struct qm_symbol *f, int launches)
{
    const struct qm_assembly *r = w->r;
    char what[500], name[QM_SYMBOL_TEXT];
    const char *flaw = NULL;
    const struct qm_symbol *called = NULL;
    int is_launch = 0, n_kernels = 0, is_free = is_let_pass(r, f);
    for (int i = f->first_use; i < f->last_use && !flaw; i++) {
        const struct qm_symbol_use *u = &r->use[i];
        const struct qm_symbol *to = real(r, u->what);
        if (!u->is_call)
            continue;
        if (r->file[u->file].is_users) {
            w->file = u->file;
            w->line = u->line;
        }
        n_kernels += is_launch && to->mark == QM_MARK_GLOBAL;
        called = is_launch && to->is_defined ? to : called;
        is_launch |= is_named(to, "qm_emu_launches");
        if (!launches && (!is_free || to->mark == QM_MARK_GLOBAL) &&
            (flaw = host_flaw(r, to, is_launch)))
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

static int is_root(const struct qm_symbol *s)
{
    return s->kind == QM_SYMBOL_function && s->is_defined &&
           (s->mark == QM_MARK_GLOBAL || s->mark == QM_MARK_DEVICE);
}

/* ---- the table of variables ------------------------------------------------------------------ */

static int defines(const char *built, const struct qm_symbol *v)
{
    char label[600], common[600];
    snprintf(label, sizeof label, "\n%.*s:", v->n, v->name);
    snprintf(common, sizeof common, ".comm\t%.*s,", v->n, v->name);
    return strstr(built, label) != NULL || strstr(built, common) != NULL;
}

static qm_status write_variables(const struct qm_assembly *r, const char *built, char **out)
{
    size_t size;
    char name[QM_SYMBOL_TEXT];
    FILE *f = open_memstream(out, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "a table of variables");
    fprintf(f, "\t.section qm_variables,\"aw\"\n");
    for (int i = 0; i < r->n_symbols; i++) {
        const struct qm_symbol *v = &r->symbol[i];
        if (v->kind != QM_SYMBOL_variable || !v->is_defined || !v->mark || !defines(built, v))
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

static qm_status check_all(struct qm_assembly *r)
{
    enum { LAUNCHES, DEVICE, HOST, PASSES };
    struct walk w = {.r = r};
    for (int pass = LAUNCHES; pass < PASSES; pass++)
        for (int i = 0; i < r->n_symbols; i++) {
            struct qm_symbol *f = &r->symbol[i];
            if (f->kind != QM_SYMBOL_function || !f->is_defined ||
                (pass == DEVICE ? !is_root(f) : f->mark))
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
    struct qm_assembly *r = NULL;
    QM_TRY(qm_asm_read(assembly, text, layer, &r));
    qm_status st = check_all(r);
    if (st == QM_OK)
        st = write_variables(r, built, variables);
    qm_asm_free(r);
    return st;
}
