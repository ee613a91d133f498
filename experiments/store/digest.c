/* digest.c - qm_store_digest: SHA-256 of an HDF5 file's contents, whatever its layout. */
#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/file_sum.h"
#include "experiments/foreign/h5_chunks.h"
#include "experiments/foreign/h5_guard.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/store/h5_stream.h"
#include "experiments/store/store.h"
#include "experiments/store/stored_digest.h"

enum {
    SLAB = 1 << 20,        /* bytes of a dataset read at a time */
    SLAB_MOST = 128 << 20, /* where rows of chunks are long */
    CACHE = 32 << 20,      /* bytes of the chunk cache: wide chunks are inflated once */
};

struct walk {
    struct qm_h5_stream out;
    struct qm_h5_walk_count count;
    uint64_t stored, most; /* bytes of the file, and that it may yield */
    uint64_t claimed;      /* by the datasets so far */
    qm_status st;          /* of the iteration callbacks */
    char path[QM_H5_PATH_MAX];
};

/* Hashes rank and dims, or 'n' for a null space.  Returns the rank, -1 for a null space. */
static int hash_space(struct walk *w, hid_t space, hsize_t *dim)
{
    if (H5Sget_simple_extent_type(space) == H5S_NULL) {
        qm_stream_tag(&w->out, 'n');
        return -1;
    }
    int rank = H5Sget_simple_extent_dims(space, dim, NULL);
    qm_stream_tag(&w->out, 'd');
    qm_stream_dims(&w->out, rank, dim);
    return rank;
}

/* ---- attributes ---------------------------------------------------------------------------- */

static qm_status hash_attribute_values(struct walk *w, hid_t a, hid_t t)
{
    hsize_t dim[H5S_MAX_RANK];
    hid_t space = H5Aget_space(a);
    hssize_t n = hash_space(w, space, dim) < 0 ? 0 : H5Sget_simple_extent_npoints(space);
    qm_status st = QM_OK;
    char *data = calloc(n > 0 ? (size_t)n : 1, H5Tget_size(t));
    if (!data) {
        st = qm_fail(QM_NO_MEMORY, "%s", w->path);
    } else if (n > 0) {
        if (H5Aread(a, t, data) < 0)
            st = qm_h5_fail(QM_BAD_FILE, "%s: an attribute cannot be read", w->path);
        else
            qm_stream_values(&w->out, t, data, (size_t)n);
        if (st == QM_OK && !qm_stream_is_plain(t))
            H5Dvlen_reclaim(t, space, H5P_DEFAULT, data);
    }
    free(data);
    qm_h5_close(space);
    return st;
}

/* Callback for one attribute.  REFERENCE_LIST of a scale is skipped: it repeats the
 * DIMENSION_LISTs, in the order of attaching. */
static herr_t hash_attribute(hid_t object, const char *name, const H5A_info_t *info, void *walk)
{
    struct walk *w = walk;
    (void)info;
    if (strcmp(name, "REFERENCE_LIST") == 0)
        return 0;
    hid_t a = H5Aopen(object, name, H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    hid_t t = qm_stream_type_of(type);
    if (t < 0) {
        w->st = qm_h5_fail(QM_BAD_FILE, "%s: attribute '%s' cannot be read", w->path, name);
    } else {
        qm_stream_tag(&w->out, 'A');
        qm_stream_text(&w->out, name);
        w->st = qm_stream_type(&w->out, t);
        if (w->st == QM_OK)
            w->st = hash_attribute_values(w, a, t);
    }
    qm_h5_close(t);
    qm_h5_close(type);
    qm_h5_close(a);
    return w->st == QM_OK ? 0 : -1;
}

static qm_status hash_attributes(struct walk *w, hid_t object)
{
    hsize_t at = 0;
    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &at, hash_attribute, w) < 0 &&
        w->st == QM_OK)
        w->st = qm_h5_fail(QM_BAD_FILE, "%s: its attributes cannot be listed", w->path);
    return w->st;
}

/* ---- datasets ------------------------------------------------------------------------------ */

/* A hyperslab of a dataset: offset at[] and size count[]. */
struct slab {
    int rank;
    hsize_t dim[H5S_MAX_RANK], at[H5S_MAX_RANK], count[H5S_MAX_RANK];
};

/* Elements of a slab: SLAB bytes, or as many as a row of chunks has, up to SLAB_MOST, because each
 * slab unpacks all chunks that it crosses. */
static hsize_t slab_elements(hid_t set, const struct slab *s, size_t element)
{
    hsize_t chunk[H5S_MAX_RANK], row = 0, least = SLAB / element, most = SLAB_MOST / element;
    hid_t plist = H5Dget_create_plist(set);
    if (H5Pget_layout(plist) == H5D_CHUNKED && H5Pget_chunk(plist, H5S_MAX_RANK, chunk) == s->rank)
        row = chunk[0];
    for (int k = 1; k < s->rank && row <= most; k++)
        row *= s->dim[k] > 0 && s->dim[k] <= most ? s->dim[k] : most + 1;
    H5Pclose(plist);
    row = row < least ? least : row > most ? most : row;
    return row > 0 ? row : 1;
}

/* Sets the first slab: whole trailing dims while they have at most `left` elements, part of the
 * next one, size 1 above. */
static void slab_start(struct slab *s, hsize_t left)
{
    for (int i = s->rank - 1; i >= 0; i--) {
        s->at[i] = 0;
        s->count[i] = s->dim[i] < left ? s->dim[i] : left;
        left = s->count[i] < s->dim[i] ? 1 : left / s->count[i];
    }
}

/* Advances to the next slab in row-major order; returns 0 after the last. */
static int slab_next(struct slab *s, const hsize_t *step)
{
    for (int i = s->rank - 1; i >= 0; i--) {
        s->at[i] += step[i];
        if (s->at[i] < s->dim[i]) {
            hsize_t rest = s->dim[i] - s->at[i];
            s->count[i] = step[i] < rest ? step[i] : rest;
            return 1;
        }
        s->at[i] = 0;
        s->count[i] = step[i];
    }
    return 0;
}

static qm_status hash_slab(struct walk *w, hid_t set, hid_t t, hid_t space, const struct slab *s,
                           char *data)
{
    hid_t memory = s->rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(s->rank, s->count, NULL);
    qm_status st = QM_OK;
    if (memory < 0 ||
        (s->rank > 0 &&
         H5Sselect_hyperslab(space, H5S_SELECT_SET, s->at, NULL, s->count, NULL) < 0) ||
        H5Dread(set, t, memory, space, H5P_DEFAULT, data) < 0) {
        st = qm_h5_fail(QM_BAD_FILE, "%s cannot be read", w->path);
    } else {
        qm_stream_values(&w->out, t, data, (size_t)H5Sget_simple_extent_npoints(memory));
        if (!qm_stream_is_plain(t))
            H5Dvlen_reclaim(t, memory, H5P_DEFAULT, data);
    }
    qm_h5_close(memory);
    return st;
}

/* Refuses a file that yields many times what it stores. */
static qm_status claim_check(const struct walk *w, uint64_t bytes)
{
    if (bytes <= w->most)
        return QM_OK;
    return qm_fail_in(qm_reader_claim_fail("all up to it claims", bytes, w->stored), w->path);
}

static qm_status hash_dataset_values(struct walk *w, hid_t set, hid_t t, hid_t space)
{
    struct slab s;
    s.rank = hash_space(w, space, s.dim);
    hssize_t n = s.rank < 0 ? 0 : H5Sget_simple_extent_npoints(space);
    if (n <= 0)
        return QM_OK;
    uint64_t bytes = 0;
    if (__builtin_mul_overflow((uint64_t)n, (uint64_t)H5Tget_size(t), &bytes) ||
        __builtin_add_overflow(w->claimed, bytes, &w->claimed))
        w->claimed = UINT64_MAX;
    QM_TRY(claim_check(w, w->claimed));
    QM_TRY(qm_h5_chunks_check(NULL, w->path, set));
    slab_start(&s, slab_elements(set, &s, H5Tget_size(t)));
    hsize_t step[H5S_MAX_RANK];
    size_t most = 1;
    for (int i = 0; i < s.rank; i++)
        most *= step[i] = s.count[i];
    char *data = calloc(most, H5Tget_size(t));
    if (!data)
        return qm_fail(QM_NO_MEMORY, "%s", w->path);
    qm_status st;
    do {
        qm_reader_progress();
        st = hash_slab(w, set, t, space, &s, data);
        if (st == QM_OK)
            st = claim_check(w, w->out.added); /* texts and sequences may be one many times */
    } while (st == QM_OK && slab_next(&s, step));
    free(data);
    return st;
}

static qm_status hash_dataset(struct walk *w, hid_t set)
{
    hid_t type = H5Dget_type(set), space = H5Dget_space(set), t = qm_stream_type_of(type);
    if (t < 0 || space < 0)
        w->st = qm_h5_fail(QM_BAD_FILE, "%s cannot be read", w->path);
    else
        w->st = qm_h5_guard_dataset(NULL, w->path, set);
    if (w->st == QM_OK) {
        qm_stream_tag(&w->out, 'D');
        qm_stream_text(&w->out, w->path);
        w->st = qm_stream_type(&w->out, t);
        if (w->st == QM_OK)
            w->st = hash_dataset_values(w, set, t, space);
    }
    qm_h5_close(t);
    qm_h5_close(space);
    qm_h5_close(type);
    return w->st == QM_OK ? hash_attributes(w, set) : w->st;
}

/* ---- groups -------------------------------------------------------------------------------- */

static qm_status hash_group(struct walk *w, hid_t group);

static qm_status hash_object(struct walk *w, hid_t object)
{
    hid_t t;
    switch (H5Iget_type(object)) {
    case H5I_GROUP: return hash_group(w, object);
    case H5I_DATASET: return hash_dataset(w, object);
    case H5I_DATATYPE:
        qm_stream_tag(&w->out, 'T');
        qm_stream_text(&w->out, w->path);
        t = qm_stream_type_of(object);
        w->st = t < 0 ? qm_h5_fail(QM_BAD_FILE, "%s cannot be read", w->path)
                      : qm_stream_type(&w->out, t);
        qm_h5_close(t);
        return w->st == QM_OK ? hash_attributes(w, object) : w->st;
    default: return w->st = qm_h5_fail(QM_BAD_FILE, "%s cannot be opened", w->path);
    }
}

/* Hashes the target path of a soft or external link, not the target. */
static qm_status hash_pointer(struct walk *w, hid_t group, const char *name, size_t size)
{
    char *value = calloc(1, size + 1);
    if (!value)
        return w->st = qm_fail(QM_NO_MEMORY, "%s", w->path);
    if (H5Lget_val(group, name, value, size, H5P_DEFAULT) < 0)
        w->st = qm_h5_fail(QM_BAD_FILE, "%s: a link cannot be read", w->path);
    qm_stream_tag(&w->out, 'L');
    qm_stream_text(&w->out, w->path);
    qm_stream_count(&w->out, size);
    qm_stream_add(&w->out, value, size);
    free(value);
    return w->st;
}

static herr_t hash_link(hid_t group, const char *name, const H5L_info_t *info, void *walk)
{
    struct walk *w = walk;
    size_t held = strlen(w->path);
    if (held == 1 && (strcmp(name, "provenance") == 0 || strcmp(name, "timing") == 0))
        return 0;
    size_t room = sizeof w->path - held;
    if ((w->st = qm_h5_guard_count(&w->count)) != QM_OK)
        return -1;
    if ((size_t)snprintf(w->path + held, room, held == 1 ? "%s" : "/%s", name) >= room) {
        w->st = qm_fail(QM_BAD_FILE, "a path of more than %d bytes", QM_H5_PATH_MAX);
    } else if (info->type != H5L_TYPE_HARD) {
        hash_pointer(w, group, name, info->u.val_size);
    } else {
        hid_t object = H5Oopen(group, name, H5P_DEFAULT);
        hash_object(w, object);
        qm_h5_close(object);
    }
    w->path[held] = 0;
    return w->st == QM_OK ? 0 : -1;
}

static qm_status hash_group(struct walk *w, hid_t group)
{
    if (w->count.depth >= QM_H5_DEPTH_MAX)
        return w->st = qm_fail(QM_BAD_FILE, "groups nested more than %d deep", QM_H5_DEPTH_MAX);
    H5O_info_t info;
    if (H5Oget_info2(group, &info, H5O_INFO_BASIC) < 0)
        return w->st = qm_h5_fail(QM_BAD_FILE, "%s cannot be read", w->path);
    if ((w->st = qm_h5_guard_group(info.rc, &w->count)) != QM_OK)
        return w->st;
    qm_stream_tag(&w->out, 'G');
    qm_stream_text(&w->out, w->path);
    QM_TRY(hash_attributes(w, group));
    hsize_t at = 0;
    w->count.depth++;
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, hash_link, w) < 0 && w->st == QM_OK)
        w->st = qm_h5_fail(QM_BAD_FILE, "%s: its members cannot be listed", w->path);
    w->count.depth--;
    return w->st;
}

qm_status qm_digest_of(hid_t file, const char *path, int is_own, char out[65])
{
    struct walk *w = calloc(1, sizeof *w);
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    qm_status st = QM_OK;
    if (!w) {
        st = qm_fail(QM_NO_MEMORY, "%s", path);
    } else if (root < 0) {
        st = qm_h5_fail(QM_BAD_FILE, "%s: has no root group", path);
    } else {
        w->out.file = file;
        w->out.where = w->path;
        w->path[0] = '/';
        hsize_t size = 0;
        H5Fget_filesize(file, &size);
        w->stored = size;
        w->most = is_own ? UINT64_MAX : qm_reader_claim_most(size);
        qm_sha256_start(&w->out.sum);
        qm_stream_text(&w->out, "qualm-digest 1");
        st = hash_group(w, root);
        if (st == QM_OK)
            qm_sha256_hex(&w->out.sum, out);
        else
            qm_fail_in(st, path);
    }
    free(w);
    qm_h5_close(root);
    return st;
}
