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

#include "core/param.h"
#include "core/rule/adamw.h"
#include "core/rule/bnb.h"
#include "core/rule/lion.h"
#include "core/rule/lion8.h"
#include "core/rule/lpmm.h"
#include "core/rule/sgdm.h"

/* clang-format off */
/* name, slots, what its loops are specialised on: flags that the element branches on, and QM_ON_FORMAT
 * where it reads `format`. */
#define QM_ON(k)     (1 << (k))
#define QM_ON_FORMAT 16
#define QM_ELEMENT_PLAIN_LIST(X)                                                                 \
    X(replace, 1, 0) X(sgdm, 1, QM_ON(0) | QM_ON(2)) X(ema, 1, 0)                                \
    X(sgdm_lpmm, 1, QM_ON(0) | QM_ON(2))                                                         \
    X(lion, 1, 0) X(lion8_unfused, 1, QM_ON(3) | QM_ON_FORMAT)                                   \
    X(lion8_fused, 1, 0) X(flash_sgd, 1, QM_ON(0) | QM_ON(2))                                    \
    X(bnb_adamw_32, 2, 0) X(bnb_adamw_plain, 2, 0) X(bnb_adamw_cuda, 2, 0)                       \
    X(bnb_ademamix_32, 3, 0) X(bnb_ademamix_plain, 3, 0) X(bnb_ademamix_cuda, 3, 0)              \
    X(bnb_momentum_8, 1, QM_ON(0) | QM_ON(1)) X(bnb_momentum_32, 1, QM_ON(0) | QM_ON(1))         \
    X(bnb_momentum_plain, 1, QM_ON(0) | QM_ON(1))                                                \
    X(bnb_rmsprop_8, 1, QM_ON(1)) X(bnb_rmsprop_32, 1, QM_ON(1))                                 \
    X(bnb_rmsprop_plain, 1, QM_ON(1)) X(bnb_rmsprop_cuda, 1, QM_ON(1))                           \
    X(bnb_lion_8, 1, 0) X(bnb_lion_32, 1, 0) X(bnb_lion_plain, 1, 0)

/* name, slots, what its loops are specialised on, how many slots (from the first on) it divides: such an
 * element is given in two parts, states and apply, and may divide by reciprocals. */
#define QM_ELEMENT_ADAM_LIST(X)                                                                  \
    X(adamw, 2, QM_ON(0), 0) X(adamw_bnb, 2, 0, 0) X(adamw_ao, 2, QM_ON(0), 1)                   \
    X(adamw_amsgrad, 3, QM_ON(0) | QM_ON(2), 0) X(adamw_ao_amsgrad, 3, QM_ON(0) | QM_ON(2), 1)   \
    X(adamw_lpmm, 2, 0, 0) X(adamw_lpmm_fused, 2, 0, 0) X(adamw_lpmm_fused_strict, 2, 0, 0)      \
    X(flash_adam, 2, QM_ON(0), 2)

#define QM_ELEMENT_LIST(X) QM_ELEMENT_PLAIN_LIST(X) QM_ELEMENT_ADAM_LIST(X)

/* Inlined wherever it is called, so that a loop over it can be vectorized. */
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define QM_INLINED QM_FN
#else
#define QM_INLINED static inline __attribute__((always_inline, unused))
#endif

#define QM_ELEMENT(name)                                                                         \
    QM_INLINED void qm_element_##name(const float *c, const int *flag,                           \
                                      enum qm_param_format format,                               \
                                      const struct qm_inverse *reciprocal, float *p, float g,    \
                                      float *x)
#define QM_UNUSED (void)flag, (void)format, (void)reciprocal
/* clang-format on */

/* An element in two parts: `states` brings x up to date from the gradient `turned`, `apply` changes *p.  flag 1:
 * the gradient's sign is turned (maximize). */
#define QM_ADAM_ELEMENT(name, states, apply)                                                       \
    QM_INLINED void qm_element_##name##_states(const float *c, const int *flag, float *p, float g, \
                                               float *x)                                           \
    {                                                                                              \
        float turned = qm_turned(flag[1], g);                                                      \
        (void)p;                                                                                   \
        states;                                                                                    \
    }                                                                                              \
    QM_INLINED void qm_element_##name##_apply(const float *c, const int *flag,                     \
                                              const struct qm_inverse *reciprocal, float *p,       \
                                              const float *x)                                      \
    {                                                                                              \
        (void)flag;                                                                                \
        apply;                                                                                     \
    }                                                                                              \
    QM_ELEMENT(name)                                                                               \
    {                                                                                              \
        (void)format;                                                                              \
        qm_element_##name##_states(c, flag, p, g, x);                                              \
        qm_element_##name##_apply(c, flag, reciprocal, p, x);                                      \
    }

/* -g if `turns`, else g; and 0 if `gone`, else x.  Bit operations: a loop needs no branch on the flag. */
QM_INLINED float qm_turned(int turns, float g)
{
    return qm_float(qm_bits(g) ^ (uint32_t)(turns != 0) << 31);
}

QM_INLINED float qm_unless(int gone, float x)
{
    return qm_float(qm_bits(x) & ((uint32_t)(gone != 0) - 1u));
}

/* What a rule over whole tensors has made of a state takes its place (core/engine/whole_form.c). */
QM_ELEMENT(replace)
{
    (void)c, (void)p, QM_UNUSED;
    x[0] = g;
}

/* ---- adamw.h, sgdm.h: flag 0: coupled decay, or the first step; 1: the gradient's sign is turned
 * (maximize); 2: amsgrad, without which the third slot is not touched, or nesterov ------------- */

QM_ADAM_ELEMENT(adamw, qm_adamw_torch_states(c, flag[0], p, turned, x, x + 1),
                qm_adamw_torch_apply(c, reciprocal, p, x[0], x[1]))
QM_ADAM_ELEMENT(adamw_ao, qm_adamw_ao_states(c, flag[0], *p, turned, x, x + 1),
                qm_adamw_ao_apply(c, reciprocal, flag[0], p, x[0], x[1]))
QM_ADAM_ELEMENT(adamw_bnb, qm_adamw_bnb_states(c, turned, x, x + 1),
                qm_adamw_bnb_apply(c, reciprocal, p, x[0], x[1]))
QM_ADAM_ELEMENT(adamw_amsgrad, qm_adamw_torch_states(c, flag[0], p, turned, x, x + 1);
                if (flag[2]) x[2] = qm_adamw_top(x[2], x[1]),
                qm_adamw_torch_apply(c, reciprocal, p, x[0], flag[2] ? x[2] : x[1]))
QM_ADAM_ELEMENT(adamw_ao_amsgrad, qm_adamw_ao_states(c, flag[0], *p, turned, x, x + 1);
                if (flag[2]) x[2] = qm_adamw_top(x[2], x[1]),
                qm_adamw_ao_apply(c, reciprocal, flag[0], p, x[0], flag[2] ? x[2] : x[1]))

QM_ELEMENT(sgdm)
{
    QM_UNUSED;
    qm_sgdm_torch(c, flag[0], flag[2], p, qm_turned(flag[1], g), x);
}

QM_ELEMENT(ema)
{
    QM_UNUSED;
    (void)p;
    qm_ema_lerp(c, qm_turned(flag[1], g), x);
}

/* ---- lpmm.h: flags 2 and 3: slot 0 or 1, of one element, is not there yet --------------------- */

#define QM_LPMM_ELEMENT(name, states, apply)                                                \
    QM_ADAM_ELEMENT(name, x[0] = qm_unless(flag[2], x[0]); x[1] = qm_unless(flag[3], x[1]); \
                    states, apply)

QM_LPMM_ELEMENT(adamw_lpmm, qm_adamw_lpmm_states(c, turned, x, x + 1),
                qm_adamw_lpmm_apply(c, reciprocal, p, x[0], x[1]))
QM_LPMM_ELEMENT(adamw_lpmm_fused, qm_adamw_lpmm_fused_states(c, 1, turned, x, x + 1),
                qm_adamw_lpmm_fused_apply(c, reciprocal, 1, p, x[0], x[1]))
QM_LPMM_ELEMENT(adamw_lpmm_fused_strict, qm_adamw_lpmm_fused_states(c, 0, turned, x, x + 1),
                qm_adamw_lpmm_fused_apply(c, reciprocal, 0, p, x[0], x[1]))

QM_ELEMENT(sgdm_lpmm) { qm_element_sgdm(c, flag, format, reciprocal, p, g, x); }

/* ---- lion.h, lion8.h: flags 0 to 2 as above, 3: the decay factor is rounded to the format ------ */

QM_ELEMENT(lion)
{
    QM_UNUSED;
    qm_lion_automl(c, p, g, x);
}

QM_ELEMENT(lion8_unfused)
{
    float d[6];
    QM_UNUSED;
    for (int i = 0; i < 6; i++)
        d[i] = c[i];
    if (flag[3])
        d[0] = qm_param_widen(format, qm_param_nearest(format, d[0]));
    /* e4m3 is rounded as it is stored only */
    qm_lion8_unfused(d, format == QM_PARAM_e4m3 ? QM_PARAM_f32 : format, p, qm_turned(flag[1], g),
                     x);
}

QM_ELEMENT(lion8_fused)
{
    QM_UNUSED;
    qm_lion8_fused(c, p, qm_turned(flag[1], g), x);
}

QM_ADAM_ELEMENT(flash_adam, qm_flash_adam_states(c, flag[0], *p, turned, x, x + 1),
                qm_flash_adam_apply(c, reciprocal, flag[0], p, x[0], x[1]))

QM_ELEMENT(flash_sgd)
{
    QM_UNUSED;
    qm_flash_sgd(c, flag[0], flag[2], p, qm_turned(flag[1], g), x);
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
