/* weight_map.c - The reader of *.index.json: tensors spread over .safetensors or .bin files.
 *
 * Format (huggingface/transformers, utils/hub.py, get_checkpoint_shard_files): a JSON object whose
 * "weight_map" gives for each tensor the name of a file in the same folder.  All of it, the shards
 * included, is read in the reader process. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/name_index.h"
#include "experiments/foreign/json_parse.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/format.h"

enum { INDEX_MOST = 64 << 20, JSON_DEPTH_MOST = 16, SHARDS_MOST = 1 << 14 };

struct place {
    int64_t shard;
    int entry;
};

struct weight_map {
    struct qm_file **shard;
    struct place *place; /* parallel to the file's entries */
    int64_t n_shards, shard_room, place_room;
    int64_t last;    /* the shard that was read last */
    int64_t unnamed; /* tensors of shards that the index does not name */
    char first_unnamed[128];
    struct qm_left_out left_out; /* tensors that a shard holds and its reader leaves out */
};

/* A brace, and "weight_map" somewhere. */
static int knows(const unsigned char *map, size_t size)
{
    static const char word[] = "\"weight_map\"";
    size_t i = 0, most = size < INDEX_MOST ? size : INDEX_MOST;
    while (i < most && (map[i] == ' ' || map[i] == '\n' || map[i] == '\r' || map[i] == '\t'))
        i++;
    return i < most && map[i] == '{' && memmem(map, most, word, sizeof word - 1);
}

static qm_status check_depth(const struct qm_file *f)
{
    int depth = 0, quoted = 0;
    for (size_t i = 0; i < f->size; i++) {
        if (quoted && f->map[i] == '\\')
            i++;
        else if (f->map[i] == '"')
            quoted = !quoted;
        else if (!quoted)
            depth +=
                (f->map[i] == '{' || f->map[i] == '[') - (f->map[i] == '}' || f->map[i] == ']');
        if (depth > JSON_DEPTH_MOST)
            return qm_file_bad(f, "byte %zu: nests deeper than %d", i, JSON_DEPTH_MOST);
    }
    return QM_OK;
}

/* Number of the shard of a name, which is opened at its first use. */
static qm_status shard_of(struct qm_file *f, struct qm_name_index *known, const char *name,
                          int64_t *out)
{
    struct weight_map *w = f->own;
    char path[4096];
    *out = qm_name_index_get(known, name, strlen(name));
    if (*out >= 0)
        return QM_OK;
    QM_TRY(qm_file_beside(f, name, path, sizeof path));
    if (w->n_shards == SHARDS_MOST)
        return qm_file_bad(f, "more than %d shards", SHARDS_MOST);
    QM_TRY(qm_grow((void **)&w->shard, &w->shard_room, w->n_shards + 1, sizeof *w->shard));
    QM_TRY(qm_file_open_here(path, &w->shard[w->n_shards]));
    f->beside += w->shard[w->n_shards]->size;
    *out = w->n_shards++;
    qm_reader_progress();
    return qm_name_index_put(known, name, strlen(name), *out);
}

/* Opens the shards, and notes of each tensor which one the index names. */
static qm_status open_shards(struct qm_file *f, const json_t *names, struct qm_name_index *known,
                             struct qm_name_index *shard_of_tensor)
{
    const char *tensor;
    json_t *value;
    json_object_foreach ((json_t *)names, tensor, value) {
        int64_t shard = -1;
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return qm_file_bad(f, "weight_map: '%.200s' has no file", tensor);
        QM_TRY(shard_of(f, known, json_string_value(value), &shard));
        QM_TRY(qm_name_index_put(shard_of_tensor, tensor, strlen(tensor), shard));
    }
    return QM_OK;
}

/* Adds the tensors of the shards, in their order, that the index places there. */
static qm_status add_tensors(struct qm_file *f, const struct qm_name_index *shard_of_tensor)
{
    struct weight_map *w = f->own;
    for (int64_t k = 0; k < w->n_shards; k++)
        for (int i = 0; i < w->shard[k]->n_entries; i++) {
            const struct qm_entry *e = &w->shard[k]->entry[i];
            if (qm_name_index_get(shard_of_tensor, e->name, strlen(e->name)) != k) {
                if (w->unnamed++ == 0)
                    snprintf(w->first_unnamed, sizeof w->first_unnamed, "%s", e->name);
                continue;
            }
            QM_TRY(qm_grow((void **)&w->place, &w->place_room, f->n_entries + 1, sizeof *w->place));
            w->place[f->n_entries] = (struct place){k, i};
            struct qm_array_location at = {.is_complex = w->shard[k]->place[i].is_complex};
            QM_TRY(qm_file_add(f, e->name, e->dtype, &e->shape, at));
        }
    return QM_OK;
}

/* Every tensor of the index was found in its shard, or its shard says what of it is not read. */
static qm_status check_all_found(struct qm_file *f, const json_t *names,
                                 const struct qm_name_index *shard_of_tensor)
{
    struct weight_map *w = f->own;
    char left[1024];
    struct qm_name_index found = {NULL, 0, 0};
    const char *tensor;
    json_t *value;
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < f->n_entries; i++)
        st = qm_name_index_put(&found, f->entry[i].name, strlen(f->entry[i].name), i);
    json_object_foreach ((json_t *)names, tensor, value) {
        if (st != QM_OK || qm_name_index_get(&found, tensor, strlen(tensor)) >= 0)
            continue;
        int64_t k = qm_name_index_get(shard_of_tensor, tensor, strlen(tensor));
        if (f->n_entries > 0 && qm_file_left_out(w->shard[k], left, sizeof left) > 0)
            qm_left_out_add(&w->left_out, "%.200s (its shard leaves out %.300s)", tensor, left);
        else
            st = qm_file_bad(f, "weight_map: '%.200s' is not in '%.200s'", tensor,
                             json_string_value(value));
    }
    qm_name_index_free(&found);
    return st;
}

static qm_status open_index(struct qm_file *f)
{
    struct qm_name_index known = {NULL, 0, 0}, shard_of_tensor = {NULL, 0, 0};
    json_t *root;
    if (!(f->own = calloc(1, sizeof(struct weight_map))))
        return qm_fail(QM_NO_MEMORY, "%s", f->path);
    if (f->size > INDEX_MOST)
        return qm_file_bad(f, "an index of %zu bytes, at most %d are read", f->size, INDEX_MOST);
    QM_TRY(check_depth(f));
    QM_TRY(qm_json_parse((const char *)f->map, f->size, "index", 0, &root));
    const json_t *names = json_object_get(root, "weight_map");
    qm_status st = json_object_size(names) > 0
                       ? open_shards(f, names, &known, &shard_of_tensor)
                       : qm_file_bad(f, "'weight_map' is no object with tensors");
    if (st == QM_OK)
        st = add_tensors(f, &shard_of_tensor);
    if (st == QM_OK)
        st = check_all_found(f, names, &shard_of_tensor);
    json_decref(root);
    qm_name_index_free(&known);
    qm_name_index_free(&shard_of_tensor);
    return st;
}

static void close_index(struct qm_file *f)
{
    struct weight_map *w = f->own;
    for (int64_t k = 0; w && k < w->n_shards; k++)
        qm_file_close(w->shard[k]);
    if (w) {
        free(w->shard);
        free(w->place);
    }
    free(w);
    f->own = NULL;
}

static qm_status read_index(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink)
{
    struct weight_map *w = f->own;
    struct qm_file *shard = w->shard[w->place[i].shard];
    w->last = w->place[i].shard;
    return shard->format->read(shard, w->place[i].entry, from, n, sink);
}

/* Of the shard that was read last; the opening looked at all of them. */
static qm_status check_index(struct qm_file *f)
{
    const struct weight_map *w = f->own;
    return w->last < w->n_shards ? qm_file_check_here(w->shard[w->last]) : QM_OK;
}

static qm_status bytes_index(struct qm_file *f, int i, int64_t from, int64_t n, void *out)
{
    struct weight_map *w = f->own;
    struct qm_file *shard = w->shard[w->place[i].shard];
    int k = w->place[i].entry;
    w->last = w->place[i].shard;
    size_t size = qm_dtype_size(f->entry[i].dtype);
    if (shard->format->bytes)
        return shard->format->bytes(shard, k, from, n, out);
    if (shard->place[k].code)
        return shard->format->read(shard, k, from, n, (struct qm_sink){.f = out});
    memcpy(out, shard->map + shard->place[k].offset + (size_t)from * size, (size_t)n * size);
    return QM_OK;
}

/* "left_out" of "/": tensors of shards that the index does not name. */
static int attr_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size)
{
    const struct weight_map *w = f->own;
    if (strcmp(path, "/") != 0 || strcmp(name, "left_out") != 0)
        return -1;
    if (w->left_out.n > 0 || w->unnamed == 0)
        return qm_left_out_text(&w->left_out, out, size);
    return snprintf(out, size, "%lld tensors that the index does not name, first '%s'",
                    (long long)w->unnamed, w->first_unnamed);
}

static int attr_number(struct qm_file *f, const char *path, const char *name, double *out, int max)
{
    (void)f, (void)path, (void)name, (void)out, (void)max;
    return -1;
}

const struct qm_format qm_format_weight_map = {
    .name = "index.json",
    .knows = knows,
    .open = open_index,
    .read = read_index,
    .bytes = bytes_index,
    .check = check_index,
    .close = close_index,
    .attr_number = attr_number,
    .attr_text = attr_text,
    .kind = QM_FORMAT_served_from_map,
};
