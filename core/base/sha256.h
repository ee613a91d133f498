/* sha256.h - SHA-256 (FIPS 180-4), streaming. */
#ifndef QM_BASE_SHA256_H
#define QM_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct qm_sha256 {
    uint32_t state[8];
    uint64_t bytes;    /* added so far */
    uint8_t block[64]; /* the last bytes % 64 bytes, not yet compressed */
};

void qm_sha256_start(struct qm_sha256 *h);
void qm_sha256_add(struct qm_sha256 *h, const void *data, size_t n);
/* Adds the length of a text, as 8 bytes of this machine, and the text. */
void qm_sha256_add_text(struct qm_sha256 *h, const char *text);

void qm_sha256_end(struct qm_sha256 *h, uint8_t out[32]);

/* Ends h and writes the hash as 64 lower-case hex digits and a NUL. */
void qm_sha256_hex(struct qm_sha256 *h, char out[65]);

/* The hash of n bytes of memory, as qm_sha256_hex writes it. */
void qm_sha256_of(const void *data, size_t n, char out[65]);

#endif
