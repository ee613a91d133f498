/* adamw4_lpmm_group.cu - 4-bit AdamW of low-bit-optimizers (lpmm) on a GPU.
 *
 * One thread block per 128 elements, one thread per byte of codes.  Tensors of at most 4096
 * elements come with float32 moments.  The source takes moments of one element for not yet
 * initialized in every step. */
#include "kernel_cuda.h"

enum { BLOCK = 128, THREADS = BLOCK / 2 };

QM_CUDA_KERNEL("adamw4_lpmm_group");
QM_CUDA_LAUNCH(qm_cuda_step, THREADS, BLOCK, 0);

/* Two codes per byte, the even element in the low nibble. */
static __device__ float decode(const struct qm_kernel_slot *s, int64_t i)
{
    if (!s->bits)
        return s->values[i];
    int code = s->codes[i / 2] >> (i % 2 ? 4 : 0) & 15;
    return s->codebook[code] * s->scales[i / BLOCK];
}

/* The nearest code; ties go down, NaN to the top code (a block of zeros: 0 / 0). */
static __device__ int nearest(const float *value, float y)
{
    int k = 0;
    while (k < 15 && !(y <= (value[k] + value[k + 1]) * 0.5f))
        k++;
    return k;
}

/* x[n] from element i on; all threads call it.  The maximum is taken on bits, so that NaN wins. */
static __device__ void encode(const struct qm_kernel_slot *s, unsigned int *top, int64_t i, int n,
                              const float *x)
{
    if (threadIdx.x == 0)
        *top = 0;
    __syncthreads();
    for (int k = 0; k < n; k++)
        atomicMax(top, __float_as_uint(x[k]) & 0x7fffffffu);
    __syncthreads();
    float scale = __uint_as_float(*top);
    int byte = 0;
    for (int k = 0; k < n && s->bits; k++)
        byte |= nearest(s->codebook, x[k] / scale) << 4 * k;
    if (s->bits && n == 1) /* the last element: the upper nibble stays as it was */
        byte |= s->codes[i / 2] & 0xf0;
    if (s->bits && n > 0)
        s->codes[i / 2] = (uint8_t)byte;
    if (s->bits && n > 0 && threadIdx.x == 0)
        s->scales[i / BLOCK] = scale;
    for (int k = 0; k < n && !s->bits; k++)
        s->values[i + k] = x[k];
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

extern "C" __global__ void __launch_bounds__(THREADS) qm_cuda_step(struct qm_cuda_args c)
{
    const struct qm_kernel_args *a = &c.a;
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(first) ||
        !fits(second)) {
        qm_cuda_refuse(&c);
        return;
    }
    __shared__ unsigned int top[2];
    __shared__ float step, root_bc2;
    if (threadIdx.x == 0) {
        step = (float)(-a->lr / (1.0 - pow(a->beta1, (double)a->t)));
        root_bc2 = (float)sqrt(1.0 - pow(a->beta2, (double)a->t));
    }
    __syncthreads();
    float w1 = (float)(1.0 - a->beta1), w2 = (float)(1.0 - a->beta2), beta2 = (float)a->beta2;
    float decay = (float)(1.0 - a->lr * a->weight_decay), eps = (float)a->eps;
    float *p = (float *)a->p, m[2], v[2];
    const float *g = (const float *)a->g;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 2;
    int n = a->n - i > 2 ? 2 : a->n - i < 0 ? 0 : (int)(a->n - i), is_new = a->n == 1;
    for (int k = 0; k < n; k++) {
        float x = a->maximize ? -g[i + k] : g[i + k];
        m[k] = lerp(is_new && !first->bits ? 0.0f : decode(first, i + k), x, w1);
        v[k] = fmaf(w2 * x, x, (is_new && !second->bits ? 0.0f : decode(second, i + k)) * beta2);
        p[i + k] = p[i + k] * decay + step * m[k] / (sqrtf(v[k]) / root_bc2 + eps);
    }
    encode(first, &top[0], i, n, m);
    encode(second, &top[1], i, n, v);
}
