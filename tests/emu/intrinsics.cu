/* intrinsics.cu - Writes each inexact intrinsic's results to a row of 64 parameters, for
 * test_emu.c. */
#include "kernel_cuda.h"

QM_CUDA_KERNEL("sgdm_f32");
QM_CUDA_LAUNCH(qm_cuda_step, 64, 0, 0);

extern "C" __global__ void qm_cuda_step(struct qm_cuda_args c)
{
    float *p = (float *)c.a.p;
    int i = (int)threadIdx.x, row = 0;
    float x = 0.04f * (float)(i + 1), s, d;
    p[64 * row++ + i] = __expf(x);
    p[64 * row++ + i] = __expf(-20.0f * x);
    p[64 * row++ + i] = __exp10f(x);
    p[64 * row++ + i] = __logf(x);
    p[64 * row++ + i] = __log2f(x);
    p[64 * row++ + i] = __log10f(x);
    p[64 * row++ + i] = __sinf(x);
    p[64 * row++ + i] = __cosf(x);
    p[64 * row++ + i] = __tanhf(x);
    __sincosf(x, &s, &d);
    p[64 * row++ + i] = s;
    p[64 * row++ + i] = d;
    p[64 * row++ + i] = __powf(0.999f, (float)(i + 1));
}
