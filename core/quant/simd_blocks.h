/* simd_blocks.h - Encodes and decodes whole blocks by loops that go through memory.
 *
 * Every instruction set vectorizes these loops.  They serve blocks that are not whole groups,
 * curves, float formats, evenly spaced maps, the scale word keepsign, and everything in sse2.
 * Included by simd.c. */

/* Computes the units and stored scales of a batch of blocks, whose reductions are done together.
 * by[b] becomes 0 for blocks that the caller must encode otherwise. */
INLINE void batch_units(const struct qm_codec *c, const float *x, int64_t n, float *by,
                        float *scales)
{
    int64_t block = c->q.block, whole = n / block, count = (n + block - 1) / block;
    int roots = c->q.curve == QM_CURVE_sqrt;
    uint32_t bits[BATCH] = {0};
    float stored[BATCH];
    maxima(roots, x, block, whole, bits);
    if (whole < count)
        maxima_each(roots, x + whole * block, n - whole * block, 1, bits + whole);
    for (int64_t b = 0; b < count && roots; b++) /* the largest root is the root of the largest */
        bits[b] = bits[b] < 0x7f800000u ? qm_bits(sqrtf(qm_float(bits[b]))) : 0x7f800000u;
    units(c, bits, by, stored);
    if (whole < count && c->q.unit == QM_UNIT_recip_tail)
        by[whole] = 0.0f;
    memcpy(scales, stored, sizeof *scales * (size_t)count);
}

/* Unit values to decoded values, in place; s: the scale. */
INLINE void real_values(enum qm_curve curve, float s, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = qm_curve_from(curve, qm_curve_unit_from(curve, x[i]) * s);
}

static void real_block(enum qm_curve curve, float s, int64_t n, float *x)
{
    switch (curve) {
#define X(name) \
    case QM_CURVE_##name: real_values(QM_CURVE_##name, s, n, x); break;
        QM_SIMD_CURVES(X)
#undef X
    default: break;
    }
}

/* Elements to unit values. */
INLINE void unit_values(enum qm_curve curve, int divides, float by, const float *restrict x,
                        int64_t n, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        float u = qm_curve_to(curve, x[i]);
        y[i] = qm_curve_unit_to(curve, divides ? u / by : u * by);
    }
}

static void unit_block(enum qm_curve curve, int divides, float by, const float *x, int64_t n,
                       float *y)
{
    switch (curve) {
#define X(name)                                           \
    case QM_CURVE_##name:                                 \
        if (divides)                                      \
            unit_values(QM_CURVE_##name, 1, by, x, n, y); \
        else                                              \
            unit_values(QM_CURVE_##name, 0, by, x, n, y); \
        break;
        QM_SIMD_CURVES(X)
#undef X
    default: break;
    }
}

static void decode_through(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                           int64_t n, float *out)
{
    uint8_t codes[PIECE];
    int64_t block = c->q.block;
    int four = c->q.bits == 4;
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;
        if (four)
            unpack4(packed + i / 2, m, c->q.pack == QM_PACK_hi, codes);
        if (c->cb.is_float)
            qm_narrow()->e4m3_to_float(packed + i, m, out + i);
        else
            values(c, four ? codes : packed + i, m, out + i);
    }
    for (int64_t i = 0; i < n; i += block)
        real_block(c->q.curve, *scales++, n - i < block ? n - i : block, out + i);
}

/* The unit values of elements [from, from + n) of the blocks that begin at x; by: the
 * blocks' units. */
static void unit_piece(const struct qm_codec *c, const float *x, int64_t from, int64_t n,
                       const float *by, float *y)
{
    int64_t block = c->q.block, last = from + n;
    for (int64_t i = from, end; i < last; i = end) {
        end = (i / block + 1) * block < last ? (i / block + 1) * block : last;
        unit_block(c->q.curve, c->q.unit == QM_UNIT_div, by[i / block], x + i, end - i,
                   y + i - from);
    }
}

/* Encodes the elements of one batch; by: the blocks' units. */
static void encode_units(const struct qm_codec *c, const float *x, int64_t n, const float *by,
                         uint8_t *packed)
{
    float y[PIECE];
    uint8_t codes[PIECE];
    int four = c->q.bits == 4;
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;
        unit_piece(c, x, i, m, by, y);
        if (c->cb.is_float)
            qm_narrow()->float_to_e4m3(y, m, packed + i);
        else
            positions(c, y, m, four ? codes : packed + i);
        if (c->q.scale.keep_sign)
            keep_sign(c, x + i, m, four ? codes : packed + i);
        if (four)
            pack4(codes, m, c->q.pack == QM_PACK_hi, packed + i / 2);
    }
}

static void encode_through(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                           float *scales, other_fn *other)
{
    int64_t block = c->q.block, batch = BATCH * block;
    int four = c->q.bits == 4;
    for (int64_t first = 0; first < n; first += batch) {
        int64_t m = n - first < batch ? n - first : batch;
        float by[BATCH];
        batch_units(c, x + first, m, by, scales + first / block);
        encode_units(c, x + first, m, by, packed + (four ? first / 2 : first));
        for (int64_t i = first, b = 0; i < first + m; i += block, b++)
            if (by[b] == 0.0f)
                other(c, x + i, first + m - i < block ? first + m - i : block,
                      packed + (four ? i / 2 : i), scales + i / block);
    }
}
