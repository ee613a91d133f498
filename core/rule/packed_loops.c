/* packed_loops.c - The rules that update packed blocks in one loop (packed_blocks.h).
 *
 * Compiled once per instruction set (QM_ISA). */
#include "core/rule/packed_loops.h"

#include "core/base/isa.h"
#include "core/rule/lpmm.h"
#include "core/rule/packed_blocks.h"
#include "core/rule/reciprocal.h"

#define ARGS                                                           \
    const struct qm_rule_step *s, int64_t n, float *p, const float *g, \
        const struct qm_packed_slot *slot

#if QM_HAS_FUSED
#define STATES                                                                                 \
    const struct fused_rule *r, float *restrict p, const float *restrict g, float *restrict m, \
        float *restrict v
#define APPLY \
    const struct fused_rule *r, float *restrict p, const float *restrict m, const float *restrict v

#define EACH(count, call)                 \
    do {                                  \
        APART_LOOP                        \
        for (int i = 0; i < (count); i++) \
            call;                         \
    } while (0)

static struct fused_rule rule_of(const struct qm_rule_step *s)
{
    struct fused_rule r = {.multiplies = qm_rule_multiplies(s)};
    memcpy(r.c, s->c, sizeof r.c);
    memcpy(r.reciprocal, s->reciprocal, sizeof r.reciprocal);
    return r;
}

/* 1: maximize, amsgrad, or a slot that does not exist yet: the loops do not know these. */
static int is_unusual(const struct qm_rule_step *s)
{
    return s->flag[QM_FLAG_MAXIMIZE] || s->flag[QM_FLAG_ABSENT] || s->flag[QM_FLAG_ABSENT + 1];
}

/* ---- torchao --------------------------------------------------------------------------------- */

/* A group that has a first moment too small for reciprocals is updated at once, by division. */
INLINE int states_ao_of(int coupled, int multiplies, STATES)
{
    EACH(GROUP, qm_adamw_ao_states(r->c, coupled, p[i], g[i], m + i, v + i));
    if (!multiplies || !__builtin_expect(any_tiny(load_group(m, GROUP)), 0))
        return 0;
    EACH(GROUP, qm_adamw_ao_apply(r->c, NULL, coupled, p + i, m[i], v[i]));
    return 1;
}

INLINE void apply_ao_of(int coupled, int multiplies, APPLY)
{
    if (multiplies)
        EACH(QUARTER, qm_adamw_ao_apply(r->c, r->reciprocal, coupled, p + i, m[i], v[i]));
    else
        EACH(QUARTER, qm_adamw_ao_apply(r->c, NULL, coupled, p + i, m[i], v[i]));
}

#define AO(name, coupled, multiplies)                                                             \
    INLINE int states_##name(STATES) { return states_ao_of(coupled, multiplies, r, p, g, m, v); } \
    INLINE void apply_##name(APPLY) { apply_ao_of(coupled, multiplies, r, p, m, v); }             \
    static const struct fused_kind name = {1, 0, states_##name, apply_##name};

AO(ao, 0, 1)
AO(ao_divide, 0, 0)
AO(ao_coupled, 1, 1)

static int adamw_ao(ARGS)
{
    struct fused_rule r = rule_of(s);
    if (s->flag[QM_FLAG_MAXIMIZE] || (s->flag[QM_FLAG_COUPLED] && !r.multiplies))
        return 0;
    if (s->flag[QM_FLAG_COUPLED])
        return fused_step(&ao_coupled, &r, n, p, g, slot);
    if (r.multiplies)
        return fused_step(&ao, &r, n, p, g, slot);
    return fused_step(&ao_divide, &r, n, p, g, slot);
}

/* ---- one divisor, of a square root ----------------------------------------------------------- */

/* The rules whose only divisor divides a square root.  states, apply: statements on element i;
 * apply divides by `reciprocal`, which may be null.  rank1: slot 1 has norm rank1. */
#define RULE(name, divides, rank1, states, apply)                                                \
    INLINE int states_##name(STATES)                                                             \
    {                                                                                            \
        (void)p;                                                                                 \
        EACH(GROUP, states);                                                                     \
        return 0;                                                                                \
    }                                                                                            \
    INLINE void apply_##name(APPLY)                                                              \
    {                                                                                            \
        const struct qm_inverse *reciprocal = r->reciprocal;                                     \
        EACH(QUARTER, apply);                                                                    \
    }                                                                                            \
    INLINE void divide_##name(APPLY)                                                             \
    {                                                                                            \
        const struct qm_inverse *reciprocal = NULL;                                              \
        EACH(QUARTER, apply);                                                                    \
    }                                                                                            \
    static int name(ARGS)                                                                        \
    {                                                                                            \
        static const struct fused_kind multiply = {divides, rank1, states_##name, apply_##name}; \
        static const struct fused_kind divide = {divides, rank1, states_##name, divide_##name};  \
        struct fused_rule r = rule_of(s);                                                        \
        if (is_unusual(s))                                                                       \
            return 0;                                                                            \
        return r.multiplies ? fused_step(&multiply, &r, n, p, g, slot)                           \
                            : fused_step(&divide, &r, n, p, g, slot);                            \
    }

RULE(adamw_bnb, 0, 0, qm_adamw_bnb_states(r->c, g[i], m + i, v + i),
     qm_adamw_bnb_apply(r->c, reciprocal, p + i, m[i], v[i]))
RULE(lpmm_blocks, 1, 0, qm_adamw_lpmm_states(r->c, g[i], m + i, v + i),
     qm_adamw_lpmm_apply(r->c, reciprocal, p + i, m[i], v[i]))
RULE(lpmm_rank1, 1, 1, qm_adamw_lpmm_states(r->c, g[i], m + i, v + i),
     qm_adamw_lpmm_apply(r->c, reciprocal, p + i, m[i], v[i]))
RULE(adamw_lpmm_fused, 1, 0, qm_adamw_lpmm_fused_states(r->c, 1, g[i], m + i, v + i),
     qm_adamw_lpmm_fused_apply(r->c, reciprocal, 1, p + i, m[i], v[i]))

static int adamw_lpmm(ARGS)
{
    return slot[1].slope ? lpmm_rank1(s, n, p, g, slot) : lpmm_blocks(s, n, p, g, slot);
}

INLINE void second_lpmm(const struct fused_rule *r, const float *restrict g, float *restrict v)
{
    EACH(GROUP, qm_adamw_lpmm_second(r->c, g[i], v + i));
}

static int packed_second_adamw_lpmm(const struct qm_rule_step *s, int64_t n, const float *g,
                                    const struct qm_packed_slot *slot)
{
    struct fused_rule r = rule_of(s);
    rank1_fold(second_lpmm, &r, n, g, slot);
    return 1;
}

#else
#define X(name)                                         \
    static int name(ARGS)                               \
    {                                                   \
        (void)s, (void)n, (void)p, (void)g, (void)slot; \
        return 0;                                       \
    }
QM_PACKED_LIST(X)
#undef X

static int packed_second_adamw_lpmm(const struct qm_rule_step *s, int64_t n, const float *g,
                                    const struct qm_packed_slot *slot)
{
    (void)s, (void)n, (void)g, (void)slot;
    return 0;
}
#endif

const struct qm_packed_loops QM_ISA_NAME(qm_packed_loops) = {
#define X(name) .name = name,
    QM_PACKED_LIST(X)
#undef X
        .second_adamw_lpmm = packed_second_adamw_lpmm,
};
