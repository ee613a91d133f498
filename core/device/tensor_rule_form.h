/* tensor_rule_form.h - The forms (step_form.h) of a tensor rule: one for its parameter, one for
 * each slot.
 *
 * The parameter's form, called the body, holds the kernels of the rule's operations too. */
#ifndef QM_DEVICE_TENSOR_RULE_FORM_H
#define QM_DEVICE_TENSOR_RULE_FORM_H

#include "core/device/step_form.h"

enum { QM_TENSOR_RULE_BODY = -1 };

/* A recipe of one slot whose step stores the gradient in that slot.  i: slot i of r for a tensor of
 * `shape`, whose own shape goes to *slot; or QM_TENSOR_RULE_BODY: r's parameter, and a float32
 * slot.  QM_SKIPPED, with the reason: the rule has no kernels. */
qm_status qm_tensor_rule_recipe(const struct qm_recipe *r, int i, const struct qm_shape *shape,
                                struct qm_recipe *out, struct qm_shape *slot);

/* Form number `part` of any recipe; *is_there: 0 beyond the last.  An elementwise rule has one
 * form, a tensor rule those that are needed; part 0 is always there. */
qm_status qm_recipe_form(const struct qm_recipe *r, int part, const struct qm_shape *shape,
                         enum qm_dtype grad, struct qm_step_form *out, int *is_there);

/* Whether a recipe of qm_tensor_rule_recipe keeps float32 values, which need no kernel; and whether
 * its rule is a slot's, whose parameter and gradient are one array. */
int qm_tensor_rule_is_plain(const struct qm_recipe *r);
int qm_tensor_rule_is_slot(const struct qm_rule *r);

/* The number of the slot, by which its draws go; 0 for any other rule. */
int qm_tensor_rule_slot_number(const struct qm_rule *r);

#endif
