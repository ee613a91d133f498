/* torch_flat.c - The flat form of an optimizer's state_dict(), put together anew.
 *
 * torch.distributed.checkpoint.state_dict writes it for flatten_optimizer_state_dict=True: values
 * stand under state.NAME.SLOT, where the slots of nested states have dots too, and
 * param_groups.NAME.OPTION, where NAME is the parameter's and may have dots.
 *
 * Source: PyTorch 2.x, torch/distributed/checkpoint/state_dict.py (_flatten_optim_state_dict). */
#include <string.h>

#include "experiments/foreign/reader_process.h"
#include "experiments/readers/torch_names.h"

#define GROUPS "param_groups."
#define STATES "state."

struct flat {
    struct qm_pickle_memory *m;
    struct qm_pickle *states, *groups; /* a dictionary by name; a list with a group for each */
    struct qm_name_index state_at, group_at; /* names to pairs of states, to groups */
};

/* What follows the first word of a key that has a name and a last word behind it; NULL: none. */
static const char *behind(const struct qm_pickle *key, const char *word)
{
    size_t n = strlen(word);
    if (key->kind != QM_PICKLE_text || strncmp(key->text, word, n) != 0 ||
        strlen(key->text) != key->length)
        return NULL;
    const char *dot = strrchr(key->text + n, '.');
    return dot && dot > key->text + n && dot[1] ? key->text + n : NULL;
}

/* The group of a name, which is made where there is none: a dictionary whose params are it. */
static qm_status find_group(struct flat *x, const char *name, size_t n, struct qm_pickle **out)
{
    int64_t at = qm_name_index_get(&x->group_at, name, n);
    if (at < 0) {
        struct qm_pickle *group = qm_pickle_make(x->m, QM_PICKLE_dict),
                         *params = qm_pickle_make(x->m, QM_PICKLE_list);
        QM_TRY(qm_pickle_put(x->m, params, qm_pickle_make_text(x->m, QM_PICKLE_text, name, n)));
        QM_TRY(qm_pickle_put(x->m, group, qm_pickle_make_text(x->m, QM_PICKLE_text, "params", 6)));
        QM_TRY(qm_pickle_put(x->m, group, params));
        at = x->groups->n;
        QM_TRY(qm_pickle_put(x->m, x->groups, group));
        QM_TRY(qm_name_index_put(&x->group_at, params->item[0]->text, n, at));
    }
    *out = x->groups->item[at];
    return QM_OK;
}

static qm_status find_state(struct flat *x, const char *name, size_t n, struct qm_pickle **out)
{
    int64_t at = qm_name_index_get(&x->state_at, name, n);
    if (at < 0) {
        struct qm_pickle *key = qm_pickle_make_text(x->m, QM_PICKLE_text, name, n);
        at = x->states->n;
        QM_TRY(qm_pickle_put(x->m, x->states, key));
        QM_TRY(qm_pickle_put(x->m, x->states, qm_pickle_make(x->m, QM_PICKLE_dict)));
        QM_TRY(qm_name_index_put(&x->state_at, key->text, n, at));
    }
    *out = x->states->item[at + 1];
    return QM_OK;
}

/* Bytes of the name at the front of NAME.SLOT: the longest that has a group, else all up to the
 * last dot. */
static size_t name_length(const struct flat *x, const char *text)
{
    size_t last = (size_t)(strrchr(text, '.') - text);
    for (size_t n = last < QM_TORCH_NAME ? last : 0; n > 0; n--) /* longer ones are no names */
        if (text[n] == '.' && qm_name_index_get(&x->group_at, text, n) >= 0)
            return n;
    return last;
}

/* Puts a value under the last word of its key, in what `find` gives for the name before it. */
static qm_status put_at(struct flat *x, const char *text, size_t n, struct qm_pickle *value,
                        qm_status find(struct flat *, const char *, size_t, struct qm_pickle **))
{
    struct qm_pickle *in = NULL;
    const char *word = text + n + 1;
    QM_TRY(find(x, text, n, &in));
    QM_TRY(qm_pickle_put(x->m, in, qm_pickle_make_text(x->m, QM_PICKLE_text, word, strlen(word))));
    return qm_pickle_put(x->m, in, value);
}

/* Moves the values of a dictionary, of the groups first, since they tell the names, and then what
 * is left of it to the front. */
static qm_status move_all(struct flat *x, struct qm_pickle *dict)
{
    const char *text;
    int64_t kept = 0;
    for (int64_t i = 0; i < dict->n; i += 2)
        if ((text = behind(dict->item[i], GROUPS)))
            QM_TRY(put_at(x, text, (size_t)(strrchr(text, '.') - text), dict->item[i + 1],
                          find_group));
    for (int64_t i = 0; i < dict->n; i += 2) {
        if ((text = behind(dict->item[i], STATES)))
            QM_TRY(put_at(x, text, name_length(x, text), dict->item[i + 1], find_state));
        else if (!behind(dict->item[i], GROUPS)) {
            dict->item[kept++] = dict->item[i];
            dict->item[kept++] = dict->item[i + 1];
        }
        if (i % 8192 == 0)
            qm_reader_progress();
    }
    dict->n = kept;
    struct qm_pickle *to = dict;
    if (kept > 0) { /* a model beside it is looked for where the optimizer stands */
        to = qm_pickle_make(x->m, QM_PICKLE_dict);
        QM_TRY(qm_pickle_put(x->m, dict, qm_pickle_make_text(x->m, QM_PICKLE_text, "optim", 5)));
        QM_TRY(qm_pickle_put(x->m, dict, to));
    }
    QM_TRY(qm_pickle_put(x->m, to, qm_pickle_make_text(x->m, QM_PICKLE_text, "state", 5)));
    QM_TRY(qm_pickle_put(x->m, to, x->states));
    QM_TRY(qm_pickle_put(x->m, to, qm_pickle_make_text(x->m, QM_PICKLE_text, "param_groups", 12)));
    return qm_pickle_put(x->m, to, x->groups);
}

qm_status qm_torch_unflatten(struct qm_torch_walk *w, struct qm_pickle *dict)
{
    int64_t options = 0;
    for (int64_t i = 0; i < dict->n && options < 2; i += 2)
        options += behind(dict->item[i], GROUPS) != NULL;
    if (options < 2 || qm_pickle_find(dict, "state") || qm_pickle_find(dict, "param_groups"))
        return QM_OK;
    struct flat x = {.m = ((struct qm_torch *)w->f->own)->memory};
    x.states = qm_pickle_make(x.m, QM_PICKLE_dict);
    x.groups = qm_pickle_make(x.m, QM_PICKLE_list);
    qm_status st =
        x.states && x.groups ? move_all(&x, dict) : qm_fail(QM_NO_MEMORY, "%s: states", w->f->path);
    qm_name_index_free(&x.state_at);
    qm_name_index_free(&x.group_at);
    return st;
}
