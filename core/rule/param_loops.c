/* param_loops.c - Loads and stores parameters of every format.
 *
 * Compiled once per instruction set (QM_ISA).  There is one loop for each format and way of
 * writing, so that its body has no switch and can be vectorized. */
#include "core/rule/param_loops.h"

#define FORMATS(X) X(bf16, uint16_t) X(f16, uint16_t) X(e4m3, uint8_t)

static void load(struct qm_param how, const void *p, const void *residual, int64_t n,
                 float *restrict out)
{
#define LOOP(name, T, R, how_written)                                                      \
    do {                                                                                   \
        const T *restrict from = (const T *)p;                                             \
        const R *restrict rest = (const R *)residual;                                      \
        for (int64_t i = 0; i < n; i++)                                                    \
            out[i] = qm_param_read(QM_PARAM_##name, QM_WRITE_##how_written, from[i],       \
                                   QM_WRITE_##how_written == QM_WRITE_near ? 0 : rest[i]); \
        (void)rest;                                                                        \
        return;                                                                            \
    } while (0)
#define FORMAT(name, T)                                      \
    case QM_PARAM_##name:                                    \
        switch (how.write) {                                 \
        case QM_WRITE_kahan: LOOP(name, T, uint16_t, kahan); \
        case QM_WRITE_ecc8: LOOP(name, T, uint8_t, ecc8);    \
        case QM_WRITE_ecc16: LOOP(name, T, uint16_t, ecc16); \
        default: LOOP(name, T, uint8_t, near);               \
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
#define LOOP(name, T, R, how_written, draw)                                                   \
    do {                                                                                      \
        T *restrict to = (T *)p;                                                              \
        R *restrict rest = (R *)residual;                                                     \
        for (int64_t i = 0; i < n; i++) {                                                     \
            uint32_t h = qm_param_round(QM_PARAM_##name, QM_WRITE_##how_written, x[i], draw); \
            to[i] = (T)h;                                                                     \
            if (QM_WRITE_##how_written != QM_WRITE_near &&                                    \
                QM_WRITE_##how_written != QM_WRITE_stoch)                                     \
                rest[i] = (R)qm_param_rest(QM_PARAM_##name, QM_WRITE_##how_written, x[i], h); \
        }                                                                                     \
        (void)rest;                                                                           \
        return;                                                                               \
    } while (0)
#define FORMAT(name, T)                                                               \
    case QM_PARAM_##name:                                                             \
        switch (how.write) {                                                          \
        case QM_WRITE_stoch: LOOP(name, T, uint8_t, stoch, qm_draw(draws, from + i)); \
        case QM_WRITE_kahan: LOOP(name, T, uint16_t, kahan, 0);                       \
        case QM_WRITE_ecc8: LOOP(name, T, uint8_t, ecc8, 0);                          \
        case QM_WRITE_ecc16: LOOP(name, T, uint16_t, ecc16, 0);                       \
        default: LOOP(name, T, uint8_t, near, 0);                                     \
        }
    switch (how.format) {
        FORMATS(FORMAT)
    default: break;
    }
#undef FORMAT
#undef LOOP
}

const struct qm_param_loops QM_ISA_NAME(qm_param_loops) = {.load = load, .store = store};
