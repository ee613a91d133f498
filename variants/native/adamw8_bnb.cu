/* adamw8_bnb.cu - 8-bit AdamW of bitsandbytes' CPU update on a GPU.
 *
 * One thread block per 256 elements, one thread per element.  Tensors of fewer than 4096 elements
 * come with float32 states. */
#include "kernel_cuda.h"

enum { BLOCK = 256, WARPS = BLOCK / 32 };

QM_CUDA_KERNEL("adamw8_bnb");
QM_CUDA_LAUNCH(qm_cuda_step, BLOCK, BLOCK, 0);

/* The largest |x| of the thread block, by their bits. */
static __device__ float block_max(float x)
{
    __shared__ unsigned int of_warp[WARPS];
    unsigned int top = __float_as_uint(x) & 0x7fffffffu;
    for (int distance = 16; distance > 0; distance /= 2)
        top = max(top, __shfl_xor_sync(0xffffffffu, top, distance));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
        top = max(top, of_warp[w]);
    __syncthreads(); /* before the next call writes again */
    return __uint_as_float(top);
}

static __device__ float decode(const struct qm_kernel_slot *s, int64_t i)
{
    return s->bits ? s->codebook[s->codes[i]] * s->scales[i / BLOCK] : s->values[i];
}

/* The code of y by a table of 65,536 entries over [-1, 1]: of the entry next to y, the nearest of
 * 256 ascending values; ties go down, NaN has code 0. */
static __device__ int nearest(const float *value, float y)
{
    float inside = y < -1.0f ? -1.0f : y > 1.0f ? 1.0f : y;
    int entry = y == y ? (int)((inside + 1.0f) * 0.5f * 65535.0f + 0.5f) : 0;
    float at = -1.0f + 2.0f * (float)entry / 65535.0f;
    int low = 0, high = 255;
    while (low < high) {
        int k = (low + high) / 2;
        if (!(at <= (value[k] + value[k + 1]) * 0.5f))
            low = k + 1;
        else
            high = k;
    }
    return low;
}

/* x is multiplied by the reciprocal of the largest, which leaves a NaN out; a block of zeros has
 * code 0.  All threads call it, also those without an element. */
static __device__ void encode(const struct qm_kernel_slot *s, int64_t i, int64_t n, float x)
{
    int is_there = threadIdx.x < n;
    float top = block_max(is_there && x == x ? x : 0.0f), y = x * (1.0f / top);
    if (!is_there)
        return;
    if (s->bits)
        s->codes[i] = (uint8_t)(top > 0.0f ? nearest(s->codebook, y) : 0);
    else
        s->values[i] = x;
    if (s->bits && threadIdx.x == 0)
        s->scales[i / BLOCK] = top;
}

/* Quantized as this kernel expects it, or plain float32. */
static __device__ int fits(const struct qm_kernel_slot *s)
{
    return s->bits ? s->bits == 8 && s->block == BLOCK : s->values != 0 || s->n == 0;
}

extern "C" __global__ void __launch_bounds__(BLOCK) qm_cuda_step(struct qm_cuda_args c)
{
    const struct qm_kernel_args *a = &c.a;
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(first) ||
        !fits(second)) {
        qm_cuda_refuse(&c);
        return;
    }
    __shared__ float step, root_bc2;
    if (threadIdx.x == 0) {
        step = (float)(-a->lr / (1.0 - pow(a->beta1, (double)a->t)));
        root_bc2 = (float)sqrt(1.0 - pow(a->beta2, (double)a->t));
    }
    __syncthreads();
    float beta1 = (float)a->beta1, take1 = (float)(1.0 - a->beta1);
    float beta2 = (float)a->beta2, take2 = (float)(1.0 - a->beta2);
    float decay = (float)(1.0 - a->lr * a->weight_decay), eps = (float)a->eps;
    float *p = (float *)a->p, m = 0.0f, v = 0.0f;
    const float *g = (const float *)a->g;
    int64_t from = (int64_t)blockIdx.x * BLOCK, i = from + threadIdx.x;
    int64_t n = a->n - from < BLOCK ? a->n - from : BLOCK;
    if (i < a->n) {
        float x = a->maximize ? -g[i] : g[i];
        m = fmaf(x, take1, decode(first, i) * beta1);
        v = fmaf(take2 * x, x, decode(second, i) * beta2);
        p[i] = p[i] * decay + step * m / (sqrtf(v) / root_bc2 + eps);
    }
    encode(first, i, n, m);
    encode(second, i, n, v);
}
