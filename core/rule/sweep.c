/* sweep.c - operations on whole tensors here or, where this thread's rule runs there, on a device. */
#include "core/rule/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "core/rule/whole.h"

static _Thread_local const struct qm_whole_device *device;

void qm_whole_on(const struct qm_whole_device *d) { device = d; }
const struct qm_whole_device *qm_whole_device(void) { return device; }

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
    QM_CHUNKS(a->n, i, n)
    run[kind](a, i, i + n);
}

qm_status qm_whole_room(size_t bytes, void **out)
{
    if (device)
        return device->room(bytes, out);
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "%zu bytes for a rule over whole tensors", bytes);
    *out = p;
    return QM_OK;
}

void qm_whole_release(void *p)
{
    if (device)
        device->release(p);
    else
        free(p);
}

qm_status qm_whole_kept(int64_t key, size_t bytes, void **out, int *is_new)
{
    if (device)
        return device->kept(key, bytes, out, is_new);
    *is_new = 1;
    return qm_whole_room(bytes, out);
}

void qm_whole_get(void *to, const void *from, size_t bytes)
{
    if (device)
        device->get(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

void qm_whole_put(void *to, const void *from, size_t bytes)
{
    if (device)
        device->put(to, from, bytes);
    else
        memcpy(to, from, bytes);
}
