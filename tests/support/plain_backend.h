/* plain_backend.h - A backend of plain loops, with bugs to switch on, for tests of the judge. */
#ifndef QM_SUPPORT_PLAIN_BACKEND_H
#define QM_SUPPORT_PLAIN_BACKEND_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/quant/adaptive_log.h"
#include "core/recipe/backend.h"

enum bug {
    NONE,
    NIBBLES_SWAPPED,
    EARLIER_STEP,
    STALE_SCALE,
    PREVIOUS_SCALE,
    LAST_CODE_MISSING,
    LAST_NOT_IN_MAXIMUM,
    WRONG_VALUE,
    VALUE_OFF_BY_ULPS,
    DECODE_PAST_END,
    LAST_NOT_WRITTEN,
    GRADIENT_CHANGED,
    NOT_REPEATABLE,
    BIASED_DRAWS,
    DENORMALS_FLUSHED,
    NAN_SPREADS,
    INF_IGNORED,
    ZERO_BLOCK_KEPT,
    AL_SPAN_OFF,
    AL_LOW_OFF,
    AL_ONE_VALUE, /* low is not below high where a block has one value */
    AL_TRUNCATED,
    AL_STEPS, /* one step too many in the range */
    AL_ZERO,  /* the code next to 0 becomes 0 */
    AL_VALUE
};

static enum bug bug;

struct plain {
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n;
    int n_slots, steps;
    struct qm_codec c[QM_MAX_SLOTS];
    float *x[QM_MAX_SLOTS], *scales[QM_MAX_SLOTS];
    uint8_t *codes[QM_MAX_SLOTS];
};

static void plain_close(void *plan)
{
    struct plain *p = plan;
    for (int i = 0; i < p->n_slots; i++) {
        free(p->x[i]);
        free(p->scales[i]);
        free(p->codes[i]);
    }
    free(p);
}

static qm_status plain_open(const struct qm_recipe *r, const struct qm_shape *shape,
                            uint32_t tensor, void **plan)
{
    struct plain *p = calloc(1, sizeof *p);
    (void)tensor;
    assert_non_null(p);
    p->r = *r;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->n_slots = r->rule->n_slots;
    for (int i = 0; i < p->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(r, i, shape);
        assert_int_equal(qm_codec_init(&p->c[i], &q), QM_OK);
        if (q.bits && (bug == WRONG_VALUE || bug == VALUE_OFF_BY_ULPS)) {
            p->c[i].cb.value[5] *= bug == WRONG_VALUE ? 1.01f : 1.0f + 0x1p-21f;
            qm_codec_rebuild(&p->c[i]);
        }
        int64_t count = qm_scale_count(&p->c[i], shape);
        p->x[i] = calloc((size_t)p->n + 1, sizeof(float));
        p->scales[i] = calloc((size_t)count + 1, sizeof(float));
        p->codes[i] = malloc((size_t)p->n + 1);
        memset(p->codes[i], r->init_code[i], (size_t)p->n + 1);
        for (int64_t k = 0; k < count; k++)
            p->scales[i][k] = r->init_scale[i];
    }
    *plan = p;
    return QM_OK;
}

static float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? 0.0f : x; }

/* Plants the bugs of curve allog, block by block. */
static void al_encode(struct plain *p, int i)
{
    const struct qm_codec *c = &p->c[i];
    for (int64_t k = 0; k < p->n; k++) {
        float *s = &p->scales[i][QM_ADAPTIVE_LOG_NUMBERS * (k / c->q.block)], x = p->x[i][k];
        float y = (qm_adaptive_log_log2(x) - s[1]) / s[0] * (float)(c->cb.n - 2);
        if (k % c->q.block == 0 && bug == AL_SPAN_OFF)
            s[0] *= 1.0f + 0x1p-19f;
        if (k % c->q.block == 0 && bug == AL_LOW_OFF)
            s[1] += 1e-4f;
        if (k % c->q.block == 0 && bug == AL_ONE_VALUE && s[0] == 1.0f) {
            s[1] += 1.0f;
            s[0] = 1e-12f;
        }
        if (x > 0.0f && bug == AL_TRUNCATED)
            p->codes[i][k] = (uint8_t)(1.0f + floorf(y));
        if (x > 0.0f && bug == AL_STEPS)
            p->codes[i][k] = (uint8_t)rintf(y * (float)(c->cb.n - 1) / (float)(c->cb.n - 2));
        if (bug == AL_ZERO && p->codes[i][k] == 1)
            p->codes[i][k] = 0;
    }
}

static void plain_encode(struct plain *p, int i, int64_t t, uint64_t seed)
{
    const struct qm_codec *c = &p->c[i];
    struct qm_draws d = qm_draws_for(seed, t, 2, i ? QM_ROLE_slot1 : QM_ROLE_slot0);
    int64_t count = qm_scale_count(c, &p->shape), block = c->q.block ? c->q.block : p->n, b;
    float *stat = calloc((size_t)count + 1, sizeof(float)), *x = p->x[i], old = 0.0f;
    float *seen = malloc(sizeof(float) * (size_t)(p->n + 1));
    uint8_t last = p->n > 0 ? p->codes[i][p->n - 1] : 0;
    memcpy(seen, x, sizeof(float) * (size_t)p->n);
    for (int64_t k = 0; k < p->n; k++) {
        if (bug == LAST_NOT_IN_MAXIMUM && (k % block == block - 1 || k == p->n - 1))
            seen[k] = 0.0f;
        if (bug == INF_IGNORED && isinf(seen[k]))
            seen[k] = 0.0f;
    }
    qm_fold(c, &p->shape, 0, p->n, seen, stat);
    if (bug == PREVIOUS_SCALE)
        for (b = count - 1; b > 0; b--)
            stat[b] = stat[b - 1];
    for (b = 0; bug == NAN_SPREADS && b + 1 < count; b++)
        if (isnan(stat[b + 1]))
            stat[b] = NAN;
    if (count > 1)
        old = p->scales[i][1];
    if (bug == BIASED_DRAWS) {
        for (int64_t k = 0; k < p->n; k++) { /* the larger code of two draws */
            uint8_t a, e;
            struct qm_draws other = d;
            other.seed++;
            int64_t from = k / block * block;
            if (k % block == 0) {
                int64_t n = p->n - from < block ? p->n - from : block;
                uint8_t *two = malloc((size_t)n);
                qm_encode_range(c, &p->shape, from, n, x + from, stat, &d, p->codes[i] + from);
                qm_encode_range(c, &p->shape, from, n, x + from, stat, &other, two);
                for (int64_t j = 0; j < n; j++) {
                    a = p->codes[i][from + j];
                    e = two[j];
                    p->codes[i][from + j] = a > e ? a : e;
                }
                free(two);
            }
        }
    } else {
        qm_encode_range(c, &p->shape, 0, p->n, x, stat, &d, p->codes[i]);
    }
    qm_scales(c, &p->shape, stat, p->scales[i]);
    if (bug == STALE_SCALE && count > 1)
        p->scales[i][1] = old;
    if (c->q.curve == QM_CURVE_allog)
        al_encode(p, i);
    for (int64_t k = 0; bug == NIBBLES_SWAPPED && k + 1 < p->n; k += 2) {
        uint8_t first = p->codes[i][k];
        p->codes[i][k] = p->codes[i][k + 1];
        p->codes[i][k + 1] = first;
    }
    if (bug == LAST_CODE_MISSING && p->n > 0)
        p->codes[i][p->n - 1] = last;
    if (bug == ZERO_BLOCK_KEPT)
        for (b = 0; b < count; b++)
            if (stat[b] == 0.0f)
                p->scales[i][b] = 1.0f;
    free(stat);
    free(seen);
}

static qm_status plain_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g,
                            int64_t t, uint64_t seed)
{
    struct plain *p = plan;
    struct qm_rule_step st;
    float *wide = malloc(sizeof(float) * (size_t)(p->n + 1)), *out = param->data;
    static int calls;
    qm_to_float(g->data, g->dtype, 0, p->n, wide);
    p->r.rule->prepare(&p->r.hyper, bug == EARLIER_STEP && t > 1 ? t - 1 : t, &st);
    for (int i = 0; i < p->n_slots && p->n == 1 && p->r.rule->mark_absent; i++)
        if (p->c[i].q.bits == 0)
            p->r.rule->mark_absent(&st, i);
    for (int i = 0; i < p->n_slots; i++)
        if (p->c[i].q.bits)
            qm_decode(&p->c[i], &p->shape, p->codes[i], p->scales[i], p->x[i]);
    p->r.rule->elementwise->block(&st, p->n, out, wide, p->x);
    for (int i = 0; i < p->n_slots; i++) {
        for (int64_t k = 0; k < p->n && bug == DENORMALS_FLUSHED; k++)
            p->x[i][k] = flushed(p->x[i][k]);
        if (p->c[i].q.bits)
            plain_encode(p, i, t, seed);
    }
    if (bug == GRADIENT_CHANGED && p->n > 0)
        ((float *)g->data)[p->n - 1] = 1.0f;
    if (bug == NOT_REPEATABLE && p->n > 0 && calls++ % 2)
        out[p->n / 2] = nextafterf(out[p->n / 2], 1e9f);
    free(wide);
    return QM_OK;
}

static qm_status plain_decode(void *plan, int slot, float *out)
{
    struct plain *p = plan;
    if (p->c[slot].q.bits)
        qm_decode(&p->c[slot], &p->shape, p->codes[slot], p->scales[slot], p->x[slot]);
    for (int64_t k = 0; bug == AL_VALUE && k < p->n; k++)
        p->x[slot][k] *= p->c[slot].q.curve == QM_CURVE_allog ? 1.0f + 0x1p-15f : 1.0f;
    memcpy(out, p->x[slot],
           sizeof(float) * (size_t)(p->n - (bug == LAST_NOT_WRITTEN && p->n > 256)));
    if (bug == DECODE_PAST_END && p->n > 256)
        out[p->n] = 0.0f;
    return QM_OK;
}

static qm_status plain_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    struct plain *p = plan;
    int64_t count = qm_scale_count(&p->c[slot], &p->shape);
    if (codes)
        memcpy(codes, p->codes[slot], (size_t)p->n);
    if (scales && p->c[slot].q.bits)
        memcpy(scales, p->scales[slot], sizeof(float) * (size_t)count);
    else if (scales)
        memcpy(scales, p->x[slot], sizeof(float) * (size_t)p->n);
    return QM_OK;
}

static qm_status plain_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct plain *p = plan;
    memcpy(p->codes[slot], codes, (size_t)p->n);
    memcpy(p->scales[slot], scales, sizeof(float) * (size_t)qm_scale_count(&p->c[slot], &p->shape));
    return QM_OK;
}

static qm_status plain_probe(void) { return QM_OK; }
static int64_t plain_bytes(const void *plan)
{
    (void)plan;
    return 0;
}

static const struct qm_backend plain = {
    .name = "plain",
    .probe = plain_probe,
    .open = plain_open,
    .step = plain_step,
    .decode = plain_decode,
    .save = plain_save,
    .load = plain_load,
    .bytes = plain_bytes,
    .close = plain_close,
};

#endif
