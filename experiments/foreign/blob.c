/* blob.c - Puts values in a row of bytes, and takes them with every length checked. */
#include "experiments/foreign/blob.h"

#include <stdlib.h>
#include <string.h>

static size_t padded(size_t n) { return (n + 7) / 8 * 8; }

void *qm_blob_put(struct qm_blob *b, size_t n)
{
    if (b->bad || n > b->room - b->used || padded(n) > b->room - b->used) {
        b->bad = 1;
        return NULL;
    }
    void *at = b->base + b->used;
    b->used += padded(n);
    return at;
}

void qm_blob_put_bytes(struct qm_blob *b, const void *bytes, size_t n)
{
    void *at = qm_blob_put(b, n);
    if (at && n > 0)
        memcpy(at, bytes, n);
}

void qm_blob_put_number(struct qm_blob *b, int64_t x) { qm_blob_put_bytes(b, &x, sizeof x); }

void qm_blob_put_text(struct qm_blob *b, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    qm_blob_put_number(b, (int64_t)n);
    qm_blob_put_bytes(b, text, n);
}

const void *qm_blob_take(struct qm_blob *b, size_t n)
{
    size_t left = b->used - b->at;
    if (b->bad || n > left || padded(n) > left) {
        b->bad = 1;
        return NULL;
    }
    const void *at = b->base + b->at;
    b->at += padded(n);
    return at;
}

int64_t qm_blob_take_number(struct qm_blob *b)
{
    int64_t x = 0;
    const void *at = qm_blob_take(b, sizeof x);
    if (at)
        memcpy(&x, at, sizeof x);
    return x;
}

char *qm_blob_take_text(struct qm_blob *b)
{
    int64_t n = qm_blob_take_number(b);
    const void *at = n >= 0 ? qm_blob_take(b, (size_t)n) : NULL;
    char *text = at && !b->bad ? malloc((size_t)n + 1) : NULL;
    if (!text) {
        b->bad = 1;
        return NULL;
    }
    memcpy(text, at, (size_t)n);
    text[n] = '\0';
    return text;
}

void *qm_blob_take_copy(struct qm_blob *b, int64_t n, size_t size)
{
    size_t bytes = 0;
    int fits = n >= 0 && !__builtin_mul_overflow((size_t)n, size, &bytes);
    const void *at = fits ? qm_blob_take(b, bytes) : NULL;
    void *copy = at ? calloc(n > 0 ? (size_t)n : 1, size) : NULL;
    if (!copy)
        b->bad = 1;
    else if (bytes > 0)
        memcpy(copy, at, bytes);
    return copy;
}
