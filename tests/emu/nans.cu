/* nans.cu - Writes results of float32 operations on p[i] and p[64 + i], for test_emu_nan.c. */
#include "kernel_cuda.h"

QM_CUDA_KERNEL("sgdm_f32");
QM_CUDA_LAUNCH(qm_cuda_step, 64, 0, 2048);

struct pair {
    float x, y;
};

/* x and y share a register; only x is computed. */
static __device__ __noinline__ struct pair first_of(struct pair q)
{
    q.x = q.x * q.y;
    return q;
}

extern "C" __global__ void qm_cuda_step(struct qm_cuda_args c)
{
    float *p = (float *)c.a.p;
    int i = (int)threadIdx.x, row = 2;
    float a = p[i], b = p[64 + i];
    struct pair q = {a, b};
    q = first_of(q);
    p[64 * row++ + i] = a + b;
    p[64 * row++ + i] = a - b;
    p[64 * row++ + i] = a * b;
    p[64 * row++ + i] = a / b;
    p[64 * row++ + i] = sqrtf(a);
    p[64 * row++ + i] = fmaf(a, b, 1.0f);
    p[64 * row++ + i] = fmaxf(a, b);
    p[64 * row++ + i] = fminf(a, b);
    p[64 * row++ + i] = (float)((double)a + (double)b);
    p[64 * row++ + i] = q.x;
    p[64 * row++ + i] = q.y;                                                   /* moved */
    p[64 * row++ + i] = a;                                                     /* moved */
    p[64 * row++ + i] = __uint_as_float(__float_as_uint(a + b) & 0x80000000u); /* its sign */
}
