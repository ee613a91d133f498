/* emu_tokens.h - What the passes of the rewriter share: its state, tokens read and tokens written.
 * */
#ifndef QM_EMU_TOKENS_H
#define QM_EMU_TOKENS_H

#include <stddef.h>

#include "core/emu/emu_rewrite.h"

enum { QM_RW_TOKENS = 4096, QM_RW_FILE = 200 };

struct qm_rewriter {
    const char *in; /* the next character */
    const char *layer;
    enum qm_emu_purpose purpose;
    char *out;
    size_t used, room;
    int is_system, is_layer, line, n_made, n_barriers, failed;
    char file[QM_RW_FILE],
        users[QM_RW_FILE]; /* users, users_line: the last place in a user's file */
    int users_line;
    /* A ring of the last tokens written, by their first bytes in out. */
    size_t token[QM_RW_TOKENS];
    int n_tokens;
    /* __launch_bounds__ of the kernel whose body is still to come: its arguments in the input. */
    const char *bounds, *bounds_end;
    int parens; /* open since then */
};

/* Append to the output: n bytes, a text, a name with a number behind it, a token, which
 * qm_rw_last then knows. */
void qm_rw_put(struct qm_rewriter *r, const char *text, size_t n);
void qm_rw_puts(struct qm_rewriter *r, const char *text);
void qm_rw_put_number(struct qm_rewriter *r, const char *name, int n);
void qm_rw_put_token(struct qm_rewriter *r, const char *s, const char *end);

/* QM_BAD_ARG: "FILE:LINE: what", of the input's place. */
qm_status qm_rw_refuse(const struct qm_rewriter *r, const char *what);

int qm_rw_is_word(char c);
const char *qm_rw_string_end(const char *s); /* of a literal in quotes */
const char *qm_rw_token_end(const char *s);  /* s must not be a blank */
const char *qm_rw_skip_blanks(const char *s);
int qm_rw_word_is(const char *s, const char *end, const char *word);
int qm_rw_newlines(const char *s, const char *end);

/* The end of the bracket that closes the one at s; NULL: none does. */
const char *qm_rw_closing(const char *s);

/* The first comma outside of brackets, or end. */
const char *qm_rw_comma(const char *s, const char *end);

/* The text from the k-th last token on, 0 being the last token; "" where there is none. */
const char *qm_rw_last(const struct qm_rewriter *r, int k);

/* How many of the last tokens belong to the statement that the next token continues. */
int qm_rw_statement(const struct qm_rewriter *r);

#endif
