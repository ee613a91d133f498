/* element.h - AXIS rule: one step of one element, as a kernel calls it (dual).
 *
 * What a rule's flags and slots mean, handed to its arithmetic in adamw.h, bnb.h, ...; blocks_NAME.c
 * do the same in loops, with the flags taken outside.  struct qm_rule names its function here.
 *
 *   c, flag   as `prepare` fills them (struct qm_rule_step)
 *   format    how the parameter is stored
 *   p, x      the parameter and the rule's slots, in place */
#ifndef QM_RULE_ELEMENT_H
#define QM_RULE_ELEMENT_H

#include "core/rule/param.h"
#include "core/rule/adamw.h"
#include "core/rule/bnb.h"
#include "core/rule/lion.h"
#include "core/rule/lion8.h"
#include "core/rule/lpmm.h"
#include "core/rule/sgdm.h"

/* clang-format off */
#define QM_ELEMENT_LIST(X)                                                                       \
    X(adamw) X(adamw_ao) X(adamw_bnb) X(adamw_amsgrad) X(adamw_ao_amsgrad) X(sgdm) X(ema)        \
    X(adamw_lpmm) X(adamw_lpmm_fused) X(adamw_lpmm_fused_strict) X(sgdm_lpmm) X(lion)            \
    X(lion8_unfused) X(lion8_fused) X(flash_adam) X(flash_sgd)                                   \
    X(bnb_adamw_32) X(bnb_adamw_plain) X(bnb_adamw_cuda)                                         \
    X(bnb_ademamix_32) X(bnb_ademamix_plain) X(bnb_ademamix_cuda)                                \
    X(bnb_momentum_8) X(bnb_momentum_32) X(bnb_momentum_plain)                                   \
    X(bnb_rmsprop_8) X(bnb_rmsprop_32) X(bnb_rmsprop_plain) X(bnb_rmsprop_cuda)                  \
    X(bnb_lion_8) X(bnb_lion_32) X(bnb_lion_plain) X(put)

#define QM_ELEMENT(name)                                                                         \
    QM_FN void qm_element_##name(const float *c, const int *flag, enum qm_param_format format,   \
                                 float *p, float g, float *x)
#define QM_UNUSED (void)flag, (void)format
/* clang-format on */

/* What a rule over whole tensors has made of a state takes its place (core/device/tensor_rule_form.c). */
QM_ELEMENT(put)
{
    (void)c, (void)p, QM_UNUSED;
    x[0] = g;
}

/* ---- adamw.h, sgdm.h: flag 0: coupled decay, or the first step; 1: the gradient's sign is turned
 * (maximize); 2: amsgrad, without which the third slot is not touched, or nesterov ------------- */

QM_ELEMENT(adamw)
{
    QM_UNUSED;
    qm_adamw_torch(c, 0, flag[0], p, flag[1] ? -g : g, x, x + 1);
}

QM_ELEMENT(adamw_ao)
{
    QM_UNUSED;
    qm_adamw_ao(c, flag[0], p, flag[1] ? -g : g, x, x + 1);
}

QM_ELEMENT(adamw_bnb)
{
    QM_UNUSED;
    qm_adamw_bnb(c, 0, p, flag[1] ? -g : g, x, x + 1);
}

QM_ELEMENT(adamw_amsgrad)
{
    QM_UNUSED;
    qm_adamw_torch_states(c, flag[0], p, flag[1] ? -g : g, x, x + 1);
    if (flag[2])
        x[2] = qm_adamw_top(x[2], x[1]);
    qm_adamw_torch_apply(c, 0, p, x[0], flag[2] ? x[2] : x[1]);
}

QM_ELEMENT(adamw_ao_amsgrad)
{
    QM_UNUSED;
    qm_adamw_ao_states(c, flag[0], *p, flag[1] ? -g : g, x, x + 1);
    if (flag[2])
        x[2] = qm_adamw_top(x[2], x[1]);
    qm_adamw_ao_apply(c, flag[0], 0, 0, p, x[0], flag[2] ? x[2] : x[1]);
}

QM_ELEMENT(sgdm)
{
    QM_UNUSED;
    qm_sgdm_torch(c, flag[0], flag[2], p, flag[1] ? -g : g, x);
}

QM_ELEMENT(ema)
{
    QM_UNUSED;
    (void)p;
    qm_ema_lerp(c, flag[1] ? -g : g, x);
}

/* ---- lpmm.h: flags 2 and 3: slot 0 or 1, of one element, is not there yet --------------------- */

#define QM_LPMM_ELEMENT(name, ...)       \
    QM_ELEMENT(name)                     \
    {                                    \
        float turned = flag[1] ? -g : g; \
        QM_UNUSED;                       \
        x[0] = flag[2] ? 0.0f : x[0];    \
        x[1] = flag[3] ? 0.0f : x[1];    \
        __VA_ARGS__;                     \
    }

QM_LPMM_ELEMENT(adamw_lpmm, qm_adamw_lpmm(c, 0, p, turned, x, x + 1))
QM_LPMM_ELEMENT(adamw_lpmm_fused, qm_adamw_lpmm_fused(c, 0, 1, p, turned, x, x + 1))
QM_LPMM_ELEMENT(adamw_lpmm_fused_strict, qm_adamw_lpmm_fused(c, 0, 0, p, turned, x, x + 1))

QM_ELEMENT(sgdm_lpmm) { qm_element_sgdm(c, flag, format, p, g, x); }

/* ---- lion.h, lion8.h: flags 0 to 2 as above, 3: the decay factor is rounded to the format ------ */

QM_ELEMENT(lion)
{
    QM_UNUSED;
    qm_lion_automl(c, p, g, x);
}

QM_ELEMENT(lion8_unfused)
{
    float d[6];
    for (int i = 0; i < 6; i++)
        d[i] = c[i];
    if (flag[3])
        d[0] = qm_param_widen(format, qm_param_nearest(format, d[0]));
    /* e4m3 is rounded as it is stored only */
    qm_lion8_unfused(d, format == QM_PARAM_e4m3 ? QM_PARAM_f32 : format, p, flag[1] ? -g : g, x);
}

QM_ELEMENT(lion8_fused)
{
    QM_UNUSED;
    qm_lion8_fused(c, p, flag[1] ? -g : g, x);
}

QM_ELEMENT(flash_adam)
{
    QM_UNUSED;
    qm_flash_adam(c, flag[0], p, flag[1] ? -g : g, x, x + 1);
}

QM_ELEMENT(flash_sgd)
{
    QM_UNUSED;
    qm_flash_sgd(c, flag[0], flag[2], p, flag[1] ? -g : g, x);
}

/* ---- bnb.h: flag 0: the first step; flag 1: the L2 term is there ------------------------------- */

#define QM_BNB_ELEMENT(name, form, call)    \
    QM_ELEMENT(bnb_##name##_##form)         \
    {                                       \
        enum qm_bnb_form f = QM_BNB_##form; \
        QM_UNUSED;                          \
        call;                               \
    }

QM_BNB_ELEMENT(adamw, 32, qm_bnb_adamw(f, c, p, g, x, x + 1))
QM_BNB_ELEMENT(adamw, plain, qm_bnb_adamw(f, c, p, g, x, x + 1))
QM_BNB_ELEMENT(adamw, cuda, qm_bnb_adamw(f, c, p, g, x, x + 1))
QM_BNB_ELEMENT(ademamix, 32, qm_bnb_ademamix(f, c, p, g, x, x + 1, x + 2))
QM_BNB_ELEMENT(ademamix, plain, qm_bnb_ademamix(f, c, p, g, x, x + 1, x + 2))
QM_BNB_ELEMENT(ademamix, cuda, qm_bnb_ademamix(f, c, p, g, x, x + 1, x + 2))
QM_BNB_ELEMENT(momentum, 8, qm_bnb_momentum(f, c, flag[1], flag[0], p, g, x))
QM_BNB_ELEMENT(momentum, 32, qm_bnb_momentum(f, c, flag[1], flag[0], p, g, x))
QM_BNB_ELEMENT(momentum, plain, qm_bnb_momentum(f, c, flag[1], flag[0], p, g, x))
QM_BNB_ELEMENT(rmsprop, 8, qm_bnb_rmsprop(f, c, flag[1], p, g, x))
QM_BNB_ELEMENT(rmsprop, 32, qm_bnb_rmsprop(f, c, flag[1], p, g, x))
QM_BNB_ELEMENT(rmsprop, plain, qm_bnb_rmsprop(f, c, flag[1], p, g, x))
QM_BNB_ELEMENT(rmsprop, cuda, qm_bnb_rmsprop(f, c, flag[1], p, g, x))
QM_BNB_ELEMENT(lion, 8, qm_bnb_lion(f, c, p, g, x))
QM_BNB_ELEMENT(lion, 32, qm_bnb_lion(f, c, p, g, x))
QM_BNB_ELEMENT(lion, plain, qm_bnb_lion(f, c, p, g, x))

#endif
