/* special.c - Measures and judges a variant's steps on special values. */
#include "experiments/check/special.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/check/stored.h"

static const struct {
    const char *name, *text;
    enum qm_class kind;
} specials[] = {
#define X(kind, text) {#kind, text, QM_CLASS_##kind},
    QM_SPECIAL_LIST(X)
#undef X
};

/* Adds the counts of one decoded slot. */
static qm_status count_slot(const struct qm_subject *s, const struct qm_recipe *r,
                            const struct qm_shape *shape, void *plan, int i, struct qm_special *out)
{
    struct qm_shape of;
    qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &of);
    int64_t n = qm_shape_numel(&of);
    float *x = malloc(sizeof *x * (size_t)(n + 1));
    if (!x)
        return qm_fail(QM_NO_MEMORY, "a slot of %lld elements", (long long)n);
    qm_status st = s->backend->decode(plan, i, x);
    for (int64_t k = 0; k < n && st == QM_OK; k++) {
        out->state_bad += !isfinite(x[k]);
        out->state_zero += x[k] == 0.0f;
    }
    out->state_n += n;
    free(x);
    return st;
}

/* Makes one step from zero states and counts its outcomes. */
static qm_status measure(const struct qm_subject *s, const struct qm_case *c, uint64_t seed,
                         struct qm_special *out)
{
    struct qm_recipe r = s->recipe;
    struct qm_aim aim = {.recipe = &r, .shape = &c->shape, .n = out->n, .seed = seed};
    struct qm_stored f;
    void *plan;
    qm_case_apply(c, &r);
    f = qm_stored_of(&r.param);
    size_t bytes = (size_t)f.bytes * (size_t)out->n;
    float *g = malloc(sizeof *g * (size_t)(2 * out->n)), *p = g + out->n;
    unsigned char *stored = malloc(2 * bytes), *before = stored + bytes;
    qm_status st = g && stored ? s->backend->open(&r, &c->shape, 1, &plan)
                               : qm_fail(QM_NO_MEMORY, "%lld elements", (long long)out->n);
    if (st == QM_OK) {
        struct qm_tensor gradient = {g, QM_DTYPE_f32, c->shape};
        struct qm_tensor param = {stored, qm_param_dtype(&r.param), c->shape};
        r.grad = QM_DTYPE_f32;
        qm_case_start(c, &aim, p);
        qm_case_gradient(c, &aim, 1, 0, g);
        for (int64_t i = 0; i < out->n; i++) {
            qm_stored_put(&f, stored, i, (double)p[i]);
            qm_stored_put(&f, before, i, (double)p[i]);
        }
        st = s->backend->step(plan, &param, &gradient, 1, seed);
        f.residual_bytes = 0; /* count the stored parameters without residuals */
        for (int64_t i = 0; i < out->n && st == QM_OK; i++) {
            double now = qm_stored_seen(&f, stored, NULL, i);
            out->p_bad += !isfinite(now);
            out->p_still += now == qm_stored_seen(&f, before, NULL, i);
        }
        for (int i = 0; i < r.rule->n_slots && st == QM_OK; i++)
            st = count_slot(s, &r, &c->shape, plan, i, out);
        s->backend->close(plan);
    }
    free(g);
    free(stored);
    return st;
}

qm_status qm_special_run(const struct qm_subject *s, int which, uint64_t seed,
                         struct qm_special *out)
{
    struct qm_case c = {.shape = {2, {8, 128}}, .kind = specials[which].kind, .t = 1, .forced = 1};
    struct qm_tally *t = calloc(1, sizeof *t);
    *out =
        (struct qm_special){.kind = specials[which].name, .text = specials[which].text, .n = 1024};
    if (!t)
        return qm_fail(QM_NO_MEMORY, "a tally");
    qm_status st = measure(s, &c, seed, out);
    if (st == QM_OK)
        st = qm_judge_case(s, &c, seed, t);
    out->judged = t->judged;
    out->unbounded = t->unbounded;
    out->wrong = t->verdict[QM_VERDICT_WRONG] + t->verdict[QM_VERDICT_OFF_BY_ONE];
    out->passed = t->failed_cases == 0;
    free(t);
    return st;
}
