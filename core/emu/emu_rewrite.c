/* emu_rewrite.c - One pass over tokens: finds where types and expressions end; does not
 * parse them. */
#include "core/emu/emu_rewrite.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/emu/emu_launch.h"
#include "core/emu/emu_marks.h"

/* ---- shared memory --------------------------------------------------------------------------- */

/* Finds the name of a declarator, and where its stars begin (else its name).  Returns 0 where it is
 * not a declarator. */
static int declarator(const char *s, const char *end, const char **stars, const char **name,
                      const char **name_end)
{
    int angles = 0;
    *name = *stars = NULL;
    for (s = qm_rw_skip_blanks(s); s < end; s = qm_rw_skip_blanks(s)) {
        const char *next =
            *s == '(' || *s == '[' || *s == '{' ? qm_rw_closing(s) : qm_rw_token_end(s);
        if (!next || next > end)
            return 0;
        if (*s == '[' && s[1] != '[' && *name)
            break;
        angles += (*s == '<') - (*s == '>');
        if (*s == '*' && angles == 0 && !*stars)
            *stars = s;
        if (qm_rw_is_word(*s) && !isdigit((unsigned char)*s)) {
            *name = s;
            *name_end = next;
        }
        s = next;
    }
    *stars = *stars ? *stars : *name;
    return *name != NULL;
}

/* Whether declarators have an initializer, = or {; a { may also be of a type. */
static int has_initializer(const char *s, const char *end)
{
    int is_type = 0;
    for (s = qm_rw_skip_blanks(s); s < end; s = qm_rw_skip_blanks(s)) {
        const char *next = strchr("([{", *s) ? qm_rw_closing(s) : qm_rw_token_end(s);
        if (*s == '=' || (*s == '{' && !is_type))
            return 1;
        if (!next)
            return 0;
        is_type = (is_type && *s != '{') || qm_rw_word_is(s, next, "struct") ||
                  qm_rw_word_is(s, next, "union") || qm_rw_word_is(s, next, "class");
        s = next;
    }
    return 0;
}

/* Writes a type's words, without storage classes; alignas becomes the attribute that a
 * typedef takes. */
static void put_type(struct qm_rewriter *r, const char *s, const char *end)
{
    while (s < end) {
        const char *from = s, *next;
        s = qm_rw_skip_blanks(s);
        qm_rw_put(r, from, (size_t)((s < end ? s : end) - from));
        if (s >= end)
            break;
        next = qm_rw_token_end(s);
        if (qm_rw_word_is(s, next, "alignas") && *qm_rw_skip_blanks(next) == '(') {
            const char *close = qm_rw_closing(qm_rw_skip_blanks(next));
            qm_rw_puts(r, "__attribute__((aligned");
            qm_rw_put(r, next, (size_t)(close - next));
            qm_rw_puts(r, "))");
            next = close;
        } else if (*s == '[' && s[1] == '[')
            next = qm_rw_closing(s);
        else if (!qm_rw_word_is(s, next, "static") && !qm_rw_word_is(s, next, "extern") &&
                 !qm_rw_word_is(s, next, "__shared__") && !qm_rw_word_is(s, next, "inline"))
            qm_rw_put(r, s, (size_t)(next - s));
        s = next;
    }
}

static void put_variable(struct qm_rewriter *r, int base, const char *stars, const char *name,
                         const char *name_end, const char *end, int is_dynamic)
{
    int n = ++r->n_made, length = (int)(name_end - name);
    char text[400];
    if (is_dynamic) {
        snprintf(text, sizeof text, " static qm_b%d *const %.*s = (qm_b%d *)qm_emu_dynamic;", base,
                 length, name, base);
        qm_rw_puts(r, text);
        return;
    }
    qm_rw_put_number(r, " typedef qm_b", base);
    qm_rw_puts(r, " ");
    qm_rw_put(r, stars, (size_t)(name - stars));
    qm_rw_put_number(r, "qm_t", n);
    qm_rw_put(r, name_end, (size_t)(end - name_end));
    snprintf(
        text, sizeof text,
        "; static char qm_k%d; qm_t%d &%.*s = *(qm_t%d *)qm_emu_shared(&qm_k%d, sizeof(qm_t%d), "
        "alignof(qm_t%d), \"%.*s\");",
        n, n, length, name, n, n, n, n, length, name);
    qm_rw_puts(r, text);
}

/* Rewrites the declaration that __shared__, where the input stands, is part of. */
static qm_status shared(struct qm_rewriter *r)
{
    int k = qm_rw_statement(r), base = ++r->n_made, is_dynamic = 0;
    size_t from = k > 0 ? r->token[(r->n_tokens - k) % QM_RW_TOKENS] : r->used;
    const char *stars, *name, *name_end, *s = qm_rw_token_end(r->in), *end = s;
    while (*end && *end != ';') {
        const char *next = strchr("([{", *end) ? qm_rw_closing(end) : qm_rw_token_end(end);
        if (!next)
            break;
        end = qm_rw_skip_blanks(next);
    }
    char *before = malloc(r->used - from + 1);
    if (!before)
        return qm_fail(QM_NO_MEMORY, "a declaration");
    memcpy(before, r->out + from, r->used - from);
    before[r->used - from] = '\0';
    for (int i = 0; i < k; i++)
        is_dynamic |= strncmp(qm_rw_last(r, i), "extern", 6) == 0;
    r->used = from;
    const char *first = qm_rw_comma(s, end);
    if (*end == ';' && !is_dynamic && has_initializer(s, end)) {
        free(before);
        return qm_rw_refuse(r,
                            "this __shared__ variable has an initializer: shared memory has none");
    }
    if (*end != ';' || !declarator(s, first, &stars, &name, &name_end)) {
        free(before);
        return qm_rw_refuse(r, "this __shared__ cannot be read: expected a type, names and bounds");
    }
    qm_rw_puts(r, "typedef ");
    put_type(r, before, before + strlen(before));
    put_type(r, s, stars);
    qm_rw_put_number(r, " qm_b", base);
    qm_rw_puts(r, ";");
    free(before);
    put_variable(r, base, stars, name, name_end, first, is_dynamic);
    for (const char *next; first < end; first = next) {
        next = qm_rw_comma(first + 1, end);
        if (!declarator(first + 1, next, &stars, &name, &name_end))
            return qm_rw_refuse(r, "this __shared__ cannot be read");
        put_variable(r, base, stars, name, name_end, next, is_dynamic);
    }
    r->token[r->n_tokens++ % QM_RW_TOKENS] = r->used - 1; /* the ; */
    r->line += qm_rw_newlines(r->in, end);
    r->in = end + 1;
    return QM_OK;
}

/* ---- launch bounds --------------------------------------------------------------------------- */

/* Takes __launch_bounds__(...) out, where the input stands; returns 0 where it is another
 * token. */
static int bounds_taken(struct qm_rewriter *r, const char *end)
{
    const char *args = qm_rw_skip_blanks(end), *close = *args == '(' ? qm_rw_closing(args) : NULL;
    if (!qm_rw_word_is(r->in, end, "__launch_bounds__") || !close)
        return 0;
    r->bounds = args;
    r->bounds_end = close;
    r->parens = 0;
    for (const char *s = r->in; s < close; s++)
        if (*s == '\n') {
            qm_rw_put(r, "\n", 1);
            r->line++;
        }
    r->in = close;
    return 1;
}

/* Follows the tokens from __launch_bounds__ to the kernel's body, whose first statement checks the
 * block; a declaration without a body is left. */
static void bounds_put(struct qm_rewriter *r, char token)
{
    if (!r->bounds)
        return;
    r->parens += (token == '(') - (token == ')');
    if (r->parens == 0 && token == ';')
        r->bounds = NULL;
    if (r->parens != 0 || token != '{')
        return;
    qm_rw_puts(r, "::qm_emu::launch_bounds(::qm_emu::bounds");
    for (const char *s = r->bounds; s < r->bounds_end; s++)
        if (*s == '\n' && s[1] == '#') /* the marker of a macro's line */
            s += strcspn(s + 1, "\n");
        else
            qm_rw_put(r, *s == '\n' ? " " : s, 1);
    qm_rw_puts(r, ");");
    r->bounds = NULL;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Attributes by which a source would hide accesses from the checks, or change the flags it is
 * compiled with; nvcc knows none of them in device code. */
static int is_refused_attribute(const char *s, const char *end)
{
    static const char *const names[] = {"no_sanitize",
                                        "no_sanitize_thread",
                                        "no_sanitize_undefined",
                                        "no_sanitize_address",
                                        "no_sanitize_memory",
                                        "no_sanitize_coverage",
                                        "disable_sanitizer_instrumentation",
                                        "no_instrument_function",
                                        "optimize",
                                        "target"};
    while (s < end && *s == '_')
        s++;
    while (s < end && end[-1] == '_')
        end--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (qm_rw_word_is(s, end, names[i]))
            return 1;
    return 0;
}

/* Whether the last tokens open an attribute list: `((`, `[[`, `::` of a scoped name, or a comma
 * within such a list. */
static int is_in_attribute(const struct qm_rewriter *r)
{
    int depth = 0;
    for (int k = 0; k < 64 && *qm_rw_last(r, k); k++) {
        char c = *qm_rw_last(r, k);
        depth += (c == ')' || c == ']') - (c == '(' || c == '[');
        if (c == ';' || c == '{' || c == '}')
            return 0;
        if (depth == -2)
            return c == '[' ? *qm_rw_last(r, k - 1) == '['
                            : strncmp(qm_rw_last(r, k + 1), "__attribute", 11) == 0;
    }
    return 0;
}

/* Writes `unused` for a refused attribute and its arguments, where the input stands.  Returns
 * whether it did. */
static int attribute(struct qm_rewriter *r, const char *end)
{
    if (r->is_layer || !is_refused_attribute(r->in, end) || !is_in_attribute(r))
        return 0;
    const char *args = qm_rw_skip_blanks(end), *close = *args == '(' ? qm_rw_closing(args) : NULL;
    static const char unused[] = "unused";
    qm_rw_put_token(r, unused, unused + strlen(unused));
    for (const char *s = r->in; close && s < close; s++)
        if (*s == '\n') {
            qm_rw_put(r, "\n", 1);
            r->line++;
        }
    r->in = close ? close : end;
    return 1;
}

/* Whether the line at the input, which ends at `end`, is a pragma that changes attributes
 * or flags. */
static int is_refused_pragma(const struct qm_rewriter *r, const char *end)
{
    static const char *const words[] = {"optimize", "target",      "attribute",    "push_options",
                                        "fp",       "pop_options", "reset_options"};
    const char *s = qm_rw_skip_blanks(r->in + 1), *next = qm_rw_token_end(s);
    if (r->is_layer || r->is_system || !qm_rw_word_is(s, next, "pragma"))
        return 0;
    s = qm_rw_skip_blanks(next);
    next = qm_rw_token_end(s);
    if (!qm_rw_word_is(s, next, "GCC") && !qm_rw_word_is(s, next, "clang"))
        return 0;
    s = qm_rw_skip_blanks(next);
    next = qm_rw_token_end(s);
    for (size_t i = 0; i < sizeof words / sizeof *words && next <= end; i++)
        if (qm_rw_word_is(s, next, words[i]))
            return 1;
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Refuses a source that includes a header with the pragma QM_EMU_REFUSED, where the input stands.
 * */
static qm_status refused_header(const struct qm_rewriter *r)
{
    static const char pragma[] = "#pragma " QM_EMU_REFUSED " ";
    const size_t n = strlen(pragma);
    if (strncmp(r->in, pragma, n) != 0)
        return QM_OK;
    return qm_fail(QM_BAD_ARG, "%s:%d: %.*s (%s) cannot be emulated", r->users, r->users_line,
                   (int)strcspn(r->in + n, "\n"), r->in + n, r->file);
}

/* A line marker, # 12 "file" 3: file and line of the following lines; 3: a system header. */
static void marker(struct qm_rewriter *r)
{
    const char *end = strchr(r->in, '\n'), *quote;
    char *number_end;
    end = end ? end : r->in + strlen(r->in);
    long line = strtol(r->in + 1, &number_end, 10);
    if (number_end > r->in + 1 && (quote = memchr(r->in, '"', (size_t)(end - r->in)))) {
        const char *close = qm_rw_string_end(quote), *slash = NULL;
        for (const char *s = quote; s < close; s++)
            slash = *s == '/' ? s : slash;
        slash = slash ? slash : quote;
        if (!r->is_system) {
            memcpy(r->users, r->file, sizeof r->users);
            r->users_line = r->line;
        }
        snprintf(r->file, sizeof r->file, "%.*s", (int)(close - slash - 2), slash + 1);
        r->is_system = 0;
        for (const char *s = close; s < end; s++)
            r->is_system |= *s == '3';
        /* A kernel stands there too: core/device/tensor_rule.cu, with launch bounds. */
        r->is_layer = r->is_system && strncmp(quote + 1, r->layer, strlen(r->layer)) == 0 &&
                      quote[1 + strlen(r->layer)] == '/' &&
                      (close - quote < 5 || strncmp(close - 4, ".cu\"", 4) != 0);
        r->line = (int)line - 1;
    }
    if (!is_refused_pragma(r, end))
        qm_rw_put(r, r->in, (size_t)(end - r->in));
    r->in = end;
}

static qm_status one_token(struct qm_rewriter *r, const char *text)
{
    const char *s = r->in, *end = qm_rw_token_end(s);
    if (qm_rw_word_is(s, end, "__qm_global__"))
        QM_TRY(qm_rw_returns_void(r, end));
    if (qm_rw_mark(r, text, end))
        return QM_OK;
    if (attribute(r, end))
        return QM_OK;
    if (bounds_taken(r, end))
        return QM_OK;
    if (r->is_system) {
        qm_rw_put_token(r, s, end);
        bounds_put(r, *s);
        r->in = end;
        return QM_OK;
    }
    if (qm_rw_word_is(s, end, "__shared__"))
        return shared(r);
    if (strncmp(s, "<<<", 3) == 0)
        return qm_rw_launch(r);
    if (qm_rw_word_is(s, end, "asm") || qm_rw_word_is(s, end, "__asm__") ||
        qm_rw_word_is(s, end, "__asm"))
        return qm_rw_refuse(r, "inline PTX (asm) cannot be emulated");
    if (qm_rw_kernel_call(r, end))
        return QM_OK;
    if (qm_rw_word_is(s, end, "try")) {
        qm_rw_try_block(r, end);
        return QM_OK;
    }
    if (qm_rw_barrier(r, end))
        return QM_OK;
    if (qm_rw_word_is(s, end, "__noinline__") && *qm_rw_last(r, 0) != '(')
        qm_rw_puts(r, "__attribute__((noinline))");
    else
        qm_rw_put_token(r, s, end);
    bounds_put(r, *s);
    r->in = end;
    return QM_OK;
}

qm_status qm_emu_rewrite(const char *text, const char *layer, enum qm_emu_purpose purpose,
                         char **out)
{
    struct qm_rewriter *r = calloc(1, sizeof *r);
    qm_status st = QM_OK;
    int is_start = 1; /* of a line: blanks at most stand before */
    if (!r)
        return qm_fail(QM_NO_MEMORY, "the rewriter");
    qm_rw_put(r, "", 0);
    r->layer = layer;
    r->purpose = purpose;
    for (r->in = text; st == QM_OK && *r->in && !r->failed;) {
        if (*r->in == '\n') {
            qm_rw_put(r, r->in++, 1);
            r->line++;
            is_start = 1;
        } else if (*r->in == '#' && is_start) {
            st = refused_header(r);
            marker(r);
        } else if (r->is_layer)
            qm_rw_layer_line(r, text);
        else if (isspace((unsigned char)*r->in))
            qm_rw_put(r, r->in++, 1);
        else {
            st = one_token(r, text);
            is_start = 0;
        }
    }
    if (st == QM_OK && r->failed)
        st = qm_fail(QM_NO_MEMORY, "the rewritten kernel");
    if (st == QM_OK)
        *out = r->out;
    else
        free(r->out);
    free(r);
    return st;
}
