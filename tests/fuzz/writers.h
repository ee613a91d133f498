/* writers.h - Writes .npy and .safetensors files in memory, for tests and fuzzers. */
#ifndef QM_TESTS_WRITERS_H
#define QM_TESTS_WRITERS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    unsigned char *data;
    size_t size, capacity;
};

static inline void bytes_put(struct bytes *b, const void *src, size_t n)
{
    if (b->size + n > b->capacity) {
        b->capacity = 2 * (b->size + n);
        b->data = realloc(b->data, b->capacity);
        if (!b->data)
            abort();
    }
    if (n > 0)
        memcpy(b->data + b->size, src, n);
    b->size += n;
}

static inline void bytes_clear(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){NULL, 0, 0};
}

/* A .npy file: version, dict, data.  The header is padded to 64 bytes as NumPy does. */
static inline void npy_file(struct bytes *b, unsigned version, const char *dict, const void *data,
                            size_t n)
{
    size_t start = version == 1 ? 10 : 12, length = strlen(dict) + 1;
    length += (64 - (start + length) % 64) % 64;
    unsigned char head[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)version};
    for (size_t k = 8; k < start; k++)
        head[k] = (unsigned char)(length >> 8 * (k - 8));
    b->size = 0;
    bytes_put(b, head, start);
    bytes_put(b, dict, strlen(dict));
    for (size_t k = strlen(dict); k + 1 < length; k++)
        bytes_put(b, " ", 1);
    bytes_put(b, "\n", 1);
    bytes_put(b, data, n);
}

/* A .safetensors file: header and data. */
static inline void st_file(struct bytes *b, const char *json, const void *data, size_t n)
{
    uint64_t length = strlen(json);
    b->size = 0;
    bytes_put(b, &length, 8);
    bytes_put(b, json, (size_t)length);
    bytes_put(b, data, n);
}

#endif
