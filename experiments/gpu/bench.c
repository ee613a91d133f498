/* bench.c - Times work on a GPU, and runs batches and whole-tensor plans as such work. */
#include "experiments/gpu/bench.h"

#include <stdlib.h>

#include "experiments/gpu/gpu.h"

qm_status qm_gpu_bench_open(int64_t n, int rounds, struct qm_gpu_bench *b)
{
    enum { BYTES = 96 }; /* per parameter, with states and scratch of the largest rule, all turns */
    size_t free_bytes = 0, total = 0;
    int l2 = 0;
    QM_TRY(qm_cuda_context(&b->cu, &b->stream, &b->device));
    QM_CU(b->cu, MemGetInfo, (&free_bytes, &total));
    QM_CU(b->cu, DeviceGetAttribute, (&l2, QM_CU_L2_BYTES, b->device));
    QM_CU(b->cu, DeviceGetAttribute, (&b->threads_per_sm, QM_CU_THREADS_PER_SM, b->device));
    QM_CU(b->cu, DeviceGetPCIBusId, (b->pci, (int)sizeof b->pci, b->device));
    b->rounds = rounds < 1 ? 1 : rounds > QM_GPU_BENCH_ROUNDS ? QM_GPU_BENCH_ROUNDS : rounds;
    b->n = n > 0 ? n : 1 << 27;
    while (n == 0 && (size_t)b->n * BYTES > free_bytes && b->n > QM_BENCH_COLUMNS)
        b->n /= 2;
    b->n = (b->n + QM_BENCH_COLUMNS - 1) / QM_BENCH_COLUMNS * QM_BENCH_COLUMNS;
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

void qm_gpu_bench_close(struct qm_gpu_bench *b)
{
    qm_device_cuda.release(b->flush);
    if (b->from)
        b->cu->EventDestroy(b->from);
    if (b->to)
        b->cu->EventDestroy(b->to);
    free(b->p);
    free(b->g);
}

/* ---- time ------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *sorted, int n)
{
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

/* 1: the rounds are enough; sorts them. */
static int is_enough(double *all, int n, int rounds)
{
    if (n < rounds)
        return 0;
    qsort(all, (size_t)n, sizeof *all, by_size);
    return n >= 4 * rounds || all[(3 * n - 1) / 4] - all[n / 4] <= 0.02 * median(all, n);
}

static qm_status time_one(struct qm_gpu_bench *b, qm_status (*work)(void *), void *arg,
                          double *seconds)
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

qm_status qm_gpu_bench_time(struct qm_gpu_bench *b, qm_status (*work)(void *), void *arg,
                            struct qm_gpu_time *out)
{
    double all[4 * QM_GPU_BENCH_ROUNDS], ignored;
    int n = 0;
    for (int i = 0; i < QM_BENCH_WARM; i++)
        QM_TRY(time_one(b, work, arg, &ignored));
    while (!is_enough(all, n, b->rounds))
        QM_TRY(time_one(b, work, arg, &all[n++]));
    *out = (struct qm_gpu_time){median(all, n), all[0], n};
    return QM_OK;
}

/* ---- timed work ------------------------------------------------------------------------------ */

qm_status qm_gpu_work_add(struct qm_gpu_work *w, enum qm_mode mode, const struct qm_recipe *r,
                          int n, const struct qm_shape *shapes, const uint32_t *ids)
{
    int k = w->n++;
    for (int turn = 0; turn < QM_BENCH_TURNS; turn++)
        QM_TRY(r->rule->tensor ? qm_tensor_rule_open(&qm_device_cuda, mode, r, n, shapes, ids,
                                                     &w->part[turn][k].whole)
                               : qm_batch_open(&qm_device_cuda, mode, r, n, shapes, ids,
                                               &w->part[turn][k].batch));
    return QM_OK;
}

void qm_gpu_work_close(struct qm_gpu_work *w)
{
    for (int turn = 0; turn < QM_BENCH_TURNS; turn++)
        for (int k = 0; k < w->n; k++) {
            qm_batch_close(w->part[turn][k].batch);
            qm_tensor_rule_close(w->part[turn][k].whole);
        }
}

qm_status qm_gpu_work_run(void *work)
{
    struct qm_gpu_work *w = work;
    int turn = (int)(w->t++ % QM_BENCH_TURNS);
    for (int k = 0; k < w->n; k++)
        QM_TRY(w->part[turn][k].whole ? qm_tensor_rule_run(w->part[turn][k].whole, w->t, 1)
                                      : qm_batch_run(w->part[turn][k].batch, w->t, 1));
    return QM_OK;
}
