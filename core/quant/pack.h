/* pack.h - AXIS pack: codes of 1 to 16 bits to bytes and back (dual).
 *
 * Words: lo, hi, byte, nibbles.  A code of 8 bits is one byte in every order. */
#ifndef QM_QUANT_PACK_H
#define QM_QUANT_PACK_H

#include "core/base/dual.h"

/* clang-format off */
#define QM_PACK_LIST(X)                                                                      \
    X(lo,   "first code in the lowest bits of the first byte (lpmm)")                        \
    X(hi,   "first code in the highest bits (bitsandbytes, torchao, adafactor8bit)")         \
    X(byte, "one byte per code whatever its width (lpmm at 3, 5, 6, 7 bits)")                \
    X(nibbles, "codes of 3 bits, two in a byte, the first in the high half (SOLO)")
/* clang-format on */

enum qm_pack {
#define X(name, text) QM_PACK_##name,
    QM_PACK_LIST(X)
#undef X
        QM_PACK_COUNT
};

/* The bits that a code takes, and whether the first one lies in the highest bits. */
QM_FN int qm_pack_width(enum qm_pack order, int bits)
{
    return order == QM_PACK_nibbles ? 4 : order == QM_PACK_byte && bits <= 8 ? 8 : bits;
}

QM_FN int qm_pack_high_first(enum qm_pack order)
{
    return order == QM_PACK_hi || order == QM_PACK_nibbles;
}

/* Bytes of n packed codes. */
QM_FN int64_t qm_pack_bytes(enum qm_pack order, int bits, int64_t n)
{
    return (n * qm_pack_width(order, bits) + 7) / 8;
}

/* Code i of a packed stream. */
QM_FN uint32_t qm_pack_get(enum qm_pack order, int bits, const uint8_t *bytes, int64_t i)
{
    uint32_t code = 0;
    int high = qm_pack_high_first(order);
    if (order == QM_PACK_byte && bits <= 8)
        return bytes[i];
    bits = qm_pack_width(order, bits);
    for (int b = 0; b < bits; b++) {
        int64_t at = i * bits + b;
        uint32_t bit = (uint32_t)bytes[at >> 3] >> (high ? 7 - (at & 7) : at & 7);
        code |= (bit & 1u) << (high ? bits - 1 - b : b);
    }
    return code;
}

/* Writes code i of a packed stream, whose bits must be zero before. */
QM_FN void qm_pack_put(enum qm_pack order, int bits, uint8_t *bytes, int64_t i, uint32_t code)
{
    if (order == QM_PACK_byte && bits <= 8) {
        bytes[i] = (uint8_t)code;
        return;
    }
    int high = qm_pack_high_first(order);
    bits = qm_pack_width(order, bits);
    for (int b = 0; b < bits; b++) {
        int64_t at = i * bits + b;
        uint32_t bit = (high ? code >> (bits - 1 - b) : code >> b) & 1u;
        bytes[at >> 3] |= (uint8_t)(bit << (high ? 7 - (at & 7) : at & 7));
    }
}

/* Eight codes of at most 8 bits fill qm_pack_eight_bytes whole bytes at any width, so a thread of a
 * kernel takes eight at a time.  qm_pack_eight returns these bytes, the first one in the lowest
 * bits; qm_unpack_eight is its inverse. */
QM_FN int qm_pack_eight_bytes(enum qm_pack order, int bits) { return qm_pack_width(order, bits); }

QM_FN uint64_t qm_pack_eight(enum qm_pack order, int bits, const uint32_t *code)
{
    int width = qm_pack_width(order, bits), high = qm_pack_high_first(order) && bits < 8;
    uint64_t word = 0, turned = 0;
    for (int i = 0; i < 8; i++)
        word |= (uint64_t)code[i] << (high ? (7 - i) * width : i * width);
    if (!high)
        return word;
    for (int k = 0; k < width; k++) /* the first byte of `word` is its highest */
        turned |= ((word >> 8 * (width - 1 - k)) & 255u) << 8 * k;
    return turned;
}

QM_FN void qm_unpack_eight(enum qm_pack order, int bits, uint64_t bytes, uint32_t *code)
{
    int width = qm_pack_width(order, bits), high = qm_pack_high_first(order) && bits < 8;
    uint64_t word = 0;
    for (int k = 0; k < width && high; k++)
        word |= ((bytes >> 8 * k) & 255u) << 8 * (width - 1 - k);
    for (int i = 0; i < 8; i++)
        code[i] =
            (uint32_t)(high ? word >> (7 - i) * width : bytes >> i * width) & ((1u << width) - 1u);
}

/* Packs n codes of at most 8 bits; the unused bits of the last byte become 0. */
QM_FN void qm_pack_codes(enum qm_pack order, int bits, const uint8_t *codes, int64_t n,
                         uint8_t *bytes)
{
    int64_t i = 0;
    if (bits == 8 || order == QM_PACK_byte) {
        memcpy(bytes, codes, (size_t)n);
        return;
    }
    if (qm_pack_width(order, bits) == 4) {
        int lo = order == QM_PACK_lo ? 0 : 4;
        for (; i + 1 < n; i += 2)
            bytes[i / 2] = (uint8_t)((codes[i] << lo) | (codes[i + 1] << (4 - lo)));
        if (i < n)
            bytes[i / 2] = (uint8_t)(codes[i] << lo);
        return;
    }
    memset(bytes, 0, (size_t)qm_pack_bytes(order, bits, n));
    for (; i < n; i++)
        qm_pack_put(order, bits, bytes, i, codes[i]);
}

/* Unpacks n codes of at most 8 bits. */
QM_FN void qm_unpack_codes(enum qm_pack order, int bits, const uint8_t *bytes, int64_t n,
                           uint8_t *codes)
{
    int64_t i = 0;
    if (bits == 8 || order == QM_PACK_byte) {
        memcpy(codes, bytes, (size_t)n);
        return;
    }
    if (qm_pack_width(order, bits) == 4) {
        int lo = order == QM_PACK_lo ? 0 : 4;
        for (; i + 1 < n; i += 2) {
            codes[i] = (uint8_t)((bytes[i / 2] >> lo) & 15);
            codes[i + 1] = (uint8_t)((bytes[i / 2] >> (4 - lo)) & 15);
        }
        if (i < n)
            codes[i] = (uint8_t)((bytes[i / 2] >> lo) & 15);
        return;
    }
    for (; i < n; i++)
        codes[i] = (uint8_t)qm_pack_get(order, bits, bytes, i);
}

#endif
