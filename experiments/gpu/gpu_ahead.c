/* gpu_ahead.c - Compiles the kernels of tasks to come, beside the process that measures.
 *
 * NVRTC takes seconds for a kernel and needs no GPU: on a machine of many cores it would keep the
 * GPU waiting for most of the time that somebody lends it.  A device that only compiles takes the
 * place of the GPU; the measuring process then finds the kernels in the cache. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/threads.h"
#include "core/compile/cubin_cache.h"
#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu_run.h"

/* ---- the device ------------------------------------------------------------------------------ */

static int arch;

static qm_status ahead_probe(void) { return QM_OK; }
static qm_status ahead_reserve(size_t bytes, qm_address *out)
{
    (void)bytes;
    *out = 256; /* nobody writes there */
    return QM_OK;
}
static void ahead_release(qm_address at) { (void)at; }
static qm_status ahead_put(qm_address to, const void *from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return QM_OK;
}
static qm_status ahead_get(void *to, qm_address from, size_t bytes)
{
    (void)from;
    memset(to, 0, bytes);
    return QM_OK;
}
static qm_status ahead_load(const struct qm_step_form *f, enum qm_mode mode, void **module)
{
    struct qm_device_binary b = {0};
    qm_status st = qm_step_compile(f, mode, arch, &b);
    qm_device_binary_free(&b);
    *module = &arch;
    return st;
}
static qm_status ahead_launch(void *module, enum qm_step_kernel k, unsigned grid_x, unsigned grid_y,
                              void **args)
{
    (void)module, (void)k, (void)grid_x, (void)grid_y, (void)args;
    return QM_OK;
}
static qm_status ahead_sync(void) { return QM_OK; }
static int ahead_blocks(void) { return 1; }

static const struct qm_device compiler = {
    .name = "cuda",
    .probe = ahead_probe,
    .reserve = ahead_reserve,
    .release = ahead_release,
    .put = ahead_put,
    .get = ahead_get,
    .load = ahead_load,
    .launch = ahead_launch,
    .sync = ahead_sync,
    .blocks = ahead_blocks,
};

/* ---- tasks ----------------------------------------------------------------------------------- */

/* Compiles the kernels of n tensors of a shape. */
static void compile(const struct qm_recipe *r, enum qm_mode mode, int n,
                    const struct qm_shape *shapes, int by_value)
{
    static uint32_t ids[QM_BENCH_TENSORS];
    if (r->rule->tensor) {
        struct qm_tensor_rule_plan *plan = NULL;
        if (qm_tensor_rule_open(&compiler, mode, r, n, shapes, ids, &plan) == QM_OK)
            qm_tensor_rule_close(plan);
        return;
    }
    struct qm_batch *batch = NULL;
    if (qm_batch_open(&compiler, mode, r, n, shapes, ids, &batch) != QM_OK)
        return;
    if (by_value)
        (void)qm_batch_by_value(batch, 1);
    qm_batch_close(batch);
}

void qm_gpu_compile_ahead(const struct qm_gpu_task *t, int64_t n, int device_arch)
{
    struct qm_device_binary b = {0};
    struct qm_code_runs runs = {0};
    struct qm_shape shape = {2, {n / QM_BENCH_COLUMNS, QM_BENCH_COLUMNS}};
    struct qm_recipe r;
    arch = device_arch;
    if (t->part == QM_GPU_codes) {
        (void)qm_codes_runs(&compiler, t->q, 0, 1, &runs);
        free(runs.change);
    }
    if (t->part == QM_GPU_codes || t->part == QM_GPU_peers || qm_recipe_parse(t->name, &r) != QM_OK)
        return;
    for (int i = 0; i < r.rule->n_slots && t->forced; i++)
        r.min_numel[i] = r.whole_blocks[i] = 0;
    if (t->part == QM_GPU_exact) {
        compile(&r, QM_MODE_exact, 1, qm_gpu_shape(t->shape), 0);
    } else if (t->part == QM_GPU_check) { /* cases have other shapes; most have these forms */
        for (int i = 0; i < QM_GPU_SMALL_SHAPES; i++)
            compile(&r, t->mode, 1, qm_gpu_shape(i), 0);
    } else if (t->part == QM_GPU_speed) {
        if (qm_gpu_bench_compile_reader(&arch, &b) == QM_OK)
            qm_device_binary_free(&b);
        (void)qm_given_projection(&r, &shape);
        compile(&r, t->mode, 1, &shape, 0);
    } else {
        shape = (struct qm_shape){1, {qm_speed_small(n)}};
        compile(&r, QM_MODE_exact, 1, &shape, t->way == 1);
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

struct share {
    const struct qm_gpu_run *run;
    int number, of; /* every of-th group, from this one on */
};

static void work(void *share, int fd)
{
    const struct share *s = share;
    const struct qm_gpu_tasks *tasks = &s->run->tasks;
    json_t *capability = json_object_get(s->run->report.device, "compute_capability");
    int group = 0;
    (void)fd;
    if (nice(10) == -1)
        (void)0; /* then it competes with the judge's threads */
    for (int i = 0; i < tasks->n; i++) {
        group += i == 0 || tasks->at[i].group != tasks->at[i - 1].group;
        if (group % s->of == s->number && qm_gpu_task_is_open(&tasks->at[i]))
            qm_gpu_compile_ahead(&tasks->at[i], s->run->options.n,
                                 (int)json_integer_value(capability));
    }
}

int qm_gpu_ahead_start(const struct qm_gpu_run *run, struct qm_gpu_child *c)
{
    char path[PATH_MAX];
    int n = run->options.ahead >= 0 ? run->options.ahead : qm_processors() / 2, started = 0;
    n = n < QM_GPU_AHEAD ? n : QM_GPU_AHEAD;
    if (!qm_cache_path("", path, sizeof path))
        return 0; /* what is compiled would be lost */
    for (int k = 0; k < n; k++) {
        struct share s = {run, k, n};
        started += qm_gpu_child_start(&c[started], work, &s) == QM_OK;
    }
    return started;
}
