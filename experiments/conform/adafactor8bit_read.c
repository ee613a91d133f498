/* adafactor8bit_read.c - Reads recorded states of adafactor8bit, and judges what no step makes.
 *
 * That is the padding of the last block, and whether a state has codes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/quant/adaptive_log.h"
#include "experiments/conform/adafactor8bit_steps.h"

int64_t qm_adafactor8_slot_numel(const struct qm_adafactor8_replay *r, int i)
{
    struct qm_shape own;
    qm_rule_slot_shape(r->recipe.rule, &r->recipe.hyper, i, &r->shape, &own);
    return qm_shape_numel(&own);
}

/* What the padding of the last block holds: zero, the code of 0; and nan, that of 0 / NaN where the
 * scale of the block is NaN; -1: no code of its own, but 0 or the code of 0. */
struct padding {
    int64_t zero, nan;
};

/* The padding of the last block in a step is the code of 0, that of a NaN where the scale is one,
 * or 0 where the block is not finite. */
static void judge_padding(struct qm_conform *c, const char *name, int64_t t, int64_t at,
                          int64_t code, const struct padding *p, float scale)
{
    int is_nan = isnan(scale) && p->nan >= 0;
    int64_t own = is_nan ? p->nan : p->zero;
    if (code != own && (code != 0 || isfinite(scale) || is_nan) && qm_golden_case_open(c))
        qm_golden_case_differs(c, "step %lld %s[%lld], padding: got 0x%02llx, want 0x%02llx",
                               (long long)t + 1, name, (long long)at, (unsigned long long)own,
                               (unsigned long long)code);
    c->now.compared++;
}

/* Reads codes of every step, unpacked, and judges their padding; padding NULL: the kernels wrote
 * the codes, which leave it as the memory was. */
static int64_t *codes_read(struct qm_conform *c, const char *name,
                           const struct qm_adafactor8_recorded *s, int bits, int64_t block,
                           int64_t steps, const struct padding *padding)
{
    int64_t total = qm_golden_case_numel(c, name), row = steps > 0 ? total / steps : 0, n = s->n;
    int64_t *out = qm_golden_case_memory(c, steps * n, sizeof *out);
    const int64_t *bytes = qm_golden_case_ints(c, name, steps * row);
    int64_t had = row * 8 / bits;
    if (!out || !bytes || !s->scales)
        return NULL;
    int64_t even = (n * bits + 7) / 8 * 8 / bits; /* without padding */
    if (s->n_scales != (n + block - 1) / block || (had != even && had != s->n_scales * block)) {
        qm_golden_case_unreadable(c, "%s: %lld codes and %lld scales recorded for %lld elements",
                                  name, (long long)had, (long long)s->n_scales, (long long)n);
        return NULL;
    }
    for (int64_t t = 0; t < steps; t++)
        for (int64_t i = 0; i < had; i++) {
            int64_t byte = bytes[t * row + (bits == 4 ? i / 2 : i)];
            int64_t code = bits == 8 ? byte : i % 2 ? byte & 15 : byte >> 4;
            if (i < n)
                out[t * n + i] = code;
            else if (padding)
                judge_padding(c, name, t, i, code, padding, s->scales[(t + 1) * s->n_scales - 1]);
        }
    return out;
}

/* Each scale is followed by the logarithm of the smallest number of its block. */
static void two_scales(struct qm_conform *c, struct qm_adafactor8_recorded *s, const float *low,
                       int64_t steps)
{
    float *out = qm_golden_case_memory(c, 2 * steps * s->n_scales, sizeof *out);
    for (int64_t k = 0; out && low && s->scales && k < steps * s->n_scales; k++) {
        out[2 * k] = s->scales[k];
        out[2 * k + 1] = low[k];
    }
    s->scales = low && s->scales ? out : NULL;
    s->n_scales *= 2;
    s->is_two = 1;
}

int qm_adafactor8_quantized_read(struct qm_conform *c, struct qm_adafactor8_replay *r, int i,
                                 const char *name, const char *text, int init_code,
                                 float init_scale)
{
    char codes[64], scale[64], low[64];
    struct qm_adafactor8_recorded *s = &r->slot[i];
    snprintf(codes, sizeof codes, "%s_q", name);
    snprintf(scale, sizeof scale, "%s_scale", name);
    s->n_scales = qm_golden_case_per(c, scale, r->steps);
    struct qm_codec codec;
    if (qm_codec_parse(&codec, text) != QM_OK) {
        qm_golden_case_failed(c);
        return 0;
    }
    s->scales = qm_golden_case_floats(c, scale, r->steps * s->n_scales);
    snprintf(low, sizeof low, "%s_min_log", name);
    int is_adaptive = strncmp(text, "al:", 3) == 0 || qm_golden_case_has(c, low);
    struct padding padding = {is_adaptive ? 0 : codec.cb.perm[qm_code_of(&codec, 0.0f, 0)], -1};
    if (codec.q.scale.nan == QM_NAN_top)
        padding.nan = codec.cb.perm[codec.cb.n - 1];
    s->codes = codes_read(c, codes, s, codec.q.bits, codec.q.block, r->steps,
                          r->recipe.state_stored ? NULL : &padding);
    if (is_adaptive)
        two_scales(c, s, qm_golden_case_floats(c, low, r->steps * s->n_scales), r->steps);
    return s->codes && s->scales && qm_run_quantizer(c, &r->recipe, i, text, init_code, init_scale);
}

/* Reads 16-bit adaptive log codes, and what they decode to. */
int qm_adafactor8_wide_read(struct qm_conform *c, struct qm_adafactor8_replay *r, int i,
                            const char *name, int64_t block)
{
    char path[64];
    struct qm_adafactor8_recorded *s = &r->slot[i];
    snprintf(path, sizeof path, "%s_scale", name);
    s->n_scales = qm_golden_case_per(c, path, r->steps);
    s->scales = qm_golden_case_floats(c, path, r->steps * s->n_scales);
    snprintf(path, sizeof path, "%s_min_log", name);
    const float *low = qm_golden_case_floats(c, path, r->steps * s->n_scales);
    snprintf(path, sizeof path, "%s_q", name);
    int64_t row = qm_golden_case_per(c, path, r->steps);
    const int64_t *all = qm_golden_case_ints(c, path, r->steps * row);
    int64_t *codes = qm_golden_case_memory(c, r->steps * s->n, sizeof *codes);
    float *values = qm_golden_case_memory(c, r->steps * s->n, sizeof *values);
    if (!s->scales || !low || !all || !codes || !values)
        return 0;
    if (s->n_scales != (s->n + block - 1) / block || (row != s->n && row != s->n_scales * block)) {
        qm_golden_case_unreadable(c, "%s: %lld codes and %lld scales recorded for %lld elements",
                                  name, (long long)row, (long long)s->n_scales, (long long)s->n);
        return 0;
    }
    for (int64_t t = 0; t < r->steps; t++)
        for (int64_t k = s->n; k < row; k++)
            judge_padding(c, name, t, k, all[t * row + k] & (QM_ADAFACTOR8_WIDE_LEVELS - 1),
                          &(struct padding){0, -1}, 0.0f);
    two_scales(c, s, low, r->steps);
    for (int64_t k = 0; k < r->steps * s->n && s->scales; k++) {
        const float *at = s->scales + k / s->n * s->n_scales + k % s->n / block * 2;
        codes[k] = all[k / s->n * row + k % s->n] & (QM_ADAFACTOR8_WIDE_LEVELS - 1);
        values[k] =
            qm_adaptive_log_value((uint32_t)codes[k], at[0], at[1], QM_ADAFACTOR8_WIDE_LEVELS);
    }
    s->block = block;
    s->is_wide = 1;
    s->n_kept = r->steps;
    s->codes = codes;
    s->values = values;
    return s->scales && qm_run_quantizer(c, &r->recipe, i, "f32", 0, 0.0f);
}

/* Reads float states at the steps that attribute step_index_NAME lists. */
int qm_adafactor8_values_read(struct qm_conform *c, struct qm_adafactor8_replay *r, int i,
                              const char *name)
{
    struct qm_adafactor8_recorded *s = &r->slot[i];
    char path[QM_GOLDEN_PATH + 8], attribute[96];
    const char *stem = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    snprintf(path, sizeof path, "%s/state", c->group);
    snprintf(attribute, sizeof attribute, "step_index_%s", stem);
    s->n_kept = qm_golden_numbers(c->file, path, attribute, NULL, 0);
    if (s->n_kept > 0) {
        double *kept = qm_golden_case_memory(c, s->n_kept, sizeof *kept);
        if (!kept)
            return 0;
        qm_golden_numbers(c->file, path, attribute, kept, (int)s->n_kept);
        s->kept = kept;
    } else {
        s->n_kept = r->steps;
    }
    s->values = qm_golden_case_floats(c, name, s->n_kept * s->n);
    return s->values != NULL;
}

/* The word of the format of slot i in 0.4.x; of the confidence that of squares where it is None. */
static void format_of(struct qm_conform *c, int i, char *out, size_t size)
{
    int is_confidence = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
    if (i == QM_ADAFACTOR8_M)
        qm_golden_case_text(c, "hp_m_quant_type", out, size);
    else if (!is_confidence || !qm_golden_case_text(c, "hp_c_quant_type", out, size) ||
             strcmp(out, "none") == 0)
        qm_golden_case_text(c, "hp_v_quant_type", out, size);
}

int qm_adafactor8_format_judge(struct qm_conform *c, const struct qm_adafactor8_replay *r, int i,
                               const char *name, int is_apollo, int is_coded)
{
    char format[16] = "";
    double quantizes = qm_golden_case_number(c, "hp_quantize", (double)NAN),
           least = qm_golden_case_number(c, "hp_min_8bit_size", (double)NAN);
    int is_factor = i == QM_ADAFACTOR8_ROW || i == QM_ADAFACTOR8_COL;
    if (isnan(quantizes) || isnan(least))
        return qm_golden_case_open(c);
    format_of(c, i, format, sizeof format);
    int has_codes = quantizes != 0.0 && (double)r->n >= least && strcmp(format, "fp32") != 0 &&
                    i != QM_ADAFACTOR8_NORM && !(is_apollo && is_factor);
    if (has_codes != is_coded)
        qm_golden_case_differs(c,
                               "%s has %s, want %s: %lld elements, hp_quantize %g, "
                               "hp_min_8bit_size %g%s%s",
                               name, is_coded ? "codes" : "no codes",
                               has_codes ? "codes" : "float32", (long long)r->n, quantizes, least,
                               format[0] ? ", format " : "", format);
    return qm_golden_case_open(c);
}
