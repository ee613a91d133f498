/* gradient_parts.h - What gradient.c and planted_gradient.c share. */
#ifndef QM_EXPERIMENTS_CHECK_GRADIENT_PARTS_H
#define QM_EXPERIMENTS_CHECK_GRADIENT_PARTS_H

#include <gsl/gsl_cdf.h>
#include <math.h>

#include "core/base/philox.h"
#include "experiments/check/cases.h"

/* Tensor numbers of the random counter; the judged tensor draws as number 1. */
enum {
    QM_STREAM_START = 101,
    QM_STREAM_GRADIENT = 102,
    QM_STREAM_PLANT = 103,
    QM_STREAM_STATE = 104
};

static inline uint32_t qm_case_draw(const struct qm_aim *a, uint32_t stream, int64_t t, int64_t i)
{
    struct qm_draws d = qm_draws_for(a->seed, t, stream, QM_ROLE_spare);
    return qm_draw(&d, i);
}

static inline double qm_case_uniform(uint32_t word) { return ((double)word + 0.5) * 0x1p-32; }

/* Draws i to i + 3, for i a multiple of 4; one block of Philox holds four. */
static inline struct qm_philox_block qm_case_draws(const struct qm_aim *a, uint32_t stream,
                                                   int64_t t, int64_t i)
{
    struct qm_draws d = qm_draws_for(a->seed, t, stream, QM_ROLE_spare);
    uint64_t block = (uint64_t)i >> 2;
    return qm_philox((uint32_t)block, (uint32_t)(block >> 32), d.step, d.stream, (uint32_t)d.seed,
                     (uint32_t)(d.seed >> 32));
}

static inline double qm_case_normal_of(uint32_t word)
{
    return gsl_cdf_ugaussian_Pinv(qm_case_uniform(word));
}

static inline double qm_case_normal(const struct qm_aim *a, uint32_t stream, int64_t t, int64_t i)
{
    return qm_case_normal_of(qm_case_draw(a, stream, t, i));
}

/* The float32 so many steps above x. */
static inline float qm_steps_from(float x, int ulps)
{
    for (; ulps > 0; ulps--)
        x = nextafterf(x, INFINITY);
    for (; ulps < 0; ulps++)
        x = nextafterf(x, -INFINITY);
    return x;
}

/* Elements that share an anchor: the block of the slot's quantizer, or 128. */
int64_t qm_plant_block(const struct qm_aim *a, int slot);

/* The gradients of classes planted and exact, of element i at step t, the k-th of the case. */
float qm_planted_gradient(const struct qm_aim *a, int64_t t, int k, int64_t i);
float qm_aimed_gradient(const struct qm_aim *a, int64_t t, int k, int64_t i);

#endif
