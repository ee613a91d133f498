/* block_numbers.h - Blocks that store more numbers than a scale (dual).
 *
 * A curve with several numbers per block has functions of its own for the statistics of a block,
 * for the numbers that are made of them and stored, and for codes and values by these numbers.
 * Here they are dispatched; to add such a curve, write its header and its cases here.
 *
 *     allog   adaptive_log.h   span and least logarithm; the statistics fold by maximum
 *     qlog    quantile_log.h   scale and alpha; the statistics need the whole block at once
 *     expand  expand.h         scale, exponent and centre; the same
 *     affine  affine.h         least and largest element; the statistics fold by maximum */
#ifndef QM_QUANT_BLOCK_NUMBERS_H
#define QM_QUANT_BLOCK_NUMBERS_H

#include "core/quant/adaptive_log.h"
#include "core/quant/affine.h"
#include "core/quant/expand.h"
#include "core/quant/quantile_log.h"
#include "core/quant/quantize_element.h"

#define QM_BLOCK_NUMBERS_MOST 3

/* Numbers per block, stored side by side among the scales; as many statistics. */
QM_FN int qm_curve_numbers(enum qm_curve curve)
{
    return curve == QM_CURVE_allog    ? QM_ADAPTIVE_LOG_NUMBERS
           : curve == QM_CURVE_qlog   ? QM_QUANTILE_LOG_NUMBERS
           : curve == QM_CURVE_expand ? QM_EXPAND_NUMBERS
           : curve == QM_CURVE_affine ? QM_AFFINE_NUMBERS
                                      : 1;
}

/* Whether the statistics are made of a whole block at once, not folded element by element. */
QM_FN int qm_curve_needs_block(enum qm_curve curve)
{
    return curve == QM_CURVE_qlog || curve == QM_CURVE_expand;
}

/* The bits of an element's statistic `number`, of which a block has the maximum: curves whose
 * statistics fold. */
QM_FN uint32_t qm_block_stat(const struct qm_quantizer *q, float x, int number)
{
    if (q->curve == QM_CURVE_affine)
        return qm_affine_key(x, number == 0);
    return number ? qm_adaptive_log_complement(x) : qm_bits(x) & 0x7fffffffu;
}

/* Sets the statistics of a whole block of a curve that qm_curve_needs_block. */
QM_FN void qm_block_fold(const struct qm_quantizer *q, const float *x, int64_t n, float *stat)
{
    if (q->curve == QM_CURVE_qlog)
        qm_quantile_log_fold(q->scale.quantile, x, n, stat);
    else if (q->curve == QM_CURVE_expand)
        qm_expand_fold(x, n, stat);
}

/* The stored numbers from the statistics; may be the same array. */
QM_FN void qm_block_numbers_of(const struct qm_quantizer *q, const struct qm_codebook *cb,
                               const float *stat, float *number)
{
    float of[2], a, b;
    if (q->curve == QM_CURVE_expand) {
        qm_expand_numbers(stat, q->scale.plus, q->expand, number);
        return;
    }
    of[0] = stat[0], of[1] = stat[1];
    if (q->curve == QM_CURVE_allog)
        qm_adaptive_log_numbers(of, q->scale.floor, &a, &b);
    else if (q->curve == QM_CURVE_affine)
        qm_affine_numbers(of, q->scale.f16 == QM_F16_bf16, &a, &b);
    else
        qm_quantile_log_numbers(of, q->scale.floor, cb->n, &a, &b);
    number[0] = a, number[1] = b;
}

/* The code of x; draw: 32 random bits, for rounds that draw. */
QM_FN uint32_t qm_block_code(const struct qm_quantizer *q, const struct qm_codebook *cb, float x,
                             const float *number, uint32_t draw)
{
    if (q->curve == QM_CURVE_allog)
        return qm_adaptive_log_code(x, number[0], number[1], cb->n);
    if (q->curve == QM_CURVE_expand) {
        float y = qm_expand_unit(x, number);
        return q->round == QM_ROUND_even ? qm_float_to_e4m3(y, 1)
                                         : qm_stored_code(cb, y, qm_position(q, cb, y, draw));
    }
    if (q->curve == QM_CURVE_affine)
        return qm_affine_code(q->round, x, number[0], number[1], cb->n);
    return qm_quantile_log_code(q->round, x, number[0], number[1], cb->n, qm_uniform(draw));
}

QM_FN float qm_block_value(const struct qm_quantizer *q, const struct qm_codebook *cb,
                           uint32_t code, const float *number)
{
    if (q->curve == QM_CURVE_allog)
        return qm_adaptive_log_value(code, number[0], number[1], cb->n);
    if (q->curve == QM_CURVE_expand)
        return qm_expand_value(qm_e4m3_to_float((uint8_t)code), number);
    if (q->curve == QM_CURVE_affine)
        return qm_affine_value(code, number[0], number[1], cb->n);
    return qm_quantile_log_value(code, number[0], number[1]);
}

#endif
