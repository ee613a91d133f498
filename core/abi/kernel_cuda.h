/* kernel_cuda.h - What a CUDA kernel file (.cu) must hold to be judged by `qualm check --kernel`.
 *
 * A file has one of two forms.  `--backend emu` takes both; it needs a C++ compiler, but neither a
 * GPU nor the toolkit.  `--backend cuda` takes form 1, because NVRTC compiles no host code.  From a
 * file of form 2 nvcc makes a .so that `--kernel` takes as it is.
 *
 * 1. Device code alone.  The harness launches it:
 *
 *     #include "kernel_cuda.h"
 *     QM_CUDA_KERNEL("adamw4_ao");                the variant or recipe that it claims to be
 *     QM_CUDA_LAUNCH(qm_cuda_step, 128, 256, 0);  kernel, threads, elements a block, shared bytes
 *     extern "C" __global__ void qm_cuda_step(struct qm_cuda_args c)
 *     {
 *         const struct qm_kernel_args *a = &c.a;
 *         if (a->p_dtype != QM_KERNEL_F32) {
 *             qm_cuda_refuse(&c);
 *             return;
 *         }
 *         ...
 *     }
 *
 * Further kernels qm_cuda_step_2 to qm_cuda_step_8, each with its launch line, are launched in this
 * order, each after the one before has ended: for norms that need the whole tensor first.
 *
 * 2.  Host code too: kernel_abi.h as it stands, QM_KERNEL("...") and int qm_kernel_step(a), which
 * launches with <<<grid, block, shared, stream>>>.  The buffers of `a` are host memory: copy them
 * with cudaMalloc and cudaMemcpy.  Under emu they may also be handed to kernels as they are.
 * Before the step returns, it must wait for everything it launched (cudaDeviceSynchronize).
 *
 * A nearest-code routine for `qualm prove FILE.cu --map MAP` is device code alone: one kernel that
 * does what kernel_nearest.h says of the function qm_nearest:
 *
 *     #include "kernel_cuda.h"
 *     QM_CUDA_LAUNCH(qm_cuda_nearest, 256, 256, 0);
 *     extern "C" __global__ void qm_cuda_nearest(const float *y, int64_t n, unsigned char *code)
 *
 * Valid C11, C++17, CUDA and NVRTC; it includes nothing but kernel_abi.h. */
#ifndef QM_KERNEL_CUDA_H
#define QM_KERNEL_CUDA_H

#if defined(__CUDACC_RTC__)
typedef unsigned char uint8_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#endif

#include "kernel_abi.h"

#define QM_CUDA_STEPS         8    /* qm_cuda_step to qm_cuda_step_8 */
#define QM_CUDA_SCRATCH_SPARE 1024 /* floats of scratch beyond one per scale */

/* By value, in the kernel's parameter space: at most 4096 bytes. */
struct qm_cuda_args {
    /* As in kernel_abi.h, its buffers being device memory at multiples of 64 bytes; texts (name,
     * quantizer, recipe, param) are NULL. */
    struct qm_kernel_args a;

    /* A word of device memory, 0 at first.  If it is not 0 afterwards, the kernel does not take
     * this input and has changed nothing; the step counts as refused. */
    uint32_t *refused;

    /* Device memory, zeroed before each step: n_scratch floats, one for each scale of slot 0, of
     * slot 1, ..., then QM_CUDA_SCRATCH_SPARE more. */
    float *scratch;
    int64_t n_scratch;
};

/* Host and device agree on the bytes of what crosses between them. */
#if defined(__cplusplus)
static_assert(sizeof(struct qm_kernel_args) == 2568, "host and device must agree");
static_assert(sizeof(struct qm_cuda_args) == 2592, "host and device must agree");
#else
_Static_assert(sizeof(struct qm_kernel_args) == 2568, "host and device must agree");
_Static_assert(sizeof(struct qm_cuda_args) == 2592, "host and device must agree");
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(QM_EMU)
/* Not const: NVRTC does not export constants. */
#define QM_CUDA_EXPORT(type, name, ...) \
    extern "C" {                        \
    __device__ type name = __VA_ARGS__; \
    }                                   \
    extern "C" __device__ type name

/* The variant or recipe that the file claims to be; once in a file of form 1. */
#if defined(__CUDACC_RTC__)
#define QM_CUDA_KERNEL(recipe)                       \
    QM_CUDA_EXPORT(int, qm_cuda_abi, QM_KERNEL_ABI); \
    QM_CUDA_EXPORT(char, qm_cuda_as[sizeof recipe], recipe)
#else
#define QM_CUDA_KERNEL(recipe) QM_KERNEL(recipe)
#endif

/* How a kernel is launched, in one dimension: blocks of `threads` threads (at most 1024) and
 * `shared` bytes of dynamic shared memory; max(1, ceil(n / elements)) blocks, n as in
 * qm_kernel_args, and one block where elements is 0.  The harness reads these numbers as the
 * int[3] NAME_launch. */
#define QM_CUDA_LAUNCH(name, threads, elements, shared) \
    QM_CUDA_EXPORT(int, name##_launch[3], {threads, elements, shared})

/* Refuses the input.  Any thread may call it, before anything is changed; then every
 * thread returns. */
static inline __device__ void qm_cuda_refuse(const struct qm_cuda_args *c)
{
    atomicExch(c->refused, 1u);
}
#endif

#endif
