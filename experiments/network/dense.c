/* dense.c - The matrix product of dense.h; compiled once per instruction set (QM_ISA). */
#include "experiments/network/dense.h"

#include <string.h>

/* Tiles of c stay in registers: 4 rows by two vectors of 8 (AVX-512), 4 (AVX2) or 2 doubles.  The
 * width decides which sums run in parallel; each sum keeps its order. */
#if defined __AVX512F__
enum { LANES = 8 };
#elif defined __AVX2__
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));

enum { ROWS = 4, WIDTH = 2 * LANES };

static inline lanes load(const double *x)
{
    lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void store(double *x, lanes v) { memcpy(x, &v, sizeof v); }

/* 4 rows by two vectors.  The accumulators have names, because some compilers keep arrays of
 * vectors in memory. */
static void tile_of_4(const struct qm_dense_product *p, const double *restrict a,
                      const double *restrict b, double *restrict c)
{
    double *c1 = c + p->ldc, *c2 = c1 + p->ldc, *c3 = c2 + p->ldc;
    lanes s00 = load(c), s01 = load(c + LANES), s10 = load(c1), s11 = load(c1 + LANES);
    lanes s20 = load(c2), s21 = load(c2 + LANES), s30 = load(c3), s31 = load(c3 + LANES);
    int64_t row = p->row;
    for (int64_t k = 0; k < p->depth; k++, a += p->col, b += p->ldb) {
        lanes b0 = load(b), b1 = load(b + LANES);
        s00 += a[0] * b0, s01 += a[0] * b1;
        s10 += a[row] * b0, s11 += a[row] * b1;
        s20 += a[2 * row] * b0, s21 += a[2 * row] * b1;
        s30 += a[3 * row] * b0, s31 += a[3 * row] * b1;
    }
    store(c, s00), store(c + LANES, s01), store(c1, s10), store(c1 + LANES, s11);
    store(c2, s20), store(c2 + LANES, s21), store(c3, s30), store(c3 + LANES, s31);
}

/* One row by two vectors. */
static void tile_of_1(const struct qm_dense_product *p, const double *restrict a,
                      const double *restrict b, double *restrict c)
{
    lanes s0 = load(c), s1 = load(c + LANES);
    for (int64_t k = 0; k < p->depth; k++, a += p->col, b += p->ldb) {
        s0 += a[0] * load(b);
        s1 += a[0] * load(b + LANES);
    }
    store(c, s0), store(c + LANES, s1);
}

/* 4 rows by one vector. */
static void tile_of_half(const struct qm_dense_product *p, const double *restrict a,
                         const double *restrict b, double *restrict c)
{
    double *c1 = c + p->ldc, *c2 = c1 + p->ldc, *c3 = c2 + p->ldc;
    lanes s0 = load(c), s1 = load(c1), s2 = load(c2), s3 = load(c3);
    int64_t row = p->row;
    for (int64_t k = 0; k < p->depth; k++, a += p->col, b += p->ldb) {
        lanes v = load(b);
        s0 += a[0] * v, s1 += a[row] * v, s2 += a[2 * row] * v, s3 += a[3 * row] * v;
    }
    store(c, s0), store(c1, s1), store(c2, s2), store(c3, s3);
}

/* One row by n < WIDTH columns. */
static void rest_of_row(const struct qm_dense_product *p, const double *restrict a,
                        const double *restrict b, double *restrict c, int64_t n)
{
    double sum[WIDTH];
    memcpy(sum, c, (size_t)n * sizeof *c);
    for (int64_t k = 0; k < p->depth; k++, a += p->col, b += p->ldb)
        for (int64_t j = 0; j < n; j++)
            sum[j] += a[0] * b[j];
    memcpy(c, sum, (size_t)n * sizeof *c);
}

static void dense(const struct qm_dense_product *p, const double *a, const double *b, double *c)
{
    int64_t m = p->m, n = p->n, row = p->row, ldc = p->ldc, whole = n - n % WIDTH;
    for (int64_t j = 0; j < whole; j += WIDTH) {
        int64_t i = 0;
        for (; i + ROWS <= m; i += ROWS)
            tile_of_4(p, a + i * row, b + j, c + i * ldc + j);
        for (; i < m; i++)
            tile_of_1(p, a + i * row, b + j, c + i * ldc + j);
    }
    int64_t i = 0, half = whole + (n - whole >= LANES ? LANES : 0);
    for (; half > whole && i + ROWS <= m; i += ROWS) {
        tile_of_half(p, a + i * row, b + whole, c + i * ldc + whole);
        for (int64_t r = i; half < n && r < i + ROWS; r++)
            rest_of_row(p, a + r * row, b + half, c + r * ldc + half, n - half);
    }
    for (; whole < n && i < m; i++)
        rest_of_row(p, a + i * row, b + whole, c + i * ldc + whole, n - whole);
}

qm_dense_fn *const QM_ISA_NAME(qm_dense) = dense;
