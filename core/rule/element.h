/* element.h - One step of one element of every elementwise rule (dual).
 *
 * To add an elementwise rule, write its element here, with the line of QM_ELEMENT_PLAIN_LIST, and
 * its entry in a file family_NAME.c, which names the element by QM_ELEMENTWISE.  GPU kernels call
 * the element (core/device/step.cu); element_loops.c makes loops over n elements of it.
 *
 *   c, flag      as the rule's `prepare` fills them (struct qm_rule_step)
 *   format       how the parameter is stored
 *   reciprocal   the step's reciprocals, for QM_ELEMENT_ADAM_LIST; null: divide
 *   p, x         the parameter and the rule's slots, in place
 *   g            the gradient */
#ifndef QM_RULE_ELEMENT_H
#define QM_RULE_ELEMENT_H

#include "core/rule/adamw.h"
#include "core/rule/bnb.h"
#include "core/rule/lion.h"
#include "core/rule/lion8.h"
#include "core/rule/lpmm.h"
#include "core/rule/param.h"
#include "core/rule/scalars.h"
#include "core/rule/sgdm.h"
#include "core/rule/torch.h"

QM_ASSERT_SCALARS(QM_ADAMW_SCALARS);
QM_ASSERT_SCALARS(QM_ADAMW_AO_SCALARS);
QM_ASSERT_SCALARS(QM_BNB_SCALARS);
QM_ASSERT_SCALARS(QM_LION_SCALARS);
QM_ASSERT_SCALARS(QM_LION8_SCALARS);
QM_ASSERT_SCALARS(QM_FLASH_SCALARS);
QM_ASSERT_SCALARS(QM_LPMM_SCALARS);
QM_ASSERT_SCALARS(QM_LPMM_FUSED_SCALARS);
QM_ASSERT_SCALARS(QM_SGDM_SCALARS);
QM_ASSERT_SCALARS(QM_EMA_SCALARS);
QM_ASSERT_SCALARS(QM_TORCH_SCALARS);
QM_ASSERT_SCALARS(QM_NADAM_SCALARS);
QM_ASSERT_SCALARS(QM_RADAM_SCALARS);

/* clang-format off */
/* Element, number of slots, what its loops are specialised on: QM_ON(flag) for each flag that the
 * element branches on, QM_ON_FORMAT where it reads `format`.  A loop that is not specialised gives
 * the same bits. */
#define QM_ON(flag)  (1 << QM_FLAG_##flag)
#define QM_ON_FORMAT 16
#define QM_ELEMENT_PLAIN_LIST(X)                                                                 \
    X(replace,             1, 0)                                                                 \
    X(sgdm,                1, QM_ON(FIRST) | QM_ON(NESTEROV))                                    \
    X(sgdm_tail,           1, QM_ON(FIRST) | QM_ON(NESTEROV))                                    \
    X(sgdm_lpmm,           1, QM_ON(FIRST) | QM_ON(NESTEROV))                                    \
    X(rmsprop_torch,       1, QM_ON(TORCH_COUPLED))                                              \
    X(rmsprop_torch_full,  3, QM_ON(TORCH_COUPLED) | QM_ON(CENTERED) | QM_ON(MOMENTUM))          \
    X(adagrad_torch,       1, QM_ON(TORCH_COUPLED))                                              \
    X(nadam,               2, QM_ON(COUPLED))                                                    \
    X(nadam_foreach,       2, QM_ON(COUPLED))                                                    \
    X(radam,               2, QM_ON(COUPLED) | QM_ON(RECTIFIED))                                 \
    X(radam_foreach,       2, QM_ON(COUPLED))                                                    \
    X(ema,                 1, 0)                                                                 \
    X(lion,                1, 0)                                                                 \
    X(lion_025,            1, 0)                                                                 \
    X(lion8_unfused,       1, QM_ON(ROUND_FACTOR) | QM_ON_FORMAT)                                \
    X(lion8_fused,         1, 0)                                                                 \
    X(flash_sgd,           1, QM_ON(COUPLED) | QM_ON(NESTEROV))                                  \
    X(adabelief_solo,      2, 0)                                                                 \
    X(bnb_adamw_32,        2, 0)                                                                 \
    X(bnb_adamw_plain,     2, 0)                                                                 \
    X(bnb_adamw_cuda,      2, 0)                                                                 \
    X(bnb_ademamix_32,     3, 0)                                                                 \
    X(bnb_ademamix_plain,  3, 0)                                                                 \
    X(bnb_ademamix_cuda,   3, 0)                                                                 \
    X(bnb_momentum_8,      1, QM_ON(BNB_FIRST) | QM_ON(BNB_COUPLED))                             \
    X(bnb_momentum_32,     1, QM_ON(BNB_FIRST) | QM_ON(BNB_COUPLED))                             \
    X(bnb_momentum_plain,  1, QM_ON(BNB_FIRST) | QM_ON(BNB_COUPLED))                             \
    X(bnb_rmsprop_8,       1, QM_ON(BNB_COUPLED))                                                \
    X(bnb_rmsprop_32,      1, QM_ON(BNB_COUPLED))                                                \
    X(bnb_rmsprop_plain,   1, QM_ON(BNB_COUPLED))                                                \
    X(bnb_rmsprop_cuda,    1, QM_ON(BNB_COUPLED))                                                \
    X(bnb_lion_8,          1, 0)                                                                 \
    X(bnb_lion_32,         1, 0)                                                                 \
    X(bnb_lion_plain,      1, 0)

/* The same, then how many of its slots (from the first on) the element divides by a prepared
 * divisor.  These elements consist of two parts, states and apply (QM_ADAM_ELEMENT); slot 1 is a
 * second moment that does not depend on slot 0. */
#define QM_ELEMENT_ADAM_LIST(X)                                                                  \
    X(adamw,                   2, QM_ON(COUPLED), 0)                                             \
    X(adamw_tail,              2, QM_ON(COUPLED), 0)                                             \
    X(adamw_t113,              2, QM_ON(COUPLED), 0)                                             \
    X(adamw_solo,              2, QM_ON(COUPLED), 0)                                             \
    X(adamw_ao,                2, QM_ON(COUPLED), 1)                                             \
    X(adamw_ao_compiled,       2, QM_ON(COUPLED), 1)                                             \
    X(adamw_bnb,               2, 0, 0)                                                          \
    X(adamw_amsgrad,           3, QM_ON(COUPLED) | QM_ON(AMSGRAD), 0)                            \
    X(adamw_amsgrad_tail,      3, QM_ON(COUPLED) | QM_ON(AMSGRAD), 0)                            \
    X(adamw_amsgrad_t113,      3, QM_ON(COUPLED) | QM_ON(AMSGRAD), 0)                            \
    X(adamw_ao_amsgrad,        3, QM_ON(COUPLED) | QM_ON(AMSGRAD), 1)                            \
    X(adamw_ao_amsgrad_compiled, 3, QM_ON(COUPLED) | QM_ON(AMSGRAD), 1)                          \
    X(adamw_lpmm,              2, 0, 0)                                                          \
    X(adamw_lpmm_fused,        2, 0, 0)                                                          \
    X(adamw_lpmm_fused_strict, 2, 0, 0)                                                          \
    X(flash_adam,              2, QM_ON(COUPLED), 2)

#define QM_ELEMENT_LIST(X) QM_ELEMENT_PLAIN_LIST(X) QM_ELEMENT_ADAM_LIST(X)
/* clang-format on */

/* A function that is inlined wherever it is called: only so can a loop over it be vectorized. */
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define QM_INLINED QM_FN
#else
#define QM_INLINED static inline __attribute__((always_inline, unused))
#endif

#define QM_ELEMENT(name)                                              \
    QM_INLINED void qm_element_##name(                                \
        const float *c, const int *flag, enum qm_param_format format, \
        const struct qm_inverse *reciprocal, float *p, float g, float *x)
#define QM_UNUSED (void)flag, (void)format, (void)reciprocal

/* An element in two parts: `states` updates x from the gradient `turned`, whose sign
 * QM_FLAG_MAXIMIZE turns, and in rules of PyTorch decays *p first; `apply` updates *p from x. */
#define QM_ADAM_ELEMENT(name, states, apply)                                                       \
    QM_INLINED void qm_element_##name##_states(const float *c, const int *flag, float *p, float g, \
                                               float *x)                                           \
    {                                                                                              \
        float turned = qm_turned(flag[QM_FLAG_MAXIMIZE], g);                                       \
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

/* turns ? -g : g, and absent ? 0 : x, by bit operations: a loop needs no branch on the flag. */
QM_INLINED float qm_turned(int turns, float g)
{
    return qm_float(qm_bits(g) ^ (uint32_t)(turns != 0) << 31);
}

QM_INLINED float qm_unless(int absent, float x)
{
    return qm_float(qm_bits(x) & ((uint32_t)(absent != 0) - 1u));
}

/* On a device, the value that a tensor rule has computed for a state takes the place of that
 * state (core/device/tensor_rule_form.c). */
QM_ELEMENT(replace)
{
    (void)c, (void)p, QM_UNUSED;
    x[0] = g;
}

/* ---- adamw.h, sgdm.h ------------------------------------------------------------------------- */

/* AdamW and Adam of PyTorch; states: how the moments are formed. */
#define QM_TORCH_ELEMENT(name, states)                                           \
    QM_ADAM_ELEMENT(name, states(c, flag[QM_FLAG_COUPLED], p, turned, x, x + 1), \
                    qm_adamw_torch_apply(c, reciprocal, p, x[0], x[1]))
#define QM_TORCH_AMSGRAD_ELEMENT(name, states, top)                  \
    QM_ADAM_ELEMENT(                                                 \
        name, states(c, flag[QM_FLAG_COUPLED], p, turned, x, x + 1); \
        if (flag[QM_FLAG_AMSGRAD]) x[2] = top(x[2], x[1]),           \
        qm_adamw_torch_apply(c, reciprocal, p, x[0], flag[QM_FLAG_AMSGRAD] ? x[2] : x[1]))

QM_TORCH_ELEMENT(adamw, qm_adamw_torch_states)
QM_TORCH_ELEMENT(adamw_tail, qm_adamw_tail_states)
QM_TORCH_ELEMENT(adamw_t113, qm_adamw_t113_states)
QM_TORCH_ELEMENT(adamw_solo, qm_adamw_solo_states)
QM_ADAM_ELEMENT(adamw_ao, qm_adamw_ao_states(c, flag[QM_FLAG_COUPLED], *p, turned, x, x + 1),
                qm_adamw_ao_apply(c, reciprocal, flag[QM_FLAG_COUPLED], p, x[0], x[1]))
QM_ADAM_ELEMENT(adamw_ao_compiled,
                qm_adamw_ao_compiled_states(c, flag[QM_FLAG_COUPLED], *p, turned, x, x + 1),
                qm_adamw_ao_apply(c, reciprocal, flag[QM_FLAG_COUPLED], p, x[0], x[1]))
QM_ADAM_ELEMENT(adamw_bnb, qm_adamw_bnb_states(c, turned, x, x + 1),
                qm_adamw_bnb_apply(c, reciprocal, p, x[0], x[1]))
QM_TORCH_AMSGRAD_ELEMENT(adamw_amsgrad, qm_adamw_torch_states, qm_adamw_top)
QM_TORCH_AMSGRAD_ELEMENT(adamw_amsgrad_tail, qm_adamw_tail_states, qm_adamw_tail_top)
QM_TORCH_AMSGRAD_ELEMENT(adamw_amsgrad_t113, qm_adamw_t113_states, qm_adamw_top)
QM_ADAM_ELEMENT(adamw_ao_amsgrad,
                qm_adamw_ao_states(c, flag[QM_FLAG_COUPLED], *p, turned, x, x + 1);
                if (flag[QM_FLAG_AMSGRAD]) x[2] = qm_adamw_top(x[2], x[1]),
                qm_adamw_ao_apply(c, reciprocal, flag[QM_FLAG_COUPLED], p, x[0],
                                  flag[QM_FLAG_AMSGRAD] ? x[2] : x[1]))

QM_ADAM_ELEMENT(adamw_ao_amsgrad_compiled,
                qm_adamw_ao_compiled_states(c, flag[QM_FLAG_COUPLED], *p, turned, x, x + 1);
                if (flag[QM_FLAG_AMSGRAD]) x[2] = qm_adamw_top(x[2], x[1]),
                qm_adamw_ao_apply(c, reciprocal, flag[QM_FLAG_COUPLED], p, x[0],
                                  flag[QM_FLAG_AMSGRAD] ? x[2] : x[1]))

QM_ELEMENT(adabelief_solo)
{
    (void)format;
    qm_adabelief_solo_states(c, p, qm_turned(flag[QM_FLAG_MAXIMIZE], g), x, x + 1);
    qm_adamw_torch_apply(c, reciprocal, p, x[0], x[1]);
}

QM_ELEMENT(sgdm)
{
    QM_UNUSED;
    qm_sgdm_torch(c, flag[QM_FLAG_FIRST], flag[QM_FLAG_NESTEROV], p,
                  qm_turned(flag[QM_FLAG_MAXIMIZE], g), x);
}

QM_ELEMENT(sgdm_tail)
{
    QM_UNUSED;
    qm_sgdm_tail(c, flag[QM_FLAG_FIRST], flag[QM_FLAG_NESTEROV], p,
                 qm_turned(flag[QM_FLAG_MAXIMIZE], g), x);
}

QM_ELEMENT(ema)
{
    QM_UNUSED;
    (void)p;
    qm_ema_lerp(c, qm_turned(flag[QM_FLAG_MAXIMIZE], g), x);
}

/* ---- torch.h --------------------------------------------------------------------------------- */

QM_ELEMENT(rmsprop_torch)
{
    QM_UNUSED;
    g = qm_torch_gradient(c, flag[QM_FLAG_TORCH_COUPLED], *p, qm_turned(flag[QM_FLAG_MAXIMIZE], g));
    qm_rmsprop_torch(c, 0, 0, p, g, x, x, x);
}

QM_ELEMENT(rmsprop_torch_full)
{
    QM_UNUSED;
    g = qm_torch_gradient(c, flag[QM_FLAG_TORCH_COUPLED], *p, qm_turned(flag[QM_FLAG_MAXIMIZE], g));
    qm_rmsprop_torch(c, flag[QM_FLAG_CENTERED], flag[QM_FLAG_MOMENTUM], p, g, x, x + 1, x + 2);
}

QM_ELEMENT(adagrad_torch)
{
    QM_UNUSED;
    g = qm_torch_gradient(c, flag[QM_FLAG_TORCH_COUPLED], *p, qm_turned(flag[QM_FLAG_MAXIMIZE], g));
    qm_adagrad_torch(c, p, g, x);
}

QM_ELEMENT(nadam)
{
    QM_UNUSED;
    qm_nadam_torch(c, flag[QM_FLAG_COUPLED], p, qm_turned(flag[QM_FLAG_MAXIMIZE], g), x, x + 1);
}

QM_ELEMENT(nadam_foreach)
{
    QM_UNUSED;
    qm_nadam_foreach(c, flag[QM_FLAG_COUPLED], p, qm_turned(flag[QM_FLAG_MAXIMIZE], g), x, x + 1);
}

QM_ELEMENT(radam)
{
    QM_UNUSED;
    qm_radam_torch(c, flag[QM_FLAG_COUPLED], flag[QM_FLAG_RECTIFIED], p,
                   qm_turned(flag[QM_FLAG_MAXIMIZE], g), x, x + 1);
}

QM_ELEMENT(radam_foreach)
{
    QM_UNUSED;
    qm_radam_foreach(c, flag[QM_FLAG_COUPLED], p, qm_turned(flag[QM_FLAG_MAXIMIZE], g), x, x + 1);
}

/* ---- lpmm.h ---------------------------------------------------------------------------------- */

#define QM_LPMM_ELEMENT(name, states, apply)                            \
    QM_ADAM_ELEMENT(name, x[0] = qm_unless(flag[QM_FLAG_ABSENT], x[0]); \
                    x[1] = qm_unless(flag[QM_FLAG_ABSENT + 1], x[1]); states, apply)

QM_LPMM_ELEMENT(adamw_lpmm, qm_adamw_lpmm_states(c, turned, x, x + 1),
                qm_adamw_lpmm_apply(c, reciprocal, p, x[0], x[1]))
QM_LPMM_ELEMENT(adamw_lpmm_fused, qm_adamw_lpmm_fused_states(c, 1, turned, x, x + 1),
                qm_adamw_lpmm_fused_apply(c, reciprocal, 1, p, x[0], x[1]))
QM_LPMM_ELEMENT(adamw_lpmm_fused_strict, qm_adamw_lpmm_fused_states(c, 0, turned, x, x + 1),
                qm_adamw_lpmm_fused_apply(c, reciprocal, 0, p, x[0], x[1]))

QM_ELEMENT(sgdm_lpmm) { qm_element_sgdm(c, flag, format, reciprocal, p, g, x); }

/* ---- lion.h, lion8.h ------------------------------------------------------------------------- */

QM_ELEMENT(lion)
{
    QM_UNUSED;
    qm_lion_automl(c, p, g, x);
}

QM_ELEMENT(lion_025)
{
    QM_UNUSED;
    qm_lion_025(c, p, g, x);
}

QM_ELEMENT(lion8_unfused)
{
    float d[QM_LION8_SCALARS];
    QM_UNUSED;
    for (int i = 0; i < QM_LION8_SCALARS; i++)
        d[i] = c[i];
    if (flag[QM_FLAG_ROUND_FACTOR])
        d[QM_LION8_KEEP] = qm_param_widen(format, qm_param_nearest(format, d[QM_LION8_KEEP]));
    /* e4m3 is rounded only where the parameter is stored */
    qm_lion8_unfused(d, format == QM_PARAM_e4m3 ? QM_PARAM_f32 : format, p,
                     qm_turned(flag[QM_FLAG_MAXIMIZE], g), x);
}

QM_ELEMENT(lion8_fused)
{
    QM_UNUSED;
    qm_lion8_fused(c, p, qm_turned(flag[QM_FLAG_MAXIMIZE], g), x);
}

QM_ADAM_ELEMENT(flash_adam, qm_flash_adam_states(c, flag[QM_FLAG_COUPLED], *p, turned, x, x + 1),
                qm_flash_adam_apply(c, reciprocal, flag[QM_FLAG_COUPLED], p, x[0], x[1]))

QM_ELEMENT(flash_sgd)
{
    QM_UNUSED;
    qm_flash_sgd(c, flag[QM_FLAG_COUPLED], flag[QM_FLAG_NESTEROV], p,
                 qm_turned(flag[QM_FLAG_MAXIMIZE], g), x);
}

/* ---- bnb.h ----------------------------------------------------------------------------------- */

#define QM_BNB_ELEMENT(name, form, call)    \
    QM_ELEMENT(bnb_##name##_##form)         \
    {                                       \
        enum qm_bnb_form f = QM_BNB_##form; \
        QM_UNUSED;                          \
        call;                               \
    }
#define QM_BNB_FLAGS flag[QM_FLAG_BNB_COUPLED], flag[QM_FLAG_BNB_FIRST]

QM_BNB_ELEMENT(adamw, 32, qm_bnb_adamw(f, c, p, g, x, x + 1))
QM_BNB_ELEMENT(adamw, plain, qm_bnb_adamw(f, c, p, g, x, x + 1))
QM_BNB_ELEMENT(adamw, cuda, qm_bnb_adamw(f, c, p, g, x, x + 1))
QM_BNB_ELEMENT(ademamix, 32, qm_bnb_ademamix(f, c, p, g, x, x + 1, x + 2))
QM_BNB_ELEMENT(ademamix, plain, qm_bnb_ademamix(f, c, p, g, x, x + 1, x + 2))
QM_BNB_ELEMENT(ademamix, cuda, qm_bnb_ademamix(f, c, p, g, x, x + 1, x + 2))
QM_BNB_ELEMENT(momentum, 8, qm_bnb_momentum(f, c, QM_BNB_FLAGS, p, g, x))
QM_BNB_ELEMENT(momentum, 32, qm_bnb_momentum(f, c, QM_BNB_FLAGS, p, g, x))
QM_BNB_ELEMENT(momentum, plain, qm_bnb_momentum(f, c, QM_BNB_FLAGS, p, g, x))
QM_BNB_ELEMENT(rmsprop, 8, qm_bnb_rmsprop(f, c, flag[QM_FLAG_BNB_COUPLED], p, g, x))
QM_BNB_ELEMENT(rmsprop, 32, qm_bnb_rmsprop(f, c, flag[QM_FLAG_BNB_COUPLED], p, g, x))
QM_BNB_ELEMENT(rmsprop, plain, qm_bnb_rmsprop(f, c, flag[QM_FLAG_BNB_COUPLED], p, g, x))
QM_BNB_ELEMENT(rmsprop, cuda, qm_bnb_rmsprop(f, c, flag[QM_FLAG_BNB_COUPLED], p, g, x))
QM_BNB_ELEMENT(lion, 8, qm_bnb_lion(f, c, p, g, x))
QM_BNB_ELEMENT(lion, 32, qm_bnb_lion(f, c, p, g, x))
QM_BNB_ELEMENT(lion, plain, qm_bnb_lion(f, c, p, g, x))

#endif
