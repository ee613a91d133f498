/* adamw4_ao.cu - 4-bit AdamW of torchao: one thread block per 128 elements, one thread each.
 *
 * The variant keeps the moments of tensors that are too small, or no multiple of the block, in
 * float32.  A recipe may give such tensors codes nevertheless, and `qualm check` does: the last
 * block is then short. */
#include "kernel_cuda.h"

enum { BLOCK = 128, WARPS = BLOCK / 32 };
#define WHOLE 0xffffffffu /* all lanes of a warp */

QM_CUDA_KERNEL("adamw4_ao");
QM_CUDA_LAUNCH(qm_cuda_step, BLOCK, BLOCK, 0);

/* The largest |x| of the thread block, at least 1e-12; by their bits, so that a NaN wins. */
static __device__ float block_max(float x)
{
    __shared__ unsigned int of_warp[WARPS];
    unsigned int top = max(__float_as_uint(x) & 0x7fffffffu, __float_as_uint(1e-12f));
    for (int distance = 16; distance > 0; distance /= 2)
        top = max(top, __shfl_xor_sync(WHOLE, top, distance));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
        top = max(top, of_warp[w]);
    __syncthreads(); /* before the next call writes again */
    return __uint_as_float(top);
}

/* Two codes per byte, the even element in the high nibble. */
static __device__ float decode(const struct qm_kernel_slot *s, int64_t i)
{
    if (!s->bits)
        return s->values[i];
    int byte = s->codes[i / 2], code = i % 2 ? byte & 15 : byte >> 4;
    return s->codebook[code] * s->scales[i / BLOCK];
}

/* The nearest code; ties go up, NaN to code 0. */
static __device__ int nearest(const float *value, float y)
{
    int k = 0;
    while (k < 15 && y - value[k] >= (value[k + 1] - value[k]) * 0.5f)
        k++;
    return k;
}

/* All threads call it; those without an element (is_there 0) only join the maximum. */
static __device__ void encode(const struct qm_kernel_slot *s, int64_t i, float x, int is_there)
{
    float top = block_max(is_there ? x : 0.0f);
    int code = s->bits ? nearest(s->codebook, x / top) : 0;
    int other = __shfl_down_sync(WHOLE, code, 1);
    if (s->bits && is_there && i % 2 == 0)
        s->codes[i / 2] = (uint8_t)(code << 4 | other);
    if (s->bits && threadIdx.x == 0 && is_there)
        s->scales[i / BLOCK] = top;
    if (!s->bits && is_there)
        s->values[i] = x;
}

/* torch.lerp: a + w (b - a) for w < 1/2, else b - (1 - w) (b - a). */
static __device__ float lerp(float a, float b, float w)
{
    return w < 0.5f ? fmaf(w, b - a, a) : fmaf(w - 1.0f, b - a, b);
}

/* Quantized as this kernel expects it, or plain float32. */
static __device__ int fits(const struct qm_kernel_slot *s)
{
    return s->bits ? s->bits == 4 && s->block == BLOCK : s->values != 0 || s->n == 0;
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
    __shared__ float bc1, root_bc2;
    if (threadIdx.x == 0) {
        bc1 = 1.0f - (float)pow((double)(float)a->beta1, (double)a->t);
        root_bc2 = sqrtf(1.0f - (float)pow((double)(float)a->beta2, (double)a->t));
    }
    __syncthreads();
    float *p = (float *)a->p, m = 0.0f, v = 0.0f;
    const float *g = (const float *)a->g;
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    int is_there = i < a->n;
    if (is_there) {
        float lr = (float)a->lr, decay = lr * (float)a->weight_decay, eps = (float)a->eps;
        float x = a->maximize ? -g[i] : g[i], w = p[i];
        w = w - decay * w;
        m = lerp(decode(first, i), x, (float)(1.0 - a->beta1));
        v = lerp(decode(second, i), x * x, (float)(1.0 - a->beta2));
        p[i] = w - lr * (m / bc1) / (sqrtf(v) / root_bc2 + eps);
    }
    encode(first, i, m, is_there);
    encode(second, i, v, is_there);
}
