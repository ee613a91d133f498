/* map.c - Builds the codebooks in float32, each in its source's own order of operations. */
#include "core/quant/map.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/fp8.h"

static const struct {
    int from, to, signs;
} maps[] = {
#define X(name, from, to, signs, text) {from, to, signs},
    QM_MAP_LIST(X)
#undef X
};

/* QLoRA's table, with every digit as printed in its appendix and in bitsandbytes functional.py. */
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

/* bitsandbytes csrc/kernels.cu, dQuantizeNF4: the thresholds t of its decision tree; x > t
 * goes up. */
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

/* adafactor8bit 0.2.4, kernels.cu, find_nearest_nf4: thresholds on |x|; |x| < t stays below.  The
 * table above has no -0.8641379, yet the threshold towards it separates -0.6961928 from -1. */
static const float nf4a8_threshold[8] = {
    0.0397901f, 0.1262246f, 0.2234769f, 0.3317961f, 0.4572902f, 0.6106329f, 0.7801653f, 0.9320689f,
};

/* bitsandbytes functional.py, get_4bit_type("af4"): code 0 is the first. */
static const float af4_code[16] = {
    1.0f,        0.72424863f,  0.55496234f,  0.42563882f,  0.31675666f,  0.21961274f,
    0.12934483f, 0.04273164f,  0.0f,         -0.04934812f, -0.14982478f, -0.25607552f,
    -0.3736951f, -0.51243739f, -0.69441008f, -1.0f,
};

/* bitsandbytes: magnitudes of FP4 in code order, codes by ascending magnitude, and the thresholds
 * of dQuantizeFP4 on |x|, of which |x| must be above. */
static const float fp4_code[8] = {0.0f,         0.00520833349f, 0.666666687f, 1.0f,
                                  0.333333343f, 0.5f,           0.166666672f, 0.25f};
static const int fp4_order[8] = {0, 1, 6, 7, 4, 5, 2, 3};
static const float fp4_threshold[7] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f,
                                       0.4166667f,  0.583333f,  0.8333333f};

/* kernels_muon.py of the fork of bitsandbytes: magnitudes and thresholds of NVFP4 in sixths; |x| of
 * at least a threshold goes outward. */
static const float nvfp4_sixths[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
static const float nvfp4_threshold[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

/* The next float below x. */
static float before(float x) { return qm_unordered(qm_ordered(x) - 1); }

/* torch.linspace of PyTorch 2 on CPU: each half from its own end, one fused multiply-add each. */
static void linspace(float a, float b, int n, float *out)
{
    float step = (b - a) / (float)(n - 1);
    for (int j = 0; j < n; j++)
        out[j] = j < n / 2 ? fmaf(step, (float)j, a) : fmaf(-step, (float)(n - 1 - j), b);
}

/* torch.linspace of PyTorch 1.13, AVX2 build, which made lpmm's tables: two chunks of 8 lanes at a
 * time; the base of a chunk is one fused multiply-add, the offsets are rounded products. */
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

/* arXiv:1511.04561 and create_dynamic_map of bitsandbytes, torchao and lpmm: decade i has the
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

/* create_dynamic_map of bitsandbytes 0.36.0 to 0.41.0, unsigned: counting 8 bits besides the sign,
 * instead of 7, doubles the cells, and every decade also gets the two cells meant for the last. */
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

/* |t|^p with the sign of t, 1 <= p <= 3. */
static float power_of(float t, int p)
{
    float a = fabsf(t), r = p == 1 ? a : p == 2 ? a * a : a * a * a;
    return copysignf(r, t);
}

/* lpmm create_pow_map; unsigned maps have no zero. */
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

/* bitsandbytes create_linear_map; a signed map has 2^b - 1 values, and a second zero fills
 * the table. */
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
    /* the middle of t is 0 or within one ulp of 1 from 0; the added zero goes where it sorts */
    int below = t[n / 2 - 1] < 0.0f;
    for (int k = 0; k < n; k++)
        cb->value[k] = k < n / 2 - 1 + below ? t[k] : k == n / 2 - 1 + below ? 0.0f : t[k - 1];
}

/* low-bit-Shampoo qtensor/functional.py, create_linear_map: "linear-2". */
static void build_lin2(struct qm_codebook *cb, int bits)
{
    cb->n = 1 << bits;
    linspace(-1.0f, 1.0f, cb->n, cb->value);
    cb->value[cb->n / 2 - 1] = 0.0f;
    for (int k = 0; k < cb->n; k++)
        cb->value[k] = power_of(cb->value[k], 2);
}

/* lpmm create_fp8_map with e exponent bits; a larger exponent field means a smaller value. */
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

/* By ascending value the codes are 11 10 13 12 15 14 9 | 8 0 | 1 6 7 4 5 2 3, where 8 is -0 and 0
 * is +0; plus_zero_first swaps these two. */
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

/* By ascending value the codes are 15 ... 9 8 | 0 1 ... 7, where 8 is -0 and 0 is +0. */
static void build_nvfp4(struct qm_codebook *cb)
{
    cb->n = 16;
    cb->is_permuted = cb->has_cuts = 1;
    for (int k = 0; k < 8; k++) {
        cb->value[8 + k] = nvfp4_sixths[k] / 6.0f;
        cb->value[7 - k] = -cb->value[8 + k];
        cb->perm[8 + k] = (uint8_t)k;
        cb->perm[7 - k] = (uint8_t)(k + 8);
    }
    cb->cut[7] = -1.40129846e-45f; /* every negative number, however small, lies below +0 */
    for (int k = 0; k < 7; k++) {
        float t = nvfp4_threshold[k] / 6.0f;
        cb->cut[8 + k] = before(t);
        cb->cut[6 - k] = -t;
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

/* n values (low + k) / divisor. */
static void build_even(struct qm_codebook *cb, int low, int n, float divisor)
{
    cb->n = n;
    cb->base = low;
    cb->steps = divisor;
    for (int k = 0; k < n; k++)
        cb->value[k] = (float)(low + k) / divisor;
}

/* Positions 0 to 252 are -448 .. -2^-9 (codes 0xfe down to 0x81), 0 and 2^-9 .. 448; then follow
 * -0, NaN and -NaN. */
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

/* The evenly spaced maps int, intd, intm and lint of map.h. */
static void build_integers(struct qm_codebook *cb, enum qm_map map, int bits, int sign)
{
    int half = 1 << (bits - 1);
    if (map == QM_MAP_int) {
        build_even(cb, -half, 2 * half, 1.0f);
        cb->gain = 1.0f / (float)(half - 1);
    } else if (map == QM_MAP_intd) {
        build_even(cb, 1 - half, 2 * half - 1, 1.0f);
        cb->over = (float)(half - 1);
        cb->gain = 1.0f / cb->over;
    } else if (map == QM_MAP_intm) {
        build_even(cb, -half, 2 * half, (float)half);
    } else if (sign) {
        build_even(cb, 1 - half, 2 * half - 1, (float)(half - 1));
    } else {
        build_even(cb, 0, 2 * half, (float)(2 * half - 1));
    }
}

static void build_nf4(struct qm_codebook *cb)
{
    memcpy(cb->value, nf4_value, sizeof nf4_value);
    memcpy(cb->cut, nf4_cut, sizeof nf4_cut);
    cb->n = 16;
    cb->has_cuts = 1;
}

static void build_linb(struct qm_codebook *cb, int bits)
{
    cb->n = 1 << bits;
    linspace(-1.0f, 1.0f, cb->n, cb->value);
}

/* The codes of the range above 2^-126 in curve log2: in code units (log) or as fractions (logf). */
static void build_log(struct qm_codebook *cb, int is_fraction)
{
    for (int k = 0; k < 256; k++)
        cb->value[k] = is_fraction ? (float)k * (1.0f / 255.0f) : (float)k;
    cb->n = 256;
    cb->steps = 255.0f;
    cb->post = is_fraction ? 1.0f : 1.0f / 255.0f;
}

/* The codes of adaptive_log.h as fractions of the block's span; code 0 stands for x = 0. */
static void build_adaptive_log(struct qm_codebook *cb)
{
    for (int k = 0; k < 256; k++)
        cb->value[k] = k ? (float)(k - 1) / 254.0f : 0.0f;
    cb->n = 256;
    cb->steps = 254.0f;
    cb->base = -1;
}

/* The codes of quantile_log.h as exponents of the block's alpha. */
static void build_quantile_log(struct qm_codebook *cb, int bits)
{
    build_even(cb, 0, 1 << bits, 1.0f);
}

/* Completes a table: the position of zero, and the codes of positions and back. */
static void index_codes(struct qm_codebook *cb)
{
    cb->zero = -1;
    for (int k = 0; k < cb->n; k++) {
        if (cb->value[k] == 0.0f && (cb->zero < 0 || !signbit(cb->value[k])))
            cb->zero = k;
        if (!cb->is_permuted)
            cb->perm[k] = (uint8_t)k;
        cb->position_of[cb->perm[k]] = (uint8_t)k;
    }
}

int qm_map_allows(enum qm_map map, int bits, int sign)
{
    return bits >= maps[map].from && bits <= maps[map].to && (maps[map].signs & (sign ? 2 : 1));
}

void qm_codebook_build(enum qm_map map, int bits, int sign, struct qm_codebook *out)
{
    static const int exponent_bits[9] = {0, 0, 1, 2, 2, 3, 3, 4, 4}; /* lpmm create_fp8_map */
    assert(qm_map_allows(map, bits, sign));
    memset(out, 0, sizeof *out);
    out->gain = out->post = 1.0f;
    switch (map) {
    case QM_MAP_int:
    case QM_MAP_intd:
    case QM_MAP_intm:
    case QM_MAP_lint: build_integers(out, map, bits, sign); break;
    case QM_MAP_nf4: build_nf4(out); break;
    case QM_MAP_nf4a8: build_nf4a8(out); break;
    case QM_MAP_nf4s: build_nf4s(out); break;
    case QM_MAP_af4: build_af4(out); break;
    case QM_MAP_fp4: build_fp4(out, 0); break;
    case QM_MAP_fp4s: build_fp4(out, 1); break;
    case QM_MAP_nvfp4: build_nvfp4(out); break;
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
    case QM_MAP_linb: build_linb(out, bits); break;
    case QM_MAP_pow2: build_power(out, bits, sign, 2); break;
    case QM_MAP_lin2: build_lin2(out, bits); break;
    case QM_MAP_pow3: build_power(out, bits, sign, 3); break;
    case QM_MAP_fpx: build_float_point(out, bits, sign, exponent_bits[bits]); break;
    case QM_MAP_fp52: build_float_point(out, bits, sign, 5); break;
    case QM_MAP_e4m3: build_e4m3(out); break;
    case QM_MAP_log: build_log(out, 0); break;
    case QM_MAP_logf: build_log(out, 1); break;
    case QM_MAP_al: build_adaptive_log(out); break;
    case QM_MAP_qlog: build_quantile_log(out, bits); break;
    case QM_MAP_affine: build_even(out, 0, 1 << bits, (float)((1 << bits) - 1)); break;
    case QM_MAP_COUNT: break;
    }
    index_codes(out);
}
