/* adafactor8bit.c - Replays the golden vectors of adafactor8bit, 0.2.1 to 0.4.6.
 *
 * Attribute kind names the layout of a case.  The first part of the group's name names the format,
 * the release and the path: uf4 or nf4 or uf8 or d4 or d8, 022 to 043, torch or cudahost.
 * variants/README.md lists the formats by release, tests/golden/README.md the tolerances. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/quant/adaptive_log.h"
#include "core/rule/param.h"
#include "experiments/conform/adafactor8bit.h"
#include "experiments/conform/adafactor8bit_steps.h"
#include "experiments/conform/code_edges.h"

/* Formats by the first part of a group's name. */
static const struct {
    const char *group;
    struct qm_adafactor8_release release;
} releases[] = {
    {"uf4_022_torch", {"int:4s", "arith/even/hi/floor:1e-12", 8, 0, 0}},
    {"uf4_022_cudahost", {"int:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8, 0, 1}},
    {"nf4_024_torch", {"nf4a8:4s", "argmin/mid/hi/floor:1e-12", 7, 0, 0}},
    {"nf4_024_cudahost", {"nf4a8:4s", "ladder/mid/hi/recip/floor:1e-12/maxskip", 7, 0, 1}},
    {"uf4_026_torch", {"intm:4s", "arith/even/hi/floor:1e-12", 8, 1, 0}},
    {"uf4_026_cudahost", {"intm:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8, 1, 1}},
    {"uf4_043_torch", {"intm:4s", "arith/even/hi/floor:1e-12", 8, 1, 0}},
    {"d4_043_torch", {"de:4s", "lower/mid/hi/floor:1e-12/nantop", 7, 1, 0}},
    {"d8_043_torch", {"de:8s", "lower/mid/floor:1e-12/nantop", 127, 1, 0}},
    {"uf8_043_torch", {"intm:8s", "arith/even/floor:1e-12", 128, 1, 0}},
    {"uf4_046_torch", {"intm:4s", "arith/even/hi/floor:1e-12", 8, 1, 0}},
    {"d4_046_torch", {"de:4s", "lower/mid/hi/floor:1e-12/nantop", 7, 1, 0}},
    {"d8_046_torch", {"de:8s", "lower/mid/floor:1e-12/nantop", 127, 1, 0}},
    {"uf8_046_torch", {"intm:8s", "arith/even/floor:1e-12", 128, 1, 0}},
};
enum { RELEASES = sizeof releases / sizeof *releases };

void qm_adafactor8_moment_text(const struct qm_adafactor8_release *r, int64_t block,
                               char text[QM_QUANTIZER_TEXT])
{
    snprintf(text, QM_QUANTIZER_TEXT, "%s/block:%lld/%s", r->map, (long long)block, r->words);
}

void qm_adafactor8_square_text(int is_cuda, double cap, int64_t block, char text[QM_QUANTIZER_TEXT])
{
    if (is_cuda)
        snprintf(text, QM_QUANTIZER_TEXT, "logf:8u/logblock:%lld/arith/near/recip/cap:%g/maxskip",
                 (long long)block, cap + 126.0);
    else
        snprintf(text, QM_QUANTIZER_TEXT, "log:8u/logblock:%lld/arith/even/floor:1e-12",
                 (long long)block);
}

static int release_of(const char *group)
{
    int k = 0;
    const char *name = strncmp(group, "m_ema_", 6) == 0 ? group + 6 : group;
    while (k < RELEASES && strncmp(releases[k].group, name, strlen(releases[k].group)) != 0)
        k++;
    return k;
}

/* Whether torch 2 made the recording.  Its linspace gives the dynamic map of 8 bits the entries of
 * torchao's, torch 1.13 the ones of lpmm's: 42 entries are up to 2 ulp apart. */
static int is_torch_2(struct qm_conform *c)
{
    char version[32];
    return qm_golden_text(c->file, "", "torch_version", version, sizeof version) &&
           version[0] == '2';
}

/* x, codes_packed (4 bits) or codes, scale, dequant; the last block is filled with zeros. */
static void replay_quantizer(struct qm_conform *c, const char *group)
{
    struct qm_codec codec;
    int64_t block = qm_golden_case_whole(c, "block_size", 0), n = qm_golden_case_numel(c, "x"),
            padded = 0;
    int k = release_of(group);
    if (k == RELEASES || block < 1) {
        qm_golden_case_skip(c, "%.20s: this code is not built", group);
        return;
    }
    char text[QM_QUANTIZER_TEXT];
    struct qm_adafactor8_release release = releases[k].release;
    if (strcmp(release.map, "de:8s") == 0 && is_torch_2(c))
        release.map = "dyn:8s";
    qm_adafactor8_moment_text(&release, block, text);
    if (!qm_golden_case_codec(c, &codec, "%s", text))
        return;
    const float *x = qm_golden_case_padded(c, qm_golden_case_floats(c, "x", n), n, block, &padded);
    struct qm_shape shape = qm_shape_flat(padded);
    struct qm_golden_run want = {.n_dequant = n};
    const char *name = qm_golden_case_has(c, "codes_packed") ? "codes_packed" : "codes";
    want.packed_bytes = qm_golden_case_numel(c, name);
    want.packed = qm_golden_case_ints(c, name, qm_code_bytes(&codec, padded));
    want.codes = qm_golden_case_unpacked(c, codec.q.pack, codec.q.bits, want.packed, padded);
    want.scales = qm_golden_case_floats(c, "scale", padded / block);
    want.dequant = qm_golden_case_floats(c, "dequant", n);
    qm_match_quantizer(c, &codec, &shape, x, &want);
}

/* ---- the 8-bit code in log space ---- */

/* A code may be the next one where the number lies at the edge, for the logarithms of two libraries
 * differ in the last places. */
static void judge_log(struct qm_conform *c, const uint8_t *got, const int64_t *want, const float *x,
                      const float *scales, int64_t n, int64_t block)
{
    int64_t off = 0;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++)
        off += qm_code_judge(c, "code", i, got[i], want[i],
                             qm_code_range_log(NULL, (double)x[i], 0.0, (double)scales[i / block]));
    qm_match_count(c, "code", off, n);
}

/* The adaptive log code in 16 bits: no slot can hold its codes, so the element functions are
 * judged: about 2e-3 of the codes lie within the errors of their logarithms of an edge. */
static void replay_wide(struct qm_conform *c, int64_t block, int64_t n, int levels)
{
    int64_t blocks = (n + block - 1) / block, off = 0;
    const float *x = qm_golden_case_floats(c, "x", n),
                *dequant = qm_golden_case_floats(c, "dequant", n);
    const float *span = qm_golden_case_floats(c, "scale", blocks);
    const float *low = qm_golden_case_floats(c, "min_log", blocks);
    const int64_t *codes = qm_golden_case_ints(c, "codes", blocks * block);
    float *out = qm_golden_case_memory(c, n, sizeof *out);
    snprintf(c->now.how, sizeof c->now.how, "the element functions of allog, %d levels", levels);
    if (!x || !dequant || !span || !low || !codes || !out)
        return;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t end = (b + 1) * block < n ? (b + 1) * block : n;
        float got[2], want[2] = {span[b], low[b]};
        qm_adafactor8_wide_numbers(x + b * block, end - b * block, 0.0f, &got[0], &got[1]);
        qm_match_close(c, "span, low", got, want, 2, 1e-6, 0.0);
        for (int64_t i = b * block; i < end; i++) {
            off += qm_code_judge(
                c, "code", i, qm_adaptive_log_code(x[i], span[b], low[b], levels), codes[i],
                qm_code_range_adaptive((double)x[i], (double)span[b], (double)low[b], levels));
            out[i] = qm_adaptive_log_value((uint32_t)codes[i], span[b], low[b], levels);
        }
    }
    qm_match_count(c, "code", off, n);
    qm_match_close(c, "decoded", out, dequant, n, 1e-5, 0.0);
}

/* The adaptive log code, which stores two numbers per block. */
static void replay_adaptive(struct qm_conform *c)
{
    struct qm_codec codec;
    int64_t block = qm_golden_case_whole(c, "block_size", 0), n = qm_golden_case_numel(c, "x"),
            padded = 0;
    int64_t levels = qm_golden_case_whole(c, "n_levels", 256);
    if (block < 1) {
        qm_golden_case_skip(c, "block_size is missing");
        return;
    }
    if (levels != 256) {
        replay_wide(c, block, n, (int)levels);
        return;
    }
    if (!qm_golden_case_codec(c, &codec, "al:8u/block:%lld/arith/even/allog", (long long)block))
        return;
    float *x = qm_golden_case_padded(c, qm_golden_case_floats(c, "x", n), n, block, &padded);
    struct qm_shape shape = qm_shape_flat(padded);
    int64_t blocks = padded / block;
    const int64_t *want = qm_golden_case_ints(c, "codes", padded);
    const float *span = qm_golden_case_floats(c, "scale", blocks);
    const float *low = qm_golden_case_floats(c, "min_log", blocks);
    const float *dequant = qm_golden_case_floats(c, "dequant", n);
    uint8_t *got = qm_golden_case_memory(c, padded, 1);
    float *numbers = qm_golden_case_memory(c, 2 * blocks, sizeof *numbers);
    float *wanted = qm_golden_case_memory(c, 2 * blocks, sizeof *wanted);
    float *out = qm_golden_case_memory(c, padded, sizeof *out);
    if (!x || !want || !span || !low || !dequant || !got || !numbers || !wanted || !out)
        return;
    for (int64_t b = 0; b < blocks; b++) {
        wanted[2 * b] = span[b];
        wanted[2 * b + 1] = low[b];
    }
    qm_status st = qm_encode(&codec, &shape, x, NULL, got, numbers);
    if (st != QM_OK) {
        qm_golden_case_stopped(c, st);
        return;
    }
    qm_match_close(c, "span, low", numbers, wanted, 2 * blocks, 1e-6, 0.0);
    int64_t off = 0;
    for (int64_t i = 0; i < padded && qm_golden_case_open(c); i++)
        off += qm_code_judge(c, "code", i, got[i], want[i],
                             qm_code_range_adaptive((double)x[i], (double)span[i / block],
                                                    (double)low[i / block], 256));
    qm_match_count(c, "code", off, padded);
    for (int64_t i = 0; i < padded; i++)
        got[i] = (uint8_t)want[i];
    qm_decode(&codec, &shape, got, wanted, out);
    qm_match_close(c, "decoded", out, dequant, n, 1e-5, 0.0);
}

static void replay_log(struct qm_conform *c, int cuda)
{
    struct qm_codec codec;
    int64_t block = qm_golden_case_whole(c, "block_size", 0), n = qm_golden_case_numel(c, "x"),
            padded = 0;
    if (block < 1) {
        qm_golden_case_skip(c, "block_size is missing");
        return;
    }
    if (cuda ? !qm_golden_case_codec(
                   c, &codec, "logf:8u/logblock:%lld/arith/near/recip/cap:%g/maxskip",
                   (long long)block, qm_golden_case_number(c, "cap", 126.0) + 126.0)
             : !qm_golden_case_codec(c, &codec, "log:8u/logblock:%lld/arith/even/floor:1e-12",
                                     (long long)block))
        return;
    float *x = qm_golden_case_padded(c, qm_golden_case_floats(c, "x", n), n, block, &padded);
    struct qm_shape shape = qm_shape_flat(padded);
    for (int64_t i = 0; cuda && x && i < n; i++) /* the kernel replaces what is not finite */
        x[i] = isfinite(x[i]) ? x[i] : 0.0f;
    const int64_t *want = qm_golden_case_ints(c, "codes", padded);
    const float *scale = qm_golden_case_floats(c, "scale", padded / block);
    const float *dequant =
        qm_golden_case_has(c, "dequant") ? qm_golden_case_floats(c, "dequant", n) : NULL;
    uint8_t *got = qm_golden_case_memory(c, padded, 1);
    float *scales = qm_golden_case_memory(c, padded / block, sizeof *scales);
    float *out = qm_golden_case_memory(c, padded, sizeof *out);
    if (!x || !want || !scale || !got || !scales || !out)
        return;
    qm_status st = qm_encode(&codec, &shape, x, NULL, got, scales);
    if (st != QM_OK) {
        qm_golden_case_stopped(c, st);
        return;
    }
    qm_match_close(c, "scale", scales, scale, padded / block, 1e-6, 0.0);
    judge_log(c, got, want, x, scale, n, block);
    for (int64_t i = 0; i < padded; i++)
        got[i] = (uint8_t)want[i];
    qm_decode(&codec, &shape, got, scale, out);
    if (dequant)
        qm_match_close(c, "decoded", out, dequant, n, 1e-5, 0.0);
}

/* ---- functions and averages ---- */

/* x is a unit value: the code by the kernel's thresholds, and the nearest code of the
 * same table. */
static void replay_function(struct qm_conform *c)
{
    static const struct {
        const char *dataset, *quantizer;
    } part[2] = {{"code_threshold", "nf4a8:4s/tensor/ladder/mid/hi"},
                 {"code_argmin", "nf4a8:4s/tensor/argmin/mid/hi"}};
    int64_t n = qm_golden_case_numel(c, "x");
    const float *x = qm_golden_case_floats(c, "x", n);
    uint8_t *got = qm_golden_case_memory(c, n, 1);
    for (int k = 0; k < 2 && x && got; k++) {
        struct qm_codec codec;
        const int64_t *want = qm_golden_case_ints(c, part[k].dataset, n);
        if (!want || !qm_golden_case_codec(c, &codec, "%s", part[k].quantizer))
            return;
        qm_match_floats(c, "table", codec.cb.value, qm_golden_case_floats(c, "table", 16), 16);
        for (int64_t i = 0; i < n; i++)
            got[i] = (uint8_t)(qm_isnan(x[i]) ? 0 : qm_code_of(&codec, x[i], 0));
        qm_match_codes(c, part[k].dataset, got, want, n);
    }
}

static void replay_average(struct qm_conform *c, const char *group)
{
    int k = release_of(group);
    if (k == RELEASES)
        qm_golden_case_skip(c, "%.40s: this code is not built", group);
    else
        qm_adafactor8_replay_moments(c, &releases[k].release);
}

/* The dynamic maps as the recording torch makes them. */
static void replay_maps(struct qm_conform *c)
{
    qm_match_map(c, is_torch_2(c) ? "dyn" : "de", 8, 1, qm_golden_case_floats(c, "d8", 256), 256);
    qm_match_map(c, "de", 4, 1, qm_golden_case_floats(c, "d4", 16), 16);
}

/* Stochastic rounding to bfloat16: upward if rand is below the share of the cell below x. */
static void replay_rounding(struct qm_conform *c)
{
    int64_t n = qm_golden_case_numel(c, "x");
    const float *x = qm_golden_case_floats(c, "x", n), *draw = qm_golden_case_floats(c, "rand", n);
    const uint64_t *want = qm_golden_case_words(c, "y_bf16_bits", n);
    uint64_t *got = qm_golden_case_memory(c, n, sizeof *got);
    if (!x || !draw || !want || !got)
        return;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(draw[i] * 65536.0f);
        got[i] = qm_param_stochastic(QM_PARAM_bf16, x[i], bits << 16);
        int is_most = (want[i] & 0x7fffu) == 0x7f7fu; /* the source never rounds up to Inf */
        if (is_most && (got[i] & 0x7fffu) == 0x7f80u && isfinite(x[i]))
            got[i] = want[i];
        if (qm_isnan(x[i]) && (want[i] & 0x7fffu) > 0x7f80u && (got[i] & 0x7fffu) > 0x7f80u)
            got[i] = want[i]; /* any NaN equals any NaN */
    }
    qm_match_words(c, "rounded", got, want, n);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    char kind[32];
    const char *group = at->path;
    if (strcmp(group, "inputs") == 0 || !qm_golden_case_begin(c, group, NULL))
        return;
    qm_golden_case_text(c, "kind", kind, sizeof kind);
    if (strcmp(kind, "quantizer4") == 0 || strcmp(kind, "m043") == 0)
        replay_quantizer(c, group);
    else if (strcmp(kind, "log8") == 0)
        replay_log(c, 0);
    else if (strcmp(kind, "log8_cudahost") == 0)
        replay_log(c, 1);
    else if (strcmp(kind, "function") == 0)
        replay_function(c);
    else if (strcmp(kind, "m_ema") == 0)
        replay_average(c, group);
    else if (strcmp(kind, "v_ema") == 0)
        qm_adafactor8_replay_squares(c, strncmp(group, "v_ema_log8_026", 14) == 0,
                                     strstr(group, "cudahost") != NULL);
    else if (strcmp(kind, "stall") == 0)
        qm_adafactor8_replay_stall(c);
    else if (strcmp(kind, "optimizer") == 0)
        qm_adafactor8_replay_optimizer(c);
    else if (strcmp(kind, "cudahost_step") == 0)
        qm_adafactor8_replay_cudahost(c);
    else if (strcmp(kind, "maps") == 0)
        replay_maps(c);
    else if (strcmp(kind, "bf16_sr") == 0)
        replay_rounding(c);
    else if (strcmp(kind, "al") == 0)
        replay_adaptive(c);
    else
        qm_golden_case_skip(c, "unknown kind of case '%s'", kind);
    qm_golden_case_end(c);
}

void qm_conform_adafactor8bit(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
