/* torch_model.c - Which tensors of a model's state_dict() an optimizer's parameters are.
 *
 * An optimizer numbers its parameters in the order of its groups, a model lists its tensors in the
 * order of model.parameters(): they are joined where the shapes of the states allow one way. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/name.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/torch_names.h"

int qm_torch_key_text(const struct qm_pickle *key, char *out, size_t size)
{
    int n = -1;
    if (key->kind == QM_PICKLE_text && strlen(key->text) == key->length)
        n = snprintf(out, size, "%s", key->text);
    else if (key->kind == QM_PICKLE_whole)
        n = snprintf(out, size, "%lld", (long long)key->whole);
    return n >= 0 && n < (int)size;
}

qm_status qm_torch_index_keys(struct qm_torch_walk *w, const struct qm_pickle *dict,
                              struct qm_name_index *x)
{
    char key[QM_TORCH_NAME];
    for (int64_t i = 0; i < dict->n; i += 2) {
        const struct qm_pickle *text = dict->item[i];
        if (!qm_torch_key_text(text, key, sizeof key))
            continue;
        if (text->kind != QM_PICKLE_text &&
            !(text = qm_pickle_make_text(((struct qm_torch *)w->f->own)->memory, QM_PICKLE_text,
                                         key, strlen(key))))
            return qm_fail(QM_NO_MEMORY, "%s: names", w->f->path);
        QM_TRY(qm_name_index_put(x, text->text, strlen(text->text), i));
        if (i % 8192 == 0)
            qm_reader_progress();
    }
    return QM_OK;
}

/* Whether a key of a state is a table, a scale or a record of bitsandbytes, which has not the shape
 * of the parameter. */
static int is_beside_codes(const struct qm_pickle *key)
{
    static const char *const all[] = {"qmap1", "qmap2",    "absmax1",  "absmax2",   "max1",
                                      "max2",  "new_max1", "new_max2", "gnorm_vec", "unorm_vec"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (qm_pickle_is_text(key, all[i]))
            return 1;
    return 0;
}

/* The widest tensor of a dictionary, and of dictionaries in it, into *out where it is wider than
 * what *found says is there. */
static void widest(struct qm_torch_walk *w, const struct qm_pickle *state, int depth,
                   struct qm_torch_array *a, int *found, struct qm_shape *out)
{
    for (int64_t i = 0; qm_pickle_is(state, QM_PICKLE_dict) && i < state->n; i += 2) {
        const struct qm_pickle *v = state->item[i + 1];
        struct qm_shape shape;
        const char *why;
        int is;
        if (is_beside_codes(state->item[i]) ||
            (qm_pickle_is_text(state->item[i], "state1") && qm_pickle_find(state, "state2")))
            continue; /* AdEMAMix's state1 is two averages, one behind the other */
        if (v->kind == QM_PICKLE_dict && depth > 0)
            widest(w, v, depth - 1, a, found, out);
        else if (qm_torch_tensor(w->f, v, &is, a, &shape, &why) == QM_OK && is == 1 &&
                 shape.rank > 0 && (!*found || qm_shape_numel(&shape) > qm_shape_numel(out))) {
            *out = shape;
            *found = 1;
        }
    }
}

/* The shape of a parameter as its states show it: that of its widest tensor, which bitsandbytes
 * since 0.46 has in a dictionary within; 0: they do not. */
static int state_shape(struct qm_torch_walk *w, const struct qm_torch_parameter *p,
                       struct qm_shape *out)
{
    int found = 0;
    struct qm_torch_array *a = calloc(1, sizeof *a);
    if (a)
        widest(w, p->state, 2, a, &found, out);
    free(a);
    return found;
}

struct candidate {
    int64_t pair; /* in the model's dictionary */
    struct qm_shape shape;
    int64_t storage, offset;
};

/* Buffers of normalization layers stand in a state_dict() and are no parameters. */
static int is_buffer(const char *name)
{
    return qm_name_ends(name, "running_mean") || qm_name_ends(name, "running_var") ||
           qm_name_ends(name, "num_batches_tracked");
}

/* Whether a storage and an offset were met before; else they are from now on. */
static int is_tied(struct qm_torch_walk *w, struct qm_name_index *met, const struct candidate *x)
{
    char key[48];
    int n = snprintf(key, sizeof key, "%lld/%lld", (long long)x->storage, (long long)x->offset);
    if (qm_name_index_get(met, key, (size_t)n) >= 0)
        return 1;
    const struct qm_pickle *copy =
        qm_pickle_make_text(((struct qm_torch *)w->f->own)->memory, QM_PICKLE_text, key, (size_t)n);
    return !copy || qm_name_index_put(met, copy->text, (size_t)n, 1) != QM_OK;
}

/* The tensors of a dictionary that may be parameters: floats, each storage once; -1: a value is no
 * tensor, or there is no memory. */
static int64_t list_candidates(struct qm_torch_walk *w, const struct qm_pickle *model,
                               struct candidate **out)
{
    int64_t n = 0;
    struct candidate *c = calloc((size_t)(model->n / 2) + 1, sizeof *c);
    struct qm_torch_array *a = calloc(1, sizeof *a);
    struct qm_name_index met = {NULL, 0, 0};
    for (int64_t i = 0; c && a && i < model->n; i += 2) {
        struct candidate *x = &c[n];
        const char *why;
        int is;
        if (model->item[i]->kind != QM_PICKLE_text || ++w->visited > w->most ||
            qm_torch_tensor(w->f, model->item[i + 1], &is, a, &x->shape, &why) != QM_OK || is < 0) {
            n = -1;
            break;
        }
        if (is == 0 || a->kind != QM_TORCH_view || a->view.memory || /* an array of NumPy */
            !qm_dtype_is_float(a->view.element->dtype) || is_buffer(model->item[i]->text))
            continue;
        *x = (struct candidate){i, x->shape, a->view.storage, a->view.offset};
        n += !is_tied(w, &met, x); /* tied weights are one parameter */
        if (w->visited % 64 == 0)
            qm_reader_progress();
    }
    qm_name_index_free(&met);
    free(a);
    if (n <= 0 || !c) {
        free(c);
        return -1;
    }
    *out = c;
    return n;
}

static int same_shape(const struct qm_shape *a, const struct qm_shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

/* A search for the ways in which the candidates, in turn, are the next parameter of some group. */
struct matching {
    const struct candidate *c;
    const struct qm_shape *shape; /* of the parameters */
    const char *has_shape;
    const int64_t *first, *end; /* parameters of each group */
    int64_t *next, *taken, *best;
    int64_t n_candidates, n_parameters, n_groups, calls;
    int ways; /* 0, 1, or 2 for more than one */
};

static void match(struct matching *m, int64_t at, int64_t left)
{
    if (left == 0) {
        if (m->ways++ == 0)
            memcpy(m->best, m->taken, (size_t)m->n_parameters * sizeof *m->best);
        return;
    }
    if (m->calls++ > 200000 || m->ways > 1 || m->n_candidates - at < left)
        return;
    for (int64_t g = 0; g < m->n_groups; g++) {
        int64_t p = m->next[g];
        if (p == m->end[g] || (m->has_shape[p] && !same_shape(&m->shape[p], &m->c[at].shape)))
            continue;
        m->taken[p] = m->c[at].pair;
        m->next[g]++;
        match(m, at + 1, left - 1);
        m->next[g]--;
    }
    if (m->n_candidates - at > left) /* a tensor that is not trained */
        match(m, at + 1, left);
}

/* Joins where the parameters are the candidates in turn, whatever their groups (is_guess: groups in
 * another order would fit as well); where the shapes do not allow that, by the one way that they
 * allow.  1: joined. */
static int join_by_shape(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                         const struct candidate *c, int64_t n)
{
    (void)w;
    int64_t groups = 0, joined = 0;
    struct qm_shape *shape = calloc((size_t)o->n + 1, sizeof *shape);
    char *has = calloc((size_t)o->n + 1, 1);
    int64_t *room = calloc(5 * (size_t)o->n + 5, sizeof *room);
    if (shape && has && room) {
        int64_t *first = room, *end = first + o->n + 1, *next = end + o->n + 1;
        int64_t *taken = next + o->n + 1, *best = taken + o->n + 1;
        for (int64_t i = 0; i < o->n; i++) {
            has[i] = (char)state_shape(w, &o->of[i], &shape[i]);
            if (i == 0 || o->of[i].group != o->of[i - 1].group)
                first[groups++] = i;
            end[groups - 1] = i + 1;
            if (i % 64 == 0)
                qm_reader_progress();
        }
        int in_turn = n == o->n;
        for (int64_t i = 0; in_turn && i < n; i++)
            in_turn = !has[i] || same_shape(&shape[i], &c[i].shape);
        struct matching m = {c,     shape, has, first, end,    next,
                             taken, best,  n,   o->n,  groups, .ways = 0};
        memcpy(next, first, (size_t)groups * sizeof *next);
        /* The search is one call deep for each parameter. */
        if ((!in_turn || groups > 1) && o->n <= 4096)
            match(&m, 0, o->n);
        int is_only = m.ways == 1 && m.calls <= 200000;
        joined = in_turn || is_only;
        o->is_guess = in_turn && groups > 1 && !is_only;
        for (int64_t i = 0; joined && i < o->n; i++)
            o->of[i].model = in_turn ? c[i].pair : best[i];
    }
    free(shape);
    free(has);
    free(room);
    return (int)joined;
}

const struct qm_pickle *qm_torch_given_name(const struct qm_torch_parameter *p)
{
    const struct qm_pickle *name =
        p->id->kind == QM_PICKLE_text
            ? p->id
            : qm_pickle_item(qm_pickle_find(p->group, "param_names"), p->at);
    return qm_pickle_is(name, QM_PICKLE_text) ? name : NULL;
}

/* Joins each parameter whose name, with `added` before it and without its first `cut` bytes, is the
 * key of a tensor of the model; returns how many. */
static int64_t join_names(struct qm_torch_optimizer *o, const struct qm_name_index *at,
                          const char *added, size_t cut)
{
    char key[QM_TORCH_NAME];
    int64_t found = 0;
    for (int64_t i = 0; i < o->n; i++) {
        const struct qm_pickle *name = qm_torch_given_name(&o->of[i]);
        int n = name && name->length >= cut
                    ? snprintf(key, sizeof key, "%s%s", added, name->text + cut)
                    : -1;
        int64_t pair = n >= 0 && n < (int)sizeof key ? qm_name_index_get(at, key, (size_t)n) : -1;
        o->of[i].model = pair >= 0 && o->model->item[pair + 1]->kind == QM_PICKLE_call ? pair : -1;
        found += o->of[i].model >= 0;
    }
    return found;
}

/* Joins parameters by their names.  Where none is a key of the model, what a wrapper puts before
 * names (module., _orig_mod., model.) may be the difference: it is the same for all. */
static qm_status join_by_name(struct qm_torch_walk *w, struct qm_torch_optimizer *o, int *found)
{
    enum { TRIES_MOST = 16 };
    struct qm_name_index at = {NULL, 0, 0};
    qm_status st = qm_torch_index_keys(w, o->model, &at);
    const char *name = qm_torch_given_name(&o->of[0])->text;
    size_t length = strlen(name);
    int64_t joined = join_names(o, &at, "", 0);
    for (int64_t i = 0, tries = 0;
         st == QM_OK && joined == 0 && i < o->model->n && tries < TRIES_MOST; i += 2) {
        const struct qm_pickle *key = o->model->item[i];
        char added[QM_TORCH_NAME] = "";
        size_t cut = 0;
        if (key->kind != QM_PICKLE_text || key->length >= sizeof added)
            continue;
        if (key->length > length && key->text[key->length - length - 1] == '.' &&
            strcmp(key->text + key->length - length, name) == 0)
            memcpy(added, key->text, key->length - length);
        else if (length > key->length && name[length - key->length - 1] == '.' &&
                 strcmp(name + length - key->length, key->text) == 0)
            cut = length - key->length;
        else
            continue;
        tries++;
        if (join_names(o, &at, added, cut) == o->n)
            joined = o->n;
    }
    qm_name_index_free(&at);
    *found = joined > 0;
    return st;
}

/* ---- which of several models ----------------------------------------------------------------- */

enum { OWN = 64 }; /* the score of a key that names the optimizer's own model */

/* Whether a key has a word of the list in it, letters of either case alike. */
static int has_word(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasestr(key, list[i]))
            return 1;
    return 0;
}

/* What is left of a key without the words for an optimizer or a model: "G" of "optG", "actor" of
 * "actor_optimizer". */
static void owner_of(const char *key, char out[QM_TORCH_NAME])
{
    static const char *const words[] = {"optimizer", "optim",      "opt",    "state_dict", "state",
                                        "dict",      "model",      "module", "network",    "net",
                                        "params",    "parameters", "weights"};
    snprintf(out, QM_TORCH_NAME, "%s", key);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (char *at; (at = strcasestr(out, words[i]));)
            memmove(at, at + strlen(words[i]), strlen(at + strlen(words[i])) + 1);
    char *to = out;
    for (const char *c = out; *c; c++)
        if (*c != '_' && *c != '-' && *c != '.' && *c != ' ')
            *to++ = *c;
    *to = '\0';
}

/* How well a dictionary's key goes with an optimizer's; is_half: its first parameter is in 16
 * bits. */
static int score_of(const char *key, const char *optimizer, int is_half)
{
    static const char *const models[] = {"model", "state_dict", "module",
                                         "net",   "weights",    "params"};
    static const char *const copies[] = {"best",    "ema",  "target", "teacher", "swa",
                                         "average", "avg",  "prev",   "old",     "init",
                                         "shadow",  "copy", "slow",   "backup"};
    char mine[QM_TORCH_NAME], theirs[QM_TORCH_NAME];
    owner_of(optimizer, mine);
    owner_of(key, theirs);
    int is_own = *mine && strcasecmp(mine, theirs) == 0;
    int is_copy = has_word(key, copies, sizeof copies / sizeof *copies) &&
                  !has_word(optimizer, copies, sizeof copies / sizeof *copies);
    return OWN * is_own + 4 * has_word(key, models, sizeof models / sizeof *models) - 8 * is_copy -
           6 * is_half;
}

/* Whether a parameter that was joined by its name has not the shape of its states, which are not
 * the factors of one either: these have fewer axes. */
static int is_misfit(struct qm_torch_walk *w, const struct qm_torch_optimizer *o)
{
    struct qm_torch_array *a = calloc(1, sizeof *a);
    int misfit = 0;
    for (int64_t i = 0; a && !misfit && i < o->n; i++) {
        struct qm_shape shape, of_states;
        const char *why;
        int is = 0;
        int64_t pair = o->of[i].model;
        misfit = pair >= 0 && state_shape(w, &o->of[i], &of_states) &&
                 qm_torch_tensor(w->f, o->model->item[pair + 1], &is, a, &shape, &why) == QM_OK &&
                 is == 1 && shape.rank <= of_states.rank && !same_shape(&shape, &of_states);
        if (i % 64 == 0)
            qm_reader_progress();
    }
    free(a);
    return misfit;
}

/* A dictionary of tensors that fits an optimizer, by the parameters' pairs. */
struct fit {
    const struct qm_pickle *model;
    int64_t *pair;
    int is_guess, score;
};

/* Whether the first parameter of a fit is stored in 16 bits. */
static int is_half(struct qm_torch_walk *w, const struct qm_torch_optimizer *o)
{
    struct qm_torch_array *a = calloc(1, sizeof *a);
    struct qm_shape shape;
    const char *why;
    int is = 0, half = 0;
    int64_t pair = o->of[0].model;
    if (a && pair >= 0 &&
        qm_torch_tensor(w->f, o->model->item[pair + 1], &is, a, &shape, &why) == QM_OK && is == 1)
        half = a->kind == QM_TORCH_view && qm_dtype_size(a->view.element->dtype) == 2;
    free(a);
    return half;
}

/* Adds a key to the list of those that fit as well. */
static void add_other(struct qm_torch_optimizer *o, const char *key)
{
    size_t n = strlen(o->others);
    snprintf(o->others + n, sizeof o->others - n, "%s%.60s", n ? ", " : "", key);
}

/* Keeps the fit that o has now where it is better than the best, whose key is then one of the
 * others. */
static void keep_better(struct qm_torch_walk *w, struct qm_torch_optimizer *o, const char *key,
                        struct fit *best, char best_key[QM_TORCH_NAME])
{
    const char *slash = strrchr(o->path, '/');
    int score = score_of(key, slash ? slash + 1 : o->path, is_half(w, o)) - OWN * is_misfit(w, o);
    if (best->model && score <= best->score) {
        if (best->score - score < OWN / 2)
            add_other(o, key);
        return;
    }
    if (best->model && score - best->score < OWN / 2)
        add_other(o, best_key);
    else /* the optimizer's own key decides */
        *o->others = '\0';
    snprintf(best_key, QM_TORCH_NAME, "%s", key);
    best->model = o->model;
    best->score = score;
    best->is_guess = o->is_guess;
    for (int64_t k = 0; k < o->n; k++)
        best->pair[k] = o->of[k].model;
}

/* Tries a dictionary beside the optimizer as its model. */
static qm_status try_model(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                           const struct qm_pickle *model, int *joined)
{
    struct candidate *c = NULL;
    *joined = 0;
    if (!qm_pickle_is(model, QM_PICKLE_dict) || model == o->dict || model->n == 0)
        return QM_OK;
    int64_t n = list_candidates(w, model, &c);
    if (n < 0)
        return QM_OK;
    o->n_beside++;
    o->model = model;
    o->is_guess = 0;
    qm_status st = QM_OK;
    if (qm_torch_given_name(&o->of[0]))
        st = join_by_name(w, o, joined);
    else
        *joined = join_by_shape(w, o, c, n);
    free(c);
    return st;
}

qm_status qm_torch_find_model(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                              const struct qm_pickle *parent)
{
    char key[QM_TORCH_NAME], best_key[QM_TORCH_NAME] = "";
    struct fit best = {.pair = calloc((size_t)o->n + 1, sizeof *best.pair)};
    qm_status st = best.pair ? QM_OK : qm_fail(QM_NO_MEMORY, "%s: names", w->f->path);
    for (int64_t i = 0; st == QM_OK && parent && i < parent->n && o->n > 0; i += 2) {
        int joined;
        st = try_model(w, o, parent->item[i + 1], &joined);
        if (st == QM_OK && joined)
            keep_better(w, o, qm_torch_key_text(parent->item[i], key, sizeof key) ? key : "?",
                        &best, best_key);
    }
    /* A model's tensors may stand beside the optimizer, in no dictionary of their own. */
    if (st == QM_OK && !best.model && qm_pickle_is(parent, QM_PICKLE_dict) && o->n > 0 &&
        qm_torch_given_name(&o->of[0])) {
        int joined = 0;
        o->model = parent;
        st = join_by_name(w, o, &joined);
        if (st == QM_OK && joined)
            keep_better(w, o, "", &best, best_key);
    }
    o->model = best.model;
    o->is_guess = best.is_guess;
    if (best.model && !(o->is_parameter = calloc((size_t)best.model->n, 1)))
        st = qm_fail(QM_NO_MEMORY, "%s: names", w->f->path);
    for (int64_t k = 0; st == QM_OK && k < o->n; k++) {
        o->of[k].model = best.model ? best.pair[k] : -1;
        if (o->of[k].model >= 0)
            o->is_parameter[o->of[k].model] = 1;
    }
    free(best.pair);
    return st;
}
