/* emu_tokens.c - Tokens of preprocessed text: where they end, and those that were written last. */
#include "core/emu/emu_tokens.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text out ------------------------------------------------------------------------------ */

void qm_rw_put(struct qm_rewriter *r, const char *text, size_t n)
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

void qm_rw_puts(struct qm_rewriter *r, const char *text) { qm_rw_put(r, text, strlen(text)); }

void qm_rw_put_number(struct qm_rewriter *r, const char *name, int n)
{
    char text[40];
    snprintf(text, sizeof text, "%s%d", name, n);
    qm_rw_puts(r, text);
}

qm_status qm_rw_refuse(const struct qm_rewriter *r, const char *what)
{
    return qm_fail(QM_BAD_ARG, "%s:%d: %s", r->file, r->line, what);
}

/* ---- tokens in ----------------------------------------------------------------------------- */

int qm_rw_is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

const char *qm_rw_string_end(const char *s)
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
        return qm_rw_string_end(s);
    snprintf(end, sizeof end, ")%.*s\"", (int)(open - s - 1), s + 1);
    const char *at = strstr(open, end);
    return at ? at + strlen(end) : s + strlen(s);
}

/* The end of the token at s, which must not be a blank. */
const char *qm_rw_token_end(const char *s)
{
    if (qm_rw_is_word(*s)) {
        const char *from = s;
        int is_number = isdigit((unsigned char)*s);
        while (qm_rw_is_word(*s) ||
               (is_number && (*s == '.' || (*s == '\'' && qm_rw_is_word(s[1])) ||
                              ((*s == '+' || *s == '-') && strchr("eEpP", s[-1])))))
            s++;
        if (*s == '"' && s - from <= 3 && s[-1] == 'R')
            return raw_end(s);
        if ((*s == '"' || *s == '\'') && s - from <= 2 && strchr("LuU8", s[-1]))
            return qm_rw_string_end(s);
        return s;
    }
    if (*s == '"' || *s == '\'')
        return qm_rw_string_end(s);
    return s + 1;
}

const char *qm_rw_skip_blanks(const char *s)
{
    while (*s && isspace((unsigned char)*s))
        s++;
    return s;
}

int qm_rw_word_is(const char *s, const char *end, const char *word)
{
    return (size_t)(end - s) == strlen(word) && memcmp(s, word, (size_t)(end - s)) == 0;
}

/* The end of the bracket that closes the one at s; NULL: none does. */
const char *qm_rw_closing(const char *s)
{
    int depth = 0;
    for (; *s; s = qm_rw_token_end(qm_rw_skip_blanks(s))) {
        s = qm_rw_skip_blanks(s);
        depth += *s == '(' || *s == '[' || *s == '{';
        if ((*s == ')' || *s == ']' || *s == '}') && --depth == 0)
            return s + 1;
    }
    return NULL;
}

int qm_rw_newlines(const char *s, const char *end)
{
    int n = 0;
    for (; s < end; s++)
        n += *s == '\n';
    return n;
}

/* ---- tokens written -------------------------------------------------------------------------- */

void qm_rw_put_token(struct qm_rewriter *r, const char *s, const char *end)
{
    r->token[r->n_tokens++ % QM_RW_TOKENS] = r->used;
    qm_rw_put(r, s, (size_t)(end - s));
}

/* The text from the k-th last token on, 0 being the last token; "" where there is none. */
const char *qm_rw_last(const struct qm_rewriter *r, int k)
{
    return k < r->n_tokens && k < QM_RW_TOKENS
               ? r->out + r->token[(r->n_tokens - 1 - k) % QM_RW_TOKENS]
               : "";
}

/* How many of the last tokens belong to the statement that the next token continues. */
int qm_rw_statement(const struct qm_rewriter *r)
{
    int k = 0;
    while (*qm_rw_last(r, k) && !strchr(";{}", *qm_rw_last(r, k)))
        k++;
    return k;
}

/* The first comma outside of brackets, or end. */
const char *qm_rw_comma(const char *s, const char *end)
{
    int angles = 0;
    for (s = qm_rw_skip_blanks(s); s < end; s = qm_rw_skip_blanks(s)) {
        const char *next =
            *s == '(' || *s == '[' || *s == '{' ? qm_rw_closing(s) : qm_rw_token_end(s);
        angles += (*s == '<') - (*s == '>');
        if (!next || (*s == ',' && angles == 0))
            return next ? s : end;
        s = next;
    }
    return end;
}
