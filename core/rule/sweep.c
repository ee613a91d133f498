/* sweep.c - Runs operations on whole tensors: here, or on the device of this thread. */
#include "core/rule/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

static _Thread_local const struct qm_tensor_rule_device *device;

void qm_tensor_rule_set_device(const struct qm_tensor_rule_device *d) { device = d; }
const struct qm_tensor_rule_device *qm_tensor_rule_device(void) { return device; }

#define X(name)                                                                  \
    static void run_##name(const struct qm_sweep *how, int64_t from, int64_t to) \
    {                                                                            \
        const struct qm_sweep a = *how;                                          \
        for (int64_t i = from; i < to; i++)                                      \
            qm_sweep_##name(&a, i);                                              \
    }
QM_SWEEP_LIST(X)
#undef X

void qm_sweep_run(enum qm_sweep_kind kind, const struct qm_sweep *a)
{
    static void (*const run[])(const struct qm_sweep *, int64_t, int64_t) = {
#define X(name) run_##name,
        QM_SWEEP_LIST(X)
#undef X
    };
    if (device) {
        if (a->n > 0)
            device->sweep(kind, a);
        return;
    }
    QM_CHUNKS(a->n, i)
    run[kind](a, i, i + qm_chunk_n(a->n, i));
}

qm_status qm_tensor_rule_alloc(size_t bytes, void **out)
{
    if (device)
        return device->room(bytes, out);
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "%zu bytes for a rule over whole tensors", bytes);
    *out = p;
    return QM_OK;
}

void qm_tensor_rule_free(void *p)
{
    if (device)
        device->release(p);
    else
        free(p);
}

qm_status qm_tensor_rule_cached(int64_t key, size_t bytes, void **out, int *is_new)
{
    if (device)
        return device->kept(key, bytes, out, is_new);
    *is_new = 1;
    return qm_tensor_rule_alloc(bytes, out);
}

void qm_tensor_rule_read(void *to, const void *from, size_t bytes)
{
    if (device)
        device->get(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

void qm_tensor_rule_write(void *to, const void *from, size_t bytes)
{
    if (device)
        device->put(to, from, bytes);
    else
        memcpy(to, from, bytes);
}
