/* quantizer_internal.h - what the files of the quantizer share: quantizer.c, scale_layout.c, statistic.c, encode.c, decode.c. */
#ifndef QM_QUANT_QUANTIZER_INTERNAL_H
#define QM_QUANT_QUANTIZER_INTERNAL_H

#include "core/quant/quantizer.h"

enum { QM_PIECE = 1024 }; /* elements held in L1 between two phases */

/* scale_layout.c: the norm that a shape really gets, and its block. */
enum qm_norm qm_norm_for(const struct qm_codec *c, const struct qm_shape *shape, int64_t *block);

/* statistic.c: maximum over a run that shares one scale. */
float qm_run_max(const struct qm_codec *c, const float *x, int64_t n);

static inline float qm_larger(float a, float b) { return qm_bits(a) > qm_bits(b) ? a : b; }

static inline struct qm_divisor qm_codec_divisor(const struct qm_codec *c, float max, int is_short)
{
    return qm_divisor_of(&c->q, &c->cb, max, is_short);
}

/* Walks [from, from + n) in runs that lie in one row of the last axis; at[] is the index of the
 * run's first element. */
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

/* Whether the elements of a run have scales of their own. */
static inline int qm_is_each(enum qm_norm norm, const struct qm_shape *shape)
{
    return norm == QM_NORM_rank1 || (norm == QM_NORM_col && shape->rank == 2) ||
           (norm == QM_NORM_row && shape->rank == 1);
}

/* The smallest of the scales of all axes but the last, which a run shares; NaN where one is, as
 * torch.min.  *scales moves on to those of the last axis. */
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
