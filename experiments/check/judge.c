/* judge.c - runs a case beside the oracle and collects verdicts. */
#include "experiments/check/judge.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/check/draws.h"
#include "experiments/check/slot.h"
#include "experiments/check/stored.h"
#include "experiments/check/trial.h"
#include "experiments/oracle_hyper.h"
#include "oracle/bound.h"
#include "oracle/oracle.h"

enum { TENSOR = 1, GUARD = 64, POISON = 0xA5 };

/* ---- guarded memory ------------------------------------------------------------------------ */

struct room {
    unsigned char *base;
    size_t bytes;
};

static void *room_open(struct room *r, size_t bytes)
{
    r->bytes = bytes;
    r->base = malloc(bytes + 2 * GUARD);
    if (!r->base)
        return NULL;
    memset(r->base, POISON, bytes + 2 * GUARD);
    return r->base + GUARD;
}

static int room_is_intact(const struct room *r)
{
    for (size_t i = 0; i < GUARD; i++)
        if (r->base[i] != POISON || r->base[GUARD + r->bytes + i] != POISON)
            return 0;
    return 1;
}

/* ---- one run ------------------------------------------------------------------------------- */

/* One of the two plans, with everything that a backend writes to. */
struct side {
    void *plan;
    struct room p_room, stored_room, residual_room, state_room[QM_MAX_SLOTS],
        codes_room[QM_MAX_SLOTS], scales_room[QM_MAX_SLOTS];
    void *stored, *residual; /* the parameter as it is stored; f32: p itself */
    float *p, *state[QM_MAX_SLOTS], *scales[QM_MAX_SLOTS];
    uint8_t *codes[QM_MAX_SLOTS];
};

struct run {
    const struct qm_subject *s;
    const struct qm_case *c;
    struct qm_recipe judged, run; /* applied to the case; run: altered too */
    const struct qm_oracle *oracle;
    struct qm_oracle_hyper hyper;
    struct qm_stored format; /* of the parameter */
    int n_slots;
    struct qm_shape shape[QM_MAX_SLOTS]; /* of the slots */
    int64_t n, slot_n[QM_MAX_SLOTS], n_scales[QM_MAX_SLOTS];
    const struct qm_decider *decider[QM_MAX_SLOTS]; /* NULL: float32 */
    uint64_t seed;
    struct side side[2];        /* one thread, two threads */
    struct qm_baseline float32; /* open where RMSEs are taken */
    struct room g_room, h_room;
    float *g;
    uint16_t *h;
    double *want_p, *want[QM_MAX_SLOTS], *error_p, *error[QM_MAX_SLOTS], *lo, *hi;
    double *wide_p, *wide_g, *wide[QM_MAX_SLOTS]; /* the inputs of a step */
    double *stored[QM_MAX_SLOTS];                 /* slots after it, as they decode */
    float *before_p, *before[QM_MAX_SLOTS];
    float *left[2][QM_MAX_SLOTS + 1]; /* choices of this step and of the one before; QM_MAX_SLOTS:
                                       * of the parameter */
    int *flag;
    const struct qm_trial *trial; /* where the inputs come from; NULL: from the case */
    struct qm_trial *record;      /* where they go to, or NULL */
    volatile int *begun;          /* steps, or NULL */
    int only;                     /* slot that is judged, or QM_SLOT_ANY */
    int n_sides, steps;
    struct qm_tally *t;
    struct qm_finding finding;
};

static int is_wanted(const struct run *r, int slot)
{
    return r->only == QM_SLOT_ANY || r->only == slot;
}

static uint64_t hash(uint64_t seed, const char *text)
{
    uint64_t h = seed ^ 0xcbf29ce484222325u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

static qm_status side_open(struct run *r, struct side *s, int threads)
{
    size_t n = (size_t)r->n;
    int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    qm_status st = r->s->backend->open(&r->run, &r->c->shape, TENSOR, &s->plan);
    omp_set_num_threads(before);
    QM_TRY(st);
    const struct qm_stored *f = &r->format;
    int ok = (s->p = room_open(&s->p_room, sizeof(float) * n)) != NULL;
    ok &= (s->stored = room_open(&s->stored_room, (size_t)f->bytes * n)) != NULL;
    ok &= (s->residual = room_open(&s->residual_room, (size_t)f->residual_bytes * n)) != NULL;
    for (int i = 0; i < r->n_slots; i++) {
        size_t scales = sizeof(float) * (size_t)r->n_scales[i], m = (size_t)r->slot_n[i];
        ok &= (s->state[i] = room_open(&s->state_room[i], sizeof(float) * m)) != NULL;
        ok &= (s->codes[i] = room_open(&s->codes_room[i], m)) != NULL;
        ok &= (s->scales[i] = room_open(&s->scales_room[i], scales)) != NULL;
    }
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "buffers of %lld elements", (long long)r->n);
}

static void side_close(const struct run *r, struct side *s)
{
    if (s->plan)
        r->s->backend->close(s->plan);
    free(s->p_room.base);
    free(s->stored_room.base);
    free(s->residual_room.base);
    for (int i = 0; i < QM_MAX_SLOTS; i++) {
        free(s->state_room[i].base);
        free(s->codes_room[i].base);
        free(s->scales_room[i].base);
    }
}

static void run_close(struct run *r)
{
    side_close(r, &r->side[0]);
    side_close(r, &r->side[1]);
    qm_baseline_close(&r->float32);
    free(r->g_room.base);
    free(r->h_room.base);
    free(r->want_p);
    free(r->before_p);
    free(r->flag);
}

static qm_status run_memory(struct run *r)
{
    size_t n = (size_t)r->n, scales = 1, sum = 0;
    for (int i = 0; i < r->n_slots; i++) {
        scales = (size_t)r->n_scales[i] > scales ? (size_t)r->n_scales[i] : scales;
        sum += (size_t)r->slot_n[i];
    }
    r->g = room_open(&r->g_room, sizeof *r->g * n);
    r->h = room_open(&r->h_room, sizeof *r->h * n);
    r->want_p = malloc(sizeof(double) * (4 * n + 4 * sum + 2 * scales));
    r->before_p = malloc(sizeof(float) * (3 * (n + sum) + 1));
    r->flag = malloc(sizeof(int) * scales);
    if (!r->g || !r->h || !r->want_p || !r->before_p || !r->flag)
        return qm_fail(QM_NO_MEMORY, "buffers of %lld elements", (long long)r->n);
    r->error_p = r->want_p + n;
    r->wide_g = r->error_p + n;
    r->wide_p = r->wide_g + n;
    r->lo = r->wide_p + n;
    r->hi = r->lo + scales;
    double *at = r->hi + scales;
    float *before = r->before_p + n, *left = before + sum;
    for (int i = 0; i < r->n_slots; i++) {
        r->want[i] = at;
        r->error[i] = r->want[i] + r->slot_n[i];
        r->wide[i] = r->error[i] + r->slot_n[i];
        r->stored[i] = r->wide[i] + r->slot_n[i];
        r->before[i] = before;
        at = r->stored[i] + r->slot_n[i];
        before += r->slot_n[i];
        r->left[0][i] = left;
        r->left[1][i] = left + r->slot_n[i];
        left += 2 * r->slot_n[i];
    }
    r->left[0][QM_MAX_SLOTS] = left;
    r->left[1][QM_MAX_SLOTS] = left + n;
    for (int i = 0; i < r->n_sides; i++)
        QM_TRY(side_open(r, &r->side[i], i + 1));
    return QM_OK;
}

/* ---- what surrounds the numbers -------------------------------------------------------------- */

static const char *slot_name(const struct run *r, int i) { return r->judged.rule->slot[i]; }

/* Reads codes, scales and, where wanted, values of every slot into poisoned memory. */
static qm_status read_state(struct run *r, struct side *s, int decodes)
{
    const struct qm_backend *b = r->s->backend;
    if (r->format.residual_bytes)
        QM_TRY(b->save(s->plan, QM_RESIDUAL, s->residual, NULL));
    for (int64_t i = 0; i < r->n; i++)
        s->p[i] = (float)qm_stored_seen(&r->format, s->stored, s->residual, i);
    for (int i = 0; i < r->n_slots; i++) {
        size_t n = (size_t)r->slot_n[i], bytes = sizeof(float) * (size_t)r->n_scales[i];
        uint8_t *codes = r->decider[i] ? s->codes[i] : NULL;
        memset(s->codes[i], POISON, n);
        memset(s->scales[i], POISON, bytes);
        if (decodes) {
            memset(s->state[i], POISON, sizeof(float) * n);
            QM_TRY(b->decode(s->plan, i, s->state[i]));
        }
        QM_TRY(b->save(s->plan, i, codes, s->scales[i]));
    }
    return QM_OK;
}

/* Poison that is still there, and guards that are not.  8-bit codes may be the poison themselves;
 * codes are compared with what a second plan gives, whose poison is judged by its decoded values. */
static void judge_memory(struct run *r, const struct side *s, int decoded)
{
    uint32_t poison = 0x01010101u * POISON;
    int intact = room_is_intact(&s->stored_room) && room_is_intact(&s->residual_room) &&
                 room_is_intact(&r->g_room) && room_is_intact(&r->h_room);
    for (int i = 0; i < r->n_slots; i++) {
        intact &= room_is_intact(&s->state_room[i]) && room_is_intact(&s->codes_room[i]) &&
                  room_is_intact(&s->scales_room[i]);
        for (int64_t k = 0; k < r->slot_n[i] && decoded; k++)
            if (qm_bits(s->state[i][k]) == poison)
                qm_finding_set(&r->finding, QM_BAD_MACHINERY, "%s: element %lld was not written",
                               slot_name(r, i), (long long)k);
        for (int64_t k = 0; k < r->n_scales[i]; k++)
            if (qm_bits(s->scales[i][k]) == poison)
                qm_finding_set(&r->finding, QM_BAD_MACHINERY, "%s: scale %lld was not written",
                               slot_name(r, i), (long long)k);
    }
    if (!intact)
        qm_finding_set(&r->finding, QM_BAD_MACHINERY, "something was written outside a buffer");
}

static int64_t first_difference(const void *a, const void *b, size_t n, size_t size)
{
    if (n * size == 0 || memcmp(a, b, n * size) == 0)
        return -1;
    size_t i = 0;
    while (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0)
        i++;
    return (int64_t)i;
}

static void judge_repetition(struct run *r, int decoded)
{
    const struct side *a = &r->side[0], *b = &r->side[1];
    int before = r->finding.severity;
    if (r->n_sides < 2)
        return;
    int64_t at = first_difference(a->stored, b->stored, (size_t)r->n, (size_t)r->format.bytes);
    if (at < 0)
        at = first_difference(a->residual, b->residual, (size_t)r->n,
                              (size_t)r->format.residual_bytes);
    if (at >= 0)
        qm_finding_set(&r->finding, QM_BAD_MACHINERY,
                       "a second run with two threads differs: parameter %lld is %a, then %a",
                       (long long)at, (double)a->p[at], (double)b->p[at]);
    for (int i = 0; i < r->n_slots; i++) {
        at = decoded
                 ? first_difference(a->state[i], b->state[i], (size_t)r->slot_n[i], sizeof(float))
                 : -1;
        if (at < 0 && r->decider[i])
            at = first_difference(a->codes[i], b->codes[i], (size_t)r->slot_n[i], 1);
        if (at >= 0)
            qm_finding_set(&r->finding, QM_BAD_MACHINERY,
                           "a second run with two threads differs: %s element %lld is %a, then %a",
                           slot_name(r, i), (long long)at, (double)a->state[i][at],
                           (double)b->state[i][at]);
        if (first_difference(a->scales[i], b->scales[i], (size_t)r->n_scales[i], sizeof(float)) >=
            0)
            qm_finding_set(&r->finding, QM_BAD_MACHINERY,
                           "a second run with two threads differs: scales of %s", slot_name(r, i));
    }
    if (r->finding.severity > before)
        qm_finding_place(&r->finding, QM_PLACE_REPEAT, QM_SLOT_NONE, 0, 0.0, 0.0);
}

/* ---- a step -------------------------------------------------------------------------------- */

/* A float32 number against the oracle; 1 when it is out of bounds. */
static int judge_number(struct run *r, double got, double want, double error, const char *case_name)
{
    double off = fabs(got - want);
    if (isfinite(want) && !(error < HUGE_VAL)) {
        r->t->unbounded++;
        return 0;
    }
    enum qm_verdict is = qm_verdict_number(got, want, error);
    r->t->judged++;
    r->t->verdict[is]++;
    if (isfinite(want) && error > 0.0 && off / error > r->t->worst_ratio) {
        r->t->worst_ratio = off / error;
        snprintf(r->t->worst_case, sizeof r->t->worst_case, "%s", case_name);
    }
    return is == QM_VERDICT_WRONG;
}

/* The inputs of element i, for reproducing it by hand. */
static void put_inputs(const struct run *r, int64_t i, int64_t t, char *text, size_t size)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "; step %lld", (long long)t);
    if (i < 0)
        return;
    used = strlen(text);
    if (i < r->n)
        snprintf(text + used, size - used, ", p %a, g %a", (double)r->before_p[i], r->wide_g[i]);
    for (int k = 0; k < r->n_slots; k++) {
        used = strlen(text);
        if (i < r->slot_n[k])
            snprintf(text + used, size - used, ", %s %a", slot_name(r, k), (double)r->before[k][i]);
    }
}

static void add_inputs(struct run *r, int64_t i, int64_t t)
{
    put_inputs(r, i, t, r->finding.text, sizeof r->finding.text);
}

static void judge_floats(struct run *r, int slot, int64_t t, const char *case_name)
{
    const float *got = slot < 0 ? r->side[0].p : r->side[0].state[slot];
    const double *want = slot < 0 ? r->want_p : r->want[slot];
    const double *error = slot < 0 ? r->error_p : r->error[slot];
    const char *name = slot < 0 ? "parameter" : slot_name(r, slot);
    for (int64_t i = 0; i < (slot < 0 ? r->n : r->slot_n[slot]); i++) {
        double before = r->t->worst_ratio;
        int bad = judge_number(r, (double)got[i], want[i], error[i], case_name);
        if (r->t->worst_ratio > before) {
            snprintf(r->t->worst_what, sizeof r->t->worst_what,
                     "%s %lld is %a, want %a within %.3g", name, (long long)i, (double)got[i],
                     want[i], error[i]);
            put_inputs(r, i, t, r->t->worst_what, sizeof r->t->worst_what);
        }
        if (bad && qm_finding_set(&r->finding, isfinite(want[i]) ? QM_BAD_BOUND : QM_BAD_SPECIAL,
                                  "%s %lld is %a, want %a within %.3g", name, (long long)i,
                                  (double)got[i], want[i], error[i])) {
            double slack = isfinite(want[i]) ? error[i] : (double)NAN;
            add_inputs(r, i, t);
            qm_finding_place(&r->finding, QM_PLACE_NUMBER, slot, i, want[i] - slack,
                             want[i] + slack);
        }
    }
}

static void judge_stored(struct run *r, int64_t t)
{
    const struct side *a = &r->side[0];
    for (int64_t i = 0; i < r->n; i++) {
        char text[160] = "";
        int unbounded;
        r->t->left = 0.0f;
        enum qm_verdict is = qm_stored_judge(&r->format, a->stored, a->residual, i, r->want_p[i],
                                             r->error_p[i], r->t, &unbounded, text, sizeof text);
        r->t->unbounded += unbounded;
        r->left[0][QM_MAX_SLOTS][i] = r->t->left;
        if (unbounded)
            continue;
        r->t->judged++;
        r->t->verdict[is]++;
        if (is >= QM_VERDICT_OFF_BY_ONE &&
            qm_finding_set(&r->finding, isfinite(r->want_p[i]) ? QM_BAD_BOUND : QM_BAD_SPECIAL,
                           "parameter %lld %s", (long long)i, text)) {
            add_inputs(r, i, t);
            qm_finding_place(&r->finding, QM_PLACE_NONE, QM_SLOT_PARAM, i, 0.0, 0.0);
        }
    }
}

static void judge_slot(struct run *r, int i, int64_t t, const char *case_name)
{
    struct qm_slot_view v = {.d = r->decider[i],
                             .shape = &r->shape[i],
                             .n = r->slot_n[i],
                             .want = r->want[i],
                             .error = r->error[i],
                             .codes = r->side[0].codes[i],
                             .scales = r->side[0].scales[i],
                             .decoded = r->side[0].state[i],
                             .left = r->left[0][i],
                             .reorder = r->s->reorder};
    struct qm_finding f = {.severity = r->finding.severity};
    int64_t at = -1;
    double before = r->t->worst_ratio;
    qm_slot_judge(&v, i, r->lo, r->hi, r->flag, r->t, &f, &at);
    if (r->t->worst_ratio > before) {
        snprintf(r->t->worst_case, sizeof r->t->worst_case, "%s", case_name);
        snprintf(r->t->worst_what, sizeof r->t->worst_what, "a scale of %s, step %lld",
                 slot_name(r, i), (long long)t);
    }
    if (qm_finding_set(&r->finding, f.severity, "%s: %s", slot_name(r, i), f.text)) {
        qm_finding_place(&r->finding, f.place, i, f.at, f.low, f.high);
        memcpy(r->finding.takes, f.takes, sizeof f.takes);
        add_inputs(r, at, t);
    }
}

static const char *drawn_name(const struct run *r, int which)
{
    return which == QM_MAX_SLOTS ? "the parameter" : slot_name(r, which);
}

/* The slots whose rounding draws, and the parameter as QM_MAX_SLOTS. */
static int draws(const struct run *r, int which)
{
    if (which == QM_MAX_SLOTS)
        return r->judged.param.write == QM_WRITE_stoch && r->judged.param.format != QM_PARAM_f32;
    return which < r->n_slots && r->decider[which] && qm_round_draws(r->decider[which]->q.round);
}

static int64_t drawn_n(const struct run *r, int which)
{
    return which == QM_MAX_SLOTS ? r->n : r->slot_n[which];
}

/* Slots from the third on have one role, and so the same draws. */
static int share_a_role(int a, int b) { return a >= 2 && b >= 2 && b < QM_MAX_SLOTS; }

/* The choices of stochastic rounding in step k of the case; then they become those of the step
 * before. */
static void judge_draws(struct run *r, int k)
{
    for (int i = 0; i <= QM_MAX_SLOTS; i++) {
        float *now = r->left[0][i], *old = r->left[1][i];
        int64_t n = draws(r, i) ? drawn_n(r, i) : 0, apart = n ? qm_draws_repeat(now, n) : 0;
        const char *name = n ? drawn_name(r, i) : "";
        if (n && qm_draws_biased(now, n))
            qm_finding_set(&r->finding, QM_BAD_WRONG, "%s: stochastic rounding is biased", name);
        if (apart)
            qm_finding_set(&r->finding, QM_BAD_WRONG,
                           "%s: stochastic rounding of elements %lld apart is related", name,
                           (long long)apart);
        if (n && k > 0 && qm_draws_related(now, old, n))
            qm_finding_set(&r->finding, QM_BAD_WRONG,
                           "%s: stochastic rounding of two steps is related", name);
        for (int j = i + 1; n && j <= QM_MAX_SLOTS; j++)
            if (draws(r, j) && drawn_n(r, j) == n && !share_a_role(i, j) &&
                qm_draws_related(now, r->left[0][j], n))
                qm_finding_set(&r->finding, QM_BAD_WRONG,
                               "stochastic rounding of %s and of %s is related", name,
                               drawn_name(r, j));
    }
    for (int i = 0; i <= QM_MAX_SLOTS; i++)
        if (draws(r, i))
            memcpy(r->left[1][i], r->left[0][i], sizeof(float) * (size_t)drawn_n(r, i));
}

/* Slot i of a tensor of one element after a step from `state` with gradient g. */
static double answer(const struct run *r, int i, int64_t t, double state, double g)
{
    const struct qm_shape one = {r->c->shape.rank < 2 ? 1 : 2, {1, 1}};
    double p = 0.0, room[QM_MAX_SLOTS] = {0.0}, *slot[QM_MAX_SLOTS];
    for (int k = 0; k < r->n_slots; k++)
        slot[k] = &room[k];
    room[i] = state;
    if (qm_oracle_step(r->oracle, &p, slot, &g, &one, TENSOR, &r->hyper, t) != QM_OK)
        return (double)NAN;
    return room[i];
}

/* How slot i answers to its state and to the gradient, asked of the oracle; nothing where that is no
 * average (of a clipped update, of a projection). */
static struct qm_aim_weight weight_of(const struct run *r, int i, int64_t t)
{
    double give = answer(r, i, t, 0.0, 1.0), half = answer(r, i, t, 0.0, 0.5);
    double share = r->judged.rule->slot_sign[i] ? 0.5 : 0.25;
    if (!(fabs(half - share * give) <= 1e-6 * fabs(give)))
        return (struct qm_aim_weight){0.0, 0.0};
    return (struct qm_aim_weight){answer(r, i, t, 1.0, 0.0), give};
}

static int same_shape(const struct qm_shape *a, const struct qm_shape *b)
{
    int same = a->rank == b->rank;
    for (int i = 0; i < a->rank && same; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

static struct qm_aim aim_of(const struct run *r, int64_t t)
{
    struct qm_aim aim = {.recipe = &r->judged, .shape = &r->c->shape, .n = r->n, .seed = r->seed};
    for (int i = 0; i < r->n_slots; i++) {
        const struct qm_decider *d = r->decider[i];
        if (d && d->q.curve != QM_CURVE_allog && same_shape(&r->shape[i], &r->c->shape)) {
            aim.slot[i] = d;
            aim.weight[i] = weight_of(r, i, t);
        }
    }
    return aim;
}

/* The gradient of step t in the recipe's type, and what it widens to. */
static void make_gradient(struct run *r, int64_t t, int k, struct qm_tensor *out)
{
    if (r->trial) {
        void *g = r->judged.grad == QM_DTYPE_f32 ? (void *)r->g : (void *)r->h;
        memcpy(g, qm_trial_call(r->trial, k).g, (size_t)r->n * qm_dtype_size(r->judged.grad));
        *out = (struct qm_tensor){g, r->judged.grad, r->c->shape};
        qm_to_double(out->data, out->dtype, 0, r->n, r->wide_g);
        return;
    }
    struct qm_aim aim = aim_of(r, t);
    for (int i = 0; i < r->n_slots; i++)
        aim.state[i] = r->before[i];
    qm_case_gradient(r->c, &aim, t, k, r->g);
    *out = (struct qm_tensor){r->g, QM_DTYPE_f32, r->c->shape};
    if (r->judged.grad != QM_DTYPE_f32) {
        for (int64_t i = 0; i < r->n; i++)
            r->h[i] = r->judged.grad == QM_DTYPE_bf16 ? qm_float_to_bf16(r->g[i])
                                                      : qm_float_to_f16(r->g[i]);
        *out = (struct qm_tensor){r->h, r->judged.grad, r->c->shape};
    }
    qm_to_double(out->data, out->dtype, 0, r->n, r->wide_g);
}

/* What rounding a plain slot to 16 bits may change: half an ulp. */
static double plain_error(const struct run *r, int slot, double x)
{
    struct qm_quantizer q = qm_recipe_slot(&r->judged, slot, &r->c->shape);
    if (q.bits != 0 || q.plain == QM_PLAIN_f32)
        return 0.0;
    if (q.plain == QM_PLAIN_f16)
        return x >= 65504.0 ? (double)INFINITY : 0x1p-11 * x + 0x1p-25;
    return x >= 0x1.fep127 ? (double)INFINITY : 0x1p-8 * x + 0x1p-134;
}

static int is_projection(const struct qm_rule *rule, int i)
{
    return strcmp(rule->slot[i], "proj") == 0;
}

/* The parameter's part of the step sees slot i as stored: because the recipe says so, or the rule, or
 * because its reference leaves it some freedom (a projection). */
static int is_read_back(const struct run *r, int i, int64_t t)
{
    const struct qm_rule *rule = r->judged.rule;
    struct qm_rule_step s;
    struct qm_whole w = {.s = &s, .shape = &r->c->shape, .tensor = TENSOR};
    if (rule->block)
        return 0;
    if (r->judged.state_stored || is_projection(rule, i))
        return 1;
    if (!rule->reads_back)
        return 0;
    rule->prepare(&r->judged.hyper, t, &s);
    s.hyper = &r->judged.hyper;
    return rule->reads_back(&w, i);
}

/* Whether a stored parameter of 16 bits is rounded within the step as well: whole.h's rules see how it
 * is stored where that is to nearest alone. */
static int is_rounded_between(const struct run *r)
{
    const struct qm_param *p = &r->judged.param;
    const struct qm_rule *rule = r->judged.rule;
    return rule->order & QM_ORDER_rounds &&
           (p->format == QM_PARAM_bf16 || p->format == QM_PARAM_f16) &&
           (!rule->states || p->write == QM_WRITE_near);
}

/* The errors of the step just made, and of the float32 one; want: the oracle's, as it comes. */
static qm_status judge_float32(struct run *r, int64_t t, const struct qm_tensor *g)
{
    struct qm_baseline *b = &r->float32;
    struct qm_rmse *to = r->t->rmse;
    if (!b->plan)
        return QM_OK;
    QM_TRY(qm_baseline_step(b, &r->c->shape, r->before_p, r->before, g, t, r->seed));
    qm_rmse_add(&to[QM_MAX_SLOTS], r->side[0].p, b->p, r->want_p, r->n);
    for (int i = 0; i < r->n_slots; i++)
        if (!is_projection(r->judged.rule, i)) /* whose vectors have no one value */
            qm_rmse_add(&to[i], r->side[0].state[i], b->slot[i], r->want[i], r->slot_n[i]);
    return QM_OK;
}

/* The oracle from the judged side's state, and the bound of every result. */
static qm_status run_oracle(struct run *r, int64_t t, const struct qm_tensor *g)
{
    const double *old[QM_MAX_SLOTS], *stored[QM_MAX_SLOTS];
    const struct qm_grid grid = qm_stored_grid(&r->format);
    struct qm_bound_step b = {.h = &r->hyper,
                              .t = t,
                              .n = r->n,
                              .order = r->judged.rule->order,
                              .reorder = r->s->reorder,
                              .shape = &r->c->shape,
                              .tensor = TENSOR,
                              .p = r->wide_p,
                              .g = r->wide_g,
                              .slot = old,
                              .p_want = r->want_p,
                              .want = r->want,
                              .stored = stored,
                              .between = is_rounded_between(r) ? &grid : NULL,
                              .e_p = r->error_p,
                              .e_slot = r->error};
    for (int64_t i = 0; i < r->n; i++)
        r->want_p[i] = r->wide_p[i] = (double)r->before_p[i];
    for (int k = 0; k < r->n_slots; k++) {
        old[k] = r->wide[k];
        stored[k] = is_read_back(r, k, t) ? r->stored[k] : NULL;
        b.slot_n[k] = r->slot_n[k];
        memset(r->error[k], 0,
               sizeof *r->error[k] * (size_t)r->slot_n[k]); /* of a slot left alone */
        b.plain |= r->decider[k] ? 0u : 1u << k;
        for (int64_t i = 0; i < r->slot_n[k]; i++) {
            r->want[k][i] = r->wide[k][i] = (double)r->before[k][i];
            r->stored[k][i] = (double)r->side[0].state[k][i];
        }
    }
    QM_TRY(qm_oracle_step(r->oracle, r->want_p, r->want, r->wide_g, &r->c->shape, TENSOR, &r->hyper,
                          t));
    QM_TRY(judge_float32(r, t, g)); /* families over whole tensors replace the results below */
    QM_TRY(r->oracle->bound(&b));
    for (int k = 0; k < r->n_slots; k++)
        for (int64_t i = 0; i < r->slot_n[k]; i++)
            r->error[k][i] += plain_error(r, k, fabs(r->want[k][i]) + r->error[k][i]);
    return QM_OK;
}

/* Both sides take over the state that call k of the trial starts from. */
static qm_status take_call(struct run *r, int k)
{
    struct qm_call from = qm_trial_call(r->trial, k);
    const struct qm_backend *b = r->s->backend;
    for (int s = 0; s < r->n_sides; s++) {
        memcpy(r->side[s].stored, from.p, (size_t)r->format.bytes * (size_t)r->n);
        if (r->format.residual_bytes)
            QM_TRY(b->load(r->side[s].plan, QM_RESIDUAL, from.residual, NULL));
        for (int i = 0; i < r->n_slots; i++)
            QM_TRY(
                b->load(r->side[s].plan, i, r->decider[i] ? from.codes[i] : NULL, from.scales[i]));
    }
    return QM_OK;
}

/* Keeps the inputs of step t, number k of this run; side 0 was just read. */
static void keep_call(struct run *r, int k, int64_t t, const struct qm_tensor *g)
{
    int at = k < r->record->n_calls ? k : r->record->n_calls - 1;
    struct qm_call to = qm_trial_call(r->record, at);
    const struct side *s = &r->side[0];
    *to.t = t;
    memcpy(to.p, s->stored, (size_t)r->format.bytes * (size_t)r->n);
    memcpy(to.residual, s->residual, (size_t)r->format.residual_bytes * (size_t)r->n);
    memcpy(to.g, g->data, (size_t)r->n * qm_dtype_size(g->dtype));
    for (int i = 0; i < r->n_slots; i++) {
        if (r->decider[i])
            memcpy(to.codes[i], s->codes[i], (size_t)r->slot_n[i]);
        memcpy(to.scales[i], s->scales[i], sizeof(float) * (size_t)r->n_scales[i]);
    }
    *r->begun = k + 1;
}

static void judge_gradient(struct run *r, const struct qm_tensor *g)
{
    for (int64_t i = 0; i < r->n; i++) {
        double now;
        qm_to_double(g->data, g->dtype, i, 1, &now);
        if (memcmp(&now, &r->wide_g[i], sizeof now) != 0)
            qm_finding_set(&r->finding, QM_BAD_MACHINERY, "gradient %lld was changed",
                           (long long)i);
    }
}

static qm_status judge_numbers(struct run *r, int64_t t, const struct qm_tensor *g,
                               const char *case_name)
{
    if (r->only == QM_SLOT_NONE)
        return QM_OK;
    QM_TRY(run_oracle(r, t, g));
    if (is_wanted(r, QM_SLOT_PARAM) && r->judged.param.format == QM_PARAM_f32)
        judge_floats(r, -1, t, case_name);
    else if (is_wanted(r, QM_SLOT_PARAM))
        judge_stored(r, t);
    for (int i = 0; i < r->n_slots; i++) {
        if (is_wanted(r, i) && r->decider[i])
            judge_slot(r, i, t, case_name);
        else if (is_wanted(r, i))
            judge_floats(r, i, t, case_name);
    }
    return QM_OK;
}

static qm_status one_step(struct run *r, int k, const char *case_name)
{
    int64_t t = r->trial ? *qm_trial_call(r->trial, k).t : r->c->t + k;
    size_t bytes = sizeof(float) * (size_t)r->n;
    struct qm_tensor g;
    /* Codes and scales of the second side are looked at in every step; what they decode to with two
     * threads in the last one alone, it costs as much as the step. */
    int is_last = r->trial || r->record || k == r->steps - 1;
    if (r->trial)
        QM_TRY(take_call(r, k));
    if (r->trial || k == 0) /* else it was read after the step before */
        QM_TRY(read_state(r, &r->side[0], 1));
    memcpy(r->before_p, r->side[0].p, bytes);
    for (int i = 0; i < r->n_slots; i++)
        memcpy(r->before[i], r->side[0].state[i], sizeof(float) * (size_t)r->slot_n[i]);
    for (int i = 0; i < r->n_slots; i++) /* what the rule does not read */
        if (r->slot_n[i] == 1 && r->n == 1 && r->judged.rule->single && !r->decider[i])
            r->before[i][0] = 0.0f;
    make_gradient(r, t, k, &g);
    if (r->record)
        keep_call(r, k, t, &g);
    for (int i = 0; i < r->n_sides; i++) {
        struct qm_tensor p = {r->side[i].stored, qm_param_dtype(&r->run.param), r->c->shape};
        QM_TRY(r->s->backend->step(r->side[i].plan, &p, &g, t, r->seed));
        QM_TRY(read_state(r, &r->side[i], i == 0 || is_last));
        if (is_wanted(r, QM_SLOT_NONE))
            judge_memory(r, &r->side[i], i == 0 || is_last);
    }
    if (is_wanted(r, QM_SLOT_NONE)) {
        judge_gradient(r, &g);
        judge_repetition(r, is_last);
    }
    QM_TRY(judge_numbers(r, t, &g, case_name));
    if (r->only == QM_SLOT_ANY) /* they are seen while slots are judged */
        judge_draws(r, k);
    return QM_OK;
}

/* ---- a case -------------------------------------------------------------------------------- */

static qm_status start(struct run *r)
{
    struct qm_aim aim = aim_of(r, r->c->t);
    for (int s = 0; s < 2; s++) {
        struct side *side = &r->side[s];
        qm_case_start(&aim, side->p);
        for (int64_t i = 0; i < r->n; i++)
            qm_stored_put(&r->format, side->stored, i, (double)side->p[i]);
        for (int i = 0; i < r->n_slots; i++)
            if (qm_case_load(r->c, &aim, i, r->n_scales[i], side->codes[i], side->scales[i]))
                QM_TRY(r->s->backend->load(side->plan, i, side->codes[i], side->scales[i]));
    }
    return QM_OK;
}

/* Where inputs are kept or given, the first failing step is the last. */
static qm_status run_case(struct run *r, int steps, const char *name)
{
    int is_short = r->trial || r->record;
    r->steps = steps;
    QM_TRY(run_memory(r));
    if (!is_short && r->c->kind == QM_CLASS_normal && r->n > 1) /* some rules know n = 1 */
        QM_TRY(qm_baseline_open(&r->float32, &r->judged, &r->c->shape, TENSOR, r->n, r->slot_n));
    if (!r->trial)
        QM_TRY(start(r));
    for (int k = 0; k < steps && !(is_short && r->finding.severity); k++)
        QM_TRY(one_step(r, k, name));
    return QM_OK;
}

/* A shape that the quantizers do not take (col of a 1-D tensor) is left out. */
static int does_not_fit(const struct run *r)
{
    for (int i = 0; i < r->n_slots; i++) {
        struct qm_codec c = {.q = r->decider[i] ? r->decider[i]->q : (struct qm_quantizer){0}};
        if (qm_codec_fits(&c, &r->shape[i]) != QM_OK)
            return 1;
    }
    return 0;
}

/* r->judged, r->c and r->s are given; QM_SKIPPED: the shape does not fit. */
static qm_status run_open(struct run *r)
{
    r->run = r->judged;
    if (r->s->alter)
        r->s->alter(&r->run);
    r->n_sides = r->trial ? r->trial->n_sides : 2;
    r->n = qm_shape_numel(&r->c->shape);
    r->n_slots = r->judged.rule->n_slots;
    r->hyper = qm_oracle_hyper_of(&r->judged.hyper);
    r->format = qm_stored_of(&r->judged.param);
    r->oracle = qm_oracle_find(r->judged.rule->family);
    for (int i = 0; i < r->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(&r->judged, i, &r->c->shape);
        r->shape[i] = r->c->shape;
        if (r->judged.rule->slot_shape)
            r->judged.rule->slot_shape(&r->judged.hyper, i, &r->c->shape, &r->shape[i]);
        r->slot_n[i] = qm_shape_numel(&r->shape[i]);
        r->decider[i] = q.bits ? &r->s->decider[i] : NULL;
        r->n_scales[i] = q.bits ? qm_groups_count(&q, &r->shape[i], r->slot_n[i]) : r->slot_n[i];
    }
    return does_not_fit(r) ? qm_fail(QM_SKIPPED, "the quantizers do not take this shape") : QM_OK;
}

/* Counts a case that was run, and keeps its finding. */
static qm_status end_case(struct run *r, qm_status st, const char *name)
{
    struct qm_tally *t = r->t;
    run_close(r);
    if (st != QM_OK)
        return qm_fail_in(st, name);
    t->cases++;
    if (r->finding.severity) {
        t->failed_cases++;
        snprintf(r->finding.name, sizeof r->finding.name, "%s", name);
        if (t->n_findings < QM_FINDINGS)
            t->finding[t->n_findings++] = r->finding;
    }
    return QM_OK;
}

qm_status qm_judge_case(const struct qm_subject *s, const struct qm_case *c, uint64_t seed,
                        struct qm_tally *t)
{
    char name[QM_CASE_TEXT];
    struct run r = {.s = s, .c = c, .t = t, .judged = s->recipe, .only = QM_SLOT_ANY};
    qm_case_print(c, name);
    qm_case_apply(c, &r.judged);
    r.seed = hash(seed, name);
    if (run_open(&r) != QM_OK) {
        t->skipped++;
        return QM_OK;
    }
    return end_case(&r, run_case(&r, QM_CHECK_STEPS, name), name);
}

/* ---- trials ---------------------------------------------------------------------------------- */

uint64_t qm_case_seed(const struct qm_case *c, uint64_t seed)
{
    char name[QM_CASE_TEXT];
    return hash(seed, qm_case_print(c, name));
}

static qm_status judge_some(struct run *r, int steps, struct qm_finding *f)
{
    struct qm_tally *t = calloc(1, sizeof *t);
    if (!t)
        return qm_fail(QM_NO_MEMORY, "a tally");
    r->t = t;
    qm_status st = run_open(r);
    if (st == QM_OK) {
        st = run_case(r, steps, "");
        run_close(r);
    }
    free(t);
    if (st == QM_OK)
        *f = r->finding;
    return st;
}

qm_status qm_judge_record(const struct qm_subject *s, const struct qm_case *c, int steps,
                          struct qm_trial *trial, volatile int *begun, struct qm_finding *f)
{
    struct run r = {.s = s,
                    .c = c,
                    .judged = trial->recipe,
                    .seed = trial->seed,
                    .record = trial,
                    .begun = begun,
                    .only = QM_SLOT_ANY};
    return judge_some(&r, steps, f);
}

qm_status qm_judge_given(const struct qm_subject *s, const struct qm_trial *trial, const char *name,
                         struct qm_tally *t)
{
    struct qm_case c = {.shape = trial->shape};
    struct run r = {.s = s,
                    .c = &c,
                    .t = t,
                    .judged = trial->recipe,
                    .seed = trial->seed,
                    .trial = trial,
                    .only = QM_SLOT_ANY};
    QM_TRY(run_open(&r));
    return end_case(&r, run_case(&r, trial->n_calls, name), name);
}

qm_status qm_judge_trial(const struct qm_subject *s, const struct qm_trial *trial, int slot,
                         struct qm_finding *f)
{
    struct qm_case c = {.shape = trial->shape};
    struct run r = {.s = s,
                    .c = &c,
                    .judged = trial->recipe,
                    .seed = trial->seed,
                    .trial = trial,
                    .only = slot};
    return judge_some(&r, trial->n_calls, f);
}
