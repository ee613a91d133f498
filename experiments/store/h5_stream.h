/* h5_stream.h - HDF5 types and values as a stream of bytes that no layout changes, for digest.c.
 *
 * A text is its length and its bytes; a count or size is 8 bytes, little-endian. */
#ifndef QM_STORE_H5_STREAM_H
#define QM_STORE_H5_STREAM_H

#include "core/base/sha256.h"
#include "experiments/store/h5.h"

struct qm_h5_stream {
    struct qm_sha256 sum;
    hid_t file;        /* where object references point */
    const char *where; /* the object's path, for messages */
};

void qm_stream_add(struct qm_h5_stream *s, const void *data, size_t n);
void qm_stream_tag(struct qm_h5_stream *s, char tag);
void qm_stream_count(struct qm_h5_stream *s, uint64_t x);
void qm_stream_text(struct qm_h5_stream *s, const char *text); /* NULL as "" */
void qm_stream_dims(struct qm_h5_stream *s, int rank, const hsize_t *dim);

/* The memory type in which values of the file type t are read: little-endian, packed.  The caller
 * closes it; negative on failure. */
hid_t qm_stream_type_of(hid_t t);

/* A letter for the class, then what makes the type: results/README.md.  t as qm_stream_type_of
 * yields.  QM_BAD_FILE: region references and time types. */
qm_status qm_stream_type(struct qm_h5_stream *s, hid_t t);

/* Whether values of t are their own bytes: no pointers to texts or sequences, no addresses.  The
 * others want H5Dvlen_reclaim. */
int qm_stream_is_plain(hid_t t);

/* n values of t: plain ones as they are, variable-length ones with their length, references as
 * the name of what stands there. */
void qm_stream_values(struct qm_h5_stream *s, hid_t t, const char *data, size_t n);

#endif
