/* tensor_rule_plan.c - Tensors of a tensor rule, grouped by form into batches, and their steps. */
#include "core/device/tensor_rule_plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/device/launch_queue.h"
#include "core/device/tensor_rule_form.h"
#include "core/recipe/backend.h"

/* One slot, or the parameter, of all tensors: tensor k is number index[k] of batch[which[k]]. */
struct part {
    int n_batches, *which, *index;
    struct qm_batch **batch;
};

struct tensor {
    struct qm_shape shape, slot_shape[QM_MAX_SLOTS];
    int64_t n;
    uint32_t id;
    int slot_is_f32[QM_MAX_SLOTS], in_place[QM_MAX_SLOTS];
    qm_address room; /* n floats for the rule */
    struct qm_rule_step step;
    int round[QM_MAX_SLOTS]; /* qm_rule.round_of, in this step */
};

struct qm_tensor_rule_plan {
    const struct qm_device *d;
    enum qm_mode mode;
    struct qm_recipe r;
    int n, n_slots;
    struct tensor *tensor;
    struct qm_tensor_rule_args *w;
    uint8_t *takes_part;
    struct part body, slot[QM_MAX_SLOTS];
    struct qm_launch_queue *queue;
};

static void *pointer(qm_address at) { return (void *)(uintptr_t)at; }

static struct qm_batch *batch_of(const struct part *p, int k) { return p->batch[p->which[k]]; }

static struct qm_batch_place place_of(const struct part *p, int k)
{
    return qm_batch_place(batch_of(p, k), p->index[k]);
}

void *qm_tensor_rule_module(const struct qm_tensor_rule_plan *p)
{
    return qm_batch_module(p->body.batch[0]);
}

/* ---- parts: tensors by form ------------------------------------------------------------------ */

static void part_close(struct part *p)
{
    for (int i = 0; i < p->n_batches; i++)
        qm_batch_close(p->batch[i]);
    free(p->batch);
    free(p->which);
    free(p->index);
}

/* The text of a form, by which forms are compared; the caller frees it. */
static qm_status form_text(const struct qm_recipe *one, const struct qm_shape *shape, char **out)
{
    struct qm_step_form *f = malloc(sizeof *f);
    qm_status st = f ? qm_step_form(one, shape, one->grad, f) : qm_fail(QM_NO_MEMORY, "a form");
    if (st == QM_OK && !(*out = qm_step_text(f)))
        st = qm_fail(QM_NO_MEMORY, "a form");
    free(f);
    return st;
}

/* When slot i is encoded and whether it is read back, as a number by which tensors are grouped: it
 * depends on the tensor's dims.  It is asked of step 2, which stands for all later ones. */
static int ways_of(const struct qm_tensor_rule_plan *p, const struct tensor *t, int i)
{
    const struct qm_rule *rule = p->r.rule;
    struct qm_rule_step s;
    const struct qm_tensor_rule_args w = {.s = &s, .shape = &t->shape, .tensor = t->id};
    if (i == QM_TENSOR_RULE_BODY)
        return 0;
    rule->prepare(&p->r.hyper, 2, &s);
    s.hyper = &p->r.hyper;
    return 2 * qm_rule_update_round(rule, &w, i) + qm_rule_applies_stored(rule, &w, i);
}

struct forms {
    char **text; /* of each batch; at most as many as tensors */
    int *ways;
    struct qm_shape *shape;   /* of each tensor's slot */
    struct qm_recipe *recipe; /* of each batch's first tensor */
};

/* Finds each tensor's batch by its form, and sets what the plan keeps about slot i. */
static qm_status part_sort(struct qm_tensor_rule_plan *p, int i, struct part *part, struct forms *f)
{
    for (int k = 0; k < p->n; k++) {
        struct tensor *t = &p->tensor[k];
        struct qm_recipe one;
        char *text;
        int b = 0, ways = ways_of(p, t, i);
        QM_TRY(qm_tensor_rule_recipe(&p->r, i, &t->shape, &one, &f->shape[k]));
        if (i != QM_TENSOR_RULE_BODY) {
            t->slot_shape[i] = f->shape[k];
            t->slot_is_f32[i] = one.slot[0].bits == 0;
            t->in_place[i] = qm_tensor_rule_is_plain(&one);
        }
        QM_TRY(form_text(&one, &f->shape[k], &text));
        while (b < part->n_batches && (f->ways[b] != ways || strcmp(f->text[b], text) != 0))
            b++;
        part->which[k] = b;
        if (b < part->n_batches) {
            free(text);
            continue;
        }
        f->text[b] = text;
        f->ways[b] = ways;
        f->recipe[b] = one;
        part->n_batches++;
    }
    return QM_OK;
}

static qm_status part_batches(struct qm_tensor_rule_plan *p, struct part *part,
                              const struct forms *f)
{
    struct qm_shape *shapes = malloc(sizeof *shapes * (size_t)p->n);
    uint32_t *ids = malloc(sizeof *ids * (size_t)p->n);
    qm_status st = shapes && ids ? QM_OK : qm_fail(QM_NO_MEMORY, "%d tensors", p->n);
    for (int b = 0; b < part->n_batches && st == QM_OK; b++) {
        int n = 0;
        for (int k = 0; k < p->n; k++) {
            if (part->which[k] != b)
                continue;
            part->index[k] = n;
            shapes[n] = f->shape[k];
            ids[n++] = p->tensor[k].id;
        }
        st = qm_batch_open(p->d, p->mode, &f->recipe[b], n, shapes, ids, &part->batch[b]);
    }
    free(shapes);
    free(ids);
    return st;
}

static qm_status part_open(struct qm_tensor_rule_plan *p, int i, struct part *part)
{
    size_t n = (size_t)p->n;
    struct forms f = {calloc(n, sizeof *f.text), calloc(n, sizeof *f.ways),
                      calloc(n, sizeof *f.shape), calloc(n, sizeof *f.recipe)};
    part->which = calloc(n, sizeof *part->which);
    part->index = calloc(n, sizeof *part->index);
    part->batch = calloc(n, sizeof(struct qm_batch *));
    qm_status st =
        f.text && f.ways && f.shape && f.recipe && part->which && part->index && part->batch
            ? part_sort(p, i, part, &f)
            : qm_fail(QM_NO_MEMORY, "%d tensors", p->n);
    if (st == QM_OK)
        st = part_batches(p, part, &f);
    for (int b = 0; b < part->n_batches; b++)
        free(f.text[b]);
    free(f.text);
    free(f.ways);
    free(f.shape);
    free(f.recipe);
    return st;
}

/* ---- the plan -------------------------------------------------------------------------------- */

void qm_tensor_rule_close(struct qm_tensor_rule_plan *p)
{
    if (!p)
        return;
    part_close(&p->body);
    for (int i = 0; i < QM_MAX_SLOTS; i++)
        part_close(&p->slot[i]);
    for (int k = 0; p->tensor && k < p->n; k++)
        p->d->release(p->tensor[k].room);
    qm_launch_queue_close(p->queue);
    free(p->tensor);
    free(p->w);
    free(p->takes_part);
    free(p);
}

static qm_status open_all(struct qm_tensor_rule_plan *p, const struct qm_shape *shapes,
                          const uint32_t *ids)
{
    p->tensor = calloc((size_t)p->n, sizeof *p->tensor);
    p->w = calloc((size_t)p->n, sizeof *p->w);
    p->takes_part = calloc((size_t)p->n, 1);
    if (!p->tensor || !p->w || !p->takes_part)
        return qm_fail(QM_NO_MEMORY, "%d tensors", p->n);
    for (int k = 0; k < p->n; k++) {
        struct tensor *t = &p->tensor[k];
        t->shape = shapes[k];
        t->n = qm_shape_numel(&shapes[k]);
        t->id = ids[k];
        if (t->n < 0)
            return qm_fail(QM_BAD_ARG, "tensor has more than 2^63 elements");
    }
    QM_TRY(part_open(p, QM_TENSOR_RULE_BODY, &p->body));
    for (int i = 0; i < p->n_slots; i++)
        QM_TRY(part_open(p, i, &p->slot[i]));
    for (int k = 0; k < p->n; k++)
        QM_TRY(p->d->reserve(sizeof(float) * (size_t)p->tensor[k].n, &p->tensor[k].room));
    return qm_launch_queue_open(p->d, p->n, &p->queue);
}

qm_status qm_tensor_rule_open(const struct qm_device *d, enum qm_mode mode,
                              const struct qm_recipe *r, int n, const struct qm_shape *shapes,
                              const uint32_t *ids, struct qm_tensor_rule_plan **out)
{
    struct qm_tensor_rule_plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->d = d;
    p->mode = mode;
    p->r = *r;
    if (r->hyper.initial_lr == 0.0)
        p->r.hyper.initial_lr = r->hyper.lr;
    p->n = n;
    p->n_slots = r->rule->n_slots;
    qm_status st = open_all(p, shapes, ids);
    if (st == QM_OK)
        *out = p;
    else
        qm_tensor_rule_close(p);
    return st;
}

/* ---- a step ---------------------------------------------------------------------------------- */

qm_status qm_tensor_rule_give(struct qm_tensor_rule_plan *p, int k, const void *param,
                              const void *g, enum qm_dtype g_type)
{
    return qm_batch_give(batch_of(&p->body, k), p->body.index[k], param, g, g_type);
}

qm_status qm_tensor_rule_take(struct qm_tensor_rule_plan *p, int k, void *param)
{
    return qm_batch_take(batch_of(&p->body, k), p->body.index[k], param);
}

qm_status qm_tensor_rule_take_part(struct qm_tensor_rule_plan *p, int k, int64_t first, int64_t n,
                                   void *param)
{
    return qm_batch_take_part(batch_of(&p->body, k), p->body.index[k], first, n, param);
}

/* The format that the parameter is rounded to, to nearest (member param of
 * struct qm_tensor_rule_args). */
static enum qm_dtype rounds_to(const struct qm_param *p)
{
    if (p->write != QM_WRITE_near)
        return QM_DTYPE_f32;
    return p->format == QM_PARAM_bf16  ? QM_DTYPE_bf16
           : p->format == QM_PARAM_f16 ? QM_DTYPE_f16
                                       : QM_DTYPE_f32;
}

/* Scalars and addresses of tensor k for this step. */
static void prepare(struct qm_tensor_rule_plan *p, int k, int64_t step)
{
    struct tensor *t = &p->tensor[k];
    struct qm_batch_place at = place_of(&p->body, k);
    int g_is_wide = qm_batch_form(batch_of(&p->body, k))->grad != QM_DTYPE_f32;
    p->r.rule->prepare(&p->r.hyper, step, &t->step);
    t->step.hyper = &p->r.hyper;
    t->step.param = p->r.param.format;
    p->w[k] = (struct qm_tensor_rule_args){
        .s = &t->step,
        .shape = &t->shape,
        .tensor = t->id,
        .param = rounds_to(&p->r.param),
        .p = pointer(p->r.param.format == QM_PARAM_f32 ? at.p : at.values),
        .g = pointer(g_is_wide ? at.wide_g : at.g),
        .room = pointer(t->room)};
    for (int i = 0; i < p->n_slots; i++) {
        struct qm_batch_place s = place_of(&p->slot[i], k);
        p->w[k].slot[i] = pointer(t->in_place[i] ? s.values : s.g);
        p->w[k].slot_shape[i] = t->slot_shape[i];
        p->w[k].slot_is_f32[i] = t->slot_is_f32[i];
        if (t->n == 1 && p->r.rule->mark_absent && t->slot_is_f32[i] &&
            qm_shape_numel(&t->slot_shape[i]) == 1)
            p->r.rule->mark_absent(&t->step, i);
    }
    for (int i = 0; i < p->n_slots; i++)
        t->round[i] = qm_rule_update_round(p->r.rule, &p->w[k], i);
}

/* Converts parameters and gradients that are not float32. */
static qm_status load_wide(struct qm_tensor_rule_plan *p)
{
    for (int b = 0; b < p->body.n_batches; b++) {
        struct qm_batch *body = p->body.batch[b];
        int to_p = p->r.param.format != QM_PARAM_f32;
        int to_g = qm_batch_form(body)->grad != QM_DTYPE_f32;
        if (to_p || to_g)
            QM_TRY(qm_batch_load_wide(body, to_p, to_g));
    }
    return QM_OK;
}

/* Whether slot i of tensor k is to be encoded, or decoded, now. */
typedef int slot_filter(const struct qm_tensor_rule_plan *p, int k, int i, int round);

static int is_coded(const struct qm_tensor_rule_plan *p, int k, int i, int round)
{
    (void)round;
    return !p->tensor[k].in_place[i];
}

static int is_of_round(const struct qm_tensor_rule_plan *p, int k, int i, int round)
{
    return is_coded(p, k, i, round) && p->tensor[k].round[i] == round;
}

static int is_read_back(const struct qm_tensor_rule_plan *p, int k, int i, int round)
{
    return is_of_round(p, k, i, round) &&
           (p->r.state_stored || qm_rule_applies_stored(p->r.rule, &p->w[k], i));
}

/* `apply` may leave numbers for the next step in plain slots. */
static int is_kept(const struct qm_tensor_rule_plan *p, int k, int i, int round)
{
    return is_coded(p, k, i, round) && p->tensor[k].slot_is_f32[i];
}

/* Whether batch b of slot i is to be encoded or decoded: all of its tensors that have elements
 * must agree. */
static qm_status is_wanted(const struct qm_tensor_rule_plan *p, int i, int b, slot_filter *is,
                           int round, int *out)
{
    int wanted = 0, not_wanted = 0;
    for (int k = 0; k < p->n; k++)
        if (p->slot[i].which[k] == b && qm_shape_numel(&p->tensor[k].slot_shape[i]) > 0) {
            int one = is(p, k, i, round);
            wanted += one;
            not_wanted += !one;
        }
    *out = wanted > 0;
    return wanted && not_wanted
               ? qm_fail(QM_INTERNAL, "slot %s: tensors of one form want different steps",
                         p->r.rule->slot[i])
               : QM_OK;
}

static qm_status encode(struct qm_tensor_rule_plan *p, slot_filter *is, int round, int64_t t,
                        uint64_t seed)
{
    for (int i = 0; i < p->n_slots; i++)
        for (int b = 0; b < p->slot[i].n_batches; b++) {
            int wanted;
            QM_TRY(is_wanted(p, i, b, is, round, &wanted));
            if (wanted)
                QM_TRY(qm_batch_run(p->slot[i].batch[b], t, seed));
        }
    return QM_OK;
}

static qm_status decode(struct qm_tensor_rule_plan *p, slot_filter *is, int round)
{
    for (int i = 0; i < p->n_slots; i++)
        for (int b = 0; b < p->slot[i].n_batches; b++) {
            int wanted;
            QM_TRY(is_wanted(p, i, b, is, round, &wanted));
            if (wanted)
                QM_TRY(qm_batch_unpack(p->slot[i].batch[b], 0));
        }
    return QM_OK;
}

/* Sets who takes part in a round: tensors with a slot of this round or of a later one.  Returns
 * whether any does. */
static int begin_round(struct qm_tensor_rule_plan *p, int round)
{
    int any = 0;
    for (int k = 0; k < p->n; k++) {
        p->takes_part[k] = round == 0;
        for (int i = 0; i < p->n_slots; i++)
            p->takes_part[k] |= p->tensor[k].round[i] >= round;
        p->w[k].round = round;
        any |= p->takes_part[k];
    }
    return any;
}

/* After each round of `states` its slots are encoded, and decoded again where they are
 * read back. */
static qm_status run_rule(struct qm_tensor_rule_plan *p, int64_t t, uint64_t seed)
{
    const struct qm_rule *rule = p->r.rule;
    void *module = qm_tensor_rule_module(p);
    for (int round = 0; begin_round(p, round); round++) {
        QM_TRY(qm_launch_queue_run(p->queue, module, rule->tensor->states, p->w, p->takes_part));
        QM_TRY(encode(p, is_of_round, round, t, seed));
        QM_TRY(decode(p, is_read_back, round));
    }
    QM_TRY(qm_launch_queue_run(p->queue, module, rule->tensor->apply, p->w, NULL));
    return encode(p, is_kept, 0, t, seed);
}

qm_status qm_tensor_rule_run(struct qm_tensor_rule_plan *p, int64_t t, uint64_t seed)
{
    QM_TRY(load_wide(p));
    for (int k = 0; k < p->n; k++)
        prepare(p, k, t);
    QM_TRY(decode(p, is_coded, 0));
    qm_launch_queue_begin(p->queue);
    QM_TRY(run_rule(p, t, seed));
    for (int b = 0; b < p->body.n_batches && p->r.param.format != QM_PARAM_f32; b++)
        QM_TRY(qm_batch_store_wide(p->body.batch[b], t, seed));
    return QM_OK;
}

qm_status qm_tensor_rule_hyper(struct qm_tensor_rule_plan *p, const struct qm_hyper *h)
{
    struct qm_recipe next = p->r;
    for (int k = 0; k < p->n; k++) {
        next = p->r;
        QM_TRY(qm_recipe_schedule(&next, &p->tensor[k].shape, h));
    }
    p->r = next;
    return QM_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */

qm_status qm_tensor_rule_decode(struct qm_tensor_rule_plan *p, int k, int slot, float *out)
{
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    const struct part *s = &p->slot[slot];
    return qm_batch_decode(batch_of(s, k), s->index[k], 0, out);
}

qm_status qm_tensor_rule_save(struct qm_tensor_rule_plan *p, int k, int slot, uint8_t *codes,
                              float *scales)
{
    if (slot == QM_RESIDUAL)
        return qm_batch_save(batch_of(&p->body, k), p->body.index[k], slot, codes, scales);
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    const struct part *s = &p->slot[slot];
    return qm_batch_save(batch_of(s, k), s->index[k], 0, codes, scales);
}

qm_status qm_tensor_rule_load(struct qm_tensor_rule_plan *p, int k, int slot, const uint8_t *codes,
                              const float *scales)
{
    if (slot == QM_RESIDUAL)
        return qm_batch_load(batch_of(&p->body, k), p->body.index[k], slot, codes, scales);
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    const struct part *s = &p->slot[slot];
    return qm_batch_load(batch_of(s, k), s->index[k], 0, codes, scales);
}

int64_t qm_tensor_rule_bytes(const struct qm_tensor_rule_plan *p)
{
    int64_t sum = 0;
    for (int k = 0; k < p->n; k++)
        sum += qm_param_residual(&p->r.param) * p->tensor[k].n;
    for (int i = 0; i < p->n_slots; i++)
        for (int b = 0; b < p->slot[i].n_batches; b++)
            sum += qm_batch_bytes(p->slot[i].batch[b]);
    return sum;
}
