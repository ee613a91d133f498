/* state_text.c - The description, the list of arrays and the digest of a state. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "experiments/foreign/json_parse.h"
#include "experiments/source/distribution.h"
#include "experiments/state/state_file.h"

void qm_state_free(struct qm_state *s)
{
    for (int i = 0; i < s->n; i++) {
        struct qm_state_tensor *t = &s->tensor[i];
        free(t->param.data);
        free(t->residual.data);
        for (int k = 0; k < t->n_slots; k++) {
            free(t->slot[k].codes.data);
            free(t->slot[k].scales.data);
        }
    }
    free(s->tensor);
    free(s->joined);
    free(s->left_out);
    *s = (struct qm_state){0};
}

enum qm_dtype qm_state_residual_dtype(const struct qm_param *p)
{
    return p->write == QM_WRITE_ecc8    ? QM_DTYPE_i8
           : p->write == QM_WRITE_ecc16 ? QM_DTYPE_i16
                                        : qm_param_dtype(p);
}

qm_status qm_state_slot_layout(struct qm_state_slot *slot, struct qm_codec *c)
{
    QM_TRY(qm_codec_parse(c, slot->quantizer));
    QM_TRY(qm_codec_fits(c, &slot->shape));
    int64_t n = qm_shape_numel(&slot->shape);
    slot->scales.dtype = QM_DTYPE_f32;
    slot->codes.dtype = QM_DTYPE_u8;
    slot->is_plain = c->q.bits == 0;
    if (slot->is_plain) {
        slot->scales.shape = slot->shape;
        slot->codes.shape = (struct qm_shape){1, {0}};
    } else {
        slot->scales.shape = (struct qm_shape){1, {qm_scale_count(c, &slot->shape)}};
        slot->codes.shape = (struct qm_shape){1, {qm_code_bytes(c, n)}};
    }
    return QM_OK;
}

/* ---- description ---------------------------------------------------------------------------- */

static json_t *shape_json(const struct qm_shape *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->rank; i++)
        json_array_append_new(list, json_integer(s->dim[i]));
    return list;
}

json_t *qm_state_describe(const struct qm_state *s)
{
    json_t *all = json_array();
    for (int i = 0; i < s->n; i++) {
        const struct qm_state_tensor *t = &s->tensor[i];
        char seed[24], stored[24];
        json_t *slots = json_array();
        for (int k = 0; k < t->n_slots; k++)
            json_array_append_new(slots, json_pack("{s:s, s:s, s:o}", "name", t->slot[k].name,
                                                   "quantizer", t->slot[k].quantizer, "shape",
                                                   shape_json(&t->slot[k].shape)));
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)t->seed);
        json_array_append_new(all, json_pack("{s:s, s:s, s:o, s:I, s:I, s:s, s:s, s:o}", "name",
                                             t->name, "recipe", t->recipe, "shape",
                                             shape_json(&t->shape), "tensor", (json_int_t)t->id,
                                             "step", (json_int_t)t->step, "seed", seed, "param",
                                             qm_param_text(&t->stored, stored), "slots", slots));
    }
    return all;
}

static qm_status take_text(const json_t *from, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(from, key));
    if (!text)
        return qm_fail(QM_BAD_FILE, "'%s' is missing or no text", key);
    if (!*text || strlen(text) >= size)
        return qm_fail(QM_BAD_FILE, "'%s' has %zu characters, expected 1 to %zu", key, strlen(text),
                       size - 1);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return qm_fail(QM_BAD_FILE, "'%s' has a control character", key);
    strcpy(out, text);
    return QM_OK;
}

static qm_status take_integer(const json_t *from, const char *key, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(from, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > most)
        return qm_fail(QM_BAD_FILE, "'%s' is no integer from 0 to %lld", key, (long long)most);
    *out = json_integer_value(value);
    return QM_OK;
}

static qm_status take_shape(const json_t *from, struct qm_shape *out)
{
    const json_t *list = json_object_get(from, "shape"), *dim;
    struct qm_shape s = {0, {0}};
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > QM_MAX_RANK)
        return qm_fail(QM_BAD_FILE, "'shape' is no list of at most %d sizes", QM_MAX_RANK);
    json_array_foreach (list, i, dim) {
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return qm_fail(QM_BAD_FILE, "'shape' has a size that is no integer of at least 0");
        s.dim[s.rank++] = json_integer_value(dim);
    }
    int64_t n = qm_shape_numel(&s);
    if (n < 0 || n > INT64_MAX / 8)
        return qm_fail(QM_BAD_FILE, "'shape' has more than 2^60 elements");
    *out = s;
    return QM_OK;
}

int qm_state_is_path(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || name[0] == '/' || name[n - 1] == '/')
        return 0;
    for (const char *at = name; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL) {
        size_t part = strcspn(at, "/");
        if (part == 0 || (part == 1 && at[0] == '.') || (part == 2 && strncmp(at, "..", 2) == 0))
            return 0;
    }
    return 1;
}

static qm_status take_slot(const json_t *from, struct qm_state_tensor *t)
{
    struct qm_codec c;
    struct qm_state_slot *slot = &t->slot[t->n_slots];
    QM_TRY(take_text(from, "name", slot->name, sizeof slot->name));
    QM_TRY(take_text(from, "quantizer", slot->quantizer, sizeof slot->quantizer));
    QM_TRY(take_shape(from, &slot->shape));
    if (strchr(slot->name, '/') || strchr(slot->name, '.') || strcmp(slot->name, "param") == 0 ||
        strcmp(slot->name, "residual") == 0)
        return qm_fail(QM_BAD_FILE, "'%s' is no name of a slot", slot->name);
    for (int k = 0; k < t->n_slots; k++)
        if (strcmp(t->slot[k].name, slot->name) == 0)
            return qm_fail(QM_BAD_FILE, "two slots are called '%s'", slot->name);
    qm_status st = qm_state_slot_layout(slot, &c);
    if (st != QM_OK)
        return qm_fail_in(QM_BAD_FILE, slot->name);
    t->n_slots++;
    return QM_OK;
}

static qm_status take_tensor(const json_t *from, struct qm_state_tensor *t)
{
    char stored[24], seed[24], *end;
    int64_t id = 0;
    QM_TRY(take_text(from, "name", t->name, sizeof t->name));
    if (!qm_state_is_path(t->name))
        return qm_fail(QM_BAD_FILE, "'%s' is no name of a tensor", t->name);
    QM_TRY(take_text(from, "recipe", t->recipe, sizeof t->recipe));
    QM_TRY(take_shape(from, &t->shape));
    QM_TRY(take_integer(from, "tensor", QM_STREAM_rows - 1, &id));
    QM_TRY(take_integer(from, "step", INT64_C(0xffffffff), &t->step));
    QM_TRY(take_text(from, "seed", seed, sizeof seed));
    t->id = (uint32_t)id;
    t->seed = strtoull(seed, &end, 10);
    char again[24];
    snprintf(again, sizeof again, "%llu", (unsigned long long)t->seed);
    if (*end || strcmp(seed, again) != 0)
        return qm_fail(QM_BAD_FILE, "'seed' is no number below 2^64");
    QM_TRY(take_text(from, "param", stored, sizeof stored));
    if (qm_param_parse(stored, &t->stored) != QM_OK)
        return qm_fail_in(QM_BAD_FILE, "'param'");
    t->param.dtype = qm_param_dtype(&t->stored);
    t->param.shape = t->residual.shape = t->shape;
    t->residual.dtype = qm_state_residual_dtype(&t->stored);
    const json_t *slots = json_object_get(from, "slots"), *slot;
    size_t i;
    if (!json_is_array(slots) || json_array_size(slots) > QM_MAX_SLOTS)
        return qm_fail(QM_BAD_FILE, "'slots' is no list of at most %d", QM_MAX_SLOTS);
    json_array_foreach (slots, i, slot)
        QM_TRY(take_slot(slot, t));
    return QM_OK;
}

qm_status qm_state_undescribe(const char *text, struct qm_state *out)
{
    struct qm_state s = {0};
    json_t *all, *one;
    size_t i;
    QM_TRY(qm_json_parse(text, strlen(text), "description", 0, &all));
    qm_status st = json_is_array(all) && json_array_size(all) < 1000000
                       ? QM_OK
                       : qm_fail(QM_BAD_FILE, "description: expected a list of tensors");
    if (st == QM_OK && !(s.tensor = calloc(json_array_size(all) + 1, sizeof *s.tensor)))
        st = qm_fail(QM_NO_MEMORY, "description");
    json_array_foreach (all, i, one) {
        char where[64];
        snprintf(where, sizeof where, "description, tensor %zu", i);
        if (st == QM_OK && (st = take_tensor(one, &s.tensor[s.n++])) != QM_OK)
            qm_fail_in(st, where);
    }
    json_decref(all);
    if (st == QM_OK)
        *out = s;
    else
        qm_state_free(&s);
    return st;
}

/* ---- arrays --------------------------------------------------------------------------------- */

static int append(struct qm_array *a, int *n, const struct qm_state_tensor *t, const char *array,
                  const char *ending, struct qm_tensor *tensor)
{
    struct qm_array *to = &a[*n];
    to->tensor = tensor;
    if (asprintf(&to->name, "%s/%s%s", t->name, array, ending) < 0)
        return 0;
    (*n)++;
    return 1;
}

qm_status qm_state_arrays(const struct qm_state *s, struct qm_array **out, int *n)
{
    struct qm_array *a =
        calloc((size_t)s->n * (2 + 2 * QM_MAX_SLOTS) + 1, sizeof *a); /* upper bound */
    int count = 0, ok = a != NULL;
    for (int i = 0; ok && i < s->n; i++) {
        struct qm_state_tensor *t = &s->tensor[i];
        ok = append(a, &count, t, "param", "", &t->param);
        if (ok && qm_param_residual(&t->stored))
            ok = append(a, &count, t, "residual", "", &t->residual);
        for (int k = 0; ok && k < t->n_slots; k++) {
            struct qm_state_slot *slot = &t->slot[k];
            if (!slot->is_plain)
                ok = append(a, &count, t, slot->name, ".codes", &slot->codes);
            ok = ok &&
                 append(a, &count, t, slot->name, slot->is_plain ? "" : ".scales", &slot->scales);
        }
    }
    if (!ok) {
        qm_state_arrays_free(a, count);
        return qm_fail(QM_NO_MEMORY, "arrays of a state");
    }
    *out = a;
    *n = count;
    return QM_OK;
}

void qm_state_arrays_free(struct qm_array *a, int n)
{
    for (int i = 0; i < n; i++)
        free(a[i].name);
    free(a);
}

qm_status qm_state_digest(const struct qm_state *s, char out[65])
{
    struct qm_array *a;
    struct qm_sha256 h;
    int n;
    json_t *all = qm_state_describe(s);
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(all);
    qm_status st = text ? qm_state_arrays(s, &a, &n) : qm_fail(QM_NO_MEMORY, "digest of a state");
    if (st == QM_OK) {
        qm_sha256_start(&h);
        qm_sha256_add(&h, text, strlen(text));
        for (int i = 0; i < n; i++)
            if (qm_tensor_bytes(a[i].tensor) > 0)
                qm_sha256_add(&h, a[i].tensor->data, qm_tensor_bytes(a[i].tensor));
        qm_sha256_hex(&h, out);
        qm_state_arrays_free(a, n);
    }
    free(text);
    return st;
}
