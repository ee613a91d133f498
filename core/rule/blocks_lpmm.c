/* blocks_lpmm.c - compiled once per instruction set (QM_ISA).
 *
 * flag 2, flag 3: slot 0 or 1, of one element, is not there yet; flag 0 of sgdm likewise, or the
 * first step. */
#include "core/rule/blocks_lpmm.h"

#include "core/rule/lpmm.h"
#include "core/rule/sgdm.h"

#define ARGS                                                                             \
    const struct qm_rule_step *s, int64_t n, float *restrict p, const float *restrict g, \
        float *const *slot

/* flag 1: the gradient's sign is turned (maximize; not in the source). */
#define LOOP(...)                             \
    do {                                      \
        if (s->flag[1])                       \
            for (int64_t i = 0; i < n; i++) { \
                float gi = -g[i];             \
                __VA_ARGS__;                  \
            }                                 \
        else                                  \
            for (int64_t i = 0; i < n; i++) { \
                float gi = g[i];              \
                __VA_ARGS__;                  \
            }                                 \
    } while (0)

/* call: with `over` for s->over[0], which divides by c[at] (not worth it without fused multiply-add),
 * or null. */
#ifdef __FMA__
#define HAS(at) (o.holds && o.c == c[at])
#else
#define HAS(at) (o.holds < 0)
#endif

#define STEP(name, at, call)                                       \
    static void name(ARGS)                                         \
    {                                                              \
        float c[12], *restrict m = slot[0], *restrict v = slot[1]; \
        const struct qm_inverse o = s->over[0];                    \
        memcpy(c, s->c, sizeof c);                                 \
        if (s->flag[2])                                            \
            m[0] = 0.0f;                                           \
        if (s->flag[3])                                            \
            v[0] = 0.0f;                                           \
        if (HAS(at))                                               \
            LOOP(const struct qm_inverse *over = &o; call);        \
        else                                                       \
            LOOP(const struct qm_inverse *over = NULL; call);      \
    }

STEP(adamw_lpmm, 5, qm_adamw_lpmm(c, over, p + i, gi, m + i, v + i))
STEP(adamw_lpmm_fused, 4, qm_adamw_lpmm_fused(c, over, 1, p + i, gi, m + i, v + i))
STEP(adamw_lpmm_fused_strict, 4, qm_adamw_lpmm_fused(c, over, 0, p + i, gi, m + i, v + i))

/* The second moments alone, which no sign of the gradient changes; p is not needed. */
#define SECOND(name, call)                                                             \
    static void name(const struct qm_rule_step *s, int64_t n, const float *restrict p, \
                     const float *restrict g, float *restrict v)                       \
    {                                                                                  \
        float c[12];                                                                   \
        memcpy(c, s->c, sizeof c);                                                     \
        (void)p;                                                                       \
        for (int64_t i = 0; i < n; i++)                                                \
            call;                                                                      \
    }

SECOND(second_lpmm, qm_adamw_lpmm_second(c, g[i], v + i))
SECOND(second_lpmm_fused, v[i] = qm_lpmm_average(1, v[i], c[2], (c[3] * g[i]) * g[i]))
SECOND(second_lpmm_fused_strict, v[i] = qm_lpmm_average(0, v[i], c[2], (c[3] * g[i]) * g[i]))

/* flag 0: first step; flag 2: nesterov */
static void sgdm_lpmm(ARGS)
{
    float c[12], *restrict m = slot[0];
    memcpy(c, s->c, sizeof c);
    if (s->flag[0])
        LOOP(qm_sgdm_torch(c, 1, s->flag[2], p + i, gi, m + i));
    else
        LOOP(qm_sgdm_torch(c, 0, s->flag[2], p + i, gi, m + i));
}

const struct qm_blocks_lpmm QM_ISA_NAME(qm_blocks_lpmm) = {
#define X(name) .name = name,
    QM_LPMM_BLOCK_LIST(X) QM_LPMM_SECOND_LIST(X)
#undef X
};
