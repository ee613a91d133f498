/* vectors_make.c - Makes golden vectors with the reference on the CPU. */
#include "experiments/cli/cli.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/trial.h"
#include "experiments/store/store.h"
#include "experiments/vectors/describe.h"

enum { TENSOR = 1 }; /* the tensor number that the judge uses */

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

/* A case in the making.  Its calls are the inputs of its steps, as the judge of `qualm check` drew
 * and recorded them, and those of one step more, which are the results of the last. */
struct work {
    const struct qm_vectors_case *c;
    struct qm_recipe recipe; /* the case applied */
    struct qm_trial trial;
    void *plan;     /* a plan that calls are loaded into */
    json_t *inputs; /* hashes by name */
};

/* Runs the reference over the case; QM_SKIPPED: the recipe does not take it, or the reference
 * itself does not pass. */
static qm_status run_reference(const struct qm_subject *s, struct work *w, uint64_t seed)
{
    int steps = (int)w->c->steps + 1;
    volatile int begun = 0;
    struct qm_finding f;
    QM_TRY(qm_trial_of_case(&s->recipe, &w->c->c, seed, steps, &w->trial));
    QM_TRY(qm_judge_record(s, &w->c->c, steps, &w->trial, &begun, &f));
    return begun == steps ? QM_OK
                          : qm_fail(QM_SKIPPED, "step %d of the reference: %s", begun, f.text);
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

/* Adds the state of call k as arrays CASE/WHAT/... */
static qm_status add_state(struct work *w, struct qm_vectors *v, int k, const char *what)
{
    char name[64];
    struct qm_call call = qm_trial_call(&w->trial, k);
    const struct qm_state_plan p = {&w->recipe, &w->c->c.shape, &qm_backend_cpu,   w->plan,
                                    call.p,     TENSOR,         w->c->c.t - 1 + k, w->trial.seed};
    if (qm_param_residual(&w->recipe.param))
        QM_TRY(qm_backend_cpu.load(w->plan, QM_RESIDUAL, call.residual, NULL));
    for (int i = 0; i < w->recipe.rule->n_slots; i++)
        QM_TRY(qm_backend_cpu.load(w->plan, i, w->trial.slot[i].bits ? call.codes[i] : NULL,
                                   call.scales[i]));
    snprintf(name, sizeof name, "%s/%s", w->c->name, what);
    return qm_state_take(&v->states, name, &p);
}

static qm_status add_gradient(struct work *w, struct qm_vectors *v, int k)
{
    char name[32];
    struct qm_tensor g = {NULL, w->recipe.grad, w->c->c.shape};
    snprintf(name, sizeof name, "grad/%d", k + 1);
    g.data = add(v, g.dtype, &g.shape, "%s/%s", w->c->name, name);
    if (!g.data)
        return qm_fail(QM_NO_MEMORY, "gradients");
    memcpy(g.data, qm_trial_call(&w->trial, k).g, qm_tensor_bytes(&g));
    keep_hash(w, name, &g);
    return QM_OK;
}

static qm_status add_arrays(struct work *w, struct qm_vectors *v)
{
    char what[32];
    QM_TRY(qm_backend_cpu.open(&w->recipe, &w->c->c.shape, TENSOR, &w->plan));
    QM_TRY(add_state(w, v, 0, "in"));
    keep_hashes(w, &v->states.tensor[v->states.n - 1]);
    for (int k = 0; k < (int)w->c->steps; k++) {
        snprintf(what, sizeof what, "want/%d", k + 1);
        QM_TRY(add_gradient(w, v, k));
        QM_TRY(add_state(w, v, k + 1, what));
    }
    return QM_OK;
}

/* Makes a case and adds its description to cases. */
static qm_status make_case(const struct qm_subject *s, const struct qm_vectors_case *c,
                           uint64_t seed, struct qm_vectors *v, json_t *cases)
{
    struct work w = {.c = c, .recipe = s->recipe, .inputs = json_object()};
    qm_case_apply(&c->c, &w.recipe);
    qm_status st = w.inputs ? run_reference(s, &w, seed) : qm_fail(QM_NO_MEMORY, "a case");
    if (st == QM_OK)
        st = add_arrays(&w, v);
    json_t *described = NULL;
    if (st == QM_OK)
        st = qm_describe_case(&s->recipe, c, seed, &described);
    if (st == QM_OK) {
        json_object_set(described, "inputs", w.inputs);
        json_array_append_new(cases, described);
    }
    json_decref(w.inputs);
    if (w.plan)
        qm_backend_cpu.close(w.plan);
    qm_trial_close(&w.trial);
    return st;
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
    json_array_foreach (cases, i, c)
        steps += json_integer_value(json_object_get(c, "steps"));
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

qm_status qm_vectors_make(const struct qm_recipe *r, struct qm_vectors_case *c, int *n,
                          uint64_t seed, struct qm_vectors *out)
{
    struct qm_subject s = {.backend = &qm_backend_cpu, .recipe = *r};
    struct qm_vectors v = {.n = 0};
    struct qm_tally unused;
    json_t *cases = json_array(), *books = json_object();
    int kept = 0;
    struct qm_progress progress;
    qm_progress_start(&progress, "gen", *n);
    qm_status st = qm_judge_begin(&s, &unused);
    for (int i = 0; st == QM_OK && i < *n; i++) {
        struct qm_vectors_case one = c[i];
        snprintf(one.name, sizeof one.name, "t%d", kept);
        qm_status made = make_case(&s, &one, seed, &v, cases);
        if (made == QM_OK)
            c[kept++] = one;
        else if (made != QM_SKIPPED)
            st = qm_fail_in(made, one.name);
        qm_progress_add(&progress, 1, made != QM_OK && made != QM_SKIPPED);
    }
    qm_progress_end(&progress);
    if (st == QM_OK && kept == 0)
        st = qm_fail_in(QM_BAD_ARG, "no case is left");
    if (st == QM_OK)
        st = codebooks(&s, &v, books);
    if (st == QM_OK)
        st = head(r, seed, json_incref(cases), json_incref(books), &v);
    json_decref(books);
    json_decref(cases);
    if (st == QM_OK) {
        *n = kept;
        *out = v;
    } else {
        qm_vectors_free(&v);
    }
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
