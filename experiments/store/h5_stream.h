/* h5_stream.h - The byte stream that digest.c hashes: HDF5 types and values in a canonical form.
 *
 * The stream does not depend on the file's layout.  A text is its length and its bytes; a count or
 * size is 8 bytes, little-endian.  results/README.md specifies the stream. */
#ifndef QM_STORE_H5_STREAM_H
#define QM_STORE_H5_STREAM_H

#include "core/base/sha256.h"
#include "experiments/store/h5.h"

struct qm_h5_stream {
    struct qm_sha256 sum;
    hid_t file;        /* to resolve object references */
    const char *where; /* path of the current object, for messages */
    uint64_t added;    /* bytes */
};

void qm_stream_add(struct qm_h5_stream *s, const void *data, size_t n);
void qm_stream_tag(struct qm_h5_stream *s, char tag);
void qm_stream_count(struct qm_h5_stream *s, uint64_t x);
void qm_stream_text(struct qm_h5_stream *s, const char *text); /* NULL is "" */
void qm_stream_dims(struct qm_h5_stream *s, int rank, const hsize_t *dim);

/* The memory type, little-endian and packed, in which values of the file type t are read.  The
 * caller closes it; negative on failure. */
hid_t qm_stream_type_of(hid_t t);

/* Adds a type: a letter for its class, then its parameters.  t comes from qm_stream_type_of.
 * QM_BAD_FILE: a region reference or a time type. */
qm_status qm_stream_type(struct qm_h5_stream *s, hid_t t);

/* Whether values of t consist of their own bytes, without pointers to texts or sequences and
 * without addresses.  Values of other types must be released by H5Dvlen_reclaim. */
int qm_stream_is_plain(hid_t t);

/* Adds n values of t: plain values as their bytes, variable-length ones with their length,
 * references as the name of the object. */
void qm_stream_values(struct qm_h5_stream *s, hid_t t, const char *data, size_t n);

#endif
