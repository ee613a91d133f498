/* quantizer.c - the composition of the axes: edges, scales, encoding and decoding. */
#include "core/quant/quantizer.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/half.h"
#include "core/base/narrow.h"
#include "core/quant/allog.h"
#include "core/quant/lanes.h"
#include "core/quant/norm_pair.h"
#include "core/quant/searches.h"

enum { PIECE = 1024 }; /* elements held in L1 between two phases */

const struct qm_lanes *qm_lanes(void)
{
    static const struct qm_lanes *const table[] = {
#define X(name) &qm_lanes_##name,
        QM_ISA_LIST(X)
#undef X
    };
    return table[qm_isa()];
}

/* ---- tables ------------------------------------------------------------------------------- */

/* Unit values never leave [-1 - ulp, 1 + ulp] (int: [-8, 8] and the like), and argmin is not
 * monotone where distances overflow the mantissa, so edges are sought below this. */
float qm_codec_limit(const struct qm_codec *c)
{
    float top = c->cb.value[c->cb.n - 1];
    return top > 2.0f ? 2.0f * top : 4.0f;
}

int qm_code_of(const struct qm_codec *c, float y, uint32_t draw)
{
    return qm_position(&c->q, &c->cb, y, draw);
}

/* Positions to stored codes, in place; y: their unit values, read for float formats only. */
static void store_codes(const struct qm_codec *c, const float *y, int64_t n, uint8_t *codes)
{
    for (int64_t j = 0; j < n && c->cb.is_float; j++)
        codes[j] = (uint8_t)(codes[j] == c->cb.zero && qm_bits(y[j]) >> 31 ? c->cb.n : codes[j]);
    for (int64_t j = 0; j < n && c->cb.is_permuted; j++)
        codes[j] = c->cb.perm[codes[j]];
}

/* Finite unit values to stored codes, by the edges or, to the same bits, by the format's own
 * conversion. */
static void codes_of(const struct qm_codec *c, const float *y, int64_t n, uint8_t *codes)
{
    if (c->cb.is_float && c->q.round == QM_ROUND_even) {
        qm_narrow()->float_to_e4m3(y, n, codes);
        return;
    }
    qm_lanes()->positions(c, y, n, codes);
    store_codes(c, y, n, codes);
}

/* Monotone in y: right on both sides of every edge, steps are right everywhere. */
static int steps_hold(const struct qm_codec *c)
{
    if (c->cb.n <= 16 || c->cb.steps == 0.0f)
        return 0;
    for (int k = 0; k + 1 < c->cb.n; k++)
        for (int above = 0; above < 2; above++) {
            float y = above ? c->edge[k] : nextafterf(c->edge[k], -INFINITY);
            if (qm_search_arith(QM_ROUND_near, 0, y, c->cb.steps, &c->cb, 0) != k + above)
                return 0;
        }
    return 1;
}

/* The edges in the orders of core/quant/lanes.c. */
static void arrange_edges(struct qm_codec *c)
{
    float e[256];
    for (int k = 0; k < 256; k++)
        e[k] = k + 1 < c->cb.n ? c->edge[k] : INFINITY;
    for (int l = 0; l < 4; l++)
        for (int k = 0; k < 16; k++)
            c->level[l][k] = e[15 - ((k & ((1 << l) - 1)) * 2 + 1) * (8 >> l)];
    for (int k = 0; k < 32; k++)
        for (int j = 0; j < 8; j++)
            c->fan[j][k] = e[8 * k + j];
    c->segments.usable = 0;
    if (c->cb.n == 256)
        qm_segments_build(c->edge, &c->segments);
    c->cells.usable = 0;
    if (c->cb.n <= 16)
        qm_cells_build(c->edge, c->cb.n, &c->cells);
    c->has_steps = steps_hold(c);
}

void qm_codec_rebuild(struct qm_codec *c)
{
    float limit = qm_codec_limit(c);
    c->n_negative = 0; /* values ascend, and are in code order where signs are kept */
    while (c->n_negative < c->cb.n && signbit(c->cb.value[c->n_negative]))
        c->n_negative++;
    c->has_edges = !qm_round_draws(c->q.round) && c->q.norm != QM_NORM_id;
    int32_t floor_key = qm_ordered(-limit);
    for (int k = 0; k + 1 < c->cb.n && c->has_edges; k++) {
        int32_t low = floor_key, high = qm_ordered(limit); /* code(low) <= k < code(high) */
        if (qm_code_of(c, limit, 0) <= k) {
            c->edge[k] = INFINITY;
            continue;
        }
        while ((int64_t)high - low > 1) {
            int32_t mid = (int32_t)(((int64_t)low + high) >> 1);
            if (qm_code_of(c, qm_unordered(mid), 0) > k)
                high = mid;
            else
                low = mid;
        }
        c->edge[k] = qm_unordered(high);
        floor_key = low; /* edges ascend */
    }
    if (c->has_edges)
        arrange_edges(c);
}

/* Tables take far longer to build than to copy, and plans of one recipe ask for the same ones: each
 * thread keeps the last few. */
qm_status qm_codec_init(struct qm_codec *c, const struct qm_quantizer *q)
{
    enum { KEPT = 4 };
    static _Thread_local struct qm_codec kept[KEPT];
    static _Thread_local int next;
    for (int i = 0; i < KEPT && q->bits; i++)
        if (kept[i].q.bits && qm_quantizer_equal(&kept[i].q, q)) {
            *c = kept[i];
            return QM_OK;
        }
    QM_TRY(qm_quantizer_applicable(q));
    memset(c, 0, sizeof *c);
    c->q = *q;
    if (q->bits == 0)
        return QM_OK;
    qm_codebook_build(q->map, q->bits, q->sign, &c->cb);
    qm_codec_rebuild(c);
    kept[next++ % KEPT] = *c;
    return QM_OK;
}

qm_status qm_codec_parse(struct qm_codec *c, const char *text)
{
    struct qm_quantizer q;
    QM_TRY(qm_quantizer_parse(text, &q));
    return qm_codec_init(c, &q);
}

qm_status qm_codec_codes_exist(const struct qm_codec *c, const uint8_t *codes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (codes[i] >= 1 << c->q.bits ||
            (c->cb.perm[c->cb.position_of[codes[i]]] != codes[i] && !c->cb.is_float))
            return qm_fail(QM_BAD_ARG, "code %d at %lld does not exist in %d bits", codes[i],
                           (long long)i, c->q.bits);
    return QM_OK;
}

void qm_plain_round(enum qm_plain plain, int64_t n, float *x)
{
    for (int64_t i = 0; i < n && plain != QM_PLAIN_f32; i++)
        x[i] = qm_plain_of(plain, x[i]);
}

/* ---- scales ------------------------------------------------------------------------------- */

/* The norm that a shape really gets, and its block. */
static enum qm_norm norm_for(const struct qm_codec *c, const struct qm_shape *shape, int64_t *block)
{
    *block = c->q.block;
    int is_rank1 = c->q.norm == QM_NORM_rank1 || c->q.norm == QM_NORM_rank1block;
    if (is_rank1 && shape->rank <= 1) {
        *block = QM_RANK1_BLOCK;
        return QM_NORM_block;
    }
    if (is_rank1 && shape->rank > 2)
        return QM_NORM_rank1;
    return c->q.norm;
}

qm_status qm_codec_fits(const struct qm_codec *c, const struct qm_shape *shape)
{
    if (c->q.bits == 0)
        return QM_OK;
    if (c->q.norm == QM_NORM_col && shape->rank < 2)
        return qm_fail(QM_BAD_ARG, "norm col wants a tensor of at least two dimensions");
    if (c->q.norm == QM_NORM_row && shape->rank < 1)
        return qm_fail(QM_BAD_ARG, "norm row wants a tensor of at least one dimension");
    if ((c->q.norm == QM_NORM_rank1 || c->q.norm == QM_NORM_rank1block) && shape->rank < 1)
        return qm_fail(QM_BAD_ARG, "norm rank1 wants a tensor of at least one dimension");
    if ((c->q.norm == QM_NORM_rowcol || c->q.norm == QM_NORM_colrow) && shape->rank < 2)
        return qm_fail(QM_BAD_ARG, "norms rowcol and colrow want at least two dimensions");
    return QM_OK;
}

int qm_block_numbers(const struct qm_codec *c)
{
    return c->q.curve == QM_CURVE_allog ? QM_AL_NUMBERS : 1;
}

int64_t qm_scale_count(const struct qm_codec *c, const struct qm_shape *shape)
{
    int64_t n = qm_shape_numel(shape), block, sum = 0;
    if (n == 0 || c->q.bits == 0)
        return 0;
    switch (norm_for(c, shape, &block)) {
    case QM_NORM_tensor: return 1;
    case QM_NORM_row: return shape->dim[0];
    case QM_NORM_col: return shape->dim[1];
    case QM_NORM_block: return (n + block - 1) / block * qm_block_numbers(c);
    case QM_NORM_rank1:
        for (int i = 0; i < shape->rank; i++)
            sum += shape->dim[i];
        return sum;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: return qm_pair_count(c, shape);
    default: return 0;
    }
}

int64_t qm_code_bytes(const struct qm_codec *c, int64_t n)
{
    return c->q.bits == 0 ? 0 : qm_pack_bytes(c->q.pack, c->q.bits, n);
}

int64_t qm_state_bytes(const struct qm_codec *c, const struct qm_shape *shape)
{
    int64_t n = qm_shape_numel(shape);
    if (c->q.bits == 0)
        return (c->q.plain == QM_PLAIN_f32 ? 4 : 2) * n;
    int64_t s = qm_scale_count(c, shape), bytes = qm_code_bytes(c, n);
    if (c->q.scale.nest && s > 0)
        return bytes + s + 4 * ((s + c->q.scale.nest - 1) / c->q.scale.nest) + 4;
    return bytes + s * (c->q.scale.f16 ? 2 : 4);
}

static struct qm_divisor divisor_of(const struct qm_codec *c, float max, int is_short)
{
    return qm_divisor_of(&c->q, &c->cb, max, is_short);
}

/* Scales minus their mean, through dyn:8s/block:N/grid (bitsandbytes compress_statistics). */
static void nest_scales(const struct qm_codec *c, float *scales, int64_t n)
{
    struct qm_codec inner;
    struct qm_quantizer q = {.map = QM_MAP_dyn,
                             .bits = 8,
                             .sign = 1,
                             .norm = QM_NORM_block,
                             .block = c->q.scale.nest,
                             .search = QM_SEARCH_grid,
                             .round = QM_ROUND_mid,
                             .unit = QM_UNIT_recip,
                             .scale = {.zero = 0, .max_skips_nan = 1}};
    struct qm_shape flat = {1, {n}};
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)scales[i];
    float mean = (float)(sum / (double)n);
    uint8_t *codes = malloc((size_t)n);
    float *outer = malloc(sizeof(float) * (size_t)(n / q.block + 1));
    if (codes && outer && qm_codec_init(&inner, &q) == QM_OK) {
        for (int64_t i = 0; i < n; i++)
            scales[i] -= mean;
        if (qm_encode(&inner, &flat, scales, NULL, codes, outer) == QM_OK)
            qm_decode(&inner, &flat, codes, outer, scales);
        for (int64_t i = 0; i < n; i++)
            scales[i] += mean;
    }
    free(codes);
    free(outer);
}

void qm_scales(const struct qm_codec *c, const struct qm_shape *shape, const float *stat,
               float *scales)
{
    int64_t block, n = qm_shape_numel(shape), count = qm_scale_count(c, shape);
    for (int64_t i = 0; c->q.curve == QM_CURVE_allog && i < count; i += QM_AL_NUMBERS) {
        float of[QM_AL_NUMBERS] = {stat[i], stat[i + 1]};
        qm_al_numbers(of, &scales[i], &scales[i + 1]);
    }
    if (c->q.curve == QM_CURVE_allog)
        return;
    int has_tail = norm_for(c, shape, &block) == QM_NORM_block && n % block != 0;
    for (int64_t i = 0; i < count; i++)
        scales[i] = divisor_of(c, stat[i], has_tail && i == count - 1).stored;
    if (c->q.scale.nest && count > 0)
        nest_scales(c, scales, count);
}

static float larger(float a, float b) { return qm_bits(a) > qm_bits(b) ? a : b; }

void qm_fold_merge(float *into, const float *stat, int64_t n_scales)
{
    for (int64_t i = 0; i < n_scales; i++)
        into[i] = larger(into[i], stat[i]);
}

/* ---- the statistic ------------------------------------------------------------------------ */

static float magnitude(const struct qm_codec *c, float x) { return qm_magnitude(&c->q, x); }

/* Maximum over a run that shares one scale. */
static float run_max(const struct qm_codec *c, const float *x, int64_t n)
{
    if (c->q.curve == QM_CURVE_none || c->q.curve == QM_CURVE_softsign) {
        uint32_t bits = qm_lanes()->max_bits(x, n);
        if (bits <= 0x7f800000u || !c->q.scale.max_skips_nan)
            return qm_float(bits);
    }
    float m = 0.0f;
    for (int64_t i = 0; i < n; i++)
        m = larger(m, magnitude(c, x[i]));
    return m;
}

/* Walks [from, from + n) in runs that lie in one row of the last axis; at[] is the index of the
 * run's first element. */
struct walk {
    const struct qm_shape *shape;
    int64_t at[QM_MAX_RANK], left, run;
};

static void walk_start(struct walk *w, const struct qm_shape *shape, int64_t from, int64_t n)
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

static void walk_next(struct walk *w)
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

/* Folds element by element. */
static void fold_each(const struct qm_codec *c, const float *x, int64_t n, float *stat)
{
    if (c->q.curve == QM_CURVE_none && !c->q.scale.max_skips_nan)
        qm_lanes()->fold_each(x, n, stat);
    else
        for (int64_t j = 0; j < n; j++)
            stat[j] = larger(stat[j], magnitude(c, x[j]));
}

/* Folds a run into the arrays of the axes: all but the last get one maximum. */
static void fold_rank1(const struct qm_codec *c, const struct walk *w, const float *x, float *stat)
{
    int last = w->shape->rank - 1;
    float m = run_max(c, x, w->run);
    for (int i = 0; i < last; i++) {
        stat[w->at[i]] = larger(stat[w->at[i]], m);
        stat += w->shape->dim[i];
    }
    fold_each(c, x, w->run, stat + w->at[last]);
}

/* The largest and, complemented, the least positive element of a block. */
static void fold_al(const float *x, int64_t n, float *stat)
{
    uint32_t least = qm_bits(stat[1]);
    stat[0] = larger(stat[0], qm_float(qm_lanes()->max_bits(x, n)));
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = qm_al_complement(x[i]);
        least = u > least ? u : least;
    }
    stat[1] = qm_float(least);
}

void qm_fold(const struct qm_codec *c, const struct qm_shape *shape, int64_t from, int64_t n,
             const float *x, float *stat)
{
    int64_t block;
    struct walk w;
    enum qm_norm norm = norm_for(c, shape, &block);
    if (n == 0)
        return;
    switch (norm) {
    case QM_NORM_tensor: stat[0] = larger(stat[0], run_max(c, x, n)); break;
    case QM_NORM_block:
        for (int64_t i = 0; i < n;) {
            int64_t b = (from + i) / block, end = (b + 1) * block - from;
            int64_t m = (end < n ? end : n) - i;
            if (c->q.curve == QM_CURVE_allog)
                fold_al(x + i, m, stat + QM_AL_NUMBERS * b);
            else
                stat[b] = larger(stat[b], run_max(c, x + i, m));
            i += m;
        }
        break;
    case QM_NORM_row:
    case QM_NORM_col:
    case QM_NORM_rank1:
        for (walk_start(&w, shape, from, n); w.left > 0; x += w.run, walk_next(&w)) {
            if (norm == QM_NORM_rank1) {
                fold_rank1(c, &w, x, stat);
            } else if (norm == QM_NORM_col && shape->rank == 2) {
                fold_each(c, x, w.run, stat + w.at[1]);
            } else if (norm == QM_NORM_row && shape->rank == 1) {
                fold_each(c, x, w.run, stat + w.at[0]);
            } else {
                int64_t i = norm == QM_NORM_row ? w.at[0] : w.at[1];
                stat[i] = larger(stat[i], run_max(c, x, w.run));
            }
        }
        break;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: qm_pair_fold(c, shape, 0, from, n, x, stat); break;
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
        qm_pair_fold(c, shape, 1, from, n, x, stat);
}

/* ---- encoding ----------------------------------------------------------------------------- */

/* The defining path: one element by its divisor. */
static uint8_t encode_one(const struct qm_codec *c, float x, struct qm_divisor d, int divides,
                          uint32_t draw)
{
    return (uint8_t)qm_encode_one(&c->q, &c->cb, x, d.by, divides, draw);
}

/* The same without a scale. */
static uint8_t code_unscaled(const struct qm_codec *c, float x, uint32_t draw)
{
    float y = qm_unit_of(&c->q, x, 1.0f, 1);
    return (uint8_t)qm_stored_code(&c->cb, y, qm_position(&c->q, &c->cb, y, draw));
}

static int unit_divides(const struct qm_codec *c, int is_short)
{
    return qm_unit_divides(&c->q, is_short);
}

/* A run that shares one scale whose raw maximum is max. first: flat index of x[0]. */
static void encode_run(const struct qm_codec *c, const float *x, int64_t n, float max, int is_short,
                       int64_t first, const struct qm_draws *draws, uint8_t *codes)
{
    struct qm_divisor d = divisor_of(c, max, is_short);
    int divides = unit_divides(c, is_short);
    const struct qm_lanes *v = qm_lanes();
    int by_arith = c->q.search == QM_SEARCH_arith && !divides;
    float factor = by_arith ? c->cb.steps / d.by : 1.0f / d.by;

    if (max == 0.0f && c->q.scale.zero >= 0) {
        memset(codes, c->q.scale.zero, (size_t)n);
        return;
    }
    int ordinary = c->has_edges && d.by > 0.0f && qm_bits(max) < 0x7f800000u &&
                   (divides || (factor < INFINITY && factor > 0.0f)) &&
                   !(by_arith && c->q.round != QM_ROUND_even && c->q.round != QM_ROUND_near) &&
                   !(c->q.scale.max_skips_nan && v->max_bits(x, n) > 0x7f800000u);
    if (!ordinary) {
        for (int64_t i = 0; i < n; i++)
            codes[i] = encode_one(c, x[i], d, divides, draws ? qm_draw(draws, first + i) : 0);
        return;
    }
    float y[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;
        const float *u = x + i;
        if (c->q.curve == QM_CURVE_log2 || c->q.curve == QM_CURVE_sqrt) {
            for (int64_t j = 0; j < m; j++)
                y[j] = qm_curve_to(c->q.curve, x[i + j]);
            u = y;
        }
        if (by_arith) {
            v->arith(c, u, factor, m, codes + i);
            store_codes(c, u, m, codes + i);
        } else {
            if (divides)
                v->divide(u, d.by, m, y);
            else
                v->multiply(u, factor, m, y);
            if (c->q.curve == QM_CURVE_softsign)
                for (int64_t j = 0; j < m; j++)
                    y[j] = qm_curve_unit_to(c->q.curve, y[j]);
            codes_of(c, y, m, codes + i);
        }
    }
}

/* The smallest of the scales of all axes but the last, which a run shares; NaN where one is, as
 * torch.min.  *scales moves on to those of the last axis. */
static float rank1_others(const struct walk *w, const float **scales)
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

/* A run whose elements' raw maxima are the smaller ones of s[j] and m. */
static void encode_each(const struct qm_codec *c, const float *x, int64_t n, const float *s,
                        float m, int64_t first, const struct qm_draws *draws, uint8_t *codes)
{
    const struct qm_lanes *v = qm_lanes();
    float y[PIECE];
    if (c->has_edges && c->q.curve == QM_CURVE_none && c->q.unit == QM_UNIT_div &&
        c->q.scale.zero < 0 && c->q.scale.f16 != QM_F16_both && c->cb.over == 0.0f &&
        v->unit_each(c, x, s, m, n, y)) {
        codes_of(c, y, n, codes);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        float max = qm_isnan(m) || s[j] >= m ? m : s[j];
        codes[j] = max == 0.0f && c->q.scale.zero >= 0
                       ? (uint8_t)c->q.scale.zero
                       : encode_one(c, x[j], divisor_of(c, max, 0), unit_divides(c, 0),
                                    draws ? qm_draw(draws, first + j) : 0);
    }
}

/* Whether the elements of a run have scales of their own. */
static int is_each(enum qm_norm norm, const struct qm_shape *shape)
{
    return norm == QM_NORM_rank1 || (norm == QM_NORM_col && shape->rank == 2) ||
           (norm == QM_NORM_row && shape->rank == 1);
}

static void encode_al(const struct qm_codec *c, const float *x, int64_t n, const float *stat,
                      uint8_t *codes)
{
    float span, low;
    qm_al_numbers(stat, &span, &low);
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)qm_al_code(x[i], span, low, c->cb.n);
}

/* Two scales per element: the first division is done here, the second as of one scale. */
static void encode_pair(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                        int64_t n, const float *x, const float *stat, const struct qm_draws *draws,
                        uint8_t *codes)
{
    struct walk w;
    float first[PIECE], second[PIECE];
    for (walk_start(&w, shape, from, n); w.left > 0; walk_next(&w))
        for (int64_t j = 0; j < w.run;) {
            int64_t m = w.run - j < PIECE ? w.run - j : PIECE;
            const float *u = x;
            if (qm_pair_scales(c, shape, w.at, m, stat, first, second)) {
                for (int64_t i = 0; i < m; i++)
                    first[i] = x[i] / first[i];
                u = first;
            }
            encode_each(c, u, m, second, INFINITY, from, draws, codes);
            x += m, codes += m, from += m, j += m;
            w.at[shape->rank - 1] += m;
        }
}

static void encode_any(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                       int64_t n, const float *x, const float *stat, const struct qm_draws *draws,
                       uint8_t *codes)
{
    int64_t block, numel = qm_shape_numel(shape);
    struct walk w;
    enum qm_norm norm = norm_for(c, shape, &block);
    if (n == 0)
        return;
    switch (norm) {
    case QM_NORM_tensor: encode_run(c, x, n, stat[0], 0, from, draws, codes); break;
    case QM_NORM_block:
        for (int64_t i = 0; i < n;) {
            int64_t b = (from + i) / block, end = (b + 1) * block - from;
            int64_t m = (end < n ? end : n) - i;
            if (c->q.curve == QM_CURVE_allog)
                encode_al(c, x + i, m, stat + QM_AL_NUMBERS * b, codes + i);
            else
                encode_run(c, x + i, m, stat[b], (b + 1) * block > numel, from + i, draws,
                           codes + i);
            i += m;
        }
        break;
    case QM_NORM_id:
        for (int64_t i = 0; i < n; i++)
            codes[i] = code_unscaled(c, x[i], draws ? qm_draw(draws, from + i) : 0);
        break;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: encode_pair(c, shape, from, n, x, stat, draws, codes); break;
    default:
        for (walk_start(&w, shape, from, n); w.left > 0; walk_next(&w)) {
            if (is_each(norm, shape)) {
                const float *s = stat;
                float others = norm == QM_NORM_rank1 ? rank1_others(&w, &s) : INFINITY;
                s += w.at[shape->rank - 1];
                for (int64_t j = 0; j < w.run; j += PIECE) {
                    int64_t m = w.run - j < PIECE ? w.run - j : PIECE;
                    encode_each(c, x + j, m, s + j, others, from + j, draws, codes + j);
                }
            } else {
                encode_run(c, x, w.run, stat[norm == QM_NORM_row ? w.at[0] : w.at[1]], 0, from,
                           draws, codes);
            }
            x += w.run;
            codes += w.run;
            from += w.run;
        }
    }
}

void qm_encode_range(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                     int64_t n, const float *x, const float *stat, const struct qm_draws *draws,
                     uint8_t *codes)
{
    encode_any(c, shape, from, n, x, stat, draws, codes);
    if (c->q.scale.keep_sign)
        qm_lanes()->keep_sign(c, x, n, codes);
}

/* ---- decoding ----------------------------------------------------------------------------- */

static void finish(const struct qm_codec *c, int64_t n, float *out)
{
    if (c->cb.post != 1.0f)
        qm_lanes()->multiply(out, c->cb.post, n, out);
    if (c->q.curve == QM_CURVE_log2 || c->q.curve == QM_CURVE_sqrt)
        for (int64_t j = 0; j < n; j++)
            out[j] = qm_curve_from(c->q.curve, out[j]);
}

/* Unit values of up to PIECE codes. */
static void unit_values(const struct qm_codec *c, const uint8_t *codes, int64_t n, float *out)
{
    uint8_t position[PIECE];
    if (c->cb.is_float) {
        qm_narrow()->e4m3_to_float(codes, n, out);
        if (c->q.curve == QM_CURVE_softsign)
            for (int64_t j = 0; j < n; j++)
                out[j] = qm_curve_unit_from(c->q.curve, out[j]);
        return;
    }
    if (c->cb.is_permuted) {
        for (int64_t j = 0; j < n; j++)
            position[j] = c->cb.position_of[codes[j]];
        codes = position;
    }
    qm_lanes()->values(c, codes, n, out);
    if (c->q.curve == QM_CURVE_softsign)
        for (int64_t j = 0; j < n; j++)
            out[j] = qm_curve_unit_from(c->q.curve, out[j]);
}

static void decode_run(const struct qm_codec *c, const uint8_t *codes, int64_t n, float scale,
                       float *out)
{
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;
        unit_values(c, codes + i, m, out + i);
        if (c->q.norm != QM_NORM_id)
            qm_lanes()->multiply(out + i, scale, m, out + i);
        finish(c, m, out + i);
    }
}

static void decode_pair(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                        int64_t n, const uint8_t *codes, const float *scales, float *out)
{
    struct walk w;
    float first[PIECE], second[PIECE];
    for (walk_start(&w, shape, from, n); w.left > 0; walk_next(&w))
        for (int64_t j = 0; j < w.run;) {
            int64_t m = w.run - j < PIECE ? w.run - j : PIECE;
            int both = qm_pair_scales(c, shape, w.at, m, scales, first, second);
            unit_values(c, codes, m, out);
            qm_lanes()->scale_each(second, INFINITY, m, out);
            if (both)
                qm_lanes()->scale_each(first, INFINITY, m, out);
            finish(c, m, out);
            codes += m, out += m, j += m;
            w.at[shape->rank - 1] += m;
        }
}

void qm_decode_range(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                     int64_t n, const uint8_t *codes, const float *scales, float *out)
{
    int64_t block;
    struct walk w;
    enum qm_norm norm = norm_for(c, shape, &block);
    if (n == 0)
        return;
    switch (norm) {
    case QM_NORM_id: decode_run(c, codes, n, 1.0f, out); break;
    case QM_NORM_tensor: decode_run(c, codes, n, scales[0], out); break;
    case QM_NORM_block:
        for (int64_t i = 0; i < n;) {
            int64_t b = (from + i) / block, end = (b + 1) * block - from;
            int64_t m = (end < n ? end : n) - i;
            if (c->q.curve == QM_CURVE_allog)
                for (int64_t k = i; k < i + m; k++)
                    out[k] = qm_al_value(codes[k], scales[QM_AL_NUMBERS * b],
                                         scales[QM_AL_NUMBERS * b + 1], c->cb.n);
            else
                decode_run(c, codes + i, m, scales[b], out + i);
            i += m;
        }
        break;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: decode_pair(c, shape, from, n, codes, scales, out); break;
    default:
        for (walk_start(&w, shape, from, n); w.left > 0; walk_next(&w)) {
            if (is_each(norm, shape)) {
                const float *s = scales;
                float others = norm == QM_NORM_rank1 ? rank1_others(&w, &s) : INFINITY;
                s += w.at[shape->rank - 1];
                for (int64_t j = 0; j < w.run; j += PIECE) {
                    int64_t m = w.run - j < PIECE ? w.run - j : PIECE;
                    unit_values(c, codes + j, m, out + j);
                    qm_lanes()->scale_each(s + j, others, m, out + j);
                    finish(c, m, out + j);
                }
            } else {
                decode_run(c, codes, w.run, scales[norm == QM_NORM_row ? w.at[0] : w.at[1]], out);
            }
            codes += w.run;
            out += w.run;
        }
    }
}

qm_status qm_encode(const struct qm_codec *c, const struct qm_shape *shape, const float *x,
                    const struct qm_draws *draws, uint8_t *codes, float *scales)
{
    int64_t n = qm_shape_numel(shape), count = qm_scale_count(c, shape);
    QM_TRY(qm_codec_fits(c, shape));
    memset(scales, 0, sizeof *scales * (size_t)count);
    qm_fold(c, shape, 0, n, x, scales);
    qm_fold_again(c, shape, 0, n, x, scales);
    qm_encode_range(c, shape, 0, n, x, scales, draws, codes);
    qm_scales(c, shape, scales, scales);
    return QM_OK;
}

void qm_decode(const struct qm_codec *c, const struct qm_shape *shape, const uint8_t *codes,
               const float *scales, float *out)
{
    qm_decode_range(c, shape, 0, qm_shape_numel(shape), codes, scales, out);
}

/* ---- bytes --------------------------------------------------------------------------------- */

void qm_pack_range(const struct qm_codec *c, const uint8_t *codes, int64_t n, uint8_t *bytes)
{
    if (c->q.bits == 4 && c->q.pack != QM_PACK_byte)
        qm_lanes()->pack4(codes, n, c->q.pack == QM_PACK_hi, bytes);
    else
        qm_pack_codes(c->q.pack, c->q.bits, codes, n, bytes);
}

void qm_unpack_range(const struct qm_codec *c, const uint8_t *bytes, int64_t n, uint8_t *codes)
{
    if (c->q.bits == 4 && c->q.pack != QM_PACK_byte)
        qm_lanes()->unpack4(bytes, n, c->q.pack == QM_PACK_hi, codes);
    else
        qm_unpack_codes(c->q.pack, c->q.bits, bytes, n, codes);
}

/* ---- packed blocks ------------------------------------------------------------------------- */

static int has_lanes(enum qm_curve curve)
{
#define X(name) || curve == QM_CURVE_##name
    return 0 QM_LANES_CURVES(X);
#undef X
}

int qm_codec_is_fused(const struct qm_codec *c)
{
    const struct qm_scale_rule *r = &c->q.scale;
    return (c->q.bits == 4 || c->q.bits == 8) && c->q.norm == QM_NORM_block &&
           c->q.block % 2 == 0 && has_lanes(c->q.curve) && c->q.pack != QM_PACK_byte &&
           c->has_edges && c->cb.post == 1.0f && !r->nest &&
           (c->cb.is_float ? c->q.round == QM_ROUND_even : !c->cb.is_permuted) &&
           !(c->q.search == QM_SEARCH_arith && c->q.unit != QM_UNIT_div);
}

/* A block that the lanes leave out: NaN, Inf or zero in it, or a short one of recip_tail. */
void qm_encode_block(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                     float *scale)
{
    uint8_t codes[PIECE];
    float max = run_max(c, x, n);
    int is_short = n < c->q.block;
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;
        encode_run(c, x + i, m, max, is_short, i, NULL, codes);
        if (c->q.scale.keep_sign)
            qm_lanes()->keep_sign(c, x + i, m, codes);
        qm_pack_range(c, codes, m, packed + i * c->q.bits / 8);
    }
    *scale = divisor_of(c, max, is_short).stored;
}

void qm_encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                      float *scales)
{
    qm_lanes()->encode_blocks(c, x, n, packed, scales, qm_encode_block);
}

void qm_decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                      int64_t n, float *out)
{
    qm_lanes()->decode_blocks(c, packed, scales, n, out);
}

/* ---- searches by their own routines ---------------------------------------------------------- */

#define X(name) extern const struct qm_searches qm_searches_##name;
QM_ISA_LIST(X)
#undef X

const struct qm_searches *qm_searches(void)
{
    static const struct qm_searches *const table[] = {
#define X(name) &qm_searches_##name,
        QM_ISA_LIST(X)
#undef X
    };
    return table[qm_isa()];
}

void qm_search_grid_table(const struct qm_codec *c, uint8_t *table)
{
    int k = 0;
    for (int j = 0; j < 65536; j++) {
        float at = -1.0f + 2.0f * (float)j / 65535.0f;
        while (k + 1 < c->cb.n && 0.5f * (c->cb.value[k] + c->cb.value[k + 1]) < at)
            k++;
        table[j] = (uint8_t)k;
    }
}

struct qm_search_cost qm_search_cost(const struct qm_codec *c)
{
    int n = c->cb.n, levels = 0;
    while (1 << levels < n)
        levels++;
    switch (c->q.search) {
    case QM_SEARCH_scan: return (struct qm_search_cost){n, 4 * n};
    case QM_SEARCH_bisect: return (struct qm_search_cost){levels + 1, 4 * n};
    case QM_SEARCH_arith: return (struct qm_search_cost){2, 0};
    case QM_SEARCH_ladder:
    case QM_SEARCH_mids: return (struct qm_search_cost){n - 1, 4 * (n - 1)};
    case QM_SEARCH_argmin: return (struct qm_search_cost){n - 1, 4 * n};
    default: return (struct qm_search_cost){2, 65536};
    }
}
