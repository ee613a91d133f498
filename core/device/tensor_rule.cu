/* tensor_rule.cu - Kernels of tensor rules; step.cu includes it where the form asks for them.
 *
 * A step of a tensor rule is a sequence of launches by the host (tensor_rule_plan.c): parameter and
 * gradient are converted to float32; slots are decoded; each operation of core/rule/sweep.h is a
 * launch, in the order of the rule's own code; slots are encoded and, where the rule reads the
 * stored state, decoded again; the parameter is stored.
 *
 * Sums keep the order that the CPU defines.  Rows, columns, channels, matrices and elements of a
 * product are independent and have a thread each.  The squares of a tensor are added in blocks
 * whose sums are exact (core/rule/tensor_rule.h).  bitsandbytes' norm in eight lanes is done by one
 * thread.
 *
 * A projection is data: the host draws or factorizes a new one when it is
 * due (core/rule/lowrank.h). */

/* Converts to float32: the parameter (param != 0) into the values of slot 0, the gradient (gradient
 * != 0) into the memory of that slot's codes, of which it has none. */
extern "C" __global__
__launch_bounds__(QM_STEP_THREADS) void qm_whole_load(const struct desc *tensors,
                                                      const struct qm_chunk *chunks,
                                                      int64_t n_chunks, int param, int gradient)
{
    count_launch();
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

/* Stores the parameter from the float32 values of slot 0. */
extern "C" __global__ __launch_bounds__(QM_STEP_THREADS) void qm_whole_store(
    const struct desc *tensors, const struct qm_chunk *chunks, int64_t n_chunks,
    struct qm_step_scalars step)
{
    count_launch();
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

/* One operation on every index of a; kind: enum qm_sweep_kind.  Sums take more registers, so they
 * have a kernel of their own: the bounds leave 40 registers to a thread of qm_whole_sweep and 64 to
 * one of qm_whole_sums. */
#define X(name) \
    case QM_SWEEP_##name: qm_sweep_##name(&a, i); break;
extern "C" __global__ __launch_bounds__(QM_STEP_THREADS, 6) void qm_whole_sweep(int kind,
                                                                                struct qm_sweep a)
{
    count_launch();
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += stride)
        switch (kind) {
            QM_SWEEP_ELEMENT_LIST(X)
        }
}

extern "C" __global__ __launch_bounds__(QM_STEP_THREADS, 4) void qm_whole_sums(int kind,
                                                                               struct qm_sweep a)
{
    count_launch();
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += stride)
        switch (kind) {
            QM_SWEEP_SUM_LIST(X)
        }
}

/* One operation on each of many tensors: operation list[k] is of kind[k] and is done by blocks
 * [first[k], first[k + 1]). */
extern "C" __global__ __launch_bounds__(QM_STEP_THREADS,
                                        2) void qm_whole_sweeps(const struct qm_sweep *list,
                                                                const int *first, const int *kind,
                                                                int count)
{
    count_launch();
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
