/* codec.c - Builds a codec: its tables, and the edges between its codes. */
#include <string.h>

#include "core/base/half.h"
#include "core/quant/quantizer.h"

/* Unit values never leave [-1 - ulp, 1 + ulp] (map int: the range of its codes, as [-8, 8]), and
 * search argmin is not monotone where distances overflow the mantissa.  So edges are sought below
 * this limit. */
float qm_codec_limit(const struct qm_codec *c)
{
    float top = c->cb.value[c->cb.n - 1];
    return top > 2.0f ? 2.0f * top : 4.0f;
}

int qm_code_of(const struct qm_codec *c, float y, uint32_t draw)
{
    return qm_position(&c->q, &c->cb, y, draw);
}

/* Whether positions by steps equal positions by edges.  Both are monotone in y, so it suffices to
 * compare them on both sides of every edge. */
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

/* Arranges the edges as the loops of core/quant/simd.c read them. */
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
    c->edge_lines.usable = 0;
    if (c->cb.n == 256)
        qm_edge_lines_build(c->edge, &c->edge_lines);
    c->edge_lut.usable = 0;
    if (c->cb.n <= 16)
        qm_edge_lut_build(c->edge, c->cb.n, &c->edge_lut);
    c->has_steps = steps_hold(c);
}

void qm_codec_rebuild(struct qm_codec *c)
{
    float limit = qm_codec_limit(c);
    c->n_negative = 0; /* values ascend, and codes are positions if the scale word is keepsign */
    while (c->n_negative < c->cb.n && signbit(c->cb.value[c->n_negative]))
        c->n_negative++;
    /* Under a cap a quotient may be Inf, which passes the padding of a list that is not full. */
    int is_full = c->cb.n == 16 || c->cb.n == 256;
    c->has_edges = !qm_round_draws(c->q.round) && c->q.norm != QM_NORM_id &&
                   c->q.curve != QM_CURVE_qlog && c->q.curve != QM_CURVE_affine &&
                   (c->q.scale.cap == 0.0f || is_full);
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

/* Tables take far longer to build than to copy, and plans of one recipe need equal ones, so each
 * thread keeps the codecs that it built last. */
qm_status qm_codec_init(struct qm_codec *c, const struct qm_quantizer *q)
{
    enum { KEPT = 4 };
    static _Thread_local struct qm_codec kept[KEPT];
    static _Thread_local int next;
    for (int i = 0; i < 2 * KEPT && q->bits; i++) { /* first by bytes, which is faster */
        const struct qm_codec *k = &kept[i % KEPT];
        if (i < KEPT ? memcmp(&k->q, q, sizeof *q) == 0
                     : k->q.bits && qm_quantizer_equal(&k->q, q)) {
            *c = *k;
            return QM_OK;
        }
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
