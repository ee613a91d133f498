/* contraction.cu - Products and sums that nvcc contracts or not, for test_emu_contraction.c. */
#include "kernel_cuda.h"

QM_CUDA_KERNEL("sgdm_f32");
QM_CUDA_LAUNCH(qm_cuda_step, 64, 0, 2048);

/* Rows of 64 numbers: a, b, m = -(a * b) rounded, and q are read, the others written. */
#define ROW(k) p[64 * (k) + i]

extern "C" __global__ void qm_cuda_step(struct qm_cuda_args c)
{
    float *p = (float *)c.a.p;
    int i = (int)threadIdx.x;
    float a = ROW(0), b = ROW(1), m = ROW(2), q = ROW(3);
    ROW(4) = a * b + m;
    /* beside a function with a rounding mode, of the same operands */
    ROW(5) = __fmul_rn(a, b);
    ROW(6) = a * b + q;
    ROW(7) = __fmul_rn(a, b) + m;
    ROW(8) = __fmaf_rn(a, b, m);
    ROW(9) = a * b - 2.0f * q;
    double x = (double)a + 0x1p-30 * (double)b, y = (double)b - 0x1p-30 * (double)a;
    double r = __dmul_rn(x, y);
    ROW(10) = (float)(x * y - r);
    ROW(11) = (float)(__dmul_rn(x, y) - r);
}

/* As many kernels of a step as there are forms in which a product has several uses. */
QM_CUDA_LAUNCH(qm_cuda_step_2, 64, 0, 2048);
extern "C" __global__ void qm_cuda_step_2(struct qm_cuda_args c)
{
    float *p = (float *)c.a.p;
    int i = (int)threadIdx.x;
    float a = ROW(0), b = ROW(1), m = ROW(2), q = ROW(3), product = a * b;
    ROW(12) = product + m; /* all uses are sums */
    ROW(13) = product + q;
}

QM_CUDA_LAUNCH(qm_cuda_step_3, 64, 0, 2048);
extern "C" __global__ void qm_cuda_step_3(struct qm_cuda_args c)
{
    float *p = (float *)c.a.p;
    int i = (int)threadIdx.x;
    float a = ROW(0), b = ROW(1), m = ROW(2), q = ROW(3);
    ROW(14) = __fadd_rn(a * b, q); /* the product's other use */
    ROW(15) = a * b + m;
}

QM_CUDA_LAUNCH(qm_cuda_step_4, 64, 0, 2048);
extern "C" __global__ void qm_cuda_step_4(struct qm_cuda_args c)
{
    float *p = (float *)c.a.p;
    int i = (int)threadIdx.x;
    float a = ROW(0), b = ROW(1), m = ROW(2), product = a * b;
    ROW(16) = product; /* the product's other use */
    ROW(17) = product + m;
}

/* Products that functions return, of which nothing says that this file alone calls them. */
__device__ float times(float a, float b) { return a * b; }
__device__ float times_by_times(float a, float b) { return times(a, b); }
__device__ float plus(float a, float b) { return a + b; }

QM_CUDA_LAUNCH(qm_cuda_step_5, 64, 0, 2048);
extern "C" __global__ void qm_cuda_step_5(struct qm_cuda_args c)
{
    float *p = (float *)c.a.p;
    int i = (int)threadIdx.x;
    float a = ROW(0), b = ROW(1), m = ROW(2), q = ROW(3);
    ROW(18) = times(a, b) + m;
    ROW(19) = plus(times_by_times(a, b), q);
}
