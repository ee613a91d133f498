/* speed.c - steps on a GPU: events around the kernels, the L2 cache emptied before, everything as a share
 * of what a copy within the device's memory reaches in the same minute. */
#include "experiments/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/device_cuda.h"
#include "core/engine/nvml.h"
#include "experiments/cli.h"

enum { COLUMNS = 4096, WARM = 3, MOST_ROUNDS = 1000, TENSORS = 100, SMALL = 16384 };

/* Recipes that no variant is: 16-bit parameters and gradients, where kernels are used most. */
static const char *const more[] = {
    "adamw_f32,param=bf16,grad=bf16", "adamw4_ao,param=bf16/stoch,grad=bf16",
    "adamw8_ao,param=bf16/stoch,grad=bf16", "adamw4_lpmm_group,param=bf16/kahan,grad=bf16"};

struct bench {
    const struct qm_cuda *cu;
    void *stream, *from, *to;
    int device, sms, threads_per_sm, rounds;
    int64_t n;
    char pci[32];
    qm_address flush;
    size_t flush_bytes;
    float *p, *g;
    double copy;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

/* Seconds of one call, between events; the cache is emptied first. */
static qm_status time_one(struct bench *b, qm_status (*work)(void *), void *arg, double *seconds)
{
    float ms = 0.0f;
    QM_CU(b->cu, MemsetD8Async, (b->flush, 0, b->flush_bytes, b->stream));
    QM_CU(b->cu, EventRecord, (b->from, b->stream));
    QM_TRY(work(arg));
    QM_CU(b->cu, EventRecord, (b->to, b->stream));
    QM_CU(b->cu, EventSynchronize, (b->to));
    QM_CU(b->cu, EventElapsedTime, (&ms, b->from, b->to));
    *seconds = 1e-3 * (double)ms;
    return QM_OK;
}

static qm_status time_many(struct bench *b, qm_status (*work)(void *), void *arg, double *mid,
                           double *least)
{
    double all[MOST_ROUNDS], ignored;
    for (int i = 0; i < WARM; i++)
        QM_TRY(time_one(b, work, arg, &ignored));
    for (int i = 0; i < b->rounds; i++)
        QM_TRY(time_one(b, work, arg, &all[i]));
    *mid = median(all, b->rounds);
    *least = all[0];
    return QM_OK;
}

/* ---- the yardstick ------------------------------------------------------------------------------ */

struct copy {
    struct bench *b;
    qm_address from, to;
    size_t bytes;
};

static qm_status run_copy(void *arg)
{
    struct copy *c = arg;
    QM_CU(c->b->cu, MemcpyDtoDAsync, (c->to, c->from, c->bytes, c->b->stream));
    return QM_OK;
}

static qm_status measure_copy(struct bench *b)
{
    struct copy c = {.b = b, .bytes = sizeof(float) * (size_t)b->n};
    double mid = 1.0, least;
    qm_status st = qm_device_cuda.reserve(c.bytes, &c.from);
    if (st == QM_OK)
        st = qm_device_cuda.reserve(c.bytes, &c.to);
    if (st == QM_OK)
        st = time_many(b, run_copy, &c, &mid, &least);
    if (st == QM_OK)
        b->copy = 2.0 * (double)c.bytes / mid;
    qm_device_cuda.release(c.from);
    qm_device_cuda.release(c.to);
    return st;
}

/* ---- a step --------------------------------------------------------------------------------------- */

struct stepping {
    struct qm_batch *batch;
    int64_t t;
};

static qm_status run_step(void *arg)
{
    struct stepping *s = arg;
    return qm_batch_run(s->batch, s->t++, 1);
}

/* Bytes a parameter: read and written once, and what the passes that fold read again at least, the
 * gradient and the codes of what is folded. */
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

static qm_status describe(struct bench *b, const struct qm_batch *batch, json_t *row)
{
    void *module = qm_batch_module(batch);
    struct qm_kernel_use use = qm_cuda_use(module, QM_KERNEL_step);
    struct qm_gpu_now now = {0};
    int blocks = 0, cached = 0, local = 0;
    QM_CU(b->cu, Occupancy,
          (&blocks, qm_cuda_function(module, QM_KERNEL_step), QM_STEP_THREADS, 0));
    QM_CU(b->cu, FuncGetAttribute,
          (&local, QM_CU_FUNC_LOCAL, qm_cuda_function(module, QM_KERNEL_step)));
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

static qm_status measure_recipe(struct bench *b, const char *recipe, enum qm_mode mode,
                                json_t *rows)
{
    const struct qm_shape shape = {2, {b->n / COLUMNS, COLUMNS}};
    const uint32_t id = 0;
    struct stepping s = {NULL, 1};
    struct qm_recipe r;
    double mid = 0.0, least = 0.0;
    QM_TRY(qm_recipe_parse(recipe, &r));
    qm_status st = qm_batch_open(&qm_device_cuda, mode, &r, 1, &shape, &id, &s.batch);
    if (st == QM_SKIPPED)
        return QM_OK;
    void *stored = st == QM_OK ? malloc(sizeof(float) * (size_t)b->n) : NULL;
    if (st == QM_OK && !stored)
        st = qm_fail(QM_NO_MEMORY, "%lld parameters", (long long)b->n);
    if (st == QM_OK) {
        qm_param_from_float(&r.param, b->n, b->p, stored);
        st = qm_batch_give(s.batch, 0, stored, b->g, r.grad); /* any bits are a 16-bit gradient */
    }
    free(stored);
    if (st == QM_OK)
        st = time_many(b, run_step, &s, &mid, &least);
    if (st == QM_OK) {
        double bytes = bytes_moved(qm_batch_form(s.batch), b->n, &shape), n = (double)b->n;
        json_t *row = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f}", "recipe", recipe, "mode",
                                mode == QM_MODE_fast ? "fast" : "exact", "bytes_per_parameter",
                                bytes, "seconds", mid, "least_seconds", least, "rate", n / mid,
                                "share_of_copy", bytes * n / mid / b->copy);
        st = describe(b, s.batch, row);
        json_array_append_new(rows, row);
    }
    qm_batch_close(s.batch);
    return st;
}

/* ---- what does the table cost ------------------------------------------------------------------- */

struct many {
    struct qm_batch *batch[TENSORS];
    int n;
    int64_t t;
};

static qm_status run_many(void *arg)
{
    struct many *m = arg;
    m->t++;
    for (int k = 0; k < m->n; k++)
        QM_TRY(qm_batch_run(m->batch[k], m->t, 1));
    return QM_OK;
}

/* TENSORS tensors of SMALL elements: in one launch by way of tables in memory; by value, as many
 * launches as that takes; each by itself. */
static qm_status measure_tables(struct bench *b, json_t *rows)
{
    static const char *const ways[] = {"one launch, tables in memory", "tables by value",
                                       "a launch for each tensor"};
    struct qm_shape shapes[TENSORS];
    uint32_t ids[TENSORS];
    struct qm_recipe r;
    int elements = b->n < TENSORS * SMALL ? SMALL / 256 : SMALL; /* a rehearsal takes few */
    QM_TRY(qm_recipe_parse("adamw4_lpmm_group", &r));
    for (int k = 0; k < TENSORS; k++) {
        shapes[k] = (struct qm_shape){1, {elements}};
        ids[k] = (uint32_t)k;
    }
    for (int way = 0; way < 3; way++) {
        struct many m = {.n = way == 2 ? TENSORS : 1};
        double mid = 0.0, least = 0.0;
        qm_status st = QM_OK;
        for (int k = 0; k < m.n && st == QM_OK; k++)
            st = qm_batch_open(&qm_device_cuda, QM_MODE_exact, &r, way == 2 ? 1 : TENSORS, shapes,
                               ids + k, &m.batch[k]);
        if (st == QM_OK && way == 1)
            st = qm_batch_by_value(m.batch[0], 1);
        if (st == QM_OK)
            st = time_many(b, run_many, &m, &mid, &least);
        if (st == QM_OK)
            json_array_append_new(rows, json_pack("{s:s, s:i, s:i, s:f, s:f}", "way", ways[way],
                                                  "tensors", TENSORS, "elements", elements,
                                                  "seconds", mid, "least_seconds", least));
        for (int k = 0; k < m.n; k++)
            qm_batch_close(m.batch[k]);
        QM_TRY(st);
    }
    return QM_OK;
}

/* ---- all ------------------------------------------------------------------------------------------ */

static qm_status bench_open(struct bench *b, int64_t n, int rounds)
{
    size_t free_bytes = 0, total = 0;
    int l2 = 0;
    QM_TRY(qm_cuda_context(&b->cu, &b->stream, &b->device));
    QM_CU(b->cu, MemGetInfo, (&free_bytes, &total));
    QM_CU(b->cu, DeviceGetAttribute, (&l2, QM_CU_L2_BYTES, b->device));
    QM_CU(b->cu, DeviceGetAttribute, (&b->threads_per_sm, QM_CU_THREADS_PER_SM, b->device));
    QM_CU(b->cu, DeviceGetPCIBusId, (b->pci, (int)sizeof b->pci, b->device));
    b->rounds = rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    b->n = n > 0 ? n : 1 << 27;
    while (n == 0 && (size_t)b->n * 48 > free_bytes && b->n > COLUMNS)
        b->n /= 2;
    b->n = (b->n + COLUMNS - 1) / COLUMNS * COLUMNS;
    b->flush_bytes = 2 * (size_t)l2 + 1048576;
    QM_TRY(qm_device_cuda.reserve(b->flush_bytes, &b->flush));
    QM_CU(b->cu, EventCreate, (&b->from, 0));
    QM_CU(b->cu, EventCreate, (&b->to, 0));
    b->p = malloc(sizeof(float) * (size_t)b->n);
    b->g = malloc(sizeof(float) * (size_t)b->n);
    if (!b->p || !b->g)
        return qm_fail(QM_NO_MEMORY, "%lld parameters", (long long)b->n);
    qm_exact_gradient(1, 1, b->n, b->p);
    qm_exact_gradient(2, 1, b->n, b->g);
    return QM_OK;
}

qm_status qm_speed_measure(const char *only, int64_t n, int rounds, struct qm_speed *out)
{
    struct bench b = {0};
    struct qm_progress progress;
    int count = qm_variant_count(), others = (int)(sizeof more / sizeof *more);
    json_t *rows = json_array(), *tables = json_array();
    qm_status st = bench_open(&b, n, rounds);
    qm_progress_start(&progress, "speed", 2 * (count + others));
    for (int i = 0; i < 2 * (count + others) && st == QM_OK; i++) {
        int k = i / 2;
        const char *recipe = k < count ? qm_variant_at(k)->name : more[k - count];
        qm_progress_add(&progress, 1, 0);
        if (only && strcmp(only, recipe) != 0)
            continue;
        st = measure_copy(&b);
        if (st == QM_OK)
            st = measure_recipe(&b, recipe, i % 2 ? QM_MODE_fast : QM_MODE_exact, rows);
    }
    qm_progress_end(&progress);
    if (st == QM_OK)
        st = measure_tables(&b, tables);
    out->copy = b.copy;
    out->rows = rows;
    out->tables = tables;
    qm_device_cuda.release(b.flush);
    if (b.from)
        b.cu->EventDestroy(b.from);
    if (b.to)
        b.cu->EventDestroy(b.to);
    free(b.p);
    free(b.g);
    return st;
}
