/* torch_left_over.c - What of a checkpoint's tensors nothing took: each is left out by its path. */
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/torch_names.h"

enum { NAMES_MOST = 64, PATH_SHOWN = 200 };

/* A value, and where it was found: under a key or at a place of the parent's value. */
struct node {
    const struct qm_pickle *v, *key; /* key: NULL where `place` says where */
    int64_t parent, place;           /* place: -1 for what a call is given, which adds no name */
};

/* Values in the order in which they were found; each container stands once. */
struct sweep {
    struct qm_torch_walk *w;
    struct node *node;
    int64_t n, room;
};

static qm_status queue(struct sweep *s, struct node x)
{
    int holds = x.v && (x.v->kind == QM_PICKLE_dict || x.v->kind == QM_PICKLE_list ||
                        x.v->kind == QM_PICKLE_tuple || x.v->kind == QM_PICKLE_call ||
                        x.v->kind == QM_PICKLE_persistent);
    if (!holds || x.v->is_queued)
        return QM_OK;
    QM_TRY(qm_grow((void **)&s->node, &s->room, s->n + 1, sizeof *s->node));
    ((struct qm_pickle *)x.v)->is_queued = 1;
    s->node[s->n++] = x;
    return QM_OK;
}

/* What stands for a key that is no name, and why it is none. */
static void describe_key(const struct node *x, char out[QM_TORCH_NAME])
{
    int n = snprintf(out, QM_TORCH_NAME, "(key %lld, ", (long long)x->place / 2);
    if (x->key->kind != QM_PICKLE_text)
        snprintf(out + n, QM_TORCH_NAME - (size_t)n, "no text)");
    else if (strlen(x->key->text) != x->key->length)
        snprintf(out + n, QM_TORCH_NAME - (size_t)n, "a NUL after '%.60s')", x->key->text);
    else
        snprintf(out + n, QM_TORCH_NAME - (size_t)n, "%zu bytes, expected at most %d)",
                 x->key->length, QM_TORCH_NAME - 1);
}

/* The path to node i, its end where it is long; its whole length. */
static size_t path_of(const struct sweep *s, int64_t i, char out[QM_TORCH_NAME])
{
    int64_t above[NAMES_MOST];
    int names = 0;
    size_t n = 0, all = 0;
    for (; i > 0 && names < NAMES_MOST; i = s->node[i].parent)
        if (s->node[i].place >= 0)
            above[names++] = i;
    out[0] = '\0';
    while (names > 0) {
        const struct node *x = &s->node[above[--names]];
        char key[QM_TORCH_NAME];
        if (!x->key)
            snprintf(key, sizeof key, "%lld", (long long)x->place);
        else if (!qm_torch_key_text(x->key, key, sizeof key))
            describe_key(x, key);
        if (n < QM_TORCH_NAME)
            n += (size_t)snprintf(out + n, QM_TORCH_NAME - n, "%s%s", n ? "/" : "", key);
        all += strlen(key) + (all > 0);
    }
    n = strlen(out);
    if (n > PATH_SHOWN) {
        memmove(out + 3, out + n - PATH_SHOWN, PATH_SHOWN + 1);
        memcpy(out, "...", 3);
    }
    return all;
}

static qm_status queue_items(struct sweep *s, int64_t i)
{
    const struct qm_pickle *v = s->node[i].v;
    int is_dict = v->kind == QM_PICKLE_dict, is_call = v->kind == QM_PICKLE_call;
    for (int64_t k = 0; v->kind != QM_PICKLE_persistent && k < v->n; k += 1 + is_dict) {
        const struct qm_pickle *item = v->item[k], *value = v->item[k + is_dict];
        if (is_dict) /* a key may be a tensor, or have one in it */
            QM_TRY(queue(s, (struct node){item, item, i, k}));
        QM_TRY(queue(s, (struct node){value, is_dict ? item : NULL, i, is_call ? -1 : k}));
    }
    return QM_OK;
}

/* Leaves node i out if it is a tensor or a storage that nothing took, and looks into it if not. */
static qm_status look(struct sweep *s, int64_t i, struct qm_torch_array *a)
{
    struct qm_torch *t = s->w->f->own;
    const struct qm_pickle *v = s->node[i].v;
    struct qm_shape shape;
    char path[QM_TORCH_NAME];
    const char *why = "a storage that is no tensor's";
    int is = v->kind == QM_PICKLE_persistent ? 0 : -1;
    if (v->kind == QM_PICKLE_call)
        QM_TRY(qm_torch_tensor(s->w->f, v, &is, a, &shape, &why));
    if (is < 0 || (is == 1 && v->is_taken))
        return queue_items(s, i);
    if (v->is_taken) /* left out by its name already, with what is in it */
        return QM_OK;
    size_t length = path_of(s, i, path);
    if (is && length >= QM_TORCH_NAME)
        qm_left_out_add(&t->left_out, "%s (a name of %zu bytes, expected at most %d)", path, length,
                        QM_TORCH_NAME - 1);
    else
        qm_left_out_add(&t->left_out, "%s (%s)", path, is ? "a tensor where none is read" : why);
    return QM_OK;
}

/* Takes the tensors of one element in an optimizer's groups, which attributes give. */
static qm_status take_options(struct qm_torch_walk *w, const struct qm_pickle *v,
                              struct qm_torch_array *a)
{
    struct qm_torch *t = w->f->own;
    struct qm_shape shape;
    const char *why;
    int is = -1;
    int is_list = qm_pickle_is(v, QM_PICKLE_list) || qm_pickle_is(v, QM_PICKLE_tuple);
    for (int k = 0; is_list && k < 3; k++) /* betas */
        if (qm_pickle_is(qm_pickle_item(v, k), QM_PICKLE_call))
            QM_TRY(take_options(w, qm_pickle_item(v, k), a));
    if (!qm_pickle_is(v, QM_PICKLE_call))
        return QM_OK;
    QM_TRY(qm_torch_tensor(w->f, v, &is, a, &shape, &why));
    if (is != 1 || qm_shape_numel(&shape) != 1)
        return QM_OK;
    t->is_taking = 1;
    qm_status st = qm_torch_tensor(w->f, v, &is, a, &shape, &why);
    t->is_taking = 0;
    return st;
}

static qm_status take_groups(struct qm_torch_walk *w, struct qm_torch_array *a)
{
    for (int k = 0; k < w->n_optimizers; k++) {
        const struct qm_pickle *groups = qm_pickle_find(w->optimizer[k].dict, "param_groups");
        for (int64_t g = 0; g < groups->n; g++) {
            const struct qm_pickle *of = groups->item[g];
            for (int64_t i = 0; qm_pickle_is(of, QM_PICKLE_dict) && i < of->n; i += 2) {
                if (++w->visited > w->most)
                    return qm_file_bad(w->f, "values that hold each other");
                QM_TRY(take_options(w, of->item[i + 1], a));
            }
        }
    }
    return QM_OK;
}

qm_status qm_torch_left_over(struct qm_torch_walk *w)
{
    struct sweep s = {.w = w};
    struct qm_torch_array *a = calloc(1, sizeof *a);
    qm_status st = a ? take_groups(w, a) : qm_fail(QM_NO_MEMORY, "%s: names", w->f->path);
    if (st == QM_OK)
        st = queue(&s, (struct node){((struct qm_torch *)w->f->own)->root, NULL, -1, -1});
    for (int64_t i = 0; st == QM_OK && i < s.n; i++) {
        st = look(&s, i, a);
        if (i % 1024 == 0)
            qm_reader_progress();
    }
    free(s.node);
    free(a);
    return st;
}
