/* blocks_whole.c - compiled once per instruction set (QM_ISA). */
#include "core/rule/blocks_whole.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "core/rule/lpmm.h"

/* ---- sums ------------------------------------------------------------------------------------ */

typedef float floats __attribute__((vector_size(8 * sizeof(float))));
typedef double doubles __attribute__((vector_size(8 * sizeof(double))));
typedef int64_t longs __attribute__((vector_size(8 * sizeof(int64_t))));

static inline void widen(const float *x, doubles *out)
{
#ifdef __AVX512F__
    *out = (doubles)_mm512_cvtps_pd(_mm256_loadu_ps(x));
#else
    floats f;
    memcpy(&f, x, sizeof f);
    *out = __builtin_convertvector(f, doubles);
#endif
}

static inline double total_of(const doubles *x)
{
    double sum = 0.0;
    for (int k = 0; k < 8; k++)
        sum += (*x)[k];
    return sum;
}

/* Adds eight squares, each rounded to a multiple of grid 2^-52; a tie is off by just half a step. */
static inline void add_squares(const float *x, double grid, doubles *total, longs *ties)
{
    doubles zero = {0.0}, g = zero + grid, half = zero + grid * 0x1p-53, v;
    widen(x, &v);
    v = v * v;
    doubles rounded = (v + g) - g, off = v - rounded;
    *ties |= ((longs)off & INT64_MAX) == (longs)half;
    *total += rounded;
}

static inline int has_any(const longs *x)
{
    int64_t any = 0;
    for (int k = 0; k < 8; k++)
        any |= (*x)[k];
    return any != 0;
}

/* Ties go by the last bit of the sum: from an even and from an odd one. */
static double tied_squares(const float *x, int64_t n, double grid, double *odd)
{
    double first = grid + grid * 0x1p-52, from_even = grid, from_odd = first;
    for (int64_t i = 0; i < n; i += 16) {
        longs ties = {0};
        doubles sum = {0.0};
        add_squares(x + i, grid, &sum, &ties);
        add_squares(x + i + 8, grid, &sum, &ties);
        if (!has_any(&ties)) {
            from_even += total_of(&sum);
            from_odd += total_of(&sum);
            continue;
        }
        for (int64_t k = i; k < i + 16; k++) {
            double v = (double)x[k] * (double)x[k];
            from_even += v;
            from_odd += v;
        }
    }
    int fits = from_even < 2.0 * grid && from_odd < 2.0 * grid;
    *odd = fits ? from_odd - first : (double)NAN;
    return fits ? from_even - grid : (double)NAN;
}

/* What is added is exact as long as the total stays below 2 grid, so in any order. */
static double squares(const float *restrict x, int64_t n, double grid, double *odd)
{
    doubles total[2] = {{0.0}};
    longs ties[2] = {{0}};
    for (int64_t i = 0; i < n; i += 16)
        for (int k = 0; k < 2; k++)
            add_squares(x + i + 8 * k, grid, &total[k], &ties[k]);
    ties[0] |= ties[1];
    total[0] += total[1];
    if (has_any(&ties[0]))
        return tied_squares(x, n, grid, odd);
    *odd = total_of(&total[0]);
    return *odd;
}

static inline double term(struct qm_term t, float x) { return (double)qm_term_of(t, x); }

static inline void terms(struct qm_term t, const float *restrict x, int64_t n, float *restrict of)
{
    if (t.is_square)
        for (int64_t i = 0; i < n; i++)
            of[i] = x[i] * x[i] + t.add;
    else
        for (int64_t i = 0; i < n; i++)
            of[i] = x[i];
}

/* s[k] += of[k][0], then of[k][1] and so on, n a multiple of 8: eight rows as one vector. */
static void add_columns(float of[QM_WHOLE_ROWS][128], int64_t n, doubles *s)
{
    for (int64_t j = 0; j < n; j += 8) {
        floats a[8], b[8];
        for (int k = 0; k < 8; k++)
            memcpy(&a[k], of[k] + j, sizeof *a);
        for (int k = 0; k < 4; k++) { /* pairs of rows, then of pairs, then halves */
            b[2 * k] = __builtin_shufflevector(a[2 * k], a[2 * k + 1], 0, 8, 2, 10, 4, 12, 6, 14);
            b[2 * k + 1] =
                __builtin_shufflevector(a[2 * k], a[2 * k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
        }
        for (int k = 0; k < 8; k += 4)
            for (int i = 0; i < 2; i++) {
                floats x = b[k + i], y = b[k + i + 2];
                a[k + i] = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
                a[k + i + 2] = __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
            }
        for (int k = 0; k < 4; k++) {
            b[k] = __builtin_shufflevector(a[k], a[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
            b[k + 4] = __builtin_shufflevector(a[k], a[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
        }
        for (int k = 0; k < 8; k++) {
            doubles wide;
            widen((const float *)&b[k], &wide);
            *s += wide;
        }
    }
}

static void row_sums(struct qm_term t, const float *restrict x, int64_t rows, int64_t cols,
                     int64_t step, double *restrict sum)
{
    enum { WIDE = 128 };
    float of[QM_WHOLE_ROWS][WIDE];
    doubles s = {0.0};
    for (int64_t k = 0; k < rows; k++)
        s[k] = sum[k];
    if (rows == QM_WHOLE_ROWS)
        for (int64_t j = 0; j < cols; j += WIDE) {
            int64_t n = cols - j < WIDE ? cols - j : WIDE;
            for (int k = 0; k < QM_WHOLE_ROWS; k++)
                terms(t, x + k * step + j, n, of[k]);
            add_columns(of, n / 8 * 8, &s);
            for (int64_t i = n / 8 * 8; i < n; i++)
                for (int k = 0; k < QM_WHOLE_ROWS; k++)
                    s[k] += (double)of[k][i];
        }
    else
        for (int64_t k = 0; k < rows; k++)
            for (int64_t j = 0; j < cols; j++)
                s[k] += term(t, x[k * step + j]);
    for (int64_t k = 0; k < rows; k++)
        sum[k] = s[k];
}

/* Four rows at a time: sums are loaded and stored a quarter as often. */
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
static void product(const float *restrict x, int64_t step_a, int64_t step_k,
                    const float *restrict y, int64_t width, int64_t rows, int64_t inner,
                    int64_t cols, float *restrict out)
{
    enum { T = QM_WHOLE_TILE };
    double s[QM_WHOLE_DEEP][T] = {{0.0}};
    if (rows == QM_WHOLE_DEEP && cols == T) {
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
    for (int64_t j = 0; j < n; j++)
        out[j] = qm_outer(row, root[j], x[j]);
}

static void outer_f32(int64_t n, float row, const float *restrict root, const float *x, float *out)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = qm_outer_f32(row, root[j], x[j]);
}

/* 1: the double y is within 64 of its steps of a mid-point between two floats, or rounds to a float
 * that is not normal. */
static inline uint32_t is_doubtful(double y)
{
    uint64_t u;
    memcpy(&u, &y, sizeof u);
    uint32_t low = (uint32_t)u & 0x1fffffffu, near = low - (0x10000000u - 64u) <= 128u;
    return near | (uint32_t)(fabs(y) < 0x1p-125 && y != 0.0);
}

/* Two square roots and a division per element are saved by the product of two roots made before: with
 * five roundings there, four in the definition and one of each product with x, the two differ by
 * less than 16 steps of a double.  Where that could change the float, the chunk is done by definition. */
static void over_root(const struct qm_root *r, int64_t n, const float *x, float *out)
{
    float kept[QM_WHOLE_CHUNK];
    double row = sqrt(r->mean / r->row), most = 1.0 / sqrt(r->floor);
    for (int64_t from = 0; from < n; from += QM_WHOLE_CHUNK) {
        int64_t m = n - from < QM_WHOLE_CHUNK ? n - from : QM_WHOLE_CHUNK;
        const float *restrict at = x + from, *restrict col = r->col + from;
        const double *restrict root = r->root + from;
        float *restrict to = out + from;
        uint32_t doubtful = 0;
        if (x == out)
            at = memcpy(kept, at, sizeof *kept * (size_t)m);
        for (int64_t j = 0; j < m; j++) {
            double by = row * root[j], y = (double)at[j] * (by < most ? by : most);
            to[j] = (float)y;
            doubtful |= is_doubtful(y);
        }
        for (int64_t j = 0; doubtful && j < m; j++)
            to[j] = qm_over_root(r->row, (double)col[j], r->mean, r->floor, at[j]);
    }
}

/* ---- lpmm ------------------------------------------------------------------------------------ */

#ifdef __FMA__
#define HAS(o, by) ((o)->holds && (o)->c == (by))
#else
#define HAS(o, by) ((o)->holds < 0) /* without fused multiply-add the division is faster */
#endif

static void lpmm_apply(const struct qm_rule_step *s, int64_t n, float row,
                       const float *restrict col, const float *restrict m, float *restrict p)
{
    float c[12];
    const struct qm_inverse o = s->over[0];
    memcpy(c, s->c, sizeof c);
    if (HAS(&o, c[5]))
        for (int64_t j = 0; j < n; j++)
            qm_adamw_lpmm_apply(c, &o, p + j, m[j], row * col[j]);
    else
        for (int64_t j = 0; j < n; j++)
            qm_adamw_lpmm_apply(c, NULL, p + j, m[j], row * col[j]);
}

/* flag 1: the gradient's sign is turned. */
static void lpmm_lerp(const struct qm_rule_step *s, int64_t n, const float *restrict g,
                      float *restrict m)
{
    const float c[3] = {0.0f, s->c[1], s->c[2]};
    int turns = s->flag[1];
    for (int64_t i = 0; i < n; i++)
        m[i] = qm_lpmm_first(c, turns, m[i], g[i]);
}

const struct qm_whole_blocks QM_ISA_NAME(qm_whole_blocks) = {.squares = squares,
                                                             .row_sums = row_sums,
                                                             .col_sums = col_sums,
                                                             .product = product,
                                                             .moment = moment,
                                                             .taken = taken,
                                                             .divide = divide,
                                                             .multiply = multiply,
                                                             .residual = residual,
                                                             .decay_step = decay_step,
                                                             .average = average,
                                                             .decay = decay,
                                                             .add_scaled = add_scaled,
                                                             .outer = outer,
                                                             .outer_f32 = outer_f32,
                                                             .over_root = over_root,
                                                             .lpmm_apply = lpmm_apply,
                                                             .lpmm_lerp = lpmm_lerp};
