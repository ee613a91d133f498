/* pickle_value.c - Makes the values of a pickle, and looks at them. */
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/name_index.h"
#include "experiments/readers/pickle.h"

enum { CHUNK = 1 << 16 };

/* ---- memory -------------------------------------------------------------------------------- */

struct chunk {
    struct chunk *next;
    size_t used, room;
    _Alignas(16) unsigned char byte[];
};

struct qm_pickle_memory {
    struct chunk *chunk;
    struct qm_pickle **grown; /* values whose items are on the heap */
    struct qm_pickle **id;    /* persistent ids */
    int64_t n_grown, room, n_ids, id_room, n_counted;
};

struct qm_pickle_memory *qm_pickle_memory(void)
{
    return calloc(1, sizeof(struct qm_pickle_memory));
}

void *qm_pickle_take(struct qm_pickle_memory *m, size_t size)
{
    size = (size + 15) / 16 * 16;
    if (!m->chunk || m->chunk->room - m->chunk->used < size) {
        size_t room = size > CHUNK ? size : CHUNK;
        struct chunk *c = malloc(sizeof *c + room);
        if (!c)
            return NULL;
        *c = (struct chunk){m->chunk, 0, room};
        m->chunk = c;
    }
    void *out = m->chunk->byte + m->chunk->used;
    m->chunk->used += size;
    return out;
}

void qm_pickle_free(struct qm_pickle_memory *m)
{
    if (!m)
        return;
    for (int64_t i = 0; i < m->n_grown; i++)
        free(m->grown[i]->item);
    for (struct chunk *c = m->chunk, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(m->grown);
    free(m->id);
    free(m);
}

struct qm_pickle *qm_pickle_make(struct qm_pickle_memory *m, enum qm_pickle_kind kind)
{
    struct qm_pickle *v = qm_pickle_take(m, sizeof *v);
    if (v)
        *v = (struct qm_pickle){.kind = kind};
    m->n_counted++;
    return v;
}

int64_t qm_pickle_count(const struct qm_pickle_memory *m) { return m->n_counted; }

struct qm_pickle *qm_pickle_make_fixed(struct qm_pickle_memory *m, enum qm_pickle_kind kind,
                                       int64_t room)
{
    struct qm_pickle *v = qm_pickle_make(m, kind);
    if (!v || !(v->item = qm_pickle_take(m, (size_t)room * sizeof *v->item)))
        return NULL;
    v->is_fixed = 1;
    v->room = room;
    return v;
}

struct qm_pickle *qm_pickle_make_text(struct qm_pickle_memory *m, enum qm_pickle_kind kind,
                                      const char *text, size_t length)
{
    struct qm_pickle *v = qm_pickle_make(m, kind);
    char *copy = v ? qm_pickle_take(m, length + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    v->text = copy;
    v->length = length;
    return v;
}

struct qm_pickle *qm_pickle_make_whole(struct qm_pickle_memory *m, int64_t x)
{
    struct qm_pickle *v = qm_pickle_make(m, QM_PICKLE_whole);
    if (v)
        v->number = (double)(v->whole = x);
    return v;
}

qm_status qm_pickle_put(struct qm_pickle_memory *m, struct qm_pickle *to, struct qm_pickle *v)
{
    if (!to || !v)
        return qm_fail(QM_NO_MEMORY, "values");
    m->n_counted++;
    if (to->is_fixed && to->n < to->room) {
        to->item[to->n++] = v;
        return QM_OK;
    }
    if (!to->item) {
        QM_TRY(qm_grow((void **)&m->grown, &m->room, m->n_grown + 1, sizeof *m->grown));
        m->grown[m->n_grown++] = to;
    }
    QM_TRY(qm_grow((void **)&to->item, &to->room, to->n + 1, sizeof *to->item));
    to->item[to->n++] = v;
    return QM_OK;
}

qm_status qm_pickle_note_id(struct qm_pickle_memory *m, struct qm_pickle *id)
{
    QM_TRY(qm_grow((void **)&m->id, &m->id_room, m->n_ids + 1, sizeof *m->id));
    m->id[m->n_ids++] = id;
    return QM_OK;
}

const struct qm_pickle *qm_pickle_persistent_id(const struct qm_pickle_memory *m, int64_t i)
{
    return i < m->n_ids ? m->id[i] : NULL;
}

/* ---- looking ------------------------------------------------------------------------------- */

int qm_pickle_is(const struct qm_pickle *v, enum qm_pickle_kind kind)
{
    return v && v->kind == kind;
}

int qm_pickle_is_text(const struct qm_pickle *v, const char *text)
{
    return qm_pickle_is(v, QM_PICKLE_text) && strcmp(v->text, text) == 0;
}

int qm_pickle_is_number(const struct qm_pickle *v)
{
    return v &&
           (v->kind == QM_PICKLE_bool || v->kind == QM_PICKLE_whole || v->kind == QM_PICKLE_number);
}

const struct qm_pickle *qm_pickle_find(const struct qm_pickle *v, const char *key)
{
    for (int64_t i = qm_pickle_is(v, QM_PICKLE_dict) ? v->n : 0; i > 0; i -= 2)
        if (qm_pickle_is_text(v->item[i - 2], key))
            return v->item[i - 1];
    return NULL;
}

int qm_pickle_calls(const struct qm_pickle *v, const char *global)
{
    return qm_pickle_is(v, QM_PICKLE_call) && v->item[0]->kind == QM_PICKLE_global &&
           strcmp(v->item[0]->text, global) == 0;
}

const struct qm_pickle *qm_pickle_item(const struct qm_pickle *v, int64_t i)
{
    int holds = qm_pickle_is(v, QM_PICKLE_tuple) || qm_pickle_is(v, QM_PICKLE_list);
    return holds && i >= 0 && i < v->n ? v->item[i] : NULL;
}

const struct qm_pickle *qm_pickle_argument(const struct qm_pickle *call, int64_t i)
{
    return qm_pickle_is(call, QM_PICKLE_call) ? qm_pickle_item(call->item[1], i) : NULL;
}

const struct qm_pickle *qm_pickle_state(const struct qm_pickle *v)
{
    return qm_pickle_is(v, QM_PICKLE_call) && v->n == 3 ? v->item[2] : NULL;
}

/* The bytes that tell a key from others of its dict: a text's, a whole number's; NULL: no such. */
static const char *key_bytes(const struct qm_pickle *key, size_t *n)
{
    int is_text = key->kind == QM_PICKLE_text;
    *n = is_text ? key->length : sizeof key->whole;
    return is_text                                                       ? key->text
           : key->kind == QM_PICKLE_whole || key->kind == QM_PICKLE_bool ? (const char *)&key->whole
                                                                         : NULL;
}

qm_status qm_pickle_key_twice(const struct qm_pickle_memory *m, const struct qm_pickle **key)
{
    qm_status st = QM_OK;
    *key = NULL;
    for (int64_t i = 0; i < m->n_grown && st == QM_OK && !*key; i++) {
        const struct qm_pickle *v = m->grown[i];
        struct qm_name_index seen[2] = {{0}}; /* texts, whole numbers */
        for (int64_t k = 0; v->kind == QM_PICKLE_dict && k < v->n && st == QM_OK && !*key; k += 2) {
            size_t n;
            const char *bytes = key_bytes(v->item[k], &n);
            struct qm_name_index *of = &seen[v->item[k]->kind != QM_PICKLE_text];
            if (bytes && qm_name_index_get(of, bytes, n) >= 0)
                *key = v->item[k];
            else if (bytes)
                st = qm_name_index_put(of, bytes, n, 0);
        }
        qm_name_index_free(&seen[0]);
        qm_name_index_free(&seen[1]);
    }
    return st;
}
