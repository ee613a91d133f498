/* step_form.h - The form of a recipe's step: the part of its kernels' source that depends on the
 * recipe.
 *
 * core/device/step.cu is the same for all recipes and includes the text of the form
 * as "step_recipe.h". */
#ifndef QM_DEVICE_STEP_FORM_H
#define QM_DEVICE_STEP_FORM_H

#include "core/device/step.h"
#include "core/recipe/recipe.h"

/* How the statistics of a slot's blocks are computed; numbered as enum way of step.cu, which says
 * what each means. */
enum qm_way { QM_WAY_PLAIN, QM_WAY_NONE, QM_WAY_LANES, QM_WAY_SHARED, QM_WAY_TWICE };

struct qm_slot_form {
    struct qm_codec codec; /* its norm and block are those of this shape */
    enum qm_way way;
    int placed;      /* 1: a scale depends on the element's indices */
    int numbers;     /* statistics of a block */
    int folds;       /* passes that fold it; 0 unless QM_WAY_TWICE */
    int room;        /* QM_WAY_SHARED: index of its maxima in the shared memory of a tile */
    int needs_block; /* its statistics are made of whole blocks (block_numbers.h) */
    int fresh;       /* needs_block: index of its new state in the shared memory of a tile */
};

/* Tensors whose forms are equal can share a launch. */
struct qm_step_form {
    const struct qm_rule *rule;
    struct qm_param param;
    enum qm_dtype grad;
    int n_slots, folds;
    int rank;        /* dims of a descriptor */
    int room;        /* maxima in the shared memory of a tile, of all slots */
    int fresh;       /* new states of a tile in shared memory, of slots that need whole blocks */
    int tile;        /* elements, at most QM_STEP_THREADS * QM_STEP_EACH */
    int words;       /* 64-bit words of a descriptor */
    int by_value;    /* set by the caller.  1: with kernel qm_step_by_value */
    int codes;       /* set by the caller.  1: with kernel qm_codes */
    int tensor_rule; /* 1: with the kernels of tensor rules (tensor_rule.cu) */
    int by_value_tensors, by_value_chunks;
    struct qm_slot_form slot[QM_MAX_SLOTS];
};

/* The form of an elementwise rule's step; grad: f32, bf16 or f16.  QM_SKIPPED, with the
 * reason: no kernel does this recipe (nested scales), or it is a tensor rule's, which has
 * several forms (tensor_rule_form.h). */
qm_status qm_step_form(const struct qm_recipe *r, const struct qm_shape *shape, enum qm_dtype grad,
                       struct qm_step_form *out);

/* The text of "step_recipe.h"; the caller frees it.  NULL: no memory.  Forms are equal where their
 * texts are. */
char *qm_step_text(const struct qm_step_form *f);

#endif
