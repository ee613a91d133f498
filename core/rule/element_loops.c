/* element_loops.c - A loop over n elements for each element of element.h.
 *
 * Compiled once per instruction set (QM_ISA).  Every loop is a copy of one body (`run`), in which
 * the element, its number of slots, its flags, the format and whether it has reciprocals are
 * constants, so that the body has no branches and can be vectorized. */
#include "core/rule/element_loops.h"

#include "core/base/isa.h"
#include "core/rule/reciprocal.h"

#define INLINE static inline __attribute__((always_inline))
/* Before a loop whose arrays do not overlap: compilers do not heed local pointers that are
 * restrict. clang would warn of the loops that it cannot vectorize nevertheless: those of float16,
 * and without fused multiply-add those that call fmaf. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"
#define APART_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define APART_LOOP _Pragma("GCC ivdep")
#endif

/* A function into which everything that it calls is inlined. */
#define FLATTEN static __attribute__((flatten))

/* Slots of an element at most; elements of a chunk. */
enum { MOST_SLOTS = 3, CHUNK = 1024 };

typedef void element_fn(const float *c, const int *flag, enum qm_param_format format,
                        const struct qm_inverse *reciprocal, float *p, float g, float *x);
typedef void again_fn(const struct qm_rule_step *s, int64_t n, float *p, float *const *slot);
typedef void states_fn(const float *c, const int *flag, float *p, float g, float *x);

/* A line of the lists: constants. */
struct element {
    element_fn *step;
    again_fn *again; /* the parameters anew, by division; NULL: the element has no reciprocals */
    int n_slots, specialised, divided;
};

/* The arguments of a loop. */
struct arrays {
    const struct qm_rule_step *s;
    int64_t n;
    float *p;
    const float *g;
    float *const *slot;
};

/* The loop.  Returns other than 0 if a slot that is divided was too small for reciprocals. */
INLINE uint32_t run(const struct element *e, const int *flag, enum qm_param_format format,
                    int multiplies, const struct arrays *a)
{
    float c[QM_STEP_SCALARS], *restrict p = a->p, *restrict x0 = a->slot[0],
                                        *restrict x1 = e->n_slots > 1 ? a->slot[1] : NULL,
                                        *restrict x2 = e->n_slots > 2 ? a->slot[2] : NULL;
    const float *restrict g = a->g;
    const struct qm_inverse reciprocal[2] = {a->s->reciprocal[0], a->s->reciprocal[1]};
    uint32_t tiny = 0;
    memcpy(c, a->s->c, sizeof c);
    APART_LOOP
    for (int64_t i = 0; i < a->n; i++) { /* x: constant indices only, so that x is in registers */
        float x[MOST_SLOTS] = {x0[i], e->n_slots > 1 ? x1[i] : 0.0f, e->n_slots > 2 ? x2[i] : 0.0f};
        e->step(c, flag, format, multiplies ? reciprocal : NULL, p + i, g[i], x);
        x0[i] = x[0];
        if (e->n_slots > 1)
            x1[i] = x[1];
        if (e->n_slots > 2)
            x2[i] = x[2];
        tiny |= multiplies && e->divided > 0 ? qm_is_tiny(x[0]) : 0;
        tiny |= multiplies && e->divided > 1 ? qm_is_tiny(x[1]) : 0;
    }
    return tiny;
}

/* A chunk by reciprocals.  Whether a slot was too small for them is known afterwards; then the
 * parameters are restored and updated again, by division. */
INLINE void chunk(const struct element *e, const int *flag, enum qm_param_format format,
                  const struct arrays *a)
{
    float kept[CHUNK];
    memcpy(kept, a->p, sizeof *kept * (size_t)a->n);
    if (!run(e, flag, format, 1, a))
        return;
    memcpy(a->p, kept, sizeof *kept * (size_t)a->n);
    e->again(a->s, a->n, a->p, a->slot);
}

INLINE void chunks(const struct element *e, const int *flag, enum qm_param_format format,
                   const struct arrays *a)
{
    for (int64_t i = 0; i < a->n; i += CHUNK) {
        float *slot[MOST_SLOTS] = {NULL};
        for (int k = 0; k < e->n_slots; k++)
            slot[k] = a->slot[k] + i;
        chunk(
            e, flag, format,
            &(struct arrays){a->s, a->n - i < CHUNK ? a->n - i : CHUNK, a->p + i, a->g + i, slot});
    }
}

INLINE void with_flags(const struct element *e, const int *flag, enum qm_param_format format,
                       const struct arrays *a)
{
    if (!e->again || !qm_rule_multiplies(a->s))
        run(e, flag, format, 0, a);
    else if (e->divided)
        chunks(e, flag, format, a);
    else
        run(e, flag, format, 1, a);
}

/* clang-format off */
#define COMBINATIONS(X)                                 \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)             \
    X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
/* clang-format on */

/* Flag k: a constant of this combination where the loop is specialised on it, else as it is. */
#define FLAG(bits, k) e->specialised >> (k)&1 ? (bits) >> (k)&1 : s->flag[k] != 0

INLINE void with_format(const struct element *e, enum qm_param_format format,
                        const struct arrays *a)
{
    const struct qm_rule_step *s = a->s;
    int all = 0;
    for (int k = 0; k < 4; k++)
        all |= (s->flag[k] != 0) << k;
#define X(bits)                                                                           \
    if (((bits) & ~e->specialised) == 0 && (all & (e->specialised & 15)) == (bits)) {     \
        const int flag[4] = {FLAG(bits, 0), FLAG(bits, 1), FLAG(bits, 2), FLAG(bits, 3)}; \
        with_flags(e, flag, format, a);                                                   \
        return;                                                                           \
    }
    COMBINATIONS(X)
#undef X
}

INLINE void with_element(const struct element *e, const struct arrays *a)
{
#define X(name, ...)                    \
    if (a->s->param == QM_PARAM_##name) \
        with_format(e, QM_PARAM_##name, a);
    if (e->specialised & QM_ON_FORMAT) {
        QM_PARAM_FORMAT_LIST(X)
    } else {
        with_format(e, QM_PARAM_f32, a);
    }
#undef X
}

#define LOOP(name, ...)                                                                  \
    FLATTEN void name(const struct qm_rule_step *s, int64_t n, float *p, const float *g, \
                      float *const *slot)                                                \
    {                                                                                    \
        static const struct element e = {qm_element_##name, __VA_ARGS__};                \
        with_element(&e, &(struct arrays){s, n, p, g, slot});                            \
    }
#define PLAIN_LOOP(name, n_slots, specialised) LOOP(name, NULL, n_slots, specialised, 0)
#define ADAM_LOOP(name, n_slots, specialised, divided)                         \
    __attribute__((cold, noinline)) static void again_##name(                  \
        const struct qm_rule_step *s, int64_t n, float *p, float *const *slot) \
    {                                                                          \
        for (int64_t i = 0; i < n; i++) {                                      \
            float x[MOST_SLOTS] = {0.0f};                                      \
            for (int k = 0; k < (n_slots); k++)                                \
                x[k] = slot[k][i];                                             \
            qm_element_##name##_apply(s->c, s->flag, NULL, p + i, x);          \
        }                                                                      \
    }                                                                          \
    LOOP(name, again_##name, n_slots, specialised, divided)

QM_ELEMENT_PLAIN_LIST(PLAIN_LOOP)
QM_ELEMENT_ADAM_LIST(ADAM_LOOP)

/* The second moments alone, by the states' part of the element, whose other results are dropped. */
INLINE void second(states_fn *states, const int *flag, const struct qm_rule_step *s, int64_t n,
                   const float *restrict p, const float *restrict g, float *restrict v)
{
    float c[QM_STEP_SCALARS];
    memcpy(c, s->c, sizeof c);
    APART_LOOP
    for (int64_t i = 0; i < n; i++) {
        float x[MOST_SLOTS] = {0.0f, v[i], 0.0f}, pi = p[i];
        states(c, flag, &pi, g[i], x);
        v[i] = x[1];
    }
}

#define SECOND(name, ...)                                                               \
    FLATTEN void second_##name(const struct qm_rule_step *s, int64_t n, const float *p, \
                               const float *g, float *v)                                \
    {                                                                                   \
        const int maximize = s->flag[QM_FLAG_MAXIMIZE];                                 \
        const int coupled[4] = {[QM_FLAG_COUPLED] = 1, [QM_FLAG_MAXIMIZE] = maximize};  \
        const int decoupled[4] = {[QM_FLAG_MAXIMIZE] = maximize};                       \
        if (s->flag[QM_FLAG_COUPLED])                                                   \
            second(qm_element_##name##_states, coupled, s, n, p, g, v);                 \
        else                                                                            \
            second(qm_element_##name##_states, decoupled, s, n, p, g, v);               \
    }
QM_ELEMENT_ADAM_LIST(SECOND)

const struct qm_element_loops QM_ISA_NAME(qm_element_loops) = {
#define X(name, ...) .name = name,
    QM_ELEMENT_LIST(X)
#undef X
#define X(name, ...) .second_##name = second_##name,
        QM_ELEMENT_ADAM_LIST(X)
#undef X
};
