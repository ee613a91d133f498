/* recipe.c - variants with overrides: parsing, printing, fallbacks, sizes. */
#include "core/engine/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/base/number.h"

/* clang-format off */
#define HYPER_LIST(X) \
    X(lr) X(beta1) X(beta2) X(eps) X(weight_decay) X(momentum) X(dampening)
static const char *const plain_keys[] = {
#define X(name) #name,
    HYPER_LIST(X)
#undef X
    "nesterov", "maximize", "grad",
};
/* clang-format on */

qm_status qm_recipe_from(const struct qm_variant *v, struct qm_recipe *out)
{
    struct qm_recipe r = {
        .base = v, .rule = qm_rule_find(v->rule), .grad = QM_DTYPE_f32, .hyper = v->hyper};
    if (!r.rule)
        return qm_fail(QM_INTERNAL, "variant %s: there is no rule '%s'", v->name, v->rule);
    for (int i = 0; i < r.rule->n_slots; i++) {
        const struct qm_variant_slot *s = &v->slot[i];
        if (!s->name || strcmp(s->name, r.rule->slot[i]) != 0)
            return qm_fail(QM_INTERNAL, "variant %s: slot %d should be named %s", v->name, i,
                           r.rule->slot[i]);
        QM_TRY(qm_quantizer_parse(s->quantizer, &r.slot[i]));
        r.min_numel[i] = s->min_numel;
        r.whole_blocks[i] = s->whole_blocks;
        r.init_code[i] = s->init_code;
        r.init_scale[i] = s->init_scale;
    }
    *out = r;
    return QM_OK;
}

static qm_status read_number(const char *key, const char *value, double *out)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || v != v)
        return qm_fail(QM_BAD_ARG, "%s: expected a number, got '%s'", key, value);
    *out = v;
    return QM_OK;
}

static qm_status set_slot(struct qm_recipe *r, int i, const char *sub, const char *key,
                          const char *value)
{
    double number = 0.0;
    if (!sub) {
        struct qm_quantizer q;
        QM_TRY(qm_quantizer_parse(value, &q));
        r->slot[i] = q;
        return QM_OK;
    }
    if (strcmp(sub, "min_numel") == 0) {
        QM_TRY(read_number(key, value, &number));
        if (!(number >= 0 && number < 1e15))
            return qm_fail(QM_BAD_ARG, "%s: expected a count, got '%s'", key, value);
        r->min_numel[i] = (int64_t)number;
        return QM_OK;
    }
    if (r->slot[i].bits == 0)
        return qm_fail(QM_BAD_ARG, "%s: slot %s is f32; give it a whole quantizer first", key,
                       r->rule->slot[i]);
    return qm_quantizer_set(&r->slot[i], sub, value);
}

qm_status qm_recipe_set(struct qm_recipe *r, const char *key, const char *value)
{
    struct qm_hyper *h = &r->hyper;
    double v = 0.0;
    for (int i = 0; i < r->rule->n_slots; i++) {
        size_t n = strlen(r->rule->slot[i]);
        if (strncmp(key, r->rule->slot[i], n) == 0 && (key[n] == '\0' || key[n] == '.'))
            return set_slot(r, i, key[n] ? key + n + 1 : NULL, key, value);
    }
    if (strcmp(key, "grad") == 0) {
        for (int d = 0; d < QM_DTYPE_COUNT; d++)
            if (strcmp(value, qm_dtype_name((enum qm_dtype)d)) == 0 &&
                (d == QM_DTYPE_f32 || d == QM_DTYPE_bf16 || d == QM_DTYPE_f16)) {
                r->grad = (enum qm_dtype)d;
                return QM_OK;
            }
        return qm_fail(QM_BAD_ARG, "grad: expected f32, bf16 or f16, got '%s'", value);
    }
    if (strcmp(key, "nesterov") == 0 || strcmp(key, "maximize") == 0) {
        if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
            return qm_fail(QM_BAD_ARG, "%s: expected 0 or 1, got '%s'", key, value);
        *(*key == 'n' ? &h->nesterov : &h->maximize) = *value == '1';
        return QM_OK;
    }
#define X(name)                              \
    if (strcmp(key, #name) == 0) {           \
        QM_TRY(read_number(key, value, &v)); \
        h->name = v;                         \
        return QM_OK;                        \
    }
    HYPER_LIST(X)
#undef X
    const char *names[32];
    int n = 0;
    for (int i = 0; i < r->rule->n_slots; i++)
        names[n++] = r->rule->slot[i];
    for (size_t i = 0; i < sizeof plain_keys / sizeof *plain_keys; i++)
        names[n++] = plain_keys[i];
    return qm_name_unknown("recipe key", key, names, n);
}

qm_status qm_recipe_parse(const char *text, struct qm_recipe *out)
{
    char copy[QM_RECIPE_TEXT], *rest = copy, *part;
    const struct qm_variant *v;
    struct qm_recipe r;
    if (strlen(text) >= sizeof copy)
        return qm_fail(QM_BAD_ARG, "a recipe has at most %zu characters", sizeof copy - 1);
    strcpy(copy, text);
    part = strsep(&rest, ",");
    QM_TRY(qm_variant_find(part, &v));
    QM_TRY(qm_recipe_from(v, &r));
    while ((part = strsep(&rest, ",")) != NULL) {
        char *value = strchr(part, '=');
        if (!value)
            return qm_fail(QM_BAD_ARG, "recipe '%s': expected key=value, got '%s'", text, part);
        *value++ = '\0';
        QM_TRY(qm_recipe_set(&r, part, value));
    }
    QM_TRY(qm_recipe_applicable(&r));
    *out = r;
    return QM_OK;
}

char *qm_recipe_print(const struct qm_recipe *r, char *text)
{
    struct qm_recipe base;
    size_t n = 0, size = QM_RECIPE_TEXT;
    char q[QM_QUANTIZER_TEXT], number[QM_NUMBER_TEXT];
#define PUT(...) n += (size_t)snprintf(text + n, n < size ? size - n : 0, __VA_ARGS__)
    PUT("%s", r->base->name);
    if (qm_recipe_from(r->base, &base) != QM_OK)
        return text;
    for (int i = 0; i < r->rule->n_slots; i++) {
        if (!qm_quantizer_equal(&r->slot[i], &base.slot[i]))
            PUT(",%s=%s", r->rule->slot[i], qm_quantizer_print(&r->slot[i], q));
        if (r->min_numel[i] != base.min_numel[i])
            PUT(",%s.min_numel=%lld", r->rule->slot[i], (long long)r->min_numel[i]);
    }
    if (r->grad != base.grad)
        PUT(",grad=%s", qm_dtype_name(r->grad));
#define X(name)                           \
    if (r->hyper.name != base.hyper.name) \
        PUT(",%s=%s", #name, qm_double_text(r->hyper.name, number));
    HYPER_LIST(X)
#undef X
    if (r->hyper.nesterov != base.hyper.nesterov)
        PUT(",nesterov=%d", r->hyper.nesterov);
    if (r->hyper.maximize != base.hyper.maximize)
        PUT(",maximize=%d", r->hyper.maximize);
#undef PUT
    return text;
}

qm_status qm_recipe_applicable(const struct qm_recipe *r)
{
    for (int i = 0; i < r->rule->n_slots; i++) {
        char why[64];
        snprintf(why, sizeof why, "slot %s", r->rule->slot[i]);
        qm_status st = qm_quantizer_applicable(&r->slot[i]);
        if (st != QM_OK)
            return qm_fail_in(st, why);
        if (r->slot[i].bits && r->rule->slot_sign[i] && !r->slot[i].sign)
            return qm_fail(QM_BAD_ARG, "slot %s takes both signs; its map is unsigned",
                           r->rule->slot[i]);
    }
    const struct qm_hyper *h = &r->hyper;
    if (!(h->lr >= 0 && h->eps >= 0 && h->weight_decay >= 0))
        return qm_fail(QM_BAD_ARG, "lr, eps and weight_decay must not be negative");
    if (!(h->beta1 >= 0 && h->beta1 < 1 && h->beta2 >= 0 && h->beta2 < 1))
        return qm_fail(QM_BAD_ARG, "beta1 and beta2 must be in [0, 1)");
    if (h->nesterov && (h->momentum <= 0 || h->dampening != 0))
        return qm_fail(QM_BAD_ARG, "nesterov wants momentum > 0 and dampening 0");
    return QM_OK;
}

struct qm_quantizer qm_recipe_slot(const struct qm_recipe *r, int i, const struct qm_shape *shape)
{
    int64_t n = qm_shape_numel(shape);
    struct qm_quantizer f32 = {.scale = {.zero = -1}};
    const struct qm_quantizer *q = &r->slot[i];
    if (n < r->min_numel[i])
        return f32;
    if (r->whole_blocks[i] && q->norm == QM_NORM_block && n % q->block != 0)
        return f32;
    if (shape->rank == 0 && q->norm != QM_NORM_block && q->norm != QM_NORM_tensor)
        return f32;
    return *q;
}

qm_status qm_recipe_bytes(const struct qm_recipe *r, const struct qm_shape *shape, int64_t *bytes)
{
    int64_t sum = 0;
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(r, i, shape);
        struct qm_codec c = {.q = q};
        QM_TRY(qm_codec_fits(&c, shape));
        sum += qm_state_bytes(&c, shape);
    }
    *bytes = sum;
    return QM_OK;
}
