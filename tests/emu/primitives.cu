/* primitives.cu - Writes each CUDA primitive's result to a row of 64 parameters, for test_emu.c. */
#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernel_cuda.h"

QM_CUDA_KERNEL("sgdm_f32");
QM_CUDA_LAUNCH(qm_cuda_step, 64, 0, 256);

#define ALL 0xffffffffu

template <typename T, int N> static __device__ T rotated(T x)
{
    __shared__ T held[N], *first; /* two names in one declaration */
    if (threadIdx.x == 0)
        first = held;
    held[threadIdx.x] = x;
    __syncthreads();
    T y = first[(threadIdx.x + 1) % N];
    __syncthreads();
    return y;
}

static __device__ unsigned int meeting(int i)
{
    unsigned int who = 0;
    if (i % 3 == 0)
        who = __activemask();
    __syncwarp();
    return who;
}

extern "C" __global__ void qm_cuda_step(struct qm_cuda_args c)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    __shared__ union {
        int whole;
        float parts[2];
    } both;
    __shared__ unsigned int count, most, swaps, wraps;
    __shared__ float sum;
    typedef cub::BlockReduce<float, 64> Reduce;
    __shared__ typename Reduce::TempStorage storage;
    float *p = (float *)c.a.p;
    int i = (int)threadIdx.x, row = 0;
    float x = (float)(i * i % 37) - 11.5f;

    p[64 * row++ + i] = __shfl_sync(ALL, x, 5);
    p[64 * row++ + i] = __shfl_sync(ALL, x, i + 3, 8);
    p[64 * row++ + i] = __shfl_up_sync(ALL, x, 3);
    p[64 * row++ + i] = __shfl_down_sync(ALL, x, 5, 16);
    p[64 * row++ + i] = __shfl_xor_sync(ALL, x, 9);
    p[64 * row++ + i] = (float)__popc(__ballot_sync(ALL, x > 0.0f));
    p[64 * row++ + i] = (float)(__any_sync(ALL, i == 40) + 2 * __all_sync(ALL, i < 32));
    p[64 * row++ + i] = (float)__popc(__match_any_sync(ALL, i % 5));
    p[64 * row++ + i] = (float)__reduce_add_sync(i % 2 ? 0xaaaaaaaau : 0x55555555u, (unsigned)i);
    p[64 * row++ + i] = (float)__popc(meeting(i));
    p[64 * row++ + i] = (float)__syncthreads_count(i % 7 == 0);
    p[64 * row++ + i] = (float)(__syncthreads_and(i < 64) + 2 * __syncthreads_or(i == 63));
    p[64 * row++ + i] = rotated<float, 64>(x) + (float)rotated<short, 64>((short)i);

    if (i == 0) {
        count = most = swaps = wraps = 0;
        sum = 0.0f;
        both.whole = 0x40490fdb;
    }
    __syncthreads();
    atomicAdd(&sum, 0.5f);
    atomicAdd(&count, 3u);
    atomicMax(&most, (unsigned)(i * 7 % 64));
    atomicInc(&wraps, 9u);
    for (unsigned int seen = 0, old; (old = atomicCAS(&swaps, seen, seen + 2u)) != seen;)
        seen = old;
    __syncthreads();
    p[64 * row++ + i] = sum + (float)count;
    p[64 * row++ + i] = (float)(most + swaps + wraps);
    p[64 * row++ + i] = both.parts[0];

    *(float *)(bytes + 4 * i) = x;
    __syncthreads();
    p[64 * row++ + i] = ((float4 *)bytes)[i / 4].z;
    float total = Reduce(storage).Sum(x);
    p[64 * row++ + i] = i == 0 ? total : 0.0f;

    p[64 * row++ + i] = (float)__float2int_rn(x * 1e9f) + (float)__float2int_rz(x);
    p[64 * row++ + i] = (float)(__brev((unsigned)i) >> 26) + (float)__clz(i) + (float)__ffs(i);
    p[64 * row++ + i] =
        (float)(__byte_perm(0x33221100u, 0x77665544u, 0x7140u) & 0xffffu) + (float)__umulhi(~0u, i);
    p[64 * row++ + i] = (float)__half2float(__float2half(x * 1.0009765f)) +
                        __bfloat162float(__float2bfloat16(x * 1.01f)) +
                        (float)__nv_fp8_e4m3(x * 1.1f);
    p[64 * row++ + i] = max(x, -3.0f) + min(i, 20) + fminf(x, 2.0f) + rsqrtf(4.0f) + __saturatef(x);
}
