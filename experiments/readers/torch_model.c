/* torch_model.c - Which model's tensors an optimizer's parameters are.
 *
 * An optimizer numbers its parameters in the order of its groups, a model lists its tensors in the
 * order of model.parameters(): they are joined where names or shapes allow one way in one model. */
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

qm_status qm_torch_visit(struct qm_torch_walk *w, const struct qm_pickle *v)
{
    w->visited += 1 + (v && v->kind == QM_PICKLE_dict ? v->n / 2 : 0);
    if (w->visited > w->most)
        return qm_file_bad(w->f, "values that hold each other");
    if (w->visited - w->reported >= 1024) {
        w->reported = w->visited;
        qm_reader_progress();
    }
    return QM_OK;
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

const struct qm_pickle *qm_torch_given_name(const struct qm_torch_parameter *p)
{
    const struct qm_pickle *name =
        p->id->kind == QM_PICKLE_text ? p->id
        : p->is_shared                ? NULL
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

/* ---- which of several models ----------------------------------------------------------------- */

enum {
    OWN = 64,      /* the score of a key that names the optimizer's own model */
    DEEP_MOST = 4, /* dictionaries between a model and the one that its optimizer is somewhere in */
    VALUES_MOST = 1 << 16,
    COMPARED_MOST = 1 << 10 /* dictionaries of tensors that a further one may be, elsewhere */
};

/* Whether a key has a word of the list in it, letters of either case alike. */
static int has_word(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasestr(key, list[i]))
            return 1;
    return 0;
}

/* What is left of one part of a path of keys without the words for an optimizer or a model: "G" of
 * "optG", "actor" of "actor_optimizer", nothing of "models". */
static void owner_of_part(const char *part, size_t n, char out[QM_TORCH_NAME])
{
    static const char *const words[] = {
        "optimizers",  "optimizer",  "optims",     "optim",    "opts",    "opt",
        "state_dicts", "state_dict", "states",     "state",    "dict",    "models",
        "model",       "modules",    "module",     "networks", "network", "nets",
        "net",         "params",     "parameters", "weights"};
    snprintf(out, QM_TORCH_NAME, "%.*s", (int)n, part);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (char *at; (at = strcasestr(out, words[i]));)
            memmove(at, at + strlen(words[i]), strlen(at + strlen(words[i])) + 1);
    char *to = out;
    for (const char *c = out; *c; c++)
        if (!strchr("_-. ", *c))
            *to++ = *c;
    *to = '\0';
}

/* What is left of the last part of a path of which something is left: "G" of "G/optimizer". */
static void owner_of(const char *path, char out[QM_TORCH_NAME])
{
    const char *end = path + strlen(path), *from;
    *out = '\0';
    for (; !*out && end > path; end = from > path ? from - 1 : path) {
        for (from = end; from > path && from[-1] != '/';)
            from--;
        owner_of_part(from, (size_t)(end - from), out);
    }
}

/* Whether the keys of a dictionary call it a copy of a model, and the optimizer's do not. */
static int is_copy(const char *key, const char *optimizer)
{
    static const char *const copies[] = {"best",    "ema",  "target", "teacher", "swa",
                                         "average", "avg",  "prev",   "old",     "init",
                                         "shadow",  "copy", "slow",   "backup"};
    return has_word(key, copies, sizeof copies / sizeof *copies) &&
           !has_word(optimizer, copies, sizeof copies / sizeof *copies);
}

/* Whether the keys of a dictionary and of an optimizer each name an owner, and not the same. */
static int is_of_another(const char *key, const char *optimizer)
{
    static const char *const models[] = {"model", "module", "net", "weights", "params"};
    char mine[QM_TORCH_NAME], theirs[QM_TORCH_NAME];
    owner_of(optimizer, mine);
    owner_of(key, theirs);
    return *mine && *theirs && strcasestr(optimizer, "opt") &&
           has_word(key, models, sizeof models / sizeof *models) && strcasecmp(mine, theirs) != 0;
}

/* How well the path of a dictionary goes with an optimizer's: of one owner, OWN, or of one place in
 * two lists; is_half: its first parameter is in 16 bits. */
static int score_of(const char *key, const char *optimizer, int is_half)
{
    static const char *const models[] = {"model", "state_dict", "module",
                                         "net",   "weights",    "params"};
    char mine[QM_TORCH_NAME], theirs[QM_TORCH_NAME];
    owner_of(optimizer, mine);
    owner_of(key, theirs);
    int is_number = mine[strspn(mine, "0123456789")] == '\0',
        is_own = *mine && strcasecmp(mine, theirs) == 0;
    return (is_number ? 2 : OWN) * is_own +
           4 * has_word(key, models, sizeof models / sizeof *models) - 8 * is_copy(key, optimizer) -
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
        misfit = pair >= 0 && qm_torch_state_shape(w, &o->of[i], &of_states) &&
                 qm_torch_tensor(w->f, o->model->item[pair + 1], &is, a, &shape, &why) == QM_OK &&
                 is == 1 && shape.rank <= of_states.rank &&
                 !qm_torch_same_shape(&shape, &of_states);
        if (i % 64 == 0)
            qm_reader_progress();
    }
    free(a);
    return misfit;
}

/* What a wrapper puts before names (module., _orig_mod., model.), in the model's keys or in the
 * optimizer's: the same for all of them. */
struct wrapper {
    char added[QM_TORCH_NAME];
    size_t cut;
};

/* The wrapper that makes an optimizer's name the key of a model; 0: there is none. */
static int wrapper_of(const struct qm_pickle *key, const char *name, struct wrapper *out)
{
    size_t length = strlen(name);
    *out = (struct wrapper){"", 0};
    if (key->kind != QM_PICKLE_text || key->length >= sizeof out->added)
        return 0;
    if (key->length > length && key->text[key->length - length - 1] == '.' &&
        strcmp(key->text + key->length - length, name) == 0)
        memcpy(out->added, key->text, key->length - length);
    else if (length > key->length && name[length - key->length - 1] == '.' &&
             strcmp(name + length - key->length, key->text) == 0)
        out->cut = length - key->length;
    else
        return 0;
    return 1;
}

/* Joins parameters by their names, as they are or within a wrapper; *found: 1, or 0 where none is
 * joined, or -1 where several wrappers fit.  Of these that one is taken in which alone the shapes
 * of the states fit. */
static qm_status join_by_name(struct qm_torch_walk *w, struct qm_torch_optimizer *o, int *found)
{
    enum { TRIES_MOST = 16 };
    struct qm_name_index at = {NULL, 0, 0};
    struct wrapper one, best[2]; /* by whether the shapes fit */
    int n[2] = {0, 0};
    qm_status st = qm_torch_index_keys(w, o->model, &at);
    const char *name = qm_torch_given_name(&o->of[0])->text;
    *found = st == QM_OK && join_names(o, &at, "", 0) > 0;
    for (int64_t i = 0, tries = 0; st == QM_OK && !*found && i < o->model->n && tries < TRIES_MOST;
         i += 2) {
        if (!wrapper_of(o->model->item[i], name, &one))
            continue;
        tries++;
        if (join_names(o, &at, one.added, one.cut) == o->n) {
            int fits = !is_misfit(w, o);
            best[fits] = n[fits]++ ? best[fits] : one;
        }
    }
    int fits = n[1] > 0;
    if (n[fits] == 1)
        *found = join_names(o, &at, best[fits].added, best[fits].cut) > 0;
    else if (n[fits] > 1)
        *found = -1;
    for (int64_t i = 0; *found <= 0 && i < o->n; i++)
        o->of[i].model = -1;
    qm_name_index_free(&at);
    return st;
}

/* A dictionary of tensors beside an optimizer, and how it fits. */
struct fit {
    const struct qm_pickle *model;
    enum qm_torch_fit fits;
    int is_part, is_own, is_doubtful, score; /* is_doubtful: a copy, another's, other shapes */
    int64_t n;                               /* tensors that may be parameters */
    char key[64];
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

/* Tries a dictionary beside the optimizer as its model. */
static qm_status try_model(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                           const struct qm_pickle *model, struct fit *fit)
{
    struct qm_torch_candidate *c = NULL;
    int joined = 0;
    *fit = (struct fit){.fits = QM_TORCH_FITS_NOT};
    if (!qm_pickle_is(model, QM_PICKLE_dict) || model == o->dict || model->n == 0)
        return QM_OK;
    int64_t n = qm_torch_list_candidates(w, model, &c);
    if (n < 0)
        return QM_OK;
    o->model = model;
    o->is_guess = o->is_part = 0;
    for (int64_t i = 0; i < o->n; i++)
        o->of[i].model = -1;
    qm_status st = QM_OK;
    if (qm_torch_given_name(&o->of[0]))
        st = join_by_name(w, o, &joined);
    fit->model = model;
    fit->n = n;
    fit->fits = !qm_torch_given_name(&o->of[0]) ? qm_torch_join_by_shape(w, o, c, n)
                : joined > 0                    ? QM_TORCH_FITS
                : joined < 0                    ? QM_TORCH_FITS_MANY
                                                : QM_TORCH_FITS_NOT;
    fit->is_part = o->is_part;
    free(c);
    return st;
}

/* Where an optimizer's model is looked for. */
struct place {
    const struct qm_pickle *in; /* a dictionary, list or tuple that the optimizer is somewhere in */
    const struct qm_pickle *from; /* its item that was looked through before; NULL: none */
    struct fit *all;              /* the dictionaries of tensors found, n, and room for them */
    int64_t n, room, looked_at;   /* values, VALUES_MOST at most: they may stand in many places */
};

/* Tries a value as the optimizer's model.  What stands deeper counts less. */
static qm_status try_value(struct qm_torch_walk *w, struct qm_torch_optimizer *o, struct place *p,
                           const struct qm_pickle *value, const char *key)
{
    struct fit fit;
    for (int64_t i = 0; i < p->n && i < COMPARED_MOST; i++)
        if (p->all[i].model == value) /* it stands in several places */
            return QM_OK;
    QM_TRY(try_model(w, o, value, &fit));
    if (!fit.model)
        return QM_OK;
    if (p->n == p->room) {
        int64_t room = 2 * p->room + 8;
        struct fit *all = realloc(p->all, (size_t)room * sizeof *all);
        if (!all)
            return qm_fail(QM_NO_MEMORY, "%s: names", w->f->path);
        p->all = all, p->room = room;
    }
    o->n_beside++;
    snprintf(fit.key, sizeof fit.key, "%.60s", key);
    fit.is_own = score_of(key, o->path, 0) >= OWN / 2;
    if (fit.fits != QM_TORCH_FITS_NOT) {
        int misfits = is_misfit(w, o);
        fit.score = score_of(key, o->path, is_half(w, o)) - OWN * misfits;
        fit.is_doubtful = misfits || is_copy(key, o->path) || is_of_another(key, o->path);
        for (const char *c = key; *c; c++)
            fit.score -= *c == '/';
    }
    p->all[p->n++] = fit;
    return QM_OK;
}

/* Tries all values that stand `deep` dictionaries or lists below `in`; path: the keys to `in`. */
static qm_status try_below(struct qm_torch_walk *w, struct qm_torch_optimizer *o, struct place *p,
                           const struct qm_pickle *in, const char *path, int deep)
{
    int is_dict = in->kind == QM_PICKLE_dict;
    char key[QM_TORCH_NAME], below[QM_TORCH_NAME];
    for (int64_t i = 0; i < in->n; i += is_dict ? 2 : 1) {
        const struct qm_pickle *value = in->item[is_dict ? i + 1 : i];
        int has_items = value && (value->kind == QM_PICKLE_dict || value->kind == QM_PICKLE_list ||
                                  value->kind == QM_PICKLE_tuple);
        if (!has_items || value == p->from || value == o->dict)
            continue;
        if (++p->looked_at > VALUES_MOST)
            return QM_OK;
        QM_TRY(qm_torch_visit(w, value));
        if (!is_dict)
            snprintf(key, sizeof key, "%lld", (long long)i);
        else if (!qm_torch_key_text(in->item[i], key, sizeof key))
            snprintf(key, sizeof key, "?");
        if (snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "", key) >=
            (int)sizeof below)
            continue;
        if (deep == 0)
            QM_TRY(try_value(w, o, p, value, below));
        else if (!qm_torch_is_optimizer(value))
            QM_TRY(try_below(w, o, p, value, below, deep - 1));
    }
    return QM_OK;
}

/* Whether a fit leaves in doubt that another, which its key speaks for, is the one.  That a
 * dictionary is called a model (4) or is in 16 bits (6) does not say that a part of it is trained;
 * that the other one is called a copy (8) does. */
static int is_rival(const struct fit *best, const struct fit *other)
{
    return other->score == best->score || (best->is_part && other->score > best->score - 8);
}

/* Says why an optimizer's parameters are those of no model. */
static void keep_numbers(struct qm_torch_optimizer *o, const struct fit *best, int has_rival)
{
    if (has_rival)
        snprintf(o->why, sizeof o->why, "several models fit the optimizer '%.80s': %s, %.100s",
                 o->path, best->key, o->others);
    else if (best->fits == QM_TORCH_FITS_NOT)
        snprintf(o->why, sizeof o->why, "the model '%s' does not fit the optimizer '%.80s'",
                 best->key, o->path);
    else
        snprintf(o->why, sizeof o->why,
                 "the model '%s' fits the optimizer '%.80s' in several ways; PyTorch from 2.6 on "
                 "stores names where the optimizer is given model.named_parameters()",
                 best->key, o->path);
    *o->others = '\0';
}

/* The fit to take; NULL: there is none, or none is proven, and o->why says which. */
static const struct fit *choose(struct qm_torch_optimizer *o, const struct fit *all, int64_t n)
{
    int is_named = qm_torch_given_name(&o->of[0]) != NULL, has_own = 0, has_rival = 0;
    const struct fit *best = NULL, *own = NULL;
    for (int64_t i = 0; i < n && !is_named; i++)
        if (all[i].is_own) {
            has_own = 1;
            own = &all[i];
        }
    for (int64_t i = 0; i < n; i++)
        if (all[i].fits != QM_TORCH_FITS_NOT && (!has_own || all[i].is_own) &&
            (!best || all[i].score > best->score))
            best = &all[i];
    for (int64_t i = 0; best && i < n; i++) {
        const struct fit *other = &all[i];
        if (other == best || other->fits == QM_TORCH_FITS_NOT || (has_own && !other->is_own) ||
            best->score - other->score >= OWN / 2)
            continue;
        add_other(o, other->key);
        has_rival |= is_rival(best, other);
    }
    if (best && best->fits == QM_TORCH_FITS && !has_rival)
        return best;
    if (best || own)
        keep_numbers(o, best ? best : own, has_rival);
    else if (n == 1 && o->n > all[0].n)
        snprintf(o->why, sizeof o->why,
                 "the optimizer '%.80s' has %lld parameters, and the model '%s' %lld tensors that "
                 "may be some",
                 o->path, (long long)o->n, all[0].key, (long long)all[0].n);
    return NULL;
}

/* Marks what a join took of the model, or takes the join back. */
static qm_status mark_parameters(struct qm_torch_walk *w, struct qm_torch_optimizer *o)
{
    if (o->model && !(o->is_parameter = calloc((size_t)o->model->n, 1)))
        return qm_fail(QM_NO_MEMORY, "%s: names", w->f->path);
    for (int64_t k = 0; k < o->n; k++) {
        o->of[k].model = o->model ? o->of[k].model : -1;
        if (o->of[k].model >= 0)
            o->is_parameter[o->of[k].model] = 1;
    }
    return QM_OK;
}

/* Looks through what stands below a place, and takes a fit into *best; *is_done: one was taken that
 * is not doubtful, or which of several it is cannot be told. */
static qm_status look(struct qm_torch_walk *w, struct qm_torch_optimizer *o, struct place *p,
                      struct fit *best, int *is_done)
{
    char why[sizeof o->why], others[sizeof o->others];
    int has_fit = 0;
    memcpy(why, o->why, sizeof why);
    memcpy(others, o->others, sizeof others);
    *o->why = *o->others = '\0';
    p->n = 0;
    for (int deep = 0; deep <= DEEP_MOST; deep++)
        QM_TRY(try_below(w, o, p, p->in, "", deep));
    const struct fit *found = choose(o, p->all, p->n);
    for (int64_t i = 0; i < p->n; i++)
        has_fit |= p->all[i].fits != QM_TORCH_FITS_NOT;
    *is_done = found ? !found->is_doubtful : has_fit && !best->model;
    if (found && (!best->model || *is_done))
        *best = *found;
    else if (best->model || (*why && !has_fit)) { /* what is nearest says why it does not fit */
        memcpy(o->why, why, sizeof why);
        memcpy(o->others, others, sizeof others);
    }
    o->model = NULL;
    o->is_guess = o->is_part = 0;
    return QM_OK;
}

/* A named optimizer's model may stand beside it, in no dictionary of its own. */
static qm_status look_beside(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                             const struct qm_pickle *in)
{
    int joined = 0;
    if (in->kind != QM_PICKLE_dict || *o->why || !qm_torch_given_name(&o->of[0]))
        return QM_OK;
    o->model = in;
    QM_TRY(join_by_name(w, o, &joined));
    o->model = joined > 0 ? in : NULL;
    return QM_OK;
}

qm_status qm_torch_find_model(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                              const struct qm_pickle *const *above, int n_above)
{
    struct place p = {NULL, NULL, NULL, 0, 0, 0};
    struct fit best = {.model = NULL}, again;
    qm_status st = QM_OK;
    int is_done = o->n == 0;
    for (int level = n_above - 1; st == QM_OK && !is_done && level >= 0; level--) {
        p.in = above[level];
        st = look(w, o, &p, &best, &is_done);
        if (st == QM_OK && !is_done && !best.model && level == n_above - 1) {
            st = look_beside(w, o, p.in);
            is_done = o->model != NULL;
        }
        p.from = p.in;
    }
    free(p.all);
    if (st == QM_OK && best.model) {
        st = try_model(w, o, best.model, &again);
        o->is_own = best.is_own;
        if (best.is_doubtful)
            snprintf(o->doubt, sizeof o->doubt, "%s", best.key);
    }
    return st == QM_OK && o->n > 0 ? mark_parameters(w, o) : st;
}

/* ---- several optimizers of one model --------------------------------------------------------- */

/* What speaks for a join: names that the optimizer gives, its key, that it has all of the model. */
static int rank_of(const struct qm_torch_optimizer *o)
{
    return qm_torch_given_name(&o->of[0]) ? 3 : o->is_own ? 2 : !o->is_part;
}

/* The first tensor that two optimizers took both, as a pair of their model; -1: there is none. */
static int64_t taken_by_both(const struct qm_torch_optimizer *a, const struct qm_torch_optimizer *b)
{
    for (int64_t i = 0; a->model && a->model == b->model && i < a->model->n; i += 2)
        if (a->is_parameter[i] && b->is_parameter[i])
            return i;
    return -1;
}

/* Takes a join back, since another optimizer took `pair` of the model. */
static void release(struct qm_torch_optimizer *o, const struct qm_torch_optimizer *other,
                    int64_t pair)
{
    const struct qm_pickle *key = o->model->item[pair];
    char why[sizeof o->why];
    snprintf(why, sizeof why, "the optimizers '%.80s' and '%.80s' both fit the tensor '%.60s'",
             o->path, other->path, key->kind == QM_PICKLE_text ? key->text : "?");
    memcpy(o->why, why, sizeof why);
    o->model = NULL;
    o->is_guess = 0;
    *o->others = *o->doubt = '\0';
    for (int64_t k = 0; k < o->n; k++)
        o->of[k].model = -1;
}

void qm_torch_release_shared(struct qm_torch_walk *w)
{
    for (int rank = 2; rank >= 0; rank--) {
        int64_t pair[QM_TORCH_OPTIMIZERS_MOST];
        int by[QM_TORCH_OPTIMIZERS_MOST];
        for (int i = 0; i < w->n_optimizers; i++) {
            by[i] = -1;
            for (int k = 0; k < w->n_optimizers && by[i] < 0; k++) {
                const struct qm_torch_optimizer *a = &w->optimizer[i], *b = &w->optimizer[k];
                if (i == k || !a->model || !b->model || rank_of(a) != rank || rank_of(b) < rank)
                    continue;
                pair[i] = taken_by_both(a, b);
                by[i] = pair[i] >= 0 ? k : -1;
            }
        }
        for (int i = 0; i < w->n_optimizers; i++)
            if (by[i] >= 0)
                release(&w->optimizer[i], &w->optimizer[by[i]], pair[i]);
    }
}
