/* sweep_muon.h - The operations of Muon on elements; included by sweep.h (dual).
 *
 * Flag 0 names the form of axolotl, in which every product and every sum is rounded to bfloat16;
 * without it, that of the fork of bitsandbytes, which rounds once. */
#ifndef QM_RULE_SWEEP_MUON_H
#define QM_RULE_SWEEP_MUON_H

#include "core/base/half.h"

QM_FN float qm_muon_bf16_of(float x) { return qm_bf16_to_float(qm_float_to_bf16(x)); }

/* x[0] = x[0] c[0] + x[1]: the momentum; two roundings. */
QM_SWEEP(muon_momentum) { a->x[0][i] = a->x[0][i] * a->c[0] + a->x[1][i]; }

/* x[0] = x[1], or with flag 1 (Nesterov) x[1] c[0] + x[2], in bfloat16. */
QM_SWEEP(muon_direction)
{
    float m = a->x[1][i];
    a->x[0][i] = qm_muon_bf16_of(a->flag[1] ? m * a->c[0] + a->x[2][i] : m);
}

/* x[0] = x[0] / c[0] in bfloat16. */
QM_SWEEP(muon_over) { a->x[0][i] = qm_muon_bf16_of(a->x[0][i] / a->c[0]); }

/* The sum of products that is the element in row `row`, column `col` of x y; float32, in the order
 * of the inner index. */
QM_FN float qm_muon_sum(const float *x, const float *y, int64_t row, int64_t col, int64_t inner,
                        int64_t cols)
{
    float s = 0.0f;
    for (int64_t k = 0; k < inner; k++)
        s = s + x[row * inner + k] * y[k * cols + col];
    return s;
}

/* x[0] = x[1] x[2], of which x[2] has `inner` rows and `cols` columns; flag 0: in bfloat16. */
QM_SWEEP(muon_product)
{
    float s = qm_muon_sum(a->x[1], a->x[2], i / a->cols, i % a->cols, a->inner, a->cols);
    a->x[0][i] = a->flag[0] ? qm_muon_bf16_of(s) : s;
}

/* x[0] = c[0] x[1] + c[1] x[2] in bfloat16; without flag 0 the first product is fused. */
QM_SWEEP(muon_blend)
{
    float x = a->x[1][i], y = a->c[1] * a->x[2][i];
    a->x[0][i] = qm_muon_bf16_of(a->flag[0] ? qm_muon_bf16_of(a->c[0] * x) + qm_muon_bf16_of(y)
                                            : fmaf(a->c[0], x, y));
}

/* x[0] = x[0] c[0] + c[1] x[1], the parameter: with flag 0 the product is rounded to bfloat16, with
 * flag 1 to float32, otherwise it is fused. */
QM_SWEEP(muon_step)
{
    float p = a->x[0][i] * a->c[0], u = a->c[1] * a->x[1][i];
    if (a->flag[0])
        a->x[0][i] = p + qm_muon_bf16_of(u);
    else
        a->x[0][i] = a->flag[1] ? p + u : fmaf(a->c[1], a->x[1][i], p);
}

#endif
