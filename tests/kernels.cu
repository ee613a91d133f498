/* kernels.cu - every element function of the dual headers in CUDA kernels: a compile test. */
#include "core/base/half.h"
#include "core/quant/curve.h"
#include "core/quant/norm.h"
#include "core/quant/pack.h"
#include "core/quant/scale.h"
#include "core/quant/search.h"
#include "core/quant/unit.h"
#include "core/rule/adamw.h"
#include "core/rule/lion8.h"
#include "core/rule/lpmm.h"
#include "core/rule/sgdm.h"

__constant__ struct qm_codebook book;

extern "C" __global__ void encode(const float *x, float scale, int search, int round, uint32_t seed,
                                  long long n, uint8_t *codes)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        codes[i] = (uint8_t)qm_search_code((enum qm_search)search, (enum qm_round)round,
                                           qm_curve_to(QM_CURVE_log2, x[i]) / scale, &book,
                                           qm_philox_stream(seed, 1, (uint64_t)i));
}

extern "C" __global__ void step(const float *c, float *p, const float *g, float *m, float *v,
                                long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    qm_adamw_torch(c, 0, 0, p + i, g[i], m + i, v + i);
    qm_adamw_lpmm(c, 0, p + i, g[i], m + i, v + i);
    qm_adamw_lpmm_fused(c, 0, 0, p + i, g[i], m + i, v + i);
    qm_adamw_lpmm_fused(c, 0, 1, p + i, g[i], m + i, v + i);
    qm_adamw_ao(c, 1, p + i, g[i], m + i, v + i);
    qm_adamw_bnb(c, 0, p + i, g[i], m + i, v + i);
    qm_sgdm_torch(c, 0, 1, p + i, g[i], m + i);
    qm_lion8_unfused(c, QM_PARAM_bf16, p + i, g[i], m + i);
    qm_lion8_fused(c, p + i, g[i], m + i);
    qm_flash_adam(c, 1, p + i, g[i], m + i, v + i);
    qm_flash_sgd(c, 0, 1, p + i, g[i], m + i);
    uint32_t h = qm_param_nearest(QM_PARAM_bf16, p[i]);
    p[i] = qm_ecc_decode(QM_PARAM_bf16, h, qm_ecc_encode(QM_PARAM_bf16, p[i], h, 127), 127);
    qm_ema_lerp(c, qm_f16_to_float(qm_float_to_f16(qm_exp2(g[i]))), m + i);
}
