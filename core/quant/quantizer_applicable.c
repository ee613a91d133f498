/* quantizer_applicable.c - Says which compositions of the axes make sense. */
#include "core/quant/expand.h"
#include "core/quant/quantizer.h"

#include <stdio.h>
#include <string.h>

/* Whether the search picks a code by itself, so that no round follows. */
static int decides_alone(enum qm_search s)
{
    return s == QM_SEARCH_ladder || s == QM_SEARCH_mids || s == QM_SEARCH_argmin ||
           s == QM_SEARCH_grid || s == QM_SEARCH_lower;
}

static int has_one_inner_zero(const struct qm_codebook *cb)
{
    int zeros = 0;
    for (int k = 0; k < cb->n; k++)
        zeros += cb->value[k] == 0.0f;
    return zeros == 1 && cb->value[0] < 0.0f && cb->value[cb->n - 1] > 0.0f;
}

/* The reasons against a composition, by axis.  The first reason found is reported. */
static qm_status search_fits(const struct qm_quantizer *q, const struct qm_codebook *cb)
{
    if (q->search == QM_SEARCH_arith && cb->steps == 0.0f)
        return qm_fail(QM_BAD_ARG, "search arith needs an evenly spaced map with a step; %s is not",
                       qm_map_names[q->map]);
    if (q->search == QM_SEARCH_ladder && !cb->has_cuts)
        return qm_fail(QM_BAD_ARG, "no thresholds are published for map %s: ladder does not apply",
                       qm_map_names[q->map]);
    if (decides_alone(q->search) && q->round != QM_ROUND_mid)
        return qm_fail(QM_BAD_ARG, "search %s decides by itself and composes with round mid only",
                       qm_search_names[q->search]);
    if (q->search == QM_SEARCH_grid &&
        (q->map == QM_MAP_int || q->map == QM_MAP_intd || cb->is_float))
        return qm_fail(QM_BAD_ARG, "search grid covers [-1, 1]; map %s is in units of its own",
                       qm_map_names[q->map]);
    if ((q->map == QM_MAP_fp4 || q->map == QM_MAP_fp4s || q->map == QM_MAP_nvfp4) &&
        q->search != QM_SEARCH_ladder && q->search != QM_SEARCH_mids &&
        q->search != QM_SEARCH_argmin)
        return qm_fail(QM_BAD_ARG, "map %s has two zeros", qm_map_names[q->map]);
    return QM_OK;
}

/* As search_fits; where another search would do, the reason names all that would. */
static qm_status search_applies(const struct qm_quantizer *q, const struct qm_codebook *cb)
{
    char reason[160], others[160] = "";
    qm_status st = search_fits(q, cb);
    if (st == QM_OK)
        return QM_OK;
    snprintf(reason, sizeof reason, "%s", qm_message());
    for (int i = 0; i < QM_SEARCH_COUNT; i++) {
        struct qm_quantizer other = *q;
        size_t n = strlen(others);
        other.search = (enum qm_search)i;
        if (search_fits(&other, cb) == QM_OK)
            snprintf(others + n, sizeof others - n, "%s%s", n ? ", " : "", qm_search_names[i]);
    }
    return *others ? qm_fail(st, "%s; set search to one of %s", reason, others)
                   : qm_fail(st, "%s", reason);
}

/* Whether a quantizer multiplies by a reciprocal or has a scale word that only a usual scale has:
 * none of them goes with the curves of block_numbers.h. */
static int has_usual_words(const struct qm_quantizer *q)
{
    const struct qm_scale_rule *r = &q->scale;
    return q->unit != QM_UNIT_div || r->guard != 0.0f || r->cap != 0.0f || r->zero >= 0 ||
           r->least > 0 || r->max_skips_nan || r->nan != QM_NAN_low || r->keep_sign || r->f16 ||
           r->nest;
}

static qm_status expand_applies(const struct qm_quantizer *q)
{
    if (q->curve != QM_CURVE_expand)
        return QM_OK;
    if (q->expand > QM_EXPAND_MOST)
        return qm_fail(QM_BAD_ARG, "expand:N wants N of at most %d", QM_EXPAND_MOST);
    if (q->map != QM_MAP_e4m3)
        return qm_fail(QM_BAD_ARG, "curve expand fits ranges to map e4m3, not to %s",
                       qm_map_names[q->map]);
    if (q->norm != QM_NORM_block || q->block > QM_EXPAND_BLOCK || q->scale.floor != 0.0f ||
        has_usual_words(q))
        return qm_fail(QM_BAD_ARG,
                       "curve expand has numbers of its own: it composes with norm block:N, N at "
                       "most %d, and of the scale words plus:V",
                       QM_EXPAND_BLOCK);
    return QM_OK;
}

static qm_status affine_applies(const struct qm_quantizer *q)
{
    int is_affine = q->curve == QM_CURVE_affine;
    struct qm_quantizer other = *q;
    if ((q->map == QM_MAP_affine) != is_affine)
        return qm_fail(QM_BAD_ARG, "map affine and curve affine need each other");
    if (q->scale.f16 == QM_F16_bf16 && !is_affine)
        return qm_fail(QM_BAD_ARG, "word bf16 is for the ends of blocks of curve affine");
    if (q->scale.f16 == QM_F16_bf16)
        other.scale.f16 = QM_F16_none;
    if (is_affine && ((q->norm != QM_NORM_block && q->norm != QM_NORM_divblock) ||
                      q->search != QM_SEARCH_arith || qm_round_draws(q->round) ||
                      q->scale.plus != 0.0 || q->scale.floor != 0.0f || has_usual_words(&other)))
        return qm_fail(QM_BAD_ARG, "curve affine has numbers of its own: it composes with norm "
                                   "block or divblock, search arith, a round that does not draw, "
                                   "and of the scale words bf16");
    return QM_OK;
}

static qm_status curve_applies(const struct qm_quantizer *q, const struct qm_codebook *cb)
{
    if ((q->map == QM_MAP_log || q->map == QM_MAP_logf) != (q->curve == QM_CURVE_log2))
        return qm_fail(QM_BAD_ARG, "map log and curve log2 (or norm logblock) need each other");
    if (q->map == QM_MAP_log && q->search != QM_SEARCH_arith)
        return qm_fail(QM_BAD_ARG, "map log is in code units: use search arith");
    if (q->search == QM_SEARCH_lower && !has_one_inner_zero(cb))
        return qm_fail(QM_BAD_ARG,
                       "search lower keeps signs: map %s has no single zero between two "
                       "signs",
                       qm_map_names[q->map]);
    if ((q->map == QM_MAP_al) != (q->curve == QM_CURVE_allog))
        return qm_fail(QM_BAD_ARG, "map al and curve allog need each other");
    if (q->curve == QM_CURVE_allog &&
        (q->norm != QM_NORM_block || q->search != QM_SEARCH_arith || q->round != QM_ROUND_even ||
         q->scale.plus != 0.0 || has_usual_words(q)))
        return qm_fail(QM_BAD_ARG,
                       "curve allog has scales of its own: it composes with norm block, "
                       "search arith, round even and of the scale words floor:V");
    if ((q->map == QM_MAP_qlog) != (q->curve == QM_CURVE_qlog))
        return qm_fail(QM_BAD_ARG, "map qlog and curve qlog need each other");
    if ((q->scale.quantile != 0.0f) != (q->curve == QM_CURVE_qlog) || q->scale.quantile > 1.0f)
        return qm_fail(QM_BAD_ARG,
                       "curve qlog wants quantile:V, 0 < V <= 1; no other curve has it");
    int rounds =
        q->round == QM_ROUND_even || q->round == QM_ROUND_dither || q->round == QM_ROUND_bernoulli;
    if (q->curve == QM_CURVE_qlog &&
        ((q->norm != QM_NORM_block && q->norm != QM_NORM_divblock) ||
         q->search != QM_SEARCH_arith || !rounds || q->scale.plus != 0.0 || has_usual_words(q)))
        return qm_fail(
            QM_BAD_ARG,
            "curve qlog has numbers of its own: it composes with norm block or divblock, "
            "search arith, round even, dither or bernoulli, and of the scale words "
            "floor:V and quantile:V");
    QM_TRY(expand_applies(q));
    QM_TRY(affine_applies(q));
    if ((q->curve == QM_CURVE_log2 || q->curve == QM_CURVE_sqrt) && q->sign)
        return qm_fail(QM_BAD_ARG, "curve %s is for unsigned maps", qm_curve_names[q->curve]);
    return QM_OK;
}

static qm_status norm_applies(const struct qm_quantizer *q, const struct qm_codebook *cb)
{
    if (qm_norm_has_block(q->norm) && q->block < (q->norm != QM_NORM_divblock))
        return qm_fail(QM_BAD_ARG, "norm %s wants a size of at least 1", qm_norm_names[q->norm]);
    if (q->norm == QM_NORM_rowcol || q->norm == QM_NORM_colrow) {
        const struct qm_scale_rule *s = &q->scale;
        if (q->curve != QM_CURVE_none || q->unit != QM_UNIT_div || cb->gain != 1.0f ||
            s->floor != 0.0f || s->plus != 0.0 || s->guard != 0.0f || s->cap != 0.0f ||
            s->zero >= 0 || s->max_skips_nan || s->f16 || s->nest)
            return qm_fail(QM_BAD_ARG,
                           "norm %s divides by two plain maxima: no curve, reciprocal, gain or "
                           "scale word but nantop and nanzero goes with it",
                           qm_norm_names[q->norm]);
    }
    if (q->norm == QM_NORM_rank1block && (q->curve != QM_CURVE_none || q->scale.max_skips_nan))
        return qm_fail(QM_BAD_ARG,
                       "norm rank1block takes maxima of x itself: no curve, no maxskip");
    if (q->norm != QM_NORM_block && q->unit == QM_UNIT_recip_tail)
        return qm_fail(QM_BAD_ARG, "unit recip_tail is about a short last block: norm block only");
    return QM_OK;
}

static qm_status scale_applies(const struct qm_quantizer *q, const struct qm_codebook *cb)
{
    if (q->scale.zero >= 1 << q->bits)
        return qm_fail(QM_BAD_ARG, "zero:%d is no code of %d bits", q->scale.zero, q->bits);
    if (q->scale.least >= cb->n)
        return qm_fail(QM_BAD_ARG, "least:%d is beyond the %d codes of the map", q->scale.least,
                       cb->n);
    if (q->scale.least > 0 && q->search == QM_SEARCH_arith && q->unit != QM_UNIT_div)
        return qm_fail(QM_BAD_ARG, "least with search arith wants unit div");
    if (q->round == QM_ROUND_dither && q->search != QM_SEARCH_arith)
        return qm_fail(QM_BAD_ARG, "round dither adds noise to steps: search arith only");
    if (q->scale.keep_sign && (!q->sign || cb->is_permuted || q->scale.zero >= 0))
        return qm_fail(QM_BAD_ARG, "keepsign wants a signed map in code order, and no zero:C");
    if (q->pack == QM_PACK_nibbles && q->bits != 3)
        return qm_fail(QM_BAD_ARG, "pack nibbles is for codes of 3 bits; at 4 bits it is hi");
    if (q->norm == QM_NORM_id && (q->scale.nest || q->scale.f16))
        return qm_fail(QM_BAD_ARG, "norm id has no scale to store");
    return QM_OK;
}

/* A table takes far longer to build than to find again, and a recipe is asked about once for every
 * hyper-parameter that is drawn for it, so each thread keeps the quantizers that it accepted last.
 * Equal bytes are equal quantizers. */
qm_status qm_quantizer_applicable(const struct qm_quantizer *q)
{
    enum { KEPT = 8 };
    static _Thread_local struct qm_quantizer kept[KEPT];
    static _Thread_local int next;
    struct qm_codebook cb;
    if (q->bits == 0)
        return QM_OK;
    for (int i = 0; i < KEPT; i++)
        if (memcmp(&kept[i], q, sizeof *q) == 0)
            return QM_OK;
    if (!qm_map_allows(q->map, q->bits, q->sign))
        return qm_fail(QM_BAD_ARG, "map %s does not exist at %d bits %s", qm_map_names[q->map],
                       q->bits, q->sign ? "signed" : "unsigned");
    qm_codebook_build(q->map, q->bits, q->sign, &cb);
    QM_TRY(search_applies(q, &cb));
    QM_TRY(curve_applies(q, &cb));
    QM_TRY(norm_applies(q, &cb));
    QM_TRY(scale_applies(q, &cb));
    kept[next++ % KEPT] = *q;
    return QM_OK;
}
