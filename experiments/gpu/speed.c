/* speed.c - Times steps on a GPU, relative to a copy within the device's memory.
 *
 * The copy is timed just before each recipe, so that both see the same clocks. */
#include "experiments/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "core/cuda/nvml.h"
#include "experiments/cli/cli.h"
#include "experiments/gpu/bench.h"

/* Recipes without a variant: 16-bit parameters and gradients, for which kernels are used most. */
static const char *const extra_recipes[] = {
    "adamw_f32,param=bf16,grad=bf16", "adamw4_ao,param=bf16/stoch,grad=bf16",
    "adamw8_ao,param=bf16/stoch,grad=bf16", "adamw4_lpmm_group,param=bf16/kahan,grad=bf16"};

/* ---- the copy -------------------------------------------------------------------------------- */

struct copy {
    struct qm_gpu_bench *b;
    qm_address from, to;
    size_t bytes;
};

static qm_status run_copy(void *arg)
{
    struct copy *c = arg;
    QM_CU(c->b->cu, MemcpyDtoDAsync, (c->to, c->from, c->bytes, c->b->stream));
    return QM_OK;
}

/* *rate: bytes/s of the copy, reads and writes. */
static qm_status measure_copy(struct qm_gpu_bench *b, double *rate)
{
    struct copy c = {.b = b, .bytes = sizeof(float) * (size_t)b->n};
    struct qm_gpu_time time;
    qm_status st = qm_device_cuda.reserve(c.bytes, &c.from);
    if (st == QM_OK)
        st = qm_device_cuda.reserve(c.bytes, &c.to);
    if (st == QM_OK)
        st = qm_gpu_bench_time(b, run_copy, &c, &time);
    if (st == QM_OK)
        *rate = 2.0 * (double)c.bytes / time.median;
    qm_device_cuda.release(c.from);
    qm_device_cuda.release(c.to);
    return st;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Bytes per parameter: every array once read and once written, and, for each fold, the least that
 * it reads again: the gradient, and the codes of the folded slots. */
static double bytes_moved(const struct qm_step_form *f, int64_t n, const struct qm_shape *shape)
{
    double p = (double)qm_param_bytes(&f->param) + (double)qm_param_residual(&f->param);
    double g = (double)qm_dtype_size(f->grad), sum = 2.0 * p + g + (double)f->folds * g;
    for (int i = 0; i < f->n_slots; i++) {
        const struct qm_codec *c = &f->slot[i].codec;
        double codes = c->q.bits ? (double)qm_code_bytes(c, n) / (double)n : 4.0;
        double scales = c->q.bits ? 4.0 * (double)qm_scale_count(c, shape) / (double)n : 0.0;
        sum += (2.0 + f->slot[i].folds) * codes + 2.0 * scales;
    }
    return sum;
}

/* Bytes per parameter of a rule over whole tensors, which reads the gradient and the states once
 * more for each sum that must be complete before the next operation (struct qm_rule).  Intermediate
 * float32 arrays between launches are not counted, because a step does not need them. */
static double bytes_of_whole(const struct qm_recipe *r, const struct qm_shape *shape)
{
    double n = (double)qm_shape_numel(shape), again = r->rule->tensor->extra_passes;
    double sum = 2.0 * (double)(qm_param_bytes(&r->param) + qm_param_residual(&r->param)) +
                 (1.0 + again) * (double)qm_dtype_size(r->grad);
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_codec c = {.q = qm_recipe_slot(r, i, shape)};
        struct qm_shape own;
        qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &own);
        sum += (2.0 + again) * (double)qm_state_bytes(&c, &own) / n;
    }
    return sum;
}

/* Describes the kernel with the most work: the step, or the operations on whole tensors. */
static qm_status describe(struct qm_gpu_bench *b, const struct qm_gpu_work *w, json_t *row)
{
    const struct qm_tensor_rule_plan *whole = w->part[0][0].whole;
    void *module = whole ? qm_tensor_rule_module(whole) : qm_batch_module(w->part[0][0].batch);
    enum qm_step_kernel kernel = whole ? QM_KERNEL_whole_sweep : QM_KERNEL_step;
    struct qm_kernel_use use = qm_cuda_use(module, kernel);
    struct qm_gpu_now now = {0};
    int blocks = 0, cached = 0, local = 0;
    QM_CU(b->cu, Occupancy, (&blocks, qm_cuda_function(module, kernel), QM_STEP_THREADS, 0));
    QM_CU(b->cu, FuncGetAttribute, (&local, QM_CU_FUNC_LOCAL, qm_cuda_function(module, kernel)));
    (void)qm_gpu_now(b->pci, &now);
    double seconds = qm_cuda_compile_seconds(module, &cached);
    json_object_set_new(row, "registers", json_integer(use.registers));
    json_object_set_new(row, "spill_bytes", json_integer(use.spill_bytes));
    json_object_set_new(row, "local_bytes", json_integer(local));
    json_object_set_new(row, "shared_bytes", json_integer(use.shared_bytes));
    json_object_set_new(row, "occupancy",
                        json_real((double)blocks * QM_STEP_THREADS / b->threads_per_sm));
    json_object_set_new(row, "compile_seconds", json_real(seconds));
    json_object_set_new(row, "from_cache", json_boolean(cached));
    json_object_set_new(row, "sm_mhz", json_integer(now.sm_mhz));
    json_object_set_new(row, "memory_mhz", json_integer(now.memory_mhz));
    json_object_set_new(row, "watts", json_integer(now.watts));
    return QM_OK;
}

/* Sets parameters, gradient, and the projection of slot `proj` (-1: none).  A 16-bit gradient takes
 * the bits of b->g as they are. */
static qm_status set_inputs(struct qm_gpu_bench *b, const struct qm_recipe *r, int proj,
                            struct qm_gpu_work *w)
{
    void *stored = malloc(sizeof(float) * (size_t)b->n);
    qm_status st = stored ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld parameters", (long long)b->n);
    if (st == QM_OK)
        qm_param_from_float(&r->param, b->n, b->p, stored);
    for (int turn = 0; turn < QM_BENCH_TURNS && st == QM_OK; turn++)
        st = w->part[turn][0].whole
                 ? qm_tensor_rule_give(w->part[turn][0].whole, 0, stored, b->g, r->grad)
                 : qm_batch_give(w->part[turn][0].batch, 0, stored, b->g, r->grad);
    for (int turn = 0; turn < QM_BENCH_TURNS && st == QM_OK && proj >= 0; turn++)
        st = qm_tensor_rule_load(w->part[turn][0].whole, 0, proj, NULL, b->g);
    free(stored);
    return st;
}

static qm_status measure_recipe(struct qm_gpu_bench *b, const char *recipe, enum qm_mode mode,
                                double copy, json_t *rows)
{
    const struct qm_shape shape = {2, {b->n / QM_BENCH_COLUMNS, QM_BENCH_COLUMNS}};
    const uint32_t id = 0;
    struct qm_gpu_work w = {0};
    struct qm_recipe r;
    struct qm_gpu_time time;
    QM_TRY(qm_recipe_parse(recipe, &r));
    int proj = qm_given_projection(&r, &shape);
    qm_status st = qm_gpu_work_add(&w, mode, &r, 1, &shape, &id);
    if (st == QM_OK)
        st = set_inputs(b, &r, proj, &w);
    if (st == QM_OK)
        st = qm_gpu_bench_time(b, qm_gpu_work_run, &w, &time);
    if (st == QM_OK) {
        double n = (double)b->n;
        double bytes = r.rule->tensor
                           ? bytes_of_whole(&r, &shape)
                           : bytes_moved(qm_batch_form(w.part[0][0].batch), b->n, &shape);
        json_t *row =
            json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:i, s:f, s:f}", "recipe", recipe, "mode",
                      mode == QM_MODE_fast ? "fast" : "exact", "elements", (json_int_t)b->n,
                      "bytes_per_parameter", bytes, "seconds", time.median, "least_seconds",
                      time.least, "rounds", time.rounds, "rate", n / time.median, "share_of_copy",
                      bytes * n / time.median / copy);
        st = describe(b, &w, row);
        json_array_append_new(rows, row);
    }
    qm_gpu_work_close(&w);
    return st == QM_SKIPPED ? QM_OK : st;
}

/* ---- all ------------------------------------------------------------------------------------- */

qm_status qm_speed_measure(const char *only, int64_t n, int rounds, struct qm_speed *out)
{
    struct qm_gpu_bench b = {0};
    struct qm_progress progress;
    int count = qm_variant_count(), others = (int)(sizeof extra_recipes / sizeof *extra_recipes);
    json_t *rows = json_array(), *tables = json_array();
    double copy = 0.0;
    qm_status st = qm_gpu_bench_open(n, rounds, &b);
    qm_progress_start(&progress, "speed", 2 * (count + others));
    for (int i = 0; i < 2 * (count + others) && st == QM_OK; i++) {
        int k = i / 2;
        const char *recipe = k < count ? qm_variant_at(k)->name : extra_recipes[k - count];
        qm_progress_add(&progress, 1, 0);
        if (only && strcmp(only, recipe) != 0)
            continue;
        st = measure_copy(&b, &copy);
        if (st == QM_OK)
            st = measure_recipe(&b, recipe, i % 2 ? QM_MODE_fast : QM_MODE_exact, copy, rows);
    }
    qm_progress_end(&progress);
    if (st == QM_OK)
        st = qm_speed_tables(&b, only, tables);
    *out = (struct qm_speed){copy, b.n, (int64_t)b.flush_bytes, b.rounds, rows, tables};
    qm_gpu_bench_close(&b);
    return st;
}
