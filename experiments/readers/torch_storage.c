/* torch_storage.c - The pickle and the storages of a checkpoint, an archive or a legacy file. */
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/torch.h"

enum { PICKLE_MOST = 1 << 30, WHOLE_MOST = 128 << 20 };

int64_t qm_torch_storage_find(struct qm_torch *t, const char *key)
{
    return qm_name_index_get(&t->storage_at, key, strlen(key));
}

qm_status qm_torch_storage_add(struct qm_file *f, const char *key, struct qm_torch_storage s)
{
    struct qm_torch *t = f->own;
    QM_TRY(qm_grow((void **)&t->storage, &t->storage_room, t->n_storages + 1, sizeof s));
    if (!(s.key = strdup(key)))
        return qm_fail(QM_NO_MEMORY, "%s: storages", f->path);
    t->storage[t->n_storages] = s;
    return qm_name_index_put(&t->storage_at, s.key, strlen(s.key), t->n_storages++);
}

/* ---- the archive --------------------------------------------------------------------------- */

/* The entry FOLDER + name, or -1. */
static zip_int64_t record(const struct qm_torch *t, const char *name)
{
    char path[1024];
    int n = snprintf(path, sizeof path, "%s%s", t->folder, name);
    return n < (int)sizeof path ? zip_name_locate(t->zip, path, 0) : -1;
}

static qm_status record_size(struct qm_file *f, zip_int64_t i, zip_stat_t *out)
{
    struct qm_torch *t = f->own;
    const zip_uint64_t wanted = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if (zip_stat_index(t->zip, (zip_uint64_t)i, 0, out) != 0 || (out->valid & wanted) != wanted)
        return qm_file_bad(f, "record %lld is damaged: %s", (long long)i,
                           qm_zip_word(zip_get_error(t->zip)));
    if (out->size > INT64_MAX || (out->comp_method == ZIP_CM_STORE && out->size > f->size))
        return qm_file_bad(f, "record '%.200s' claims %llu bytes of %zu", out->name,
                           (unsigned long long)out->size, f->size);
    return QM_OK;
}

/* A whole record of at most `most` bytes, which the caller frees; a NUL follows. */
static qm_status record_bytes(struct qm_file *f, zip_int64_t i, int64_t most, unsigned char **out,
                              size_t *size)
{
    struct qm_torch *t = f->own;
    zip_stat_t info;
    QM_TRY(record_size(f, i, &info));
    if (info.size > (zip_uint64_t)most)
        return qm_file_bad(f, "record '%.200s' has %llu bytes, at most %lld are read", info.name,
                           (unsigned long long)info.size, (long long)most);
    unsigned char *b = malloc((size_t)info.size + 1), more;
    zip_file_t *e = b ? zip_fopen_index(t->zip, (zip_uint64_t)i, 0) : NULL;
    zip_uint64_t done = 0;
    zip_int64_t got = 0;
    while (e && done < info.size && (got = zip_fread(e, b + done, info.size - done)) > 0) {
        done += (zip_uint64_t)got;
        qm_reader_progress();
    }
    int clean = e && done == info.size && zip_fread(e, &more, 1) == 0;
    if (e && zip_fclose(e) != 0)
        clean = 0;
    if (!clean) {
        free(b);
        return b ? qm_file_bad(f, "record '%.200s' is damaged", info.name)
                 : qm_fail(QM_NO_MEMORY, "%s: a record of %llu bytes", f->path,
                           (unsigned long long)info.size);
    }
    b[info.size] = '\0';
    *out = b;
    *size = (size_t)info.size;
    return QM_OK;
}

/* Sets the folder from the entry NAME/data.pkl. */
static qm_status find_folder(struct qm_file *f)
{
    struct qm_torch *t = f->own;
    for (zip_int64_t i = 0; i < zip_get_num_entries(t->zip, 0); i++) {
        const char *name = zip_get_name(t->zip, (zip_uint64_t)i, 0);
        size_t n = name ? strlen(name) : 0;
        if (n > 9 && strcmp(name + n - 9, "/data.pkl") == 0) {
            t->folder = strndup(name, n - 8);
            return t->folder ? QM_OK : qm_fail(QM_NO_MEMORY, "%s", f->path);
        }
    }
    return qm_file_bad(f, "the archive has no data.pkl");
}

static qm_status read_byte_order(struct qm_file *f)
{
    struct qm_torch *t = f->own;
    unsigned char *text;
    size_t size;
    zip_int64_t i = record(t, "byteorder");
    if (i < 0) /* written by PyTorch before 2.1, on machines that were little-endian */
        return QM_OK;
    QM_TRY(record_bytes(f, i, 16, &text, &size));
    t->is_big_endian = strcmp((char *)text, "big") == 0;
    int good = t->is_big_endian || strcmp((char *)text, "little") == 0;
    free(text);
    return good ? QM_OK : qm_file_bad(f, "record 'byteorder' is neither little nor big");
}

/* Every record data/KEY is a storage. */
static qm_status find_records(struct qm_file *f)
{
    struct qm_torch *t = f->own;
    char prefix[1024];
    int n = snprintf(prefix, sizeof prefix, "%sdata/", t->folder);
    if (n >= (int)sizeof prefix)
        return qm_file_bad(f, "the archive's folder has a name of more than 1000 bytes");
    for (zip_int64_t i = 0; i < zip_get_num_entries(t->zip, 0); i++) {
        const char *name = zip_get_name(t->zip, (zip_uint64_t)i, 0);
        zip_stat_t info;
        if (!name || strncmp(name, prefix, (size_t)n) != 0 || name[n] == '\0')
            continue;
        QM_TRY(record_size(f, i, &info));
        QM_TRY(qm_torch_storage_add(
            f, name + n, (struct qm_torch_storage){.bytes = (int64_t)info.size, .zip = i}));
        qm_reader_progress();
    }
    return QM_OK;
}

static qm_status load_archive(struct qm_file *f, qm_pickle_knows *knows)
{
    struct qm_torch *t = f->own;
    zip_error_t error;
    unsigned char *pickle;
    size_t size, at = 0;
    zip_error_init(&error);
    zip_source_t *source = zip_source_buffer_create(f->map, f->size, 0, &error);
    t->zip = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : NULL;
    if (!t->zip && source)
        zip_source_free(source);
    qm_status st = t->zip ? QM_OK
                          : qm_file_bad(f,
                                        "the archive is damaged: %s; expected a zip file with "
                                        "its directory",
                                        qm_zip_word(&error));
    zip_error_fini(&error);
    QM_TRY(st);
    QM_TRY(qm_zip_check(f, t->zip));
    QM_TRY(qm_zip_entries_check(f));
    QM_TRY(find_folder(f));
    QM_TRY(read_byte_order(f));
    QM_TRY(find_records(f));
    if (record(t, "constants.pkl") >= 0)
        return qm_file_bad(f, "is a TorchScript program (torch.jit.save), expected torch.save of a "
                              "state_dict()");
    QM_TRY(record_bytes(f, record(t, "data.pkl"), PICKLE_MOST, &pickle, &size));
    st = qm_pickle_read(f, pickle, &at, size, knows, &t->memory, &t->root);
    free(pickle);
    return st;
}

/* ---- legacy files: magic, version, machine, values, keys, then each storage ----------------- */

static int no_name(const char *global)
{
    (void)global;
    return 0;
}

/* Bytes of an element of the storage that a persistent id names by its key; 0: no id does. */
static int64_t element_size(const struct qm_torch *t, const char *key)
{
    static const struct {
        const char *name;
        int64_t size;
    } quantized[] = {{"torch.QInt8Storage", 1},
                     {"torch.QUInt8Storage", 1},
                     {"torch.QInt32Storage", 4},
                     {"torch.QUInt4x2Storage", 1},
                     {"torch.QUInt2x4Storage", 1}};
    const struct qm_pickle *id;
    for (int64_t i = 0; (id = qm_pickle_persistent_id(t->memory, i)); i++)
        if (qm_pickle_is_text(qm_pickle_item(id, 2), key)) {
            const struct qm_torch_element *e = qm_torch_storage_class(qm_pickle_item(id, 1));
            for (size_t k = 0; k < sizeof quantized / sizeof *quantized; k++)
                if (qm_pickle_item(id, 1)->kind == QM_PICKLE_global &&
                    strcmp(qm_pickle_item(id, 1)->text, quantized[k].name) == 0)
                    return quantized[k].size;
            return e ? e->size : 0;
        }
    return 0;
}

/* For each key 8 bytes with the number of elements, then the elements. */
static qm_status find_legacy_storages(struct qm_file *f, const struct qm_pickle *keys, size_t at)
{
    struct qm_torch *t = f->own;
    for (int64_t i = 0; qm_pickle_is(keys, QM_PICKLE_list) && i < keys->n; i++) {
        const struct qm_pickle *key = keys->item[i];
        if (key->kind != QM_PICKLE_text)
            return qm_file_bad(f, "a storage's key is no text");
        int64_t size = element_size(t, key->text), n, bytes;
        if (f->size - at < sizeof n)
            return qm_file_bad(f, "ends before storage '%.100s'", key->text);
        memcpy(&n, f->map + at, sizeof n);
        at += sizeof n;
        if (size == 0)
            return qm_file_bad(f, "storage '%.100s' has no known type", key->text);
        if (n < 0 || __builtin_mul_overflow(n, size, &bytes) || (uint64_t)bytes > f->size - at)
            return qm_file_bad(f, "storage '%.100s' claims %lld elements of %lld bytes", key->text,
                               (long long)n, (long long)size);
        QM_TRY(qm_torch_storage_add(
            f, key->text, (struct qm_torch_storage){.bytes = bytes, .zip = -1, .offset = at}));
        at += (size_t)bytes;
        qm_reader_progress();
    }
    return QM_OK;
}

static qm_status load_legacy(struct qm_file *f, qm_pickle_knows *knows)
{
    struct qm_torch *t = f->own;
    const struct qm_pickle *magic, *version, *machine, *keys;
    size_t at = 0;
    QM_TRY(qm_pickle_read(f, f->map, &at, f->size, no_name, &t->memory, &magic));
    QM_TRY(qm_pickle_read(f, f->map, &at, f->size, no_name, &t->memory, &version));
    QM_TRY(qm_pickle_read(f, f->map, &at, f->size, no_name, &t->memory, &machine));
    if (version->kind != QM_PICKLE_whole || version->whole != 1001)
        return qm_file_bad(f, "a legacy checkpoint of another version than 1001");
    const struct qm_pickle *little = qm_pickle_find(machine, "little_endian");
    t->is_big_endian = little && little->kind == QM_PICKLE_bool && little->whole == 0;
    QM_TRY(qm_pickle_read(f, f->map, &at, f->size, knows, &t->memory, &t->root));
    QM_TRY(qm_pickle_read(f, f->map, &at, f->size, no_name, &t->memory, &keys));
    return find_legacy_storages(f, keys, at);
}

/* ---- both ---------------------------------------------------------------------------------- */

qm_status qm_torch_load(struct qm_file *f, qm_pickle_knows *knows)
{
    return f->map[0] == 'P' ? load_archive(f, knows) : load_legacy(f, knows);
}

void qm_torch_unload(struct qm_torch *t)
{
    for (int64_t i = 0; i < t->n_storages; i++) {
        if (t->storage[i].open)
            zip_fclose(t->storage[i].open);
        qm_torch_pieces_close(t, &t->storage[i]);
        free(t->storage[i].piece);
        free(t->storage[i].whole);
        free(t->storage[i].key);
    }
    for (int64_t i = 0; i < t->n_groups; i++)
        free(t->group[i].name);
    if (t->zip)
        zip_discard(t->zip);
    qm_torch_shards_free(t);
    qm_name_index_free(&t->storage_at);
    qm_name_index_free(&t->entry_at);
    qm_name_index_free(&t->group_at);
    qm_pickle_free(t->memory);
    free(t->storage);
    free(t->array);
    free(t->group);
    free(t->folder);
    free(t);
}

/* Opens the record of a storage, or reads the whole of one that is compressed. */
static qm_status open_record(struct qm_file *f, struct qm_torch_storage *s)
{
    struct qm_torch *t = f->own;
    zip_stat_t info;
    size_t size;
    QM_TRY(record_size(f, s->zip, &info));
    if (info.comp_method != ZIP_CM_STORE)
        return record_bytes(f, s->zip, WHOLE_MOST, &s->whole, &size);
    s->open = zip_fopen_index(t->zip, (zip_uint64_t)s->zip, 0);
    s->at = 0;
    return s->open ? QM_OK
                   : qm_file_bad(f, "record '%.200s' is damaged: %s", info.name,
                                 qm_zip_word(zip_get_error(t->zip)));
}

/* Reads on where the last read ended, or seeks: a record that is read from its first to its last
 * byte is compared with its checksum by libzip. */
static qm_status record_read(struct qm_file *f, struct qm_torch_storage *s, int64_t from, int64_t n,
                             unsigned char *out)
{
    if (s->at != from && zip_fseek(s->open, from, SEEK_SET) != 0)
        return qm_file_bad(f, "storage '%.100s': %s", s->key, zip_file_strerror(s->open));
    for (int64_t done = 0; done < n;) {
        zip_int64_t got = zip_fread(s->open, out + done, (zip_uint64_t)(n - done));
        if (got <= 0)
            return qm_file_bad(f, "storage '%.100s' is damaged", s->key);
        done += got;
    }
    s->at = from + n;
    unsigned char more;
    if (s->at == s->bytes && zip_fread(s->open, &more, 1) != 0)
        return qm_file_bad(f, "storage '%.100s' does not match its checksum", s->key);
    return QM_OK;
}

qm_status qm_torch_storage_read(struct qm_file *f, int64_t storage, int64_t from, int64_t n,
                                void *out)
{
    struct qm_torch *t = f->own;
    struct qm_torch_storage *s = &t->storage[storage];
    if (n == 0)
        return QM_OK;
    if (s->piece)
        return qm_torch_pieces_read(f, storage, from, n, out);
    qm_mapped_touched(f, (size_t)n);
    if (s->zip < 0) {
        memcpy(out, f->map + s->offset + from, (size_t)n);
        return QM_OK;
    }
    if (!s->open && !s->whole)
        QM_TRY(open_record(f, s));
    if (s->open)
        return record_read(f, s, from, n, out);
    memcpy(out, s->whole + from, (size_t)n);
    return QM_OK;
}
