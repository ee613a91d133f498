/* torch_join.c - Joins an optimizer's parameters to the tensors of one model by shapes.
 *
 * Shapes prove a join where they leave one way.  Where they leave several, only the plain case is
 * joined, all parameters in the model's order or in that of the groups, and that it is joined by
 * order is said. */
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/torch_names.h"

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

/* Whether a key of a state is that of an average that has the parameter's shape in the optimizers
 * of torch: a scalar of this key is the state of a scalar. */
static int is_of_the_shape(const struct qm_pickle *key)
{
    static const char *const all[] = {
        "exp_avg",     "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer",
        "exp_inf",     "square_avg", "acc_delta",      "grad_avg",
        "sum",         "prev",       "step_size",      "ax",
        "max_exp_inf", "variance"};
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
                 (shape.rank > 0 || is_of_the_shape(state->item[i])) &&
                 (!*found || qm_shape_numel(&shape) > qm_shape_numel(out))) {
            *out = shape;
            *found = 1;
        }
    }
}

/* The shape of a tensor under a key of a state; 0: there is none. */
static int shape_under(struct qm_torch_walk *w, const struct qm_pickle *state, const char *key,
                       struct qm_torch_array *a, struct qm_shape *out)
{
    const struct qm_pickle *v = qm_pickle_find(state, key);
    const char *why;
    int is = 0;
    return v && qm_torch_tensor(w->f, v, &is, a, out, &why) == QM_OK && is == 1;
}

/* The shape of a parameter whose second moment is kept as factors: torch's Adafactor keeps the axis
 * of which a factor is the mean, with one element; that of Hugging Face, and CAME, drop it. */
static int shape_of_factors(struct qm_torch_walk *w, const struct qm_pickle *state,
                            struct qm_torch_array *a, struct qm_shape *out)
{
    struct qm_shape col;
    int last, is_kept = shape_under(w, state, "row_var", a, out) &&
                        shape_under(w, state, "col_var", a, &col);
    if (!is_kept && (!shape_under(w, state, "exp_avg_sq_row", a, out) ||
                     !shape_under(w, state, "exp_avg_sq_col", a, &col)))
        return 0;
    last = col.rank - 1;
    if (out->rank != col.rank || last < is_kept || (!is_kept && col.rank == QM_MAX_RANK) ||
        (is_kept && out->dim[last] != 1))
        return 0;
    out->rank += !is_kept;
    out->dim[out->rank - 1] = col.dim[last];
    return 1;
}

/* The shape of a parameter as its states show it: that of its widest tensor, which bitsandbytes
 * since 0.46 has in a dictionary within, or of two factors; 0: they do not. */
int qm_torch_state_shape(struct qm_torch_walk *w, const struct qm_torch_parameter *p,
                         struct qm_shape *out)
{
    int found = 0;
    struct qm_torch_array *a = calloc(1, sizeof *a);
    if (a && !(found = shape_of_factors(w, p->state, a, out)))
        widest(w, p->state, 2, a, &found, out);
    free(a);
    return found;
}

/* Buffers of normalization layers stand in a state_dict() and are no parameters. */
static int is_buffer(const char *name)
{
    return qm_name_ends(name, "running_mean") || qm_name_ends(name, "running_var") ||
           qm_name_ends(name, "num_batches_tracked");
}

/* Whether the last word of a tensor's name says that it is a parameter and no buffer. */
static int is_called_a_parameter(const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    return strncmp(last, "weight", 6) == 0 || strncmp(last, "bias", 4) == 0;
}

/* Whether a storage and an offset were met before; else they are from now on. */
static int is_tied(struct qm_torch_walk *w, struct qm_name_index *met,
                   const struct qm_torch_candidate *x)
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
int64_t qm_torch_list_candidates(struct qm_torch_walk *w, const struct qm_pickle *model,
                                 struct qm_torch_candidate **out)
{
    int64_t n = 0;
    struct qm_torch_candidate *c = calloc((size_t)(model->n / 2) + 1, sizeof *c);
    struct qm_torch_array *a = calloc(1, sizeof *a);
    struct qm_name_index met = {NULL, 0, 0};
    for (int64_t i = 0; c && a && i < model->n; i += 2) {
        struct qm_torch_candidate *x = &c[n];
        const char *why;
        int is;
        if (model->item[i + 1]->kind == QM_PICKLE_dict) /* of another model, or of options */
            continue;
        if (model->item[i]->kind != QM_PICKLE_text || ++w->visited > w->most ||
            qm_torch_tensor(w->f, model->item[i + 1], &is, a, &x->shape, &why) != QM_OK || is < 0) {
            n = -1;
            break;
        }
        if (is == 0 || a->kind != QM_TORCH_view || a->view.memory || /* an array of NumPy */
            !qm_dtype_is_float(a->view.element->dtype) || is_buffer(model->item[i]->text))
            continue;
        *x = (struct qm_torch_candidate){i, x->shape, a->view.storage, a->view.offset};
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

int qm_torch_same_shape(const struct qm_shape *a, const struct qm_shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

/* A search for the ways in which the candidates, in turn, are the next parameter of some group. */
struct matching {
    const struct qm_torch_candidate *c;
    const struct qm_shape *shape; /* of the parameters */
    const char *has_shape;
    const int64_t *first, *end; /* parameters of each group */
    int64_t *next, *taken, *best;
    int64_t n_candidates, n_parameters, n_groups, calls;
    int ways;     /* 0, 1, or 2 for more than one */
    int has_open; /* parameters without states, which were never stepped, could change places */
};

/* Whether two ways give the same candidates to all parameters with states. */
static int is_same_way(const struct matching *m)
{
    for (int64_t p = 0; p < m->n_parameters; p++)
        if (m->has_shape[p] && m->taken[p] != m->best[p])
            return 0;
    return 1;
}

static void match(struct matching *m, int64_t at, int64_t left)
{
    if (left == 0) {
        if (m->ways == 0)
            memcpy(m->best, m->taken, (size_t)m->n_parameters * sizeof *m->best);
        if (m->ways > 0 && is_same_way(m))
            m->has_open = 1;
        else
            m->ways++;
        return;
    }
    if (m->calls++ > 200000 || m->ways > 1 || m->n_candidates - at < left)
        return;
    for (int64_t g = 0; g < m->n_groups; g++) {
        int64_t p = m->next[g];
        if (p == m->end[g] ||
            (m->has_shape[p] && !qm_torch_same_shape(&m->shape[p], &m->c[at].shape)))
            continue;
        m->taken[p] = m->c[at].pair;
        m->next[g]++;
        match(m, at + 1, left - 1);
        m->next[g]--;
    }
    if (m->n_candidates - at > left) /* a tensor that is not trained */
        match(m, at + 1, left);
}

/* ---- what the shapes alone say --------------------------------------------------------------- */

/* A shape and whose it is, to sort by. */
struct shaped {
    const struct qm_shape *shape;
    int64_t at;
};

static int compare_shapes(const struct shaped *a, const struct shaped *b)
{
    if (a->shape->rank != b->shape->rank)
        return a->shape->rank < b->shape->rank ? -1 : 1;
    return memcmp(a->shape->dim, b->shape->dim, (size_t)a->shape->rank * sizeof *a->shape->dim);
}

static int compare_shaped(const void *a, const void *b)
{
    const struct shaped *x = a, *y = b;
    int by_shape = compare_shapes(x, y);
    return by_shape ? by_shape : (x->at > y->at) - (x->at < y->at);
}

/* What is known of a join, from the shapes and the keys. */
struct tally {
    int fits;          /* each shape has as many candidates as parameters, or more */
    int is_exact;      /* as many, for each shape of a parameter */
    int is_free;       /* two parameters could change places */
    int is_renumbered; /* the keys are sorted so that 10 is before 2, which is no model's order */
    int64_t n_apart;   /* parameters whose shape no other parameter and no other candidate has */
};

/* Compares two keys of one shape, the first of which is before the other in a sorted model. */
static void look_at_keys(const char *a, const char *b, struct tally *t)
{
    size_t k = 0;
    while (a[k] && a[k] == b[k])
        k++;
    while (k > 0 && a[k - 1] >= '0' && a[k - 1] <= '9')
        k--;
    int is_number = a[k] >= '0' && a[k] <= '9' && b[k] >= '0' && b[k] <= '9';
    if (is_number && strtoll(a + k, NULL, 10) > strtoll(b + k, NULL, 10))
        t->is_renumbered = 1;
}

static int has_sorted_keys(const struct qm_pickle *model, const struct qm_torch_candidate *c,
                           int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (strcmp(model->item[c[i - 1].pair]->text, model->item[c[i].pair]->text) >= 0)
            return 0;
    return 1;
}

/* The parameters of states and the candidates, each in the order of shapes. */
static struct tally count_shapes(const struct qm_torch_optimizer *o, const struct shaped *states,
                                 int64_t n_states, const struct shaped *own, int64_t n,
                                 const struct qm_torch_candidate *c, char *is_used)
{
    int is_sorted = has_sorted_keys(o->model, c, n);
    int64_t unknown = o->n - n_states;
    struct tally t = {.fits = o->n <= n,
                      .is_exact = unknown == 0 || o->n == n,
                      .is_free = unknown > 0 && o->n > 1,
                      .n_apart = unknown == 1 && o->n == n};
    for (int64_t i = 0, k = 0, end, last; i < n_states; i = end, k = last) {
        for (end = i; end < n_states && compare_shapes(&states[end], &states[i]) == 0; end++)
            continue;
        for (; k < n && compare_shapes(&own[k], &states[i]) < 0; k++)
            continue;
        for (last = k; last < n && compare_shapes(&own[last], &states[i]) == 0; last++) {
            is_used[own[last].at] = 1;
            if (is_sorted && last > k)
                look_at_keys(o->model->item[c[own[last - 1].at].pair]->text,
                             o->model->item[c[own[last].at].pair]->text, &t);
        }
        t.fits &= end - i <= last - k;
        t.is_exact &= end - i == last - k || unknown > 0;
        t.is_free |= end - i > 1;
        t.n_apart += end - i == 1 && last - k == 1;
    }
    return t;
}

/* The shapes of an optimizer's parameters, and its groups. */
struct known {
    struct qm_shape *shape;
    char *has_shape;
    int64_t *first, *end, *next, *taken, *best;
    int64_t n_groups, n_states;
};

static int know(struct qm_torch_walk *w, const struct qm_torch_optimizer *o, struct known *k)
{
    size_t n = (size_t)o->n + 1;
    *k = (struct known){.shape = calloc(n, sizeof *k->shape),
                        .has_shape = calloc(n, 1),
                        .first = calloc(5 * n, sizeof *k->first)};
    if (!k->shape || !k->has_shape || !k->first)
        return 0;
    k->end = k->first + n;
    k->next = k->end + n;
    k->taken = k->next + n;
    k->best = k->taken + n;
    for (int64_t i = 0; i < o->n; i++) {
        k->has_shape[i] = (char)qm_torch_state_shape(w, &o->of[i], &k->shape[i]);
        k->n_states += k->has_shape[i];
        if (i == 0 || o->of[i].group != o->of[i - 1].group)
            k->first[k->n_groups++] = i;
        k->end[k->n_groups - 1] = i + 1;
        if (i % 64 == 0)
            qm_reader_progress();
    }
    return 1;
}

/* Joins the parameters to as many candidates, in turn or by the only way that the groups allow. */
static enum qm_torch_fit join_all(struct qm_torch_optimizer *o, const struct known *k,
                                  const struct qm_torch_candidate *c, const struct tally *t)
{
    int in_turn = 1;
    for (int64_t i = 0; in_turn && i < o->n; i++)
        in_turn = !k->has_shape[i] || qm_torch_same_shape(&k->shape[i], &c[i].shape);
    struct matching m = {c,        k->shape, k->has_shape, k->first, k->end,      k->next,
                         k->taken, k->best,  o->n,         o->n,     k->n_groups, .ways = 0};
    memcpy(k->next, k->first, (size_t)k->n_groups * sizeof *k->next);
    /* The search is one call deep for each parameter. */
    if (!in_turn && k->n_groups > 1 && o->n <= 4096)
        match(&m, 0, o->n);
    if (!in_turn && (m.ways != 1 || m.calls > 200000))
        return t->is_free ? QM_TORCH_FITS_MANY : QM_TORCH_FITS_NOT;
    o->n_apart = t->n_apart;
    o->is_guess = t->is_free || o->is_part || m.has_open;
    for (int64_t i = 0; i < o->n; i++) {
        o->of[i].model = in_turn ? c[i].pair : m.best[i];
        o->is_guess |= !is_called_a_parameter(o->model->item[o->of[i].model]->text);
    }
    return QM_TORCH_FITS;
}

/* The join with the shapes known; `sorted` has room for those of parameters and candidates. */
static enum qm_torch_fit join_known(struct qm_torch_optimizer *o, const struct known *k,
                                    struct qm_torch_candidate *c, int64_t n, struct shaped *sorted,
                                    char *is_used)
{
    int64_t n_states = 0, n_used = 0;
    struct shaped *own = sorted + k->n_states;
    for (int64_t i = 0; i < o->n; i++)
        if (k->has_shape[i])
            sorted[n_states++] = (struct shaped){&k->shape[i], i};
    for (int64_t i = 0; i < n; i++)
        own[i] = (struct shaped){&c[i].shape, i};
    qsort(sorted, (size_t)n_states, sizeof *sorted, compare_shaped);
    qsort(own, (size_t)n, sizeof *own, compare_shaped);
    const struct tally t = count_shapes(o, sorted, n_states, own, n, c, is_used);
    if (!t.fits)
        return QM_TORCH_FITS_NOT;
    o->is_part = o->n < n;
    /* A part of the model is known only by shapes that nothing else in the model has. */
    if (!t.is_exact || t.is_renumbered)
        return QM_TORCH_FITS_MANY;
    for (int64_t i = 0; i < n; i++)
        if (!o->is_part || is_used[i])
            c[n_used++] = c[i];
    return join_all(o, k, c, &t);
}

enum qm_torch_fit qm_torch_join_by_shape(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                                         struct qm_torch_candidate *c, int64_t n)
{
    struct known k;
    enum qm_torch_fit fit = QM_TORCH_FITS_NOT;
    struct shaped *sorted = calloc((size_t)(o->n + n) + 1, sizeof *sorted);
    char *is_used = calloc((size_t)n + 1, 1);
    if (know(w, o, &k) && sorted && is_used)
        fit = join_known(o, &k, c, n, sorted, is_used);
    free(k.shape);
    free(k.has_shape);
    free(k.first);
    free(sorted);
    free(is_used);
    return fit;
}
