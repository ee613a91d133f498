/* simd.c - Implements the vector primitives of simd.h; compiled once per instruction set. */
#include "core/quant/simd.h"

#include "core/base/narrow.h"
#include "core/quant/simd_group.h"

static void divide(const float *x, float d, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / d;
}

static void multiply(const float *x, float r, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * r;
}

static void fold_each(const float *restrict x, int64_t n, float *restrict stat)
{
    int32_t *restrict s = (int32_t *)stat; /* bits of non-negative floats order as integers */
    for (int64_t i = 0; i < n; i++) {
        int32_t b = (int32_t)(qm_bits(x[i]) & 0x7fffffffu);
        s[i] = b > s[i] ? b : s[i];
    }
}

static int unit_each(const struct qm_codec *c, const float *restrict x, const float *restrict s,
                     float m, int64_t n, float *restrict y)
{
    float floor = c->q.scale.floor, guard = c->q.scale.guard, gain = c->cb.gain;
    float cap = c->q.scale.cap != 0.0f ? c->q.scale.cap : INFINITY;
    int32_t odd = qm_isnan(m) ? -1 : 0; /* negative once a number is not ordinary */
    for (int64_t i = 0; i < n; i++) {
        float d = s[i] >= m ? m : s[i];
        d = d < floor ? floor : d;
        d = d > cap ? cap : d;
        d *= gain;
        d = d < guard ? guard : d;
        y[i] = x[i] / d;
        int32_t b = (int32_t)qm_bits(d), a = (int32_t)(qm_bits(x[i]) & 0x7fffffffu);
        odd |= (b - 1) | (0x7f7fffff - b) | (0x7f7fffff - a); /* d 0, Inf or NaN; x Inf or NaN */
    }
    return odd >= 0;
}

static void scale_each(const float *restrict s, float m, int64_t n, float *restrict y)
{
    if (qm_isnan(m)) {
        multiply(y, m, n, y);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] *= s[i] >= m ? m : s[i];
}

static void pack4(const uint8_t *restrict codes, int64_t n, int high_first, uint8_t *restrict bytes)
{
    int first = high_first ? 4 : 0, second = 4 - first;
    for (int64_t i = 0; i < n / 2; i++)
        bytes[i] = (uint8_t)((codes[2 * i] << first) | (codes[2 * i + 1] << second));
    if (n % 2)
        bytes[n / 2] = (uint8_t)(codes[n - 1] << first);
}

static void unpack4(const uint8_t *restrict bytes, int64_t n, int high_first,
                    uint8_t *restrict codes)
{
    int first = high_first ? 4 : 0, second = 4 - first;
    for (int64_t i = 0; i < n / 2; i++) {
        codes[2 * i] = (uint8_t)((bytes[i] >> first) & 15);
        codes[2 * i + 1] = (uint8_t)((bytes[i] >> second) & 15);
    }
    if (n % 2)
        codes[n - 1] = (uint8_t)((bytes[n / 2] >> first) & 15);
}

/* position = floor(y * factor + 1/2) - base, clamped; NaN gives 0. */
INLINE void halves_up(int fused, const struct qm_codec *c, const float *restrict y, float factor,
                      int64_t n, uint8_t *restrict position)
{
    float low = (float)c->cb.base, high = (float)(c->cb.base + c->cb.n - 1);
    int32_t base = c->cb.base;
    for (int64_t i = 0; i < n; i++) {
        float r = fused ? fmaf(y[i], factor, 0.5f) : y[i] * factor + 0.5f;
        r = r > low ? r : low; /* low is an integer, so floor and clamping commute */
        r = r < high ? r : high;
        int32_t k = (int32_t)r;
        k -= (float)k > r;
        position[i] = (uint8_t)(k - base);
    }
}

static void arith(const struct qm_codec *c, const float *y, float factor, int64_t n,
                  uint8_t *position)
{
    float low = (float)c->cb.base, high = (float)(c->cb.base + c->cb.n - 1);
    int32_t base = c->cb.base;
    if (c->q.round == QM_ROUND_near) {
        halves_up(1, c, y, factor, n, position);
        return;
    }
    /* |z| < 2^22 after clamping, so adding and subtracting 1.5 * 2^23 rounds to nearest even */
    for (int64_t i = 0; i < n; i++) {
        float z = y[i] * factor;
        z = z > low ? z : low;
        z = z < high ? z : high;
        float r = (z + 12582912.0f) - 12582912.0f;
        position[i] = (uint8_t)((int32_t)r - base);
    }
}

static void keep_sign(const struct qm_codec *c, const float *restrict x, int64_t n,
                      uint8_t *restrict codes)
{
    uint32_t negative = (uint32_t)c->n_negative, all = (uint32_t)c->cb.n;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)qm_keep_sign(negative, all, x[i], codes[i]);
}

/* ---- whole blocks ------------------------------------------------------------------------- */

enum { PIECE = 512 }; /* elements that stay in L1 between two loops over them */

#if defined(__AVX2__)
INLINE void positions_by(enum finder how, const struct qm_codec *c, const float *y, int64_t n,
                         uint8_t *position)
{
    struct finders f;
    load_finder(how, &f, c);
    for (int64_t i = 0; i < n; i += GROUP)
        put_group(position, i, n - i, 0, 0, find_group(how, &f, c, load_group(y + i, n - i)));
}

static void positions(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position)
{
    if (c->has_steps) {
        halves_up(0, c, y, c->cb.steps, n, position);
        return;
    }
    switch (finder_of(c)) {
    case BY_CELLS:
    case BY_TREE16: positions_by(BY_TREE16, c, y, n, position); break;
    case BY_TREE256: positions_by(BY_TREE256, c, y, n, position); break;
    case BY_LINES: positions_by(BY_LINES, c, y, n, position); break;
    }
}

INLINE void values_by(int small, const struct qm_codec *c, const uint8_t *position, int64_t n,
                      float *out)
{
    struct planes t;
    planes_load(&t, small, c);
    for (int64_t i = 0; i < n; i += GROUP)
        store_group(out + i, n - i, planes_get(&t, small, load_codes(position + i, n - i)));
}

static void values(const struct qm_codec *c, const uint8_t *position, int64_t n, float *out)
{
    if (c->cb.n <= 16)
        values_by(1, c, position, n, out);
    else
        values_by(0, c, position, n, out);
}

#else
static void positions(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position)
{
    if (c->has_steps) {
        halves_up(0, c, y, c->cb.steps, n, position);
        return;
    }
    if (c->cb.n <= 16) {
        float e[15];
        for (int k = 0; k < 15; k++)
            e[k] = k + 1 < c->cb.n ? c->edge[k] : INFINITY;
        for (int64_t i = 0; i < n; i++) {
            int p = 0;
            for (int k = 0; k < 15; k++)
                p += y[i] >= e[k];
            position[i] = (uint8_t)p;
        }
        return;
    }
    float e[256];
    for (int k = 0; k < 256; k++)
        e[k] = k + 1 < c->cb.n ? c->edge[k] : INFINITY;
    for (int64_t i = 0; i < n; i++) {
        int p = 0;
        for (int half = 128; half > 0; half /= 2)
            p += y[i] >= e[p + half - 1] ? half : 0;
        position[i] = (uint8_t)p;
    }
}

static void values(const struct qm_codec *c, const uint8_t *position, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = c->cb.value[position[i]];
}

INLINE void maxima(int with_sign, const float *x, int64_t block, int64_t count, uint32_t *bits)
{
    maxima_each(with_sign, x, block, count, bits);
}
#endif

#include "core/quant/simd_blocks.h"

#if defined(__AVX2__)
INLINE void decode_blocks_by(int four, const struct qm_codec *c, const uint8_t *packed,
                             const float *scales, int64_t n, float *out)
{
    int64_t block = c->q.block;
    struct planes t;
    planes_load(&t, four, c);
    for (int64_t b = 0; b * block < n; b++) {
        int64_t end = (b + 1) * block < n ? (b + 1) * block : n;
        float s = scales[b];
        for (int64_t i = b * block; i < end; i += GROUP)
            store_group(out + i, end - i,
                        four
                            ? nibbles_times(&t, c->cb.value, c->q.pack == QM_PACK_hi,
                                            packed + i / 2, end - i, s)
                            : unit_group(planes_get(&t, 0, load_codes(packed + i, end - i)), s, 0));
    }
}

static void decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                          int64_t n, float *out)
{
    if (!by_groups(c))
        decode_through(c, packed, scales, n, out);
    else if (c->q.bits == 4)
        decode_blocks_by(1, c, packed, scales, n, out);
    else
        decode_blocks_by(0, c, packed, scales, n, out);
}

/* The unit of a block: y = x / by if it divides, else y = x * by.  slope: of edge_lut.h,
 * if used. */
struct block_unit {
    float by, slope;
    int divides;
};

INLINE void encode_group(enum finder how, const struct finders *f, const struct qm_codec *c,
                         const float *x, int64_t i, int64_t left, struct block_unit u,
                         uint8_t *packed)
{
    put_group(packed, i, left, is_four(how), c->q.pack == QM_PACK_hi,
              how == BY_CELLS
                  ? cells_codes(&f->cells, c, x + i, left, u.by, u.slope)
                  : find_group(how, f, c, unit_group(load_group(x + i, left), u.by, u.divides)));
}

INLINE void encode_run(enum finder how, const struct finders *f, const struct qm_codec *c,
                       const float *x, int64_t from, int64_t end, struct block_unit u,
                       uint8_t *packed)
{
    int64_t i = from;
    for (; i + GROUP <= end; i += GROUP)
        encode_group(how, f, c, x, i, GROUP, u, packed);
    if (i < end)
        encode_group(how, f, c, x, i, end - i, u, packed);
}

INLINE void encode_blocks_by(enum finder how, const struct qm_codec *c, const float *x, int64_t n,
                             uint8_t *packed, float *scales, other_fn *other)
{
    int64_t block = c->q.block, batch = BATCH * block;
    int divides = c->q.unit == QM_UNIT_div;
    float by[BATCH], slope[BATCH] = {0.0f};
    struct finders f;
    load_finder(how, &f, c);
    for (int64_t first = 0; first < n; first += batch) {
        int64_t last = n - first < batch ? n : first + batch;
        batch_units(c, x + first, last - first, by, scales + first / block);
        if (how == BY_CELLS)
            cells_slopes(divides, by, slope);
        for (int64_t from = first, b = 0; from < last; from += block, b++) {
            int64_t end = last - from < block ? last : from + block;
            if (by[b] == 0.0f)
                other(c, x + from, end - from, packed + (is_four(how) ? from / 2 : from),
                      scales + from / block);
            else if (divides) /* the constants 1 and 0 make two loops without a branch */
                encode_run(how, &f, c, x, from, end, (struct block_unit){by[b], slope[b], 1},
                           packed);
            else
                encode_run(how, &f, c, x, from, end, (struct block_unit){by[b], slope[b], 0},
                           packed);
        }
    }
}

static void encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                          float *scales, other_fn *other)
{
    if (!by_groups(c) || c->has_steps || c->q.scale.keep_sign) {
        encode_through(c, x, n, packed, scales, other);
        return;
    }
    switch (group_finder(c)) {
    case BY_TREE16: encode_blocks_by(BY_TREE16, c, x, n, packed, scales, other); break;
    case BY_CELLS: encode_blocks_by(BY_CELLS, c, x, n, packed, scales, other); break;
    case BY_TREE256: encode_blocks_by(BY_TREE256, c, x, n, packed, scales, other); break;
    case BY_LINES: encode_blocks_by(BY_LINES, c, x, n, packed, scales, other); break;
    }
}
#else
static void decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                          int64_t n, float *out)
{
    decode_through(c, packed, scales, n, out);
}

static void encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                          float *scales, other_fn *other)
{
    encode_through(c, x, n, packed, scales, other);
}
#endif

const struct qm_simd QM_ISA_NAME(qm_simd) = {
    .max_bits = max_bits,
    .divide = divide,
    .multiply = multiply,
    .fold_each = fold_each,
    .unit_each = unit_each,
    .scale_each = scale_each,
    .pack4 = pack4,
    .unpack4 = unpack4,
    .positions = positions,
    .arith = arith,
    .values = values,
    .keep_sign = keep_sign,
    .decode_blocks = decode_blocks,
    .encode_blocks = encode_blocks,
};
