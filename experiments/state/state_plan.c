/* state_plan.c - Copies states between plans and files, and converts where the formats differ. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/state/state_file.h"

/* Zeroed memory; never NULL for 0 bytes. */
static void *room(size_t bytes) { return calloc(bytes ? bytes : 1, 1); }

static struct qm_shape slot_shape(const struct qm_recipe *r, int i, const struct qm_shape *shape)
{
    struct qm_shape own;
    qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &own);
    return own;
}

static int same_shape(const struct qm_shape *a, const struct qm_shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->rank) == 0;
}

/* ---- from a plan ---------------------------------------------------------------------------- */

static qm_status slot_take(struct qm_state_slot *slot, const struct qm_state_plan *p, int i)
{
    struct qm_codec c;
    struct qm_quantizer q = qm_recipe_slot(p->recipe, i, p->shape);
    snprintf(slot->name, sizeof slot->name, "%s", p->recipe->rule->slot[i]);
    qm_quantizer_print(&q, slot->quantizer);
    slot->shape = slot_shape(p->recipe, i, p->shape);
    QM_TRY(qm_state_slot_layout(slot, &c));
    int64_t n = qm_shape_numel(&slot->shape);
    slot->scales.data = room(qm_tensor_bytes(&slot->scales));
    slot->codes.data = q.bits ? room(qm_tensor_bytes(&slot->codes)) : NULL;
    uint8_t *codes = q.bits ? room((size_t)n) : NULL;
    qm_status st = slot->scales.data && (!q.bits || (slot->codes.data && codes))
                       ? p->backend->save(p->plan, i, codes, slot->scales.data)
                       : qm_fail(QM_NO_MEMORY, "state of %lld elements", (long long)n);
    if (st == QM_OK && q.bits)
        qm_pack_range(&c, codes, n, slot->codes.data);
    free(codes);
    return st;
}

int qm_state_leaves_out(const struct qm_recipe *r, int i, const struct qm_shape *shape)
{
    struct qm_shape own = slot_shape(r, i, shape);
    return qm_rule_slot_like(r->rule, i) >= 0 && qm_shape_numel(&own) == 0;
}

static qm_status tensor_take(struct qm_state_tensor *t, const struct qm_state_plan *p)
{
    t->stored = p->recipe->param;
    t->param.dtype = qm_param_dtype(&t->stored);
    t->residual.dtype = qm_state_residual_dtype(&t->stored);
    t->param.shape = t->residual.shape = t->shape;
    size_t bytes = qm_tensor_bytes(&t->param);
    if (!(t->param.data = room(bytes)) ||
        (qm_param_residual(&t->stored) &&
         !(t->residual.data = room(qm_tensor_bytes(&t->residual)))))
        return qm_fail(QM_NO_MEMORY, "%s: %zu bytes", t->name, bytes);
    if (bytes > 0)
        memcpy(t->param.data, p->param, bytes);
    if (t->residual.data)
        QM_TRY(p->backend->save(p->plan, QM_RESIDUAL, t->residual.data, NULL));
    for (int i = 0; i < p->recipe->rule->n_slots; i++)
        if (!qm_state_leaves_out(p->recipe, i, p->shape))
            QM_TRY(slot_take(&t->slot[t->n_slots++], p, i));
    return QM_OK;
}

qm_status qm_state_take(struct qm_state *s, const char *name, const struct qm_state_plan *p)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, name) == 0)
            return qm_fail(QM_BAD_ARG, "two tensors are called '%s'", name);
    if (strlen(name) >= QM_STATE_NAME)
        return qm_fail(QM_BAD_ARG, "a tensor's name has at most %d characters", QM_STATE_NAME - 1);
    struct qm_state_tensor *more = realloc(s->tensor, ((size_t)s->n + 1) * sizeof *more);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "%s", name);
    s->tensor = more;
    struct qm_state_tensor *t = &more[s->n];
    memset(t, 0, sizeof *t);
    strcpy(t->name, name);
    t->shape = *p->shape;
    t->id = p->id;
    t->step = p->step;
    t->seed = p->seed;
    s->n++;
    if (strlen(qm_recipe_print(p->recipe, t->recipe)) >= QM_RECIPE_TEXT - 1)
        return qm_fail(QM_BAD_ARG, "%s: the recipe has more than %d characters", name,
                       QM_RECIPE_TEXT - 2);
    return tensor_take(t, p);
}

/* ---- into a plan ---------------------------------------------------------------------------- */

/* Receiver of the notes on one tensor. */
struct note_sink {
    qm_state_note *note;
    void *context;
};

static void say(const struct note_sink *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct note_sink *to, const char *format, ...)
{
    char line[2 * QM_QUANTIZER_TEXT + 128];
    va_list args;
    if (!to->note)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    to->note(line, to->context);
}

/* Element i of a stored parameter, with its residual if any, as float32. */
static float widen(const struct qm_param *p, const void *param, const void *residual, int64_t i)
{
    uint32_t h = p->format == QM_PARAM_f32    ? ((const uint32_t *)param)[i]
                 : p->format == QM_PARAM_e4m3 ? ((const uint8_t *)param)[i]
                                              : ((const uint16_t *)param)[i];
    float x = qm_param_widen(p->format, h);
    if (qm_param_residual(p) == 0)
        return x;
    switch (p->write) {
    case QM_WRITE_kahan: return x + qm_param_widen(p->format, ((const uint16_t *)residual)[i]);
    case QM_WRITE_ecc8: return qm_ecc_decode(p->format, h, ((const int8_t *)residual)[i], 127);
    case QM_WRITE_ecc16: return qm_ecc_decode(p->format, h, ((const int16_t *)residual)[i], 32767);
    default: return x;
    }
}

/* Stores x as element i of a parameter, with its residual if the format keeps one. */
static void narrow(const struct qm_param *p, float x, void *param, void *residual, int64_t i)
{
    uint32_t h = qm_param_nearest(p->format, x);
    if (p->format == QM_PARAM_f32)
        ((uint32_t *)param)[i] = h;
    else if (p->format == QM_PARAM_e4m3)
        ((uint8_t *)param)[i] = (uint8_t)h;
    else
        ((uint16_t *)param)[i] = (uint16_t)h;
    if (qm_param_residual(p) == 0)
        return;
    if (p->write == QM_WRITE_kahan)
        ((uint16_t *)residual)[i] = (uint16_t)qm_kahan_residual(p->format, x, h);
    else if (p->write == QM_WRITE_ecc8)
        ((int8_t *)residual)[i] = (int8_t)qm_ecc_encode(p->format, x, h, 127);
    else
        ((int16_t *)residual)[i] = (int16_t)qm_ecc_encode(p->format, x, h, 32767);
}

static qm_status param_give(const struct qm_state_tensor *t, const struct qm_state_plan *p,
                            const struct note_sink *to)
{
    const struct qm_param *from = &t->stored, *want = &p->recipe->param;
    int64_t n = qm_shape_numel(&t->shape);
    char a[24], b[24];
    int kept =
        from->format == want->format &&
        (from->write == want->write || qm_param_residual(from) + qm_param_residual(want) == 0);
    if (strcmp(qm_param_text(from, a), qm_param_text(want, b)) != 0)
        say(to, "param: %s -> %s%s", a, b, kept ? ", the same bits" : " through float32");
    if (kept) {
        if (n > 0)
            memcpy(p->param, t->param.data, qm_tensor_bytes(&t->param));
        return qm_param_residual(want)
                   ? p->backend->load(p->plan, QM_RESIDUAL, t->residual.data, NULL)
                   : QM_OK;
    }
    uint8_t *residual = room((size_t)n * (size_t)qm_param_residual(want));
    if (!residual)
        return qm_fail(QM_NO_MEMORY, "residuals of %lld elements", (long long)n);
    for (int64_t i = 0; i < n; i++)
        narrow(want, widen(from, t->param.data, t->residual.data, i), p->param, residual, i);
    qm_status st =
        qm_param_residual(want) ? p->backend->load(p->plan, QM_RESIDUAL, residual, NULL) : QM_OK;
    free(residual);
    return st;
}

/* Loads a stored slot into slot i of the plan, which has the same quantizer. */
static qm_status slot_copy(const struct qm_state_slot *slot, const struct qm_codec *c,
                           const struct qm_state_plan *p, int i)
{
    int64_t n = qm_shape_numel(&slot->shape);
    if (c->q.bits == 0)
        return p->backend->load(p->plan, i, NULL, slot->scales.data);
    uint8_t *codes = room((size_t)n);
    if (!codes)
        return qm_fail(QM_NO_MEMORY, "codes of %lld elements", (long long)n);
    qm_unpack_range(c, slot->codes.data, n, codes);
    qm_status st = p->backend->load(p->plan, i, codes, slot->scales.data);
    free(codes);
    return st;
}

/* Says which of the n numbers of slot i a format cannot hold. */
static void say_unfit(const struct note_sink *to, const struct qm_rule *rule, int i,
                      const struct qm_codec *w, const float *x, int64_t n)
{
    int64_t odd = 0, below = 0;
    for (int64_t k = 0; k < n; k++) {
        odd += !isfinite(x[k]);
        below += x[k] < 0.0f;
    }
    if (odd > 0 && w->q.bits)
        say(to, "%s: has %lld numbers that are not finite; what shares a scale with them is lost",
            rule->slot[i], (long long)odd);
    if (below > 0 && w->q.bits && !rule->slot_sign[i])
        say(to, "%s: has %lld numbers below 0, where such a state has none", rule->slot[i],
            (long long)below);
}

/* Decodes a stored slot with codec c and encodes it with codec w into slot i of the plan. */
static qm_status slot_convert(const struct qm_state_slot *slot, const struct qm_codec *c,
                              const struct qm_codec *w, const struct qm_draws *draws,
                              const struct qm_state_plan *p, int i, const struct note_sink *to)
{
    int64_t n = qm_shape_numel(&slot->shape),
            count = w->q.bits ? qm_scale_count(w, &slot->shape) : 0;
    float *x = room(sizeof(float) * (size_t)n), *scales = room(sizeof(float) * (size_t)count);
    uint8_t *codes = room((size_t)n);
    qm_status st = x && scales && codes ? QM_OK : qm_fail(QM_NO_MEMORY, "slot %s", slot->name);
    if (st == QM_OK && c->q.bits) {
        qm_unpack_range(c, slot->codes.data, n, codes);
        qm_decode(c, &slot->shape, codes, slot->scales.data, x);
    } else if (st == QM_OK && n > 0) {
        memcpy(x, slot->scales.data, sizeof(float) * (size_t)n);
    }
    if (st == QM_OK)
        say_unfit(to, p->recipe->rule, i, w, x, n);
    if (st == QM_OK && w->q.bits)
        st = qm_encode(w, &slot->shape, x, draws, codes, scales);
    if (st == QM_OK)
        st = p->backend->load(p->plan, i, w->q.bits ? codes : NULL, w->q.bits ? scales : x);
    free(codes);
    free(scales);
    free(x);
    return st;
}

/* from: the stored slot of that name, or NULL. */
static qm_status slot_give(const struct qm_state_tensor *t, const struct qm_state_slot *from,
                           const struct qm_state_plan *p, int i, const struct note_sink *to)
{
    const struct qm_recipe *r = p->recipe;
    struct qm_quantizer q = qm_recipe_slot(r, i, &t->shape);
    struct qm_shape shape = slot_shape(r, i, &t->shape);
    struct qm_codec c, w;
    char text[QM_QUANTIZER_TEXT], a[128], b[128];
    const char *name = r->rule->slot[i];
    int have = from && qm_shape_numel(&from->shape) > 0, want = qm_shape_numel(&shape) > 0;
    if (have && !want)
        say(to, "%s: dropped, %s has none for this shape", name, r->base->name);
    if (!have && want && qm_state_steps(t, r->rule) > 0)
        say(to,
            "%s: not in the file, starts anew; the count of steps stays, so that a bias correction "
            "takes it for as old as the others",
            name);
    else if (!have && want)
        say(to, "%s: not in the file, starts anew", name);
    if (!have || !want)
        return QM_OK;
    if (!same_shape(&from->shape, &shape))
        return qm_fail(QM_BAD_ARG, "%s: slot %s is %s in the file, %s in %s", t->name, name,
                       qm_shape_print(&from->shape, a, sizeof a),
                       qm_shape_print(&shape, b, sizeof b), r->base->name);
    QM_TRY(qm_codec_parse(&c, from->quantizer));
    if (strcmp(from->quantizer, qm_quantizer_print(&q, text)) == 0)
        return slot_copy(from, &c, p, i);
    say(to, "%s: %s -> %s through float32", name, from->quantizer, text);
    QM_TRY(qm_codec_init(&w, &q));
    struct qm_draws draws = qm_draws_for(t->seed, t->step, t->id,
                                         i == 0   ? QM_ROLE_slot0
                                         : i == 1 ? QM_ROLE_slot1
                                                  : QM_ROLE_spare);
    return slot_convert(from, &c, &w, &draws, p, i, to);
}

static const struct qm_state_slot *find_slot(const struct qm_state_tensor *t, const char *name)
{
    for (int k = 0; k < t->n_slots; k++)
        if (strcmp(t->slot[k].name, name) == 0)
            return &t->slot[k];
    return NULL;
}

static int rule_has(const struct qm_rule *rule, const char *name)
{
    for (int i = 0; i < rule->n_slots; i++)
        if (strcmp(rule->slot[i], name) == 0)
            return 1;
    return 0;
}

int64_t qm_state_steps(const struct qm_state_tensor *t, const struct qm_rule *rule)
{
    int kept = rule->n_slots == 0;
    for (int i = 0; i < rule->n_slots; i++)
        kept |= find_slot(t, rule->slot[i]) != NULL;
    return kept ? t->step : 0;
}

qm_status qm_state_give(const struct qm_state_tensor *t, const struct qm_state_plan *p,
                        qm_state_note *note, void *context)
{
    const struct qm_rule *rule = p->recipe->rule;
    struct note_sink to = {note, context};
    char a[128], b[128];
    if (!same_shape(p->shape, &t->shape))
        return qm_fail(QM_BAD_ARG, "%s is %s in the file, expected %s", t->name,
                       qm_shape_print(&t->shape, a, sizeof a),
                       qm_shape_print(p->shape, b, sizeof b));
    QM_TRY(param_give(t, p, &to));
    for (int i = 0; i < rule->n_slots; i++)
        QM_TRY(slot_give(t, find_slot(t, rule->slot[i]), p, i, &to));
    for (int k = 0; k < t->n_slots; k++)
        if (!rule_has(rule, t->slot[k].name) && qm_shape_numel(&t->slot[k].shape) > 0)
            say(&to, "%s: dropped, %s has no such slot", t->slot[k].name, rule->name);
    if (qm_state_steps(t, rule) != t->step)
        say(&to, "steps: counted from 0, for no state of the file is one of %s", rule->name);
    return QM_OK;
}
