/* kernel_abi.h - What a kernel file of your own must export to be judged by `qualm check --kernel`.
 *
 *     #include "kernel_abi.h"
 *     QM_KERNEL("adamw4_ao");                              the variant or recipe it claims to be
 *     int qm_kernel_step(const struct qm_kernel_args *a)   one step of one tensor, in place
 *     {
 *         ...
 *         return 0;
 *     }
 *
 * Valid C11, C++17 and CUDA; it includes nothing but <stdint.h> and links with nothing.
 *
 * A step is stateless: everything carried from one step to the next lies in the buffers below, the
 * same input gives the same bits, and calls for several tensors may come in any order.  Buffers are
 * host memory, start at multiples of 64 bytes and have exactly the sizes stated: memory beyond them
 * is not mapped, or is compared afterwards.  Buffers that are const lie in read-only memory.  On
 * return, every element of every other buffer must be up to date.  Tensors may have 0 elements.
 *
 * A kernel may keep tables, scratch memory and threads from call to call, as long as no result
 * depends on what was called before.  The variant decides which tensors have codes, by their size;
 * `qualm check` gives codes to tensors of any size too, with a short last block.
 *
 * A kernel may compute in a higher precision than its rule (a scalar in double where the rule forms
 * it in float32, too, of a beta as it is given or as a float32; SOLO's rank 0.1 (n - 1) with the
 * double 0.1, for in double the float32 one lies above whole ranks), but not in a wider range: what
 * overflows in float32, or is 1 there and so has 1 for every power, does so here (the parameters of
 * a step whose correction 1 - b^t is 0 for that are not judged).  It may do the arithmetic in
 * another order than its rule, in these points:
 *   - fuse a product and the sum that follows it, the product of a code's value and its scale too
 *   - multiply by a rounded reciprocal instead of dividing
 *   - form an average b x + (1 - b) y (x the old state, b a beta) as x + (1 - b) (y - x) or in the
 *     two branches of torch.lerp, and w g g in any order
 *   - add up n numbers in float32, in a tree at most log2 n + 32 + n / 256 deep
 *   - decay by p (1 - lr wd), p - (lr wd) p or within the step, p - lr (u + wd p); take the bias
 *     corrections c1, c2 into the step, lr sqrt(c2) / c1 with eps sqrt(c2); divide v or its root by
 *     c2; multiply by lr, and what multiplies it, before or after dividing
 * Another rule or format, to be judged with another --as:
 *   - scalars (1 - b, b^t, corrections) in float32 where the rule forms them in double
 *   - float32 where the rule rounds to bfloat16 (Muon)
 *   - eps without sqrt(c2) where c2 is taken into the step
 *   - decay after the step instead of before it
 *   - approximate division, roots and exponentials
 *   - an exponent, fused or of a rounded reciprocal, of a state that is decoded by exp2 */
#ifndef QM_KERNEL_ABI_H
#define QM_KERNEL_ABI_H

#if !defined(__CUDACC_RTC__) /* NVRTC has no headers: see kernel_cuda.h */
#include <stdint.h>
#endif

#define QM_KERNEL_ABI   5 /* raised with every change of the structs below */
#define QM_KERNEL_SLOTS 12
#define QM_KERNEL_RANK  8

/* Element types of parameters and gradients; e4m3 is the 8-bit float e4m3fn. */
enum qm_kernel_dtype { QM_KERNEL_F32, QM_KERNEL_BF16, QM_KERNEL_F16, QM_KERNEL_E4M3 };

/* One tensor of optimizer state.  It has the parameter's shape, except in factored rules; a slot
 * that a tensor does not have has n = 0.
 *
 * bits == 0: plain floats in values[n]; `quantizer` is "f32", or "bf16" or "f16" where each float
 *   is rounded to that format before it is stored, or "i16" for whole numbers of 16 bits.  codes,
 *   scales, codebook and draws are NULL.
 * bits > 0: codes and scales; values is NULL.  Unless the quantizer names a curve, element i
 *   decodes to codebook[code i] * scale; where several scales apply, the smallest of them.
 *
 * codes   packed as the quantizer's last axis says.  hi: the first code in the highest bits of the
 *         first byte; lo: in the lowest; byte, and 8 bits always: one byte each; nibbles: two of 3
 *         bits in a byte, the first in its high half.  Bits of the last
 *         byte behind the last code may have any value.
 * scales  float32, in this order.  block: one per `block` consecutive elements, the last block
 *         short; tensor: one; row, col: one per row or column; rank1 of two and more dims: one per
 *         index of the first axis, then of the second, ... (of one dim: blocks of 128); curve
 *         allog, qlog or affine: two per block, span and least logarithm, scale and alpha, or least
 *         and largest element; expand: three, scale, exponent and centre
 *         (core/quant/adaptive_log.h, quantile_log.h, affine.h, expand.h).  Scales stored in 16
 *         bits or nested are given as the float32 they decode to.
 *
 * Norm rowblock of a matrix: one per `block` consecutive elements of a row, row by row; the last
 * block of a row is short.
 *
 * A slot `proj` is the projection of a matrix: rank x columns on the right, rows x rank on the
 * left.  The step itself makes a new projection at steps 1, 1 + gap, 1 + 2 gap, ..., and while it
 * is all zero; at other steps it stays.  A random projection is determined by the number `tensor`
 * (variants/native/apollo_f32.c draws it); of singular vectors any correct choice is accepted.  The
 * number that a limiter carries from step to step is a slot of one element. */
struct qm_kernel_slot {
    const char *name;      /* "exp_avg" */
    const char *quantizer; /* of this tensor: "dyn:4s/block:128/bisect/near/hi" */
    int bits, is_signed;
    int64_t block; /* N of block:N; 0: the norm has none */
    int64_t n;
    int ndim;
    int64_t dim[QM_KERNEL_RANK];
    uint8_t *codes;
    int64_t code_bytes;
    float *scales;
    int64_t n_scales;
    float *values;
    const float *codebook; /* [2^bits]: unit value of each stored code; NaN: there is no such code.
                            * Entries need not ascend (float formats, af4) */
    const uint32_t *draws; /* [n]: 32 random bits per element where round is stoch, dither or
                            * bernoulli; which element takes which is free, for rates are judged,
                            * but above 2^25 elements, where element i takes draw i */
};

struct qm_kernel_args {
    int abi;                     /* QM_KERNEL_ABI of the caller */
    const char *recipe;          /* "adamw4_ao,lr=0.01" */
    int64_t n;                   /* elements of p and g */
    int ndim;                    /* 0: a scalar, n == 1 */
    int64_t dim[QM_KERNEL_RANK]; /* row-major */
    void *p;                     /* in place */
    int p_dtype;                 /* enum qm_kernel_dtype */
    const char *param;           /* how p is written back: "f32", "bf16/stoch", "bf16/kahan", ... */
    const void *g;
    int g_dtype;
    void *residual; /* per element; kahan: one of p's type, ecc8: int8, ecc16: int16; else NULL */
    const uint32_t *p_draws; /* [n]: 32 random bits per element where param says stoch, else NULL */
    int n_slots;
    struct qm_kernel_slot slot[QM_KERNEL_SLOTS];
    int64_t t;       /* number of this step, from 1 */
    uint64_t seed;   /* of the run; like `tensor` for rules that draw random numbers themselves */
    uint32_t tensor; /* the tensor's number in the run */
    /* Hyper-parameters; `qualm show VARIANT` says what each means and where it stands.  Where the
     * recipe gives 0, initial_lr is the lr that the tensor was opened with.  The flags below, rank,
     * side, window, k_init and d_block keep their values over all steps of a tensor; the others may
     * change from step to step. */
    double lr, beta1, beta2, beta3, eps, eps1, eps2, weight_decay, momentum, dampening, alpha, clip,
        t_alpha, t_beta3, beta2_decay, rank, side, gap, scale, margin, max_unorm, gnorm_scale,
        initial_lr, momentum_decay, adjust, window, k_init, d_block, stat_decay, matrix_eps,
        stat_gap, root_gap, start, rect_stat, rect_root, max_order, min_lowbit;
    int nesterov, maximize, amsgrad, relative_step, scale_parameter, scale_weight_decay, factored,
        limiter, tensor_scale, scale_front, correct_bias, svd, centered, warmup, clip_twice,
        decouple_lr, flatten;
};

#if !defined(__CUDACC_RTC__) /* NVRTC takes device code only */
#ifdef __cplusplus
extern "C" {
#endif

/* Required.  Returns 0 when the step is done.  Any other value: the kernel does not take this input
 * and has changed nothing; the case is counted as refused. */
int qm_kernel_step(const struct qm_kernel_args *a);

extern const int qm_kernel_abi;   /* required: QM_KERNEL_ABI of the header it was built with */
extern const char qm_kernel_as[]; /* optional: stands in for --as */

#ifdef __cplusplus
}
#endif

/* Defines qm_kernel_abi and qm_kernel_as. */
#define QM_KERNEL(recipe)                    \
    const int qm_kernel_abi = QM_KERNEL_ABI; \
    const char qm_kernel_as[] = recipe
#endif

#endif
