/* emu_rewrite.c - One pass over tokens: finds where types and expressions end; does not
 * parse them. */
#include "core/emu/emu_rewrite.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/emu/emu_device.h"

enum { TOKENS = 4096, FILE_TEXT = 200 };

struct rewriter {
    const char *in; /* the next character */
    const char *layer;
    enum qm_emu_purpose purpose;
    char *out;
    size_t used, room;
    int is_system, is_layer, line, n_made, failed;
    char file[FILE_TEXT], users[FILE_TEXT]; /* users, users_line: the last place in a user's file */
    int users_line;
    /* A ring of the last tokens written, by their first bytes in out. */
    size_t token[TOKENS];
    int n_tokens;
    /* __launch_bounds__ of the kernel whose body is still to come: its arguments in the input. */
    const char *bounds, *bounds_end;
    int parens; /* open since then */
};

/* ---- text out ------------------------------------------------------------------------------ */

static void put(struct rewriter *r, const char *text, size_t n)
{
    if (r->used + n + 1 > r->room) {
        size_t room = 2 * r->room + n + 1;
        char *more = realloc(r->out, room);
        if (!more) {
            r->failed = 1;
            return;
        }
        r->out = more;
        r->room = room;
    }
    memcpy(r->out + r->used, text, n);
    r->used += n;
    r->out[r->used] = '\0';
}

static void puts_to(struct rewriter *r, const char *text) { put(r, text, strlen(text)); }

static void put_number(struct rewriter *r, const char *name, int n)
{
    char text[40];
    snprintf(text, sizeof text, "%s%d", name, n);
    puts_to(r, text);
}

/* Escapes text for a C string; white space becomes one blank. */
static void put_quoted(struct rewriter *r, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (isspace((unsigned char)text[i])) {
            if (i + 1 < n && !isspace((unsigned char)text[i + 1]))
                puts_to(r, " ");
        } else {
            if (text[i] == '"' || text[i] == '\\')
                puts_to(r, "\\");
            put(r, text + i, 1);
        }
    }
}

static qm_status refuse(const struct rewriter *r, const char *what)
{
    return qm_fail(QM_BAD_ARG, "%s:%d: %s", r->file, r->line, what);
}

/* ---- tokens in ----------------------------------------------------------------------------- */

static int is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *string_end(const char *s)
{
    char quote = *s++;
    while (*s && *s != quote && *s != '\n')
        s += *s == '\\' && s[1] ? 2 : 1;
    return *s == quote ? s + 1 : s;
}

/* R"x( ... )x" */
static const char *raw_end(const char *s)
{
    const char *open = strchr(s, '(');
    char end[32];
    if (!open || open - s > 20)
        return string_end(s);
    snprintf(end, sizeof end, ")%.*s\"", (int)(open - s - 1), s + 1);
    const char *at = strstr(open, end);
    return at ? at + strlen(end) : s + strlen(s);
}

/* The end of the token at s, which must not be a blank. */
static const char *token_end(const char *s)
{
    if (is_word(*s)) {
        const char *from = s;
        int is_number = isdigit((unsigned char)*s);
        while (is_word(*s) || (is_number && (*s == '.' || (*s == '\'' && is_word(s[1])) ||
                                             ((*s == '+' || *s == '-') && strchr("eEpP", s[-1])))))
            s++;
        if (*s == '"' && s - from <= 3 && s[-1] == 'R')
            return raw_end(s);
        if ((*s == '"' || *s == '\'') && s - from <= 2 && strchr("LuU8", s[-1]))
            return string_end(s);
        return s;
    }
    if (*s == '"' || *s == '\'')
        return string_end(s);
    return s + 1;
}

static const char *skip_blanks(const char *s)
{
    while (*s && isspace((unsigned char)*s))
        s++;
    return s;
}

static int word_is(const char *s, const char *end, const char *word)
{
    return (size_t)(end - s) == strlen(word) && memcmp(s, word, (size_t)(end - s)) == 0;
}

/* The end of the bracket that closes the one at s; NULL: none does. */
static const char *closing(const char *s)
{
    int depth = 0;
    for (; *s; s = token_end(skip_blanks(s))) {
        s = skip_blanks(s);
        depth += *s == '(' || *s == '[' || *s == '{';
        if ((*s == ')' || *s == ']' || *s == '}') && --depth == 0)
            return s + 1;
    }
    return NULL;
}

static int newlines(const char *s, const char *end)
{
    int n = 0;
    for (; s < end; s++)
        n += *s == '\n';
    return n;
}

/* ---- tokens written -------------------------------------------------------------------------- */

static void put_token(struct rewriter *r, const char *s, const char *end)
{
    r->token[r->n_tokens++ % TOKENS] = r->used;
    put(r, s, (size_t)(end - s));
}

/* The text from the k-th last token on, 0 being the last token; "" where there is none. */
static const char *last(const struct rewriter *r, int k)
{
    return k < r->n_tokens && k < TOKENS ? r->out + r->token[(r->n_tokens - 1 - k) % TOKENS] : "";
}

/* How many of the last tokens belong to the statement that the next token continues. */
static int statement(const struct rewriter *r)
{
    int k = 0;
    while (*last(r, k) && !strchr(";{}", *last(r, k)))
        k++;
    return k;
}

/* The number, for last(), of the first token of a kernel's name such as a::b<c, d>; -1: no name. */
static int kernel_name(const struct rewriter *r)
{
    int k = 0;
    for (;;) {
        if (*last(r, k) == '>') { /* back to its < */
            int depth = 0, parens = 0;
            for (;; k++) {
                char c = *last(r, k);
                parens += (c == ')') - (c == '(');
                depth += parens == 0 ? (c == '>') - (c == '<') : 0;
                if (depth == 0)
                    break;
                if (c == '\0' || c == ';')
                    return -1;
            }
            k++;
        }
        if (!is_word(*last(r, k)))
            return -1;
        if (*last(r, k + 1) != ':' || *last(r, k + 2) != ':')
            return k;
        if (!is_word(*last(r, k + 3)) && *last(r, k + 3) != '>')
            return k + 2; /* ::name */
        k += 3;
    }
}

/* Copies text of a launch, but for the words of marks, which stand at lambdas there. */
static void put_unmarked(struct rewriter *r, const char *s, const char *end)
{
    while (s < end) {
        const char *next = isspace((unsigned char)*s) ? s + 1 : token_end(s);
        if (strncmp(s, "__qm_", 5) != 0)
            put(r, s, (size_t)(next - s));
        s = next;
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Rewrites a launch; the input stands at <<<. */
static qm_status launch(struct rewriter *r)
{
    const char *config = r->in + 3, *s = config, *end;
    int k = kernel_name(r);
    if (k < 0)
        return refuse(r, "the kernel before <<< is not a name; it cannot be emulated");
    for (s = skip_blanks(s); *s && strncmp(s, ">>>", 3) != 0; s = skip_blanks(s)) {
        end = *s == '(' || *s == '[' || *s == '{' ? closing(s) : token_end(s);
        if (!end || *s == ';')
            break;
        s = end;
    }
    const char *args = strncmp(s, ">>>", 3) == 0 ? skip_blanks(s + 3) : s;
    if (*args != '(' || !(end = closing(args)))
        return refuse(r, "<<< without >>>(...)");
    size_t from = r->token[(r->n_tokens - 1 - k) % TOKENS], n = r->used - from;
    char *name = malloc(n + 1);
    if (!name)
        return qm_fail(QM_NO_MEMORY, "a kernel's name");
    memcpy(name, r->out + from, n);
    name[n] = '\0';
    r->used = from;
    r->n_tokens -= k + 1;
    puts_to(r, "::qm_emu::launch(::qm_emu::config(");
    put_unmarked(r, config, s);
    puts_to(r, "), \"");
    put_quoted(r, name, n);
    puts_to(r, "\", [&]() __attribute__((no_sanitize(\"thread\"))) { ");
    puts_to(r, r->purpose == QM_EMU_MARK ? "::qm_emu_launches(); " : "");
    puts_to(r, name);
    put_unmarked(r, s + 3, end);
    puts_to(r, "; })");
    r->line += newlines(r->in, end);
    r->in = end;
    free(name);
    return QM_OK;
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* Finds the name of a declarator, and where its stars begin (else its name).  Returns 0 where it is
 * not a declarator. */
static int declarator(const char *s, const char *end, const char **stars, const char **name,
                      const char **name_end)
{
    int angles = 0;
    *name = *stars = NULL;
    for (s = skip_blanks(s); s < end; s = skip_blanks(s)) {
        const char *next = *s == '(' || *s == '[' || *s == '{' ? closing(s) : token_end(s);
        if (!next || next > end)
            return 0;
        if (*s == '[' && s[1] != '[' && *name)
            break;
        angles += (*s == '<') - (*s == '>');
        if (*s == '*' && angles == 0 && !*stars)
            *stars = s;
        if (is_word(*s) && !isdigit((unsigned char)*s)) {
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
    for (s = skip_blanks(s); s < end; s = skip_blanks(s)) {
        const char *next = strchr("([{", *s) ? closing(s) : token_end(s);
        if (*s == '=' || (*s == '{' && !is_type))
            return 1;
        if (!next)
            return 0;
        is_type = (is_type && *s != '{') || word_is(s, next, "struct") ||
                  word_is(s, next, "union") || word_is(s, next, "class");
        s = next;
    }
    return 0;
}

/* The first comma outside of brackets, or end. */
static const char *comma(const char *s, const char *end)
{
    int angles = 0;
    for (s = skip_blanks(s); s < end; s = skip_blanks(s)) {
        const char *next = *s == '(' || *s == '[' || *s == '{' ? closing(s) : token_end(s);
        angles += (*s == '<') - (*s == '>');
        if (!next || (*s == ',' && angles == 0))
            return next ? s : end;
        s = next;
    }
    return end;
}

/* Writes a type's words, without storage classes; alignas becomes the attribute that a
 * typedef takes. */
static void put_type(struct rewriter *r, const char *s, const char *end)
{
    while (s < end) {
        const char *from = s, *next;
        s = skip_blanks(s);
        put(r, from, (size_t)((s < end ? s : end) - from));
        if (s >= end)
            break;
        next = token_end(s);
        if (word_is(s, next, "alignas") && *skip_blanks(next) == '(') {
            const char *close = closing(skip_blanks(next));
            puts_to(r, "__attribute__((aligned");
            put(r, next, (size_t)(close - next));
            puts_to(r, "))");
            next = close;
        } else if (*s == '[' && s[1] == '[')
            next = closing(s);
        else if (!word_is(s, next, "static") && !word_is(s, next, "extern") &&
                 !word_is(s, next, "__shared__") && !word_is(s, next, "inline"))
            put(r, s, (size_t)(next - s));
        s = next;
    }
}

static void put_variable(struct rewriter *r, int base, const char *stars, const char *name,
                         const char *name_end, const char *end, int is_dynamic)
{
    int n = ++r->n_made, length = (int)(name_end - name);
    char text[400];
    if (is_dynamic) {
        snprintf(text, sizeof text, " static qm_b%d *const %.*s = (qm_b%d *)qm_emu_dynamic;", base,
                 length, name, base);
        puts_to(r, text);
        return;
    }
    put_number(r, " typedef qm_b", base);
    puts_to(r, " ");
    put(r, stars, (size_t)(name - stars));
    put_number(r, "qm_t", n);
    put(r, name_end, (size_t)(end - name_end));
    snprintf(
        text, sizeof text,
        "; static char qm_k%d; qm_t%d &%.*s = *(qm_t%d *)qm_emu_shared(&qm_k%d, sizeof(qm_t%d), "
        "alignof(qm_t%d), \"%.*s\");",
        n, n, length, name, n, n, n, n, length, name);
    puts_to(r, text);
}

/* Rewrites the declaration that __shared__, where the input stands, is part of. */
static qm_status shared(struct rewriter *r)
{
    int k = statement(r), base = ++r->n_made, is_dynamic = 0;
    size_t from = k > 0 ? r->token[(r->n_tokens - k) % TOKENS] : r->used;
    const char *stars, *name, *name_end, *s = token_end(r->in), *end = s;
    while (*end && *end != ';') {
        const char *next = strchr("([{", *end) ? closing(end) : token_end(end);
        if (!next)
            break;
        end = skip_blanks(next);
    }
    char *before = malloc(r->used - from + 1);
    if (!before)
        return qm_fail(QM_NO_MEMORY, "a declaration");
    memcpy(before, r->out + from, r->used - from);
    before[r->used - from] = '\0';
    for (int i = 0; i < k; i++)
        is_dynamic |= strncmp(last(r, i), "extern", 6) == 0;
    r->used = from;
    const char *first = comma(s, end);
    if (*end == ';' && !is_dynamic && has_initializer(s, end)) {
        free(before);
        return refuse(r, "this __shared__ variable has an initializer: shared memory has none");
    }
    if (*end != ';' || !declarator(s, first, &stars, &name, &name_end)) {
        free(before);
        return refuse(r, "this __shared__ cannot be read: expected a type, names and bounds");
    }
    puts_to(r, "typedef ");
    put_type(r, before, before + strlen(before));
    put_type(r, s, stars);
    put_number(r, " qm_b", base);
    puts_to(r, ";");
    free(before);
    put_variable(r, base, stars, name, name_end, first, is_dynamic);
    for (const char *next; first < end; first = next) {
        next = comma(first + 1, end);
        if (!declarator(first + 1, next, &stars, &name, &name_end))
            return refuse(r, "this __shared__ cannot be read");
        put_variable(r, base, stars, name, name_end, next, is_dynamic);
    }
    r->token[r->n_tokens++ % TOKENS] = r->used - 1; /* the ; */
    r->line += newlines(r->in, end);
    r->in = end + 1;
    return QM_OK;
}

/* ---- launch bounds --------------------------------------------------------------------------- */

/* Takes __launch_bounds__(...) out, where the input stands; returns 0 where it is another
 * token. */
static int bounds_taken(struct rewriter *r, const char *end)
{
    const char *args = skip_blanks(end), *close = *args == '(' ? closing(args) : NULL;
    if (!word_is(r->in, end, "__launch_bounds__") || !close)
        return 0;
    r->bounds = args;
    r->bounds_end = close;
    r->parens = 0;
    for (const char *s = r->in; s < close; s++)
        if (*s == '\n') {
            put(r, "\n", 1);
            r->line++;
        }
    r->in = close;
    return 1;
}

/* Follows the tokens from __launch_bounds__ to the kernel's body, whose first statement checks the
 * block; a declaration without a body is left. */
static void bounds_put(struct rewriter *r, char token)
{
    if (!r->bounds)
        return;
    r->parens += (token == '(') - (token == ')');
    if (r->parens == 0 && token == ';')
        r->bounds = NULL;
    if (r->parens != 0 || token != '{')
        return;
    puts_to(r, "::qm_emu::launch_bounds(::qm_emu::bounds");
    for (const char *s = r->bounds; s < r->bounds_end; s++)
        if (*s == '\n' && s[1] == '#') /* the marker of a macro's line */
            s += strcspn(s + 1, "\n");
        else
            put(r, *s == '\n' ? " " : s, 1);
    puts_to(r, ");");
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
        if (word_is(s, end, names[i]))
            return 1;
    return 0;
}

/* Whether the last tokens open an attribute list: `((`, `[[`, `::` of a scoped name, or a comma
 * within such a list. */
static int is_in_attribute(const struct rewriter *r)
{
    int depth = 0;
    for (int k = 0; k < 64 && *last(r, k); k++) {
        char c = *last(r, k);
        depth += (c == ')' || c == ']') - (c == '(' || c == '[');
        if (c == ';' || c == '{' || c == '}')
            return 0;
        if (depth == -2)
            return c == '[' ? *last(r, k - 1) == '['
                            : strncmp(last(r, k + 1), "__attribute", 11) == 0;
    }
    return 0;
}

/* Writes `unused` for a refused attribute and its arguments, where the input stands.  Returns
 * whether it did. */
static int attribute(struct rewriter *r, const char *end)
{
    if (r->is_layer || !is_refused_attribute(r->in, end) || !is_in_attribute(r))
        return 0;
    const char *args = skip_blanks(end), *close = *args == '(' ? closing(args) : NULL;
    static const char unused[] = "unused";
    put_token(r, unused, unused + strlen(unused));
    for (const char *s = r->in; close && s < close; s++)
        if (*s == '\n') {
            put(r, "\n", 1);
            r->line++;
        }
    r->in = close ? close : end;
    return 1;
}

/* Whether the line at the input, which ends at `end`, is a pragma that changes attributes
 * or flags. */
static int is_refused_pragma(const struct rewriter *r, const char *end)
{
    static const char *const words[] = {"optimize", "target",      "attribute",    "push_options",
                                        "fp",       "pop_options", "reset_options"};
    const char *s = skip_blanks(r->in + 1), *next = token_end(s);
    if (r->is_layer || r->is_system || !word_is(s, next, "pragma"))
        return 0;
    s = skip_blanks(next);
    next = token_end(s);
    if (!word_is(s, next, "GCC") && !word_is(s, next, "clang"))
        return 0;
    s = skip_blanks(next);
    next = token_end(s);
    for (size_t i = 0; i < sizeof words / sizeof *words && next <= end; i++)
        if (word_is(s, next, words[i]))
            return 1;
    return 0;
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Whether the last token closes the captures of a lambda: a ] that ends no attribute. */
static int is_after_captures(const struct rewriter *r)
{
    int depth = 0, k = 0;
    if (*last(r, 0) != ']')
        return 0;
    do {
        depth += (*last(r, k) == ']') - (*last(r, k) == '[');
        k++;
    } while (depth > 0 && *last(r, k));
    return *last(r, k) != '[';
}

static int is_word_at(const char *s, const char *word)
{
    return word_is(s, token_end(s), word);
}

/* Whether __host__ stands beside the __device__ at s. */
static int is_beside_host(const char *text, const char *s, const char *end)
{
    static const char host[] = "__qm_host__";
    const size_t n = strlen(host);
    const char *before = s;
    while (before > text && isspace((unsigned char)before[-1]))
        before--;
    return is_word_at(skip_blanks(end), host) ||
           ((size_t)(before - text) >= n && memcmp(before - n, host, n) == 0);
}

/* Checks that the kernel whose __global__ ends at s returns void. */
static qm_status returns_void(const struct rewriter *r, const char *s)
{
    static const char *const with[] = {"__launch_bounds__", "__attribute__", "alignas"};
    int angles = 0;
    for (int k = statement(r) - 1; k >= 0; k--)
        if (is_word_at(last(r, k), "void") || is_word_at(last(r, k), "auto"))
            return QM_OK;
    for (s = skip_blanks(s); *s && *s != '(' && *s != ';' && *s != '{';) {
        const char *end = token_end(s);
        angles += (*s == '<') - (*s == '>');
        if (angles == 0 && (word_is(s, end, "void") || word_is(s, end, "auto")))
            return QM_OK;
        for (size_t i = 0; i < sizeof with / sizeof *with; i++)
            if (word_is(s, end, with[i]) && *skip_blanks(end) == '(' && closing(skip_blanks(end)))
                end = closing(skip_blanks(end));
        s = skip_blanks(end);
    }
    return *s == '(' ? refuse(r, "this __global__ function does not return void") : QM_OK;
}

/* Writes what the word at the input stands for, if it is one that qm_emu.hpp makes of __device__ and
 * its like; returns 0 where it is another. */
static int mark(struct rewriter *r, const char *text, const char *end)
{
    static const struct {
        const char *word;
        int power;
    } marks[] = {{"__qm_device__", QM_MARK_DEVICE},   {"__qm_global__", QM_MARK_GLOBAL},
                 {"__qm_managed__", QM_MARK_MANAGED}, {"__qm_constant__", QM_MARK_CONSTANT},
                 {"__qm_host__", 0},                  {"__qm_always__", -1}};
    size_t i = 0, n = sizeof marks / sizeof *marks;
    while (i < n && !word_is(r->in, end, marks[i].word))
        i++;
    if (i == n)
        return 0;
    int power = marks[i].power;
    if (power == QM_MARK_DEVICE && is_beside_host(text, r->in, end))
        power = QM_MARK_BOTH;
    char attribute[60] = "";
    if (power == QM_MARK_GLOBAL && !r->bounds) { /* every kernel has bounds */
        static const char most[] = "(1024)";
        r->bounds = most;
        r->bounds_end = most + strlen(most);
        r->parens = 0;
    }
    if (power < 0 && r->purpose == QM_EMU_RUN)
        snprintf(attribute, sizeof attribute, "__attribute__((always_inline))");
    else if (power == QM_MARK_CONSTANT && r->purpose == QM_EMU_RUN) /* also where it is only written */
        snprintf(attribute, sizeof attribute, "__attribute__((used))");
    else if (power > 0 && r->purpose == QM_EMU_MARK && !is_after_captures(r))
        snprintf(attribute, sizeof attribute, "__attribute__((aligned(%d)))", 1 << power);
    puts_to(r, attribute);
    r->in = end;
    return 1;
}

/* Copies a line of the layer, but for the words of marks. */
static void layer_line(struct rewriter *r, const char *text)
{
    while (*r->in && *r->in != '\n') {
        const char *end = isspace((unsigned char)*r->in) ? r->in + 1 : token_end(r->in);
        if (*r->in == '_' && mark(r, text, end))
            continue;
        put(r, r->in, (size_t)(end - r->in));
        r->in = end;
    }
}

/* The end of a cast to a pointer to void at s: (const void *) or static_cast<void *>; s: there is
 * none. */
static const char *cast_end(const char *s)
{
    const char *end = token_end(s), *open = s;
    if (word_is(s, end, "reinterpret_cast") || word_is(s, end, "static_cast"))
        open = skip_blanks(end);
    if (*open != (open == s ? '(' : '<'))
        return s;
    int n_void = 0, n_stars = 0;
    for (end = skip_blanks(open + 1); *end && !strchr(")>", *end);) {
        const char *next = token_end(end);
        n_void += word_is(end, next, "void");
        n_stars += *end == '*';
        if (!word_is(end, next, "void") && !word_is(end, next, "const") && *end != '*')
            return s;
        end = skip_blanks(next);
    }
    return n_void == 1 && n_stars == 1 && *end ? end + 1 : s;
}

/* Copies a call of CUDA's runtime library that gets a kernel, without a cast of it to void *. */
static int kernel_call(struct rewriter *r, const char *end)
{
    static const struct {
        const char *name;
        int argument; /* which is the kernel */
    } calls[] = {{"cudaLaunchKernel", 0},
                 {"cudaFuncSetAttribute", 0},
                 {"cudaFuncSetCacheConfig", 0},
                 {"cudaFuncGetAttributes", 1},
                 {"cudaOccupancyMaxActiveBlocksPerMultiprocessor", 1},
                 {"cudaOccupancyMaxPotentialBlockSize", 2}};
    size_t i = 0, n = sizeof calls / sizeof *calls;
    while (i < n && !word_is(r->in, end, calls[i].name))
        i++;
    const char *s = skip_blanks(end), *close = i < n && *s == '(' ? closing(s) : NULL;
    if (!close)
        return 0;
    s++;
    for (int k = 0; i < n && k < calls[i].argument && s < close; k++)
        s = comma(s, close) + 1;
    s = skip_blanks(s);
    if (s >= close || cast_end(s) == s)
        return 0;
    put_token(r, r->in, end);
    put(r, end, (size_t)(s - end));
    r->line += newlines(r->in, cast_end(s));
    r->in = cast_end(s);
    return 1;
}

/* Copies `try {` and a mark behind it. */
static void try_block(struct rewriter *r, const char *end)
{
    const char *open = skip_blanks(end);
    put_token(r, r->in, end);
    r->in = end;
    if (*open != '{' || r->purpose != QM_EMU_MARK)
        return;
    put(r, end, (size_t)(open - end));
    put_token(r, open, open + 1);
    puts_to(r, " ::qm_emu_tries();");
    r->line += newlines(end, open);
    r->in = open + 1;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Refuses a source that includes a header with the pragma QM_EMU_REFUSED, where the input stands. */
static qm_status refused_header(const struct rewriter *r)
{
    static const char pragma[] = "#pragma " QM_EMU_REFUSED " ";
    const size_t n = strlen(pragma);
    if (strncmp(r->in, pragma, n) != 0)
        return QM_OK;
    return qm_fail(QM_BAD_ARG, "%s:%d: %.*s (%s) cannot be emulated", r->users, r->users_line,
                   (int)strcspn(r->in + n, "\n"), r->in + n, r->file);
}

/* A line marker, # 12 "file" 3: file and line of the following lines; 3: a system header. */
static void marker(struct rewriter *r)
{
    const char *end = strchr(r->in, '\n'), *quote;
    char *number_end;
    end = end ? end : r->in + strlen(r->in);
    long line = strtol(r->in + 1, &number_end, 10);
    if (number_end > r->in + 1 && (quote = memchr(r->in, '"', (size_t)(end - r->in)))) {
        const char *close = string_end(quote), *slash = NULL;
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
        put(r, r->in, (size_t)(end - r->in));
    r->in = end;
}

static qm_status one_token(struct rewriter *r, const char *text)
{
    const char *s = r->in, *end = token_end(s);
    if (word_is(s, end, "__qm_global__"))
        QM_TRY(returns_void(r, end));
    if (mark(r, text, end))
        return QM_OK;
    if (attribute(r, end))
        return QM_OK;
    if (bounds_taken(r, end))
        return QM_OK;
    if (r->is_system) {
        put_token(r, s, end);
        bounds_put(r, *s);
        r->in = end;
        return QM_OK;
    }
    if (word_is(s, end, "__shared__"))
        return shared(r);
    if (strncmp(s, "<<<", 3) == 0)
        return launch(r);
    if (word_is(s, end, "asm") || word_is(s, end, "__asm__") || word_is(s, end, "__asm"))
        return refuse(r, "inline PTX (asm) cannot be emulated");
    if (kernel_call(r, end))
        return QM_OK;
    if (word_is(s, end, "try")) {
        try_block(r, end);
        return QM_OK;
    }
    if (word_is(s, end, "__noinline__") && *last(r, 0) != '(')
        puts_to(r, "__attribute__((noinline))");
    else
        put_token(r, s, end);
    bounds_put(r, *s);
    r->in = end;
    return QM_OK;
}

qm_status qm_emu_rewrite(const char *text, const char *layer, enum qm_emu_purpose purpose,
                         char **out)
{
    struct rewriter *r = calloc(1, sizeof *r);
    qm_status st = QM_OK;
    int is_start = 1; /* of a line: blanks at most stand before */
    if (!r)
        return qm_fail(QM_NO_MEMORY, "the rewriter");
    put(r, "", 0);
    r->layer = layer;
    r->purpose = purpose;
    for (r->in = text; st == QM_OK && *r->in && !r->failed;) {
        if (*r->in == '\n') {
            put(r, r->in++, 1);
            r->line++;
            is_start = 1;
        } else if (*r->in == '#' && is_start) {
            st = refused_header(r);
            marker(r);
        } else if (r->is_layer)
            layer_line(r, text);
        else if (isspace((unsigned char)*r->in))
            put(r, r->in++, 1);
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
