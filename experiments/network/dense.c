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

/* A tile is 4 rows by two vectors.  Tiles that share columns read them from a copy without gaps, of
 * at most DEPTH rows of b, which stays in the first-level cache; where columns are fewer than two
 * vectors the copy's others are 0.  HEIGHT rows of a are read from the second level. */
enum { ROWS = 4, WIDTH = 2 * LANES, DEPTH = 256, HEIGHT = 128 };

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

/* WIDTH columns of all rows of p: tiles, then single rows. */
static void column_of_tiles(const struct qm_dense_product *p, const double *a, const double *b,
                            double *c)
{
    int64_t i = 0;
    for (; i + ROWS <= p->m; i += ROWS)
        tile_of_4(p, a + i * p->row, b, c + i * p->ldc);
    for (; i < p->m; i++)
        tile_of_1(p, a + i * p->row, b, c + i * p->ldc);
}

/* The same for columns of which n < WIDTH are of c: the tiles are of a copy of c. */
static void narrow_column(const struct qm_dense_product *p, const double *a, const double *b,
                          double *c, int64_t n)
{
    _Alignas(64) double copy[ROWS * WIDTH] = {0};
    struct qm_dense_product tile = *p;
    tile.ldc = WIDTH;
    for (int64_t i = 0; i < p->m; i += ROWS) {
        tile.m = p->m - i < ROWS ? p->m - i : ROWS;
        for (int64_t r = 0; r < tile.m; r++)
            memcpy(copy + r * WIDTH, c + (i + r) * p->ldc, (size_t)n * sizeof *c);
        column_of_tiles(&tile, a + i * p->row, b, copy);
        for (int64_t r = 0; r < tile.m; r++)
            memcpy(c + (i + r) * p->ldc, copy + r * WIDTH, (size_t)n * sizeof *c);
    }
}

/* All columns, of at most DEPTH rows of b and HEIGHT of a. */
static void block(const struct qm_dense_product *p, const double *a, const double *b, double *c)
{
    _Alignas(64) double columns[DEPTH * WIDTH];
    for (int64_t j = 0; j < p->n; j += WIDTH) {
        int64_t n = p->n - j < WIDTH ? p->n - j : WIDTH;
        struct qm_dense_product q = *p;
        q.ldb = WIDTH;
        if (n < WIDTH) {
            memset(columns, 0, (size_t)(p->depth * WIDTH) * sizeof *columns);
            for (int64_t k = 0; k < p->depth; k++)
                memcpy(columns + k * WIDTH, b + k * p->ldb + j, (size_t)n * sizeof *b);
            narrow_column(&q, a, columns, c + j, n);
        } else {
            for (int64_t k = 0; k < p->depth; k++)
                memcpy(columns + k * WIDTH, b + k * p->ldb + j, WIDTH * sizeof *b);
            column_of_tiles(&q, a, columns, c + j);
        }
    }
}

void QM_ISA_NAME(qm_dense)(const struct qm_dense_product *p, const double *a, const double *b,
                           double *c)
{
    struct qm_dense_product q = *p;
    for (int64_t k = 0; k < p->depth; k += DEPTH) {
        q.depth = p->depth - k < DEPTH ? p->depth - k : DEPTH;
        for (int64_t i = 0; i < p->m; i += HEIGHT) {
            q.m = p->m - i < HEIGHT ? p->m - i : HEIGHT;
            block(&q, a + i * p->row + k * p->col, b + k * p->ldb, c + i * p->ldc);
        }
    }
}
