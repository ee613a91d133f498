/* recipe.c - Recipes: parsing, printing, the fallback to plain floats, sizes. */
#include "core/recipe/recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/base/number.h"

/* clang-format off */
static const char *const plain_keys[] = {
#define X(name, value, text) #name,
    QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    "grad", "param", "state_used", "min_numel", "whole_blocks",
};
static const char *const formats[] = {
#define X(name, bytes, mantissa, least, text) #name,
    QM_PARAM_FORMAT_LIST(X)
#undef X
};
static const int format_bytes[] = {
#define X(name, bytes, mantissa, least, text) bytes,
    QM_PARAM_FORMAT_LIST(X)
#undef X
};
static const char *const writes[] = {
#define X(name, bytes, text) #name,
    QM_PARAM_WRITE_LIST(X)
#undef X
};
static const int write_bytes[] = {
#define X(name, bytes, text) bytes,
    QM_PARAM_WRITE_LIST(X)
#undef X
};
/* clang-format on */

int qm_param_bytes(const struct qm_param *p) { return format_bytes[p->format]; }

int qm_param_residual(const struct qm_param *p)
{
    return p->format == QM_PARAM_f32 ? 0 : write_bytes[p->write];
}

enum qm_dtype qm_param_dtype(const struct qm_param *p) { return qm_param_type(p->format); }

void qm_param_from_float(const struct qm_param *p, int64_t n, const float *x, void *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = qm_param_nearest(p->format, x[i]);
        switch (format_bytes[p->format]) {
        case 1: ((uint8_t *)out)[i] = (uint8_t)h; break;
        case 2: ((uint16_t *)out)[i] = (uint16_t)h; break;
        default: ((float *)out)[i] = qm_float(h); break;
        }
    }
}

void qm_param_to_float(const struct qm_param *p, int64_t n, const void *x, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = format_bytes[p->format] == 1   ? ((const uint8_t *)x)[i]
                     : format_bytes[p->format] == 2 ? ((const uint16_t *)x)[i]
                                                    : qm_bits(((const float *)x)[i]);
        out[i] = qm_param_widen(p->format, h);
    }
}

qm_status qm_param_parse(const char *text, struct qm_param *out)
{
    char copy[32];
    snprintf(copy, sizeof copy, "%s", text);
    char *write = strchr(copy, '/');
    if (write)
        *write++ = '\0';
    int f = qm_name_find(copy, formats, QM_PARAM_FORMAT_COUNT);
    int w = write ? qm_name_find(write, writes, QM_WRITE_COUNT) : QM_WRITE_near;
    if (f < 0)
        return qm_name_unknown("param", copy, formats, QM_PARAM_FORMAT_COUNT);
    if (w < 0)
        return qm_name_unknown("param", write, writes, QM_WRITE_COUNT);
    if (f == QM_PARAM_f32 && w != QM_WRITE_near)
        return qm_fail(QM_BAD_ARG, "param f32 has nothing to round: no '%s'", writes[w]);
    if (f == QM_PARAM_e4m3 && w > QM_WRITE_stoch)
        return qm_fail(QM_BAD_ARG, "param e4m3 composes with near and stoch, not with '%s'",
                       writes[w]);
    *out = (struct qm_param){(enum qm_param_format)f, (enum qm_param_write)w};
    return QM_OK;
}

const char *qm_param_text(const struct qm_param *p, char text[24])
{
    if (p->format == QM_PARAM_f32)
        snprintf(text, 24, "f32");
    else
        snprintf(text, 24, "%s/%s", formats[p->format], writes[p->write]);
    return text;
}

static qm_status set_plain(struct qm_quantizer *out, const char *value)
{
    struct qm_quantizer q;
    if (qm_quantizer_parse(value, &q) != QM_OK || q.bits != 0 || q.plain == QM_PLAIN_i16)
        return qm_fail(QM_BAD_ARG, "plain: expected f32, bf16 or f16, got '%s'", value);
    *out = q;
    return QM_OK;
}

static qm_status set_used(struct qm_recipe *r, const char *value)
{
    if (strcmp(value, "fresh") != 0 && strcmp(value, "stored") != 0)
        return qm_fail(QM_BAD_ARG, "state_used: expected fresh or stored, got '%s'", value);
    r->state_stored = *value == 's';
    return QM_OK;
}

/* Slot i becomes as slot k of r is. */
static void copy_slot(struct qm_recipe *to, int i, const struct qm_recipe *r, int k)
{
    to->slot[i] = r->slot[k];
    to->plain[i] = r->plain[k];
    to->min_numel[i] = r->min_numel[k];
    to->whole_blocks[i] = r->whole_blocks[k];
    to->init_code[i] = r->init_code[k];
    to->init_scale[i] = r->init_scale[k];
}

qm_status qm_recipe_from(const struct qm_variant *v, struct qm_recipe *out)
{
    struct qm_recipe r = {
        .base = v, .rule = qm_rule_find(v->rule), .grad = QM_DTYPE_f32, .hyper = v->hyper};
    if (!r.rule)
        return qm_fail(QM_INTERNAL, "variant %s: there is no rule '%s'", v->name, v->rule);
    if (v->small_rule && !(r.small = qm_rule_find(v->small_rule)))
        return qm_fail(QM_INTERNAL, "variant %s: there is no rule '%s'", v->name, v->small_rule);
    if (v->param)
        QM_TRY(qm_param_parse(v->param, &r.param));
    if (v->state_used)
        QM_TRY(set_used(&r, v->state_used));
    for (int i = 0; i < r.rule->n_slots; i++) {
        const struct qm_variant_slot *s = &v->slot[i];
        int like = qm_rule_slot_like(r.rule, i);
        if (like >= 0) {
            copy_slot(&r, i, &r, like);
            continue;
        }
        if (!s->name || strcmp(s->name, r.rule->slot[i]) != 0)
            return qm_fail(QM_INTERNAL, "variant %s: slot %d should be named %s", v->name, i,
                           r.rule->slot[i]);
        QM_TRY(qm_quantizer_parse(s->quantizer, &r.slot[i]));
        QM_TRY(set_plain(&r.plain[i], s->plain ? s->plain : "f32"));
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
    if (end == value || *end || !isfinite(v))
        return qm_fail(QM_BAD_ARG, "%s: expected a finite number, got '%s'", key, value);
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
    if (strcmp(sub, "whole_blocks") == 0) {
        if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
            return qm_fail(QM_BAD_ARG, "%s: expected 0 or 1, got '%s'", key, value);
        r->whole_blocks[i] = *value == '1';
        return QM_OK;
    }
    if (strcmp(sub, "plain") == 0)
        return set_plain(&r->plain[i], value);
    if (r->slot[i].bits == 0)
        return qm_fail(QM_BAD_ARG,
                       "%s: slot %s has no codes (f32); give it a whole quantizer first", key,
                       r->rule->slot[i]);
    return qm_quantizer_set(&r->slot[i], sub, value);
}

/* Slot i and those that are like it. */
static qm_status set_slots(struct qm_recipe *r, int i, const char *sub, const char *key,
                           const char *value)
{
    QM_TRY(set_slot(r, i, sub, key, value));
    for (int k = i + 1; k < r->rule->n_slots; k++)
        if (qm_rule_slot_like(r->rule, k) == i)
            QM_TRY(set_slot(r, k, sub, key, value));
    return QM_OK;
}

/* An override of what the rule does not read is taken where it states the value that the recipe has
 * or the default, so that a suite may say weight_decay: 0 for all; nothing then depends on it. */
static qm_status check_read(const struct qm_rule *rule, const char *key, int is_as_before)
{
    if (is_as_before || qm_rule_reads(rule, key))
        return QM_OK;
    return qm_fail(QM_BAD_ARG, "%s: rule %s does not read it; it reads %s", key, rule->name,
                   rule->reads);
}

qm_status qm_recipe_set(struct qm_recipe *r, const char *key, const char *value)
{
    struct qm_hyper *h = &r->hyper;
    double v = 0.0;
    for (int i = 0; i < r->rule->n_slots; i++) {
        size_t n = strlen(r->rule->slot[i]);
        if (strncmp(key, r->rule->slot[i], n) == 0 && (key[n] == '\0' || key[n] == '.'))
            return set_slots(r, i, key[n] ? key + n + 1 : NULL, key, value);
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
    if (strcmp(key, "param") == 0)
        return qm_param_parse(value, &r->param);
    if (strcmp(key, "state_used") == 0)
        return set_used(r, value);
    if (strcmp(key, "min_numel") == 0 || strcmp(key, "whole_blocks") == 0) {
        for (int i = 0; i < r->rule->n_slots; i++)
            QM_TRY(set_slot(r, i, key, key, value));
        return QM_OK;
    }
#define X(name, initial, text)                                                                     \
    if (strcmp(key, #name) == 0) {                                                                 \
        if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)                                    \
            return qm_fail(QM_BAD_ARG, "%s: expected 0 or 1, got '%s'", key, value);               \
        QM_TRY(                                                                                    \
            check_read(r->rule, key, (*value == '1') == h->name || (*value == '1') == (initial))); \
        h->name = *value == '1';                                                                   \
        return QM_OK;                                                                              \
    }
    QM_HYPER_FLAG_LIST(X)
#undef X
#define X(name, initial, text)                                            \
    if (strcmp(key, #name) == 0) {                                        \
        QM_TRY(read_number(key, value, &v));                              \
        QM_TRY(check_read(r->rule, key, v == h->name || v == (initial))); \
        h->name = v;                                                      \
        return QM_OK;                                                     \
    }
    QM_HYPER_LIST(X)
#undef X
    const char *names[QM_MAX_SLOTS + sizeof plain_keys / sizeof *plain_keys];
    int n = 0;
    for (int i = 0; i < r->rule->n_slots; i++)
        names[n++] = r->rule->slot[i];
    for (size_t i = 0; i < sizeof plain_keys / sizeof *plain_keys; i++)
        names[n++] = plain_keys[i];
    return qm_name_unknown("recipe key", key, names, n);
}

/* The ranges that every rule has, of rates, sizes and factors, and of betas; none: -1 stands for no
 * beta. */
static int is_from_0(double v) { return v >= 0.0; }
static int is_beta(double v, int none) { return (v >= 0.0 && v < 1.0) || (none && v == -1.0); }

/* Whether a hyper-parameter lies in the range that every rule has. */
static qm_status check_range(const char *key, double v)
{
    static const char *const from_0[] = {
        "lr", "eps", "eps1", "gnorm_scale", "weight_decay", "matrix_eps", "momentum_decay"};
    static const char *const betas[] = {"beta1", "beta2"};
    if (qm_name_find(key, from_0, sizeof from_0 / sizeof *from_0) >= 0 && !is_from_0(v))
        return qm_fail(QM_BAD_ARG, "expected a number of at least 0");
    if (qm_name_find(key, betas, sizeof betas / sizeof *betas) >= 0 && !is_beta(v, 1))
        return qm_fail(QM_BAD_ARG, "expected a number from 0 to below 1");
    return QM_OK;
}

static qm_status check_hyper(const char *key, const char *value)
{
    static const char *const flags[] = {
#define X(name, initial, text) #name,
        QM_HYPER_FLAG_LIST(X)
#undef X
    };
    double v = 0.0;
    if (qm_name_find(key, flags, sizeof flags / sizeof *flags) < 0) {
        QM_TRY(read_number(key, value, &v));
        return check_range(key, v);
    }
    return strcmp(value, "0") == 0 || strcmp(value, "1") == 0
               ? QM_OK
               : qm_fail(QM_BAD_ARG, "%s: expected 0 or 1, got '%.100s'", key, value);
}

qm_status qm_recipe_check_value(const struct qm_recipe *r, const char *key, const char *value)
{
    char where[256];
    struct qm_recipe scratch = *r;
    qm_status st = QM_OK;
    for (int i = 0; i < r->rule->n_slots; i++) {
        size_t n = strlen(r->rule->slot[i]);
        if (strncmp(key, r->rule->slot[i], n) != 0 || (key[n] && key[n] != '.'))
            continue;
        if (scratch.slot[i].bits == 0) /* what an axis takes does not depend on the others */
            QM_TRY(qm_quantizer_parse("dyn:8s/tensor", &scratch.slot[i]));
        st = set_slot(&scratch, i, key[n] ? key + n + 1 : NULL, key, value);
    }
    if (qm_hyper_has(key))
        st = check_hyper(key, value);
    if (st == QM_OK || strncmp(qm_message(), key, strlen(key)) == 0)
        return st;
    snprintf(where, sizeof where, "%.100s: '%.100s'", key, value);
    return qm_fail_in(st, where);
}

/* Of a word that names no variant, says which map others mean by it, if any. */
static qm_status say_map(qm_status st, const char *word)
{
    char map[24], meant[QM_MAP_MEANT];
    snprintf(map, sizeof map, "%.*s", (int)strcspn(word, ":/"), word);
    return qm_map_meant(map, meant)
               ? qm_fail(st, "no variant '%s'; as a map '%s' is %s", word, map, meant)
               : st;
}

qm_status qm_recipe_parse(const char *text, struct qm_recipe *out)
{
    char copy[QM_RECIPE_TEXT], *rest = copy, *part, word[64];
    const struct qm_variant *v;
    struct qm_recipe r;
    if (strlen(text) >= sizeof copy)
        return qm_fail(QM_BAD_ARG, "a recipe has at most %zu characters", sizeof copy - 1);
    strcpy(copy, text);
    part = strsep(&rest, ",");
    qm_status st = qm_variant_find(part, &v);
    if (st != QM_OK)
        return say_map(st, part);
    QM_TRY(qm_recipe_from(v, &r));
    while ((part = strsep(&rest, ",")) != NULL) {
        char *value = strchr(part, '=');
        if (!value)
            return qm_fail(QM_BAD_ARG, "recipe '%s': expected key=value, got '%s'", text, part);
        *value++ = '\0';
        if (qm_key_in(text, (size_t)(part - copy), part))
            return qm_fail(QM_BAD_ARG, "recipe '%s': sets %s twice", text, part);
        if (qm_key_part_in(text, (size_t)(part - copy), part, word))
            return qm_fail(QM_BAD_ARG, "recipe '%s': %s would undo %s before it", text, part, word);
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
        int like = qm_rule_slot_like(r->rule, i);
        if (like >= 0) /* what the overrides of that slot have made of this one */
            copy_slot(&base, i, r, like);
        if (!qm_quantizer_equal(&r->slot[i], &base.slot[i]))
            PUT(",%s=%s", r->rule->slot[i], qm_quantizer_print(&r->slot[i], q));
        if (r->min_numel[i] != base.min_numel[i])
            PUT(",%s.min_numel=%lld", r->rule->slot[i], (long long)r->min_numel[i]);
        if (r->whole_blocks[i] != base.whole_blocks[i])
            PUT(",%s.whole_blocks=%d", r->rule->slot[i], r->whole_blocks[i]);
        if (r->plain[i].plain != base.plain[i].plain)
            PUT(",%s.plain=%s", r->rule->slot[i], qm_quantizer_print(&r->plain[i], q));
    }
    if (r->grad != base.grad)
        PUT(",grad=%s", qm_dtype_name(r->grad));
    if (r->param.format != base.param.format || r->param.write != base.param.write)
        PUT(",param=%s", qm_param_text(&r->param, q));
    if (r->state_stored != base.state_stored)
        PUT(",state_used=%s", r->state_stored ? "stored" : "fresh");
#define X(name, initial, text)                                         \
    if (r->hyper.name != base.hyper.name &&                            \
        (r->hyper.name == (initial) || qm_rule_reads(r->rule, #name))) \
        PUT(",%s=%s", #name, qm_double_text(r->hyper.name, number));
    QM_HYPER_LIST(X)
#undef X
#define X(name, initial, text)                                         \
    if (r->hyper.name != base.hyper.name &&                            \
        (r->hyper.name == (initial) || qm_rule_reads(r->rule, #name))) \
        PUT(",%s=%d", #name, r->hyper.name);
    QM_HYPER_FLAG_LIST(X)
#undef X
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
        int is_i16 = !r->slot[i].bits && r->slot[i].plain == QM_PLAIN_i16;
        if (r->rule->slot_whole[i] && !is_i16 && (r->slot[i].bits || r->slot[i].plain))
            return qm_fail(QM_BAD_ARG, "slot %s holds whole numbers: its format is i16 or f32",
                           r->rule->slot[i]);
        if (is_i16 && !r->rule->slot_whole[i])
            return qm_fail(QM_BAD_ARG, "i16 is for slots of whole numbers, which %s is not",
                           r->rule->slot[i]);
        if (r->slot[i].bits && r->rule->slot_sign[i] && !r->slot[i].sign)
            return qm_fail(QM_BAD_ARG, "slot %s takes both signs; its map is unsigned",
                           r->rule->slot[i]);
    }
    const struct qm_hyper *h = &r->hyper;
    QM_TRY(qm_rule_from_0("gnorm_scale", h->gnorm_scale));
    if (r->rule->check) {
        int bits[QM_MAX_SLOTS];
        for (int i = 0; i < r->rule->n_slots; i++)
            bits[i] = r->slot[i].bits;
        return r->rule->check(&(struct qm_rule_use){h, r->param, r->grad, bits});
    }
    QM_TRY(qm_rule_from_0("lr", h->lr));
    QM_TRY(qm_rule_from_0("eps", h->eps));
    QM_TRY(qm_rule_from_0("weight_decay", h->weight_decay));
    int none = r->rule->betas_optional;
    if (!is_beta(h->beta1, none) || !is_beta(h->beta2, none))
        return qm_fail(QM_BAD_ARG, "beta1 and beta2 must be in [0, 1)%s",
                       none ? ", or -1 for none" : "");
    if (!(h->rank >= 0 && h->rank <= 1 << 20 && (h->gap >= 0 || none) && fabs(h->gap) < 1e15))
        return qm_fail(QM_BAD_ARG, "rank must be in [0, 2^20], gap in [0, 1e15)");
    if (h->side != 0 && h->side != 1 && h->side != 2 && h->side != 3)
        return qm_fail(QM_BAD_ARG, "side must be 0 (std), 1 (reverse_std), 2 (right) or 3 (left)");
    QM_TRY(qm_rule_from_0("momentum_decay", h->momentum_decay));
    if (h->nesterov && (h->momentum <= 0 || h->dampening != 0))
        return qm_fail(QM_BAD_ARG, "nesterov wants momentum > 0 and dampening 0");
    return QM_OK;
}

/* 1: slot i of a tensor of this shape has one shape with both, and is plain with both or none. */
static int keeps_shape(const struct qm_rule *rule, int i, const struct qm_shape *shape,
                       const struct qm_hyper *a, const struct qm_hyper *b)
{
    struct qm_shape s[2];
    qm_rule_slot_shape(rule, a, i, shape, &s[0]);
    qm_rule_slot_shape(rule, b, i, shape, &s[1]);
    if (rule->slot_plain && rule->slot_plain(a, i, shape) != rule->slot_plain(b, i, shape))
        return 0;
    return s[0].rank == s[1].rank &&
           memcmp(s[0].dim, s[1].dim, sizeof s[0].dim[0] * (size_t)s[0].rank) == 0;
}

qm_status qm_recipe_schedule(struct qm_recipe *r, const struct qm_shape *shape,
                             const struct qm_hyper *h)
{
    struct qm_recipe next = *r;
    const char *fixed = h->rank != r->hyper.rank         ? "rank"
                        : h->side != r->hyper.side       ? "side"
                        : h->window != r->hyper.window   ? "window"
                        : h->k_init != r->hyper.k_init   ? "k_init"
                        : h->d_block != r->hyper.d_block ? "d_block"
                                                         : NULL;
#define X(name, value, text)      \
    if (h->name != r->hyper.name) \
        fixed = #name;
    QM_HYPER_FLAG_LIST(X)
#undef X
    if (fixed)
        return qm_fail(QM_BAD_ARG, "%s cannot change between the steps of a plan", fixed);
    next.hyper = *h;
    if (h->initial_lr == 0.0)
        next.hyper.initial_lr = r->hyper.initial_lr;
    QM_TRY(qm_recipe_applicable(&next));
    for (int i = 0; i < r->rule->n_slots; i++)
        if (!keeps_shape(r->rule, i, shape, &r->hyper, h))
            return qm_fail(QM_BAD_ARG, "these hyper-parameters give slot %s another shape",
                           r->rule->slot[i]);
    *r = next;
    return QM_OK;
}

int qm_recipe_is_full(const struct qm_recipe *r)
{
    int full = r->param.format == QM_PARAM_f32 && r->grad == QM_DTYPE_f32;
    for (int i = 0; i < r->rule->n_slots; i++)
        full &= r->slot[i].bits == 0 && r->slot[i].plain == QM_PLAIN_f32;
    return full;
}

struct qm_quantizer qm_recipe_slot(const struct qm_recipe *r, int i, const struct qm_shape *shape)
{
    int64_t n = qm_shape_numel(shape);
    const struct qm_quantizer *q = &r->slot[i];
    if (n < r->min_numel[i] || (r->rule->slot_plain && r->rule->slot_plain(&r->hyper, i, shape)))
        return r->plain[i];
    if (r->whole_blocks[i] && q->norm == QM_NORM_block && n % q->block != 0)
        return r->plain[i];
    if (r->whole_blocks[i] && q->norm == QM_NORM_divblock &&
        n * qm_pack_width(q->pack, q->bits) % 8 != 0)
        return r->plain[i];
    if (shape->rank == 0 && q->norm != QM_NORM_block && q->norm != QM_NORM_divblock &&
        q->norm != QM_NORM_tensor)
        return r->plain[i];
    if (q->norm != QM_NORM_divblock)
        return *q;
    struct qm_shape own;
    qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &own);
    return qm_quantizer_at(q, &own);
}

struct qm_recipe qm_recipe_at(const struct qm_recipe *r, const struct qm_shape *shape)
{
    struct qm_recipe at = *r;
    int is_small = r->small != NULL;
    for (int i = 0; i < r->rule->n_slots; i++)
        is_small &= qm_shape_numel(shape) < r->min_numel[i];
    if (is_small)
        at.rule = r->small;
    return at;
}

qm_status qm_recipe_bytes(const struct qm_recipe *r, const struct qm_shape *shape, int64_t *bytes)
{
    int64_t sum = qm_param_residual(&r->param) * qm_shape_numel(shape);
    QM_TRY(qm_rule_takes(r->rule, &r->hyper, shape));
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(r, i, shape);
        struct qm_shape own = *shape;
        struct qm_codec c = {.q = q};
        qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &own);
        QM_TRY(qm_codec_fits(&c, &own));
        sum += qm_state_bytes(&c, &own);
    }
    *bytes = sum;
    return QM_OK;
}

/* The bytes of the codes of whole blocks for n elements, less those of the codes themselves. */
static int64_t filled(const struct qm_quantizer *q, int64_t n)
{
    int64_t rest = n % q->block ? q->block - n % q->block : 0;
    return rest * q->bits / 8;
}

int64_t qm_recipe_padding(const struct qm_recipe *r, const struct qm_shape *shape)
{
    const struct qm_hyper *h = &r->hyper;
    enum qm_pads pads = r->base->pads;
    int fills = pads == QM_PADS_blocks || pads == QM_PADS_moment;
    int64_t n = qm_shape_numel(shape), sum = pads == QM_PADS_number
                                                 ? (int64_t)qm_dtype_size(qm_param_dtype(&r->param))
                                             : pads == QM_PADS_product ? (int64_t)sizeof(float)
                                                                       : 0;
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(r, i, shape);
        struct qm_shape own = *shape;
        qm_rule_slot_shape(r->rule, h, i, shape, &own);
        int has_table = q.bits > 0 && q.map != QM_MAP_e4m3 && q.map != QM_MAP_qlog;
        if (pads == QM_PADS_tables && has_table)
            sum += (int64_t)sizeof(float) << (q.pack == QM_PACK_nibbles ? 4 : q.bits);
        else if (pads == QM_PADS_spare && q.curve == QM_CURVE_affine && q.norm == QM_NORM_block)
            sum += n > 0 && (n < q.block || n % q.block == 0) ? 4 : 0;
        else if (fills && q.bits > 0 && q.norm == QM_NORM_block)
            sum += filled(&q, qm_shape_numel(&own));
    }
    struct qm_quantizer m = qm_recipe_slot(r, 0, shape);
    int is_apollo = h->rank > 0.0 && shape->rank >= 2 && !h->factored && h->beta1 >= 0.0;
    if (pads == QM_PADS_moment && is_apollo && m.bits > 0 && m.norm == QM_NORM_block)
        sum += (n * m.bits + 7) / 8 + filled(&m, n) + 4 * ((n + m.block - 1) / m.block);
    return sum;
}
