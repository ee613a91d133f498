/* test_encode.c - Tests encoding, decoding and packing against definitions.
 *
 * Ranges, instruction sets and fused loops give the same bits; each norm has its definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/isa.h"
#include "core/quant/quantizer.h"
#include "tests/support/random_floats.h"

enum { N = 1531 };

struct encoded {
    uint8_t codes[N];
    float scales[2 * N], out[N]; /* blocks of one element may keep two numbers */
};

/* Folds, encodes and decodes x in ranges of `cut` elements. */
static void encode(const struct qm_codec *c, const struct qm_shape *shape, const float *x,
                   int64_t cut, struct encoded *e)
{
    struct qm_draws d = qm_draws_for(11, 3, 5, QM_ROLE_slot0);
    int64_t n = qm_shape_numel(shape);
    float stat[2 * N] = {0};
    memset(e, 0, sizeof *e);
    for (int64_t i = 0; i < n; i += cut)
        qm_fold(c, shape, i, n - i < cut ? n - i : cut, x + i, stat);
    for (int64_t i = 0; i < n && qm_folds(c) == 2; i += cut)
        qm_fold_again(c, shape, i, n - i < cut ? n - i : cut, x + i, stat);
    for (int64_t i = 0; i < n; i += cut)
        qm_encode_range(c, shape, i, n - i < cut ? n - i : cut, x + i, stat, &d, e->codes + i);
    qm_scales(c, shape, stat, e->scales);
    for (int64_t i = 0; i < n; i += cut)
        qm_decode_range(c, shape, i, n - i < cut ? n - i : cut, e->codes + i, e->scales,
                        e->out + i);
}

static const char *const codecs[] = {
    "nf4:4s/block:64/bisect/mid/hi",
    "nf4a8:4s/block:32/ladder/mid/hi/recip/floor:1e-12/maxskip",
    "int:4s/block:128/arith/even/hi/floor:1e-12",
    "int:4s/block:128/arith/even/hi/recip/floor:1e-12/maxskip/nanzero",
    "dyn:8s/block:256/bisect/near/floor:1e-12",
    "dyn:8u/block:64/mids/mid/recip_tail/guard:1e-38/nantop",
    "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0",
    "lin:4u/rank1/bisect/mid/lo/nantop",
    "de:4s/rank1/bisect/stoch/lo/nantop",
    "lin:4u/rank1block:10/bisect/mid/lo/nantop",
    "intd:8s/rowblock:10/arith/even/floor:1e-12",
    "lin2:4s/rowblock:64/bisect/even/lo/recip/nanzero",
    "nvfp4:4s/rowblock:7/ladder/mid/guard:1e-12/nanzero/hi",
    "de:8s/rank1block:64/bisect/stoch/least:2",
    "de:4s/rowcol/bisect/mid/lo/nantop",
    "pow2:5u/colrow/argmin/mid/byte",
    "lint:6s/block:64/arith/dither/byte/least:33",
    "lin:4u/block:128/bisect/mid/lo/least:3",
    "lin:4u/row/bisect/near/lo",
    "qlog:2u/block:64/arith/dither/hi/qlog/floor:1e-12/quantile:0.1",
    "qlog:3u/divblock:64/arith/bernoulli/nibbles/qlog/quantile:0.5",
    "qlog:8u/block:128/arith/even/qlog/floor:1e-12/quantile:0.05",
    "dyn:3s/divblock:64/bisect/bernoulli/nibbles/floor:1e-12",
    "e4m3:8s/block:128/bisect/even/expand/plus:1e-30",
    "e4m3:8s/block:50/bisect/stoch/expand:3/plus:1e-30",
    "e4m3:8s/block:1000/scan/near/expand:64/plus:1e-30",
    "e4m3:8s/block:128/bisect/even/plus:1e-20",
    "nf4:4s/block:64/bisect/mid/hi/plus:1e-12",
    "lin:4u/col/bisect/near/lo",
    "nf4:4s/tensor/argmin/mid",
    "fp4:4s/block:64/ladder/mid/hi/nanzero",
    "log:8u/logblock:128/arith/even/floor:1e-12",
    "logf:8u/logblock:128/arith/near/recip/cap:176/maxskip",
    "dyn:8u/block:32/sqrt/bisect/mid/f16",
    "lint:8s/block:32/softsign/arith/even/f16",
    "lint:8s/block:32/arith/near/floor:1e-12/f16",
    "lint:8s/block:32/arith/near/floor:6e-8/f16both",
    "lint:8u/block:32/sqrt/arith/near/floor:1e-12/f16",
    "nf4:4s/block:64/bisect/mid/hi/nest:8",
    "de:5s/block:128/bisect/mid/lo/nantop",
    "dyn:4s/id/bisect/near",
    "lin:8u/block:64/bisect/mid",
    "de:8s/block:96/bisect/mid/recip",
    "dyn:8u/block:32/bisect/near/cap:0.5",
    "dyn:4s/block:16/bisect/near/recip_tail",
    "dyn:8u/rank1/bisect/mid/lo/floor:1e-12",
    "lint:8s/block:32/softsign/arith/near/floor:1e-12/f16",
    "lint:8s/block:640/softsign/arith/near/floor:6e-8/f16both",
    "lint:4s/block:6/softsign/arith/near/hi/f16",
    "lint:4u/block:32/sqrt/arith/near/lo/floor:6e-8/f16both",
    "lint:8u/block:128/sqrt/arith/near/guard:1e-3/f16",
    "dyn:8u/block:64/sqrt/bisect/near/recip/f16",
    "dyn:8u/block:32/sqrt/mids/mid/recip_tail/guard:1e-38/nantop/f16",
    "dyn:8s/block:34/softsign/bisect/mid/recip/maxskip",
    "nf4:4s/block:32/bisect/mid/hi/floor:1e-12/f16",
    "int:8s/block:64/arith/near/f16",
    "dyn:8s/block:256/bisect/even/maxskip/keepsign",
    "dyn:8s/block:64/bisect/even/keepsign/f16both/floor:1e-7",
    "dyn:4s/block:32/bisect/even/hi/keepsign/guard:1e-38",
    "dyn:8u/block:256/grid/mid/recip/maxskip/zero:0",
    "dyn:4s/block:64/bisect/near/floor:1e-12/zero:5",
    "e4m3:8s/block:256/bisect/even/floor:1e-12",
    "e4m3:8s/block:34/bisect/even/recip/f16",
};
enum { CODECS = sizeof codecs / sizeof *codecs };

static void test_ranges_and_isas(void **state)
{
    (void)state;
    static const struct qm_shape shapes[] = {
        {1, {N}},        {2, {1, 37}},       {2, {37, 1}}, {2, {23, 61}},
        {3, {5, 9, 14}}, {4, {2, 3, 5, 16}}, {1, {1}},     {2, {0, 4}},
    };
    static float x[N];
    static struct encoded whole, part;
    for (int k = 0; k < CODECS; k++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int special = 0; special < 2; special++) {
                struct qm_codec c;
                assert_int_equal(qm_codec_parse(&c, codecs[k]), QM_OK);
                if (qm_codec_fits(&c, &shapes[s]) != QM_OK)
                    continue;
                for (int i = 0; i < N; i++) {
                    x[i] = random_float(special && i % 50 == 7);
                    x[i] = c.q.sign ? x[i] : fabsf(x[i]);
                    if (i / 256 == 2)
                        x[i] = 0.0f;
                }
                assert_true(qm_isa_force(QM_ISA_sse2));
                encode(&c, &shapes[s], x, N, &whole);
                for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
                    if (!qm_isa_force((enum qm_isa)isa))
                        continue;
                    struct qm_quantizer at = qm_quantizer_at(&c.q, &shapes[s]);
                    for (int64_t cut = at.norm == QM_NORM_block ? at.block : 128; cut <= N;
                         cut *= 3) {
                        encode(&c, &shapes[s], x, cut, &part);
                        if (memcmp(whole.codes, part.codes, sizeof whole.codes) != 0 ||
                            memcmp(whole.scales, part.scales, sizeof whole.scales) != 0)
                            fail_msg("%s, %s: ranges of %lld change codes or scales", codecs[k],
                                     qm_isa_text((enum qm_isa)isa), (long long)cut);
                        for (int i = 0; i < N; i++)
                            if (qm_bits(whole.out[i]) != qm_bits(part.out[i]) &&
                                !(qm_isnan(whole.out[i]) && qm_isnan(part.out[i])))
                                fail_msg("%s: decoded %d differs", codecs[k], i);
                    }
                }
            }
    for (int isa = 0; isa < QM_ISA_COUNT; isa++)
        qm_isa_force((enum qm_isa)isa);
}

/* Fills blocks of every kind, depending on `round`: special values; edges and their
 * neighbours; magnitudes at which a float16 scale overflows, is subnormal or becomes 0; a few
 * negative numbers. */
static void fill(const struct qm_codec *c, int round, int64_t n, float *x)
{
    static const int power[] = {0, 15, 16, 17, -14, -15, -24, -25, -26, -120, -148, 30, 127};
    enum qm_curve curve = c->q.curve;
    for (int i = 0; i < n; i++) {
        uint32_t w = random_word();
        x[i] = random_float(round % 4 == 1 && i % 90 == 7);
        x[i] = c->q.sign || (round % 8 == 5 && w % 99 == 0) ? x[i] : fabsf(x[i]);
        if (i / 128 == round % 8)
            x[i] = 0.0f;
        if (round % 4 == 2) {
            float e = c->edge[w % (uint32_t)(c->cb.n - 1)];
            e = qm_curve_from(curve, qm_curve_unit_from(curve, e));
            x[i] = i % 16 == 0 ? 1.0f : qm_unordered(qm_ordered(e) + (int)(w >> 30) - 1);
        }
        if (round % 4 == 3)
            x[i] = ldexpf(x[i],
                          power[(i / c->q.block + round) % 13] * (curve == QM_CURVE_sqrt ? 2 : 1));
    }
}

/* The codes and the stored scale of one block as the axes define them, for unit div. */
static void define_block(const struct qm_codec *c, const float *x, int64_t n, uint8_t *codes,
                         float *scale)
{
    float m = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        float u = fabsf(qm_curve_to(c->q.curve, x[i]));
        m = qm_isnan(m) || m > u ? m : u;
    }
    int is_zero = m == 0.0f && c->q.scale.zero >= 0;
    m = (m < c->q.scale.floor ? c->q.scale.floor : m) * c->cb.gain;
    *scale = c->q.scale.f16 ? qm_f16_to_float(qm_float_to_f16(m)) : m;
    m = c->q.scale.f16 == QM_F16_both ? *scale : m < c->q.scale.guard ? c->q.scale.guard : m;
    for (int64_t i = 0; i < n; i++) {
        float y = qm_curve_unit_to(c->q.curve, qm_curve_to(c->q.curve, x[i]) / m);
        int k = is_zero ? c->q.scale.zero : qm_code_of(c, y, 0);
        int is_negative = !isnan(x[i]) && signbit(x[i]); /* NaN counts as positive */
        if (c->q.scale.keep_sign && !signbit(c->cb.value[k]) != !is_negative)
            k = (x[i] > 0.0f ? k + 1 : k - 1) & (c->cb.n - 1);
        codes[i] = c->cb.perm[k];
    }
}

/* Fused encoding and decoding against define_block. */
static void test_fused_definition(void **state)
{
    (void)state;
    static float x[N], scales[N], out[N], scale;
    static uint8_t packed[N + 8], got[N], want[N];
    int cases = 0;
    for (int k = 0; k < CODECS; k++)
        for (int at = 0; at < 40 * QM_ISA_COUNT; at++) {
            struct qm_codec c;
            int64_t n = 1 + random_word() % N;
            assert_int_equal(qm_codec_parse(&c, codecs[k]), QM_OK);
            if (!qm_codec_is_fused(&c) || c.q.unit != QM_UNIT_div || c.q.scale.max_skips_nan ||
                c.cb.is_float || /* see test_float8 */
                c.q.scale.cap != 0.0f || !qm_isa_force((enum qm_isa)(at % QM_ISA_COUNT)))
                continue;
            fill(&c, at / QM_ISA_COUNT, n, x);
            qm_encode_blocks(&c, x, n, packed, scales);
            qm_decode_blocks(&c, packed, scales, n, out);
            qm_unpack_codes(c.q.pack, c.q.bits, packed, n, got);
            for (int64_t i = 0; i < n; i += c.q.block) {
                int64_t m = n - i < c.q.block ? n - i : c.q.block;
                float stored = scales[i / c.q.block];
                define_block(&c, x + i, m, want, &scale);
                if (memcmp(got + i, want, (size_t)m) != 0 ||
                    (qm_bits(scale) != qm_bits(stored) && !(qm_isnan(scale) && qm_isnan(stored))))
                    fail_msg("%s, %s: block at %lld differs from its definition", codecs[k],
                             qm_isa_text(qm_isa()), (long long)i);
                for (int64_t j = i; j < i + m; j++) {
                    float y = qm_curve_unit_from(c.q.curve, c.cb.value[c.cb.position_of[got[j]]]);
                    float real = qm_curve_from(c.q.curve, y * scale);
                    assert_true(qm_bits(out[j]) == qm_bits(real) ||
                                (qm_isnan(out[j]) && qm_isnan(real)));
                }
            }
            cases++;
        }
    assert_true(cases > 40 * 10);
}

/* Fused encoding and decoding against ranges, at every instruction set. */
static void test_fused_blocks(void **state)
{
    (void)state;
    static float x[N], scales[N], out[N];
    static uint8_t packed[N + 8], unpacked[N];
    static struct encoded want;
    int fused = 0;
    for (int k = 0; k < CODECS; k++)
        for (int round = 0; round < 40; round++) {
            struct qm_codec c;
            int64_t n = 1 + random_word() % N;
            struct qm_shape shape = {1, {n}};
            assert_int_equal(qm_codec_parse(&c, codecs[k]), QM_OK);
            if (!qm_codec_is_fused(&c))
                continue;
            fused++;
            fill(&c, round, n, x);
            encode(&c, &shape, x, N, &want);
            for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
                if (!qm_isa_force((enum qm_isa)isa))
                    continue;
                memset(packed, 0xa5, sizeof packed);
                qm_encode_blocks(&c, x, n, packed, scales);
                int64_t bytes = qm_code_bytes(&c, n);
                for (size_t i = (size_t)bytes; i < sizeof packed; i++)
                    assert_int_equal(packed[i], 0xa5);
                qm_unpack_codes(c.q.pack, c.q.bits, packed, n, unpacked);
                if (memcmp(unpacked, want.codes, (size_t)n) != 0 ||
                    memcmp(scales, want.scales, sizeof(float) * (size_t)qm_scale_count(&c, &shape)))
                    fail_msg("%s, %s, n = %lld: fused codes or scales differ", codecs[k],
                             qm_isa_text((enum qm_isa)isa), (long long)n);
                qm_decode_blocks(&c, packed, scales, n, out);
                for (int64_t i = 0; i < n; i++)
                    assert_true(qm_bits(out[i]) == qm_bits(want.out[i]) ||
                                (qm_isnan(out[i]) && qm_isnan(want.out[i])));
            }
        }
    assert_true(fused > 100);
}

/* Norm rank1 by its definition: the minimum over axes of the maxima over all other axes. */
static void test_rank1_definition(void **state)
{
    (void)state;
    struct qm_shape shape = {3, {4, 6, 10}};
    struct qm_codec c;
    float x[240], scales[20], out[240];
    uint8_t codes[240];
    for (int i = 0; i < 240; i++)
        x[i] = fabsf(random_float(0));
    assert_int_equal(qm_codec_parse(&c, "lin:4u/rank1/bisect/mid/lo/nantop"), QM_OK);
    assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
    qm_decode(&c, &shape, codes, scales, out);
    for (int i = 0; i < 240; i++) {
        int at[3] = {i / 60, i / 10 % 6, i % 10};
        float smallest = INFINITY;
        for (int axis = 0, base = 0; axis < 3; base += (int)shape.dim[axis++]) {
            float max = 0.0f;
            for (int j = 0; j < 240; j++) {
                int other[3] = {j / 60, j / 10 % 6, j % 10};
                if (other[axis] == at[axis] && x[j] > max)
                    max = x[j];
            }
            assert_true(scales[base + at[axis]] == max);
            smallest = max < smallest ? max : smallest;
        }
        int want = smallest > 0.0f ? qm_code_of(&c, x[i] / smallest, 0) : 15;
        assert_int_equal(codes[i], want);
        assert_true(out[i] == c.cb.value[want] * smallest);
    }
}

/* The largest |x| / by[] of elements [from, from + n) of a row (across = 1) or of a column of a 7 x
 * 11 matrix. */
static float largest(const float *x, const float *by, int row, int col, int across, int from, int n)
{
    float max = 0.0f;
    for (int k = from; k < from + n && k < (across ? 11 : 7); k++) {
        int i = across ? row : k, j = across ? k : col;
        max = fmaxf(max, fabsf(x[i * 11 + j]) / (by ? by[across ? j : i] : 1.0f));
    }
    return max;
}

/* Norms with two scales per element by their definitions: the smaller scale of both blocks, or one
 * scale after the other. */
static void test_pair_definitions(void **state)
{
    (void)state;
    static const char *const text[] = {"de:8s/rank1block:4/bisect/mid/nantop",
                                       "de:8s/rowcol/bisect/mid/nantop",
                                       "de:8s/colrow/bisect/mid/nantop"};
    struct qm_shape shape = {2, {7, 11}};
    float x[77], scales[64], out[77];
    uint8_t codes[77];
    for (int i = 0; i < 77; i++)
        x[i] = ldexpf(random_float(0), i % 11 - i / 11);
    for (int norm = 0; norm < 3; norm++) {
        struct qm_codec c;
        assert_int_equal(qm_codec_parse(&c, text[norm]), QM_OK);
        assert_int_equal(qm_scale_count(&c, &shape), norm ? 18 : 7 * 3 + 11 * 2);
        assert_int_equal(qm_folds(&c), norm ? 2 : 1);
        assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
        qm_decode(&c, &shape, codes, scales, out);
        float rows[7], cols[11], second;
        for (int i = 0; i < 7; i++)
            rows[i] = largest(x, NULL, i, 0, 1, 0, 11);
        for (int j = 0; j < 11; j++)
            cols[j] = largest(x, NULL, 0, j, 0, 0, 7);
        for (int k = 0; k < 77; k++) {
            int i = k / 11, j = k % 11;
            if (norm == 0) {
                float a = largest(x, NULL, i, j, 1, j / 4 * 4, 4);
                float b = largest(x, NULL, i, j, 0, i / 4 * 4, 4);
                assert_true(scales[i * 3 + j / 4] == a && scales[21 + j * 2 + i / 4] == b);
                assert_int_equal(codes[k], qm_code_of(&c, x[k] / fminf(a, b), 0));
                assert_true(out[k] == c.cb.value[codes[k]] * fminf(a, b));
                continue;
            }
            float first = norm == 1 ? rows[i] : cols[j];
            second = norm == 1 ? largest(x, rows, 0, j, 0, 0, 7) : largest(x, cols, i, 0, 1, 0, 11);
            assert_true(scales[norm == 1 ? i : 7 + j] == first);
            assert_true(scales[norm == 1 ? 7 + j : i] == second);
            assert_int_equal(codes[k], qm_code_of(&c, x[k] / first / second, 0));
            assert_true(out[k] == c.cb.value[codes[k]] * second * first);
        }
    }
    struct qm_codec c;
    struct qm_shape flat = {1, {256}}, deep = {3, {2, 3, 4}};
    assert_int_equal(qm_codec_parse(&c, text[0]), QM_OK);
    assert_int_equal(qm_scale_count(&c, &flat), 2); /* as rank1: two blocks of 128; three axes */
    assert_int_equal(qm_scale_count(&c, &deep), 9);
    assert_int_equal(qm_codec_parse(&c, text[1]), QM_OK);
    assert_int_equal(qm_codec_fits(&c, &flat), QM_BAD_ARG);
    assert_int_equal(qm_codec_parse(&c, "de:8s/rowcol/bisect/mid/f16"), QM_BAD_ARG);
    assert_int_equal(qm_codec_parse(&c, "de:8s/block:8/bisect/dither"), QM_BAD_ARG);
    assert_int_equal(qm_codec_parse(&c, "de:4s/block:8/bisect/mid/lo/least:16"), QM_BAD_ARG);
}

/* With noise of one step the mean code is the position itself: 3.3, with 5 standard deviations. */
static void test_dither(void **state)
{
    (void)state;
    struct qm_codec c;
    assert_int_equal(qm_codec_parse(&c, "lint:5s/tensor/arith/dither/byte"), QM_OK);
    double sum = 0.0;
    for (int i = 0; i < 40000; i++)
        sum += qm_code_of(&c, 3.3f / 15.0f, qm_philox_stream(5, 6, (uint64_t)i)) + c.cb.base;
    assert_true(fabs(sum / 40000.0 - 3.3) < 5.0 * sqrt(0.21 / 40000.0));
    assert_int_equal(qm_codec_parse(&c, "lint:5s/tensor/arith/dither/byte/least:16"), QM_OK);
    for (int i = 0; i < 100; i++)
        assert_true(qm_code_of(&c, -0.4f, qm_philox_stream(5, 6, (uint64_t)i)) == 16);
}

/* Codes of e4m3 are the conversion of x / (maximum / 448), including the signs of -0 and NaN. */
static void test_float8(void **state)
{
    enum { COUNT = 4000, BLOCK = 125 };
    static const char *const texts[] = {"e4m3:8s/block:125/bisect/even/floor:1e-12",
                                        "e4m3:8s/rank1/scan/even/floor:1e-12"};
    static float x[COUNT], out[COUNT], scales[COUNT];
    static uint8_t codes[COUNT];
    struct qm_shape shape = {2, {COUNT / BLOCK, BLOCK}};
    (void)state;
    for (int isa = 0; isa < QM_ISA_COUNT; isa++)
        for (int q = 0; q < 2; q++) {
            struct qm_codec c;
            float column[BLOCK] = {0};
            if (!qm_isa_force((enum qm_isa)isa))
                continue;
            assert_int_equal(qm_codec_parse(&c, texts[q]), QM_OK);
            for (int i = 0; i < COUNT; i++)
                x[i] = random_float(q == 0 && i < 3 * BLOCK);
            for (int i = 0; i < COUNT; i++)
                column[i % BLOCK] = fmaxf(column[i % BLOCK], fabsf(x[i]));
            assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
            qm_decode(&c, &shape, codes, scales, out);
            for (int i = 0; i < COUNT; i++) {
                float m = 0.0f, y;
                int is_nan = 0;
                for (int j = i / BLOCK * BLOCK; j < (i / BLOCK + 1) * BLOCK; j++) {
                    m = fmaxf(m, fabsf(x[j]));
                    is_nan |= qm_isnan(x[j]);
                }
                m = q == 1 && column[i % BLOCK] < m ? column[i % BLOCK] : m;
                m = (is_nan ? (float)NAN : m < 1e-12f ? 1e-12f : m) / 448.0f;
                y = x[i] / m;
                uint8_t want = qm_float_to_e4m3(y, 1);
                float decoded = qm_e4m3_to_float(want) * m;
                if (want == 0x7f)
                    want |= codes[i] & 0x80; /* the sign of a NaN is that of the division */
                if (codes[i] != want)
                    fail_msg("%s: %a is %02x, want %02x", texts[q], (double)y, codes[i], want);
                if (!qm_isnan(decoded) || !qm_isnan(out[i]))
                    assert_int_equal(qm_bits(out[i]), qm_bits(decoded));
            }
        }
}

/* The code of e4m3 whose value is nearest to y, |y| <= 448, by a search of all; of two the one with
 * an even last bit. */
static uint8_t nearest_e4m3(float y)
{
    double least = HUGE_VAL;
    uint8_t best = 0;
    for (int code = 0; code < 127; code++) {
        int e = code / 8, m = code % 8;
        double value = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
        double off = fabs(fabs((double)y) - value);
        if (off < least || (off == least && code % 2 == 0)) {
            least = off;
            best = (uint8_t)code;
        }
    }
    return (uint8_t)(best | (signbit(y) ? 0x80 : 0));
}

/* Half way between two values of e4m3 the even code is taken; on either side, the nearer one. */
static void test_float8_ties(void **state)
{
    enum { ROWS = 13, COLS = 64, COUNT = ROWS * COLS };
    static const char *const texts[] = {"e4m3:8s/block:64/bisect/even/floor:1e-12",
                                        "e4m3:8s/rank1/scan/even/floor:1e-12"};
    static float x[COUNT], scales[COUNT];
    static uint8_t codes[COUNT];
    const struct qm_shape shape = {2, {ROWS, COLS}};
    (void)state;
    for (int i = 0, k = 0; i < COUNT; i++) {
        if (i < COLS || i % COLS == 0) { /* the maxima, so that each unit value is x itself */
            x[i] = 448.0f;
            continue;
        }
        int low = k / 6; /* below, at and above each of 126 middles, of both signs */
        float middle =
            0.5f * (qm_e4m3_to_float((uint8_t)low) + qm_e4m3_to_float((uint8_t)(low + 1)));
        x[i] = k % 3 == 1 ? middle : nextafterf(middle, k % 3 == 0 ? 0.0f : INFINITY);
        x[i] = k / 3 % 2 ? -x[i] : x[i];
        k++;
    }
    assert_true(x[COUNT - 1] < -432.0f); /* the last middle, of 416 and 448 */
    for (int isa = 0; isa < QM_ISA_COUNT; isa++)
        for (int q = 0; q < 2; q++) {
            struct qm_codec c;
            if (!qm_isa_force((enum qm_isa)isa))
                continue;
            assert_int_equal(qm_codec_parse(&c, texts[q]), QM_OK);
            assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, scales), QM_OK);
            for (int i = 0; i < COUNT; i++) {
                uint8_t want = nearest_e4m3(x[i]);
                if (codes[i] != want || qm_float_to_e4m3(x[i], 1) != want)
                    fail_msg("%s: %a is %02x, converted %02x, want %02x", texts[q], (double)x[i],
                             codes[i], qm_float_to_e4m3(x[i], 1), want);
            }
        }
}

/* The probability that stochastic rounding goes up is the position within the cell; the same draws
 * give the same codes. */
static void test_stochastic(void **state)
{
    (void)state;
    struct qm_codec c;
    struct qm_shape shape = {1, {4096}};
    static float x[4096];
    static uint8_t codes[4096], again[4096];
    float scale;
    assert_int_equal(qm_codec_parse(&c, "lint:4s/tensor/scan/stoch"), QM_OK);
    for (int i = 0; i < 4096; i++)
        x[i] = i == 0 ? 1.0f : (3.0f + 0.3f) / 7.0f;
    struct qm_draws d = qm_draws_for(1, 2, 3, QM_ROLE_slot0);
    qm_encode(&c, &shape, x, &d, codes, &scale);
    qm_encode(&c, &shape, x, &d, again, &scale);
    assert_memory_equal(codes, again, sizeof codes);
    int up = 0;
    for (int i = 1; i < 4096; i++) {
        assert_true(codes[i] == 10 || codes[i] == 11);
        up += codes[i] == 11;
    }
    /* binomial: mean 4095 * 0.3 = 1228.5, standard deviation 29.3, 5 of which are 147 */
    assert_in_range(up, 1228 - 147, 1229 + 147);
}

static void test_pack(void **state)
{
    (void)state;
    uint8_t bytes[80], codes[40], back[40];
    for (int order = 0; order < 2; order++)
        for (int bits = 1; bits <= 16; bits++)
            for (int n = 1; n <= 37; n += 4) {
                uint32_t want[40];
                memset(bytes, 0, sizeof bytes);
                for (int i = 0; i < n; i++) {
                    want[i] = random_word() & ((1u << bits) - 1u);
                    qm_pack_put((enum qm_pack)order, bits, bytes, i, want[i]);
                }
                for (int64_t i = qm_pack_bytes((enum qm_pack)order, bits, n); i < 80; i++)
                    assert_int_equal(bytes[i], 0);
                for (int i = 0; i < n; i++)
                    assert_int_equal(qm_pack_get((enum qm_pack)order, bits, bytes, i), want[i]);
                if (bits > 8)
                    continue;
                for (int i = 0; i < n; i++)
                    codes[i] = (uint8_t)want[i];
                uint8_t block[80] = {0};
                qm_pack_codes((enum qm_pack)order, bits, codes, n, block);
                assert_memory_equal(block, bytes, sizeof bytes);
                qm_unpack_codes((enum qm_pack)order, bits, block, n, back);
                assert_memory_equal(back, codes, (size_t)n);
            }
    /* the published orders: the first of two codes is high (torchao) or low (lpmm) */
    uint8_t two[2] = {3, 12}, byte;
    qm_pack_codes(QM_PACK_hi, 4, two, 2, &byte);
    assert_int_equal(byte, 0x3c);
    qm_pack_codes(QM_PACK_lo, 4, two, 2, &byte);
    assert_int_equal(byte, 0xc3);
}

static void test_infinite_quotients(void **state) /* by a cap */
{
    static const char *const texts[] = {"lint:5s", "lint:4s", "lint:6s", "lin:3u", "nf4:4s"};
    const struct qm_shape shape = {1, {64}};
    static struct encoded e;
    static float x[64];
    (void)state;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
            struct qm_codec c;
            char text[64];
            if (!qm_isa_force((enum qm_isa)isa))
                continue;
            snprintf(text, 64, "%s/block:32/bisect/mid/cap:1e-30", texts[k]);
            assert_int_equal(qm_codec_parse(&c, text), QM_OK);
            for (int i = 0; i < 64; i++)
                x[i] = c.q.sign && i % 2 ? -3e38f : 3e38f;
            encode(&c, &shape, x, 64, &e);
            for (int i = 0; i < 64; i++)
                assert_int_equal(e.codes[i], c.cb.perm[x[i] < 0.0f ? 0 : c.cb.n - 1]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_and_isas),
        cmocka_unit_test(test_fused_blocks),
        cmocka_unit_test(test_fused_definition),
        cmocka_unit_test(test_rank1_definition),
        cmocka_unit_test(test_float8),
        cmocka_unit_test(test_float8_ties),
        cmocka_unit_test(test_pair_definitions),
        cmocka_unit_test(test_dither),
        cmocka_unit_test(test_infinite_quotients),
        cmocka_unit_test(test_stochastic),
        cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
