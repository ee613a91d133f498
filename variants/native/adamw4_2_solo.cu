/* adamw4_2_solo.cu - 4/2-bit AdamW of SOLO on a GPU.
 *
 * The moments share their blocks: `block` of a slot is the largest divisor of the number of
 * elements up to 128.  A pass of a thread block takes as many of them as it has threads for, one
 * element each.  Four passes fill whole bytes of either moment, of whatever size the blocks are, so
 * that codes are written after every fourth.  The second moment keeps two numbers per block, its
 * scale and the base alpha of its powers; code 0 is the maximum.  Powers and logarithms are rounded
 * from double, because CUDA's powf and log2f are off by up to 4 ulp. */
#include "kernel_cuda.h"

enum { BLOCK = 128, PASSES = 4, LAST = 3 }; /* LAST: last code of the second moment */

QM_CUDA_KERNEL("adamw4_2_solo");
QM_CUDA_LAUNCH(qm_cuda_step, BLOCK, BLOCK, 0);

static __device__ float power(float x, float k) { return (float)pow((double)x, (double)k); }
static __device__ float log2_of(float x) { return (float)log2((double)x); }

/* ---- codes ---- */

/* Codes of 4 and 2 bits, the first in the highest bits of a byte. */
static __device__ int get(const struct qm_kernel_slot *s, int64_t i)
{
    int per = 8 / s->bits, shift = s->bits * (per - 1 - (int)(i % per));
    return s->codes[i / per] >> shift & ((1 << s->bits) - 1);
}

/* Writes n codes from element `from` on, which begins a byte; bits after the last code stay. */
static __device__ void put(const struct qm_kernel_slot *s, int64_t from, int n,
                           const uint8_t *codes)
{
    int per = 8 / s->bits;
    for (int k = threadIdx.x * per; k < n; k += BLOCK * per) {
        int byte = n - k < per ? s->codes[(from + k) / per] : 0;
        for (int j = 0; j < per && k + j < n; j++) {
            int shift = s->bits * (per - 1 - j);
            byte = (byte & ~(((1 << s->bits) - 1) << shift)) | codes[k + j] << shift;
        }
        s->codes[(from + k) / per] = (uint8_t)byte;
    }
}

/* ---- a block's numbers ---- */

/* A thread's element: is_there: it has one; begins: thread of the first element of its block, of n
 * elements. */
struct place {
    int is_there, begins, n;
};

/* The largest |x| of the block, at least 1e-12; NaN where one is, by their bits. */
static __device__ float scale_of(const struct place *at, float x)
{
    __shared__ unsigned int top[BLOCK];
    top[threadIdx.x] = __float_as_uint(1e-12f);
    __syncthreads();
    if (at->is_there)
        atomicMax(&top[at->begins], __float_as_uint(x) & 0x7fffffffu);
    __syncthreads();
    float most = __uint_as_float(top[at->begins]);
    __syncthreads(); /* before the next call writes again */
    return most;
}

/* torch.quantile at 0.1 of the block; not defined where one element is NaN. */
static __device__ float quantile_of(const struct place *at, float x)
{
    __shared__ float all[BLOCK], below[BLOCK], above[BLOCK];
    float rank = 0.1f * (float)(at->n - 1), w = rank - floorf(rank);
    int me = (int)threadIdx.x, smaller = 0;
    all[me] = x;
    below[me] = above[me] = 0.0f;
    __syncthreads();
    for (int k = at->begins; k < at->begins + at->n && at->is_there; k++)
        smaller += all[k] < x || (all[k] == x && k < me);
    if (at->is_there && x == x && smaller == (int)floorf(rank))
        below[at->begins] = x;
    if (at->is_there && x == x && smaller == (int)ceilf(rank))
        above[at->begins] = x;
    __syncthreads();
    float a = below[at->begins], c = above[at->begins];
    __syncthreads(); /* before the next call writes again */
    return w < 0.5f ? fmaf(w, c - a, a) : fmaf(w - 1.0f, c - a, c);
}

/* ---- elements ---- */

/* The nearest code; ties go up, NaN to code 0. */
static __device__ int nearest(const float *value, float y)
{
    int k = 0;
    while (k < 15 && y - value[k] >= (value[k + 1] - value[k]) * 0.5f)
        k++;
    return k;
}

/* The power of y = alpha^k, rounded at random to either whole number around it. */
static __device__ int power_of(float y, float alpha, uint32_t draw)
{
    float u = (float)draw * 0x1p-32f + 0x1p-33f;
    float k = rintf(log2_of(y) / log2_of(alpha) + (u - 0.5f));
    return k > 0.0f ? k > (float)LAST ? LAST : (int)k : 0; /* NaN: 0 */
}

static __device__ float decode_first(const struct qm_kernel_slot *s, int64_t i)
{
    return s->bits ? s->codebook[get(s, i)] * s->scales[i / s->block] : s->values[i];
}

static __device__ float decode_second(const struct qm_kernel_slot *s, int64_t i)
{
    if (!s->bits)
        return s->values[i];
    const float *number = s->scales + i / s->block * 2;
    return power(number[1], (float)get(s, i)) * number[0];
}

/* All threads call these two, also those without an element.  The code of an element goes to
 * *code, a plain value to its place i. */
static __device__ void encode_first(const struct qm_kernel_slot *s, int64_t i,
                                    const struct place *at, float x, uint8_t *code)
{
    float top = scale_of(at, x);
    if (at->is_there && !s->bits)
        s->values[i] = x;
    if (at->is_there && s->bits) {
        *code = (uint8_t)nearest(s->codebook, x / top);
        if (at->begins == (int)threadIdx.x)
            s->scales[i / s->block] = top;
    }
}

static __device__ void encode_second(const struct qm_kernel_slot *s, int64_t i,
                                     const struct place *at, float x, uint8_t *code)
{
    float top = scale_of(at, x), low = quantile_of(at, x);
    float alpha = top == top ? power(low / top, 1.0f / (float)LAST) : top;
    if (at->is_there && !s->bits)
        s->values[i] = x;
    if (at->is_there && s->bits) {
        *code = (uint8_t)power_of(x / top, alpha, s->draws[i]);
        if (at->begins == (int)threadIdx.x) {
            s->scales[i / s->block * 2] = top;
            s->scales[i / s->block * 2 + 1] = alpha;
        }
    }
}

/* ---- the step ---- */

/* torch.lerp: a + w (b - a) for w < 1/2, else b - (1 - w) (b - a). */
static __device__ float lerp(float a, float b, float w)
{
    return w < 0.5f ? fmaf(w, b - a, a) : fmaf(w - 1.0f, b - a, b);
}

/* Quantized as this kernel expects it, or plain float32. */
static __device__ int fits(const struct qm_kernel_slot *s, int bits)
{
    return s->bits ? s->bits == bits && s->block >= 1 && s->block <= BLOCK
                   : s->values != 0 || s->n == 0;
}

/* float32 scalars of the step. */
struct scalars {
    float keep, w1, w2, step, root_bc2, eps;
};

static __device__ struct scalars scalars_of(const struct qm_kernel_args *a)
{
    struct scalars s;
    s.keep = (float)(1.0 - a->lr * a->weight_decay);
    s.w1 = (float)(1.0 - a->beta1);
    s.w2 = (float)(1.0 - a->beta2);
    s.step = (float)(-a->lr / (1.0 - pow(a->beta1, (double)a->t)));
    s.root_bc2 = (float)sqrt(1.0 - pow(a->beta2, (double)a->t));
    s.eps = (float)a->eps;
    return s;
}

/* One pass: steps the n elements from `from` on, whole blocks but for the last. */
static __device__ void step_blocks(const struct qm_kernel_args *a, const struct scalars *s,
                                   int64_t from, int n, int block, uint8_t *first_code,
                                   uint8_t *second_code)
{
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    int me = (int)threadIdx.x;
    struct place at = {me < n, me / block * block, 0};
    int64_t i = from + me;
    float *p = (float *)a->p, m = 0.0f, v = 0.0f;
    const float *g = (const float *)a->g;
    at.n = n - at.begins < block ? n - at.begins : block;
    if (at.is_there) {
        float x = a->maximize ? -g[i] : g[i], w = p[i] * s->keep;
        m = lerp(decode_first(first, i), x, s->w1);
        v = lerp(decode_second(second, i), x * x, s->w2);
        p[i] = w + s->step * m / (sqrtf(v) / s->root_bc2 + s->eps);
    }
    __syncthreads(); /* old scales are read */
    encode_first(first, i, &at, m, first_code + me);
    encode_second(second, i, &at, v, second_code + me);
}

extern "C" __global__ void __launch_bounds__(BLOCK) qm_cuda_step(struct qm_cuda_args c)
{
    const struct qm_kernel_args *a = &c.a;
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(first, 4) ||
        !fits(second, 2) || (first->bits && second->bits && first->block != second->block)) {
        qm_cuda_refuse(&c);
        return;
    }
    __shared__ uint8_t first_code[PASSES * BLOCK], second_code[PASSES * BLOCK];
    __shared__ struct scalars s;
    if (threadIdx.x == 0)
        s = scalars_of(a);
    __syncthreads();
    int block = first->bits ? (int)first->block : second->bits ? (int)second->block : BLOCK;
    int pass = BLOCK / block * block, group = PASSES * pass;
    for (int64_t from = (int64_t)blockIdx.x * group; from < a->n;
         from += (int64_t)gridDim.x * group) {
        int n = a->n - from < group ? (int)(a->n - from) : group;
        for (int k = 0; k < n; k += pass)
            step_blocks(a, &s, from + k, n - k < pass ? n - k : pass, block, first_code + k,
                        second_code + k);
        __syncthreads(); /* codes are there, and old ones are read */
        if (first->bits)
            put(first, from, n, first_code);
        if (second->bits)
            put(second, from, n, second_code);
        __syncthreads(); /* before the next group writes them again */
    }
}
