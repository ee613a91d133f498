/* speed.c - Times steps on a GPU, relative to a copy within the device's memory.
 *
 * The copy is timed just before each recipe, so that both see the same clocks. */
#include "experiments/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"
#include "experiments/gpu/bench.h"

/* ---- the copy -------------------------------------------------------------------------------- */

struct copy {
    struct qm_gpu_bench *b;
    qm_address from, to;
    size_t bytes;
    uint32_t round;
};

static qm_status run_copy(void *arg)
{
    struct copy *c = arg;
    QM_CU(c->b->cu, MemcpyDtoDAsync, (c->to, c->from, c->bytes, c->b->stream));
    return QM_OK;
}

struct sample {
    qm_address at;
};

enum { COPY_PLACES = 32, SAMPLE_BYTES = sizeof(float) * QM_BENCH_SAMPLE };

static qm_status get_sample(void *of, void *out)
{
    return qm_device_cuda.get(out, ((struct sample *)of)->at, SAMPLE_BYTES);
}

/* Begin and end of what is copied, and others that are drawn for each round. */
static qm_address place_of(const struct copy *c, int place)
{
    enum { STREAM = 0x636f7079 };
    size_t most = (c->bytes - SAMPLE_BYTES) / sizeof(float);
    uint64_t drawn = (uint64_t)qm_philox_stream(c->round, STREAM, (uint64_t)place) << 8;
    return sizeof(float) * (place == 0 ? 0 : place == 1 ? most : (size_t)(drawn % (most + 1)));
}

/* The numbers of a round at a place: of each float its index, plus a number of the round. */
static void numbers_of(uint32_t round, qm_address place, uint32_t out[QM_BENCH_SAMPLE])
{
    for (uint32_t i = 0; i < QM_BENCH_SAMPLE; i++)
        out[i] = round * UINT32_C(0x9e3779b9) + (uint32_t)(place / sizeof(float)) + i;
}

/* Before each copy: the places of what is copied get numbers that are nowhere yet. */
static qm_status mark_copy(void *arg)
{
    struct copy *c = arg;
    uint32_t numbers[QM_BENCH_SAMPLE];
    c->round++;
    for (int i = 0; i < COPY_PLACES; i++) {
        numbers_of(c->round, place_of(c, i), numbers);
        QM_TRY(qm_device_cuda.put(c->from + place_of(c, i), numbers, sizeof numbers));
    }
    return QM_OK;
}

/* After each copy.  QM_INTERNAL: one of these places was not copied. */
static qm_status expect_copied(void *arg)
{
    const struct copy *c = arg;
    uint32_t numbers[QM_BENCH_SAMPLE], now[QM_BENCH_SAMPLE];
    for (int i = 0; i < COPY_PLACES; i++) {
        struct sample s = {c->to + place_of(c, i)};
        numbers_of(c->round, place_of(c, i), numbers);
        QM_TRY(qm_gpu_bench_get(get_sample, &s, sizeof now, now));
        if (memcmp(now, numbers, sizeof now) != 0)
            return qm_fail(QM_INTERNAL,
                           "implausible: a timed copy within the device's memory did not copy the "
                           "%s bytes",
                           i == 0   ? "first"
                           : i == 1 ? "last"
                                    : "drawn");
    }
    return QM_OK;
}

/* *rate: bytes/s of a copy of n floats, reads and writes. */
static qm_status measure_copy(struct qm_gpu_bench *b, int64_t n, double *rate)
{
    struct copy c = {.b = b, .bytes = sizeof(float) * (size_t)n};
    const struct qm_gpu_timed t = {run_copy, mark_copy, expect_copied, &c};
    struct qm_gpu_time time;
    qm_status st = qm_device_cuda.reserve(c.bytes, &c.from);
    if (st == QM_OK)
        st = qm_device_cuda.reserve(c.bytes, &c.to);
    if (st == QM_OK)
        st = qm_gpu_bench_time(b, &t, &time);
    if (st == QM_OK)
        st = qm_gpu_bench_plausible("a copy", time.median, 2.0 * (double)c.bytes, 0.0);
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

static struct qm_shape shape_of(int64_t n)
{
    return (struct qm_shape){2, {n / QM_BENCH_COLUMNS, QM_BENCH_COLUMNS}};
}

qm_status qm_speed_bytes(const char *recipe, int64_t n, double *bytes)
{
    const struct qm_shape shape = shape_of(n);
    struct qm_recipe r;
    QM_TRY(qm_recipe_parse(recipe, &r));
    if (r.rule->tensor) {
        *bytes = bytes_of_whole(&r, &shape);
        return QM_OK;
    }
    struct qm_step_form *f = malloc(sizeof *f);
    qm_status st = f ? qm_step_form(&r, &shape, r.grad, f) : qm_fail(QM_NO_MEMORY, "a form");
    if (st == QM_OK)
        *bytes = bytes_moved(f, n, &shape);
    free(f);
    return st;
}

/* Describes the kernel with the most work: the step, or the operations on whole tensors; and the
 * clocks while it works.  one: the seconds of a step. */
static qm_status describe(struct qm_gpu_bench *b, struct qm_gpu_work *w, double one, json_t *row)
{
    const struct qm_tensor_rule_plan *whole = w->part[0][0].whole;
    void *module = whole ? qm_tensor_rule_module(whole) : qm_batch_module(w->part[0][0].batch);
    enum qm_step_kernel kernel = whole ? QM_KERNEL_whole_sweep : QM_KERNEL_step;
    struct qm_kernel_use use = qm_cuda_use(module, kernel);
    struct qm_gpu_now now = {0};
    int blocks = 0, cached = 0, local = 0;
    void *function = qm_cuda_function(module, kernel);
    QM_TRY(qm_cuda_blocks(b->cu, function, QM_STEP_THREADS, b->threads_per_sm, &blocks));
    QM_TRY(qm_cuda_local_bytes(b->cu, function, &local));
    QM_TRY(qm_gpu_bench_load(b, qm_gpu_work_run, w, one, &now));
    double seconds = qm_cuda_compile_seconds(module, &cached);
    json_object_set_new(row, "registers", json_integer(use.registers));
    json_object_set_new(row, "spill_bytes", json_integer(use.spill_bytes));
    json_object_set_new(row, "local_bytes", json_integer(local));
    json_object_set_new(row, "shared_bytes", json_integer(use.shared_bytes));
    json_object_set_new(row, "occupancy",
                        json_real((double)blocks * QM_STEP_THREADS / b->threads_per_sm));
    json_object_set_new(row, "compile_seconds", json_real(seconds));
    json_object_set_new(row, "from_cache", json_boolean(cached));
    if (now.sm_mhz) { /* 0: no NVML */
        json_object_set_new(row, "sm_mhz", json_integer(now.sm_mhz));
        if (now.memory_mhz)
            json_object_set_new(row, "memory_mhz", json_integer(now.memory_mhz));
        if (now.watts)
            json_object_set_new(row, "watts", json_integer(now.watts));
    }
    return QM_OK;
}

/* Loads a drawn projection, none of whose numbers is 0: a gradient's would be, and a projection of
 * rank 1 that is 0 leaves the parameters as they are. */
static qm_status load_projection(struct qm_gpu_work *w, const struct qm_shape *shape, int slot)
{
    enum { STREAM = 0x70726f6a };
    struct qm_shape own;
    qm_rule_slot_shape(w->r->rule, &w->r->hyper, slot, shape, &own);
    const int64_t n = qm_shape_numel(&own);
    float *x = malloc(sizeof *x * (size_t)n);
    qm_status st = x ? QM_OK : qm_fail(QM_NO_MEMORY, "a projection of %lld numbers", (long long)n);
    w->projection = x;
    w->projection_slot = slot;
    for (int64_t i = 0; i < n && st == QM_OK; i++) {
        uint32_t word = qm_philox_stream(0, STREAM, (uint64_t)i);
        x[i] = (float)(0.5 + (double)(word >> 1) * 0x1p-31) * (word & 1 ? -1.0f : 1.0f);
    }
    for (int turn = 0; turn < QM_BENCH_TURNS && st == QM_OK; turn++)
        st = qm_tensor_rule_load(w->part[turn][0].whole, 0, slot, NULL, x);
    return st;
}

/* Opens a tensor of n elements, with parameters, gradient and projection. */
static qm_status open_work(struct qm_gpu_bench *b, const char *recipe, enum qm_mode mode, int64_t n,
                           struct qm_gpu_work *w, struct qm_recipe *r)
{
    const struct qm_shape shape = shape_of(n);
    const uint32_t id = 0;
    QM_TRY(qm_recipe_parse(recipe, r));
    int proj = qm_given_projection(r, &shape);
    QM_TRY(qm_gpu_work_add(w, mode, r, 1, &shape, &id));
    QM_TRY(qm_gpu_work_give(b, w));
    return proj >= 0 ? load_projection(w, &shape, proj) : QM_OK;
}

/* The size at which the rounds of a rule over whole tensors fit into b->cap, by the time of a step
 * of a small tensor: some rules take a norm in one thread, as the package does.  Rules of elements
 * are as fast as memory, and take n. */
static qm_status fitting_size(struct qm_gpu_bench *b, const char *recipe, enum qm_mode mode,
                              int64_t *n)
{
    const int64_t small = *n < 1 << 20 ? *n : 1 << 20;
    struct qm_gpu_work w = {0};
    struct qm_recipe r;
    struct qm_gpu_time time = {0};
    const int rounds = b->rounds;
    const double cap = b->cap;
    QM_TRY(qm_recipe_parse(recipe, &r));
    if (!r.rule->tensor)
        return QM_OK;
    b->rounds = 1;
    b->cap = 0.0;
    qm_status st = open_work(b, recipe, mode, small, &w, &r);
    if (st == QM_OK)
        st =
            qm_gpu_bench_time(b, &(struct qm_gpu_timed){.work = qm_gpu_work_run, .arg = &w}, &time);
    qm_gpu_work_close(&w);
    b->rounds = rounds;
    b->cap = cap;
    while (st == QM_OK && *n > small &&
           time.median * (double)*n / (double)small * (b->rounds + QM_BENCH_WARM) > b->cap)
        *n = *n / 2 / QM_BENCH_COLUMNS * QM_BENCH_COLUMNS;
    return st;
}

/* Fills the row.  A rule over whole tensors has no graph. */
static qm_status fill(struct qm_gpu_bench *b, struct qm_gpu_work *w, const char *recipe,
                      int64_t size, double copy, json_t *row)
{
    struct qm_gpu_time time, graph = {0};
    double n = (double)size, bytes = 0.0;
    QM_TRY(qm_gpu_work_time(b, w, &time));
    QM_TRY(qm_speed_bytes(recipe, size, &bytes));
    QM_TRY(qm_gpu_bench_plausible("a step", time.median, bytes * n, copy));
    json_object_set_new(row, "elements", json_integer(size));
    json_object_set_new(row, "bytes_per_parameter", json_real(bytes));
    json_object_set_new(row, "seconds", json_real(time.median));
    json_object_set_new(row, "least_seconds", json_real(time.least));
    json_object_set_new(row, "rounds", json_integer(time.rounds));
    json_object_set_new(row, "rate", json_real(n / time.median));
    json_object_set_new(row, "share_of_copy", json_real(bytes * n / time.median / copy));
    json_object_set_new(row, "copy_rate", json_real(copy));
    qm_status st = qm_gpu_work_time_graph(b, w, &graph);
    if (st == QM_OK)
        st = qm_gpu_bench_plausible("a graph's step", graph.median, bytes * n, copy);
    if (st == QM_OK)
        json_object_set_new(row, "graph_seconds", json_real(graph.median));
    qm_gpu_bench_say_wait(b, row);
    return st == QM_OK || st == QM_SKIPPED ? describe(b, w, time.median, row) : st;
}

qm_status qm_speed_row(struct qm_gpu_bench *b, const char *recipe, enum qm_mode mode, json_t *row)
{
    int64_t n = b->n;
    qm_status st = fitting_size(b, recipe, mode, &n);
    for (;;) {
        struct qm_gpu_work w = {0};
        struct qm_recipe r;
        double copy = 0.0;
        if (st == QM_OK)
            st = measure_copy(b, n, &copy);
        if (st == QM_OK)
            st = open_work(b, recipe, mode, n, &w, &r);
        if (st == QM_OK)
            st = fill(b, &w, recipe, n, copy, row);
        qm_gpu_work_close(&w);
        if (st != QM_NO_MEMORY || n < 1 << 20)
            return st;
        n = n / 2 / QM_BENCH_COLUMNS * QM_BENCH_COLUMNS; /* what others use of the memory changes */
        st = QM_OK;
    }
}
