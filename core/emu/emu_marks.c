/* emu_marks.c - Words that say what is device code, and code that only the host may have. */
#include "core/emu/emu_marks.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/emu/emu_device.h"

/* Whether the last token closes the captures of a lambda: a ] that ends no attribute. */
static int is_after_captures(const struct qm_rewriter *r)
{
    int depth = 0, k = 0;
    if (*qm_rw_last(r, 0) != ']')
        return 0;
    do {
        depth += (*qm_rw_last(r, k) == ']') - (*qm_rw_last(r, k) == '[');
        k++;
    } while (depth > 0 && *qm_rw_last(r, k));
    return *qm_rw_last(r, k) != '[';
}

static int is_word_at(const char *s, const char *word)
{
    return qm_rw_word_is(s, qm_rw_token_end(s), word);
}

/* Whether __host__ stands beside the __device__ at s. */
static int is_beside_host(const char *text, const char *s, const char *end)
{
    static const char host[] = "__qm_host__";
    const size_t n = strlen(host);
    const char *before = s;
    while (before > text && isspace((unsigned char)before[-1]))
        before--;
    return is_word_at(qm_rw_skip_blanks(end), host) ||
           ((size_t)(before - text) >= n && memcmp(before - n, host, n) == 0);
}

/* Checks that the kernel whose __global__ ends at s returns void. */
qm_status qm_rw_returns_void(const struct qm_rewriter *r, const char *s)
{
    static const char *const with[] = {"__launch_bounds__", "__attribute__", "alignas"};
    int angles = 0;
    for (int k = qm_rw_statement(r) - 1; k >= 0; k--)
        if (is_word_at(qm_rw_last(r, k), "void") || is_word_at(qm_rw_last(r, k), "auto"))
            return QM_OK;
    for (s = qm_rw_skip_blanks(s); *s && *s != '(' && *s != ';' && *s != '{';) {
        const char *end = qm_rw_token_end(s);
        angles += (*s == '<') - (*s == '>');
        if (angles == 0 && (qm_rw_word_is(s, end, "void") || qm_rw_word_is(s, end, "auto")))
            return QM_OK;
        for (size_t i = 0; i < sizeof with / sizeof *with; i++)
            if (qm_rw_word_is(s, end, with[i]) && *qm_rw_skip_blanks(end) == '(' &&
                qm_rw_closing(qm_rw_skip_blanks(end)))
                end = qm_rw_closing(qm_rw_skip_blanks(end));
        s = qm_rw_skip_blanks(end);
    }
    return *s == '(' ? qm_rw_refuse(r, "this __global__ function does not return void") : QM_OK;
}

/* Writes what the word at the input stands for, if it is one that qm_emu.hpp makes of __device__
 * and its like; returns 0 where it is another. */
int qm_rw_mark(struct qm_rewriter *r, const char *text, const char *end)
{
    static const struct {
        const char *word;
        int power;
    } marks[] = {{"__qm_device__", QM_MARK_DEVICE},
                 {"__qm_global__", QM_MARK_GLOBAL},
                 {"__qm_managed__", QM_MARK_MANAGED},
                 {"__qm_constant__", QM_MARK_CONSTANT},
                 {"__qm_host__", 0},
                 {"__qm_always__", -1}};
    size_t i = 0, n = sizeof marks / sizeof *marks;
    while (i < n && !qm_rw_word_is(r->in, end, marks[i].word))
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
    else if (power == QM_MARK_CONSTANT &&
             r->purpose == QM_EMU_RUN) /* also where it is only written */
        snprintf(attribute, sizeof attribute, "__attribute__((used))");
    else if (power > 0 && r->purpose == QM_EMU_MARK && !is_after_captures(r))
        snprintf(attribute, sizeof attribute, "__attribute__((aligned(%d)))", 1 << power);
    qm_rw_puts(r, attribute);
    r->in = end;
    return 1;
}

/* Copies a line of the layer, but for the words of marks. */
void qm_rw_layer_line(struct qm_rewriter *r, const char *text)
{
    while (*r->in && *r->in != '\n') {
        const char *end = isspace((unsigned char)*r->in) ? r->in + 1 : qm_rw_token_end(r->in);
        if (*r->in == '_' && qm_rw_mark(r, text, end))
            continue;
        qm_rw_put(r, r->in, (size_t)(end - r->in));
        r->in = end;
    }
}

/* The end of a cast to a pointer to void at s: (const void *) or static_cast<void *>; s: there is
 * none. */
static const char *cast_end(const char *s)
{
    const char *end = qm_rw_token_end(s), *open = s;
    if (qm_rw_word_is(s, end, "reinterpret_cast") || qm_rw_word_is(s, end, "static_cast"))
        open = qm_rw_skip_blanks(end);
    if (*open != (open == s ? '(' : '<'))
        return s;
    int n_void = 0, n_stars = 0;
    for (end = qm_rw_skip_blanks(open + 1); *end && !strchr(")>", *end);) {
        const char *next = qm_rw_token_end(end);
        n_void += qm_rw_word_is(end, next, "void");
        n_stars += *end == '*';
        if (!qm_rw_word_is(end, next, "void") && !qm_rw_word_is(end, next, "const") && *end != '*')
            return s;
        end = qm_rw_skip_blanks(next);
    }
    return n_void == 1 && n_stars == 1 && *end ? end + 1 : s;
}

/* Copies a call of CUDA's runtime library that gets a kernel, without a cast of it to void *. */
int qm_rw_kernel_call(struct qm_rewriter *r, const char *end)
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
    while (i < n && !qm_rw_word_is(r->in, end, calls[i].name))
        i++;
    const char *s = qm_rw_skip_blanks(end), *close = i < n && *s == '(' ? qm_rw_closing(s) : NULL;
    if (!close)
        return 0;
    s++;
    for (int k = 0; i < n && k < calls[i].argument && s < close; k++)
        s = qm_rw_comma(s, close) + 1;
    s = qm_rw_skip_blanks(s);
    if (s >= close || cast_end(s) == s)
        return 0;
    qm_rw_put_token(r, r->in, end);
    qm_rw_put(r, end, (size_t)(s - end));
    r->line += qm_rw_newlines(r->in, cast_end(s));
    r->in = cast_end(s);
    return 1;
}

/* Copies `try {` and a mark behind it. */
void qm_rw_try_block(struct qm_rewriter *r, const char *end)
{
    const char *open = qm_rw_skip_blanks(end);
    qm_rw_put_token(r, r->in, end);
    r->in = end;
    if (*open != '{' || r->purpose != QM_EMU_MARK)
        return;
    qm_rw_put(r, end, (size_t)(open - end));
    qm_rw_put_token(r, open, open + 1);
    qm_rw_puts(r, " ::qm_emu_tries();");
    r->line += qm_rw_newlines(end, open);
    r->in = open + 1;
}

int qm_rw_barrier(struct qm_rewriter *r, const char *end)
{
    static const char *const names[] = {"__syncthreads", "__syncthreads_count", "__syncthreads_and",
                                        "__syncthreads_or"};
    size_t i = 0, n = sizeof names / sizeof *names;
    while (i < n && !qm_rw_word_is(r->in, end, names[i]))
        i++;
    const char *open = qm_rw_skip_blanks(end), *first = qm_rw_skip_blanks(open + (*open == '('));
    if (i == n || *open != '(' || (*qm_rw_last(r, 0) && strchr(".:>", *qm_rw_last(r, 0))))
        return 0;
    qm_rw_put_token(r, r->in, end);
    qm_rw_put(r, end, (size_t)(open - end));
    qm_rw_put_token(r, open, open + 1);
    qm_rw_put_number(r, "::qm_emu::barrier{", ++r->n_barriers);
    qm_rw_puts(r, *first == ')' ? "}" : "}, ");
    r->line += qm_rw_newlines(end, open);
    r->in = open + 1;
    return 1;
}
