/* rule_pair.h - Steps a rule in float and its oracle in double side by side, for tests. */
#ifndef QM_SUPPORT_RULE_PAIR_H
#define QM_SUPPORT_RULE_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/recipe/backend.h"
#include "oracle/oracle.h"

enum { ROOM = 4096 };

/* The error of a float32 step against the oracle's step from the same state, relative to the
 * tensor's largest value.  The recorded runs of the public code have the same tolerance
 * (tests/golden).  A sum rounds once here, so the errors stay far below it. */
#define STEP_TOLERANCE 2e-6

/* One tensor with its states: the rule's in float, the oracle's in double. */
struct pair {
    const struct qm_rule *rule;
    const struct qm_oracle *oracle;
    struct qm_hyper h;
    struct qm_oracle_hyper oh;
    struct qm_shape shape, own[QM_MAX_SLOTS];
    uint32_t tensor;
    int64_t n, slot_n[QM_MAX_SLOTS];
    float p[ROOM], g[ROOM], slot[QM_MAX_SLOTS][ROOM];
    float room[ROOM];
    double p64[ROOM], g64[ROOM], slot64[QM_MAX_SLOTS][ROOM];
};

static inline struct pair *pair_open(const char *rule, const struct qm_hyper *h, int rank,
                                     int64_t a, int64_t b, int64_t c)
{
    struct pair *q = calloc(1, sizeof *q);
    assert_non_null(q);
    q->rule = qm_rule_find(rule);
    assert_non_null(q->rule);
    q->oracle = qm_oracle_find(q->rule->family);
    assert_non_null(q->oracle);
    q->h = *h;
    q->oh = (struct qm_oracle_hyper){
#define X(name, value, text) .name = h->name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    q->shape = (struct qm_shape){rank, {a, b, c}};
    q->n = qm_shape_numel(&q->shape);
    assert_int_equal(q->rule->n_slots, q->oracle->n_slots);
    for (int i = 0; i < q->rule->n_slots; i++) {
        assert_string_equal(q->rule->slot[i], q->oracle->slot[i]);
        q->own[i] = q->shape;
        qm_rule_slot_shape(q->rule, &q->h, i, &q->shape, &q->own[i]);
        q->slot_n[i] = qm_shape_numel(&q->own[i]);
        assert_in_range(q->slot_n[i], 0, ROOM);
    }
    return q;
}

static inline qm_status step_float(struct pair *q, int64_t t)
{
    struct qm_rule_step s;
    struct qm_tensor_rule_args w = {
        .s = &s, .shape = &q->shape, .tensor = q->tensor, .p = q->p, .g = q->g, .room = q->room};
    float *slots[QM_MAX_SLOTS];
    for (int i = 0; i < QM_MAX_SLOTS; i++) {
        slots[i] = w.slot[i] = q->slot[i];
        w.slot_shape[i] = q->own[i];
    }
    q->rule->prepare(&q->h, t, &s);
    s.hyper = &q->h;
    if (q->rule->elementwise) {
        q->rule->elementwise->block(&s, q->n, q->p, q->g, slots);
        return QM_OK;
    }
    QM_TRY(q->rule->tensor->states(&w));
    return q->rule->tensor->apply(&w);
}

static inline qm_status step_double(struct pair *q, int64_t t)
{
    double *slots[QM_MAX_SLOTS];
    for (int i = 0; i < QM_MAX_SLOTS; i++)
        slots[i] = q->slot64[i];
    for (int64_t i = 0; i < q->n; i++)
        q->g64[i] = (double)q->g[i];
    return qm_oracle_step(q->oracle, q->p64, slots, q->g64, &q->shape, q->tensor, &q->oh, t);
}

/* Copies the rule's parameter and states to the oracle. */
static inline void take_over(struct pair *q)
{
    for (int64_t i = 0; i < q->n; i++)
        q->p64[i] = (double)q->p[i];
    for (int i = 0; i < q->rule->n_slots; i++)
        for (int64_t k = 0; k < q->slot_n[i]; k++)
            q->slot64[i][k] = (double)q->slot[i][k];
}

static inline double largest(const double *x, int64_t n)
{
    double m = 0.0;
    for (int64_t i = 0; i < n; i++)
        m = fabs(x[i]) > m ? fabs(x[i]) : m;
    return m;
}

/* Fails where got and want differ by more than STEP_TOLERANCE max(largest |want|, scale).
 * scale: the largest magnitude before the step, because the only element of a tensor may cancel. */
static inline void assert_close(const char *what, int64_t t, const float *got, const double *want,
                                int64_t n, double scale)
{
    double allowed = STEP_TOLERANCE * fmax(largest(want, n), scale);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= allowed))
            fail_msg("step %lld, %s[%lld]: got %.9g, want %.9g, allowed %.2g", (long long)t, what,
                     (long long)i, (double)got[i], want[i], allowed);
}

static inline double normal(uint64_t seed, int64_t i)
{
    double u = ((double)qm_philox_stream(seed, 1, (uint64_t)i) + 0.5) * 0x1p-32;
    double w = ((double)qm_philox_stream(seed, 2, (uint64_t)i) + 0.5) * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * w);
}

static inline void draw(float *x, int64_t n, uint64_t seed, double scale)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * normal(seed, i));
}

static inline double norm(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static inline struct qm_hyper plain(double lr)
{
    struct qm_hyper h = qm_hyper_default();
    h.lr = lr;
    h.weight_decay = 0.0;
    return h;
}

static inline struct qm_hyper came_hyper(double lr)
{
    struct qm_hyper h = plain(lr);
    h.beta3 = 0.9999;
    h.eps2 = 1e-16;
    return h;
}

static inline struct qm_hyper lowrank_hyper(double rank, double scale)
{
    struct qm_hyper h = plain(1e-2);
    h.eps = 1e-6;
    h.rank = rank;
    h.scale = scale;
    h.gap = 5;
    return h;
}

/* Compares 24 steps, each from the rule's state.  The rows differ in scale, the gradient of step
 * 6 is zero, and the gradient of step 12 is 1000 times larger. */
static inline void follow(const char *rule, const struct qm_hyper *h, int rank, int64_t a,
                          int64_t b, int64_t c)
{
    struct pair *q = pair_open(rule, h, rank, a, b, c);
    int64_t last = rank > 0 ? q->shape.dim[rank - 1] : 1;
    q->tensor = 1;
    draw(q->p, q->n, 1, 0.3);
    for (int64_t t = 1; t <= 24; t++) {
        draw(q->g, q->n, 100 + (uint64_t)t, t == 6 ? 0.0 : t == 12 ? 1e3 : 1.0);
        for (int64_t i = 0; i < q->n; i++)
            q->g[i] = ldexpf(q->g[i], -(int)(i / last % 7));
        take_over(q);
        double scale[QM_MAX_SLOTS], p_scale = largest(q->p64, q->n);
        for (int i = 0; i < q->rule->n_slots; i++)
            scale[i] = largest(q->slot64[i], q->slot_n[i]);
        assert_int_equal(step_float(q, t), QM_OK);
        assert_int_equal(step_double(q, t), QM_OK);
        assert_close("parameter", t, q->p, q->p64, q->n, p_scale);
        for (int i = 0; i < q->rule->n_slots; i++)
            assert_close(q->rule->slot[i], t, q->slot[i], q->slot64[i], q->slot_n[i], scale[i]);
    }
    free(q);
}

static inline void follow_shapes(const char *rule, const struct qm_hyper *h)
{
    follow(rule, h, 2, 24, 10, 0);
    follow(rule, h, 2, 8, 28, 0);
    follow(rule, h, 2, 16, 16, 0);
    follow(rule, h, 2, 1, 33, 0);
    follow(rule, h, 2, 33, 1, 0);
    follow(rule, h, 1, 37, 0, 0);
    follow(rule, h, 0, 0, 0, 0);
    follow(rule, h, 3, 3, 8, 6);
    follow(rule, h, 2, 0, 8, 0);
}

#endif
