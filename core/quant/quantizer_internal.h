/* quantizer_internal.h - Declarations shared by the sources that implement quantizer.h. */
#ifndef QM_QUANT_QUANTIZER_INTERNAL_H
#define QM_QUANT_QUANTIZER_INTERNAL_H

#include "core/quant/quantizer.h"

enum { QM_PIECE = 1024 }; /* elements that stay in L1 between two loops over them */

/* The norm that is used for this shape, and its block size: rank1 and rank1block of one dimension
 * are block:128, rank1block of more than two is rank1. */
enum qm_norm qm_norm_for(const struct qm_codec *c, const struct qm_shape *shape, int64_t *block);

/* The raw maximum of n elements that share one scale. */
float qm_run_max(const struct qm_codec *c, const float *x, int64_t n);

/* The larger of two statistics by their bits: NaN is above Inf. */
static inline float qm_larger(float a, float b) { return qm_bits(a) > qm_bits(b) ? a : b; }

static inline struct qm_divisor qm_codec_divisor(const struct qm_codec *c, float max, int is_short)
{
    return qm_divisor_of(&c->q, &c->cb, max, is_short);
}

/* Walks the elements [from, from + n) in runs that lie in one row of the last axis.  at[]: index of
 * the run's first element; run: its length; left: elements from there on. */
struct qm_runs {
    const struct qm_shape *shape;
    int64_t at[QM_MAX_RANK], left, run;
};

static inline void qm_runs_start(struct qm_runs *w, const struct qm_shape *shape, int64_t from,
                                 int64_t n)
{
    w->shape = shape;
    w->left = n;
    for (int i = shape->rank - 1; i >= 0; i--) {
        w->at[i] = from % shape->dim[i];
        from /= shape->dim[i];
    }
    int64_t row = shape->dim[shape->rank - 1] - w->at[shape->rank - 1];
    w->run = row < n ? row : n;
}

static inline void qm_runs_next(struct qm_runs *w)
{
    int last = w->shape->rank - 1;
    w->left -= w->run;
    w->at[last] = 0;
    for (int i = last - 1; i >= 0; i--) {
        if (++w->at[i] < w->shape->dim[i])
            break;
        w->at[i] = 0;
    }
    w->run = w->shape->dim[last] < w->left ? w->shape->dim[last] : w->left;
}

/* Norm rowblock: the scale of element j of a run of a matrix, and how many elements of the run from
 * there on share it. */
static inline int64_t qm_rowblock_scale(const struct qm_runs *w, int64_t block, int64_t j)
{
    return w->at[0] * ((w->shape->dim[1] + block - 1) / block) + (w->at[1] + j) / block;
}

static inline int64_t qm_rowblock_share(const struct qm_runs *w, int64_t block, int64_t j)
{
    int64_t left = block - (w->at[1] + j) % block;
    return left < w->run - j ? left : w->run - j;
}

/* Whether each element of a run has its own scale. */
static inline int qm_scale_is_per_element(enum qm_norm norm, const struct qm_shape *shape)
{
    return norm == QM_NORM_rank1 || (norm == QM_NORM_col && shape->rank == 2) ||
           (norm == QM_NORM_row && shape->rank == 1);
}

/* The smallest scale of all axes but the last, which a run shares; NaN if one of them is, as with
 * torch.min.  Advances *scales to the scales of the last axis. */
static inline float qm_rank1_others(const struct qm_runs *w, const float **scales)
{
    float m = INFINITY;
    int is_nan = 0;
    for (int i = 0; i < w->shape->rank - 1; i++) {
        float s = (*scales)[w->at[i]];
        is_nan |= qm_isnan(s);
        m = s < m ? s : m;
        *scales += w->shape->dim[i];
    }
    return is_nan ? NAN : m;
}

#endif
