/* tensor_rule_form.h - the kernels of a rule over whole tensors: those of its parameter, which hold its
 * operations too, and those of each slot. */
#ifndef QM_DEVICE_TENSOR_RULE_FORM_H
#define QM_DEVICE_TENSOR_RULE_FORM_H

#include "core/device/step_form.h"

enum { QM_WHOLE_BODY = -1 };

/* A recipe of one slot whose step stores the gradient in it: slot i of r for a tensor of this shape, *slot
 * being its own; or QM_WHOLE_BODY: r's parameter, and a float32 slot.  QM_SKIPPED, with the reason: the
 * rule has no kernels. */
qm_status qm_whole_recipe(const struct qm_recipe *r, int i, const struct qm_shape *shape,
                          struct qm_recipe *out, struct qm_shape *slot);

/* The form of that recipe.  *is_needed: 0 for a slot that the rule works on in place, or that this
 * tensor does not have. */
qm_status qm_whole_form(const struct qm_recipe *r, int i, const struct qm_shape *shape,
                        enum qm_dtype grad, struct qm_step_form *out, int *is_needed);

/* The forms of any recipe, by `part` from 0 on until *is_there is 0: the one of an elementwise rule, or those
 * of a rule over whole tensors that are needed.  Part 0 is always there. */
qm_status qm_recipe_form(const struct qm_recipe *r, int part, const struct qm_shape *shape,
                         enum qm_dtype grad, struct qm_step_form *out, int *is_there);

/* Whether a recipe made here keeps float32 values, which need no kernel; whether it is a slot's, whose
 * parameter and gradient are one array. */
int qm_whole_is_plain(const struct qm_recipe *r);
int qm_whole_is_slot(const struct qm_rule *r);

/* The number of the slot, by which its draws go; 0 for any other rule. */
int qm_whole_slot_number(const struct qm_rule *r);

#endif
