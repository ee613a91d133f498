/* lion8_fused.cu - 8-bit Lion (DecoupledLionW_8bit) on a GPU, one warp per group of 32 elements.
 * The momentum is int8 in groups of 32, with one float16 scale each. */
#include "kernel_cuda.h"

enum { BLOCK = 32, THREADS = 128 };

QM_CUDA_KERNEL("lion8_fused");
QM_CUDA_LAUNCH(qm_cuda_step, THREADS, THREADS, 0);

/* x rounded to float16, ties to even, as the float32 it decodes to; x is not negative. */
static __device__ float half_of(float x)
{
    if (x >= 65520.0f)
        return __uint_as_float(0x7f800000u);
    if (x < 6.103515625e-05f) /* 2^-14: steps of 2^-24 */
        return x + 0.5f - 0.5f;
    float far = __fmul_rn(x, 8193.0f); /* contracted, far - x would be exact */
    return x == x ? far - (far - x) : x;
}

/* The largest |x| of the warp, at least 1e-12; by their bits, so that a NaN wins. */
static __device__ float warp_max(float x)
{
    unsigned int top = max(__float_as_uint(x) & 0x7fffffffu, __float_as_uint(1e-12f));
    for (int distance = 16; distance > 0; distance /= 2)
        top = max(top, __shfl_xor_sync(0xffffffffu, top, distance));
    return __uint_as_float(top);
}

extern "C" __global__ void __launch_bounds__(THREADS) qm_cuda_step(struct qm_cuda_args c)
{
    const struct qm_kernel_args *a = &c.a;
    const struct qm_kernel_slot *s = &a->slot[0];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || s->bits != 8 ||
        s->block != BLOCK) {
        qm_cuda_refuse(&c);
        return;
    }
    float *p = (float *)a->p, m = 0.0f, lr = (float)a->lr;
    const float *g = (const float *)a->g;
    float beta1 = (float)a->beta1, take1 = 1.0f - beta1;
    float beta2 = (float)a->beta2, take2 = 1.0f - beta2;
    double per_step =
        a->initial_lr != 0.0 ? a->weight_decay * (a->lr / a->initial_lr) : a->weight_decay;
    float decay = 1.0f - (float)per_step;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < a->n) { /* codes are k + 127 for k = -127 to 127 */
        float x = a->maximize ? -g[i] : g[i], old = s->codebook[s->codes[i]] * s->scales[i / BLOCK];
        float u = old * beta1 + x * take1;
        float sign = (float)((u > 0.0f) - (u < 0.0f)); /* NaN has no direction */
        m = old * beta2 + x * take2;
        p[i] = p[i] * decay - sign * lr;
    }
    float top = warp_max(m); /* before any thread of the warp ends */
    if (i >= a->n)
        return;
    if (i % BLOCK == 0)
        s->scales[i / BLOCK] = half_of(top);
    /* x is divided by the float32 scale, which is stored as float16; ties go up, NaN to code 0. */
    float y = m / top * 127.0f, k = floorf(y);
    s->codes[i] = (uint8_t)(y == y ? k + 127.0f + (float)(y - k >= 0.5f) : 0.0f);
}
