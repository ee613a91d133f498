/* test_check.c - the judge: what is right passes, and every planted bug is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/quant/adaptive_log.h"
#include "experiments/check/judge.h"
#include "oracle/oracle.h"

/* ---- a plain backend with bugs to switch on ------------------------------------------------ */

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
    AL_STEPS, /* one more than there are */
    AL_ZERO,  /* what is nearest to low becomes 0 */
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

/* Curve allog's own bugs, block by block. */
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
        for (int64_t k = 0; k < p->n; k++) { /* the largest of two draws */
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

static const struct qm_backend plain = {"plain",    plain_probe,  plain_open,
                                        plain_step, plain_decode, plain_save,
                                        plain_load, plain_bytes,  plain_close};

/* ---- running the judge --------------------------------------------------------------------- */

/* Cases first, first + stride, ...; stops at the first failing one where asked.  0: this recipe
 * cannot be judged. */
static int judge(const struct qm_backend *backend, const char *recipe,
                 void (*alter)(struct qm_recipe *), uint64_t seed, int first, int stride,
                 int stop_early, struct qm_tally *t)
{
    struct qm_subject s = {.backend = backend, .alter = alter};
    qm_status st = qm_recipe_parse(recipe, &s.recipe);
    if (st == QM_OK)
        st = qm_judge_begin(&s, t);
    if (st == QM_SKIPPED)
        return 0;
    if (st != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    for (int i = first; stop_early && i < qm_case_count() && !t->failed_cases; i += stride) {
        struct qm_case c = qm_case_at(i);
        if (qm_judge_case(&s, &c, seed, t) != QM_OK)
            fail_msg("%s: %s", recipe, qm_message());
    }
    if (!stop_early && qm_judge_list(&s, first, stride, seed, t, NULL, NULL) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    qm_judge_end(&s, t);
    return 1;
}

static void assert_passes(const struct qm_backend *backend, const char *recipe,
                          void (*alter)(struct qm_recipe *), uint64_t seed, int first, int stride)
{
    struct qm_tally t;
    if (!judge(backend, recipe, alter, seed, first, stride, 0, &t))
        return;
    if (!qm_tally_passed(&t))
        fail_msg("%s, seed %llu: false alarm: %s: %s", recipe, (unsigned long long)seed,
                 t.n_findings ? t.finding[0].name : "nothing judged",
                 t.n_findings ? t.finding[0].text : "");
    assert_true(t.verdict[QM_VERDICT_OFF_BY_ONE] == 0 && t.verdict[QM_VERDICT_WRONG] == 0);
    assert_true(t.worst_ratio <= 1.0);
}

/* Planted bugs that no case showed. */
static int escaped;

/* The default regime is the whole list with the default seed. */
static void assert_caught(const struct qm_backend *backend, const char *recipe,
                          void (*alter)(struct qm_recipe *), const char *what, const char *text)
{
    struct qm_tally t;
    if (!judge(backend, recipe, alter, 20240501, 0, 1, 1, &t))
        fail_msg("%s: %s", recipe, qm_message());
    if (t.failed_cases == 0) {
        print_message("%s: not caught: %s\n", recipe, what);
        escaped++;
        return;
    }
    if (text && !strstr(t.finding[0].text, text))
        fail_msg("%s: %s: expected '%s' in: %s", recipe, what, text, t.finding[0].text);
}

static const char *const more_recipes[] = {
    "adamw4_lpmm,exp_avg.round=stoch,exp_avg_sq.round=stoch",
    "adamw4_lpmm,exp_avg=nf4:4s/rank1/bisect/mid/hi",
    "adamw4_lpmm_fused,exp_avg=de:4s/rank1block:24/bisect/mid/lo",
    "adamw8_lpmm,exp_avg=lint:6s/block:64/arith/dither/byte",
    "adamw4_ao,grad=bf16,exp_avg_sq=lin:4u/tensor/scan/near/lo",
    "adamw8_ao,grad=f16,exp_avg_sq=log:8u/logblock:256/arith/even/floor:1e-12",
    "adamw8_bnb,exp_avg=dyn:8s/block:2048/grid/mid/recip/maxskip/zero:0",
    "ema4_nf4,exp_avg=fp4:4s/block:64/ladder/mid/hi",
    "ema4_nf4,exp_avg=fp4s:4s/block:64/argmin/mid/hi",
    "ema4_nf4,exp_avg=nf4:4s/row/ladder/mid/hi",
    "ema4_nf4,exp_avg=dyn:4s/col/mids/mid/hi",
    "ema4_nf4,exp_avg=lint:3s/block:32/arith/near/hi/f16",
    "ema4_nf4,exp_avg=dyn:8s/block:64/bisect/even/softsign",
    "adamw4_ao,exp_avg_sq=lin0:4u/block:128/bisect/near/hi/sqrt",
    "ema4_nf4,exp_avg=dyn:8s/block:64/mids/mid/nest:256/maxskip",
    "ema4_nf4,exp_avg=lin0:4s/block:64/bisect/away/lo",
    "adamw4_ao,exp_avg_sq=de0:4u/rank1/argmin/mid/hi",
    "ema4_nf4,exp_avg=int:4s/block:64/arith/even/recip/cap:0.5",
    "ema4_nf4,exp_avg=nf4:4s/id/bisect/mid/hi",
    "ema4_nf4,exp_avg=nf4:4s/block:7/bisect/mid/hi/zero:7/nanzero",
    "adamw4_ao,lr=0.1,beta1=0.5,eps=0.01,maximize=1",
    "adamw4_lpmm,exp_avg.scale=least:2",
    "adamw4_lpmm,param=bf16/near",
    "adamw4_ao,param=e4m3/stoch",
    "adamw8_ao,param=f16/stoch",
    "adamw_f32,param=bf16/kahan",
    "adamw_f32,param=f16/kahan",
    "adamw_f32,param=f16/ecc8",
    "lion8_fused,param=f16/ecc16",
    "adafactor_hf,beta1=0.9,relative_step=1,scale_parameter=1",
    "adafactor_hf,param=e4m3/near",
    "adafactor_torch,factored=0,maximize=1",
    "apollo_f32,svd=1,rank=3",
    "apollo_f32,scale_front=1,scale=4",
    "fira_f32,correct_bias=0,rank=2",
    "lamb_bnb,weight_decay=0.1,max_unorm=0.01",
    "lars_bnb,eps=0.1,weight_decay=0.01",
    "lars_bnb_cpu,max_unorm=0",
    "adamw4_lpmm,exp_avg.norm=rowcol",
    "adamw4_lpmm,exp_avg.norm=colrow,exp_avg_sq=lin:4u/rowcol/bisect/mid/lo",
    "ema4_nf4,exp_avg=nf4:4s/rowcol/argmin/mid/hi",
    "ema4_nf4,exp_avg=dyn:8s/colrow/bisect/stoch",
    "adamw8_ao,exp_avg_sq=al:8u/block:256/arith/even/allog",
    "adamw8_ao,exp_avg_sq=al:8u/block:1/arith/even/allog",
    "adafactor8_024_torch,row_var=al:8u/block:128/arith/even/allog",
};

static void test_no_false_alarm(void **state)
{
    (void)state;
    bug = NONE;
    for (int v = 0; v < qm_variant_count(); v++)
        for (int seed = 1; seed <= 3; seed++)
            assert_passes(&qm_backend_cpu, qm_variant_at(v)->name, NULL, (uint64_t)seed,
                          (v + 4 * seed) % 11, 11);
    for (size_t i = 0; i < sizeof more_recipes / sizeof *more_recipes; i++)
        assert_passes(&qm_backend_cpu, more_recipes[i], NULL, 5 + i, (int)i % 17, 17);
    for (int v = 0; v < qm_variant_count(); v++) {
        struct qm_recipe r;
        assert_int_equal(qm_recipe_from(qm_variant_at(v), &r), QM_OK);
        if (r.rule->elementwise && r.param.format == QM_PARAM_f32)
            assert_passes(&plain, qm_variant_at(v)->name, NULL, 11, v % 29, 29);
    }
}

/* Coverage: every verdict that may occur does, codes are really judged, ties are met. */
static void test_not_vacuous(void **state)
{
    int judged = 0;
    (void)state;
    for (int v = 0; v < qm_variant_count(); v++) {
        struct qm_tally t;
        struct qm_recipe r;
        if (!judge(&qm_backend_cpu, qm_variant_at(v)->name, NULL, 3, 4, 11, 0, &t))
            continue;
        judged++;
        assert_int_equal(qm_recipe_parse(qm_variant_at(v)->name, &r), QM_OK);
        assert_true(t.worst_ratio > 0.25); /* the bounds are not far away */
        /* float16 overflows early; of a rule with products of means one element takes all along */
        assert_true(t.unbounded < t.judged / (!r.rule->elementwise  ? 5
                                              : r.slot[0].scale.f16 ? 10
                                                                    : 20));
        if (r.slot[0].bits == 0)
            continue;
        assert_true(t.verdict[QM_VERDICT_EQUAL] > 50000);
        /* ties are planted between the values of a map, not of a curve */
        /* nor on what is no average of the gradient */
        if (r.rule->elementwise && r.slot[0].curve == QM_CURVE_none &&
            t.verdict[QM_VERDICT_BOUNDARY] < 20)
            fail_msg("%s: %lld BOUNDARY", qm_variant_at(v)->name,
                     (long long)t.verdict[QM_VERDICT_BOUNDARY]);
        if (r.slot[0].search == QM_SEARCH_grid || r.param.write >= QM_WRITE_kahan)
            /* a table's entries are 3e-5 wide; residuals are as fine as the error of the rule */
            continue;
        /* keepsign leaves the code of what may be of either sign open, f16 the divisor */
        if (t.verdict[QM_VERDICT_BOUNDARY] >=
            t.verdict[QM_VERDICT_EQUAL] /
                (r.slot[0].scale.keep_sign || r.slot[0].scale.f16 ? 20 : 50))
            fail_msg("%s: %lld BOUNDARY beside %lld EQUAL", qm_variant_at(v)->name,
                     (long long)t.verdict[QM_VERDICT_BOUNDARY],
                     (long long)t.verdict[QM_VERDICT_EQUAL]);
        assert_int_equal(t.deviations > 0, r.slot[0].search == QM_SEARCH_ladder);
    }
    assert_int_equal(judged, qm_variant_count());
}

/* ---- mutants: a backend with a bug --------------------------------------------------------- */

#define AL "adamw8_ao,exp_avg=f32,exp_avg_sq=al:8u/block:256/arith/even/allog"

static void test_backend_mutants(void **state)
{
    static const struct {
        enum bug bug;
        const char *recipe, *text;
    } mutants[] = {
        {NIBBLES_SWAPPED, "adamw4_ao", "has code"},
        {NIBBLES_SWAPPED, "ema4_uniform", "has code"},
        {EARLIER_STEP, "adamw4_ao", "parameter"},
        {EARLIER_STEP, "adamw_f32", "parameter"},
        {STALE_SCALE, "adamw8_bnb", "scale 1"},
        {STALE_SCALE, "adamw4_lpmm", "scale 1"},
        {PREVIOUS_SCALE, "ema4_nf4", "scale"},
        {PREVIOUS_SCALE, "adamw4_lpmm", "scale"},
        {LAST_CODE_MISSING, "adamw4_ao", "has code"},
        {LAST_CODE_MISSING, "adamw8_ao", "has code"},
        {LAST_NOT_IN_MAXIMUM, "adamw4_ao", "scale"},
        {LAST_NOT_IN_MAXIMUM, "ema4_nf4a8", "scale"},
        {LAST_NOT_IN_MAXIMUM, "adamw4_lpmm", "scale"},
        {WRONG_VALUE, "adamw8_ao", "code 5 decodes"},
        {WRONG_VALUE, "ema4_nf4", "code 5 decodes"},
        {VALUE_OFF_BY_ULPS, "adamw4_lpmm", "code 5 decodes"},
        {VALUE_OFF_BY_ULPS, "ema4_nf4a8", "code 5 decodes"},
        {DECODE_PAST_END, "adamw4_ao", "outside a buffer"},
        {LAST_NOT_WRITTEN, "adamw8_bnb", "not written"},
        {GRADIENT_CHANGED, "adamw4_ao", "gradient"},
        {NOT_REPEATABLE, "adamw4_ao", "two threads"},
        {BIASED_DRAWS, "adamw4_lpmm_group,exp_avg.round=stoch", "stochastic rounding"},
        {DENORMALS_FLUSHED, "adamw_f32", NULL},
        {DENORMALS_FLUSHED, "adamw4_lpmm_group", NULL},
        {NAN_SPREADS, "adamw4_ao", "scale"},
        {INF_IGNORED, "adamw8_bnb", "want NaN or Inf"},
        {ZERO_BLOCK_KEPT, "adamw4_lpmm_group", "scale"},
        {STALE_SCALE, AL, "least logarithm"},
        {PREVIOUS_SCALE, AL, "scale"},
        {LAST_NOT_IN_MAXIMUM, AL, "scale"},
        {LAST_CODE_MISSING, AL, "has code"},
        {NIBBLES_SWAPPED, AL, "has code"},
        {NAN_SPREADS, AL, "scale"},
        {AL_SPAN_OFF, AL, "span"},
        {AL_LOW_OFF, AL, "least logarithm"},
        {AL_ONE_VALUE, AL, "least logarithm"},
        {AL_TRUNCATED, AL, "has code"},
        {AL_STEPS, AL, "has code"},
        {AL_ZERO, AL, "has code 0"},
        {AL_VALUE, AL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        char what[64];
        snprintf(what, sizeof what, "backend mutant %zu", i);
        bug = mutants[i].bug;
        assert_caught(&plain, mutants[i].recipe, NULL, what, mutants[i].text);
    }
    bug = NONE;
    assert_int_equal(escaped, 0);
}

/* ---- mutants: run as another recipe than judged ---------------------------------------------- */

static void clip_off(struct qm_recipe *r) { r->hyper.clip *= 1.0001; }
static void norm_off(struct qm_recipe *r) { r->hyper.max_unorm *= 1.00001; }
static void margin_off(struct qm_recipe *r) { r->hyper.margin += 1e-5; }
static void scale_off(struct qm_recipe *r) { r->hyper.scale *= 1.00001; }
static void limit_off(struct qm_recipe *r) { r->hyper.limiter = 0; }
static void regularizer_off(struct qm_recipe *r) { r->hyper.eps1 *= 4.0; }
static void least_scale_off(struct qm_recipe *r) { r->hyper.eps2 *= 1.001; }
static void beta3_off(struct qm_recipe *r) { r->hyper.beta3 *= 0.9999; }
static void alpha_off(struct qm_recipe *r) { r->hyper.alpha *= 1.00001; }
static void eps_off(struct qm_recipe *r) { r->hyper.eps *= 1.5; }
static void beta1_off(struct qm_recipe *r) { r->hyper.beta1 *= 0.99999; }
static void beta2_off(struct qm_recipe *r) { r->hyper.beta2 *= 0.99999; }
static void momentum_off(struct qm_recipe *r) { r->hyper.momentum *= 0.99999; }
static void decay_exponent_off(struct qm_recipe *r) { r->hyper.beta2_decay = -0.79; }
static void write_near(struct qm_recipe *r) { r->param.write = QM_WRITE_near; }
static void write_stoch(struct qm_recipe *r) { r->param.write = QM_WRITE_stoch; }
static void sign_lost(struct qm_recipe *r) { r->slot[0].scale.keep_sign = 0; }
static void least_lost(struct qm_recipe *r) { r->slot[0].scale.least = 0; }
static void no_decay(struct qm_recipe *r) { r->hyper.weight_decay = 0.0; }
static void beta2_for_m(struct qm_recipe *r) { r->hyper.beta1 = r->hyper.beta2; }
static void beta1_for_v(struct qm_recipe *r) { r->hyper.beta2 = r->hyper.beta1; }
static void eps_larger(struct qm_recipe *r) { r->hyper.eps *= 2.0; }
static void other_lr(struct qm_recipe *r) { r->hyper.lr *= 1.000001; }
static void coupled(struct qm_recipe *r) { r->rule = qm_rule_find("adam_ao"); }
static void unfused(struct qm_recipe *r) { r->rule = qm_rule_find("adamw_bnb"); }
static void round_floor0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_floor; }
static void round_floor1(struct qm_recipe *r) { r->slot[1].round = QM_ROUND_floor; }
static void round_ceil0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_ceil; }
static void round_mid0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_mid; }
static void round_mid1(struct qm_recipe *r) { r->slot[1].round = QM_ROUND_mid; }
static void round_near0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_near; }
static void round_near1(struct qm_recipe *r) { r->slot[1].round = QM_ROUND_near; }
static void round_even0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_even; }
static void round_away0(struct qm_recipe *r) { r->slot[0].round = QM_ROUND_away; }
static void search_ladder(struct qm_recipe *r) { r->slot[0].search = QM_SEARCH_ladder; }
static void search_bisect(struct qm_recipe *r) { r->slot[0].search = QM_SEARCH_bisect; }
static void search_grid(struct qm_recipe *r) { r->slot[0].search = QM_SEARCH_grid; }
static void scale_f16(struct qm_recipe *r) { r->slot[0].scale.f16 = 1; }
static void no_floor(struct qm_recipe *r) { r->slot[0].scale.floor = 0.0f; }
static void nan_top(struct qm_recipe *r) { r->slot[0].scale.nan = QM_NAN_top; }
static void max_skips(struct qm_recipe *r) { r->slot[0].scale.max_skips_nan = 1; }
static void reciprocal(struct qm_recipe *r) { r->slot[0].unit = QM_UNIT_recip; }
static void other_order(struct qm_recipe *r) { r->slot[0].norm = QM_NORM_colrow; }
static void one_scale(struct qm_recipe *r) { r->slot[0].norm = QM_NORM_rank1; }
static void canonical_nf4(struct qm_recipe *r) { r->slot[0].map = QM_MAP_nf4; }
static void lin_zero(struct qm_recipe *r) { r->slot[1].map = QM_MAP_lin0; }

/* AdamW in lpmm's order with sqrt(vhat + eps). */
static void eps_inside_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                             float *const *slot)
{
    const float *c = s->c;
    float *m = slot[0], *v = slot[1];
    for (int64_t i = 0; i < n; i++) {
        float old = p[i];
        float *at[2] = {m + i, v + i};
        qm_rule_find("adamw_lpmm")->elementwise->block(s, 1, p + i, g + i, at);
        p[i] = old * c[0] + (c[7] * m[i]) / sqrtf(v[i] / (c[5] * c[5]) + c[6]);
    }
}

static void eps_inside(struct qm_recipe *r)
{
    static struct qm_elementwise_ops ops;
    static struct qm_rule rule;
    rule = *r->rule;
    ops = *rule.elementwise;
    ops.block = eps_inside_block;
    rule.elementwise = &ops;
    r->rule = &rule;
}

/* The update from the state before the step. */
static void stale_moment_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                               float *const *slot)
{
    const float *c = s->c;
    float *m = slot[0], *v = slot[1];
    for (int64_t i = 0; i < n; i++) {
        float old_p = p[i], old_m = m[i];
        float *at[2] = {m + i, v + i};
        qm_rule_find("adamw_lpmm")->elementwise->block(s, 1, p + i, g + i, at);
        p[i] = old_p * c[0] + (c[7] * old_m) / (sqrtf(v[i]) / c[5] + c[6]);
    }
}

static void stale_moment(struct qm_recipe *r)
{
    static struct qm_elementwise_ops ops;
    static struct qm_rule rule;
    rule = *r->rule;
    ops = *rule.elementwise;
    ops.block = stale_moment_block;
    rule.elementwise = &ops;
    r->rule = &rule;
}

static void test_recipe_mutants(void **state)
{
    static const struct {
        const char *what, *recipe;
        void (*alter)(struct qm_recipe *r);
        const char *text;
    } mutants[] = {
        {"truncates", "adamw4_ao", round_floor0, "has code"},
        {"truncates", "adamw4_lpmm", round_floor1, "has code"},
        {"truncates", "ema4_uniform", round_floor0, "has code"},
        {"rounds up", "ema4_nf4", round_ceil0, "has code"},
        {"rows and columns in the other order", "adamw4_lpmm,exp_avg.norm=rowcol", other_order,
         NULL},
        {"the smaller scale for two", "adamw4_lpmm,exp_avg.norm=rowcol", one_scale, NULL},
        {"truncates", "adamw4_lpmm,exp_avg.norm=rowcol", round_floor0, "has code"},
        {"eps inside the root", "adamw4_lpmm_group", eps_inside, "parameter"},
        {"eps twice as large", "adamw_f32", eps_larger, "parameter"},
        {"update from the old moment", "adamw4_lpmm", stale_moment, "parameter"},
        {"coupled decay", "adamw4_ao", coupled, NULL},
        {"decay missing", "adamw4_lpmm", no_decay, "parameter"},
        {"decay missing", "adamw_f32", no_decay, "parameter"},
        {"learning rate 1e-6 larger", "adamw8_bnb", other_lr, "parameter"},
        {"beta2 for the first moment", "adamw8_ao", beta2_for_m, "exp_avg: "},
        {"beta1 for the second moment", "adamw4_ao", beta1_for_v, "exp_avg_sq: "},
        {"f16 scale", "adamw4_ao", scale_f16, "scale"},
        {"f16 scale", "ema4_nf4", scale_f16, "scale"},
        {"ladder for nearest", "ema4_nf4,exp_avg.map=nf4a8", search_ladder, "has code"},
        {"nearest for ladder", "ema4_nf4a8", search_bisect, "has code"},
        {"table of 65,536 for nearest", "adamw8_ao,exp_avg.round=mid", search_grid, "has code"},
        {"ties down for up, dyn", "adamw4_ao", round_mid0, "exp_avg: "},
        {"ties down for up, lin", "adamw4_ao", round_mid1, "exp_avg_sq: "},
        {"ties up for down, de", "adamw4_lpmm_group", round_near0, "exp_avg: "},
        {"ties up for down, lin", "adamw4_lpmm_group", round_near1, "exp_avg_sq: "},
        {"ties up for down, lin by rank 1", "adamw4_lpmm", round_near1, "exp_avg_sq: "},
        {"ties up for down, nf4", "ema4_nf4", round_near0, "has code"},
        {"ties down for up, 8 bits", "adamw8_ao", round_mid0, "has code"},
        {"ties to even for up", "adamw4_ao", round_even0, "has code"},
        {"ties away for up", "adamw4_ao", round_away0, "has code"},
        {"ties up for even", "ema4_uniform", round_near0, "has code"},
        {"ties away for even", "ema4_uniform", round_away0, "has code"},
        {"reciprocal for division", "ema4_nf4", reciprocal, "has code"},
        {"no floor under the scale", "adamw4_ao", no_floor, "scale"},
        {"NaN to the top code", "adamw4_ao", nan_top, "has code"},
        {"NaN left out of the maximum", "ema4_nf4", max_skips, "want NaN or Inf"},
        {"another table", "ema4_nf4a8,exp_avg.search=bisect", canonical_nf4, "decodes to"},
        {"a zero code", "adamw4_lpmm", lin_zero, "decodes to"},
        {"the sign not kept", "adamw8_bnb_cuda", sign_lost, "has code"},
        {"codes below the least", "adamw4_lpmm,exp_avg.scale=least:2", least_lost, "has code"},
        {"bf16 to nearest for stochastic", "adamw4_ao_bf16sr", write_near, "stochastic"},
        {"bf16 stochastic for nearest", "adamw8_ao_bf16", write_stoch, "is stored as"},
        {"16 bits stochastic for nearest", "adamw_f32,param=f16/near", write_stoch, "is stored as"},
        {"learning rate 1e-6 larger beside a residual", "flash_adamw", other_lr, "residual"},
        {"learning rate 1e-6 larger beside a residual", "lion8_ecc16", other_lr, "residual"},
        {"no decay beside a residual", "flash_sgdw,weight_decay=0.1", no_decay, NULL},
        {"a smaller clip", "adafactor_hf", clip_off, "parameter"},
        {"a smaller clip", "adafactor_torch", clip_off, "parameter"},
        {"a smaller clip", "adafactor8_026", clip_off, "parameter"},
        {"a smaller clip", "came_f32", clip_off, NULL},
        {"a smaller clip", "came8_026,clip=0.5", clip_off, NULL},
        {"another regularizer", "adafactor8_026_torch,eps1=1e-6", regularizer_off, NULL},
        {"another least scale", "adafactor_hf,scale_parameter=1,eps2=2", least_scale_off, NULL},
        {"another schedule", "adafactor_hf", decay_exponent_off, NULL},
        {"another schedule", "adafactor8_022", decay_exponent_off, NULL},
        {"beta3", "came_f32", beta3_off, "res_"},
        {"beta3", "came8_024", beta3_off, "conf_"},
        {"beta3", "ademamix8_bnb", beta3_off, "exp_avg_slow"},
        {"alpha", "ademamix8_bnb", alpha_off, "parameter"},
        {"eps", "apollo_f32", eps_off, NULL},
        {"scale", "apollo_mini_f32", scale_off, "parameter"},
        {"the limiter's margin", "apollo_f32", margin_off, NULL},
        {"the limiter's margin", "fira_f32", margin_off, NULL},
        {"scale", "fira_f32", scale_off, "parameter"},
        {"the limiter's margin", "apollo8_026", margin_off, NULL},
        {"a limiter", "adafactor8_026_torch,limiter=1", limit_off, NULL},
        {"beta1", "apollo8_026", beta1_off, "exp_avg"},
        {"a longer step", "lamb_bnb,max_unorm=0.01", norm_off, "parameter"},
        {"a longer step", "lamb_bnb_cpu,max_unorm=0.01", norm_off, "parameter"},
        {"a longer step", "lars_bnb", norm_off, "parameter"},
        {"a longer step", "lars_bnb_cpu", norm_off, "parameter"},
        {"beta2", "rmsprop8_bnb", beta2_off, "square_avg"},
        {"beta2", "lion8_bnb", beta2_off, "exp_avg"},
        {"eps", "adagrad8_bnb", eps_off, "parameter"},
        {"beta2", "adamw8_bnb_cuda", beta2_off, "exp_avg_sq"},
        {"momentum", "sgdm8_bnb", momentum_off, "momentum_buffer"},
        {"beta2", "adamw4_lpmm_factor", beta2_off, "exp_avg_sq"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++)
        assert_caught(&qm_backend_cpu, mutants[i].recipe, mutants[i].alter, mutants[i].what,
                      mutants[i].text);
    assert_int_equal(escaped, 0);
}

/* ---- re-orderings: found unless declared ------------------------------------------------------ */

/* AdamW as a kernel may have it: reciprocals instead of divisions. */
static void recip_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                        float *const *slot)
{
    const float *c = s->c;
    for (int64_t i = 0; i < n; i++) {
        float old = p[i], *at[2] = {slot[0] + i, slot[1] + i};
        qm_rule_find("adamw")->elementwise->block(s, 1, p + i, g + i, at);
        float den = sqrtf(at[1][0]) * (1.0f / c[5]) + c[6];
        p[i] = old * c[0] + (c[7] * at[0][0]) * (1.0f / den);
    }
}

static void by_reciprocals(struct qm_recipe *r)
{
    static struct qm_elementwise_ops ops;
    static struct qm_rule rule;
    rule = *r->rule;
    ops = *rule.elementwise;
    ops.block = recip_block;
    rule.elementwise = &ops;
    r->rule = &rule;
}

/* The root off by as much as 7 ulp. */
static void rough_block(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                        float *const *slot)
{
    const float *c = s->c;
    for (int64_t i = 0; i < n; i++) {
        float old = p[i], *at[2] = {slot[0] + i, slot[1] + i};
        qm_rule_find("adamw")->elementwise->block(s, 1, p + i, g + i, at);
        float root = sqrtf(at[1][0]);
        root = root >= 1.17549435e-38f ? qm_float(qm_bits(root) & ~7u) : root;
        p[i] = old * c[0] + (c[7] * at[0][0]) / (root / c[5] + c[6]);
    }
}

static void by_rough_roots(struct qm_recipe *r)
{
    static struct qm_elementwise_ops ops;
    static struct qm_rule rule;
    rule = *r->rule;
    ops = *rule.elementwise;
    ops.block = rough_block;
    rule.elementwise = &ops;
    r->rule = &rule;
}

/* In float32, halves first. */
static float tree(const float *x, const float *y, float by, int64_t n)
{
    if (n == 1)
        return (*x - *y * by) * (*x - *y * by);
    return n < 1 ? 0.0f : tree(x, y, by, n / 2) + tree(x + n / 2, y + n / 2, by, n - n / 2);
}

/* LARS of bitsandbytes with norms by such sums. */
static qm_status tree_apply(const struct qm_tensor_rule_args *w)
{
    const float *c = w->s->c, *b = w->slot[0];
    int64_t n = qm_shape_numel(w->shape);
    float most = (float)w->s->hyper->max_unorm * sqrtf(tree(w->p, w->p, 0.0f, n)) + c[6];
    float norm = sqrtf(tree(b, w->p, c[1], n)), scale = norm > most ? most / norm : 1.0f;
    for (int64_t i = 0; i < n; i++)
        w->p[i] = w->p[i] + scale * (c[7] * b[i]);
    return QM_OK;
}

static void by_trees(struct qm_recipe *r)
{
    static struct qm_tensor_ops ops;
    static struct qm_rule rule;
    rule = *r->rule;
    ops = *rule.tensor;
    ops.apply = tree_apply;
    rule.tensor = &ops;
    r->rule = &rule;
}

static int64_t failures(const char *recipe, void (*alter)(struct qm_recipe *), struct qm_reorder o)
{
    struct qm_subject s = {.backend = &qm_backend_cpu, .alter = alter, .reorder = o};
    struct qm_tally t;
    assert_int_equal(qm_recipe_parse(recipe, &s.recipe), QM_OK);
    assert_int_equal(qm_judge_begin(&s, &t), QM_OK);
    assert_int_equal(qm_judge_list(&s, 0, 1, 20240501, &t, NULL, NULL), QM_OK);
    qm_judge_end(&s, &t);
    if (t.n_findings)
        print_message("    %s: %.100s\n", recipe, t.finding[0].text);
    return t.failed_cases;
}

/* Fused or not is the same mathematics: no alarm. */
static void test_benign_orders_pass(void **state)
{
    const struct qm_reorder none = {0}, recip = {.recip = 1}, rough = {.rsqrt_ulp = 8.0},
                            sums = {.tree = 1};
    (void)state;
    for (int seed = 1; seed <= 3; seed++)
        assert_passes(&qm_backend_cpu, "adamw_f32", unfused, (uint64_t)seed, seed, 5);
    assert_true(failures("adamw_f32", by_rough_roots, none) > 0);
    assert_int_equal(failures("adamw_f32", by_rough_roots, rough), 0);
    assert_int_equal(failures("adamw_f32", by_reciprocals, recip), 0);
    assert_true(failures("ema4_nf4", reciprocal, none) > 0);
    assert_int_equal(failures("ema4_nf4", reciprocal, recip), 0);
    assert_true(failures("lars_bnb", by_trees, none) > 0);
    assert_int_equal(failures("lars_bnb", by_trees, sums), 0);
}

/* Rules that no variant uses, with 4-bit states. */
static void test_every_rule_passes(void **state)
{
    int judged = 0;
    (void)state;
    for (int k = 0; k < qm_rule_count(); k++) {
        const struct qm_rule *rule = qm_rule_at(k);
        if (rule->n_slots > 2 || !rule->elementwise)
            continue;
        struct qm_variant v = {.name = rule->name,
                               .rule = rule->name,
                               .hyper = qm_hyper_default(),
                               .slot = {{.quantizer = "dyn:4s/block:128/bisect/near/hi"},
                                        {.quantizer = "lin:4u/block:64/bisect/mid/lo"}}};
        for (int i = 0; i < rule->n_slots; i++)
            v.slot[i].name = rule->slot[i];
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            struct qm_subject s = {.backend = &qm_backend_cpu};
            struct qm_tally t;
            v.hyper.nesterov = nesterov;
            v.hyper.maximize = nesterov;
            assert_int_equal(qm_recipe_from(&v, &s.recipe), QM_OK);
            if (qm_judge_begin(&s, &t) == QM_SKIPPED)
                continue;
            judged++;
            for (int i = 7; i < qm_case_count(); i += 17) {
                struct qm_case c = qm_case_at(i);
                assert_int_equal(qm_judge_case(&s, &c, 9, &t), QM_OK);
            }
            if (!qm_tally_passed(&t))
                fail_msg("%s: %s: %s", rule->name, t.finding[0].name, t.finding[0].text);
        }
    }
    assert_true(judged >= 16);
}

static void test_what_is_skipped(void **state)
{
    struct qm_subject s = {.backend = &qm_backend_cpu};
    struct qm_tally t;
    (void)state;
    assert_int_equal(qm_recipe_parse("adamw_f32", &s.recipe), QM_OK);
    struct qm_rule own = *s.recipe.rule; /* of a family that no reference is known of */
    own.family = "homemade";
    s.recipe.rule = &own;
    assert_int_equal(qm_judge_begin(&s, &t), QM_SKIPPED);
    assert_non_null(strstr(qm_message(), "homemade"));
}

/* ---- parameters of 16 bits that are rounded within a step, too --------------------------------- */

/* As the recipe is judged: with another rule, or another order of its own rule. */
static int64_t rounded(const char *recipe, const char *rule, unsigned order_off, unsigned order_on,
                       void (*alter)(struct qm_recipe *))
{
    struct qm_subject s = {.backend = &qm_backend_cpu, .alter = alter};
    struct qm_tally *t = malloc(sizeof *t);
    struct qm_rule own;
    assert_int_equal(qm_recipe_parse(recipe, &s.recipe), QM_OK);
    own = rule ? *qm_rule_find(rule) : *s.recipe.rule;
    own.order = (own.order & ~order_off) | order_on;
    s.recipe.rule = &own;
    assert_int_equal(qm_judge_begin(&s, t), QM_OK);
    assert_int_equal(qm_judge_list(&s, 0, 5, 20240501, t, NULL, NULL), QM_OK);
    qm_judge_end(&s, t);
    int64_t failed = t->failed_cases;
    assert_true(t->judged > 500000);
    free(t);
    return failed;
}

static void as_fused(struct qm_recipe *r) { r->rule = qm_rule_find("lion8_fused"); }
static void as_unfused(struct qm_recipe *r) { r->rule = qm_rule_find("lion8_unfused"); }

/* Rounding once where twice is documented, twice where once is, and a factor that is not rounded: each is
 * seen; what is documented passes. */
static void test_rounded_between(void **state)
{
    (void)state;
    static const char *const lion[] = {"lion8_unfused,param=bf16/near",
                                       "lion8_unfused,param=f16/stoch"};
    static const char *const came[] = {"came_f32,param=bf16/near", "came_f32,param=f16/near"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rounded(lion[i], NULL, 0, 0, NULL), 0);
        assert_int_equal(rounded(lion[i], "lion8_cpu", 0, 0, NULL), 0);
        assert_true(rounded(lion[i], NULL, 0, 0, as_fused) > 0);
        assert_true(rounded(lion[i], "lion8_cpu", 0, 0, as_unfused) > 0);
        assert_true(rounded(lion[i], NULL, QM_ORDER_rounds, 0, NULL) > 0);
        assert_int_equal(rounded(came[i], NULL, 0, 0, NULL), 0);
        assert_true(rounded(came[i], NULL, QM_ORDER_rounds, 0, NULL) > 0);
        assert_true(rounded("lion8_fused,param=bf16/near", NULL, 0, QM_ORDER_rounds, NULL) > 0);
    }
    assert_int_equal(rounded("came_f32,param=bf16/kahan", NULL, 0, 0, NULL), 0);
}

/* ---- errors beside those of float32 ----------------------------------------------------------- */

/* Errors of known size: 2^-10 of every number beside 2^-20 of it; steps without either are left out. */
static void test_rmse(void **state)
{
    struct qm_rmse r = {0};
    const double want[4] = {1.0, -2.0, 4.0, 0.0}, none[4] = {0.0};
    float near[4], far[4], exact[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        exact[i] = (float)want[i];
        near[i] = (float)(want[i] * (1.0 + 0x1p-20));
        far[i] = (float)(want[i] * (1.0 + 0x1p-10));
    }
    assert_true(isnan(qm_rmse_ratio(&r)));
    qm_rmse_add(&r, far, near, want, 4);
    qm_rmse_add(&r, exact, near, want, 4);
    qm_rmse_add(&r, far, exact, want, 4);
    qm_rmse_add(&r, far, near, none, 4);
    assert_int_equal(r.steps, 1);
    assert_float_equal(qm_rmse_ratio(&r), 1024.0, 1e-9);
    assert_float_equal(qm_rmse_judged(&r), 0x1p-10, 1e-15);
    qm_rmse_add(&r, near, near, want, 4); /* geometric mean of 1024 and 1 */
    assert_float_equal(qm_rmse_ratio(&r), 32.0, 1e-9);
    assert_float_equal(r.worst, 1024.0, 1e-9);
}

/* Float32 is its own baseline; 4-bit states cost the parameter nothing and themselves five digits; a
 * decay left out, parameters of 16 bits and codes that are read back show in the parameter. */
static void test_rmse_of_variants(void **state)
{
    static const struct {
        const char *recipe;
        void (*alter)(struct qm_recipe *r);
        double least, most; /* of the parameter's ratio */
        double state;       /* of the first slot's, at least; 1: exactly */
    } rows[] = {
        {"adamw_f32", NULL, 1.0, 1.0, 1.0},   {"came_f32", NULL, 1.0, 1.0, 1.0},
        {"adamw4_ao", NULL, 1.0, 1.0, 1e5},   {"adamw_f32", no_decay, 100.0, 1e6, 1.0},
        {"lion8_ecc8", NULL, 10.0, 1e3, 1e3}, {"adafactor8_024", NULL, 100.0, 1e6, 0.0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const char *const cases[] = {"61x67/normal/default/t1/forced",
                                            "53x47/normal/wd/t1000000/forced"};
        struct qm_subject s = {.backend = &qm_backend_cpu, .alter = rows[i].alter};
        struct qm_tally t;
        assert_int_equal(qm_recipe_parse(rows[i].recipe, &s.recipe), QM_OK);
        assert_int_equal(qm_judge_begin(&s, &t), QM_OK);
        for (int k = 0; k < 2; k++) {
            struct qm_case c;
            assert_int_equal(qm_case_parse(cases[k], &c), QM_OK);
            assert_int_equal(qm_judge_case(&s, &c, 3, &t), QM_OK);
        }
        const struct qm_rmse *p = &t.rmse[QM_MAX_SLOTS];
        double ratio = qm_rmse_ratio(p), first = qm_rmse_ratio(&t.rmse[0]);
        assert_int_equal(p->steps, 2 * QM_CHECK_STEPS);
        if (!(ratio >= rows[i].least && ratio <= rows[i].most))
            fail_msg("%s: ratio of the parameter %g", rows[i].recipe, ratio);
        if (rows[i].state == 1.0 ? first != 1.0 : first < rows[i].state)
            fail_msg("%s: ratio of the first state %g", rows[i].recipe, first);
    }
}

/* Whatever knows maximize is caught when it does not turn the gradient; by the regular list. */
static void minimizes(struct qm_recipe *r) { r->hyper.maximize = 0; }

static void test_maximize(void **state)
{
    static const char *const recipes[] = {"adamw4_ao",       "adamw8_lpmm", "adamw8_bnb",
                                          "lion8_fused",     "sgdm_f32",    "flash_adamw",
                                          "adafactor_torch", "came8_026",   "ema4_nf4"};
    (void)state;
    escaped = 0;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        assert_caught(&qm_backend_cpu, recipes[i], minimizes, "maximize is ignored", NULL);
    assert_int_equal(escaped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmse),
        cmocka_unit_test(test_rmse_of_variants),
        cmocka_unit_test(test_maximize),
        cmocka_unit_test(test_no_false_alarm),
        cmocka_unit_test(test_not_vacuous),
        cmocka_unit_test(test_benign_orders_pass),
        cmocka_unit_test(test_every_rule_passes),
        cmocka_unit_test(test_what_is_skipped),
        cmocka_unit_test(test_rounded_between),
        cmocka_unit_test(test_backend_mutants),
        cmocka_unit_test(test_recipe_mutants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
