/* pairs.cu - half2 and bfloat162, after macros with the shortest names: parameter 64 r + i becomes
 * what row r computes from x(i) and x(i + 1). */
#define a       ++ +
#define b       ++ +
#define x       ++ +
#define v       ++ +
#define T       ++ +
#define op      ++ +
#define ITEMS   ++ +
#define THREADS ++ +
#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#undef a
#undef b
#undef x
#undef v
#undef T
#undef op
#undef ITEMS
#undef THREADS

#include "kernel_cuda.h"

QM_KERNEL("adamw_f32");

static __device__ float number(int i) { return (float)(i * i % 37 - 11) * 1.0009765f; }

static __device__ float both(float2 f) { return f.x + 1024.0f * f.y; }

template <class P> static __device__ float common(int row, P p, P q)
{
    switch (row) {
    case 0: return __low2float(__hfma2(p, q, p)) + 2048.0f * __high2float(__hfma2(p, q, q));
    case 1: return __low2float(__hadd2(p, q) * p) - __high2float(__hsub2(p, q));
    case 2: return __low2float(__h2div(p, __hadd2(q, q))) + __high2float(h2sqrt(__habs2(p)));
    case 3: return __low2float(__hmax2(p, q)) + 64.0f * __high2float(__hmin2(-p, q));
    case 4: return __low2float(__hlt2(p, q)) + 2.0f * (float)__hble2(p, q) + 4.0f * (float)(p == p);
    case 5: return __low2float(__hadd2_sat(p, q)) + __high2float(__hfma2_relu(p, q, p));
    case 6: return __low2float(__lowhigh2highlow(p)) + __high2float(p += q);
    default: return 0.0f;
    }
}

static __device__ float of_row(int row, int i)
{
    float x = number(i), y = number(i + 1);
    __half2 h = __floats2half2_rn(x, y), k = __float22half2_rn(make_float2(y, x));
    __nv_bfloat162 g = __floats2bfloat162_rn(x, y), m = __float22bfloat162_rn(make_float2(y, x));
    __shared__ __half2 sum;
    switch (row) {
    case 14: return both(__half22float2(__halves2half2(__low2half(h), __high2half(k))));
    case 15: return both(__bfloat1622float2(__highs2bfloat162(g, m)));
    case 16: return __half2float(__float2half_rd(x)) - __half2float(__float2half_ru(x));
    case 17: return __bfloat162float(__float2bfloat16_rz(y));
    case 18: return (float)__half2int_rd(__low2half(h)) + (float)__bfloat162uint_rz(g.y);
    case 19:
        if (threadIdx.x == 0)
            sum = __float2half2_rn(0.0f);
        __syncthreads();
        atomicAdd(&sum, make_half2(__int2half_rn(i), __ushort_as_half(0x3c00)));
        __syncthreads();
        return both(__half22float2(sum));
    default: return row < 7 ? common(row, h, k) : common(row - 7, g, m);
    }
}

__global__ void all(float *p)
{
    p[64 * blockIdx.x + threadIdx.x] = of_row((int)blockIdx.x, (int)threadIdx.x);
}

int qm_kernel_step(const struct qm_kernel_args *c)
{
    float *p;
    cudaMalloc(&p, sizeof *p * (size_t)c->n);
    all<<<(unsigned int)(c->n / 64), 64>>>(p);
    cudaMemcpy(c->p, p, sizeof *p * (size_t)c->n, cudaMemcpyDeviceToHost);
    cudaFree(p);
    return 0;
}
