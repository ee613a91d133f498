/* emu_launch.c - Finds the name of a launched kernel and its arguments; does not parse them. */
#include "core/emu/emu_launch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Escapes text for a C string; white space becomes one blank. */
static void put_quoted(struct qm_rewriter *r, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (isspace((unsigned char)text[i])) {
            if (i + 1 < n && !isspace((unsigned char)text[i + 1]))
                qm_rw_puts(r, " ");
        } else {
            if (text[i] == '"' || text[i] == '\\')
                qm_rw_puts(r, "\\");
            qm_rw_put(r, text + i, 1);
        }
    }
}

/* The number, for qm_rw_last(), of the first token of a kernel's name such as a::b<c, d>; -1: no
 * name. */
static int kernel_name(const struct qm_rewriter *r)
{
    int k = 0;
    for (;;) {
        if (*qm_rw_last(r, k) == '>') { /* back to its < */
            int depth = 0, parens = 0;
            for (;; k++) {
                char c = *qm_rw_last(r, k);
                parens += (c == ')') - (c == '(');
                depth += parens == 0 ? (c == '>') - (c == '<') : 0;
                if (depth == 0)
                    break;
                if (c == '\0' || c == ';')
                    return -1;
            }
            k++;
        }
        if (!qm_rw_is_word(*qm_rw_last(r, k)))
            return -1;
        if (*qm_rw_last(r, k + 1) != ':' || *qm_rw_last(r, k + 2) != ':')
            return k;
        if (!qm_rw_is_word(*qm_rw_last(r, k + 3)) && *qm_rw_last(r, k + 3) != '>')
            return k + 2; /* ::name */
        k += 3;
    }
}

/* Copies text of a launch, but for the words of marks, which stand at lambdas there. */
static void put_unmarked(struct qm_rewriter *r, const char *s, const char *end)
{
    while (s < end) {
        const char *next = isspace((unsigned char)*s) ? s + 1 : qm_rw_token_end(s);
        if (strncmp(s, "__qm_", 5) != 0)
            qm_rw_put(r, s, (size_t)(next - s));
        s = next;
    }
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Where template arguments end that begin with the < at s: their >; s: it is another operator. */
static const char *angles_end(const char *s, const char *end)
{
    const char *from = s;
    int depth = 0;
    do {
        s = qm_rw_skip_blanks(s);
        if (s >= end || !(qm_rw_is_word(*s) || strchr("<>,:*&", *s)))
            return from;
        depth += (*s == '<') - (*s == '>');
        s = qm_rw_token_end(s);
    } while (depth > 0);
    const char *next = qm_rw_skip_blanks(s);
    return next < end && strchr("({:", *next) ? s : from;
}

/* The end of the argument at s: a comma, or end. */
static const char *argument_end(const char *s, const char *end)
{
    for (s = qm_rw_skip_blanks(s); s < end && *s != ','; s = qm_rw_skip_blanks(s)) {
        const char *next = strchr("([{", *s) ? qm_rw_closing(s)
                           : *s == '<'       ? angles_end(s, end)
                                             : qm_rw_token_end(s);
        if (!next)
            return end;
        s = next > s ? next : s + 1;
    }
    return s < end ? s : end;
}

/* Skips blanks and the markers of lines. */
static const char *skip_lines(const char *s)
{
    for (;; s += strcspn(s, "\n")) {
        const char *from = s;
        s = qm_rw_skip_blanks(s);
        if (*s != '#' || s == from || s[-1] != '\n')
            return s;
    }
}

/* Whether an argument stays in the call: a number, a null pointer, whose type a copy would lose,
 * braces without a type, a pack. */
static int stays(const char *s, const char *end)
{
    static const char *const words[] = {"__null", "nullptr", "NULL"};
    s = skip_lines(s);
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    int is_named = s >= end || *s == '{' || (end - s > 3 && strncmp(end - 3, "...", 3) == 0);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is_named |= qm_rw_word_is(s, end, words[i]);
    return is_named || (isdigit((unsigned char)*s) && qm_rw_token_end(s) >= end);
}

/* Writes the line ends of a piece of text and the markers that stand behind them. */
static void put_lines(struct qm_rewriter *r, const char *s, const char *end)
{
    for (; s < end; s++)
        if (*s == '\n') {
            size_t n = s[1] == '#' ? strcspn(s + 1, "\n") : 0;
            qm_rw_put(r, s, n + 1);
        }
}

/* Writes copies of the arguments for a lambda to capture: `, qm_a1 = ::qm_emu::copied(p.get())`. */
static void put_copies(struct qm_rewriter *r, const char *s, const char *end)
{
    int n = 0;
    for (const char *next; s < end; s = next + 1) {
        next = argument_end(s, end);
        n++;
        if (stays(s, next)) {
            put_lines(r, s, next);
            continue;
        }
        qm_rw_put_number(r, ", qm_a", n);
        qm_rw_puts(r, " = ::qm_emu::copied(");
        put_unmarked(r, s, next);
        qm_rw_puts(r, ")");
    }
}

/* Writes the arguments of the call, on one line. */
static void put_arguments(struct qm_rewriter *r, const char *s, const char *end)
{
    int n = 0;
    qm_rw_puts(r, "(");
    for (const char *next; s < end; s = next + 1) {
        next = argument_end(s, end);
        qm_rw_puts(r, n > 0 ? ", " : "");
        n++;
        if (!stays(s, next)) {
            qm_rw_put_number(r, "qm_a", n);
            qm_rw_puts(r, ".value");
            continue;
        }
        for (s = skip_lines(s); s < next; s++)
            if (*s == '\n' && s[1] == '#')
                s += strcspn(s + 1, "\n");
            else
                qm_rw_put(r, isspace((unsigned char)*s) ? " " : s, 1);
    }
    qm_rw_puts(r, ")");
}

/* ---- launches -------------------------------------------------------------------------------- */

qm_status qm_rw_launch(struct qm_rewriter *r)
{
    const char *config = r->in + 3, *s = config, *end;
    int k = kernel_name(r);
    if (k < 0)
        return qm_rw_refuse(r, "the kernel before <<< is not a name; it cannot be emulated");
    for (s = qm_rw_skip_blanks(s); *s && strncmp(s, ">>>", 3) != 0; s = qm_rw_skip_blanks(s)) {
        end = *s == '(' || *s == '[' || *s == '{' ? qm_rw_closing(s) : qm_rw_token_end(s);
        if (!end || *s == ';')
            break;
        s = end;
    }
    const char *args = strncmp(s, ">>>", 3) == 0 ? qm_rw_skip_blanks(s + 3) : s;
    if (*args != '(' || !(end = qm_rw_closing(args)))
        return qm_rw_refuse(r, "<<< without >>>(...)");
    size_t from = r->token[(r->n_tokens - 1 - k) % QM_RW_TOKENS], n = r->used - from;
    char *name = malloc(n + 1);
    if (!name)
        return qm_fail(QM_NO_MEMORY, "a kernel's name");
    memcpy(name, r->out + from, n);
    name[n] = '\0';
    r->used = from;
    r->n_tokens -= k + 1;
    qm_rw_puts(r, "::qm_emu::launch(::qm_emu::config(");
    put_unmarked(r, config, s);
    qm_rw_puts(r, "), \"");
    put_quoted(r, name, n);
    qm_rw_puts(r, "\", [&");
    put_copies(r, args + 1, end - 1);
    qm_rw_puts(r, "]() __attribute__((no_sanitize(\"thread\"))) { ");
    qm_rw_puts(r, r->purpose == QM_EMU_MARK ? "::qm_emu_launches(); " : "");
    qm_rw_puts(r, name);
    put_arguments(r, args + 1, end - 1);
    qm_rw_puts(r, "; })");
    r->line += qm_rw_newlines(r->in, end);
    r->in = end;
    free(name);
    return QM_OK;
}
