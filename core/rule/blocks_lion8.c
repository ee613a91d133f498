/* blocks_lion8.c - compiled once per instruction set (QM_ISA).
 *
 * flag 0: coupled decay; flag 1: the gradient's sign is turned (maximize); flag 2: nesterov;
 * flag 3: the decay factor is rounded to the parameter's format. */
#include "core/rule/blocks_lion8.h"

#include "core/rule/lion8.h"

#define ARGS                                                                             \
    const struct qm_rule_step *s, int64_t n, float *restrict p, const float *restrict g, \
        float *const *slot

/* The scalars and the slots as locals, which nothing else points at. */
#define ONE_SLOT                                                    \
    float c[12], *restrict m = slot[0], turn = s->flag[1] ? -1 : 1; \
    memcpy(c, s->c, sizeof c)

/* turn is +-1: the product is exact. */
#define LOOP(...)                     \
    for (int64_t i = 0; i < n; i++) { \
        float gi = g[i] * turn;       \
        __VA_ARGS__;                  \
    }

static void lion8_unfused(ARGS)
{
    ONE_SLOT;
    if (s->flag[3])
        c[0] = qm_param_widen(s->param, qm_param_nearest(s->param, c[0]));
    if (s->param == QM_PARAM_bf16)
        LOOP(qm_lion8_unfused(c, QM_PARAM_bf16, p + i, gi, m + i))
    else if (s->param == QM_PARAM_f16)
        LOOP(qm_lion8_unfused(c, QM_PARAM_f16, p + i, gi, m + i))
    else
        LOOP(qm_lion8_unfused(c, QM_PARAM_f32, p + i, gi, m + i))
}

static void lion8_fused(ARGS)
{
    ONE_SLOT;
    LOOP(qm_lion8_fused(c, p + i, gi, m + i))
}

/* Without fused multiply-add in the instruction set the division is faster. */
#ifdef __FMA__
#define HAS(k, at) (s->over[k].holds && s->over[k].c == s->c[at])
#else
#define HAS(k, at) (s->over[k].holds < 0)
#endif

/* One chunk by inverses; moments too small for them are found afterwards, and the parameters are done
 * again. */
enum { CHUNK = 1024 };

static void chunk_flash(ARGS)
{
    float kept[CHUNK], *restrict v = slot[1];
    const struct qm_inverse o6 = s->over[0], o7 = s->over[1];
    uint32_t tiny = 0;
    int coupled = s->flag[0];
    ONE_SLOT;
    memcpy(kept, p, sizeof *p * (size_t)n);
#define STEP(coupled)                                                 \
    LOOP({                                                            \
        qm_flash_adam_states(c, coupled, p[i], gi, m + i, v + i);     \
        qm_flash_adam_apply(c, coupled, &o6, &o7, p + i, m[i], v[i]); \
        tiny |= qm_is_tiny(m[i]) | qm_is_tiny(v[i]);                  \
    })
    if (coupled)
        STEP(1)
    else
        STEP(0)
#undef STEP
    if (!tiny)
        return;
    memcpy(p, kept, sizeof *p * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        qm_flash_adam_apply(c, coupled, NULL, NULL, p + i, m[i], v[i]);
}

static void flash_adam(ARGS)
{
    float *restrict v = slot[1];
    ONE_SLOT;
    int multiplies = HAS(0, 6) && HAS(1, 7);
    for (int64_t i = 0; multiplies && i < n; i += CHUNK) {
        float *const at[] = {m + i, v + i};
        chunk_flash(s, n - i < CHUNK ? n - i : CHUNK, p + i, g + i, at);
    }
    if (multiplies)
        return;
    if (s->flag[0])
        LOOP(qm_flash_adam(c, 1, p + i, gi, m + i, v + i))
    else
        LOOP(qm_flash_adam(c, 0, p + i, gi, m + i, v + i))
}

static void second_flash_adam(const struct qm_rule_step *s, int64_t n, const float *restrict p,
                              const float *restrict g, float *restrict v)
{
    float c[12], turn = s->flag[1] ? -1 : 1;
    memcpy(c, s->c, sizeof c);
    int coupled = s->flag[0];
    LOOP({
        float pi = p[i], mi = 0.0f;
        qm_flash_adam(c, coupled, &pi, gi, &mi, v + i);
    })
}

static void flash_sgd(ARGS)
{
    ONE_SLOT;
    int coupled = s->flag[0], nesterov = s->flag[2];
    LOOP(qm_flash_sgd(c, coupled, nesterov, p + i, gi, m + i))
}

const struct qm_lion8_blocks QM_ISA_NAME(qm_lion8_blocks) = {
#define X(name) .name = name,
    QM_LION8_BLOCK_LIST(X)
#undef X
        .second_flash_adam = second_flash_adam,
};
