/* map.c - the codebooks, in float32, each in its source's own order of operations. */
#include "core/quant/map.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/fp8.h"

static const struct {
    const char *name;
    int from, to, signs;
} maps[] = {
#define X(name, from, to, signs, text) {#name, from, to, signs},
    QM_MAP_LIST(X)
#undef X
};

/* QLoRA's table; every digit as printed in its appendix and in bitsandbytes functional.py. */
static const float nf4_value[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/* bitsandbytes csrc/kernels.cu, dQuantizeNF4: the literals of the decision tree, x > t goes up. */
static const float nf4_cut[15] = {
    -0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
    -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
    0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
    0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f,
};

/* adafactor8bit 0.2.4, _NF4_TABLE (from the published 0.2.2 -> 0.2.4 difference). */
static const float nf4a8_value[16] = {
    -1.0f,        -0.6961928f, -0.52507306f, -0.3895074f, -0.27408478f, -0.17286907f,
    -0.07958022f, 0.0f,        0.07958022f,  0.17286907f, 0.27408478f,  0.3895074f,
    0.52507306f,  0.6961928f,  0.8641379f,   1.0f,
};

/* kernels.cu of the same release, find_nearest_nf4: thresholds on |x|; |x| < t stays below.  The
 * table has no -0.8641379, yet the sixth of the seven is used for the last negative cell. */
static const float nf4a8_threshold[8] = {
    0.0397901f, 0.1262246f, 0.2234769f, 0.3317961f, 0.4572902f, 0.6106329f, 0.7801653f, 0.9320689f,
};

/* bitsandbytes functional.py, get_4bit_type("af4"): code 0 is the first. */
static const float af4_code[16] = {
    1.0f,        0.72424863f,  0.55496234f,  0.42563882f,  0.31675666f,  0.21961274f,
    0.12934483f, 0.04273164f,  0.0f,         -0.04934812f, -0.14982478f, -0.25607552f,
    -0.3736951f, -0.51243739f, -0.69441008f, -1.0f,
};

/* bitsandbytes: FP4 in code order times 12, and dQuantizeFP4's thresholds on |x| (strict). */
static const float fp4_code[8] = {0.0f,         0.00520833349f, 0.666666687f, 1.0f,
                                  0.333333343f, 0.5f,           0.166666672f, 0.25f};
static const int fp4_order[8] = {0, 1, 6, 7, 4, 5, 2, 3};
static const float fp4_threshold[7] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f,
                                       0.4166667f,  0.583333f,  0.8333333f};

static float before(float x) { return qm_unordered(qm_ordered(x) - 1); }

/* torch.linspace of PyTorch 2 on CPU: from both ends, one fused multiply-add each. */
static void linspace(float a, float b, int n, float *out)
{
    float step = (b - a) / (float)(n - 1);
    for (int j = 0; j < n; j++)
        out[j] = j < n / 2 ? fmaf(step, (float)j, a) : fmaf(-step, (float)(n - 1 - j), b);
}

/* torch.linspace of PyTorch 1.13, AVX2 build, which made lpmm's tables: chunks of 8 lanes, two at
 * a time, whose base is one fused multiply-add and whose offsets are rounded products. */
static void linspace_avx2(float a, float b, int n, float *out)
{
    float step = (b - a) / (float)(n - 1);
    int j = 0;
    for (; j + 16 <= n; j += 16)
        for (int half = 0; half < 16; half += 8) {
            int at = j + half;
            float base =
                at < n / 2 ? fmaf(step, (float)at, a) : fmaf(-step, (float)(n - at - 1), b);
            for (int k = 0; k < 8; k++)
                out[at + k] = base + (float)k * step;
        }
    for (; j < n; j++)
        out[j] = j < n / 2 ? fmaf(step, (float)j, a) : fmaf(-step, (float)(n - 1 - j), b);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* arXiv:1511.04561 and create_dynamic_map of bitsandbytes, torchao and lpmm: in decade i the
 * centres of 2^i (unsigned: 2^(i+1)) equal cells of [0.1, 1], times 10^(i - decades + 1). */
static void build_dynamic(struct qm_codebook *cb, int bits, int sign,
                          void (*space)(float, float, int, float *))
{
    int decades = bits - 1, n = 0;
    float edge[257];
    for (int i = 0; i < decades; i++) {
        int cells = 1 << (sign ? i : i + 1);
        float power = (float)pow(10.0, i - decades + 1);
        space(0.1f, 1.0f, cells + 1, edge);
        for (int k = 0; k < cells; k++) {
            float v = power * ((edge[k] + edge[k + 1]) / 2.0f);
            cb->value[n++] = v;
            if (sign)
                cb->value[n++] = -v;
        }
    }
    cb->value[n++] = 0.0f;
    cb->value[n++] = 1.0f;
    qsort(cb->value, (size_t)n, sizeof *cb->value, by_value);
    cb->n = n;
}

/* create_dynamic_map of bitsandbytes 0.36.0 to 0.41.0, unsigned: 8 bits beside the sign instead of
 * 7 double the cells, and the two cells meant for the last decade go into each. */
static void build_dynamic_defect(struct qm_codebook *cb)
{
    float edge[257], all[524];
    int n = 0;
    for (int i = 0; i < 7; i++) {
        float power = (float)pow(10.0, i - 6);
        const int cells[2] = {4 << i, 2};
        for (int part = 0; part < 2; part++) {
            linspace(0.1f, 1.0f, cells[part] + 1, edge);
            for (int k = 0; k < cells[part]; k++)
                all[n++] = power * ((edge[k] + edge[k + 1]) / 2.0f);
        }
    }
    all[n++] = 0.0f;
    all[n++] = 1.0f;
    qsort(all, (size_t)n, sizeof *all, by_value);
    cb->n = 256;
    memcpy(cb->value, all, sizeof cb->value);
}

static float power_of(float t, int p)
{
    float a = fabsf(t), r = p == 1 ? a : p == 2 ? a * a : a * a * a;
    return copysignf(r, t);
}

/* lpmm create_pow_map: no zero when unsigned. */
static void build_power(struct qm_codebook *cb, int bits, int sign, int p)
{
    int n = 1 << bits;
    float t[256];
    if (sign)
        linspace_avx2(-1.0f, 1.0f, n, t);
    for (int k = 0; k < n; k++)
        cb->value[k] = power_of(sign ? t[k] : (float)(k + 1) / (float)n, p);
    cb->n = n;
    if (!sign && p == 1) {
        cb->steps = (float)n;
        cb->base = 1;
    }
}

/* bitsandbytes create_linear_map: 2^b - 1 values when signed, a second zero fills the table. */
static void build_lin0(struct qm_codebook *cb, int bits, int sign)
{
    int n = 1 << bits;
    float t[256] = {0.0f};
    cb->n = n;
    if (!sign) {
        linspace(0.0f, 1.0f, n, cb->value);
        return;
    }
    linspace(-1.0f, 1.0f, n - 1, t);
    /* the middle of t is a zero, or within an ulp of 1 of it: it goes where it sorts */
    int below = t[n / 2 - 1] < 0.0f;
    for (int k = 0; k < n; k++)
        cb->value[k] = k < n / 2 - 1 + below ? t[k] : k == n / 2 - 1 + below ? 0.0f : t[k - 1];
}

/* lpmm create_fp8_map: the exponent field runs downward. */
static void build_float_point(struct qm_codebook *cb, int bits, int sign, int e)
{
    int p = bits - e - (sign ? 1 : 0), n = 0;
    int bias = 1 << (e - 1);
    float top = 0.0f;
    for (int field = 0; field < 1 << e; field++)
        for (int k = 0; k < 1 << p; k++) {
            float f = (float)k / (float)(1 << p);
            float v = field == 0 ? ldexpf(f, -bias) : ldexpf(1.0f + f, bias + 1 - field);
            cb->value[n++] = v;
            if (sign)
                cb->value[n++] = -v;
            top = v > top ? v : top;
        }
    qsort(cb->value, (size_t)n, sizeof *cb->value, by_value);
    for (int k = 0; k < n; k++)
        cb->value[k] = cb->value[k] == 0.0f ? 0.0f : cb->value[k] / top;
    if (sign)
        cb->value[n / 2] = -0.0f; /* the source keeps both zeros, +0 first */
    cb->n = n;
}

static void build_af4(struct qm_codebook *cb)
{
    cb->n = 16;
    cb->is_permuted = 1;
    for (int k = 0; k < 16; k++) {
        cb->value[15 - k] = af4_code[k];
        cb->perm[15 - k] = (uint8_t)k;
    }
}

static void build_nf4s(struct qm_codebook *cb)
{
    cb->n = 15;
    for (int k = 0; k < 7; k++) {
        cb->value[k] = nf4_value[k];
        cb->value[14 - k] = -nf4_value[k];
    }
    cb->value[7] = 0.0f;
}

/* Positions from -1 to 1: codes 11 10 13 12 15 14 9 | 8 0 | 1 6 7 4 5 2 3. */
static void build_fp4(struct qm_codebook *cb, int plus_zero_first)
{
    cb->n = 16;
    cb->is_permuted = 1;
    for (int k = 0; k < 8; k++) {
        int code = fp4_order[k];
        cb->value[8 + k] = fp4_code[code];
        cb->perm[8 + k] = (uint8_t)code;
        cb->value[7 - k] = -fp4_code[code];
        cb->perm[7 - k] = (uint8_t)(code + 8);
    }
    if (plus_zero_first) {
        cb->value[7] = 0.0f;
        cb->value[8] = -0.0f;
        cb->perm[7] = 0;
        cb->perm[8] = 8;
        return;
    }
    cb->has_cuts = 1;
    cb->cut[7] = -1.40129846e-45f; /* every negative number, however small, lies below +0 */
    for (int k = 0; k < 7; k++) {
        cb->cut[8 + k] = fp4_threshold[k];
        cb->cut[6 - k] = before(-fp4_threshold[k]);
    }
}

static void build_nf4a8(struct qm_codebook *cb)
{
    memcpy(cb->value, nf4a8_value, sizeof nf4a8_value);
    cb->n = 16;
    cb->has_cuts = 1;
    for (int k = 0; k < 7; k++)
        cb->cut[6 - k] = -nf4a8_threshold[k];
    for (int k = 0; k < 8; k++)
        cb->cut[7 + k] = before(nf4a8_threshold[k]);
}

static void build_even(struct qm_codebook *cb, int low, int n, float divisor)
{
    cb->n = n;
    cb->base = low;
    cb->steps = divisor;
    for (int k = 0; k < n; k++)
        cb->value[k] = (float)(low + k) / divisor;
}

/* Positions: -448 .. -2^-9 (codes 0xfe down to 0x81), 0, 2^-9 .. 448; then -0, NaN, -NaN. */
static void build_e4m3(struct qm_codebook *cb)
{
    cb->n = 253;
    cb->is_permuted = cb->is_float = 1;
    for (int k = 0; k < 256; k++) {
        static const uint8_t others[3] = {0x80, 0x7f, 0xff};
        int code = k < 126 ? 0xfe - k : k < 253 ? k - 126 : others[k - 253];
        cb->perm[k] = (uint8_t)code;
        cb->position_of[code] = (uint8_t)k;
        cb->value[k] = qm_e4m3_to_float((uint8_t)code);
    }
    cb->over = 448.0f;
    cb->gain = 1.0f / 448.0f;
}

int qm_map_allows(enum qm_map map, int bits, int sign)
{
    return bits >= maps[map].from && bits <= maps[map].to && (maps[map].signs & (sign ? 2 : 1));
}

void qm_codebook_build(enum qm_map map, int bits, int sign, struct qm_codebook *out)
{
    static const int exponent_bits[9] = {0, 0, 1, 2, 2, 3, 3, 4, 4}; /* lpmm create_fp8_map */
    int half = 1 << (bits - 1);
    assert(qm_map_allows(map, bits, sign));
    memset(out, 0, sizeof *out);
    out->gain = out->post = 1.0f;
    switch (map) {
    case QM_MAP_int:
        build_even(out, -half, 2 * half, 1.0f);
        out->gain = 1.0f / (float)(half - 1);
        break;
    case QM_MAP_intm: build_even(out, -half, 2 * half, (float)half); break;
    case QM_MAP_lint:
        if (sign)
            build_even(out, 1 - half, 2 * half - 1, (float)(half - 1));
        else
            build_even(out, 0, 2 * half, (float)(2 * half - 1));
        break;
    case QM_MAP_nf4:
        memcpy(out->value, nf4_value, sizeof nf4_value);
        memcpy(out->cut, nf4_cut, sizeof nf4_cut);
        out->n = 16;
        out->has_cuts = 1;
        break;
    case QM_MAP_nf4a8: build_nf4a8(out); break;
    case QM_MAP_nf4s: build_nf4s(out); break;
    case QM_MAP_af4: build_af4(out); break;
    case QM_MAP_fp4: build_fp4(out, 0); break;
    case QM_MAP_fp4s: build_fp4(out, 1); break;
    case QM_MAP_dyn: build_dynamic(out, bits, sign, linspace); break;
    case QM_MAP_dyndef: build_dynamic_defect(out); break;
    case QM_MAP_de: build_dynamic(out, bits, sign, linspace_avx2); break;
    case QM_MAP_de0:
        build_dynamic(out, bits, sign, linspace_avx2);
        if (!sign)
            out->value[0] = out->value[1];
        break;
    case QM_MAP_lin: build_power(out, bits, sign, 1); break;
    case QM_MAP_lin0: build_lin0(out, bits, sign); break;
    case QM_MAP_linb:
        linspace(-1.0f, 1.0f, 256, out->value);
        out->n = 256;
        break;
    case QM_MAP_pow2: build_power(out, bits, sign, 2); break;
    case QM_MAP_pow3: build_power(out, bits, sign, 3); break;
    case QM_MAP_fpx: build_float_point(out, bits, sign, exponent_bits[bits]); break;
    case QM_MAP_fp52: build_float_point(out, bits, sign, 5); break;
    case QM_MAP_e4m3: build_e4m3(out); break;
    case QM_MAP_log:
    case QM_MAP_logf:
        for (int k = 0; k < 256; k++)
            out->value[k] = map == QM_MAP_log ? (float)k : (float)k * (1.0f / 255.0f);
        out->n = 256;
        out->steps = 255.0f;
        out->post = map == QM_MAP_log ? 1.0f / 255.0f : 1.0f;
        break;
    case QM_MAP_COUNT: break;
    }
    out->zero = -1;
    for (int k = 0; k < out->n; k++) {
        if (out->value[k] == 0.0f && (out->zero < 0 || !signbit(out->value[k])))
            out->zero = k;
        if (!out->is_permuted)
            out->perm[k] = (uint8_t)k;
        out->position_of[out->perm[k]] = (uint8_t)k;
    }
}
