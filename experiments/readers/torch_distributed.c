/* torch_distributed.c - The .metadata of a folder that torch.distributed.checkpoint wrote.
 *
 * It is a pickle of one object: state_dict_metadata names every value and the chunks of tensors,
 * storage_data the file, first byte and length of each, planner_data the path of keys to each in
 * the dictionary that was saved.  That dictionary is put together anew, its tensors as storages in
 * pieces, so that everything else is done as for a single file.
 *
 * Source: PyTorch 2.x, torch/distributed/checkpoint/{metadata,filesystem,planner_helpers}.py,
 * torch/distributed/checkpoint/_nested_dict.py. */
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/torch.h"

#define MODULE "torch.distributed.checkpoint."

enum { PAD_MOST = 4096, PATH_ROOM = 4096 };

/* Whether a .metadata may name a global. */
static int torch_knows_metadata(const char *global)
{
    static const char *const names[] = {
        MODULE "metadata.Metadata",
        MODULE "metadata.StorageMeta",
        MODULE "metadata.TensorStorageMetadata",
        MODULE "metadata.BytesStorageMetadata",
        MODULE "metadata.ChunkStorageMetadata",
        MODULE "metadata.TensorProperties",
        MODULE "metadata.MetadataIndex",
        MODULE "metadata._MEM_FORMAT_ENCODING",
        MODULE "filesystem._StorageInfo",
        "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
        "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(global, names[i]) == 0)
            return 1;
    return qm_torch_knows(global);
}

/* A value of the checkpoint: a tensor, whose storage it is, or what a small file holds. */
struct value {
    const struct qm_pickle *key, *chunks; /* chunks: NULL where it is no tensor */
    int64_t storage;
    struct qm_pickle *leaf; /* for the tree; NULL: it was left out */
};

/* Dictionaries and lists by the keys that lead to them, one after each other. */
struct folder {
    struct qm_file *f;
    struct qm_torch *t;
    struct value *value;
    struct qm_name_index value_at, node_at;
    struct qm_pickle **node;
    int64_t n_nodes, node_room;
};

static const struct qm_pickle *field(const struct qm_pickle *v, const char *name)
{
    return qm_pickle_find(qm_pickle_state(v), name);
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* The call that rebuilds a tensor which is the whole of a storage, row by row. */
static struct qm_pickle *rebuild_call(struct qm_torch *t, const struct qm_torch_storage *s)
{
    struct qm_pickle_memory *m = t->memory;
    static const char rebuild[] = "torch._utils._rebuild_tensor_v3",
                      class[] = "torch.storage.UntypedStorage", word[] = "storage";
    char dtype[64];
    int n = snprintf(dtype, sizeof dtype, "torch.%s", s->element->name);
    struct qm_pickle *v = qm_pickle_make(m, QM_PICKLE_call),
                     *arguments = qm_pickle_make(m, QM_PICKLE_tuple),
                     *id = qm_pickle_make(m, QM_PICKLE_tuple),
                     *storage = qm_pickle_make(m, QM_PICKLE_persistent),
                     *size = qm_pickle_make(m, QM_PICKLE_tuple),
                     *stride = qm_pickle_make(m, QM_PICKLE_tuple),
                     *none = qm_pickle_make(m, QM_PICKLE_none);
    int64_t step[QM_MAX_RANK], inner = 1;
    for (int d = s->shape.rank - 1; d >= 0; inner *= s->shape.dim[d], d--)
        step[d] = inner;
    qm_status st = QM_OK;
    for (int d = 0; st == QM_OK && d < s->shape.rank; d++) {
        st = qm_pickle_put(m, size, qm_pickle_make_whole(m, s->shape.dim[d]));
        if (st == QM_OK)
            st = qm_pickle_put(m, stride, qm_pickle_make_whole(m, step[d]));
    }
    struct qm_pickle *const items[][2] = {
        {v, qm_pickle_make_text(m, QM_PICKLE_global, rebuild, sizeof rebuild - 1)},
        {v, arguments},
        {id, qm_pickle_make_text(m, QM_PICKLE_text, word, sizeof word - 1)},
        {id, qm_pickle_make_text(m, QM_PICKLE_global, class, sizeof class - 1)},
        {id, qm_pickle_make_text(m, QM_PICKLE_text, s->key, strlen(s->key))},
        {storage, id},
        {arguments, storage},
        {arguments, qm_pickle_make_whole(m, 0)},
        {arguments, size},
        {arguments, stride},
        {arguments, none},
        {arguments, none},
        {arguments, qm_pickle_make_text(m, QM_PICKLE_global, dtype, (size_t)n)}};
    for (size_t i = 0; st == QM_OK && i < sizeof items / sizeof *items; i++)
        st = qm_pickle_put(m, items[i][0], items[i][1]);
    return st == QM_OK ? v : NULL;
}

/* Takes up a tensor's shape and type; its chunks are filled in by their files. */
static qm_status take_tensor(struct folder *d, struct value *x, const struct qm_pickle *meta)
{
    struct qm_torch_storage s = {.zip = -1};
    const char *key = x->key->text;
    const struct qm_pickle *chunks = field(meta, "chunks");
    int rank = qm_torch_whole_list(field(meta, "size"), s.shape.dim, QM_MAX_RANK);
    s.shape.rank = rank;
    s.element = qm_torch_dtype(qm_pickle_item(qm_pickle_state(field(meta, "properties")), 0));
    if (rank < 0 || !qm_pickle_is(chunks, QM_PICKLE_list))
        return qm_file_bad(d->f, "'%.200s' has no size or no chunks", key);
    if (rank > QM_MAX_RANK || !s.element || strlen(key) != x->key->length) {
        qm_left_out_add(&d->t->left_out, "%.200s (%s)", key,
                        rank > QM_MAX_RANK ? "more than 8 dimensions"
                                           : "elements of a type that is not known");
        return QM_OK;
    }
    int64_t numel = qm_shape_numel(&s.shape);
    if (numel < 0 || __builtin_mul_overflow(numel, s.element->size, &s.bytes))
        return qm_file_bad(d->f, "'%.200s' has 2^63 bytes or more", key);
    if (!(s.piece = calloc((size_t)chunks->n + 1, sizeof *s.piece)))
        return qm_fail(QM_NO_MEMORY, "%s: chunks", d->f->path);
    x->storage = d->t->n_storages;
    qm_status st = qm_torch_storage_add(d->f, key, s);
    if (st != QM_OK) {
        free(s.piece);
        return st;
    }
    x->chunks = chunks;
    return QM_OK;
}

static qm_status take_values(struct folder *d, const struct qm_pickle *all)
{
    for (int64_t i = 0; i < all->n; i += 2) {
        struct value *x = &d->value[i / 2];
        const struct qm_pickle *meta = all->item[i + 1];
        x->key = all->item[i];
        x->storage = -1;
        if (x->key->kind != QM_PICKLE_text)
            return qm_file_bad(d->f, "a value without a name");
        QM_TRY(qm_name_index_put(&d->value_at, x->key->text, x->key->length, i / 2));
        if (qm_pickle_calls(meta, MODULE "metadata.TensorStorageMetadata"))
            QM_TRY(take_tensor(d, x, meta));
        else if (!qm_pickle_calls(meta, MODULE "metadata.BytesStorageMetadata"))
            return qm_file_bad(d->f, "'%.200s' is neither a tensor nor bytes", x->key->text);
        if (i % 512 == 0)
            qm_reader_progress();
    }
    return QM_OK;
}

/* ---- where they lie ------------------------------------------------------------------------ */

static int same_numbers(const struct qm_pickle *v, const int64_t *x, int n)
{
    int64_t of[QM_MAX_RANK];
    return qm_torch_whole_list(v, of, QM_MAX_RANK) == n &&
           memcmp(of, x, (size_t)n * sizeof *x) == 0;
}

/* Sets count from the chunk that begins at start; `index` says where it likely stands. */
static int find_chunk(const struct value *x, const struct qm_pickle *index,
                      struct qm_torch_piece *p, int rank)
{
    int64_t first = qm_pickle_is(index, QM_PICKLE_whole) && index->whole > 0 ? index->whole : 0;
    for (int64_t k = 0; k < x->chunks->n; k++) {
        const struct qm_pickle *c = x->chunks->item[(first + k) % x->chunks->n];
        if (same_numbers(field(c, "offsets"), p->start, rank))
            return qm_torch_whole_list(field(c, "sizes"), p->count, QM_MAX_RANK) == rank;
    }
    return 0;
}

static qm_status add_piece(struct folder *d, const struct value *x, const struct qm_pickle *index,
                           struct qm_torch_piece p)
{
    struct qm_torch_storage *s = &d->t->storage[x->storage];
    const struct qm_pickle *offset = field(index, "offset");
    int rank = s->shape.rank;
    int known = !qm_pickle_is(offset, QM_PICKLE_none) && offset
                    ? qm_torch_whole_list(offset, p.start, QM_MAX_RANK) == rank
                    : x->chunks->n == 1;
    if (!known || !find_chunk(x, field(index, "index"), &p, rank))
        return qm_file_bad(d->f, "'%.200s' has no chunk where storage_data places one", s->key);
    for (int k = 0; k < rank; k++)
        if (p.start[k] > s->shape.dim[k] || p.count[k] > s->shape.dim[k] - p.start[k])
            return qm_file_bad(d->f, "a chunk of '%.200s' reaches beyond its size", s->key);
    if (s->n_pieces == x->chunks->n)
        return qm_file_bad(d->f, "'%.200s' has more files than chunks", s->key);
    s->piece[s->n_pieces++] = p;
    return QM_OK;
}

/* One pair of storage_data. */
static qm_status place_value(struct folder *d, const struct qm_pickle *index,
                             const struct qm_pickle *info)
{
    const struct qm_pickle *name = field(index, "fqn"), *offset = field(info, "offset");
    const struct qm_pickle *length = field(info, "length"), *v = NULL;
    const struct qm_pickle *transforms = field(info, "transform_descriptors");
    struct qm_torch_piece p = {.shard = -1};
    int64_t i = qm_pickle_is(name, QM_PICKLE_text)
                    ? qm_name_index_get(&d->value_at, name->text, name->length)
                    : -1;
    if (i < 0 || !qm_pickle_is(offset, QM_PICKLE_whole) || offset->whole < 0 ||
        !qm_pickle_is(length, QM_PICKLE_whole) || length->whole < 0)
        return qm_file_bad(d->f, "storage_data names no value, or no bytes of a file");
    if (transforms && transforms->kind == QM_PICKLE_list && transforms->n > 0)
        return qm_file_bad(d->f, "'%.200s' was transformed (%.60s), which is not read", name->text,
                           qm_pickle_is(qm_pickle_item(transforms, 0), QM_PICKLE_text)
                               ? transforms->item[0]->text
                               : "compressed");
    QM_TRY(qm_torch_shard_find(d->f, field(info, "relative_path"), &p.shard));
    p.offset = (size_t)offset->whole;
    p.size = (size_t)length->whole;
    const struct qm_torch_shard *s = &d->t->shard[p.shard];
    if (p.offset > s->size || p.size > s->size - p.offset)
        return qm_file_bad(d->f, "shard '%.200s' has %zu bytes, '%.200s' lies at %zu to %zu",
                           s->name, s->size, name->text, p.offset, p.offset + p.size);
    struct value *x = &d->value[i];
    if (x->storage >= 0)
        return add_piece(d, x, index, p);
    if (x->chunks || x->leaf)
        return qm_file_bad(d->f, "'%.200s' lies in two places", name->text);
    QM_TRY(qm_torch_value_in(d->f, &p, &v));
    x->leaf = (struct qm_pickle *)v;
    if (!v)
        qm_left_out_add(&d->t->left_out, "%.200s (bytes with tensors in them)", name->text);
    qm_reader_progress();
    return QM_OK;
}

static int by_start(const void *a, const void *b)
{
    const struct qm_torch_piece *x = a, *y = b;
    return (x->start[0] > y->start[0]) - (x->start[0] < y->start[0]);
}

static int is_overlapping(const struct qm_torch_piece *a, const struct qm_torch_piece *b, int rank)
{
    for (int j = 0; j < rank; j++)
        if (a->start[j] >= b->start[j] + b->count[j] || b->start[j] >= a->start[j] + a->count[j])
            return 0;
    return 1;
}

/* Two chunks that hold the same element would hide one of its values.  Sorts the chunks, and
 * compares those whose rows overlap. */
static qm_status check_overlaps(const struct folder *d, struct qm_torch_storage *s)
{
    int64_t left = 100000000; /* pairs; of a second */
    int rank = s->shape.rank;
    if (rank > 0)
        qsort(s->piece, (size_t)s->n_pieces, sizeof *s->piece, by_start);
    for (int64_t i = 0; i < s->n_pieces; i++) {
        const struct qm_torch_piece *a = &s->piece[i];
        for (int64_t k = i + 1; k < s->n_pieces; k++) {
            const struct qm_torch_piece *b = &s->piece[k];
            if (rank > 0 && b->start[0] >= a->start[0] + a->count[0])
                break;
            if (is_overlapping(a, b, rank))
                return qm_file_bad(d->f, "two chunks of '%.200s' hold the same elements", s->key);
            if (--left == 0)
                return qm_file_bad(d->f, "'%.200s' has too many chunks side by side", s->key);
        }
    }
    return QM_OK;
}

static qm_status check_values(const struct folder *d, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const struct value *x = &d->value[i];
        int64_t found = 0;
        if (x->storage < 0)
            continue;
        struct qm_torch_storage *s = &d->t->storage[x->storage];
        for (int64_t k = 0; k < s->n_pieces; k++) {
            int64_t part = 1;
            for (int j = 0; j < s->shape.rank; j++)
                part *= s->piece[k].count[j];
            found += part;
        }
        if (found != qm_shape_numel(&s->shape))
            return qm_file_bad(d->f, "'%.200s' has %lld elements, its chunks have %lld", s->key,
                               (long long)qm_shape_numel(&s->shape), (long long)found);
        QM_TRY(check_overlaps(d, s));
    }
    return QM_OK;
}

/* Makes the leaves of the tensors, whose chunks are known. */
static qm_status make_tensors(const struct folder *d, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        struct value *x = &d->value[i];
        if (x->storage < 0)
            continue;
        struct qm_torch_storage *s = &d->t->storage[x->storage];
        QM_TRY(qm_torch_find_codes(d->f, s));
        x->leaf = rebuild_call(d->t, s);
        if (!x->leaf)
            return qm_fail(QM_NO_MEMORY, "%s: values", d->f->path);
        if (i % 512 == 0)
            qm_reader_progress();
    }
    return QM_OK;
}

/* ---- the dictionary ------------------------------------------------------------------------- */

/* Appends the text of a key to a path; 0: it is no key, or too long. */
static int path_put(char path[PATH_ROOM], size_t *n, const struct qm_pickle *key)
{
    int k = qm_pickle_is(key, QM_PICKLE_text)
                ? snprintf(path + *n, PATH_ROOM - *n, "%s\x1f", key->text)
            : qm_pickle_is(key, QM_PICKLE_whole)
                ? snprintf(path + *n, PATH_ROOM - *n, "%lld\x1f", (long long)key->whole)
                : -1;
    if (k < 0 || (size_t)k >= PATH_ROOM - *n)
        return 0;
    *n += (size_t)k;
    return 1;
}

/* Puts v under a key of a dictionary, or at its place in a list. */
static qm_status put_under(struct folder *d, struct qm_pickle *in, const struct qm_pickle *key,
                           struct qm_pickle *v)
{
    struct qm_pickle_memory *m = d->t->memory;
    if (in->kind == QM_PICKLE_dict) {
        QM_TRY(qm_pickle_put(m, in, (struct qm_pickle *)key));
        return qm_pickle_put(m, in, v);
    }
    if (in->kind != QM_PICKLE_list || key->kind != QM_PICKLE_whole || key->whole < 0 ||
        key->whole >= in->n + PAD_MOST)
        return qm_file_bad(d->f, "planner_data: a value within a value");
    while (in->n <= key->whole)
        QM_TRY(qm_pickle_put(m, in, qm_pickle_make(m, QM_PICKLE_none)));
    in->item[key->whole] = v;
    return QM_OK;
}

/* Puts a value where its path of keys leads; dictionaries and lists on the way are made. */
static qm_status put_value(struct folder *d, const struct qm_pickle *path, struct qm_pickle *leaf)
{
    char text[PATH_ROOM];
    size_t n = 0;
    struct qm_pickle *in = d->node[0];
    for (int64_t i = 0; i < path->n; i++) {
        const struct qm_pickle *key = path->item[i];
        int is_last = i + 1 == path->n;
        if (!path_put(text, &n, key))
            return qm_file_bad(d->f, "planner_data: a key that is none");
        int64_t at = qm_name_index_get(&d->node_at, text, n);
        if (at < 0) {
            struct qm_pickle *copy = qm_pickle_make_text(d->t->memory, QM_PICKLE_text, text, n);
            struct qm_pickle *v =
                is_last
                    ? leaf
                    : qm_pickle_make(d->t->memory, qm_pickle_is(path->item[i + 1], QM_PICKLE_whole)
                                                       ? QM_PICKLE_list
                                                       : QM_PICKLE_dict);
            if (!copy || !v)
                return qm_fail(QM_NO_MEMORY, "%s: values", d->f->path);
            QM_TRY(put_under(d, in, key, v));
            at = d->n_nodes;
            QM_TRY(qm_grow((void **)&d->node, &d->node_room, at + 1, sizeof *d->node));
            d->node[d->n_nodes++] = v;
            QM_TRY(qm_name_index_put(&d->node_at, copy->text, n, at));
        } else if (is_last) {
            return qm_file_bad(d->f, "planner_data: two values in one place");
        }
        in = d->node[at];
    }
    return QM_OK;
}

static qm_status put_values(struct folder *d, const struct qm_pickle *paths, int64_t n)
{
    struct qm_name_index path_at = {NULL, 0, 0};
    qm_status st = QM_OK;
    for (int64_t i = 0; st == QM_OK && qm_pickle_is(paths, QM_PICKLE_dict) && i < paths->n; i += 2)
        if (paths->item[i]->kind == QM_PICKLE_text)
            st = qm_name_index_put(&path_at, paths->item[i]->text, paths->item[i]->length, i + 1);
    for (int64_t i = 0; st == QM_OK && i < n; i++) {
        const struct value *x = &d->value[i];
        if (!x->leaf)
            continue;
        int64_t at = qm_name_index_get(&path_at, x->key->text, x->key->length);
        struct qm_pickle *keys[1] = {(struct qm_pickle *)x->key};
        const struct qm_pickle alone = {.kind = QM_PICKLE_tuple, .item = keys, .n = 1};
        const struct qm_pickle *path = at >= 0 ? paths->item[at] : &alone;
        st = (path->kind == QM_PICKLE_tuple || path->kind == QM_PICKLE_list) && path->n > 0
                 ? put_value(d, path, x->leaf)
                 : qm_file_bad(d->f, "planner_data: '%.200s' has no path", x->key->text);
        if (i % 256 == 0)
            qm_reader_progress();
    }
    qm_name_index_free(&path_at);
    return st;
}

qm_status qm_torch_load_distributed(struct qm_file *f)
{
    struct qm_torch *t = f->own;
    const struct qm_pickle *root;
    size_t at = 0;
    QM_TRY(qm_pickle_read(f, f->map, &at, f->size, torch_knows_metadata, &t->memory, &root));
    const struct qm_pickle *all = field(root, "state_dict_metadata"),
                           *places = field(root, "storage_data");
    if (!qm_pickle_calls(root, MODULE "metadata.Metadata") || !qm_pickle_is(all, QM_PICKLE_dict) ||
        !qm_pickle_is(places, QM_PICKLE_dict))
        return qm_file_bad(f, "is no .metadata of torch.distributed.checkpoint");
    struct folder d = {.f = f, .t = t};
    struct qm_pickle *top = qm_pickle_make(t->memory, QM_PICKLE_dict);
    d.value = calloc((size_t)all->n / 2 + 1, sizeof *d.value);
    qm_status st = top && d.value ? qm_grow((void **)&d.node, &d.node_room, 1, sizeof *d.node)
                                  : qm_fail(QM_NO_MEMORY, "%s: values", f->path);
    if (st == QM_OK) {
        d.node[d.n_nodes++] = top;
        st = take_values(&d, all);
    }
    for (int64_t i = 0; st == QM_OK && i < places->n; i += 2)
        st = place_value(&d, places->item[i], places->item[i + 1]);
    if (st == QM_OK)
        st = check_values(&d, all->n / 2);
    if (st == QM_OK)
        st = make_tensors(&d, all->n / 2);
    if (st == QM_OK)
        st = put_values(&d, field(root, "planner_data"), all->n / 2);
    t->root = top;
    free(d.value);
    free(d.node);
    qm_name_index_free(&d.value_at);
    qm_name_index_free(&d.node_at);
    return st;
}
