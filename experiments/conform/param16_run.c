/* param16_run.c - Compares the CPU backend with recorded runs of 16-bit parameters.
 *
 * It also judges quantizers with groups of 32 and error correction on their own. */
#include "experiments/conform/param16_run.h"

#include <stdio.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/conform/run.h"

int qm_golden_case_format(struct qm_conform *c, const char *attribute, enum qm_param_format *out)
{
    char text[24];
    struct qm_param p;
    if (!qm_golden_case_text(c, attribute, text, sizeof text) ||
        qm_param_parse(text, &p) != QM_OK || p.format == QM_PARAM_e4m3 ||
        p.write != QM_WRITE_near) {
        qm_golden_case_skip(c, "%s '%s': expected f32, bf16 or f16", attribute, text);
        return 0;
    }
    *out = p.format;
    return 1;
}

int qm_param16_recipe(struct qm_conform *c, const char *rule, struct qm_param param,
                      enum qm_param_format grad, struct qm_recipe *out)
{
    char text[24];
    if (!qm_run_recipe(c, rule, out))
        return 0;
    out->param = param;
    out->grad = qm_param_type(grad);
    size_t used = strlen(c->now.how);
    snprintf(c->now.how + used, sizeof c->now.how - used, " param=%s grad=%s",
             qm_param_text(&param, text), qm_dtype_name(out->grad));
    return 1;
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct replay {
    const struct qm_param16_run *run;
    int64_t n;
    void *plan, *p, *g;   /* in their stored formats */
    float *wide, *scales; /* [numel], [the most scales of a slot] */
    uint8_t *codes;       /* positions */
    struct qm_tensor param, grad;
    const char *how; /* "" or "free-running " */
};

/* Stores floats in a tensor of 32 or 16 bits; every value is representable there. */
static void narrow(enum qm_dtype dtype, const float *x, int64_t n, void *out)
{
    if (dtype == QM_DTYPE_f32)
        memcpy(out, x, (size_t)n * sizeof *x);
    for (int64_t i = 0; dtype != QM_DTYPE_f32 && i < n; i++)
        ((uint16_t *)out)[i] =
            dtype == QM_DTYPE_bf16 ? qm_float_to_bf16(x[i]) : qm_float_to_f16(x[i]);
}

/* Replaces the plan's state by the recorded state after step t. */
static qm_status load(struct replay *r, int64_t t)
{
    const struct qm_param16_run *run = r->run;
    int64_t n = r->n, at = (t - 1) * n;
    for (int i = 0; i < run->recipe.rule->n_slots; i++) {
        const struct qm_param16_slot *s = &run->slot[i];
        for (int64_t k = 0; s->codes && k < n; k++)
            r->codes[k] = (uint8_t)(s->codes[at + k] - s->base);
        QM_TRY(s->codes
                   ? qm_backend_cpu.load(r->plan, i, r->codes, s->scales + (t - 1) * s->n_scales)
                   : qm_backend_cpu.load(r->plan, i, NULL, s->values + at));
    }
    void *residual = qm_plan_cpu_residual(r->plan);
    for (int64_t k = 0; run->residual && k < n; k++)
        if (run->recipe.param.write == QM_WRITE_ecc8)
            ((int8_t *)residual)[k] = (int8_t)run->residual[at + k];
        else
            ((int16_t *)residual)[k] = (int16_t)run->residual[at + k];
    narrow(r->param.dtype, run->params + at, n, r->p);
    return QM_OK;
}

static void judge_residual(struct qm_conform *c, struct replay *r, int64_t t)
{
    const void *residual = qm_plan_cpu_residual(r->plan);
    int small = r->run->recipe.param.write == QM_WRITE_ecc8;
    for (int64_t k = 0; r->run->residual && k < r->n && qm_golden_case_open(c); k++) {
        int got = small ? ((const int8_t *)residual)[k] : ((const int16_t *)residual)[k];
        int64_t want = r->run->residual[(t - 1) * r->n + k];
        if (got != want)
            qm_golden_case_differs(c, "%sstep %lld error[%lld]: got %d, want %lld", r->how,
                                   (long long)t, (long long)k, got, (long long)want);
        c->now.compared++;
    }
}

/* Rounds a slot that the source keeps in 16 bits; the plan goes on from the rounded values. */
static qm_status judge_values(struct qm_conform *c, struct replay *r, int i, int64_t t,
                              const char *what)
{
    const struct qm_param16_slot *s = &r->run->slot[i];
    QM_TRY(qm_backend_cpu.decode(r->plan, i, r->wide));
    for (int64_t k = 0; k < r->n; k++)
        r->wide[k] = qm_param_widen(s->kept_as, qm_param_nearest(s->kept_as, r->wide[k]));
    qm_match_floats(c, what, r->wide, s->values + (t - 1) * r->n, r->n);
    return qm_backend_cpu.load(r->plan, i, NULL, r->wide);
}

static qm_status judge(struct qm_conform *c, struct replay *r, int64_t t)
{
    const struct qm_param16_run *run = r->run;
    int64_t n = r->n, at = (t - 1) * n;
    char what[96];
    for (int i = 0; i < run->recipe.rule->n_slots; i++) {
        const struct qm_param16_slot *s = &run->slot[i];
        const char *name = run->recipe.rule->slot[i];
        snprintf(what, sizeof what, "%sstep %lld %s", r->how, (long long)t, name);
        if (!s->codes) {
            QM_TRY(judge_values(c, r, i, t, what));
            continue;
        }
        QM_TRY(qm_backend_cpu.save(r->plan, i, r->codes, r->scales));
        qm_match_floats(c, what, r->scales, s->scales + (t - 1) * s->n_scales, s->n_scales);
        for (int64_t k = 0; k < n && qm_golden_case_open(c); k++)
            if (r->codes[k] + s->base != s->codes[at + k])
                qm_golden_case_differs(c, "%s code[%lld]: got %d, want %lld", what, (long long)k,
                                       r->codes[k] + s->base, (long long)s->codes[at + k]);
        c->now.compared += n;
        QM_TRY(qm_backend_cpu.decode(r->plan, i, r->wide));
        if (s->decoded)
            qm_match_floats(c, what, r->wide, s->decoded + at, n);
    }
    qm_to_float(r->p, r->param.dtype, 0, n, r->wide);
    snprintf(what, sizeof what, "%sstep %lld parameter", r->how, (long long)t);
    qm_match_floats(c, what, r->wide, run->params + at, n);
    judge_residual(c, r, t);
    return QM_OK;
}

static qm_status steps(struct qm_conform *c, struct replay *r, int is_free)
{
    const struct qm_param16_run *run = r->run;
    struct qm_hyper h = run->recipe.hyper;
    QM_TRY(qm_backend_cpu.open(&run->recipe, &run->shape, 0, &r->plan));
    r->how = is_free ? "free-running " : "";
    narrow(r->param.dtype, run->p0, r->n, r->p);
    for (int64_t t = 1; t <= run->steps && qm_golden_case_open(c); t++) {
        if (t > 1 && !is_free)
            QM_TRY(load(r, t - 1));
        if (run->lr) {
            h.lr = run->lr[t - 1];
            QM_TRY(qm_backend_cpu.hyper(r->plan, &h));
        }
        narrow(r->grad.dtype, run->grads + (t - 1) * r->n, r->n, r->g);
        QM_TRY(qm_backend_cpu.step(r->plan, &r->param, &r->grad, t, 0));
        QM_TRY(judge(c, r, t));
    }
    return QM_OK;
}

void qm_param16_replay(struct qm_conform *c, const struct qm_param16_run *run)
{
    struct replay r = {.run = run, .n = qm_shape_numel(&run->shape)};
    int64_t most = r.n;
    if (!qm_golden_case_open(c) || !run->p0 || !run->grads || !run->params)
        return;
    for (int i = 0; i < run->recipe.rule->n_slots; i++)
        most = run->slot[i].n_scales > most ? run->slot[i].n_scales : most;
    r.p = qm_golden_case_memory(c, r.n, sizeof(float));
    r.g = qm_golden_case_memory(c, r.n, sizeof(float));
    r.wide = qm_golden_case_memory(c, r.n, sizeof *r.wide);
    r.scales = qm_golden_case_memory(c, most, sizeof *r.scales);
    r.codes = qm_golden_case_memory(c, r.n, 1);
    if (!r.p || !r.g || !r.wide || !r.scales || !r.codes)
        return;
    r.param = (struct qm_tensor){r.p, qm_param_type(run->recipe.param.format), run->shape};
    r.grad = (struct qm_tensor){r.g, run->recipe.grad, run->shape};
    if (qm_recipe_applicable(&run->recipe) != QM_OK) {
        qm_golden_case_skip(c, "%s", qm_message());
        return;
    }
    for (int is_free = 0; is_free < 2; is_free++) {
        r.plan = NULL;
        qm_golden_case_stopped(c, steps(c, &r, is_free));
        qm_backend_cpu.close(r.plan);
    }
}

/* ---- the quantizer alone --------------------------------------------------------------------- */

/* Codes of a group that holds Inf or NaN are undefined: codes and values are taken from
 * this program. */
static void leave_out_nonfinite(const struct qm_codec *codec, const float *x, int64_t n,
                                int64_t *codes, float *dequant, const uint8_t *own,
                                const float *own_values)
{
    for (int64_t from = 0; from < n; from += codec->q.block) {
        int64_t end = from + codec->q.block < n ? from + codec->q.block : n;
        int finite = 1;
        for (int64_t i = from; i < end; i++)
            finite &= fabsf(x[i]) < INFINITY;
        for (int64_t i = from; i < end && !finite; i++) {
            codes[i] = own[i];
            dequant[i] = own_values[i];
        }
    }
}

void qm_conform_q8(struct qm_conform *c)
{
    struct qm_codec codec;
    struct qm_shape shape;
    int sign = qm_golden_case_int(c, "signed", 1);
    const char *curve = qm_golden_case_whole(c, "softsign", 0) ? "/softsign"
                        : qm_golden_case_whole(c, "sqrt", 0)   ? "/sqrt"
                                                               : "";
    if (!qm_golden_case_codec(c, &codec, "lint:8%c/block:%lld/arith/near%s/floor:1e-12/f16",
                              sign ? 's' : 'u',
                              (long long)qm_golden_case_whole(c, "group_size", 32), curve) ||
        !qm_golden_case_shape(c, "x", &shape))
        return;
    int64_t n = qm_shape_numel(&shape), count = qm_scale_count(&codec, &shape);
    const float *x = qm_golden_case_floats(c, "x", n);
    const float *scales = qm_golden_case_stored(c, "scales_f16", count, QM_PARAM_f16);
    int64_t *codes = qm_golden_case_ints(c, "codes", n);
    float *dequant = qm_golden_case_floats(c, "dequant", n);
    uint8_t *own = qm_golden_case_memory(c, n, 1);
    float *own_values = qm_golden_case_memory(c, n, sizeof *own_values);
    float *own_scales = qm_golden_case_memory(c, count, sizeof *own_scales);
    if (!x || !scales || !codes || !dequant || !own || !own_values || !own_scales)
        return;
    for (int64_t i = 0; i < n; i++)
        codes[i] -= codec.cb.base;
    if (qm_encode(&codec, &shape, x, NULL, own, own_scales) == QM_OK) {
        qm_decode(&codec, &shape, own, own_scales, own_values);
        leave_out_nonfinite(&codec, x, n, codes, dequant, own, own_values);
    }
    qm_match_quantizer(c, &codec, &shape, x,
                       &(struct qm_golden_run){
                           .scales = scales, .codes = codes, .dequant = dequant, .n_dequant = n});
}

void qm_conform_ecc(struct qm_conform *c)
{
    enum qm_param_format format;
    if (!qm_golden_case_format(c, "dtype", &format))
        return;
    int most = qm_golden_case_int(c, "signed_max", 127);
    int64_t n = qm_golden_case_numel(c, "x");
    const float *x = qm_golden_case_floats(c, "x", n),
                *want = qm_golden_case_floats(c, "reconstructed", n);
    const uint64_t *bits = qm_golden_case_words(c, "narrow_bits", n);
    const int64_t *ecc = qm_golden_case_ints(c, "ecc", n);
    float *got = qm_golden_case_memory(c, n, sizeof *got);
    if (format == QM_PARAM_f32 || !x || !want || !bits || !ecc || !got)
        return;
    snprintf(c->now.how, sizeof c->now.how, "%s/%s", format == QM_PARAM_bf16 ? "bf16" : "f16",
             most == 127 ? "ecc8" : "ecc16");
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++) {
        uint32_t h = qm_param_nearest(format, x[i]);
        int e = qm_ecc_encode(format, x[i], (uint32_t)bits[i], most);
        if (h != bits[i] && !qm_isnan(x[i]))
            qm_golden_case_differs(c, "narrow[%lld]: got 0x%04x, want 0x%04x", (long long)i, h,
                                   (unsigned)bits[i]);
        else if (e != ecc[i])
            qm_golden_case_differs(c, "error[%lld] of %a: got %d, want %lld", (long long)i,
                                   (double)x[i], e, (long long)ecc[i]);
        got[i] = qm_ecc_decode(format, (uint32_t)bits[i], (int)ecc[i], most);
        c->now.compared += 2;
    }
    qm_match_floats(c, "reconstructed", got, want, n);
}
