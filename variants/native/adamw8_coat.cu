/* adamw8_coat.cu - FP8 AdamW of COAT with dynamic range expansion on a GPU.
 *
 * One thread block per 128 elements, one thread per element.  A block keeps three numbers, scale,
 * exponent k and centre c: an element x is the e4m3 code of (|x| / c)^k / scale with the sign of x.
 * The plain form keeps a scale alone.  Powers and logarithms are rounded from double, because
 * CUDA's powf is off by up to 4 ulp.
 *
 * Also: adamw8_coat_plain.cu */
#include "kernel_cuda.h"

enum { BLOCK = 128, LANES = 32, WARPS = BLOCK / LANES, NUMBERS = 3, ALL = -1 };

QM_CUDA_KERNEL("adamw8_coat");
QM_CUDA_LAUNCH(qm_cuda_step, BLOCK, BLOCK, 0);

static __device__ float power(float x, float k) { return (float)pow((double)x, (double)k); }
static __device__ float log2_of(float x) { return (float)log2((double)x); }

/* Device code has no text of the quantizer: a block with three numbers expands. */
static __device__ int expands(const struct qm_kernel_slot *s)
{
    return s->n_scales == (s->n + BLOCK - 1) / BLOCK * NUMBERS;
}

/* The nearest number of e4m3, ties to even; larger ones become 448, NaN the code 127. */
static __device__ uint8_t to_e4m3(float y)
{
    float size = fabsf(y);
    int e, sign = signbit(y) ? 0x80 : 0;
    if (y != y)
        return 0x7f;
    if (size >= 448.0f)
        return (uint8_t)(sign | 0x7e);
    frexpf(size, &e); /* size < 2^e */
    e = size < 0.015625f ? -9 : e - 4;
    int code = (int)rintf(ldexpf(size, -e)); /* in units of the last place, 2^e */
    return (uint8_t)(sign | (code + 8 * (e + 9)));
}

/* ---- a block's numbers ---- */

/* Each lane takes maximum and minimum of the lane 16, 8, 4, 2, 1 above it.  No zero is taken as a
 * minimum, so that it may hide the least number, as in the source. */
static __device__ void reduce(float *most, float *least)
{
    for (int d = LANES / 2; d > 0; d /= 2) {
        float high = __shfl_down_sync(ALL, *most, d), low = __shfl_down_sync(ALL, *least, d);
        *most = fmaxf(*most, high);
        *least = low > 0.0f ? fminf(*least, low) : *least;
    }
}

static __device__ void extremes(int is_there, float x, float *most, float *least)
{
    __shared__ float high[WARPS], low[WARPS];
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    *most = is_there ? fabsf(x) : 0.0f;
    *least = is_there ? fabsf(x) : 3.4028234664e38f;
    reduce(most, least);
    if (lane == 0)
        high[warp] = *most, low[warp] = *least;
    __syncthreads();
    *most = lane < WARPS ? high[lane] : 0.0f;
    *least = lane < WARPS ? low[lane] : 1e9f;
    reduce(most, least);
    *most = __shfl_sync(ALL, *most, 0);
    *least = __shfl_sync(ALL, *least, 0);
    __syncthreads(); /* before the next call writes again */
}

/* Scale, exponent and centre. */
static __device__ void measure(int is_there, float x, float *number)
{
    float most, least;
    extremes(is_there, x, &most, &least);
    most = (float)((double)most + 1e-30);
    least = (float)((double)least + 1e-30);
    float c = sqrtf(most) * sqrtf(least);
    float k = floorf(log2_of(100352.0f) / log2_of(most / least) * 16.0f) / 16.0f;
    number[0] = power(most / c, k) / 448.0f;
    number[1] = k;
    number[2] = c;
}

/* (the largest magnitude + 1e-20) / 448, by their bits; a NaN is left out. */
static __device__ float plain_scale(int is_there, float x)
{
    __shared__ unsigned int top;
    if (threadIdx.x == 0)
        top = 0;
    __syncthreads();
    if (is_there && x == x)
        atomicMax(&top, __float_as_uint(x) & 0x7fffffffu);
    __syncthreads();
    float most = __uint_as_float(top);
    __syncthreads(); /* before the next call writes again */
    return (float)((double)most + 1e-20) / 448.0f;
}

/* ---- an element ---- */

static __device__ float decode(const struct qm_kernel_slot *s, int64_t i)
{
    if (!s->bits)
        return s->values[i];
    float unit = s->codebook[s->codes[i]];
    if (!expands(s))
        return unit * s->scales[i / BLOCK];
    const float *number = s->scales + i / BLOCK * NUMBERS;
    float y = unit * number[0], size = power(fabsf(y), 1.0f / number[1]) * number[2];
    return y == y && signbit(y) ? -size : size; /* NaN^0 = 1, and has no sign */
}

/* All threads call it, also those without an element. */
static __device__ void encode(const struct qm_kernel_slot *s, int64_t i, int is_there, float x)
{
    float number[NUMBERS], y = x;
    if (!s->bits) {
        if (is_there)
            s->values[i] = x;
        return;
    }
    int numbers = expands(s) ? NUMBERS : 1;
    if (numbers == 1)
        number[0] = plain_scale(is_there, x);
    else
        measure(is_there, x, number);
    if (numbers > 1)
        y = copysignf(power(fabsf(x) / number[2], number[1]), x);
    if (is_there)
        s->codes[i] = to_e4m3(y / number[0]);
    for (int k = 0; k < numbers && is_there && threadIdx.x == 0; k++)
        s->scales[i / BLOCK * numbers + k] = number[k];
}

/* ---- the step ---- */

/* Quantized as this kernel expects it, or plain float32. */
static __device__ int fits(const struct qm_kernel_slot *s)
{
    return s->bits ? s->bits == 8 && s->block == BLOCK : s->values != 0 || s->n == 0;
}

extern "C" __global__ void __launch_bounds__(BLOCK) qm_cuda_step(struct qm_cuda_args c)
{
    const struct qm_kernel_args *a = &c.a;
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(first) ||
        !fits(second)) {
        qm_cuda_refuse(&c);
        return;
    }
    __shared__ float c1, c2;
    float b1 = (float)a->beta1, b2 = (float)a->beta2, m = 0.0f, v = 0.0f;
    if (threadIdx.x == 0) {
        c1 = 1.0f - power(b1, (float)a->t);
        c2 = sqrtf(1.0f - power(b2, (float)a->t));
    }
    __syncthreads();
    float lr = (float)a->lr, eps = (float)a->eps, decay = (float)a->weight_decay;
    float *p = (float *)a->p;
    const float *g = (const float *)a->g;
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    int is_there = i < a->n;
    if (is_there) {
        float x = a->maximize ? -g[i] : g[i];
        m = b1 * decode(first, i) + (1.0f - b1) * x;
        v = b2 * decode(second, i) + (1.0f - b2) * x * x;
        p[i] = p[i] - lr * (m / ((sqrtf(v) / c2 + eps) * c1) + decay * p[i]);
    }
    encode(first, i, is_there, m);
    encode(second, i, is_there, v);
}
