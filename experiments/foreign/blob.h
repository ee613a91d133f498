/* blob.h - Values in a row of bytes: one process puts them there, another takes them.
 *
 * The taker trusts nothing: a length that does not fit sets `bad`, and from then on every value is
 * 0, "" or NULL.  Each value begins at a multiple of 8 bytes. */
#ifndef QM_FOREIGN_BLOB_H
#define QM_FOREIGN_BLOB_H

#include <stddef.h>
#include <stdint.h>

struct qm_blob {
    unsigned char *base;
    size_t room; /* bytes at base */
    size_t used; /* bytes that were put */
    size_t at;   /* bytes that were taken */
    int bad;     /* 1: a value did not fit, or is not there */
};

/* Room for n bytes, which the caller fills; NULL, and bad, when they do not fit. */
void *qm_blob_put(struct qm_blob *b, size_t n);
void qm_blob_put_bytes(struct qm_blob *b, const void *bytes, size_t n);
void qm_blob_put_number(struct qm_blob *b, int64_t x);
void qm_blob_put_text(struct qm_blob *b, const char *text); /* NULL is "" */

/* The next n bytes, inside the blob; NULL, and bad, when it has fewer. */
const void *qm_blob_take(struct qm_blob *b, size_t n);
int64_t qm_blob_take_number(struct qm_blob *b);

/* A copy of the next text, which the caller frees; NULL, and bad, when there is none or
 * no memory. */
char *qm_blob_take_text(struct qm_blob *b);

/* A copy of the next n elements of `size` bytes, which the caller frees; as qm_blob_take_text.  An
 * empty copy is one zeroed element. */
void *qm_blob_take_copy(struct qm_blob *b, int64_t n, size_t size);

#endif
