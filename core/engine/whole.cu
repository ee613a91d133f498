/* whole.cu - kernels of rules over whole tensors; step.cu ends with them where the form asks.
 *
 * A step there is a row of launches that the host issues (whole.c): the parameter and the gradient as
 * float32; each slot decoded; one launch per operation of core/rule/sweep.h, in the order of the rule's own
 * code; slots encoded, perhaps decoded again; the parameter stored.  Sums keep the
 * order that the CPU defines: rows, columns, channels, matrices and elements of a product run beside each
 * other, a thread each; the squares of a tensor go in blocks whose sums are exact (core/rule/whole.h);
 * bitsandbytes' norm in eight lanes is one thread's.
 *
 * A projection is data: the host draws or factorizes a new one when it is due (core/rule/lowrank.h). */

/* Either may be NULL. */
extern "C" __global__ __launch_bounds__(QM_STEP_THREADS) void qm_whole_load(const struct desc *t,
                                                                            float *p, float *g)
{
    int64_t stride = (int64_t)gridDim.x * THREADS * EACH;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH; at < t->n;
         at += stride) {
        int count = t->n - at < EACH ? (int)(t->n - at) : EACH;
        float x[EACH];
        uint32_t bits[EACH];
        if (p) {
            load_param(t, at, count, x);
            for (int j = 0; j < EACH; j++)
                bits[j] = qm_bits(x[j]);
            store<4>(p, at, count, bits);
        }
        if (g) {
            load_gradient(t, at, count, x);
            for (int j = 0; j < EACH; j++)
                bits[j] = qm_bits(x[j]);
            store<4>(g, at, count, bits);
        }
    }
}

extern "C" __global__
__launch_bounds__(QM_STEP_THREADS) void qm_whole_store(const struct desc *t, const float *p,
                                                       struct qm_step_scalars step)
{
    int64_t stride = (int64_t)gridDim.x * THREADS * EACH;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH; at < t->n;
         at += stride) {
        int count = t->n - at < EACH ? (int)(t->n - at) : EACH;
        float x[EACH];
        uint32_t bits[EACH];
        load<4>(p, at, count, bits);
        for (int j = 0; j < EACH; j++)
            x[j] = qm_float(bits[j]);
        store_param(t, &step, at, count, x);
    }
}

/* kind: enum qm_sweep_kind, the same for all threads.  Sums take more registers, so they stand apart; as many
 * blocks stay on a multiprocessor as leaves 40 registers to a thread, or 64. */
#define X(name) \
    case QM_SWEEP_##name: qm_sweep_##name(&a, i); break;
extern "C" __global__ __launch_bounds__(QM_STEP_THREADS, 6) void qm_whole_sweep(int kind,
                                                                                struct qm_sweep a)
{
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += stride)
        switch (kind) {
            QM_SWEEP_ELEMENT_LIST(X)
        }
}

extern "C" __global__ __launch_bounds__(QM_STEP_THREADS, 4) void qm_whole_sums(int kind,
                                                                               struct qm_sweep a)
{
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += stride)
        switch (kind) {
            QM_SWEEP_SUM_LIST(X)
        }
}
#undef X
