/* torch_names.h - Shared by torch_names.c, torch_flat.c, torch_join.c, torch_model.c and
 * torch_left_over.c: the optimizers of a checkpoint, and the tensors of a model that are their
 * parameters. */
#ifndef QM_READERS_TORCH_NAMES_H
#define QM_READERS_TORCH_NAMES_H

#include "experiments/readers/torch.h"

enum {
    QM_TORCH_NAME = 1024,
    QM_TORCH_DEPTH_MOST = 32,
    QM_TORCH_ENTRIES_MOST = 1 << 20,
    QM_TORCH_VISITS_LEAST = 1 << 16,
    QM_TORCH_VISITS_EACH = 8, /* times a value, and a place in a container, may be looked at */
    QM_TORCH_OPTIMIZERS_MOST = 16
};

/* One parameter of an optimizer: its id, its state, and the tensor of the model that it is. */
struct qm_torch_parameter {
    const struct qm_pickle *id, *state, *group;
    int64_t at;    /* in its group */
    int64_t model; /* pair of the model's dictionary, or -1 */
    int is_shared; /* its optimizer gives one name to two parameters, so that it has none */
};

struct qm_torch_optimizer {
    char path[QM_TORCH_NAME];
    const struct qm_pickle *dict, *model; /* model: the dictionary beside it, or NULL */
    struct qm_torch_parameter *of;
    int64_t n, room;
    int is_guess;       /* joined, and neither names nor shapes prove it */
    int64_t n_apart;    /* parameters whose shape no other parameter and no other tensor has */
    int is_part;        /* the model has more tensors than the optimizer has parameters */
    int is_own;         /* the model's key goes with the optimizer's, as G with optG */
    int n_beside;       /* dictionaries of tensors beside it, whether they fit or not */
    char others[256];   /* keys of those that would fit as well as `model`, with commas; "": none */
    char doubt[64];     /* the key of `model`, where it tells of another owner or a copy */
    char why[320];      /* why its parameters are no model's; "": no model fits */
    char *is_parameter; /* for each item of model */
};

/* A walk over the values. */
struct qm_torch_walk {
    struct qm_file *f;
    struct qm_torch_optimizer optimizer[QM_TORCH_OPTIMIZERS_MOST];
    int n_optimizers;
    const struct qm_pickle *above[QM_TORCH_DEPTH_MOST + 1]; /* what the value looked at is in */
    int64_t visited, most; /* values looked at, and how many at most: some stand in few places */
    int64_t reported;      /* `visited` at the last word of progress */
};

/* Counts a value that is looked at (NULL: a number's), with the keys of a dictionary, which are
 * compared: QM_BAD_FILE, "values that hold each other", once that are w->most. */
qm_status qm_torch_visit(struct qm_torch_walk *w, const struct qm_pickle *v);

/* The text of a key, a text or a whole number; 0: it is neither, too long, or has a NUL in it. */
int qm_torch_key_text(const struct qm_pickle *key, char *out, size_t size);

/* Puts the flat form of an optimizer's state_dict(), a dictionary with the keys
 * param_groups.NAME.OPTION and state.NAME.SLOT, together anew in its place as `state` and
 * `param_groups`, in a dictionary `optim` where other keys stand beside them; other dictionaries
 * stay as they are. */
qm_status qm_torch_unflatten(struct qm_torch_walk *w, struct qm_pickle *dict);

/* The name that an optimizer gives a parameter: its id, or the one in `param_names` of its group
 * (torch since 2.6); NULL: it gives none. */
const struct qm_pickle *qm_torch_given_name(const struct qm_torch_parameter *p);

/* Numbers of the pairs of a dictionary, by the texts of its keys. */
qm_status qm_torch_index_keys(struct qm_torch_walk *w, const struct qm_pickle *dict,
                              struct qm_name_index *x);

/* A tensor of a model that may be a parameter. */
struct qm_torch_candidate {
    int64_t pair; /* in the model's dictionary */
    struct qm_shape shape;
    int64_t storage, offset;
};

enum qm_torch_fit {
    QM_TORCH_FITS_NOT,
    QM_TORCH_FITS,     /* joined */
    QM_TORCH_FITS_MANY /* in several ways, none of which is the plain one: not joined */
};

/* The tensors of a dictionary that may be parameters: floats, each storage once; dictionaries in it
 * are left out; -1: another value is no tensor, there is none, or there is no memory. */
int64_t qm_torch_list_candidates(struct qm_torch_walk *w, const struct qm_pickle *model,
                                 struct qm_torch_candidate **out);

/* The shape of a parameter as its states show it: that of its widest tensor, which bitsandbytes
 * since 0.46 has in a dictionary within; 0: they do not. */
int qm_torch_state_shape(struct qm_torch_walk *w, const struct qm_torch_parameter *p,
                         struct qm_shape *out);

int qm_torch_same_shape(const struct qm_shape *a, const struct qm_shape *b);

/* Joins the parameters to the candidates of o->model: to all of them in turn, whatever the groups,
 * else by the one way that the shapes and the order within groups allow.  A part of the model is
 * joined only where as many of its tensors have each shape as there are parameters of it.  Changes
 * c. */
enum qm_torch_fit qm_torch_join_by_shape(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                                         struct qm_torch_candidate *c, int64_t n);

/* Whether a value is the state_dict() of an optimizer. */
int qm_torch_is_optimizer(const struct qm_pickle *v);

/* Looks for an optimizer's model, and joins its parameters to the tensors of one: by the names that
 * the optimizer gives them, else by order and shapes.  above[n_above]: the dictionaries, lists and
 * tuples that the optimizer is in, the outermost first.  The dictionaries beside the optimizer come
 * first, then those up to four deeper, then those of the next one above in the same order, until
 * one fits.  Of those at equal distance one whose key goes with the optimizer's (G with optG) is
 * the only one that counts; else it is one that is not called a copy (best, ema, target, ...), of
 * these one in float32, of these one that is called a model, and the keys of the others stand in
 * o->others.  By shapes nothing is joined where that does not decide, or where the model fits in
 * several ways: o->why says so. */
qm_status qm_torch_find_model(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                              const struct qm_pickle *const *above, int n_above);

/* Takes joins by shapes back where two optimizers have the same tensor: that of the one which less
 * speaks for, or of both. */
void qm_torch_release_shared(struct qm_torch_walk *w);

/* Leaves out, by its path, every tensor of the values that was not taken. */
qm_status qm_torch_left_over(struct qm_torch_walk *w);

#endif
