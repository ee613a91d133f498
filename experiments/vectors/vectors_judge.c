/* vectors_judge.c - Judges the answers that a program has added to a golden file. */
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "core/base/sha256.h"
#include "experiments/check/backend_replay.h"
#include "experiments/readers/reader.h"
#include "experiments/vectors/vectors.h"

/* An open golden file. */
struct golden_file {
    const char *path;
    struct qm_file *f;
    json_t *index; /* entry number by array name */
};

/* ---- arrays -------------------------------------------------------------------------------- */

static qm_status golden_open(const char *path, struct golden_file *in)
{
    in->path = path;
    QM_TRY(qm_file_open(path, &in->f));
    in->index = json_object();
    for (int i = 0; i < qm_file_count(in->f); i++) {
        const char *name = qm_file_entry(in->f, i)->name;
        json_object_set_new(in->index, name + (*name == '/'), json_integer(i));
    }
    return QM_OK;
}

/* The entry of an array, or -1. */
static int find(const struct golden_file *in, const char *name)
{
    const json_t *i = json_object_get(in->index, name);
    return i ? (int)json_integer_value(i) : -1;
}

/* Reads an array, which must have n elements of this type, as floats. */
static qm_status take(const struct golden_file *in, const char *name, enum qm_dtype dtype,
                      int64_t n, float *out)
{
    int i = find(in, name);
    if (i < 0)
        return qm_fail(QM_BAD_FILE, "%s: there is no array '%s'", in->path, name);
    const struct qm_entry *e = qm_file_entry(in->f, i);
    if (e->dtype != dtype || e->numel != n)
        return qm_fail(QM_BAD_FILE, "%s: '%s' is %lld elements of %s, expected %lld of %s",
                       in->path, name, (long long)e->numel, qm_dtype_name(e->dtype), (long long)n,
                       qm_dtype_name(dtype));
    return qm_file_read(in->f, i, 0, n, out);
}

/* Reads an array of a type of at most 16 bits in that type.  wide: scratch for n floats, which
 * represent every such value. */
static qm_status take_narrow(const struct golden_file *in, const char *name, enum qm_dtype dtype,
                             int64_t n, float *wide, void *out)
{
    QM_TRY(take(in, name, dtype, n, wide));
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case QM_DTYPE_bf16: ((uint16_t *)out)[i] = qm_float_to_bf16(wide[i]); break;
        case QM_DTYPE_f16: ((uint16_t *)out)[i] = qm_float_to_f16(wide[i]); break;
        case QM_DTYPE_i16: ((int16_t *)out)[i] = (int16_t)wide[i]; break;
        case QM_DTYPE_i8: ((int8_t *)out)[i] = (int8_t)wide[i]; break;
        default: ((uint8_t *)out)[i] = (uint8_t)wide[i]; break;
        }
    return QM_OK;
}

/* Reads an array of f32 or of a type of at most 16 bits. */
static qm_status take_any(const struct golden_file *in, const char *name, enum qm_dtype dtype,
                          int64_t n, float *wide, void *out)
{
    return dtype == QM_DTYPE_f32 ? take(in, name, dtype, n, out)
                                 : take_narrow(in, name, dtype, n, wide, out);
}

/* ---- a state ------------------------------------------------------------------------------- */

/* An array of a state: its name in the file, type and size, and where its elements go. */
struct part {
    char name[QM_STATE_NAME];
    enum qm_dtype dtype;
    int64_t n;
    void *to;
    int slot; /* the slot whose packed codes it holds, or -1 */
};

/* The arrays of a state, whose names begin with `at`. */
struct parts {
    const char *at;
    int n;
    struct part part[2 + 2 * QM_MAX_SLOTS];
};

static void add(struct parts *list, const char *array, const char *ending, struct part p)
{
    snprintf(p.name, sizeof p.name, "%s/%s%s", list->at, array, ending);
    list->part[list->n++] = p;
}

/* Lists the arrays of a trial's state, without those of no elements. */
static void parts_of(const struct qm_trial *t, const char *at, struct parts *list)
{
    struct qm_call c = qm_trial_call(t, 0);
    const struct qm_param *param = &t->recipe.param;
    list->at = at;
    list->n = 0;
    add(list, "param", "", (struct part){"", qm_param_dtype(param), t->n, c.p, -1});
    if (qm_param_residual(param))
        add(list, "residual", "",
            (struct part){"", qm_state_residual_dtype(param), t->n, c.residual, -1});
    for (int i = 0; i < t->recipe.rule->n_slots; i++) {
        const char *slot = t->recipe.rule->slot[i];
        struct qm_codec codec = {.q = t->slot[i]};
        if (t->slot_n[i] == 0)
            continue;
        if (t->slot[i].bits)
            add(list, slot, ".codes",
                (struct part){"", QM_DTYPE_u8, qm_code_bytes(&codec, t->slot_n[i]), c.codes[i], i});
        add(list, slot, t->slot[i].bits ? ".scales" : "",
            (struct part){"", QM_DTYPE_f32, t->n_scales[i], c.scales[i], -1});
    }
}

/* Reads packed codes and unpacks them, one per byte, to p->to, which has the slot's length. */
static qm_status read_codes(const struct golden_file *in, const struct qm_trial *t,
                            const struct part *p, float *wide, struct qm_sha256 *hash)
{
    struct qm_codec c;
    QM_TRY(qm_codec_init(&c, &t->slot[p->slot]));
    uint8_t *packed = malloc((size_t)p->n + 1);
    qm_status st = packed ? take_narrow(in, p->name, p->dtype, p->n, wide, packed)
                          : qm_fail(QM_NO_MEMORY, "%s", p->name);
    if (st == QM_OK)
        qm_unpack_range(&c, packed, t->slot_n[p->slot], p->to);
    if (st == QM_OK && hash)
        qm_sha256_add(hash, packed, (size_t)p->n);
    free(packed);
    return st;
}

/* Reads the state whose array names begin with `at`, and adds its bytes to hash (or NULL).  wide:
 * scratch for the longest array. */
static qm_status state_read(const struct golden_file *in, const struct qm_trial *t, const char *at,
                            float *wide, struct qm_sha256 *hash)
{
    struct parts list;
    parts_of(t, at, &list);
    for (int i = 0; i < list.n; i++) {
        const struct part *p = &list.part[i];
        if (p->slot >= 0) {
            QM_TRY(read_codes(in, t, p, wide, hash));
            continue;
        }
        QM_TRY(take_any(in, p->name, p->dtype, p->n, wide, p->to));
        if (hash)
            qm_sha256_add(hash, p->to, qm_dtype_size(p->dtype) * (size_t)p->n);
    }
    return QM_OK;
}

/* ---- a case -------------------------------------------------------------------------------- */

/* Whether the state whose array names begin with `at` is in the file: 1, 0, or -1 for a part of it.
 * first[size] gets the first missing name, or "". */
static int answered(const struct golden_file *in, const struct qm_trial *t, const char *at,
                    char *first, size_t size)
{
    struct parts list;
    int there = 0;
    parts_of(t, at, &list);
    *first = '\0';
    for (int i = 0; i < list.n; i++) {
        int is_there = find(in, list.part[i].name) >= 0;
        there += is_there;
        if (!is_there && !*first)
            snprintf(first, size, "%.*s", (int)size - 1, list.part[i].name);
    }
    return there == list.n ? 1 : there == 0 ? 0 : -1;
}

/* A case that is judged. */
struct work {
    const struct golden_file *in;
    const struct qm_subject *s;
    struct qm_vectors_case c;
    struct qm_trial before, after;
    float *wide; /* scratch for the longest array */
    struct qm_vectors_verdict *out;
};

/* Reads the gradient of step k into w->before, and adds it to hash (or NULL). */
static qm_status read_gradient(struct work *w, int64_t k, struct qm_sha256 *hash)
{
    char name[QM_STATE_NAME];
    struct qm_call c = qm_trial_call(&w->before, 0);
    snprintf(name, sizeof name, "%s/grad/%lld", w->c.name, (long long)k);
    QM_TRY(take_any(w->in, name, w->before.recipe.grad, w->before.n, w->wide, c.g));
    if (hash && w->before.n > 0) { /* hashed as float32 */
        qm_to_float(c.g, w->before.recipe.grad, 0, w->before.n, w->wide);
        qm_sha256_add(hash, w->wide, sizeof(float) * (size_t)w->before.n);
    }
    return QM_OK;
}

/* Reads the inputs, whose digest must be the one in the description. */
static qm_status read_inputs(struct work *w, const char *digest)
{
    struct qm_sha256 hash;
    char at[64], got[65];
    qm_sha256_start(&hash);
    snprintf(at, sizeof at, "%s/in", w->c.name);
    QM_TRY(state_read(w->in, &w->before, at, w->wide, &hash));
    for (int64_t k = 1; k <= w->c.steps; k++)
        QM_TRY(read_gradient(w, k, &hash));
    qm_sha256_hex(&hash, got);
    if (strcmp(got, digest) != 0)
        return qm_fail(QM_BAD_FILE, "%s: the inputs %s and %s/grad are not those that were written",
                       w->in->path, at, w->c.name);
    return QM_OK;
}

/* Judges step k from w->before to the answer `at`, which becomes w->before. */
static qm_status judge_step(struct work *w, int64_t k, const char *at)
{
    *qm_trial_call(&w->before, 0).t = w->c.c.t + k - 1;
    QM_TRY(read_gradient(w, k, NULL));
    QM_TRY(state_read(w->in, &w->after, at, w->wide, NULL));
    QM_TRY(qm_backend_replay_judge(w->s, &w->before, &w->after, at, &w->out->tally));
    struct qm_trial swap = w->before;
    w->before = w->after;
    w->after = swap;
    return QM_OK;
}

/* Judges the answered steps up to the first one that is not answered. */
static qm_status judge_steps(struct work *w, const char *digest)
{
    struct qm_vectors_verdict *out = w->out;
    QM_TRY(read_inputs(w, digest));
    for (int64_t k = 1; k <= w->c.steps; k++) {
        char at[64], first[QM_STATE_NAME];
        snprintf(at, sizeof at, "%s/out/%lld", w->c.name, (long long)k);
        int there = answered(w->in, &w->before, at, first, sizeof first);
        if (there < 0)
            return qm_fail(QM_BAD_FILE, "%s: there is no array '%s', but others of %s", w->in->path,
                           first, at);
        if (there == 0) {
            if (out->missing == 0)
                snprintf(out->first_missing, sizeof out->first_missing, "%s", first);
            out->missing += w->c.steps - k + 1;
            return QM_OK;
        }
        QM_TRY(judge_step(w, k, at));
    }
    return QM_OK;
}

static qm_status read_case(const json_t *from, struct qm_vectors_case *c, const char **digest)
{
    const char *name, *id;
    json_int_t steps;
    if (json_unpack((json_t *)from, "{s:s, s:s, s:I, s:s}", "name", &name, "id", &id, "steps",
                    &steps, "inputs", digest) != 0 ||
        strlen(name) >= sizeof c->name || steps < 1 || steps > QM_VECTORS_STEPS)
        return qm_fail(QM_BAD_FILE, "a case of 'golden' lacks name, id, steps or inputs");
    strcpy(c->name, name);
    c->steps = steps;
    return qm_case_parse(id, &c->c);
}

/* Elements of the longest array. */
static int64_t longest(const struct qm_trial *t)
{
    struct parts list;
    int64_t most = t->n;
    parts_of(t, "", &list);
    for (int i = 0; i < list.n; i++)
        most = list.part[i].n > most ? list.part[i].n : most;
    return most;
}

static qm_status judge_case(const struct golden_file *in, const struct qm_subject *s,
                            const json_t *from, struct qm_vectors_verdict *out)
{
    struct work *w = calloc(1, sizeof *w);
    const char *digest;
    if (!w)
        return qm_fail(QM_NO_MEMORY, "a case");
    *w = (struct work){.in = in, .s = s, .out = out};
    qm_status st = read_case(from, &w->c, &digest);
    if (st == QM_OK) {
        out->steps += w->c.steps;
        st = qm_trial_of_case(&s->recipe, &w->c.c, 0, 1, &w->before);
    }
    w->before.n_plans = 1;
    if (st == QM_OK)
        st = qm_trial_copy(&w->before, NULL, 1, &w->after);
    if (st == QM_OK) {
        w->wide = malloc(sizeof(float) * ((size_t)longest(&w->before) + 1));
        st = w->wide ? judge_steps(w, digest) : qm_fail(QM_NO_MEMORY, "an array");
    }
    free(w->wide);
    qm_trial_close(&w->after);
    qm_trial_close(&w->before);
    free(w);
    return st;
}

/* ---- a file -------------------------------------------------------------------------------- */

static qm_status read_head(const struct golden_file *in, json_t **out)
{
    int i = find(in, "golden");
    if (i < 0 || qm_file_entry(in->f, i)->dtype != QM_DTYPE_u8)
        return qm_fail(QM_BAD_FILE, "%s: there is no array 'golden' of bytes; not a golden file",
                       in->path);
    int64_t n = qm_file_entry(in->f, i)->numel;
    float *wide = malloc(sizeof(float) * ((size_t)n + 1));
    uint8_t *text = malloc((size_t)n + 1);
    json_error_t error;
    qm_status st = wide && text ? take_narrow(in, "golden", QM_DTYPE_u8, n, wide, text)
                                : qm_fail(QM_NO_MEMORY, "%s", in->path);
    json_t *root = st == QM_OK ? json_loadb((char *)text, (size_t)n, 0, &error) : NULL;
    if (st == QM_OK && !root)
        st = qm_fail(QM_BAD_FILE, "%s: 'golden' is no JSON: %s", in->path, error.text);
    free(text);
    free(wide);
    if (st == QM_OK)
        *out = root;
    return st;
}

static qm_status judge_file(const struct golden_file *in, json_t *root,
                            struct qm_vectors_verdict *out)
{
    const char *format = "", *recipe = "";
    int version = 0;
    json_t *cases = json_object_get(root, "cases"), *c;
    size_t i;
    json_unpack(root, "{s:s, s:i, s:s}", "format", &format, "version", &version, "recipe", &recipe);
    if (strcmp(format, QM_VECTORS_FORMAT) != 0 || version != QM_VECTORS_VERSION ||
        !json_is_array(cases))
        return qm_fail(QM_BAD_FILE, "%s: format '%.24s', version %d; expected '%s', version %d",
                       in->path, format, version, QM_VECTORS_FORMAT, QM_VECTORS_VERSION);
    struct qm_subject *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", in->path);
    s->backend = &qm_backend_cpu;
    qm_status st = qm_recipe_parse(recipe, &s->recipe);
    if (st == QM_OK) {
        qm_recipe_print(&s->recipe, out->recipe);
        st = qm_judge_begin(s, &out->tally);
    }
    json_array_foreach(cases, i, c) if (st == QM_OK) st = judge_case(in, s, c, out);
    if (st == QM_OK)
        qm_judge_end(s, &out->tally);
    free(s);
    if (st == QM_OK && out->tally.cases == 0)
        return qm_fail(QM_NO_MATCH, "%s: nothing is answered; expected arrays such as '%s'",
                       in->path, out->first_missing);
    return st;
}

qm_status qm_vectors_judge(const char *path, struct qm_vectors_verdict *out)
{
    struct golden_file in = {NULL, NULL, NULL};
    json_t *root = NULL;
    memset(out, 0, sizeof *out);
    qm_status st = golden_open(path, &in);
    if (st == QM_OK)
        st = read_head(&in, &root);
    if (st == QM_OK)
        st = judge_file(&in, root, out);
    json_decref(root);
    json_decref(in.index);
    qm_file_close(in.f);
    return st;
}

int qm_vectors_passed(const struct qm_vectors_verdict *v)
{
    return v->missing == 0 && qm_tally_passed(&v->tally);
}
