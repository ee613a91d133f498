/* exact.c - Compares a device's steps with the CPU's, bit for bit. */
#include "experiments/gpu/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

enum { TENSOR = 5, STEPS = 3, LARGE = 1 << 19 };
static const uint64_t SEED = 77;

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

static void narrow(const float *g, int64_t n, enum qm_dtype type, void *out)
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

/* The first byte that differs; -1: none. */
static int64_t first_difference(const void *a, const void *b, size_t n)
{
    const uint8_t *x = a, *y = b;
    if (memcmp(x, y, n) == 0)
        return -1;
    size_t i = 0;
    while (x[i] == y[i])
        i++;
    return (int64_t)i;
}

/* 1: the two differ; the first difference is printed to text[size]. */
static int differs(const struct comparison *x, int64_t t, char *text, size_t size)
{
    const struct run *a = &x->run[0], *b = &x->run[1];
    int64_t at = first_difference(a->p, b->p, x->p_bytes);
    if (at >= 0) {
        snprintf(text, size, "step %lld: parameter %lld", (long long)t,
                 (long long)(at / qm_param_bytes(&x->r->param)));
        return 1;
    }
    if ((at = first_difference(a->residual, b->residual, x->residual_bytes)) >= 0) {
        snprintf(text, size, "step %lld: residual, byte %lld", (long long)t, (long long)at);
        return 1;
    }
    for (int i = 0; i < x->r->rule->n_slots; i++) {
        const char *what = "code";
        const void *of[3][2] = {{a->codes[i], b->codes[i]},
                                {a->scales[i], b->scales[i]},
                                {a->decoded[i], b->decoded[i]}};
        size_t bytes[3] = {(size_t)x->slot_n[i], sizeof(float) * (size_t)x->n_scales[i],
                           sizeof(float) * (size_t)x->slot_n[i]};
        for (int k = 0; k < 3; k++) {
            if ((at = first_difference(of[k][0], of[k][1], bytes[k])) < 0)
                continue;
            what = k == 1 ? "scale" : k == 2 ? "decoded value" : what;
            int64_t e = k ? at / (int64_t)sizeof(float) : at;
            double got = k ? (double)((const float *)of[k][1])[e] : (double)b->codes[i][e];
            double want = k ? (double)((const float *)of[k][0])[e] : (double)a->codes[i][e];
            snprintf(text, size, "step %lld: %s: %s %lld is %a, want %a", (long long)t,
                     x->r->rule->slot[i], what, (long long)e, got, want);
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
        qm_exact_gradient(seed, t, x.n, x.wide);
        narrow(x.wide, x.n, r->grad, x.g);
        for (int k = 0; st == QM_OK && k < 2; k++)
            st = run_step(&x, &x.run[k], t, seed);
        if (st == QM_OK)
            (void)differs(&x, t, difference, size);
    }
    comparison_close(&x);
    return st;
}

/* ---- all variants ---------------------------------------------------------------------------- */

static const struct qm_shape shapes[] = {
    {1, {1}},      {1, {31}},         {1, {32}},       {1, {33}},        {1, {255}},
    {1, {256}},    {1, {257}},        {1, {65535}},    {1, {1048579}},   {2, {1, 257}},
    {2, {61, 67}}, {2, {1021, 1027}}, {2, {7, 65537}}, {3, {9, 23, 31}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static qm_status compare_variant(const struct qm_backend *other, const struct qm_variant *v,
                                 int forced, json_t *rows, int *differ)
{
    struct qm_recipe r;
    char what[256], dims[80];
    QM_TRY(qm_recipe_from(v, &r));
    for (int i = 0; i < r.rule->n_slots && forced; i++)
        r.min_numel[i] = r.whole_blocks[i] = 0;
    for (int i = 0; i < SHAPES; i++) {
        qm_status st = qm_exact_compare(other, &r, &shapes[i], STEPS, SEED, what, sizeof what);
        if (st == QM_SKIPPED)
            snprintf(what, sizeof what, "%s", "");
        else if (st != QM_OK)
            return qm_fail_in(st, v->name);
        *differ += *what != '\0';
        json_array_append_new(rows, json_pack("{s:s, s:b, s:s, s:b, s:s}", "variant", v->name,
                                              "forced", forced, "shape",
                                              qm_shape_print(&shapes[i], dims, sizeof dims),
                                              "equal", st == QM_OK && !*what, "difference",
                                              st == QM_SKIPPED ? qm_message() : what));
    }
    return QM_OK;
}

qm_status qm_exact_all(const struct qm_backend *other, json_t **rows, int *differ)
{
    struct qm_progress progress;
    qm_status st = QM_OK;
    *rows = json_array();
    qm_progress_start(&progress, "exact", qm_variant_count());
    for (int i = 0; i < qm_variant_count() && st == QM_OK; i++) {
        const struct qm_variant *v = qm_variant_at(i);
        const struct qm_rule *rule = qm_rule_find(v->rule);
        if (rule->elementwise || rule->tensor->on_device) {
            st = compare_variant(other, v, 0, *rows, differ);
            if (st == QM_OK)
                st = compare_variant(other, v, 1, *rows, differ);
        }
        qm_progress_add(&progress, 1, *differ);
    }
    qm_progress_end(&progress);
    return st;
}
