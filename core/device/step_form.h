/* step_form.h - which kernels a recipe's step needs: the part of their source that depends on it.
 *
 * core/device/step.cu is the same for all; the text made here is its "step_recipe.h". */
#ifndef QM_DEVICE_STEP_FORM_H
#define QM_DEVICE_STEP_FORM_H

#include "core/device/step.h"
#include "core/recipe/recipe.h"

/* In the order of step.cu's. */
enum qm_way { QM_WAY_PLAIN, QM_WAY_NONE, QM_WAY_LANES, QM_WAY_SHARED, QM_WAY_TWICE };

struct qm_slot_form {
    struct qm_codec codec; /* with the norm and block that the shape really gets */
    enum qm_way way;
    int placed;  /* needs an element's indices */
    int numbers; /* per block */
    int folds;   /* passes that fold it; 0 unless QM_WAY_TWICE */
    int room;    /* its place in the room of a tile */
};

/* Tensors whose forms are equal can share a launch. */
struct qm_step_form {
    const struct qm_rule *rule;
    struct qm_param param;
    enum qm_dtype grad;
    int n_slots, rank, folds, room,
        tile;     /* tile: elements, at most QM_STEP_THREADS * QM_STEP_EACH */
    int words;    /* 64-bit ones of a descriptor */
    int by_value; /* 1: the kernel that takes the tables by value is wanted too; set by the caller */
    int codes;    /* 1: so is the one that lists where codes change */
    int whole;    /* 1: so are those of rules over whole tensors (tensor_rule.cu) */
    int by_value_tensors, by_value_chunks;
    struct qm_slot_form slot[QM_MAX_SLOTS];
};

/* grad: f32, bf16 or f16.  QM_SKIPPED where no kernel does this recipe, with the reason: nested
 * scales, or a rule over whole tensors, which has several forms (tensor_rule_form.h). */
qm_status qm_step_form(const struct qm_recipe *r, const struct qm_shape *shape, enum qm_dtype grad,
                       struct qm_step_form *out);

/* The text of "step_recipe.h"; the caller frees it.  NULL: no memory. */
char *qm_step_text(const struct qm_step_form *f);

#endif
