/* vectors_judge.c - the verdict on what came back in a golden file. */
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "core/base/sha256.h"
#include "experiments/check/backend_replay.h"
#include "experiments/readers/reader.h"
#include "experiments/vectors/vectors.h"

/* A file, and the numbers of its arrays by name. */
struct book {
    const char *path;
    struct qm_file *f;
    json_t *index;
};

/* ---- arrays -------------------------------------------------------------------------------- */

static qm_status book_open(const char *path, struct book *b)
{
    b->path = path;
    QM_TRY(qm_file_open(path, &b->f));
    b->index = json_object();
    for (int i = 0; i < qm_file_count(b->f); i++) {
        const char *name = qm_file_entry(b->f, i)->name;
        json_object_set_new(b->index, name + (*name == '/'), json_integer(i));
    }
    return QM_OK;
}

static int find(const struct book *b, const char *name)
{
    const json_t *i = json_object_get(b->index, name);
    return i ? (int)json_integer_value(i) : -1;
}

/* All n elements of an array of this type, as floats. */
static qm_status take(const struct book *b, const char *name, enum qm_dtype dtype, int64_t n,
                      float *out)
{
    int i = find(b, name);
    if (i < 0)
        return qm_fail(QM_BAD_FILE, "%s: there is no array '%s'", b->path, name);
    const struct qm_entry *e = qm_file_entry(b->f, i);
    if (e->dtype != dtype || e->numel != n)
        return qm_fail(QM_BAD_FILE, "%s: '%s' is %lld elements of %s, expected %lld of %s", b->path,
                       name, (long long)e->numel, qm_dtype_name(e->dtype), (long long)n,
                       qm_dtype_name(dtype));
    return qm_file_read(b->f, i, 0, n, out);
}

/* The same in its own type, of at most 16 bits; wide: scratch of n floats, which hold all of them. */
static qm_status take_narrow(const struct book *b, const char *name, enum qm_dtype dtype, int64_t n,
                             float *wide, void *out)
{
    QM_TRY(take(b, name, dtype, n, wide));
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

static qm_status take_any(const struct book *b, const char *name, enum qm_dtype dtype, int64_t n,
                          float *wide, void *out)
{
    return dtype == QM_DTYPE_f32 ? take(b, name, dtype, n, out)
                                 : take_narrow(b, name, dtype, n, wide, out);
}

/* ---- a state ------------------------------------------------------------------------------- */

/* An array of a state: n elements of a type, with what its name ends in, and where it goes: codes are
 * packed in the file. */
struct part {
    char name[QM_STATE_NAME];
    enum qm_dtype dtype;
    int64_t n;
    void *to;
    int slot; /* whose codes it has, or -1 */
};

enum { PARTS = 2 + 2 * QM_MAX_SLOTS };

static void part_add(struct part *list, int *n, const char *at, const char *array,
                     const char *ending, enum qm_dtype dtype, int64_t elements, void *to, int slot)
{
    struct part *p = &list[(*n)++];
    snprintf(p->name, sizeof p->name, "%s/%s%s", at, array, ending);
    p->dtype = dtype;
    p->n = elements;
    p->to = to;
    p->slot = slot;
}

/* The arrays of a state whose names begin with `at`; those of no elements are left out.  Returns how
 * many. */
static int parts_of(const struct qm_trial *t, const char *at, struct part list[PARTS])
{
    struct qm_call c = qm_trial_call(t, 0);
    const struct qm_param *param = &t->recipe.param;
    int n = 0;
    part_add(list, &n, at, "param", "", qm_param_dtype(param), t->n, c.p, -1);
    if (qm_param_residual(param))
        part_add(list, &n, at, "residual", "", qm_state_residual_dtype(param), t->n, c.residual,
                 -1);
    for (int i = 0; i < t->recipe.rule->n_slots; i++) {
        const char *slot = t->recipe.rule->slot[i];
        struct qm_codec codec = {.q = t->slot[i]};
        if (t->slot_n[i] == 0)
            continue;
        if (t->slot[i].bits)
            part_add(list, &n, at, slot, ".codes", QM_DTYPE_u8, qm_code_bytes(&codec, t->slot_n[i]),
                     c.codes[i], i);
        part_add(list, &n, at, slot, t->slot[i].bits ? ".scales" : "", QM_DTYPE_f32, t->n_scales[i],
                 c.scales[i], -1);
    }
    return n;
}

/* Packed codes become one a byte in the same place, which is as long as the slot. */
static qm_status read_codes(const struct book *b, const struct qm_trial *t, const struct part *p,
                            float *wide, struct qm_sha256 *hash)
{
    struct qm_codec c;
    QM_TRY(qm_codec_init(&c, &t->slot[p->slot]));
    uint8_t *packed = malloc((size_t)p->n + 1);
    qm_status st = packed ? take_narrow(b, p->name, p->dtype, p->n, wide, packed)
                          : qm_fail(QM_NO_MEMORY, "%s", p->name);
    if (st == QM_OK)
        qm_unpack_range(&c, packed, t->slot_n[p->slot], p->to);
    if (st == QM_OK && hash)
        qm_sha256_add(hash, packed, (size_t)p->n);
    free(packed);
    return st;
}

/* The state whose arrays begin with `at`.  wide: room for the longest array; hash: or NULL. */
static qm_status state_read(const struct book *b, const struct qm_trial *t, const char *at,
                            float *wide, struct qm_sha256 *hash)
{
    struct part list[PARTS];
    int n = parts_of(t, at, list);
    for (int i = 0; i < n; i++) {
        const struct part *p = &list[i];
        if (p->slot >= 0) {
            QM_TRY(read_codes(b, t, p, wide, hash));
            continue;
        }
        QM_TRY(take_any(b, p->name, p->dtype, p->n, wide, p->to));
        if (hash)
            qm_sha256_add(hash, p->to, qm_dtype_size(p->dtype) * (size_t)p->n);
    }
    return QM_OK;
}

/* ---- a case -------------------------------------------------------------------------------- */

/* Whether the arrays that begin with `at` are there: 1, 0; half of them: -1. */
static int answered(const struct book *b, const struct qm_trial *t, const char *at, char *first,
                    size_t size)
{
    struct part list[PARTS];
    int n = parts_of(t, at, list), there = 0;
    *first = '\0';
    for (int i = 0; i < n; i++) {
        int is_there = find(b, list[i].name) >= 0;
        there += is_there;
        if (!is_there && !*first)
            snprintf(first, size, "%.*s", (int)size - 1, list[i].name);
    }
    return there == n ? 1 : there == 0 ? 0 : -1;
}

/* What judging a case needs. */
struct work {
    const struct book *b;
    const struct qm_subject *s;
    struct qm_vectors_case c;
    struct qm_trial before, after;
    float *wide; /* room for the longest array */
    struct qm_vectors_verdict *out;
};

/* The gradient of step k into `before`. */
static qm_status read_gradient(struct work *w, int64_t k, struct qm_sha256 *hash)
{
    char name[QM_STATE_NAME];
    struct qm_call c = qm_trial_call(&w->before, 0);
    snprintf(name, sizeof name, "%s/grad/%lld", w->c.name, (long long)k);
    QM_TRY(take_any(w->b, name, w->before.recipe.grad, w->before.n, w->wide, c.g));
    if (hash && w->before.n > 0) { /* as what it widens to */
        qm_to_float(c.g, w->before.recipe.grad, 0, w->before.n, w->wide);
        qm_sha256_add(hash, w->wide, sizeof(float) * (size_t)w->before.n);
    }
    return QM_OK;
}

/* Reads the inputs; they must be those that were written. */
static qm_status read_inputs(struct work *w, const char *digest)
{
    struct qm_sha256 hash;
    char at[64], got[65];
    qm_sha256_start(&hash);
    snprintf(at, sizeof at, "%s/in", w->c.name);
    QM_TRY(state_read(w->b, &w->before, at, w->wide, &hash));
    for (int64_t k = 1; k <= w->c.steps; k++)
        QM_TRY(read_gradient(w, k, &hash));
    qm_sha256_hex(&hash, got);
    if (strcmp(got, digest) != 0)
        return qm_fail(QM_BAD_FILE, "%s: the inputs %s and %s/grad are not those that were written",
                       w->b->path, at, w->c.name);
    return QM_OK;
}

static qm_status judge_step(struct work *w, int64_t k, const char *at)
{
    *qm_trial_call(&w->before, 0).t = w->c.c.t + k - 1;
    QM_TRY(read_gradient(w, k, NULL));
    QM_TRY(state_read(w->b, &w->after, at, w->wide, NULL));
    QM_TRY(qm_backend_replay_judge(w->s, &w->before, &w->after, at, &w->out->tally));
    struct qm_trial swap = w->before;
    w->before = w->after;
    w->after = swap;
    return QM_OK;
}

/* Steps that are answered, up to the first that is not. */
static qm_status judge_steps(struct work *w, const char *digest)
{
    struct qm_vectors_verdict *out = w->out;
    QM_TRY(read_inputs(w, digest));
    for (int64_t k = 1; k <= w->c.steps; k++) {
        char at[64], first[QM_STATE_NAME];
        snprintf(at, sizeof at, "%s/out/%lld", w->c.name, (long long)k);
        int there = answered(w->b, &w->before, at, first, sizeof first);
        if (there < 0)
            return qm_fail(QM_BAD_FILE, "%s: there is no array '%s', but others of %s", w->b->path,
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
    struct part list[PARTS];
    int64_t most = t->n;
    int n = parts_of(t, "", list);
    for (int i = 0; i < n; i++)
        most = list[i].n > most ? list[i].n : most;
    return most;
}

static qm_status judge_case(const struct book *b, const struct qm_subject *s, const json_t *from,
                            struct qm_vectors_verdict *out)
{
    struct work *w = calloc(1, sizeof *w);
    const char *digest;
    if (!w)
        return qm_fail(QM_NO_MEMORY, "a case");
    *w = (struct work){.b = b, .s = s, .out = out};
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

static qm_status read_head(const struct book *b, json_t **out)
{
    int i = find(b, "golden");
    if (i < 0 || qm_file_entry(b->f, i)->dtype != QM_DTYPE_u8)
        return qm_fail(QM_BAD_FILE, "%s: there is no array 'golden' of bytes; not a golden file",
                       b->path);
    int64_t n = qm_file_entry(b->f, i)->numel;
    float *wide = malloc(sizeof(float) * ((size_t)n + 1));
    uint8_t *text = malloc((size_t)n + 1);
    json_error_t error;
    qm_status st = wide && text ? take_narrow(b, "golden", QM_DTYPE_u8, n, wide, text)
                                : qm_fail(QM_NO_MEMORY, "%s", b->path);
    json_t *root = st == QM_OK ? json_loadb((char *)text, (size_t)n, 0, &error) : NULL;
    if (st == QM_OK && !root)
        st = qm_fail(QM_BAD_FILE, "%s: 'golden' is no JSON: %s", b->path, error.text);
    free(text);
    free(wide);
    if (st == QM_OK)
        *out = root;
    return st;
}

static qm_status judge_file(const struct book *b, json_t *root, struct qm_vectors_verdict *out)
{
    const char *format = "", *recipe = "";
    int version = 0;
    json_t *cases = json_object_get(root, "cases"), *c;
    size_t i;
    json_unpack(root, "{s:s, s:i, s:s}", "format", &format, "version", &version, "recipe", &recipe);
    if (strcmp(format, QM_VECTORS_FORMAT) != 0 || version != QM_VECTORS_VERSION ||
        !json_is_array(cases))
        return qm_fail(QM_BAD_FILE, "%s: format '%.24s', version %d; expected '%s', version %d",
                       b->path, format, version, QM_VECTORS_FORMAT, QM_VECTORS_VERSION);
    struct qm_subject *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", b->path);
    s->backend = &qm_backend_cpu;
    qm_status st = qm_recipe_parse(recipe, &s->recipe);
    if (st == QM_OK) {
        qm_recipe_print(&s->recipe, out->recipe);
        st = qm_judge_begin(s, &out->tally);
    }
    json_array_foreach(cases, i, c) if (st == QM_OK) st = judge_case(b, s, c, out);
    if (st == QM_OK)
        qm_judge_end(s, &out->tally);
    free(s);
    if (st == QM_OK && out->tally.cases == 0)
        return qm_fail(QM_NO_MATCH, "%s: nothing is answered; expected arrays such as '%s'",
                       b->path, out->first_missing);
    return st;
}

qm_status qm_vectors_judge(const char *path, struct qm_vectors_verdict *out)
{
    struct book b = {NULL, NULL, NULL};
    json_t *root = NULL;
    memset(out, 0, sizeof *out);
    qm_status st = book_open(path, &b);
    if (st == QM_OK)
        st = read_head(&b, &root);
    if (st == QM_OK)
        st = judge_file(&b, root, out);
    json_decref(root);
    json_decref(b.index);
    qm_file_close(b.f);
    return st;
}

int qm_vectors_passed(const struct qm_vectors_verdict *v)
{
    return v->missing == 0 && qm_tally_passed(&v->tally);
}
