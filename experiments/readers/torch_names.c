/* torch_names.c - Which tensors of a checkpoint are whose: parameters, states, hyper-parameters.
 *
 * An optimizer's state_dict() is a dictionary with `state` (by number of the parameter, or by name)
 * and `param_groups`.  It does not name its parameters: a model's state_dict() beside it does, in
 * the order of model.parameters(). */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/torch_names.h"

enum { STATE_DEPTH_MOST = 4 };

/* ---- entries ------------------------------------------------------------------------------- */

static int is_taken(const struct qm_file *f, const char *name)
{
    const struct qm_torch *t = f->own;
    return qm_name_index_get(&t->entry_at, name, strlen(name)) >= 0;
}

static qm_status add(struct qm_torch_walk *w, const char *name, const struct qm_torch_array *a,
                     const struct qm_shape *shape)
{
    struct qm_torch *t = w->f->own;
    enum qm_dtype dtype = a->kind == QM_TORCH_view    ? a->view.element->dtype
                          : a->kind == QM_TORCH_coded ? QM_DTYPE_f32
                                                      : QM_DTYPE_f64;
    if (is_taken(w->f, name)) {
        qm_left_out_add(&t->left_out, "%s (another value of this name)", name);
        return QM_OK;
    }
    if (w->f->n_entries >= QM_TORCH_ENTRIES_MOST)
        return qm_file_bad(w->f, "more than %d tensors", QM_TORCH_ENTRIES_MOST);
    QM_TRY(qm_grow((void **)&t->array, &t->array_room, w->f->n_entries + 1, sizeof *a));
    t->array[w->f->n_entries] = *a;
    int i = w->f->n_entries;
    struct qm_array_location place = {.is_complex =
                                          a->kind == QM_TORCH_view && a->view.element->parts == 2};
    QM_TRY(qm_file_add(w->f, name, dtype, shape, place));
    return qm_name_index_put(&t->entry_at, w->f->entry[i].name, strlen(name), i);
}

/* Adds v under a name if it is a tensor; *is as of qm_torch_tensor. */
static qm_status add_tensor(struct qm_torch_walk *w, const char *name, const struct qm_pickle *v,
                            int *is)
{
    struct qm_torch *t = w->f->own;
    struct qm_torch_array *a = calloc(1, sizeof *a);
    struct qm_shape shape;
    const char *why;
    t->is_taking = 1;
    qm_status st = a ? qm_torch_tensor(w->f, v, is, a, &shape, &why)
                     : qm_fail(QM_NO_MEMORY, "%s: a tensor", w->f->path);
    t->is_taking = 0;
    if (st != QM_OK)
        qm_fail_in(st, name);
    else if (*is == 1)
        st = add(w, name, a, &shape);
    else if (*is == 0)
        qm_left_out_add(&t->left_out, "%s (%s)", name, why);
    free(a);
    return st;
}

/* PATH/KEY, or KEY alone where the path is "". */
static int join(char out[QM_TORCH_NAME], const char *path, const char *key)
{
    return snprintf(out, QM_TORCH_NAME, "%s%s%s", path, *path ? "/" : "", key) < QM_TORCH_NAME;
}

/* ---- an optimizer's parameters --------------------------------------------------------------- */

int qm_torch_is_optimizer(const struct qm_pickle *v)
{
    return qm_pickle_is(qm_pickle_find(v, "state"), QM_PICKLE_dict) &&
           qm_pickle_is(qm_pickle_find(v, "param_groups"), QM_PICKLE_list);
}

static qm_status add_parameter(struct qm_torch_optimizer *o, struct qm_torch_parameter p)
{
    QM_TRY(qm_grow((void **)&o->of, &o->room, o->n + 1, sizeof *o->of));
    o->of[o->n++] = p;
    return QM_OK;
}

/* The parameters that the groups name, each with its state. */
static qm_status list_named(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                            const struct qm_name_index *at, char *used)
{
    const struct qm_pickle *states = qm_pickle_find(o->dict, "state");
    const struct qm_pickle *groups = qm_pickle_find(o->dict, "param_groups");
    char key[QM_TORCH_NAME];
    for (int64_t g = 0; g < groups->n; g++) {
        const struct qm_pickle *ids = qm_pickle_find(groups->item[g], "params");
        for (int64_t i = 0; qm_pickle_is(ids, QM_PICKLE_list) && i < ids->n; i++) {
            int64_t k = qm_torch_key_text(ids->item[i], key, sizeof key)
                            ? qm_name_index_get(at, key, strlen(key))
                            : -1;
            if (k >= 0)
                used[k] = 1;
            QM_TRY(add_parameter(o, (struct qm_torch_parameter){ids->item[i],
                                                                k >= 0 ? states->item[k + 1] : NULL,
                                                                groups->item[g], i, -1, 0}));
            QM_TRY(qm_torch_visit(w, NULL)); /* a list of parameters may stand in many groups */
        }
    }
    return QM_OK;
}

/* All parameters of all groups, then states of parameters that no group names. */
static qm_status list_parameters(struct qm_torch_walk *w, struct qm_torch_optimizer *o)
{
    const struct qm_pickle *states = qm_pickle_find(o->dict, "state");
    struct qm_name_index at = {NULL, 0, 0};
    char *used = calloc((size_t)states->n + 1, 1);
    qm_status st = used ? qm_torch_index_keys(w, states, &at)
                        : qm_fail(QM_NO_MEMORY, "%s: states", w->f->path);
    if (st == QM_OK)
        st = list_named(w, o, &at, used);
    for (int64_t i = 0; st == QM_OK && i < states->n; i += 2)
        if (!used[i])
            st = add_parameter(o, (struct qm_torch_parameter){states->item[i], states->item[i + 1],
                                                              NULL, -1, -1, 0});
    qm_name_index_free(&at);
    free(used);
    return st;
}

/* Takes all names from an optimizer that gives one of them twice: such are of several models. */
static qm_status drop_shared_names(const struct qm_torch_walk *w, struct qm_torch_optimizer *o)
{
    struct qm_name_index seen = {NULL, 0, 0};
    const struct qm_pickle *twice = NULL;
    qm_status st = QM_OK;
    for (int64_t i = 0; st == QM_OK && !twice && i < o->n; i++) {
        const struct qm_pickle *name = qm_torch_given_name(&o->of[i]);
        if (!name || name == o->of[i].id)
            continue;
        if (qm_name_index_get(&seen, name->text, name->length) >= 0)
            twice = name;
        st = qm_name_index_put(&seen, name->text, name->length, i);
    }
    qm_name_index_free(&seen);
    for (int64_t i = 0; twice && i < o->n; i++)
        o->of[i].is_shared = 1;
    if (twice)
        qm_left_out_add(&((struct qm_torch *)w->f->own)->left_out,
                        "names in the optimizer (two of its parameters are '%.80s')", twice->text);
    return st;
}

/* ---- walking ------------------------------------------------------------------------------- */

/* Whether a value may be a tensor, or have one in it. */
static int may_hold(const struct qm_pickle *v)
{
    return v->kind == QM_PICKLE_dict || v->kind == QM_PICKLE_list || v->kind == QM_PICKLE_tuple ||
           v->kind == QM_PICKLE_call;
}

/* Whether v, in w->above[0] to [depth - 1], is in itself: it has nothing new there. */
static int is_in_itself(const struct qm_torch_walk *w, const struct qm_pickle *v, int depth)
{
    for (int i = 0; i < depth; i++)
        if (w->above[i] == v)
            return 1;
    return 0;
}

static int is_known(const struct qm_torch_walk *w, const struct qm_pickle *v)
{
    for (int i = 0; i < w->n_optimizers; i++)
        if (w->optimizer[i].dict == v)
            return 1;
    return 0;
}

/* Finds the optimizers in v, which is in w->above[depth]. */
static qm_status find_optimizers(struct qm_torch_walk *w, const struct qm_pickle *v,
                                 const char *path, int depth)
{
    char below[QM_TORCH_NAME], key[QM_TORCH_NAME];
    if (!v)
        return QM_OK;
    QM_TRY(qm_torch_visit(w, v));
    if (depth > QM_TORCH_DEPTH_MOST || !may_hold(v) || is_in_itself(w, v, depth) || is_known(w, v))
        return QM_OK;
    if (v->kind == QM_PICKLE_dict)
        QM_TRY(qm_torch_unflatten(w, (struct qm_pickle *)v));
    if (qm_torch_is_optimizer(v)) {
        if (w->n_optimizers == QM_TORCH_OPTIMIZERS_MOST)
            return qm_file_bad(w->f, "more than %d optimizers", QM_TORCH_OPTIMIZERS_MOST);
        struct qm_torch_optimizer *o = &w->optimizer[w->n_optimizers++];
        o->dict = v;
        snprintf(o->path, sizeof o->path, "%s", path);
        QM_TRY(list_parameters(w, o));
        QM_TRY(drop_shared_names(w, o));
        return qm_torch_find_model(w, o, w->above, depth);
    }
    w->above[depth] = v;
    for (int64_t i = 0; v->kind == QM_PICKLE_dict && i < v->n; i += 2)
        if (qm_torch_key_text(v->item[i], key, sizeof key) && join(below, path, key))
            QM_TRY(find_optimizers(w, v->item[i + 1], below, depth + 1));
    for (int64_t i = 0; (v->kind == QM_PICKLE_list || v->kind == QM_PICKLE_tuple) && i < v->n;
         i++) {
        snprintf(key, sizeof key, "%lld", (long long)i);
        if (join(below, path, key))
            QM_TRY(find_optimizers(w, v->item[i], below, depth + 1));
    }
    return QM_OK;
}

/* Writes the name of parameter i: its key in the model, else the one in `param_names` of its group,
 * else its number.  0: it is too long. */
static int parameter_name(const struct qm_torch_optimizer *o, int64_t i, char out[QM_TORCH_NAME])
{
    const struct qm_torch_parameter *p = &o->of[i];
    if (p->model >= 0)
        return qm_torch_key_text(o->model->item[p->model], out, QM_TORCH_NAME);
    const struct qm_pickle *name = qm_pickle_item(qm_pickle_find(p->group, "param_names"), p->at);
    if (name && !p->is_shared)
        return qm_torch_key_text(name, out, QM_TORCH_NAME);
    return qm_torch_key_text(p->id, out, QM_TORCH_NAME);
}

static qm_status add_state(struct qm_torch_walk *w, const char *name, const struct qm_pickle *state,
                           int depth);

/* Adds what stands under a key of a state: a number, a tensor, NAME/SLOT.I for item I of a list, or
 * the items of a dictionary as the state's own (bitsandbytes nests its states since 0.46).  A null
 * where a tensor was expected has no entry, as in torch. */
static qm_status add_slot(struct qm_torch_walk *w, const char *name, const char *slot,
                          const struct qm_pickle *v, int depth)
{
    char below[QM_TORCH_NAME];
    int is, is_list = v->kind == QM_PICKLE_list || v->kind == QM_PICKLE_tuple;
    QM_TRY(qm_torch_visit(w, v));
    if (depth > STATE_DEPTH_MOST) /* what is deeper is left out by its path */
        return QM_OK;
    if (v->kind == QM_PICKLE_dict)
        return add_state(w, name, v, depth + 1);
    for (int64_t i = 0; is_list && i < v->n; i++)
        if (snprintf(below, sizeof below, "%s.%lld", slot, (long long)i) < (int)sizeof below)
            QM_TRY(add_slot(w, name, below, v->item[i], depth + 1));
    if (is_list || !join(below, name, slot))
        return QM_OK;
    if (!qm_pickle_is_number(v))
        return add_tensor(w, below, v, &is);
    const struct qm_torch_array a = {.kind = QM_TORCH_number, .number = v->number};
    return add(w, below, &a, &(struct qm_shape){0, {0}});
}

/* Adds a state of bitsandbytes, decoded; *used: 1 where `key` is one, or a part of one. */
static qm_status add_bitsandbytes(struct qm_torch_walk *w, const char *name, const char *key,
                                  const struct qm_pickle *state, int *used)
{
    static const char *const part[] = {"qmap", "absmax", "max"};
    struct qm_torch *t = w->f->own;
    char word[20], below[QM_TORCH_NAME]; /* 20: of any number, for the compiler */
    struct qm_shape shape = {0, {0}};
    qm_status st = QM_OK;
    *used = 0;
    for (int number = 1; st == QM_OK && number <= 2 && !*used; number++) {
        int is = 0;
        snprintf(word, sizeof word, "qmap%d", number);
        int has_table = qm_pickle_find(state, word) != NULL;
        for (int i = 0; has_table && i < 3; i++) {
            snprintf(word, sizeof word, "%s%d", part[i], number);
            *used |= strcmp(key, word) == 0;
        }
        snprintf(word, sizeof word, "state%d", number);
        if (strcmp(key, word) != 0 || !join(below, name, key))
            continue;
        struct qm_torch_array *a = calloc(1, sizeof *a);
        t->is_taking = 1;
        st = a ? qm_torch_bitsandbytes(w->f, state, number, &is, a, &shape)
               : qm_fail(QM_NO_MEMORY, "%s: a state", w->f->path);
        t->is_taking = 0;
        if (st == QM_OK && is == 1)
            st = add(w, below, a, &shape);
        *used = is == 1;
        free(a);
    }
    return st;
}

/* Adds NAME/SLOT for every tensor and number of a parameter's state, quantized ones decoded. */
static qm_status add_state(struct qm_torch_walk *w, const char *name, const struct qm_pickle *state,
                           int depth)
{
    char key[QM_TORCH_NAME];
    for (int64_t i = 0; qm_pickle_is(state, QM_PICKLE_dict) && i < state->n; i += 2) {
        int used = 0;
        if (!qm_torch_key_text(state->item[i], key, sizeof key))
            continue;
        QM_TRY(add_bitsandbytes(w, name, key, state, &used));
        if (!used)
            QM_TRY(add_slot(w, name, key, state->item[i + 1], depth));
    }
    return QM_OK;
}

static qm_status add_group(struct qm_torch_walk *w, const char *name,
                           const struct qm_pickle *options)
{
    struct qm_torch *t = w->f->own;
    if (!options)
        return QM_OK;
    QM_TRY(qm_grow((void **)&t->group, &t->group_room, t->n_groups + 1, sizeof *t->group));
    char *copy = strdup(name);
    if (!copy)
        return qm_fail(QM_NO_MEMORY, "%s: names", w->f->path);
    t->group[t->n_groups] = (struct qm_torch_group){copy, options};
    return qm_name_index_put(&t->group_at, copy, strlen(copy), t->n_groups++);
}

static qm_status bad_name(const struct qm_torch_walk *w, const struct qm_torch_optimizer *o,
                          int64_t i)
{
    const struct qm_pickle *name = qm_torch_given_name(&o->of[i]);
    if (name && strlen(name->text) != name->length)
        return qm_file_bad(w->f, "a parameter's name has a NUL after '%.200s'", name->text);
    return qm_file_bad(w->f,
                       "the name '%.40s...' of a parameter has %zu bytes, expected at most %d",
                       name ? name->text : "", name ? name->length : 0, QM_TORCH_NAME - 1);
}

/* Why an optimizer's parameters have numbers for names; has_others: the file has other tensors than
 * those of optimizers. */
static const char *why_numbers(const struct qm_torch_walk *w, const struct qm_torch_optimizer *o,
                               int has_others, char out[QM_TORCH_NAME])
{
    if (*o->why)
        return o->why;
    if (!has_others && o->n_beside == 0)
        return "no model is in the file: they are numbers in the order of param_groups, and "
               "torch.save({'model': MODEL, 'optimizer': OPTIMIZER}, FILE) writes a file with "
               "names";
    if (w->n_optimizers == 1)
        return "no model in the file fits the optimizer";
    snprintf(out, QM_TORCH_NAME, "no model beside it fits the optimizer '%.80s'", o->path);
    return out;
}

/* Says that an optimizer's parameters have their names by their order, or by shapes that a buffer
 * or another model's parameter may have as well. */
static void say_joined(const struct qm_torch_walk *w, const struct qm_torch_optimizer *o)
{
    struct qm_torch *t = w->f->own;
    char of[100] = "", what[256];
    size_t n = strlen(t->joined);
    int is_apart = o->n_apart == o->n;
    if (w->n_optimizers > 1)
        snprintf(of, sizeof of, " of '%.80s'", o->path);
    if (is_apart)
        snprintf(
            what, sizeof what,
            "shape: no two of %lld parameters%s are alike, but a buffer could be taken for one",
            (long long)o->n, of);
    else
        snprintf(what, sizeof what,
                 "order: %lld of %lld parameters%s follow the order of the model within their "
                 "param_group, which their shapes do not prove",
                 (long long)(o->n - o->n_apart), (long long)o->n, of);
    snprintf(t->joined + n, sizeof t->joined - n, "%snames are joined by %s%s", n ? "; " : "", what,
             n ? ""
               : " (PyTorch from 2.6 on stores names where the optimizer is given "
                 "model.named_parameters())");
}

/* Says what is not known of the names of an optimizer's parameters; has_others: the file has other
 * tensors than those of optimizers. */
static void say_names(const struct qm_torch_walk *w, const struct qm_torch_optimizer *o,
                      int has_others)
{
    struct qm_torch *t = w->f->own;
    char text[QM_TORCH_NAME];
    if (!o->model && o->n > 0 && !qm_torch_given_name(&o->of[0]))
        qm_left_out_add(&t->left_out, "names of the parameters (%s)",
                        why_numbers(w, o, has_others, text));
    else if (!o->model && *o->why)
        qm_left_out_add(&t->left_out, "the parameters' own values (%s)", o->why);
    if (o->is_guess)
        say_joined(w, o);
    if (*o->doubt)
        qm_left_out_add(&t->left_out,
                        "proof that the optimizer '%.80s' trains the model '%s' (its key or shapes "
                        "tell of another)",
                        o->path, o->doubt);
    if (!*o->others)
        return;
    snprintf(text, sizeof text,
             "proof of the model that the optimizer trains (%s would fit as well)", o->others);
    qm_left_out_add(&t->left_out, "%s", text);
}

static qm_status add_optimizer(struct qm_torch_walk *w, const struct qm_torch_optimizer *o)
{
    char name[QM_TORCH_NAME], whole[QM_TORCH_NAME];
    int is;
    for (int64_t i = 0; i < o->n; i++) {
        if (!parameter_name(o, i, name) || !join(whole, w->n_optimizers > 1 ? o->path : "", name))
            return bad_name(w, o, i);
        snprintf(name, sizeof name, "%s", whole);
        if (o->of[i].model >= 0 &&
            snprintf(whole, sizeof whole, "%s/param", name) < QM_TORCH_NAME &&
            !is_taken(w->f, whole))
            QM_TRY(add_tensor(w, whole, o->model->item[o->of[i].model + 1], &is));
        QM_TRY(add_state(w, name, o->of[i].state, 0));
        QM_TRY(add_group(w, name, o->of[i].group));
        qm_reader_progress();
    }
    return QM_OK;
}

/* Whether a tensor of a dictionary has an entry as an optimizer's parameter. */
static int is_parameter(const struct qm_torch_walk *w, const struct qm_pickle *dict, int64_t pair)
{
    for (int k = 0; k < w->n_optimizers; k++)
        if (w->optimizer[k].model == dict && w->optimizer[k].is_parameter[pair])
            return 1;
    return 0;
}

static int is_model_of_any(const struct qm_torch_walk *w, const struct qm_pickle *dict)
{
    for (int k = 0; k < w->n_optimizers; k++)
        if (w->optimizer[k].model == dict)
            return 1;
    return 0;
}

/* Adds all tensors but those of optimizers' states and groups: a model's by their keys, others by
 * the path to them. */
static qm_status add_others(struct qm_torch_walk *w, const struct qm_pickle *v, const char *path,
                            const char *last, int depth)
{
    static const char *const models[] = {"model",   "state_dict",  "model_state_dict",
                                         "module",  "model_state", "net",
                                         "network", "weights"};
    char below[QM_TORCH_NAME], key[QM_TORCH_NAME];
    int is;
    if (!v)
        return QM_OK;
    QM_TRY(qm_torch_visit(w, v));
    if (depth > QM_TORCH_DEPTH_MOST || !may_hold(v) || is_in_itself(w, v, depth))
        return QM_OK;
    w->above[depth] = v;
    if (v->kind == QM_PICKLE_call)
        return add_tensor(w, *path ? path : "tensor", v, &is);
    int is_model = is_model_of_any(w, v), is_states = qm_torch_is_optimizer(v);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        is_model |= strcmp(last, models[i]) == 0;
    for (int64_t i = 0; v->kind == QM_PICKLE_dict && i < v->n; i += 2) {
        if (!qm_torch_key_text(v->item[i], key, sizeof key) || !join(below, path, key) ||
            is_parameter(w, v, i) ||
            (is_states && (strcmp(key, "state") == 0 || strcmp(key, "param_groups") == 0)))
            continue;
        int is_bare = is_model && v->item[i + 1]->kind == QM_PICKLE_call && !is_taken(w->f, key);
        QM_TRY(add_others(w, v->item[i + 1], is_bare ? key : below, key, depth + 1));
    }
    for (int64_t i = 0; (v->kind == QM_PICKLE_list || v->kind == QM_PICKLE_tuple) && i < v->n;
         i++) {
        snprintf(key, sizeof key, "%lld", (long long)i);
        if (join(below, path, key))
            QM_TRY(add_others(w, v->item[i], below, key, depth + 1));
    }
    return QM_OK;
}

qm_status qm_torch_add_all(struct qm_file *f)
{
    struct qm_torch *t = f->own;
    struct qm_torch_walk *w = calloc(1, sizeof *w);
    qm_status st = w ? QM_OK : qm_fail(QM_NO_MEMORY, "%s: names", f->path);
    if (w) {
        w->f = f;
        w->most = QM_TORCH_VISITS_LEAST + QM_TORCH_VISITS_EACH * qm_pickle_count(t->memory);
    }
    if (st == QM_OK)
        st = find_optimizers(w, t->root, "", 0);
    if (st == QM_OK)
        qm_torch_release_shared(w);
    for (int i = 0; st == QM_OK && i < w->n_optimizers; i++)
        st = add_optimizer(w, &w->optimizer[i]);
    int64_t n_own = f->n_entries;
    if (st == QM_OK)
        st = add_others(w, t->root, "", "", 0);
    for (int i = 0; st == QM_OK && i < w->n_optimizers; i++)
        say_names(w, &w->optimizer[i], f->n_entries > n_own);
    if (st == QM_OK)
        st = qm_torch_left_over(w);
    for (int i = 0; w && i < w->n_optimizers; i++) {
        free(w->optimizer[i].of);
        free(w->optimizer[i].is_parameter);
    }
    free(w);
    return st;
}
