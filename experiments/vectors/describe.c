/* describe.c - Describes the cases of a golden file as JSON, and hashes what `gen` writes. */
#include "experiments/vectors/describe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

/* ---- hashes -------------------------------------------------------------------------------- */

void qm_array_hash_start(struct qm_sha256 *h, enum qm_dtype dtype, const struct qm_shape *shape)
{
    char dims[128], text[160];
    snprintf(text, sizeof text, "%s %s\n", qm_dtype_name(dtype),
             qm_shape_print(shape, dims, sizeof dims));
    qm_sha256_start(h);
    qm_sha256_add(h, text, strlen(text));
}

void qm_array_hash_add(struct qm_sha256 *h, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0x7fc00000u;
        if (!isnan(x[i]))
            memcpy(&bits, &x[i], sizeof bits);
        const uint8_t little[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16),
                                   (uint8_t)(bits >> 24)};
        qm_sha256_add(h, little, sizeof little);
    }
}

void qm_array_hash(const struct qm_tensor *t, char out[QM_HASH])
{
    struct qm_sha256 h;
    int64_t n = qm_shape_numel(&t->shape);
    qm_array_hash_start(&h, t->dtype, &t->shape);
    for (int64_t i = 0; i < n; i++) {
        float x;
        qm_to_float(t->data, t->dtype, i, 1, &x);
        qm_array_hash_add(&h, &x, 1);
    }
    qm_sha256_hex(&h, out);
}

qm_status qm_describe_digest(json_t *root, char out[QM_HASH])
{
    char *text = qm_json_without(root, "digest");
    if (!text)
        return qm_fail(QM_NO_MEMORY, "a digest");
    qm_sha256_of(text, strlen(text), out);
    free(text);
    return QM_OK;
}

/* ---- cases --------------------------------------------------------------------------------- */

/* The hyper-parameters that the rule reads, of these those that are not 0 and those that the
 * variant sets but the case makes 0. */
static json_t *hyper(const struct qm_rule *rule, const struct qm_hyper *h,
                     const struct qm_hyper *variant)
{
    json_t *o = json_object();
#define X(name, value, text)                                                \
    if ((h->name != 0 || variant->name != 0) && qm_rule_reads(rule, #name)) \
        json_object_set_new(o, #name, json_real(h->name));
    QM_HYPER_LIST(X)
#undef X
#define X(name, value, text)                        \
    if (h->name != 0 && qm_rule_reads(rule, #name)) \
        json_object_set_new(o, #name, json_true());
    QM_HYPER_FLAG_LIST(X)
#undef X
    return o;
}

static json_t *dims(const struct qm_shape *shape)
{
    json_t *out = json_array();
    for (int i = 0; i < shape->rank; i++)
        json_array_append_new(out, json_integer(shape->dim[i]));
    return out;
}

struct qm_hyper qm_describe_hyper(const struct qm_trial *t, const struct qm_case *c, int k)
{
    struct qm_recipe first = t->recipe;
    if (!qm_case_takes(c, QM_PART_schedule))
        return first.hyper;
    first.hyper = qm_hyper_schedule(&t->recipe, t->seed, 0); /* as the judge begins a schedule */
    return k == 0 ? first.hyper : qm_hyper_schedule(&first, t->seed, k);
}

static json_t *slots_of(const struct qm_trial *t)
{
    const struct qm_rule *rule = t->recipe.rule;
    json_t *out = json_array();
    char text[QM_QUANTIZER_TEXT];
    for (int i = 0; i < rule->n_slots; i++) {
        const struct qm_quantizer *q = &t->slot[i];
        if (t->slot_n[i] == 0 && t->n > 0)
            continue; /* this tensor has no such slot */
        json_t *slot = json_pack("{s:s, s:s, s:i, s:o}", "name", rule->slot[i], "quantizer",
                                 qm_quantizer_print(q, text), "bits", q->bits, "shape",
                                 dims(&t->slot_shape[i]));
        if (q->bits > 0 && q->bits < 8 && q->pack != QM_PACK_byte)
            json_object_set_new(slot, "first_code",
                                json_string(q->pack == QM_PACK_hi ? "high" : "low"));
        json_array_append_new(out, slot);
    }
    return out;
}

qm_status qm_describe_case(const struct qm_recipe *r, const struct qm_vectors_case *c,
                           uint64_t seed, json_t **out)
{
    struct qm_trial t = {.n_calls = 0};
    json_t *steps = json_array();
    char id[QM_CASE_TEXT];
    qm_status st = qm_trial_of_case(r, &c->c, seed, 1, &t);
    for (int k = 0; st == QM_OK && k < (int)c->steps; k++) {
        struct qm_hyper h = qm_describe_hyper(&t, &c->c, k);
        json_array_append_new(steps, hyper(r->rule, &h, &r->base->hyper));
    }
    if (st == QM_OK)
        *out = json_pack("{s:s, s:s, s:o, s:I, s:I, s:O, s:o}", "name", c->name, "id",
                         qm_case_print(&c->c, id), "shape", dims(&c->c.shape), "first_step",
                         (json_int_t)c->c.t, "steps", (json_int_t)c->steps, "hyper", steps, "slots",
                         slots_of(&t));
    json_decref(steps);
    qm_trial_close(&t);
    return st;
}

qm_status qm_describe_codebook(const struct qm_subject *s, int i, struct qm_tensor *out)
{
    const struct qm_quantizer *q = &s->recipe.slot[i];
    int exists = q->bits > 0 && q->curve == QM_CURVE_none;
    struct qm_codec c;
    *out = (struct qm_tensor){NULL, QM_DTYPE_f32, {1, {exists ? INT64_C(1) << q->bits : 0}}};
    if (!exists)
        return QM_OK;
    QM_TRY(qm_codec_init(&c, q));
    float *value = malloc(sizeof *value << q->bits);
    if (!value)
        return qm_fail(QM_NO_MEMORY, "codebooks");
    for (int code = 0; code < out->shape.dim[0]; code++) { /* not every code exists */
        int at = s->decider[i].position_of[code];
        value[code] = at < 0 ? NAN : c.cb.value[at] * c.cb.post;
    }
    out->data = value;
    return QM_OK;
}
