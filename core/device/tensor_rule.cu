/* tensor_rule.cu - kernels of rules over whole tensors; step.cu ends with them where the form asks.
 *
 * A step there is a row of launches that the host issues (whole.c): the parameter and the gradient as
 * float32; each slot decoded; one launch per operation of core/rule/sweep.h, in the order of the rule's own
 * code; slots encoded, perhaps decoded again; the parameter stored.  Sums keep the
 * order that the CPU defines: rows, columns, channels, matrices and elements of a product run beside each
 * other, a thread each; the squares of a tensor go in blocks whose sums are exact (core/rule/tensor_rule.h);
 * bitsandbytes' norm in eight lanes is one thread's.
 *
 * A projection is data: the host draws or factorizes a new one when it is due (core/rule/lowrank.h). */

/* The parameter to the values of slot 0, and the gradient to its codes, which that slot does not have, as
 * float32; either where it is asked for. */
extern "C" __global__
__launch_bounds__(QM_STEP_THREADS) void qm_whole_load(const struct desc *tensors,
                                                      const struct qm_chunk *chunks,
                                                      int64_t n_chunks, int param, int gradient)
{
    for (int64_t k = blockIdx.x; k < n_chunks; k += gridDim.x) {
        const struct qm_chunk c = chunks[k];
        const struct desc *t = tensors + c.tensor;
        int64_t end = c.first + c.count;
        for (int64_t at = c.first + threadIdx.x * EACH; at < end; at += THREADS * EACH) {
            int count = end - at < EACH ? (int)(end - at) : EACH;
            float x[EACH];
            uint32_t bits[EACH];
            if (param) {
                load_param(t, at, count, x);
                for (int j = 0; j < EACH; j++)
                    bits[j] = qm_bits(x[j]);
                store<4>(t->slot[0].scales, at, count, bits);
            }
            if (gradient) {
                load_gradient(t, at, count, x);
                for (int j = 0; j < EACH; j++)
                    bits[j] = qm_bits(x[j]);
                store<4>(t->slot[0].codes, at, count, bits);
            }
        }
    }
}

extern "C" __global__ __launch_bounds__(QM_STEP_THREADS) void qm_whole_store(
    const struct desc *tensors, const struct qm_chunk *chunks, int64_t n_chunks,
    struct qm_step_scalars step)
{
    for (int64_t k = blockIdx.x; k < n_chunks; k += gridDim.x) {
        const struct qm_chunk c = chunks[k];
        const struct desc *t = tensors + c.tensor;
        int64_t end = c.first + c.count;
        for (int64_t at = c.first + threadIdx.x * EACH; at < end; at += THREADS * EACH) {
            int count = end - at < EACH ? (int)(end - at) : EACH;
            float x[EACH];
            uint32_t bits[EACH];
            load<4>(t->slot[0].scales, at, count, bits);
            for (int j = 0; j < EACH; j++)
                x[j] = qm_float(bits[j]);
            store_param(t, &step, at, count, x);
        }
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

/* Operations on many tensors: list[k] is of kind[k], and blocks first[k] to first[k + 1] - 1 are its own. */
extern "C" __global__ __launch_bounds__(QM_STEP_THREADS,
                                        2) void qm_whole_sweeps(const struct qm_sweep *list,
                                                                const int *first, const int *kind,
                                                                int count)
{
    int k = 0;
    for (int high = count; high - k > 1;) {
        int middle = k + (high - k) / 2;
        if (first[middle] <= (int)blockIdx.x)
            k = middle;
        else
            high = middle;
    }
    const struct qm_sweep a = list[k];
    int64_t stride = (int64_t)(first[k + 1] - first[k]) * THREADS;
    for (int64_t i = (int64_t)((int)blockIdx.x - first[k]) * THREADS + threadIdx.x; i < a.n;
         i += stride)
        switch (kind[k]) {
            QM_SWEEP_LIST(X)
        }
}
#undef X
