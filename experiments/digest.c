/* digest.c - a hash of what an HDF5 file says, whatever its layout on the disk. */
#include <stdlib.h>
#include <string.h>

#include "experiments/h5.h"
#include "experiments/sha256.h"
#include "experiments/store.h"

enum {
    SLAB = 1 << 20,   /* bytes of a dataset read at a time */
    CACHE = 32 << 20, /* bytes of chunks kept, so that wide chunks inflate once */
    DEEPEST = 64,     /* groups in groups: more is a cycle */
    PATH_SIZE = 4096,
};

struct walk {
    struct qm_sha256 sum;
    hid_t file;
    int depth;
    qm_status st; /* iteration callbacks leave theirs here */
    char path[PATH_SIZE];
};

/* ---- the stream ---------------------------------------------------------------------------- */

static void put(struct walk *w, const void *data, size_t n) { qm_sha256_add(&w->sum, data, n); }

static void put_tag(struct walk *w, char tag) { put(w, &tag, 1); }

static void put_count(struct walk *w, uint64_t x)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(x >> 8 * i);
    put(w, bytes, sizeof bytes);
}

static void put_text(struct walk *w, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    put_count(w, n);
    put(w, text ? text : "", n);
}

/* ---- types --------------------------------------------------------------------------------- */

static hid_t canonical(hid_t t);

/* An enumeration's members cannot change byte order in place. */
static hid_t canonical_enum(hid_t t)
{
    hid_t base = H5Tget_super(t), little = canonical(base);
    hid_t out = little < 0 ? -1 : H5Tenum_create(little);
    int n = H5Tget_nmembers(t);
    for (int i = 0; out >= 0 && i < n; i++) {
        char value[64] = {0};
        char *name = H5Tget_member_name(t, (unsigned)i);
        if (!name || H5Tget_size(t) > sizeof value ||
            H5Tget_member_value(t, (unsigned)i, value) < 0 ||
            H5Tconvert(base, little, 1, value, NULL, H5P_DEFAULT) < 0 ||
            H5Tenum_insert(out, name, value) < 0) {
            qm_h5_close(out);
            out = -1;
        }
        H5free_memory(name);
    }
    qm_h5_close(little);
    qm_h5_close(base);
    return out;
}

/* Members one after the other, without padding. */
static hid_t canonical_compound(hid_t t)
{
    int n = H5Tget_nmembers(t);
    hid_t out = H5Tcreate(H5T_COMPOUND, 1);
    size_t at = 0;
    for (int i = 0; out >= 0 && i < n; i++) {
        hid_t member = H5Tget_member_type(t, (unsigned)i), plain = canonical(member);
        char *name = H5Tget_member_name(t, (unsigned)i);
        size_t size = plain < 0 ? 0 : H5Tget_size(plain);
        if (!name || size == 0 || H5Tset_size(out, at + size) < 0 ||
            H5Tinsert(out, name, at, plain) < 0) {
            qm_h5_close(out);
            out = -1;
        }
        at += size;
        H5free_memory(name);
        qm_h5_close(plain);
        qm_h5_close(member);
    }
    return out;
}

static hid_t canonical_array(hid_t t)
{
    hsize_t dim[H5S_MAX_RANK];
    int rank = H5Tget_array_dims2(t, dim);
    hid_t base = H5Tget_super(t), plain = canonical(base);
    hid_t out = rank < 1 || plain < 0 ? -1 : H5Tarray_create2(plain, (unsigned)rank, dim);
    qm_h5_close(plain);
    qm_h5_close(base);
    return out;
}

static hid_t canonical_vlen(hid_t t)
{
    hid_t base = H5Tget_super(t), plain = canonical(base);
    hid_t out = plain < 0 ? -1 : H5Tvlen_create(plain);
    qm_h5_close(plain);
    qm_h5_close(base);
    return out;
}

/* The memory type for t: little-endian, packed. */
static hid_t canonical(hid_t t)
{
    if (t < 0)
        return -1;
    switch (H5Tget_class(t)) {
    case H5T_COMPOUND: return canonical_compound(t);
    case H5T_ENUM: return canonical_enum(t);
    case H5T_ARRAY: return canonical_array(t);
    case H5T_VLEN: return canonical_vlen(t);
    default: break;
    }
    hid_t out = H5Tcopy(t);
    H5T_class_t class = H5Tget_class(t);
    if (out >= 0 && (class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_BITFIELD) &&
        H5Tset_order(out, H5T_ORDER_LE) < 0) {
        qm_h5_close(out);
        return -1;
    }
    return out;
}

static qm_status put_type(struct walk *w, hid_t t);

static qm_status put_super(struct walk *w, hid_t t)
{
    hid_t base = H5Tget_super(t);
    qm_status st = put_type(w, base);
    qm_h5_close(base);
    return st;
}

static qm_status put_members(struct walk *w, hid_t t)
{
    int n = H5Tget_nmembers(t);
    qm_status st = QM_OK;
    put_count(w, (uint64_t)n);
    for (int i = 0; st == QM_OK && i < n; i++) {
        char *name = H5Tget_member_name(t, (unsigned)i);
        put_text(w, name);
        H5free_memory(name);
        if (H5Tget_class(t) == H5T_ENUM) {
            char value[64] = {0};
            H5Tget_member_value(t, (unsigned)i, value);
            put(w, value, H5Tget_size(t));
        } else {
            hid_t member = H5Tget_member_type(t, (unsigned)i);
            st = put_type(w, member);
            qm_h5_close(member);
        }
    }
    return st;
}

static void put_float_fields(struct walk *w, hid_t t)
{
    size_t field[5] = {0};
    H5Tget_fields(t, &field[0], &field[1], &field[2], &field[3], &field[4]);
    for (int i = 0; i < 5; i++)
        put_count(w, field[i]);
    put_count(w, H5Tget_ebias(t));
}

static void put_dims(struct walk *w, int rank, const hsize_t *dim)
{
    put_count(w, (uint64_t)rank);
    for (int i = 0; i < rank; i++)
        put_count(w, dim[i]);
}

/* A letter for the class, then what makes the type. */
static qm_status put_type(struct walk *w, hid_t t)
{
    hsize_t dim[H5S_MAX_RANK];
    char *tag;
    switch (H5Tget_class(t)) {
    case H5T_INTEGER:
        put_tag(w, H5Tget_sign(t) == H5T_SGN_NONE ? 'u' : 'i');
        put_count(w, H5Tget_size(t));
        return QM_OK;
    case H5T_FLOAT:
        put_tag(w, 'f');
        put_count(w, H5Tget_size(t));
        put_float_fields(w, t);
        return QM_OK;
    case H5T_STRING:
        put_tag(w, H5Tis_variable_str(t) > 0 ? 'v' : 's');
        if (H5Tis_variable_str(t) <= 0)
            put_count(w, H5Tget_size(t));
        return QM_OK;
    case H5T_BITFIELD:
        put_tag(w, 'b');
        put_count(w, H5Tget_size(t));
        return QM_OK;
    case H5T_OPAQUE:
        put_tag(w, 'o');
        put_count(w, H5Tget_size(t));
        tag = H5Tget_tag(t);
        put_text(w, tag);
        H5free_memory(tag);
        return QM_OK;
    case H5T_COMPOUND: put_tag(w, 'c'); return put_members(w, t);
    case H5T_ENUM:
        put_tag(w, 'e');
        QM_TRY(put_super(w, t));
        return put_members(w, t);
    case H5T_ARRAY:
        put_tag(w, 'a');
        put_dims(w, H5Tget_array_dims2(t, dim), dim);
        return put_super(w, t);
    case H5T_VLEN: put_tag(w, 'l'); return put_super(w, t);
    case H5T_REFERENCE:
        put_tag(w, 'r');
        if (H5Tequal(t, H5T_STD_REF_OBJ) > 0)
            return QM_OK;
        break;
    default: break;
    }
    return qm_fail(QM_BAD_FILE, "%s: a type that has no digest (region reference or time)",
                   w->path);
}

/* ---- values -------------------------------------------------------------------------------- */

static int members_plain(hid_t t);

/* Whether values of t are their own bytes: no pointers to texts or sequences, no addresses. */
static int is_plain(hid_t t)
{
    hid_t base;
    int plain;
    switch (H5Tget_class(t)) {
    case H5T_STRING: return H5Tis_variable_str(t) == 0;
    case H5T_VLEN:
    case H5T_REFERENCE: return 0;
    case H5T_COMPOUND: return members_plain(t);
    case H5T_ARRAY:
        base = H5Tget_super(t);
        plain = is_plain(base);
        qm_h5_close(base);
        return plain;
    default: return 1;
    }
}

static int members_plain(hid_t t)
{
    int n = H5Tget_nmembers(t), plain = 1;
    for (int i = 0; plain && i < n; i++) {
        hid_t member = H5Tget_member_type(t, (unsigned)i);
        plain = is_plain(member);
        qm_h5_close(member);
    }
    return plain;
}

static void put_values(struct walk *w, hid_t t, const char *data, size_t n);

/* An address in the file means the name of what stands there. */
static void put_reference(struct walk *w, const char *data)
{
    char name[PATH_SIZE] = "";
    if (H5Rget_name(w->file, H5R_OBJECT, data, name, sizeof name) < 0)
        name[0] = 0;
    put_text(w, name);
}

static void put_one(struct walk *w, hid_t t, const char *data)
{
    H5T_class_t class = H5Tget_class(t);
    hid_t base = class == H5T_ARRAY || class == H5T_VLEN ? H5Tget_super(t) : -1;
    if (class == H5T_STRING) {
        char *text;
        memcpy(&text, data, sizeof text);
        put_text(w, text);
    } else if (class == H5T_REFERENCE) {
        put_reference(w, data);
    } else if (class == H5T_VLEN) {
        hvl_t sequence;
        memcpy(&sequence, data, sizeof sequence);
        put_count(w, sequence.len);
        put_values(w, base, sequence.p, sequence.len);
    } else if (class == H5T_ARRAY) {
        put_values(w, base, data, H5Tget_size(t) / H5Tget_size(base));
    } else {
        int n = H5Tget_nmembers(t);
        for (int i = 0; i < n; i++) {
            hid_t member = H5Tget_member_type(t, (unsigned)i);
            put_values(w, member, data + H5Tget_member_offset(t, (unsigned)i), 1);
            qm_h5_close(member);
        }
    }
    qm_h5_close(base);
}

static void put_values(struct walk *w, hid_t t, const char *data, size_t n)
{
    size_t size = H5Tget_size(t);
    if (is_plain(t))
        put(w, data, n * size);
    else
        for (size_t i = 0; i < n; i++)
            put_one(w, t, data + i * size);
}

/* Rank and dims; 'n' for a null space. */
static int put_space(struct walk *w, hid_t space, hsize_t *dim)
{
    if (H5Sget_simple_extent_type(space) == H5S_NULL) {
        put_tag(w, 'n');
        return -1;
    }
    int rank = H5Sget_simple_extent_dims(space, dim, NULL);
    put_tag(w, 'd');
    put_dims(w, rank, dim);
    return rank;
}

/* ---- attributes ---------------------------------------------------------------------------- */

static qm_status put_attribute_values(struct walk *w, hid_t a, hid_t t)
{
    hsize_t dim[H5S_MAX_RANK];
    hid_t space = H5Aget_space(a);
    hssize_t n = put_space(w, space, dim) < 0 ? 0 : H5Sget_simple_extent_npoints(space);
    qm_status st = QM_OK;
    char *data = calloc(n > 0 ? (size_t)n : 1, H5Tget_size(t));
    if (!data) {
        st = qm_fail(QM_NO_MEMORY, "%s", w->path);
    } else if (n > 0) {
        if (H5Aread(a, t, data) < 0)
            st = qm_h5_fail(QM_BAD_FILE, "%s: an attribute cannot be read", w->path);
        else
            put_values(w, t, data, (size_t)n);
        if (st == QM_OK && !is_plain(t))
            H5Dvlen_reclaim(t, space, H5P_DEFAULT, data);
    }
    free(data);
    qm_h5_close(space);
    return st;
}

/* A scale's REFERENCE_LIST says again, in the order of attaching, what each DIMENSION_LIST says. */
static herr_t put_attribute(hid_t object, const char *name, const H5A_info_t *info, void *walk)
{
    struct walk *w = walk;
    (void)info;
    if (strcmp(name, "REFERENCE_LIST") == 0)
        return 0;
    hid_t a = H5Aopen(object, name, H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    hid_t t = canonical(type);
    if (t < 0) {
        w->st = qm_h5_fail(QM_BAD_FILE, "%s: attribute '%s' cannot be read", w->path, name);
    } else {
        put_tag(w, 'A');
        put_text(w, name);
        w->st = put_type(w, t);
        if (w->st == QM_OK)
            w->st = put_attribute_values(w, a, t);
    }
    qm_h5_close(t);
    qm_h5_close(type);
    qm_h5_close(a);
    return w->st == QM_OK ? 0 : -1;
}

static qm_status put_attributes(struct walk *w, hid_t object)
{
    hsize_t at = 0;
    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &at, put_attribute, w) < 0 &&
        w->st == QM_OK)
        w->st = qm_h5_fail(QM_BAD_FILE, "%s: its attributes cannot be listed", w->path);
    return w->st;
}

/* ---- datasets ------------------------------------------------------------------------------ */

struct slab {
    int rank;
    hsize_t dim[H5S_MAX_RANK], at[H5S_MAX_RANK], count[H5S_MAX_RANK];
};

/* Whole trailing dims as far as SLAB goes, a part of one, single steps of those before. */
static void slab_start(struct slab *s, size_t element)
{
    hsize_t left = SLAB / element > 0 ? SLAB / element : 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        s->at[i] = 0;
        s->count[i] = s->dim[i] < left ? s->dim[i] : left;
        left = s->count[i] < s->dim[i] ? 1 : left / s->count[i];
    }
}

/* To the next slab in row-major order; 0 after the last. */
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

static qm_status put_slab(struct walk *w, hid_t set, hid_t t, hid_t space, const struct slab *s,
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
        put_values(w, t, data, (size_t)H5Sget_simple_extent_npoints(memory));
        if (!is_plain(t))
            H5Dvlen_reclaim(t, memory, H5P_DEFAULT, data);
    }
    qm_h5_close(memory);
    return st;
}

static qm_status put_dataset_values(struct walk *w, hid_t set, hid_t t, hid_t space)
{
    struct slab s;
    s.rank = put_space(w, space, s.dim);
    hssize_t n = s.rank < 0 ? 0 : H5Sget_simple_extent_npoints(space);
    if (n <= 0)
        return QM_OK;
    slab_start(&s, H5Tget_size(t));
    hsize_t step[H5S_MAX_RANK];
    size_t most = 1;
    for (int i = 0; i < s.rank; i++)
        most *= step[i] = s.count[i];
    char *data = calloc(most, H5Tget_size(t));
    if (!data)
        return qm_fail(QM_NO_MEMORY, "%s", w->path);
    qm_status st;
    do
        st = put_slab(w, set, t, space, &s, data);
    while (st == QM_OK && slab_next(&s, step));
    free(data);
    return st;
}

static qm_status put_dataset(struct walk *w, hid_t set)
{
    hid_t type = H5Dget_type(set), space = H5Dget_space(set), t = canonical(type);
    if (t < 0 || space < 0) {
        w->st = qm_h5_fail(QM_BAD_FILE, "%s cannot be read", w->path);
    } else {
        put_tag(w, 'D');
        put_text(w, w->path);
        w->st = put_type(w, t);
        if (w->st == QM_OK)
            w->st = put_dataset_values(w, set, t, space);
    }
    qm_h5_close(t);
    qm_h5_close(space);
    qm_h5_close(type);
    return w->st == QM_OK ? put_attributes(w, set) : w->st;
}

/* ---- groups -------------------------------------------------------------------------------- */

static qm_status put_group(struct walk *w, hid_t group);

static qm_status put_object(struct walk *w, hid_t object)
{
    hid_t t;
    switch (H5Iget_type(object)) {
    case H5I_GROUP: return put_group(w, object);
    case H5I_DATASET: return put_dataset(w, object);
    case H5I_DATATYPE:
        put_tag(w, 'T');
        put_text(w, w->path);
        t = canonical(object);
        w->st = t < 0 ? qm_h5_fail(QM_BAD_FILE, "%s cannot be read", w->path) : put_type(w, t);
        qm_h5_close(t);
        return w->st == QM_OK ? put_attributes(w, object) : w->st;
    default: return w->st = qm_h5_fail(QM_BAD_FILE, "%s cannot be opened", w->path);
    }
}

/* Soft and external links: where they point, not what is there. */
static qm_status put_pointer(struct walk *w, hid_t group, const char *name, size_t size)
{
    char *value = calloc(1, size + 1);
    if (!value)
        return w->st = qm_fail(QM_NO_MEMORY, "%s", w->path);
    if (H5Lget_val(group, name, value, size, H5P_DEFAULT) < 0)
        w->st = qm_h5_fail(QM_BAD_FILE, "%s: a link cannot be read", w->path);
    put_tag(w, 'L');
    put_text(w, w->path);
    put_count(w, size);
    put(w, value, size);
    free(value);
    return w->st;
}

static herr_t put_link(hid_t group, const char *name, const H5L_info_t *info, void *walk)
{
    struct walk *w = walk;
    size_t held = strlen(w->path);
    if (held == 1 && (strcmp(name, "provenance") == 0 || strcmp(name, "timing") == 0))
        return 0;
    size_t room = sizeof w->path - held;
    if ((size_t)snprintf(w->path + held, room, held == 1 ? "%s" : "/%s", name) >= room) {
        w->st = qm_fail(QM_BAD_FILE, "a path of more than %d bytes", PATH_SIZE);
    } else if (info->type != H5L_TYPE_HARD) {
        put_pointer(w, group, name, info->u.val_size);
    } else {
        hid_t object = H5Oopen(group, name, H5P_DEFAULT);
        put_object(w, object);
        qm_h5_close(object);
    }
    w->path[held] = 0;
    return w->st == QM_OK ? 0 : -1;
}

static qm_status put_group(struct walk *w, hid_t group)
{
    if (w->depth >= DEEPEST)
        return w->st = qm_fail(QM_BAD_FILE, "groups nested more than %d deep", DEEPEST);
    put_tag(w, 'G');
    put_text(w, w->path);
    QM_TRY(put_attributes(w, group));
    hsize_t at = 0;
    w->depth++;
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, put_link, w) < 0 && w->st == QM_OK)
        w->st = qm_h5_fail(QM_BAD_FILE, "%s: its members cannot be listed", w->path);
    w->depth--;
    return w->st;
}

qm_status qm_store_digest(const char *path, char out[65])
{
    hid_t file = -1;
    QM_TRY(qm_h5_open(path, CACHE, &file));
    struct walk *w = calloc(1, sizeof *w);
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    qm_status st = QM_OK;
    if (!w) {
        st = qm_fail(QM_NO_MEMORY, "%s", path);
    } else if (root < 0) {
        st = qm_h5_fail(QM_BAD_FILE, "%s: has no root group", path);
    } else {
        w->file = file;
        w->path[0] = '/';
        qm_sha256_start(&w->sum);
        put_text(w, "qualm-digest 1");
        st = put_group(w, root);
        if (st == QM_OK)
            qm_sha256_hex(&w->sum, out);
        else
            qm_fail_in(st, path);
    }
    free(w);
    qm_h5_close(root);
    H5Fclose(file);
    return st;
}
