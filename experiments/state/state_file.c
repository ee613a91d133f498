/* state_file.c - Writes and reads states in .safetensors and .h5 files. */
#include "experiments/state/state_file.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/readers/reader.h"
#include "experiments/store/result_reader.h"

#define FORMAT  "qualm-state"
#define VERSION "1"

/* The texts in both forms. */
struct texts {
    char *tensors, digest[65];
};

static qm_status texts_make(const struct qm_state *s, struct texts *out)
{
    json_t *all = qm_state_describe(s);
    out->tensors = all ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(all);
    if (!out->tensors)
        return qm_fail(QM_NO_MEMORY, "description of a state");
    qm_status st = qm_state_digest(s, out->digest);
    if (st != QM_OK)
        free(out->tensors);
    return st;
}

/* QM_BAD_ARG when the description could not be read back, as for a name that is no path. */
static qm_status names_check(const struct texts *texts)
{
    struct qm_state again;
    if (qm_state_undescribe(texts->tensors, &again) != QM_OK)
        return QM_BAD_ARG;
    qm_state_free(&again);
    return QM_OK;
}

/* ---- safetensors: writing ------------------------------------------------------------------- */

static qm_status write_safetensors(const struct qm_state *s, const struct texts *texts,
                                   const struct qm_array *a, int n, const char *path)
{
    json_t *all = json_pack("{s:s, s:s, s:s, s:s}", "format", FORMAT, "version", VERSION, "tensors",
                            texts->tensors, "digest", texts->digest);
    if (all && s->joined)
        json_object_set_new(all, "joined", json_string(s->joined));
    if (all && s->left_out)
        json_object_set_new(all, "left_out", json_string(s->left_out));
    qm_status st = all ? qm_arrays_write(path, QM_CONTAINER_safetensors, all, a, n)
                       : qm_fail(QM_NO_MEMORY, "%s: header", path);
    json_decref(all);
    return st;
}

/* ---- HDF5: writing -------------------------------------------------------------------------- */

static qm_status store_all(struct qm_store *store, const struct qm_state *s,
                           const struct texts *texts, const struct qm_array *a, int n)
{
    char path[QM_STATE_NAME + 128];
    QM_TRY(qm_store_text(store, "/", "format", FORMAT));
    QM_TRY(qm_store_text(store, "/", "version", VERSION));
    QM_TRY(qm_store_text(store, "/", "tensors", texts->tensors));
    QM_TRY(qm_store_text(store, "/", "digest", texts->digest));
    if (s->joined)
        QM_TRY(qm_store_text(store, "/", "joined", s->joined));
    if (s->left_out)
        QM_TRY(qm_store_text(store, "/", "left_out", s->left_out));
    for (int i = 0; i < n; i++) {
        const struct qm_tensor *t = a[i].tensor;
        snprintf(path, sizeof path, "/state/%s", a[i].name);
        QM_TRY(qm_store_array(store, path, t->dtype, &t->shape, t->data, "1", "", NULL));
    }
    return QM_OK;
}

static qm_status write_hdf5(const struct qm_state *s, const struct texts *texts,
                            const struct qm_array *a, int n, const char *path, int argc,
                            char **argv)
{
    struct qm_store *store;
    QM_TRY(qm_store_open(path, "state", argc, argv, &store));
    qm_status st = store_all(store, s, texts, a, n);
    if (st == QM_OK)
        return qm_store_commit(store);
    qm_store_abort(store);
    return st;
}

qm_status qm_state_write(const struct qm_state *s, const char *path, int argc, char **argv)
{
    struct texts texts;
    struct qm_array *a = NULL;
    int n = 0, is_h5 = qm_container_of(path) == QM_CONTAINER_h5;
    if (!is_h5 && qm_container_of(path) != QM_CONTAINER_safetensors)
        return qm_fail(
            QM_BAD_ARG,
            "%s: expected a name that ends in .h5 or .safetensors (`qualm import` writes "
            "the arrays of a float32 state for others, as .npz)",
            path);
    QM_TRY(texts_make(s, &texts));
    qm_status st = names_check(&texts);
    if (st == QM_OK)
        st = qm_state_arrays(s, &a, &n);
    if (st == QM_OK)
        st = is_h5 ? write_hdf5(s, &texts, a, n, path, argc, argv)
                   : write_safetensors(s, &texts, a, n, path);
    qm_state_arrays_free(a, n);
    free(texts.tensors);
    return st;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* An open file of either form. */
struct source {
    const char *path;
    struct qm_result *h5;
    struct qm_file *flat;
    json_t *index; /* of the .safetensors file: entry number by array name */
    qm_state_note *note;
    void *context;
};

/* Notes what is said of the file; note: NULL: nobody reads it. */
static qm_status note_of(const struct source *f, const char *before, const char *text)
{
    char *line = NULL;
    if (!f->note)
        return QM_OK;
    if (asprintf(&line, "%s: %s%s", f->path, before, text) < 0)
        return qm_fail(QM_NO_MEMORY, "%s: notes", f->path);
    f->note(line, f->context);
    free(line);
    return QM_OK;
}

static qm_status text_read(const struct source *f, const char *name, char **out)
{
    if (f->h5)
        return qm_result_text(f->h5, "/", name, out);
    int length = qm_file_attr_text(f->flat, "/", name, NULL, 0);
    if (length < 0)
        return qm_fail(QM_NO_MATCH, "no text '%s'", name);
    if (!(*out = malloc((size_t)length + 1)))
        return qm_fail(QM_NO_MEMORY, "%s: '%s'", f->path, name);
    qm_file_attr_text(f->flat, "/", name, *out, (size_t)length + 1);
    return QM_OK;
}

/* Checks that the file is a state of this version. */
static qm_status kind_check(const struct source *f)
{
    static const char *const key[] = {"format", "version"}, *const want[] = {FORMAT, VERSION};
    for (int i = 0; i < 2; i++) {
        char *text = NULL;
        qm_status st = text_read(f, key[i], &text);
        if (st != QM_OK && st != QM_NO_MATCH)
            return st;
        int same = st == QM_OK && strcmp(text, want[i]) == 0;
        if (!same)
            st = text ? qm_fail(QM_BAD_FILE, "%s: %s is '%.24s', expected '%s'; not a state file%s",
                                f->path, key[i], text, want[i], i ? " that this program knows" : "")
                      : qm_fail(QM_BAD_FILE,
                                "%s: has no %s, expected '%s'; not a state file, nor a checkpoint "
                                "of PyTorch",
                                f->path, key[i], want[i]);
        free(text);
        if (!same)
            return st;
    }
    return QM_OK;
}

static qm_status mismatch(const struct source *f, const char *name, const struct qm_tensor *want,
                          enum qm_dtype dtype, const struct qm_shape *shape)
{
    char a[192], b[192];
    return qm_fail(QM_BAD_FILE, "%s: '%s' is %s of %s, expected %s of %s", f->path, name,
                   qm_shape_print(shape, a, sizeof a), qm_dtype_name(dtype),
                   qm_shape_print(&want->shape, b, sizeof b), qm_dtype_name(want->dtype));
}

static int alike(const struct qm_tensor *want, enum qm_dtype dtype, const struct qm_shape *shape)
{
    return dtype == want->dtype && shape->rank == want->shape.rank &&
           memcmp(shape->dim, want->shape.dim, sizeof shape->dim[0] * (size_t)shape->rank) == 0;
}

static qm_status read_h5(const struct source *f, const struct qm_array *a)
{
    struct qm_tensor got;
    char path[QM_STATE_NAME + 128];
    snprintf(path, sizeof path, "/state/%s", a->name);
    qm_status st = qm_result_array(f->h5, path, &got);
    if (st == QM_NO_MATCH || st == QM_BAD_ARG)
        return qm_fail(QM_BAD_FILE, "%s: there is no array '%s'", f->path, a->name);
    if (st != QM_OK)
        return st;
    if (!alike(a->tensor, got.dtype, &got.shape)) {
        free(got.data);
        return mismatch(f, a->name, a->tensor, got.dtype, &got.shape);
    }
    a->tensor->data = got.data;
    return QM_OK;
}

static qm_status read_flat(const struct source *f, const struct qm_array *a)
{
    const json_t *where = json_object_get(f->index, a->name);
    if (!where)
        return qm_fail(QM_BAD_FILE, "%s: there is no array '%s'", f->path, a->name);
    int i = (int)json_integer_value(where);
    const struct qm_entry *e = qm_file_entry(f->flat, i);
    if (!alike(a->tensor, e->dtype, &e->shape))
        return mismatch(f, a->name, a->tensor, e->dtype, &e->shape);
    if (!(a->tensor->data = malloc(qm_tensor_bytes(a->tensor) + 1)))
        return qm_fail(QM_NO_MEMORY, "%s: '%s'", f->path, a->name);
    return qm_file_read_bytes(f->flat, i, a->tensor->data);
}

/* Checks that every code exists in the quantizer and that unused bits are 0. */
static qm_status codes_check(const struct source *f, const char *tensor, struct qm_state_slot *slot)
{
    struct qm_codec c;
    QM_TRY(qm_state_slot_layout(slot, &c));
    if (c.q.bits == 0)
        return QM_OK;
    int64_t n = qm_shape_numel(&slot->shape), bad = -1;
    size_t bytes = qm_tensor_bytes(&slot->codes);
    uint8_t *codes = malloc((size_t)n + bytes + 1);
    if (!codes)
        return qm_fail(QM_NO_MEMORY, "codes of %lld elements", (long long)n);
    uint8_t *packed = codes + n;
    qm_unpack_range(&c, slot->codes.data, n, codes);
    for (int64_t i = n - 1; i >= 0; i--)
        if (codes[i] >= 1 << c.q.bits ||
            (c.cb.perm[c.cb.position_of[codes[i]]] != codes[i] && !c.cb.is_float))
            bad = i;
    qm_pack_range(&c, codes, n, packed);
    qm_status st = QM_OK;
    if (bad >= 0)
        st = qm_fail(QM_BAD_FILE, "%s: '%s/%s': code %d at %lld does not exist in %s", f->path,
                     tensor, slot->name, codes[bad], (long long)bad, slot->quantizer);
    else if (bytes > 0 && memcmp(packed, slot->codes.data, bytes) != 0)
        st = qm_fail(QM_BAD_FILE, "%s: '%s/%s': unused bits are set", f->path, tensor, slot->name);
    free(codes);
    return st;
}

static qm_status digest_check(const struct source *f, const struct qm_state *s)
{
    char *want = NULL, got[65];
    qm_status st = text_read(f, "digest", &want);
    if (st == QM_NO_MATCH) /* other programs need not write a digest */
        return note_of(f, "", "has no digest; whether it was changed is not known");
    if (st == QM_OK)
        st = qm_state_digest(s, got);
    if (st == QM_OK && strcmp(got, want) != 0)
        st = qm_fail(QM_BAD_FILE, "%s: the contents do not match their digest", f->path);
    free(want);
    return st;
}

/* Reads a text that says what is not proven, which a file need not have, and notes it. */
static qm_status said_read(const struct source *f, const char *name, const char *before, char **out)
{
    qm_status st = text_read(f, name, out);
    return st == QM_OK ? note_of(f, before, *out) : st == QM_NO_MATCH ? QM_OK : st;
}

static qm_status description_read(const struct source *f, struct qm_state *out)
{
    char *text = NULL;
    QM_TRY(kind_check(f));
    qm_status st = text_read(f, "tensors", &text);
    if (st != QM_OK)
        return qm_fail_in(st == QM_NO_MEMORY ? st : QM_BAD_FILE, f->path);
    st = qm_state_undescribe(text, out);
    free(text);
    return st == QM_OK ? QM_OK : qm_fail_in(st, f->path);
}

static qm_status read_all(struct source *f, struct qm_state *out)
{
    struct qm_array *a = NULL;
    int n = 0;
    QM_TRY(description_read(f, out));
    qm_status st = qm_state_arrays(out, &a, &n);
    if (st == QM_OK && f->flat && qm_file_count(f->flat) != n)
        st = qm_fail(QM_BAD_FILE, "%s: %d arrays, the description has %d", f->path,
                     qm_file_count(f->flat), n);
    for (int i = 0; st == QM_OK && i < n; i++)
        st = f->h5 ? read_h5(f, &a[i]) : read_flat(f, &a[i]);
    qm_state_arrays_free(a, n);
    for (int i = 0; st == QM_OK && i < out->n; i++)
        for (int k = 0; st == QM_OK && k < out->tensor[i].n_slots; k++)
            st = codes_check(f, out->tensor[i].name, &out->tensor[i].slot[k]);
    return st == QM_OK ? digest_check(f, out) : st;
}

static qm_status source_open(const char *path, struct source *f)
{
    QM_TRY(qm_file_open(path, &f->flat));
    const char *format = qm_file_format(f->flat);
    if (strcmp(format, "hdf5") == 0) {
        qm_file_close(f->flat);
        f->flat = NULL;
        return qm_result_open(path, &f->h5);
    }
    if (strcmp(format, "torch") == 0)
        return QM_OK;
    if (strcmp(format, "safetensors") != 0)
        return qm_fail(QM_BAD_FILE,
                       "%s: is %s, expected a state in .h5 or .safetensors, or a checkpoint", path,
                       format);
    f->index = json_object();
    for (int i = 0; i < qm_file_count(f->flat); i++)
        json_object_set_new(f->index, qm_file_entry(f->flat, i)->name, json_integer(i));
    return QM_OK;
}

static void source_close(struct source *f)
{
    json_decref(f->index);
    qm_file_close(f->flat);
    qm_result_close(f->h5);
}

qm_status qm_state_read(const char *path, struct qm_state *out)
{
    return qm_state_read_as(path, NULL, NULL, NULL, out);
}

qm_status qm_state_read_as(const char *path, const char *as, qm_state_note *note, void *context,
                           struct qm_state *out)
{
    struct source f = {.path = path, .note = note, .context = context};
    struct qm_state s = {0};
    qm_status st = source_open(path, &f);
    if (st == QM_OK)
        st = f.flat && !f.index ? qm_state_from_checkpoint(f.flat, path, as, note, context, &s)
                                : read_all(&f, &s);
    int is_state = f.h5 || f.index;
    if (st == QM_OK && is_state && as)
        st = qm_fail(QM_BAD_ARG,
                     "%s: is a state file, which names its recipes itself; --as is for "
                     "checkpoints of PyTorch",
                     path);
    if (st == QM_OK && is_state)
        st = said_read(&f, "joined", "", &s.joined);
    if (st == QM_OK && is_state)
        st = said_read(&f, "left_out", "left out: ", &s.left_out);
    source_close(&f);
    if (st == QM_OK)
        *out = s;
    else
        qm_state_free(&s);
    return st;
}
