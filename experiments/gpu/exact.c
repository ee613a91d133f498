/* exact.c - Compares a device's steps with the CPU's, bit for bit. */
#include "experiments/gpu/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR = 5, LARGE = 1 << 19 };

/* The sum of four uniform draws, centred at 0. */
static float bell(uint64_t seed, int64_t t, int64_t i)
{
    struct qm_draws d = qm_draws_for(seed, t, 0, QM_ROLE_spare);
    struct qm_philox_block four = qm_draw_four(&d, 4 * i);
    float sum = -2.0f;
    for (int k = 0; k < 4; k++)
        sum += qm_uniform(four.word[k]);
    return sum;
}

void qm_exact_gradient(uint64_t seed, int64_t t, int64_t n, float *g)
{
#pragma omp parallel for if (n > 100000)
    for (int64_t i = 0; i < n; i++)
        g[i] = i / 64 % 50 == 3 ? (i % 3 ? 0.0f : -0.0f)
                                : ldexpf(bell(seed, t, i), -(int)(i % 13) * (t == 2 ? 3 : 1));
    if (n > 40)
        g[40] = 1000.0f;
}

/* ---- gradients that are no ordinary numbers -------------------------------------------------- */

static const char *const kind_names[] = {
#define X(name, text) #name,
    QM_GRADIENTS_LIST(X)
#undef X
};

const char *qm_gradients_name(enum qm_gradients kind) { return kind_names[kind]; }

/* A number of a class, chosen by a draw: quiet and signalling NaNs of both signs with several
 * payloads; infinities and the largest numbers; denormals, the least normal numbers and zeros. */
static float special(enum qm_gradients kind, uint32_t draw)
{
    uint32_t sign = draw << 31, few = draw >> 1 & 7, mantissa = draw >> 9;
    switch (kind) {
    case QM_GRADIENTS_nan:
        return qm_float(sign | 0x7f800000u |
                        (few == 0   ? 0x400000u /* the NaN of x86's invalid operations */
                         : few == 1 ? 0x7fffffu /* of NVIDIA's */
                         : few == 2 ? 1u        /* signalling */
                                    : mantissa | 1u));
    case QM_GRADIENTS_inf:
        return qm_float(sign | (few < 5    ? 0x7f800000u
                                : few == 5 ? 0x7f7fffffu
                                           : 0x60000000u + mantissa)); /* its square overflows */
    case QM_GRADIENTS_tiny:
        return qm_float(sign | (few == 0   ? 0u
                                : few == 1 ? 1u
                                : few == 2 ? 0x7fffffu
                                : few == 3 ? 0x800000u
                                           : mantissa));
    default: return 0.0f;
    }
}

void qm_exact_gradient_of(enum qm_gradients kind, uint64_t seed, int64_t t, int64_t n, float *g)
{
    struct qm_draws d = qm_draws_for(seed, t, 1, QM_ROLE_spare);
    qm_exact_gradient(seed, t, n, g);
    if (kind == QM_GRADIENTS_finite || (t != 2 && kind != QM_GRADIENTS_tiny))
        return;
    for (int64_t i = 0; i < n; i++) {
        struct qm_philox_block four = qm_draw_four(&d, 4 * i);
        if (i / 64 % 3 == 0 && four.word[0] % 16 == 0)
            g[i] = special(kind, four.word[1]);
    }
}

/* ---- the comparison -------------------------------------------------------------------------- */

/* One of the two backends: its plan, and its stored results after a step. */
struct run {
    const struct qm_backend *b;
    void *plan;
    uint8_t *p, *residual, *codes[QM_MAX_SLOTS];
    float *scales[QM_MAX_SLOTS], *decoded[QM_MAX_SLOTS];
};

struct comparison {
    struct run run[2];
    const struct qm_recipe *r;
    struct qm_shape shape;
    int64_t n, slot_n[QM_MAX_SLOTS], n_scales[QM_MAX_SLOTS];
    size_t p_bytes, residual_bytes;
    float *wide;
    void *g;
};

static void comparison_close(struct comparison *x)
{
    for (int k = 0; k < 2; k++) {
        struct run *s = &x->run[k];
        if (s->plan)
            s->b->close(s->plan);
        free(s->p);
        free(s->residual);
        for (int i = 0; i < x->r->rule->n_slots; i++) {
            free(s->codes[i]);
            free(s->scales[i]);
            free(s->decoded[i]);
        }
    }
    free(x->wide);
    free(x->g);
}

static qm_status run_open(struct comparison *x, struct run *s)
{
    QM_TRY(s->b->open(x->r, &x->shape, TENSOR, &s->plan));
    int ok = (s->p = calloc(x->p_bytes + 1, 1)) && (s->residual = calloc(x->residual_bytes + 1, 1));
    for (int i = 0; i < x->r->rule->n_slots && ok; i++)
        ok = (s->codes[i] = calloc((size_t)x->slot_n[i] + 1, 1)) &&
             (s->decoded[i] = calloc((size_t)x->slot_n[i] + 1, sizeof(float))) &&
             (s->scales[i] = calloc((size_t)x->n_scales[i] + 1, sizeof(float)));
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld elements", (long long)x->n);
}

static qm_status comparison_open(struct comparison *x)
{
    x->n = qm_shape_numel(&x->shape);
    x->p_bytes = (size_t)(x->n * qm_param_bytes(&x->r->param));
    x->residual_bytes = (size_t)(x->n * qm_param_residual(&x->r->param));
    for (int i = 0; i < x->r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(x->r, i, &x->shape);
        struct qm_shape own = x->shape;
        struct qm_codec c;
        qm_rule_slot_shape(x->r->rule, &x->r->hyper, i, &x->shape, &own);
        QM_TRY(qm_codec_init(&c, &q));
        x->slot_n[i] = qm_shape_numel(&own);
        x->n_scales[i] = q.bits ? qm_scale_count(&c, &own) : x->slot_n[i];
    }
    x->wide = malloc(sizeof(float) * (size_t)(x->n + 1));
    x->g = malloc(sizeof(float) * (size_t)(x->n + 1));
    if (!x->wide || !x->g)
        return qm_fail(QM_NO_MEMORY, "%lld elements", (long long)x->n);
    QM_TRY(run_open(x, &x->run[1])); /* first the backend that may have no kernel */
    return run_open(x, &x->run[0]);
}

void qm_exact_narrow(const float *g, int64_t n, enum qm_dtype type, void *out)
{
    if (type == QM_DTYPE_f32)
        memcpy(out, g, sizeof *g * (size_t)n);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] =
                type == QM_DTYPE_bf16 ? qm_float_to_bf16(g[i]) : qm_float_to_f16(g[i]);
}

static qm_status run_step(struct comparison *x, struct run *s, int64_t t, uint64_t seed)
{
    struct qm_tensor p = {s->p, qm_param_dtype(&x->r->param), x->shape};
    struct qm_tensor g = {x->g, x->r->grad, x->shape};
    QM_TRY(s->b->step(s->plan, &p, &g, t, seed));
    QM_TRY(s->b->save(s->plan, QM_RESIDUAL, s->residual, NULL));
    for (int i = 0; i < x->r->rule->n_slots; i++) {
        QM_TRY(s->b->save(s->plan, i, s->codes[i], s->scales[i]));
        QM_TRY(s->b->decode(s->plan, i, s->decoded[i]));
    }
    return QM_OK;
}

int64_t qm_exact_difference(const void *a, const void *b, int format, size_t size, int64_t n)
{
    const uint8_t *x = a, *y = b;
    if (memcmp(x, y, size * (size_t)n) == 0)
        return -1;
    for (int64_t i = 0; i < n; i++, x += size, y += size) {
        uint32_t p = 0, q = 0;
        if (memcmp(x, y, size) == 0)
            continue;
        memcpy(&p, x, size);
        memcpy(&q, y, size);
        if (format == QM_EXACT_BYTES || !isnan(qm_param_widen((enum qm_param_format)format, p)) ||
            !isnan(qm_param_widen((enum qm_param_format)format, q)))
            return i;
    }
    return -1;
}

/* 1: the two differ; the first difference is printed to text[size]. */
static int differs(const struct comparison *x, int64_t t, char *text, size_t size)
{
    const struct run *a = &x->run[0], *b = &x->run[1];
    const struct qm_param *param = &x->r->param;
    int kahan = param->write == QM_WRITE_kahan ? (int)param->format : QM_EXACT_BYTES;
    size_t residual = (size_t)qm_param_residual(param);
    int64_t at =
        qm_exact_difference(a->p, b->p, (int)param->format, (size_t)qm_param_bytes(param), x->n);
    if (at >= 0) {
        snprintf(text, size, "step %lld: parameter %lld", (long long)t, (long long)at);
        return 1;
    }
    if (residual &&
        (at = qm_exact_difference(a->residual, b->residual, kahan, residual, x->n)) >= 0) {
        snprintf(text, size, "step %lld: residual %lld", (long long)t, (long long)at);
        return 1;
    }
    for (int i = 0; i < x->r->rule->n_slots; i++) {
        static const char *const what[] = {"code", "scale", "decoded value"};
        const void *of[3][2] = {{a->codes[i], b->codes[i]},
                                {a->scales[i], b->scales[i]},
                                {a->decoded[i], b->decoded[i]}};
        int64_t n[3] = {x->slot_n[i], x->n_scales[i], x->slot_n[i]};
        for (int k = 0; k < 3; k++) {
            at = qm_exact_difference(of[k][0], of[k][1], k ? QM_PARAM_f32 : QM_EXACT_BYTES,
                                     k ? sizeof(float) : 1, n[k]);
            if (at < 0)
                continue;
            double got = k ? (double)((const float *)of[k][1])[at] : (double)b->codes[i][at];
            double want = k ? (double)((const float *)of[k][0])[at] : (double)a->codes[i][at];
            snprintf(text, size, "step %lld: %s: %s %lld is %a, want %a", (long long)t,
                     x->r->rule->slot[i], what[k], (long long)at, got, want);
            return 1;
        }
    }
    return 0;
}

int qm_given_projection(struct qm_recipe *r, const struct qm_shape *shape)
{
    struct qm_shape own = *shape;
    for (int i = 0; i < r->rule->n_slots; i++) {
        qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &own);
        if (strcmp(r->rule->slot[i], "proj") == 0 && qm_shape_numel(&own) > 0) {
            r->hyper.gap = r->hyper.gap < 0.0 ? r->hyper.gap : 0.0;
            return i;
        }
    }
    return -1;
}

/* Loads equal numbers into slot i of both plans, a projection; i -1: there is none. */
static qm_status load_projection(struct comparison *x, int i, uint64_t seed)
{
    if (i < 0)
        return QM_OK;
    float *p = malloc(sizeof *p * (size_t)x->slot_n[i]);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "a projection of %lld numbers", (long long)x->slot_n[i]);
    qm_exact_gradient(seed + 2, 1, x->slot_n[i], p);
    qm_status st = QM_OK;
    for (int k = 0; st == QM_OK && k < 2; k++)
        st = x->run[k].b->load(x->run[k].plan, i, NULL, p);
    free(p);
    return st;
}

qm_status qm_exact_compare(const struct qm_backend *other, const struct qm_recipe *r,
                           const struct qm_shape *shape, int steps, uint64_t seed, char *difference,
                           size_t size)
{
    return qm_exact_compare_of(QM_GRADIENTS_finite, other, r, shape, steps, seed, difference, size);
}

qm_status qm_exact_compare_of(enum qm_gradients kind, const struct qm_backend *other,
                              const struct qm_recipe *r, const struct qm_shape *shape, int steps,
                              uint64_t seed, char *difference, size_t size)
{
    struct qm_recipe own = *r;
    int proj = qm_shape_numel(shape) < LARGE ? -1 : qm_given_projection(&own, shape);
    struct comparison x = {
        .run = {{.b = &qm_backend_cpu}, {.b = other}}, .r = &own, .shape = *shape};
    *difference = '\0';
    qm_status st = comparison_open(&x);
    if (st == QM_OK)
        st = load_projection(&x, proj, seed);
    for (int64_t i = 0; st == QM_OK && i < x.n; i++)
        x.wide[i] = bell(seed + 1, 0, i);
    for (int k = 0; st == QM_OK && k < 2; k++)
        qm_param_from_float(&r->param, x.n, x.wide, x.run[k].p);
    for (int64_t t = 1; st == QM_OK && t <= steps && !*difference; t++) {
        qm_exact_gradient_of(kind, seed, t, x.n, x.wide);
        qm_exact_narrow(x.wide, x.n, r->grad, x.g);
        for (int k = 0; st == QM_OK && k < 2; k++)
            st = run_step(&x, &x.run[k], t, seed);
        if (st == QM_OK)
            (void)differs(&x, t, difference, size);
    }
    comparison_close(&x);
    return st;
}
