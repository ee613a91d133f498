/* torch_names.h - Shared by torch_names.c, torch_flat.c, torch_model.c and torch_left_over.c: the
 * optimizers of a checkpoint, and the tensors of a model that are their parameters. */
#ifndef QM_READERS_TORCH_NAMES_H
#define QM_READERS_TORCH_NAMES_H

#include "experiments/readers/torch.h"

enum {
    QM_TORCH_NAME = 1024,
    QM_TORCH_DEPTH_MOST = 32,
    QM_TORCH_ENTRIES_MOST = 1 << 20,
    QM_TORCH_VISITS_LEAST = 1 << 16,
    QM_TORCH_OPTIMIZERS_MOST = 16
};

/* One parameter of an optimizer: its id, its state, and the tensor of the model that it is. */
struct qm_torch_parameter {
    const struct qm_pickle *id, *state, *group;
    int64_t at;    /* in its group */
    int64_t model; /* pair of the model's dictionary, or -1 */
};

struct qm_torch_optimizer {
    char path[QM_TORCH_NAME];
    const struct qm_pickle *dict, *model; /* model: the dictionary beside it, or NULL */
    struct qm_torch_parameter *of;
    int64_t n, room;
    int is_guess;       /* names are joined in turn, and shapes and groups allow other orders too */
    int n_beside;       /* dictionaries of tensors beside it, whether they fit or not */
    char others[256];   /* keys of those that would fit as well as `model`, with commas; "": none */
    char *is_parameter; /* for each item of model */
};

/* A walk over the values. */
struct qm_torch_walk {
    struct qm_file *f;
    struct qm_torch_optimizer optimizer[QM_TORCH_OPTIMIZERS_MOST];
    int n_optimizers;
    int64_t visited, most; /* values looked at, and how many at most: some stand in few places */
};

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

/* Looks through the dictionaries beside an optimizer for its model, and joins its parameters to the
 * tensors of one: by the names that the optimizer gives them, else by order and shapes.  Of several
 * that fit it is the one whose key goes best with the optimizer's (G with optG), which ends the
 * question; else one that is not called a copy (best, ema, target, ...), of these one in float32,
 * of these one that is called a model, of these the first, and the keys of the others stand in
 * o->others. */
qm_status qm_torch_find_model(struct qm_torch_walk *w, struct qm_torch_optimizer *o,
                              const struct qm_pickle *parent);

/* Leaves out, by its path, every tensor of the values that was not taken. */
qm_status qm_torch_left_over(struct qm_torch_walk *w);

#endif
