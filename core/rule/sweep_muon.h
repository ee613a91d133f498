/* sweep_muon.h - The operations of Muon on elements (dual).
 *
 * In the form of axolotl (flag QM_MUON_LIN) every product and every sum is rounded to bfloat16;
 * that of the fork of bitsandbytes, without the flag, rounds once. */
#ifndef QM_RULE_SWEEP_MUON_H
#define QM_RULE_SWEEP_MUON_H

#include "core/base/half.h"
#include "core/rule/sweep.h"

/* c[] */
enum { QM_MUON_MOMENTUM }; /* of muon_momentum and muon_direction: mu */
enum { QM_MUON_OVER_NORM };
enum { QM_MUON_BLEND_X, QM_MUON_BLEND_Y };   /* the factors of x[1] and of x[2] */
enum { QM_MUON_STEP_KEEP, QM_MUON_STEP_LR }; /* the factors of the parameter and of the update */
/* flag[] */
enum {
    QM_MUON_LIN,           /* the form of axolotl */
    QM_MUON_NESTEROV = 1,  /* of muon_direction */
    QM_MUON_STEP_APART = 1 /* of muon_step: the product is rounded to float32, not fused */
};

QM_FN float qm_muon_bf16_of(float x) { return qm_bf16_to_float(qm_float_to_bf16(x)); }

/* x[0] = x[0] mu + x[1]: the momentum; two roundings. */
QM_SWEEP(muon_momentum) { a->x[0][i] = a->x[0][i] * a->c[QM_MUON_MOMENTUM] + a->x[1][i]; }

/* x[0] = x[1], or with Nesterov x[1] mu + x[2], in bfloat16. */
QM_SWEEP(muon_direction)
{
    float m = a->x[1][i];
    a->x[0][i] =
        qm_muon_bf16_of(a->flag[QM_MUON_NESTEROV] ? m * a->c[QM_MUON_MOMENTUM] + a->x[2][i] : m);
}

/* x[0] = x[0] / norm in bfloat16. */
QM_SWEEP(muon_over) { a->x[0][i] = qm_muon_bf16_of(a->x[0][i] / a->c[QM_MUON_OVER_NORM]); }

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

/* x[0] = x[1] x[2], of which x[2] has `inner` rows and `cols` columns; QM_MUON_LIN: in bfloat16. */
QM_SWEEP(muon_product)
{
    float s = qm_muon_sum(a->x[1], a->x[2], i / a->cols, i % a->cols, a->inner, a->cols);
    a->x[0][i] = a->flag[QM_MUON_LIN] ? qm_muon_bf16_of(s) : s;
}

/* x[0] = c x[1] + d x[2] in bfloat16 with the factors c and d; without QM_MUON_LIN the first
 * product is fused. */
QM_SWEEP(muon_blend)
{
    float c = a->c[QM_MUON_BLEND_X], x = a->x[1][i], y = a->c[QM_MUON_BLEND_Y] * a->x[2][i];
    a->x[0][i] = qm_muon_bf16_of(a->flag[QM_MUON_LIN] ? qm_muon_bf16_of(c * x) + qm_muon_bf16_of(y)
                                                      : fmaf(c, x, y));
}

/* x[0] = x[0] keep + lr x[1], the parameter, for a factor lr below 0: with QM_MUON_LIN the product
 * is rounded to bfloat16, with QM_MUON_STEP_APART to float32, otherwise it is fused. */
QM_SWEEP(muon_step)
{
    float p = a->x[0][i] * a->c[QM_MUON_STEP_KEEP], lr = a->c[QM_MUON_STEP_LR];
    float u = lr * a->x[1][i];
    if (a->flag[QM_MUON_LIN])
        a->x[0][i] = p + qm_muon_bf16_of(u);
    else
        a->x[0][i] = a->flag[QM_MUON_STEP_APART] ? p + u : fmaf(lr, a->x[1][i], p);
}

#endif
