/* bench.c - Opens what times work on a GPU, and makes batches and whole-tensor plans such work. */
#include "experiments/gpu/bench.h"
#include "core/base/clock.h"
#include "core/base/philox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/bench_done.h"
#include "experiments/gpu/bench_expected.h"
#include "experiments/gpu/gpu.h"

/* ---- parameters and gradients ---------------------------------------------------------------- */

static struct {
    int64_t n;
    float *at; /* parameters, then gradients */
} inputs;

/* Sums of four uniform numbers, of mean 0 and deviation 0.1: what training has, without the many
 * scales at which most parameters would stay as they are. */
static void fill_bell(uint64_t seed, int64_t n, float *x)
{
    enum { STREAM = 0x62656c6c, TERMS = 4 };
    const double spread = 0.1 * 1.7320508; /* the deviation of a sum of four is 1 / sqrt(3) */
    for (int64_t i = 0; i < n; i++) {
        double sum = -0.5 * TERMS;
        for (int k = 0; k < TERMS; k++)
            sum +=
                0x1p-32 * ((double)qm_philox_stream(seed, STREAM, (uint64_t)(TERMS * i + k)) + 0.5);
        x[i] = (float)(spread * sum);
    }
}

/* Parameters and gradients repeat after QM_BENCH_COLUMNS elements: what is timed does not depend on
 * that, drawing 2^28 numbers takes seconds, and equal elements must stay equal (bench_done.h).  The
 * pages are shared with forked processes and never freed. */
qm_status qm_gpu_bench_inputs(int64_t n)
{
    if (n <= inputs.n)
        return QM_OK;
    size_t bytes = 2 * sizeof(float) * (size_t)n;
    float *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return qm_fail(QM_NO_MEMORY, "%lld parameters", (long long)n);
    for (int k = 0; k < 2; k++) {
        float *x = at + k * n;
        int64_t done = n < QM_BENCH_COLUMNS ? n : QM_BENCH_COLUMNS;
        fill_bell((uint64_t)k + 1, done, x);
        for (int64_t more; done < n; done += more) {
            more = done < n - done ? done : n - done;
            memcpy(x + done, x, sizeof *x * (size_t)more);
        }
    }
    if (inputs.at)
        munmap(inputs.at, 2 * sizeof(float) * (size_t)inputs.n);
    inputs.n = n;
    inputs.at = at;
    return QM_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

int64_t qm_gpu_bench_size(int64_t n, size_t free_bytes)
{
    enum { BYTES = 96 }; /* per parameter, with states and scratch of the largest rule, all turns */
    int64_t size = n > 0 ? n : 1 << 27;
    while (n == 0 && (size_t)size * BYTES > free_bytes && size > QM_BENCH_COLUMNS)
        size /= 2;
    return (size + QM_BENCH_COLUMNS - 1) / QM_BENCH_COLUMNS * QM_BENCH_COLUMNS;
}

size_t qm_gpu_bench_flush(int l2_bytes) { return 2 * (size_t)l2_bytes + 1048576; }

/* Reads all of the buffer and writes nothing: the buffer holds zeros. */
static const char reader_text[] =
    "extern \"C\" {\n__device__ unsigned long long " QM_LAUNCHES ";\n}\n"
    "extern \"C\" __global__ void qm_bench_read(const uint4 *from, unsigned long long n,\n"
    "                                         unsigned *to)\n"
    "{\n"
    "    unsigned sum = 0;\n"
    "    if ((blockIdx.x | threadIdx.x) == 0)\n"
    "        atomicAdd(&" QM_LAUNCHES ", 1ull);\n"
    "    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;\n"
    "         i < n; i += (unsigned long long)gridDim.x * blockDim.x)\n"
    "        sum |= from[i].x | from[i].y | from[i].z | from[i].w;\n"
    "    if (sum)\n"
    "        *to = sum;\n"
    "}\n";

qm_status qm_gpu_bench_compile_reader(const void *arch, struct qm_device_binary *b)
{
    const struct qm_device_source s = {
        .name = "bench_read.cu", .text = reader_text, .arch = *(const int *)arch};
    return qm_device_compile(&s, b);
}

static qm_status load_reader(struct qm_gpu_bench *b)
{
    int major = 0, minor = 0;
    struct qm_device_binary binary = {0};
    QM_TRY(qm_cuda_attribute(b->cu, QM_CU_MAJOR, b->device, &major));
    QM_TRY(qm_cuda_attribute(b->cu, QM_CU_MINOR, b->device, &minor));
    int arch = 10 * major + minor;
    qm_status st = qm_cuda_load_binary(qm_gpu_bench_compile_reader, &arch, &binary, &b->module);
    qm_device_binary_free(&binary);
    QM_TRY(st);
    QM_CU(b->cu, ModuleGetFunction, (&b->reader, b->module, "qm_bench_read"));
    return qm_cuda_begun(b->module, &b->reads);
}

qm_status qm_gpu_bench_open(int64_t n, int rounds, double cap, struct qm_gpu_bench *b)
{
    size_t free_bytes = 0, total = 0;
    int l2 = 0;
    QM_TRY(qm_cuda_context(&b->cu, &b->stream, &b->device));
    QM_TRY(qm_cuda_memory(b->cu, &free_bytes, &total));
    QM_TRY(qm_cuda_attribute(b->cu, QM_CU_L2_BYTES, b->device, &l2));
    QM_TRY(qm_cuda_attribute(b->cu, QM_CU_THREADS_PER_SM, b->device, &b->threads_per_sm));
    QM_TRY(qm_cuda_attribute(b->cu, QM_CU_SM_COUNT, b->device, &b->sms));
    QM_CU(b->cu, DeviceGetPCIBusId, (b->pci, (int)sizeof b->pci, b->device));
    b->rounds = rounds < 1 ? 1 : rounds > QM_GPU_BENCH_ROUNDS ? QM_GPU_BENCH_ROUNDS : rounds;
    b->cap = cap;
    b->n = qm_gpu_bench_size(n, free_bytes);
    b->flush_bytes = qm_gpu_bench_flush(l2);
    QM_TRY(load_reader(b));
    QM_TRY(qm_device_cuda.reserve(b->flush_bytes, &b->flush));
    QM_CU(b->cu, EventCreate, (&b->start, 0));
    QM_CU(b->cu, EventCreate, (&b->from, 0));
    QM_CU(b->cu, EventCreate, (&b->to, 0));
    QM_TRY(qm_gpu_bench_inputs(b->n));
    b->p = inputs.at;
    b->g = inputs.at + inputs.n;
    return QM_OK;
}

void qm_gpu_bench_close(struct qm_gpu_bench *b)
{
    qm_device_cuda.release(b->flush);
    if (b->start)
        qm_cuda_clean_up(QM_CU_ERROR(b->cu, EventDestroy, (b->start)), "cuEventDestroy");
    if (b->from)
        qm_cuda_clean_up(QM_CU_ERROR(b->cu, EventDestroy, (b->from)), "cuEventDestroy");
    if (b->to)
        qm_cuda_clean_up(QM_CU_ERROR(b->cu, EventDestroy, (b->to)), "cuEventDestroy");
    if (b->module)
        qm_cuda_clean_up(QM_CU_ERROR(b->cu, ModuleUnload, (b->module)), "cuModuleUnload");
    memset(b, 0, sizeof *b);
}

/* ---- clocks and power ------------------------------------------------------------------------ */

qm_status qm_gpu_bench_load(struct qm_gpu_bench *b, qm_status (*work)(void *), void *arg,
                            double one, struct qm_gpu_now *out)
{
    enum { MOST = 2000 };
    const double seconds = 0.05; /* NVML answers in some milliseconds, of its last sample */
    double rounds = seconds / (one > 1e-9 ? one : 1e-9);
    int n = rounds < 1.0 ? 1 : rounds > MOST ? MOST : (int)rounds;
    for (int i = 0; i < n; i++)
        QM_TRY(work(arg));
    memset(out, 0, sizeof *out);
    qm_status st = qm_gpu_now(b->pci, out);
    return st == QM_OK || st == QM_SKIPPED ? qm_device_cuda.sync() : st;
}

/* ---- timed work ------------------------------------------------------------------------------ */

qm_status qm_gpu_work_add(struct qm_gpu_work *w, enum qm_mode mode, const struct qm_recipe *r,
                          int n, const struct qm_shape *shapes, const uint32_t *ids)
{
    int k = w->n++;
    w->tensors = n;
    w->numel = qm_shape_numel(&shapes[0]);
    w->shape = shapes[0];
    w->mode = mode;
    w->r = r;
    for (int turn = 0; turn < QM_BENCH_TURNS; turn++)
        QM_TRY(r->rule->tensor ? qm_tensor_rule_open(&qm_device_cuda, mode, r, n, shapes, ids,
                                                     &w->part[turn][k].whole)
                               : qm_batch_open(&qm_device_cuda, mode, r, n, shapes, ids,
                                               &w->part[turn][k].batch));
    return QM_OK;
}

qm_status qm_gpu_work_give(struct qm_gpu_bench *b, struct qm_gpu_work *w)
{
    const struct qm_param *format = &w->r->param;
    const int is_plain = format->format == QM_PARAM_f32, is_wide = w->r->grad == QM_DTYPE_f32;
    void *p = is_plain ? NULL : malloc((size_t)(w->numel * qm_param_bytes(format)));
    void *g = is_wide ? NULL : malloc((size_t)w->numel * qm_dtype_size(w->r->grad));
    const void *stored = is_plain ? (const void *)b->p : p, *given = is_wide ? b->g : g;
    qm_status st =
        stored && given ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld parameters", (long long)w->numel);
    if (st == QM_OK && p)
        qm_param_from_float(format, w->numel, b->p, p);
    if (st == QM_OK && g)
        qm_exact_narrow(b->g, w->numel, w->r->grad, g);
    for (int i = 0; i < QM_BENCH_TURNS * w->n * w->tensors && st == QM_OK; i++) {
        int turn = i / (w->n * w->tensors), part = i / w->tensors % w->n, k = i % w->tensors;
        st = w->part[turn][part].whole
                 ? qm_tensor_rule_give(w->part[turn][part].whole, k, stored, given, w->r->grad)
                 : qm_batch_give(w->part[turn][part].batch, k, stored, given, w->r->grad);
    }
    free(p);
    free(g);
    return st;
}

void qm_gpu_work_close(struct qm_gpu_work *w)
{
    for (int turn = 0; turn < QM_BENCH_TURNS; turn++)
        for (int k = 0; k < w->n; k++) {
            qm_batch_close(w->part[turn][k].batch);
            qm_tensor_rule_close(w->part[turn][k].whole);
        }
    qm_gpu_expected_close(w->expected);
    free(w->projection);
}

qm_status qm_gpu_work_run(void *work)
{
    struct qm_gpu_work *w = work;
    int turn = (int)(w->t % QM_BENCH_TURNS);
    int64_t t = w->t++ / QM_BENCH_TURNS + 1; /* some rules start what they keep in step 1 */
    w->made[turn] += !w->is_recording;
    for (int k = 0; k < w->n; k++)
        QM_TRY(w->part[turn][k].whole ? qm_tensor_rule_run(w->part[turn][k].whole, t, QM_BENCH_SEED)
                                      : qm_batch_run(w->part[turn][k].batch, t, QM_BENCH_SEED));
    return QM_OK;
}

/* Times `run`, which steps one turn of the work; by_graphs: counts the launches that it has graphs
 * make, or NULL. */
static qm_status time_steps(struct qm_gpu_bench *b, struct qm_gpu_work *w, qm_status (*run)(void *),
                            void *arg, const uint64_t *by_graphs, struct qm_gpu_time *out)
{
    const struct qm_gpu_timed t = {.work = run, .arg = arg};
    uint64_t asked, begun, all_asked, all_begun;
    if (w->t == 0)
        QM_TRY(qm_gpu_expected_open(b, w));
    double start = qm_seconds();
    QM_TRY(qm_cuda_launches(&asked, &begun));
    QM_TRY(qm_gpu_bench_warm_up(b, &t));
    QM_TRY(qm_gpu_work_mark(w));
    QM_TRY(qm_gpu_bench_rounds(b, &t, start, out));
    QM_TRY(qm_gpu_work_changed(w));
    if (w->r->param.format == QM_PARAM_f32) { /* else a step may round to the same bits */
        for (int turn = 0; turn < QM_BENCH_TURNS; turn++)
            QM_TRY(run(arg));
        QM_TRY(qm_gpu_work_changed(w));
    }
    while (w->made[0] != w->made[1])
        QM_TRY(run(arg));
    QM_TRY(qm_gpu_work_all_done(b, w));
    QM_TRY(qm_cuda_launches(&all_asked, &all_begun));
    return qm_gpu_bench_begun("the timed steps", all_begun - begun,
                              all_asked - asked + (by_graphs ? *by_graphs : 0));
}

qm_status qm_gpu_work_time(struct qm_gpu_bench *b, struct qm_gpu_work *w, struct qm_gpu_time *out)
{
    return time_steps(b, w, qm_gpu_work_run, w, NULL, out);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

struct graphs {
    const struct qm_gpu_bench *b;
    struct qm_gpu_work *w;
    void *graph[QM_BENCH_TURNS], *executable[QM_BENCH_TURNS];
    uint64_t recorded[QM_BENCH_TURNS], launches; /* of each graph; made by all so far */
    int turn;
};

static qm_status run_graph(void *arg)
{
    struct graphs *g = arg;
    int turn = g->turn++ % QM_BENCH_TURNS;
    QM_CU(g->b->cu, GraphLaunch, (g->executable[turn], g->b->stream));
    g->launches += g->recorded[turn];
    g->w->made[turn]++;
    return QM_OK;
}

/* Records one step.  The recording is ended in any case: the stream is of no use before. */
static qm_status record(const struct qm_gpu_bench *b, struct qm_gpu_work *w, void **graph,
                        uint64_t *launches)
{
    enum { RELAXED = 2 }; /* other calls of this thread stay allowed */
    uint64_t before, begun;
    QM_TRY(qm_cuda_launches(&before, &begun));
    QM_CU(b->cu, StreamBeginCapture, (b->stream, RELAXED));
    w->is_recording = 1;
    qm_status st = qm_gpu_work_run(w);
    w->is_recording = 0;
    w->recorded = w->made[0] + 1;
    int error = QM_CU_ERROR(b->cu, StreamEndCapture, (b->stream, graph));
    if (st == QM_OK)
        st = qm_cuda_error(error, "cuStreamEndCapture");
    if (st == QM_OK)
        st = qm_cuda_launches(launches, &begun);
    *launches -= before;
    return st;
}

static void graphs_close(struct graphs *g)
{
    for (int turn = 0; turn < QM_BENCH_TURNS; turn++) {
        if (g->executable[turn])
            qm_cuda_clean_up(QM_CU_ERROR(g->b->cu, GraphExecDestroy, (g->executable[turn])),
                             "cuGraphExecDestroy");
        if (g->graph[turn])
            qm_cuda_clean_up(QM_CU_ERROR(g->b->cu, GraphDestroy, (g->graph[turn])),
                             "cuGraphDestroy");
    }
}

qm_status qm_gpu_work_time_graph(struct qm_gpu_bench *b, struct qm_gpu_work *w,
                                 struct qm_gpu_time *out)
{
    const struct qm_cuda *cu = b->cu;
    struct graphs g = {.b = b, .w = w};
    qm_status st = QM_OK;
    if (!cu->StreamBeginCapture || !cu->StreamEndCapture || !cu->GraphInstantiateWithFlags ||
        !cu->GraphLaunch || !cu->GraphExecDestroy || !cu->GraphDestroy)
        return qm_fail(QM_SKIPPED, "the driver has no graphs");
    if (qm_cuda_waits())
        return qm_fail(QM_SKIPPED, "QM_CUDA_SYNC is set, and a graph cannot wait");
    for (int k = 0; k < w->n; k++)
        if (w->part[0][k].whole)
            return qm_fail(QM_SKIPPED, "a rule over whole tensors waits for the host");
    for (int turn = 0; turn < QM_BENCH_TURNS && st == QM_OK; turn++) {
        st = record(b, w, &g.graph[turn], &g.recorded[turn]);
        if (st == QM_OK)
            st = qm_cuda_error(
                QM_CU_ERROR(cu, GraphInstantiateWithFlags, (&g.executable[turn], g.graph[turn], 0)),
                "cuGraphInstantiateWithFlags");
    }
    if (st == QM_OK)
        st = time_steps(b, w, run_graph, &g, &g.launches, out);
    graphs_close(&g);
    return st;
}
