/* philox.h - Philox4x32-10, the random number generator of the harness (dual).
 *
 * Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  A draw is a
 * function of (seed, step, tensor, role, element) and of nothing else: never of threads, blocks or
 * order.  Every word equals that of cuRAND's device state (curand_philox4x32_x.h) with
 * subsequence = (stream << 32) | step and offset = element. */
#ifndef QM_BASE_PHILOX_H
#define QM_BASE_PHILOX_H

#include "core/base/dual.h"

struct qm_philox_block {
    uint32_t word[4];
};

/* Ten rounds on counter (c0..c3) with key (k0, k1). */
QM_FN struct qm_philox_block qm_philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                       uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0;
        uint64_t b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct qm_philox_block out;
    out.word[0] = c0;
    out.word[1] = c1;
    out.word[2] = c2;
    out.word[3] = c3;
    return out;
}

/* Word i of a cuRAND device stream: curand_init(seed, sub, i) followed by one curand(). */
QM_FN uint32_t qm_philox_stream(uint64_t seed, uint64_t sub, uint64_t i)
{
    struct qm_philox_block b =
        qm_philox((uint32_t)(i >> 2), (uint32_t)(i >> 34), (uint32_t)sub, (uint32_t)(sub >> 32),
                  (uint32_t)seed, (uint32_t)(seed >> 32));
    return b.word[i & 3u];
}

/* The purpose of a draw.  It is part of the counter, so that no two streams share a word. */
enum qm_role { QM_ROLE_param = 0, QM_ROLE_slot0 = 1, QM_ROLE_slot1 = 2, QM_ROLE_spare = 3 };

/* The key and the upper half of the counter for one (seed, step, tensor, role). */
struct qm_draws {
    uint64_t seed;
    uint32_t step, stream; /* stream = tensor * 4 + role */
};

QM_FN struct qm_draws qm_draws_for(uint64_t seed, int64_t step, uint32_t tensor, enum qm_role role)
{
    struct qm_draws d;
    d.seed = seed;
    d.step = (uint32_t)step;
    d.stream = tensor * 4u + (uint32_t)role;
    return d;
}

QM_FN uint32_t qm_draw(const struct qm_draws *d, int64_t element)
{
    return qm_philox_stream(d->seed, ((uint64_t)d->stream << 32) | d->step, (uint64_t)element);
}

/* Whether a kernel of a user gets planted draws for a tensor of this number. */
QM_FN int qm_draws_are_planted(uint32_t tensor) { return tensor > 1; }

/* The same as qm_draw but for one element in 61, whose draw is the least, the largest or one of the
 * two in the middle, or in half of them within 16 of it: draws that a test hardly meets. */
QM_FN uint32_t qm_draw_planted(const struct qm_draws *d, int64_t element)
{
    const uint32_t at[] = {0, 0x7fffffff, 0x80000000, 0xffffffff}, draw = qm_draw(d, element);
    uint32_t which = draw % 4, off = draw >> 31 ? 0 : draw >> 27;
    return element % 61 != 17 ? draw : which % 2 ? at[which] - off : at[which] + off;
}

/* The draws of elements first .. first + 3, with first a multiple of 4, in one block. */
QM_FN struct qm_philox_block qm_draw_four(const struct qm_draws *d, int64_t first)
{
    return qm_philox((uint32_t)((uint64_t)first >> 2), (uint32_t)((uint64_t)first >> 34), d->step,
                     d->stream, (uint32_t)d->seed, (uint32_t)(d->seed >> 32));
}

/* The float in (0, 1] that cuRAND's curand_uniform makes of a word. */
QM_FN float qm_uniform(uint32_t word)
{
    return (float)word * 2.3283064365386963e-10f + 1.1641532182693481e-10f;
}

#endif
