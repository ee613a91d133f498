/* sha256.c - SHA-256 (FIPS 180-4), streaming. */
#include "core/base/sha256.h"

#include <string.h>

/* FIPS 180-4, 4.2.2: the first 32 fraction bits of the cube roots of the first 64 primes. */
static const uint32_t key[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* One round on the working variables a to h; `h` becomes the next a, and d the next e. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                           \
    do {                                                                                           \
        h +=                                                                                       \
            (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + key[i] + w[i]; \
        d += h;                                                                                    \
        h += (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));       \
    } while (0)

/* FIPS 180-4, 6.2.2.  Eight rounds at a time, so that the variables change names and not places. */
static void compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) +
               (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5],
             g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
        ROUND(a, b, c, d, e, f, g, h, i);
        ROUND(h, a, b, c, d, e, f, g, i + 1);
        ROUND(g, h, a, b, c, d, e, f, i + 2);
        ROUND(f, g, h, a, b, c, d, e, i + 3);
        ROUND(e, f, g, h, a, b, c, d, i + 4);
        ROUND(d, e, f, g, h, a, b, c, i + 5);
        ROUND(c, d, e, f, g, h, a, b, i + 6);
        ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void qm_sha256_start(struct qm_sha256 *h)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(h, 0, sizeof *h);
    memcpy(h->state, start, sizeof start);
}

void qm_sha256_add(struct qm_sha256 *h, const void *data, size_t n)
{
    const uint8_t *at = data;
    size_t held = h->bytes % 64;
    h->bytes += n;
    if (held > 0) {
        size_t take = n < 64 - held ? n : 64 - held;
        if (take > 0)
            memcpy(h->block + held, at, take);
        if (held + take < 64)
            return;
        compress(h->state, h->block);
        at += take;
        n -= take;
    }
    for (; n >= 64; n -= 64, at += 64)
        compress(h->state, at);
    if (n > 0)
        memcpy(h->block, at, n);
}

void qm_sha256_add_text(struct qm_sha256 *h, const char *text)
{
    uint64_t n = strlen(text);
    qm_sha256_add(h, &n, sizeof n);
    qm_sha256_add(h, text, n);
}

void qm_sha256_end(struct qm_sha256 *h, uint8_t out[32])
{
    uint64_t bits = 8 * h->bytes;
    uint8_t tail[72] = {0x80};
    size_t pad = 1 + (119 - h->bytes % 64) % 64;
    for (int i = 0; i < 8; i++)
        tail[pad + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    qm_sha256_add(h, tail, pad + 8);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

void qm_sha256_hex(struct qm_sha256 *h, char out[65])
{
    static const char digit[] = "0123456789abcdef";
    uint8_t sum[32];
    qm_sha256_end(h, sum);
    for (int i = 0; i < 32; i++) {
        out[2 * i] = digit[sum[i] >> 4];
        out[2 * i + 1] = digit[sum[i] & 15];
    }
    out[64] = '\0';
}

void qm_sha256_of(const void *data, size_t n, char out[65])
{
    struct qm_sha256 h;
    qm_sha256_start(&h);
    qm_sha256_add(&h, data, n);
    qm_sha256_hex(&h, out);
}
