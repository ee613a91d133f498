/* statistic.c - Folds the elements of a tensor by maximum into the statistic of its scales. */
#include "core/quant/block_numbers.h"
#include "core/quant/norm_two_scales.h"
#include "core/quant/quantizer_internal.h"
#include "core/quant/simd.h"

void qm_fold_merge(float *into, const float *stat, int64_t n_scales)
{
    for (int64_t i = 0; i < n_scales; i++)
        into[i] = qm_larger(into[i], stat[i]);
}

static float magnitude(const struct qm_codec *c, float x) { return qm_magnitude(&c->q, x); }

float qm_run_max(const struct qm_codec *c, const float *x, int64_t n)
{
    if (c->q.curve == QM_CURVE_none || c->q.curve == QM_CURVE_softsign) {
        uint32_t bits = qm_simd()->max_bits(x, n);
        if (bits <= 0x7f800000u || !c->q.scale.max_skips_nan)
            return qm_float(bits);
    }
    float m = 0.0f;
    for (int64_t i = 0; i < n; i++)
        m = qm_larger(m, magnitude(c, x[i]));
    return m;
}

/* Folds x[j] into stat[j]. */
static void fold_each(const struct qm_codec *c, const float *x, int64_t n, float *stat)
{
    if (c->q.curve == QM_CURVE_none && !c->q.scale.max_skips_nan)
        qm_simd()->fold_each(x, n, stat);
    else
        for (int64_t j = 0; j < n; j++)
            stat[j] = qm_larger(stat[j], magnitude(c, x[j]));
}

/* Folds a run into the statistics of every axis; for all axes but the last it has one maximum. */
static void fold_rank1(const struct qm_codec *c, const struct qm_runs *w, const float *x,
                       float *stat)
{
    int last = w->shape->rank - 1;
    float m = qm_run_max(c, x, w->run);
    for (int i = 0; i < last; i++) {
        stat[w->at[i]] = qm_larger(stat[w->at[i]], m);
        stat += w->shape->dim[i];
    }
    fold_each(c, x, w->run, stat + w->at[last]);
}

/* Folds elements of a block whose curve has several statistics, each a maximum of bits. */
static void fold_numbers(const struct qm_codec *c, const float *x, int64_t n, float *stat)
{
    for (int k = 0; k < qm_block_numbers(c); k++) {
        uint32_t most = qm_bits(stat[k]);
        if (k == 0 && c->q.curve == QM_CURVE_allog) {
            stat[k] = qm_larger(stat[k], qm_float(qm_simd()->max_bits(x, n)));
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            uint32_t u = qm_block_stat(&c->q, x[i], k);
            most = u > most ? u : most;
        }
        stat[k] = qm_float(most);
    }
}

void qm_fold(const struct qm_codec *c, const struct qm_shape *shape, int64_t from, int64_t n,
             const float *x, float *stat)
{
    int64_t block;
    struct qm_runs w;
    enum qm_norm norm = qm_norm_for(c, shape, &block);
    if (n == 0)
        return;
    switch (norm) {
    case QM_NORM_tensor: stat[0] = qm_larger(stat[0], qm_run_max(c, x, n)); break;
    case QM_NORM_block:
        for (int64_t i = 0; i < n;) {
            int64_t b = (from + i) / block, end = (b + 1) * block - from;
            int64_t m = (end < n ? end : n) - i;
            if (qm_curve_needs_block(c->q.curve))
                qm_block_fold(&c->q, x + i, m, stat + b * qm_block_numbers(c));
            else if (qm_block_numbers(c) > 1)
                fold_numbers(c, x + i, m, stat + qm_block_numbers(c) * b);
            else
                stat[b] = qm_larger(stat[b], qm_run_max(c, x + i, m));
            i += m;
        }
        break;
    case QM_NORM_rowblock:
        for (qm_runs_start(&w, shape, from, n); w.left > 0; x += w.run, qm_runs_next(&w))
            for (int64_t j = 0, m; j < w.run; j += m) {
                int64_t b = qm_rowblock_scale(&w, block, j);
                m = qm_rowblock_share(&w, block, j);
                stat[b] = qm_larger(stat[b], qm_run_max(c, x + j, m));
            }
        break;
    case QM_NORM_row:
    case QM_NORM_col:
    case QM_NORM_rank1:
        for (qm_runs_start(&w, shape, from, n); w.left > 0; x += w.run, qm_runs_next(&w)) {
            if (norm == QM_NORM_rank1) {
                fold_rank1(c, &w, x, stat);
            } else if (norm == QM_NORM_col && shape->rank == 2) {
                fold_each(c, x, w.run, stat + w.at[1]);
            } else if (norm == QM_NORM_row && shape->rank == 1) {
                fold_each(c, x, w.run, stat + w.at[0]);
            } else {
                int64_t i = norm == QM_NORM_row ? w.at[0] : w.at[1];
                stat[i] = qm_larger(stat[i], qm_run_max(c, x, w.run));
            }
        }
        break;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: qm_two_scales_fold(c, shape, 0, from, n, x, stat); break;
    default: break;
    }
}

int qm_folds(const struct qm_codec *c)
{
    return c->q.norm == QM_NORM_rowcol || c->q.norm == QM_NORM_colrow ? 2 : 1;
}

void qm_fold_again(const struct qm_codec *c, const struct qm_shape *shape, int64_t from, int64_t n,
                   const float *x, float *stat)
{
    if (qm_folds(c) == 2)
        qm_two_scales_fold(c, shape, 1, from, n, x, stat);
}
