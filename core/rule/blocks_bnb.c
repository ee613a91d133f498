/* blocks_bnb.c - compiled once per instruction set (QM_ISA).
 *
 * flag 0: the first step; flag 1: the L2 term is there.  Loops are split on them outside. */
#include "core/rule/blocks_bnb.h"

#define INLINE static inline __attribute__((always_inline))
#define ARGS                                                                           \
    enum qm_bnb_form form, const struct qm_rule_step *s, int64_t n, float *restrict p, \
        const float *restrict g, float *const *slot
/* The scalars as locals, which nothing else points at. */
#define SCALARS  \
    float c[16]; \
    memcpy(c, s->c, sizeof c)
#define LOOP(call)                    \
    for (int64_t i = 0; i < n; i++) { \
        call;                         \
    }

INLINE void adamw(ARGS)
{
    float *restrict m = slot[0], *restrict v = slot[1];
    SCALARS;
    LOOP(qm_bnb_adamw(form, c, p + i, g[i], m + i, v + i))
}

INLINE void ademamix(ARGS)
{
    float *restrict m = slot[0], *restrict slow = slot[1], *restrict v = slot[2];
    SCALARS;
    LOOP(qm_bnb_ademamix(form, c, p + i, g[i], m + i, slow + i, v + i))
}

INLINE void momentum(ARGS)
{
    float *restrict b = slot[0];
    SCALARS;
    if (s->flag[0] && s->flag[1])
        LOOP(qm_bnb_momentum(form, c, 1, 1, p + i, g[i], b + i))
    else if (s->flag[0])
        LOOP(qm_bnb_momentum(form, c, 0, 1, p + i, g[i], b + i))
    else if (s->flag[1])
        LOOP(qm_bnb_momentum(form, c, 1, 0, p + i, g[i], b + i))
    else
        LOOP(qm_bnb_momentum(form, c, 0, 0, p + i, g[i], b + i))
}

INLINE void rmsprop(ARGS)
{
    float *restrict v = slot[0];
    SCALARS;
    if (s->flag[1])
        LOOP(qm_bnb_rmsprop(form, c, 1, p + i, g[i], v + i))
    else
        LOOP(qm_bnb_rmsprop(form, c, 0, p + i, g[i], v + i))
}

INLINE void lion(ARGS)
{
    float *restrict m = slot[0];
    SCALARS;
    LOOP(qm_bnb_lion(form, c, p + i, g[i], m + i))
}

#define X(name, form)                                                                     \
    static void name##_##form(const struct qm_rule_step *s, int64_t n, float *restrict p, \
                              const float *restrict g, float *const *slot)                \
    {                                                                                     \
        name(QM_BNB_##form, s, n, p, g, slot);                                            \
    }
QM_BNB_BLOCK_LIST(X)
#undef X

const struct qm_bnb_blocks QM_ISA_NAME(qm_bnb_blocks) = {
#define X(name, form) .name##_##form = name##_##form,
    QM_BNB_BLOCK_LIST(X)
#undef X
};
