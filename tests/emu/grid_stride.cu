/* grid_stride.cu - AdamW in float32 with host code: copies to the device and back, and a grid that
 * strides over the tensor, smaller than it. */
#include <cuda_runtime.h>

#include "kernel_cuda.h"

QM_KERNEL("adamw_f32");

static const int THREADS = 256, MOST_BLOCKS = 1024;

struct scalars {
    float beta1, take1, beta2, take2, decay, step, root_bc2, eps;
    int maximize;
};

__global__ void update(float *p, const float *g, float *m, float *v, int64_t n, struct scalars c)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        float x = c.maximize ? -g[i] : g[i];
        m[i] = m[i] * c.beta1 + x * c.take1;
        v[i] = v[i] * c.beta2 + x * x * c.take2;
        p[i] = p[i] * c.decay + c.step * m[i] / (sqrtf(v[i]) / c.root_bc2 + c.eps);
    }
}

static float *on_device(const void *host, size_t bytes)
{
    float *out;
    cudaMalloc(&out, bytes);
    cudaMemcpy(out, host, bytes, cudaMemcpyHostToDevice);
    return out;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32)
        return 1;
    if (a->n == 0)
        return 0;
    size_t bytes = sizeof(float) * (size_t)a->n;
    double bc1 = 1.0 - pow(a->beta1, (double)a->t), bc2 = 1.0 - pow(a->beta2, (double)a->t);
    struct scalars c;
    c.beta1 = (float)a->beta1;
    c.take1 = (float)(1.0 - a->beta1);
    c.beta2 = (float)a->beta2;
    c.take2 = (float)(1.0 - a->beta2);
    c.decay = (float)(1.0 - a->lr * a->weight_decay);
    c.step = (float)(-a->lr / bc1);
    c.root_bc2 = (float)sqrt(bc2);
    c.eps = (float)a->eps;
    c.maximize = a->maximize;
    float *p = on_device(a->p, bytes), *g = on_device(a->g, bytes);
    float *m = on_device(a->slot[0].values, bytes), *v = on_device(a->slot[1].values, bytes);
    int64_t blocks = (a->n + THREADS - 1) / THREADS;
    int grid = blocks < MOST_BLOCKS ? (int)blocks : MOST_BLOCKS;
    update<<<grid, THREADS>>>(p, g, m, v, a->n, c);
    cudaMemcpy(a->p, p, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(a->slot[0].values, m, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(a->slot[1].values, v, bytes, cudaMemcpyDeviceToHost);
    cudaFree(p);
    cudaFree(g);
    cudaFree(m);
    cudaFree(v);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}
