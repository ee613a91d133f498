/* blocks_param.c - compiled once per instruction set (QM_ISA).
 *
 * One loop for each format and write, so that the body has no switch and can be vectorized. */
#include "core/rule/blocks_param.h"

#define FORMATS(X) X(bf16, uint16_t) X(f16, uint16_t) X(e4m3, uint8_t)

static void load(struct qm_param how, const void *p, const void *residual, int64_t n,
                 float *restrict out)
{
#define LOOP(T, R, value)                             \
    do {                                              \
        const T *restrict from = (const T *)p;        \
        const R *restrict rest = (const R *)residual; \
        for (int64_t i = 0; i < n; i++) {             \
            uint32_t h = from[i];                     \
            value;                                    \
        }                                             \
        (void)rest;                                   \
        return;                                       \
    } while (0)
#define FORMAT(name, T)                                                                   \
    case QM_PARAM_##name:                                                                 \
        switch (how.write) {                                                              \
        case QM_WRITE_kahan:                                                              \
            LOOP(T, uint16_t,                                                             \
                 out[i] = qm_param_widen(QM_PARAM_##name, h) +                            \
                          qm_param_widen(QM_PARAM_##name, rest[i]));                      \
        case QM_WRITE_ecc8:                                                               \
            LOOP(T, int8_t, out[i] = qm_ecc_decode(QM_PARAM_##name, h, rest[i], 127));    \
        case QM_WRITE_ecc16:                                                              \
            LOOP(T, int16_t, out[i] = qm_ecc_decode(QM_PARAM_##name, h, rest[i], 32767)); \
        default: LOOP(T, uint8_t, out[i] = qm_param_widen(QM_PARAM_##name, h));           \
        }
    switch (how.format) {
        FORMATS(FORMAT)
    default: break;
    }
#undef FORMAT
#undef LOOP
}

static void store(struct qm_param how, const float *restrict x, int64_t n,
                  const struct qm_draws *draws, int64_t from, void *p, void *residual)
{
#define LOOP(T, R, round, kept)           \
    do {                                  \
        T *restrict to = (T *)p;          \
        R *restrict rest = (R *)residual; \
        for (int64_t i = 0; i < n; i++) { \
            uint32_t h = round;           \
            to[i] = (T)h;                 \
            kept;                         \
        }                                 \
        (void)rest;                       \
        return;                           \
    } while (0)
#define NEAR(name) qm_param_nearest(QM_PARAM_##name, x[i])
#define FORMAT(name, T)                                                                   \
    case QM_PARAM_##name:                                                                 \
        switch (how.write) {                                                              \
        case QM_WRITE_stoch:                                                              \
            LOOP(T, uint8_t,                                                              \
                 qm_param_stochastic(QM_PARAM_##name, x[i], qm_draw(draws, from + i)), ); \
        case QM_WRITE_kahan:                                                              \
            LOOP(T, uint16_t, NEAR(name),                                                 \
                 rest[i] = (uint16_t)qm_kahan_residual(QM_PARAM_##name, x[i], h));        \
        case QM_WRITE_ecc8:                                                               \
            LOOP(T, int8_t, NEAR(name),                                                   \
                 rest[i] = (int8_t)qm_ecc_encode(QM_PARAM_##name, x[i], h, 127));         \
        case QM_WRITE_ecc16:                                                              \
            LOOP(T, int16_t, NEAR(name),                                                  \
                 rest[i] = (int16_t)qm_ecc_encode(QM_PARAM_##name, x[i], h, 32767));      \
        default: LOOP(T, uint8_t, NEAR(name), );                                          \
        }
    switch (how.format) {
        FORMATS(FORMAT)
    default: break;
    }
#undef FORMAT
#undef LOOP
}

const struct qm_param_blocks QM_ISA_NAME(qm_param_blocks) = {.load = load, .store = store};
