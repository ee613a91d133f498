/* pickle.c - The stack machine of Python's pickles, with values in place of effects. */
#include "experiments/readers/pickle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/foreign/reader_process.h"

enum { LINE_MOST = 4096 };

/* ---- the machine --------------------------------------------------------------------------- */

struct machine {
    const struct qm_file *f;
    const unsigned char *from;
    size_t at, end;
    qm_pickle_knows *knows;
    struct qm_pickle_memory *memory;
    struct qm_pickle **stack, **memo;
    int64_t *mark;
    int64_t n, stack_room, n_marks, mark_room, n_memo, memo_room;
};

static qm_status bad(struct machine *m, const char *what)
{
    return qm_file_bad(m->f, "pickle: %s at byte %zu", what, m->at);
}

static qm_status make(struct machine *m, enum qm_pickle_kind kind, struct qm_pickle **out)
{
    *out = qm_pickle_make(m->memory, kind);
    return *out ? QM_OK : qm_fail(QM_NO_MEMORY, "%s: a pickle's values", m->f->path);
}

static qm_status push(struct machine *m, struct qm_pickle *v)
{
    QM_TRY(qm_grow((void **)&m->stack, &m->stack_room, m->n + 1, sizeof *m->stack));
    m->stack[m->n++] = v;
    return QM_OK;
}

/* Where the stack begins above the last mark. */
static int64_t floor_of(const struct machine *m)
{
    return m->n_marks > 0 ? m->mark[m->n_marks - 1] : 0;
}

static qm_status pop(struct machine *m, struct qm_pickle **out)
{
    *out = NULL;
    if (m->n <= floor_of(m))
        return bad(m, "an empty stack");
    *out = m->stack[--m->n];
    return QM_OK;
}

static qm_status pop_mark(struct machine *m, int64_t *at)
{
    if (m->n_marks == 0)
        return bad(m, "no mark");
    *at = m->mark[--m->n_marks];
    return QM_OK;
}

static qm_status bytes(struct machine *m, size_t n, const unsigned char **out)
{
    *out = m->from + m->at;
    if (n > m->end - m->at)
        return bad(m, "the end is missing");
    m->at += n;
    return QM_OK;
}

/* A whole number of n bytes, least first; without a sign. */
static qm_status counted(struct machine *m, size_t n, uint64_t *out)
{
    const unsigned char *b;
    QM_TRY(bytes(m, n, &b));
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)b[i] << (8 * i);
    return QM_OK;
}

/* The rest of a line, without its end; a copy. */
static qm_status line(struct machine *m, char out[LINE_MOST])
{
    const unsigned char *b = m->from + m->at, *end = memchr(b, '\n', m->end - m->at);
    if (!end || end - b >= LINE_MOST)
        return bad(m, "a line without an end");
    memcpy(out, b, (size_t)(end - b));
    out[end - b] = '\0';
    m->at += (size_t)(end - b) + 1;
    return QM_OK;
}

static qm_status push_text(struct machine *m, enum qm_pickle_kind kind, const void *text, size_t n)
{
    struct qm_pickle *v = qm_pickle_make_text(m->memory, kind, text, n);
    return v ? push(m, v) : qm_fail(QM_NO_MEMORY, "%s: a pickle's text", m->f->path);
}

/* A text whose length stands before it in `width` bytes. */
static qm_status push_counted_text(struct machine *m, size_t width)
{
    uint64_t n;
    const unsigned char *b;
    QM_TRY(counted(m, width, &n));
    QM_TRY(bytes(m, n, &b));
    return push_text(m, QM_PICKLE_text, b, n);
}

static qm_status push_whole(struct machine *m, enum qm_pickle_kind kind, int64_t x)
{
    struct qm_pickle *v;
    QM_TRY(make(m, kind, &v));
    v->whole = x;
    v->number = (double)x;
    return push(m, v);
}

static qm_status push_number(struct machine *m, double x)
{
    struct qm_pickle *v;
    QM_TRY(make(m, QM_PICKLE_number, &v));
    v->number = x;
    return push(m, v);
}

/* A whole number of n bytes in two's complement. */
static qm_status push_long(struct machine *m, uint64_t n)
{
    const unsigned char *b;
    QM_TRY(bytes(m, n, &b));
    int is_negative = n > 0 && b[n - 1] & 0x80;
    uint64_t low = is_negative ? UINT64_MAX : 0;
    double x = 0.0;
    for (uint64_t i = n; i-- > 0;) {
        x = x * 256.0 + b[i];
        low = low << 8 | b[i];
    }
    if (n > 8)
        return push_number(m, is_negative ? x - ldexp(1.0, (int)(8 * (n < 256 ? n : 256))) : x);
    return push_whole(m, QM_PICKLE_whole, (int64_t)low);
}

/* The number of a line: 00 and 01 are bool, a final L is Python 2's. */
static qm_status push_line_number(struct machine *m, int is_float)
{
    char text[LINE_MOST], *end;
    QM_TRY(line(m, text));
    if (!is_float && (strcmp(text, "00") == 0 || strcmp(text, "01") == 0))
        return push_whole(m, QM_PICKLE_bool, text[1] == '1');
    if (is_float) {
        double x = strtod(text, &end);
        return end == text || *end ? bad(m, "no number") : push_number(m, x);
    }
    long long x = strtoll(text, &end, 10);
    end += *end == 'L';
    return end == text || *end ? bad(m, "no number") : push_whole(m, QM_PICKLE_whole, x);
}

/* Moves what lies on the stack from `first` on to the end of `to`. */
static qm_status move(struct machine *m, struct qm_pickle *to, int64_t first)
{
    for (int64_t i = first; i < m->n; i++)
        QM_TRY(qm_pickle_put(m->memory, to, m->stack[i]));
    m->n = first;
    return QM_OK;
}

/* Pushes a tuple, list or dict of what lies on the stack from `first` on. */
static qm_status gather(struct machine *m, enum qm_pickle_kind kind, int64_t first)
{
    struct qm_pickle *v;
    if (first < floor_of(m))
        return bad(m, "an empty stack");
    if (kind == QM_PICKLE_dict && (m->n - first) % 2)
        return bad(m, "a key without a value");
    if (kind == QM_PICKLE_tuple)
        v = qm_pickle_make_fixed(m->memory, kind, m->n - first);
    else
        v = qm_pickle_make(m->memory, kind);
    if (!v)
        return qm_fail(QM_NO_MEMORY, "%s: a pickle's values", m->f->path);
    QM_TRY(move(m, v, first));
    return push(m, v);
}

/* Puts items into the list or dict below them. */
static qm_status extend(struct machine *m, enum qm_pickle_kind kind, int64_t first)
{
    if (first <= floor_of(m) || first > m->n)
        return bad(m, "an empty stack");
    struct qm_pickle *to = m->stack[first - 1];
    if (to->kind != kind)
        return bad(m, "items for a value that holds none");
    if (kind == QM_PICKLE_dict && (m->n - first) % 2)
        return bad(m, "a key without a value");
    return move(m, to, first);
}

static qm_status push_global(struct machine *m, const char *module, const char *name)
{
    char whole[2 * LINE_MOST + 1];
    int n = snprintf(whole, sizeof whole, "%s.%s", module, name);
    if (!m->knows(whole))
        return qm_file_bad(m->f,
                           "the pickle names '%.200s', which no tensor or optimizer state needs: "
                           "refused, and nothing of it was run",
                           whole);
    return push_text(m, QM_PICKLE_global, whole, (size_t)n);
}

static qm_status stack_global(struct machine *m)
{
    struct qm_pickle *name, *module;
    QM_TRY(pop(m, &name));
    QM_TRY(pop(m, &module));
    if (name->kind != QM_PICKLE_text || module->kind != QM_PICKLE_text ||
        name->length >= LINE_MOST || module->length >= LINE_MOST)
        return bad(m, "a global without a name");
    return push_global(m, module->text, name->text);
}

/* What a call of a class makes: a dictionary, a list or bytes; 0: the call stays one. */
static enum qm_pickle_kind made_by(const struct qm_pickle *callable)
{
    static const struct {
        const char *name;
        enum qm_pickle_kind kind;
    } classes[] = {{"collections.OrderedDict", QM_PICKLE_dict},
                   {"collections.defaultdict", QM_PICKLE_dict},
                   {"collections.Counter", QM_PICKLE_dict},
                   {"builtins.dict", QM_PICKLE_dict},
                   {"__builtin__.dict", QM_PICKLE_dict},
                   {"collections.deque", QM_PICKLE_list},
                   {"builtins.set", QM_PICKLE_list},
                   {"__builtin__.set", QM_PICKLE_list},
                   {"builtins.frozenset", QM_PICKLE_list},
                   {"__builtin__.frozenset", QM_PICKLE_list},
                   {"builtins.list", QM_PICKLE_list},
                   {"__builtin__.list", QM_PICKLE_list},
                   {"builtins.tuple", QM_PICKLE_list},
                   {"__builtin__.tuple", QM_PICKLE_list},
                   {"_codecs.encode", QM_PICKLE_text},
                   {"builtins.bytes", QM_PICKLE_text},
                   {"__builtin__.bytes", QM_PICKLE_text},
                   {"builtins.bytearray", QM_PICKLE_text},
                   {"__builtin__.bytearray", QM_PICKLE_text}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (callable->kind == QM_PICKLE_global && strcmp(callable->text, classes[i].name) == 0)
            return classes[i].kind;
    return QM_PICKLE_none;
}

/* Pushes bytes that stand as text in UTF-8 of one character below 256 for each; *done: 0 where
 * they are anything else.  Protocols 0 to 2 write bytes as _codecs.encode(text, "latin1"). */
static qm_status push_latin(struct machine *m, struct qm_pickle *v, int *done)
{
    *done = 1;
    if (v->latin)
        return push(m, v->latin);
    unsigned char *out = qm_pickle_take(m->memory, v->length + 1);
    struct qm_pickle *bytes = qm_pickle_make(m->memory, QM_PICKLE_text);
    if (!out || !bytes)
        return qm_fail(QM_NO_MEMORY, "%s: a pickle's bytes", m->f->path);
    size_t n = 0;
    for (size_t i = 0; *done && i < v->length; n++) {
        unsigned char c = (unsigned char)v->text[i++];
        int two = (c == 0xc2 || c == 0xc3) && i < v->length;
        *done = c < 0x80 || two;
        out[n] = two ? (unsigned char)(c << 6 | (v->text[i++] & 0x3f)) : c;
    }
    out[n] = '\0';
    bytes->text = (const char *)out;
    bytes->length = n;
    if (*done)
        v->latin = bytes;
    return *done ? push(m, bytes) : QM_OK;
}

/* OrderedDict([(key, value), ...]) of Python 2. */
static qm_status fill_dict(struct machine *m, struct qm_pickle *dict, const struct qm_pickle *pairs)
{
    for (int64_t i = 0; qm_pickle_is(pairs, QM_PICKLE_list) && i < pairs->n; i++) {
        const struct qm_pickle *pair = pairs->item[i];
        if ((pair->kind != QM_PICKLE_tuple && pair->kind != QM_PICKLE_list) || pair->n != 2)
            return bad(m, "a pair expected");
        QM_TRY(qm_pickle_put(m->memory, dict, pair->item[0]));
        QM_TRY(qm_pickle_put(m->memory, dict, pair->item[1]));
    }
    return QM_OK;
}

/* Pushes the dictionary, list or bytes that a call makes; a list that it was given is that list. */
static qm_status push_made(struct machine *m, enum qm_pickle_kind kind,
                           const struct qm_pickle *arguments, int *done)
{
    struct qm_pickle *v = (struct qm_pickle *)qm_pickle_item(arguments, 0);
    const struct qm_pickle *coding = qm_pickle_item(arguments, 1);
    *done = kind != QM_PICKLE_text || !v || v->kind == QM_PICKLE_text;
    if (!*done)
        return QM_OK;
    if (kind == QM_PICKLE_text && !v)
        return push_text(m, kind, "", 0);
    if (kind == QM_PICKLE_text &&
        (qm_pickle_is_text(coding, "latin1") || qm_pickle_is_text(coding, "latin-1")))
        return push_latin(m, v, done);
    if (qm_pickle_is(v, kind) ||
        (kind == QM_PICKLE_list && qm_pickle_is(v, QM_PICKLE_tuple) && v->n > 0))
        return push(m, v);
    struct qm_pickle *made;
    QM_TRY(make(m, kind, &made));
    if (kind == QM_PICKLE_dict)
        QM_TRY(fill_dict(m, made, v));
    return push(m, made);
}

static qm_status call(struct machine *m, struct qm_pickle *callable, struct qm_pickle *arguments)
{
    struct qm_pickle *v;
    enum qm_pickle_kind kind = made_by(callable);
    int done = 0;
    if (kind)
        QM_TRY(push_made(m, kind, arguments, &done));
    if (done)
        return QM_OK;
    if (!(v = qm_pickle_make_fixed(m->memory, QM_PICKLE_call, 3)))
        return qm_fail(QM_NO_MEMORY, "%s: a pickle's values", m->f->path);
    QM_TRY(qm_pickle_put(m->memory, v, callable));
    QM_TRY(qm_pickle_put(m->memory, v, arguments));
    return push(m, v);
}

/* REDUCE and NEWOBJ: the arguments lie on what is called. */
static qm_status reduce(struct machine *m)
{
    struct qm_pickle *arguments, *callable;
    QM_TRY(pop(m, &arguments));
    QM_TRY(pop(m, &callable));
    return call(m, callable, arguments);
}

/* OBJ: what is called lies on the mark, its arguments above; INST: it stands in two lines. */
static qm_status object(struct machine *m, int is_inst)
{
    char module[LINE_MOST], name[LINE_MOST];
    int64_t first = 0;
    struct qm_pickle *callable, *arguments;
    if (is_inst) {
        QM_TRY(line(m, module));
        QM_TRY(line(m, name));
    }
    QM_TRY(pop_mark(m, &first));
    if (!is_inst && first >= m->n)
        return bad(m, "an empty stack");
    callable = is_inst ? NULL : m->stack[first];
    QM_TRY(gather(m, QM_PICKLE_tuple, is_inst ? first : first + 1));
    QM_TRY(pop(m, &arguments));
    if (is_inst) {
        QM_TRY(push_global(m, module, name));
        callable = m->stack[m->n - 1];
    }
    m->n--;
    return call(m, callable, arguments);
}

/* BUILD: the state of the object below; that of a dictionary says nothing of its items. */
static qm_status build(struct machine *m)
{
    struct qm_pickle *state;
    QM_TRY(pop(m, &state));
    if (m->n <= floor_of(m))
        return bad(m, "an empty stack");
    struct qm_pickle *v = m->stack[m->n - 1];
    if (v->kind != QM_PICKLE_call)
        return QM_OK;
    v->n = 2; /* a state that was built before is replaced */
    return qm_pickle_put(m->memory, v, state);
}

static qm_status persistent(struct machine *m)
{
    struct qm_pickle *id, *v;
    QM_TRY(pop(m, &id));
    if (!(v = qm_pickle_make_fixed(m->memory, QM_PICKLE_persistent, 1)))
        return qm_fail(QM_NO_MEMORY, "%s: a pickle's values", m->f->path);
    QM_TRY(qm_pickle_put(m->memory, v, id));
    QM_TRY(qm_pickle_note_id(m->memory, id));
    return push(m, v);
}

static qm_status put(struct machine *m, uint64_t i)
{
    if (m->n <= floor_of(m))
        return bad(m, "an empty stack");
    if (i > m->end) /* Python numbers memos from 0: no pickle has more of them than bytes */
        return bad(m, "a memo of a number that is too large");
    int64_t before = m->memo_room;
    QM_TRY(qm_grow((void **)&m->memo, &m->memo_room, (int64_t)i + 1, sizeof *m->memo));
    for (int64_t k = before; k < m->memo_room; k++)
        m->memo[k] = NULL;
    m->memo[i] = m->stack[m->n - 1];
    return QM_OK;
}

static qm_status get(struct machine *m, uint64_t i)
{
    if (i >= (uint64_t)m->memo_room || !m->memo[i])
        return bad(m, "an unknown memo");
    return push(m, m->memo[i]);
}

static qm_status line_index(struct machine *m, uint64_t *out)
{
    struct qm_pickle *v = NULL;
    QM_TRY(push_line_number(m, 0));
    QM_TRY(pop(m, &v));
    if (v->whole < 0)
        return bad(m, "a negative memo");
    *out = (uint64_t)v->whole;
    return QM_OK;
}

/* ---- opcodes, as pickletools.py names them --------------------------------------------------- */

static qm_status push_double(struct machine *m)
{
    const unsigned char *b;
    uint64_t bits = 0;
    double x;
    QM_TRY(bytes(m, 8, &b));
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | b[i];
    memcpy(&x, &bits, sizeof x);
    return push_number(m, x);
}

/* Numbers and texts. */
static qm_status run_literal(struct machine *m, unsigned op, int *done)
{
    char text[LINE_MOST];
    uint64_t n;
    struct qm_pickle *v;
    *done = 1;
    switch (op) {
    case 'N': QM_TRY(make(m, QM_PICKLE_none, &v)); return push(m, v);
    case 0x88: return push_whole(m, QM_PICKLE_bool, 1);
    case 0x89: return push_whole(m, QM_PICKLE_bool, 0);
    case 'I':
    case 'L': return push_line_number(m, 0);
    case 'F': return push_line_number(m, 1);
    case 'J': QM_TRY(counted(m, 4, &n)); return push_whole(m, QM_PICKLE_whole, (int32_t)n);
    case 'K': QM_TRY(counted(m, 1, &n)); return push_whole(m, QM_PICKLE_whole, (int64_t)n);
    case 'M': QM_TRY(counted(m, 2, &n)); return push_whole(m, QM_PICKLE_whole, (int64_t)n);
    case 0x8a: QM_TRY(counted(m, 1, &n)); return push_long(m, n);
    case 0x8b: QM_TRY(counted(m, 4, &n)); return push_long(m, n);
    case 'G': return push_double(m);
    case 'S':
    case 'V': QM_TRY(line(m, text)); return push_text(m, QM_PICKLE_text, text, strlen(text));
    case 'U':
    case 'C':
    case 0x8c: return push_counted_text(m, 1);
    case 'T':
    case 'X':
    case 'B': return push_counted_text(m, 4);
    case 0x8d:
    case 0x8e:
    case 0x96: return push_counted_text(m, 8);
    default: *done = 0; return QM_OK;
    }
}

/* Containers, the stack and the memo. */
static qm_status run_container(struct machine *m, unsigned op, int *done)
{
    int64_t first = 0;
    uint64_t n = 0;
    struct qm_pickle *v;
    *done = 1;
    switch (op) {
    case '(':
        QM_TRY(qm_grow((void **)&m->mark, &m->mark_room, m->n_marks + 1, sizeof *m->mark));
        m->mark[m->n_marks++] = m->n;
        return QM_OK;
    case '0':
        if (m->n_marks > 0 && m->n == m->mark[m->n_marks - 1])
            return pop_mark(m, &first);
        return pop(m, &v);
    case '1':
        QM_TRY(pop_mark(m, &first));
        m->n = first;
        return QM_OK;
    case '2': return m->n > floor_of(m) ? push(m, m->stack[m->n - 1]) : bad(m, "an empty stack");
    case ')': return gather(m, QM_PICKLE_tuple, m->n);
    case ']':
    case 0x8f: return gather(m, QM_PICKLE_list, m->n);
    case '}': return gather(m, QM_PICKLE_dict, m->n);
    case 't': QM_TRY(pop_mark(m, &first)); return gather(m, QM_PICKLE_tuple, first);
    case 'l':
    case 0x91: QM_TRY(pop_mark(m, &first)); return gather(m, QM_PICKLE_list, first);
    case 'd': QM_TRY(pop_mark(m, &first)); return gather(m, QM_PICKLE_dict, first);
    case 0x85:
    case 0x86:
    case 0x87: return gather(m, QM_PICKLE_tuple, m->n - (int64_t)(op - 0x84));
    case 'a': return extend(m, QM_PICKLE_list, m->n - 1);
    case 'e':
    case 0x90: QM_TRY(pop_mark(m, &first)); return extend(m, QM_PICKLE_list, first);
    case 's': return extend(m, QM_PICKLE_dict, m->n - 2);
    case 'u': QM_TRY(pop_mark(m, &first)); return extend(m, QM_PICKLE_dict, first);
    case 'p': QM_TRY(line_index(m, &n)); return put(m, n);
    case 'q': QM_TRY(counted(m, 1, &n)); return put(m, n);
    case 'r': QM_TRY(counted(m, 4, &n)); return put(m, n);
    case 0x94: return put(m, (uint64_t)m->n_memo++);
    case 'g': QM_TRY(line_index(m, &n)); return get(m, n);
    case 'h': QM_TRY(counted(m, 1, &n)); return get(m, n);
    case 'j': QM_TRY(counted(m, 4, &n)); return get(m, n);
    default: *done = 0; return QM_OK;
    }
}

/* Names and what is called. */
static qm_status run_name(struct machine *m, unsigned op)
{
    char module[LINE_MOST], name[LINE_MOST];
    const unsigned char *b;
    struct qm_pickle *v;
    switch (op) {
    case 0x80: return bytes(m, 1, &b); /* the protocol's number */
    case 0x95: return bytes(m, 8, &b); /* a frame's length */
    case 'c':
        QM_TRY(line(m, module));
        QM_TRY(line(m, name));
        return push_global(m, module, name);
    case 0x93: return stack_global(m);
    case 'R':
    case 0x81: return reduce(m);
    case 0x92: QM_TRY(pop(m, &v)); return reduce(m);
    case 'i': return object(m, 1);
    case 'o': return object(m, 0);
    case 'b': return build(m);
    case 'Q': return persistent(m);
    case 'P':
        QM_TRY(line(m, name));
        QM_TRY(push_text(m, QM_PICKLE_text, name, strlen(name)));
        return persistent(m);
    default: return qm_file_bad(m->f, "pickle: unknown opcode 0x%02x at byte %zu", op, m->at - 1);
    }
}

static qm_status run(struct machine *m, const struct qm_pickle **out)
{
    const unsigned char *op;
    struct qm_pickle *v;
    for (int64_t count = 0;; count++) {
        int done = 0;
        QM_TRY(bytes(m, 1, &op));
        if (*op == '.')
            break;
        if (count % 65536 == 0)
            qm_reader_progress();
        QM_TRY(run_literal(m, *op, &done));
        if (!done)
            QM_TRY(run_container(m, *op, &done));
        if (!done)
            QM_TRY(run_name(m, *op));
    }
    QM_TRY(pop(m, &v));
    *out = v;
    return QM_OK;
}

qm_status qm_pickle_read(const struct qm_file *f, const unsigned char *from, size_t *at, size_t end,
                         qm_pickle_knows *knows, struct qm_pickle_memory **memory,
                         const struct qm_pickle **out)
{
    if (!*memory && !(*memory = qm_pickle_memory()))
        return qm_fail(QM_NO_MEMORY, "%s: a pickle", f->path);
    struct machine m = {f, from, *at, end, knows, .memory = *memory};
    qm_status st = run(&m, out);
    *at = m.at;
    free(m.stack);
    free(m.memo);
    free(m.mark);
    const struct qm_pickle *key = NULL;
    if (st == QM_OK)
        st = qm_pickle_key_twice(m.memory, &key);
    if (!key)
        return st;
    return key->kind == QM_PICKLE_text
               ? qm_file_bad(f, "a dictionary holds the key '%.200s' twice", key->text)
               : qm_file_bad(f, "a dictionary holds the key %lld twice", (long long)key->whole);
}
