/* vectors_make.c - Makes golden vectors with the reference on the CPU. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/check/judge.h"
#include "experiments/recipes/oracle_hyper.h"
#include "experiments/store/store.h"
#include "experiments/vectors/describe.h"

enum { TENSOR = 1 }; /* the tensor number that the judge uses; random projections depend on it */

/* ---- arrays -------------------------------------------------------------------------------- */

/* Adds an array of zeros under a formatted name, and returns its data; NULL without memory. */
static void *add(struct qm_vectors *v, enum qm_dtype dtype, const struct qm_shape *shape,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

static void *add(struct qm_vectors *v, enum qm_dtype dtype, const struct qm_shape *shape,
                 const char *format, ...)
{
    struct qm_tensor t = {NULL, dtype, *shape}, *owned;
    struct qm_array *more = realloc(v->other, ((size_t)v->n + 1) * sizeof *more);
    char *name;
    va_list args;
    if (!more)
        return NULL;
    v->other = more;
    va_start(args, format);
    int length = vasprintf(&name, format, args);
    va_end(args);
    if (length < 0)
        return NULL;
    t.data = calloc(qm_tensor_bytes(&t) + 1, 1);
    owned = malloc(sizeof *owned);
    if (!t.data || !owned) {
        free(t.data);
        free(owned);
        free(name);
        return NULL;
    }
    *owned = t;
    more[v->n++] = (struct qm_array){name, owned};
    return t.data;
}

void qm_vectors_free(struct qm_vectors *v)
{
    for (int i = 0; i < v->n; i++) {
        free(v->other[i].name);
        free(v->other[i].tensor->data);
        free(v->other[i].tensor);
    }
    free(v->other);
    qm_state_free(&v->states);
    *v = (struct qm_vectors){.n = 0};
}

/* ---- a case -------------------------------------------------------------------------------- */

/* A case in the making: its plan and buffers. */
struct work {
    const struct qm_subject *s;
    const struct qm_vectors_case *c;
    struct qm_recipe recipe; /* the case applied */
    uint64_t seed;
    uint32_t id;
    int64_t n;
    void *plan;
    float *p, *g, *state[QM_MAX_SLOTS];
    void *stored; /* the parameter as the recipe stores it */
    struct qm_aim aim;
    json_t *inputs; /* hashes by name */
};

/* Slot i of a single element after the oracle's step t, from a state and a gradient; NaN on
 * failure. */
static double oracle_slot(const struct work *w, int i, int64_t t, double state, double g)
{
    double p = 0.0, room[QM_MAX_SLOTS] = {0.0}, *slot[QM_MAX_SLOTS];
    const struct qm_oracle_hyper h = qm_oracle_hyper_of(&w->recipe.hyper);
    for (int k = 0; k < w->recipe.rule->n_slots; k++)
        slot[k] = &room[k];
    room[i] = state;
    const struct qm_shape one = {1, {1}};
    qm_status st =
        qm_oracle_step(qm_oracle_find(w->recipe.rule->family), &p, slot, &g, &one, 0, &h, t);
    return st == QM_OK ? room[i] : (double)NAN;
}

/* Sets the weights by which gradients of step t can be aimed at slots: the oracle shows which slots
 * are averages of g, or of g^2. */
static void aim_at(struct work *w, int64_t t)
{
    for (int i = 0; i < w->recipe.rule->n_slots; i++) {
        double sign = w->recipe.hyper.maximize ? -1.0 : 1.0;
        double give = oracle_slot(w, i, t, 0.0, sign);
        double half = oracle_slot(w, i, t, 0.0, 0.5 * sign);
        double share = w->recipe.rule->slot_sign[i] ? 0.5 : 0.25;
        int is_average = fabs(half - share * give) <= 1e-6 * fabs(give);
        w->aim.weight[i] = (struct qm_aim_weight){is_average ? oracle_slot(w, i, t, 1.0, 0.0) : 0.0,
                                                  is_average ? give : 0.0};
    }
}

static struct qm_shape slot_shape(const struct work *w, int i)
{
    struct qm_shape own = w->c->c.shape;
    qm_rule_slot_shape(w->recipe.rule, &w->recipe.hyper, i, &w->c->c.shape, &own);
    return own;
}

static int is_same(const struct qm_shape *a, const struct qm_shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->rank) == 0;
}

static qm_status work_open(struct work *w)
{
    const struct qm_shape *shape = &w->c->c.shape;
    int slots = w->recipe.rule->n_slots;
    int64_t slot_n[QM_MAX_SLOTS], sum = 0;
    w->n = qm_shape_numel(shape);
    QM_TRY(qm_backend_cpu.open(&w->recipe, shape, w->id, &w->plan));
    w->aim = (struct qm_aim){.recipe = &w->recipe, .shape = shape, .n = w->n, .seed = w->seed};
    for (int i = 0; i < slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(&w->recipe, i, shape);
        struct qm_shape own = slot_shape(w, i);
        slot_n[i] = qm_shape_numel(&own);
        sum += slot_n[i];
        if (q.bits && is_same(&own, shape)) /* gradients cannot be aimed at other slots */
            w->aim.slot[i] = &w->s->decider[i];
    }
    w->p = calloc((size_t)(2 * w->n + sum) + 1, sizeof *w->p);
    w->stored = calloc((size_t)w->n + 1, (size_t)qm_param_bytes(&w->recipe.param));
    if (!w->p || !w->stored)
        return qm_fail(QM_NO_MEMORY, "%lld elements", (long long)w->n);
    w->g = w->p + w->n;
    float *at = w->g + w->n;
    for (int i = 0; i < slots; at += slot_n[i++])
        w->aim.state[i] = w->state[i] = at;
    return QM_OK;
}

/* Loads the initial state that the case prescribes for a slot, if it prescribes one. */
static qm_status load(struct work *w, int slot)
{
    struct qm_codec codec;
    QM_TRY(qm_codec_init(&codec, &w->aim.slot[slot]->q));
    int64_t scales = qm_scale_count(&codec, &w->c->c.shape);
    uint8_t *codes = malloc((size_t)w->n + 1);
    float *scale = malloc(sizeof(float) * ((size_t)scales + 1));
    qm_status st = codes && scale ? QM_OK : qm_fail(QM_NO_MEMORY, "a state to start from");
    if (st == QM_OK && qm_case_load(&w->c->c, &w->aim, slot, scales, codes, scale))
        st = qm_backend_cpu.load(w->plan, slot, codes, scale);
    free(scale);
    free(codes);
    return st;
}

/* Keeps the hash of an input of the case under its name after CASE/. */
static void keep_hash(struct work *w, const char *name, const struct qm_tensor *t)
{
    char hash[QM_HASH];
    qm_array_hash(t, hash);
    json_object_set_new(w->inputs, name, json_string(hash));
}

/* Keeps the hashes of the state before the first step. */
static void keep_hashes(struct work *w, const struct qm_state_tensor *t)
{
    char name[QM_STATE_NAME];
    keep_hash(w, "in/param", &t->param);
    if (t->residual.data)
        keep_hash(w, "in/residual", &t->residual);
    for (int i = 0; i < t->n_slots; i++) {
        const struct qm_state_slot *s = &t->slot[i];
        snprintf(name, sizeof name, "in/%s.codes", s->name);
        if (s->codes.data)
            keep_hash(w, name, &s->codes);
        snprintf(name, sizeof name, "in/%s%s", s->name, s->codes.data ? ".scales" : "");
        keep_hash(w, name, &s->scales);
    }
}

/* Records the current state as arrays CASE/WHAT/... */
static qm_status record(struct work *w, struct qm_vectors *v, const char *what, int64_t done)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%s", w->c->name, what);
    const struct qm_state_plan p = {&w->recipe, &w->c->c.shape, &qm_backend_cpu, w->plan, w->stored,
                                    w->id,      done,           w->seed};
    QM_TRY(qm_state_take(&v->states, name, &p));
    if (strcmp(what, "in") == 0)
        keep_hashes(w, &v->states.tensor[v->states.n - 1]);
    return QM_OK;
}

/* Makes the gradient of step k in the recipe's type, and keeps its hash. */
static qm_status gradient(struct work *w, struct qm_vectors *v, int64_t k, struct qm_tensor *out)
{
    enum qm_dtype type = w->recipe.grad;
    int64_t t = w->c->c.t + k;
    char name[32];
    for (int i = 0; i < w->recipe.rule->n_slots; i++)
        QM_TRY(qm_backend_cpu.decode(w->plan, i, w->state[i]));
    aim_at(w, t);
    qm_case_gradient(&w->c->c, &w->aim, t, (int)k, w->g);
    snprintf(name, sizeof name, "grad/%lld", (long long)k + 1);
    void *to = add(v, type, &w->c->c.shape, "%s/%s", w->c->name, name);
    if (!to)
        return qm_fail(QM_NO_MEMORY, "gradients");
    for (int64_t i = 0; i < w->n; i++) {
        if (type == QM_DTYPE_f32)
            ((float *)to)[i] = w->g[i];
        else
            ((uint16_t *)to)[i] =
                type == QM_DTYPE_bf16 ? qm_float_to_bf16(w->g[i]) : qm_float_to_f16(w->g[i]);
    }
    *out = (struct qm_tensor){to, type, w->c->c.shape};
    keep_hash(w, name, out);
    return QM_OK;
}

static qm_status run(struct work *w, struct qm_vectors *v)
{
    char what[32];
    QM_TRY(work_open(w));
    aim_at(w, w->c->c.t);
    qm_case_start(&w->c->c, &w->aim, w->p);
    qm_param_from_float(&w->recipe.param, w->n, w->p, w->stored);
    for (int i = 0; i < w->recipe.rule->n_slots; i++)
        if (w->aim.slot[i])
            QM_TRY(load(w, i));
    QM_TRY(record(w, v, "in", w->c->c.t - 1));
    for (int64_t k = 0; k < w->c->steps; k++) {
        struct qm_tensor g, p = {w->stored, qm_param_dtype(&w->recipe.param), w->c->c.shape};
        QM_TRY(gradient(w, v, k, &g));
        QM_TRY(qm_backend_cpu.step(w->plan, &p, &g, w->c->c.t + k, w->seed));
        snprintf(what, sizeof what, "want/%lld", (long long)k + 1);
        QM_TRY(record(w, v, what, w->c->c.t + k));
    }
    return QM_OK;
}

/* ---- the description ----------------------------------------------------------------------- */

static qm_status codebooks(const struct qm_subject *s, struct qm_vectors *v, json_t *hashes)
{
    for (int i = 0; i < s->recipe.rule->n_slots; i++) {
        struct qm_tensor book;
        char hash[QM_HASH];
        QM_TRY(qm_describe_codebook(s, i, &book));
        if (!book.data)
            continue;
        float *to = add(v, QM_DTYPE_f32, &book.shape, "codebook/%s", s->recipe.rule->slot[i]);
        if (to)
            memcpy(to, book.data, qm_tensor_bytes(&book));
        qm_array_hash(&book, hash);
        json_object_set_new(hashes, s->recipe.rule->slot[i], json_string(hash));
        free(book.data);
        if (!to)
            return qm_fail(QM_NO_MEMORY, "codebooks");
    }
    return QM_OK;
}

/* Adds the array `golden`.  Takes cases and books over. */
static qm_status head(const struct qm_recipe *r, uint64_t seed, json_t *cases, json_t *books,
                      struct qm_vectors *v)
{
    char recipe[QM_RECIPE_TEXT], number[24], param[24], digest[QM_HASH];
    json_t *c;
    size_t i;
    json_int_t steps = 0;
    snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
    json_array_foreach(cases, i, c) steps += json_integer_value(json_object_get(c, "steps"));
    json_t *all = json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:{s:I, s:I}, s:o, s:o}", "format", QM_VECTORS_FORMAT,
        "version", QM_VECTORS_VERSION, "recipe", qm_recipe_print(r, recipe), "rule", r->rule->name,
        "seed", number, "grad", qm_dtype_name(r->grad), "param", qm_param_text(&r->param, param),
        "count", "cases", (json_int_t)json_array_size(cases), "steps", steps, "codebooks", books,
        "cases", cases);
    qm_status st = all ? qm_describe_digest(all, digest) : qm_fail(QM_NO_MEMORY, "description");
    if (st == QM_OK)
        json_object_set_new(all, "digest", json_string(digest));
    char *text = st == QM_OK ? json_dumps(all, JSON_INDENT(1)) : NULL;
    struct qm_shape length = {1, {text ? (int64_t)strlen(text) : 0}};
    uint8_t *to = text ? add(v, QM_DTYPE_u8, &length, "golden") : NULL;
    if (to)
        memcpy(to, text, strlen(text));
    free(text);
    json_decref(all);
    return to ? QM_OK : qm_fail(QM_NO_MEMORY, "description");
}

/* Makes a case and adds its description to cases. */
static qm_status make_case(const struct qm_subject *s, const struct qm_vectors_case *c,
                           uint64_t seed, struct qm_vectors *v, json_t *cases)
{
    struct work w = {.s = s, .c = c, .recipe = s->recipe, .id = TENSOR, .seed = seed};
    qm_case_apply(&c->c, &w.recipe);
    w.inputs = json_object();
    qm_status st = w.inputs ? run(&w, v) : qm_fail(QM_NO_MEMORY, "a case");
    if (st == QM_OK) {
        json_t *described = qm_describe_case(&s->recipe, c);
        json_object_set(described, "inputs", w.inputs);
        json_array_append_new(cases, described);
    } else {
        st = qm_fail_in(st, c->name);
    }
    json_decref(w.inputs);
    free(w.p);
    free(w.stored);
    if (w.plan)
        qm_backend_cpu.close(w.plan);
    return st;
}

qm_status qm_vectors_make(const struct qm_recipe *r, const struct qm_vectors_case *c, int n_cases,
                          uint64_t seed, struct qm_vectors *out)
{
    struct qm_subject s = {.backend = &qm_backend_cpu, .recipe = *r};
    struct qm_vectors v = {.n = 0};
    struct qm_tally unused;
    json_t *cases = json_array(), *books = json_object();
    qm_status st = qm_judge_begin(&s, &unused);
    for (int i = 0; st == QM_OK && i < n_cases; i++)
        st = make_case(&s, &c[i], seed * 1000003u + (uint64_t)i, &v, cases);
    if (st == QM_OK)
        st = codebooks(&s, &v, books);
    if (st == QM_OK)
        st = head(r, seed, json_incref(cases), json_incref(books), &v);
    json_decref(books);
    json_decref(cases);
    if (st == QM_OK)
        *out = v;
    else
        qm_vectors_free(&v);
    return st;
}

/* ---- writing ------------------------------------------------------------------------------- */

static qm_status write_h5(const char *path, const struct qm_array *a, int n, int argc, char **argv)
{
    struct qm_store *store;
    char name[QM_STATE_NAME + 128];
    QM_TRY(qm_store_open(path, "golden", argc, argv, &store));
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < n; i++) {
        snprintf(name, sizeof name, "/%s", a[i].name);
        st = qm_store_array(store, name, a[i].tensor->dtype, &a[i].tensor->shape, a[i].tensor->data,
                            "1", "", NULL);
    }
    if (st == QM_OK)
        return qm_store_commit(store);
    qm_store_abort(store);
    return st;
}

qm_status qm_vectors_write(const struct qm_vectors *v, const char *path, enum qm_container form,
                           int argc, char **argv)
{
    struct qm_array *states = NULL;
    int n = 0;
    QM_TRY(qm_state_arrays(&v->states, &states, &n));
    struct qm_array *all = malloc(((size_t)n + (size_t)v->n + 1) * sizeof *all);
    qm_status st = all ? QM_OK : qm_fail(QM_NO_MEMORY, "%s", path);
    if (st == QM_OK) {
        if (v->n > 0)
            memcpy(all, v->other, (size_t)v->n * sizeof *all);
        if (n > 0)
            memcpy(all + v->n, states, (size_t)n * sizeof *all);
        st = form == QM_CONTAINER_h5 ? write_h5(path, all, v->n + n, argc, argv)
                                     : qm_arrays_write(path, form, NULL, all, v->n + n);
    }
    free(all);
    qm_state_arrays_free(states, n);
    return st;
}
