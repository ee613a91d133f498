/* one_tensor.h - Steps one tensor under one recipe on the CPU, for tests. */
#ifndef QM_SUPPORT_ONE_TENSOR_H
#define QM_SUPPORT_ONE_TENSOR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/recipe/backend.h"

enum { MOST = 4096 };

/* One tensor under one recipe, with the parameter as it is stored. */
struct opt {
    struct qm_recipe r;
    void *plan;
    struct qm_shape shape;
    int64_t n, t;
    uint32_t room[MOST], g_room[MOST];
};

static inline void store_as(enum qm_param_format f, const float *x, int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++)
        if (f == QM_PARAM_f32)
            ((float *)out)[i] = x[i];
        else
            ((uint16_t *)out)[i] = (uint16_t)qm_param_nearest(f, x[i]);
}

static inline void opt_open(struct opt *o, const char *recipe, struct qm_shape shape,
                            const float *p)
{
    o->shape = shape;
    o->n = qm_shape_numel(&shape);
    o->t = 0;
    assert_true(o->n <= MOST);
    if (qm_recipe_parse(recipe, &o->r) != QM_OK ||
        qm_backend_cpu.open(&o->r, &shape, 0, &o->plan) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    store_as(o->r.param.format, p, o->n, o->room);
}

static inline void opt_close(struct opt *o) { qm_backend_cpu.close(o->plan); }

/* One step with a gradient rounded to the parameter's format; g NULL: the tensor has
 * no gradient. */
static inline void opt_step(struct opt *o, const float *g)
{
    struct qm_tensor p = {o->room, qm_param_type(o->r.param.format), o->shape};
    struct qm_tensor gt = {g ? o->g_room : NULL, p.dtype, o->shape};
    if (g)
        store_as(o->r.param.format, g, o->n, o->g_room);
    if (qm_backend_cpu.step(o->plan, &p, &gt, ++o->t, 0) != QM_OK)
        fail_msg("%s", qm_message());
}

static inline float opt_at(const struct opt *o, int64_t i)
{
    enum qm_param_format f = o->r.param.format;
    return f == QM_PARAM_f32 ? ((const float *)(const void *)o->room)[i]
                             : qm_param_widen(f, ((const uint16_t *)(const void *)o->room)[i]);
}

static inline void opt_momentum(const struct opt *o, float *m)
{
    assert_int_equal(qm_backend_cpu.decode(o->plan, 0, m), QM_OK);
}

static inline float uniform(uint64_t stream, int64_t i)
{
    return qm_uniform(qm_philox_stream(5, stream, (uint64_t)i));
}

static inline float gauss(uint64_t stream, int64_t i)
{
    float sum = -6.0f;
    for (uint64_t k = 0; k < 12; k++)
        sum += uniform(16 * stream + k, i);
    return sum;
}

static inline struct qm_shape flat(int64_t n) { return (struct qm_shape){1, {n}}; }

#endif
