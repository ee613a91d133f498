/* routine.c - Opens nearest-code routines and builds their claims. */
#include "experiments/prove/routine.h"

#include <stdlib.h>

#include "core/base/name.h"
#include "core/device/device_cuda.h"
#include "core/quant/block_numbers.h"
#include "core/quant/search_loops.h"
#include "core/quant/simd.h"
#include "experiments/check/decide.h"
#include "experiments/prove/device_codes.h"
#include "experiments/prove/prove.h"
#include "oracle/codebook/codebook.h"

static const char *const round_names[] = {
#define X(name, text, kind) #name,
    QM_ROUND_LIST(X)
#undef X
};

/* ---- claims ---------------------------------------------------------------------------------- */

static void decide_by_definition(const void *of, double y, int *low, int *high)
{
    qm_decider_range(of, y, y, low, high);
}

/* Builds the decisions that the definition allows; they change at thresholds and at ends
 * of zones. */
static qm_status claim_definition(const struct qm_decider *d, struct qm_decisions *out)
{
    double at[3 * 255];
    int n = 0, top = d->nan_position == d->n ? d->n + 2 : d->nan_position;
    for (int k = 0; k + 1 < d->n; k++) {
        at[n++] = d->cut[k].at;
        at[n++] = d->cut[k].low;
        at[n++] = d->cut[k].high;
    }
    QM_TRY(qm_decisions_build(decide_by_definition, d, at, n, 1, out));
    qm_decisions_nan(out, d->nan_position, top); /* float formats have a NaN for each sign */
    return QM_OK;
}

static void decide_by_edges(const void *of, double y, int *low, int *high)
{
    const struct qm_routine *r = of;
    int k = 0;
    while (k + 1 < r->codec.cb.n && (double)r->codec.edge[k] <= y)
        k++;
    *low = *high = k;
    if (y < (double)r->claims.low || y > (double)r->claims.high) {
        *low = 0;
        *high = QM_POSITIONS - 1;
    }
}

static qm_status claim_engine(struct qm_routine *r, struct qm_decisions *out)
{
    double at[257];
    int n = 0;
    at[n++] = (double)r->claims.low;
    at[n++] = (double)r->claims.high;
    for (int k = 0; k + 1 < r->codec.cb.n; k++)
        at[n++] = (double)r->codec.edge[k];
    return qm_decisions_build(decide_by_edges, r, at, n, QM_POSITIONS, out);
}

/* The value of each code at scale 1, by which the nearest is judged. */
static void decode_table(const struct qm_codebook *cb, float *value)
{
    for (int k = 0; k < cb->n; k++)
        value[cb->perm[k]] = cb->value[k] * cb->post;
}

/* Sets the unit range, the range of x / scale. */
static void set_range(struct qm_routine *r)
{
    const struct qm_codebook *cb = &r->codec.cb;
    r->claims.high = cb->over != 0.0f ? cb->over : rintf(1.0f / cb->gain);
    r->claims.low = r->q.sign ? -r->claims.high : 0.0f;
    qm_claims_zones(&r->claims);
}

/* Takes the values from the map's definition, which the table in use must equal, and builds the
 * claim of nearest. */
static qm_status claim_nearest(struct qm_routine *r, struct qm_decider *d)
{
    struct qm_quantizer plain = r->q;
    float value[256] = {0};
    int wrong, is_log = r->q.map == QM_MAP_log || r->q.map == QM_MAP_logf;
    plain.curve = QM_CURVE_none;
    decode_table(&r->codec.cb, value);
    QM_TRY(qm_decider_init(d, &plain, is_log ? NULL : value, &wrong));
    if (wrong >= 0)
        return qm_fail(QM_CHECK_FAILED, "code %d decodes to %a, its definition is %a", wrong,
                       (double)value[wrong], d->value[d->position_of[wrong]]);
    r->claims.n = d->n;
    memcpy(r->claims.value, d->value, sizeof d->value);
    set_range(r);
    return qm_decisions_nearest(d->value, d->n, &r->claims.right[QM_CLAIM_nearest]);
}

/* Replaces the values of the claim of nearest by those of another map, position by position. */
static qm_status claim_against(struct qm_routine *r, const char *against)
{
    struct qm_quantizer q;
    struct qm_codebook cb;
    QM_TRY(qm_map_parse(against, &q));
    qm_codebook_build(q.map, q.bits, q.sign, &cb);
    if (cb.n != r->claims.n)
        return qm_fail(QM_BAD_ARG, "map %s has %d entries, the routine's has %d", against, cb.n,
                       r->claims.n);
    for (int k = 0; k < cb.n; k++)
        r->claims.value[k] = (double)(cb.value[k] * cb.post);
    return qm_decisions_nearest(r->claims.value, cb.n, &r->claims.right[QM_CLAIM_nearest]);
}

/* ---- routines -------------------------------------------------------------------------------- */

qm_status qm_routine_open(struct qm_routine *r, const struct qm_quantizer *q, const char *against)
{
    struct qm_decider d;
    memset(r, 0, sizeof *r);
    r->q = *q;
    if (q->bits == 0)
        return qm_fail(QM_BAD_ARG, "a slot without codes has no nearest-code routine");
    if (qm_curve_numbers(q->curve) > 1)
        return qm_fail(
            QM_BAD_ARG,
            "codes of curves allog, qlog, expand and affine depend on numbers of the block, not "
            "on a unit value alone");
    if (qm_round_draws(q->round))
        return qm_fail(QM_BAD_ARG, "a round that draws is not a function of the value: see stoch:");
    if (qm_round_is_directed(q->round))
        return qm_fail(QM_BAD_ARG, "round %s is not meant to be nearest", round_names[q->round]);
    QM_TRY(qm_codec_init(&r->codec, q));
    QM_TRY(claim_nearest(r, &d));
    QM_TRY(claim_definition(&d, &r->claims.right[QM_CLAIM_definition]));
    for (int k = 0; k < 256; k++) /* the search loops give positions */
        r->claims.position_of[k] = (int16_t)k;
    if (q->norm != QM_NORM_id)
        QM_TRY(claim_engine(r, &r->claims.right[QM_CLAIM_engine]));
    if (against)
        QM_TRY(claim_against(r, against));
    if (q->search == QM_SEARCH_grid) {
        uint8_t *grid = malloc(65536);
        if (!grid)
            return qm_fail(QM_NO_MEMORY, "a grid");
        qm_search_grid_table(&r->codec, grid);
        r->grid = grid;
    }
    return QM_OK;
}

/* The ties of a round as qm_oracle_nearest takes them; NO_TIES: it is not meant to be nearest. */
enum { NO_TIES = -2 };
static int tie_of(enum qm_round round)
{
    switch (qm_round_kind(round)) {
    case QM_ROUND_TIES_UP: return 1;
    case QM_ROUND_TIES_DOWN: return -1;
    case QM_ROUND_TIES_EVEN: return 0;
    case QM_ROUND_TIES_AWAY: return 2;
    case QM_ROUND_DIRECTED:
    case QM_ROUND_DRAWN: break;
    }
    return NO_TIES;
}

/* Fails with the round words that say where ties go. */
static qm_status no_ties(enum qm_round round)
{
    char words[128] = "";
    for (int r = 0; r < QM_ROUND_COUNT; r++)
        if (tie_of((enum qm_round)r) != NO_TIES)
            snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s",
                     *words ? ", " : "", round_names[r]);
    return qm_fail(QM_BAD_ARG, "round %s is not nearest: ties go as one of %s says",
                   round_names[round], words);
}

/* The nearest position, with ties as the round word says; equal values are all allowed. */
static void decide_nearest(const void *of, double y, int *low, int *high)
{
    const struct qm_routine *r = of;
    const double *value = r->claims.value;
    *low = *high = qm_oracle_nearest(value, r->claims.n, y, tie_of(r->q.round));
    while (*low > 0 && value[*low - 1] == value[*low])
        --*low;
    while (*high + 1 < r->claims.n && value[*high + 1] == value[*high])
        ++*high;
}

/* Builds the definition of a foreign routine: nearest, with the ties of the round word if `ties`,
 * and the NaN position of the NaN word if `nan`; else any. */
static qm_status claim_rules(struct qm_routine *r, const struct qm_decider *d, int ties, int nan)
{
    struct qm_decisions *out = &r->claims.right[QM_CLAIM_definition];
    double at[255];
    for (int k = 0; k + 1 < d->n; k++)
        at[k] = 0.5 * (d->value[k] + d->value[k + 1]);
    if (ties)
        QM_TRY(qm_decisions_build(decide_nearest, r, at, d->n - 1, QM_POSITIONS, out));
    else
        *out = r->claims.right[QM_CLAIM_nearest];
    if (nan)
        qm_decisions_nan(out, d->nan_position,
                         d->nan_position == d->n ? d->n + 2 : d->nan_position);
    return QM_OK;
}

/* For a routine that gives stored codes.  Position n of a float format is -0, which is judged
 * as 0. */
static void stored_codes(struct qm_routine *r)
{
    const struct qm_codebook *cb = &r->codec.cb;
    for (int k = 0; k < 256; k++)
        r->claims.position_of[k] = -1;
    for (int k = 0; k < cb->n + (cb->is_float ? 3 : 0); k++)
        r->claims.position_of[cb->perm[k]] = (int16_t)(cb->is_float && k == cb->n ? cb->zero : k);
}

/* Runs the kernel on keys from .. to, all below 0 or all at least 0. */
static qm_status run_on_device(const struct qm_device *d, const struct qm_routine *r, int64_t from,
                               int64_t to, struct qm_code_runs *out)
{
    uint64_t first = from < 0 ? UINT64_C(0x80000000) - (uint64_t)(to + 1) : (uint64_t)from;
    return from > to ? QM_OK
                     : qm_codes_runs(d, &r->q, first & 0xffffffff, (uint64_t)(to - from + 1), out);
}

qm_status qm_routine_on_device(struct qm_routine *r, const char *device, int64_t from, int64_t to)
{
    static const struct qm_device *const devices[] = {&qm_device_cuda, &qm_device_emu};
    static const char *const names[] = {"cuda", "emu"};
    int which = qm_name_find(device, names, 2);
    if (which < 0)
        return qm_name_unknown("backend", device, names, 2);
    if (which == 1 && to - from >= INT64_C(1) << QM_PROVE_EMU_BITS)
        return qm_fail(QM_BAD_ARG, "backend emu takes at most 2^%d floats; say --range",
                       QM_PROVE_EMU_BITS);
    QM_TRY(devices[which]->probe());
    QM_TRY(run_on_device(devices[which], r, from > 0 ? from : 0, to, &r->runs));
    QM_TRY(run_on_device(devices[which], r, from, to < 0 ? to : -1, &r->runs));
    stored_codes(r);
    if (which == 0) { /* its own kernels too, the second time: a late fault is no proof */
        QM_TRY(qm_cuda_unload_idle());
        QM_TRY(qm_cuda_unload_idle());
    }
    return QM_OK;
}

qm_status qm_routine_foreign(struct qm_routine *r, const struct qm_quantizer *q, int ties, int nan)
{
    struct qm_codebook *cb = &r->codec.cb;
    struct qm_decider d;
    memset(r, 0, sizeof *r);
    r->q = *q;
    if (ties && tie_of(q->round) == NO_TIES)
        return no_ties(q->round);
    qm_codebook_build(q->map, q->bits, q->sign, cb);
    QM_TRY(claim_nearest(r, &d));
    if (ties || nan)
        QM_TRY(claim_rules(r, &d, ties, nan));
    stored_codes(r);
    return QM_OK;
}

void qm_routine_close(struct qm_routine *r)
{
    free((void *)r->grid);
    free(r->runs.change);
    r->runs = (struct qm_code_runs){0};
    r->grid = NULL;
}

char *qm_routine_print(const struct qm_routine *r, char *text)
{
    struct qm_quantizer q = r->q;
    char all[QM_QUANTIZER_TEXT], *block;
    q.norm = QM_NORM_block;
    q.block = 1;
    q.curve = QM_CURVE_none;
    q.pack = QM_PACK_lo;
    if (q.search != QM_SEARCH_arith || q.unit == QM_UNIT_recip_tail)
        q.unit = QM_UNIT_div;
    q.scale = (struct qm_scale_rule){.zero = -1, .least = r->q.scale.least, .nan = r->q.scale.nan};
    qm_quantizer_print(&q, all);
    block = strstr(all, "/block:1");
    char *pack = strstr(all, "/lo");
    if (pack && (pack[3] == '/' || !pack[3])) /* 4 bits print their packing */
        memmove(pack, pack + 3, strlen(pack + 3) + 1);
    snprintf(text, QM_QUANTIZER_TEXT, "%.*s%s", (int)(block - all), all,
             block + strlen("/block:1"));
    return text;
}

qm_status qm_map_parse(const char *text, struct qm_quantizer *out)
{
    struct qm_quantizer q = {.norm = QM_NORM_block,
                             .block = 128,
                             .search = QM_SEARCH_scan,
                             .round = QM_ROUND_mid,
                             .scale = {.zero = -1}};
    int forms = 0;
    QM_TRY(qm_quantizer_set(&q, "map", text));
    if (strchr(text, ':')) {
        if (!qm_map_allows(q.map, q.bits, q.sign))
            return qm_fail(QM_BAD_ARG, "map %s does not exist", text);
        *out = q;
        return QM_OK;
    }
    for (int bits = 2; bits <= 8; bits++)
        for (int sign = 0; sign < 2; sign++)
            if (qm_map_allows(q.map, bits, sign)) {
                q.bits = bits;
                q.sign = sign;
                forms++;
            }
    if (forms != 1)
        return qm_fail(QM_BAD_ARG, "map '%s' wants its width and sign, as %s:4s or %s:8u", text,
                       text, text);
    *out = q;
    return QM_OK;
}
