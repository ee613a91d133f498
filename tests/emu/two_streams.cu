/* two_streams.cu - 4-bit AdamW of lpmm with host code, in two streams: one updates the moments,
 * the other encodes them.  Scratch memory is padded to whole blocks. */
#include <cuda_runtime.h>

#include "kernel_cuda.h"

QM_KERNEL("adamw4_lpmm_group");

static const int BLOCK = 128;

struct moments {
    float *m, *v; /* padded */
};

static __device__ float decode(const struct qm_kernel_slot *s, int64_t i)
{
    int byte = s->codes[i / 2], code = i % 2 ? byte >> 4 : byte & 15;
    return s->codebook[code] * s->scales[i / BLOCK];
}

static __device__ float lerp(float a, float b, float w)
{
    return w < 0.5f ? fmaf(w, b - a, a) : fmaf(w - 1.0f, b - a, b);
}

/* Updates moments and parameters; the pad stays unchanged. */
__global__ void update(const struct qm_kernel_args *a, struct moments x, float step, float root_bc2)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a->n)
        return;
    float *p = (float *)a->p, w2 = (float)(1.0 - a->beta2), eps = (float)a->eps;
    float g = ((const float *)a->g)[i] * (a->maximize ? -1.0f : 1.0f);
    float m = lerp(decode(&a->slot[0], i), g, (float)(1.0 - a->beta1));
    float v = fmaf(w2 * g, g, decode(&a->slot[1], i) * (float)a->beta2);
    p[i] = p[i] * (float)(1.0 - a->lr * a->weight_decay) + step * m / (sqrtf(v) / root_bc2 + eps);
    x.m[i] = m;
    x.v[i] = v;
}

/* Encodes one quantizer block per thread block.  It also reads the pad, which must hold zeros. */
template <int WHICH> __global__ void encode(const struct qm_kernel_args *a, const float *x)
{
    extern __shared__ float top[];
    const struct qm_kernel_slot *s = &a->slot[WHICH];
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    top[threadIdx.x] = fabsf(x[i]);
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        float other = threadIdx.x < half ? top[threadIdx.x + half] : 0.0f;
        if (threadIdx.x < half && (top[threadIdx.x] < other || other != other))
            top[threadIdx.x] = other;
        __syncthreads();
    }
    float scale = top[0];
    int code = 0;
    while (code < 15 && !(x[i] / scale <= (s->codebook[code] + s->codebook[code + 1]) * 0.5f))
        code++;
    int other = __shfl_down_sync(0xffffffffu, code, 1);
    if (i < a->n && i % 2 == 0)
        s->codes[i / 2] = (uint8_t)(i + 1 < a->n ? code | other << 4 : code);
    if (threadIdx.x == 0)
        s->scales[blockIdx.x] = scale;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->slot[0].bits != 4 ||
        a->slot[1].bits != 4)
        return 1;
    if (a->n == 0)
        return 0; /* a grid of no blocks is an error */
    const unsigned int blocks = (unsigned int)((a->n + BLOCK - 1) / BLOCK);
    const size_t bytes = sizeof(float) * BLOCK * blocks;
    float step = (float)(-a->lr / (1.0 - pow(a->beta1, (double)a->t)));
    float root_bc2 = (float)sqrt(1.0 - pow(a->beta2, (double)a->t));
    struct moments x;
    cudaStream_t first, second;
    cudaEvent_t done;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreate(&done);
    cudaMalloc(&x.m, bytes);
    cudaMalloc(&x.v, bytes);
    cudaMemsetAsync(x.m, 0, bytes, first);
    cudaMemsetAsync(x.v, 0, bytes, first);
    update<<<blocks, BLOCK, 0, first>>>(a, x, step, root_bc2);
    cudaEventRecord(done, first);
    cudaStreamWaitEvent(second, done);
    encode<0><<<blocks, BLOCK, BLOCK * sizeof(float), second>>>(a, x.m);
    encode<1><<<blocks, BLOCK, BLOCK * sizeof(float), second>>>(a, x.v);
    cudaStreamSynchronize(second);
    cudaFree(x.m);
    cudaFree(x.v);
    cudaEventDestroy(done);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}
