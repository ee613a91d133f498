/* last_block.cu - The last block of a grid to finish joins what all blocks found.  Each counts
 * itself by an atomic ticket behind a __threadfence. */
#include <cuda_runtime.h>

#include "kernel_cuda.h"

QM_KERNEL("adamw_f32");

static const int THREADS = 64;

struct found {
    float *part;         /* the largest |x| of each block */
    float *count, *most; /* of elements above 0; the largest |x| */
    unsigned int *ticket;
};

static __device__ void raise(float *to, float x)
{
    unsigned int *bits = (unsigned int *)to, old = *bits, was;
    do {
        was = old;
        old = atomicCAS(bits, was, max(was, __float_as_uint(x)));
    } while (old != was);
}

__global__ void __launch_bounds__(THREADS) look(const float *p, int64_t n, struct found f)
{
    __shared__ unsigned int top;
    __shared__ int is_last;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0)
        top = 0;
    __syncthreads(); /* top is 0 */
    float x = i < n ? fabsf(p[i]) : 0.0f;
    atomicMax(&top, __float_as_uint(x));
    if (x > 0.0f)
        atomicAdd(f.count, 1.0f);
    __syncthreads(); /* top is whole */
    if (threadIdx.x == 0) {
        f.part[blockIdx.x] = __uint_as_float(top);
        __threadfence();
        is_last = atomicAdd(f.ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads(); /* is_last */
    if (!is_last)
        return;
    for (int k = threadIdx.x; k < (int)gridDim.x; k += blockDim.x)
        raise(f.most, f.part[k]);
    if (threadIdx.x == 0 && *f.count > 0.0f)
        *f.ticket = 0;
}

__global__ void scale(float *p, int64_t n, struct found f)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && p[i] != 0.0f)
        p[i] = p[i] + *f.most + *f.count;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    struct found f;
    float *p;
    size_t bytes = sizeof(float) * (size_t)a->n;
    unsigned int blocks = (unsigned int)((a->n + THREADS - 1) / THREADS);
    cudaMalloc(&p, bytes);
    cudaMalloc(&f.part, sizeof(float) * blocks);
    cudaMalloc(&f.count, 2 * sizeof(float));
    cudaMalloc(&f.ticket, sizeof(unsigned int));
    f.most = f.count + 1;
    cudaMemcpyAsync(p, a->p, bytes, cudaMemcpyHostToDevice);
    cudaMemset(f.count, 0, 2 * sizeof(float));
    cudaMemset(f.ticket, 0, sizeof(unsigned int));
    look<<<blocks, THREADS>>>(p, a->n, f);
    scale<<<blocks, THREADS>>>(p, a->n, f);
    cudaMemcpy(a->p, p, bytes, cudaMemcpyDeviceToHost);
    cudaFree(p);
    cudaFree(f.part);
    cudaFree(f.count);
    cudaFree(f.ticket);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}
