/* backend_device.c - The backends "cuda" and "emu": plans of one tensor on a device. */
#include <stdlib.h>
#include <string.h>

#include "core/device/batch.h"
#include "core/device/tensor_rule_plan.h"
#include "core/recipe/backend.h"

/* The mode of plans that are opened from now on; each plan keeps its own.  It is not a parameter
 * because struct qm_backend has one `open` for all backends, and the others know no mode. */
static enum qm_mode mode = QM_MODE_exact;

void qm_backend_device_mode(enum qm_mode m) { mode = m; }

struct plan {
    struct qm_batch *batch;                  /* of an elementwise rule, else NULL */
    struct qm_tensor_rule_plan *tensor_rule; /* of a tensor rule, else NULL */
    struct qm_param param;
    int64_t n;
};

static void device_close(void *plan)
{
    struct plan *p = plan;
    if (!p)
        return;
    qm_batch_close(p->batch);
    qm_tensor_rule_close(p->tensor_rule);
    free(p);
}

static qm_status open_on(const struct qm_device *d, const struct qm_recipe *r,
                         const struct qm_shape *shape, uint32_t tensor, void **plan)
{
    char recipe[QM_RECIPE_TEXT];
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->param = r->param;
    p->n = qm_shape_numel(shape);
    qm_status st = r->rule->tensor
                       ? qm_tensor_rule_open(d, mode, r, 1, shape, &tensor, &p->tensor_rule)
                       : qm_batch_open(d, mode, r, 1, shape, &tensor, &p->batch);
    if (st == QM_OK) {
        *plan = p;
        return QM_OK;
    }
    device_close(p);
    return st == QM_SKIPPED ? st : qm_fail_in(st, qm_recipe_print(r, recipe));
}

static qm_status device_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g,
                             int64_t t, uint64_t seed)
{
    struct plan *p = plan;
    enum qm_dtype stored_as = qm_param_type(p->param.format);
    if (param->dtype != stored_as)
        return qm_fail(QM_BAD_ARG, "parameters must be %s, got %s", qm_dtype_name(stored_as),
                       qm_dtype_name(param->dtype));
    if (t < 1)
        return qm_fail(QM_BAD_ARG, "steps count from 1, got %lld", (long long)t);
    if (!g->data)
        return QM_OK;
    if (p->tensor_rule) {
        QM_TRY(qm_tensor_rule_give(p->tensor_rule, 0, param->data, g->data, g->dtype));
        QM_TRY(qm_tensor_rule_run(p->tensor_rule, t, seed));
        return qm_tensor_rule_take(p->tensor_rule, 0, param->data);
    }
    QM_TRY(qm_batch_give(p->batch, 0, param->data, g->data, g->dtype));
    QM_TRY(qm_batch_run(p->batch, t, seed));
    return qm_batch_take(p->batch, 0, param->data);
}

static qm_status device_decode(void *plan, int slot, float *out)
{
    struct plan *p = plan;
    return p->tensor_rule ? qm_tensor_rule_decode(p->tensor_rule, 0, slot, out)
                          : qm_batch_decode(p->batch, 0, slot, out);
}

static qm_status device_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    struct plan *p = plan;
    return p->tensor_rule ? qm_tensor_rule_save(p->tensor_rule, 0, slot, codes, scales)
                          : qm_batch_save(p->batch, 0, slot, codes, scales);
}

static qm_status device_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct plan *p = plan;
    return p->tensor_rule ? qm_tensor_rule_load(p->tensor_rule, 0, slot, codes, scales)
                          : qm_batch_load(p->batch, 0, slot, codes, scales);
}

static qm_status device_hyper(void *plan, const struct qm_hyper *h)
{
    struct plan *p = plan;
    return p->tensor_rule ? qm_tensor_rule_hyper(p->tensor_rule, h) : qm_batch_hyper(p->batch, h);
}

static int64_t device_bytes(const void *plan)
{
    const struct plan *p = plan;
    return p->tensor_rule ? qm_tensor_rule_bytes(p->tensor_rule) : qm_batch_bytes(p->batch);
}

#define BACKEND(on)                                                                     \
    static qm_status on##_probe(void) { return qm_device_##on.probe(); }                \
    static qm_status on##_open(const struct qm_recipe *r, const struct qm_shape *shape, \
                               uint32_t tensor, void **plan)                            \
    {                                                                                   \
        return open_on(&qm_device_##on, r, shape, tensor, plan);                        \
    }                                                                                   \
    const struct qm_backend qm_backend_##on = {                                         \
        .name = #on,                                                                    \
        .probe = on##_probe,                                                            \
        .open = on##_open,                                                              \
        .step = device_step,                                                            \
        .decode = device_decode,                                                        \
        .save = device_save,                                                            \
        .load = device_load,                                                            \
        .bytes = device_bytes,                                                          \
        .close = device_close,                                                          \
        .hyper = device_hyper,                                                          \
    };

BACKEND(cuda)
BACKEND(emu)
