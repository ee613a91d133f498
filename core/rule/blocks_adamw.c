/* blocks_adamw.c - compiled once per instruction set (QM_ISA).
 *
 * Each loop is split on its flags outside, so that the body has no branches. */
#include "core/rule/blocks.h"

#include "core/rule/adamw.h"
#include "core/rule/sgdm.h"

#define ARGS                                                                             \
    const struct qm_rule_step *s, int64_t n, float *restrict p, const float *restrict g, \
        float *const *slot

/* The scalars and the slots as locals, which nothing else points at. */
#define ONE_SLOT                        \
    float c[12], *restrict m = slot[0]; \
    memcpy(c, s->c, sizeof c)
#define TWO_SLOTS                \
    float *restrict v = slot[1]; \
    ONE_SLOT

#define THREE_SLOTS                \
    float *restrict top = slot[2]; \
    TWO_SLOTS

/* Whether s->over[k] divides by c[at].  Without fused multiply-add in the instruction set the division
 * is faster. */
#ifdef __FMA__
#define HAS(k, at) (s->over[k].holds && s->over[k].c == c[at])
#else
#define HAS(k, at) (s->over[k].holds < 0)
#endif

/* flag 0: coupled decay (Adam); flag 1: the gradient's sign is turned (maximize). */
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

static void adamw(ARGS)
{
    TWO_SLOTS;
    const struct qm_inverse o0 = s->over[0];
    int has0 = HAS(0, 5);
    if (s->flag[0] && has0)
        LOOP(qm_adamw_torch(c, &o0, 1, p + i, gi, m + i, v + i));
    else if (s->flag[0])
        LOOP(qm_adamw_torch(c, NULL, 1, p + i, gi, m + i, v + i));
    else if (has0)
        LOOP(qm_adamw_torch(c, &o0, 0, p + i, gi, m + i, v + i));
    else
        LOOP(qm_adamw_torch(c, NULL, 0, p + i, gi, m + i, v + i));
}

/* One chunk by inverses; a first moment too small for them is found afterwards, and the parameters
 * are done again. */
enum { CHUNK = 1024 };

static void chunk_ao(ARGS)
{
    float kept[CHUNK];
    uint32_t tiny = 0;
    int coupled = s->flag[0];
    TWO_SLOTS;
    const struct qm_inverse o6 = s->over[0], o5 = s->over[1];
    memcpy(kept, p, sizeof *p * (size_t)n);
    if (coupled)
        LOOP(qm_adamw_ao_states(c, 1, p[i], gi, m + i, v + i);
             qm_adamw_ao_apply(c, 1, &o5, &o6, p + i, m[i], v[i]); tiny |= qm_is_tiny(m[i]));
    else
        LOOP(qm_adamw_ao_states(c, 0, p[i], gi, m + i, v + i);
             qm_adamw_ao_apply(c, 0, &o5, &o6, p + i, m[i], v[i]); tiny |= qm_is_tiny(m[i]));
    if (!tiny)
        return;
    memcpy(p, kept, sizeof *p * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        qm_adamw_ao_apply(c, coupled, NULL, NULL, p + i, m[i], v[i]);
}

static void adamw_ao(ARGS)
{
    TWO_SLOTS;
    int multiplies = HAS(0, 6) && HAS(1, 5);
    for (int64_t i = 0; multiplies && i < n; i += CHUNK) {
        float *const at[] = {m + i, v + i};
        chunk_ao(s, n - i < CHUNK ? n - i : CHUNK, p + i, g + i, at);
    }
    if (multiplies)
        return;
    if (s->flag[0])
        LOOP(qm_adamw_ao(c, 1, p + i, gi, m + i, v + i));
    else
        LOOP(qm_adamw_ao(c, 0, p + i, gi, m + i, v + i));
}

static void adamw_bnb(ARGS)
{
    TWO_SLOTS;
    const struct qm_inverse o0 = s->over[0];
    if (HAS(0, 5))
        LOOP(qm_adamw_bnb(c, &o0, p + i, gi, m + i, v + i));
    else
        LOOP(qm_adamw_bnb(c, NULL, p + i, gi, m + i, v + i));
}

/* flag 2: amsgrad; without it the third slot is not touched. */
#define AMSGRAD(name, without, states, apply)    \
    static void name(ARGS)                       \
    {                                            \
        THREE_SLOTS;                             \
        int coupled = s->flag[0];                \
        if (!s->flag[2]) {                       \
            without(s, n, p, g, slot);           \
            return;                              \
        }                                        \
        LOOP({                                   \
            states;                              \
            top[i] = qm_adamw_top(top[i], v[i]); \
            apply;                               \
        });                                      \
    }

AMSGRAD(adamw_amsgrad, adamw, qm_adamw_torch_states(c, coupled, p + i, gi, m + i, v + i),
        qm_adamw_torch_apply(c, NULL, p + i, m[i], top[i]))
AMSGRAD(adamw_ao_amsgrad, adamw_ao, qm_adamw_ao_states(c, coupled, p[i], gi, m + i, v + i),
        qm_adamw_ao_apply(c, coupled, NULL, NULL, p + i, m[i], top[i]))

/* The second moments alone: the same element functions, whose other results are dropped. */
#define SECOND(name, call)                                                             \
    static void name(const struct qm_rule_step *s, int64_t n, const float *restrict p, \
                     const float *restrict g, float *restrict v)                       \
    {                                                                                  \
        float c[12];                                                                   \
        memcpy(c, s->c, sizeof c);                                                     \
        int coupled = s->flag[0];                                                      \
        (void)coupled;                                                                 \
        LOOP({                                                                         \
            float pi = p[i], mi = 0.0f;                                                \
            call;                                                                      \
        });                                                                            \
    }

SECOND(second_adamw, qm_adamw_torch(c, NULL, coupled, &pi, gi, &mi, v + i))
SECOND(second_ao, qm_adamw_ao(c, coupled, &pi, gi, &mi, v + i))
SECOND(second_bnb, qm_adamw_bnb(c, NULL, &pi, gi, &mi, v + i))

/* flag 0: first step; flag 2: nesterov */
static void sgdm(ARGS)
{
    ONE_SLOT;
    if (s->flag[0])
        LOOP(qm_sgdm_torch(c, 1, s->flag[2], p + i, gi, m + i));
    else
        LOOP(qm_sgdm_torch(c, 0, s->flag[2], p + i, gi, m + i));
}

static void ema(ARGS)
{
    (void)p;
    ONE_SLOT;
    LOOP(qm_ema_lerp(c, gi, m + i));
}

const struct qm_blocks QM_ISA_NAME(qm_blocks) = {
#define X(name) .name = name,
    QM_BLOCK_LIST(X)
#undef X
        .second_adamw = second_adamw,
    .second_ao = second_ao,
    .second_bnb = second_bnb,
};
