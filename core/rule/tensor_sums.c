/* tensor_sums.c - Row means, column means and sums of squares of whole tensors, in one fixed order.
 *
 * Row and column sums are chains of additions in double in the order of the indices: what is
 * computed at the same time belongs to different chains, so neither the number of threads nor the
 * instruction set changes a bit. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/threads.h"
#include "core/rule/tensor_rule.h"

/* ---- means of rows, means of columns --------------------------------------------------------- */

void qm_row_means(const struct qm_matrices *m, struct qm_term t, const float *x, float *row)
{
    const struct qm_tensor_rule_loops *b = qm_tensor_rule_loops();
    int64_t rows = m->batch * m->rows;
    if (qm_tensor_rule_device()) {
        qm_sweep_run(
            QM_SWEEP_row_means,
            &(struct qm_sweep){
                .n = rows,
                .cols = m->cols,
                .flag = {[QM_MEANS_IS_SQUARE] = t.is_square, [QM_MEANS_IS_SINGLE] = t.is_single},
                .c = {[QM_MEANS_ADD] = t.add},
                .x = {row, QM_AT(x)}});
        return;
    }
    QM_PARALLEL(rows * m->cols >= QM_THREADS_FROM)
    for (int64_t i = 0; i < rows; i += QM_TENSOR_ROWS) {
        double sum[QM_TENSOR_ROWS] = {0.0};
        int64_t n = rows - i < QM_TENSOR_ROWS ? rows - i : QM_TENSOR_ROWS;
        b->row_sums(t, x + i * m->cols, n, m->cols, m->cols, sum);
        for (int64_t k = 0; k < n; k++)
            row[i + k] = qm_mean_of_sum(t, sum[k], m->cols);
    }
}

/* Columns in pieces of WIDTH, whose sums stay in the first-level cache. */
void qm_col_means(const struct qm_matrices *m, struct qm_term t, const float *x, float *col)
{
    enum { WIDTH = 512 };
    const struct qm_tensor_rule_loops *b = qm_tensor_rule_loops();
    int64_t pieces = (m->cols + WIDTH - 1) / WIDTH;
    if (qm_tensor_rule_device()) {
        qm_sweep_run(
            QM_SWEEP_col_means,
            &(struct qm_sweep){
                .n = m->batch * m->cols,
                .rows = m->rows,
                .cols = m->cols,
                .flag = {[QM_MEANS_IS_SQUARE] = t.is_square, [QM_MEANS_IS_SINGLE] = t.is_single},
                .c = {[QM_MEANS_ADD] = t.add},
                .x = {col, QM_AT(x)}});
        return;
    }
    QM_PARALLEL(m->batch * m->rows * m->cols >= QM_THREADS_FROM)
    for (int64_t k = 0; k < m->batch * pieces; k++) {
        double sum[WIDTH] = {0.0};
        int64_t from = k % pieces * WIDTH, n = m->cols - from < WIDTH ? m->cols - from : WIDTH;
        const float *at = x + k / pieces * m->rows * m->cols + from;
        b->col_sums(t, at, m->rows, n, m->cols, sum);
        for (int64_t j = 0; j < n; j++)
            col[k / pieces * m->cols + from + j] = qm_mean_of_sum(t, sum[j], m->rows);
    }
}

/* ---- means of rows and of columns in one pass ------------------------------------------------
 *
 * The tensor is read once: it is cut into bands of consecutive rows that fit in the cache, and both
 * kinds of sums are taken from a band while it is there.  Bands are numbered from top to bottom.
 *
 * Row sums of different bands are independent.  Column sums are not: the sum of a column over band
 * k continues its sum over band k - 1, since each column is one chain of additions from top to
 * bottom.  To use several threads nevertheless, the columns are cut into pieces, and the pairs
 * (band k, piece j) are computed as a wavefront: (k, j) waits for (k - 1, j) only, so the thread of
 * band k follows the thread of band k - 1 one piece behind.  Each thread counts the pieces that it
 * is done with, and the thread of the next band waits for that count (core/base/threads.h).  A
 * doacross loop of OpenMP would do the same, but libgomp's waits there only spin.  Band k belongs
 * to thread k modulo the number of threads.  That thread computes the row sums of the band before
 * its first piece, so the band is in its cache when it computes the column sums.
 *
 * A tensor of small matrices needs no chain between bands: there, a band consists of several
 * whole matrices. */
struct two_means {
    const struct qm_matrices *m;
    struct qm_term t;
    const struct qm_lazy_floats *x;
    float *row, *col;      /* results */
    int64_t many;          /* matrices in a band; 1 where a matrix is cut into several bands */
    int64_t high;          /* rows of a band in each of its matrices */
    int64_t per_matrix;    /* bands that a matrix is cut into; 1 where `many` is above 1 */
    double *of_cols;       /* [cols]: column sums that a band hands on to the next */
    float *room;           /* a band for each thread, where x is formed */
    struct qm_count *done; /* [threads]: pieces that each is done with */
};

/* BAND_ALONE, BAND: elements of a band on one thread and on several, which synchronise for every
 * band.  BAND_WIDTH: columns of a piece.  FORMED: elements that are formed at a time. */
enum { BAND_ALONE = 1 << 14, BAND = QM_OWNED, BAND_WIDTH = 256, FORMED = 512 };

/* Rows from .. from + high - 1 of the matrices batch .. batch + many - 1. */
struct band {
    int64_t batch, many, from, high;
    int64_t first, rows; /* its first row, counted through the batch, and how many rows it has */
    float *room;         /* of this thread */
    const float *x;      /* its first element */
};

static struct band band_of(const struct two_means *d, int64_t k)
{
    const struct qm_matrices *m = d->m;
    struct band b = {.batch = k / d->per_matrix * d->many, .from = k % d->per_matrix * d->high};
    b.many = m->batch - b.batch < d->many ? m->batch - b.batch : d->many;
    b.high = m->rows - b.from < d->high ? m->rows - b.from : d->high;
    b.first = b.batch * m->rows + b.from;
    b.rows = b.many * b.high;
    b.room = d->room + k % omp_get_num_threads() * d->many * d->high * m->cols;
    b.x = d->x->made ? d->x->made + b.first * m->cols : b.room;
    return b;
}

/* The means of rows i .. i + n - 1 of a band, n <= QM_TENSOR_ROWS, which are formed first if x is
 * not made. */
static void means_of_rows(const struct two_means *d, const struct band *b, int64_t i, int64_t n)
{
    int64_t cols = d->m->cols, left = n * cols;
    double sum[QM_TENSOR_ROWS] = {0.0};
    for (int64_t k = 0; !d->x->made && k < left; k += FORMED)
        d->x->form(d->x->how, (b->first + i) * cols + k, left - k < FORMED ? left - k : FORMED,
                   b->room + i * cols + k);
    qm_tensor_rule_loops()->row_sums(d->t, b->x + i * cols, n, cols, cols, sum);
    for (int64_t k = 0; k < n; k++)
        d->row[b->first + i + k] = qm_mean_of_sum(d->t, sum[k], cols);
}

static void rows_of_band(const struct two_means *d, int64_t k)
{
    struct band b = band_of(d, k);
    for (int64_t i = 0; i < b.rows; i += QM_TENSOR_ROWS)
        means_of_rows(d, &b, i, b.rows - i < QM_TENSOR_ROWS ? b.rows - i : QM_TENSOR_ROWS);
}

/* Continues the sums of BAND_WIDTH columns, from j on, with the rows of band k, after band k - 1.
 * The last band of a matrix divides them into means. */
static void cols_of_band(const struct two_means *d, int64_t k, int64_t j)
{
    struct band b = band_of(d, k);
    int64_t cols = d->m->cols, n = cols - j < BAND_WIDTH ? cols - j : BAND_WIDTH;
    double here[BAND_WIDTH], *sum = d->many > 1 ? here : d->of_cols + j;
    for (int64_t i = 0; i < b.many; i++) {
        if (b.from == 0)
            memset(sum, 0, sizeof *sum * (size_t)n);
        qm_tensor_rule_loops()->col_sums(d->t, b.x + i * b.high * cols + j, b.high, n, cols, sum);
        for (int64_t c = 0; b.from + b.high == d->m->rows && c < n; c++)
            d->col[(b.batch + i) * cols + j + c] = qm_mean_of_sum(d->t, sum[c], d->m->rows);
    }
}

/* Thread `thread` of `team`: its bands, each after the band before it, piece by piece.  A thread
 * that has to sleep sleeps until that band is complete. */
static void run_bands_of(const struct two_means *d, int64_t thread, int64_t team)
{
    int64_t bands = (d->m->batch + d->many - 1) / d->many * d->per_matrix;
    int64_t pieces = (d->m->cols + BAND_WIDTH - 1) / BAND_WIDTH;
    int chained = team > 1 && d->many == 1;
    for (int64_t k = thread; k < bands; k += team) {
        int64_t before = (k - 1) / team * pieces;
        rows_of_band(d, k);
        for (int64_t j = 0; j < pieces; j++) {
            if (chained && k > 0)
                qm_count_await(&d->done[(k - 1) % team], (uint32_t)(before + j + 1),
                               (uint32_t)(before + pieces), (int)team);
            cols_of_band(d, k, j * BAND_WIDTH);
            if (chained)
                qm_count_raise(&d->done[thread]);
        }
    }
}

/* The wavefront over bands and pieces. */
static void run_bands(const struct two_means *d, int in_parallel)
{
#pragma omp parallel if (in_parallel)
    run_bands_of(d, omp_get_thread_num(), omp_get_num_threads());
}

qm_status qm_two_means(const struct qm_matrices *m, struct qm_term t,
                       const struct qm_lazy_floats *x, float *room, float *row, float *col)
{
    int64_t each = m->rows * m->cols, n = m->batch * each;
    if (n == 0)
        return QM_OK;
    if (qm_tensor_rule_device()) {
        const float *made = qm_lazy_floats_at(x, 0, n, room);
        qm_row_means(m, t, made, row);
        qm_col_means(m, t, made, col);
        return QM_OK;
    }
    int in_parallel = n >= QM_THREADS_FROM && omp_get_max_threads() > 1;
    int64_t band = in_parallel ? BAND : BAND_ALONE, groups = band / m->cols / QM_TENSOR_ROWS;
    struct two_means d = {m,       t, x,    row,  col, each < band ? band / each : 1,
                          m->rows, 1, NULL, NULL, NULL};
    if (each >= band) {
        d.high = (groups > 0 ? groups : 1) * QM_TENSOR_ROWS;
        d.high = d.high < m->rows ? d.high : m->rows;
        d.per_matrix = (m->rows + d.high - 1) / d.high;
    }
    d.many = d.many < m->batch ? d.many : m->batch;
    int64_t threads = omp_get_max_threads();
    int64_t formed = x->made ? 0 : threads * d.many * d.high * m->cols;
    size_t counts = sizeof *d.done * (size_t)threads;
    d.done = aligned_alloc(sizeof *d.done, counts);
    d.of_cols = malloc(sizeof *d.of_cols * (size_t)m->cols + sizeof *d.room * (size_t)formed);
    if (!d.of_cols || !d.done) {
        free(d.of_cols);
        free(d.done);
        return qm_fail(QM_NO_MEMORY, "sums of %lld columns", (long long)m->cols);
    }
    memset(d.done, 0, counts);
    d.room = (float *)(d.of_cols + m->cols);
    run_bands(&d, in_parallel);
    free(d.of_cols);
    free(d.done);
    return QM_OK;
}

/* ---- sums of squares (qm_sum_squares says how they run in parallel) --------------------------*/

/* BLOCK: elements of a block.  MOST_BLOCKS: blocks whose sums are taken at a time. */
enum { BLOCK = 256, MOST_BLOCKS = 4096 };

/* The definition: s + x[from]^2 + ..., n terms one by one; n <= BLOCK. */
static double chain(double s, const struct qm_lazy_floats *f, int64_t from, int64_t n)
{
    float here[BLOCK];
    const float *x = qm_lazy_floats_at(f, from, n, here);
    if (qm_tensor_rule_device()) {
        qm_tensor_rule_read(here, x, sizeof *x * (size_t)n);
        x = here;
    }
    for (int64_t i = 0; i < n; i++)
        s += (double)x[i] * (double)x[i];
    return s;
}

/* The power of two at or below s > 0. */
static double grid_of(double s)
{
    uint64_t u;
    memcpy(&u, &s, sizeof u);
    u &= 0x7ff0000000000000u;
    memcpy(&s, &u, sizeof s);
    return s;
}

static int last_bit(double s)
{
    uint64_t u;
    memcpy(&u, &s, sizeof u);
    return (int)(u & 1);
}

/* What each of `blocks` blocks adds to a sum whose last bit is 0 (even) or 1 (odd): `squares` of
 * struct qm_tensor_rule_loops.  On a device both are one number, computed in room[blocks] there; it
 * is NaN where the last bit decides. */
static void parts_of(const struct qm_lazy_floats *x, int64_t from, int64_t blocks, double grid,
                     double *room, double *even, double *odd)
{
    const struct qm_tensor_rule_loops *b = qm_tensor_rule_loops();
    if (qm_tensor_rule_device()) {
        qm_sweep_run(QM_SWEEP_squares, &(struct qm_sweep){.n = blocks,
                                                          .inner = BLOCK,
                                                          .d = {[QM_SQUARES_GRID] = grid},
                                                          .x = {NULL, QM_AT(x->made + from)},
                                                          .y = {room}});
        qm_tensor_rule_read(even, room, sizeof *even * (size_t)blocks);
        memcpy(odd, even, sizeof *odd * (size_t)blocks);
        return;
    }
    int64_t end = from + blocks * BLOCK, team = omp_get_max_threads();
#pragma omp parallel for schedule(static, 1) if (blocks * BLOCK >= QM_THREADS_FROM)
    for (int64_t k = from / QM_OWNED / team * team; k < (end + QM_OWNED - 1) / QM_OWNED; k++) {
        int64_t to = (k + 1) * QM_OWNED < end ? (k + 1) * QM_OWNED : end;
        int64_t i = k * QM_OWNED > from ? (k * QM_OWNED - from + BLOCK - 1) / BLOCK : 0;
        for (; from + i * BLOCK < to; i++) {
            float here[BLOCK];
            even[i] = b->squares(qm_lazy_floats_at(x, from + i * BLOCK, BLOCK, here), BLOCK, grid,
                                 &odd[i]);
        }
    }
}

/* How many blocks to take next, with `left` left: a quarter of those done, but hardly more
 * than will bring the sum to 2 grid at its rate so far, since sums of blocks beyond are
 * computed in vain. */
static int64_t blocks_next(double s, double grid, int64_t done, int64_t left)
{
    double until = (double)done * (2.0 * grid / s - 1.0 + 0x1p-6) + 2.0;
    int64_t blocks = done / 4 + 1 < left ? done / 4 + 1 : left;
    blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    return (double)blocks < until ? blocks : (int64_t)until;
}

double qm_sum_squares(const float *x, int64_t n)
{
    return qm_sum_squares_of(&(struct qm_lazy_floats){.made = x}, n);
}

double qm_sum_squares_of(const struct qm_lazy_floats *x, int64_t n)
{
    double s = 0.0, part[2][MOST_BLOCKS]; /* part[b]: for a sum whose last bit is b */
    void *room = NULL;
    if (qm_tensor_rule_device() && qm_tensor_rule_alloc(sizeof part[0], &room) != QM_OK)
        return 0.0; /* the device reports the failure after the step */
    for (int64_t at = 0; at < n;) {
        int64_t left = (n - at) / BLOCK;
        if (left < 1 || !(s >= 0x1p-900 && s < 0x1p900)) {
            int64_t m = n - at < BLOCK ? n - at : BLOCK;
            s = chain(s, x, at, m);
            at += m;
            continue;
        }
        double grid = grid_of(s);
        int64_t blocks = blocks_next(s, grid, at / BLOCK, left);
        parts_of(x, at, blocks, grid, room, part[0], part[1]);
        for (int64_t k = 0; k < blocks && s < 2.0 * grid; k++, at += BLOCK) {
            double next = s + part[last_bit(s)][k];
            s = next < 2.0 * grid ? next : chain(s, x, at, BLOCK);
        }
    }
    if (room)
        qm_tensor_rule_free(room);
    return s;
}

/* In double the sum has the same value, but where squares are so small that they are counts of
 * 2^-149, or so large that they overflow. */
double qm_float_squares_of(const struct qm_lazy_floats *x, int64_t n)
{
    enum { PIECE = 256 };
    double exact = qm_sum_squares_of(x, n), s = 0.0;
    if (!(exact < (double)n * 0x1p-100))
        return qm_float_sum(exact);
    for (int64_t i = 0; i < n; i += PIECE) {
        float here[PIECE];
        int64_t few = n - i < PIECE ? n - i : PIECE;
        const float *at = qm_lazy_floats_at(x, i, few, here);
        if (qm_tensor_rule_device()) {
            qm_tensor_rule_read(here, at, sizeof *here * (size_t)few);
            at = here;
        }
        for (int64_t k = 0; k < few; k++) {
            float square = at[k] * at[k];
            s += (double)square;
        }
    }
    return s;
}
