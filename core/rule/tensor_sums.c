/* whole_sums.c - means of rows and columns, sums of squares. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

/* ---- sums ------------------------------------------------------------------------------------ */

void qm_row_means(const struct qm_matrices *m, struct qm_term t, const float *x, float *row)
{
    const struct qm_tensor_rule_loops *b = qm_tensor_rule_loops();
    int64_t rows = m->batch * m->rows;
    if (qm_tensor_rule_device()) {
        qm_sweep_run(QM_SWEEP_row_means, &(struct qm_sweep){.n = rows,
                                                            .cols = m->cols,
                                                            .flag = {t.is_square},
                                                            .c = {t.add},
                                                            .x = {row, QM_AT(x)}});
        return;
    }
    QM_PARALLEL(rows * m->cols >= QM_THREADS_FROM)
    for (int64_t i = 0; i < rows; i += QM_TENSOR_ROWS) {
        double sum[QM_TENSOR_ROWS] = {0.0};
        int64_t n = rows - i < QM_TENSOR_ROWS ? rows - i : QM_TENSOR_ROWS;
        b->row_sums(t, x + i * m->cols, n, m->cols, m->cols, sum);
        for (int64_t k = 0; k < n; k++)
            row[i + k] = (float)(sum[k] / (double)m->cols);
    }
}

/* Columns in pieces whose sums stay in the first-level cache. */
void qm_col_means(const struct qm_matrices *m, struct qm_term t, const float *x, float *col)
{
    enum { WIDTH = 512 };
    const struct qm_tensor_rule_loops *b = qm_tensor_rule_loops();
    int64_t pieces = (m->cols + WIDTH - 1) / WIDTH;
    if (qm_tensor_rule_device()) {
        qm_sweep_run(QM_SWEEP_col_means, &(struct qm_sweep){.n = m->batch * m->cols,
                                                            .rows = m->rows,
                                                            .cols = m->cols,
                                                            .flag = {t.is_square},
                                                            .c = {t.add},
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
            col[k / pieces * m->cols + from + j] = (float)(sum[j] / (double)m->rows);
    }
}

/* Bands of rows, `per_matrix` of each matrix and `high` rows each, or of `many` small matrices: they stay in the
 * cache from their forming to their sums. */
struct two_means {
    const struct qm_matrices *m;
    struct qm_term t;
    const struct qm_formed *x;
    float *row, *col;
    int64_t many, high, per_matrix;
    double *of_cols; /* [cols]: sums on their way from band to band */
    float *room;     /* for numbers to be formed, a band of each thread */
};

/* BAND: numbers of one.  With several threads more, for they wait for each other band by band. */
enum { BAND_ALONE = 1 << 14, BAND = QM_OWNED, BAND_WIDTH = 256, FORMED = 512 };

struct band {
    int64_t batch, many, from,
        high;            /* matrices batch to batch + many - 1; rows from to from + high - 1 */
    int64_t first, rows; /* its rows, numbered through the batch */
    float *room;         /* of this thread */
    const float *x;      /* its first number */
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

/* The means of n <= QM_TENSOR_ROWS rows of a band from its row i on. */
static void means_of_rows(const struct two_means *d, const struct band *b, int64_t i, int64_t n)
{
    int64_t cols = d->m->cols, left = n * cols;
    double sum[QM_TENSOR_ROWS] = {0.0};
    for (int64_t k = 0; !d->x->made && k < left; k += FORMED)
        d->x->form(d->x->how, (b->first + i) * cols + k, left - k < FORMED ? left - k : FORMED,
                   b->room + i * cols + k);
    qm_tensor_rule_loops()->row_sums(d->t, b->x + i * cols, n, cols, cols, sum);
    for (int64_t k = 0; k < n; k++)
        d->row[b->first + i + k] = (float)(sum[k] / (double)cols);
}

static void rows_of_band(const struct two_means *d, int64_t k)
{
    struct band b = band_of(d, k);
    for (int64_t i = 0; i < b.rows; i += QM_TENSOR_ROWS)
        means_of_rows(d, &b, i, b.rows - i < QM_TENSOR_ROWS ? b.rows - i : QM_TENSOR_ROWS);
}

/* Columns from j on of band k, after those of the band above. */
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
            d->col[(b.batch + i) * cols + j + c] = (float)(sum[c] / (double)d->m->rows);
    }
}

/* A thread still has its band at hand when the sums of columns reach it.  Band k is of thread k modulo their
 * number. */
static void run_bands(const struct two_means *d, int in_parallel)
{
    int64_t bands = (d->m->batch + d->many - 1) / d->many * d->per_matrix;
    int64_t pieces = (d->m->cols + BAND_WIDTH - 1) / BAND_WIDTH;
#pragma omp parallel for ordered(2) schedule(static, 1) if (in_parallel)
    for (int64_t k = 0; k < bands; k++)
        for (int64_t j = 0; j < pieces; j++) {
            if (j == 0)
                rows_of_band(d, k);
#pragma omp ordered depend(sink : k - 1, j)
            cols_of_band(d, k, j * BAND_WIDTH);
#pragma omp ordered depend(source)
        }
}

qm_status qm_two_means(const struct qm_matrices *m, struct qm_term t, const struct qm_formed *x,
                       float *room, float *row, float *col)
{
    int64_t each = m->rows * m->cols, n = m->batch * each;
    if (n == 0)
        return QM_OK;
    if (qm_tensor_rule_device()) {
        const float *made = qm_formed_at(x, 0, n, room);
        qm_row_means(m, t, made, row);
        qm_col_means(m, t, made, col);
        return QM_OK;
    }
    int in_parallel = n >= QM_THREADS_FROM && omp_get_max_threads() > 1;
    int64_t band = in_parallel ? BAND : BAND_ALONE, groups = band / m->cols / QM_TENSOR_ROWS;
    struct two_means d = {m, t, x, row, col, each < band ? band / each : 1, m->rows, 1, NULL, NULL};
    if (each >= band) {
        d.high = (groups > 0 ? groups : 1) * QM_TENSOR_ROWS;
        d.high = d.high < m->rows ? d.high : m->rows;
        d.per_matrix = (m->rows + d.high - 1) / d.high;
    }
    d.many = d.many < m->batch ? d.many : m->batch;
    int64_t formed = x->made ? 0 : omp_get_max_threads() * d.many * d.high * m->cols;
    d.of_cols = malloc(sizeof *d.of_cols * (size_t)m->cols + sizeof *d.room * (size_t)formed);
    if (!d.of_cols)
        return qm_fail(QM_NO_MEMORY, "sums of %lld columns", (long long)m->cols);
    d.room = (float *)(d.of_cols + m->cols);
    run_bands(&d, in_parallel);
    free(d.of_cols);
    return QM_OK;
}

enum { BLOCK = 256, MOST_BLOCKS = 4096 };

/* The definition; n <= BLOCK. */
static double chain(double s, const struct qm_formed *f, int64_t from, int64_t n)
{
    float here[BLOCK];
    const float *x = qm_formed_at(f, from, n, here);
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

/* The sums of blocks of x, where the last bit of the sum so far is 0, and 1 (struct qm_tensor_rule_loops).  On a
 * device, by way of room[blocks] there, NaN where that bit decides. */
static void parts_of(const struct qm_formed *x, int64_t from, int64_t blocks, double grid,
                     double *room, double *even, double *odd)
{
    const struct qm_tensor_rule_loops *b = qm_tensor_rule_loops();
    if (qm_tensor_rule_device()) {
        qm_sweep_run(QM_SWEEP_squares, &(struct qm_sweep){.n = blocks,
                                                          .inner = BLOCK,
                                                          .d = {grid},
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
            even[i] =
                b->squares(qm_formed_at(x, from + i * BLOCK, BLOCK, here), BLOCK, grid, &odd[i]);
        }
    }
}

/* How many blocks to take next, `left` of them left: more and more, but not far beyond where the sum should double. */
static int64_t blocks_next(double s, double grid, int64_t done, int64_t left)
{
    double until = (double)done * (2.0 * grid / s - 1.0 + 0x1p-6) + 2.0;
    int64_t blocks = done / 4 + 1 < left ? done / 4 + 1 : left;
    blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    return (double)blocks < until ? blocks : (int64_t)until;
}

double qm_sum_squares(const float *x, int64_t n)
{
    return qm_sum_squares_of(&(struct qm_formed){.made = x}, n);
}

double qm_sum_squares_of(const struct qm_formed *x, int64_t n)
{
    double s = 0.0, part[2][MOST_BLOCKS]; /* where the last bit of s is 0, and 1 */
    void *room = NULL;
    if (qm_tensor_rule_device() && qm_tensor_rule_alloc(sizeof part[0], &room) != QM_OK)
        return 0.0; /* the device tells after the step */
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
