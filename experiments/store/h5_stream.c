/* h5_stream.c - The byte stream that a digest hashes: HDF5 types and values in a canonical form. */
#include "experiments/store/h5_stream.h"

#include <string.h>

enum { NAME_SIZE = 4096 };

void qm_stream_add(struct qm_h5_stream *s, const void *data, size_t n)
{
    s->added += n;
    qm_sha256_add(&s->sum, data, n);
}

void qm_stream_tag(struct qm_h5_stream *s, char tag) { qm_stream_add(s, &tag, 1); }

void qm_stream_count(struct qm_h5_stream *s, uint64_t x)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(x >> 8 * i);
    qm_stream_add(s, bytes, sizeof bytes);
}

void qm_stream_text(struct qm_h5_stream *s, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    qm_stream_count(s, n);
    qm_stream_add(s, text ? text : "", n);
}

/* ---- types --------------------------------------------------------------------------------- */

/* Makes the enumeration anew: its members' byte order cannot be changed in place. */
static hid_t canonical_enum(hid_t t)
{
    hid_t base = H5Tget_super(t), little = qm_stream_type_of(base);
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

/* The compound with canonical members and without padding. */
static hid_t canonical_compound(hid_t t)
{
    int n = H5Tget_nmembers(t);
    hid_t out = H5Tcreate(H5T_COMPOUND, 1);
    size_t at = 0;
    for (int i = 0; out >= 0 && i < n; i++) {
        hid_t member = H5Tget_member_type(t, (unsigned)i), plain = qm_stream_type_of(member);
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
    hid_t base = H5Tget_super(t), plain = qm_stream_type_of(base);
    hid_t out = rank < 1 || plain < 0 ? -1 : H5Tarray_create2(plain, (unsigned)rank, dim);
    qm_h5_close(plain);
    qm_h5_close(base);
    return out;
}

static hid_t canonical_vlen(hid_t t)
{
    hid_t base = H5Tget_super(t), plain = qm_stream_type_of(base);
    hid_t out = plain < 0 ? -1 : H5Tvlen_create(plain);
    qm_h5_close(plain);
    qm_h5_close(base);
    return out;
}

hid_t qm_stream_type_of(hid_t t)
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

static qm_status hash_super(struct qm_h5_stream *s, hid_t t)
{
    hid_t base = H5Tget_super(t);
    qm_status st = qm_stream_type(s, base);
    qm_h5_close(base);
    return st;
}

static qm_status hash_members(struct qm_h5_stream *s, hid_t t)
{
    int n = H5Tget_nmembers(t);
    qm_status st = QM_OK;
    qm_stream_count(s, (uint64_t)n);
    for (int i = 0; st == QM_OK && i < n; i++) {
        char *name = H5Tget_member_name(t, (unsigned)i);
        qm_stream_text(s, name);
        H5free_memory(name);
        if (H5Tget_class(t) == H5T_ENUM) {
            char value[64] = {0};
            H5Tget_member_value(t, (unsigned)i, value);
            qm_stream_add(s, value, H5Tget_size(t));
        } else {
            hid_t member = H5Tget_member_type(t, (unsigned)i);
            st = qm_stream_type(s, member);
            qm_h5_close(member);
        }
    }
    return st;
}

static void hash_float_fields(struct qm_h5_stream *s, hid_t t)
{
    size_t field[5] = {0};
    H5Tget_fields(t, &field[0], &field[1], &field[2], &field[3], &field[4]);
    for (int i = 0; i < 5; i++)
        qm_stream_count(s, field[i]);
    qm_stream_count(s, H5Tget_ebias(t));
}

void qm_stream_dims(struct qm_h5_stream *s, int rank, const hsize_t *dim)
{
    qm_stream_count(s, (uint64_t)rank);
    for (int i = 0; i < rank; i++)
        qm_stream_count(s, dim[i]);
}

qm_status qm_stream_type(struct qm_h5_stream *s, hid_t t)
{
    hsize_t dim[H5S_MAX_RANK];
    char *tag;
    switch (H5Tget_class(t)) {
    case H5T_INTEGER:
        qm_stream_tag(s, H5Tget_sign(t) == H5T_SGN_NONE ? 'u' : 'i');
        qm_stream_count(s, H5Tget_size(t));
        return QM_OK;
    case H5T_FLOAT:
        qm_stream_tag(s, 'f');
        qm_stream_count(s, H5Tget_size(t));
        hash_float_fields(s, t);
        return QM_OK;
    case H5T_STRING:
        qm_stream_tag(s, H5Tis_variable_str(t) > 0 ? 'v' : 's');
        if (H5Tis_variable_str(t) <= 0)
            qm_stream_count(s, H5Tget_size(t));
        return QM_OK;
    case H5T_BITFIELD:
        qm_stream_tag(s, 'b');
        qm_stream_count(s, H5Tget_size(t));
        return QM_OK;
    case H5T_OPAQUE:
        qm_stream_tag(s, 'o');
        qm_stream_count(s, H5Tget_size(t));
        tag = H5Tget_tag(t);
        qm_stream_text(s, tag);
        H5free_memory(tag);
        return QM_OK;
    case H5T_COMPOUND: qm_stream_tag(s, 'c'); return hash_members(s, t);
    case H5T_ENUM:
        qm_stream_tag(s, 'e');
        QM_TRY(hash_super(s, t));
        return hash_members(s, t);
    case H5T_ARRAY:
        qm_stream_tag(s, 'a');
        qm_stream_dims(s, H5Tget_array_dims2(t, dim), dim);
        return hash_super(s, t);
    case H5T_VLEN: qm_stream_tag(s, 'l'); return hash_super(s, t);
    case H5T_REFERENCE:
        qm_stream_tag(s, 'r');
        if (H5Tequal(t, H5T_STD_REF_OBJ) > 0)
            return QM_OK;
        break;
    default: break;
    }
    return qm_fail(QM_BAD_FILE, "%s: a type that has no digest (region reference or time)",
                   s->where);
}

/* ---- values -------------------------------------------------------------------------------- */

static int members_plain(hid_t t);

int qm_stream_is_plain(hid_t t)
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
        plain = qm_stream_is_plain(base);
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
        plain = qm_stream_is_plain(member);
        qm_h5_close(member);
    }
    return plain;
}

/* Hashes the name of the referenced object: its address in the file depends on the layout. */
static void hash_reference(struct qm_h5_stream *s, const char *data)
{
    char name[NAME_SIZE] = "";
    if (H5Rget_name(s->file, H5R_OBJECT, data, name, sizeof name) < 0)
        name[0] = 0;
    qm_stream_text(s, name);
}

static void hash_one(struct qm_h5_stream *s, hid_t t, const char *data)
{
    H5T_class_t class = H5Tget_class(t);
    hid_t base = class == H5T_ARRAY || class == H5T_VLEN ? H5Tget_super(t) : -1;
    if (class == H5T_STRING) {
        char *text;
        memcpy(&text, data, sizeof text);
        qm_stream_text(s, text);
    } else if (class == H5T_REFERENCE) {
        hash_reference(s, data);
    } else if (class == H5T_VLEN) {
        hvl_t sequence;
        memcpy(&sequence, data, sizeof sequence);
        qm_stream_count(s, sequence.len);
        qm_stream_values(s, base, sequence.p, sequence.len);
    } else if (class == H5T_ARRAY) {
        qm_stream_values(s, base, data, H5Tget_size(t) / H5Tget_size(base));
    } else {
        int n = H5Tget_nmembers(t);
        for (int i = 0; i < n; i++) {
            hid_t member = H5Tget_member_type(t, (unsigned)i);
            qm_stream_values(s, member, data + H5Tget_member_offset(t, (unsigned)i), 1);
            qm_h5_close(member);
        }
    }
    qm_h5_close(base);
}

void qm_stream_values(struct qm_h5_stream *s, hid_t t, const char *data, size_t n)
{
    size_t size = H5Tget_size(t);
    if (qm_stream_is_plain(t))
        qm_stream_add(s, data, n * size);
    else
        for (size_t i = 0; i < n; i++)
            hash_one(s, t, data + i * size);
}
