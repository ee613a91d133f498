/* tensor_rule_loops.c - The loops of tensor rules; compiled once per instruction set (QM_ISA). */
#include "core/rule/tensor_rule_loops.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "core/rule/lpmm.h"
#include "core/rule/reciprocal.h"

/* ---- sums ------------------------------------------------------------------------------------ */

typedef float floats __attribute__((vector_size(8 * sizeof(float))));
typedef double doubles __attribute__((vector_size(8 * sizeof(double))));
typedef uint64_t words __attribute__((vector_size(8 * sizeof(uint64_t))));

static inline void widen_eight(const floats *x, doubles *out)
{
#ifdef __AVX512F__
    *out = (doubles)_mm512_cvtps_pd((__m256)*x);
#else
    *out = __builtin_convertvector(*x, doubles);
#endif
}

static inline void widen(const float *x, doubles *out)
{
    floats f;
    memcpy(&f, x, sizeof f);
    widen_eight(&f, out);
}

/* Eight squares v, each as a count of steps of grid 2^-52, rounded to nearest, ties to even; off:
 * how far each v lies above its count.  While v + grid stays below 2 grid, the last 52 bits of v +
 * grid are that count. */
static inline void count_squares(const float *x, double grid, words *count, doubles *off)
{
    doubles zero = {0.0}, g = zero + grid, v;
    widen(x, &v);
    v = v * v;
    doubles at = v + g;
    *off = v - (at - g);
    *count = (words)at - (words)g;
}

/* The signs of eight numbers as bits. */
static inline uint64_t signs_of(const words *x)
{
#ifdef __AVX512DQ__
    return _mm512_movepi64_mask((__m512i)*x);
#else
    uint64_t bits = 0;
    for (int k = 0; k < 8; k++)
        bits |= (*x)[k] >> 63 << k;
    return bits;
#endif
}

/* Which of eight pairs are equal, as bits. */
static inline uint64_t equals_of(const words *x, const words *y)
{
#ifdef __AVX512F__
    return _mm512_cmpeq_epi64_mask((__m512i)*x, (__m512i)*y);
#else
    words equal = (words)(*x == *y);
    return signs_of(&equal);
#endif
}

static inline uint64_t last_bits_of(const words *x)
{
    words high = *x << 63;
    return signs_of(&high);
}

static inline int parity(uint64_t bits) { return __builtin_popcountll(bits) & 1; }

/* What ties change in the counts added to a sum that begins even (index 0) or odd (1).  A tie makes
 * the sum even: where the sum before it is odd, the tie takes its odd neighbour instead of the even
 * one.  gain: the change so far. last: whether the counts before the last tie are odd; before the
 * first tie, minus the parity of the sum. */
struct ties {
    int64_t gain[2];
    int last[2];
};

/* Takes in the ties among 64 counts.  before: whether the sum of the counts before them is odd. */
static void take_ties(const float *x, double grid, uint64_t tie, int before, struct ties *t)
{
    uint64_t odd = 0, above = 0; /* the count; the count lies above the square */
    for (int k = 0; k < 8; k++) {
        doubles off;
        words count, sign;
        count_squares(x + 8 * k, grid, &count, &off);
        sign = (words)off;
        odd |= last_bits_of(&count) << 8 * k;
        above |= signs_of(&sign) << 8 * k;
    }
    for (; tie; tie &= tie - 1) {
        uint64_t at = tie & -tie;
        int here = before ^ parity(odd & (at - 1));
        for (int k = 0; k < 2; k++) {
            t->gain[k] += here == t->last[k] ? 0 : above & at ? -1 : 1;
            t->last[k] = here;
        }
    }
}

/* Adds the counts of x to *total, and their bits to *all. */
static inline void count_ties(const float *x, int64_t n, double grid, words *total, words *all,
                              struct ties *t)
{
    doubles zero = {0.0};
    words half = (words)(zero + grid * 0x1p-53);
    for (int64_t i = 0; i < n; i += 64) {
        uint64_t tie = 0;
        words before = *total;
        for (int k = 0; k < 8; k++) {
            doubles off;
            words count, size;
            count_squares(x + i + 8 * k, grid, &count, &off);
            size = (words)off & INT64_MAX;
            *total += count;
            *all |= count;
            tie |= equals_of(&size, &half) << 8 * k;
        }
        if (tie)
            take_ties(x + i, grid, tie, parity(last_bits_of(&before)), t);
    }
}

/* The square of an odd multiple of 2^k is an odd multiple of 2^2k.  So there are ties only if half
 * a step is an even power of two: for every second grid. */
static double squares(const float *restrict x, int64_t n, double grid, double *odd)
{
    struct ties t = {{0, 0}, {0, 1}};
    words total = {0}, all = {0};
    uint64_t bits, sum = 0, any = 0;
    memcpy(&bits, &grid, sizeof bits);
    if (bits >> 52 & 1)
        for (int64_t i = 0; i < n; i += 8) {
            doubles off;
            words count;
            count_squares(x + i, grid, &count, &off);
            total += count;
            all |= count;
        }
    else
        count_ties(x, n, grid, &total, &all, &t);
    for (int k = 0; k < 8; k++) {
        sum += total[k];
        any |= all[k];
    }
    int fits = any >> 52 == 0;
    *odd = fits ? (double)((int64_t)sum + t.gain[1]) * (grid * 0x1p-52) : (double)NAN;
    return fits ? (double)((int64_t)sum + t.gain[0]) * (grid * 0x1p-52) : (double)NAN;
}

static inline double term(struct qm_term t, float x) { return (double)qm_term_of(t, x); }

/* s[k] += the eight numbers of row k from left to right, for eight rows that begin `step` apart:
 * the 8 x 8 numbers are transposed, so that each addition is one of vectors. */
static inline void add_columns(struct qm_term t, const float *x, int64_t step, doubles *s)
{
    floats a[8], b[8];
    for (int k = 0; k < 8; k++) {
        memcpy(&a[k], x + k * step, sizeof *a);
        a[k] = t.is_square ? a[k] * a[k] + t.add : a[k];
    }
    for (int k = 0; k < 4; k++) { /* transpose: pairs of rows, pairs of pairs, halves */
        b[2 * k] = __builtin_shufflevector(a[2 * k], a[2 * k + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[2 * k + 1] = __builtin_shufflevector(a[2 * k], a[2 * k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int k = 0; k < 8; k += 4)
        for (int i = 0; i < 2; i++) {
            floats f = b[k + i], g = b[k + i + 2];
            a[k + i] = __builtin_shufflevector(f, g, 0, 1, 8, 9, 4, 5, 12, 13);
            a[k + i + 2] = __builtin_shufflevector(f, g, 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int k = 0; k < 4; k++) {
        b[k] = __builtin_shufflevector(a[k], a[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        b[k + 4] = __builtin_shufflevector(a[k], a[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int k = 0; k < 8; k++) {
        doubles wide;
        widen_eight(&b[k], &wide);
        *s += wide;
    }
}

/* One or two groups of eight rows; two are added in turn, since each addition waits for the one
 * before in its group. */
static inline void add_groups(struct qm_term t, const float *x, int64_t groups, int64_t cols,
                              int64_t step, doubles *s)
{
    for (int64_t j = 0; groups == 2 && j < cols; j += 8) {
        add_columns(t, x + j, step, &s[0]);
        add_columns(t, x + 8 * step + j, step, &s[1]);
    }
    for (int64_t j = 0; groups == 1 && j < cols; j += 8)
        add_columns(t, x + j, step, &s[0]);
}

static void row_sums(struct qm_term t, const float *restrict x, int64_t rows, int64_t cols,
                     int64_t step, double *restrict sum)
{
    doubles s[2] = {{0.0}};
    int64_t groups = rows / 8, whole = cols / 8 * 8;
    for (int64_t k = 0; k < 8 * groups; k++)
        s[k / 8][k % 8] = sum[k];
    if (t.is_square)
        add_groups((struct qm_term){1, t.add, 0}, x, groups, whole, step, s);
    else
        add_groups((struct qm_term){0, 0.0f, 0}, x, groups, whole, step, s);
    for (int64_t k = 0; k < rows; k++) {
        double here = k < 8 * groups ? s[k / 8][k % 8] : sum[k];
        for (int64_t j = k < 8 * groups ? whole : 0; j < cols; j++)
            here += term(t, x[k * step + j]);
        sum[k] = here;
    }
}

/* Four rows at a time, so that sums are loaded and stored a quarter as often. */
static void col_sums(struct qm_term t, const float *restrict x, int64_t rows, int64_t cols,
                     int64_t step, double *restrict sum)
{
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const float *a = x + i * step, *b = a + step, *c = b + step, *d = c + step;
        if (t.is_square)
            for (int64_t j = 0; j < cols; j++)
                sum[j] =
                    (((sum[j] + (double)(a[j] * a[j] + t.add)) + (double)(b[j] * b[j] + t.add)) +
                     (double)(c[j] * c[j] + t.add)) +
                    (double)(d[j] * d[j] + t.add);
        else
            for (int64_t j = 0; j < cols; j++)
                sum[j] = (((sum[j] + (double)a[j]) + (double)b[j]) + (double)c[j]) + (double)d[j];
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            sum[j] += term(t, x[i * step + j]);
}

/* Products of two float32 are exact in double. */
static void product(const struct qm_product_tile *t)
{
    const float *restrict x = t->x, *restrict y = t->y;
    float *restrict out = t->out;
    const int64_t step_a = t->step_a, step_k = t->step_k, width = t->width, inner = t->inner;
    const int64_t rows = t->rows, cols = t->cols;
    enum { T = QM_TENSOR_TILE };
    double s[QM_TENSOR_DEEP][T] = {{0.0}};
    if (rows == QM_TENSOR_DEEP && cols == T) {
        double s0[T] = {0.0}, s1[T] = {0.0}, s2[T] = {0.0}, s3[T] = {0.0};
        for (int64_t k = 0; k < inner; k++) {
            const float *at = x + k * step_k, *v = y + k * width;
            double f0 = (double)at[0], f1 = (double)at[step_a], f2 = (double)at[2 * step_a],
                   f3 = (double)at[3 * step_a];
            for (int c = 0; c < T; c++) {
                s0[c] += f0 * (double)v[c];
                s1[c] += f1 * (double)v[c];
                s2[c] += f2 * (double)v[c];
                s3[c] += f3 * (double)v[c];
            }
        }
        for (int c = 0; c < T; c++)
            s[0][c] = s0[c], s[1][c] = s1[c], s[2][c] = s2[c], s[3][c] = s3[c];
    } else {
        for (int64_t a = 0; a < rows; a++)
            for (int64_t k = 0; k < inner; k++)
                for (int64_t c = 0; c < cols; c++)
                    s[a][c] += (double)x[a * step_a + k * step_k] * (double)y[k * width + c];
    }
    for (int64_t a = 0; a < rows; a++)
        for (int64_t c = 0; c < cols; c++)
            out[a * width + c] = (float)s[a][c];
}

/* ---- elements -------------------------------------------------------------------------------- */

static void moment(const struct qm_moment *how, int64_t n, const float *restrict x,
                   float *restrict old)
{
    const struct qm_moment m = *how;
    if (m.is_lerp)
        for (int64_t i = 0; i < n; i++)
            old[i] = qm_moment_lerp(m, old[i], x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            old[i] = qm_moment_mix(m, old[i], x[i]);
}

static void taken(const struct qm_moment *how, int64_t n, const float *x, float *out)
{
    const struct qm_moment m = *how;
    for (int64_t i = 0; i < n; i++)
        out[i] = qm_taken(m, x[i]);
}

static void divide(int64_t n, float by, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] / by;
}

static void multiply(int64_t n, float by, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] * by;
}

static void residual(int64_t n, float add, const float *restrict m, float *restrict u)
{
    for (int64_t i = 0; i < n; i++)
        u[i] = qm_residual(u[i], m[i], add);
}

static void came(const struct qm_moment *how, int round, int64_t n, float by, float add,
                 float *restrict old, float *restrict u)
{
    const struct qm_moment m = *how;
    for (int64_t i = 0; round == 0 && i < n; i++) {
        float v = u[i] / by, next = qm_moment_mix(m, old[i], v);
        old[i] = next;
        u[i] = qm_residual(v, next, add);
    }
    for (int64_t i = 0; round == 1 && i < n; i++)
        old[i] = qm_moment_mix(m, old[i], u[i] / by);
    for (int64_t i = 0; round == 2 && i < n; i++)
        u[i] = qm_residual(u[i] / by, old[i], add);
}

static void decay_step(int64_t n, float keep, float by, const float *restrict u, float *restrict p)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = qm_decay_step(p[i], keep, by, u[i]);
}

static void average(int64_t n, float keep, float weight, const float *restrict x,
                    float *restrict old)
{
    for (int64_t i = 0; i < n; i++)
        old[i] = qm_averaged(old[i], x[i], keep, weight);
}

static void decay(int64_t n, float by, float *p)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = fmaf(p[i], by, p[i]);
}

static void add_scaled(int64_t n, float by, const float *restrict u, float *restrict p)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = fmaf(u[i], by, p[i]);
}

static void outer(int64_t n, double row, const double *restrict root, const float *x, float *out)
{
    int64_t j = 0;
#ifdef __AVX512F__
    const __m512d r = _mm512_set1_pd(row), least = _mm512_set1_pd(0x1p-126);
    const __m512d top = _mm512_set1_pd(0x1.fffffep127);
    for (; j + 8 <= n; j += 8) {
        __m512d c = _mm512_loadu_pd(root + j), y = _mm512_cvtps_pd(_mm256_loadu_ps(x + j));
        __m512d size = _mm512_abs_pd(_mm512_mul_pd(y, r));
        unsigned usual = _mm512_cmp_pd_mask(size, least, _CMP_GE_OQ);
        usual &= _mm512_cmp_pd_mask(size, top, _CMP_LT_OQ);
        if (usual == 0xff)
            _mm256_storeu_ps(out + j, _mm512_cvtpd_ps(_mm512_mul_pd(y, _mm512_mul_pd(r, c))));
        for (int k = 0; usual != 0xff && k < 8; k++)
            out[j + k] = qm_outer(row, root[j + k], x[j + k]);
    }
#endif
    for (; j < n; j++)
        out[j] = qm_outer(row, root[j], x[j]);
}

static void outer_f32(int64_t n, float row, const float *restrict root, const float *x, float *out)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = qm_outer_f32(row, root[j], x[j]);
}

/* 1: the double y lies within 64 of its steps of a mid-point between two floats, or rounds to a
 * float that is not normal. */
static inline uint32_t is_doubtful(double y)
{
    uint64_t u;
    memcpy(&u, &y, sizeof u);
    uint32_t low = (uint32_t)u & 0x1fffffffu, near = low - (0x10000000u - 64u) <= 128u;
    return near | (uint32_t)(fabs(y) < 0x1p-125 && y != 0.0);
}

#ifdef __AVX512F__
/* The same for eight numbers: *near and *size become the smallest values so far of what is_doubtful
 * compares. Doubling drops the sign. */
static inline void least_doubts(__m512d y, __m512i *near, __m512i *size)
{
    const __m512i u = _mm512_castpd_si512(y);
    __m512i low = _mm512_and_si512(u, _mm512_set1_epi64(0x1fffffff));
    *near = _mm512_min_epu64(*near, _mm512_sub_epi64(low, _mm512_set1_epi64(0x10000000 - 64)));
    *size = _mm512_min_epu64(*size, _mm512_sub_epi64(_mm512_add_epi64(u, u), _mm512_set1_epi64(1)));
}
#endif

/* The product of two roots made before saves two square roots and a division per element.  This way
 * has five roundings, the definition four, and each has one more, of the product with x: the two
 * differ by less than 16 steps of a double.  Where that could change the float, the chunk is
 * computed by the definition. */
static void over_root(const struct qm_root *r, int64_t n, const float *x, float *out)
{
    float kept[QM_TENSOR_CHUNK];
    double row = sqrt(r->mean / r->row), most = 1.0 / sqrt(r->floor);
    for (int64_t from = 0; from < n; from += QM_TENSOR_CHUNK) {
        int64_t m = n - from < QM_TENSOR_CHUNK ? n - from : QM_TENSOR_CHUNK;
        const float *restrict at = x + from, *restrict col = r->col + from;
        const double *restrict root = r->root + from;
        float *restrict to = out + from;
        uint32_t doubtful = 0;
        if (x == out)
            at = memcpy(kept, at, sizeof *kept * (size_t)m);
        int64_t j = 0;
#ifdef __AVX512F__
        __m512i near = _mm512_set1_epi64(-1), size = near;
        for (; j + 8 <= m; j += 8) {
            __m512d by = _mm512_mul_pd(_mm512_set1_pd(row), _mm512_loadu_pd(root + j));
            __m512d v = _mm512_cvtps_pd(_mm256_loadu_ps(at + j));
            __m512d y = _mm512_mul_pd(v, _mm512_min_pd(by, _mm512_set1_pd(most)));
            _mm256_storeu_ps(to + j, _mm512_cvtpd_ps(y));
            least_doubts(y, &near, &size);
        }
        doubtful = _mm512_reduce_min_epu64(near) <= 128 ||
                   _mm512_reduce_min_epu64(size) < 2 * 0x3820000000000000 - 1;
#endif
        for (; j < m; j++) {
            double by = row * root[j], y = (double)at[j] * (by < most ? by : most);
            to[j] = (float)y;
            doubtful |= is_doubtful(y);
        }
        for (j = 0; doubtful && j < m; j++)
            to[j] = qm_over_root(r->row, (double)col[j], r->mean, r->floor, at[j]);
    }
}

/* ---- lpmm ------------------------------------------------------------------------------------ */

static void lpmm_apply(const struct qm_rule_step *s, int64_t n, float row,
                       const float *restrict col, const float *restrict m, float *restrict p)
{
    float c[QM_STEP_SCALARS];
    const struct qm_inverse o = s->reciprocal[0];
    memcpy(c, s->c, sizeof c);
    if (qm_rule_multiplies(s))
        for (int64_t j = 0; j < n; j++)
            qm_adamw_lpmm_apply(c, &o, p + j, m[j], row * col[j]);
    else
        for (int64_t j = 0; j < n; j++)
            qm_adamw_lpmm_apply(c, NULL, p + j, m[j], row * col[j]);
}

static void lpmm_lerp(const struct qm_rule_step *s, int64_t n, const float *restrict g,
                      float *restrict m)
{
    float c[QM_STEP_SCALARS];
    int turns = s->flag[QM_FLAG_MAXIMIZE];
    memcpy(c, s->c, sizeof c);
    for (int64_t i = 0; i < n; i++)
        m[i] = qm_lpmm_first(c, turns, m[i], g[i]);
}

const struct qm_tensor_rule_loops QM_ISA_NAME(qm_tensor_rule_loops) = {.squares = squares,
                                                                       .row_sums = row_sums,
                                                                       .col_sums = col_sums,
                                                                       .product = product,
                                                                       .moment = moment,
                                                                       .taken = taken,
                                                                       .divide = divide,
                                                                       .multiply = multiply,
                                                                       .residual = residual,
                                                                       .came = came,
                                                                       .decay_step = decay_step,
                                                                       .average = average,
                                                                       .decay = decay,
                                                                       .add_scaled = add_scaled,
                                                                       .outer = outer,
                                                                       .outer_f32 = outer_f32,
                                                                       .over_root = over_root,
                                                                       .lpmm_apply = lpmm_apply,
                                                                       .lpmm_lerp = lpmm_lerp};
