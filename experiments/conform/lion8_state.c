/* lion8_state.c - Converts states of 8-bit Lion to and from its state dictionaries. */
#include "experiments/conform/lion8_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/recipe/recipe.h"

qm_status qm_lion8_keys(const char *const *key, int n, int *is_compressed)
{
    int plain = 0, codes = 0, scales = 0, all = 0;
    char list[256] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);
        if (strncmp(key[i], QM_LION8_PLAIN, strlen(QM_LION8_PLAIN)) != 0)
            continue;
        snprintf(list + used, sizeof list - used, "%s%s", all++ ? ", " : "", key[i]);
        plain |= strcmp(key[i], QM_LION8_PLAIN) == 0;
        codes |= strcmp(key[i], QM_LION8_CODES) == 0;
        scales |= strcmp(key[i], QM_LION8_SCALES) == 0;
    }
    if (plain && all > 1)
        return qm_fail(QM_BAD_ARG, "a momentum is plain or compressed, not both: %s", list);
    if (!plain && !(codes && scales))
        return qm_fail(QM_BAD_ARG, "a compressed momentum wants the key %s; found: %s",
                       codes ? QM_LION8_SCALES : QM_LION8_CODES, all ? list : "none");
    *is_compressed = !plain;
    return QM_OK;
}

static qm_status check_codec(const struct qm_codec *c)
{
    if (c->q.map == QM_MAP_lint && c->q.bits == 8 && c->q.sign && c->q.norm == QM_NORM_block &&
        c->q.scale.f16)
        return QM_OK;
    char text[QM_QUANTIZER_TEXT];
    return qm_fail(QM_BAD_ARG, "a compressed momentum has codes lint:8s and float16 scales, not %s",
                   qm_quantizer_print(&c->q, text));
}

qm_status qm_lion8_compress(const struct qm_codec *c, const struct qm_shape *shape,
                            const uint8_t *positions, const float *scales, int8_t *codes,
                            uint16_t *scales_f16)
{
    int64_t n = qm_shape_numel(shape), count = qm_scale_count(c, shape);
    QM_TRY(check_codec(c));
    for (int64_t i = 0; i < n; i++)
        codes[i] = (int8_t)(positions[i] + c->cb.base);
    for (int64_t i = 0; i < count; i++)
        scales_f16[i] = qm_float_to_f16(scales[i]);
    return QM_OK;
}

qm_status qm_lion8_expand(const struct qm_codec *c, const struct qm_shape *shape,
                          const int8_t *codes, const uint16_t *scales_f16, int64_t n_scales,
                          uint8_t *positions, float *scales)
{
    int64_t n = qm_shape_numel(shape), count = qm_scale_count(c, shape);
    QM_TRY(check_codec(c));
    if (n_scales != count)
        return qm_fail(QM_BAD_ARG, "%lld elements in groups of %lld have %lld scales, got %lld",
                       (long long)n, (long long)c->q.block, (long long)count, (long long)n_scales);
    for (int64_t i = 0; i < n; i++)
        if (codes[i] < c->cb.base)
            return qm_fail(QM_BAD_ARG, "code %d at %lld does not exist: the lowest is %d", codes[i],
                           (long long)i, c->cb.base);
    for (int64_t i = 0; i < n; i++)
        positions[i] = (uint8_t)(codes[i] - c->cb.base);
    for (int64_t i = 0; i < count; i++)
        scales[i] = qm_f16_to_float(scales_f16[i]);
    return QM_OK;
}

void qm_lion8_plain(const float *exp_avg, int64_t n, uint16_t *bf16)
{
    for (int64_t i = 0; i < n; i++)
        bf16[i] = qm_float_to_bf16(exp_avg[i]);
}

/* Works block by block to avoid a second copy of the tensor. */
qm_status qm_lion8_requantize(const struct qm_codec *c, const struct qm_shape *shape,
                              const uint16_t *bf16, uint8_t *positions, float *scales)
{
    float x[1024];
    int64_t n = qm_shape_numel(shape), block = c->q.block;
    QM_TRY(check_codec(c));
    if (block > 1024)
        return qm_fail(QM_BAD_ARG, "groups of at most 1024 elements, got %lld", (long long)block);
    for (int64_t i = 0; i < n; i += block) {
        int64_t m = n - i < block ? n - i : block;
        struct qm_shape one = {1, {m}};
        for (int64_t j = 0; j < m; j++)
            x[j] = qm_bf16_to_float(bf16[i + j]);
        QM_TRY(qm_encode(c, &one, x, NULL, positions + i, scales + i / block));
    }
    return QM_OK;
}

void qm_lion8_errors_save(const uint8_t *errors, int64_t n, uint16_t *bf16)
{
    for (int64_t i = 0; i < n; i++)
        bf16[i] = qm_float_to_bf16((float)errors[i]);
    if (n % 2)
        bf16[n] = 0;
}

qm_status qm_lion8_errors_load(const uint16_t *bf16, int64_t count, int64_t n, uint8_t *errors)
{
    if (count != n && count != n + n % 2)
        return qm_fail(QM_BAD_ARG, "%lld parameters have %lld errors, got %lld", (long long)n,
                       (long long)(n + n % 2), (long long)count);
    for (int64_t i = 0; i < n; i++) {
        float x = qm_bf16_to_float(bf16[i]);
        if (!(x >= 0.0f && x <= 255.0f && x == floorf(x)))
            return qm_fail(QM_BAD_ARG, "error %lld is %g, expected a whole number in 0 .. 255",
                           (long long)i, (double)x);
        errors[i] = (uint8_t)x;
    }
    return QM_OK;
}

qm_status qm_param_lr_check(const struct qm_param *p, double largest, double lr, double k)
{
    int exponent_bits = p->format == QM_PARAM_f16 ? 5 : p->format == QM_PARAM_e4m3 ? 4 : 8;
    int mantissa = 8 * (qm_param_bytes(p) + qm_param_residual(p)) - 1 - exponent_bits;
    if (lr == 0.0 || !(largest > 0.0))
        return QM_OK;
    double least = floor(log2(largest)) - (mantissa + log2(0.49));
    if (log2(lr * k) >= least)
        return QM_OK;
    return qm_fail(
        QM_BAD_ARG,
        "lr %g is too small for parameters up to %g with %d mantissa bits: steps would be "
        "lost; expected at least %.3g",
        lr, largest, mantissa, exp2(least) / k);
}
