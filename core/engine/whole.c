/* whole.c - see whole.h. */
#include "core/engine/whole.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/backend.h"
#include "core/engine/whole_form.h"
#include "core/rule/whole.h"

enum { ROOMS = 16 };

struct qm_whole_plan {
    const struct qm_device *d;
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n;
    uint32_t tensor;
    int n_slots;
    struct qm_batch *body, *slot[QM_MAX_SLOTS];
    struct qm_shape slot_shape[QM_MAX_SLOTS];
    int slot_is_f32[QM_MAX_SLOTS], in_place[QM_MAX_SLOTS];
    qm_address room, wide_g; /* n floats each; wide_g: a gradient that is not float32 */
    struct {
        qm_address at;
        size_t bytes;
        int is_used;
    } rooms[ROOMS]; /* what the rule asked for so far */
    struct {
        qm_address at;
        int64_t key;
        int is_there;
    } kept;
    qm_status st; /* the first failure of a step */
};

/* ---- what the rule's operations become ---------------------------------------------------------- */

static _Thread_local struct qm_whole_plan *current;

static void keep(qm_status st)
{
    if (current->st == QM_OK)
        current->st = st;
}

static unsigned blocks_for(int64_t n, int64_t each)
{
    int64_t blocks = (n + each - 1) / each;
    return (unsigned)(blocks < 65535 ? blocks : 65535);
}

static void sweep(enum qm_sweep_kind kind, const struct qm_sweep *a)
{
    struct qm_sweep copy = *a;
    int number = (int)kind;
    void *args[] = {&number, &copy};
    if (current->st == QM_OK)
        keep(current->d->launch(qm_batch_module(current->body),
                                number < QM_SWEEP_SUMS ? QM_KERNEL_whole_sums
                                                       : QM_KERNEL_whole_sweep,
                                blocks_for(a->n, QM_STEP_THREADS), 1, args));
}

static void *pointer(qm_address at) { return (void *)(uintptr_t)at; }
static qm_address address(const void *p) { return (qm_address)(uintptr_t)p; }

static qm_status room(size_t bytes, void **out)
{
    for (int i = 0; i < ROOMS; i++) {
        if (current->rooms[i].at && (current->rooms[i].is_used || current->rooms[i].bytes < bytes))
            continue;
        if (!current->rooms[i].at) {
            keep(current->d->reserve(bytes, &current->rooms[i].at));
            QM_TRY(current->st);
            current->rooms[i].bytes = bytes;
        }
        current->rooms[i].is_used = 1;
        *out = pointer(current->rooms[i].at);
        return QM_OK;
    }
    keep(qm_fail(QM_NO_MEMORY, "a rule asks for more than %d arrays at once", ROOMS));
    return current->st;
}

static void release(void *p)
{
    for (int i = 0; p && i < ROOMS; i++)
        if (current->rooms[i].at == address(p))
            current->rooms[i].is_used = 0;
}

static qm_status kept(int64_t key, size_t bytes, void **out, int *is_new)
{
    if (!current->kept.at)
        keep(current->d->reserve(bytes, &current->kept.at));
    QM_TRY(current->st);
    *is_new = !current->kept.is_there || current->kept.key != key;
    current->kept.is_there = 1;
    current->kept.key = key;
    *out = pointer(current->kept.at);
    return QM_OK;
}

static void get(void *to, const void *from, size_t bytes)
{
    memset(to, 0, bytes);
    if (current->st == QM_OK)
        keep(current->d->get(to, address(from), bytes));
}

static void put(void *to, const void *from, size_t bytes)
{
    if (current->st == QM_OK)
        keep(current->d->put(address(to), from, bytes));
}

static struct qm_sweep of(int64_t n, float *x0, const float *x1, float c0, float c1)
{
    return (struct qm_sweep){.n = n, .c = {c0, c1}, .x = {x0, QM_AT(x1)}};
}

/* Argument lists of struct qm_whole_blocks to operations; n > 0, as chunks are. */
#define BLOCK(name, list, ...)           \
    static void name list                \
    {                                    \
        struct qm_sweep a = __VA_ARGS__; \
        sweep(QM_SWEEP_##name, &a);      \
    }
BLOCK(divide, (int64_t n, float by, float *x), of(n, x, NULL, by, 0.0f))
BLOCK(multiply, (int64_t n, float by, float *x), of(n, x, NULL, by, 0.0f))
BLOCK(decay, (int64_t n, float by, float *p), of(n, p, NULL, by, 0.0f))
BLOCK(add_scaled, (int64_t n, float by, const float *u, float *p), of(n, p, u, by, 0.0f))
BLOCK(residual, (int64_t n, float add, const float *m, float *u), of(n, u, m, add, 0.0f))
BLOCK(decay_step, (int64_t n, float keep_, float by, const float *u, float *p),
      of(n, p, u, keep_, by))
BLOCK(average, (int64_t n, float keep_, float weight, const float *x, float *old),
      of(n, old, x, keep_, weight))
#undef BLOCK

static struct qm_sweep of_moment(const struct qm_moment *m, int64_t n, float *x0, const float *x1)
{
    struct qm_sweep a = of(n, x0, x1, m->keep, m->weight);
    a.flag[0] = m->is_lerp;
    a.flag[1] = m->turns;
    a.flag[2] = m->only_finite;
    return a;
}

static void moment(const struct qm_moment *m, int64_t n, const float *x, float *old)
{
    struct qm_sweep a = of_moment(m, n, old, x);
    sweep(QM_SWEEP_moment, &a);
}

static void taken(const struct qm_moment *m, int64_t n, const float *x, float *out)
{
    struct qm_sweep a = of_moment(m, n, out, x);
    sweep(QM_SWEEP_taken, &a);
}

static void lpmm_lerp(const struct qm_rule_step *s, int64_t n, const float *g, float *m)
{
    struct qm_sweep a = of(n, m, g, 0.0f, 0.0f);
    memcpy(a.c, s->c, sizeof a.c);
    a.flag[1] = s->flag[1];
    sweep(QM_SWEEP_lpmm_lerp, &a);
}

static const struct qm_whole_blocks blocks = {.moment = moment,
                                              .taken = taken,
                                              .divide = divide,
                                              .multiply = multiply,
                                              .residual = residual,
                                              .decay_step = decay_step,
                                              .average = average,
                                              .decay = decay,
                                              .add_scaled = add_scaled,
                                              .lpmm_lerp = lpmm_lerp};

static const struct qm_whole_device there = {&blocks, room, release, get, put, sweep, kept};

/* ---- the plan ------------------------------------------------------------------------------------- */

void qm_whole_close(struct qm_whole_plan *p)
{
    if (!p)
        return;
    qm_batch_close(p->body);
    for (int i = 0; i < QM_MAX_SLOTS; i++)
        qm_batch_close(p->slot[i]);
    for (int i = 0; i < ROOMS; i++)
        p->d->release(p->rooms[i].at);
    p->d->release(p->kept.at);
    p->d->release(p->room);
    p->d->release(p->wide_g);
    free(p);
}

static qm_status open_part(struct qm_whole_plan *p, enum qm_mode mode, int i, struct qm_batch **out)
{
    struct qm_recipe one;
    struct qm_shape shape;
    QM_TRY(qm_whole_recipe(&p->r, i, &p->shape, &one, &shape));
    if (i != QM_WHOLE_BODY) {
        p->slot_shape[i] = shape;
        p->slot_is_f32[i] = one.slot[0].bits == 0;
        p->in_place[i] = qm_whole_is_plain(&one);
    }
    return qm_batch_open(p->d, mode, &one, 1, &shape, &p->tensor, out);
}

qm_status qm_whole_open(const struct qm_device *d, enum qm_mode mode, const struct qm_recipe *r,
                        const struct qm_shape *shape, uint32_t tensor, struct qm_whole_plan **out)
{
    struct qm_whole_plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->d = d;
    p->r = *r;
    if (r->hyper.initial_lr == 0.0)
        p->r.hyper.initial_lr = r->hyper.lr;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->tensor = tensor;
    p->n_slots = r->rule->n_slots;
    qm_status st = open_part(p, mode, QM_WHOLE_BODY, &p->body);
    for (int i = 0; st == QM_OK && i < p->n_slots; i++)
        st = open_part(p, mode, i, &p->slot[i]);
    if (st == QM_OK)
        st = d->reserve(sizeof(float) * (size_t)p->n, &p->room);
    if (st == QM_OK)
        *out = p;
    else
        qm_whole_close(p);
    return st;
}

/* ---- a step --------------------------------------------------------------------------------------- */

/* The parameter and the gradient as float32, where they are not. */
static qm_status load_wide(struct qm_whole_plan *p, struct qm_whole *w)
{
    enum qm_dtype g_type = qm_batch_form(p->body)->grad;
    struct qm_batch_place at = qm_batch_place(p->body, 0);
    qm_address to_p = p->r.param.format == QM_PARAM_f32 ? 0 : at.values, to_g = 0;
    if (g_type != QM_DTYPE_f32) {
        if (!p->wide_g)
            QM_TRY(p->d->reserve(sizeof(float) * (size_t)p->n, &p->wide_g));
        to_g = p->wide_g;
    }
    w->p = pointer(to_p ? to_p : at.p);
    w->g = pointer(to_g ? to_g : at.g);
    if ((!to_p && !to_g) || p->n == 0)
        return QM_OK;
    void *args[] = {&at.desc, &to_p, &to_g};
    return p->d->launch(qm_batch_module(p->body), QM_KERNEL_whole_load,
                        blocks_for(p->n, QM_STEP_THREADS * QM_STEP_EACH), 1, args);
}

static qm_status store_wide(struct qm_whole_plan *p, int64_t t, uint64_t seed)
{
    struct qm_batch_place at = qm_batch_place(p->body, 0);
    struct qm_step_scalars s = {.seed = seed, .step = (uint32_t)t};
    if (p->r.param.format == QM_PARAM_f32 || p->n == 0)
        return QM_OK;
    void *args[] = {&at.desc, &at.values, &s};
    return p->d->launch(qm_batch_module(p->body), QM_KERNEL_whole_store,
                        blocks_for(p->n, QM_STEP_THREADS * QM_STEP_EACH), 1, args);
}

static qm_status unpack(struct qm_whole_plan *p, int i)
{
    return qm_batch_unpack(p->slot[i], 0, 0, qm_batch_place(p->slot[i], 0).g);
}

/* After each round of `states` its slots are encoded, and perhaps decoded again (struct qm_rule). */
static qm_status run_rounds(struct qm_whole_plan *p, struct qm_whole *w, uint64_t seed)
{
    const struct qm_rule *rule = p->r.rule;
    int round[QM_MAX_SLOTS] = {0}, last = 0;
    for (int i = 0; i < p->n_slots && rule->round_of; i++) {
        round[i] = rule->round_of(w, i);
        last = round[i] > last ? round[i] : last;
    }
    for (w->round = 0; w->round <= last; w->round++) {
        QM_TRY(rule->states(w));
        QM_TRY(p->st);
        for (int i = 0; i < p->n_slots; i++) {
            if (round[i] != w->round || p->in_place[i])
                continue;
            QM_TRY(qm_batch_run(p->slot[i], w->s->t, seed));
            if (p->r.state_stored || (rule->reads_back && rule->reads_back(w, i)))
                QM_TRY(unpack(p, i));
        }
    }
    return QM_OK;
}

static qm_status run_rule(struct qm_whole_plan *p, struct qm_whole *w, uint64_t seed)
{
    QM_TRY(run_rounds(p, w, seed));
    QM_TRY(p->r.rule->apply(w));
    QM_TRY(p->st);
    for (int i = 0; i < p->n_slots; i++) /* what apply keeps for the next step is float32 */
        if (p->slot_is_f32[i] && !p->in_place[i])
            QM_TRY(qm_batch_run(p->slot[i], w->s->t, seed));
    return QM_OK;
}

static void prepare(const struct qm_whole_plan *p, int64_t t, struct qm_rule_step *s)
{
    p->r.rule->prepare(&p->r.hyper, t, s);
    s->hyper = &p->r.hyper;
    s->param = p->r.param.format;
    for (int i = 0; i < p->n_slots && p->n == 1 && p->r.rule->single; i++)
        if (p->slot_is_f32[i] && qm_shape_numel(&p->slot_shape[i]) == 1)
            p->r.rule->single(s, i);
}

/* How the parameter is stored, as rules ask for it (struct qm_whole). */
static enum qm_dtype rounds_to(const struct qm_param *p)
{
    if (p->write != QM_WRITE_near)
        return QM_DTYPE_f32;
    return p->format == QM_PARAM_bf16  ? QM_DTYPE_bf16
           : p->format == QM_PARAM_f16 ? QM_DTYPE_f16
                                       : QM_DTYPE_f32;
}

qm_status qm_whole_give(struct qm_whole_plan *p, const void *param, const void *g,
                        enum qm_dtype g_type)
{
    return qm_batch_give(p->body, 0, param, g, g_type);
}

qm_status qm_whole_take(struct qm_whole_plan *p, void *param)
{
    return qm_batch_take(p->body, 0, param);
}

qm_status qm_whole_run(struct qm_whole_plan *p, int64_t t, uint64_t seed)
{
    struct qm_rule_step s;
    struct qm_whole w = {.s = &s,
                         .shape = &p->shape,
                         .tensor = p->tensor,
                         .param = rounds_to(&p->r.param),
                         .room = pointer(p->room)};
    prepare(p, t, &s);
    QM_TRY(load_wide(p, &w));
    for (int i = 0; i < p->n_slots; i++) {
        struct qm_batch_place at = qm_batch_place(p->slot[i], 0);
        w.slot[i] = pointer(p->in_place[i] ? at.values : at.g);
        w.slot_shape[i] = p->slot_shape[i];
        w.slot_is_f32[i] = p->slot_is_f32[i];
        if (!p->in_place[i])
            QM_TRY(unpack(p, i));
    }
    for (int i = 0; i < ROOMS; i++)
        p->rooms[i].is_used = 0;
    p->st = QM_OK;
    current = p;
    qm_whole_on(&there);
    qm_status st = run_rule(p, &w, seed);
    qm_whole_on(NULL);
    current = NULL;
    p->kept.is_there = p->kept.is_there && st == QM_OK;
    QM_TRY(st);
    return store_wide(p, t, seed);
}

/* ---- state ---------------------------------------------------------------------------------------- */

static qm_status slot_check(const struct qm_whole_plan *p, int slot)
{
    if (slot >= 0 && slot < p->n_slots)
        return QM_OK;
    return qm_fail(QM_BAD_ARG, "rule %s has slots 0 to %d, not %d", p->r.rule->name, p->n_slots - 1,
                   slot);
}

qm_status qm_whole_decode(struct qm_whole_plan *p, int slot, float *out)
{
    QM_TRY(slot_check(p, slot));
    return qm_batch_decode(p->slot[slot], 0, 0, out);
}

qm_status qm_whole_save(struct qm_whole_plan *p, int slot, uint8_t *codes, float *scales)
{
    if (slot == QM_RESIDUAL)
        return qm_batch_save(p->body, 0, slot, codes, scales);
    QM_TRY(slot_check(p, slot));
    return qm_batch_save(p->slot[slot], 0, 0, codes, scales);
}

qm_status qm_whole_load(struct qm_whole_plan *p, int slot, const uint8_t *codes,
                        const float *scales)
{
    if (slot == QM_RESIDUAL)
        return qm_batch_load(p->body, 0, slot, codes, scales);
    QM_TRY(slot_check(p, slot));
    return qm_batch_load(p->slot[slot], 0, 0, codes, scales);
}

int64_t qm_whole_bytes(const struct qm_whole_plan *p)
{
    int64_t sum = qm_param_residual(&p->r.param) * p->n;
    for (int i = 0; i < p->n_slots; i++)
        sum += qm_batch_bytes(p->slot[i]);
    return sum;
}

void *qm_whole_module(const struct qm_whole_plan *p) { return qm_batch_module(p->body); }
